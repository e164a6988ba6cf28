//! `hairpin-mesh`: see `hairpin-mesh --help`.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    ExitCode::from(hairpin_mesh::run(hairpin_mesh::Cli::parse()) as u8)
}
