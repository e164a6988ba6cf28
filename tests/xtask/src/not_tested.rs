//! One way to say what was not tested, so that it is not taken for passed: a file, one line for each
//! thing, shown loudly at the end by whoever began it.

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Names the file for the tests, and for this program when `.ci/run` has begun it.
pub const VARIABLE: &str = "HAIRPIN_MESH_NOT_TESTED";

/// The file.
pub struct NotTested {
    file: PathBuf,
    /// Somebody else has begun it, and shows it.
    inherited: bool,
}

impl NotTested {
    /// The file that is begun already, or a new one.
    pub fn new(root: &Path) -> Result<NotTested, String> {
        if let Some(file) = env::var_os(VARIABLE) {
            return Ok(NotTested {
                file: file.into(),
                inherited: true,
            });
        }
        let file = root.join("target/not-tested.txt");
        fs::create_dir_all(root.join("target"))
            .and_then(|()| fs::write(&file, ""))
            .map_err(|e| format!("{}: {e}", file.display()))?;
        Ok(NotTested {
            file,
            inherited: false,
        })
    }

    pub fn file(&self) -> &Path {
        &self.file
    }

    pub fn say(&self, what: &str) -> Result<(), String> {
        eprintln!("NOT TESTED: {what}");
        fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(&self.file)
            .and_then(|mut file| writeln!(file, "{what}"))
            .map_err(|e| format!("{}: {e}", self.file.display()))
    }

    /// Shows it unless somebody else will; whether everything was tested.
    pub fn finish(&self) -> Result<bool, String> {
        if !self.inherited {
            show(&self.file)?;
        }
        Ok(lines(&self.file)?.is_empty())
    }
}

fn lines(file: &Path) -> Result<Vec<String>, String> {
    let text = fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines.dedup();
    Ok(lines)
}

/// Shows what is in the file; nothing when it is empty.
pub fn show(file: &Path) -> Result<(), String> {
    let lines = lines(file)?;
    if !lines.is_empty() {
        eprintln!("\n==== NOT TESTED ====");
        for what in &lines {
            eprintln!("NOT TESTED: {what}");
        }
        eprintln!("====================");
    }
    Ok(())
}
