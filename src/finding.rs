//! A finding: the unit of every report, one value with two renderings (a line and a JSON object).

use std::fmt;

use serde::Serialize;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; nothing is refused because of it.
    Warning,
    /// It could not be read, so nobody knows whether it is as it has to be.
    #[serde(rename = "not-observed")]
    NotObserved,
    /// Something is not as it has to be.
    Problem,
}

/// Something that is not as wanted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// Stable name of the kind of finding, for programs: `port-mtu`.
    pub code: &'static str,
    /// Whether it refuses.
    pub severity: Severity,
    /// The host that it is about, when it is about one.
    pub host: Option<String>,
    /// What on that host or in the ring: a network device, a subnet, a file.
    pub object: Option<String>,
    /// What is.
    pub found: String,
    /// What has to be.
    pub wanted: String,
    /// What to do about it, when the finding alone does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// What follows from it, and goes with it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub consequences: Vec<Finding>,
}

impl Finding {
    /// A finding that refuses.
    pub fn problem(
        code: &'static str,
        found: impl Into<String>,
        wanted: impl Into<String>,
    ) -> Finding {
        Finding {
            code,
            severity: Severity::Problem,
            host: None,
            object: None,
            found: found.into(),
            wanted: wanted.into(),
            advice: None,
            consequences: Vec::new(),
        }
    }

    /// A finding of something that could not be read.
    pub fn not_observed(
        code: &'static str,
        what: impl std::fmt::Display,
        why: impl std::fmt::Display,
        wanted: impl Into<String>,
    ) -> Finding {
        Finding {
            severity: Severity::NotObserved,
            ..Finding::problem(code, format!("{what} not observed: {why}"), wanted)
        }
    }

    /// A finding that only warns.
    pub fn warning(
        code: &'static str,
        found: impl Into<String>,
        wanted: impl Into<String>,
    ) -> Finding {
        Finding {
            severity: Severity::Warning,
            ..Finding::problem(code, found, wanted)
        }
    }

    /// The same finding about `host`.
    pub fn on(mut self, host: impl fmt::Display) -> Finding {
        self.host = Some(host.to_string());
        self
    }

    /// The same finding about `object` (a device, a subnet).
    pub fn at(mut self, object: impl fmt::Display) -> Finding {
        self.object = Some(object.to_string());
        self
    }

    /// The same finding with what to do about it.
    pub fn advise(mut self, advice: impl Into<String>) -> Finding {
        self.advice = Some(advice.into());
        self
    }
}

/// `HOST NETDEV: what is, what is wanted (what to do)`: one line, never more.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let about: Vec<&str> = [&self.host, &self.object]
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect();
        if !about.is_empty() {
            write!(f, "{}: ", about.join(" "))?;
        }
        write!(f, "{}, {} wanted", self.found, self.wanted)?;
        if let Some(advice) = &self.advice {
            write!(f, " ({advice})")?;
        }
        Ok(())
    }
}
