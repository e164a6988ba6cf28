//! D-Bus, as much of it as a few calls to systemd need: messages as bytes, and a connection.
//!
//! The layout is that of the D-Bus specification 0.43, "Message Protocol". Calls carry strings
//! and truth values alone; answers are read by whoever asked, who knows their signature. File descriptors are not
//! asked for, so none come.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Message types and header fields.
const METHOD_CALL: u8 = 1;
const METHOD_RETURN: u8 = 2;
const ERROR: u8 = 3;
const SIGNAL: u8 = 4;
const FIELD_PATH: u8 = 1;
const FIELD_INTERFACE: u8 = 2;
const FIELD_MEMBER: u8 = 3;
const FIELD_ERROR_NAME: u8 = 4;
const FIELD_REPLY_SERIAL: u8 = 5;
const FIELD_DESTINATION: u8 = 6;
const FIELD_SIGNATURE: u8 = 8;
const VERSION: u8 = 1;
/// Bytes before the header fields: byte order, type, flags, version, and three numbers.
const FIXED: usize = 16;

/// Most bytes of one message here. The specification has 128 MiB; a unit's properties are 20 KiB.
const LARGEST: usize = 4 * 1024 * 1024;
/// Bytes that are read at once.
const CHUNK: usize = 64 * 1024;
/// Most bytes of the answer to the authentication.
const LARGEST_GREETING: usize = 4096;
/// A timeout is set again when it differs by more than this from what is left.
const SLACK: Duration = Duration::from_millis(50);

/// Bytes that are no message, or a value that is not of its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Malformed(pub(super) &'static str);

/// A method call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) destination: &'a str,
    pub(super) path: &'a str,
    pub(super) interface: &'a str,
    pub(super) member: &'a str,
    pub(super) arguments: &'a [Argument<'a>],
}

/// An argument of a call.
#[derive(Debug, Clone, Copy)]
pub(super) enum Argument<'a> {
    /// `s`
    Text(&'a str),
    /// `as`
    Texts(&'a [String]),
    /// `b`
    Flag(bool),
}

impl Call<'_> {
    /// The message, little-endian, its header fields in the order of sd-bus.
    pub(super) fn encode(&self, serial: u32) -> Vec<u8> {
        let mut signature = String::new();
        let mut body = Vec::new();
        for argument in self.arguments {
            match argument {
                Argument::Text(text) => {
                    signature.push('s');
                    put_text(&mut body, text);
                }
                Argument::Texts(texts) => {
                    signature.push_str("as");
                    let mut items = Vec::new();
                    for text in *texts {
                        put_text(&mut items, text);
                    }
                    // Strings are aligned to 4, as the length before them is.
                    align(&mut body, 4);
                    put_number(&mut body, items.len());
                    body.extend(items);
                }
                Argument::Flag(flag) => {
                    signature.push('b');
                    align(&mut body, 4);
                    put_number(&mut body, usize::from(*flag));
                }
            }
        }
        let mut fields = Vec::new();
        for (code, kind, text) in [
            (FIELD_PATH, b'o', self.path),
            (FIELD_MEMBER, b's', self.member),
            (FIELD_INTERFACE, b's', self.interface),
            (FIELD_DESTINATION, b's', self.destination),
        ] {
            align(&mut fields, 8);
            fields.extend([code, 1, kind, 0]);
            put_text(&mut fields, text);
        }
        if !signature.is_empty() {
            align(&mut fields, 8);
            fields.extend([FIELD_SIGNATURE, 1, b'g', 0]);
            // At most three arguments: far below 256 characters.
            fields.push(signature.len() as u8);
            fields.extend(signature.as_bytes());
            fields.push(0);
        }
        let mut message = vec![b'l', METHOD_CALL, 0, VERSION];
        put_number(&mut message, body.len());
        message.extend(serial.to_le_bytes());
        put_number(&mut message, fields.len());
        message.extend(fields);
        align(&mut message, 8);
        message.extend(body);
        message
    }
}

fn align(bytes: &mut Vec<u8>, to: usize) {
    bytes.resize(bytes.len().next_multiple_of(to), 0);
}

/// Lengths are those of names of this program, far below 2^32.
fn put_number(bytes: &mut Vec<u8>, number: usize) {
    bytes.extend((number as u32).to_le_bytes());
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    align(bytes, 4);
    put_number(bytes, text.len());
    bytes.extend(text.as_bytes());
    bytes.push(0);
}

/// A message that was received.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Message {
    kind: u8,
    big_endian: bool,
    /// Serial of the call that it answers.
    reply_serial: Option<u32>,
    interface: String,
    member: String,
    error: String,
    signature: String,
    body: Vec<u8>,
}

impl Message {
    /// The first message in `bytes` and its length; `None` while there is not all of it.
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Message, usize)>, Malformed> {
        let Some(fixed) = bytes.first_chunk::<FIXED>() else {
            return Ok(None);
        };
        let big_endian = match fixed[0] {
            b'l' => false,
            b'B' => true,
            _ => return Err(Malformed("a message of no byte order")),
        };
        if fixed[3] != VERSION {
            return Err(Malformed("a message of another protocol version"));
        }
        let mut reader = Reader {
            bytes: fixed,
            at: 4,
            big_endian,
        };
        let body = reader.u32()? as usize;
        let _serial = reader.u32()?;
        let fields = reader.u32()? as usize;
        // Checked one by one before they are added up.
        if body > LARGEST || fields > LARGEST {
            return Err(Malformed("a message longer than any that is wanted"));
        }
        let start = (FIXED + fields).next_multiple_of(8);
        let Some(whole) = bytes.get(..start + body) else {
            return Ok(None);
        };
        let mut message = Message {
            kind: fixed[1],
            big_endian,
            body: whole[start..].to_vec(),
            ..Message::default()
        };
        let mut reader = Reader {
            bytes: &whole[..FIXED + fields],
            at: FIXED,
            big_endian,
        };
        while reader.at < reader.bytes.len() {
            reader.align(8)?;
            let code = reader.u8()?;
            match (code, reader.signature()?) {
                (FIELD_REPLY_SERIAL, "u") => message.reply_serial = Some(reader.u32()?),
                (FIELD_INTERFACE, "s") => message.interface = reader.text()?.to_owned(),
                (FIELD_MEMBER, "s") => message.member = reader.text()?.to_owned(),
                (FIELD_ERROR_NAME, "s") => message.error = reader.text()?.to_owned(),
                (FIELD_SIGNATURE, "g") => message.signature = reader.signature()?.to_owned(),
                (_, "s" | "o") => drop(reader.text()?),
                (_, "g") => drop(reader.signature()?),
                (_, "u" | "i" | "b") => drop(reader.u32()?),
                (_, "y") => drop(reader.u8()?),
                (_, "t" | "x" | "d") => drop(reader.u64()?),
                _ => return Err(Malformed("a header field of an unknown type")),
            }
        }
        Ok(Some((message, start + body)))
    }

    /// Whether it answers the call with this serial.
    pub(super) fn answers(&self, serial: u32) -> bool {
        matches!(self.kind, METHOD_RETURN | ERROR) && self.reply_serial == Some(serial)
    }

    /// Whether it is this signal.
    pub(super) fn is_signal(&self, interface: &str, member: &str) -> bool {
        self.kind == SIGNAL && self.interface == interface && self.member == member
    }

    /// Name and text, when it is an error.
    pub(super) fn error(&self) -> Option<(&str, &str)> {
        if self.kind != ERROR {
            return None;
        }
        let text = match self.signature.starts_with('s') {
            true => self.reader().text().unwrap_or(""),
            false => "",
        };
        Some((&self.error, text))
    }

    /// Its body, which must be of this signature.
    pub(super) fn body(&self, signature: &str) -> Result<Reader<'_>, Malformed> {
        if self.signature == signature {
            Ok(self.reader())
        } else {
            Err(Malformed("an answer of another type than the method has"))
        }
    }

    fn reader(&self) -> Reader<'_> {
        Reader {
            bytes: &self.body,
            at: 0,
            big_endian: self.big_endian,
        }
    }
}

/// Values from a message, one after the other.
#[derive(Debug, Clone)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    big_endian: bool,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let taken = self
            .bytes
            .get(self.at..)
            .and_then(|rest| rest.get(..length))
            .ok_or(Malformed("a message that ends within a value"))?;
        self.at += length;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.align(N)?;
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(super) fn align(&mut self, to: usize) -> Result<(), Malformed> {
        let padding = self.at.next_multiple_of(to) - self.at;
        self.take(padding).map(|_| ())
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        let bytes = self.array()?;
        Ok(if self.big_endian {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        })
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        let bytes = self.array()?;
        Ok(if self.big_endian {
            u64::from_be_bytes(bytes)
        } else {
            u64::from_le_bytes(bytes)
        })
    }

    /// A string or an object path.
    pub(super) fn text(&mut self) -> Result<&'a str, Malformed> {
        let length = self.u32()? as usize;
        self.text_of(length)
    }

    /// A signature.
    fn signature(&mut self) -> Result<&'a str, Malformed> {
        let length = usize::from(self.u8()?);
        self.text_of(length)
    }

    fn text_of(&mut self, length: usize) -> Result<&'a str, Malformed> {
        let bytes = self.take(length)?;
        if self.take(1)? != [0] {
            return Err(Malformed("a string without its closing NUL"));
        }
        std::str::from_utf8(bytes).map_err(|_| Malformed("a string that is not UTF-8"))
    }

    /// Begins the value in a variant, which must be of this signature.
    pub(super) fn variant(&mut self, signature: &str) -> Result<(), Malformed> {
        if self.signature()? == signature {
            Ok(())
        } else {
            Err(Malformed("a value of another type than the property has"))
        }
    }

    /// Each structure of an array of structures: `each` reads one.
    pub(super) fn structures<T>(
        &mut self,
        mut each: impl FnMut(&mut Reader<'a>) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let length = self.u32()? as usize;
        // The padding before the first is not counted.
        self.align(8)?;
        let end = self.at;
        let bytes = self.take(length)?;
        let mut items = Reader {
            bytes: &self.bytes[..end + bytes.len()],
            at: end,
            big_endian: self.big_endian,
        };
        let mut all = Vec::new();
        while items.at < items.bytes.len() {
            items.align(8)?;
            all.push(each(&mut items)?);
        }
        Ok(all)
    }
}

/// A connection to a bus or to a peer.
pub(super) struct Connection {
    stream: UnixStream,
    serial: u32,
    timeout: Duration,
    /// What was received and not yet given, from `start` on.
    received: Vec<u8>,
    start: usize,
}

impl Connection {
    /// Connects, and says who this process is; the other side asks the kernel whether that is so
    /// (`EXTERNAL`).
    pub(super) fn open(socket: &Path, deadline: Instant) -> io::Result<Connection> {
        let mut connection = Connection {
            stream: UnixStream::connect(socket)?,
            serial: 0,
            timeout: Duration::ZERO,
            received: Vec::new(),
            start: 0,
        };
        let user = rustix::process::geteuid().as_raw().to_string();
        let user: String = user.bytes().map(|b| format!("{b:02x}")).collect();
        // Nothing is refused after `OK`, so `BEGIN` need not wait for it. sd-bus does the same.
        let greeting = format!("\0AUTH EXTERNAL {user}\r\nBEGIN\r\n");
        connection.write(greeting.as_bytes(), deadline)?;
        loop {
            let line = connection.received.windows(2).position(|w| w == b"\r\n");
            if let Some(end) = line {
                if !connection.received.starts_with(b"OK ") {
                    let line = String::from_utf8_lossy(&connection.received[..end]).into_owned();
                    return Err(io::Error::new(
                        io::ErrorKind::PermissionDenied,
                        format!("not let in as user {user}: {line:?}"),
                    ));
                }
                connection.start = end + 2;
                return Ok(connection);
            }
            if connection.received.len() > LARGEST_GREETING {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "what answers is no D-Bus",
                ));
            }
            connection.read(deadline)?;
        }
    }

    /// Sends all calls at once; gives the serial of each.
    pub(super) fn send(&mut self, calls: &[Call], deadline: Instant) -> io::Result<Vec<u32>> {
        let mut bytes = Vec::new();
        let mut serials = Vec::new();
        for call in calls {
            // Serial 0 is none.
            self.serial = self.serial.checked_add(1).unwrap_or(1);
            bytes.extend(call.encode(self.serial));
            serials.push(self.serial);
        }
        self.write(&bytes, deadline)?;
        Ok(serials)
    }

    /// The next message.
    pub(super) fn receive(&mut self, deadline: Instant) -> io::Result<Message> {
        loop {
            let parsed = Message::parse(&self.received[self.start..]);
            match parsed.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))? {
                Some((message, length)) => {
                    self.start += length;
                    return Ok(message);
                }
                None => self.read(deadline)?,
            }
        }
    }

    fn read(&mut self, deadline: Instant) -> io::Result<()> {
        self.received.drain(..self.start);
        self.start = 0;
        self.set_timeout(deadline)?;
        let held = self.received.len();
        self.received.resize(held + CHUNK, 0);
        let result = self.stream.read(&mut self.received[held..]);
        self.received
            .truncate(held + result.as_ref().map_or(0, |n| *n));
        match result {
            Ok(0) => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the connection was closed",
            )),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(late(error)),
        }
    }

    fn write(&mut self, bytes: &[u8], deadline: Instant) -> io::Result<()> {
        self.set_timeout(deadline)?;
        self.stream.write_all(bytes).map_err(late)
    }

    fn set_timeout(&mut self, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if left.abs_diff(self.timeout) > SLACK {
            self.stream.set_read_timeout(Some(left))?;
            self.timeout = left;
        }
        Ok(())
    }
}

/// A socket with a timeout says that it would block.
fn late(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock {
        io::ErrorKind::TimedOut.into()
    } else {
        error
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kernel::{captured, damaged};

    const SYSTEMD: &str = "org.freedesktop.systemd1";
    const MANAGER: &str = "org.freedesktop.systemd1.Manager";

    /// What systemd 254 said to `systemctl start bad`, whose `ExecStart` is `false`: the answers to
    /// `StartUnit` and to `Get` of the unit's `Result`, and the signal `JobRemoved`; and to
    /// `systemctl start none@x.service`, which there is none of. As `strace` shows it.
    const STARTED: &str = "6c020101250000000300000037000000050175000100000007017300180000006f72672e667265656465736b746f702e73797374656d6431000000000000000008016700016f0000200000002f6f72672f667265656465736b746f702f73797374656d64312f6a6f622f313600";
    const RESULT: &str = "6c020101120000001400000037000000050175000400000007017300180000006f72672e667265656465736b746f702e73797374656d6431000000000000000008016700017600000173000009000000657869742d636f646500";
    const REMOVED: &str = "6c0401014700000011000000a200000001016f00190000002f6f72672f667265656465736b746f702f73797374656d64310000000000000002017300200000006f72672e667265656465736b746f702e73797374656d64312e4d616e616765720000000000000000030173000a0000004a6f6252656d6f76656400000000000007017300180000006f72672e667265656465736b746f702e73797374656d643100000000000000000801670004756f73730000000000000010000000200000002f6f72672f667265656465736b746f702f73797374656d64312f6a6f622f3136000000000b0000006261642e7365727669636500060000006661696c656400";
    const REFUSED: &str = "6c030101230000000100000067000000050175000100000004017300230000006f72672e667265656465736b746f702e73797374656d64312e4e6f53756368556e6974000000000007017300180000006f72672e667265656465736b746f702e73797374656d6431000000000000000008016700017300001e000000556e6974206e6f6e6540782e73657276696365206e6f7420666f756e642e00";

    fn parsed(bytes: &[u8]) -> Message {
        let (message, length) = Message::parse(bytes).unwrap().unwrap();
        assert_eq!(length, bytes.len());
        message
    }

    #[test]
    fn calls_are_written_as_systemctl_writes_them() {
        let start = Call {
            destination: SYSTEMD,
            path: "/org/freedesktop/systemd1",
            interface: MANAGER,
            member: "StartUnit",
            arguments: &[Argument::Text("bad.service"), Argument::Text("replace")],
        };
        assert_eq!(
            start.encode(1),
            captured(
                "6c0100011c00000001000000a000000001016f00190000002f6f72672f667265656465736b746f702f73797374656d64310000000000000003017300090000005374617274556e69740000000000000002017300200000006f72672e667265656465736b746f702e73797374656d64312e4d616e61676572000000000000000006017300180000006f72672e667265656465736b746f702e73797374656d6431000000000000000008016700027373000b0000006261642e7365727669636500070000007265706c61636500"
            )[0]
        );
        let get = Call {
            destination: SYSTEMD,
            path: "/org/freedesktop/systemd1/unit/bad_2eservice",
            interface: "org.freedesktop.DBus.Properties",
            member: "Get",
            arguments: &[
                Argument::Text("org.freedesktop.systemd1.Service"),
                Argument::Text("Result"),
            ],
        };
        assert_eq!(
            get.encode(4),
            captured(
                "6c0100013300000004000000a000000001016f002c0000002f6f72672f667265656465736b746f702f73797374656d64312f756e69742f6261645f3265736572766963650000000003017300030000004765740000000000020173001f0000006f72672e667265656465736b746f702e444275732e50726f706572746965730006017300180000006f72672e667265656465736b746f702e73797374656d643100000000000000000801670002737300200000006f72672e667265656465736b746f702e73797374656d64312e536572766963650000000006000000526573756c7400"
            )[0]
        );
    }

    #[test]
    fn an_array_of_strings_is_written_with_its_length() {
        let texts = ["ab".to_owned(), "c".to_owned()];
        let call = Call {
            destination: "a.b",
            path: "/",
            interface: "a.b",
            member: "M",
            arguments: &[Argument::Texts(&texts)],
        };
        let bytes = call.encode(7);
        // D-Bus specification, "Marshaling (Wire Format)": bytes of the items, then each with its
        // length, NUL, and padding to 4 before the next.
        assert!(bytes.ends_with(b"\x0e\0\0\0\x02\0\0\0ab\0\0\x01\0\0\0c\0"));
        assert_eq!(bytes[4], 18);
        let message = parsed(&bytes);
        assert_eq!(
            (message.member.as_str(), message.signature.as_str()),
            ("M", "as")
        );
        let no_arguments = Call {
            arguments: &[],
            ..call
        };
        assert_eq!(parsed(&no_arguments.encode(1)).signature, "");
    }

    #[test]
    fn answers_and_signals_of_systemd_are_read() {
        let message = parsed(&captured(STARTED)[0]);
        assert!(message.answers(1) && !message.answers(2));
        assert_eq!(message.error(), None);
        assert_eq!(
            message.body("o").unwrap().text(),
            Ok("/org/freedesktop/systemd1/job/16")
        );
        assert!(message.body("s").is_err());

        let message = parsed(&captured(RESULT)[0]);
        let mut body = message.body("v").unwrap();
        body.variant("s").unwrap();
        assert_eq!(body.text(), Ok("exit-code"));
        assert!(message.body("v").unwrap().variant("u").is_err());

        let message = parsed(&captured(REMOVED)[0]);
        assert!(message.is_signal(MANAGER, "JobRemoved") && !message.answers(1));
        let mut body = message.body("uoss").unwrap();
        assert_eq!(body.u32(), Ok(16));
        assert_eq!(body.text(), Ok("/org/freedesktop/systemd1/job/16"));
        assert_eq!(
            (body.text(), body.text()),
            (Ok("bad.service"), Ok("failed"))
        );
        assert!(body.text().is_err());

        let message = parsed(&captured(REFUSED)[0]);
        assert!(message.answers(1));
        assert_eq!(
            message.error(),
            Some((
                "org.freedesktop.systemd1.NoSuchUnit",
                "Unit none@x.service not found."
            ))
        );
    }

    #[test]
    fn both_byte_orders_are_read() {
        // A signal with one header field, its member, and a body of one number and one long one.
        let little = b"l\x04\x01\x01\x10\0\0\0\x01\0\0\0\x18\0\0\0\x03\x01s\0\x01\0\0\0M\0\0\0\0\0\0\0\x08\x01g\0\x02ut\0\x05\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0";
        let big = b"B\x04\x01\x01\0\0\0\x10\0\0\0\x01\0\0\0\x18\x03\x01s\0\0\0\0\x01M\0\0\0\0\0\0\0\x08\x01g\0\x02ut\0\0\0\0\x05\0\0\0\0\0\0\0\0\0\0\0\x06";
        for bytes in [little, big] {
            let message = parsed(bytes);
            assert_eq!(message.member, "M");
            let mut body = message.body("ut").unwrap();
            assert_eq!((body.u32(), body.u64()), (Ok(5), Ok(6)));
        }
    }

    /// Reads all that there is to read in a message.
    fn read_all(bytes: &[u8]) {
        let Ok(Some((message, length))) = Message::parse(bytes) else {
            return;
        };
        assert!(length <= bytes.len());
        let _ = (
            message.error(),
            message.answers(1),
            message.is_signal("a", "b"),
        );
        let mut reader = message.reader();
        while reader.text().is_ok() {}
        let _ = message.reader().u64();
        let _ = message.reader().variant("s");
        let _ = message.reader().structures(|item| {
            item.text()?;
            item.u32()
        });
    }

    #[test]
    fn damaged_messages_never_make_it_panic() {
        for text in [STARTED, RESULT, REMOVED, REFUSED] {
            for bytes in damaged(&captured(text)[0]) {
                read_all(&bytes);
            }
        }
    }

    #[test]
    fn a_message_is_not_given_before_all_of_it_is_there() {
        let bytes = &captured(REMOVED)[0];
        for end in 0..bytes.len() {
            assert_eq!(Message::parse(&bytes[..end]), Ok(None), "{end}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            fixed in prop::collection::vec(any::<u8>(), 0..4),
            lengths: [u8; 3],
            rest in prop::collection::vec(any::<u8>(), 0..120),
            order in prop::sample::select(vec![b'l', b'B', b'x']),
        ) {
            let mut bytes = vec![order, 2, 0, 1];
            for length in lengths {
                let length = u32::from(length);
                bytes.extend(if order == b'B' { length.to_be_bytes() } else { length.to_le_bytes() });
            }
            bytes.extend(&rest);
            read_all(&bytes);
            read_all(&[fixed, rest].concat());
        }

        #[test]
        fn a_call_reads_back(texts in prop::collection::vec("\\PC{0,20}", 0..4), text in "\\PC{0,20}", serial in 1u32..) {
            let call = Call {
                destination: "a.b",
                path: "/x",
                interface: "i.f",
                member: "M",
                arguments: &[Argument::Text(&text), Argument::Texts(&texts)],
            };
            let message = parsed(&call.encode(serial));
            prop_assert_eq!((message.interface.as_str(), message.member.as_str()), ("i.f", "M"));
            let mut body = message.body("sas").unwrap();
            prop_assert_eq!(body.text(), Ok(text.as_str()));
            let length = body.u32().unwrap() as usize;
            let end = body.at + length;
            for text in &texts {
                prop_assert_eq!(body.text(), Ok(text.as_str()));
            }
            prop_assert_eq!((body.at, message.body.len()), (end, end));
        }
    }
}
