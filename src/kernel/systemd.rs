//! The units of the mesh and its markers: their state, and jobs on them, over D-Bus to systemd itself.
//!
//! root reaches systemd over a socket of its own, without a bus in between; where that is not to
//! be had, the system bus is the other way. What is asked of several units is asked at once.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::kernel::dbus::{Argument, Call, Connection, Malformed, Message};
use crate::kernel::sysfs;
use crate::names::Text;

/// There while systemd is the host's service manager (sd_booted(3)).
const BOOTED: &str = "/run/systemd/system";
/// systemd's own socket (`manager_setup_bus`, src/core/dbus.c), for root alone.
const PRIVATE: &str = "/run/systemd/private";
/// The system bus (D-Bus specification, "Well-known Message Bus Instances").
const SYSTEM_BUS: &str = "/run/dbus/system_bus_socket";

/// org.freedesktop.systemd1(5)
const SYSTEMD: &str = "org.freedesktop.systemd1";
const ROOT: &str = "/org/freedesktop/systemd1";
const UNITS: &str = "/org/freedesktop/systemd1/unit/";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const SERVICE: &str = "org.freedesktop.systemd1.Service";
const NO_SUCH_UNIT: &str = "org.freedesktop.systemd1.NoSuchUnit";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
/// The bus itself (D-Bus specification, "Message Bus Messages").
const BUS: &str = "org.freedesktop.DBus";
const BUS_ROOT: &str = "/org/freedesktop/DBus";

/// How long systemd may take to answer a question. It answers at once, but for what waits on a
/// reload of its units.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long reading all unit files anew may take: systemd runs its generators first, and gives them 90 s
/// (`DEFAULT_TIMEOUT_USEC`).
pub const RELOAD_PATIENCE: Duration = Duration::from_secs(90);
/// Ends of jobs that are remembered while the number of our own job is not known yet.
const MOST_JOBS: usize = 1024;

/// Why systemd did not do as asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is none.
    #[error("this host does not run systemd ({BOOTED} is not there)")]
    NotRunning,
    /// It cannot be reached.
    #[error("cannot reach systemd: {path}: {source}")]
    Unreachable {
        /// The socket.
        path: String,
        /// The system's error.
        source: io::Error,
    },
    /// The connection failed.
    #[error("the connection to systemd: {0}")]
    Io(io::Error),
    /// It did not answer in time.
    #[error("systemd did not answer within {} s", PATIENCE.as_secs())]
    NoAnswer,
    /// What it answered cannot be read.
    #[error("systemd's answer cannot be read: {0}")]
    Malformed(&'static str),
    /// It refused.
    #[error("systemd: {message} ({name})")]
    Refused {
        /// The error's D-Bus name: `org.freedesktop.systemd1.NoSuchUnit` ...
        name: Text,
        /// What it says.
        message: Text,
    },
    /// The job did not end in time; systemd goes on with it.
    #[error("systemd is still at it: the job to {verb} {unit} has not ended in time")]
    Late {
        /// `start`, `stop`, `restart`, `reload`
        verb: &'static str,
        /// The unit.
        unit: String,
    },
    /// The job ended otherwise than it should.
    #[error(
        "cannot {verb} {unit}: the job ended in {job}, the unit in {result} (systemctl status {unit})"
    )]
    Job {
        /// `start`, `stop`, `restart`, `reload`
        verb: &'static str,
        /// The unit.
        unit: String,
        /// The job's result: `failed`, `timeout`, `dependency`, `canceled` ...
        job: Text,
        /// The unit's: `exit-code`, `signal`, `start-limit-hit` ...
        result: Text,
    },
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::TimedOut => Error::NoAnswer,
            _ => Error::Io(error),
        }
    }
}

impl From<Malformed> for Error {
    fn from(malformed: Malformed) -> Error {
        Error::Malformed(malformed.0)
    }
}

/// The state of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitState {
    /// `loaded`, `not-found`, `masked`, `bad-setting` ...
    pub load: Text,
    /// `active`, `activating`, `inactive`, `failed` ...
    pub active: Text,
    /// `running`, `auto-restart`, `dead` ...
    pub sub: Text,
    /// Its main process; 0 when there is none.
    pub main_pid: u32,
    /// When its main process was started, microseconds of the monotonic clock; 0 when there is none
    /// (systemd keeps the time of the last one until it forgets a stopped unit, which may be at once).
    pub started_usec_monotonic: u64,
}

/// The way to systemd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Its own socket.
    Peer,
    /// A bus that it is on.
    Bus,
}

/// A connection to the host's service manager.
pub struct Systemd {
    connection: Connection,
    way: Way,
    subscribed: bool,
}

impl Systemd {
    /// Connects to the host's systemd.
    pub fn open() -> Result<Systemd, Error> {
        if !sysfs::exists(BOOTED) {
            return Err(Error::NotRunning);
        }
        match Systemd::connect(Path::new(PRIVATE), Way::Peer) {
            Err(Error::Unreachable { .. }) => Systemd::connect(Path::new(SYSTEM_BUS), Way::Bus),
            other => other,
        }
    }

    /// Connects to the systemd behind this socket.
    pub fn connect(socket: &Path, way: Way) -> Result<Systemd, Error> {
        let connection = Connection::open(socket, Instant::now() + PATIENCE).map_err(|source| {
            Error::Unreachable {
                path: socket.display().to_string(),
                source,
            }
        })?;
        let mut systemd = Systemd {
            connection,
            way,
            subscribed: false,
        };
        if way == Way::Bus {
            systemd.ask(
                &[Call {
                    destination: BUS,
                    path: BUS_ROOT,
                    interface: BUS,
                    member: "Hello",
                    arguments: &[],
                }],
                Instant::now() + PATIENCE,
            )?;
        }
        Ok(systemd)
    }

    /// The states of units, in their order. A unit that there is none of is `not-found`.
    pub fn states(&mut self, units: &[String]) -> Result<Vec<UnitState>, Error> {
        if units.is_empty() {
            return Ok(Vec::new());
        }
        let names = [Argument::Texts(units)];
        let paths: Vec<String> = units.iter().map(|unit| object(unit)).collect();
        let mut calls = vec![manager("ListUnitsByNames", &names)];
        for path in &paths {
            calls.push(property(path, &MAIN_PID));
            calls.push(property(path, &STARTED));
        }
        let answers = self.ask(&calls, Instant::now() + PATIENCE)?;
        let (list, values) = answers
            .split_first()
            .ok_or(Error::Malformed("no answer in the answer"))?;
        let listed = listed(list)?;
        units
            .iter()
            .zip(values.chunks_exact(2))
            .map(|(unit, values)| {
                let [load, active, sub] = listed
                    .iter()
                    .find(|(name, _)| name == unit)
                    .map(|(_, words)| words.clone())
                    .ok_or(Error::Malformed("a unit that was asked for is not listed"))?;
                let (mut pid, mut started) = (values[0].body("v")?, values[1].body("v")?);
                pid.variant("u")?;
                started.variant("t")?;
                let (main_pid, started) = (pid.u32()?, started.u64()?);
                Ok(UnitState {
                    load,
                    active,
                    sub,
                    main_pid,
                    started_usec_monotonic: if main_pid == 0 { 0 } else { started },
                })
            })
            .collect()
    }

    /// Starts a unit, and waits until it is started.
    pub fn start(&mut self, unit: &str, deadline: Instant) -> Result<(), Error> {
        self.job("start", "StartUnit", unit, deadline)
    }

    /// Stops a unit, and waits until it is stopped.
    pub fn stop(&mut self, unit: &str, deadline: Instant) -> Result<(), Error> {
        self.job("stop", "StopUnit", unit, deadline)
    }

    /// Stops a unit if it runs, starts it, and waits until it is started.
    pub fn restart(&mut self, unit: &str, deadline: Instant) -> Result<(), Error> {
        self.job("restart", "RestartUnit", unit, deadline)
    }

    /// Makes a unit that failed an inactive one; nothing to do for one that did not, or that systemd does
    /// not have.
    pub fn forget_failure(&mut self, unit: &str) -> Result<(), Error> {
        let arguments = [Argument::Text(unit)];
        let calls = [manager("ResetFailedUnit", &arguments)];
        match self.ask(&calls, Instant::now() + PATIENCE) {
            Err(Error::Refused { name, .. }) if name.as_str() == NO_SUCH_UNIT => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// Has an active unit read its configuration anew (its `ExecReload=`), and waits until that is done.
    pub fn reload_unit(&mut self, unit: &str, deadline: Instant) -> Result<(), Error> {
        self.job("reload", "ReloadUnit", unit, deadline)
    }

    /// Reads all unit files anew (`systemctl daemon-reload`).
    pub fn reload(&mut self, deadline: Instant) -> Result<(), Error> {
        self.ask(&[manager("Reload", &[])], deadline).map(|_| ())
    }

    /// Has units start at boot, as their `[Install]` says (`systemctl enable`).
    pub fn enable(&mut self, units: &[String]) -> Result<(), Error> {
        // For good, and not in place of links that others made.
        let arguments = [
            Argument::Texts(units),
            Argument::Flag(false),
            Argument::Flag(false),
        ];
        self.unit_files(manager("EnableUnitFiles", &arguments))
    }

    /// Undoes [`Systemd::enable`]; nothing to do for units that are not enabled.
    pub fn disable(&mut self, units: &[String]) -> Result<(), Error> {
        let arguments = [Argument::Texts(units), Argument::Flag(false)];
        self.unit_files(manager("DisableUnitFiles", &arguments))
    }

    /// Links of unit files count once the files are read anew.
    fn unit_files(&mut self, call: Call) -> Result<(), Error> {
        self.ask(&[call], Instant::now() + PATIENCE)?;
        self.reload(Instant::now() + RELOAD_PATIENCE)
    }

    /// Whether a unit starts at boot: `enabled`, `disabled`, `static` ...; `None` where there is none.
    pub fn unit_file_state(&mut self, unit: &str) -> Result<Option<Text>, Error> {
        let arguments = [Argument::Text(unit)];
        let calls = [manager("GetUnitFileState", &arguments)];
        match self.ask(&calls, Instant::now() + PATIENCE) {
            // What systemd answers for a unit without a file (errno ENOENT).
            Err(Error::Refused { name, .. })
                if [NO_SUCH_UNIT, "org.freedesktop.DBus.Error.FileNotFound"]
                    .contains(&name.as_str()) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
            Ok(answers) => {
                let answer = answers.first().ok_or(Error::Malformed("no answer"))?;
                Ok(Some(answer.body("s")?.text()?.into()))
            }
        }
    }

    /// Names of the units that systemd has in memory and whose names match a pattern.
    pub fn matching(&mut self, pattern: &str) -> Result<Vec<String>, Error> {
        let (states, patterns) = ([], [pattern.to_owned()]);
        let arguments = [Argument::Texts(&states), Argument::Texts(&patterns)];
        let answers = self.ask(
            &[manager("ListUnitsByPatterns", &arguments)],
            Instant::now() + PATIENCE,
        )?;
        let answer = answers.first().ok_or(Error::Malformed("no answer"))?;
        Ok(listed(answer)?.into_iter().map(|(name, _)| name).collect())
    }

    /// The exit status of a service's main process, once it has ended.
    pub fn exit_status(&mut self, unit: &str) -> Result<u32, Error> {
        let path = object(unit);
        let answers = self.ask(&[property(&path, &EXIT_STATUS)], Instant::now() + PATIENCE)?;
        let mut value = answers
            .first()
            .ok_or(Error::Malformed("no answer"))?
            .body("v")?;
        value.variant("i")?;
        Ok(value.u32()?)
    }

    fn job(
        &mut self,
        verb: &'static str,
        method: &str,
        unit: &str,
        deadline: Instant,
    ) -> Result<(), Error> {
        let late = |error: Error| match error {
            Error::NoAnswer => Error::Late {
                verb,
                unit: unit.to_owned(),
            },
            other => other,
        };
        self.subscribe(deadline).map_err(late)?;
        let arguments = [Argument::Text(unit), Argument::Text("replace")];
        let serials = self
            .connection
            .send(&[manager(method, &arguments)], deadline)
            .map_err(|error| late(error.into()))?;
        // The end of a short job may be told before its number.
        let mut ended: Vec<(String, Text)> = Vec::new();
        let mut job = None;
        let result = loop {
            let message = self
                .connection
                .receive(deadline)
                .map_err(|error| late(error.into()))?;
            if serials.iter().any(|serial| message.answers(*serial)) {
                accepted(&message)?;
                job = Some(message.body("o")?.text()?.to_owned());
            } else if message.is_signal(MANAGER, "JobRemoved") {
                let mut body = message.body("uoss")?;
                let _number = body.u32()?;
                let path = body.text()?.to_owned();
                let _unit = body.text()?;
                if ended.len() == MOST_JOBS {
                    ended.remove(0);
                }
                ended.push((path, body.text()?.into()));
            }
            let ours = ended.iter().find(|(path, _)| Some(path) == job.as_ref());
            if let Some((_, result)) = ours {
                break result.clone();
            }
        };
        if result.as_str() == "done" {
            return Ok(());
        }
        // What the unit ended in is better than nothing; that it cannot be had is no news.
        let path = object(unit);
        let unit_result = self
            .ask(&[property(&path, &RESULT)], Instant::now() + PATIENCE)
            .and_then(|answers| {
                let answer = answers.first().ok_or(Error::Malformed("no answer"))?;
                let mut value = answer.body("v")?;
                value.variant("s")?;
                Ok(Text::from(value.text()?))
            })
            .unwrap_or_else(|_| "?".into());
        Err(Error::Job {
            verb,
            unit: unit.to_owned(),
            job: result,
            result: unit_result,
        })
    }

    /// Asks for the signals of jobs, once. A peer has them anyway; a bus gives them when they are
    /// asked for, of it and of systemd.
    fn subscribe(&mut self, deadline: Instant) -> Result<(), Error> {
        if self.subscribed || self.way == Way::Peer {
            return Ok(());
        }
        let rule =
            format!("type='signal',sender='{SYSTEMD}',interface='{MANAGER}',member='JobRemoved'");
        let arguments = [Argument::Text(&rule)];
        let calls = [
            Call {
                destination: BUS,
                path: BUS_ROOT,
                interface: BUS,
                member: "AddMatch",
                arguments: &arguments,
            },
            manager("Subscribe", &[]),
        ];
        self.ask(&calls, deadline)?;
        self.subscribed = true;
        Ok(())
    }

    /// The answers to calls, in their order; the first error when one is.
    fn ask(&mut self, calls: &[Call], deadline: Instant) -> Result<Vec<Message>, Error> {
        let serials = self.connection.send(calls, deadline)?;
        let mut answers: Vec<Option<Message>> = vec![None; serials.len()];
        while answers.iter().any(Option::is_none) {
            let message = self.connection.receive(deadline)?;
            if let Some(at) = serials.iter().position(|serial| message.answers(*serial)) {
                answers[at] = Some(message);
            }
        }
        let answers: Vec<Message> = answers.into_iter().flatten().collect();
        for answer in &answers {
            accepted(answer)?;
        }
        Ok(answers)
    }
}

fn accepted(answer: &Message) -> Result<(), Error> {
    match answer.error() {
        None => Ok(()),
        Some((name, message)) => Err(Error::Refused {
            name: name.into(),
            message: message.into(),
        }),
    }
}

fn manager<'a>(member: &'a str, arguments: &'a [Argument<'a>]) -> Call<'a> {
    Call {
        destination: SYSTEMD,
        path: ROOT,
        interface: MANAGER,
        member,
        arguments,
    }
}

const MAIN_PID: [Argument; 2] = [Argument::Text(SERVICE), Argument::Text("MainPID")];
const STARTED: [Argument; 2] = [
    Argument::Text(SERVICE),
    Argument::Text("ExecMainStartTimestampMonotonic"),
];
const EXIT_STATUS: [Argument; 2] = [Argument::Text(SERVICE), Argument::Text("ExecMainStatus")];
const RESULT: [Argument; 2] = [Argument::Text(SERVICE), Argument::Text("Result")];

fn property<'a>(path: &'a str, arguments: &'a [Argument<'a>]) -> Call<'a> {
    Call {
        destination: SYSTEMD,
        path,
        interface: PROPERTIES,
        member: "Get",
        arguments,
    }
}

/// Name, and load, active and sub state of each unit of a list.
fn listed(answer: &Message) -> Result<Vec<(String, [Text; 3])>, Malformed> {
    answer.body("a(ssssssouso)")?.structures(|unit| {
        let name = unit.text()?.to_owned();
        let _description = unit.text()?;
        let words = [unit.text()?, unit.text()?, unit.text()?].map(Text::from);
        let _following = unit.text()?;
        let _path = unit.text()?;
        let _job = unit.u32()?;
        let _job_type = unit.text()?;
        let _job_path = unit.text()?;
        Ok((name, words))
    })
}

/// The object of a unit: its name with what an object path may not hold as `_` and two hex digits
/// (`bus_label_escape`, src/basic/bus-label.c: a digit at the start, too).
fn object(unit: &str) -> String {
    let mut path = UNITS.to_owned();
    for (at, byte) in unit.bytes().enumerate() {
        if byte.is_ascii_alphabetic() || (at > 0 && byte.is_ascii_digit()) {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("_{byte:02x}"));
        }
    }
    if unit.is_empty() {
        path.push('_');
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::captured;
    use crate::plan::mesh::marker_unit;

    #[test]
    fn a_list_of_units_is_read() {
        // The answer of systemd 254 to ListUnitsByNames of `dsv41-mesh-marker@rocep1s0f0.service`,
        // `dsv41-mesh-marker@mlx5\x2d0.service`, `none@x.service` and `failing.service`.
        let bytes = &captured(
            "6c0201012a0300000100000043000000050175000100000007017300180000006f72672e667265656465736b746f702e73797374656d64310000000000000000080167000d61287373737373736f75736f2900000000000022030000000000002400000064737634312d6d6573682d6d61726b657240726f63657031733066302e73657276696365000000002400000064737634312d6d6573682d6d61726b657240726f63657031733066302e7365727669636500000000060000006c6f61646564000008000000696e6163746976650000000004000000646561640000000000000000000000004b0000002f6f72672f667265656465736b746f702f73797374656d64312f756e69742f64737634315f32646d6573685f32646d61726b65725f3430726f63657031733066305f32657365727669636500000000000000000000000000010000002f000000000000002300000064737634312d6d6573682d6d61726b6572406d6c78355c783264302e73657276696365002300000064737634312d6d6573682d6d61726b6572406d6c78355c783264302e7365727669636500060000006c6f61646564000008000000696e6163746976650000000004000000646561640000000000000000000000004c0000002f6f72672f667265656465736b746f702f73797374656d64312f756e69742f64737634315f32646d6573685f32646d61726b65725f34306d6c78355f3563783264305f32657365727669636500000000000000000000000000000000010000002f0000000e0000006e6f6e6540782e7365727669636500000e0000006e6f6e6540782e736572766963650000090000006e6f742d666f756e6400000008000000696e616374697665000000000400000064656164000000000000000000000000310000002f6f72672f667265656465736b746f702f73797374656d64312f756e69742f6e6f6e655f3430785f326573657276696365000000000000000000000000000000010000002f0000000f0000006661696c696e672e73657276696365000f0000006661696c696e672e7365727669636500060000006c6f61646564000008000000696e616374697665000000000400000064656164000000000000000000000000300000002f6f72672f667265656465736b746f702f73797374656d64312f756e69742f6661696c696e675f32657365727669636500000000000000000000000000000000010000002f00",
        )[0];
        let (message, _) = Message::parse(bytes).unwrap().unwrap();
        let all = listed(&message).unwrap();
        let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        let marker = marker_unit(&"rocep1s0f0".parse().unwrap());
        assert_eq!(
            names,
            [
                &marker,
                "dsv41-mesh-marker@mlx5\\x2d0.service",
                "none@x.service",
                "failing.service"
            ]
        );
        let words = |at: usize| all[at].1.each_ref().map(Text::as_str);
        assert_eq!(words(0), ["loaded", "inactive", "dead"]);
        assert_eq!(words(2), ["not-found", "inactive", "dead"]);
    }

    #[test]
    fn the_object_of_a_unit_is_the_one_that_systemd_lists() {
        for (unit, path) in [
            (
                "dsv41-mesh-marker@mlx5\\x2d0.service",
                "dsv41_2dmesh_2dmarker_40mlx5_5cx2d0_2eservice",
            ),
            ("0a.service", "_30a_2eservice"),
            ("", "_"),
        ] {
            assert_eq!(
                object(unit),
                format!("/org/freedesktop/systemd1/unit/{path}")
            );
        }
    }
}
