//! The installation on a host: which files it has, and putting them there or taking them away as a whole.
//!
//! | file | what it is |
//! |---|---|
//! | `mod.rs` | the files: program, link, units, plan, name |
//! | `transaction.rs` | files put in place or removed all together, or left as they were |

pub mod transaction;

use transaction::{Content, Item};

use crate::node::identity::{HOST_FILE, INSTALLED_PLAN};
use crate::plan::mesh::MARKER_UNIT;

/// Where the program is installed: the units and the program on other hosts run it from here.
pub const PROGRAM: &str = "/opt/dsv41-mesh/bin/hairpin-mesh";
/// The same for who types it.
const LINK: &str = "/usr/local/bin/hairpin-mesh";
/// Where an administrator's units are (systemd.unit(5), "Unit File Load Path").
const UNIT_FOLDER: &str = "/etc/systemd/system";

/// The unit of the mesh.
pub const MESH_UNIT: &str = "dsv41-mesh.service";
/// All units of markers, as systemd matches names.
pub const MARKER_UNITS: &str = "dsv41-mesh-marker@*.service";
/// Its text: written in `mesh-units/`, and nowhere else.
pub const MESH_UNIT_TEXT: &str = include_str!("../../mesh-units/dsv41-mesh.service");
/// The text of the markers' unit.
pub const MARKER_UNIT_TEXT: &str = include_str!("../../mesh-units/dsv41-mesh-marker@.service");

/// How a unit of this program begins. One that does not is somebody else's, whatever its name.
pub const UNIT_MARK: &str = "# Written by hairpin-mesh install";

/// Seconds that the mesh's unit may take to start (its `TimeoutStartSec=`).
pub const START_LIMIT: u64 = 1020;
/// Seconds that it may take to stop (its `TimeoutStopSec=`).
pub const STOP_LIMIT: u64 = 240;

/// What an installation is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts<'a> {
    /// The program.
    pub program: Vec<u8>,
    /// Whether the units are part of it.
    pub units: bool,
    /// The plan document, and what it calls this host.
    pub plan: Option<(&'a [u8], &'a str)>,
}

/// The files of an installation. The program is put in place last: until then a run that is killed has
/// left an installation of the earlier program.
pub fn files(parts: &Parts) -> Vec<Item> {
    let mut items = Vec::new();
    if let Some((plan, host)) = parts.plan {
        items.push(Item::file(INSTALLED_PLAN, plan.to_vec(), 0o644));
        let host = format!("{host}\n").into_bytes();
        items.push(Item::file(HOST_FILE, host, 0o644));
    }
    if parts.units {
        for (path, text) in units() {
            let mut item = Item::file(&path, text.as_bytes().to_vec(), 0o644);
            item.begins = Some(UNIT_MARK);
            items.push(item);
        }
    }
    let target = PROGRAM.to_owned();
    items.push(Item::new(LINK, Content::Link { target }));
    items.push(Item::file(PROGRAM, parts.program.clone(), 0o755));
    items
}

/// The same places, with nothing in them. A unit or a link that is not ours stays.
pub fn nothing() -> Vec<Item> {
    let mut items: Vec<Item> = units()
        .into_iter()
        .map(|(path, _)| Item {
            begins: Some(UNIT_MARK),
            ..Item::new(&path, Content::Nothing)
        })
        .collect();
    items.push(Item {
        points: Some(PROGRAM),
        ..Item::new(LINK, Content::Nothing)
    });
    items
        .extend([HOST_FILE, INSTALLED_PLAN, PROGRAM].map(|path| Item::new(path, Content::Nothing)));
    items
}

/// Folders that are the installation's, the inner ones first: they go with the last thing in them.
pub const FOLDERS: [&str; 3] = ["/opt/dsv41-mesh/bin", "/opt/dsv41-mesh", "/etc/dsv41-mesh"];

/// Path and text of each unit.
fn units() -> [(String, &'static str); 2] {
    [
        (format!("{UNIT_FOLDER}/{MESH_UNIT}"), MESH_UNIT_TEXT),
        (
            format!("{UNIT_FOLDER}/{MARKER_UNIT}.service"),
            MARKER_UNIT_TEXT,
        ),
    ]
}

/// Where the units are.
pub fn unit_paths() -> [String; 2] {
    units().map(|(path, _)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_units_run_the_program_where_it_is_installed_and_carry_the_mark() {
        for (path, text) in units() {
            assert!(text.starts_with(UNIT_MARK), "{path}");
            let run: Vec<&str> = text.lines().filter(|l| l.starts_with("Exec")).collect();
            assert!(!run.is_empty(), "{path}");
            for line in run {
                let (_, command) = line.split_once('=').unwrap();
                assert!(command.starts_with(&format!("{PROGRAM} ")), "{line}");
            }
        }
        assert!(MESH_UNIT_TEXT.contains(&format!("\nTimeoutStartSec={START_LIMIT}\n")));
        assert!(MESH_UNIT_TEXT.contains(&format!("\nTimeoutStopSec={STOP_LIMIT}\n")));
    }

    #[test]
    fn every_place_of_an_installation_is_one_that_is_taken_away() {
        let parts = Parts {
            program: Vec::new(),
            units: true,
            plan: Some((b"", "spark1")),
        };
        let places = |items: Vec<Item>| {
            let mut paths: Vec<String> = items.into_iter().map(|item| item.path).collect();
            paths.sort();
            paths
        };
        assert_eq!(places(files(&parts)), places(nothing()));
    }
}
