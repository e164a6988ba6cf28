//! Running the installed program, or a script, on other hosts over SSH: all at once, bounded in time and output.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{PidfdFlags, pidfd_open};

use crate::json::LARGEST_DOCUMENT;
use crate::names::HostName;

/// How long a remote command may take, from start to end.
pub const LIMIT: Duration = Duration::from_secs(60);

/// How much of a remote command's diagnostics is kept, bytes.
const LONGEST_STDERR: usize = 64 * 1024;

pub use crate::install::PROGRAM as INSTALLED;

/// Why a remote command gave no result.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// ssh itself could not be started.
    #[error("ssh cannot be started: {0}")]
    Start(io::Error),
    /// Reading what it prints failed.
    #[error("reading from ssh failed: {0}")]
    Read(#[from] io::Error),
    /// It took too long and was ended.
    #[error("no answer within {0} s")]
    Late(u64),
    /// Something that it was to read could not be given to it.
    #[error("its input could not be written: {0}")]
    Input(io::Error),
    /// It printed more than any document is long.
    #[error("printed more than {LARGEST_DOCUMENT} bytes")]
    Flood,
    /// The host could not be reached or did not let us in.
    #[error("ssh failed: {0}")]
    Ssh(String),
    /// The program is not installed there.
    #[error("{INSTALLED} is not installed there (hairpin-mesh deploy HOST, or copy it there)")]
    NotInstalled,
    /// The program failed there.
    #[error("hairpin-mesh failed there ({status}): {stderr}")]
    Failed {
        /// How it ended.
        status: ExitStatus,
        /// The end of what it said.
        stderr: String,
    },
}

/// The command line for a host's shell: the installed program with `arguments`, through `sudo -n`
/// when that works.
///
/// The arguments are this program's own words and validated names: they go into a shell line as they
/// are, so anything but letters, digits, `-`, `_`, `.` and `/` is refused by an assertion in debug builds.
pub fn remote_line(arguments: &[&str]) -> String {
    debug_assert!(arguments.iter().all(|a| {
        a.bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b))
    }));
    let words = arguments.join(" ");
    // `sh -c`, because the user's login shell need not be one that reads this.
    format!(
        "sh -c 'test -x {INSTALLED} || exit 127; \
         if test \"$(id -u)\" != 0 && sudo -n true </dev/null 2>/dev/null; then exec sudo -n {INSTALLED} {words}; fi; \
         exec {INSTALLED} {words}'"
    )
}

/// What is run on another host.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// Arguments of the installed program.
    pub arguments: &'a [&'a str],
    /// What it reads from its standard input.
    pub input: &'a [u8],
    /// Exit codes with which it has answered.
    pub answers: &'a [i32],
}

/// A line for a host's shell, made of this program's own text and validated words.
#[derive(Debug, Clone)]
pub struct Line<'a> {
    /// The line.
    pub shell: String,
    /// What it reads from its standard input, one after the other.
    pub input: [&'a [u8]; 2],
    /// Exit codes with which it has answered; `None` for all but ssh's own.
    pub answers: Option<&'a [i32]>,
    /// How long it may take.
    pub limit: Duration,
}

impl<'a> Line<'a> {
    /// The line that asks the installed program.
    pub fn ask(question: &Question<'a>) -> Line<'a> {
        Line {
            shell: remote_line(question.arguments),
            input: [question.input, &[]],
            answers: Some(question.answers),
            limit: LIMIT,
        }
    }

    /// A line that runs `script` by `sh`, with `arguments` as its positional parameters. Each is one
    /// line without a single quote, so that every shell takes it as it is.
    pub fn script(script: &str, arguments: &[&str]) -> String {
        let mut line = "sh -c".to_owned();
        for word in [script, "sh"].iter().chain(arguments) {
            debug_assert!(!word.contains(['\'', '\n', '!']), "{word}");
            line.push_str(&format!(" '{word}'"));
        }
        line
    }
}

/// What a line has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Its exit code, one of those with which it may answer.
    pub code: i32,
    /// What it printed.
    pub stdout: Vec<u8>,
    /// The end of what it said beside that, safe to show.
    pub said: String,
}

/// ssh with a line for the shell of `host`.
fn ssh_line(host: &HostName, line: &str) -> Command {
    let mut command = Command::new("ssh");
    command
        // No question that nobody answers; a dead host is noticed before the limit.
        .args(["-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-T"])
        // The name cannot begin with '-' (its type), and after `--` it could not be an option either.
        .args([
            OsStr::new("--"),
            OsStr::new(host.as_str()),
            OsStr::new(line),
        ]);
    command
}

/// ssh with the installed program on `host`.
pub fn ssh(host: &HostName, arguments: &[&str]) -> Command {
    ssh_line(host, &remote_line(arguments))
}

/// Runs a line on `host` and gives what it prints.
fn run(host: &HostName, question: &Line) -> Result<Answer, RemoteError> {
    let mut child = ssh_line(host, &question.shell)
        .stdin(if question.input.iter().all(|part| part.is_empty()) {
            Stdio::null()
        } else {
            Stdio::piped()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(RemoteError::Start)?;
    let stdin = child.stdin.take();
    let (result, given) = std::thread::scope(|scope| {
        let writer = stdin.map(|mut stdin| {
            let parts = question.input;
            scope.spawn(move || parts.iter().try_for_each(|part| stdin.write_all(part)))
        });
        let result = collect(&mut child, question.limit);
        if result.is_err() {
            let _ = child.kill();
            let _ = child.wait();
        }
        // The child has ended, so its end of the pipe is closed and the writer ends too, but for one
        // that ssh left behind with it, which the kernel ends no later than this program.
        let given = writer.map_or(Ok(()), |writer| {
            writer
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a thread failed")))
        });
        (result, given)
    });
    let (status, stdout, stderr) = result?;
    let said = last_words(&stderr);
    match status.code() {
        // ssh's own failure (ssh(1), EXIT STATUS); the program there never exits with 255.
        Some(255) => Err(RemoteError::Ssh(said)),
        Some(code)
            if question
                .answers
                .is_none_or(|answers| answers.contains(&code)) =>
        {
            // One that answers without having read everything has not answered the question.
            given.map_err(RemoteError::Input)?;
            Ok(Answer { code, stdout, said })
        }
        Some(127) => Err(RemoteError::NotInstalled),
        _ => Err(RemoteError::Failed {
            status,
            stderr: said,
        }),
    }
}

/// Reads both outputs until the child has ended, or the limit or a bound is reached.
fn collect(
    child: &mut Child,
    limit: Duration,
) -> Result<(ExitStatus, Vec<u8>, Vec<u8>), RemoteError> {
    let deadline = Instant::now() + limit;
    let pid = rustix::process::Pid::from_child(child);
    let ended = pidfd_open(pid, PidfdFlags::empty()).map_err(io::Error::from)?;
    let mut stdout = child.stdout.take();
    let mut stderr = child.stderr.take();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    loop {
        // A process that ssh left behind (a control master) may keep its ends open for ever, so
        // the end of the child counts, once what it printed is read.
        let left = deadline
            .checked_duration_since(Instant::now())
            .ok_or(RemoteError::Late(limit.as_secs()))?;
        let mut fds = vec![PollFd::new(&ended, PollFlags::IN)];
        fds.extend(
            stdout
                .iter()
                .map(|p| PollFd::from_borrowed_fd(p.as_fd(), PollFlags::IN)),
        );
        fds.extend(
            stderr
                .iter()
                .map(|p| PollFd::from_borrowed_fd(p.as_fd(), PollFlags::IN)),
        );
        let timeout = rustix::event::Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut fds, Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other.map_err(io::Error::from)?,
        };
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut ready = ready.into_iter();
        let exited = ready.next().unwrap_or(false);
        let mut read_any = false;
        if stdout.is_some() && ready.next().unwrap_or(false) {
            read_any |= read_some(&mut stdout, &mut out)?;
        }
        if stderr.is_some() && ready.next().unwrap_or(false) {
            read_any |= read_some(&mut stderr, &mut err)?;
            err.truncate(LONGEST_STDERR);
        }
        if out.len() as u64 > LARGEST_DOCUMENT {
            return Err(RemoteError::Flood);
        }
        if exited && !read_any {
            return Ok((child.wait()?, out, err));
        }
    }
}

/// Reads once from a pipe that is ready; closes it at its end. Whether it gave anything.
fn read_some(pipe: &mut Option<impl Read>, into: &mut Vec<u8>) -> io::Result<bool> {
    let Some(reader) = pipe else { return Ok(false) };
    let mut buffer = [0; 64 * 1024];
    match reader.read(&mut buffer) {
        Ok(0) => {
            *pipe = None;
            Ok(true)
        }
        Ok(n) => {
            into.extend_from_slice(&buffer[..n]);
            Ok(true)
        }
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(true),
        Err(e) => Err(e),
    }
}

/// The last lines of a remote's diagnostics on one line, safe to show on a terminal.
pub fn last_words(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .collect();
    let shown = lines[lines.len().saturating_sub(3)..].join("; ");
    let shown: String = shown
        .chars()
        .filter(|c| !c.is_control())
        .take(500)
        .collect();
    if shown.is_empty() {
        "it said nothing".into()
    } else {
        shown
    }
}

/// Asks each host its question, all at once; results in their order.
pub fn ask_all(questions: &[(&HostName, Question)]) -> Vec<Result<Vec<u8>, RemoteError>> {
    let lines: Vec<(&HostName, Line)> = questions
        .iter()
        .map(|(host, question)| (*host, Line::ask(question)))
        .collect();
    run_all("asking", &lines)
        .into_iter()
        .map(|result| result.map(|answer| answer.stdout))
        .collect()
}

/// Runs each host's line, all at once; results in their order. On a terminal every host has a line that
/// says where it stands: that it is `doing` so, or how it ended.
pub fn run_all(doing: &str, lines: &[(&HostName, Line)]) -> Vec<Result<Answer, RemoteError>> {
    let progress = MultiProgress::new();
    // The template is a constant that indicatif takes; the default style would do as well.
    let style = ProgressStyle::with_template("{prefix}: {msg} {elapsed}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner());
    let bars: Vec<ProgressBar> = lines
        .iter()
        .map(|(host, _)| {
            let bar = progress.add(
                ProgressBar::new_spinner()
                    .with_style(style.clone())
                    .with_prefix(host.to_string()),
            );
            bar.set_message(doing.to_owned());
            bar.enable_steady_tick(Duration::from_millis(500));
            bar
        })
        .collect();
    std::thread::scope(|scope| {
        let running: Vec<_> = lines
            .iter()
            .zip(&bars)
            .map(|((host, line), bar)| {
                scope.spawn(move || {
                    let result = run(host, line);
                    let how = match &result {
                        Ok(Answer { code: 0, .. }) => "ok".to_owned(),
                        Ok(answer) => format!("exit code {}", answer.code),
                        Err(_) => "FAIL".to_owned(),
                    };
                    bar.finish_with_message(format!("{doing}: {how}"));
                    result
                })
            })
            .collect();
        running
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(io::Error::other("a thread failed").into()))
            })
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diagnostics_of_a_remote_are_cut_and_harmless() {
        assert_eq!(last_words(b""), "it said nothing");
        assert_eq!(last_words(b"a\n\nb\x1b[2J\nc\nd\n"), "b[2J; c; d");
        assert!(last_words(&[b'x'; 100_000]).len() <= 500);
    }

    #[test]
    fn a_command_that_does_not_end_is_ended_at_the_deadline() {
        let mut child = Command::new("sleep")
            .arg("600")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let result = collect(&mut child, Duration::from_millis(50));
        assert!(matches!(result, Err(RemoteError::Late(_))));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_command_that_floods_is_ended() {
        let mut child = Command::new("cat")
            .arg("/dev/zero")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let result = collect(&mut child, Duration::from_secs(30));
        assert!(matches!(result, Err(RemoteError::Flood)));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn all_of_both_outputs_is_read_though_a_grandchild_holds_them_open() {
        let script = "head -c 300000 /dev/zero; echo err >&2; sleep 3 & exit 3";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (status, out, err) = collect(&mut child, Duration::from_secs(30)).unwrap();
        assert_eq!(
            (status.code(), out.len(), err.as_slice()),
            (Some(3), 300_000, b"err\n".as_slice())
        );
    }
}
