//! What services of a compose file have in their environments: as much of YAML as such files have of it, read
//! by its lines.

use std::collections::BTreeMap;

use super::{MOST_VARIABLES, is_name};

/// A name with its value.
type Variable = (String, String);

/// Variables of a block: its own, and those that an alias put in, which give way to them.
#[derive(Debug, Clone, Default)]
struct Variables {
    own: Vec<Variable>,
    merged: Vec<Variable>,
}

impl Variables {
    /// What comes of both.
    fn all(&self) -> Vec<Variable> {
        let mut all = self.own.clone();
        for (name, value) in &self.merged {
            if !all.iter().any(|(own, _)| own == name) {
                all.push((name.clone(), value.clone()));
            }
        }
        all
    }
}

#[derive(Debug, Default)]
struct Service {
    name: String,
    variables: Variables,
    has_environment: bool,
    /// What an alias of a whole service put in, which counts where there is no environment of its own.
    of_another: Vec<Variable>,
}

/// A key that has lines below it.
struct Block<'t> {
    indent: usize,
    key: &'t str,
    anchor: Option<&'t str>,
}

/// Where a line stands, and what was read so far.
#[derive(Default)]
struct Reader<'t> {
    blocks: Vec<Block<'t>>,
    services: Vec<Service>,
    anchors: BTreeMap<&'t str, Variables>,
    taken: usize,
}

/// The variables of each service, in the file's order; of a file without `services:`, of its environment. None
/// where there are too many.
pub(super) fn read(text: &str) -> Option<Vec<(String, Vec<Variable>)>> {
    let mut reader = Reader::default();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let content = line.trim_start_matches(' ');
        if content.trim().is_empty() || content.starts_with('#') {
            continue;
        }
        let indent = line.len() - content.len();
        let item = content.strip_prefix("- ").map(str::trim);
        // Items may stand right below the key that they belong to.
        let is_over =
            |block: &Block| block.indent > indent || block.indent == indent && item.is_none();
        while reader.blocks.last().is_some_and(is_over) {
            reader.blocks.pop();
        }
        let head = match item {
            Some(item) => Some(item),
            None => key_and_value(content).map(|(_, value)| value),
        };
        let block = head.and_then(block_style).map(|is_folded| {
            let inside = |line: &&str| {
                line.trim().is_empty() || line.len() - line.trim_start_matches(' ').len() > indent
            };
            let inner = std::iter::from_fn(|| lines.next_if(inside));
            block_scalar(inner, is_folded)
        });
        match item {
            Some(item) => {
                let text = block.unwrap_or_else(|| scalar(item));
                reader.take(vec![assignment(&text)]);
            }
            None => reader.line(content, indent, block),
        }
        if reader.taken > MOST_VARIABLES {
            return None;
        }
    }
    let variables = |service: &Service| match service.has_environment {
        true => service.variables.all(),
        false => service.of_another.clone(),
    };
    let services = reader.services.iter();
    Some(
        services
            .map(|service| (service.name.clone(), variables(service)))
            .collect(),
    )
}

/// `NAME=VALUE`; a name alone has the value that it has where the service is started.
fn assignment(text: &str) -> Variable {
    match text.split_once('=') {
        Some((name, value)) => (name.to_owned(), value.to_owned()),
        None => (text.to_owned(), format!("${{{text}}}")),
    }
}

impl<'t> Reader<'t> {
    fn is_environment(&self) -> bool {
        self.blocks.iter().any(|block| block.key == "environment")
    }

    /// The service that a line is of; that of a file without `services:` has no name.
    fn service(&mut self) -> Option<&mut Service> {
        let name = match &self.blocks[..] {
            [first, second, ..] if first.key == "services" => second.key,
            [first, ..] if first.key == "environment" => "",
            _ => return None,
        };
        let at = self.services.iter().position(|own| own.name == name);
        let at = at.unwrap_or_else(|| {
            self.services.push(Service {
                name: name.to_owned(),
                ..Service::default()
            });
            self.services.len() - 1
        });
        self.services.get_mut(at)
    }

    /// `KEY: VALUE`, or a key with lines below it.
    fn line(&mut self, content: &'t str, indent: usize, block: Option<String>) {
        let Some((key, value)) = key_and_value(content) else {
            return;
        };
        let mut value = value;
        let mut anchor = None;
        if let Some(rest) = value.strip_prefix('&') {
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            anchor = Some(&rest[..end]);
            value = rest[end..].trim_start();
        }
        if value.starts_with('#') {
            value = "";
        }
        let was_environment = self.is_environment();
        if key == "<<" {
            return self.aliases(value);
        }
        self.blocks.push(Block {
            indent,
            key,
            anchor,
        });
        if key == "environment" && !was_environment {
            if let Some(service) = self.service() {
                service.has_environment = true;
            }
        }
        if value.starts_with('*') {
            self.aliases(value);
        } else if key == "environment" && value.starts_with(['{', '[']) {
            for part in flow(value) {
                let of_mapping = value
                    .starts_with('{')
                    .then(|| key_and_value(part))
                    .flatten();
                let variable = match of_mapping {
                    Some((key, value)) => of_key(key, value),
                    None => assignment(&scalar(part)),
                };
                self.take(vec![variable]);
            }
        } else if was_environment || !value.is_empty() {
            self.blocks.pop();
            self.take(vec![match block {
                Some(value) => (key.to_owned(), value),
                None => of_key(key, value),
            }]);
        }
    }

    /// Takes variables in, of this place and of all anchors above it.
    fn take(&mut self, variables: Vec<Variable>) {
        let variables: Vec<Variable> = variables
            .into_iter()
            .filter(|(name, _)| is_name(name))
            .collect();
        let is_environment = self.is_environment();
        let last = self.blocks.len().saturating_sub(1);
        let of_services = self.blocks.first().is_some_and(|own| own.key == "services");
        for (i, block) in self.blocks.iter().enumerate() {
            // Outside of services a block may be made for the environments that take it in.
            let is_of = is_environment || i == last && !of_services;
            if let Some(anchor) = block.anchor.filter(|_| is_of) {
                self.taken += variables.len();
                let own = self.anchors.entry(anchor).or_default();
                own.own.extend(variables.iter().cloned());
            }
        }
        if is_environment {
            self.taken += variables.len();
            if let Some(service) = self.service() {
                service.variables.own.extend(variables);
            }
        }
    }

    /// Puts in what anchors have: `*NAME`, or several in brackets.
    fn aliases(&mut self, value: &str) {
        let names = value.split(|c: char| c.is_whitespace() || "[],".contains(c));
        let names = names.filter_map(|name| name.strip_prefix('*'));
        let variables: Vec<Variable> = names
            .filter_map(|name| self.anchors.get(name))
            .flat_map(Variables::all)
            .take(MOST_VARIABLES)
            .collect();
        let is_environment = self.is_environment();
        for block in &self.blocks {
            if let Some(anchor) = block.anchor {
                self.taken += variables.len();
                let own = self.anchors.entry(anchor).or_default();
                own.merged.extend(variables.iter().cloned());
            }
        }
        self.taken += variables.len();
        if let Some(service) = self.service() {
            if is_environment {
                service.variables.merged.extend(variables);
            } else {
                service.of_another.extend(variables);
            }
        }
    }
}

/// The variable of a mapping's line; one without a value has that which it has where the service is started.
fn of_key(key: &str, value: &str) -> Variable {
    match value.trim() {
        "" | "~" | "null" => assignment(key),
        value => (key.to_owned(), scalar(value)),
    }
}

/// Of a value that has its lines below it, whether these are joined.
fn block_style(value: &str) -> Option<bool> {
    let words: Vec<&str> = value.split_whitespace().take(2).collect();
    let (style, comment) = words.split_first()?;
    let options = style.strip_prefix(['>', '|'])?;
    let is_style = options.chars().all(|c| matches!(c, '+' | '-' | '1'..='9'));
    let is_end = comment.iter().all(|word| word.starts_with('#'));
    (is_style && is_end).then_some(style.starts_with('>'))
}

/// The value of such lines, without what ends the last.
fn block_scalar<'t>(lines: impl Iterator<Item = &'t str>, is_folded: bool) -> String {
    let lines: Vec<&str> = lines.map(str::trim).collect();
    lines
        .join(if is_folded { " " } else { "\n" })
        .trim()
        .to_owned()
}

/// A key, with quotes or without, and what stands behind its colon.
fn key_and_value(text: &str) -> Option<(&str, &str)> {
    let text = text.trim();
    let (key, rest) = match text.strip_prefix(['"', '\'']) {
        Some(rest) => rest.split_once(['"', '\''])?,
        None => text.split_at(text.find(": ").or(text.strip_suffix(':').map(str::len))?),
    };
    let value = rest.trim_start().strip_prefix(':')?;
    Some((key, value.trim()))
}

/// The parts of a list or mapping in brackets.
fn flow(text: &str) -> Vec<&str> {
    let end = text.rfind(['}', ']']).unwrap_or(text.len());
    let inner = text.get(1..end).unwrap_or_default();
    let mut quote = None;
    let parts = inner.split(|c: char| {
        match quote {
            Some(open) if c == open => quote = None,
            None if matches!(c, '"' | '\'') => quote = Some(c),
            _ => {}
        }
        c == ',' && quote.is_none()
    });
    parts
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect()
}

/// What a scalar is, with quotes or without; a comment behind it is none of it.
fn scalar(text: &str) -> String {
    let text = text.trim();
    let Some(quote) = text.chars().next().filter(|c| matches!(c, '"' | '\'')) else {
        let mut before = ' ';
        let comment = text.find(|c: char| {
            let is = c == '#' && before.is_whitespace();
            before = c;
            is
        });
        return text[..comment.unwrap_or(text.len())].trim_end().to_owned();
    };
    let mut value = String::new();
    let mut chars = text.chars().skip(1).peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' if quote == '"' => value.extend(chars.next()),
            c if c != quote => value.push(c),
            // In single quotes two of them are one.
            '\'' if chars.peek() == Some(&'\'') => value.extend(chars.next()),
            _ => break,
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<(String, Vec<(String, String)>)> {
        read(text).unwrap()
    }

    fn variables(all: &[(&str, &str)]) -> Vec<Variable> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        all.iter().map(owned).collect()
    }

    #[test]
    fn each_service_has_its_own_in_either_form() {
        let text = "version: \"3\"\nservices:\n  a: # first\n    image: x:1\n    environment:\n      A: \"1=0/2;0=1/3\" # why\n      'B': 'it''s'\n      C: x#y # z\n      D:\n    command: E=1\n  b:\n    environment:\n    - A=p q\n    - \"B=a\\\"b\"\n    - C\n    build:\n      args:\n      - G=1\nvolumes:\n  A: {}\n";
        let wanted = [
            (
                "a".to_owned(),
                variables(&[
                    ("A", "1=0/2;0=1/3"),
                    ("B", "it's"),
                    ("C", "x#y"),
                    ("D", "${D}"),
                ]),
            ),
            (
                "b".to_owned(),
                variables(&[("A", "p q"), ("B", "a\"b"), ("C", "${C}")]),
            ),
        ];
        assert_eq!(of(text), wanted);
        let text = "services:\n  a:\n    environment: {A: 1, \"B\": \"x,y\"}\n  b:\n    environment: [A=1, 'B=x,y', C]\n";
        assert_eq!(of(text)[0].1, variables(&[("A", "1"), ("B", "x,y")]));
        assert_eq!(
            of(text)[1].1,
            variables(&[("A", "1"), ("B", "x,y"), ("C", "${C}")])
        );
        assert_eq!(of("environment:\n  A: 1\n")[0].1, variables(&[("A", "1")]));
        assert!(of("environment\nA: 1\n").is_empty());
        assert!(of("x-a:\n  environment:\n    A: 1\n").is_empty());
        let text = "services:\n  a:\n    environment:\n# x\n\n      A: '1\\2' # y\n      B: [1]\n      C: 'a' # b\n";
        let wanted = [("A", "1\\2"), ("B", "[1]"), ("C", "a")];
        assert_eq!(of(text)[0].1, variables(&wanted));
    }

    #[test]
    fn a_value_may_have_lines_below_it() {
        let text = "services:\n  a:\n    command: >\n      x\n      environment:\n      - X=1\n    environment:\n      A: >-\n        1\n\n      B: | # x\n        a\n        b # c\n      C: >2+\n        a\n        b\n      D: >x\n      E: | 1\n      F: |-x\n    labels:\n    - |\n      Y=1\n  b:\n    environment:\n    - >-\n      A=1\n    - B=2\n";
        let wanted = [
            ("A", "1"),
            ("B", "a\nb # c"),
            ("C", "a b"),
            ("D", ">x"),
            ("E", "| 1"),
            ("F", "|-x"),
        ];
        assert_eq!(of(text)[0].1, variables(&wanted));
        assert_eq!(of(text)[1].1, variables(&[("A", "1"), ("B", "2")]));
    }

    #[test]
    fn what_an_alias_puts_in_gives_way_to_what_stands_there() {
        let text = "x-env: &env\n  A: 1\n  B: 2\nx-more: &more\n  <<: *env\n  B: 3\nservices:\n  a:\n    environment:\n      <<: *more\n      A: 4\n  b: &b\n    image: x\n    environment: *env\n  c:\n    <<: *b\n  d:\n    <<: *b\n    environment:\n      C: 1\n  e:\n    environment:\n      <<: [*env, *more]\n";
        let services = of(text);
        let of = |name: &str| {
            let own = services.iter().find(|(own, _)| own == name);
            own.map(|(_, all)| all.clone()).unwrap_or_default()
        };
        assert_eq!(of("a"), variables(&[("A", "4"), ("B", "3")]));
        assert_eq!(of("b"), variables(&[("A", "1"), ("B", "2")]));
        assert_eq!(of("c"), of("b"));
        assert_eq!(of("d"), variables(&[("C", "1")]));
        assert_eq!(of("e"), of("b"));
    }

    #[test]
    fn aliases_of_aliases_have_an_end() {
        let mut text = "x0: &x0\n  A: 1\n".to_owned();
        for i in 0..9000 {
            let next = i + 1;
            text += &format!("x{next}: &x{next}\n  A{next}: 1\n  <<: [*x{i}, *x{i}]\n");
        }
        assert_eq!(read(&text), None);
        assert!(read("environment:\n  <<: *nobody\n").is_some());
        let many = |start: &str, count: usize| {
            let lines = (0..count).map(|i| format!("  A{i}: 1\n"));
            read(&format!("{start}{}", lines.collect::<String>()))
        };
        for start in ["environment:\n", "x: &x\n"] {
            assert!(many(start, 4096).is_some() && many(start, 4097).is_none());
        }
        let aliases = |start: &str, count: usize| {
            let all = vec!["*x"; count].join(", ");
            read(&format!("x: &x\n  A: 1\n{start}  <<: [{all}]\n"))
        };
        assert!(aliases("y: &y\n", 2047).is_some() && aliases("y: &y\n", 2048).is_none());
        assert!(aliases("environment:\n", 4095).is_some());
        assert!(aliases("environment:\n", 4096).is_none());
        assert!(aliases("environment:\n", 9000).is_none());
    }

    #[test]
    fn an_alias_may_be_of_a_list() {
        let text = "x: &x\n- A=1\nservices:\n  a:\n    command:\n    - B=1\n    environment: *x\n";
        assert_eq!(of(text)[0].1, variables(&[("A", "1")]));
    }
}
