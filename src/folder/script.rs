//! `mesh-up-<host>.sh` and `mesh-down-<host>.sh`: a host's share of the plan as bash scripts.
//!
//! They have the effect of `up` and `down` with `ip`, `tc` and `systemctl` alone, for a node without
//! the binary and for reading. The functions are constant (`script/common.sh`, `up.sh`, `down.sh`);
//! what differs between hosts is a few settings and the tables that come after the functions, one
//! row a line, for a reader to hold against the plan.
//!
//! A table is a bash function that calls its first argument once per row, with the row's columns as
//! arguments: `rules check_rule` checks every rule.

use std::fmt::Write;

use crate::plan::mesh::ROUTE_PROTOCOL;
use crate::plan::{HostPlan, Plan};

const COMMON: &str = include_str!("script/common.sh");
const UP: &str = include_str!("script/up.sh");
const DOWN: &str = include_str!("script/down.sh");

const UP_HEADER: &str = "\
# Does nothing when nothing is to do. Checks everything before the first change; when a change
# fails, what this run had changed is undone, in reverse.
#
# It waits for nothing, sets no hairpin queue size and does not see open queue pairs, whose traffic
# the replacing of a rule interrupts: `hairpin-mesh up` does all three.
#
# Exit code: 0 the host is as planned; 1 something is in the way or an MTU or address is wrong,
# nothing was changed; 2 not root, not this host, or a tool is missing, nothing was changed; 3 failed,
# the host is as it was; 4 failed, and the host could not be restored; 75 a link is not up, nothing
# was changed.
";

const DOWN_HEADER: &str = "\
# Removes what is exactly ours and nothing else: routes by protocol number and content, rules by
# preference, handle and content, markers by unit, a clsact qdisc by the record of the mesh-up that
# made it and when it holds no filter. What is at the place of ours and not exactly ours is left and
# named. Goes on after an error. Does nothing when nothing is to do.
#
# It does not see open queue pairs, whose traffic it ends: stop the engine first.
#
# Exit code: 0 nothing of ours is left; 1 something that is not exactly ours is at the place of ours;
# 2 something could not be removed (or: not root, not this host, a tool is missing; nothing was
# changed then).
";

/// The text of `mesh-up-<host>.sh`: makes `host` what `plan` says.
pub fn mesh_up(plan: &Plan, host: &HostPlan) -> String {
    script(
        "up",
        "makes this host what the plan of its ring says",
        UP_HEADER,
        UP,
        plan,
        host,
    )
}

/// The text of `mesh-down-<host>.sh`: removes what [`mesh_up`]'s script made.
pub fn mesh_down(plan: &Plan, host: &HostPlan) -> String {
    script(
        "down",
        "removes from this host what the mesh-up of its ring made",
        DOWN_HEADER,
        DOWN,
        plan,
        host,
    )
}

fn script(
    verb: &str,
    what: &str,
    header: &str,
    functions: &str,
    plan: &Plan,
    host: &HostPlan,
) -> String {
    let ring: Vec<&str> = plan.ring.iter().map(|h| h.as_str()).collect();
    let mut s = String::new();
    // A String takes everything: writing to it cannot fail.
    let _ = write!(
        s,
        "#!/bin/bash\n\
         # mesh-{verb}-{name}.sh: {what}.\n\
         #\n\
         # Host: {name}\n\
         # Ring: {ring} (along the cables, and from the last back to the first)\n\
         #\n\
         # Run it as root. It is made from plan.json: do not edit it. The tables of this host are at the end.\n\
         # Uses ip, tc and systemctl, and mkdir, rmdir and rm for the records in /run/dsv41-mesh.\n\
         #\n\
         {header}\n\
         # shellcheck disable=SC2317,SC2329 # the tables call functions by name\n\
         set -efuo pipefail\n\
         trap '' PIPE\n\
         export LC_ALL=C\n\
         PATH=$PATH:/usr/sbin:/sbin\n\
         IFS=$' \\t\\n'\n\
         umask 077\n\n\
         HOST={quoted}\n\
         ROUTE_PROTOCOL={protocol}\n\
         {mtu}\n\
         {COMMON}\n\
         {functions}\n\
         # --- This host, row by row as in plan.json ----------------------------------------------------\n\n\
         {tables}\n\
         main \"$0\" \"$@\"\n",
        name = host.host,
        ring = ring.join(" "),
        quoted = quoted(host.host.as_str()),
        mtu = if verb == "up" {
            format!("MTU={}\n", quoted(&plan.mtu.to_string()))
        } else {
            String::new()
        },
        protocol = quoted(&ROUTE_PROTOCOL.to_string()),
        tables = tables(host),
    );
    s
}

/// The tables of a host, in the order in which `up` works.
fn tables(host: &HostPlan) -> String {
    let text = |value: &dyn ToString| value.to_string();
    let ports = host
        .ports
        .iter()
        .map(|p| vec![text(&p.netdev), text(&p.mac), text(&p.ipv4.address)]);
    let clsacts = host.rules.iter().map(|r| vec![text(&r.dev)]);
    let rules = host.rules.iter().map(|r| {
        vec![
            text(&r.dev),
            text(&r.pref),
            text(&r.handle),
            text(&r.protocol),
            text(&r.src_mac),
            text(&r.dst_mac),
            text(&r.set_ethertype),
            text(&r.set_dst_mac),
            text(&r.redirect),
        ]
    });
    let markers = host.markers.iter().map(|m| vec![text(&m.device)]);
    let neighbours = host
        .neighbours
        .iter()
        .map(|n| vec![text(&n.dev), text(&n.address), text(&n.mac)]);
    let routes = host.routes.iter().map(|r| {
        let gateway = r.gateway.map_or("-".to_owned(), |g| g.to_string());
        vec![text(&r.destination), gateway, text(&r.dev), text(&r.src)]
    });
    let rule_columns = [
        "device",
        "pref",
        "handle",
        "protocol",
        "source MAC",
        "destination MAC",
        "set type",
        "set destination MAC",
        "redirect to",
    ];
    [
        table("ports", &["device", "MAC", "address"], ports),
        table("clsacts", &["device"], clsacts),
        table("rules", &rule_columns, rules),
        table("markers", &["RDMA device"], markers),
        table("neighbours", &["device", "address", "MAC"], neighbours),
        table(
            "routes",
            &["destination", "gateway", "device", "source"],
            routes,
        ),
    ]
    .concat()
}

/// A table as a bash function; a row that is there already (two rules on one device need one qdisc)
/// is left out.
fn table(name: &str, columns: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut lines: Vec<Vec<String>> = Vec::new();
    for row in rows {
        let row = row.iter().map(|value| quoted(value)).collect();
        if !lines.contains(&row) {
            lines.push(row);
        }
    }
    if lines.is_empty() {
        return format!("{name}() {{ :; }} # none\n");
    }
    let width = |column: usize| {
        let values = lines.iter().map(|row| row[column].len());
        values.chain([columns[column].len()]).max().unwrap_or(0)
    };
    let padded = |row: Vec<&str>| {
        let cells: Vec<String> = row
            .iter()
            .enumerate()
            .map(|(i, cell)| format!("{cell:0$}", width(i)))
            .collect();
        cells.join(" ").trim_end().to_owned()
    };
    let mut s = format!("{name}() {{\n    #    {}\n", padded(columns.to_vec()));
    for row in &lines {
        let _ = writeln!(
            s,
            "    \"$1\" {}",
            padded(row.iter().map(String::as_str).collect())
        );
    }
    s + "}\n"
}

/// `text` as one word of a shell, whatever is in it but NUL: in single quotes, where every character
/// stands for itself, with each single quote written outside of them as `\'`.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::{quoted, table};
    use crate::names::{HostName, NetdevName, RdmaName};

    /// What bash makes of `word`; `None` without bash.
    fn as_bash_reads(word: &str) -> Option<Vec<u8>> {
        let script = format!("printf '%s' {word}");
        let output = Command::new("bash").args(["-c", &script]).output().ok()?;
        assert!(output.status.success(), "{word}");
        Some(output.stdout)
    }

    #[test]
    fn a_quoted_word_is_one_word_that_reads_back_whatever_is_in_it() {
        for text in [
            "", " ", "'", "''", "a'b'c", "\\", "\\'", "$(id)", "`id`", "a\nb", "*", "~", "!x",
            "-n", "\"", "é;&|",
        ] {
            if let Some(read) = as_bash_reads(&quoted(text)) {
                assert_eq!(read, text.as_bytes(), "{text:?}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_text_without_nul_reads_back(text in "[^\u{0}]{0,40}") {
            if let Some(read) = as_bash_reads(&quoted(&text)) {
                prop_assert_eq!(read, text.as_bytes());
            }
        }

        /// What the types let through needs no quotes: no character of it means anything to a shell.
        #[test]
        fn a_name_holds_nothing_that_a_shell_would_read(text in "\\PC{1,12}") {
            let names = [
                text.parse::<HostName>().map(|n| n.to_string()),
                text.parse::<NetdevName>().map(|n| n.to_string()),
                text.parse::<RdmaName>().map(|n| n.to_string()),
            ];
            for name in names.into_iter().flatten() {
                prop_assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.:-".contains(&b)), "{}", name);
                prop_assert_ne!(name.as_bytes()[0], b'-');
            }
        }
    }

    #[test]
    fn a_table_names_its_columns_and_leaves_a_repeated_row_out() {
        let rows =
            [["eth0", "1"], ["eth10", "2"], ["eth0", "1"]].map(|r| r.map(str::to_owned).to_vec());
        assert_eq!(
            table("rows", &["device", "n"], rows.into_iter()),
            "rows() {\n    #    device  n\n    \"$1\" 'eth0'  '1'\n    \"$1\" 'eth10' '2'\n}\n"
        );
        assert_eq!(
            table("rows", &["device"], std::iter::empty()),
            "rows() { :; } # none\n"
        );
    }
}
