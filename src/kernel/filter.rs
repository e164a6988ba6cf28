//! A tc filter from its message, and back.
//!
//! `netlink-packet-route` types the flower keys, the flags, the actions and `mirred`. The words of
//! `pedit`, 64-bit packet counts and the control of other actions are read and written here.

use netlink_packet_core::{DefaultNla, Nla};
use netlink_packet_route::tc::{
    TcAction, TcActionAttribute, TcActionGeneric, TcActionMirrorOption, TcActionOption,
    TcActionType, TcAttribute, TcFilterFlowerOption as Key, TcHandle, TcHeader, TcMessage,
    TcMirror, TcMirrorActionType, TcOption, TcStats2,
};

use crate::facts::{Action, Edit, Filter, Flower, Mirred, Side};
use crate::kernel::attr::{Attrs, Writer};
use crate::kernel::route::{Link, name_of};
use crate::names::{EtherType, Mac, NetdevName, Text};

/// `TCA_CLS_FLAGS_*` (`linux/pkt_cls.h`).
const SKIP_HW: u32 = 1;
const SKIP_SW: u32 = 2;
const IN_HW: u32 = 4;
const NOT_IN_HW: u32 = 8;

/// `TCA_PEDIT_*` (`linux/tc_act/tc_pedit.h`).
const PEDIT_TM: u16 = 1;
const PEDIT_PARMS: u16 = 2;
const PEDIT_PARMS_EX: u16 = 4;
const PEDIT_KEYS_EX: u16 = 5;
const PEDIT_KEY_EX: u16 = 6;
const PEDIT_KEY_EX_HTYPE: u16 = 1;
const PEDIT_KEY_EX_CMD: u16 = 2;
/// Bytes of `struct tc_pedit_sel` before its keys, and of `struct tc_pedit_key`.
const PEDIT_SEL: usize = 24;
const PEDIT_KEY: usize = 24;
/// Flag bit of the type of an attribute that holds others (`linux/netlink.h`).
const NLA_F_NESTED: u16 = 0x8000;
/// Bytes of `action`, `refcnt` and `bindcnt` in `tc_gen`, with which the parameters of every action
/// begin.
const GEN_ACTION: usize = 8;
const GEN_REFCNT: usize = 12;
const GEN_BINDCNT: usize = 16;

/// `TCA_ACT_*` (`linux/pkt_cls.h`), each a `struct nla_bitfield32`: value, selector.
const ACT_FLAGS: u16 = 7;
const ACT_HW_STATS: u16 = 8;
/// `TCA_ACT_FLAGS_SKIP_HW` and `TCA_ACT_FLAGS_SKIP_SW`: the kernel takes them from the filter, and
/// refuses others than the filter's (`tcf_action_init`, net/sched/act_api.c).
const ACT_FLAGS_OF_FILTER: u32 = 2 | 4;

/// Most actions of a filter (`TCA_ACT_MAX_PRIO`, `linux/pkt_cls.h`).
const MOST_ACTIONS: usize = 32;
/// Most words that the `pedit` actions of a filter write: one action counts them in 8 bits, and a
/// filter of this many fits into one attribute.
const MOST_EDITS: usize = 255;

/// `TCA_STATS_PKT64` (`linux/gen_stats.h`): packets as 64 bits. The first belongs to the basic
/// counts, a second to those of the device.
const STATS_PKT64: u16 = 8;

/// Ticks of `struct tcf_t` in a second: `USER_HZ`, 100 on every architecture that Linux still has.
const USER_HZ: u64 = 100;

/// The filter of a message; `None` for the entry without options that stands for a whole
/// preference. `links` gives the names of devices.
pub(super) fn decode(
    message: &TcMessage,
    side: Side,
    links: &[Link],
) -> Result<Option<Filter>, String> {
    let (mut kind, mut options, mut chain) = (None, None, 0);
    for attribute in &message.attributes {
        match attribute {
            TcAttribute::Kind(text) => kind = Some(text.as_str()),
            TcAttribute::Options(list) => options = Some(list),
            TcAttribute::Chain(number) => chain = *number,
            _ => {}
        }
    }
    let Some(options) = options else {
        return Ok(None);
    };
    let kind = kind.ok_or("a filter without a kind")?;
    let handle = message.header.handle;
    // tcm_info: preference in the upper half, protocol in network order in the lower.
    let info = message.header.info;
    Ok(Some(Filter {
        side,
        pref: (info >> 16) as u16,
        protocol: EtherType(u16::from_be(info as u16)),
        chain,
        handle: u32::from(handle.major) << 16 | u32::from(handle.minor),
        kind: kind.into(),
        flower: if kind == "flower" {
            Some(flower(options, links)?)
        } else {
            None
        },
        // For a shared block the index is a magic number, and the parent the block's
        // (`tcf_fill_node`, net/sched/cls_api.c).
        block: (message.header.index as u32 == TcHeader::TCM_IFINDEX_MAGIC_BLOCK)
            .then(|| message.header.parent.into()),
    }))
}

fn flower(options: &[TcOption], links: &[Link]) -> Result<Flower, String> {
    let mut flower = Flower {
        eth_type: None,
        src_mac: None,
        src_mac_mask: None,
        dst_mac: None,
        dst_mac_mask: None,
        other_keys: Vec::new(),
        skip_sw: false,
        skip_hw: false,
        in_hw: false,
        not_in_hw: false,
        in_hw_count: None,
        actions: Vec::new(),
    };
    let mask = |mask: &[u8; 6]| (*mask != [0xff; 6]).then_some(Mac(*mask));
    for option in options {
        let TcOption::Flower(key) = option else {
            continue;
        };
        match key {
            Key::EthType(number) => flower.eth_type = Some(EtherType(*number)),
            Key::EthSrc(mac) => flower.src_mac = Some(Mac(*mac)),
            Key::EthSrcMask(bits) => flower.src_mac_mask = mask(bits),
            Key::EthDst(mac) => flower.dst_mac = Some(Mac(*mac)),
            Key::EthDstMask(bits) => flower.dst_mac_mask = mask(bits),
            Key::Flags(flags) => {
                flower.skip_hw = flags & SKIP_HW != 0;
                flower.skip_sw = flags & SKIP_SW != 0;
                flower.in_hw = flags & IN_HW != 0;
                flower.not_in_hw = flags & NOT_IN_HW != 0;
            }
            Key::InHwCount(count) => flower.in_hw_count = Some(*count),
            Key::Actions(actions) => {
                flower.actions = actions
                    .iter()
                    .map(|a| action(a, links))
                    .collect::<Result<_, _>>()?;
            }
            other => flower.other_keys.push(other.kind()),
        }
    }
    Ok(flower)
}

fn action(action: &TcAction, links: &[Link]) -> Result<Action, String> {
    let mut fact = Action::new("?");
    let mut other = |word: String| {
        fact.other
            .get_or_insert_default()
            .push(word.as_str().into())
    };
    for attribute in &action.attributes {
        match attribute {
            TcActionAttribute::Cookie(bytes) => other(format!("cookie {}", hex(bytes))),
            TcActionAttribute::Other(nla) => {
                let name = match nla.kind() {
                    ACT_FLAGS => "flags",
                    ACT_HW_STATS => "hw_stats",
                    _ => continue,
                };
                let mut value = vec![0; nla.value_len()];
                nla.emit_value(&mut value);
                let mut bits = number(&value, 0).ok_or("an action whose flags are cut short")?;
                if nla.kind() == ACT_FLAGS {
                    bits &= !ACT_FLAGS_OF_FILTER;
                    if bits == 0 {
                        continue;
                    }
                }
                other(format!("{name} {bits}"));
            }
            _ => {}
        }
    }
    for attribute in &action.attributes {
        match attribute {
            TcActionAttribute::Kind(kind) => fact.kind = kind.as_str().into(),
            TcActionAttribute::Stats(stats) => statistics(stats, &mut fact),
            TcActionAttribute::Options(options) => {
                for option in options {
                    match option {
                        TcActionOption::Mirror(TcActionMirrorOption::Parms(parameters)) => {
                            fact.control = Some(control(parameters.generic.action));
                            shared(
                                parameters.generic.refcnt,
                                parameters.generic.bindcnt,
                                &mut fact,
                            );
                            fact.mirred = Some(Mirred {
                                way: way(parameters.eaction),
                                dev: name_of(parameters.ifindex, links),
                            });
                        }
                        TcActionOption::Mirror(TcActionMirrorOption::Tm(times)) => {
                            fact.installed_seconds = Some(times.install / USER_HZ);
                            fact.idle_seconds = Some(times.lastuse / USER_HZ);
                        }
                        TcActionOption::Other(nla) => other_option(nla, &mut fact)?,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Ok(fact)
}

/// An option that the codec does not type: those of `pedit`, and the parameters of other actions.
fn other_option(nla: &impl Nla, fact: &mut Action) -> Result<(), String> {
    let mut value = vec![0; nla.value_len()];
    nla.emit_value(&mut value);
    // The flag bits of an attribute's type say how it is written, not what it is.
    let kind = nla.kind() & 0x3fff;
    if fact.kind.as_str() != "pedit" {
        // Every action numbers its parameters for itself, mostly 2; a `tc_gen` begins them.
        if kind == PEDIT_PARMS && value.len() >= GEN_ACTION + 4 {
            fact.control =
                number(&value, GEN_ACTION).map(|n| control(TcActionType::from(n as i32)));
        }
        return Ok(());
    }
    match kind {
        PEDIT_PARMS | PEDIT_PARMS_EX => {
            fact.control =
                number(&value, GEN_ACTION).map(|n| control(TcActionType::from(n as i32)));
            shared(
                number(&value, GEN_REFCNT).unwrap_or(0) as i32,
                number(&value, GEN_BINDCNT).unwrap_or(0) as i32,
                fact,
            );
            // The kernel gives the extended keys before the words, or after: keep what is there.
            let known = std::mem::take(&mut fact.edits);
            let words = value
                .get(PEDIT_SEL..)
                .unwrap_or(&[])
                .chunks_exact(PEDIT_KEY);
            fact.edits = words
                .enumerate()
                .map(|(i, word)| {
                    let mut edit = known.get(i).cloned().unwrap_or_else(plain_edit);
                    edit.keep = hex(&word[..4]);
                    edit.value = hex(&word[4..8]);
                    edit.offset = number(word, 8).unwrap_or(0);
                    // `at` and `offmask`: the offset is taken from the packet.
                    edit.moving = number(word, 12) != Some(0) || number(word, 16) != Some(0);
                    edit
                })
                .collect();
        }
        PEDIT_KEYS_EX => {
            let attrs =
                Attrs::parse(&value).map_err(|e| format!("the keys of a pedit action: {e}"))?;
            for (i, key) in attrs.all(PEDIT_KEY_EX).enumerate() {
                let key = key
                    .nested()
                    .map_err(|e| format!("a key of a pedit action: {e}"))?;
                let read = |kind| key.get(kind).and_then(|a| a.u16().ok());
                if fact.edits.len() <= i {
                    fact.edits.push(plain_edit());
                }
                fact.edits[i].header = header(read(PEDIT_KEY_EX_HTYPE));
                fact.edits[i].command = match read(PEDIT_KEY_EX_CMD) {
                    Some(0) | None => "set".into(),
                    Some(1) => "add".into(),
                    Some(other) => other.to_string().as_str().into(),
                };
            }
        }
        PEDIT_TM => {
            // struct tcf_t: install, lastuse, expires, firstuse, 64 bits each.
            let ticks = |at: usize| {
                value
                    .get(at..at + 8)?
                    .try_into()
                    .ok()
                    .map(u64::from_ne_bytes)
            };
            fact.installed_seconds = ticks(0).map(|t| t / USER_HZ);
            fact.idle_seconds = ticks(8).map(|t| t / USER_HZ);
        }
        _ => {}
    }
    Ok(())
}

/// An action that was made for its filter has one holder, which is that filter. The counts are 0 in
/// a request.
fn shared(references: i32, filters: i32, fact: &mut Action) {
    if references > 1 || filters > 1 {
        fact.other.get_or_insert_default().push("shared".into());
    }
}

/// A word of a `pedit` without extended keys: from the network header, set.
fn plain_edit() -> Edit {
    Edit {
        header: header(None),
        command: "set".into(),
        offset: 0,
        keep: hex(&[0; 4]),
        value: hex(&[0; 4]),
        moving: false,
    }
}

/// `TCA_PEDIT_KEY_EX_HDR_TYPE_*`
fn header(number: Option<u16>) -> Text {
    match number {
        None | Some(0) => "network".into(),
        Some(1) => "eth".into(),
        Some(2) => "ip4".into(),
        Some(3) => "ip6".into(),
        Some(4) => "tcp".into(),
        Some(5) => "udp".into(),
        Some(other) => other.to_string().as_str().into(),
    }
}

fn hex(bytes: &[u8]) -> Text {
    let text: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    text.as_str().into()
}

/// The 32 bits in host order at byte `at`.
fn number(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..at + 4)?
        .try_into()
        .ok()
        .map(u32::from_ne_bytes)
}

/// `TC_ACT_*` (`linux/pkt_cls.h`), with the words of `tc`.
fn control(action: TcActionType) -> Text {
    match i32::from(action) {
        -1 => "continue".into(),
        0 => "pass".into(),
        1 => "reclassify".into(),
        2 => "drop".into(),
        3 => "pipe".into(),
        4 => "stolen".into(),
        8 => "trap".into(),
        other => other.to_string().as_str().into(),
    }
}

fn way(action: TcMirrorActionType) -> Text {
    match action {
        TcMirrorActionType::EgressRedir => "egress redirect".into(),
        TcMirrorActionType::EgressMirror => "egress mirror".into(),
        TcMirrorActionType::IngressRedir => "ingress redirect".into(),
        TcMirrorActionType::IngressMirror => "ingress mirror".into(),
        other => i32::from(other).to_string().as_str().into(),
    }
}

fn statistics(stats: &[TcStats2], fact: &mut Action) {
    for stat in stats {
        match stat {
            TcStats2::Basic(counts) => {
                fact.bytes = Some(counts.bytes);
                fact.packets = Some(counts.packets.into());
            }
            TcStats2::BasicHw(counts) => {
                fact.hw_bytes = Some(counts.bytes);
                fact.hw_packets = Some(counts.packets.into());
            }
            TcStats2::Other(nla) if nla.kind() == STATS_PKT64 => {
                let mut value = [0; 8];
                if nla.value_len() == value.len() {
                    nla.emit_value(&mut value);
                    let count = u64::from_ne_bytes(value);
                    // It follows the count that it is the long form of.
                    match fact.hw_packets {
                        Some(_) => fact.hw_packets = Some(count),
                        None => fact.packets = Some(count),
                    }
                }
            }
            _ => {}
        }
    }
}

/// The message that adds `filter` to the device with this index; its answer to a dump reads as
/// `filter` again, but for what the kernel counts and decides. `device` gives the index of a device
/// by its name. A reason when the filter has a part that cannot be written.
pub(super) fn encode(
    index: u32,
    filter: &Filter,
    device: impl Fn(&NetdevName) -> Option<u32>,
) -> Result<TcMessage, String> {
    let flower = filter
        .flower
        .as_ref()
        .ok_or_else(|| format!("a {} filter cannot be written, flower alone", filter.kind))?;
    if let Some(block) = filter.block {
        return Err(format!(
            "the filter is in block {block}, which others share"
        ));
    }
    if let Some(key) = flower.other_keys.first() {
        return Err(format!(
            "the filter has the key TCA_FLOWER {key}, which cannot be written"
        ));
    }
    if flower.actions.len() > MOST_ACTIONS {
        return Err(format!(
            "the filter has {} actions, {MOST_ACTIONS} at most can be written",
            flower.actions.len()
        ));
    }
    let edits: usize = flower.actions.iter().map(|a| a.edits.len()).sum();
    if edits > MOST_EDITS {
        return Err(format!(
            "the filter writes {edits} words, {MOST_EDITS} at most can be written"
        ));
    }
    let mut options = Vec::new();
    let mut key = |what,
                   mac: Option<Mac>,
                   mask: Option<Mac>,
                   of: fn([u8; 6], [u8; 6]) -> [Key; 2]| {
        match (mac, mask) {
            (Some(mac), mask) => options.extend(of(mac.0, mask.map_or([0xff; 6], |mask| mask.0))),
            (None, None) => {}
            (None, Some(_)) => {
                return Err(format!(
                    "the filter has a mask of the {what} MAC and no MAC"
                ));
            }
        }
        Ok(())
    };
    key(
        "source",
        flower.src_mac,
        flower.src_mac_mask,
        |mac, mask| [Key::EthSrc(mac), Key::EthSrcMask(mask)],
    )?;
    key(
        "destination",
        flower.dst_mac,
        flower.dst_mac_mask,
        |mac, mask| [Key::EthDst(mac), Key::EthDstMask(mask)],
    )?;
    let mut actions = Vec::new();
    for (position, action) in (1..).zip(&flower.actions) {
        let mut message = TcAction::default();
        message.tab = position;
        message.attributes = vec![
            TcActionAttribute::Kind(action.kind.as_str().to_owned()),
            TcActionAttribute::Options(action_options(action, &device)?),
        ];
        actions.push(message);
    }
    if !actions.is_empty() {
        options.push(Key::Actions(actions));
    }
    let flag = |on, bit| if on { bit } else { 0 };
    options.push(Key::Flags(
        flag(flower.skip_hw, SKIP_HW) | flag(flower.skip_sw, SKIP_SW),
    ));
    options.extend(
        flower
            .eth_type
            .map(|EtherType(number)| Key::EthType(number)),
    );

    let mut message = address(index, filter);
    message.attributes.push(TcAttribute::Options(
        options.into_iter().map(TcOption::Flower).collect(),
    ));
    Ok(message)
}

/// The message that removes `filter` from the device with this index, as `tc` writes it.
pub(super) fn encode_removal(index: u32, filter: &Filter) -> TcMessage {
    let mut message = address(index, filter);
    if filter.kind.as_str() == "flower" {
        let options = [Key::Flags(0), Key::EthType(filter.protocol.0)];
        message.attributes.push(TcAttribute::Options(
            options.into_iter().map(TcOption::Flower).collect(),
        ));
    }
    message
}

/// What names a filter: device, side, preference, protocol, handle, chain, classifier.
fn address(index: u32, filter: &Filter) -> TcMessage {
    let mut message = selection(index, filter.side, filter.pref);
    message.header.handle = filter.handle.into();
    message.header.info |= u32::from(filter.protocol.0.to_be());
    if filter.chain != 0 {
        message.attributes.push(TcAttribute::Chain(filter.chain));
    }
    message
        .attributes
        .push(TcAttribute::Kind(filter.kind.as_str().to_owned()));
    message
}

/// What names the filters on one side of a device; those of one preference, unless it is 0.
pub(super) fn selection(index: u32, side: Side, pref: u16) -> TcMessage {
    let mut message = TcMessage::default();
    // Indices are positive and below 2^31 (`dev_new_index`, net/core/dev.c).
    message.header.index = index as i32;
    message.header.parent = TcHandle {
        major: 0xffff,
        minor: match side {
            Side::Ingress => TcHandle::MIN_INGRESS,
            Side::Egress => TcHandle::MIN_EGRESS,
        },
    };
    message.header.info = u32::from(pref) << 16;
    message
}

fn action_options(
    action: &Action,
    device: &impl Fn(&NetdevName) -> Option<u32>,
) -> Result<Vec<TcActionOption>, String> {
    let kind = action.kind.as_str();
    let cannot = |what: &str| format!("a {kind} action {what}, which cannot be written");
    if let Some(other) = action.other.as_ref().and_then(|all| all.first()) {
        return Err(cannot(&format!("with {other}")));
    }
    let control = action
        .control
        .as_ref()
        .and_then(control_number)
        .ok_or_else(|| cannot("without a control word"))?;
    match (kind, &action.mirred) {
        ("pedit", None) => pedit(action, control),
        ("mirred", Some(mirred)) if action.edits.is_empty() => {
            let dev = mirred
                .dev
                .as_ref()
                .ok_or_else(|| cannot("to a device that is gone"))?;
            let mut parameters = TcMirror::default();
            parameters.generic = TcActionGeneric::default();
            parameters.generic.action = TcActionType::from(control);
            parameters.eaction = (1..=4)
                .map(TcMirrorActionType::from)
                .find(|number| way(*number) == mirred.way)
                .ok_or_else(|| cannot(&format!("of the way {}", mirred.way)))?;
            parameters.ifindex =
                device(dev).ok_or_else(|| format!("the network device {dev} is not there"))?;
            Ok(vec![TcActionOption::Mirror(TcActionMirrorOption::Parms(
                parameters,
            ))])
        }
        ("pedit" | "mirred", _) => Err(cannot("with parts of another kind")),
        _ => Err(format!(
            "a {kind} action cannot be written, pedit and mirred alone"
        )),
    }
}

/// The options of a `pedit` of the extended kind.
fn pedit(action: &Action, control: i32) -> Result<Vec<TcActionOption>, String> {
    // struct tc_pedit_sel: tc_gen (index, capab, action, refcnt, bindcnt), nkeys, flags, padding.
    let mut words = Vec::new();
    for number in [0, 0, control, 0, 0] {
        words.extend(number.to_ne_bytes());
    }
    let count = u8::try_from(action.edits.len()).map_err(|_| "too many words".to_owned())?;
    words.extend([count, 0, 0, 0]);
    let mut keys = Writer::default();
    for edit in &action.edits {
        let cannot = |what: String| format!("a pedit action that {what}, which cannot be written");
        if edit.moving {
            return Err(cannot("takes its offset from the packet".into()));
        }
        // The network header is what a pedit that is not of the extended kind has, too.
        let from = (1..=5)
            .find(|number| header(Some(*number)) == edit.header)
            .ok_or_else(|| cannot(format!("counts from the header {}", edit.header)))?;
        let command = match edit.command.as_str() {
            "set" => 0u16,
            "add" => 1,
            other => return Err(cannot(format!("does {other}"))),
        };
        let bytes = |text: &Text| {
            unhex(text).ok_or_else(|| cannot(format!("has {text} in place of eight hex digits")))
        };
        // struct tc_pedit_key: mask, val, off, at, offmask, shift.
        words.extend(bytes(&edit.keep)?);
        words.extend(bytes(&edit.value)?);
        for number in [edit.offset, 0, 0, 0] {
            words.extend(number.to_ne_bytes());
        }
        keys.nest(PEDIT_KEY_EX, |key| {
            key.put(PEDIT_KEY_EX_HTYPE, &from.to_ne_bytes());
            key.put(PEDIT_KEY_EX_CMD, &command.to_ne_bytes());
        });
    }
    Ok(vec![
        TcActionOption::Other(DefaultNla::new(PEDIT_PARMS_EX, words)),
        TcActionOption::Other(DefaultNla::new(
            PEDIT_KEYS_EX | NLA_F_NESTED,
            keys.bytes().to_vec(),
        )),
    ])
}

/// The number for a control word: the reverse of [`control`].
fn control_number(word: &Text) -> Option<i32> {
    (-1..=8)
        .find(|number| control(TcActionType::from(*number)) == *word)
        .or_else(|| word.as_str().parse().ok())
}

/// The four bytes of eight hex digits: the reverse of [`hex`].
fn unhex(text: &Text) -> Option<[u8; 4]> {
    let text = text.as_str();
    if text.len() != 8 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    u32::from_str_radix(text, 16).ok().map(u32::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::Parseable;

    use super::*;
    use crate::kernel::{captured, damaged};

    fn links() -> Vec<Link> {
        [(8, "enp1s0f0np0"), (9, "enp1s0f1np1")]
            .map(|(index, name)| Link::new(index, name.parse().unwrap()))
            .to_vec()
    }

    fn decoded(bytes: &[u8], links: &[Link]) -> Filter {
        decode(&TcMessage::parse(bytes).unwrap(), Side::Ingress, links)
            .unwrap()
            .unwrap()
    }

    fn edit(offset: u32, keep: &str, value: &str) -> Edit {
        Edit {
            header: "eth".into(),
            command: "set".into(),
            offset,
            keep: keep.into(),
            value: value.into(),
            moving: false,
        }
    }

    #[test]
    fn the_rule_of_a_diagonal_reads_as_tc_shows_it() {
        let bytes = &captured(include_str!("../../tests/captured/flower.hex"))[0];
        let filter = decoded(bytes, &links());
        assert_eq!(
            (filter.pref, filter.handle, filter.chain),
            (49152, 49152, 0)
        );
        assert_eq!(
            (filter.protocol, filter.kind.as_str()),
            (EtherType(0x88b5), "flower")
        );
        let flower = filter.flower.unwrap();
        assert_eq!(flower.eth_type, Some(EtherType(0x88b5)));
        assert_eq!(flower.src_mac.unwrap().to_string(), "aa:bb:cc:00:00:02");
        assert_eq!(flower.dst_mac.unwrap().to_string(), "02:ca:fe:00:01:01");
        assert_eq!((flower.src_mac_mask, flower.dst_mac_mask), (None, None));
        assert!(flower.other_keys.is_empty());
        assert_eq!((flower.skip_sw, flower.skip_hw), (true, false));
        assert_eq!(
            (flower.in_hw, flower.not_in_hw, flower.in_hw_count),
            (true, false, Some(1))
        );
        let kinds: Vec<_> = flower
            .actions
            .iter()
            .map(|a| (a.kind.as_str(), a.control.clone().unwrap()))
            .collect();
        assert_eq!(
            kinds,
            [
                ("pedit", "pipe".into()),
                ("pedit", "pipe".into()),
                ("mirred", "stolen".into())
            ]
        );
        assert_eq!(flower.actions[0].edits, [edit(12, "0000ffff", "08000000")]);
        assert_eq!(
            flower.actions[1].edits,
            [
                edit(0, "00000000", "aabbcc00"),
                edit(4, "0000ffff", "00040000")
            ]
        );
        assert!(flower.actions.iter().all(|action| action.other.is_none()));
        assert_eq!(filter.block, None);
        let mirred = flower.actions[2].mirred.clone().unwrap();
        assert_eq!(
            (mirred.way.as_str(), mirred.dev.unwrap().as_str()),
            ("egress redirect", "enp1s0f0np0")
        );
        assert!(flower.actions[2].installed_seconds.unwrap() > 0);
        assert_eq!(
            (flower.actions[2].packets, flower.actions[2].hw_packets),
            (Some(0), Some(0))
        );
    }

    #[test]
    fn a_redirect_to_a_device_that_is_gone_has_no_device() {
        let bytes = &captured(include_str!("../../tests/captured/flower.hex"))[0];
        let flower = decoded(bytes, &[]).flower.unwrap();
        assert_eq!(flower.actions[2].mirred.clone().unwrap().dev, None);
    }

    /// What `tc` sends to add the rule, captured with `strace` (iproute2 6.1):
    /// `tc filter add dev X ingress protocol 0x88b5 pref 49152 handle 49152 flower skip_sw
    /// src_mac aa:bb:cc:00:00:01 dst_mac aa:bb:cc:00:00:02
    /// action pedit ex munge eth type set 0x0800 pipe
    /// action pedit ex munge eth dst set aa:bb:cc:00:00:03 pipe
    /// action mirred egress redirect dev Y`. There the extended keys follow the words.
    #[test]
    fn the_rule_as_tc_sends_it_reads_the_same() {
        let bytes = &captured(
            "0000000003000000\
             00c00000f2ffffff88b500c00b000100666c6f7765720000680102000a000600aabbcc00000100000a000700ffffffff\
             ffff00000a000400aabbcc00000200000a000500ffffffffffff000024010300600001000a0001007065646974000000\
             50000280340004000000000000000000030000000000000000000000010000000000ffff080000000c00000000000000\
             00000000000000001800058014000680060001000100000006000200000000008c0002000a0001007065646974000000\
             7c0002804c00040000000000000000000300000000000000000000000200000000000000aabbcc000000000000000000\
             00000000000000000000ffff00030000040000000000000000000000000000002c000580140006800600010001000000\
             06000200000000001400068006000100010000000600020000000000340003000b0001006d6972726564000024000280\
             200002000000000000000000040000000000000000000000010000000500000008001600020000000600080088b50000",
        )[0];
        let filter = decoded(bytes, &[]);
        assert_eq!(
            (filter.pref, filter.handle, filter.protocol),
            (49152, 49152, EtherType(0x88b5))
        );
        let flower = filter.flower.unwrap();
        assert_eq!(flower.actions[0].edits, [edit(12, "0000ffff", "08000000")]);
        assert_eq!(
            flower.actions[1].edits,
            [
                edit(0, "00000000", "aabbcc00"),
                edit(4, "0000ffff", "00030000")
            ]
        );
        assert_eq!(
            (flower.skip_sw, flower.in_hw, flower.in_hw_count),
            (true, false, None)
        );
    }

    #[test]
    fn a_cut_or_changed_rule_is_an_error_or_another_rule_never_a_panic() {
        let bytes = &captured(include_str!("../../tests/captured/flower.hex"))[0];
        for bytes in damaged(bytes) {
            if let Ok(message) = TcMessage::parse(bytes.as_slice()) {
                let _ = decode(&message, Side::Ingress, &[]);
            }
        }
    }
}
