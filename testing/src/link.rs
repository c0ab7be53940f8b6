//! Simulates a network link with a round-trip time and a bandwidth, and has a TCP proxy that puts this link in front of any server.
//!
//! All connections share the bandwidth; data is sent in the order of its arrival. The link never changes, loses or reorders bytes.
//!
//! ```text
//!   client ──► proxy ──────────────────────────► server
//!   client ◄── the link: one after the other, ◄── server
//!              round trip later
//! ```

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Number of bytes that are sent over the link at a time.
pub const PIECE_BYTES: usize = 64 << 10;
/// Maximum number of pieces of one connection that are on the link or wait for it: 16 MiB, so that one connection can fill a link
/// with 200 MB/s and 80 ms latency.
const PIECES: usize = 256;

/// Maximum lost time that a late waiter gets back; a longer delay means that the reader does not take its bytes.
const MAX_LATE: Duration = Duration::from_millis(5);

/// A simulated network link; all clones refer to the same link.
#[derive(Clone, Debug)]
pub struct Link(Arc<LinkState>);

#[derive(Debug)]
struct LinkState {
    /// Round-trip time that is added to each answer, in nanoseconds.
    round_trip_ns: AtomicU64,
    /// Bandwidth of all connections together; 0 means no limit.
    bytes_per_second: AtomicU64,
    free_at: Mutex<Option<Instant>>,
}

impl Link {
    pub fn new(round_trip: Duration, bytes_per_second: u64) -> Link {
        let link = Link(Arc::new(LinkState {
            round_trip_ns: AtomicU64::new(0),
            bytes_per_second: AtomicU64::new(0),
            free_at: Mutex::default(),
        }));
        link.set(round_trip, bytes_per_second);
        link
    }

    /// Changes round-trip time and bandwidth from now on; 0 bytes per second means no limit. Bytes that are already on the link are
    /// not affected.
    pub fn set(&self, round_trip: Duration, bytes_per_second: u64) {
        let ns = u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX);
        self.0.round_trip_ns.store(ns, Ordering::Relaxed);
        self.0
            .bytes_per_second
            .store(bytes_per_second, Ordering::Relaxed);
    }

    fn round_trip(&self) -> Duration {
        Duration::from_nanos(self.0.round_trip_ns.load(Ordering::Relaxed))
    }

    /// Waits for the round-trip time of the link.
    pub fn travel(&self) {
        std::thread::sleep(self.round_trip());
    }

    /// Reserves the link for `bytes` bytes that were available at the time `ready`, and waits until they have passed. If a thread is woken
    /// too late, its next reservation begins earlier by this delay; otherwise a single connection could never use the full bandwidth.
    pub fn pass(&self, bytes: usize, ready: Instant) {
        let bytes_per_second = self.0.bytes_per_second.load(Ordering::Relaxed);
        if bytes_per_second == 0 {
            return;
        }
        let nanos = bytes as u128 * 1_000_000_000 / u128::from(bytes_per_second);
        let ready = ready.max(Instant::now().checked_sub(MAX_LATE).unwrap_or(ready));
        let through = {
            let mut free_at = self
                .0
                .free_at
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let begin = free_at.map_or(ready, |at| at.max(ready));
            *free_at.insert(begin + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
        };
        std::thread::sleep(through.saturating_duration_since(Instant::now()));
    }
}

/// A TCP proxy that puts a simulated link in front of a server; it runs until it is dropped.
pub struct Proxy {
    address: SocketAddr,
    state: Arc<ProxyState>,
}

#[derive(Default)]
struct ProxyState {
    stop: AtomicBool,
    passed: AtomicU64,
    connections: AtomicU64,
    requests: AtomicU64,
}

impl Proxy {
    /// Listens on a port of this machine and passes everything on to `server`; the replies of `server` go over the link.
    pub fn start(server: SocketAddr, link: Link) -> std::io::Result<Proxy> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let proxy = Proxy {
            address: listener.local_addr()?,
            state: Arc::default(),
        };
        let state = Arc::clone(&proxy.state);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if state.stop.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(server) = TcpStream::connect(server) else {
                    continue;
                };
                state.connections.fetch_add(1, Ordering::Relaxed);
                drop(connect(client, server, &link, &state));
            }
        });
        Ok(proxy)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of bytes of answers so far.
    pub fn passed(&self) -> u64 {
        self.state.passed.load(Ordering::Relaxed)
    }

    pub fn connections(&self) -> u64 {
        self.state.connections.load(Ordering::Relaxed)
    }

    /// Returns the number of HTTP requests so far; the number is correct only for clients that send the head of each request in one write.
    pub fn requests(&self) -> u64 {
        self.state.requests.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Relaxed);
        // Wakes the listener, which then sees that it must end.
        drop(TcpStream::connect(self.address));
    }
}

/// Starts the three threads of a connection.
fn connect(
    client: TcpStream,
    server: TcpStream,
    link: &Link,
    state: &Arc<ProxyState>,
) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut up_from, mut up_to) = (client.try_clone()?, server.try_clone()?);
    let (asked, answered) = (Arc::clone(state), Arc::clone(state));
    std::thread::spawn(move || {
        let mut piece = vec![0; PIECE_BYTES];
        while let Ok(len @ 1..) = up_from.read(&mut piece) {
            let begins = |method: &&[u8]| piece[..len].starts_with(method);
            let is_request = [&b"GET "[..], b"HEAD ", b"POST "].iter().any(begins);
            asked
                .requests
                .fetch_add(u64::from(is_request), Ordering::Relaxed);
            if up_to.write_all(&piece[..len]).is_err() {
                break;
            }
        }
        drop(up_to.shutdown(Shutdown::Write));
    });
    let (sender, receiver) = sync_channel::<(Instant, Vec<u8>)>(PIECES);
    let (mut from, mut to) = (server, client);
    std::thread::spawn(move || {
        loop {
            let mut piece = vec![0; PIECE_BYTES];
            let Ok(len @ 1..) = from.read(&mut piece) else {
                return;
            };
            piece.truncate(len);
            if sender.send((Instant::now(), piece)).is_err() {
                return;
            }
        }
    });
    let link = link.clone();
    std::thread::spawn(move || {
        for (came, piece) in receiver {
            let there = came + link.round_trip();
            std::thread::sleep(there.saturating_duration_since(Instant::now()));
            link.pass(piece.len(), there);
            answered
                .passed
                .fetch_add(piece.len() as u64, Ordering::Relaxed);
            if to.write_all(&piece).is_err() {
                break;
            }
        }
        drop(to.shutdown(Shutdown::Both));
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_through_and_not_too_early() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = server.local_addr().expect("bound");
        let link = Link::new(Duration::from_millis(20), 4_000_000);
        let proxy = Proxy::start(address, link).expect("a port");
        let echo = std::thread::spawn(move || {
            let (mut stream, _) = server.accept().expect("a client");
            let mut all = vec![0; 400_000];
            stream.read_exact(&mut all).expect("its bytes");
            stream.write_all(&all).expect("sent");
        });
        let sent: Vec<u8> = (0..400_000_u32).map(|i| (i % 251) as u8).collect();
        let begin = Instant::now();
        let mut client = TcpStream::connect(proxy.address()).expect("connected");
        client.write_all(&sent).expect("sent");
        let mut back = Vec::new();
        client.read_to_end(&mut back).expect("its answer");
        assert_eq!(back, sent);
        assert!(
            begin.elapsed() >= Duration::from_millis(120),
            "100 ms on the link, 20 for the round trip"
        );
        assert_eq!((proxy.passed(), proxy.connections()), (400_000, 1));
        echo.join().expect("no panic");
    }

    #[test]
    fn a_link_may_change() {
        let link = Link::new(Duration::ZERO, 0);
        link.clone().set(Duration::from_millis(20), 1_000_000);
        let begin = Instant::now();
        link.travel();
        link.pass(30_000, Instant::now());
        assert!(
            begin.elapsed() >= Duration::from_millis(50) - MAX_LATE,
            "20 ms, and 30,000 bytes at 1 MB/s"
        );
    }
}
