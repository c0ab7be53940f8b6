//! Tests of one budget for several engines: memory, requests and bytes in flight; readahead is refused first (P3, P4).

use crate::common::{by, named, opened, quiet, read_and_check, wait_until};
use foreread::{Budget, BudgetLimits, Engine, OpenError, Options, why_no_readahead};
use foreread_testing::{HangingSource, Method};
use std::sync::Arc;

const MIB: u64 = 1 << 20;

fn options(budget: &Arc<Budget>) -> Options {
    let mut options = by("linux-6.18:max=128K", 4 * MIB).budget(Arc::clone(budget));
    options.limits.spare_bytes = MIB;
    options
}

#[test]
fn engines_share_memory_and_the_last_one_is_refused() {
    let budget = Budget::new(BudgetLimits {
        memory_bytes: 8 * MIB,
        ..BudgetLimits::default()
    });
    let engine = || Engine::new(options(&budget));
    let (first, second) = (engine().expect("all"), engine().expect("what is left"));
    assert_eq!(first.cache_bytes(), 4 * MIB);
    let left = second.cache_bytes();
    assert!((2 * MIB..3 * MIB).contains(&left), "{left}");
    let third = engine().err().expect("nothing is left");
    let is_full =
        matches!(third, OpenError::Budget { used, limit, .. } if used == limit && limit == 8 * MIB);
    assert!(is_full, "{third}");
    let reader = second.open(Arc::new(named(16 * MIB))).expect("opened");
    let mut buf = vec![0; MIB as usize];
    for at in 0..16 {
        read_and_check(&reader, &mut buf, at * MIB, 0);
    }
    assert!(quiet(&reader).pages * 4096 <= left);
    drop((first, second, reader));
    assert_eq!(budget.usage().memory_bytes, 0);
    assert_eq!(engine().expect("all is back").cache_bytes(), 4 * MIB);
}

/// Every request that readahead could have is taken by reads of another engine that hang: its own reads go on.
#[test]
fn demand_continues_if_readahead_is_refused() {
    let budget = Budget::new(BudgetLimits {
        requests: 2,
        ..BudgetLimits::default()
    });
    let (hanging, latch) = HangingSource::new(named(MIB), false);
    latch.hang(Method::ReadAt);
    let stuck = opened(hanging, options(&budget).policy("none"));
    let free = opened(named(4 * MIB), options(&budget));
    std::thread::scope(|scope| {
        for n in 0..2u64 {
            let stuck = &stuck;
            scope.spawn(move || read_and_check(stuck, &mut [0; 4096], n * 512 * 1024, 0));
        }
        wait_until("two reads hang", || latch.held() == 2);
        let mut buf = [0; 4096];
        for at in 0..200 {
            read_and_check(&free, &mut buf, at * 4096, 0);
        }
        // No caller waits for these, so only a worker can take them, and may not.
        free.prefetch(2 * MIB..3 * MIB).expect("taken");
        let is_refused = || budget.usage().refused_requests > 0;
        wait_until("a request is refused", is_refused);
        quiet(&free);
        let stats = free.stats();
        let failed = stats.failed_reads + stats.failed_fetches;
        assert!(stats.ra_refused_bytes > 0 && failed == 0, "{stats:?}");
        assert_eq!(budget.usage().requests, 2, "those that hang");
        latch.release();
    });
    quiet(&free);
    let used = budget.usage();
    let back = (used.requests, used.bytes);
    assert_eq!(back, (0, 0), "everything was given back");
    let mut buf = [0; 4096];
    for at in 200..1000 {
        read_and_check(&free, &mut buf, at * 4096, 0);
    }
    let refused = budget.usage().refused_requests;
    assert_eq!(refused, used.refused_requests, "with room none is refused");
}

#[test]
fn a_budget_without_bytes_leaves_reads_as_they_are() {
    let budget = Budget::new(BudgetLimits {
        bytes: 0,
        ..BudgetLimits::default()
    });
    let mut wide = options(&budget);
    // Nothing rides along with demand, so all readahead goes by itself.
    wide.limits.max_piggyback_bytes = 0;
    let reader = opened(named(4 * MIB), wide);
    let mut buf = [0; 4096];
    for at in 0..1024 {
        read_and_check(&reader, &mut buf, at * 4096, 0);
    }
    quiet(&reader);
    let stats = reader.stats();
    assert_eq!((stats.failed_reads, stats.demand_reads), (0, 1024));
    let why = why_no_readahead("linux-6.18", &stats);
    // A reader that reaches a readahead before a worker does reads it itself: it is demand then.
    if stats.used_bytes == 0 {
        let is_refused = why.is_some_and(|why| why.starts_with("readahead is refused"));
        assert!(is_refused, "{stats:?}");
    }
}
