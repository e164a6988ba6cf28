//! An agent, over ssh, as a process of this machine or over TCP: questions in, answers out, each bounded in
//! length and time.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::protocol::{Answer, Ask, LONGEST_ANSWER, PROTOCOL, line};
use crate::json::DocumentError;
use crate::names::HostName;
use crate::remote::{last_words, ssh};

/// How long an answer may take that needs no run.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// How much of what the other end says beside its answers is kept, bytes.
const KEPT: usize = 64 * 1024;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be started or talked to.
    #[error("its agent: {0}")]
    Io(#[from] io::Error),
    /// It ended.
    #[error("its agent ended: {0}")]
    Ended(String),
    /// It said nothing in time.
    #[error("its agent gave no answer within {} s", .0.as_secs())]
    Late(Duration),
    /// It said too much.
    #[error("its agent's answer is longer than {LONGEST_ANSWER} bytes")]
    Flood,
    /// It said something else.
    #[error(transparent)]
    Answer(#[from] DocumentError),
    /// It answers another question.
    #[error("its agent answered another question than was asked")]
    OutOfTurn,
    /// It could not do it.
    #[error("{0}")]
    Refused(String),
}

/// A session with an agent.
pub(super) struct Session {
    /// Where it is a process of this machine (ssh is one).
    child: Option<Child>,
    input: Option<File>,
    output: File,
    received: Vec<u8>,
    said: Arc<Mutex<Vec<u8>>>,
    listens: Option<JoinHandle<()>>,
}

impl Session {
    /// Starts the agent of a host, over ssh.
    pub(super) fn open(host: &HostName) -> Result<Session, Error> {
        Session::of_child(ssh(host, &[AGENT]))
    }

    /// Starts one on this machine: this program once more.
    pub(super) fn here() -> Result<Session, Error> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(AGENT);
        Session::of_child(command)
    }

    fn of_child(mut command: Command) -> Result<Session, Error> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let missing = || io::Error::other("a pipe is missing");
        let input = child.stdin.take().ok_or_else(missing)?;
        let output = child.stdout.take().ok_or_else(missing)?;
        let mut stderr = child.stderr.take().ok_or_else(missing)?;
        let said = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&said);
        // It ends with the pipe. What is not read would make the other end wait.
        let listens = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = stderr.read(&mut buffer) {
                if let Ok(mut kept) = keep.lock() {
                    let room = KEPT.saturating_sub(kept.len()).min(length);
                    kept.extend_from_slice(&buffer[..room]);
                }
            }
        });
        Ok(Session {
            child: Some(child),
            input: Some(OwnedFd::from(input).into()),
            output: OwnedFd::from(output).into(),
            received: Vec::new(),
            said,
            listens: Some(listens),
        })
    }

    /// One that somebody started by hand, at the other end of a connection.
    pub(super) fn over(stream: TcpStream) -> Result<Session, Error> {
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Session {
            child: None,
            input: Some(OwnedFd::from(stream.try_clone()?).into()),
            output: OwnedFd::from(stream).into(),
            received: Vec::new(),
            said: Arc::default(),
            listens: None,
        })
    }

    /// Whether it speaks this program's protocol.
    pub(super) fn hello(&mut self) -> Result<(), Error> {
        let protocol = PROTOCOL.to_owned();
        match self.ask(&Ask::Hello { protocol })? {
            Answer::Hello { protocol } if protocol == PROTOCOL => Ok(()),
            _ => Err(Error::OutOfTurn),
        }
    }

    /// A question and its answer, which needs no run.
    pub(super) fn ask(&mut self, ask: &Ask) -> Result<Answer, Error> {
        self.send(ask)?;
        self.answer(PATIENCE)
    }

    /// A question that is answered with `done`.
    pub(super) fn order(&mut self, ask: &Ask) -> Result<(), Error> {
        match self.ask(ask)? {
            Answer::Done => Ok(()),
            _ => Err(Error::OutOfTurn),
        }
    }

    /// Asks, without waiting for the answer.
    pub(super) fn send(&mut self, ask: &Ask) -> Result<(), Error> {
        let Some(input) = &mut self.input else {
            return Err(Error::Ended("its input is closed".into()));
        };
        match input.write_all(line(ask).as_bytes()) {
            Err(error) if gone(&error) => Err(self.ended()),
            other => Ok(other?),
        }
    }

    /// The next answer. One that says why something cannot be done is an error.
    pub(super) fn answer(&mut self, patience: Duration) -> Result<Answer, Error> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                return match Answer::read(&line)? {
                    Answer::Error { why } => Err(Error::Refused(why)),
                    answer => Ok(answer),
                };
            }
            if self.received.len() > LONGEST_ANSWER {
                return Err(Error::Flood);
            }
            let left = deadline
                .checked_duration_since(Instant::now())
                .ok_or(Error::Late(patience))?;
            let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
            let mut waited = [PollFd::from_borrowed_fd(self.output.as_fd(), PollFlags::IN)];
            match poll(&mut waited, Some(&timeout)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                other => other.map_err(io::Error::from)?,
            };
            let mut buffer = [0; 64 * 1024];
            match self.output.read(&mut buffer) {
                Ok(0) => return Err(self.ended()),
                Err(error) if gone(&error) => return Err(self.ended()),
                Ok(length) => self.received.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// What it said when it ended.
    fn ended(&mut self) -> Error {
        self.end();
        // All of it is there once the pipe is closed. A process that ssh left behind may keep it open.
        let until = Instant::now() + GRACE;
        while self
            .listens
            .as_ref()
            .is_some_and(|listens| !listens.is_finished())
            && Instant::now() < until
        {
            std::thread::sleep(LOOK);
        }
        if self.child.is_none() {
            return Error::Ended("the connection was closed".into());
        }
        let said = self.said.lock().map(|said| last_words(&said));
        Error::Ended(said.unwrap_or_default())
    }

    /// Ends it: the agent ends with its input, and ssh with the agent. One that does not is ended here.
    fn end(&mut self) {
        self.input = None;
        let Some(child) = &mut self.child else {
            // The other end reads until this: its input has no more.
            let _ = rustix::net::shutdown(&self.output, rustix::net::Shutdown::Write);
            return;
        };
        let until = Instant::now() + GRACE;
        while matches!(child.try_wait(), Ok(None)) {
            if Instant::now() >= until {
                let _ = child.kill();
                let _ = child.wait();
                return;
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// The hidden verb that is an agent.
const AGENT: &str = "probe-agent";

/// Whether the other end is.
fn gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionReset | ConnectionAborted
    )
}

/// How long an agent may take to end once its input has.
const GRACE: Duration = Duration::from_secs(2);
/// How long until the next look whether it has.
const LOOK: Duration = Duration::from_millis(10);

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}
