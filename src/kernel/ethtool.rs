//! The ethtool family of generic netlink: features of a network device.

use crate::kernel::attr::{Attrs, Malformed, Writer};
use crate::kernel::generic::Generic;
use crate::kernel::netlink::Error;
use crate::names::NetdevName;

/// `linux/ethtool_netlink.h`
const VERSION: u8 = 1;
const MSG_FEATURES_GET: u8 = 11;
const MSG_FEATURES_SET: u8 = 12;
const HEADER_DEV_NAME: u16 = 2;
const FEATURES_HEADER: u16 = 1;
const FEATURES_HW: u16 = 2;
const FEATURES_WANTED: u16 = 3;
const FEATURES_ACTIVE: u16 = 4;
const FEATURES_NOCHANGE: u16 = 5;
const BITSET_NOMASK: u16 = 1;
const BITSET_BITS: u16 = 3;
const BITSET_BITS_BIT: u16 = 1;
const BIT_NAME: u16 = 2;
const BIT_VALUE: u16 = 3;

/// The feature that lets the driver take tc rules into hardware.
pub const HW_TC_OFFLOAD: &str = "hw-tc-offload";

/// A feature of a network device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feature {
    /// Whether it is on.
    pub active: bool,
    /// Whether it cannot be changed.
    pub fixed: bool,
}

/// A socket for the ethtool family.
pub struct Ethtool(Generic);

impl Ethtool {
    /// Opens it in the calling thread's network namespace.
    pub fn open() -> Result<Ethtool, Error> {
        Generic::open("ethtool", VERSION).map(Ethtool)
    }

    /// The feature `name` of `device`.
    pub fn feature(&mut self, device: &NetdevName, name: &str) -> Result<Feature, Error> {
        let mut attrs = Writer::default();
        attrs.nest(FEATURES_HEADER, |header| {
            header.text(HEADER_DEV_NAME, device.as_str())
        });
        let answer = self.0.request(MSG_FEATURES_GET, &attrs)?;
        Ok(feature(&answer.attrs()?, name)?)
    }

    /// Switches the feature `name` of `device`, and gives whether the kernel did so: it answers a wish
    /// that it did not fulfil with a success that says so.
    pub fn set_feature(
        &mut self,
        device: &NetdevName,
        name: &str,
        on: bool,
    ) -> Result<bool, Error> {
        let answer = self
            .0
            .request(MSG_FEATURES_SET, &set_feature(device, name, on))?;
        Ok(fulfilled(&answer.attrs()?, name)?)
    }
}

/// `ethtool -K DEVICE NAME on|off`
fn set_feature(device: &NetdevName, name: &str, on: bool) -> Writer {
    let mut attrs = Writer::default();
    attrs.nest(FEATURES_HEADER, |header| {
        header.text(HEADER_DEV_NAME, device.as_str());
    });
    attrs.nest(FEATURES_WANTED, |wanted| {
        wanted.nest(BITSET_BITS, |bits| {
            bits.nest(BITSET_BITS_BIT, |bit| {
                bit.text(BIT_NAME, name);
                if on {
                    bit.put(BIT_VALUE, &[]);
                }
            });
        });
    });
    attrs
}

/// Whether the answer to a wish says that it is fulfilled: its set of wishes lists those that the
/// features in force differ from (Documentation/networking/ethtool-netlink.rst, FEATURES_SET).
fn fulfilled(attrs: &Attrs, name: &str) -> Result<bool, Malformed> {
    let wishes = attrs.nested(FEATURES_WANTED)?;
    for bit in wishes.nested(BITSET_BITS)?.all(BITSET_BITS_BIT) {
        if bit.nested()?.need(BIT_NAME)?.text() == name {
            return Ok(false);
        }
    }
    Ok(true)
}

/// As `ethtool -k` has it: fixed is what is not changeable (`hw`) or never changes (`nochange`).
fn feature(attrs: &Attrs, name: &str) -> Result<Feature, Malformed> {
    let active = in_set(attrs, FEATURES_ACTIVE, name)?;
    let changeable = in_set(attrs, FEATURES_HW, name)?;
    let never = in_set(attrs, FEATURES_NOCHANGE, name)?;
    Ok(Feature {
        active,
        fixed: !changeable || never,
    })
}

/// Whether the bit called `name` is set in the bit set of type `kind`.
///
/// A bit set without a mask lists the bits that are set; one with a mask lists all that it speaks
/// of and flags those that are set.
fn in_set(attrs: &Attrs, kind: u16, name: &str) -> Result<bool, Malformed> {
    let set = attrs.need(kind)?.nested()?;
    let listed_is_set = set.get(BITSET_NOMASK).is_some();
    for bit in set.nested(BITSET_BITS)?.all(BITSET_BITS_BIT) {
        let bit = bit.nested()?;
        if bit.need(BIT_NAME)?.text() == name {
            return Ok(listed_is_set || bit.get(BIT_VALUE).is_some());
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::captured;
    use crate::kernel::generic::GenericMessage;

    #[test]
    fn features_of_a_real_kernel_read_as_ethtool_shows_them() {
        let bytes = &captured(include_str!("../../tests/captured/ethtool-features.hex"))[0];
        let message = GenericMessage::parse(bytes).unwrap();
        let read = |name| feature(&message.attrs().unwrap(), name).unwrap();
        assert_eq!(
            read(HW_TC_OFFLOAD),
            Feature {
                active: true,
                fixed: false
            }
        );
        assert_eq!(
            read("highdma"),
            Feature {
                active: false,
                fixed: true
            }
        );
        assert_eq!(
            read("tx-nocache-copy"),
            Feature {
                active: false,
                fixed: false
            }
        );
    }

    #[test]
    fn a_feature_is_switched_as_ethtool_switches_it() {
        // ethtool -K enp1s0f0np0 hw-tc-offload on: what ethtool 6.14 sends, seen with strace, but for the flag
        // ETHTOOL_FLAG_COMPACT_BITSETS in its header (the answer is to have names).
        let wanted = [
            "14000180",                                 // header
            "10000200656e7031733066306e703000",         // device: enp1s0f0np0
            "24000380",                                 // wanted features
            "20000380",                                 // bits
            "1c000180",                                 // a bit
            "1200020068772d74632d6f66666c6f6164000000", // its name: hw-tc-offload
            "04000300",                                 // its value: on
        ];
        let device = "enp1s0f0np0".parse().unwrap();
        let attrs = set_feature(&device, HW_TC_OFFLOAD, true);
        assert_eq!(attrs.bytes(), captured(&wanted.concat()).concat());
        let off = set_feature(&device, HW_TC_OFFLOAD, false);
        assert_eq!(off.bytes().len(), attrs.bytes().len() - 4);
    }

    #[test]
    fn damaged_answers_never_make_it_panic() {
        let bytes = &captured(include_str!("../../tests/captured/ethtool-features.hex"))[0];
        for bytes in crate::kernel::damaged(bytes).take(4000) {
            let Ok(message) = GenericMessage::parse(&bytes) else {
                continue;
            };
            let Ok(attrs) = message.attrs() else { continue };
            let _ = (
                feature(&attrs, HW_TC_OFFLOAD),
                fulfilled(&attrs, HW_TC_OFFLOAD),
            );
        }
    }

    #[test]
    fn a_success_that_lists_the_wish_did_not_fulfil_it() {
        let answer = |name: &str| {
            let mut w = Writer::default();
            w.nest(FEATURES_WANTED, |set| {
                set.nest(BITSET_BITS, |bits| {
                    bits.nest(BITSET_BITS_BIT, |bit| bit.text(BIT_NAME, name));
                });
            });
            fulfilled(&Attrs::parse(w.bytes()).unwrap(), HW_TC_OFFLOAD)
        };
        assert_eq!(answer(HW_TC_OFFLOAD), Ok(false));
        assert_eq!(answer("rx-checksum"), Ok(true));
        assert_eq!(
            fulfilled(&Attrs::parse(&[]).unwrap(), HW_TC_OFFLOAD),
            Ok(true)
        );
    }

    #[test]
    fn a_bit_set_with_a_mask_lists_bits_that_are_off() {
        let mut w = Writer::default();
        for (kind, on) in [
            (FEATURES_ACTIVE, false),
            (FEATURES_HW, true),
            (FEATURES_NOCHANGE, false),
        ] {
            w.nest(kind, |set| {
                set.nest(BITSET_BITS, |bits| {
                    bits.nest(BITSET_BITS_BIT, |bit| {
                        bit.text(BIT_NAME, HW_TC_OFFLOAD);
                        if on {
                            bit.put(BIT_VALUE, &[]);
                        }
                    });
                });
            });
        }
        let attrs = Attrs::parse(w.bytes()).unwrap();
        assert_eq!(
            feature(&attrs, HW_TC_OFFLOAD),
            Ok(Feature {
                active: false,
                fixed: false
            })
        );
    }
}
