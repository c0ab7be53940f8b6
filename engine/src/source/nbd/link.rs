//! One connection to an NBD server, with any number of reads in flight.
//!
//! Waiting readers take turns at listening: one reads the head of the next answer, and if that is another reader's it
//! passes the turn on, so that each reads its own bytes into its own buffers. Nothing is copied and no thread is
//! needed. A turn wakes one reader alone: the owner of the answer, or, after it, the reader that waits longest, whose answer is
//! likely to be next. Replies are simple ones. Never: goes on after anything that it did not expect.
//!
//! ```text
//!   floor: Free ──a waiter──► Listening ──head── mine ──► my bytes ──► Free
//!                                          └─── another's ──► For(cookie) ──that waiter──► its bytes ──► Free
//!   any failure ──► Down: every waiting read fails, the next read reconnects
//! ```

use super::blocks::{self, Blocks};
use super::uri::{Address, ServerPlace};
use crate::nbd::keepalive::keep_alive;
use crate::nbd::wire::{
    self, Request, command, errno, handshake_flag, info, option, reply, transmission,
};
use crate::source::{EIO, SourceError, SourceName, SourceOpenError, errno_text};
use std::collections::BTreeMap;
use std::io::{ErrorKind, IoSliceMut, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes for which a server has the time for silence once more: 35 KB/s, when that is 30 s.
const PACE_BYTES: u64 = 1 << 20;
/// Longest answer to an option.
const MAX_ANSWER: u32 = 64 << 10;
/// Most answers to one option.
const MAX_ANSWERS: u32 = 64;
/// How it is said that the resolver knows no such host.
const NO_ADDRESS: &str = "its host has no address";
pub(super) const ETIMEDOUT: i32 = rustix::io::Errno::TIMEDOUT.raw_os_error();

/// Why there are no bytes.
#[derive(Clone, Debug)]
pub enum LinkError {
    /// The connection is lost; another may work. Error number and what happened.
    Lost(i32, String),
    /// The server answered with an error, or will never do better.
    Refused(i32, String),
    /// It is another version.
    Changed(String),
}

impl LinkError {
    fn lost(error: &std::io::Error) -> LinkError {
        match error.kind() {
            ErrorKind::WouldBlock => LinkError::Lost(ETIMEDOUT, "the server is silent".to_string()),
            ErrorKind::TimedOut => LinkError::Lost(ETIMEDOUT, "the server is too slow".to_string()),
            ErrorKind::UnexpectedEof => {
                LinkError::Lost(EIO, "the server closed the connection".to_string())
            }
            _ => match error.raw_os_error() {
                Some(errno) => LinkError::Lost(errno, errno_text(errno)),
                // Of the resolver, which has no number.
                None => LinkError::Lost(EIO, error.to_string()),
            },
        }
    }

    fn odd(what: &str) -> LinkError {
        LinkError::Lost(
            EIO,
            format!("the server does not keep to the protocol: {what}"),
        )
    }

    pub fn open_error(self, what: &SourceName) -> SourceOpenError {
        let (LinkError::Lost(errno, why) | LinkError::Refused(errno, why)) = self else {
            return SourceOpenError {
                what: what.clone(),
                why: "it changes".into(),
                remedy: "try again".into(),
                errno: EIO,
            };
        };
        let remedy = match why.starts_with(NO_ADDRESS) {
            true => "check the host's name, or write its address".to_string(),
            false => "check that the server runs and has this export (nbdinfo --list)".to_string(),
        };
        SourceOpenError {
            what: what.clone(),
            why,
            remedy,
            errno,
        }
    }

    pub fn read_error(self, what: &SourceName) -> SourceError {
        match self {
            LinkError::Lost(errno, why) | LinkError::Refused(errno, why) => SourceError::Io {
                errno,
                what: format!("{what}: {why}"),
            },
            LinkError::Changed(why) => SourceError::Changed {
                what: format!("{what}: {why}"),
            },
        }
    }
}

/// Whose turn it is.
enum ReplyOwner {
    Free,
    Listening,
    /// The head of this one's answer has been read; what is left are its bytes, or none and this error.
    For(u64, u32),
    Down(LinkError),
}

struct ReplyState {
    owner: ReplyOwner,
    next_cookie: u64,
    /// By cookie, oldest first: what wakes the reader.
    waiting: BTreeMap<u64, Arc<Condvar>>,
    /// Bytes that the server owes for the requests in flight.
    owed: u64,
}

/// A reader that waits for an answer.
struct Waiter {
    cookie: u64,
    /// When the answer has to be complete.
    until: Instant,
    bell: Arc<Condvar>,
}

pub struct NbdLink {
    stream: Wire,
    export: ExportTerms,
    silence: Duration,
    sending: Mutex<()>,
    replies: Mutex<ReplyState>,
}

impl NbdLink {
    /// Connects and agrees on the export. `silence` is how long the server may say nothing while an answer is due.
    pub fn connect(address: &Address, silence: Duration) -> Result<NbdLink, LinkError> {
        let stream =
            Wire::connect(&address.place, silence).map_err(|error| LinkError::lost(&error))?;
        let export = agree(&stream, &address.export, Instant::now() + silence)?;
        let replies = Mutex::new(ReplyState {
            owner: ReplyOwner::Free,
            next_cookie: 1,
            waiting: BTreeMap::new(),
            owed: 0,
        });
        Ok(NbdLink {
            stream,
            export,
            silence,
            sending: Mutex::default(),
            replies,
        })
    }

    /// When an answer has to be complete: `silence` for itself, and as much for each [`PACE_BYTES`] that the server owes with it.
    fn until(&self, owed: u64) -> Instant {
        let times = owed.div_ceil(PACE_BYTES).saturating_add(1);
        Instant::now()
            + self
                .silence
                .saturating_mul(u32::try_from(times).unwrap_or(u32::MAX))
    }

    pub fn size(&self) -> u64 {
        self.export.size
    }

    /// The server promises that several connections see the same bytes.
    pub fn many(&self) -> bool {
        self.export.flags & transmission::CAN_MULTI_CONN != 0
    }

    pub fn is_up(&self) -> bool {
        !matches!(self.replies().owner, ReplyOwner::Down(_))
    }

    /// Reads in flight.
    pub fn requests(&self) -> u32 {
        self.replies().waiting.len() as u32
    }

    fn replies(&self) -> MutexGuard<'_, ReplyState> {
        self.replies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fills `bufs` with what there is from `offset` on.
    pub fn read(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, LinkError> {
        let left = usize::try_from(self.size().saturating_sub(offset)).unwrap_or(usize::MAX);
        let wanted = bufs.iter().map(|b| b.len()).sum::<usize>().min(left);
        let (requests, fits) = self
            .export
            .blocks
            .requests(offset..offset + wanted as u64, self.size());
        let mut beside = Vec::new();
        for request in requests {
            let len = (request.end - request.start) as usize;
            if fits {
                self.request(bufs, (request.start - offset) as usize, request.start, len)?;
            } else {
                beside.resize(len, 0);
                self.request(&mut [IoSliceMut::new(&mut beside)], 0, request.start, len)?;
                blocks::copy(&beside, request.start, bufs, offset);
            }
        }
        Ok(wanted)
    }

    /// One request: `len` bytes from `offset` on, into `bufs` from their byte `skip` on.
    fn request(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        skip: usize,
        offset: u64,
        len: usize,
    ) -> Result<(), LinkError> {
        let bell = Arc::new(Condvar::new());
        let (cookie, until) = {
            let mut replies = self.replies();
            if let ReplyOwner::Down(why) = &replies.owner {
                return Err(why.clone());
            }
            replies.next_cookie += 1;
            let cookie = replies.next_cookie;
            replies.waiting.insert(cookie, Arc::clone(&bell));
            replies.owed += len as u64;
            (cookie, self.until(replies.owed))
        };
        let done = self.receive(
            &Waiter {
                cookie,
                until,
                bell,
            },
            bufs,
            skip,
            (offset, len),
        );
        self.replies().owed -= len as u64;
        done
    }

    /// Sends the request and waits for its answer, at the latest until then.
    fn receive(
        &self,
        waiter: &Waiter,
        bufs: &mut [IoSliceMut<'_>],
        skip: usize,
        (offset, len): (u64, usize),
    ) -> Result<(), LinkError> {
        let request = Request {
            flags: 0,
            command: command::READ,
            cookie: waiter.cookie,
            offset,
            len: len as u32,
        };
        let sent = {
            let _turn = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
            self.stream.send(&request.bytes())
        };
        if let Err(error) = sent {
            return Err(self.down(LinkError::lost(&error)));
        }
        match self.listen(waiter)? {
            0 => {
                let received = fill(&self.stream, bufs, skip, len, waiter.until);
                received.map_err(|error| self.down(LinkError::lost(&error)))?;
                self.yield_floor(waiter.cookie);
                Ok(())
            }
            // It serves this version no more: another connection may get the next one.
            errno::ESHUTDOWN => Err(self.down(LinkError::Changed(
                "the server ends this connection".to_string(),
            ))),
            error => {
                self.yield_floor(waiter.cookie);
                let system = i32::try_from(error).unwrap_or(EIO);
                Err(LinkError::Refused(system, errno_text(system)))
            }
        }
    }

    /// Waits until the head of the answer to the waiter has been read, and holds the floor then. Gives its error number.
    fn listen(
        &self,
        &Waiter {
            cookie,
            until,
            ref bell,
        }: &Waiter,
    ) -> Result<u32, LinkError> {
        let mut replies = self.replies();
        loop {
            if Instant::now() >= until {
                drop(replies);
                return Err(self.down(LinkError::Lost(
                    ETIMEDOUT,
                    "the server is too slow".to_string(),
                )));
            }
            match &replies.owner {
                ReplyOwner::Down(why) => return Err(why.clone()),
                ReplyOwner::For(whose, error) if *whose == cookie => {
                    let error = *error;
                    replies.owner = ReplyOwner::Listening;
                    return Ok(error);
                }
                ReplyOwner::Free => {
                    replies.owner = ReplyOwner::Listening;
                    drop(replies);
                    let (whose, error) = self.head(until).map_err(|broken| self.down(broken))?;
                    if whose == cookie {
                        return Ok(error);
                    }
                    replies = self.replies();
                    let Some(other) = replies.waiting.get(&whose).map(Arc::clone) else {
                        drop(replies);
                        return Err(self.down(LinkError::odd("an answer to no request")));
                    };
                    replies.owner = ReplyOwner::For(whose, error);
                    drop(replies);
                    other.notify_one();
                    replies = self.replies();
                }
                ReplyOwner::Listening | ReplyOwner::For(..) => {
                    let left = until.saturating_duration_since(Instant::now());
                    replies = bell
                        .wait_timeout(replies, left)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0;
                }
            }
        }
    }

    fn yield_floor(&self, cookie: u64) {
        let mut replies = self.replies();
        replies.waiting.remove(&cookie);
        if matches!(replies.owner, ReplyOwner::Listening) {
            replies.owner = ReplyOwner::Free;
        }
        let next = replies
            .waiting
            .first_key_value()
            .map(|(_, bell)| Arc::clone(bell));
        drop(replies);
        if let Some(next) = next {
            next.notify_one();
        }
    }

    /// The head of the next answer: whose it is, and its error.
    fn head(&self, until: Instant) -> Result<(u64, u32), LinkError> {
        let mut bytes = [0; 16];
        self.stream
            .receive(&mut bytes, until)
            .map_err(|error| LinkError::lost(&error))?;
        if wire::u32_at(&bytes, 0) != wire::SIMPLE_MAGIC {
            return Err(LinkError::odd("an answer without its magic number"));
        }
        Ok((wire::u64_at(&bytes, 8), wire::u32_at(&bytes, 4)))
    }

    /// Nothing that comes can be trusted any more. Returns the error for all readers: the first reason there was.
    fn down(&self, why: LinkError) -> LinkError {
        let mut replies = self.replies();
        if let ReplyOwner::Down(first) = &replies.owner {
            return first.clone();
        }
        replies.owner = ReplyOwner::Down(why.clone());
        std::mem::take(&mut replies.waiting)
            .values()
            .for_each(|bell| bell.notify_one());
        self.stream.hang_up();
        why
    }
}

impl Drop for NbdLink {
    fn drop(&mut self) {
        if self.is_up() {
            let leave = Request {
                flags: 0,
                command: command::DISC,
                cookie: 0,
                offset: 0,
                len: 0,
            };
            let _ = self.stream.send(&leave.bytes());
        }
    }
}

fn fill(
    stream: &Wire,
    bufs: &mut [IoSliceMut<'_>],
    mut skip: usize,
    mut len: usize,
    until: Instant,
) -> std::io::Result<()> {
    for buf in bufs {
        let from = skip.min(buf.len());
        skip -= from;
        let n = len.min(buf.len() - from);
        stream.receive(&mut buf[from..from + n], until)?;
        len -= n;
    }
    Ok(())
}

/// What the server says of the export.
struct ExportTerms {
    size: u64,
    flags: u16,
    blocks: Blocks,
}

/// The client's side of the handshake.
fn agree(stream: &Wire, export: &str, until: Instant) -> Result<ExportTerms, LinkError> {
    let lost = |error: std::io::Error| LinkError::lost(&error);
    let mut hello = [0; 18];
    stream.receive(&mut hello, until).map_err(lost)?;
    let flags = wire::u16_at(&hello, 16);
    if wire::u64_at(&hello, 0) != wire::MAGIC || wire::u64_at(&hello, 8) != wire::OPTION_MAGIC {
        return Err(LinkError::Refused(
            EIO,
            "this is no NBD server of the newstyle kind".to_string(),
        ));
    }
    if flags & handshake_flag::FIXED_NEWSTYLE == 0 {
        return Err(LinkError::Refused(
            EIO,
            "the server is too old: it lacks the fixed newstyle handshake".to_string(),
        ));
    }
    let ours = u32::from(flags & (handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES));
    let name = export.as_bytes();
    // One wish: the sizes of requests. A server may refuse a client that does not ask for them.
    let wishes = [1, info::BLOCK_SIZE].map(u16::to_be_bytes).concat();
    let data = [&(name.len() as u32).to_be_bytes()[..], name, &wishes].concat();
    let mut ask = ours.to_be_bytes().to_vec();
    ask.extend(wire::OPTION_MAGIC.to_be_bytes());
    ask.extend(option::GO.to_be_bytes());
    ask.extend((data.len() as u32).to_be_bytes());
    ask.extend(data);
    stream.send(&ask).map_err(lost)?;
    let (mut found, mut blocks) = (None, Blocks::ANY);
    for _ in 0..MAX_ANSWERS {
        let (kind, data) = answer(stream, until)?;
        match kind {
            reply::ACK => {
                let (size, flags) = found.ok_or_else(|| LinkError::odd("no size"))?;
                return Ok(ExportTerms {
                    size,
                    flags,
                    blocks,
                });
            }
            reply::INFO if data.len() >= 12 && wire::u16_at(&data, 0) == info::EXPORT => {
                found = Some((wire::u64_at(&data, 2), wire::u16_at(&data, 10)));
            }
            reply::INFO if data.len() >= 14 && wire::u16_at(&data, 0) == info::BLOCK_SIZE => {
                let named = Blocks::of(wire::u32_at(&data, 2), wire::u32_at(&data, 10));
                blocks = named
                    .ok_or_else(|| LinkError::odd("sizes of requests that it does not allow"))?;
            }
            reply::INFO => {}
            error => return Err(refused(error, &data)),
        }
    }
    Err(LinkError::odd("too many answers"))
}

/// One answer to `GO`.
fn answer(stream: &Wire, until: Instant) -> Result<(u32, Vec<u8>), LinkError> {
    let lost = |error: std::io::Error| LinkError::lost(&error);
    let mut head = [0; 20];
    stream.receive(&mut head, until).map_err(lost)?;
    if wire::u64_at(&head, 0) != wire::OPTION_REPLY_MAGIC || wire::u32_at(&head, 8) != option::GO {
        return Err(LinkError::odd("an answer to another option"));
    }
    let len = wire::u32_at(&head, 16);
    if len > MAX_ANSWER {
        return Err(LinkError::odd("an answer of over 65536 bytes"));
    }
    let mut data = vec![0; len as usize];
    stream.receive(&mut data, until).map_err(lost)?;
    Ok((wire::u32_at(&head, 12), data))
}

fn refused(error: u32, data: &[u8]) -> LinkError {
    let said: String = String::from_utf8_lossy(data)
        .chars()
        .filter(|c| !c.is_control())
        .take(200)
        .collect();
    let what = match error {
        reply::ERR_UNKNOWN => "the server has no export of this name",
        reply::ERR_TLS_REQD => "the server wants TLS, which is not built in",
        reply::ERR_UNSUP => "the server is too old: it does not know the option GO",
        _ => "the server refuses",
    };
    let said = if said.is_empty() {
        String::new()
    } else {
        format!(" ({said})")
    };
    LinkError::Refused(EIO, format!("{what}{said}"))
}

/// A socket of either kind, read and written by several threads.
enum Wire {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Wire {
    fn connect(place: &ServerPlace, silence: Duration) -> std::io::Result<Wire> {
        match place {
            ServerPlace::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(silence))?;
                stream.set_write_timeout(Some(silence))?;
                Ok(Wire::Unix(stream))
            }
            ServerPlace::Tcp { host, port } => {
                let mut last = std::io::Error::from(ErrorKind::NotFound);
                let found = (host.as_str(), *port).to_socket_addrs();
                for address in found
                    .map_err(|error| std::io::Error::other(format!("{NO_ADDRESS} ({error})")))?
                {
                    match TcpStream::connect_timeout(&address, silence) {
                        Ok(stream) => {
                            stream.set_nodelay(true)?;
                            keep_alive(&stream)?;
                            stream.set_read_timeout(Some(silence))?;
                            stream.set_write_timeout(Some(silence))?;
                            return Ok(Wire::Tcp(stream));
                        }
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
        }
    }

    fn send(&self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Wire::Unix(s) => (&*s).write_all(bytes),
            Wire::Tcp(s) => (&*s).write_all(bytes),
        }
    }

    /// Fills `bytes`. Each wait is at most the time for silence, and none begins after `until`: an answer that dribbles ends.
    fn receive(&self, mut bytes: &mut [u8], until: Instant) -> std::io::Result<()> {
        while !bytes.is_empty() {
            if Instant::now() >= until {
                return Err(ErrorKind::TimedOut.into());
            }
            let got = match self {
                Wire::Unix(s) => (&*s).read(bytes),
                Wire::Tcp(s) => (&*s).read(bytes),
            };
            match got {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(got) => bytes = &mut bytes[got..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn hang_up(&self) {
        // It fails only where it is closed already.
        let _ = match self {
            Wire::Unix(s) => s.shutdown(Shutdown::Both),
            Wire::Tcp(s) => s.shutdown(Shutdown::Both),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tcp_server_that_is_gone_is_noticed() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let place = ServerPlace::Tcp {
            host: "127.0.0.1".to_string(),
            port,
        };
        let Ok(Wire::Tcp(stream)) = Wire::connect(&place, Duration::from_secs(5)) else {
            panic!("connected")
        };
        assert_eq!(rustix::net::sockopt::socket_keepalive(&stream), Ok(true));
    }
}
