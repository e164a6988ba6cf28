//! What the tests share.

use std::io::Write;

/// Says that a part could not be tested here. `cargo xtask test` names a file in
/// `HAIRPIN_MESH_NOT_TESTED` and shows what is in it, loudly, at the end.
#[allow(clippy::unwrap_used)]
pub fn not_tested(what: &str, why: &str) {
    let line = format!("{what}: {why}\n");
    eprint!("NOT TESTED: {line}");
    if let Some(path) = std::env::var_os("HAIRPIN_MESH_NOT_TESTED") {
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .unwrap();
        file.write_all(line.as_bytes()).unwrap();
    }
}
