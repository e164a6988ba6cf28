//! Netlink attributes as bytes: 2 bytes length, 2 bytes type, value, padded to 4 (`struct nlattr`).

/// Bits of the type that say how the value is written (`linux/netlink.h`): nested, network order.
const FLAGS: u16 = 0xc000;
const NLA_F_NESTED: u16 = 0x8000;
const HEADER: usize = 4;

/// Bytes that are not attributes, or a value of another size than its type has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(&'static str);

/// One attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr<'a> {
    /// Its type without the flag bits.
    pub kind: u16,
    /// Its value without padding.
    pub value: &'a [u8],
}

impl<'a> Attr<'a> {
    fn array<const N: usize>(&self) -> Result<[u8; N], Malformed> {
        self.value
            .try_into()
            .map_err(|_| Malformed("an attribute of another size than its type has"))
    }

    /// An 8-bit value.
    pub fn u8(&self) -> Result<u8, Malformed> {
        self.array().map(u8::from_ne_bytes)
    }

    /// A 16-bit value in host order.
    pub fn u16(&self) -> Result<u16, Malformed> {
        self.array().map(u16::from_ne_bytes)
    }

    /// A 32-bit value in host order.
    pub fn u32(&self) -> Result<u32, Malformed> {
        self.array().map(u32::from_ne_bytes)
    }

    /// A 64-bit value in host order.
    pub fn u64(&self) -> Result<u64, Malformed> {
        self.array().map(u64::from_ne_bytes)
    }

    /// A string: up to the first NUL, bytes that are not UTF-8 replaced.
    pub fn text(&self) -> String {
        let end = self
            .value
            .iter()
            .position(|b| *b == 0)
            .unwrap_or(self.value.len());
        String::from_utf8_lossy(&self.value[..end]).into_owned()
    }

    /// The attributes in its value.
    pub fn nested(&self) -> Result<Attrs<'a>, Malformed> {
        Attrs::parse(self.value)
    }
}

/// A row of attributes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attrs<'a>(Vec<Attr<'a>>);

impl<'a> Attrs<'a> {
    /// Reads a row of attributes that fills `bytes`.
    pub fn parse(mut bytes: &'a [u8]) -> Result<Attrs<'a>, Malformed> {
        let mut attrs = Vec::new();
        while !bytes.is_empty() {
            let ([l0, l1, k0, k1], rest) = bytes
                .split_first_chunk::<HEADER>()
                .ok_or(Malformed("less than the header of an attribute"))?;
            let value = usize::from(u16::from_ne_bytes([*l0, *l1]))
                .checked_sub(HEADER)
                .and_then(|n| rest.get(..n))
                .ok_or(Malformed("an attribute whose length is wrong"))?;
            attrs.push(Attr {
                kind: u16::from_ne_bytes([*k0, *k1]) & !FLAGS,
                value,
            });
            bytes = rest.get(value.len().next_multiple_of(4)..).unwrap_or(&[]);
        }
        Ok(Attrs(attrs))
    }

    /// The first attribute of type `kind`.
    pub fn get(&self, kind: u16) -> Option<Attr<'a>> {
        self.0.iter().find(|a| a.kind == kind).copied()
    }

    /// The attribute of type `kind`, which must be there.
    pub fn need(&self, kind: u16) -> Result<Attr<'a>, Malformed> {
        self.get(kind).ok_or(Malformed("an attribute is missing"))
    }

    /// The attributes in the one of type `kind`; none when it is not there.
    pub fn nested(&self, kind: u16) -> Result<Attrs<'a>, Malformed> {
        self.get(kind)
            .map_or_else(|| Ok(Attrs::default()), |a| a.nested())
    }

    /// All attributes, in order.
    pub fn iter(&self) -> impl Iterator<Item = Attr<'a>> + '_ {
        self.0.iter().copied()
    }

    /// All attributes of type `kind`, in order.
    pub fn all(&self, kind: u16) -> impl Iterator<Item = Attr<'a>> + '_ {
        self.iter().filter(move |a| a.kind == kind)
    }
}

/// A row of attributes being written.
#[derive(Debug, Clone, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// Adds an attribute. Values are names and numbers of this program, far below 65531 bytes; a
    /// longer one is cut.
    pub fn put(&mut self, kind: u16, value: &[u8]) {
        let value = &value[..value.len().min(usize::from(u16::MAX) - HEADER)];
        self.0.extend(((HEADER + value.len()) as u16).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// Adds a string with its closing NUL.
    pub fn text(&mut self, kind: u16, text: &str) {
        self.put(kind, &[text.as_bytes(), b"\0"].concat());
    }

    /// Adds an attribute that holds those that `fill` writes.
    pub fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Writer)) {
        let mut inner = Writer::default();
        fill(&mut inner);
        self.put(kind | NLA_F_NESTED, &inner.0);
    }

    /// What was written.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let mut w = Writer::default();
        w.text(1, "pci");
        w.nest(5, |w| {
            w.put(2, &7u32.to_ne_bytes());
            w.put(3, &[9]);
        });
        let attrs = Attrs::parse(w.bytes()).unwrap();
        assert_eq!(attrs.get(1).unwrap().text(), "pci");
        let inner = attrs.nested(5).unwrap();
        assert_eq!(inner.need(2).unwrap().u32(), Ok(7));
        assert_eq!(inner.need(3).unwrap().u8(), Ok(9));
        assert!(inner.need(3).unwrap().u32().is_err());
        assert!(inner.need(4).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(attrs) = Attrs::parse(&bytes) {
                for a in attrs.iter() {
                    let _ = (a.text(), a.nested(), a.u16(), a.u64());
                }
            }
        }
    }
}
