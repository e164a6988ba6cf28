//! The rule, to the byte. Layouts: `linux/mlx5/mlx5_ifc.h`, in which bit 0 is the highest of byte 0.

use std::net::Ipv4Addr;

use crate::names::EtherType;
use crate::verbs::{COMMAND_SIZE, MATCH_SIZE, RuleBytes};

/// `udp_sport` of `fte_match_set_lyr_2_4`, which begins the match as its outer headers: bit 0xe0.
const UDP_SPORT: usize = 0xe0 / 8;
/// The byte with `ip_version`: bit 0x93, four bits of it, behind `cvlan_tag`, `svlan_tag` and `frag`.
const IP_VERSION: usize = 0x90 / 8;
/// The bits of `ip_version` in that byte.
const IP_VERSION_MASK: u8 = 0b0001_1110;
/// Version 4 in those bits.
const IP_VERSION_4: u8 = 4 << 1;
/// `dst_ipv4_dst_ipv6.ipv4_layout.ipv4`: the last four of the sixteen bytes at bit 0x180.
const DESTINATION: usize = 0x180 / 8 + 12;

/// `MLX5_ACTION_TYPE_SET` (`linux/mlx5/mlx5_ifc.h`), the four highest bits of the command.
const ACTION_SET: u32 = 1 << 28;
/// `MLX5_ACTION_IN_FIELD_OUT_ETHERTYPE`, the twelve bits below.
const FIELD_OUT_ETHERTYPE: u32 = 3 << 16;
/// How many bits are set: those of an EtherType.
const LENGTH: u32 = 16;

/// Which packets are tagged, and with what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rewrite {
    /// UDP source port of the packets.
    pub source_port: u16,
    /// EtherType that they leave with.
    pub ethertype: EtherType,
    /// Only those to this address. Experimental: it was tried on no NIC.
    pub destination: Option<Ipv4Addr>,
}

impl Rewrite {
    /// The rule as libmlx5 takes it.
    pub fn bytes(&self) -> RuleBytes {
        let (mut mask, mut value) = ([0; MATCH_SIZE], [0; MATCH_SIZE]);
        let mut put = |at: usize, bits: &[u8], is: &[u8]| {
            mask[at..at + bits.len()].copy_from_slice(bits);
            value[at..at + is.len()].copy_from_slice(is);
        };
        put(UDP_SPORT, &[0xff; 2], &self.source_port.to_be_bytes());
        if let Some(destination) = self.destination {
            // Steering takes an address only beside the version that says what it is.
            put(IP_VERSION, &[IP_VERSION_MASK], &[IP_VERSION_4]);
            put(DESTINATION, &[0xff; 4], &destination.octets());
        }
        let mut command = [0; COMMAND_SIZE];
        let set = ACTION_SET | FIELD_OUT_ETHERTYPE | LENGTH;
        command[..4].copy_from_slice(&set.to_be_bytes());
        command[4..].copy_from_slice(&u32::from(self.ethertype.0).to_be_bytes());
        RuleBytes {
            mask,
            value,
            command,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::mesh::{MARKED_ETHERTYPE, MARKED_UDP_SOURCE_PORT};

    fn of_the_mesh(destination: Option<Ipv4Addr>) -> RuleBytes {
        Rewrite {
            source_port: MARKED_UDP_SOURCE_PORT,
            ethertype: EtherType(MARKED_ETHERTYPE),
            destination,
        }
        .bytes()
    }

    /// The bytes that are not zero: place and value.
    fn set(bytes: &[u8]) -> Vec<(usize, u8)> {
        let bytes = bytes.iter().copied().enumerate();
        bytes.filter(|(_, byte)| *byte != 0).collect()
    }

    #[test]
    fn the_marker_matches_the_udp_source_port_and_sets_the_ethertype_and_nothing_else() {
        let rule = of_the_mesh(None);
        assert_eq!(rule.mask.len(), 384);
        assert_eq!(set(&rule.mask), [(28, 0xff), (29, 0xff)]);
        assert_eq!(set(&rule.value), [(28, 0xff), (29, 0xff)]);
        assert_eq!(rule.command, [0x10, 0x03, 0, 0x10, 0, 0, 0x88, 0xb5]);
    }

    #[test]
    fn ports_and_ethertypes_are_in_network_order() {
        let rule = Rewrite {
            source_port: 0xc001,
            ethertype: EtherType(0x1234),
            destination: None,
        }
        .bytes();
        assert_eq!(set(&rule.mask), [(28, 0xff), (29, 0xff)]);
        assert_eq!(set(&rule.value), [(28, 0xc0), (29, 0x01)]);
        assert_eq!(rule.command, [0x10, 0x03, 0, 0x10, 0, 0, 0x12, 0x34]);
    }

    #[test]
    fn a_destination_narrows_the_match_by_ip_version_and_address() {
        let rule = of_the_mesh(Some(Ipv4Addr::new(10, 20, 3, 10)));
        let mut mask = vec![(18, 0x1e), (28, 0xff), (29, 0xff)];
        mask.extend((60..64).map(|at| (at, 0xff)));
        assert_eq!(set(&rule.mask), mask);
        assert_eq!(
            set(&rule.value),
            [
                (18, 8),
                (28, 0xff),
                (29, 0xff),
                (60, 10),
                (61, 20),
                (62, 3),
                (63, 10)
            ]
        );
        assert_eq!(rule.command, of_the_mesh(None).command);
    }
}
