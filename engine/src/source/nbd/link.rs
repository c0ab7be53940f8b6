//! One connection to an NBD server, with any number of reads in flight.
//!
//! The waiting readers receive the replies themselves, one after the other. One thread at a time reads from the socket. The thread that
//! reads takes the header of the next reply; if the reply belongs to another reader, that reader's thread continues. So each reader reads
//! its own bytes into its own buffers: nothing is copied, and no further thread is needed. Each change of the reading thread wakes only
//! one reader: after a header, the owner of the reply; after a complete reply, the reader that has waited longest, because its reply
//! probably comes next. The client accepts only simple replies, not structured ones. Any other data from the server ends the connection.
//!
//! ```text
//!   floor: Free ──a waiter──► Listening ──head── mine ──► my bytes ──► Free
//!                                          └─── another's ──► For(cookie) ──that waiter──► its bytes ──► Free
//!   any failure ──► Down: every waiting read fails, the next read reconnects
//! ```

use super::failure::{ETIMEDOUT, LinkError};
use super::stream::ServerStream;
use super::terms;
use super::terms::ExportTerms;
use super::uri::Address;
use crate::nbd::wire;
use crate::nbd::wire::{Request, command, errno, transmission};
use crate::source::{EIO, errno_text};
use crate::sync::lock;
use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The server gets the silence timeout once more for each of these many bytes: at 30 s, it must send 35 KB/s.
const PACE_BYTES: u64 = 1 << 20;
/// Which reader may receive.
enum ReplyOwner {
    Free,
    Listening,
    /// The header of this reader's reply has been read. Its bytes are left, or none if this error number is set.
    For(u64, u32),
    Down(LinkError),
}

struct ReplyState {
    owner: ReplyOwner,
    next_cookie: u64,
    /// The waiting readers by cookie, oldest first, with the condition variable that wakes each.
    waiting: BTreeMap<u64, Arc<Condvar>>,
    /// Bytes that the server owes for the requests in flight.
    owed: u64,
}

pub struct NbdLink {
    stream: ServerStream,
    export: ExportTerms,
    silence: Duration,
    sending: Mutex<()>,
    replies: Mutex<ReplyState>,
}

impl NbdLink {
    /// Connects and negotiates the export. `silence` is how long the server may send nothing while it owes a reply.
    pub fn connect(address: &Address, silence: Duration) -> Result<NbdLink, LinkError> {
        let stream = ServerStream::connect(&address.place, silence);
        let mut stream = stream.map_err(LinkError::lost)?;
        let export = terms::agree(&mut stream, address, Instant::now() + silence)?;
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

    /// The deadline of a reply: `silence`, and as much again for each [`PACE_BYTES`] of outstanding replies.
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

    /// Returns true if the server promises that all connections see the same bytes (NBD_FLAG_CAN_MULTI_CONN).
    pub fn many(&self) -> bool {
        self.export.flags & transmission::CAN_MULTI_CONN != 0
    }

    pub fn is_up(&self) -> bool {
        !matches!(lock(&self.replies).owner, ReplyOwner::Down(_))
    }

    /// The change of the export that has ended the connection, if one has.
    pub fn change(&self) -> Option<LinkError> {
        match &lock(&self.replies).owner {
            ReplyOwner::Down(why @ LinkError::Changed(_)) => Some(why.clone()),
            _ => None,
        }
    }

    /// Returns the number of reads in flight.
    pub fn requests(&self) -> u32 {
        lock(&self.replies).waiting.len() as u32
    }

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
                terms::copy(&beside, request.start, bufs, offset);
            }
        }
        Ok(wanted)
    }

    /// One request: reads `len` bytes from `offset` on into `bufs`, from byte `skip` of the buffers on.
    fn request(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        skip: usize,
        offset: u64,
        len: usize,
    ) -> Result<(), LinkError> {
        let bell = Arc::new(Condvar::new());
        let (cookie, until) = {
            let mut replies = lock(&self.replies);
            if let ReplyOwner::Down(why) = &replies.owner {
                return Err(why.clone());
            }
            replies.next_cookie += 1;
            let cookie = replies.next_cookie;
            replies.waiting.insert(cookie, Arc::clone(&bell));
            replies.owed += len as u64;
            (cookie, self.until(replies.owed))
        };
        let request = Request {
            flags: 0,
            command: command::READ,
            cookie,
            offset,
            len: len as u32,
        };
        let done = self.receive(&request, until, &bell, bufs, skip);
        lock(&self.replies).owed -= len as u64;
        done
    }

    /// Sends the request and waits for its reply, at most until this time.
    fn receive(
        &self,
        request: &Request,
        until: Instant,
        bell: &Condvar,
        bufs: &mut [IoSliceMut<'_>],
        skip: usize,
    ) -> Result<(), LinkError> {
        let sent = {
            let _turn = lock(&self.sending);
            self.stream.send(&request.bytes())
        };
        if let Err(error) = sent {
            return Err(self.down(LinkError::lost(error)));
        }
        match self.listen(request.cookie, until, bell)? {
            0 => {
                let received = fill(&self.stream, bufs, skip, request.len as usize, until);
                received.map_err(|error| self.down(LinkError::lost(error)))?;
                self.yield_floor(request.cookie);
                Ok(())
            }
            // The server no longer serves this version: another connection may get the next version.
            errno::ESHUTDOWN => Err(self.down(LinkError::Changed(
                "the server is shutting down this connection".to_string(),
            ))),
            error => {
                self.yield_floor(request.cookie);
                let system = i32::try_from(error).unwrap_or(EIO);
                Err(LinkError::Refused(system, errno_text(system)))
            }
        }
    }

    /// Waits until the header of the reply to this cookie has been read. The caller then has the turn. Returns the error number of
    /// the reply.
    fn listen(&self, cookie: u64, until: Instant, bell: &Condvar) -> Result<u32, LinkError> {
        let mut replies = lock(&self.replies);
        loop {
            if Instant::now() >= until {
                drop(replies);
                return Err(self.down(LinkError::Lost(
                    ETIMEDOUT,
                    "the server did not answer within the time limit".to_string(),
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
                    replies = lock(&self.replies);
                    let Some(other) = replies.waiting.get(&whose).map(Arc::clone) else {
                        drop(replies);
                        return Err(self.down(LinkError::odd("a reply with an unknown cookie")));
                    };
                    replies.owner = ReplyOwner::For(whose, error);
                    drop(replies);
                    other.notify_one();
                    replies = lock(&self.replies);
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
        let mut replies = lock(&self.replies);
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

    /// Reads the header of the next reply: its cookie and its error number.
    fn head(&self, until: Instant) -> Result<(u64, u32), LinkError> {
        let mut bytes = [0; 16];
        let received = self.stream.receive(&mut bytes, until);
        received.map_err(LinkError::lost)?;
        if wire::u32_at(&bytes, 0) != wire::SIMPLE_MAGIC {
            return Err(LinkError::odd("a reply without the NBD magic number"));
        }
        Ok((wire::u64_at(&bytes, 8), wire::u32_at(&bytes, 4)))
    }

    /// Marks the connection as broken. Returns the error for all readers: the first reason.
    pub fn down(&self, why: LinkError) -> LinkError {
        let mut replies = lock(&self.replies);
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
    stream: &ServerStream,
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

// Reconnection delays for a server that does not answer.
//
// ```text
//   connected ──► lost, or refused ──► tried again after 100 ms, 200 ms, ... 2 s; until then reads fail with the last reason
//       ▲                                   │ connected
//       └───────────────────────────────────┘
// ```
//
// This code neither sleeps nor connects.

/// The first and the longest pause after a failed attempt to connect. Each pause is twice as long as the one before.
const MIN_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// Maximum wait of a read for the next try: if the server has been down for a while, reads fail at once.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// Tries of one read: after pauses of 0, 100, 200, 400 and 800 ms, in which a server can restart.
const MAX_TRIES: u32 = 5;

#[derive(Default)]
pub struct Redial {
    failures: u32,
    next: Option<(Instant, LinkError)>,
}

impl Redial {
    /// Returns the last connection error if it is too early for the next attempt.
    pub fn refuses(&self, now: Instant) -> Option<LinkError> {
        self.next
            .as_ref()
            .filter(|(next, _)| now < *next)
            .map(|(_, why)| why.clone())
    }

    pub fn connected(&mut self) {
        (self.failures, self.next) = (0, None);
    }

    /// Records that an attempt to connect has failed.
    pub fn failed(&mut self, now: Instant, why: &LinkError) {
        let pause = MIN_PAUSE
            .saturating_mul(1 << self.failures.min(16))
            .min(MAX_PAUSE);
        self.failures += 1;
        self.next = Some((now + pause, why.clone()));
    }

    /// Returns how long a read that has failed `tries` times waits before the next try. Returns `None` if the read should not be
    /// tried again.
    pub fn pause(&self, now: Instant, tries: u32) -> Option<Duration> {
        let own = if tries <= 1 {
            Duration::ZERO
        } else {
            MIN_PAUSE.saturating_mul(1 << (tries - 2).min(16))
        };
        let closed = self.next.as_ref().map_or(Duration::ZERO, |(next, _)| {
            next.saturating_duration_since(now)
        });
        (tries < MAX_TRIES && closed <= MAX_WAIT).then(|| own.max(closed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost() -> LinkError {
        LinkError::Lost(111, "Connection refused".to_string())
    }

    #[test]
    fn pauses_are_doubled_up_to_the_longest() {
        let (start, mut redial) = (Instant::now(), Redial::default());
        assert!(redial.refuses(start).is_none());
        for pause in [100, 200, 400, 800, 1600, 2000, 2000] {
            redial.failed(start, &lost());
            assert!(
                redial
                    .refuses(start + Duration::from_millis(pause - 1))
                    .is_some(),
                "{pause}"
            );
            assert!(
                redial
                    .refuses(start + Duration::from_millis(pause))
                    .is_none(),
                "{pause}"
            );
        }
        assert_eq!(
            redial.pause(start, 1),
            None,
            "dead for a while: reads fail at once"
        );
        redial.connected();
        assert!(redial.refuses(start).is_none());
        redial.failed(start, &lost());
        assert_eq!(
            redial.pause(start, 1),
            Some(Duration::from_millis(100)),
            "from the start again"
        );
    }

    #[test]
    fn a_read_tries_five_times() {
        let (now, redial) = (Instant::now(), Redial::default());
        let pauses: Vec<Option<u128>> = (1..6)
            .map(|tries| redial.pause(now, tries).map(|p| p.as_millis()))
            .collect();
        assert_eq!(pauses, [Some(0), Some(100), Some(200), Some(400), None]);
    }
}
