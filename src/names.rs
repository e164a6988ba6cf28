//! Validated names and addresses: the only way text from outside becomes a name in this program.
//!
//! Every string that an inventory, a plan, the command line, the network or the kernel gives is
//! parsed into one of these types at the door. A value that exists is therefore safe to use as a
//! file name, a command word after `--`, or an identifier in a script.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// Why a text is not the name or address that it should be: what it is and what is wanted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("is {found}, {wanted} wanted")]
pub struct NameError {
    /// The text as found, quoted, and cut when it is long.
    pub found: String,
    /// What the field accepts.
    pub wanted: &'static str,
}

impl NameError {
    fn new(found: &str, wanted: &'static str) -> Self {
        NameError {
            found: quoted(found),
            wanted,
        }
    }
}

/// `text` quoted for a message: control characters escaped, at most 80 characters shown.
pub fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(80).collect();
    if text.chars().nth(80).is_some() {
        shown.push('…');
    }
    format!("{shown:?}")
}

fn is_name(text: &str, longest: usize, extra: &[u8]) -> bool {
    let bytes = text.as_bytes();
    (1..=longest).contains(&bytes.len())
        && bytes[0].is_ascii_alphanumeric()
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || extra.contains(b))
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $longest:literal, $extra:literal, $wanted:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                if is_name(text, $longest, $extra) {
                    Ok($name(text.to_owned()))
                } else {
                    Err(NameError::new(text, $wanted))
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    };
}

name_type!(
    /// A host as `plan`'s command line calls it: `[A-Za-z0-9][A-Za-z0-9_.-]{0,127}`.
    HostName, 128, b"_.-",
    "a host name of letters, digits, '_', '.' and '-' that starts with a letter or digit (128 characters at most)"
);
name_type!(
    /// A network device: `[A-Za-z0-9][A-Za-z0-9_.:-]{0,14}`; 15 characters is the kernel's
    /// `IFNAMSIZ` (16, `linux/if.h`) less the closing NUL.
    NetdevName, 15, b"_.:-",
    "a network device name of letters, digits, '_', '.', ':' and '-' that starts with a letter or digit (15 characters at most)"
);
name_type!(
    /// An RDMA device: `[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}`; 63 characters is the kernel's
    /// `IB_DEVICE_NAME_MAX` (64, `rdma/ib_verbs.h`) less the closing NUL.
    RdmaName, 63, b"_.:-",
    "an RDMA device name of letters, digits, '_', '.', ':' and '-' that starts with a letter or digit (63 characters at most)"
);
name_type!(
    /// A file of sysfs or procfs, a counter or a setting: `[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}`. Never
    /// a path: no `/`, no leading dot.
    AttributeName, 64, b"_.:-",
    "the name of a counter or setting of letters, digits, '_', '.', ':' and '-' that starts with a letter or digit (64 characters at most)"
);

/// A file on other hosts too, as a word of their shells: an absolute path of letters, digits, `/`, `_`, `.`
/// and `-`, without `..`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlainPath(String);

impl PlainPath {
    /// Longest path (`PATH_MAX`, `linux/limits.h`, less the closing NUL).
    const LONGEST: usize = 4095;

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for PlainPath {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let plain = text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"/_.-".contains(&b));
        let up = text.split('/').any(|part| part == "..");
        if text.starts_with('/') && plain && !up && text.len() <= PlainPath::LONGEST {
            Ok(PlainPath(text.to_owned()))
        } else {
            Err(NameError::new(
                text,
                "an absolute path of letters, digits, '/', '_', '.' and '-', without '..',",
            ))
        }
    }
}

/// Text of the kernel or of a process that is shown and compared, never used as a name: printable
/// ASCII, at most [`Text::LONGEST`] characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Text(String);

impl Text {
    /// Most characters of a text.
    pub const LONGEST: usize = 512;

    /// From any bytes: those that are not printable ASCII become `\xNN`, and what is too long is
    /// cut and ends in `...`.
    pub fn from_bytes(bytes: &[u8]) -> Text {
        let mut text = String::new();
        for byte in bytes {
            match byte {
                b' '..=b'~' => text.push(char::from(*byte)),
                other => text.push_str(&format!("\\x{other:02x}")),
            }
            if text.len() > Text::LONGEST {
                text.truncate(Text::LONGEST - 3);
                text.push_str("...");
                break;
            }
        }
        Text(text)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text::from_bytes(text.as_bytes())
    }
}

impl FromStr for Text {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Text, NameError> {
        if text.len() <= Text::LONGEST && text.bytes().all(|b| (b' '..=b'~').contains(&b)) {
            Ok(Text(text.to_owned()))
        } else {
            Err(NameError::new(
                text,
                "printable ASCII text (512 characters at most)",
            ))
        }
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// An EtherType. Written as `0x88b5`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EtherType(pub u16);

impl FromStr for EtherType {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        text.strip_prefix("0x")
            .filter(|digits| digits.len() == 4 && digits.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|digits| u16::from_str_radix(digits, 16).ok())
            .map(EtherType)
            .ok_or_else(|| NameError::new(text, "an EtherType like 0x88b5"))
    }
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

/// An Ethernet MAC address. Written in lower case with colons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Whether a port can own this address: not multicast or broadcast (IEEE 802.3, lowest bit of
    /// the first octet) and not all zero.
    pub fn is_unicast(self) -> bool {
        self.0[0] & 1 == 0 && self.0 != [0; 6]
    }
}

impl FromStr for Mac {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let error = || NameError::new(text, "a MAC address like 4c:bb:47:4a:eb:e8");
        let mut octets = [0u8; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            let part = parts.next().ok_or_else(error)?;
            if part.len() != 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(error());
            }
            *octet = u8::from_str_radix(part, 16).map_err(|_| error())?;
        }
        if parts.next().is_some() {
            Err(error())
        } else {
            Ok(Mac(octets))
        }
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Digit by digit: most of what a plan says is MACs.
        let mut text = *b"00:00:00:00:00:00";
        for (to, byte) in text.chunks_mut(3).zip(self.0) {
            for (digit, bits) in to.iter_mut().zip([byte >> 4, byte & 15]) {
                *digit = b"0123456789abcdef"[usize::from(bits)];
            }
        }
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

/// A PCI function: `domain:bus:device.function`, as sysfs and devlink name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// PCI domain (segment): 16 bits in the ACPI specification, up to 32 with VMD.
    pub domain: u32,
    /// Bus number.
    pub bus: u8,
    /// Device (slot) number, 0 to 31.
    pub device: u8,
    /// Function number, 0 to 7.
    pub function: u8,
}

impl FromStr for PciAddress {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let error = || NameError::new(text, "a PCI address like 0000:01:00.0");
        let hex = |part: &str, least: usize, most: usize| {
            ((least..=most).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_hexdigit()))
                .then(|| u32::from_str_radix(part, 16).ok())
                .flatten()
                .ok_or_else(error)
        };
        let (domain, rest) = text.split_once(':').ok_or_else(error)?;
        let (bus, rest) = rest.split_once(':').ok_or_else(error)?;
        let (device, function) = rest.split_once('.').ok_or_else(error)?;
        let (device, function) = (hex(device, 2, 2)?, hex(function, 1, 1)?);
        if device > 31 || function > 7 {
            return Err(error());
        }
        Ok(PciAddress {
            domain: hex(domain, 4, 8)?,
            bus: hex(bus, 2, 2)? as u8,
            device: device as u8,
            function: function as u8,
        })
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:04x}:{:02x}:{:02x}.{:x}",
            self.domain, self.bus, self.device, self.function
        )
    }
}

/// An IPv4 address with the length of its prefix (0 to 32), as in `10.10.0.10/24`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr {
    /// The address of the interface itself.
    pub address: Ipv4Addr,
    /// Bits of the address that name the network.
    pub prefix: u8,
}

impl Cidr {
    /// The network that the address is in: the address with all host bits zero.
    pub fn network(self) -> Cidr {
        let mask = u32::MAX
            .checked_shl(32 - u32::from(self.prefix))
            .unwrap_or(0);
        Cidr {
            address: Ipv4Addr::from(u32::from(self.address) & mask),
            prefix: self.prefix,
        }
    }

    /// The highest address of the network; the broadcast address where the prefix has one.
    pub fn last(self) -> Ipv4Addr {
        let host_bits = u32::MAX.checked_shr(u32::from(self.prefix)).unwrap_or(0);
        Ipv4Addr::from(u32::from(self.address) | host_bits)
    }

    /// Whether `other` lies in this network.
    pub fn contains(self, other: Ipv4Addr) -> bool {
        Cidr {
            address: other,
            prefix: self.prefix,
        }
        .network()
            == self.network()
    }

    /// Why no port can have this address, or `None` when it can: it must be unicast and, below
    /// /31 (RFC 3021), neither the network nor the broadcast address of its subnet.
    pub fn unusable(self) -> Option<&'static str> {
        let a = self.address;
        if a.is_unspecified() || a.octets()[0] == 0 {
            Some("in 0.0.0.0/8 (\"this network\")")
        } else if a.is_loopback() {
            Some("a loopback address")
        } else if a.is_multicast() {
            Some("a multicast address")
        } else if a.octets()[0] >= 240 {
            Some("in 240.0.0.0/4 (reserved or broadcast)")
        } else if self.prefix < 31 && a == self.network().address {
            Some("the network address of its subnet")
        } else if self.prefix < 31 && a == self.last() {
            Some("the broadcast address of its subnet")
        } else {
            None
        }
    }
}

impl FromStr for Cidr {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let error = || NameError::new(text, "an IPv4 address with prefix like 10.10.0.10/24");
        let (address, prefix) = text.split_once('/').ok_or_else(error)?;
        if prefix.is_empty() || prefix.len() > 2 || !prefix.bytes().all(|b| b.is_ascii_digit()) {
            return Err(error());
        }
        let prefix = prefix.parse().map_err(|_| error())?;
        if prefix > 32 {
            return Err(error());
        }
        Ok(Cidr {
            address: address.parse().map_err(|_| error())?,
            prefix,
        })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// A GID of a port's table: 128 bits, written as eight full groups like sysfs does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The empty slot of a GID table.
    pub const ZERO: Gid = Gid([0; 16]);

    /// The RoCE v2 GID of an IPv4 address: its IPv4-mapped IPv6 form (RFC 4291, 2.5.5.2; IBTA
    /// annex A17).
    pub fn ipv4_mapped(address: Ipv4Addr) -> Gid {
        Gid(address.to_ipv6_mapped().octets())
    }

    /// The IPv4 address that this GID maps, if it maps one.
    pub fn ipv4(self) -> Option<Ipv4Addr> {
        std::net::Ipv6Addr::from(self.0).to_ipv4_mapped()
    }
}

impl FromStr for Gid {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let error = || {
            NameError::new(
                text,
                "a GID of eight groups like 0000:0000:0000:0000:0000:ffff:0a0a:000a",
            )
        };
        // sysfs writes full groups; iproute2 and people write the short forms of RFC 5952.
        text.parse::<std::net::Ipv6Addr>()
            .map(|a| Gid(a.octets()))
            .map_err(|_| error())
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, pair) in self.0.chunks_exact(2).enumerate() {
            if i > 0 {
                f.write_str(":")?;
            }
            write!(f, "{:02x}{:02x}", pair[0], pair[1])?;
        }
        Ok(())
    }
}

macro_rules! serialize_as_text {
    ($($name:ident),*) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}
serialize_as_text!(EtherType, Mac, PciAddress, Cidr, Gid);

/// PCI domain and function of a port: where it stands in its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// PCI domain as the machine numbers it (0 and 2 on a DGX Spark), not yet 0 or 1.
    pub pci_domain: u32,
    /// PCI function number, which is the number of the QSFP port on these cards.
    pub function: u8,
}

impl Place {
    /// From a PCI address.
    pub fn of_pci(pci: PciAddress) -> Place {
        Place {
            pci_domain: pci.domain,
            function: pci.function,
        }
    }

    /// From a predictable network device name `en[P<domain>]p<bus>s<slot>f<function>…`
    /// (systemd.net-naming-scheme(7)), or `None` for any other name.
    ///
    /// Function 0 of a multi-function device carries `f0` in that scheme; a name without `f` does
    /// not say which port it is and is not taken.
    pub fn of_netdev(name: &NetdevName) -> Option<Place> {
        fn number(text: &str, letter: char) -> Option<(u32, &str)> {
            let rest = text.strip_prefix(letter)?;
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            Some((rest[..digits].parse().ok()?, &rest[digits..]))
        }
        let rest = name.as_str().strip_prefix("en")?;
        let (pci_domain, rest) = number(rest, 'P').unwrap_or((0, rest));
        let (_bus, rest) = number(rest, 'p')?;
        let (_slot, rest) = number(rest, 's')?;
        let (function, rest) = number(rest, 'f')?;
        // What may follow is the port name that the driver gives ("np0") or nothing.
        (rest.is_empty() || rest.starts_with(['n', 'd'])).then_some(())?;
        Some(Place {
            pci_domain,
            function: u8::try_from(function).ok().filter(|f| *f < 8)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_path_is_one_word_of_any_shell() {
        for good in ["/opt/nccl", "/opt/nccl/libnccl.so.2.30.7", "/a-b_c"] {
            assert_eq!(good.parse::<PlainPath>().unwrap().as_str(), good);
        }
        for bad in [
            "", "nccl", "-rf", "/a b", "/a;b", "/a'b", "/$(id)", "/a/../b", "/..", "/a\nb",
            "/\u{e4}",
        ] {
            assert!(bad.parse::<PlainPath>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn names_that_could_be_an_option_a_path_or_a_shell_word_are_refused() {
        for bad in [
            "",
            "-oProxyCommand=x",
            ".",
            "..",
            "a/b",
            "a b",
            "a;b",
            "$(x)",
            "a\n",
            "ä",
            "a\0b",
            "_a",
        ] {
            assert!(bad.parse::<HostName>().is_err(), "{bad:?}");
            assert!(bad.parse::<NetdevName>().is_err(), "{bad:?}");
            assert!(bad.parse::<RdmaName>().is_err(), "{bad:?}");
        }
        assert!("a".repeat(128).parse::<HostName>().is_ok());
        assert!("a".repeat(129).parse::<HostName>().is_err());
        assert!("enP2p1s0f1np1".parse::<NetdevName>().is_ok());
        assert!("a234567890123456".parse::<NetdevName>().is_err());
        assert!("user@host".parse::<HostName>().is_err());
    }

    #[test]
    fn text_of_any_bytes_is_printable_and_reads_back() {
        for bytes in [
            &b""[..],
            b"ib_write_lat",
            b"a\x1b[31mb\0\xff",
            &[b'x'; 600],
            &[0xff; 600],
        ] {
            let text = Text::from_bytes(bytes);
            assert_eq!(
                text.as_str().parse::<Text>().as_ref(),
                Ok(&text),
                "{bytes:?}"
            );
        }
        assert_eq!(Text::from_bytes(b"a\x1b").as_str(), "a\\x1b");
        assert!("a\nb".parse::<Text>().is_err());
    }

    #[test]
    fn an_ethertype_is_written_with_four_hex_digits() {
        assert_eq!("0x88B5".parse::<EtherType>().unwrap().to_string(), "0x88b5");
        assert_eq!(EtherType(0x800).to_string(), "0x0800");
        for bad in ["", "88b5", "0x8b5", "0x+8b5", "0x088b5"] {
            assert!(bad.parse::<EtherType>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_mac_is_six_pairs_of_hex_digits() {
        assert_eq!(
            "4C:bb:47:4a:eb:e8".parse::<Mac>().unwrap().to_string(),
            "4c:bb:47:4a:eb:e8"
        );
        for bad in [
            "",
            "4c:bb:47:4a:eb",
            "4c:bb:47:4a:eb:e8:00",
            "4c:bb:47:4a:eb:+8",
            "4c-bb-47-4a-eb-e8",
            "4cbb:47:4a:eb:e8",
        ] {
            assert!(bad.parse::<Mac>().is_err(), "{bad:?}");
        }
        assert!(!"01:00:5e:00:00:01".parse::<Mac>().unwrap().is_unicast());
        assert!(!"ff:ff:ff:ff:ff:ff".parse::<Mac>().unwrap().is_unicast());
        assert!(!"00:00:00:00:00:00".parse::<Mac>().unwrap().is_unicast());
    }

    #[test]
    fn a_pci_address_reads_back_as_sysfs_writes_it() {
        for text in ["0000:01:00.0", "0002:01:1f.7", "10000:e1:00.0"] {
            assert_eq!(text.parse::<PciAddress>().unwrap().to_string(), text);
        }
        for bad in [
            "01:00.0",
            "0000:01:20.0",
            "0000:01:00.8",
            "0000:1:00.0",
            "0000:01:00",
            "000g:01:00.0",
            "../../x",
        ] {
            assert!(bad.parse::<PciAddress>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn networks_of_every_prefix_length() {
        let cidr = |t: &str| t.parse::<Cidr>().unwrap();
        assert_eq!(cidr("10.10.0.10/24").network(), cidr("10.10.0.0/24"));
        assert_eq!(cidr("10.10.0.6/30").network(), cidr("10.10.0.4/30"));
        assert_eq!(cidr("10.10.0.5/31").network(), cidr("10.10.0.4/31"));
        assert_eq!(cidr("10.10.0.5/32").network(), cidr("10.10.0.5/32"));
        assert_eq!(cidr("10.10.0.5/0").network(), cidr("0.0.0.0/0"));
        assert_eq!(cidr("10.10.0.5/0").last(), Ipv4Addr::BROADCAST);
        assert_eq!(cidr("10.10.0.5/32").last(), Ipv4Addr::new(10, 10, 0, 5));
        for bad in [
            "10.10.0.1",
            "10.10.0.1/33",
            "10.10.0.1/",
            "10.10.0.1/+4",
            "10.10.0.256/24",
            "10.10.0.1/024",
            "::1/24",
        ] {
            assert!(bad.parse::<Cidr>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn network_and_broadcast_addresses_are_unusable_below_a_31_bit_prefix_only() {
        let why = |t: &str| t.parse::<Cidr>().unwrap().unusable();
        assert!(why("10.10.0.0/24").is_some() && why("10.10.0.255/24").is_some());
        assert!(why("10.10.0.0/31").is_none() && why("10.10.0.1/31").is_none());
        assert!(
            why("127.0.0.1/24").is_some()
                && why("224.0.0.1/24").is_some()
                && why("0.0.0.0/24").is_some()
        );
        assert!(why("10.10.0.10/24").is_none());
    }

    #[test]
    fn the_gid_of_an_address_is_its_ipv4_mapped_form() {
        let gid = Gid::ipv4_mapped(Ipv4Addr::new(10, 10, 3, 11));
        assert_eq!(gid.to_string(), "0000:0000:0000:0000:0000:ffff:0a0a:030b");
        assert_eq!(gid.to_string().parse::<Gid>().unwrap(), gid);
        assert_eq!(gid.ipv4(), Some(Ipv4Addr::new(10, 10, 3, 11)));
        assert_eq!("fe80::1".parse::<Gid>().unwrap().ipv4(), None);
    }

    #[test]
    fn place_from_predictable_names_only() {
        let place =
            |n: &str| Place::of_netdev(&n.parse().unwrap()).map(|p| (p.pci_domain, p.function));
        assert_eq!(place("enp1s0f0np0"), Some((0, 0)));
        assert_eq!(place("enP2p1s0f1np1"), Some((2, 1)));
        assert_eq!(place("enp1s0f1"), Some((0, 1)));
        for other in [
            "eth0",
            "enp1s0",
            "enp1s0np0",
            "ens1f0",
            "enP2p1s0f8",
            "enp1s0f0x",
            "en",
            "enPp1s0f0",
            "enp1s0f0v3",
        ] {
            assert_eq!(place(other), None, "{other}");
        }
    }
}
