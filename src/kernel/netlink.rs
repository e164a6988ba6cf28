//! The transport of rtnetlink, generic netlink and RDMA netlink.
//!
//! Sockets are neli's `NlSocket`. Framing is done here on the bytes of one datagram, because neli's
//! own framing (0.7.5) subtracts with overflow on a malformed `NLMSG_ERROR`, does not see a
//! truncated datagram, and drops the warnings that a kernel attaches to a success.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use neli::consts::socket::{Msg, NlFamily};
use neli::socket::NlSocket;
use neli::utils::Groups;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::kernel::attr::{Attrs, Malformed};

/// Bytes of `struct nlmsghdr` (`linux/netlink.h`).
const HEADER: usize = 16;
/// Message types that the protocol itself uses (`linux/netlink.h`).
const NLMSG_NOOP: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLMSG_OVERRUN: u16 = 4;
/// Flags of requests and answers (`linux/netlink.h`).
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
/// Flags of requests that change something: replace what is there, refuse when something is there,
/// make it when nothing is (`linux/netlink.h`).
pub(super) const NLM_F_REPLACE: u16 = 0x100;
pub(super) const NLM_F_EXCL: u16 = 0x200;
pub(super) const NLM_F_CREATE: u16 = 0x400;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_CAPPED: u16 = 0x100;
const NLM_F_ACK_TLVS: u16 = 0x200;
/// Attributes of an extended ack (`linux/netlink.h`).
const NLMSGERR_ATTR_MSG: u16 = 1;
const NLMSGERR_ATTR_OFFS: u16 = 2;
const NLMSGERR_ATTR_MISS_TYPE: u16 = 5;

/// Bytes of the receive buffer. The kernel fills dumps up to 32768 bytes a datagram
/// (`SKB_WITH_OVERHEAD(32768)` in `netlink_recvmsg`); single replies can be longer.
///
/// A dump never gets less: the kernel makes its datagrams as long as what was offered, and ends the dump at a
/// row that does not fit, as if it were the last.
const DATAGRAM: usize = 256 * 1024;
thread_local! {
    /// One for all sockets of a thread: the pages of another would be cleared anew.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}
/// Most datagrams that are taken from a queue in a row.
const MOST_DRAINED: usize = 65536;
/// Most bytes that one answer may have in all: a full route table of a router, not of a DGX Spark.
const LARGEST_ANSWER: usize = 64 * 1024 * 1024;
/// A dump that was interrupted by a change is asked for again this often in all.
const DUMP_ATTEMPTS: usize = 4;
/// How long the kernel may take for one datagram. It answers within the `send` call, except for
/// what waits for a device or a lock; a driver re-initialisation takes about 4 s.
const PATIENCE: Duration = Duration::from_secs(30);

/// The protocols that this program speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// `NETLINK_ROUTE`
    Route,
    /// `NETLINK_GENERIC`
    Generic,
    /// `NETLINK_RDMA`
    Rdma,
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Family::Route => "route",
            Family::Generic => "generic",
            Family::Rdma => "RDMA",
        })
    }
}

/// What the kernel says when it refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The error number, positive.
    pub errno: i32,
    /// The text of the extended ack.
    pub message: Option<String>,
    /// Byte of the request, from its header on, that the kernel objects to.
    pub offset: Option<u32>,
    /// Number of the attribute that the kernel misses.
    pub missing: Option<u32>,
    /// Whether it was for a want of permission and this process lacks `CAP_NET_ADMIN`.
    pub lacks_net_admin: bool,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", io::Error::from_raw_os_error(self.errno))?;
        if let Some(message) = &self.message {
            write!(f, ": {message}")?;
        }
        if let Some(missing) = self.missing {
            write!(f, " (attribute {missing} missing)")?;
        }
        if let Some(offset) = self.offset {
            write!(f, " (at byte {offset} of the request)")?;
        }
        if self.lacks_net_admin {
            f.write_str(" (this process lacks CAP_NET_ADMIN)")?;
        }
        Ok(())
    }
}

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The family is not there: no such protocol or module in this kernel.
    #[error("cannot open a {family} netlink socket: {source}")]
    Open {
        /// The family.
        family: Family,
        /// The system's error.
        source: io::Error,
    },
    /// Sending or receiving failed.
    #[error("netlink: {0}")]
    Io(#[from] io::Error),
    /// The kernel refused.
    #[error("{0}")]
    Kernel(Refusal),
    /// The kernel's answer is not what the protocol says.
    #[error("the kernel's answer cannot be read: {0}")]
    Malformed(String),
    /// What was asked for is more than this program can put into a message.
    #[error("{0}")]
    Unwritable(String),
    /// Something changed during every attempt of a dump.
    #[error("the kernel's tables changed during each of {DUMP_ATTEMPTS} attempts to read them")]
    Interrupted,
    /// The answer is longer than this program reads.
    #[error("the kernel's answer is longer than {LARGEST_ANSWER} bytes")]
    TooLong,
}

impl Error {
    /// The kernel's error number, when the kernel refused.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Error::Kernel(refusal) => Some(refusal.errno),
            _ => None,
        }
    }
}

impl From<Malformed> for Error {
    fn from(malformed: Malformed) -> Error {
        Error::Malformed(malformed.to_string())
    }
}

/// One message of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Message type.
    pub kind: u16,
    /// What follows the header.
    pub payload: Vec<u8>,
}

/// The answer to a request that succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// Its messages, in order.
    pub messages: Vec<Message>,
    /// What the kernel remarks although it did as asked.
    pub warning: Option<String>,
}

/// A netlink socket with extended acks on. One request at a time.
pub struct Socket {
    socket: NlSocket,
    port: u32,
    sequence: u32,
}

impl Family {
    fn number(self) -> NlFamily {
        match self {
            Family::Route => NlFamily::Route,
            Family::Generic => NlFamily::Generic,
            Family::Rdma => NlFamily::Rdma,
        }
    }
}

impl Socket {
    /// Opens a socket in the network namespace of the calling thread.
    pub fn open(family: Family) -> Result<Socket, Error> {
        let open = || -> io::Result<(NlSocket, u32)> {
            let socket = NlSocket::connect(family.number(), None, Groups::empty())?;
            socket.enable_ext_ack(true)?;
            if family == Family::Route {
                // Headers and attributes of dumps are then checked, and filters in them obeyed.
                socket.enable_strict_checking(true)?;
            }
            // Neither neli nor the standard library has it for a netlink socket.
            set_socket_timeout(descriptor(&socket), Timeout::Recv, Some(PATIENCE))?;
            let port = socket.pid()?;
            Ok((socket, port))
        };
        let (socket, port) = open().map_err(|source| Error::Open { family, source })?;
        Ok(Socket {
            socket,
            port,
            sequence: 0,
        })
    }

    /// Sends one request and waits for its acknowledgement. `flags` are those beside
    /// `NLM_F_REQUEST` and `NLM_F_ACK`.
    pub fn request(&mut self, kind: u16, flags: u16, payload: &[u8]) -> Result<Answer, Error> {
        self.exchange(kind, flags | NLM_F_ACK, payload)
    }

    /// Asks for a table, again when it changed meanwhile.
    pub fn dump(&mut self, kind: u16, payload: &[u8]) -> Result<Vec<Message>, Error> {
        for _ in 0..DUMP_ATTEMPTS {
            match self.exchange(kind, NLM_F_DUMP, payload) {
                Ok(answer) => return Ok(answer.messages),
                Err(Error::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Interrupted)
    }

    fn exchange(&mut self, kind: u16, flags: u16, payload: &[u8]) -> Result<Answer, Error> {
        self.sequence = self.sequence.wrapping_add(1);
        let length = u32::try_from(HEADER + payload.len()).map_err(|_| Error::TooLong)?;
        let mut request = Vec::with_capacity(HEADER + payload.len());
        request.extend(length.to_ne_bytes());
        request.extend(kind.to_ne_bytes());
        request.extend((flags | NLM_F_REQUEST).to_ne_bytes());
        request.extend(self.sequence.to_ne_bytes());
        request.extend(self.port.to_ne_bytes());
        request.extend(payload);
        self.socket.send(&request, Msg::empty())?;

        let mut collected = Collector::new(self.sequence, self.port);
        loop {
            let answer = BUFFER.with_borrow_mut(|buffer| {
                if buffer.is_empty() {
                    *buffer = vec![0; DATAGRAM];
                }
                // With MSG_TRUNC the kernel gives the datagram's real length, not what was copied.
                let received = self.socket.recv(&mut *buffer, Msg::TRUNC);
                let (length, _) = received.map_err(|e| match e.kind() {
                    io::ErrorKind::WouldBlock => io::Error::new(
                        io::ErrorKind::TimedOut,
                        format!("no answer within {} s", PATIENCE.as_secs()),
                    ),
                    _ => e,
                })?;
                let datagram = buffer.get(..length).ok_or_else(|| {
                    Error::Malformed(format!(
                        "a datagram of {length} bytes, {DATAGRAM} at most wanted"
                    ))
                })?;
                collected.add(datagram).map_err(explain)
            })?;
            if let Some(answer) = answer {
                return Ok(answer);
            }
        }
    }
}

/// Says with a refusal for a want of permission whether the capability is what is wanting.
fn explain(error: Error) -> Error {
    match error {
        Error::Kernel(mut refusal) if refusal.errno == libc::EPERM => {
            let has = caps::has_cap(
                None,
                caps::CapSet::Effective,
                caps::Capability::CAP_NET_ADMIN,
            );
            refusal.lacks_net_admin = matches!(has, Ok(false));
            Error::Kernel(refusal)
        }
        other => other,
    }
}

/// The descriptor of a socket, as safe code wants it; neli gives the number alone.
#[allow(unsafe_code)]
fn descriptor(socket: &NlSocket) -> BorrowedFd<'_> {
    // SAFETY: the descriptor is open while `socket` is borrowed, and is not -1.
    unsafe { BorrowedFd::borrow_raw(socket.as_raw_fd()) }
}

/// A socket that hears what the kernel tells everybody of a family.
pub(super) struct Listener(NlSocket);

impl Listener {
    /// Joins these multicast groups in the network namespace of the calling thread.
    pub(super) fn open(family: Family, groups: &[u32]) -> Result<Listener, Error> {
        let open = || -> io::Result<NlSocket> {
            let socket = NlSocket::connect(family.number(), None, Groups::empty())?;
            socket.add_mcast_membership(Groups::new_groups(groups))?;
            Ok(socket)
        };
        open()
            .map(Listener)
            .map_err(|source| Error::Open { family, source })
    }

    /// What can be waited for: readable when there is something to take.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        descriptor(&self.0)
    }

    /// Takes what is queued, without looking at it, and says whether there was anything. What did
    /// not fit into the queue (`ENOBUFS`) counts.
    pub(super) fn drain(&mut self) -> Result<bool, Error> {
        let mut any = false;
        // In a storm the queue may never be empty: then what is left is told at the next wait.
        for _ in 0..MOST_DRAINED {
            // What does not fit into the buffer of a datagram is dropped with it.
            match self.0.recv([0; HEADER], Msg::DONTWAIT) {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
            any = true;
        }
        Ok(any)
    }
}

/// The answer to one request, from its datagrams. Pure: bytes in, answer out.
struct Collector {
    sequence: u32,
    port: u32,
    answer: Answer,
    size: usize,
    interrupted: bool,
}

impl Collector {
    fn new(sequence: u32, port: u32) -> Collector {
        Collector {
            sequence,
            port,
            answer: Answer::default(),
            size: 0,
            interrupted: false,
        }
    }

    /// Takes one datagram; gives the answer once it is complete.
    fn add(&mut self, mut datagram: &[u8]) -> Result<Option<Answer>, Error> {
        while !datagram.is_empty() {
            let (header, rest) = datagram.split_first_chunk::<HEADER>().ok_or_else(|| {
                Error::Malformed(format!("{} bytes in place of a message", datagram.len()))
            })?;
            let [
                l0,
                l1,
                l2,
                l3,
                k0,
                k1,
                f0,
                f1,
                s0,
                s1,
                s2,
                s3,
                p0,
                p1,
                p2,
                p3,
            ] = *header;
            let length = u32::from_ne_bytes([l0, l1, l2, l3]) as usize;
            let kind = u16::from_ne_bytes([k0, k1]);
            let flags = u16::from_ne_bytes([f0, f1]);
            let payload = length
                .checked_sub(HEADER)
                .and_then(|n| rest.get(..n))
                .ok_or_else(|| {
                    Error::Malformed(format!("a message of {length} bytes in {}", datagram.len()))
                })?;
            // Messages are padded to 4 bytes; the last one need not be.
            datagram = rest.get(payload.len().next_multiple_of(4)..).unwrap_or(&[]);
            // An answer left over from a request that was given up, or not for this socket.
            if u32::from_ne_bytes([s0, s1, s2, s3]) != self.sequence
                || u32::from_ne_bytes([p0, p1, p2, p3]) != self.port
            {
                continue;
            }
            self.interrupted |= flags & NLM_F_DUMP_INTR != 0;
            match kind {
                NLMSG_NOOP => {}
                NLMSG_OVERRUN => return Err(Error::Malformed("the kernel lost messages".into())),
                NLMSG_ERROR | NLMSG_DONE => return self.finish(kind, flags, payload).map(Some),
                _ => {
                    self.size += length;
                    if self.size > LARGEST_ANSWER {
                        return Err(Error::TooLong);
                    }
                    self.answer.messages.push(Message {
                        kind,
                        payload: payload.to_vec(),
                    });
                }
            }
        }
        Ok(None)
    }

    /// The end of an answer: `NLMSG_ERROR` (code, the request's header, the request unless capped,
    /// attributes) or `NLMSG_DONE` (code, attributes).
    fn finish(&mut self, kind: u16, flags: u16, payload: &[u8]) -> Result<Answer, Error> {
        let (code, rest) = match payload.split_first_chunk::<4>() {
            Some((code, rest)) => (i32::from_ne_bytes(*code), rest),
            None if kind == NLMSG_DONE => (0, payload),
            None => return Err(Error::Malformed("an error message without a code".into())),
        };
        let extended = if flags & NLM_F_ACK_TLVS == 0 {
            &[][..]
        } else if kind == NLMSG_DONE {
            rest
        } else {
            let (original, after) = rest.split_first_chunk::<HEADER>().ok_or_else(|| {
                Error::Malformed("an error message without the request's header".into())
            })?;
            let [l0, l1, l2, l3, ..] = *original;
            let body = (u32::from_ne_bytes([l0, l1, l2, l3]) as usize).saturating_sub(HEADER);
            let skipped = if flags & NLM_F_CAPPED == 0 {
                body.saturating_add(3) & !3
            } else {
                0
            };
            after.get(skipped..).ok_or_else(|| {
                Error::Malformed("an error message shorter than the request in it".into())
            })?
        };
        let attrs = Attrs::parse(extended)?;
        let message = attrs
            .get(NLMSGERR_ATTR_MSG)
            .map(|a| a.text())
            .filter(|m| !m.is_empty());
        if code != 0 {
            return Err(Error::Kernel(Refusal {
                errno: code.checked_neg().unwrap_or(i32::MAX),
                message,
                offset: attrs.get(NLMSGERR_ATTR_OFFS).and_then(|a| a.u32().ok()),
                missing: attrs
                    .get(NLMSGERR_ATTR_MISS_TYPE)
                    .and_then(|a| a.u32().ok()),
                lacks_net_admin: false,
            }));
        }
        if self.interrupted {
            return Err(Error::Interrupted);
        }
        Ok(Answer {
            messages: std::mem::take(&mut self.answer.messages),
            warning: message,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One message: header (sequence 7, port 9) and payload, padded.
    fn message(kind: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER + payload.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(7u32.to_ne_bytes());
        bytes.extend(9u32.to_ne_bytes());
        bytes.extend(payload);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn collect(datagram: &[u8]) -> Result<Option<Answer>, Error> {
        Collector::new(7, 9).add(datagram)
    }

    /// The payload of NLMSG_ERROR: code, a request of 20 bytes (whole unless `capped`), attributes.
    fn error_payload(code: i32, capped: bool, attributes: &[u8]) -> Vec<u8> {
        let mut bytes = code.to_ne_bytes().to_vec();
        bytes.extend(&message(20, 1, &[0; 4])[..if capped { HEADER } else { 20 }]);
        bytes.extend(attributes);
        bytes
    }

    #[test]
    fn a_refusal_carries_the_kernels_text_capped_or_not() {
        let mut w = crate::kernel::attr::Writer::default();
        w.put(NLMSGERR_ATTR_MSG, b"Nexthop has invalid gateway\0");
        w.put(NLMSGERR_ATTR_OFFS, &24u32.to_ne_bytes());
        for (capped, flags) in [
            (false, NLM_F_ACK_TLVS),
            (true, NLM_F_ACK_TLVS | NLM_F_CAPPED),
        ] {
            let payload = error_payload(-libc::ENETUNREACH, capped, w.bytes());
            let Err(Error::Kernel(refusal)) = collect(&message(NLMSG_ERROR, flags, &payload))
            else {
                panic!()
            };
            assert_eq!(refusal.errno, libc::ENETUNREACH);
            assert_eq!(
                refusal.to_string(),
                "Network is unreachable (os error 101): Nexthop has invalid gateway (at byte 24 of the request)"
            );
        }
    }

    #[test]
    fn a_want_of_permission_names_the_capability_that_this_process_lacks() {
        let refusal = Refusal {
            errno: libc::EPERM,
            message: None,
            offset: None,
            missing: None,
            lacks_net_admin: false,
        };
        let has = caps::has_cap(
            None,
            caps::CapSet::Effective,
            caps::Capability::CAP_NET_ADMIN,
        )
        .unwrap();
        let text = explain(Error::Kernel(refusal.clone())).to_string();
        assert_eq!(text.contains("lacks CAP_NET_ADMIN"), !has, "{text}");
        let other = explain(Error::Kernel(Refusal {
            errno: libc::ENODEV,
            ..refusal
        }))
        .to_string();
        assert!(!other.contains("CAP_NET_ADMIN"), "{other}");
    }

    #[test]
    fn a_success_keeps_the_kernels_warning() {
        let mut w = crate::kernel::attr::Writer::default();
        w.put(NLMSGERR_ATTR_MSG, b"deprecated\0");
        let payload = error_payload(0, true, w.bytes());
        let answer = collect(&message(
            NLMSG_ERROR,
            NLM_F_ACK_TLVS | NLM_F_CAPPED,
            &payload,
        ))
        .unwrap()
        .unwrap();
        assert_eq!(answer.warning.as_deref(), Some("deprecated"));
    }

    #[test]
    fn messages_of_another_request_or_socket_are_passed_over() {
        let mut bytes = message(16, 2, b"ours");
        let mut old = message(16, 2, b"old!");
        old[8] = 6;
        let mut strange = message(16, 2, b"them");
        strange[12] = 8;
        bytes.extend(old);
        bytes.extend(strange);
        bytes.extend(message(NLMSG_DONE, 2, &0i32.to_ne_bytes()));
        let answer = collect(&bytes).unwrap().unwrap();
        assert_eq!(
            answer.messages,
            [Message {
                kind: 16,
                payload: b"ours".to_vec()
            }]
        );
    }

    #[test]
    fn a_dump_that_changed_meanwhile_is_not_taken() {
        let mut bytes = message(16, 2 | NLM_F_DUMP_INTR, b"half");
        bytes.extend(message(NLMSG_DONE, 2, &0i32.to_ne_bytes()));
        assert!(matches!(collect(&bytes), Err(Error::Interrupted)));
    }

    #[test]
    fn a_dump_that_ends_in_an_error_is_an_error() {
        let bytes = message(NLMSG_DONE, 2, &(-libc::ENODEV).to_ne_bytes());
        assert_eq!(collect(&bytes).unwrap_err().errno(), Some(libc::ENODEV));
    }

    #[test]
    fn lengths_that_lie_are_errors() {
        let mut long = message(16, 2, b"xxxx");
        long[0] = 200;
        let mut short = message(16, 2, b"xxxx");
        short[0] = 15;
        let lying_request = {
            let mut p = error_payload(-1, false, &[]);
            p[4..8].copy_from_slice(&u32::MAX.to_ne_bytes());
            message(NLMSG_ERROR, NLM_F_ACK_TLVS, &p)
        };
        for bytes in [
            long,
            short,
            lying_request,
            vec![1, 2, 3],
            message(NLMSG_ERROR, NLM_F_ACK_TLVS, &[1, 0, 0, 0]),
        ] {
            assert!(
                matches!(collect(&bytes), Err(Error::Malformed(_))),
                "{bytes:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_datagram_makes_it_panic(
            kind in 0u16..6,
            flags: u16,
            payload in proptest::collection::vec(any::<u8>(), 0..80),
            cut: prop::sample::Index,
            tail in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut bytes = message(kind, flags, &payload);
            bytes.extend(&tail);
            let _ = collect(&bytes[..cut.index(bytes.len() + 1)]);
            let _ = collect(&bytes);
        }
    }

    #[test]
    fn a_real_kernel_refuses_with_an_errno_and_answers_a_dump() {
        let mut socket = Socket::open(Family::Route).unwrap();
        // RTM_GETLINK (18) of a device index that does not exist.
        let mut header = [0u8; 16];
        header[4..8].copy_from_slice(&0x7fff_fff0u32.to_ne_bytes());
        assert_eq!(
            socket.request(18, 0, &header).unwrap_err().errno(),
            Some(libc::ENODEV)
        );
        assert!(!socket.dump(18, &[0; 16]).unwrap().is_empty());
    }
}
