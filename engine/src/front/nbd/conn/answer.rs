//! Executes a request and answers the client.
//!
//! The bytes of two answers are never mixed on the wire, and all answers are of one version of the source.
//!
//! ```text
//!   read:   fill a piece ── output lock ── send ── (next piece) ── unlock       an error after the first piece: disconnect
//!   write:  source ── drop from cache ── FUA: flush ── output lock ── send ── unlock
//! ```

use super::{Agreement, Conn, Disconnected, RequestGuard, Task};
use crate::front::nbd::add;
use crate::front::nbd::permits::Permit;
use crate::front::nbd::socket::PIECE_BYTES;
use crate::front::observe::{PassedRequest, RequestKind};
use crate::nbd::validate::Order;
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
pub(super) type Failure = (u32, String);

/// A part of an answer that is read and sent at once.
#[derive(Clone, Copy)]
struct AnswerPiece {
    offset: u64,
    len: usize,
}

/// A request that is being answered.
#[derive(Clone, Copy)]
pub(super) struct Open {
    pub(super) cookie: u64,
    /// `None` without an observer.
    seen: Option<SeenRequest>,
}

/// The observer's data about a request.
#[derive(Clone, Copy)]
struct SeenRequest {
    asked: RequestKind,
    offset: u64,
    len: u64,
    /// When it was read from the socket.
    start: Instant,
}

impl Open {
    pub(super) fn new(cookie: u64, order: &Order, taken: Option<Instant>) -> Open {
        let seen = taken.and_then(|start| {
            let (asked, offset, len) = match *order {
                Order::Disconnect | Order::Status { .. } => return None,
                Order::Read { offset, len } => (RequestKind::Read, offset, len),
                Order::Cache { offset, len } => (RequestKind::WillNeed, offset, len),
                Order::Flush => (RequestKind::Flush, 0, 0),
                Order::Write { offset, len, .. } | Order::Zero { offset, len, .. } => {
                    (RequestKind::Write, offset, len)
                }
            };
            Some(SeenRequest {
                asked,
                offset,
                len: u64::from(len),
                start,
            })
        });
        Open { cookie, seen }
    }
}

impl Conn {
    pub(super) fn answer(
        &self,
        turn: &RequestGuard<'_>,
        agreement: &Agreement,
        task: Task,
        buffer: &mut Vec<u8>,
    ) -> Result<(), Disconnected> {
        let order = match task.order {
            Ok(order) => order,
            Err(refusal) => {
                // A refused request has no open description.
                let open = Open {
                    cookie: task.cookie,
                    seen: None,
                };
                return self.fail(turn, agreement, open, refusal.error, refusal.message);
            }
        };
        let open = Open::new(task.cookie, &order, task.taken);
        let done = match order {
            Order::Disconnect => return Err(Disconnected),
            Order::Read { offset, len } => {
                return self.read((turn, agreement), open, offset, len, buffer);
            }
            Order::Status { offset, len, one } => {
                let most = if one { 1 } else { MAX_EXTENTS };
                let range = offset..offset + u64::from(len);
                return self.status((turn, agreement), open, range, most);
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
                written.and_then(|()| if safe { self.reader().flush() } else { Ok(()) })
            }
            Order::Zero { offset, len, safe } => {
                turn.yield_slot();
                self.zero(offset, len, buffer)
                    .and_then(|()| if safe { self.reader().flush() } else { Ok(()) })
            }
        };
        match done.map_err(|error| refused(&error)) {
            Ok(()) => self.succeed(turn, agreement, open),
            Err((error, message)) => self.fail(turn, agreement, open, error, &message),
        }
    }

    /// Reports an answer to the observer, if there is one, before it is sent.
    pub(super) fn told(&self, open: Open, done: bool) {
        let (Some(observer), Some(seen)) = (&self.shared.settings.observer, open.seen) else {
            return;
        };
        observer.passed(
            self.number,
            &PassedRequest {
                asked: seen.asked,
                offset: seen.offset,
                len: seen.len,
                returned: seen.len,
                done,
                start: seen.start,
                end: Instant::now(),
            },
        );
    }

    /// Locks the wire if no other answer is being sent.
    pub(super) fn free_wire(&self) -> Option<MutexGuard<'_, ()>> {
        match self.output.try_lock() {
            Ok(wire) => Some(wire),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Locks the wire for an answer without data.
    fn wire(&self, turn: &RequestGuard<'_>) -> MutexGuard<'_, ()> {
        self.free_wire().unwrap_or_else(|| {
            // The answer that is being sent may have to wait for the client.
            turn.step_aside_for_client();
            lock(&self.output)
        })
    }

    /// Locks the wire for an answer that starts with this piece, which is then in `buffer`.
    fn wire_with(
        &self,
        turn: &RequestGuard<'_>,
        piece: AnswerPiece,
        buffer: &mut Vec<u8>,
    ) -> Result<MutexGuard<'_, ()>, Failure> {
        if let Some(wire) = self.free_wire() {
            return Ok(wire);
        }
        turn.step_aside_for_client();
        let owed = self.owe(piece, buffer);
        let wire = lock(&self.output);
        drop(owed);
        self.recall(turn, piece, 0, buffer).map(|()| wire)
    }

    /// Counts the memory of a piece against the limit for slow clients. If too many bytes are kept already, they are dropped, and the
    /// unsent ones are read again later ([`Conn::recall`]); they are nearly always cached.
    fn owe(&self, piece: AnswerPiece, buffer: &mut Vec<u8>) -> Option<Permit> {
        let owed = self.shared.owed.hold(piece.len as u64);
        match owed {
            Some(_) => buffer.truncate(piece.len),
            None => {
                add(&self.shared.counters.reread_bytes, piece.len as u64);
                buffer.clear();
            }
        }
        buffer.shrink_to_fit();
        owed
    }

    /// Reads the rest of a piece into `buffer` again, if it was dropped.
    fn recall(
        &self,
        turn: &RequestGuard<'_>,
        piece: AnswerPiece,
        sent: usize,
        buffer: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        if !buffer.is_empty() {
            return Ok(());
        }
        buffer.resize(piece.len, 0);
        self.fill(turn, &mut buffer[sent..], piece.offset + sent as u64)
    }

    /// Sends `head` and then a piece in `buffer`. The client must take it within the stall timeout.
    fn send_piece(
        &self,
        turn: &RequestGuard<'_>,
        head: &[u8],
        piece: AnswerPiece,
        buffer: &mut Vec<u8>,
    ) -> Result<(), Disconnected> {
        turn.sent.update(|sent| sent + piece.len);
        let mut deadline = self.stall();
        let mut out = 0;
        while out < head.len() + piece.len {
            let (of_head, of_data) = (out.min(head.len()), out.saturating_sub(head.len()));
            let parts = [&head[of_head..], &buffer[of_data..piece.len]];
            match self.stream.send_now(&parts.map(IoSlice::new)) {
                Ok(sent) => out += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    turn.step_aside_for_client();
                    let owed = self.owe(piece, buffer);
                    self.stream
                        .wait_to_send(&mut deadline)
                        .map_err(|_| self.give_up())?;
                    drop(owed);
                    self.recall(turn, piece, of_data, buffer)
                        .map_err(|_| self.give_up())?;
                }
                Err(_) => return Err(self.give_up()),
            }
        }
        Ok(())
    }

    /// Sends an answer without data.
    fn send(&self, turn: &RequestGuard<'_>, answer: &[u8]) -> Result<(), Disconnected> {
        self.send_all(answer, &mut self.stall(), || turn.step_aside_for_client())
    }

    fn succeed(
        &self,
        turn: &RequestGuard<'_>,
        agreement: &Agreement,
        open: Open,
    ) -> Result<(), Disconnected> {
        add(&self.shared.counters.requests, 1);
        let done = wire::chunk_head(wire::chunk::DONE, wire::chunk::NONE, open.cookie, 0);
        self.finish(turn, agreement, (open, true), &done, 0)
    }

    fn fail(
        &self,
        turn: &RequestGuard<'_>,
        agreement: &Agreement,
        open: Open,
        error: u32,
        message: &str,
    ) -> Result<(), Disconnected> {
        add(&self.shared.counters.failed_requests, 1);
        let chunk = wire::error_chunk(open.cookie, error, message);
        self.finish(turn, agreement, (open, false), &chunk, error)
    }

    /// Sends an answer without data: as a chunk, or as a simple reply with this error number.
    fn finish(
        &self,
        turn: &RequestGuard<'_>,
        agreement: &Agreement,
        (open, done): (Open, bool),
        chunk: &[u8],
        error: u32,
    ) -> Result<(), Disconnected> {
        self.told(open, done);
        let _wire = self.wire(turn);
        match agreement.structured {
            true => self.send(turn, chunk),
            false => self.send(turn, &wire::simple(error, open.cookie)),
        }
    }

    /// Reports the holes from the first byte on, at most [`MAX_EXTENTS`] extents.
    fn status(
        &self,
        (turn, agreement): (&RequestGuard<'_>, &Agreement),
        open: Open,
        range: Range<u64>,
        most: usize,
    ) -> Result<(), Disconnected> {
        turn.yield_slot();
        let extents = self.reader().extents(range.start, range.end, most);
        let extents = match extents.map_err(unread) {
            Ok(extents) if !extents.is_empty() => extents,
            Ok(_) => return self.fail(turn, agreement, open, errno::EIO, SHORTER),
            Err((error, message)) => return self.fail(turn, agreement, open, error, &message),
        };
        let mut left = range.end - range.start;
        let told = extents.iter().map(|extent| {
            // Only the last extent may extend beyond the range, and not if a single extent was requested; here none does.
            let len = extent.len.min(left);
            left -= len;
            let hole = u32::from(extent.is_hole) * (allocation::HOLE | allocation::ZERO);
            (len as u32, hole)
        });
        let answer = wire::status_chunk(open.cookie, &told.collect::<Vec<_>>());
        add(&self.shared.counters.requests, 1);
        self.told(open, true);
        let _wire = self.wire(turn);
        self.send(turn, &answer)
    }

    /// Reads and sends data. The first piece decides between data and error. A later error can only be reported in a structured
    /// reply, or by closing the connection.
    fn read(
        &self,
        (turn, agreement): (&RequestGuard<'_>, &Agreement),
        open: Open,
        offset: u64,
        len: u32,
        buffer: &mut Vec<u8>,
    ) -> Result<(), Disconnected> {
        let cookie = open.cookie;
        let end = offset + u64::from(len);
        let piece = |from: u64| AnswerPiece {
            offset: from,
            len: PIECE_BYTES.min((end - from) as usize),
        };
        let first = piece(offset);
        if buffer.len() < first.len {
            buffer.resize(first.len, 0);
        }
        if let Err((error, message)) = self.fill(turn, &mut buffer[..first.len], offset) {
            return self.fail(turn, agreement, open, error, &message);
        }
        let (structured, simple);
        let head = if agreement.structured {
            structured = wire::data_head(cookie, offset, len);
            &structured[..]
        } else {
            simple = wire::simple(0, cookie);
            &simple[..]
        };
        let _wire = match self.wire_with(turn, first, buffer) {
            Ok(wire) => wire,
            Err((error, message)) => return self.fail(turn, agreement, open, error, &message),
        };
        let mut at = offset + first.len as u64;
        self.count(open, at == end, first.len);
        self.send_piece(turn, head, first, buffer)?;
        while at < end {
            // This takes time at the source, and then at the client.
            turn.yield_slot();
            let next = piece(at);
            if self.fill(turn, &mut buffer[..next.len], at).is_err() {
                add(&self.shared.counters.failed_requests, 1);
                self.told(open, false);
                self.hang_up();
                return Err(Disconnected);
            }
            at += next.len as u64;
            self.count(open, at == end, next.len);
            self.send_piece(turn, &[], next, buffer)?;
        }
        Ok(())
    }

    /// Counts data before it is sent, so that it is counted and observed by the time the client has its answer.
    pub(super) fn count(&self, open: Open, last: bool, bytes: usize) {
        if last {
            self.told(open, true);
        }
        add(&self.shared.counters.requests, u64::from(last));
        add(&self.shared.counters.bytes, bytes as u64);
    }

    /// Fills all of `buf` with bytes of the version that was announced to the client.
    pub(super) fn fill(
        &self,
        turn: &RequestGuard<'_>,
        buf: &mut [u8],
        offset: u64,
    ) -> Result<(), Failure> {
        let mut waits = || turn.yield_slot();
        match self.reader().read_at_telling(buf, offset, &mut waits) {
            Ok(got) if got == buf.len() => Ok(()),
            Ok(_) => Err((errno::EIO, SHORTER.to_string())),
            Err(error) => Err(unread(error)),
        }
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

pub(super) const SHORTER: &str = "the source became shorter";

pub(super) fn unread(error: ReadError) -> Failure {
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
