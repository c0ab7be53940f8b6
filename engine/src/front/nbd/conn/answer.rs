//! Executes a request and answers the client.
//!
//! An answer with data is sent in pieces, each a [`Reply`]. The bytes of two answers are never mixed on the wire, and all answers are of one
//! version of the source. While a client takes no bytes, the memory of its answers counts against a limit. Beyond the limit, the bytes are
//! dropped, and read again before they are sent; they are nearly always cached.
//!
//! ```text
//!   read:   fill a piece ── output lock ── send ── (next piece) ── unlock       an error after the first piece: disconnect
//!   write:  source ── drop from cache ── FUA: flush ── output lock ── send ── unlock
//! ```

use super::{Conn, Disconnected, RequestGuard, Task};
use crate::front::nbd::add;
use crate::front::nbd::permits::Permit;
use crate::front::nbd::socket::PIECE_BYTES;
use crate::front::observe::{PassedRequest, RequestKind};
use crate::nbd::validate::{Order, Refusal};
use crate::nbd::wire::{self, allocation, errno};
use crate::sync::lock;
use crate::{Advice, ReadError, WriteError};
use std::io::{ErrorKind, IoSlice};
use std::ops::Range;
use std::sync::{MutexGuard, TryLockError};
use std::time::Instant;

/// Maximum number of extents in one answer about holes: 8 KiB.
const MAX_EXTENTS: usize = 1024;

/// An error number of the protocol, and its text.
type Failure = (u32, String);

/// A request that is being answered.
#[derive(Clone, Copy)]
pub(super) struct Open {
    cookie: u64,
    /// What the observer gets. `None` without an observer, and for a refused request, which has no open description.
    seen: Option<PassedRequest>,
}

impl Open {
    pub(super) fn new(cookie: u64, order: &Result<Order, Refusal>, is_observed: bool) -> Open {
        let seen = || {
            let (asked, offset, len) = match *order.as_ref().ok()? {
                Order::Disconnect | Order::Status { .. } => return None,
                Order::Read { offset, len } => (RequestKind::Read, offset, len),
                Order::Cache { offset, len } => (RequestKind::WillNeed, offset, len),
                Order::Flush => (RequestKind::Flush, 0, 0),
                Order::Write { offset, len, .. } | Order::Zero { offset, len, .. } => {
                    (RequestKind::Write, offset, len)
                }
            };
            let now = Instant::now();
            Some(PassedRequest {
                asked,
                offset,
                len: u64::from(len),
                returned: u64::from(len),
                done: false,
                start: now,
                end: now,
            })
        };
        let seen = is_observed.then(seen).flatten();
        Open { cookie, seen }
    }
}

/// What an answer, or a piece of one, contains.
enum Content {
    /// The first bytes of a read of this length.
    Data(u32),
    /// The next bytes of the read whose first bytes were sent before.
    MoreData,
    Done,
    Extents(Vec<(u32, u32)>),
    Failed(Failure),
}

/// An answer, or a piece of one.
pub struct Reply {
    open: Open,
    content: Content,
    /// The offset and length of its data. The length is 0 for an answer without data.
    offset: u64,
    len: usize,
    /// Its data, and perhaps room for more. Empty if it was dropped.
    bytes: Vec<u8>,
    /// Whether the answer ends with it.
    is_last: bool,
    /// The bytes before its data, once it was begun.
    head: Option<Vec<u8>>,
    owed: Option<Permit>,
}

impl Reply {
    fn new(open: Open, content: Content) -> Reply {
        Reply {
            open,
            content,
            offset: 0,
            len: 0,
            bytes: Vec::new(),
            is_last: true,
            head: None,
            owed: None,
        }
    }

    /// The whole data of a read, or its error.
    pub(super) fn of_read(
        open: Open,
        offset: u64,
        bytes: Vec<u8>,
        read: Result<usize, ReadError>,
    ) -> Reply {
        let len = bytes.len();
        match is_whole(read, len) {
            Ok(()) => Reply {
                offset,
                len,
                bytes,
                ..Reply::new(open, Content::Data(len as u32))
            },
            Err(failure) => Reply::new(open, Content::Failed(failure)),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn fail(&mut self, failure: Failure) {
        (self.content, self.len, self.is_last) = (Content::Failed(failure), 0, true);
    }

    fn is_dropped(&self) -> bool {
        self.len > 0 && self.bytes.is_empty()
    }

    fn head_bytes(&self) -> usize {
        self.head.as_ref().map_or(0, Vec::len)
    }

    /// Its bytes on the wire, also of those that were dropped. TLS may have taken them before.
    fn wire_bytes(&self) -> usize {
        self.head_bytes() + self.len
    }

    /// Whether it is sent, if `out` bytes of it are.
    fn is_sent(&self, out: usize) -> bool {
        self.head.is_some() && out >= self.wire_bytes()
    }
}

impl Conn {
    pub(super) fn answer(
        &self,
        turn: &RequestGuard<'_>,
        task: Task,
        buffer: &mut Vec<u8>,
    ) -> Result<(), Disconnected> {
        let order = match task.order {
            Ok(order) => order,
            Err(Refusal { error, message, .. }) => {
                let refused = Content::Failed((error, message.to_string()));
                return self.send_one(turn, task.open, refused);
            }
        };
        let done = match order {
            Order::Disconnect => return Err(Disconnected),
            Order::Read { offset, len } => return self.read(turn, task.open, offset, len, buffer),
            Order::Status { offset, len, one } => {
                let most = if one { 1 } else { MAX_EXTENTS };
                turn.yield_slot();
                let content = match self.extents(offset..offset + u64::from(len), most) {
                    Ok(extents) => Content::Extents(extents),
                    Err(failure) => Content::Failed(failure),
                };
                return self.send_one(turn, task.open, content);
            }
            Order::Cache { offset, len } => {
                // A hint without effect is not an error.
                let _ = self
                    .reader()
                    .advise(Advice::WillNeed, offset..offset + u64::from(len));
                Ok(())
            }
            // A read-only source has nothing to flush.
            Order::Flush if !self.shared.settings.writable => Ok(()),
            Order::Flush => {
                turn.yield_slot();
                self.reader().flush()
            }
            Order::Write { offset, len, safe } => {
                turn.yield_slot();
                let written = task.written.unwrap_or_else(|| {
                    let bytes = buffer.get(..len as usize).unwrap_or_default();
                    self.reader().write_at(bytes, offset)
                });
                self.wrote(written, len, safe)
            }
            Order::Zero { offset, len, safe } => {
                turn.yield_slot();
                let zeroed = self.zero(offset, len, buffer);
                self.wrote(zeroed, len, safe)
            }
        };
        let content = match done {
            Ok(()) => Content::Done,
            Err(error) => Content::Failed(refused(&error)),
        };
        self.send_one(turn, task.open, content)
    }

    /// Counts the bytes of a write, and flushes them if the client asked for it.
    fn wrote(
        &self,
        written: Result<(), WriteError>,
        len: u32,
        safe: bool,
    ) -> Result<(), WriteError> {
        written?;
        add(&self.shared.counters.written_bytes, u64::from(len));
        if safe { self.reader().flush() } else { Ok(()) }
    }

    /// Reports an answer to the observer, if there is one, before it is sent.
    fn told(&self, open: Open, done: bool) {
        if let (Some(observer), Some(seen)) = (&self.shared.settings.observer, open.seen) {
            let end = Instant::now();
            observer.passed(self.number, &PassedRequest { done, end, ..seen });
        }
    }

    /// Locks the wire if no other answer is being sent.
    pub(super) fn free_wire(&self) -> Option<MutexGuard<'_, ()>> {
        match self.output.try_lock() {
            Ok(wire) => Some(wire),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Locks the wire for an answer. The answer that is being sent may have to wait for the client.
    fn wire(&self, turn: &RequestGuard<'_>, reply: &mut Reply) -> MutexGuard<'_, ()> {
        self.free_wire().unwrap_or_else(|| {
            turn.step_aside_for_client();
            self.keep(reply);
            lock(&self.output)
        })
    }

    /// Counts the memory of an answer against the limit for slow clients, or drops its bytes; they are then read again.
    pub(super) fn keep(&self, reply: &mut Reply) {
        if reply.len == 0 || reply.owed.is_some() || reply.is_dropped() {
            return;
        }
        reply.owed = self.shared.owed.hold(reply.len as u64);
        if reply.owed.is_some() {
            reply.bytes.truncate(reply.len);
            reply.bytes.shrink_to_fit();
        } else {
            add(&self.shared.counters.reread_bytes, reply.len as u64);
            reply.bytes = Vec::new();
        }
    }

    /// Sends an answer without data.
    fn send_one(
        &self,
        turn: &RequestGuard<'_>,
        open: Open,
        content: Content,
    ) -> Result<(), Disconnected> {
        let mut reply = Reply::new(open, content);
        let _wire = self.wire(turn, &mut reply);
        self.send(turn, &mut [reply])
    }

    /// Sends answers with as few calls as possible. The caller has locked the wire. The client must take all within the stall timeout.
    pub(super) fn send(
        &self,
        turn: &RequestGuard<'_>,
        mut batch: &mut [Reply],
    ) -> Result<(), Disconnected> {
        let (mut deadline, mut out) = (self.stall(), 0);
        while !batch.is_empty() {
            let mut ready = 0;
            while let Some(reply) = batch.get_mut(ready) {
                if reply.is_dropped() {
                    // One at a time.
                    if ready > 0 {
                        break;
                    }
                    self.recall(turn, reply, out)?;
                }
                if reply.head.is_none() {
                    self.begin_reply(turn, reply);
                }
                ready += 1;
            }
            let parts = batch[..ready].iter().flat_map(|reply| {
                let head = reply.head.as_deref().unwrap_or_default();
                [head, &reply.bytes[..reply.len]]
            });
            let mut parts: Vec<IoSlice<'_>> = parts.map(IoSlice::new).collect();
            let mut parts = &mut parts[..];
            IoSlice::advance_slices(&mut parts, out);
            match self.stream.send_now(parts) {
                Ok(sent) => {
                    out += sent;
                    while batch.first().is_some_and(|first| first.is_sent(out)) {
                        out -= batch[0].wire_bytes();
                        batch = &mut batch[1..];
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    turn.step_aside_for_client();
                    let mut after = lock(&self.replies);
                    let all = batch.iter_mut().chain(after.iter_mut());
                    all.for_each(|reply| self.keep(reply));
                    drop(after);
                    let ready = self.stream.socket.wait_to_send(&mut deadline);
                    ready.map_err(|_| self.give_up())?;
                }
                Err(_) => return Err(self.give_up()),
            }
        }
        Ok(())
    }

    /// Reads the bytes of an answer again that were dropped, as far as they are not sent: `out` bytes of it are.
    fn recall(
        &self,
        turn: &RequestGuard<'_>,
        reply: &mut Reply,
        out: usize,
    ) -> Result<(), Disconnected> {
        let sent = out.saturating_sub(reply.head_bytes());
        reply.bytes.resize(reply.len, 0);
        if let Err(failure) = self.fill(turn, &mut reply.bytes[sent..], reply.offset + sent as u64)
        {
            if reply.head.is_some() {
                // A part of it may be sent.
                return Err(self.give_up());
            }
            reply.fail(failure);
        }
        Ok(())
    }

    /// Writes the head of an answer, and counts the answer before it is sent, so that it is counted and observed by the time the client has
    /// it.
    fn begin_reply(&self, turn: &RequestGuard<'_>, reply: &mut Reply) {
        let (cookie, structured) = (reply.open.cookie, turn.agreement.structured);
        let head = match &reply.content {
            Content::Data(len) if structured => {
                wire::data_head(cookie, reply.offset, *len).to_vec()
            }
            Content::MoreData => Vec::new(),
            Content::Done if structured => {
                wire::chunk_head(wire::chunk::DONE, wire::chunk::NONE, cookie, 0).to_vec()
            }
            Content::Data(_) | Content::Done => wire::simple(0, cookie).to_vec(),
            Content::Extents(extents) => wire::status_chunk(cookie, extents),
            Content::Failed((error, message)) if structured => {
                wire::error_chunk(cookie, *error, message)
            }
            Content::Failed((error, _)) => wire::simple(*error, cookie).to_vec(),
        };
        reply.head = Some(head);
        turn.sent.update(|sent| sent + reply.len);
        add(&self.shared.counters.bytes, reply.len as u64);
        match reply.content {
            Content::Failed(_) => self.failed(reply.open),
            _ if reply.is_last => {
                self.told(reply.open, true);
                add(&self.shared.counters.requests, 1);
            }
            _ => {}
        }
    }

    fn failed(&self, open: Open) {
        add(&self.shared.counters.failed_requests, 1);
        self.told(open, false);
    }

    /// The extents of a range from its first byte on, with the flags of the protocol.
    fn extents(&self, range: Range<u64>, most: usize) -> Result<Vec<(u32, u32)>, Failure> {
        let extents = self.reader().extents(range.start, range.end, most);
        let extents = extents.map_err(unread)?;
        if extents.is_empty() {
            return Err(shorter());
        }
        let mut left = range.end - range.start;
        let told = extents.iter().map(|extent| {
            // Only the last extent may extend beyond the range, and not if a single extent was requested; here none does.
            let len = extent.len.min(left);
            left -= len;
            let hole = u32::from(extent.is_hole) * (allocation::HOLE | allocation::ZERO);
            (len as u32, hole)
        });
        Ok(told.collect())
    }

    /// Reads and sends data. The first piece decides between data and error. A later error can only be reported in a structured
    /// reply, or by closing the connection.
    fn read(
        &self,
        turn: &RequestGuard<'_>,
        open: Open,
        offset: u64,
        len: u32,
        buffer: &mut Vec<u8>,
    ) -> Result<(), Disconnected> {
        let end = offset + u64::from(len);
        let mut reply = Reply::new(open, Content::Data(len));
        (reply.offset, reply.bytes) = (offset, std::mem::take(buffer));
        if let Err(failure) = self.fill_piece(turn, &mut reply, end) {
            reply.fail(failure);
        }
        let _wire = self.wire(turn, &mut reply);
        self.send(turn, std::slice::from_mut(&mut reply))?;
        while !reply.is_last {
            // This takes time at the source, and then at the client.
            turn.yield_slot();
            reply.offset += reply.len as u64;
            (reply.content, reply.head, reply.owed) = (Content::MoreData, None, None);
            if self.fill_piece(turn, &mut reply, end).is_err() {
                self.failed(open);
                return Err(self.give_up());
            }
            self.send(turn, std::slice::from_mut(&mut reply))?;
        }
        *buffer = reply.bytes;
        Ok(())
    }

    /// Reads the piece of an answer that begins at its offset, of a read that ends at `end`.
    fn fill_piece(
        &self,
        turn: &RequestGuard<'_>,
        reply: &mut Reply,
        end: u64,
    ) -> Result<(), Failure> {
        let left = (end - reply.offset) as usize;
        (reply.len, reply.is_last) = (left.min(PIECE_BYTES), left <= PIECE_BYTES);
        if reply.bytes.len() < reply.len {
            reply.bytes.resize(reply.len, 0);
        }
        self.fill(turn, &mut reply.bytes[..reply.len], reply.offset)
    }

    /// Fills all of `buf` with bytes of the version that was announced to the client.
    fn fill(&self, turn: &RequestGuard<'_>, buf: &mut [u8], offset: u64) -> Result<(), Failure> {
        let mut waits = || turn.yield_slot();
        let read = self.reader().read_at_telling(buf, offset, &mut waits);
        is_whole(read, buf.len())
    }

    /// Writes zeroes, piece by piece.
    fn zero(&self, offset: u64, len: u32, buffer: &mut Vec<u8>) -> Result<(), WriteError> {
        buffer.clear();
        buffer.resize(PIECE_BYTES.min(len as usize), 0);
        for start in (0..len as usize).step_by(PIECE_BYTES) {
            let piece = &buffer[..PIECE_BYTES.min(len as usize - start)];
            self.reader().write_at(piece, offset + start as u64)?;
        }
        Ok(())
    }
}

/// Whether a read has returned all of its bytes.
fn is_whole(read: Result<usize, ReadError>, len: usize) -> Result<(), Failure> {
    match read {
        Ok(got) if got == len => Ok(()),
        Ok(_) => Err(shorter()),
        Err(error) => Err(unread(error)),
    }
}

fn shorter() -> Failure {
    (errno::EIO, "the source became shorter".to_string())
}

fn unread(error: ReadError) -> Failure {
    let number = match &error {
        ReadError::Changed { .. } => errno::ESHUTDOWN,
        error => wire::wire_errno(error.errno()),
    };
    (number, error.to_string())
}

fn refused(error: &WriteError) -> Failure {
    let number = match error {
        WriteError::Changed { .. } => errno::ESHUTDOWN,
        WriteError::Io { errno, .. } if *errno == rustix::io::Errno::ROFS.raw_os_error() => {
            errno::EPERM
        }
        error => wire::wire_errno(error.errno()),
    };
    (number, error.to_string())
}
