//! Limits shared by all engines of a process: memory, requests in flight, bytes in flight.
//!
//! An engine reserves memory when it is created and returns it when it ends. A transfer counts towards the limits from its start to its
//! end. A demand transfer always starts, even if it exceeds a limit, because a caller waits for it. A readahead transfer that would exceed
//! a limit is refused, which fails no read. The budget never waits and never blocks a caller.
//!
//! ```text
//!   Engine::new ──reserve──► the requested memory, or the rest, or an error
//!   demand ─────────────────► always allowed, and counted
//!   readahead ──room left?──► allowed, and counted
//!                  └─ no ───► refused: its pages are absent again, and a demand read fetches them when needed
//! ```

use crate::error::OpenError;
use foreread_os::host::Host;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Minimum cache size: if less memory is left, creating an engine fails.
pub const MIN_MEMORY_BYTES: u64 = 1 << 20;

/// Memory reserved for the rest of the process: threads, connections, names, and the queue of a disk cache.
const REST_BYTES: u64 = 128 << 20;

/// The limit for all caches together on a machine with this much memory.
fn share_of(memory: u64) -> u64 {
    let rest = memory.saturating_sub(REST_BYTES).max(memory / 4);
    rest.min(memory / 4 * 3)
}

/// The limits of a [`Budget`], for all engines that share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetLimits {
    /// Bytes of all caches and of the buffers kept for reuse. The default is three quarters of the memory of the machine, or of the
    /// control group if that has less. With less than 512 MiB of memory, the default is all but 128 MiB, and at least a quarter: the
    /// rest of the process needs the remainder.
    pub memory_bytes: u64,
    /// Number of requests in flight above which readahead is refused. Default 256: four engines at their own limit of 64.
    pub requests: u64,
    /// Number of bytes in flight above which readahead is refused. Default 256 MiB: 256 requests of 1 MiB, the largest of an engine.
    pub bytes: u64,
}

impl Default for BudgetLimits {
    fn default() -> BudgetLimits {
        BudgetLimits {
            memory_bytes: share_of(Host::here().memory_bytes()),
            requests: 256,
            bytes: 256 << 20,
        }
    }
}

/// Current use of a [`Budget`], and the number of refusals since the budget was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetUse {
    /// Bytes reserved by engines.
    pub memory_bytes: u64,
    /// Requests in flight.
    pub requests: u64,
    /// Bytes of the requests in flight.
    pub bytes: u64,
    /// Engines that got less memory than requested, or were refused.
    pub short_engines: u64,
    /// Readahead requests that were refused.
    pub refused_requests: u64,
    /// Bytes of the refused readahead requests.
    pub refused_bytes: u64,
}

/// Limits shared by several engines: memory, requests in flight, and bytes in flight.
///
/// Every engine uses the budget of its process ([`Budget::of_process`]: three quarters of the memory) unless
/// [`Options::budget`](crate::Options::budget) sets another. A cache that does not fit is made smaller, or is refused if less than
/// [`MIN_MEMORY_BYTES`] are left. A fetch for which a caller waits is never refused. Readahead may be refused, but that fails no read.
///
/// ```
/// use foreread::{Budget, BudgetLimits, Engine, Options};
///
/// // Two caches of up to 64 MiB in a program that may use 96 MiB for both.
/// let limits = BudgetLimits { memory_bytes: 96 << 20, ..BudgetLimits::default() };
/// let budget = Budget::new(limits);
/// let options = Options::default().cache_bytes(64 << 20).budget(budget.clone());
/// let (first, second) = (Engine::new(options.clone())?, Engine::new(options)?);
/// assert!(first.cache_bytes() > second.cache_bytes());
/// assert!(budget.usage().memory_bytes <= 96 << 20);
/// assert_eq!(budget.usage().short_engines, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Budget {
    limits: BudgetLimits,
    memory_bytes: AtomicU64,
    requests: AtomicU64,
    bytes: AtomicU64,
    short_engines: AtomicU64,
    refused_requests: AtomicU64,
    refused_bytes: AtomicU64,
}

impl Budget {
    /// Creates a separate budget, for engines that do not share limits with the rest of the process.
    #[must_use]
    pub fn new(limits: BudgetLimits) -> Arc<Budget> {
        Arc::new(Budget {
            limits,
            memory_bytes: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            short_engines: AtomicU64::new(0),
            refused_requests: AtomicU64::new(0),
            refused_bytes: AtomicU64::new(0),
        })
    }

    /// The process-wide budget with default limits. Every engine uses this budget unless its options set another.
    #[must_use]
    pub fn of_process() -> Arc<Budget> {
        static PROCESS: OnceLock<Arc<Budget>> = OnceLock::new();
        Arc::clone(PROCESS.get_or_init(|| Budget::new(BudgetLimits::default())))
    }

    /// The limits of this budget.
    #[must_use]
    pub fn limits(&self) -> BudgetLimits {
        self.limits
    }

    /// The present use of this budget.
    #[must_use]
    pub fn usage(&self) -> BudgetUse {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        BudgetUse {
            memory_bytes: get(&self.memory_bytes),
            requests: get(&self.requests),
            bytes: get(&self.bytes),
            short_engines: get(&self.short_engines),
            refused_requests: get(&self.refused_requests),
            refused_bytes: get(&self.refused_bytes),
        }
    }

    /// Reserves memory for an engine: `wanted` bytes, of which `spare` are for spare buffers, or less if less is left.
    pub(crate) fn reserve(
        self: &Arc<Budget>,
        wanted: u64,
        spare: u64,
    ) -> Result<Reservation, OpenError> {
        let limit = self.limits.memory_bytes;
        let mut got = 0;
        let take = |used: u64| {
            got = wanted.min(limit.saturating_sub(used));
            (got >= wanted.min(MIN_MEMORY_BYTES)).then_some(used + got)
        };
        let taken = self
            .memory_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        if taken.is_err() || got < wanted {
            self.short_engines.fetch_add(1, Ordering::Relaxed);
        }
        match taken {
            Ok(_) => Ok(Reservation {
                budget: Arc::clone(self),
                bytes: got,
            }),
            Err(used) => Err(OpenError::Budget {
                wanted,
                spare: spare.min(wanted),
                used,
                limit,
            }),
        }
    }

    /// Counts a demand transfer that starts.
    pub(crate) fn demand(self: &Arc<Budget>, bytes: u64) -> Claim {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Claim {
            budget: Arc::clone(self),
            bytes,
            ahead: false,
        }
    }

    /// Asks for a share for a readahead transfer. Returns `None` if it is refused.
    pub(crate) fn ahead(self: &Arc<Budget>, bytes: u64) -> Option<Claim> {
        let mut claim = self.demand(bytes);
        claim.ahead = true;
        let over = self.requests.load(Ordering::Relaxed) > self.limits.requests
            || self.bytes.load(Ordering::Relaxed) > self.limits.bytes;
        if over {
            self.refused_requests.fetch_add(1, Ordering::Relaxed);
            self.refused_bytes.fetch_add(bytes, Ordering::Relaxed);
            return None;
        }
        Some(claim)
    }
}

/// Memory that an engine has reserved; returned when this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Reservation {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget
            .memory_bytes
            .fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The share of one transfer; returned when this is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    budget: Arc<Budget>,
    bytes: u64,
    ahead: bool,
}

impl Claim {
    /// Whether the transfer is readahead: no caller waited for it when it started.
    pub fn is_ahead(&self) -> bool {
        self.ahead
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.budget.requests.fetch_sub(1, Ordering::Relaxed);
        self.budget.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiny() -> Arc<Budget> {
        Budget::new(BudgetLimits {
            memory_bytes: 10 << 20,
            requests: 2,
            bytes: 1000,
        })
    }

    #[test]
    fn a_small_machine_keeps_memory_for_the_rest() {
        let mib = |memory: u64| share_of(memory << 20) >> 20;
        assert_eq!(
            [64, 128, 256, 320, 512, 4096].map(mib),
            [16, 32, 128, 192, 384, 3072]
        );
    }

    #[test]
    fn memory_stays_below_the_limit_and_is_returned() {
        let budget = tiny();
        let first = budget.reserve(8 << 20, 0).expect("all of it");
        let second = budget.reserve(8 << 20, 0).expect("what is left");
        assert_eq!((first.bytes(), second.bytes()), (8 << 20, 2 << 20));
        let error = budget
            .reserve(8 << 20, 0)
            .expect_err("nothing is left")
            .to_string();
        assert!(
            error.contains("10 MiB of the limit of 10 MiB") && error.lines().count() == 1,
            "{error}"
        );
        drop(first);
        assert_eq!(
            budget.reserve(100, 0).expect("less than the least").bytes(),
            100
        );
        assert_eq!(
            budget.reserve(20 << 20, 0).expect("what came back").bytes(),
            8 << 20
        );
        drop(second);
        assert_eq!(
            (budget.usage().memory_bytes, budget.usage().short_engines),
            (0, 3)
        );
    }

    #[test]
    fn readahead_is_refused_and_demand_is_not() {
        let budget = tiny();
        let waited = [budget.demand(600), budget.demand(600), budget.demand(600)];
        assert!(budget.ahead(1).is_none(), "three requests are in flight");
        drop(waited);
        assert_eq!((budget.usage().requests, budget.usage().bytes), (0, 0));
        let one = budget.ahead(999).expect("room");
        assert!(budget.ahead(2).is_none(), "one byte too many");
        assert!(
            budget.ahead(1).is_some() && budget.ahead(1).is_some(),
            "each is dropped at once"
        );
        drop(one);
        let used = budget.usage();
        assert_eq!(
            (
                used.requests,
                used.bytes,
                used.refused_requests,
                used.refused_bytes
            ),
            (0, 0, 2, 3)
        );
    }
}
