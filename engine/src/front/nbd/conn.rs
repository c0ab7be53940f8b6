//! One client of the NBD server: its handshake, its requests, its threads.
//!
//! The thread that takes a request also answers it. A client that sends the next request before it has its answer gets
//! another thread, up to a limit, so that its misses overlap; a client that waits for each answer keeps the one thread
//! and pays for no hand-over. Data goes in pieces of [`PIECE_BYTES`], so a request of 32 MiB needs no more memory than one
//! of 256 KiB. Never: two answers mixed on the wire, or an answer of a version after another.
//!
//! ```text
//!   input lock ── request ── validate ── payload of a write ── unlock ── answer ([`answer`])
//!       ▲                                                                   │
//!       └───────────────────────────────────────────────────────────────────┘
//! ```

mod answer;

use super::linger::Linger;
use super::socket::Stream;
use super::{STACK_BYTES, Shared, read_some};
use crate::nbd::handshake::{Handshake, Then};
use crate::nbd::validate::{Export, Order, Refusal, validate};
use crate::nbd::wire::Request;
use crate::{Reader, WriteError};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// Largest piece that is read and sent at once.
pub const PIECE_BYTES: usize = 256 << 10;
/// Most threads of one client.
const MAX_WORKERS: u32 = 16;
/// A thread looks for requests that wait after each of its first so many, and then after every so many.
const LOOK_EVERY: u64 = 8;
/// Bytes that are taken from the socket at once: 146 requests.
const INPUT_BYTES: usize = 4096;

/// Bytes that came and were not used yet.
struct Input {
    bytes: [u8; INPUT_BYTES],
    start: usize,
    end: usize,
}

/// What was agreed on before the requests.
struct Agreement {
    export: Export,
    structured: bool,
}

/// See the head of this file.
pub struct Conn {
    shared: Arc<Shared>,
    number: u64,
    stream: Stream,
    reader: Reader,
    agreement: OnceLock<Agreement>,
    input: Mutex<Input>,
    output: Mutex<()>,
    /// Threads beyond the first, and those of all that wait for a request.
    helpers: AtomicU32,
    waiting: AtomicU32,
    closing: AtomicBool,
}

/// The client is gone, or has to go.
struct Gone;

/// What is left to do for a request.
struct Task {
    cookie: u64,
    /// When it was taken, where somebody wants to know.
    taken: Option<Instant>,
    order: Result<Order, Refusal>,
    /// How a write went that was too long to be kept until the next request could be taken.
    written: Option<Result<(), WriteError>>,
}

impl Conn {
    pub fn new(shared: Arc<Shared>, number: u64, stream: Stream, reader: Reader) -> Conn {
        Conn {
            shared,
            number,
            stream,
            // A client must not see two versions, whatever its threads do.
            reader: reader.pinned(),
            agreement: OnceLock::new(),
            input: Mutex::new(Input { bytes: [0; INPUT_BYTES], start: 0, end: 0 }),
            output: Mutex::new(()),
            helpers: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            closing: AtomicBool::new(false),
        }
    }

    /// Takes no more requests; those that were taken are answered.
    pub fn take_no_more(&self) {
        self.closing.store(true, Ordering::Relaxed);
        self.stream.shutdown(Shutdown::Read);
    }

    /// Ends it at once.
    pub fn hang_up(&self) {
        self.closing.store(true, Ordering::Relaxed);
        self.stream.shutdown(Shutdown::Both);
    }

    /// The whole life of the connection.
    pub fn serve(self: &Arc<Conn>) {
        let observer = self.shared.settings.observer.as_deref();
        let agreed = self.agree().is_ok();
        if let (Some(observer), Some(agreement)) = (observer, self.agreement.get()) {
            observer.opened(self.number, self.shared.called(), agreement.export.size);
        }
        if agreed {
            self.work();
        }
        // What its other threads have taken is still answered; no more can be taken, so each of them ends by itself.
        while self.helpers.load(Ordering::Acquire) > 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        if let (Some(observer), Some(_)) = (observer, self.agreement.get()) {
            observer.closed(self.number);
        }
    }

    // ---- the handshake ----

    fn agree(&self) -> Result<(), Gone> {
        let until = Instant::now() + self.shared.settings.handshake;
        self.stream.set_write_timeout(Some(self.shared.settings.stall)).map_err(|_| Gone)?;
        let export = self.shared.export(&self.reader);
        let mut shake = Handshake::new(export.clone());
        self.send(&Handshake::greeting(), &[])?;
        let mut bytes = Vec::new();
        let mut answer = Vec::new();
        loop {
            bytes.resize(shake.wants(), 0);
            // One time for all of it: a client that sends a byte a second is as slow as one that sends none.
            let left = until.checked_duration_since(Instant::now()).filter(|t| !t.is_zero()).ok_or(Gone)?;
            self.stream.set_read_timeout(Some(left)).map_err(|_| Gone)?;
            self.receive(&mut bytes)?;
            answer.clear();
            let then = shake.take(&bytes, &mut answer);
            self.send(&answer, &[])?;
            match then {
                Then::More => {}
                Then::Close(_) => return Err(Gone),
                Then::Transmission => break,
            }
        }
        self.stream.set_read_timeout(None).map_err(|_| Gone)?;
        let agreement = Agreement { export, structured: shake.agreed().structured };
        self.agreement.set(agreement).map_err(|_| Gone)
    }

    // ---- bytes ----

    fn send(&self, head: &[u8], data: &[u8]) -> Result<(), Gone> {
        self.stream.send(head, data).map_err(|_| {
            // Half an answer may be out: nothing that follows could be understood.
            self.hang_up();
            Gone
        })
    }

    /// Fills `bytes` from what came before and from the socket.
    fn receive(&self, bytes: &mut [u8]) -> Result<(), Gone> {
        let mut input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        self.take(&mut input, bytes)
    }

    fn take(&self, input: &mut Input, mut bytes: &mut [u8]) -> Result<(), Gone> {
        while !bytes.is_empty() {
            if input.start == input.end && bytes.len() >= INPUT_BYTES {
                // The payload of a write goes straight to its place.
                let got = read_some(&self.stream, bytes).ok().filter(|n| *n > 0).ok_or(Gone)?;
                bytes = &mut bytes[got..];
                continue;
            }
            if input.start == input.end {
                input.start = 0;
                input.end = read_some(&self.stream, &mut input.bytes).ok().filter(|n| *n > 0).ok_or(Gone)?;
            }
            let n = bytes.len().min(input.end - input.start);
            bytes[..n].copy_from_slice(&input.bytes[input.start..input.start + n]);
            input.start += n;
            bytes = &mut bytes[n..];
        }
        Ok(())
    }

    /// The next request and what it brings, which goes to `buffer`. One that has begun must go on within the time for stalls.
    fn next(&self, input: &mut Input, export: &Export, buffer: &mut Vec<u8>) -> Result<Task, Gone> {
        if self.closing.load(Ordering::Relaxed) {
            return Err(Gone);
        }
        let mut bytes = [0; Request::BYTES];
        let (first, rest) = bytes.split_at_mut(1);
        self.take(input, first)?;
        let whole = input.end - input.start >= rest.len();
        if whole {
            self.take(input, rest)?;
        } else {
            self.within_stall(|| self.take(input, rest))?;
        }
        let request = Request::parse(&bytes).ok_or(Gone)?;
        let order = validate(&request, export);
        let taken = self.shared.settings.observer.as_ref().map(|_| Instant::now());
        let mut task = Task { cookie: request.cookie, taken, order, written: None };
        match task.order {
            Err(Refusal { payload: payload @ 1.., .. }) => self.within_stall(|| self.throw_away(input, payload))?,
            Ok(Order::Write { offset, len, .. }) => {
                self.within_stall(|| {
                    task.written = self.payload(input, offset, len as usize, buffer)?;
                    Ok(())
                })?;
            }
            // Behind the lock, so that no other thread takes what follows it.
            Ok(Order::Disconnect) => self.closing.store(true, Ordering::Relaxed),
            _ => {}
        }
        Ok(task)
    }

    /// The payload of a write: one piece of it stays in `buffer`; a longer one is written piece by piece as it comes, so
    /// that it needs no more memory.
    fn payload(
        &self,
        input: &mut Input,
        offset: u64,
        len: usize,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Result<(), WriteError>>, Gone> {
        if buffer.len() < len.min(PIECE_BYTES) {
            buffer.resize(len.min(PIECE_BYTES), 0);
        }
        if len <= PIECE_BYTES {
            self.take(input, &mut buffer[..len])?;
            return Ok(None);
        }
        let mut outcome = Ok(());
        for start in (0..len).step_by(PIECE_BYTES) {
            let piece = &mut buffer[..PIECE_BYTES.min(len - start)];
            self.take(input, piece)?;
            // After an error the rest is only taken from the wire.
            if outcome.is_ok() {
                outcome = self.reader.write_at(piece, offset + start as u64);
            }
        }
        Ok(Some(outcome))
    }

    /// Does something that waits for the client, who has so much time for each piece.
    fn within_stall(&self, wait: impl FnOnce() -> Result<(), Gone>) -> Result<(), Gone> {
        self.stream.set_read_timeout(Some(self.shared.settings.stall)).map_err(|_| Gone)?;
        wait()?;
        self.stream.set_read_timeout(None).map_err(|_| Gone)
    }

    /// Reads the payload of a refused request and forgets it.
    fn throw_away(&self, input: &mut Input, payload: u32) -> Result<(), Gone> {
        let mut left = payload as usize;
        let mut waste = [0; INPUT_BYTES];
        while left > 0 {
            let n = left.min(waste.len());
            self.take(input, &mut waste[..n])?;
            left -= n;
        }
        Ok(())
    }

    // ---- requests ----

    /// Takes and answers requests until there are no more.
    fn work(self: &Arc<Conn>) {
        let Some(agreement) = self.agreement.get() else { return };
        let mut buffer = Vec::new();
        let mut linger = Linger::default();
        for served in 0_u64.. {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            let mut input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
            if served > 0 && input.start == input.end {
                linger.look(&self.stream, &self.shared.counters.lookers);
            }
            let next = self.next(&mut input, &agreement.export, &mut buffer);
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            if next.is_err() {
                // Behind the lock: after what was no request, nothing that follows is one.
                self.closing.store(true, Ordering::Relaxed);
            }
            let more = input.end > input.start;
            drop(input);
            let Ok(task) = next else { break };
            if more || ((served < LOOK_EVERY || served % LOOK_EVERY == 0) && served > 0 && self.stream.has_more()) {
                self.hire();
            }
            if self.answer(agreement, task, &mut buffer).is_err() {
                break;
            }
        }
        // The others see that nobody will send any more.
        self.take_no_more();
    }

    /// One more thread, if nobody waits for requests and there may be one more.
    fn hire(self: &Arc<Conn>) {
        let all = &self.shared.counters.helpers;
        if self.waiting.load(Ordering::Relaxed) > 0 || self.helpers.load(Ordering::Relaxed) + 1 >= MAX_WORKERS {
            return;
        }
        if all.fetch_add(1, Ordering::Relaxed) >= self.shared.settings.max_helpers {
            all.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        self.helpers.fetch_add(1, Ordering::Relaxed);
        let conn = Arc::clone(self);
        let work = move || {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| conn.work()));
            conn.dismiss();
        };
        if std::thread::Builder::new().name("foreread-nbd".into()).stack_size(STACK_BYTES).spawn(work).is_err() {
            self.dismiss();
        }
    }

    fn dismiss(&self) {
        self.shared.counters.helpers.fetch_sub(1, Ordering::Relaxed);
        self.helpers.fetch_sub(1, Ordering::Release);
    }
}
