//! Records of the inventory document: a struct whose fields are the keys of a JSON object.
//!
//! [`record!`] writes a struct, its way into JSON and its way back from one list of fields, so that
//! the two cannot differ. Keys that are not known are passed over: a newer inventory is read as far
//! as it is understood.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::facts::Fact;
use crate::json::{At, DocumentError, Value};
use crate::names::{AttributeName, Cidr, EtherType, Mac, NetdevName, PciAddress, RdmaName, Text};

/// Rows of one list that are written and read at most; the collector says so when it cuts.
pub const MOST_ROWS: usize = 4096;

/// Longest reason of a fact that was not observed, characters.
const LONGEST_REASON: usize = 500;

/// A value that an inventory document holds.
pub(super) trait Read: Sized {
    /// Reads it.
    fn read(at: &At) -> Result<Self, DocumentError>;
    /// The value of a key that the document does not have; `None` when it must be there.
    fn absent() -> Option<Self> {
        None
    }
}

/// The value of `key` in the object at `at`.
pub(super) fn field<T: Read>(at: &At, key: &str) -> Result<T, DocumentError> {
    match at.get(key)? {
        Some(at) => T::read(&at),
        None => T::absent().ok_or_else(|| at.error(format!("has no key \"{key}\""))),
    }
}

/// `why` as a reason is kept: one line, no control characters, bounded.
pub(super) fn reason(why: &str) -> String {
    why.chars()
        .filter(|c| !c.is_control())
        .take(LONGEST_REASON)
        .collect()
}

/// The reason, when the value at `at` is `{"not_observed": "why"}`.
pub(super) fn not_observed(at: &At) -> Result<Option<String>, DocumentError> {
    let Value::Object(_) = at.value() else {
        return Ok(None);
    };
    let Some(why) = at.get("not_observed")? else {
        return Ok(None);
    };
    at.only(&["not_observed"])?;
    Ok(Some(reason(why.text()?)))
}

impl<T: Read> Read for Fact<T> {
    fn read(at: &At) -> Result<Self, DocumentError> {
        match not_observed(at)? {
            Some(why) => Ok(Fact::NotObserved(why)),
            None => T::read(at).map(Fact::Known),
        }
    }
    fn absent() -> Option<Self> {
        Some(Fact::unmentioned())
    }
}

/// `null` for "has none".
impl<T: Read> Read for Option<T> {
    fn read(at: &At) -> Result<Self, DocumentError> {
        if at.is_null() {
            Ok(None)
        } else {
            T::read(at).map(Some)
        }
    }
    fn absent() -> Option<Self> {
        Some(None)
    }
}

impl<T: Read> Read for Vec<T> {
    fn read(at: &At) -> Result<Self, DocumentError> {
        at.items(MOST_ROWS)?.map(|at| T::read(&at)).collect()
    }
}

impl<T: Read> Read for BTreeMap<AttributeName, T> {
    fn read(at: &At) -> Result<Self, DocumentError> {
        let mut map = BTreeMap::new();
        for (key, value) in at.entries()? {
            if map.len() == MOST_ROWS {
                return Err(at.error(format!("has more than {MOST_ROWS} entries")));
            }
            map.insert(
                key.parse().map_err(|e| value.error(format!("{e}")))?,
                T::read(&value)?,
            );
        }
        Ok(map)
    }
}

impl Read for bool {
    fn read(at: &At) -> Result<Self, DocumentError> {
        at.bool()
    }
}

macro_rules! read_integers {
    ($($type:ty),*) => {$(
        impl Read for $type {
            fn read(at: &At) -> Result<Self, DocumentError> {
                at.integer(0, <$type>::MAX.into())
            }
        }
    )*};
}
read_integers!(u8, u16, u32, u64);

macro_rules! read_names {
    ($($type:ty),*) => {$(
        impl Read for $type {
            fn read(at: &At) -> Result<Self, DocumentError> {
                at.name()
            }
        }
    )*};
}
read_names!(
    AttributeName,
    Cidr,
    EtherType,
    Mac,
    NetdevName,
    PciAddress,
    RdmaName,
    Text
);

impl Read for IpAddr {
    fn read(at: &At) -> Result<Self, DocumentError> {
        let text = at.text()?;
        text.parse().map_err(|_| {
            at.error(format!(
                "is {}, an IP address wanted",
                crate::names::quoted(text)
            ))
        })
    }
}

/// A struct as a record of the document.
macro_rules! record {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident {
            $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)*
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl $crate::facts::record::Read for $name {
            fn read(at: &$crate::json::At) -> Result<Self, $crate::json::DocumentError> {
                Ok($name { $($field: $crate::facts::record::field(at, stringify!($field))?,)* })
            }
            fn absent() -> Option<Self> {
                Some($name { $($field: <$type as $crate::facts::record::Read>::absent()?,)* })
            }
        }
    )*};
}

/// A word of a fixed set as a value of the document.
macro_rules! word {
    (
        $(#[$meta:meta])*
        pub enum $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)* }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
        pub enum $name { $($(#[$variant_meta])* #[serde(rename = $word)] $variant,)* }

        impl $crate::facts::record::Read for $name {
            fn read(at: &$crate::json::At) -> Result<Self, $crate::json::DocumentError> {
                match at.text()? {
                    $($word => Ok($name::$variant),)*
                    other => Err(at.error(format!(
                        "is {}, one of {} wanted",
                        $crate::names::quoted(other),
                        [$($word),*].join(", ")
                    ))),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(match self { $($name::$variant => $word,)* })
            }
        }
    };
}

pub(super) use {record, word};
