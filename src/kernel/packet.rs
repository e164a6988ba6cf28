//! ARP on the wire: which MACs answer for which addresses on a port, before any subnet agrees.
//!
//! The requests are ARP probes (RFC 5227: the sender's address is 0.0.0.0), so nobody learns anything
//! from them. A Linux host answers one for any address of its own, on whatever port it comes in
//! (`arp_ignore` 0), with the MAC of that port: what answers says where the cable leads.

use std::collections::BTreeSet;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::names::Mac;

/// EtherType of ARP (RFC 826).
const ARP: u16 = 0x0806;
/// EtherType of IPv4, the addresses that are asked for.
const IPV4: u16 = 0x0800;
/// Ethernet as ARP's hardware.
const ETHERNET: u16 = 1;
/// ARP operations (RFC 826).
const REQUEST: u16 = 1;
const REPLY: u16 = 2;
/// The shortest Ethernet frame without its checksum (IEEE 802.3).
const SHORTEST: usize = 60;
/// Most answers that are kept of one port.
const MOST_ANSWERS: usize = 1024;

/// An ARP probe for `target`.
pub fn probe(own: Mac, target: Ipv4Addr) -> [u8; SHORTEST] {
    let mut frame = [0u8; SHORTEST];
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    put(&[0xff; 6]);
    put(&own.0);
    put(&ARP.to_be_bytes());
    put(&ETHERNET.to_be_bytes());
    put(&IPV4.to_be_bytes());
    put(&[6, 4]);
    put(&REQUEST.to_be_bytes());
    put(&own.0);
    put(&[0; 4]);
    put(&[0; 6]);
    put(&target.octets());
    frame
}

/// Who answers, of an ARP reply: the address and its MAC.
pub fn answer(frame: &[u8]) -> Option<(Ipv4Addr, Mac)> {
    let word = |at: usize| Some(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?));
    let right = word(12)? == ARP
        && word(14)? == ETHERNET
        && word(16)? == IPV4
        && frame.get(18..20)? == [6, 4]
        && word(20)? == REPLY;
    let mac: [u8; 6] = frame.get(22..28)?.try_into().ok()?;
    let address: [u8; 4] = frame.get(28..32)?.try_into().ok()?;
    let mac = Mac(mac);
    (right && mac.is_unicast()).then_some((Ipv4Addr::from(address), mac))
}

/// `struct sockaddr_ll` of a device, for ARP.
struct Device(libc::sockaddr_ll);

impl Device {
    fn new(index: u32) -> io::Result<Device> {
        let index = i32::try_from(index).map_err(io::Error::other)?;
        Ok(Device(libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: ARP.to_be(),
            sll_ifindex: index,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        }))
    }
}

// SAFETY: the pointer is of a whole `sockaddr_ll` that is alive during the call, and the length is its own.
#[allow(unsafe_code)]
unsafe impl SocketAddrArg for Device {
    unsafe fn with_sockaddr<R>(
        &self,
        f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R,
    ) -> R {
        let length = std::mem::size_of::<libc::sockaddr_ll>() as SocketAddrLen;
        f(std::ptr::from_ref(&self.0).cast(), length)
    }
}

fn open(index: u32) -> io::Result<OwnedFd> {
    let protocol = rustix::net::RawProtocol::new(u32::from(ARP.to_be())).map(Protocol::from_raw);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, protocol)?;
    rustix::net::bind(&socket, &Device::new(index)?)?;
    Ok(socket)
}

/// Who answered on one port, or why nobody could be asked.
pub type Answers = Result<BTreeSet<(Ipv4Addr, Mac)>, String>;

/// Asks on each port (index and MAC) for each of the addresses, and gives who answered within `patience`.
pub fn ask(ports: &[(u32, Mac)], targets: &[Ipv4Addr], patience: Duration) -> Vec<Answers> {
    let sockets: Vec<Result<OwnedFd, String>> = ports
        .iter()
        .map(|(index, _)| open(*index).map_err(|e| format!("a packet socket: {e}")))
        .collect();
    let mut answers: Vec<Answers> = sockets
        .iter()
        .map(|socket| {
            socket
                .as_ref()
                .map(|_| BTreeSet::new())
                .map_err(String::clone)
        })
        .collect();
    let begin = Instant::now();
    let mut asked = 0u32;
    loop {
        // Asked twice: a frame may be lost, or a link may have just come up.
        if asked < 2 && begin.elapsed() >= patience / 2 * asked {
            asked += 1;
            for ((socket, (_, mac)), answers) in sockets.iter().zip(ports).zip(&mut answers) {
                let Ok(socket) = socket else { continue };
                for target in targets {
                    if let Err(error) =
                        rustix::net::send(socket, &probe(*mac, *target), SendFlags::empty())
                    {
                        // A port without a link answers nobody; another one has to say why.
                        if error != rustix::io::Errno::NETDOWN && error != rustix::io::Errno::AGAIN
                        {
                            *answers = Err(format!("sending an ARP probe: {error}"));
                            break;
                        }
                    }
                }
            }
        }
        let end = if asked < 2 { patience / 2 } else { patience };
        let Some(left) = end.checked_sub(begin.elapsed()) else {
            if asked < 2 {
                continue;
            }
            return answers;
        };
        let open: Vec<usize> = (0..sockets.len())
            .filter(|i| sockets[*i].is_ok() && answers[*i].is_ok())
            .collect();
        let mut waited: Vec<PollFd> = open
            .iter()
            .filter_map(|i| sockets[*i].as_ref().ok())
            .map(|socket| PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN))
            .collect();
        if waited.is_empty() {
            return answers;
        }
        let Ok(timeout) = Timespec::try_from(left) else {
            return answers;
        };
        let ready: Vec<usize> = match poll(&mut waited, Some(&timeout)) {
            Ok(_) => open
                .iter()
                .zip(&waited)
                .filter(|(_, fd)| !fd.revents().is_empty())
                .map(|(i, _)| *i)
                .collect(),
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return answers,
        };
        for i in ready {
            let (Ok(socket), Ok(found)) = (&sockets[i], &mut answers[i]) else {
                continue;
            };
            let mut frame = [0u8; 128];
            match rustix::net::recv(socket, &mut frame, RecvFlags::empty()) {
                Ok((_, length)) => {
                    let told = answer(&frame[..length.min(frame.len())]);
                    let told = told.filter(|(address, _)| targets.contains(address));
                    if let Some(told) = told.filter(|_| found.len() < MOST_ANSWERS) {
                        found.insert(told);
                    }
                }
                Err(
                    rustix::io::Errno::AGAIN | rustix::io::Errno::INTR | rustix::io::Errno::NETDOWN,
                ) => {}
                Err(error) => answers[i] = Err(format!("receiving ARP: {error}")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_laid_out_as_the_rfc_has_it() {
        let frame = probe("02:00:00:00:00:01".parse().unwrap(), [10, 10, 0, 11].into());
        let wanted = [
            0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 8, 6, // Ethernet
            0, 1, 8, 0, 6, 4, 0, 1, // ARP request for IPv4 on Ethernet
            2, 0, 0, 0, 0, 1, 0, 0, 0, 0, // from us, without an address
            0, 0, 0, 0, 0, 0, 10, 10, 0, 11,
        ];
        assert_eq!(frame[..42], wanted);
        assert_eq!(frame[42..], [0; 18]);
        assert_eq!(answer(&frame), None);
    }

    #[test]
    fn only_a_whole_reply_of_a_unicast_mac_is_an_answer() {
        let mut frame = probe("02:00:00:00:00:07".parse().unwrap(), [1, 2, 3, 4].into());
        frame[21] = 2;
        frame[28..32].copy_from_slice(&[10, 0, 0, 9]);
        let wanted = Some(([10, 0, 0, 9].into(), "02:00:00:00:00:07".parse().unwrap()));
        assert_eq!(answer(&frame), wanted);
        for cut in 0..32 {
            assert_eq!(answer(&frame[..cut]), None, "{cut}");
        }
        for (at, value) in [
            (12, 9),
            (15, 6),
            (16, 0x86),
            (18, 8),
            (19, 16),
            (21, 1),
            (22, 1),
        ] {
            let mut other = frame;
            other[at] = value;
            assert_eq!(answer(&other), None, "{at}");
        }
    }
}
