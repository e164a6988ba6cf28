//! Two ends that are started by hand, in two shells: one waits on an address of the management network, the other
//! comes to it. A connection that does not begin with the one-time token is closed before anything is made for it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::agent::{Offer, serve};
use super::agents::{Agents, Exchange, Point, Run};
use super::protocol::{Answer, Ask, LONGEST_RUN_MS};
use super::session::{PATIENCE, Session};
use crate::names::HostName;

/// Characters of a token: 128 bits in hex.
pub const TOKEN: usize = 32;
/// How long a connection may take to say its token, and to be made.
const GREETING: Duration = Duration::from_secs(5);

/// What nobody can guess.
///
/// # Errors
/// The kernel gives no random bytes.
pub fn token() -> io::Result<String> {
    let mut bytes = [0; TOKEN / 2];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Waits for the peer with the token until `wait` is over, and serves it. False when it did not come. `stray` is
/// told of others.
///
/// # Errors
/// The listener or the served connection failed.
pub fn server(
    listener: &TcpListener,
    token: &str,
    offer: &Offer,
    wait: Duration,
    stray: &mut dyn FnMut(SocketAddr),
) -> io::Result<bool> {
    let until = Instant::now() + wait;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut waited = [PollFd::new(listener, PollFlags::IN)];
        match poll(&mut waited, Some(&timeout)) {
            Ok(0) => return Ok(false),
            Err(rustix::io::Errno::INTR) => continue,
            other => other.map_err(io::Error::from)?,
        };
        let (stream, peer) = match listener.accept() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            other => other?,
        };
        match greeted(&stream, token) {
            Ok(true) => return attended(stream, offer).map(|()| true),
            _ => stray(peer),
        }
    }
}

/// Whether it begins with the token. Byte by byte, so that nothing behind it is taken.
fn greeted(mut stream: &TcpStream, token: &str) -> io::Result<bool> {
    // A listener that does not wait may hand that on.
    stream.set_nonblocking(false)?;
    let until = Instant::now() + GREETING;
    let mut said = [0; TOKEN + 1];
    for place in &mut said {
        let left = until.saturating_duration_since(Instant::now());
        // 0 would be no limit.
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        stream.read_exact(std::slice::from_mut(place))?;
    }
    // All of it is looked at, so that time does not tell how much was right.
    let wanted = token.bytes().chain([b'\n']);
    let differing = said
        .iter()
        .zip(wanted)
        .fold(0, |sum, (is, wanted)| sum | (is ^ wanted));
    Ok(differing == 0 && token.len() == TOKEN)
}

fn attended(stream: TcpStream, offer: &Offer) -> io::Result<()> {
    // A peer that is gone without a word ends it, too.
    let silence = Duration::from_millis(LONGEST_RUN_MS.into()) + PATIENCE;
    stream.set_read_timeout(Some(silence))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    let called = || {
        let mut waited = [PollFd::new(&stream, PollFlags::IN)];
        poll(&mut waited, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    };
    serve(
        &mut BufReader::new(&stream),
        &mut &stream,
        &called,
        Some(offer),
    )
}

/// The other end: a connection to a server, and an agent here.
pub struct Client {
    agents: Agents,
    /// Writes first.
    own: Point,
    peer: Point,
}

/// What the two ends are called.
fn name(name: &str) -> Result<HostName, String> {
    name.parse().map_err(|error| format!("{name}: {error}"))
}

impl Client {
    /// Comes to a server.
    ///
    /// # Errors
    /// It is not there, closes the connection (another token), or no agent can be started here.
    pub fn connect(server: SocketAddr, token: &str, own: Offer) -> Result<Client, String> {
        let text = |error: io::Error| format!("{server}: {error}");
        let mut stream = TcpStream::connect_timeout(&server, GREETING).map_err(text)?;
        stream
            .write_all(format!("{token}\n").as_bytes())
            .map_err(text)?;
        let session = Session::over(stream).map_err(|error| format!("{server}: {error}"))?;
        let (here, there) = (name("client")?, name("server")?);
        let mut agents = Agents::default();
        agents.add(&there, session).map_err(|error| {
            format!("{error} (a server closes a connection with another token)")
        })?;
        let session = Session::here().map_err(|error| error.to_string())?;
        agents.add(&here, session)?;
        let peer = match agents.ask(&there, &Ask::Offered)? {
            Answer::Offered { device, address } => Point {
                host: there,
                device,
                address,
            },
            _ => {
                return Err(format!(
                    "{server}: answered another question than was asked"
                ));
            }
        };
        let (device, address) = own;
        let own = Point {
            host: here,
            device,
            address,
        };
        Ok(Client { agents, own, peer })
    }

    /// Messages to the server and back.
    pub(super) fn exchange(&mut self, exchange: &Exchange) -> Result<Run, String> {
        self.agents.exchange([&self.own, &self.peer], exchange)
    }
}

/// The first line of `input`, as a token.
///
/// # Errors
/// It is none.
pub fn read_token(input: impl BufRead) -> Result<String, String> {
    let mut line = String::new();
    input
        .take(2 * TOKEN as u64)
        .read_line(&mut line)
        .map_err(|error| error.to_string())?;
    let token = line.trim();
    if token.len() == TOKEN && token.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        Ok(token.to_owned())
    } else {
        Err(format!(
            "is no token, {TOKEN} hex digits wanted, as the server printed them"
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::thread;

    use super::*;

    fn offer() -> Offer {
        ("rocep1s0f0".parse().unwrap(), Ipv4Addr::new(10, 10, 0, 10))
    }

    #[test]
    fn strangers_are_closed_and_the_one_with_the_token_is_served_its_offer_alone() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let token = token().unwrap();
        let right = token.clone();
        let served = thread::spawn(move || {
            let mut strays = 0;
            let wait = Duration::from_secs(60);
            let served = server(&listener, &token, &offer(), wait, &mut |_| strays += 1);
            (served.unwrap(), strays)
        });
        let wrong = "0".repeat(TOKEN);
        for said in [&wrong[..], "", "{\"ask\":\"hello\"}", &"x".repeat(100_000)] {
            let mut stream = TcpStream::connect(address).unwrap();
            // It may be closed while this is still being said.
            let _ = stream.write_all(format!("{said}\n").as_bytes());
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            assert_eq!(answer, b"", "{said}");
        }
        let mut client = TcpStream::connect(address).unwrap();
        let elsewhere = super::super::protocol::line(&Ask::Open {
            device: "mlx5_0".parse().unwrap(),
            address: Ipv4Addr::LOCALHOST,
            size: 8,
            first: true,
        });
        let asked = super::super::protocol::line(&Ask::Offered);
        client
            .write_all(format!("{right}\n{elsewhere}{asked}").as_bytes())
            .unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answers = BufReader::new(client).lines();
        let mut next = || Answer::read(answers.next().unwrap().unwrap().as_bytes()).unwrap();
        assert!(matches!(next(), Answer::Error { why } if why.contains("not what is offered")));
        let (device, address) = offer();
        assert_eq!(next(), Answer::Offered { device, address });
        assert_eq!(served.join().unwrap(), (true, 4));
    }

    #[test]
    fn a_peer_that_does_not_come_is_not_waited_for_without_end() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let came = server(&listener, "x", &offer(), Duration::ZERO, &mut |_| ());
        assert!(!came.unwrap());
    }

    #[test]
    fn a_token_is_one_line_of_hex() {
        let token = token().unwrap();
        assert_eq!(
            read_token(format!("{token}\nmore").as_bytes()).unwrap(),
            token
        );
        for bad in [
            "",
            "\n",
            "0123",
            &format!("{token}0\n"),
            &"g".repeat(TOKEN),
            "\u{ff}",
        ] {
            assert!(read_token(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert_ne!(token, super::token().unwrap());
    }
}
