//! Results to stdout, diagnostics to stderr; a closed pipe is no error.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use crate::finding::{Finding, Severity};

const PROBLEM: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default();

/// How something stands as a word of fixed width, coloured where there is colour.
pub fn standing(word: &str) -> String {
    let style = match word {
        "FAIL" => PROBLEM,
        "ok" => AnsiColor::Green.on_default(),
        _ => WARNING,
    };
    format!("{style}{word:<11}{style:#} ")
}

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
    let of = |severity| findings.iter().filter(move |f| f.severity == severity);
    let refusing = of(Severity::Problem).chain(of(Severity::NotObserved));
    for problem in refusing {
        let _ = writeln!(anstream::stderr().lock(), "{problem}");
    }
    for finding in of(Severity::Warning) {
        warning(&finding.to_string());
    }
}

/// Writes a warning's line to stderr.
pub fn warning(text: &str) {
    let _ = writeln!(
        anstream::stderr().lock(),
        "{WARNING}warning:{WARNING:#} {text}"
    );
}

/// Writes a line to stderr that is neither a warning nor a failure.
pub fn note(text: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

/// Writes a failure's line to stderr.
pub fn failure(text: &str) {
    let _ = writeln!(
        anstream::stderr().lock(),
        "{PROBLEM}FAIL:{PROBLEM:#} {text}"
    );
}
