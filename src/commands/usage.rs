//! What was typed and is no command line: said as `clap` says it, and with `--json` as a report as well.

use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::CommandFactory;
use serde::Serialize;

use super::Exit;
use crate::cli::Cli;
use crate::json::pretty;
use crate::output;

/// What every report has that tells of trouble.
#[derive(Serialize)]
struct Report {
    schema: String,
    verdict: &'static str,
    /// The verb's own yes or no, which its other reports of trouble have, too.
    #[serde(flatten)]
    answer: Option<BTreeMap<&'static str, bool>>,
    /// What is wrong with the command line, a line each.
    trouble: Vec<String>,
}

/// Says why these words are no command line; help and version, which are asked for, too.
pub fn not_understood(error: &clap::Error, words: &[OsString]) -> Exit {
    let text = error.render();
    if error.exit_code() == 0 {
        // It was asked for, so it has to arrive.
        return match output::result(&text.ansi().to_string()) {
            Ok(()) => Exit::Yes,
            Err(error) => {
                output::failure(&format!("stdout: {error}"));
                Exit::Trouble
            }
        };
    }
    let plain = shown(&text.to_string());
    let odd = words
        .iter()
        .any(|word| word.to_string_lossy().contains(is_hidden));
    // Colour is of escape sequences, too: what was typed may have none of its own.
    let said = if odd {
        plain.clone()
    } else {
        text.ansi().to_string()
    };
    output::note(said.trim_end());
    if let (Some(verb), true) = (verb(words), words.iter().any(|word| word == "--json")) {
        let _ = output::result(&pretty(&Report {
            schema: format!("hairpin-mesh.{verb}-report/v1"),
            verdict: "trouble",
            answer: answer(&verb).map(|name| [(name, false)].into()),
            trouble: lines(&plain),
        }));
    }
    Exit::Trouble
}

/// Whether a terminal shows something else for a character than the character: controls, and what turns the
/// direction of writing (Unicode's UAX #9).
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text whose lines are its own and whose hidden characters are told.
fn shown(text: &str) -> String {
    let mut shown = String::new();
    for c in text.chars() {
        if is_hidden(c) && c != '\n' {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// The verb among the words, the first of which is the program: before it there are options of none.
fn verb(words: &[OsString]) -> Option<String> {
    let typed = words.get(1)?.to_str()?;
    let command = Cli::command();
    let mut known = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    known
        .find(|verb| verb.get_name() == typed)
        .map(|verb| verb.get_name().to_owned())
}

/// What a verb's report calls its yes or no, where that is not the verdict.
fn answer(verb: &str) -> Option<&'static str> {
    Some(match verb {
        "plan" => "planned",
        "verify" => "in_sync",
        "doctor" => "healthy",
        "probe" => "proven",
        _ => return None,
    })
}

/// What is wrong, without how it would be right.
fn lines(text: &str) -> Vec<String> {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    text.lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn what_is_wrong_is_told_without_how_it_would_be_right() {
        for (words, wanted) in [
            (
                &["up", "--wait", "x"][..],
                "invalid value 'x' for '--wait <SECONDS>'",
            ),
            (&["plan"], "<HOST>..."),
            (&["up", "--dry-run", "--check"], "cannot be used with"),
            (&["down", "--what"], "unexpected argument '--what'"),
        ] {
            let words: Vec<&str> = std::iter::once("hairpin-mesh")
                .chain(words.iter().copied())
                .collect();
            let error = Cli::try_parse_from(&words).unwrap_err();
            let lines = lines(&error.render().to_string());
            assert!(lines.iter().any(|line| line.contains(wanted)), "{lines:?}");
            assert!(!lines.join("\n").contains("Usage"), "{lines:?}");
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            assert_eq!(verb(&words).as_deref(), words[1].to_str());
        }
        for none in [
            &["hairpin-mesh"][..],
            &["hairpin-mesh", "fly"],
            &["hairpin-mesh", "probe-agent"],
        ] {
            let words: Vec<OsString> = none.iter().map(OsString::from).collect();
            assert_eq!(verb(&words), None);
        }
    }
}
