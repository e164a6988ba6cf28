//! Facts that can be shown to others: what identifies a site is replaced, the same by the same, so
//! that a diagnosis still works on what is left.
//!
//! | replaced | by | what survives |
//! |---|---|---|
//! | host names | `host1`, `host2` … | which is which |
//! | MAC addresses, also inside fe80 GIDs, GUIDs made of them and `enx…` names | other local MACs | equality, multicast bit, all-zero |
//! | IPv4 addresses, also inside mapped GIDs | other addresses | common prefixes of every length, private ranges, the last octet |
//! | IPv6 addresses | other addresses | common /64s, link-local |
//! | GUIDs, UUIDs | other ones | equality |
//! | command lines and process names, folders of paths, names of netplan files | `command1` … | equality |
//!
//! Names of network and RDMA devices stay: they say where a port sits, not whose it is. The
//! replacement is keyed by chance, anew in every run.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::json::Value;
use crate::names::Mac;

/// Keys whose whole value is a host's name.
const HOST_KEYS: [&str; 4] = ["host", "hostname", "nodename", "node_desc"];
/// The key whose value is a command line.
const COMMAND_LINE: &str = "command_line";
/// The key whose value is the name of a process, beside a `pid`; of a kernel module, without.
const OWNER: &str = "owner";
/// The key whose value is the path of a file: its folder may have a user's name in it.
const PATH: &str = "path";
/// The key whose value is the name of a file of netplan, which may have the UUID of a connection in it.
const NETPLAN_FILE: &str = "file";
/// How NetworkManager's own files of netplan begin, which says whose they are.
const NETWORK_MANAGER: &str = "90-NM-";

/// Replaces, consistently over all documents that it is given.
pub struct Redactor {
    key: RandomState,
    hosts: HashMap<String, String>,
    host_count: usize,
    commands: HashMap<String, String>,
    macs: HashMap<[u8; 6], [u8; 6]>,
}

impl Redactor {
    /// Starts with the hosts of the documents to come, which become `host1`, `host2` …
    pub fn new(hosts: &[&str]) -> Redactor {
        let mut redactor = Redactor {
            key: RandomState::new(),
            hosts: HashMap::new(),
            host_count: 0,
            commands: HashMap::new(),
            macs: HashMap::new(),
        };
        for host in hosts {
            redactor.host(host);
        }
        redactor
    }

    /// What a host is called in the redacted documents.
    pub fn host(&mut self, name: &str) -> String {
        if let Some(known) = self.hosts.get(name) {
            return known.clone();
        }
        // `spark1.example.org` and `spark1` are one host.
        let short = name.split('.').next().unwrap_or(name);
        let new = match self.hosts.get(short) {
            Some(known) => known.clone(),
            None => {
                self.host_count += 1;
                format!("host{}", self.host_count)
            }
        };
        self.hosts.insert(name.to_owned(), new.clone());
        self.hosts
            .entry(short.to_owned())
            .or_insert_with(|| new.clone());
        new
    }

    /// Replaces in a whole document.
    pub fn redact(&mut self, document: &mut Value) {
        self.learn(document);
        self.walk("", document);
    }

    /// Learns the hosts that the document names, whatever their place in it.
    fn learn(&mut self, value: &Value) {
        match value {
            Value::Object(entries) => {
                for (key, value) in entries {
                    match value {
                        Value::Text(name)
                            if HOST_KEYS[..3].contains(&&**key) && !name.is_empty() =>
                        {
                            self.host(name);
                        }
                        value => self.learn(value),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.learn(item)),
            _ => {}
        }
    }

    fn walk(&mut self, key: &str, value: &mut Value) {
        match value {
            Value::Text(text) => *text = self.text(key, text).into(),
            Value::Array(items) => items.iter_mut().for_each(|item| self.walk(key, item)),
            Value::Object(entries) => {
                let of_a_process = entries
                    .iter()
                    .any(|(key, value)| key == "pid" && *value != Value::Null);
                for (key, value) in entries {
                    match value {
                        Value::Text(text)
                            if key == COMMAND_LINE || (key == OWNER && of_a_process) =>
                        {
                            *text = self.command(text).into();
                        }
                        Value::Text(text) if key == PATH => *text = self.path(text).into(),
                        Value::Text(text) if key == NETPLAN_FILE => {
                            *text = self.netplan(text).into();
                        }
                        Value::Array(edits) if key == "edits" => self.edits(edits),
                        value => self.walk(key, value),
                    }
                    *key = self.text("", key).into();
                }
            }
            Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) => {}
        }
    }

    fn text(&mut self, key: &str, text: &str) -> String {
        // The bits of an address that a filter looks at are no address.
        if key.ends_with("_mask") {
            return text.to_owned();
        }
        // A host may be called like a state or a driver: alone in a field, a word is a host's name
        // only where such a name belongs.
        if self.hosts.contains_key(text) && !HOST_KEYS.contains(&key) {
            return text.to_owned();
        }
        let mut out = String::new();
        let mut rest = text;
        while !rest.is_empty() {
            let is_word = |c: char| c.is_alphanumeric() || ":.-_".contains(c);
            let end = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
            let (word, tail) = rest.split_at(end);
            out.push_str(&self.word(word));
            let gap = tail.find(is_word).unwrap_or(tail.len());
            out.push_str(&tail[..gap]);
            rest = &tail[gap..];
        }
        out
    }

    fn command(&mut self, text: &str) -> String {
        if text.is_empty() {
            return String::new();
        }
        let next = format!("command{}", self.commands.len() + 1);
        self.commands.entry(text.to_owned()).or_insert(next).clone()
    }

    /// A path with another folder; the file's own name says what it is.
    fn path(&mut self, text: &str) -> String {
        match text.rsplit_once('/') {
            Some((folder, file)) => format!("/{}/{file}", self.command(folder).trim_matches('/')),
            None => text.to_owned(),
        }
    }

    fn netplan(&mut self, text: &str) -> String {
        let start = if text.starts_with(NETWORK_MANAGER) {
            NETWORK_MANAGER
        } else {
            ""
        };
        format!("{start}{}.yaml", self.command(text))
    }

    /// The words that a `pedit` action writes: a MAC or an IPv4 address in them follows the others
    /// of its kind, what may be part of one is replaced by chance.
    fn edits(&mut self, edits: &mut [Value]) {
        /// Header, offset, kept bits and written bits of an edit.
        fn parts<'a>(edit: &'a Value) -> Option<(&'a str, u32, u32, u32)> {
            let Value::Object(entries) = edit else {
                return None;
            };
            let get = |key: &str| entries.iter().find(|(k, _)| k == key).map(|(_, v)| v);
            let hex = |key: &str| match get(key) {
                Some(Value::Text(text)) => u32::from_str_radix(text, 16).ok(),
                _ => None,
            };
            match (get("header"), get("offset")) {
                (Some(Value::Text(header)), Some(Value::Integer(offset))) => Some((
                    header,
                    u32::try_from(*offset).ok()?,
                    hex("keep")?,
                    hex("value")?,
                )),
                _ => None,
            }
        }
        // The Ethernet header begins with both MACs: which of their bytes are written, and with what.
        let mut header: [Option<u8>; 12] = [None; 12];
        for (name, offset, keep, value) in edits.iter().filter_map(parts) {
            for (i, (keep, value)) in keep
                .to_be_bytes()
                .into_iter()
                .zip(value.to_be_bytes())
                .enumerate()
            {
                let written = name == "eth" && keep == 0;
                if let Some(byte) = header.get_mut(offset as usize + i).filter(|_| written) {
                    *byte = Some(value);
                }
            }
        }
        for mac in header.chunks_exact_mut(6) {
            let whole: Option<Vec<u8>> = mac.iter().copied().collect();
            match whole.and_then(|m| <[u8; 6]>::try_from(m).ok()) {
                Some(whole) => mac.copy_from_slice(&self.mac(whole).map(Some)),
                None => mac.fill(None),
            }
        }
        for edit in edits {
            let new = match parts(edit) {
                Some(("eth", offset, keep, value)) if offset < 12 => {
                    let mut bytes = value.to_be_bytes();
                    for (i, byte) in bytes.iter_mut().enumerate() {
                        let new = header.get(offset as usize + i).copied().flatten();
                        *byte = new.filter(|_| keep.to_be_bytes()[i] == 0).unwrap_or(*byte);
                    }
                    let all_known = (0..4).all(|i| {
                        keep.to_be_bytes()[i] == 0xff
                            || header.get(offset as usize + i).is_some_and(Option::is_some)
                    });
                    if all_known {
                        u32::from_be_bytes(bytes)
                    } else {
                        self.hash(&("edit", value)) as u32 & !keep
                    }
                }
                Some(("eth", ..)) => continue,
                // Source and destination address of an IPv4 header (RFC 791).
                Some(("ip4", 12 | 16, 0, value)) => u32::from(self.ipv4(Ipv4Addr::from(value))),
                Some((_, _, keep, value)) => self.hash(&("edit", value)) as u32 & !keep,
                None => continue,
            };
            if let Value::Object(entries) = edit {
                for (_, value) in entries.iter_mut().filter(|(key, _)| key == "value") {
                    *value = Value::Text(format!("{new:08x}").into());
                }
            }
        }
    }

    /// A word: an identifier as a whole, or one with punctuation around or between.
    fn word(&mut self, word: &str) -> String {
        if let Some(new) = self.identifier(word) {
            return new;
        }
        // "…10.10.0.1." or "…10.10.0.1:4791" or "dev-10.10.0.1"
        for separator in ['.', ':', '-', '_'] {
            if let Some((head, tail)) = word.rsplit_once(separator) {
                if let Some(new) = self.identifier(head) {
                    return format!("{new}{separator}{}", self.word(tail));
                }
            }
            if let Some((head, tail)) = word.split_once(separator) {
                if let Some(new) = self.identifier(tail) {
                    return format!("{}{separator}{new}", self.word(head));
                }
            }
        }
        word.to_owned()
    }

    fn identifier(&mut self, word: &str) -> Option<String> {
        if word.is_empty() {
            return None;
        }
        if let Some(host) = self.hosts.get(word) {
            return Some(host.clone());
        }
        // `spark1.example.org`, where `spark1` is known.
        let short = word
            .split_once('.')
            .and_then(|(short, _)| self.hosts.get(short));
        if let Some(host) = short {
            return Some(host.clone());
        }
        if let Ok(mac) = word.parse::<Mac>() {
            return Some(Mac(self.mac(mac.0)).to_string());
        }
        if let Ok(address) = word.parse::<Ipv4Addr>() {
            return Some(self.ipv4(address).to_string());
        }
        if let Ok(address) = word.parse::<Ipv6Addr>() {
            return Some(self.ipv6(word, address));
        }
        if let Some(guid) = hex_groups(word, &[4, 4, 4, 4], ':') {
            return Some(self.guid(guid));
        }
        if hex_groups(word, &[8, 4, 4, 4, 12], '-').is_some() {
            let (a, b) = (self.hash(&("uuid", word)), self.hash(&("uuid2", word)));
            let text = format!("{a:016x}{b:016x}");
            return Some(format!(
                "{}-{}-{}-{}-{}",
                &text[..8],
                &text[8..12],
                &text[12..16],
                &text[16..20],
                &text[20..]
            ));
        }
        self.device_name(word)
    }

    /// Device names that are made of a MAC (`enx4cbb474aebe8`, systemd.net-naming-scheme(7)) or a
    /// GUID (`rocex4cbb4703004aebe8`, rdma-core's rdma_rename).
    fn device_name(&mut self, word: &str) -> Option<String> {
        let (start, digits) = ["enx", "wlx", "rocex", "ibx", "iwx", "opax"]
            .into_iter()
            .find_map(|start| Some((start, word.strip_prefix(start)?)))?;
        if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let bytes: Vec<u8> = (0..digits.len() / 2)
            .filter_map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).ok())
            .collect();
        let new: String = if let Ok(mac) = <[u8; 6]>::try_from(bytes.as_slice()) {
            self.mac(mac).iter().map(|b| format!("{b:02x}")).collect()
        } else if let Ok(guid) = <[u8; 8]>::try_from(bytes.as_slice()) {
            self.guid(u64::from_be_bytes(guid)).replace(':', "")
        } else {
            return None;
        };
        Some(format!("{start}{new}"))
    }

    fn hash(&self, what: &impl std::hash::Hash) -> u64 {
        self.key.hash_one(what)
    }

    fn mac(&mut self, mac: [u8; 6]) -> [u8; 6] {
        if mac == [0; 6] || mac == [0xff; 6] {
            return mac;
        }
        if let Some(known) = self.macs.get(&mac) {
            return *known;
        }
        // By number, so that two MACs never become one: 02 is "locally administered" (IEEE 802c),
        // and the multicast bit stays.
        let n = (self.macs.len() as u32 + 1).to_be_bytes();
        let new = [0x02 | (mac[0] & 1), 0, n[0], n[1], n[2], n[3]];
        self.macs.insert(mac, new);
        new
    }

    /// Keeps the length of every common prefix: each bit is flipped or not by what stands before it.
    fn ipv4(&self, address: Ipv4Addr) -> Ipv4Addr {
        let octets = address.octets();
        // The bits that say which range it is in (RFC 6890) stay; so does the last octet, so that
        // network and broadcast addresses and the ends of a /30 stay what they are.
        let kept = match octets {
            [0 | 127 | 224.., ..] => return address,
            [172, 16..=31, ..] => 12,
            [192, 168, ..] | [169, 254, ..] => 16,
            [198, 18 | 19, ..] => 15,
            [100, 64..=127, ..] => 10,
            _ => 8,
        };
        let bits = u32::from(address);
        let mut new = bits;
        for bit in kept..24u32 {
            let before = bits >> (32 - bit);
            if self.hash(&("ipv4", bit, before)) & 1 == 1 {
                new ^= 1 << (31 - bit);
            }
        }
        Ipv4Addr::from(new)
    }

    fn ipv6(&mut self, word: &str, address: Ipv6Addr) -> String {
        let new = if let Some(mapped) = address.to_ipv4_mapped() {
            self.ipv4(mapped).to_ipv6_mapped()
        } else if address.is_unspecified() || address.is_loopback() || address.is_multicast() {
            address
        } else {
            let bits = u128::from(address);
            let (network, interface) = ((bits >> 64) as u64, bits as u64);
            // fe80::/64 says link-local and nothing of the site (RFC 4291, 2.5.6).
            let network = if network == 0xfe80 << 48 {
                network
            } else {
                (network & 0xffff << 48) | (self.hash(&("ipv6", network)) >> 16)
            };
            Ipv6Addr::from(u128::from(network) << 64 | u128::from(self.interface_id(interface)))
        };
        // GIDs are written with all groups (sysfs), addresses in short.
        if word.len() == 39 {
            crate::names::Gid(new.octets()).to_string()
        } else {
            new.to_string()
        }
    }

    /// An interface identifier: one made of a MAC (RFC 4291, appendix A) follows that MAC.
    fn interface_id(&mut self, id: u64) -> u64 {
        let [a, b, c, d, e, f, g, h] = id.to_be_bytes();
        if (d, e) == (0xff, 0xfe) {
            // Bit 1 of the first octet is inverted in the identifier.
            let [a, b, c, f, g, h] = self.mac([a ^ 2, b, c, f, g, h]);
            u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, f, g, h])
        } else {
            self.hash(&("interface", id))
        }
    }

    fn guid(&mut self, guid: u64) -> String {
        let new = match guid.to_be_bytes() {
            [0, 0, 0, 0, 0, 0, 0, 0] => 0,
            // mlx5 makes GUIDs of MACs: 4c:bb:47:4a:eb:e8 gives 4cbb:4703:004a:ebe8.
            [a, b, c, 3, 0, d, e, f] => {
                let [a, b, c, d, e, f] = self.mac([a, b, c, d, e, f]);
                u64::from_be_bytes([a, b, c, 3, 0, d, e, f])
            }
            [_, _, _, 0xff, 0xfe, _, _, _] => self.interface_id(guid),
            _ => self.hash(&("guid", guid)),
        };
        let text = format!("{new:016x}");
        format!(
            "{}:{}:{}:{}",
            &text[..4],
            &text[4..8],
            &text[8..12],
            &text[12..]
        )
    }
}

/// The value of `word` when it is groups of hex digits of these lengths; the last 64 bits of it.
fn hex_groups(word: &str, lengths: &[usize], separator: char) -> Option<u64> {
    let groups: Vec<&str> = word.split(separator).collect();
    let fits = groups.len() == lengths.len()
        && groups
            .iter()
            .zip(lengths)
            .all(|(g, n)| g.len() == *n && g.bytes().all(|b| b.is_ascii_hexdigit()));
    fits.then(|| {
        groups.concat().bytes().fold(0u64, |value, digit| {
            value << 4 | u64::from((digit as char).to_digit(16).unwrap_or_default())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{At, parse, pretty};

    fn redacted(text: &str) -> String {
        let mut value = parse("t", text.as_bytes()).unwrap();
        Redactor::new(&["spark1"]).redact(&mut value);
        pretty(&value)
    }

    fn field(redactor: &mut Redactor, text: &str) -> String {
        redactor.text("", text)
    }

    #[test]
    fn nothing_that_identifies_a_site_is_left() {
        let out = redacted(
            r#"{"host": "spark1", "hostname": "spark1.lab.example.org", "mac": "4c:bb:47:4a:eb:e8", "if": "enx4cbb474aebe8",
                "gid": "fe80:0000:0000:0000:4ebb:47ff:fe4a:ebe8", "v4gid": "0000:0000:0000:0000:0000:ffff:0a2a:4d0a",
                "guid": "4cbb:4703:004a:ebe8", "rdma": "rocex4cbb4703004aebe8", "addr": "10.42.77.10/24", "peer": "10.42.77.10:4791",
                "boot": "b1946ac9-2492-4d23-8b1c-0a6e6b5f8c11", "command_line": "python3 serve.py --key s3cret", "qp": {"pid": 7, "owner": "python3"},
                "seen": "by spark1.corp.example.net", "why": "asking spark1 at 10.42.77.10. failed: fd12:3456:789a::1 is 4C:BB:47:4A:EB:E8"}"#,
        );
        for secret in [
            "spark1",
            "example",
            "4cbb",
            "4c:bb",
            "4C:BB",
            "4ebb",
            "4a:eb",
            "4aebe8",
            "10.42.77",
            "0a2a:4d0a",
            "b1946ac9",
            "s3cret",
            "python3",
            "3456",
            "789a",
        ] {
            assert!(!out.contains(secret), "{secret} in {out}");
        }
    }

    #[test]
    fn a_path_keeps_the_name_of_its_file_alone_and_a_netplan_file_whose_it_is() {
        let text = r#"{"path": "/home/ann/lib/libnccl.so.2", "file": "90-NM-5c5c3b1e-3f0a-4c7a-9f61-0b6d1a2c3d4e.yaml",
                       "other": {"file": "41-ann.yaml"}}"#;
        let new = redacted(text);
        assert!(!new.contains("ann") && !new.contains("5c5c3b1e"), "{new}");
        assert!(
            new.contains("/libnccl.so.2") && new.contains("90-NM-"),
            "{new}"
        );
    }

    #[test]
    fn a_mac_is_the_same_one_wherever_it_stands() {
        let mut r = Redactor::new(&[]);
        let mac = field(&mut r, "4c:bb:47:4a:eb:e8");
        let digits = mac.replace(':', "");
        assert_eq!(field(&mut r, "enx4cbb474aebe8"), format!("enx{digits}"));
        let gid = field(&mut r, "fe80:0000:0000:0000:4ebb:47ff:fe4a:ebe8");
        assert_eq!(
            gid,
            format!(
                "fe80:0000:0000:0000:00{}:{}ff:fe{}:{}",
                &digits[2..4],
                &digits[4..6],
                &digits[6..8],
                &digits[8..]
            )
        );
        let guid = field(&mut r, "4cbb:4703:004a:ebe8");
        assert_eq!(
            guid,
            format!(
                "{}:{}03:00{}:{}",
                &digits[..4],
                &digits[4..6],
                &digits[6..8],
                &digits[8..]
            )
        );
        assert_eq!(field(&mut r, "00:00:00:00:00:00"), "00:00:00:00:00:00");
        assert_ne!(field(&mut r, "4c:bb:47:4a:eb:e9"), mac);
        let multicast: Mac = field(&mut r, "01:00:5e:00:00:01").parse().unwrap();
        assert!(!multicast.is_unicast());
    }

    #[test]
    fn the_mac_that_a_rule_writes_is_the_mac_that_the_port_has() {
        let out = redacted(
            r#"{"mac": "4c:bb:47:4a:eb:e8", "src_mac_mask": "ff:ff:ff:00:00:00", "edits": [
                {"header": "eth", "command": "set", "offset": 12, "keep": "0000ffff", "value": "08000000"},
                {"header": "eth", "command": "set", "offset": 0, "keep": "00000000", "value": "4cbb474a"},
                {"header": "eth", "command": "set", "offset": 4, "keep": "0000ffff", "value": "ebe80000"},
                {"header": "ip4", "command": "set", "offset": 16, "keep": "00000000", "value": "0a0a0001"}],
               "address": "10.10.0.1", "kernel_qp": {"pid": null, "owner": "ib_core"}}"#,
        );
        let value = parse("t", out.as_bytes()).unwrap();
        let root = At::root("t", &value);
        let text = |at: At, key: &str| at.need(key).unwrap().text().unwrap().to_owned();
        let edits: Vec<At> = root.need("edits").unwrap().items(9).unwrap().collect();
        let written = |i: usize| text(edits[i].clone(), "value");
        assert_eq!(written(0), "08000000");
        assert_eq!(
            format!("{}{}", written(1), &written(2)[..4]),
            text(root.clone(), "mac").replace(':', "")
        );
        assert_eq!(&written(2)[4..], "0000");
        let address: Ipv4Addr = text(root.clone(), "address").parse().unwrap();
        assert_eq!(written(3), format!("{:08x}", u32::from(address)));
        assert_eq!(text(edits[1].clone(), "command"), "set");
        assert_eq!(text(root.clone(), "src_mac_mask"), "ff:ff:ff:00:00:00");
        assert_eq!(text(root.need("kernel_qp").unwrap(), "owner"), "ib_core");
    }

    #[test]
    fn part_of_a_mac_that_a_rule_writes_is_gone() {
        let out = redacted(
            r#"{"edits": [{"header": "eth", "offset": 4, "keep": "ffff0000", "value": "00004cbb"}]}"#,
        );
        assert!(!out.contains("4cbb"), "{out}");
    }

    #[test]
    fn common_prefixes_of_ipv4_addresses_stay_as_long_as_they_are() {
        let r = Redactor::new(&[]);
        let common = |a: Ipv4Addr, b: Ipv4Addr| (u32::from(a) ^ u32::from(b)).leading_zeros();
        let addresses: Vec<Ipv4Addr> = (0..400u32)
            .map(|i| Ipv4Addr::from(0x0a0a_0000u32.wrapping_add(i.wrapping_mul(0x0001_3577))))
            .collect();
        for a in &addresses {
            assert_eq!(r.ipv4(*a).octets()[0], a.octets()[0]);
            assert_eq!(r.ipv4(*a).octets()[3], a.octets()[3]);
            for b in &addresses {
                assert_eq!(common(*a, *b), common(r.ipv4(*a), r.ipv4(*b)), "{a} {b}");
            }
        }
        assert!(
            r.ipv4(Ipv4Addr::new(192, 168, 7, 1)).is_private()
                && r.ipv4(Ipv4Addr::new(172, 20, 7, 1)).is_private()
        );
        assert_eq!(r.ipv4(Ipv4Addr::new(198, 19, 7, 1)).octets()[..1], [198]);
    }

    #[test]
    fn a_host_called_like_a_state_does_not_change_states() {
        let mut value = parse(
            "t",
            br#"{"host": "up", "state": "up", "not_observed": "up did not answer", "hosts": [{"host": "b"}]}"#,
        )
        .unwrap();
        Redactor::new(&["up"]).redact(&mut value);
        let out = pretty(&value);
        assert!(
            out.contains(r#""state": "up""#)
                && out.contains("host1 did not answer")
                && out.contains(r#""host": "host2""#),
            "{out}"
        );
    }

    #[test]
    fn device_names_versions_and_numbers_stay() {
        let mut r = Redactor::new(&["spark1"]);
        for text in [
            "enp1s0f0np0",
            "roceP2p1s0f1",
            "0000:01:00.0",
            "6.17.0-1014-nvidia",
            "200 Gb/sec (4X HDR)",
            "28.45.1200",
            "RoCE v2",
            "",
            "16.0 GT/s PCIe",
            "0x88b5",
            "legacy",
            "-",
            "..",
            "äöü 10",
        ] {
            assert_eq!(field(&mut r, text), text);
        }
    }
}
