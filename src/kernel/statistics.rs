//! The statistics that a driver keeps of its network device, as `ethtool -S` shows them. Netlink has only those
//! that all drivers share, so they are asked for with the ioctl of old (`SIOCETHTOOL`, `linux/sockios.h`).

use std::io;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::names::NetdevName;

/// `linux/ethtool.h`
const GSSET_INFO: u32 = 0x37;
const GSTRINGS: u32 = 0x1b;
const GSTATS: u32 = 0x1d;
/// `enum ethtool_stringset`: names of statistics.
const STATISTICS: u32 = 1;
/// `ETH_GSTRING_LEN`
const NAME: usize = 32;
/// A driver with more is not asked: mlx5 has some thousands with all its channels.
const MOST: u32 = 65_536;

/// What one call takes and gives: the words of its C structure in the machine's byte order.
struct Buffer(Vec<u64>);

impl Buffer {
    fn of(bytes: usize, words: &[u32]) -> Buffer {
        let mut buffer = Buffer(vec![0; bytes.div_ceil(8)]);
        for (to, pair) in buffer.0.iter_mut().zip(words.chunks(2)) {
            let mut both = [0; 8];
            for (to, word) in both.chunks_exact_mut(4).zip(pair) {
                to.copy_from_slice(&word.to_ne_bytes());
            }
            *to = u64::from_ne_bytes(both);
        }
        buffer
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }
}

/// All of them, by name. None where the driver keeps none.
///
/// # Errors
/// No such device, or its driver tells nothing.
pub fn statistics(device: &NetdevName) -> io::Result<Vec<(String, u64)>> {
    let socket = socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // struct ethtool_sset_info: cmd, reserved, mask of sets (64 bits), then a count for each set.
    let mut info = Buffer::of(24, &[GSSET_INFO, 0, 1 << STATISTICS, 0]);
    ask(&socket, device, &mut info)?;
    if info.0[1] == 0 {
        return Ok(Vec::new());
    }
    let count = (info.0[2].to_ne_bytes())[..4]
        .try_into()
        .map_or(0, u32::from_ne_bytes);
    if count > MOST {
        return Err(io::Error::other(format!(
            "the driver has {count} statistics, {MOST} at most wanted"
        )));
    }
    // The kernel writes as many as there are when it is asked, not as many as there is room for: the room is
    // for twice the number that it just told and more, as channels may be added meanwhile.
    let room = 2 * count as usize + 1024;
    // struct ethtool_gstrings: cmd, set, number, then the names.
    let mut names = Buffer::of(12 + room * NAME, &[GSTRINGS, STATISTICS, count]);
    ask(&socket, device, &mut names)?;
    // struct ethtool_stats: cmd, number, then the values.
    let mut values = Buffer::of(8 + room * 8, &[GSTATS, count]);
    ask(&socket, device, &mut values)?;
    Ok(paired(&names.bytes(), &values.0, room))
}

/// Names and values side by side, where both calls told the same number of them.
fn paired(names: &[u8], values: &[u64], room: usize) -> Vec<(String, u64)> {
    let word = |bytes: Option<&[u8]>| {
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_ne_bytes) as usize
    };
    let head = values.first().copied().unwrap_or_default().to_ne_bytes();
    let (named, valued) = (word(names.get(8..12)), word(Some(&head[4..])));
    if named != valued || named > room {
        return Vec::new();
    }
    let names = names.get(12..).unwrap_or_default().chunks_exact(NAME);
    let name = |bytes: &[u8]| {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(NAME);
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    };
    let values = values.get(1..).unwrap_or_default();
    names
        .map(name)
        .zip(values.iter().copied())
        .take(named)
        .collect()
}

/// One call.
#[allow(unsafe_code)]
fn ask(socket: &impl AsRawFd, device: &NetdevName, buffer: &mut Buffer) -> io::Result<()> {
    let mut name: [libc::c_char; libc::IFNAMSIZ] = [0; libc::IFNAMSIZ];
    // A name has 15 characters at most: the last stays 0.
    for (to, byte) in name[..libc::IFNAMSIZ - 1]
        .iter_mut()
        .zip(device.as_str().bytes())
    {
        *to = byte as libc::c_char;
    }
    let mut request = libc::ifreq {
        ifr_name: name,
        ifr_ifru: libc::__c_anonymous_ifr_ifru {
            ifru_data: buffer.0.as_mut_ptr().cast(),
        },
    };
    // SAFETY: the descriptor is an open socket; `request` is a whole `struct ifreq` with a name that ends with 0
    // and a pointer to memory that is this call's alone, aligned for the 64-bit values in it, and longer than
    // what the kernel writes there: that many statistics as it told just before, and as many again.
    let code = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    match code {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_none_and_a_device_that_is_not_there_is_an_error() {
        let lo = "lo".parse().unwrap();
        match statistics(&lo) {
            Ok(rows) => assert_eq!(rows, []),
            // qemu-user does not know the call.
            Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => {
                return crate::testing::not_tested("statistics of a driver", "no SIOCETHTOOL here");
            }
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP), "{error}"),
        }
        let error = statistics(&"no-such-device".parse().unwrap()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV), "{error}");
    }

    #[test]
    fn names_and_values_are_paired_only_where_there_are_as_many_of_each() {
        let mut names = Buffer::of(12 + 2 * NAME, &[GSTRINGS, STATISTICS, 2]).bytes();
        names[12..14].copy_from_slice(b"rx");
        names[12 + NAME..][..NAME].copy_from_slice(&[b'x'; NAME]);
        let values = |count| Buffer::of(24, &[GSTATS, count, 7, 0, 9, 0]).0;
        assert_eq!(
            paired(&names, &values(2), 2),
            [("rx".to_owned(), 7), ("x".repeat(NAME), 9)]
        );
        assert_eq!(paired(&names, &values(3), 9), []);
        assert_eq!(paired(&names, &values(2), 1), []);
        assert_eq!(paired(&[], &[], 1), []);
    }
}
