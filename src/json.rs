//! Strict JSON input: untrusted text in, a tree out in which every value knows its place.
//!
//! `serde_json` decides what JSON is. On top of it this module refuses what would lose something
//! silently (a key given twice), bounds the size, and reads values by hand so that an error names
//! the file, the path inside it, what is there and what is wanted.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use crate::names::{NameError, quoted};

/// The largest document that is read, in bytes. An inventory of a busy node with thousands of
/// routes, rules and queue pairs stays below a tenth of it.
pub const LARGEST_DOCUMENT: u64 = 8 * 1024 * 1024;

/// A document that is not what it should be: where, what is there, what is wanted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct DocumentError {
    /// File and path inside it: `spark1.json: ports.enp1s0f0np0.mtu`.
    pub place: String,
    /// What is there and what is wanted.
    pub what: String,
}

/// A JSON value. What has no escapes is a part of the document.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'d> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// An integer.
    Integer(i128),
    /// A number with a fraction, an exponent, or out of range.
    Float(f64),
    /// A string.
    Text(Cow<'d, str>),
    /// An array.
    Array(Vec<Value<'d>>),
    /// An object, its keys in the order of the document, none of them twice.
    Object(Vec<(Cow<'d, str>, Value<'d>)>),
}

impl Value<'_> {
    /// The same, which no longer needs the document.
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Value::Null => Value::Null,
            Value::Bool(b) => Value::Bool(b),
            Value::Integer(i) => Value::Integer(i),
            Value::Float(f) => Value::Float(f),
            Value::Text(text) => Value::Text(Cow::Owned(text.into_owned())),
            Value::Array(items) => Value::Array(items.into_iter().map(Value::into_owned).collect()),
            Value::Object(entries) => {
                let owned = |(key, value): (Cow<str>, Value)| {
                    (Cow::Owned(key.into_owned()), value.into_owned())
                };
                Value::Object(entries.into_iter().map(owned).collect())
            }
        }
    }

    fn kind(&self) -> String {
        match self {
            Value::Null => "null".into(),
            Value::Bool(b) => b.to_string(),
            Value::Integer(i) => i.to_string(),
            Value::Float(f) => format!("{f:?}"),
            Value::Text(t) => quoted(t),
            Value::Array(_) => "an array".into(),
            Value::Object(_) => "an object".into(),
        }
    }
}

impl serde::Serialize for Value<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        match self {
            Value::Null => serializer.serialize_unit(),
            Value::Bool(b) => serializer.serialize_bool(*b),
            Value::Integer(i) => match (i64::try_from(*i), u64::try_from(*i)) {
                (Ok(i), _) => serializer.serialize_i64(i),
                (_, Ok(u)) => serializer.serialize_u64(u),
                _ => serializer.serialize_i128(*i),
            },
            Value::Float(f) => serializer.serialize_f64(*f),
            Value::Text(t) => serializer.serialize_str(t),
            Value::Array(items) => serializer.collect_seq(items),
            Value::Object(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value<'de>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<Value<'de>, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E>(self, b: bool) -> Result<Value<'de>, E> {
        Ok(Value::Bool(b))
    }
    fn visit_i64<E>(self, i: i64) -> Result<Value<'de>, E> {
        Ok(Value::Integer(i.into()))
    }
    fn visit_u64<E>(self, i: u64) -> Result<Value<'de>, E> {
        Ok(Value::Integer(i.into()))
    }
    fn visit_f64<E>(self, f: f64) -> Result<Value<'de>, E> {
        Ok(Value::Float(f))
    }
    fn visit_str<E>(self, s: &str) -> Result<Value<'de>, E> {
        Ok(Value::Text(Cow::Owned(s.to_owned())))
    }
    fn visit_borrowed_str<E>(self, s: &'de str) -> Result<Value<'de>, E> {
        Ok(Value::Text(Cow::Borrowed(s)))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value<'de>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value<'de>, A::Error> {
        let mut entries = Vec::new();
        while let Some((Key(key), value)) = map.next_entry()? {
            entries.push((key, value));
        }
        match given_twice(&entries) {
            None => Ok(Value::Object(entries)),
            Some(key) => Err(A::Error::custom(format!("key {} given twice", quoted(key)))),
        }
    }
}

impl<'de> Deserialize<'de> for Value<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Value<'de>, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

/// A key of an object: text, which serde's own `Cow` would copy.
struct Key<'d>(Cow<'d, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Key<'de>, D::Error> {
        match deserializer.deserialize_str(ValueVisitor)? {
            Value::Text(key) => Ok(Key(key)),
            other => Err(D::Error::custom(format!("key {} is no text", other.kind()))),
        }
    }
}

/// The first key that was there before.
fn given_twice<'a>(entries: &'a [(Cow<str>, Value)]) -> Option<&'a str> {
    // Rows have few keys, and there are many rows.
    const FEW: usize = 16;
    let mut keys = entries.iter().map(|(key, _)| &**key);
    if entries.len() <= FEW {
        let again = |(i, key): &(usize, &str)| entries[..*i].iter().any(|(other, _)| other == key);
        return keys.enumerate().find(again).map(|(_, key)| key);
    }
    // Not one that is hashed: for that the kernel is asked for random numbers.
    let mut seen = BTreeSet::new();
    keys.find(|key| !seen.insert(*key))
}

/// Reads one document. `name` is what errors call it, usually the file's name.
pub fn parse<'d>(name: &str, bytes: &'d [u8]) -> Result<Value<'d>, DocumentError> {
    let error = |what: String| DocumentError {
        place: name.to_owned(),
        what,
    };
    if bytes.len() as u64 > LARGEST_DOCUMENT {
        return Err(error(format!(
            "is {} bytes, {LARGEST_DOCUMENT} at most wanted",
            bytes.len()
        )));
    }
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(error("is empty, a JSON document wanted".into()));
    }
    // Nesting is bounded by serde_json (128 levels).
    let read = match std::str::from_utf8(bytes) {
        Ok(text) => serde_json::from_str(text),
        // It says where.
        Err(_) => serde_json::from_slice(bytes),
    };
    read.map_err(|e| error(format!("is not JSON that can be read: {e}")))
}

/// A value with its place in its document. The place is spelled out only where it is told: most
/// values are as they should be.
#[derive(Clone)]
pub struct At<'a> {
    value: &'a Value<'a>,
    place: Rc<Place<'a>>,
}

/// The way from the document to a value.
enum Place<'a> {
    Document(String),
    Key(Rc<Place<'a>>, &'a str),
    Item(Rc<Place<'a>>, usize),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Document(name) => f.write_str(name),
            Place::Key(parent, key) => {
                let sep = match **parent {
                    Place::Document(_) => ": ",
                    _ => ".",
                };
                // A key that could not be a name is quoted, so that no control character reaches
                // a terminal.
                let plain = !key.is_empty()
                    && key.len() <= 64
                    && key
                        .bytes()
                        .all(|b| b.is_ascii_alphanumeric() || b"_.:-".contains(&b));
                if plain {
                    write!(f, "{parent}{sep}{key}")
                } else {
                    write!(f, "{parent}{sep}{}", quoted(key))
                }
            }
            Place::Item(parent, index) => {
                let sep = match **parent {
                    Place::Document(_) => ": ",
                    _ => "",
                };
                write!(f, "{parent}{sep}[{index}]")
            }
        }
    }
}

impl<'a> At<'a> {
    /// The whole document, called `name` in errors.
    pub fn root(name: &str, value: &'a Value<'a>) -> At<'a> {
        At {
            value,
            place: Rc::new(Place::Document(name.to_owned())),
        }
    }

    /// The value itself.
    pub fn value(&self) -> &'a Value<'a> {
        self.value
    }

    /// An error at this place.
    pub fn error(&self, what: impl Into<String>) -> DocumentError {
        DocumentError {
            place: self.place.to_string(),
            what: what.into(),
        }
    }

    fn wanted(&self, wanted: &str) -> DocumentError {
        self.error(format!("is {}, {wanted} wanted", self.value.kind()))
    }

    fn child(&self, key: &'a str, value: &'a Value<'a>) -> At<'a> {
        At {
            value,
            place: Rc::new(Place::Key(self.place.clone(), key)),
        }
    }

    /// The entries of an object, in the document's order.
    pub fn entries(
        &self,
    ) -> Result<impl Iterator<Item = (&'a str, At<'a>)> + use<'a, '_>, DocumentError> {
        match self.value {
            Value::Object(entries) => Ok(entries.iter().map(|(k, v)| (&**k, self.child(k, v)))),
            _ => Err(self.wanted("an object")),
        }
    }

    /// The items of an array of at most `most` items.
    pub fn items(
        &self,
        most: usize,
    ) -> Result<impl Iterator<Item = At<'a>> + use<'a, '_>, DocumentError> {
        match self.value {
            Value::Array(items) if items.len() > most => Err(self.error(format!(
                "is an array of {}, {most} items at most wanted",
                items.len()
            ))),
            Value::Array(items) => Ok(items.iter().enumerate().map(|(i, value)| At {
                value,
                place: Rc::new(Place::Item(self.place.clone(), i)),
            })),
            _ => Err(self.wanted("an array")),
        }
    }

    /// The value of a key, or `None` when the object has no such key.
    pub fn get(&self, key: &str) -> Result<Option<At<'a>>, DocumentError> {
        match self.value {
            Value::Object(entries) => Ok(entries
                .iter()
                .find(|(k, _)| k == key)
                .map(|(k, v)| self.child(k, v))),
            _ => Err(self.wanted("an object")),
        }
    }

    /// The value of a key that must be there.
    pub fn need(&self, key: &str) -> Result<At<'a>, DocumentError> {
        self.get(key)?
            .ok_or_else(|| self.error(format!("has no key \"{key}\"")))
    }

    /// Refuses keys other than `known`.
    pub fn only(&self, known: &[&str]) -> Result<(), DocumentError> {
        match self.entries()?.find(|(k, _)| !known.contains(k)) {
            Some((_, at)) => Err(at.error("is a key that is not known here")),
            None => Ok(()),
        }
    }

    /// Whether the value is `null`.
    pub fn is_null(&self) -> bool {
        matches!(self.value, Value::Null)
    }

    /// A string.
    pub fn text(&self) -> Result<&'a str, DocumentError> {
        match self.value {
            Value::Text(text) => Ok(text),
            _ => Err(self.wanted("a string")),
        }
    }

    /// `true` or `false`.
    pub fn bool(&self) -> Result<bool, DocumentError> {
        match self.value {
            Value::Bool(b) => Ok(*b),
            _ => Err(self.wanted("true or false")),
        }
    }

    /// An integer within `least..=most`.
    pub fn integer<T: TryFrom<i128>>(&self, least: i128, most: i128) -> Result<T, DocumentError> {
        let wanted = || self.wanted(&format!("an integer from {least} to {most}"));
        match self.value {
            Value::Integer(i) if (least..=most).contains(i) => {
                T::try_from(*i).map_err(|_| wanted())
            }
            _ => Err(wanted()),
        }
    }

    /// A string that is a name or address of type `T`.
    pub fn name<T: FromStr<Err = NameError>>(&self) -> Result<T, DocumentError> {
        self.text()?
            .parse()
            .map_err(|e: NameError| self.error(e.to_string()))
    }

    /// A string that must be exactly `wanted`.
    pub fn exactly(&self, wanted: &str) -> Result<(), DocumentError> {
        if self.text()? == wanted {
            Ok(())
        } else {
            Err(self.wanted(&format!("{wanted:?}")))
        }
    }
}

/// The first place where `given` is not `wanted`, and what is there and what is wanted.
pub fn first_difference(given: &Value, wanted: &Value) -> Option<(String, String)> {
    fn differ(place: &str, given: &Value, wanted: &Value) -> Option<(String, String)> {
        match (given, wanted) {
            (Value::Object(given), Value::Object(wanted)) => {
                let child = |key: &str| {
                    if place.is_empty() {
                        key.to_owned()
                    } else {
                        format!("{place}.{key}")
                    }
                };
                for (key, want) in wanted {
                    match given.iter().find(|(k, _)| k == key) {
                        Some((_, have)) => {
                            if let Some(difference) = differ(&child(key), have, want) {
                                return Some(difference);
                            }
                        }
                        None => {
                            return Some((
                                child(key),
                                format!("is not there, {} wanted", want.kind()),
                            ));
                        }
                    }
                }
                let extra = given
                    .iter()
                    .find(|(k, _)| !wanted.iter().any(|(w, _)| w == k))?;
                Some((
                    child(&quoted(&extra.0)),
                    "is a key that is not known here".into(),
                ))
            }
            (Value::Array(given), Value::Array(wanted)) => {
                if let Some(difference) = given
                    .iter()
                    .zip(wanted)
                    .enumerate()
                    .find_map(|(i, (g, w))| differ(&format!("{place}[{i}]"), g, w))
                {
                    return Some(difference);
                }
                (given.len() != wanted.len()).then(|| {
                    (
                        place.to_owned(),
                        format!("has {} items, {} wanted", given.len(), wanted.len()),
                    )
                })
            }
            (given, wanted) if given == wanted => None,
            (given, wanted) => Some((
                place.to_owned(),
                format!("is {}, {} wanted", given.kind(), wanted.kind()),
            )),
        }
    }
    differ("", given, wanted)
}

/// `value` as the files of this project are written: two spaces a level, a newline at the end.
pub fn pretty(value: &impl serde::Serialize) -> String {
    // Only a map with keys that are not strings, or a Serialize that fails by itself, can make
    // this fail; the documents of this crate have neither.
    let mut text = serde_json::to_string_pretty(value)
        .unwrap_or_else(|e| format!("{{\"error\": {:?}}}", e.to_string()));
    text.push('\n');
    text
}

/// Whether [`pretty`] writes `value` as just these bytes. Stops at the first that is another.
pub fn is_pretty(value: &impl serde::Serialize, bytes: &[u8]) -> bool {
    /// What of the bytes is still to come.
    struct Rest<'a>(&'a [u8]);
    impl io::Write for Rest<'_> {
        fn write(&mut self, written: &[u8]) -> io::Result<usize> {
            self.0 = self.0.strip_prefix(written).ok_or(io::ErrorKind::Other)?;
            Ok(written.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut rest = Rest(bytes);
    serde_json::to_writer_pretty(&mut rest, value).is_ok() && rest.0 == b"\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_given_twice_is_refused() {
        let error = parse("x.json", br#"{"a": {"b": 1, "b": 2}}"#).unwrap_err();
        assert!(error.to_string().contains("\"b\" given twice"), "{error}");
        // Few keys and many are looked through in different ways.
        for count in [16, 17, 300] {
            let keys: Vec<String> = (0..count).map(|i| format!("\"k{i}\": {i}")).collect();
            let once = format!("{{{}}}", keys.join(", "));
            assert!(parse("x.json", once.as_bytes()).is_ok(), "{count}");
            let twice = format!("{{{}, \"k7\": 0}}", keys.join(", "));
            let error = parse("x.json", twice.as_bytes()).unwrap_err();
            assert!(error.to_string().contains("\"k7\" given twice"), "{error}");
        }
    }

    #[test]
    fn what_is_written_as_it_stands_is_told_from_what_is_not() {
        let text = "{\n  \"a\": [\n    1,\n    \"\\n\"\n  ]\n}\n";
        let value = parse("x.json", text.as_bytes()).unwrap();
        assert_eq!(pretty(&value), text);
        assert!(is_pretty(&value, text.as_bytes()));
        let others = [
            text.replace("1", "2"),
            text.replace("    1", "  1"),
            text.trim_end().to_owned(),
            format!("{text} "),
            text[..9].to_owned(),
            String::new(),
        ];
        for other in others {
            assert!(!is_pretty(&value, other.as_bytes()), "{other:?}");
        }
    }

    #[test]
    fn errors_name_the_path() {
        let value = parse(
            "x.json",
            br#"{"ports": {"e0": {"mtu": "9000", "l": [1, "x"]}, "a b\u001b": 1}}"#,
        )
        .unwrap();
        let root = At::root("x.json", &value);
        let port = root.need("ports").unwrap().need("e0").unwrap();
        assert_eq!(
            port.need("mtu")
                .unwrap()
                .integer::<u32>(0, 65535)
                .unwrap_err()
                .to_string(),
            "x.json: ports.e0.mtu: is \"9000\", an integer from 0 to 65535 wanted"
        );
        let second = port.need("l").unwrap().items(4).unwrap().nth(1).unwrap();
        assert!(
            second
                .bool()
                .unwrap_err()
                .to_string()
                .starts_with("x.json: ports.e0.l[1]: is \"x\"")
        );
        let odd = root.need("ports").unwrap().only(&["e0"]).unwrap_err();
        assert!(!odd.to_string().contains('\u{1b}'), "{odd:?}");
        assert!(port.need("l").unwrap().items(1).is_err());
    }

    #[test]
    fn what_is_not_one_json_document_is_refused() {
        for bad in [
            "",
            " \n",
            "{",
            "{} {}",
            "nul",
            "\u{feff}{}",
            &"[".repeat(200),
        ] {
            assert!(parse("x", bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(parse("x", &[b'"', 0xff, b'"']).is_err());
    }
}
