//! One client of the NBD server: its handshake and its requests.
//!
//! The handshake has its own thread, because a client may be slow. After the handshake, when a client has sent a request, any free thread
//! takes one request from it and answers it. If the answering thread has to wait, another thread may take the client's next request, so
//! that several misses overlap, up to a limit. If the source has a queue that can be polled, a thread takes all short reads that have
//! arrived, and these wait without a thread ([`flight`]). Data is sent in pieces of [`PIECE_BYTES`], so a request of 32 MiB needs no more
//! memory than a request of 256 KiB. Two threads never read from one socket at the same time, and the bytes of two answers are
//! never mixed on the wire. All answers are of one version of the source.
//!
//! ```text
//!   armed ── data arrived ────► turn: take ── validate ── payload of a write ── answer ([`answer`]) ──► armed
//!     ▲                          ▲       └─ has to wait, or more data: armed at once ──► a concurrent turn
//!     │        reads have ended ─┘       └─ short reads: started together ([`flight`]) ──► armed
//!     └── no request, end, error: over ──► the last turn ends the client
//! ```

mod answer;
mod flight;

use super::ServerShared;
use super::socket::{Deadline, PIECE_BYTES};
use super::stream::ClientStream;
use crate::nbd::handshake::{self, Handshake, NegotiatedOptions};
use crate::nbd::validate::{Export, Order, Refusal, validate};
use crate::nbd::wire::Request;
use crate::sync::lock;
use crate::{Reader, WriteError};
use answer::Open;
use flight::{Flights, Replies, Woken};
use std::cell::{Cell, RefCell};
use std::io::{ErrorKind, IoSlice};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// Maximum number of concurrent turns of one client. All but one need a helper permit, and all clients share these permits.
const MAX_TURNS: u32 = 16;
/// Maximum number of requests of one client in flight, if its reads wait for the source without a thread. They need permits too.
const MAX_FLIGHTS: u32 = 32;
/// Maximum length of a read that waits without a thread. For longer ones the time of copying counts, and threads share that.
const FLIGHT_BYTES: usize = 32 << 10;
/// Maximum number of turns of a client that takes its answers slowly: one turn sends, and the other has the next answer ready.
const MAX_TURNS_SLOW: u32 = 2;
/// Bytes of a refused payload that are read at once.
const WASTE_BYTES: usize = 4096;
/// The server checks whether a client has sent more in each of its first turns (this many), and then in one of as many turns.
const LOOK_EVERY: u64 = 8;

/// The result of the handshake.
struct Agreement {
    export: Export,
    structured: bool,
}

#[derive(Default)]
struct Turns {
    /// Whether its next bytes start another request.
    armed: bool,
    /// Whether a thread reads from the socket: it is not armed again until a whole request is read.
    taking: bool,
    /// Requests in flight: one for each turn that takes requests, and one for each read that waits without a thread.
    inside: u32,
    /// Whether the client sends no more requests.
    over: bool,
}

pub struct Conn {
    shared: Arc<ServerShared>,
    number: u64,
    stream: ClientStream,
    /// Before the reader, which must outlive them.
    flights: Mutex<Flights>,
    woken: Arc<Woken>,
    replies: Mutex<Replies>,
    /// Pinned to the version that was current when the handshake began: a client must never see two versions.
    reader: OnceLock<Reader>,
    agreement: OnceLock<Agreement>,
    output: Mutex<()>,
    turns: Mutex<Turns>,
    taken: AtomicU64,
    closing: AtomicBool,
}

/// The client has disconnected or must be disconnected.
struct Disconnected;

struct Task {
    open: Open,
    order: Result<Order, Refusal>,
    /// The result of a write that was too long to be kept until the next request could be read.
    written: Option<Result<(), WriteError>>,
}

/// A turn in progress.
struct RequestGuard<'a> {
    conn: &'a Conn,
    agreement: &'a Agreement,
    /// Whether it had to wait.
    aside: Cell<bool>,
    /// Bytes of data sent.
    sent: Cell<usize>,
    /// Whether it is counted as a request in flight.
    counted: Cell<bool>,
    /// Reads that it has taken and not started yet, each with its offset and length.
    starts: RefCell<Vec<(Open, u64, usize)>>,
}

impl RequestGuard<'_> {
    /// Called before the thread waits for the source, so that others can read the client's next requests.
    fn yield_slot(&self) {
        self.conn.rearm(MAX_TURNS);
        self.step_aside_alone();
    }

    /// Called before the thread waits for the client to take its answer.
    fn step_aside_for_client(&self) {
        self.conn.rearm(MAX_TURNS_SLOW);
        self.step_aside_alone();
    }

    /// Called before the thread waits for the rest of a request: no other thread may then read from the socket. Another thread
    /// sends the answers of the reads before it.
    fn step_aside_alone(&self) {
        if self.conn.start(self.starts.take()) {
            self.conn.shared.workers.make_ready(self.conn.number);
        }
        if !self.aside.replace(true) {
            let shared = &self.conn.shared;
            shared.have_done(shared.workers.yield_slot());
        }
    }
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        if self.aside.get() {
            self.conn.shared.workers.come_back();
        }
    }
}

impl Conn {
    pub fn new(shared: Arc<ServerShared>, number: u64, stream: ClientStream) -> Conn {
        Conn {
            woken: Arc::new(Woken::new(&shared, number)),
            shared,
            number,
            stream,
            flights: Mutex::default(),
            replies: Mutex::default(),
            reader: OnceLock::new(),
            agreement: OnceLock::new(),
            output: Mutex::default(),
            turns: Mutex::default(),
            taken: AtomicU64::new(0),
            closing: AtomicBool::new(false),
        }
    }

    /// Accepts no more requests of this client; accepted requests are still answered.
    pub fn take_no_more(&self) {
        self.closing.store(true, Ordering::Relaxed);
        self.stream.receive_no_more();
    }

    /// Ends the connection immediately.
    pub fn hang_up(&self) {
        self.closing.store(true, Ordering::Relaxed);
        self.stream.end();
    }

    // ---- turns ----

    /// Runs the handshake with a client, and then serves the client's first requests. Returns false if the client is disconnected.
    pub fn begin(&self) -> bool {
        if self.agree().is_err() {
            return false;
        }
        if let (Some(observer), Some(agreement)) =
            (&self.shared.settings.observer, self.agreement.get())
        {
            observer.opened(self.number, self.shared.called(), agreement.export.size);
        }
        lock(&self.turns).armed = true;
        let (socket, more) = (self.stream.socket.as_fd(), self.stream.holds_more());
        match self.shared.workers.add(socket, self.number, more) {
            Ok(then) => self.shared.have_done(then),
            Err(_) => self.end(),
        }
        true
    }

    /// Answers ended reads and takes requests of the client: it answers one, or starts several reads. Returns the number of data bytes
    /// sent, unless reads of the client wait for the source.
    pub fn turn(&self, buffer: &mut Vec<u8>) -> Option<usize> {
        let agreement = self.agreement.get()?;
        let turn = RequestGuard {
            conn: self,
            agreement,
            aside: Cell::new(false),
            sent: Cell::new(0),
            counted: Cell::new(true),
            starts: RefCell::default(),
        };
        lock(&self.turns).armed = false;
        // A panic ends only this client.
        if catch_unwind(AssertUnwindSafe(|| self.land(&turn))).is_err() {
            self.hang_up();
        }
        let mut turns = lock(&self.turns);
        // If it may take no request, what has arrived is read when another request ends.
        if turns.taking || turns.over || !self.enter(&mut turns) {
            return None;
        }
        turns.taking = true;
        drop(turns);
        let served = catch_unwind(AssertUnwindSafe(|| self.serve(&turn, buffer)));
        let served = served.unwrap_or_else(|_| Err(self.give_up()));
        let mut turns = lock(&self.turns);
        turns.over |= served.is_err();
        self.leave(turns, u32::from(turn.counted.get()));
        // An answer that was sent meanwhile may have left others to this thread.
        self.send_replies(&turn);
        lock(&self.flights).is_empty().then(|| turn.sent.get())
    }

    fn max_inside(&self) -> u32 {
        match self.shared.watch {
            Some(_) => MAX_FLIGHTS,
            None => MAX_TURNS,
        }
    }

    /// Counts one more request in flight, if that is allowed.
    fn enter(&self, turns: &mut Turns) -> bool {
        let most = self.max_inside();
        let enters = turns.inside < most && (turns.inside == 0 || self.shared.helpers.take(1));
        turns.inside += u32::from(enters);
        enters
    }

    /// Ends this many requests in flight, and lets other threads take the client's next request.
    fn leave(&self, mut turns: MutexGuard<'_, Turns>, ended: u32) {
        let permits = |inside: u32| u64::from(inside.saturating_sub(1));
        let held = permits(turns.inside);
        turns.inside -= ended;
        self.shared.helpers.give(held - permits(turns.inside));
        if turns.inside < self.max_inside() {
            self.arm(&mut turns);
        }
        let ends = turns.over && turns.inside == 0 && ended > 0;
        drop(turns);
        if ends {
            self.end();
        }
    }

    /// Takes requests that have arrived, as long as they are reads that need no thread, and starts these together. Answers the first
    /// other request. A single read that no other follows is answered by this thread, which is faster.
    fn serve(&self, turn: &RequestGuard<'_>, buffer: &mut Vec<u8>) -> Result<(), Disconnected> {
        let mut bytes = 0;
        let (nth, task) = loop {
            let task = match self.next(turn, buffer) {
                Ok(Some(task)) => task,
                other => break (0, other),
            };
            let nth = self.taken.fetch_add(1, Ordering::Relaxed);
            let alone = || lock(&self.turns).inside == 1 && !self.stream.holds_more();
            match task.order {
                Ok(Order::Read { offset, len })
                    if self.shared.watch.is_some() && len as usize <= FLIGHT_BYTES && !alone() =>
                {
                    let start = (task.open, offset, len as usize);
                    turn.starts.borrow_mut().push(start);
                    bytes += len as usize;
                }
                _ => break (nth, Ok(Some(task))),
            }
            turn.counted
                .set(bytes < PIECE_BYTES && self.enter(&mut lock(&self.turns)));
            if !turn.counted.get() {
                break (0, Ok(None));
            }
        };
        lock(&self.turns).taking = false;
        if self.start(turn.starts.take()) {
            self.send_replies(turn);
        }
        let Some(task) = task? else { return Ok(()) };
        if (nth < LOOK_EVERY || nth.is_multiple_of(LOOK_EVERY)) && self.stream.has_more() {
            self.rearm(MAX_TURNS);
            self.shared.have_done(self.shared.workers.invite());
        }
        self.answer(turn, task, buffer)
    }

    /// Lets other threads take the client's next request.
    fn rearm(&self, most: u32) {
        let mut turns = lock(&self.turns);
        if turns.inside < most && !self.closing.load(Ordering::Relaxed) {
            self.arm(&mut turns);
        }
    }

    fn arm(&self, turns: &mut Turns) {
        let more = self.stream.holds_more();
        if (!turns.armed || more) && !turns.taking && !turns.over {
            turns.armed = true;
            let (workers, socket) = (&self.shared.workers, self.stream.socket.as_fd());
            if workers.arm(socket, self.number, more).is_err() {
                turns.over = true;
                self.hang_up();
            }
        }
    }

    /// Stops serving the client.
    fn end(&self) {
        self.hang_up();
        let requests = self.taken.load(Ordering::Relaxed);
        tracing::info!(client = self.number, requests, "NBD client gone");
        if let Some(observer) = &self.shared.settings.observer {
            observer.closed(self.number);
        }
        self.shared.forget(self.number);
    }

    // ---- the handshake ----

    fn reader(&self) -> &Reader {
        self.reader.get().expect("requests follow the handshake")
    }

    fn agree(&self) -> Result<(), Disconnected> {
        // One limit for the whole handshake: a client that sends a byte per second is as slow as a client that sends nothing.
        let mut deadline = Deadline::within(self.shared.settings.handshake);
        let reader = self.shared.current().ok_or(Disconnected)?;
        let export = self.shared.export(self.reader.get_or_init(|| reader));
        let mut shake = Handshake::new(export.clone(), self.shared.settings.tls_offer());
        self.send_all(&Handshake::greeting(), &mut deadline)?;
        let mut bytes = Vec::new();
        let mut answer = Vec::new();
        loop {
            bytes.resize(shake.wants(), 0);
            self.take(&mut bytes, &mut deadline, || ())?;
            answer.clear();
            let then = shake.take(&bytes, &mut answer);
            self.send_all(&answer, &mut deadline)?;
            match then {
                handshake::Then::More => {}
                handshake::Then::StartTls => self.encrypt(&mut deadline)?,
                handshake::Then::Close(why) => {
                    if !why.is_empty() {
                        tracing::info!(client = self.number, "NBD client refused: {why}");
                    }
                    return Err(Disconnected);
                }
                handshake::Then::Transmission => break,
            }
        }
        let NegotiatedOptions { structured, holes } = shake.agreed;
        let mut agreement = Agreement { export, structured };
        agreement.export.knows_holes = holes;
        self.agreement.set(agreement).map_err(|_| Disconnected)
    }

    #[cfg(feature = "tls")]
    fn encrypt(&self, deadline: &mut Deadline) -> Result<(), Disconnected> {
        let Some(tls) = &self.shared.settings.tls else {
            return Err(Disconnected);
        };
        self.stream.start_tls(tls, deadline).map_err(|error| {
            tracing::info!(
                client = self.number,
                "NBD client refused: the TLS handshake failed ({error})"
            );
            Disconnected
        })
    }

    /// TLS was not offered.
    #[cfg(not(feature = "tls"))]
    fn encrypt(&self, _: &mut Deadline) -> Result<(), Disconnected> {
        Err(Disconnected)
    }

    // ---- bytes ----

    /// A stall timeout that starts when the server first waits for the client.
    fn stall(&self) -> Deadline {
        Deadline::within(self.shared.settings.stall)
    }

    fn send_all(&self, mut bytes: &[u8], deadline: &mut Deadline) -> Result<(), Disconnected> {
        while !bytes.is_empty() {
            match self.stream.send_now(&[IoSlice::new(bytes)]) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let ready = self.stream.socket.wait_to_send(deadline);
                    ready.map_err(|_| self.give_up())?;
                }
                Err(_) => return Err(self.give_up()),
            }
        }
        Ok(())
    }

    /// Part of an answer may have been sent, so the stream cannot continue.
    fn give_up(&self) -> Disconnected {
        self.hang_up();
        Disconnected
    }

    /// Fills `bytes` from the socket; `waits` is called if they are not all there yet.
    fn take(
        &self,
        mut bytes: &mut [u8],
        deadline: &mut Deadline,
        waits: impl Fn(),
    ) -> Result<(), Disconnected> {
        while !bytes.is_empty() {
            match self.stream.receive_now(bytes) {
                Ok(got @ 1..) => bytes = &mut bytes[got..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    waits();
                    let ready = self.stream.socket.wait_to_receive(deadline);
                    ready.map_err(|_| Disconnected)?;
                }
                _ => return Err(Disconnected),
            }
        }
        Ok(())
    }

    /// Reads the next request; its payload goes to `buffer`. Returns `None` if no request has arrived. Once a request has started,
    /// its head and each piece of its payload must arrive within the stall timeout, even if bytes keep arriving.
    fn next(
        &self,
        turn: &RequestGuard<'_>,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Task>, Disconnected> {
        if self.closing.load(Ordering::Relaxed) {
            return Err(Disconnected);
        }
        let mut bytes = [0; Request::BYTES];
        let got = match self.stream.receive_ahead(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            got => got.ok().filter(|n| *n > 0).ok_or(Disconnected)?,
        };
        // The rest belongs to the same request: no other thread reads from the socket before it is complete.
        self.take(&mut bytes[got..], &mut self.stall(), || {
            turn.step_aside_alone()
        })?;
        let request = Request::parse(&bytes).ok_or(Disconnected)?;
        let order = validate(&request, &turn.agreement.export);
        let is_observed = self.shared.settings.observer.is_some();
        let mut task = Task {
            open: Open::new(request.cookie, &order, is_observed),
            order,
            written: None,
        };
        match task.order {
            Err(Refusal {
                payload: payload @ 1..,
                ..
            }) => self.throw_away(turn, payload)?,
            Ok(Order::Write { offset, len, .. }) => {
                task.written = self.payload(turn, offset, len as usize, buffer)?
            }
            Ok(Order::Disconnect) => self.closing.store(true, Ordering::Relaxed),
            _ => {}
        }
        Ok(Some(task))
    }

    /// Reads the payload of a refused request and discards it.
    fn throw_away(&self, turn: &RequestGuard<'_>, payload: u32) -> Result<(), Disconnected> {
        let mut left = payload as usize;
        let mut waste = [0; WASTE_BYTES];
        let mut deadline = self.stall();
        while left > 0 {
            let n = left.min(waste.len());
            self.take(&mut waste[..n], &mut deadline, || turn.step_aside_alone())?;
            left -= n;
            if left.is_multiple_of(PIECE_BYTES) {
                deadline = self.stall();
            }
        }
        Ok(())
    }

    /// Reads the payload of a write. One piece stays in `buffer`; a longer payload is written piece by piece as it arrives, so that
    /// it needs no more memory.
    fn payload(
        &self,
        turn: &RequestGuard<'_>,
        offset: u64,
        len: usize,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Result<(), WriteError>>, Disconnected> {
        if buffer.len() < len.min(PIECE_BYTES) {
            buffer.resize(len.min(PIECE_BYTES), 0);
        }
        if len <= PIECE_BYTES {
            self.take(&mut buffer[..len], &mut self.stall(), || {
                turn.step_aside_alone()
            })?;
            return Ok(None);
        }
        turn.step_aside_alone();
        let mut outcome = Ok(());
        for start in (0..len).step_by(PIECE_BYTES) {
            let piece = &mut buffer[..PIECE_BYTES.min(len - start)];
            self.take(piece, &mut self.stall(), || ())?;
            // After an error, the rest is read from the socket and discarded.
            if outcome.is_ok() {
                outcome = self.reader().write_at(piece, offset + start as u64);
            }
        }
        Ok(Some(outcome))
    }
}
