//! What is done for a request that was taken, and how the client is told.
//!
//! Never: two answers mixed on the wire, or an answer of a version after another.
//!
//! ```text
//!   read:   fill a piece ── output lock ── send ── (next piece) ── unlock       an error after the first piece: hang up
//!   write:  source ── cache forgets ── FUA: flush ── output lock ── send ── unlock
//! ```

use super::{Agreement, Conn, Gone, PIECE_BYTES, Task};
use crate::nbd::validate::Order;
use crate::nbd::wire::{self, errno};
use crate::{Advice, ReadError, WriteError};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

/// The protocol's number for an error, and its text.
type Failure = (u32, String);

impl Conn {
    pub(super) fn answer(&self, agreement: &Agreement, task: Task, buffer: &mut Vec<u8>) -> Result<(), Gone> {
        let cookie = task.cookie;
        let order = match task.order {
            Ok(order) => order,
            Err(refusal) => return self.fail(agreement, cookie, refusal.error, refusal.message),
        };
        let done = match order {
            Order::Disconnect => return Err(Gone),
            Order::Read { offset, len } => return self.read(agreement, cookie, offset, len, buffer),
            Order::Cache { offset, len } => {
                // A hint that comes to nothing is no failure.
                let _ = self.reader.advise(Advice::WillNeed, offset..offset + u64::from(len));
                Ok(())
            }
            // What is only read has nothing to be flushed.
            Order::Flush if !self.shared.settings.writable => Ok(()),
            Order::Flush => self.reader.flush(),
            Order::Write { offset, len, safe } => {
                let written = task.written.unwrap_or_else(|| {
                    let bytes = buffer.get(..len as usize).unwrap_or_default();
                    self.reader.write_at(bytes, offset)
                });
                written.and_then(|()| if safe { self.reader.flush() } else { Ok(()) })
            }
            Order::Zero { offset, len, safe } => {
                self.zero(offset, len, buffer).and_then(|()| if safe { self.reader.flush() } else { Ok(()) })
            }
        };
        match done.map_err(|error| refused(&error)) {
            Ok(()) => self.succeed(agreement, cookie),
            Err((error, message)) => self.fail(agreement, cookie, error, &message),
        }
    }

    fn succeed(&self, agreement: &Agreement, cookie: u64) -> Result<(), Gone> {
        self.shared.counters.requests.fetch_add(1, Ordering::Relaxed);
        let _turn = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        if agreement.structured {
            self.send(&wire::chunk_head(wire::chunk::DONE, wire::chunk::NONE, cookie, 0), &[])
        } else {
            self.send(&wire::simple(0, cookie), &[])
        }
    }

    fn fail(&self, agreement: &Agreement, cookie: u64, error: u32, message: &str) -> Result<(), Gone> {
        self.shared.counters.failed_requests.fetch_add(1, Ordering::Relaxed);
        let _turn = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        if agreement.structured {
            self.send(&wire::error_chunk(cookie, error, message), &[])
        } else {
            self.send(&wire::simple(error, cookie), &[])
        }
    }

    /// Reads and sends. The first piece decides between data and error; after that an error can only be told by a
    /// structured reply, or by hanging up.
    fn read(
        &self,
        agreement: &Agreement,
        cookie: u64,
        offset: u64,
        len: u32,
        buffer: &mut Vec<u8>,
    ) -> Result<(), Gone> {
        let end = offset + u64::from(len);
        let piece = |from: u64| PIECE_BYTES.min((end - from) as usize);
        if buffer.len() < piece(offset) {
            buffer.resize(piece(offset), 0);
        }
        let first = &mut buffer[..piece(offset)];
        if let Err((error, message)) = self.fill(first, offset) {
            return self.fail(agreement, cookie, error, &message);
        }
        let (structured, simple);
        let head = if agreement.structured {
            structured = wire::data_head(cookie, offset, len);
            &structured[..]
        } else {
            simple = wire::simple(0, cookie);
            &simple[..]
        };
        let _turn = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let mut at = offset + first.len() as u64;
        self.count(at == end, first.len());
        self.send(head, first)?;
        while at < end {
            let next = &mut buffer[..piece(at)];
            if self.fill(next, at).is_err() {
                self.shared.counters.failed_requests.fetch_add(1, Ordering::Relaxed);
                self.hang_up();
                return Err(Gone);
            }
            at += next.len() as u64;
            self.count(at == end, next.len());
            self.send(next, &[])?;
        }
        Ok(())
    }

    /// Counts what is about to be sent: a client that has its answer finds it counted.
    fn count(&self, last: bool, bytes: usize) {
        self.shared.counters.requests.fetch_add(u64::from(last), Ordering::Relaxed);
        self.shared.counters.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Fills `buf`, all of it, with bytes of the version that the client was told of.
    fn fill(&self, buf: &mut [u8], offset: u64) -> Result<(), Failure> {
        match self.reader.read_at(buf, offset) {
            Ok(got) if got == buf.len() => Ok(()),
            Ok(_) => Err((errno::EIO, "the source became shorter".to_string())),
            Err(error @ ReadError::Changed { .. }) => Err((errno::ESHUTDOWN, error.to_string())),
            Err(error) => Err((wire::wire_errno(error.errno()), error.to_string())),
        }
    }

    /// Writes zeroes, piece by piece.
    fn zero(&self, offset: u64, len: u32, buffer: &mut Vec<u8>) -> Result<(), WriteError> {
        buffer.clear();
        buffer.resize(PIECE_BYTES.min(len as usize), 0);
        for start in (0..len as usize).step_by(PIECE_BYTES) {
            let piece = &buffer[..PIECE_BYTES.min(len as usize - start)];
            self.reader.write_at(piece, offset + start as u64)?;
        }
        Ok(())
    }
}

fn refused(error: &WriteError) -> Failure {
    let number = match error {
        WriteError::Changed { .. } => errno::ESHUTDOWN,
        WriteError::Io { errno, .. } if *errno == rustix::io::Errno::ROFS.raw_os_error() => errno::EPERM,
        error => wire::wire_errno(error.errno()),
    };
    (number, error.to_string())
}
