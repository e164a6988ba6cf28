//! `hairpin-mesh`: see `hairpin-mesh --help`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let exit = match hairpin_mesh::Cli::try_parse_from(&words) {
        Ok(cli) => hairpin_mesh::run(cli),
        Err(error) => hairpin_mesh::not_understood(&error, &words),
    };
    ExitCode::from(exit as u8)
}
