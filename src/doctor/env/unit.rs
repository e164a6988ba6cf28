//! What a unit of systemd gives to what it starts.

use super::shell::{given, gives, named_within};
use super::{Environment, Line, MOST_VARIABLES, is_judged};

/// Sections in which an environment counts.
const SECTIONS: &[&str] = &[
    "Service",
    "Socket",
    "Mount",
    "Swap", // Podman's, in the units that it makes services of.
    "Container",
];

/// Whether a text is one.
pub(super) fn is_one(text: &str) -> bool {
    let is =
        |line: &str| matches!(line, "[Unit]" | "[Service]") || line.starts_with("Environment=");
    text.lines().any(|line| is(line.trim_end()))
}

/// Takes a unit in; none where there is too much in it.
pub(super) fn read(env: &mut Environment, text: &str) -> Option<()> {
    let mut section = "Service".to_owned();
    // What is taken back goes at the end, wherever it stands; what a command is given itself stays.
    let mut taken_back: Vec<String> = Vec::new();
    let mut has_file = false;
    let mut started: Vec<(String, usize)> = Vec::new();
    for (number, line) in lines(text) {
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            section = name.to_owned();
        }
        let Some((key, value)) = line.split_once('=') else {
            continue;
        };
        let words = Line::of(value).words.into_iter();
        let is_ours = SECTIONS.contains(&section.as_str());
        match key.trim_end() {
            "Environment" if !is_ours => {
                let names = words.filter_map(|word| Some(given(&word)?.0));
                let names = names.filter(|name| is_judged(name));
                env.misplaced
                    .extend(names.map(|name| (section.clone(), name)));
            }
            "Environment" if value.trim().is_empty() => {
                for (name, _) in std::mem::take(&mut env.variables) {
                    env.take_back(&name);
                }
            }
            "Environment" => {
                let mut before = None;
                for word in words {
                    if word.starts_with('-') || given(&word).is_none() {
                        if named_within(&word).next().is_some() {
                            env.refused.push(word.clone());
                        }
                        env.other.push((before.clone(), word));
                    } else if let Some((name, value)) = given(&word) {
                        before = Some((name.clone(), value.clone()));
                        env.unset.remove(&name);
                        env.variables.push((name, value));
                    }
                }
            }
            "UnsetEnvironment" if value.trim().is_empty() => taken_back.clear(),
            "UnsetEnvironment" if is_ours => taken_back.extend(words),
            "EnvironmentFile" if is_ours && !value.trim().is_empty() => {
                has_file = true;
                env.refer(value.trim().trim_start_matches('-'));
            }
            "PassEnvironment" if is_ours && !value.trim().is_empty() => {
                env.refer("PassEnvironment")
            }
            "ExecStart" => started.extend(words.map(|word| (word, number))),
            _ => {}
        }
        let taken = env.variables.len() + env.other.len() + env.misplaced.len();
        if taken + taken_back.len() + started.len() > MOST_VARIABLES {
            return None;
        }
    }
    for word in taken_back {
        match word.split_once('=') {
            None => env.take_back(&word),
            Some((name, value)) if env.get(name) == Some(value) => env.take_back(name),
            Some(_) => {}
        }
    }
    if has_file {
        env.weak = env.variables.iter().map(|(name, _)| name.clone()).collect();
    }
    let mut before = "";
    for (word, number) in &started {
        let file = word.strip_prefix("--env-file=");
        let file = file.or(Some(word.as_str()).filter(|_| before == "--env-file"));
        file.into_iter().for_each(|file| env.refer(file));
        for (name, value) in gives(before, word) {
            env.unset.remove(&name);
            env.weak.remove(&name);
            match value {
                Some(value) => env.variables.push((name, value)),
                None => env.depends(&name, *number),
            }
        }
        before = word;
    }
    Some(())
}

/// The lines, with those that a backslash goes on in joined, and the numbers that they begin on.
fn lines(text: &str) -> Vec<(usize, String)> {
    let mut all: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with(['#', ';']) || line.is_empty() && !goes_on {
            continue;
        }
        let (start, ends) = match line.strip_suffix('\\') {
            Some(start) => (start, false),
            None => (line, true),
        };
        match all.last_mut().filter(|_| goes_on) {
            Some((_, last)) => {
                last.push(' ');
                last.push_str(start);
            }
            None => all.push((number + 1, start.to_owned())),
        }
        goes_on = !ends;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Environment {
        let mut env = Environment::default();
        read(&mut env, text).unwrap();
        env
    }

    #[test]
    fn a_unit_gives_what_systemd_takes_of_it() {
        let has = |text: &str| {
            let env = of(&format!("[Unit]\nA=1\n[Service]\n{text}\n"));
            let name = |name: &str| env.get(name).unwrap_or("-").to_owned();
            [name("NCCL_A"), name("NCCL_B")].join(" ")
        };
        for (text, wanted) in [
            ("Environment=NCCL_A=1 \"NCCL_B=2 3\"", "1 2 3"),
            ("Environment = NCCL_A=1", "1 -"),
            ("Environment=NCCL_A=1 \\\n# c\n  NCCL_B=2", "1 2"),
            ("Environment=NCCL_A=1\n\n; NCCL_B=2\n", "1 -"),
            (
                "Environment=NCCL_A=1\nEnvironment=\nEnvironment=NCCL_B=2",
                "- 2",
            ),
            (
                "UnsetEnvironment=NCCL_A\nEnvironment=NCCL_A=1 NCCL_B=2",
                "- 2",
            ),
            (
                "Environment=NCCL_A=1 NCCL_B=2\nUnsetEnvironment=NCCL_A=1 NCCL_B=1",
                "- 2",
            ),
            (
                "Environment=NCCL_A=1\nUnsetEnvironment=NCCL_A\nUnsetEnvironment=",
                "1 -",
            ),
            (
                "Environment=NCCL_A=1\n[Install]\nUnsetEnvironment=NCCL_A",
                "1 -",
            ),
            ("[Install]\nEnvironment=NCCL_A=1", "- -"),
            ("[Socket]\nEnvironment=NCCL_A=1", "1 -"),
            ("Environment=\"export NCCL_A=1\" NCCL_B=2", "- 2"),
            ("Environment=-eNCCL_A=1 NCCL_B=2", "- 2"),
            (
                "ExecStart=/usr/bin/env NCCL_A=1 x\nExecStop=/x NCCL_B=1\nUnsetEnvironment=NCCL_A",
                "1 -",
            ),
            ("ExecStart=/x run -e NCCL_A=1 --env=NCCL_B=2", "1 2"),
            ("ExecStart=/bin/sh -c 'NCCL_A=1 x'", "${NCCL_A} -"),
        ] {
            assert_eq!(has(text), wanted, "{text}");
        }
        let env = of(
            "Environment=NCCL_A=1\n[Unit]\nEnvironment=NCCL_B=1 A=1\n[Service]\nExecStart=/x \"NCCL_C=1 x\" 'a b'\nUnsetEnvironment=NCCL_A",
        );
        assert_eq!(env.misplaced, [("Unit".to_owned(), "NCCL_B".to_owned())]);
        assert!(env.unset.contains("NCCL_A"));
        assert_eq!(env.conditional.get("NCCL_C"), Some(&5));
        assert!(
            of("Environment=\"export A=1\" \"x NCCL_A=1\"")
                .refused
                .len()
                == 1
        );
        for (text, wanted) in [
            (
                "[Service]\nEnvironmentFile=-/x\nPassEnvironment=A",
                vec!["/x", "PassEnvironment"],
            ),
            ("[Service]\nEnvironmentFile= \nPassEnvironment=", vec![]),
            ("[Install]\nEnvironmentFile=/x\nPassEnvironment=A", vec![]),
        ] {
            let refers = of(text).refers;
            assert_eq!(refers.iter().collect::<Vec<_>>(), wanted, "{text}");
        }
        // An empty line ends one that goes on.
        let env = of("Environment=NCCL_A=1 \\\n\nNCCL_B=2");
        assert_eq!((env.get("NCCL_A"), env.get("NCCL_B")), (Some("1"), None));
        let env = of("Environment=NCCL_A=1\nEnvironment=\nEnvironment=NCCL_A=2");
        assert!(env.unset.is_empty());
    }

    #[test]
    fn a_unit_has_sections_or_an_environment() {
        assert!(is_one("[Service]\n") && is_one("# x\nEnvironment=A=1") && is_one("[Unit] \n"));
        assert!(!is_one("A=1\n[Other]\n"));
    }

    #[test]
    fn too_much_is_refused() {
        for word in [
            "Environment=A=1",
            "Environment=a",
            "[Unit]\nEnvironment=NCCL_A=1",
            "ExecStart=a",
            "UnsetEnvironment=A",
        ] {
            let many = |count: usize| {
                let (head, words) = word
                    .rsplit_once("=A=")
                    .map_or(word.rsplit_once('=').unwrap(), |(head, _)| (head, "A=1"));
                let (head, words) = match head.strip_suffix("=NCCL_A") {
                    Some(head) => (head, "NCCL_A=1"),
                    None => (head, words),
                };
                let text = format!("{head}={}", format!(" {words}").repeat(count));
                read(&mut Environment::default(), &text)
            };
            assert!(many(4096).is_some() && many(4097).is_none(), "{word}");
        }
    }
}
