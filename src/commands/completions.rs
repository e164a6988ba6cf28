//! `completions`: what completes the command line in a shell, from the definition that parses it.

use clap::CommandFactory;
use serde::Serialize;

use super::{Exit, Trouble};
use crate::cli::{Cli, CompletionsArgs};
use crate::json::pretty;
use crate::output;

#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    shell: String,
    /// What the shell is to read.
    script: &'a str,
}

pub(super) fn run(args: CompletionsArgs) -> Result<Exit, Trouble> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "hairpin-mesh", &mut script);
    let script = String::from_utf8_lossy(&script);
    if args.json {
        output::result(&pretty(&Report {
            schema: "hairpin-mesh.completions-report/v1",
            shell: args.shell.to_string(),
            script: &script,
        }))?;
    } else {
        output::result(&script)?;
    }
    Ok(Exit::Yes)
}
