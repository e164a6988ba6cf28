//! Makes the rule and holds it, until it is told to stop or the rule can no longer be there.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::notify::Notifier;
use super::{Rewrite, privilege};
use crate::kernel::monitor::{Group, Monitor};
use crate::kernel::netlink;
use crate::kernel::process::Process;
use crate::kernel::rdma::Nldev;
use crate::kernel::sysfs;
use crate::names::RdmaName;
use crate::verbs::{self, CREATE_ACTION, CREATE_FLOW, DEVICE_FATAL, Device, Mlx5, Rule, Verbs};

/// What is to be held.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// In which device.
    pub device: RdmaName,
    /// The rule.
    pub rewrite: Rewrite,
    /// How long to wait for the device.
    pub wait: Duration,
}

/// How it ended, once the rule was in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// By SIGTERM or SIGINT, the rule taken out again.
    Stopped,
    /// The rule can no longer be there, and why.
    Lost(String),
}

/// Why the rule is not in the device.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A signal came first.
    #[error("told to stop before the rule was in")]
    Interrupted,
    /// Signals, systemd's socket, or what was to be told of it.
    #[error("{what}: {source}")]
    Io {
        /// What failed.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// RDMA notifications.
    #[error("listening to RDMA devices: {0}")]
    Listen(netlink::Error),
    /// A library or a call of it, other than those that make the rule.
    #[error(transparent)]
    Verbs(#[from] verbs::Error),
    /// There is no such device.
    #[error("there is no RDMA device {device}{}", others(.have))]
    NoDevice {
        /// Its name.
        device: RdmaName,
        /// Those that there are.
        have: Vec<RdmaName>,
    },
    /// It did not come in time.
    #[error("no RDMA device {device} within {} s: {why}", .wait.as_secs())]
    Late {
        /// Its name.
        device: RdmaName,
        /// How long was waited.
        wait: Duration,
        /// Why it could not be used, the last time.
        why: Box<Error>,
    },
    /// Another driver's.
    #[error("{0} is not a device of mlx5 (libmlx5 does not take it): it has no RDMA-TX table")]
    NotMlx5(RdmaName),
    /// This process may not.
    #[error("making a rule needs CAP_NET_RAW: run it as root, or give the service that capability")]
    NotAllowed,
    /// Another one holds it.
    #[error("{device} has a marker already: process {pid}")]
    Second {
        /// The device.
        device: RdmaName,
        /// The other marker's process.
        pid: u32,
    },
    /// A call that makes the rule.
    #[error("{source}: {}", situation(.call, .errno))]
    Refused {
        /// Which call.
        call: &'static str,
        /// Its error.
        errno: i32,
        /// The same with the device.
        source: verbs::Error,
    },
    /// Giving up capabilities.
    #[error("giving up capabilities: {0}")]
    Privilege(caps::errors::CapsError),
}

impl Error {
    /// Whether the device may be there a little later: it comes in steps, and goes while it is initialised.
    fn may_pass(&self) -> bool {
        match self {
            Error::NoDevice { .. } => true,
            Error::Refused { errno, .. } => passing(*errno),
            Error::Verbs(verbs::Error::Call { source, .. }) => {
                source.raw_os_error().is_some_and(passing)
            }
            _ => false,
        }
    }
}

fn passing(errno: i32) -> bool {
    matches!(errno, libc::ENODEV | libc::ENOENT | libc::ENXIO | libc::EIO)
}

fn others(names: &[RdmaName]) -> String {
    if names.is_empty() {
        return "; this host has none".into();
    }
    let names: Vec<&str> = names.iter().map(RdmaName::as_str).collect();
    format!("; this host has {}", names.join(", "))
}

/// What an errno of one of the calls says of the host (rdma-core's providers/mlx5/verbs.c, and the kernel's
/// drivers/infiniband/hw/mlx5/fs.c and drivers/infiniband/core/uverbs_std_types_flow_action.c).
fn situation(call: &str, errno: &i32) -> &'static str {
    match (call, *errno) {
        (_, libc::EPERM) => {
            "this process may not make rules: CAP_NET_RAW in the first user namespace is needed"
        }
        (_, libc::EIO | libc::ENODEV) => "the device is being initialised anew, or gone",
        (_, libc::EEXIST) => {
            "the device has such a rule already: another marker, of another program?"
        }
        (_, libc::ENOMEM | libc::ENOSPC) => "the kernel or the NIC has no room for it",
        (CREATE_ACTION, libc::EOPNOTSUPP | libc::EINVAL) => {
            "the RDMA-TX table has no modify-header here: flow_steering_mode is not hmfs (devlink dev \
             param show), or the NIC's firmware is too old"
        }
        (CREATE_FLOW, libc::EOPNOTSUPP | libc::EINVAL) => {
            "the NIC does not take the rule: flow_steering_mode is not hmfs (devlink dev param show), or \
             its firmware is too old"
        }
        (
            _,
            libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS | libc::ENOTTY | libc::EPROTONOSUPPORT,
        ) => {
            "the driver has no RDMA-TX table for users: the kernel or the NIC's firmware is too old"
        }
        _ => "the driver refuses it",
    }
}

/// Makes the rule and holds it. `attached` is called once it is in and everything else was given up;
/// `remark` takes what is worth a line and stops nothing.
///
/// # Errors
/// The rule is not in, or `attached` failed and it was taken out again.
pub fn hold(
    wanted: &Wanted,
    attached: &mut dyn FnMut() -> io::Result<()>,
    remark: &mut dyn FnMut(&str),
) -> Result<Ended, Error> {
    let io = |what| move |source| Error::Io { what, source };
    // Before all else: from here on a signal ends it as it should.
    let stop = signals().map_err(io("signals"))?;
    let notifier = Notifier::open().map_err(io("systemd's socket"))?;
    // Before the first look, so that no change is missed.
    let mut monitor = Monitor::open(&[Group::Rdma]).map_err(Error::Listen)?;
    if !privilege::may_make_rules() {
        return Err(Error::NotAllowed);
    }
    let verbs = Verbs::load()?;
    let mlx5 = Mlx5::load()?;
    let deadline = Instant::now() + wanted.wait;
    let device = loop {
        let why = match open(&verbs, &mlx5, &wanted.device) {
            Ok(device) => break device,
            Err(error) if error.may_pass() => error,
            Err(error) => return Err(error),
        };
        if wanted.wait.is_zero() {
            return Err(why);
        }
        let now = Instant::now();
        if now >= deadline {
            return Err(Error::Late {
                device: wanted.device.clone(),
                wait: wanted.wait,
                why: Box::new(why),
            });
        }
        tell(
            &notifier,
            &format!("STATUS=waits for {}", wanted.device),
            remark,
        );
        // A device is announced before it can be opened, and kernels before 6.12 announce none.
        let until = deadline.min(now + NEXT_LOOK);
        let woken = monitor
            .wait_beside(&[stop.as_fd()], Some(until))
            .map_err(Error::Listen)?;
        if woken.readable.contains(&true) {
            return Err(Error::Interrupted);
        }
    };
    held(
        wanted,
        &device,
        &mlx5,
        &mut monitor,
        &stop,
        &notifier,
        attached,
        remark,
    )
}

/// How long at most until the next look at a device that is not there yet.
const NEXT_LOOK: Duration = Duration::from_millis(250);

/// A descriptor that is readable once SIGTERM or SIGINT came.
fn signals() -> io::Result<UnixStream> {
    let (told, tells) = UnixStream::pair()?;
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::low_level::pipe::register(signal, tells.try_clone()?)?;
    }
    Ok(told)
}

fn tell(notifier: &Notifier, lines: &str, remark: &mut dyn FnMut(&str)) {
    if let Err(error) = notifier.tell(lines) {
        remark(&format!("systemd cannot be told: {error}"));
    }
}

/// Opens the device, which must be one of mlx5.
fn open<'a>(verbs: &'a Verbs, mlx5: &Mlx5, name: &RdmaName) -> Result<Device<'a>, Error> {
    let device = verbs.open(name).map_err(|error| match error {
        // Without a kernel that has RDMA there is no list (ibv_get_device_list(3)).
        verbs::Error::Call { source, .. }
            if matches!(source.raw_os_error(), Some(libc::ENODEV | libc::ENOSYS)) =>
        {
            Error::NoDevice {
                device: name.clone(),
                have: sysfs::names("/sys/class/infiniband").unwrap_or_default(),
            }
        }
        other => other.into(),
    })?;
    if mlx5.drives(&device) {
        Ok(device)
    } else {
        Err(Error::NotMlx5(name.clone()))
    }
}

#[allow(clippy::too_many_arguments)]
fn held(
    wanted: &Wanted,
    device: &Device<'_>,
    mlx5: &Mlx5,
    monitor: &mut Monitor,
    stop: &UnixStream,
    notifier: &Notifier,
    attached: &mut dyn FnMut() -> io::Result<()>,
    remark: &mut dyn FnMut(&str),
) -> Result<Ended, Error> {
    let name = &wanted.device;
    let io = |what| move |source| Error::Io { what, source };
    // As the device is opened, the other marker sees this one, too: of two at once none may go on.
    let mut kernel = match Kernel::open(name) {
        Ok(kernel) => Some(kernel),
        Err(why) => {
            remark(&format!("other markers on {name} cannot be seen: {why}"));
            None
        }
    };
    if let Some(kernel) = &mut kernel {
        match kernel.other_marker() {
            Ok(None) => {}
            Ok(Some(pid)) => {
                return Err(Error::Second {
                    device: name.clone(),
                    pid,
                });
            }
            Err(error) => remark(&format!("other markers on {name} cannot be seen: {error}")),
        }
    }
    if let Some(why) = monitor.without_rdma() {
        remark(&format!(
            "{why}: that {name} goes away is known by its own events alone"
        ));
    }
    let rule = attach(mlx5, device, &wanted.rewrite)?;
    let events = device.events()?;
    privilege::give_up().map_err(Error::Privilege)?;
    attached().map_err(io("telling that the rule is in"))?;
    let status = format!(
        "READY=1\nSTATUS=tags what leaves {name} with UDP source port {} with EtherType {}",
        wanted.rewrite.source_port, wanted.rewrite.ethertype
    );
    // Without it systemd would wait in vain, and end this.
    notifier.tell(&status).map_err(io("systemd's socket"))?;

    rule.at_rest();

    let lost = loop {
        let woken = monitor
            .wait_beside(&[stop.as_fd(), events], None)
            .map_err(Error::Listen)?;
        if woken.readable.first() == Some(&true) {
            tell(notifier, "STOPPING=1\nSTATUS=takes the rule out", remark);
            return match rule.detach() {
                Ok(()) => Ok(Ended::Stopped),
                // The kernel takes it out with the process. It is told all the same.
                Err(error) => {
                    remark(&format!("taking the rule out of {name}: {error}"));
                    Ok(Ended::Stopped)
                }
            };
        }
        if let Some(why) = fatal(device) {
            break why;
        }
        if woken.changed && kernel.as_mut().is_some_and(|kernel| kernel.is_gone()) {
            break "its RDMA device was taken away, or made anew".to_owned();
        }
    };
    tell(notifier, &format!("STATUS={lost}"), remark);
    Ok(Ended::Lost(format!("{name} has no rule any more: {lost}")))
}

fn attach<'a>(
    mlx5: &'a Mlx5,
    device: &'a Device<'_>,
    rewrite: &Rewrite,
) -> Result<Rule<'a>, Error> {
    mlx5.attach(device, &rewrite.bytes()).map_err(|source| {
        let refused = match &source {
            verbs::Error::Call { call, source, .. } => Some((*call, source.raw_os_error())),
            _ => None,
        };
        match refused {
            Some((call, errno)) => Error::Refused {
                call,
                errno: errno.unwrap_or_default(),
                source,
            },
            None => source.into(),
        }
    })
}

/// Takes the device's events; says why when it tells of its end.
fn fatal(device: &Device<'_>) -> Option<String> {
    loop {
        match device.next_event() {
            Ok(None) => return None,
            Ok(Some(DEVICE_FATAL)) => {
                return Some(
                    "its driver was initialised anew or ended (IBV_EVENT_DEVICE_FATAL)".into(),
                );
            }
            // Of a port that goes up or down, of others' queue pairs: the rule stays.
            Ok(Some(_)) => {}
            Err(error) => return Some(error.to_string()),
        }
    }
}

/// The device as RDMA netlink knows it: by a number that it has until it is taken away.
struct Kernel {
    nldev: Nldev,
    index: u32,
}

impl Kernel {
    fn open(name: &RdmaName) -> Result<Kernel, String> {
        let mut nldev = Nldev::open().map_err(|e| e.to_string())?;
        let devices = nldev.devices().map_err(|e| e.to_string())?;
        let device = devices.iter().find(|device| device.name == *name);
        let index = device.ok_or("RDMA netlink does not show it")?.index;
        Ok(Kernel { nldev, index })
    }

    /// The process of another marker that has the device open.
    fn other_marker(&mut self) -> Result<Option<u32>, netlink::Error> {
        let own = std::process::id();
        let pids = self.nldev.openers(self.index)?;
        Ok(pids
            .into_iter()
            .find(|pid| *pid != own && is_marker(Process(*pid))))
    }

    /// Whether the device is not there any more. What cannot be asked is not known to be gone.
    fn is_gone(&mut self) -> bool {
        let devices = self.nldev.devices();
        devices.is_ok_and(|all| !all.iter().any(|device| device.index == self.index))
    }
}

/// Whether this program runs there as a marker, started by root or by who runs this. Anybody else could
/// give a process such a name, to keep markers away.
fn is_marker(process: Process) -> bool {
    let user = rustix::process::geteuid().as_raw();
    let trusted = process
        .user()
        .is_some_and(|other| other == 0 || other == user);
    trusted
        && process
            .arguments()
            .is_ok_and(|arguments| are_of_a_marker(&arguments))
}

fn are_of_a_marker(arguments: &[Vec<u8>]) -> bool {
    let [program, verb, ..] = arguments else {
        return false;
    };
    let file = program.rsplit(|byte| *byte == b'/').next();
    file == Some(b"hairpin-mesh") && verb == b"marker"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_known_by_its_program_and_verb() {
        let of = |line: &str| {
            let arguments: Vec<Vec<u8>> = line.split(' ').map(|word| word.into()).collect();
            are_of_a_marker(&arguments)
        };
        assert!(of("/opt/dsv41-mesh/bin/hairpin-mesh marker --device x"));
        assert!(of("hairpin-mesh marker"));
        for other in [
            "hairpin-mesh",
            "hairpin-mesh up",
            "x-hairpin-mesh marker",
            "ib_write_lat marker",
            "",
        ] {
            assert!(!of(other), "{other}");
        }
    }

    #[test]
    fn only_what_may_come_by_itself_is_waited_for() {
        let call = |errno| {
            Error::Verbs(verbs::Error::Call {
                call: "ibv_open_device",
                device: "x".parse().unwrap(),
                source: io::Error::from_raw_os_error(errno),
            })
        };
        assert!(call(libc::ENOENT).may_pass());
        assert!(!call(libc::EACCES).may_pass());
        assert!(!Error::NotMlx5("x".parse().unwrap()).may_pass());
        assert!(!Error::NotAllowed.may_pass());
    }
}
