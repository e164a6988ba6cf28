//! Generic netlink: the number of a family by its name, and messages of it.

use crate::kernel::attr::{Attrs, Writer};
use crate::kernel::netlink::{Error, Family, Message, Socket};

/// The controller (`linux/genetlink.h`): its number, command and attributes.
const GENL_ID_CTRL: u16 = 16;
const CTRL_VERSION: u8 = 2;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
/// Bytes of `struct genlmsghdr`: command, version, 16 bits reserved.
const HEADER: usize = 4;

/// A socket for one generic netlink family.
pub struct Generic {
    socket: Socket,
    family: u16,
    version: u8,
}

/// One message of a family: its command, and its attributes as bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GenericMessage {
    /// Command.
    pub command: u8,
    bytes: Vec<u8>,
}

impl GenericMessage {
    /// From what follows the netlink header.
    pub fn parse(payload: &[u8]) -> Result<GenericMessage, Error> {
        let (header, attributes) = payload
            .split_first_chunk::<HEADER>()
            .ok_or_else(|| Error::Malformed("a generic message shorter than its header".into()))?;
        Ok(GenericMessage {
            command: header[0],
            bytes: attributes.to_vec(),
        })
    }

    /// Its attributes.
    pub fn attrs(&self) -> Result<Attrs<'_>, Error> {
        Ok(Attrs::parse(&self.bytes)?)
    }
}

impl Generic {
    /// Opens a socket and asks for the family's number. `ENOENT` when the kernel has no such
    /// family (its module is not loaded).
    pub fn open(name: &str, version: u8) -> Result<Generic, Error> {
        let mut generic = Generic {
            socket: Socket::open(Family::Generic)?,
            family: GENL_ID_CTRL,
            version: CTRL_VERSION,
        };
        let mut attrs = Writer::default();
        attrs.text(CTRL_ATTR_FAMILY_NAME, name);
        let answer = generic.request(CTRL_CMD_GETFAMILY, &attrs)?;
        generic.family = answer.attrs()?.need(CTRL_ATTR_FAMILY_ID)?.u16()?;
        generic.version = version;
        Ok(generic)
    }

    fn payload(&self, command: u8, attrs: &Writer) -> Vec<u8> {
        [&[command, self.version, 0, 0], attrs.bytes()].concat()
    }

    /// Asks for one thing; the answer is one message.
    pub fn request(&mut self, command: u8, attrs: &Writer) -> Result<GenericMessage, Error> {
        self.act(command, attrs)?
            .0
            .ok_or_else(|| Error::Malformed("no answer in the answer".into()))
    }

    /// Asks that something be done: what the kernel answers beside its acknowledgement, if anything, and
    /// what it remarks although it did as asked.
    pub fn act(
        &mut self,
        command: u8,
        attrs: &Writer,
    ) -> Result<(Option<GenericMessage>, Option<String>), Error> {
        let payload = self.payload(command, attrs);
        let answer = self.socket.request(self.family, 0, &payload)?;
        let first = answer.messages.first();
        let message = first.map(|message| GenericMessage::parse(&message.payload));
        Ok((message.transpose()?, answer.warning))
    }

    /// Asks for all of something.
    pub fn dump(&mut self, command: u8, attrs: &Writer) -> Result<Vec<GenericMessage>, Error> {
        let payload = self.payload(command, attrs);
        let messages = self.socket.dump(self.family, &payload)?;
        messages
            .iter()
            .map(|Message { payload, .. }| GenericMessage::parse(payload))
            .collect()
    }
}
