//! What systemd is told (sd_notify(3)): datagrams to the socket that it names.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The environment variable with the socket's name.
const VARIABLE: &str = "NOTIFY_SOCKET";

/// A way to systemd, where it asked to be told.
pub(super) struct Notifier(Option<(UnixDatagram, SocketAddr)>);

impl Notifier {
    /// To the socket that the environment names; nowhere when it names none.
    pub(super) fn open() -> io::Result<Notifier> {
        match std::env::var_os(VARIABLE) {
            Some(name) if !name.is_empty() => Notifier::to(name.as_bytes()),
            _ => Ok(Notifier(None)),
        }
    }

    fn to(name: &[u8]) -> io::Result<Notifier> {
        let address = match name.split_first() {
            // A name of the abstract namespace is written with `@` for its leading NUL.
            Some((b'@', rest)) => SocketAddr::from_abstract_name(rest)?,
            Some((b'/', _)) => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name))?,
            _ => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("{VARIABLE} is no socket of this machine"),
                ));
            }
        };
        Ok(Notifier(Some((UnixDatagram::unbound()?, address))))
    }

    /// Tells it these assignments, one a line.
    pub(super) fn tell(&self, lines: &str) -> io::Result<()> {
        match &self.0 {
            Some((socket, address)) => {
                socket.send_to_addr(lines.as_bytes(), address)?;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_reach_a_socket_with_a_path_and_an_abstract_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("hairpin-mesh-test-{}", std::process::id());
        let by_path = UnixDatagram::bind(&path).unwrap();
        let abstract_address = SocketAddr::from_abstract_name(&name).unwrap();
        let by_name = UnixDatagram::bind_addr(&abstract_address).unwrap();
        for (socket, to) in [
            (by_path, path.as_os_str().as_bytes().to_vec()),
            (by_name, format!("@{name}").into_bytes()),
        ] {
            Notifier::to(&to)
                .unwrap()
                .tell("READY=1\nSTATUS=x")
                .unwrap();
            let mut taken = [0; 64];
            let length = socket.recv(&mut taken).unwrap();
            assert_eq!(&taken[..length], b"READY=1\nSTATUS=x");
        }
    }

    #[test]
    fn a_name_that_is_no_socket_of_this_machine_is_refused() {
        // vsock is what systemd in a virtual machine gives; a relative path is nothing.
        for name in ["vsock:2:1", "notify"] {
            let error = Notifier::to(name.as_bytes()).err().unwrap();
            assert!(error.to_string().contains(VARIABLE), "{error}");
        }
    }

    #[test]
    fn nobody_to_tell_is_no_error() {
        Notifier(None).tell("READY=1").unwrap();
    }
}
