//! Tests of the simulator's own rules: mapped pages, hints, jobs that follow each other, and the end of a run.
//!
//! Published figures are checked in the lab's tests.

use crate::workload;
use foreread_core::event::Advice;
use foreread_sim::device::presets;
use foreread_sim::simulator::RunResult;
use foreread_sim::workload::{Job, Request, Workload};

const PAGE: u64 = 4096;
/// What a page costs on hdd-theory: 8 ms and 4 KiB of 102,400 KiB/s, in nanoseconds, rounded up.
const PAGE_NS: u64 = 8_039_063;

/// A run on hdd-theory with a cache of this many pages.
fn simulate(workload: &Workload, policy: &str, pages: u64) -> RunResult {
    let device = presets::find("hdd-theory").expect("a preset").build(1);
    crate::simulate(workload, policy, crate::config(pages * PAGE), 0, device)
}

/// One job of a file of 1 MiB.
fn alone(requests: Vec<Request>, policy: &str, pages: u64) -> RunResult {
    let jobs = vec![Job::new(0, 0, requests)];
    simulate(&workload(&[1 << 20], jobs), policy, pages)
}

fn ns(result: &RunResult) -> u64 {
    (result.time_s * 1e9).round() as u64
}

fn touches(pages: &[u64]) -> Vec<Request> {
    let all = pages.iter().map(|p| Request::touch(p * PAGE + 17));
    all.collect()
}

/// The first touch of a page is a fault and reads it; a second one is nothing at all.
#[test]
fn a_mapped_page_is_touched_for_nothing() {
    let result = alone(touches(&[0, 3, 0, 3, 4, 3]), "none", 64);
    let (s, latencies) = (result.stats, result.latency.len());
    let counts = [s.demand_reads, s.misses, s.source_reads, latencies];
    assert_eq!((counts, ns(&result)), ([3; 4], 3 * PAGE_NS));
    // An overfetch of 1.
    let bytes = [s.source_bytes, result.distinct_bytes];
    assert_eq!(bytes, [3 * PAGE; 2]);
}

/// Another mapping of the same file has its own faults, and finds the pages here.
#[test]
fn each_mapping_has_its_own_page_table() {
    let then = |open, pages: &[u64]| {
        let first = Job::new(0, 0, touches(&[0, 1]));
        let second = Job::new(0, open, touches(pages)).after(0);
        let s = simulate(&workload(&[1 << 20], vec![first, second]), "none", 64).stats;
        (s.demand_reads, s.hits, s.source_reads)
    };
    assert_eq!(then(1, &[1, 0, 1]), (4, 2, 2));
    // The same open description later on: its pages are still mapped.
    assert_eq!(then(0, &[1, 2]), (3, 0, 3));
}

/// What leaves the cache is unmapped, and only that.
#[test]
fn a_page_that_was_evicted_faults_again() {
    let touched: Vec<u64> = (0..20).chain([0, 19]).collect();
    let faults = |pages| alone(touches(&touched), "none", pages).stats.demand_reads;
    assert_eq!((faults(64), faults(8)), (20, 21));
}

/// The policy is asked about faults: it reads around them, and what it brings in is used by later ones.
#[test]
fn a_fault_is_read_around() {
    let touched = touches(&[100, 84, 115, 116]);
    let s = alone(touched, "linux-6.18:max=128K", 1024).stats;
    // 32 pages from 84 on, then again from 100 to 131, of which 100 to 115 are here.
    let demand = (s.demand_reads, s.misses, s.source_bytes);
    assert_eq!(demand, (4, 2, 48 * PAGE));
    assert_eq!((s.used_bytes, s.ra_bytes), (2 * PAGE, 46 * PAGE));
}

/// A hint takes no time, is no read, and does what it says.
#[test]
fn hints_count() {
    let hinted = |advice: Option<Advice>| {
        let hint = advice.map(|advice| Request::hint(advice, 0, 1 << 20));
        let reads = [0, PAGE].map(|at| Request::read(at, PAGE));
        let requests = hint.into_iter().chain(reads).collect();
        let result = alone(requests, "linux-6.18", 1024);
        assert_eq!(result.latency.len(), 2);
        result.stats
    };
    assert!(hinted(None).ra_bytes > 0);
    let random = hinted(Some(Advice::Random));
    assert_eq!((random.demand_reads, random.source_bytes), (2, 2 * PAGE));
    let wanted = hinted(Some(Advice::WillNeed));
    assert_eq!((wanted.misses, wanted.source_bytes), (0, 1 << 20));
    // Dropped between two reads of the same page: it is read twice.
    let drop = Request::hint(Advice::DontNeed, 0, 1 << 20);
    let requests = vec![Request::read(0, PAGE), drop, Request::read(0, PAGE)];
    let s = alone(requests, "none", 1024).stats;
    assert_eq!((s.demand_reads, s.misses), (2, 2));
}

/// A process opens one file after the other; two processes do so at the same time.
#[test]
fn jobs_follow_each_other() {
    let page = |file, after| Job::new(file, file, vec![Request::read(0, PAGE)]).after(after);
    let after = [None, Some(0), Some(1), Some(1)];
    let jobs = (0..).zip(after).map(|(file, after)| page(file, after));
    let result = simulate(&workload(&[PAGE; 4], jobs.collect()), "none", 64);
    assert_eq!((result.stats.demand_reads, ns(&result)), (4, 4 * PAGE_NS));
    let last_two = result.latency.max();
    assert!(
        last_two > 2 * PAGE_NS - 20_000,
        "the two that follow the same job run at once: {last_two}"
    );
    // The pause before the first request of a follower counts from the end of the one before it, and a job of
    // several outstanding requests ends with the last of them.
    let reads = (0..3).map(|p| Request::read(p * 2 * PAGE, PAGE));
    let mut deep = Job::new(0, 0, reads.collect()).depth(3);
    let paused = Request::read(0, PAGE).think(1_000_000);
    let second = Job::new(1, 1, vec![paused]).after(0);
    let both = |deep: Job| {
        let jobs = vec![deep, second.clone()];
        simulate(&workload(&[1 << 20, PAGE], jobs), "none", 64)
    };
    let result = both(deep.clone());
    assert_eq!(ns(&result), 3 * PAGE_NS + 1_000_000 + PAGE_NS);
    // A job without requests, or with fewer than it may have outstanding, ends all the same.
    deep.requests.clear();
    let result = both(deep);
    let took = (result.stats.demand_reads, ns(&result));
    assert_eq!(took, (1, 1_000_000 + PAGE_NS));
}

/// The disk does one read after the other. Four are outstanding: each waits for the three before it unless it goes out
/// with the others of its batch, when these have been served.
#[test]
fn a_batch_goes_out_together() {
    let total = |batch: u32, reads: u64| {
        let requests = (0..reads).map(|p| Request::read(p * 2 * PAGE, PAGE));
        let job = Job {
            depth: 4,
            batch,
            ..Job::new(0, 0, requests.collect())
        };
        let result = simulate(&workload(&[1 << 20], vec![job]), "none", 64);
        let took = (result.stats.demand_reads, ns(&result));
        assert_eq!(took, (reads, reads * PAGE_NS), "batches of {batch}");
        (result.latency.mean() * reads as f64 / PAGE_NS as f64).round() as u64
    };
    // 1 2 3 4 4 4 4 4; 1 2 3 4 3 4 3 4; 1 2 3 4 1 2 3 4.
    assert_eq!((total(1, 8), total(2, 8), total(4, 8)), (26, 24, 20));
    // What is left at the end is no whole batch: the last two go out when two have been served, 1 2 3 4 3 4.
    assert_eq!(total(4, 6), 17);
}

/// An open description is opened with its first job and closed with its last one, and the stream state goes with it.
#[test]
fn a_stream_lives_as_long_as_its_open_description() {
    let half = |open, after, from: u64| {
        let reads = (from..from + 16).map(|p| Request::read(p * PAGE, PAGE));
        Job::new(0, open, reads.collect()).after(after)
    };
    let forget = || Job::new(0, 9, vec![Request::hint(Advice::DontNeed, 0, 8 << 20)]).after(0);
    let halves = |policy: &str, open| {
        let jobs = vec![half(0, None, 0), forget(), half(open, Some(1), 16)];
        simulate(&workload(&[8 << 20], jobs), policy, 4096).stats
    };
    // Through the same description the second half goes on where the first ended; through another its first page is
    // a random read.
    assert!(halves("linux-6.18", 0).source_reads < halves("linux-6.18", 1).source_reads);
    // One state for all readers of a file, as long as there is one: when the last one has closed it the next one begins
    // anew, with a smaller window.
    let shared = |open| {
        let jobs = vec![half(0, None, 0), half(open, Some(0), 16)];
        let result = simulate(&workload(&[8 << 20], jobs), "rbd-plain", 4096);
        result.stats.ra_planned_ops
    };
    assert_eq!((shared(0), shared(1)), (3, 4));
}

/// A run is over when the last reader has what it wanted, though readahead is still in flight.
#[test]
fn no_read_waits_for_the_readahead_at_the_end() {
    let reads = [0, 16].map(|page| Request::read(page * PAGE, 16 * PAGE));
    let result = alone(reads.into(), "linux-6.18", 4096);
    assert!(result.stats.unresolved_bytes > 0, "{:?}", result.stats);
    // Depth 1, no pause, no copy: all of the time is stall.
    assert_eq!(ns(&result), result.stats.stall_ns);
}
