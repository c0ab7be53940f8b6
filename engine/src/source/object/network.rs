//! State shared by all objects that a process has open: connections, the threads that drive them, and what is known about each
//! server.
//!
//! A request may use any idle connection to its host, even if another file opened it, so a file that is opened later needs no new
//! connection. The lock on this state is never held while a thread waits, and nothing is shared with a forked child process
//! (`fork.rs`).
//!
//! ```text
//!   Object, Prefix ──► Client (timeouts, http or https) ──► connections of reqwest, by host
//!                  └─► Server (bucket or host)          ──► limit of concurrent requests, refused conditions
//!   wait ──► runtime: two threads, started with the first request
//! ```
//! Example: a loader opens 1,000 objects of one bucket one after the other. The first opens a connection: a round trip for TCP
//! and one or two for TLS. All other objects reuse that connection, because it is idle.

use super::refusal::Refusal;
use super::settings::ObjectSettings;
use crate::sync::lock;
use foreread_os::threads::{self, spawn_scoped};
use object_store::client::HttpClient;
use std::any::Any;
use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::Notify;

/// Maximum clients whose connections are kept; the oldest one is dropped for a new one.
const MAX_CLIENTS: usize = 16;
/// Maximum chains without credentials that are remembered; the oldest one is dropped for a new one.
const MAX_WITHOUT: usize = 16;
/// Threads that drive connections; the reading threads copy the bytes.
const THREADS: usize = 2;

/// What is known about the server of a bucket or host. All open objects of this server in the process share this value.
#[derive(Debug, Default)]
pub struct Server {
    /// Limit of concurrent requests.
    pub brake: Brake,
    /// Conditions that the server refuses for unchanged objects.
    pub conditions: Conditions,
}

/// The conditions (`If-Match`, `If-Unmodified-Since`) that a server answers wrongly: with 412, although it has the version. Some servers
/// compare ETags including their quotes, or dates including fractions of a second. A server that answers a condition wrongly gets no more
/// requests with this condition; the version in each reply is checked anyway.
#[derive(Debug, Default)]
pub struct Conditions {
    refused: AtomicBool,
    /// `If-None-Match` was refused.
    pub unless_refused: AtomicBool,
    /// Conditions with the version from a listing were refused: the listings have another kind of ETag.
    listed_refused: AtomicBool,
    /// The first reply about an object had the ETag of the listing, or another one.
    lists_same: AtomicBool,
    lists_other: AtomicBool,
}

impl Conditions {
    /// Returns true if requests to this server may carry a condition (`If-Match` or `If-Unmodified-Since`) for a version. The version
    /// comes from a listing if `is_listed` is true, otherwise from a reply.
    pub fn may_name(&self, is_listed: bool) -> bool {
        !(self.refused.load(Ordering::Relaxed)
            || is_listed && self.listed_refused.load(Ordering::Relaxed))
    }

    /// Records whether the first reply about a listed object had the same ETag as the listing.
    pub fn replied(&self, is_as_listed: bool) {
        let flag = if is_as_listed {
            &self.lists_same
        } else {
            &self.lists_other
        };
        flag.store(true, Ordering::Relaxed);
    }

    /// Returns true if ETags in listings differ from those in replies: at least one reply had another ETag than the listing, and
    /// none had the same.
    pub fn lists_otherwise(&self) -> bool {
        self.lists_other.load(Ordering::Relaxed) && !self.lists_same.load(Ordering::Relaxed)
    }

    /// Records that a condition failed although the version exists. If `of_listing_alone` is true, the version in the condition
    /// came from a listing, otherwise from a reply.
    pub fn failed(&self, of_listing_alone: bool) {
        let flag = if of_listing_alone {
            &self.listed_refused
        } else {
            &self.refused
        };
        if !flag.swap(true, Ordering::Relaxed) {
            tracing::info!(
                of_listing_alone,
                "an object's server refuses the ETag or date that it sent itself: requests are sent without If-Match or If-Unmodified-Since"
            );
        }
    }
}

/// The state that all objects of the process share: connections, the threads that drive them, and what is known about servers.
#[derive(Default)]
pub struct SharedNetwork {
    runtime: Option<Runtime>,
    clients: Vec<(Client, HttpClient)>,
    servers: Vec<(String, Weak<Server>)>,
    /// Keepers of credentials, by a hash of their settings.
    keepers: Vec<(u64, Weak<dyn Any + Send + Sync>)>,
    /// Chains that had no credentials: their key, when they were queried, and why a link that should have had credentials had
    /// none.
    without: Vec<(u64, Instant, Option<Arc<str>>)>,
}

pub type Network = MutexGuard<'static, SharedNetwork>;

/// The settings on which a client's connections depend. Clients with equal settings share their connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    connect_timeout: Duration,
    idle_connections: u32,
    allow_http: bool,
    ca_file: Option<PathBuf>,
}

impl Client {
    pub fn of(settings: &ObjectSettings, allow_http: bool) -> Client {
        Client {
            connect_timeout: settings.first_byte,
            idle_connections: settings.requests * 4,
            allow_http,
            ca_file: settings.ca_file.clone(),
        }
    }
}

impl SharedNetwork {
    /// Returns the client with these settings; `make` creates it if there is none.
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

    /// Returns the `Keeper` of the credentials with that key; `make` creates it if there is none.
    pub fn keeper<K: Any + Send + Sync>(&mut self, key: u64, make: impl FnOnce() -> K) -> Arc<K> {
        self.keepers.retain(|(_, keeper)| keeper.strong_count() > 0);
        let known = self.keepers.iter().find(|(of, _)| *of == key);
        let known = known.and_then(|(_, keeper)| keeper.upgrade()?.downcast().ok());
        known.unwrap_or_else(|| {
            let made = Arc::new(make());
            let any: Arc<dyn Any + Send + Sync> = made.clone();
            self.keepers.push((key, Arc::downgrade(&any)));
            made
        })
    }

    /// Returns true if a search of the credential chain with that key, less than `time` ago, found no credentials.
    pub fn has_none(&mut self, key: u64, time: Duration) -> bool {
        self.without.retain(|(_, at, _)| at.elapsed() < time);
        self.without.iter().any(|(of, ..)| *of == key)
    }

    /// Records that the credential chain with that key has no credentials.
    pub fn set_none(&mut self, key: u64, missing: Option<Arc<str>>) {
        self.without.truncate(MAX_WITHOUT - 1);
        self.without.insert(0, (key, Instant::now(), missing));
    }

    /// Returns why a credential chain has found nothing, if one of its places should have had credentials.
    pub fn missing(&self, key: u64) -> Option<Arc<str>> {
        let mut chains = self.without.iter();
        chains.find(|(of, ..)| *of == key)?.2.clone()
    }

    /// Returns what is known about the server with that name.
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

/// Locks the [`SharedNetwork`]. A thread also takes this lock before it forks the process.
pub fn hold() -> Network {
    static SHARED: LazyLock<Mutex<SharedNetwork>> = LazyLock::new(Mutex::default);
    lock(&SHARED)
}

/// The threads that drive connections, started once per process.
fn network() -> std::io::Result<Handle> {
    let mut network = hold();
    if let Some(runtime) = &network.runtime {
        return Ok(runtime.handle().clone());
    }
    // The runtime panics if its threads cannot be started.
    threads::rehearse("foreread-net", THREADS)?;
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder
        .worker_threads(THREADS)
        .thread_name("foreread-net")
        .enable_all()
        .build()?;
    Ok(network.runtime.insert(runtime).handle().clone())
}

/// Returns true if this thread may wait for async work. A thread of an async runtime may not wait, because the wait would panic.
pub fn may_wait() -> bool {
    Handle::try_current().is_err()
}

/// Runs async work to its end on this thread; [`may_wait`] must return true here.
pub fn wait_here<T>(work: impl Future<Output = T>) -> Result<T, Refusal> {
    let network = network().map_err(|error| Refusal::NoThreads(error.to_string()))?;
    Ok(network.block_on(work))
}

/// Starts async work for which no thread waits.
#[cfg(feature = "disk-cache")]
pub fn begin(work: impl Future<Output = ()> + Send + 'static) -> std::io::Result<()> {
    network()?.spawn(work);
    Ok(())
}

/// Runs async work to its end on this thread, or on another thread if this one is of an async runtime. Fails if threads cannot be
/// started.
pub fn wait<T: Send>(work: impl Future<Output = T> + Send) -> Result<T, Refusal> {
    if may_wait() {
        return wait_here(work);
    }
    std::thread::scope(|scope| {
        let waits = spawn_scoped(scope, "foreread-wait", || wait_here(work));
        let waits = waits.map_err(|error| Refusal::NoThreads(error.to_string()))?;
        waits
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

// Limits concurrent requests to a server that requests it (503 SlowDown, 429 Too Many Requests).
//
// A request refused in this way is retried after a pause, like after any transient error. With pauses alone, all requests would
// come back together and be refused together. So the number of requests in flight is halved at the first refusal, and grows by
// one after as many replies as the limit: this is the rule by which TCP shares a link. Requests that a read waits for precede
// readahead. This limit never refuses a request, and never limits a server that has not refused one.
//
// ```text
//   no limit ──503──► half of those in flight ──503 of a request begun since──► half again, at least 1
//      ▲                        └──an answer──► + 1 / limit ──┐
//      └──────────────────────────────── MAX_LIMIT ◄──────────┘
// ```
// Example: 16 requests are in flight, and the server accepts 6. Ten are refused: the first refusal sets the limit to 8. The
// other nine began before that, and change nothing. Two of the next eight are refused: 4. Then the limit is 5 after four
// replies, and 6 after five more.
// Source: additive increase, multiplicative decrease (Chiu and Jain, 1989).

/// When the limit reaches this value, it is removed. Chosen value: more than the default number of concurrent requests.
const MAX_LIMIT: u32 = 64;
/// How often a request that waits for its turn checks whether a read waits for it now.
const LOOKS_EVERY: Duration = Duration::from_millis(20);
/// Limits are counted in thousandths.
const ONE: u32 = 1000;

/// The limit on concurrent requests to one server or bucket, which all its objects share.
#[derive(Debug, Default)]
pub struct Brake {
    state: Mutex<RequestLimit>,
    ended: Notify,
}

#[derive(Debug, Default)]
struct RequestLimit {
    under_way: u32,
    /// In thousandths; 0 means no limit.
    limit: u32,
    /// How often the limit was halved.
    halved: u64,
    /// Requests that a read waits for and that have no turn yet.
    demand_waits: u32,
}

/// Permission to have one request in flight; another request gets this permission when the value is dropped.
#[derive(Debug)]
pub struct Turn<'a> {
    brake: &'a Brake,
    /// How often the limit had been halved when the request began.
    halved: u64,
}

/// Counts a request in `demand_waits` until it is dropped.
struct DemandWaits<'a>(&'a Brake);

impl Brake {
    /// Waits until the server's limit allows one more concurrent request. `is_awaited` is true if a read waits for this request now.
    pub async fn turn(&self, is_awaited: impl Fn() -> bool) -> Turn<'_> {
        let mut demand = None;
        loop {
            // Created before the check, so that a request that ends in between wakes this one.
            let ended = self.ended.notified();
            if let Some(turn) = self.begin(is_awaited()) {
                return turn;
            }
            if demand.is_none() && is_awaited() {
                lock(&self.state).demand_waits += 1;
                demand = Some(DemandWaits(self));
            }
            let _ = tokio::time::timeout(LOOKS_EVERY, ended).await;
        }
    }

    fn begin(&self, is_awaited: bool) -> Option<Turn<'_>> {
        let mut state = lock(&self.state);
        let is_free = state.limit == 0 || state.under_way < (state.limit / ONE).max(1);
        if !is_free || !is_awaited && state.demand_waits > 0 {
            return None;
        }
        state.under_way += 1;
        Some(Turn {
            brake: self,
            halved: state.halved,
        })
    }
}

impl Turn<'_> {
    /// Records that the server has replied to a request.
    pub fn answered(&self) {
        let mut state = lock(&self.brake.state);
        if let Some(more) = (ONE * ONE).checked_div(state.limit) {
            state.limit = if state.limit + more < MAX_LIMIT * ONE {
                state.limit + more
            } else {
                0
            };
        }
    }

    /// Lowers the limit, because the server asks for fewer requests. Returns the new limit if it has changed.
    pub fn refused(&self) -> Option<u32> {
        let mut state = lock(&self.brake.state);
        if state.halved != self.halved {
            return None;
        }
        let now = (state.under_way / 2).max(1);
        (state.limit, state.halved) = (now * ONE, state.halved + 1);
        Some(now)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let limited = {
            let mut state = lock(&self.brake.state);
            state.under_way -= 1;
            state.limit > 0
        };
        if limited {
            self.brake.ended.notify_waiters();
        }
    }
}

impl Drop for DemandWaits<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).demand_waits -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many as may begin now, of readahead or of demand.
    fn begin(brake: &Brake, most: usize, awaited: bool) -> Vec<Turn<'_>> {
        std::iter::from_fn(|| brake.begin(awaited))
            .take(most)
            .collect()
    }

    /// The example of the header.
    #[test]
    fn the_limit_is_halved_once_for_those_under_way_and_grows_by_one() {
        let brake = Brake::default();
        let all = begin(&brake, 16, false);
        assert_eq!((all.len(), all[0].refused()), (16, Some(8)));
        assert!(
            all[1..].iter().all(|turn| turn.refused().is_none()),
            "begun before it"
        );
        assert!(brake.begin(true).is_none(), "sixteen are still under way");
        drop(all);
        let eight = begin(&brake, 100, false);
        assert_eq!(
            (eight.len(), eight[0].refused(), eight[1].refused()),
            (8, Some(4), None)
        );
        drop(eight);
        for limit in 4..7 {
            let turns = begin(&brake, 100, false);
            assert_eq!(turns.len(), limit);
            // Rounded down, an answer counts a little less than its part.
            turns.iter().chain(turns.first()).for_each(Turn::answered);
        }
        let one = begin(&brake, 1, false);
        (0..10).for_each(|_| _ = one[0].refused());
        (0..10_000).for_each(|_| one[0].answered());
        assert_eq!(begin(&brake, 1000, false).len(), 1000, "no limit any more");
    }

    #[test]
    fn there_is_always_one_and_demand_goes_first() {
        let brake = Brake::default();
        for _ in 0..5 {
            let one = begin(&brake, 1, false);
            assert_eq!(one[0].refused(), Some(1));
        }
        lock(&brake.state).demand_waits += 1;
        let waits = DemandWaits(&brake);
        assert!(brake.begin(false).is_none(), "a read waits for another");
        assert_eq!(begin(&brake, 9, true).len(), 1);
        drop(waits);
        assert!(brake.begin(false).is_some());
    }
}
