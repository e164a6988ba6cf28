//! `completions`: what completes the command line in a shell, from the definition that parses it.

use clap::CommandFactory;

use super::{Exit, Trouble};
use crate::cli::{Cli, CompletionsArgs};
use crate::output;

pub(super) fn run(args: CompletionsArgs) -> Result<Exit, Trouble> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "hairpin-mesh", &mut script);
    output::result(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Yes)
}
