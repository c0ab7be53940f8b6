//! What all objects of a process share: connections, the threads that drive them, and what is known of servers.
//!
//! A request goes out on any idle connection to its host, whichever file it is for, so a file that is opened later finds connections that
//! are made. Never: waits while it is locked, or shares anything with a forked child (`fork.rs`).
//!
//! ```text
//!   Object, Prefix ──► Client (timeouts, http or https) ──► connections of reqwest, by host
//!                  └─► Server (bucket or host)          ──► how long answers take, how many requests there may be, which conditions
//!   wait ──► runtime: two threads, started with the first request
//! ```
//! Example: a loader opens 1,000 objects of one bucket one after the other. The first makes a connection, a round trip for TCP and one or two for
//! TLS; the others take the one that is idle.

use super::brake::Brake;
use super::hedge::Hedges;
use super::settings::ObjectSettings;
use foreread_os::threads::{self, spawn_scoped};
use object_store::client::HttpClient;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::runtime::{Handle, Runtime};

/// Kinds of clients whose connections are kept; the oldest leaves for one more.
const MAX_CLIENTS: usize = 16;
/// Threads that drive connections; the bytes are copied by the threads that read.
const THREADS: usize = 2;

/// What is known of the server of a bucket, or of a host: one for all objects of it that are open in this process.
#[derive(Debug, Default)]
pub struct Server {
    /// How long its answers take.
    pub hedges: Hedges,
    /// How many requests it takes at once.
    pub brake: Brake,
    /// Which conditions it refuses for objects that did not change.
    pub conditions: Conditions,
}

/// Conditions (`If-Match`, `If-Unmodified-Since`) that a server answers with 412, and with the very version without them: some compare
/// ETags with their quotes, or dates with their fractions. They are left out from then on; what a reply says of its version counts anyway.
#[derive(Debug, Default)]
pub struct Conditions {
    refused: AtomicBool,
    /// Those that name what a listing said: its ETags are of another kind.
    listed_refused: AtomicBool,
    /// A first reply had the ETag of the listing, or another one.
    lists_same: AtomicBool,
    lists_other: AtomicBool,
}

impl Conditions {
    /// Whether a version can be named in a request, one of a listing (`is_listed`) or of a reply.
    pub fn may_name(&self, is_listed: bool) -> bool {
        !(self.refused.load(Ordering::Relaxed)
            || is_listed && self.listed_refused.load(Ordering::Relaxed))
    }

    /// A first reply about an object that was listed.
    pub fn replied(&self, is_as_listed: bool) {
        let flag = if is_as_listed {
            &self.lists_same
        } else {
            &self.lists_other
        };
        flag.store(true, Ordering::Relaxed);
    }

    /// Its listings have other ETags than its replies: no reply had the ETag of a listing, and one had another.
    pub fn lists_otherwise(&self) -> bool {
        self.lists_other.load(Ordering::Relaxed) && !self.lists_same.load(Ordering::Relaxed)
    }

    /// A condition failed for a version that is there: the one that was named, or one that a listing named in another way.
    pub fn failed(&self, of_listing_alone: bool) {
        let flag = if of_listing_alone {
            &self.listed_refused
        } else {
            &self.refused
        };
        if !flag.swap(true, Ordering::Relaxed) {
            tracing::info!(
                of_listing_alone,
                "an object's server refuses its own ETag or date: it is asked without"
            );
        }
    }
}

/// What all objects of the process share: their connections, the threads that drive these, and what is known of servers.
#[derive(Default)]
pub struct Shared {
    runtime: Option<Runtime>,
    clients: Vec<(Client, HttpClient)>,
    servers: Vec<(String, Weak<Server>)>,
}

/// The same, locked.
pub type Network = MutexGuard<'static, Shared>;

/// What the connections of a client depend on: clients that agree in it share theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    connect_timeout: Duration,
    idle_connections: u32,
    allow_http: bool,
}

impl Client {
    pub fn of(settings: &ObjectSettings, allow_http: bool) -> Client {
        Client {
            connect_timeout: settings.first_byte,
            idle_connections: settings.requests * 4,
            allow_http,
        }
    }
}

impl Shared {
    /// The client of that kind, made by `make` if there is none.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn client<E>(
        &mut self,
        of: Client,
        make: impl FnOnce() -> Result<HttpClient, E>,
    ) -> Result<HttpClient, E> {
        if let Some((_, client)) = self.clients.iter().find(|(kind, _)| *kind == of) {
            return Ok(client.clone());
        }
        let client = make()?;
        if self.clients.len() == MAX_CLIENTS {
            self.clients.remove(0);
        }
        self.clients.push((of, client.clone()));
        Ok(client)
    }

    /// What is known of that server.
    pub fn server(&mut self, name: &str) -> Arc<Server> {
        self.servers.retain(|(_, server)| server.strong_count() > 0);
        let known = self
            .servers
            .iter()
            .find(|(of, _)| of == name)
            .and_then(|(_, server)| server.upgrade());
        known.unwrap_or_else(|| {
            let server = Arc::default();
            self.servers
                .push((name.to_string(), Arc::downgrade(&server)));
            server
        })
    }
}

/// See [`Shared`]. Also for a thread that is about to fork.
pub fn hold() -> Network {
    static SHARED: Mutex<Shared> = Mutex::new(Shared {
        runtime: None,
        clients: Vec::new(),
        servers: Vec::new(),
    });
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The threads that drive connections, started once for the process.
fn network() -> std::io::Result<Handle> {
    let mut network = hold();
    if let Some(runtime) = &network.runtime {
        return Ok(runtime.handle().clone());
    }
    // The runtime panics where its threads are refused.
    threads::rehearse("foreread-net", THREADS)?;
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder
        .worker_threads(THREADS)
        .thread_name("foreread-net")
        .enable_all()
        .build()?;
    Ok(network.runtime.insert(runtime).handle().clone())
}

/// May this thread wait? One of a runtime's own may not, it would panic.
pub fn may_wait() -> bool {
    Handle::try_current().is_err()
}

/// Runs to the end on this thread, which [`may_wait`].
///
/// # Errors
/// There are no threads for the connections.
pub fn wait_here<T>(work: impl Future<Output = T>) -> std::io::Result<T> {
    Ok(network()?.block_on(work))
}

/// Runs to the end on this thread, or on another where this one may not wait.
///
/// # Errors
/// There are no threads for the connections.
pub fn wait<T: Send>(work: impl Future<Output = T> + Send) -> std::io::Result<T> {
    if may_wait() {
        return wait_here(work);
    }
    let done = std::thread::scope(|scope| {
        Ok(spawn_scoped(scope, "foreread-wait", || wait_here(work))?.join())
    });
    done.and_then(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}
