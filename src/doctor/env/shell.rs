//! What a shell's script gives to what it starts: as much of the language as launchers have of it. What a condition
//! decides, or another shell than the script's, is not known.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    CONTAINERS, Environment, Line, MOST_VARIABLES, SETTERS, Variable, is_judged, is_known,
    is_made_elsewhere, is_name, is_ours, is_rest_of, unknown_value,
};

/// Most steps that are taken through a script: functions that call each other have no other end.
const MOST_STEPS: usize = 1 << 20;
/// Most calls within each other.
const DEEPEST: usize = 16;
/// Longest value that is put together of others, bytes.
const LONGEST_VALUE: usize = 4096;
/// Most commands with environments of their own.
const MOST_STARTS: usize = 64;

/// Commands that start nothing that reads what is judged, whatever stands behind them.
const UTILITIES: &[&str] = &[
    ".",
    ":",
    "[",
    "[[",
    "alias",
    "awk",
    "basename",
    "break",
    "cat",
    "cd",
    "chmod",
    "chown",
    "complete",
    "continue",
    "cp",
    "curl",
    "cut",
    "date",
    "dirname",
    "echo",
    "exit",
    "false",
    "find",
    "grep",
    "head",
    "hostname",
    "id",
    "ip",
    "jobs",
    "kill",
    "let",
    "ln",
    "ls",
    "mkdir",
    "modprobe",
    "mv",
    "nvidia-smi",
    "ping",
    "pkill",
    "popd",
    "printf",
    "pushd",
    "pwd",
    "read",
    "rm",
    "sed",
    "shift",
    "shopt",
    "sleep",
    "source",
    "sysctl",
    "systemctl",
    "tail",
    "tee",
    "test",
    "touch",
    "tr",
    "trap",
    "true",
    "type",
    "ulimit",
    "umask",
    "wait",
    "wget",
    "which",
];

/// Commands that an engine is started with, by how their names start.
const LAUNCHERS: &[&str] = &[
    "accelerate",
    "bash",
    "deepspeed",
    "docker",
    "env",
    "mpi",
    "nerdctl",
    "numactl",
    "podman",
    "python",
    "ray",
    "sglang",
    "srun",
    "stdbuf",
    "taskset",
    "torchrun",
    "uv",
    "vllm",
];

/// Options of what starts a container that have no value.
const FLAGS: &[&str] = &[
    "--detach",
    "--init",
    "--interactive",
    "--no-healthcheck",
    "--oom-kill-disable",
    "--privileged",
    "--publish-all",
    "--quiet",
    "--read-only",
    "--replace",
    "--rm",
    "--tty",
];

/// Those that have one.
const VALUED: &[&str] = &[
    "-a",
    "-c",
    "-e",
    "-h",
    "-l",
    "-m",
    "-p",
    "-u",
    "-v",
    "-w",
    "--add-host",
    "--annotation",
    "--cap-add",
    "--cap-drop",
    "--cgroup-parent",
    "--cgroupns",
    "--cidfile",
    "--cpus",
    "--cpuset-cpus",
    "--device",
    "--device-cgroup-rule",
    "--dns",
    "--entrypoint",
    "--env",
    "--env-file",
    "--expose",
    "--gpus",
    "--group-add",
    "--hostname",
    "--ipc",
    "--label",
    "--log-driver",
    "--log-opt",
    "--memory",
    "--memory-swap",
    "--mount",
    "--name",
    "--net",
    "--network",
    "--pid",
    "--platform",
    "--pids-limit",
    "--publish",
    "--pull",
    "--restart",
    "--runtime",
    "--security-opt",
    "--shm-size",
    "--stop-timeout",
    "--sysctl",
    "--tmpfs",
    "--ulimit",
    "--user",
    "--userns",
    "--uts",
    "--volume",
    "--volumes-from",
    "--workdir",
];

/// Commands that are no conditions for what stands behind `&&`: who writes them counts on them.
const STEPS: &[&str] = &[
    ".", ":", "cd", "echo", "mkdir", "printf", "pushd", "set", "source", "true", "ulimit",
];

/// Whether a command has nothing of the environment but what its own options give it: a container's or another host's.
fn takes_nothing(words: &[&Word]) -> bool {
    let mut words = words.iter().map(|word| word.text.as_str());
    let name = words.next().unwrap_or_default();
    let name = name.rsplit('/').next().unwrap_or_default();
    let mut options = words.clone().take_while(|word| word.starts_with('-'));
    let mut rest = words.filter(|word| !word.starts_with('-'));
    match name {
        "ssh" => true,
        "systemd-run" => !options.any(|word| word == "--scope"),
        "sudo" => !options.any(|word| word == "-E" || word.starts_with("--preserve-env")),
        "env" => options.any(|word| ["-", "-i", "--ignore-environment"].contains(&word)),
        // What a list of the script's own gives it may be anything.
        _ if CONTAINERS.contains(&name) => {
            matches!(rest.next(), Some("run" | "exec" | "create" | "container"))
                && !rest.any(|word| word.starts_with('$'))
        }
        _ => false,
    }
}

#[derive(Debug)]
struct Word {
    text: String,
    line: usize,
    /// Whether no quote is in it: a word of the language can be quoted away.
    is_bare: bool,
    /// Whether a quote or a backslash in it may keep a `$` as it stands.
    is_literal: bool,
    /// The first of the characters in it at which a shell ends it.
    cut: Option<char>,
}

impl Word {
    /// Whether it gives a variable that is judged a value that stands here.
    fn is_value(&self) -> bool {
        let value = self.text.split_once('=');
        value.is_some_and(|(name, value)| is_known(name) && !is_made_elsewhere(value))
    }

    fn is(&self, keyword: &str) -> bool {
        self.is_bare && self.text == keyword
    }
}

#[derive(Debug)]
enum Part {
    Word(Word),
    /// A list in parentheses begins, which the word before is set to.
    Array,
    /// Redirections are all `<`.
    Operator(&'static str),
}

/// The parts of a script, and the line of a quote that nothing closes.
fn parts(text: &str) -> (Vec<Part>, Option<usize>) {
    let mut lexer = Lexer {
        text,
        ..Lexer::default()
    };
    lexer.read();
    let open = lexer.open.first().map(|(_, line)| *line);
    (lexer.parts, open)
}

#[derive(Default)]
struct Lexer<'t> {
    text: &'t str,
    at: usize,
    line: usize,
    parts: Vec<Part>,
    word: Option<Word>,
    /// What has to come before a blank ends a word again, and the line that it was opened on.
    open: Vec<(char, usize)>,
    /// How many groups are open.
    grouped: usize,
    /// Whether the next word is what ends a here-document, and whether tabs before it count.
    awaited: Option<bool>,
    here: Vec<(String, bool)>,
}

impl Lexer<'_> {
    fn next(&mut self) -> Option<char> {
        let c = self.text[self.at..].chars().next()?;
        self.at += c.len_utf8();
        self.line += usize::from(c == '\n');
        Some(c)
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn is_behind(&self, c: char) -> bool {
        self.word
            .as_ref()
            .is_some_and(|word| word.text.ends_with(c))
    }

    fn put(&mut self, c: Option<char>) {
        let line = self.line + 1;
        let word = self.word.get_or_insert_with(|| Word {
            text: String::new(),
            line,
            is_bare: true,
            is_literal: false,
            cut: None,
        });
        word.text.extend(c);
    }

    fn end_word(&mut self) {
        let Some(word) = self.word.take() else { return };
        if let Some(tabs) = self.awaited.take() {
            self.here.push((word.text.clone(), tabs));
        }
        self.parts.push(Part::Word(word));
    }

    fn read(&mut self) {
        while let Some(c) = self.next() {
            let inner = self.open.last().map(|(open, _)| *open);
            match (inner, c) {
                (Some(open), c) if c == open => {
                    self.open.pop();
                    if !matches!(c, '"' | '\'') {
                        self.put(Some(c));
                    }
                }
                (Some('\''), c) => self.put(Some(c)),
                (_, '\\') => {
                    let escaped = self.next();
                    if escaped != Some('\n') {
                        self.put(escaped);
                    }
                    self.is_kept(escaped == Some('$'));
                }
                (_, '(') if self.is_behind('$') || inner == Some(')') => self.opened(')', c),
                (_, '{') if self.is_behind('$') => self.opened('}', c),
                (inner, '\'' | '"') if inner != Some('"') || c == '"' => {
                    self.put(None);
                    self.is_kept(c == '\'');
                    if let Some(word) = &mut self.word {
                        word.is_bare = false;
                    }
                    self.open.push((c, self.line + 1));
                }
                (None, '`') => self.opened('`', c),
                (Some(_), c) => self.put(Some(c)),
                (None, '#') if self.word.is_none() => {
                    self.at += self.rest().find('\n').unwrap_or(self.rest().len());
                }
                (None, '\n') => {
                    self.end_word();
                    self.awaited = None;
                    self.parts.push(Part::Operator("\n"));
                    self.skip_documents();
                }
                (None, c) if c.is_whitespace() => self.end_word(),
                (None, ';' | '&' | '|' | '<' | '>' | '(' | ')') => self.operator(c),
                (None, c) => self.put(Some(c)),
            }
        }
        self.end_word();
    }

    fn is_kept(&mut self, is: bool) {
        if let Some(word) = &mut self.word {
            word.is_literal |= is;
        }
    }

    fn opened(&mut self, end: char, c: char) {
        self.put(Some(c));
        self.open.push((end, self.line + 1));
    }

    /// Here-documents are what a command reads, and assign nothing.
    fn skip_documents(&mut self) {
        for (end, tabs) in std::mem::take(&mut self.here) {
            while self.at < self.text.len() {
                let line = self.rest().lines().next().unwrap_or_default();
                let is_end = if tabs {
                    line.trim_start_matches('\t')
                } else {
                    line
                } == end;
                self.at = (self.at + line.len() + 1).min(self.text.len());
                self.line += 1;
                if is_end {
                    break;
                }
            }
        }
    }

    fn operator(&mut self, c: char) {
        // A value that it cuts is kept as it was meant.
        let start = self.at - 1;
        if let Some(word) = self.word.as_mut().filter(|word| word.is_value()) {
            let rest = self.text[start..].lines().next().unwrap_or_default();
            let end = rest
                .char_indices()
                .nth(256)
                .map_or(rest.len(), |(at, _)| at);
            if is_cut(&rest[..end], self.grouped > 0) {
                word.cut.get_or_insert(c);
                word.text.push(c);
                return;
            }
        }
        let text = self.text;
        let behind = &text[self.at..];
        let is_next = |c: char| behind.starts_with(c);
        match c {
            '(' if self.is_behind('=') => {
                self.end_word();
                self.parts.push(Part::Array);
            }
            // Arithmetic, and what a process writes or reads.
            '(' if is_next('(') && self.word.is_none() => self.opened(')', c),
            '<' | '>' if is_next('(') => {
                self.put(Some(c));
                self.at += 1;
                self.opened(')', '(');
            }
            '<' | '>' => {
                // The number in front is that of a file.
                let is_number = |word: &Word| word.text.bytes().all(|b| b.is_ascii_digit());
                if !self.word.as_ref().is_some_and(is_number) {
                    self.end_word();
                }
                self.word = None;
                let operator = ["<<<", "<<-", "<<"];
                let rest = &self.text[start..];
                let long = operator.iter().find(|long| rest.starts_with(**long));
                if let Some(long) = long {
                    self.awaited = (*long != "<<<").then_some(*long == "<<-");
                    self.at = start + long.len();
                } else {
                    let more = ['>', '&', '|'];
                    self.at += usize::from(behind.starts_with(more));
                }
                self.parts.push(Part::Operator("<"));
            }
            '&' if is_next('>') => self.end_word(),
            _ => {
                self.end_word();
                let is_double = is_next(c) && !matches!(c, '(' | ')');
                self.at += usize::from(is_double);
                self.parts.push(Part::Operator(match (c, is_double) {
                    ('(', _) => "(",
                    (')', _) => ")",
                    (';', true) => ";;",
                    ('&', true) => "&&",
                    ('|', true) => "||",
                    ('|', _) => "|",
                    _ => ";",
                }));
                match c {
                    '(' => self.grouped += 1,
                    ')' => self.grouped = self.grouped.saturating_sub(1),
                    _ => {}
                }
            }
        }
    }
}

/// Whether what stands behind a value, from a shell's operator on, was meant as part of it: the operator ends no
/// line, and no command comes behind it.
fn is_cut(rest: &str, grouped: bool) -> bool {
    let operators = [';', '&', '|', '<', '>', '(', ')'];
    let behind = rest.trim_start_matches(operators);
    let is_apart = behind.starts_with(char::is_whitespace);
    let mut words = behind.split_whitespace();
    let Some(whole) = words.next().filter(|word| !word.starts_with('#')) else {
        return rest.starts_with('(');
    };
    match rest.chars().next() {
        Some('(') => return true,
        Some(')') if grouped => return false,
        Some('<' | '>') => {
            return !is_apart && !rest[1..].starts_with('&') && !behind.starts_with("/dev/");
        }
        _ => {}
    }
    let first = whole.split(operators).next().unwrap_or_default();
    if let Some((name, _)) = first.split_once('=') {
        return !is_name(name);
    }
    // A word alone is what a list goes on with sooner than a command.
    let is_command = first.starts_with(['.', '/', '~', '$', '"', '\'', '{', '}', '['])
        || SETTERS.contains(&first)
        || [
            "then", "do", "done", "else", "fi", "esac", "set", "exec", "exit", "return",
        ]
        .contains(&first)
        || first == whole && words.next().is_some_and(|next| !next.contains('='));
    !is_apart && !is_command
}

/// A name, its value, and whether that is put behind the one that it has.
fn assigned(text: &str) -> Option<(&str, &str, bool)> {
    let (name, value) = text.split_once('=')?;
    let own = name.strip_suffix('+');
    let appends = own.is_some();
    let name = own.unwrap_or(name);
    is_name(name).then_some((name, value, appends))
}

/// The key of a list's element: `[NAME]=VALUE`.
fn keyed(text: &str) -> Option<&str> {
    let (key, rest) = text.strip_prefix('[')?.split_once(']')?;
    (is_name(key) && rest.starts_with(['=', '+'])).then_some(key)
}

/// The key of an assignment to one: `LIST[NAME]=VALUE`.
fn element(text: &str) -> Option<&str> {
    let at = text.find('[').filter(|at| is_name(&text[..*at]))?;
    keyed(&text[at..])
}

/// Whether a word assigns to a name that another variable has: `$NAME=VALUE`.
fn is_given_by_name(text: &str) -> bool {
    let text = text.strip_prefix("--env=").unwrap_or(text);
    let name = text.split_once('=').map(|(name, _)| name);
    name.is_some_and(|name| name.starts_with('$') && !name.contains(['/', ' ']))
}

/// What a word among those of a command gives what it starts: `-e NAME=VALUE`, `--env=NAME=VALUE`.
pub(super) fn given(text: &str) -> Option<Variable> {
    let options = ["--env=", "-e"].into_iter();
    let bare = options
        .filter_map(|option| text.strip_prefix(option))
        .next();
    let (name, value, _) = assigned(bare.unwrap_or(text))?;
    Some((name.to_owned(), value.to_owned()))
}

/// The variables that an option of systemd-run gives the unit that it makes; other words give none.
fn of_unit(before: &str, text: &str) -> Option<Vec<Variable>> {
    let property = match text.split_once('=') {
        Some(("--property", property)) => Some(property),
        _ if ["-p", "--property"].contains(&before) => Some(text),
        _ => text.strip_prefix("-p"),
    };
    if let Some(words) = property.and_then(|own| own.strip_prefix("Environment=")) {
        let words = Line::of(words).words;
        return Some(words.iter().filter_map(|word| given(word)).collect());
    }
    let variable = ["--setenv=", "-E"]
        .iter()
        .find_map(|option| given(text.strip_prefix(option)?))?;
    Some(vec![variable])
}

/// The command among these words that starts or enters a container, and whether the words behind its options are
/// known: the place of the first of them, which is the image or the container.
fn container(words: &[&Word]) -> Option<(usize, Option<usize>)> {
    let base = |word: &Word| word.text.rsplit('/').next().unwrap_or_default().to_owned();
    let start = words
        .iter()
        .take_while(|word| !word.text.contains(char::is_whitespace))
        .position(|word| CONTAINERS.contains(&base(word).as_str()))?;
    let run = words.get(start + 1).filter(|own| own.text == "container");
    let run = start + 1 + usize::from(run.is_some());
    if !matches!(words.get(run)?.text.as_str(), "run" | "exec" | "create") {
        return None;
    }
    let mut at = run + 1;
    while let Some(word) = words.get(at) {
        let text = word.text.as_str();
        let letters = text.strip_prefix('-').unwrap_or_default();
        let is_flags = !letters.is_empty() && letters.chars().all(|c| "ditPq".contains(c));
        if text.starts_with('$') {
            // A list of options, unless its name says that it is the image.
            let lower = text.to_ascii_lowercase();
            if !lower.contains("[@]") && (lower.contains("image") || lower.contains("img")) {
                return Some((start, Some(at)));
            }
            at += 1;
        } else if !text.starts_with('-') {
            return Some((start, Some(at)));
        } else if is_flags || FLAGS.contains(&text) || text.starts_with("--") && text.contains('=')
        {
            at += 1;
        } else if VALUED.contains(&text) {
            at += 2;
        } else if VALUED
            .iter()
            .any(|own| own.len() == 2 && text.starts_with(own))
        {
            // `-eNAME=VALUE`
            at += 1;
        } else {
            return Some((start, None));
        }
    }
    Some((start, None))
}

/// What a word behind another gives, without the value where another shell reads the word.
pub(super) fn gives(before: &str, text: &str) -> Vec<(String, Option<String>)> {
    let is_option =
        ["-e", "--env", "-x", "-E", "--setenv"].contains(&before) || text.starts_with('-');
    let is_script = text.contains(char::is_whitespace);
    match given(text) {
        Some((name, value)) if is_option || !is_script => vec![(name, Some(value))],
        _ if is_script => {
            let names = named_within(text).map(|name| (name.to_owned(), None));
            names.collect()
        }
        _ => Vec::new(),
    }
}

/// Names that are judged and that a word sets which another shell reads.
pub(super) fn named_within(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| c != '=' && c != '_' && !c.is_ascii_alphanumeric());
    let names = words.filter_map(|word| Some(word.split_once('=')?.0));
    names.filter(|name| is_judged(name))
}

/// Names behind a `$`.
fn used(text: &str) -> BTreeSet<&str> {
    let name = |rest| {
        let rest: &str = str::strip_prefix(rest, '{').unwrap_or(rest);
        let end = rest.find(|c: char| c != '_' && !c.is_ascii_alphanumeric());
        &rest[..end.unwrap_or(rest.len())]
    };
    text.split('$').skip(1).map(name).collect()
}

/// Reads a script; none where it is too much.
pub(super) fn read(name: &str, text: &str) -> Option<Vec<Environment>> {
    let (parts, open) = parts(text);
    let mut shell = Shell {
        parts: &parts,
        used: used(text),
        functions: BTreeMap::new(),
        env: Environment {
            name: name.to_owned(),
            open_since: open,
            ..Environment::default()
        },
        exported: BTreeSet::new(),
        exports_all: false,
        counted: 0,
        steps: 0,
        starts: Vec::new(),
        apart: None,
        is_changed: true,
        is_set: true,
        is_launched: false,
    };
    shell.run(0, parts.len(), false, 0)?;
    if shell.is_set || shell.starts.is_empty() {
        let mut end = shell.env.clone();
        end.apart = shell.apart.take().filter(|_| shell.starts.is_empty());
        shell.starts.push(end);
    }
    let all = std::mem::take(&mut shell.starts);
    let names: Vec<BTreeSet<&str>> = all.iter().map(Environment::judged_names).collect();
    // What has less than another, and took nothing of it back, was started on the way there.
    let is_less = |own: &Environment, less: &BTreeSet<&str>| {
        names.iter().any(|more| {
            let mut missing = more.difference(less);
            less.len() < more.len()
                && less.is_subset(more)
                && missing.all(|name| !own.unset.contains(*name))
        })
    };
    let each = all.iter().zip(&names);
    let last = each.filter(|(own, names)| !is_less(own, names));
    Some(last.map(|(own, _)| own.clone()).collect())
}

/// A command of several that is not at its end yet.
struct Block<'p> {
    end: &'static str,
    is_conditional: bool,
    /// Of `case`, whether a pattern is next.
    is_pattern: bool,
    /// What a subshell started with.
    saved: Option<(Environment, BTreeSet<&'p str>)>,
}

struct Shell<'p> {
    parts: &'p [Part],
    /// Variables that some word takes in.
    used: BTreeSet<&'p str>,
    /// Where the bodies of functions are.
    functions: BTreeMap<&'p str, (usize, usize)>,
    /// What is set so far.
    env: Environment,
    exported: BTreeSet<&'p str>,
    exports_all: bool,
    /// How many words were taken in.
    counted: usize,
    steps: usize,
    /// What commands were started with.
    starts: Vec<Environment>,
    /// The first command that has nothing of what is exported, and its line.
    apart: Option<(String, usize)>,
    /// Whether something was set or unset since one that had nothing of its own.
    is_changed: bool,
    /// Whether something was set since any.
    is_set: bool,
    /// Whether the last of them is one that engines are started with.
    is_launched: bool,
}

/// Whether a list of commands goes on behind one.
#[derive(PartialEq, Eq)]
enum Next {
    Goes,
    /// It goes on, and `&&` behind it is no condition.
    Steps,
    Ends,
}

impl<'p> Shell<'p> {
    fn spend(&mut self, steps: usize) -> Option<()> {
        self.steps += steps;
        (self.steps <= MOST_STEPS).then_some(())
    }

    fn count(&mut self) -> Option<()> {
        self.counted += 1;
        (self.counted <= MOST_VARIABLES).then_some(())
    }

    fn word(&self, at: usize) -> Option<&'p Word> {
        match self.parts.get(at) {
            Some(Part::Word(word)) => Some(word),
            _ => None,
        }
    }

    fn is_operator(&self, at: usize, operator: &str) -> bool {
        matches!(self.parts.get(at), Some(Part::Operator(own)) if *own == operator)
    }

    /// Takes the commands between two places.
    fn run(&mut self, from: usize, to: usize, is_conditional: bool, depth: usize) -> Option<Next> {
        let mut blocks: Vec<Block> = Vec::new();
        let (mut is_chained, mut is_joined, mut is_left) = (false, false, false);
        let mut next = Next::Goes;
        let mut at = from;
        while at < to {
            self.spend(1)?;
            let is_in = blocks.last().is_some_and(|block| block.is_conditional);
            let conditional = is_conditional || is_in || is_chained || is_left;
            let block = |end: &'static str, is_conditional: bool| Block {
                end,
                is_conditional,
                is_pattern: false,
                saved: None,
            };
            if let Some(case) = blocks.last_mut().filter(|block| block.is_pattern) {
                case.is_pattern = !self.is_operator(at, ")");
                if self.word(at).is_some_and(|word| word.is("esac")) {
                    blocks.pop();
                }
                at += 1;
                continue;
            }
            let Some(word) = self.word(at) else {
                let operator = match &self.parts[at] {
                    Part::Operator(operator) => *operator,
                    _ => "",
                };
                match operator {
                    "\n" if is_joined => {}
                    "\n" | ";" => is_chained = false,
                    "&&" => is_chained |= next != Next::Steps,
                    "||" => is_chained = true,
                    "(" => {
                        self.spend(self.env.variables.len())?;
                        blocks.push(Block {
                            saved: Some((self.env.clone(), self.exported.clone())),
                            ..block(")", conditional)
                        });
                        is_chained = false;
                    }
                    ")" => {
                        let group = blocks.pop_if_end(")");
                        if let Some((env, exported)) = group.and_then(|group| group.saved) {
                            (self.env, self.exported) = (env, exported);
                        }
                    }
                    ";;" => {
                        is_chained = false;
                        if let Some(case) = blocks.last_mut().filter(|own| own.end == "esac") {
                            case.is_pattern = true;
                        }
                    }
                    "<" => at += usize::from(self.word(at + 1).is_some()),
                    _ => {}
                }
                is_joined = matches!(operator, "&&" | "||" | "|") || is_joined && operator == "\n";
                at += 1;
                continue;
            };
            is_joined = false;
            let keyword = if word.is_bare { word.text.as_str() } else { "" };
            at += 1;
            match keyword {
                "if" => blocks.push(block("fi", true)),
                "while" | "until" => blocks.push(block("done", true)),
                "for" | "select" | "case" => {
                    let (begin, end) = match keyword {
                        "case" => ("in", "esac"),
                        _ => ("do", "done"),
                    };
                    let begins = |at: &usize| self.word(*at).is_some_and(|word| word.is(begin));
                    at = (at..to).find(begins).unwrap_or(to);
                    blocks.push(Block {
                        is_pattern: keyword == "case",
                        ..block(end, true)
                    });
                }
                "{" => {
                    blocks.push(block("}", conditional));
                    is_chained = false;
                }
                "then" | "else" | "elif" | "do" | "!" => {}
                "fi" | "done" | "esac" | "}" => {
                    blocks.pop_if_end(keyword);
                    next = Next::Goes;
                }
                _ => {
                    let name = match keyword {
                        "function" => self.word(at),
                        _ => Some(word)
                            .filter(|_| self.is_operator(at, "(") && self.is_operator(at + 1, ")")),
                    };
                    if let Some(name) = name {
                        at = self.define(&name.text, at, to);
                        continue;
                    }
                    let (mut words, mut elements) = (vec![word], Vec::new());
                    while at < to {
                        match &self.parts[at] {
                            Part::Word(word) => words.push(word),
                            Part::Array => {
                                let mut rest = at..to;
                                let end = rest.find(|at| self.is_operator(*at, ")"));
                                let end = end.unwrap_or(to);
                                elements.extend((at..end).filter_map(|at| self.word(at)));
                                at = end;
                            }
                            Part::Operator("<") => at += usize::from(self.word(at + 1).is_some()),
                            Part::Operator(_) => break,
                        }
                        at += 1;
                    }
                    for element in elements {
                        if let Some((name, value, appends)) = assigned(&element.text) {
                            self.set(element, (name, value, appends), true, conditional)?;
                        } else if let Some(name) = keyed(&element.text) {
                            self.keep(name, element.line)?;
                        } else if is_given_by_name(&element.text) {
                            // A loop puts together what it is.
                            self.env.refer(&element.text);
                        }
                    }
                    self.spend(words.len())?;
                    next = self.command(&words, conditional, depth)?;
                    if next == Next::Ends {
                        if conditional {
                            is_left = depth > 0;
                        } else if blocks.iter().all(|block| block.saved.is_none()) {
                            return Some(Next::Ends);
                        }
                    }
                }
            }
        }
        Some(Next::Goes)
    }

    /// Takes a function's body in, and gives the place behind it.
    fn define(&mut self, name: &'p str, at: usize, to: usize) -> usize {
        let is_skipped = |at: usize| {
            let is = |operator| self.is_operator(at, operator);
            is("\n") || is("(") && self.is_operator(at + 1, ")") || is(")")
        };
        let named = self.word(at).is_some_and(|word| word.text == name);
        let mut body = at + usize::from(named)..to;
        let start = body.find(|at| !is_skipped(*at)).unwrap_or(to);
        let is_group = self.is_operator(start, "(");
        let is = |at: usize, keyword: &str, operator: &str| match is_group {
            true => self.is_operator(at, operator),
            false => self.word(at).is_some_and(|word| word.is(keyword)),
        };
        let mut depth = 0usize;
        for end in start..to {
            depth += usize::from(is(end, "{", "("));
            if is(end, "}", ")") {
                // A body that is none is the word alone.
                depth = depth.saturating_sub(1);
            }
            if depth == 0 {
                self.functions.insert(name, (start, end + 1));
                return end + 1;
            }
        }
        to
    }

    /// Takes one command.
    fn command(&mut self, words: &[&'p Word], conditional: bool, depth: usize) -> Option<Next> {
        let own = words
            .iter()
            .take_while(|word| assigned(&word.text).is_some());
        let (own, mut rest) = words.split_at(own.count());
        let mut is_exec = false;
        while let [first, ..] = rest {
            if !["exec", "command", "nohup", "time"].contains(&first.text.as_str()) {
                break;
            }
            is_exec |= first.text == "exec";
            rest = &rest[1..];
        }
        let before = own.last().and_then(|word| given(&word.text));
        if own.is_empty() {
            if let Some(name) = element(&words.first()?.text) {
                return self.keep(name, words.first()?.line).map(|()| Next::Steps);
            }
        }
        let is_list = |(_, value): &Variable| {
            rest.first()
                .is_some_and(|first| is_rest_of(value, &first.text))
        };
        let is_apart = match rest {
            [name, rest, ..] => is_ours(&name.text) && rest.text.starts_with('='),
            _ => false,
        };
        if rest.is_empty() || is_apart || before.as_ref().is_some_and(is_list) {
            for word in own {
                if let Some(value) = assigned(&word.text) {
                    self.set(word, value, false, conditional)?;
                }
            }
            for word in rest {
                self.count()?;
                self.env.other.push((before.clone(), word.text.clone()));
            }
            return Some(Next::Steps);
        }
        let (first, operands) = rest.split_first()?;
        match first.text.as_str() {
            "unset" => {
                for name in operands {
                    self.unset(name, conditional)?;
                }
                Some(Next::Steps)
            }
            "export" | "declare" | "typeset" | "local" | "readonly" => {
                self.declare(first, operands, conditional)?;
                Some(Next::Steps)
            }
            "set" => {
                for pair in operands
                    .windows(2)
                    .filter(|pair| pair[1].text == "allexport")
                {
                    self.exports_all = pair[0].text.starts_with('-');
                }
                for option in operands.iter().map(|word| word.text.as_str()) {
                    match option.chars().next() {
                        Some(sign @ ('-' | '+')) if option.contains('a') => {
                            self.exports_all = sign == '-';
                        }
                        _ => {}
                    }
                }
                Some(Next::Steps)
            }
            // What makes a prompt or a folder of packages sets nothing here.
            "." | "source" => {
                let file = operands.first().map_or("", |word| word.text.as_str());
                let base = file.rsplit('/').next().unwrap_or_default();
                if ![
                    "activate",
                    "conda.sh",
                    ".bashrc",
                    "bash.bashrc",
                    ".profile",
                    "profile",
                ]
                .contains(&base)
                {
                    self.env.refer(file);
                }
                Some(Next::Steps)
            }
            "eval" => {
                self.env.refer("eval");
                Some(Next::Steps)
            }
            "return" => Some(Next::Ends),
            "exit" if !conditional => Some(Next::Ends),
            name => {
                if let Some((from, to)) = self.functions.get(name).copied() {
                    for word in own {
                        if let Some(value) = assigned(&word.text) {
                            self.set(word, value, true, conditional)?;
                        }
                    }
                    if depth >= DEEPEST {
                        return None;
                    }
                    self.run(from, to, conditional, depth + 1)?;
                    return Some(Next::Goes);
                }
                if !UTILITIES.contains(&name) && !name.starts_with("((") {
                    self.start(own, rest, is_exec)?;
                }
                Some(match STEPS.contains(&name) {
                    true => Next::Steps,
                    false if is_exec && !conditional => Next::Ends,
                    false => Next::Goes,
                })
            }
        }
    }

    fn declare(&mut self, first: &Word, operands: &[&'p Word], conditional: bool) -> Option<()> {
        let is_export = first.text == "export";
        let (mut exports, mut takes_back) = (is_export, false);
        let mut before: Option<Variable> = None;
        for word in operands {
            let text = word.text.as_str();
            if let Some(value) = assigned(text) {
                before = given(text);
                self.set(word, value, exports, conditional)?;
            } else if let Some(options) = text.strip_prefix('-') {
                exports |= options.contains('x');
                takes_back |= is_export && options.contains('n');
            } else if let Some(options) = text.strip_prefix('+') {
                takes_back |= options.contains('x');
            } else if takes_back {
                self.unset(word, conditional)?;
            } else {
                self.count()?;
                if exports && is_made_elsewhere(text) {
                    self.env.refer(text);
                }
                if exports && is_name(text) {
                    self.is_changed |= self.exported.insert(text) && is_judged(text);
                    if is_judged(text) && self.env.get(text).is_none() {
                        // Its value is that which it has where the script is started.
                        self.env
                            .variables
                            .push((text.to_owned(), unknown_value(text)));
                    }
                }
                self.env.other.push((before.clone(), text.to_owned()));
            }
        }
        Some(())
    }

    /// A value with the variables in it that the script itself gave a value that is known.
    fn expanded(&self, word: &Word, value: &str) -> String {
        let mut rest = value;
        let mut all = String::new();
        while let Some((before, behind)) = rest.split_once('$').filter(|_| !word.is_literal) {
            all.push_str(before);
            let braced = behind.strip_prefix('{').and_then(|own| own.split_once('}'));
            let end = behind.find(|c: char| c != '_' && !c.is_ascii_alphanumeric());
            let bare = behind.split_at(end.unwrap_or(behind.len()));
            let (name, after) = braced.unwrap_or(bare);
            let known = self.env.get(name).filter(|own| {
                is_name(name)
                    && !is_made_elsewhere(own)
                    && !self.env.conditional.contains_key(name)
                    && all.len() + own.len() <= LONGEST_VALUE
            });
            match known {
                Some(own) => {
                    all.push_str(own);
                    rest = after;
                }
                None => {
                    all.push('$');
                    rest = behind;
                }
            }
        }
        all + rest
    }

    fn set(
        &mut self,
        word: &Word,
        (name, value, appends): (&'p str, &str, bool),
        exports: bool,
        conditional: bool,
    ) -> Option<()> {
        self.count()?;
        self.is_changed |= is_judged(name);
        self.is_set |= is_judged(name);
        if exports || self.exports_all {
            self.exported.insert(name);
        }
        let value = &self.expanded(word, value);
        let has = self.env.get(name);
        let value = match has {
            Some(has) if appends => format!("{has}{value}"),
            None if appends => unknown_value(name) + value,
            _ => value.to_owned(),
        };
        if conditional {
            if has != Some(&value) {
                self.env.depends(name, word.line);
            }
            return Some(());
        }
        // The last one counts, and who writes a script knows.
        self.env.forget(name);
        self.env.conditional.remove(name);
        self.env.unset.remove(name);
        self.env.variables.push((name.to_owned(), value));
        self.env.cut.extend(word.cut.map(|c| (name.to_owned(), c)));
        Some(())
    }

    fn unset(&mut self, word: &Word, conditional: bool) -> Option<()> {
        self.count()?;
        let name = word.text.as_str();
        if self.env.get(name).is_some() {
            self.is_changed = true;
            self.is_set |= conditional;
            if conditional {
                self.env.depends(name, word.line);
            } else {
                self.env.take_back(name);
                self.exported.remove(name);
            }
        }
        Some(())
    }

    /// A list of the script has a value for it: whether that reaches what is started, a loop decides.
    fn keep(&mut self, name: &'p str, line: usize) -> Option<()> {
        if is_judged(name) {
            self.count()?;
            self.is_changed = true;
            self.is_set = true;
            self.exported.insert(name);
            self.env.depends(name, line);
        }
        Some(())
    }

    /// Takes in what a command is started with.
    fn start(&mut self, own: &[&'p Word], rest: &[&'p Word], is_exec: bool) -> Option<()> {
        self.spend(self.env.variables.len())?;
        let mut env = self.env.clone();
        let mut all: Vec<(&Word, Variable)> = Vec::new();
        for word in own {
            self.count()?;
            let own = given(&word.text);
            all.extend(own.map(|(name, value)| (*word, (name, self.expanded(word, &value)))));
        }
        let is_env = rest.first().is_some_and(|word| word.text == "env");
        let base = rest.first().map_or("", |word| word.text.as_str());
        let is_service = base.rsplit('/').next() == Some("systemd-run");
        let image = container(rest).and_then(|(_, image)| image);
        let mut behind: BTreeSet<String> = BTreeSet::new();
        let (mut before, mut is_behind) = ("", false);
        for (at, word) in rest.iter().enumerate() {
            if is_env && before == "-u" {
                env.take_back(&word.text);
            }
            let file = word.text.strip_prefix("--env-file=");
            let file = file.or(Some(word.text.as_str()).filter(|_| before == "--env-file"));
            file.into_iter().for_each(|file| env.refer(file));
            let file = word.text.split_once("EnvironmentFile=");
            file.filter(|_| is_service)
                .into_iter()
                .for_each(|(_, file)| env.refer(file.trim_start_matches('-')));
            let is_argument = is_behind
                && (["-e", "--env"].contains(&before)
                    || word.text.starts_with("-e")
                    || word.text.starts_with("--env="));
            let own = of_unit(before, &word.text).filter(|_| is_service);
            let own = own.map(|all| {
                all.into_iter()
                    .map(|(name, value)| (name, Some(value)))
                    .collect()
            });
            let own: Vec<(String, Option<String>)> =
                own.unwrap_or_else(|| gives(before, &word.text));
            let own = own.into_iter();
            for (name, value) in own {
                self.count()?;
                if is_argument {
                    behind.extend(is_known(&name).then_some(name));
                    continue;
                }
                if value.is_none() {
                    env.conditional.insert(name.clone(), word.line);
                }
                let value = value.map(|value| self.expanded(word, &value));
                let value = value.unwrap_or_else(|| unknown_value(&name));
                all.push((word, (name, value)));
            }
            before = &word.text;
            is_behind |= image == Some(at);
        }
        let own_names: BTreeSet<String> = all.iter().map(|(_, (name, _))| name.clone()).collect();
        for name in &own_names {
            env.forget(name);
        }
        let mut has_own = own_names.iter().any(|name| is_judged(name));
        if takes_nothing(rest) {
            let options = rest.get(..image.unwrap_or(rest.len())).unwrap_or_default();
            let mut passed: BTreeSet<&str> = BTreeSet::new();
            for pair in options.windows(2) {
                let [option, name] = [pair[0].text.as_str(), pair[1].text.as_str()];
                let is_before = ["-e", "--env"].contains(&option)
                    || is_service && ["-E", "--setenv"].contains(&option);
                passed.extend(is_before.then_some(name));
                passed.extend(
                    name.strip_prefix("--env=")
                        .or(name.strip_prefix("--setenv=")),
                );
            }
            has_own |= !behind.is_empty();
            has_own |= passed.iter().any(|name| is_judged(name) && is_name(name));
            if !has_own && env.refers.is_empty() {
                if env.judged_names().iter().any(|name| is_known(name)) {
                    let command = rest.first().map_or("", |word| &word.text);
                    self.apart
                        .get_or_insert((command.to_owned(), rest.first()?.line));
                }
                return Some(());
            }
            let gone: Vec<String> = env
                .judged_names()
                .iter()
                .map(|name| (*name).to_owned())
                .collect();
            for name in gone.iter().filter(|name| !passed.contains(name.as_str())) {
                env.forget(name);
            }
        }
        env.behind = behind;
        for (word, (name, value)) in all {
            if !is_made_elsewhere(&value) {
                env.conditional.remove(&name);
            }
            env.cut.extend(word.cut.map(|c| (name.clone(), c)));
            env.variables.push((name, value));
        }
        let first = rest.first()?;
        let command = first.text.rsplit('/').next().unwrap_or_default();
        let is_launcher = is_exec || LAUNCHERS.iter().any(|start| command.starts_with(start));
        if !self.is_changed && !has_own && (self.is_launched || !is_launcher) {
            return Some(());
        }
        self.is_launched = is_launcher;
        self.is_changed &= has_own;
        self.is_set = false;
        env.started = Some((first.text.clone(), first.line, is_launcher));
        let names = env.judged_names().into_iter();
        let unexported: Vec<String> = names
            .filter(|name| !self.exported.contains(name) && !own_names.contains(*name))
            .map(str::to_owned)
            .collect();
        for name in unexported {
            // A script may have names of its own that begin so.
            if !is_known(&name) {
                env.forget(&name);
            // What is put into a word goes there without.
            } else if !self.used.contains(name.as_str()) {
                env.unexported.insert(name);
            }
        }
        // Each of its variables is judged.
        self.spend(env.variables.len().saturating_mul(64))?;
        self.starts.push(env);
        (self.starts.len() <= MOST_STARTS).then_some(())
    }
}

/// The last of these blocks, if a word ends it.
trait Blocks<'p> {
    fn pop_if_end(&mut self, end: &str) -> Option<Block<'p>>;
}

impl<'p> Blocks<'p> for Vec<Block<'p>> {
    fn pop_if_end(&mut self, end: &str) -> Option<Block<'p>> {
        match self.last() {
            Some(block) if block.end == end => self.pop(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the last of those that are started has: each judged variable, `?` where it is not known, and `-` in
    /// front where it is not exported.
    fn has(text: &str) -> String {
        let all = read("x.sh", text).unwrap();
        let env = all.last().unwrap();
        let value = |name: &&str| {
            let value = env.get(name).unwrap_or_default();
            let value = if is_made_elsewhere(value) { "?" } else { value };
            let sign = if env.unexported.contains(*name) {
                "-"
            } else {
                ""
            };
            format!("{sign}{}={value}", &name[5..6])
        };
        env.judged_names()
            .iter()
            .map(value)
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn what_is_started_has_what_is_exported() {
        for (text, wanted) in [
            ("NCCL_ALGO=1\npython3 x", "-A=1"),
            ("export NCCL_ALGO=1\npython3 x", "A=1"),
            ("export NCCL_ALGO=1\nNCCL_ALGO=2\npython3 x", "A=2"),
            ("NCCL_ALGO=1\nexport NCCL_ALGO\npython3 x", "A=1"),
            ("NCCL_ALGO=1\npython3 x\nexport NCCL_ALGO", "-A=1"),
            ("declare -x NCCL_ALGO=1; python3 x", "A=1"),
            ("typeset -rx NCCL_ALGO=1; python3 x", "A=1"),
            ("declare NCCL_ALGO=1; python3 x", "-A=1"),
            ("readonly NCCL_ALGO=1; python3 x", "-A=1"),
            (
                "set -a\nNCCL_ALGO=1\nset +a\nNCCL_BUFFSIZE=1\npython3 x",
                "A=1 -B=1",
            ),
            ("set -ea; NCCL_ALGO=1; python3 x", "A=1"),
            ("set -e; NCCL_ALGO=1; python3 x", "-A=1"),
            ("set -- a; NCCL_ALGO=1; python3 x", "-A=1"),
            (
                "set -o allexport; NCCL_ALGO=1; set +o allexport; NCCL_BUFFSIZE=1; python3 x",
                "A=1 -B=1",
            ),
            ("NCCL_ALGO=1 python3 x", "A=1"),
            ("NCCL_ALGO=1 true\npython3 x", ""),
            ("export NCCL_ALGO=1\nNCCL_ALGO=2 python3 x", "A=2"),
            ("exec env NCCL_ALGO=1 python3 x", "A=1"),
            (
                "docker run -e NCCL_ALGO=1 --env=NCCL_BUFFSIZE=2 --env NCCL_COMM_ID=3 -eNCCL_DEBUG=4 x",
                "A=1 B=2 C=3 D=4",
            ),
            ("NCCL_ALGO=1\ndocker run -e NCCL_ALGO=$NCCL_ALGO x", "A=1"),
            ("NCCL_ALGO=1\npython3 -e X=$NCCL_AB x", "-A=1"),
            ("NCCL_ALGO=1\nssh h \"x --a=${NCCL_ALGO}\"", "A=1"),
            ("export NCCL_ALGO=1; export -n NCCL_ALGO; python3 x", ""),
            (
                "export NCCL_ALGO=1 NCCL_BUFFSIZE=2; unset NCCL_ALGO; python3 x",
                "B=2",
            ),
            ("export NCCL_ALGO=1; declare +x NCCL_ALGO; python3 x", ""),
            ("export NCCL_ALGO=1; declare +i NCCL_ALGO; python3 x", "A=1"),
            ("NCCL_ALGO=1; declare -n NCCL_ALGO; python3 x", "-A=1"),
            ("NCCL_ALGO=1; declare NCCL_ALGO; python3 x", "-A=1"),
            ("NCCL_ALGO=1\npython3 x --algo=$NCCL_ALGO", "A=1"),
            ("NCCL_ALGO=1\npython3 x ${NCCL_ALGO}.", "A=1"),
            ("NCCL_ALGO=1\npython3 x $NCCL_ALGO_X", "-A=1"),
            ("python3 x --set=NCCL_ALGO=1 --set:NCCL_ALGO=1", ""),
            (
                "export NCCL_ALGO=1 &>x NCCL_BUFFSIZE=1\npython3 x",
                "A=1 B=1",
            ),
            ("a >\nNCCL_ALGO=1\npython3 x", "-A=1"),
            ("> NCCL_ALGO=1\nNCCL_BUFFSIZE=1", "B=1"),
            ("export NCCL_ALGO=1\nfoo =a\nunset NCCL_ALGO", "A=1"),
            ("export NCCL_ALGO=1\n((a > 1))\nunset NCCL_ALGO", ""),
            ("export NCCL_ALGO=1\nread x < <(a b)\nunset NCCL_ALGO", ""),
            ("export NCCL_ALGO; python3 x", "A=?"),
            ("export NCCL_ALGO; NCCL_ALGO=1; python3 x", "A=1"),
            ("NCCL_ALGO=1 # no start\n", "A=1"),
            (
                "export NCCL_ALGO=1 NCCL_BUFFSIZE=1\nfoo\nunset NCCL_ALGO\npython3 x\nunset NCCL_BUFFSIZE",
                "B=1",
            ),
            ("export NCCL_ALGO=1\nNCCL_ALGO=2 foo\npython3 x", "A=1"),
            ("echo NCCL_ALGO=1; printf 'NCCL_ALGO=1'\n", ""),
            (
                "args=(-e NCCL_ALGO=1)\nargs+=(\n -e 'NCCL_BUFFSIZE=2'\n)\ndocker run \"${args[@]}\" x",
                "A=1 B=2",
            ),
            (
                "args=(NCCL_ALGO=1 b); export NCCL_BUFFSIZE=1; python3 x",
                "A=1 B=1",
            ),
            ("nohup time python3 x NCCL_ALGO=1 &\n", "A=1"),
            (
                "exec >log 2>&1\nexport NCCL_ALGO=1 2>/dev/null\npython3 x",
                "A=1",
            ),
            ("export NCCL_ALGO=1\nexec python3 x\nNCCL_ALGO=2", "A=1"),
            ("export NCCL_ALGO=1\nexit\nNCCL_ALGO=2", "A=1"),
            ("export NCCL_ALGO=1 && python3 x", "A=1"),
            (
                "export NCCL_ALGO=1 NCCL_BUFFSIZE=2\nfoo\nexport NCCL_COMM_ID=3\npython3 x\ncurl x",
                "A=1 B=2 C=3",
            ),
        ] {
            assert_eq!(has(text), wanted, "{text}");
        }
    }

    #[test]
    fn what_a_condition_decides_is_not_known() {
        for (text, wanted) in [
            ("if a; then export NCCL_ALGO=1; fi", "A=?"),
            (
                "if a; then export NCCL_ALGO=1; else export NCCL_ALGO=1; fi; export NCCL_BUFFSIZE=1",
                "A=? B=1",
            ),
            ("export NCCL_ALGO=1; if a; then NCCL_ALGO=1; fi", "A=1"),
            ("export NCCL_ALGO=1; if a; then unset NCCL_ALGO; fi", "A=?"),
            ("if a; then unset NCCL_ALGO; fi; NCCL_BUFFSIZE=1", "B=1"),
            ("if a; then export NCCL_ALGO=1; fi; NCCL_ALGO=2", "A=2"),
            (
                "case $1 in\na|b) export NCCL_ALGO=1;;\n(c) NCCL_BUFFSIZE=1\n;;\nesac\nNCCL_COMM_ID=1",
                "A=? B=? C=1",
            ),
            ("case $1 in\nesac\nNCCL_COMM_ID=1", "C=1"),
            (
                "case $1 in\nNCCL_ALGO=1) x;;\nNCCL_ALGO=2) NCCL_BUFFSIZE=1;;\nesac\nNCCL_COMM_ID=1",
                "B=? C=1",
            ),
            ("a &&\n\n export NCCL_ALGO=1", "A=?"),
            ("a && >x\nexport NCCL_ALGO=1", "A=1"),
            ("a && b | NCCL_ALGO=1\nNCCL_BUFFSIZE=1", "A=? B=1"),
            ("[ a ] && return\nexport NCCL_ALGO=1", "A=1"),
            ("if a; then\n}\nNCCL_ALGO=1; fi", "A=?"),
            (": ${X:-\nNCCL_ALGO=1\n}\nNCCL_BUFFSIZE=1", "B=1"),
            (
                "for a in NCCL_ALGO=1 b; do NCCL_BUFFSIZE=1; done; NCCL_COMM_ID=1",
                "B=? C=1",
            ),
            ("for a\ndo NCCL_BUFFSIZE=1; done; NCCL_COMM_ID=1", "B=? C=1"),
            (
                "while a; do NCCL_BUFFSIZE=1; done <x; NCCL_COMM_ID=1",
                "B=? C=1",
            ),
            ("[ a ] && export NCCL_ALGO=1; NCCL_BUFFSIZE=1", "A=? B=1"),
            ("a ||\n export NCCL_ALGO=1\nNCCL_BUFFSIZE=1", "A=? B=1"),
            (
                "a && { NCCL_ALGO=1; NCCL_BUFFSIZE=1; }; NCCL_COMM_ID=1",
                "A=? B=? C=1",
            ),
            ("{ NCCL_ALGO=1; }; NCCL_COMM_ID=1", "A=1 C=1"),
            ("cd x && export NCCL_ALGO=1", "A=1"),
            ("NCCL_ALGO=1 && export NCCL_BUFFSIZE=1", "A=1 B=1"),
            ("NCCL_ALGO=1 || export NCCL_BUFFSIZE=1", "A=1 B=?"),
            ("(export NCCL_ALGO=1); NCCL_BUFFSIZE=1", "B=1"),
            ("(export NCCL_ALGO=1; python3 x)", "A=1"),
            (
                "((a > 1)) && NCCL_ALGO=1; NCCL_BUFFSIZE=$((1 + 1))",
                "A=? B=?",
            ),
            ("ssh h 'export NCCL_ALGO=1; python3 x'", "A=?"),
            ("ssh h 'NCCL_ALGO=1 python3 x'", "A=?"),
            (
                "docker run -e 'NCCL_ALGO=1 2' '--env=NCCL_BUFFSIZE=1 2' --env 'NCCL_COMM_ID=1 2' x",
                "A=1 2 B=1 2 C=1 2",
            ),
            ("NCCL_ALGO='1 2' x", "A=1 2"),
            ("bash -c \"\nNCCL_ALGO=1 python3 x\n\"", "A=?"),
            ("python3 -c 'NCCL_ALGO == 1'", ""),
        ] {
            assert_eq!(has(text), wanted, "{text}");
        }
        let env = read(
            "x",
            "\n\nif a\nthen\n export NCCL_ALGO='\n' NCCL_BUFFSIZE=1; fi",
        )
        .unwrap();
        let lines: Vec<(&str, usize)> = env[0]
            .conditional
            .iter()
            .map(|(name, line)| (name.as_str(), *line))
            .collect();
        assert_eq!(lines, [("NCCL_ALGO", 5), ("NCCL_BUFFSIZE", 6)]);
        let env = read("x", "cat <<E\n\nx\nE\nif a; then export NCCL_ALGO=1; fi");
        assert_eq!(env.unwrap()[0].conditional.get("NCCL_ALGO"), Some(&5));
    }

    #[test]
    fn functions_count_where_they_are_called() {
        for (text, wanted) in [
            (
                "a() {\n export NCCL_ALGO=1\n}\nexport NCCL_BUFFSIZE=1",
                "B=1",
            ),
            ("a() {\n export NCCL_ALGO=1\n}\na\n", "A=1"),
            ("function a {\n export NCCL_ALGO=1\n}\na\n", "A=1"),
            ("function a() {\n export NCCL_ALGO=1\n}\na\n", "A=1"),
            ("a() (\n export NCCL_ALGO=1\n)\na\nNCCL_BUFFSIZE=1", "B=1"),
            (
                "a() { { b; }; case x in y) c;; esac; NCCL_ALGO=1; }\nNCCL_BUFFSIZE=1; a",
                "A=1 B=1",
            ),
            ("a() { NCCL_ALGO=1; }\nif x; then a; fi", "A=?"),
            ("a() { return; NCCL_ALGO=1; }\na; NCCL_BUFFSIZE=1", "B=1"),
            (
                "a() { [ x ] && return; NCCL_ALGO=1; }\na; NCCL_BUFFSIZE=1",
                "A=? B=1",
            ),
            ("a() { NCCL_ALGO=1", ""),
            (
                "function a {\n export NCCL_ALGO=1\n}\nexport NCCL_BUFFSIZE=1",
                "B=1",
            ),
            ("(a() ( b )\nNCCL_ALGO=1)\nNCCL_BUFFSIZE=1", "B=1"),
            ("a() { [ x ] || exit 1; export NCCL_ALGO=1; }\na", "A=1"),
        ] {
            assert_eq!(has(text), wanted, "{text}");
        }
        assert!(read("x", "a() { a; }\na\n").is_none());
        assert!(read("x", "a() { :; }\na\n").is_some());
        let mut text = "a0() { :; }\n".to_owned();
        for i in 1..15 {
            text += &format!("a{i}() {{ {} }}\n", format!("a{};", i - 1).repeat(8));
        }
        assert!(read("x", &text).is_some());
        assert!(read("x", &format!("{text}a14")).is_none());
    }

    #[test]
    fn what_a_script_sets_itself_is_known() {
        for (text, wanted) in [
            ("X=1\nexport NCCL_ALGO=\"$X\"\npython3 x", "A=1"),
            ("X=1\nexport NCCL_ALGO=${X}2\npython3 x", "A=12"),
            ("readonly X=1\nexport NCCL_ALGO=0$X.$X\npython3 x", "A=01.1"),
            ("X=1\nexport NCCL_ALGO='$X'\npython3 x", "A=?"),
            ("X=1\nexport NCCL_ALGO=\\$X\npython3 x", "A=?"),
            ("X=1\nexport NCCL_ALGO=$XY\npython3 x", "A=?"),
            ("X=1\nexport NCCL_ALGO=${X:-2}\npython3 x", "A=?"),
            ("export NCCL_ALGO=$Y\npython3 x", "A=?"),
            ("export NCCL_ALGO=1$\npython3 x", "A=?"),
            ("X=$(date)\nexport NCCL_ALGO=$X\npython3 x", "A=?"),
            ("if a; then X=1; fi\nexport NCCL_ALGO=$X\npython3 x", "A=?"),
            ("X=1\nmpirun -x NCCL_ALGO=$X x", "A=1"),
            ("X=1\nNCCL_ALGO=$X python3 x", "A=1"),
        ] {
            assert_eq!(has(text), wanted, "{text}");
        }
        let longest = "1".repeat(LONGEST_VALUE);
        let of = |before: &str| {
            has(&format!(
                "X={longest}\nexport NCCL_ALGO={before}$X\npython3 x"
            ))
        };
        assert_eq!(
            (of(""), of("1")),
            (format!("A={longest}"), "A=?".to_owned())
        );
        // Values that grow have an end.
        let twice = "A=$A$A\n".repeat(40);
        let env = read("x", &format!("A=12345678\n{twice}export NCCL_ALGO=$A\n")).unwrap();
        assert!(
            env[0]
                .variables
                .iter()
                .all(|own| own.1.len() < 3 * LONGEST_VALUE)
        );
    }

    #[test]
    fn commands_that_have_nothing_of_the_scripts_environment_have_what_they_are_given() {
        for (start, wanted) in [
            ("env -u NCCL_ALGO python3 x", "B=2"),
            ("env -i NCCL_ALGO=3 python3 x", "A=3"),
            ("sudo NCCL_ALGO=3 python3 x", "A=3"),
            ("sudo -E python3 x", "A=1 B=2"),
            ("sudo --preserve-env=PATH python3 x", "A=1 B=2"),
            ("env NCCL_ALGO=3 python3 -i x", "A=3 B=2"),
            ("docker run -e NCCL_ALGO x", "A=1"),
            ("/usr/bin/podman exec --env NCCL_BUFFSIZE x", "B=2"),
            ("docker ps", "A=1 B=2"),
            ("docker run \"${ARGS[@]}\" x", "A=1 B=2"),
            ("uv run python3 x", "A=1 B=2"),
            ("systemd-run --scope python3 x", "A=1 B=2"),
            ("sudo -E -u NCCL_ALGO python3 x", "A=1 B=2"),
        ] {
            let text = format!("export NCCL_ALGO=1 NCCL_BUFFSIZE=2\n{start}\n");
            assert_eq!(has(&text), wanted, "{text}");
            assert!(read("x", &text).unwrap()[0].apart.is_none(), "{text}");
        }
        for start in [
            "sudo python3 x",
            "env - python3 x",
            "ssh h x",
            "docker run x",
            "podman create x",
            "docker run -e PATH x",
            "systemd-run python3 x",
            "systemd-run --unit NCCL_ALGO x",
            "systemd-run --pty python3 --scope",
        ] {
            let text = format!("export NCCL_ALGO=1\n{start}\n");
            let env = read("x", &text).unwrap();
            let command = start.split(' ').next().unwrap();
            assert_eq!(env[0].apart, Some((command.to_owned(), 2)), "{text}");
            // Another command that has it is what counts.
            let env = read("x", &(text + "python3 x\n")).unwrap();
            assert!(env.len() == 1 && env[0].apart.is_none(), "{start}");
        }
    }

    #[test]
    fn what_is_exported_by_a_name_that_is_made_elsewhere_is_not_all_there() {
        for (text, wanted) in [("export NCCL_ALGO", 0), ("declare $X", 0), ("export $X", 1)] {
            assert_eq!(read("x", text).unwrap()[0].refers.len(), wanted, "{text}");
        }
        let again = "export NCCL_ALGO=1\npython3 x\nexport PATH\npython3 y";
        assert_eq!(read("x", again).unwrap().len(), 1);
    }

    #[test]
    fn the_image_of_a_container_is_behind_its_options() {
        for (text, wanted) in [
            ("docker run -e A=1 img -e B=2", Some((0, Some(4)))),
            (
                "sudo /usr/bin/podman container run -it img",
                Some((1, Some(5))),
            ),
            ("docker run -eA=1 img", Some((0, Some(3)))),
            (
                "docker exec --rm --env=A=1 --name n img",
                Some((0, Some(6))),
            ),
            ("docker run $IMAGE x", Some((0, Some(2)))),
            ("docker run $IMG x", Some((0, Some(2)))),
            ("docker run ${IMAGES[@]} img", Some((0, Some(3)))),
            ("docker run $OPTS img", Some((0, Some(3)))),
            ("docker run --strange 8g img", Some((0, None))),
            ("docker run - img", Some((0, None))),
            ("docker run -it", Some((0, None))),
            ("docker ps img", None),
            ("docker", None),
            ("python3 run img", None),
        ] {
            let (parts, _) = parts(text);
            let words: Vec<&Word> = parts
                .iter()
                .filter_map(|part| match part {
                    Part::Word(word) => Some(word),
                    _ => None,
                })
                .collect();
            assert_eq!(container(&words), wanted, "{text}");
        }
        for (argument, wanted) in [
            ("-e NCCL_ALGO=1", 1),
            ("--env NCCL_ALGO=1", 1),
            ("-eNCCL_ALGO=1", 1),
            ("--env=NCCL_ALGO=1", 1),
            ("NCCL_ALGO=1", 0),
            ("-e NCCL_OWN_NAME=1", 0),
        ] {
            let env = read("x", &format!("docker run -e NCCL_DEBUG=1 img {argument}")).unwrap();
            assert_eq!(env[0].behind.len(), wanted, "{argument}");
            assert_eq!(env[0].get("NCCL_DEBUG"), Some("1"), "{argument}");
        }
    }

    #[test]
    fn what_systemd_run_gives_is_read_and_what_it_takes_from_a_file_is_known_to_be_missing() {
        let given = |before: &str, text: &str| {
            let all = of_unit(before, text)?;
            let each = all.iter().map(|(name, value)| format!("{name}={value}"));
            Some(each.collect::<Vec<_>>().join(" "))
        };
        for (before, text, wanted) in [
            ("", "--property=Environment=A=1 'B=2 3'", Some("A=1 B=2 3")),
            ("-p", "Environment=A=1", Some("A=1")),
            ("--property", "Environment=A=1", Some("A=1")),
            ("", "-pEnvironment=A=1", Some("A=1")),
            ("x", "Environment=A=1", None),
            ("-p", "MemoryMax=1", None),
            ("", "--setenv=A=1", Some("A=1")),
            ("", "-EA=1", Some("A=1")),
            ("", "A=1", None),
        ] {
            assert_eq!(given(before, text).as_deref(), wanted, "{before} {text}");
        }
        let refers = |text: &str| read("x", text).unwrap()[0].refers.clone();
        let start = "NCCL_ALGO=1 python3 x";
        let of_unit = format!("systemd-run -p EnvironmentFile=-/y {start}");
        assert!(refers(&of_unit).contains("/y"));
        assert!(refers(&format!("{start} EnvironmentFile=/y")).is_empty());
    }

    #[test]
    fn elements_of_lists_have_their_names() {
        assert_eq!(keyed("[NCCL_A]=1"), Some("NCCL_A"));
        assert_eq!(keyed("[NCCL_A]+=1"), Some("NCCL_A"));
        assert_eq!(
            (keyed("[a b]=1"), keyed("[NCCL_A]x"), keyed("A=1")),
            (None, None, None)
        );
        assert_eq!(element("E[NCCL_A]=1"), Some("NCCL_A"));
        assert_eq!((element("a b[A]=1"), element("A=1")), (None, None));
        for (text, wanted) in [
            ("$k=$v", true),
            ("--env=$k=$v", true),
            ("$(a b)=1", false),
            ("$A/b=1", false),
            ("k=$v", false),
            ("$k", false),
        ] {
            assert_eq!(is_given_by_name(text), wanted, "{text}");
        }
    }

    #[test]
    fn what_is_appended_goes_behind() {
        for (text, wanted) in [
            (
                "export NCCL_ALGO=1\nNCCL_ALGO+=2\nNCCL_ALGO+=';3'",
                "A=12;3",
            ),
            ("NCCL_ALGO+=2", "A=?"),
            ("NCCL_ALGO=1; if a; then NCCL_ALGO+=2; fi", "A=?"),
        ] {
            assert_eq!(has(text), wanted, "{text}");
        }
        assert_eq!(
            read("x", "NCCL_ALGO=1\nNCCL_ALGO+=2").unwrap()[0]
                .variables
                .len(),
            1
        );
    }

    #[test]
    fn documents_and_words_in_quotes_assign_nothing() {
        for (text, wanted) in [
            ("cat >x <<EOF\nNCCL_ALGO=1\nEOF\nNCCL_BUFFSIZE=1", "B=1"),
            (": <<'EOF'\nNCCL_ALGO='1\nEOF \nEOF\nNCCL_BUFFSIZE=1", "B=1"),
            (
                "cat <<-\tEOF <<B\nNCCL_ALGO=1\n\tEOF\nNCCL_ALGO=1\nB\nNCCL_BUFFSIZE=1",
                "B=1",
            ),
            ("cat <<EOF\n\tEOF\nNCCL_ALGO=1\nEOF\nNCCL_BUFFSIZE=1", "B=1"),
            ("cat <<<EOF\nNCCL_ALGO=1", "A=1"),
            ("cat <<\nx\nNCCL_ALGO=1\nx\n", "-A=1"),
            ("cat <<EOF\nNCCL_ALGO=1", ""),
            ("x='\nNCCL_ALGO=1\n'\nNCCL_BUFFSIZE=1", "B=1"),
            (
                "NCCL_ALGO=1\\\n2 # x\nNCCL_BUFFSIZE=\"a'b\\\"c\"",
                "A=12 B=a'b\"c",
            ),
            ("NCCL_ALGO=`a b` NCCL_BUFFSIZE=1", "A=? B=1"),
            (
                "NCCL_ALGO=${X:-a b} NCCL_BUFFSIZE=\"$(a \"b c\" (d) )\" NCCL_COMM_ID=1",
                "A=? B=? C=1",
            ),
            ("done < <(a b); NCCL_ALGO=1", "A=1"),
            ("a &>x; b >>y; c >|z; NCCL_ALGO=1 # b", "A=1"),
            ("NCCL_ALGO=1;# NCCL_BUFFSIZE=1\n", "A=1"),
        ] {
            assert_eq!(has(text), wanted, "{text}");
        }
        let open = |text: &str| read("x", text).unwrap()[0].open_since;
        assert_eq!(
            (open("a\n\nb 'c\nd"), open("a 'b'"), open("a\n$(b")),
            (Some(3), None, Some(2))
        );
    }

    #[test]
    fn lists_in_pieces_are_no_commands() {
        let other = |text: &str| {
            let env = read("x", text).unwrap().remove(0);
            assert!(env.started.is_none(), "{text}");
            env.other.len()
        };
        assert_eq!(other("NCCL_ALGO=a, b, c"), 2);
        assert_eq!(other("export NCCL_ALGO=a, b, c"), 2);
        assert_eq!(other("NCCL_ALGO = a"), 3);
        assert_eq!(other("NCCL_ALGO =a"), 2);
    }

    #[test]
    fn a_script_has_an_end() {
        let many = |text: &str, count: usize| read("x", &text.repeat(count));
        assert!(many("A=1;", 4096).is_some() && many("A=1;", 4097).is_none());
        assert!(many("export A;", 4096).is_some() && many("export A;", 4097).is_none());
        assert!(many("NCCL_ALGO=1 a;", 64).is_some() && many("NCCL_ALGO=1 a;", 65).is_none());
        assert!({
            let all: String = (0..4000).map(|i| format!("A{i}=1;")).collect();
            read("x", &all).is_some() && read("x", &(all + &"(a);".repeat(300))).is_none()
        });
        let all: String = (0..1000).map(|i| format!("A{i}=1;")).collect();
        let starts = |count: usize| read("x", &(all.clone() + &"NCCL_ALGO=1 a;".repeat(count)));
        assert!(starts(15).is_some() && starts(17).is_none());
        assert!(many("(", 100_000).is_some() && many("a;", 100_000).is_some());
    }
}
