//! Results to stdout, diagnostics to stderr; a closed pipe is no error.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use crate::finding::{Finding, Severity};

const PROBLEM: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default();

/// Writes a result to stdout. A reader that went away is no error.
///
/// # Errors
/// Any other failure to write (a full disk behind a redirection).
pub fn result(text: &str) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Writes findings to stderr, one line each, problems first.
pub fn findings(findings: &[Finding]) {
    let mut err = anstream::stderr().lock();
    for severity in [Severity::Problem, Severity::Warning] {
        for finding in findings.iter().filter(|f| f.severity == severity) {
            let _ = match severity {
                Severity::Problem => writeln!(err, "{finding}"),
                Severity::Warning => writeln!(err, "{WARNING}warning:{WARNING:#} {finding}"),
            };
        }
    }
}

/// Writes a failure's line to stderr.
pub fn failure(text: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{PROBLEM}FAIL:{PROBLEM:#} {text}");
}
