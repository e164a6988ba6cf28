//! `marker`: the rule of one RDMA device, held.

use std::time::Duration;

use serde::Serialize;

use super::{Exit, Trouble};
use crate::cli::MarkerArgs;
use crate::marker::Rewrite;
use crate::marker::hold::{Ended, Error, Wanted, hold};
use crate::output;

/// What is printed once the rule is in, on one line: the keys of the program that this one stands in for,
/// in their order, so that whoever reads that reads this.
#[derive(Serialize)]
struct Line<'a> {
    device: &'a str,
    rdma_tx_matcher: bool,
    action: &'static str,
    source_port: u16,
    replacement_port: u16,
    attached: bool,
    requested_run_seconds: u32,
    max_run_seconds: u32,
    sigint_sigterm_cleanup: bool,
    managed: bool,
    lifetime_seconds: Option<u32>,
    /// Beside those keys, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    match_destination: Option<std::net::Ipv4Addr>,
}

pub(super) fn run(args: MarkerArgs) -> Result<Exit, Trouble> {
    let wanted = Wanted {
        device: args.device,
        rewrite: Rewrite {
            source_port: args.source_port,
            ethertype: args.replacement_ethertype,
            destination: args.match_destination,
        },
        wait: Duration::from_secs(args.wait.into()),
    };
    if let Some(destination) = args.match_destination {
        output::warning(&format!(
            "--match-destination {destination} is experimental: no NIC was tried"
        ));
    }
    let line = Line {
        device: wanted.device.as_str(),
        rdma_tx_matcher: true,
        action: "ethertype_rewrite",
        source_port: args.source_port,
        // Of another kind of rule, which that program can make, too.
        replacement_port: 0,
        attached: true,
        // No limit: these say what that program says when it is managed by a service.
        requested_run_seconds: 0,
        max_run_seconds: 7200,
        sigint_sigterm_cleanup: true,
        managed: true,
        lifetime_seconds: None,
        match_destination: args.match_destination,
    };
    let line = serde_json::to_string(&line).map_err(std::io::Error::from)?;
    let ended = hold(
        &wanted,
        &mut || output::result(&format!("{line}\n")),
        &mut output::warning,
    );
    match ended {
        Ok(Ended::Stopped) | Err(Error::Interrupted) => Ok(Exit::Yes),
        Ok(Ended::Lost(why)) => {
            output::failure(&why);
            Ok(Exit::No)
        }
        Err(error @ Error::Late { .. }) => {
            output::failure(&error.to_string());
            Ok(Exit::NotReady)
        }
        Err(error) => Err(Trouble::Usage(error.to_string())),
    }
}
