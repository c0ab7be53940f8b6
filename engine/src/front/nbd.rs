//! The NBD server: one export, any number of clients, read-only by default.
//!
//! Each connection is an open description, so each client has its own readahead state on one shared cache. A few threads serve all
//! clients (`workers`). A thread answers one request at a time, or starts many reads that wait without a thread (`conn`). All
//! data on a connection is of one version of the source, and a length from a client is never trusted. By default the server is not
//! reachable from other machines.
//!
//! ```text
//!   listener ──accept──► room for it? ──► a thread: handshake ──► workers: requests ──► replies
//!      ▲                      └─ no: refused                       │ stop: no more requests are taken,
//!      └── stop (a byte in a pipe) ────────────────────────────────┘ accepted ones are answered
//! ```

mod conn;
mod permits;
mod settings;
mod socket;
mod stream;
#[cfg(feature = "tls")]
mod tls;
mod workers;

use crate::front::{FrontError, FrontErrorKind};
use crate::log;
use crate::nbd::handshake::TlsOffer;
use crate::nbd::validate::Export;
use crate::nbd::wire::transmission;
use crate::reader::QueueWatch;
use crate::source::Defaults;
use crate::sync::lock;
use crate::system;
use crate::{Reader, WriteError};
use conn::Conn;
use foreread_os::threads::Task;
use permits::Permits;
use rustix::event::{PollFd, PollFlags, poll};
pub use settings::{MAX_CLIENTS, MAX_HELPERS, MAX_OWED_BYTES, NbdSettings};
pub use socket::Listen;
use socket::{Listener, Socket};
use std::collections::HashMap;
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use stream::ClientStream;
#[cfg(feature = "tls")]
pub use tls::NbdTls;
use workers::{WorkerStep, Workers};

/// Stops an NBD server; may be used from any thread.
#[derive(Debug)]
pub struct NbdStop(UnixStream);

impl NbdStop {
    /// Stops the server: it accepts no more clients and requests, answers the requests that it has already accepted, and then
    /// [`Server::run`] returns.
    pub fn stop(&self) {
        // A full pipe already contains a wakeup, and a closed pipe needs none.
        let _ = (&self.0).write(&[1]);
    }

    /// The write end of a pipe to the server: any byte written to it stops the server, so that a signal handler can stop the server.
    ///
    /// # Errors
    /// Returns an error if the process has no free file descriptors.
    pub fn pipe(&self) -> std::io::Result<UnixStream> {
        self.0.try_clone()
    }
}

/// Raises this process's limit of open files for this number of clients, as far as the system allows. The library never calls this
/// function itself, so a program that runs a server must call it. Returns the number of clients for which the limit suffices.
pub fn make_room(clients: u32) -> u32 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = u64::from(clients) + OTHER_FILES;
    let mut allowed = current.unwrap_or(u64::MAX);
    if allowed < wanted {
        let most = wanted.min(maximum.unwrap_or(u64::MAX));
        let current = Some(most);
        if setrlimit(Resource::Nofile, Rlimit { current, maximum }).is_ok() {
            allowed = most;
        }
    }
    u32::try_from(allowed.saturating_sub(OTHER_FILES))
        .unwrap_or(u32::MAX)
        .min(clients)
}

/// Counters since the server was created. If the description of a counter says "now", the counter is a current value instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerCounts {
    /// Clients connected now.
    pub clients: u64,
    /// Clients that were ever connected.
    pub connections: u64,
    /// Connections that were refused because there were too many.
    pub turned_away: u64,
    /// Requests that were answered with data or success, counted when the answer starts.
    pub requests: u64,
    /// Requests that were refused or failed.
    pub failed_requests: u64,
    /// Bytes of data sent, counted before they are sent.
    pub bytes: u64,
    /// Bytes that clients have written or zeroed.
    pub written_bytes: u64,
    /// Threads that now serve clients or run handshakes: at most one per client, plus the helpers.
    pub threads: u64,
    /// Bytes of answers now kept for clients that have not taken them.
    pub owed_bytes: u64,
    /// Bytes of answers that were dropped because too many bytes were kept, and so were read again.
    pub reread_bytes: u64,
}

#[derive(Default)]
struct Counters {
    greeting: AtomicU64,
    reread_bytes: AtomicU64,
    connections: AtomicU64,
    turned_away: AtomicU64,
    requests: AtomicU64,
    failed_requests: AtomicU64,
    bytes: AtomicU64,
    written_bytes: AtomicU64,
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

struct ServerShared {
    reader: Reader,
    settings: NbdSettings,
    counters: Counters,
    conns: Mutex<HashMap<u64, Arc<Conn>>>,
    workers: Workers,
    /// Permits for a client's second and later requests in flight.
    helpers: Permits,
    /// Permits for bytes of answers that are kept for their clients.
    owed: Arc<Permits>,
    /// The source's queue, if the workers poll it: reads then wait without a thread.
    watch: Option<QueueWatch>,
    /// Each thread holds a copy until it has dropped the reader; `None` when the server ends.
    running: Mutex<Option<Sender<()>>>,
    /// When the source was last asked for its version.
    checked: Mutex<Option<Instant>>,
}

/// The NBD server: one export, any number of clients, read-only by default.
pub struct Server {
    shared: Arc<ServerShared>,
    listeners: Vec<Listener>,
    wake: UnixStream,
    /// Disconnected when the last thread has ended.
    ended: Receiver<()>,
}

/// A source is asked for its version when a client connects, but not more often than this, and not waited for longer than this.
const CHECK_EVERY: Duration = Duration::from_secs(5);
const CHECK_PATIENCE: Duration = Duration::from_secs(2);
/// How long a stopped server waits for answers in flight.
const DRAIN: Duration = Duration::from_secs(5);
/// How long the drop of a server waits for its threads. They end at once unless a source blocks one.
const THREADS_END: Duration = Duration::from_secs(1);
/// Open files of a server besides its clients: the source, listeners, pipes, logs, and a reserve.
const OTHER_FILES: u64 = 64;
/// Stack size of a serving thread, which holds no buffers.
const STACK_BYTES: usize = 512 << 10;

impl Server {
    /// Starts to listen; clients are not served yet.
    ///
    /// # Errors
    /// Returns an error if an address is in use or not allowed, if the settings allow writes but the source cannot be written, or if no
    /// thread can be started.
    pub fn bind(
        listen: &[Listen],
        reader: Reader,
        settings: NbdSettings,
    ) -> Result<(Server, NbdStop), FrontError> {
        if settings.writable {
            reader
                .allow_writes()
                .map_err(|error| unwritable(&reader, error))?;
            if settings.lock {
                reader.lock().map_err(|error| locked(&reader, error))?;
            }
        }
        let listeners = listen
            .iter()
            .map(Listener::bind)
            .collect::<Result<Vec<_>, _>>()?;
        let (wake, stop) = UnixStream::pair().map_err(no_pipe)?;
        // The pipe has no reader after the server has ended, and a signal handler must not block.
        let _ = stop.set_nonblocking(true);
        let most = settings.max_clients.saturating_add(settings.max_helpers);
        let workers = Workers::new(most).map_err(no_pipe)?;
        let watch = reader
            .watch()
            .filter(|watch| workers.watch(watch.descriptor.as_fd()).is_ok());
        let (running, ended) = channel();
        let shared = Arc::new(ServerShared {
            reader,
            counters: Counters::default(),
            conns: Mutex::default(),
            workers,
            helpers: Permits::new(u64::from(settings.max_helpers)),
            owed: Arc::new(Permits::new(settings.max_owed_bytes)),
            settings,
            watch,
            running: Mutex::new(Some(running)),
            checked: Mutex::default(),
        });
        shared.start().map_err(no_thread)?;
        Ok((
            Server {
                shared,
                listeners,
                wake,
                ended,
            },
            NbdStop(stop),
        ))
    }

    /// The addresses of the server as URIs: `nbd+unix:///NAME?socket=PATH`, `nbd://HOST:PORT/NAME`; `nbds` with TLS.
    #[must_use]
    pub fn uris(&self) -> Vec<String> {
        let settings = &self.shared.settings;
        let tls = settings.tls_offer() != TlsOffer::None;
        self.listeners
            .iter()
            .map(|l| l.uri(&settings.export, tls))
            .collect()
    }

    /// The counters since the server was created.
    #[must_use]
    pub fn counts(&self) -> ServerCounts {
        self.shared.counts()
    }

    /// A function that returns the counters; it can be called while the server runs.
    pub fn counter(&self) -> impl Fn() -> ServerCounts + Send + 'static {
        let shared = Arc::clone(&self.shared);
        move || shared.counts()
    }

    /// Serves clients until the server is stopped.
    ///
    /// # Errors
    /// Returns an error if the system call that waits for clients (poll) fails.
    pub fn run(self) -> std::io::Result<()> {
        loop {
            let mut fds: Vec<PollFd<'_>> = vec![PollFd::new(&self.wake, PollFlags::IN)];
            let listeners = self.listeners.iter();
            fds.extend(listeners.map(|l| PollFd::new(l, PollFlags::IN)));
            match poll(&mut fds, None) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            if ready[0] {
                break;
            }
            let listeners = self.listeners.iter().zip(&ready[1..]);
            for (listener, _) in listeners.filter(|(_, ready)| **ready) {
                self.accept(listener);
            }
        }
        self.drain();
        Ok(())
    }

    fn accept(&self, listener: &Listener) {
        match listener.accept() {
            Ok(stream) => self.shared.greet(stream),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::ConnectionAborted
                ) => {}
            // Out of file descriptors or memory: connected clients may soon free some.
            Err(error) => {
                if let Some(times) = log::once_a_minute("cannot accept") {
                    tracing::warn!(times, "cannot accept an NBD client: {error}");
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    /// Waits until the connections have finished their requests.
    fn drain(&self) {
        self.shared.each(Conn::take_no_more);
        let until = Instant::now() + DRAIN;
        while self.shared.counts().clients > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.shared.each(Conn::hang_up);
    }
}

impl ServerShared {
    fn counts(&self) -> ServerCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let c = &self.counters;
        ServerCounts {
            clients: lock(&self.conns).len() as u64,
            connections: get(&c.connections),
            turned_away: get(&c.turned_away),
            requests: get(&c.requests),
            failed_requests: get(&c.failed_requests),
            bytes: get(&c.bytes),
            written_bytes: get(&c.written_bytes),
            threads: get(&c.greeting) + u64::from(self.workers.threads()),
            owed_bytes: self.owed.used(),
            reread_bytes: get(&c.reread_bytes),
        }
    }

    fn each(&self, what: fn(&Conn)) {
        let conns = lock(&self.conns);
        conns.values().for_each(|conn| what(conn));
    }

    /// Starts a thread for a new client, if there is room.
    fn greet(self: &Arc<ServerShared>, socket: Socket) {
        let number = self.counters.connections.fetch_add(1, Ordering::Relaxed);
        let mut conns = lock(&self.conns);
        let turn_away = || add(&self.counters.turned_away, 1);
        if conns.len() >= self.settings.max_clients as usize {
            if let Some(times) = log::once_a_minute("too many NBD clients") {
                tracing::warn!(
                    times,
                    limit = self.settings.max_clients,
                    "NBD client refused: too many clients are connected"
                );
            }
            return turn_away();
        }
        tracing::info!(client = number, peer = %socket.peer, "NBD client connected");
        let conn = Arc::new(Conn::new(
            Arc::clone(self),
            number,
            ClientStream::new(socket),
        ));
        conns.insert(number, Arc::clone(&conn));
        drop(conns);
        add(&self.counters.greeting, 1);
        let greet = move |shared: &Arc<ServerShared>| {
            // A panic ends only this client; its slot is released.
            let stays = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| conn.begin()));
            shared.counters.greeting.fetch_sub(1, Ordering::Relaxed);
            if !stays.unwrap_or(false) {
                tracing::info!(
                    client = number,
                    "NBD client disconnected before the end of the handshake"
                );
                conn.hang_up();
                shared.forget(number);
            }
        };
        if self.spawn(greet).is_err() {
            self.counters.greeting.fetch_sub(1, Ordering::Relaxed);
            self.forget(number);
            turn_away();
        }
    }

    /// A reader for a new client, pinned to the version that is current now, as far as the source answers in time.
    fn current(&self) -> Option<Reader> {
        let mut checked = lock(&self.checked);
        if checked.is_none_or(|at| at.elapsed() >= CHECK_EVERY) {
            let reader = self.reader.try_clone().ok()?;
            if let Ok(check) = Task::start("foreread-check", move || reader.check()) {
                check.within(CHECK_PATIENCE);
            }
            *checked = Some(Instant::now());
        }
        drop(checked);
        self.reader.try_clone().ok().map(Reader::pin_version)
    }

    fn forget(&self, number: u64) {
        lock(&self.conns).remove(&number);
    }

    /// Starts the first thread: without it, no client would ever be served.
    fn start(self: &Arc<ServerShared>) -> std::io::Result<()> {
        if self.workers.invite() == WorkerStep::Spawn {
            self.spawn(ServerShared::work)?;
        }
        Ok(())
    }

    /// Starts the thread that the workers request, if any.
    fn have_done(self: &Arc<ServerShared>, then: WorkerStep) {
        if then == WorkerStep::Spawn && self.spawn(ServerShared::work).is_err() {
            // The existing threads continue after their waits.
            self.workers.lost();
        }
    }

    /// Starts a thread that the drop of the server waits for.
    fn spawn(
        self: &Arc<ServerShared>,
        work: impl FnOnce(&Arc<ServerShared>) + Send + 'static,
    ) -> std::io::Result<()> {
        let shared = Arc::clone(self);
        let running = lock(&self.running).clone();
        let all = move || {
            work(&shared);
            // The order matters: the reader must be free when the server has ended.
            drop(shared);
            drop(running);
        };
        system::spawn("foreread-nbd", Some(STACK_BYTES), all).map(drop)
    }

    /// The loop of a serving thread.
    fn work(self: &Arc<ServerShared>) {
        let mut buffer = Vec::new();
        let mut answered = None;
        let spawn = || self.have_done(WorkerStep::Spawn);
        let reap = || self.watch.iter().for_each(QueueWatch::reap);
        while let Some(number) = self.workers.take(answered, &spawn, &reap) {
            let conn = lock(&self.conns).get(&number).map(Arc::clone);
            if let Some(conn) = conn {
                answered = conn.turn(&mut buffer);
            }
        }
    }

    /// The name of a client's source, for an observer.
    fn called(&self) -> &str {
        match &self.settings.export {
            export if export.is_empty() => &self.settings.description,
            export => export,
        }
    }

    /// The export's properties, for a client that connects now.
    fn export(&self, reader: &Reader) -> Export {
        let writes = match self.settings.writable {
            true => transmission::SEND_FUA | transmission::SEND_WRITE_ZEROES,
            false => transmission::READ_ONLY,
        };
        Export {
            name: self.settings.export.clone(),
            description: self.settings.description.clone(),
            size: reader.size(),
            flags: transmission::HAS_FLAGS
                | writes
                | transmission::SEND_FLUSH
                | transmission::CAN_MULTI_CONN
                | transmission::SEND_CACHE,
            knows_holes: reader.knows_holes(),
        }
    }
}

impl Drop for Server {
    /// After the drop no thread and no connection holds the reader, unless a source blocks a thread: a file that was served writable
    /// can be locked again at once.
    fn drop(&mut self) {
        self.shared.each(Conn::hang_up);
        self.shared.workers.end();
        drop(lock(&self.shared.running).take());
        // Nothing is ever sent on this channel.
        let _ = self.ended.recv_timeout(THREADS_END);
        let conns = std::mem::take(&mut *lock(&self.shared.conns));
        drop(conns);
    }
}

fn no_thread(error: std::io::Error) -> FrontError {
    let what = format!("no thread can be started ({error})");
    let remedy = "allow more threads (ulimit -u, pids.max of the cgroup)";
    FrontError::new(FrontErrorKind::System, what, "the server", remedy).caused_by(error)
}

fn unwritable(reader: &Reader, error: WriteError) -> FrontError {
    let is_of_local_kind = [Defaults::FILE, Defaults::MEMORY]
        .map(|of| of.kind)
        .contains(&reader.defaults().kind);
    let (what, remedy) = if is_of_local_kind
        || error.errno() != rustix::io::Errno::ROFS.raw_os_error()
    {
        let remedy = "serve it read-only, or run as a user that may write it";
        (format!("cannot be written ({error})"), remedy)
    } else {
        let remedy = "serve it read-only: only files and block devices can be written, an object of a store is never writable";
        ("cannot be written".to_string(), remedy)
    };
    FrontError::new(FrontErrorKind::Source, what, reader.describe(), remedy).caused_by(error)
}

fn locked(reader: &Reader, error: WriteError) -> FrontError {
    let (again, busy) = (rustix::io::Errno::AGAIN, rustix::io::Errno::BUSY);
    let what = match error.errno() {
        errno if errno == again.raw_os_error() => {
            "another program has locked it, to write it or to prevent writes".to_string()
        }
        errno if errno == busy.raw_os_error() => {
            "it is mounted, or another program has opened it exclusively".to_string()
        }
        _ => format!("it cannot be locked ({error})"),
    };
    let remedy = "end that program or unmount the device; if the program never writes, serve without a lock (--no-lock)";
    FrontError::new(FrontErrorKind::Locked, what, reader.describe(), remedy).caused_by(error)
}

fn no_pipe(error: std::io::Error) -> FrontError {
    let what = format!("no pipe can be created ({error})");
    let remedy = "allow more open files (ulimit -n)";
    FrontError::new(FrontErrorKind::System, what, "the server", remedy).caused_by(error)
}
