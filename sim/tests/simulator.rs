//! Tests of the simulator's own rules: mapped pages, hints, jobs that follow each other, and the end of a run.
//!
//! Published figures are checked in the lab's tests.

use foreread_core::event::Advice;
use foreread_core::machine::Config;
use foreread_core::policy::PolicySpec;
use foreread_core::units::PageSize;
use foreread_sim::device::presets;
use foreread_sim::simulator::RunResult;
use foreread_sim::simulator::{Setup, run};
use foreread_sim::workload::{Job, Request, Workload};

const PAGE: u64 = 4096;
/// What a page costs on hdd-theory: 8 ms and 4 KiB of 102,400 KiB/s, in nanoseconds, rounded up.
const PAGE_NS: u64 = 8_039_063;

fn workload(files: &[u64], jobs: Vec<Job>) -> Workload {
    Workload {
        name: "test".to_string(),
        files: files.to_vec(),
        listed: false,
        page_bytes: PAGE,
        jobs,
    }
}

/// A run on hdd-theory with a cache of this many pages.
fn simulate(workload: &Workload, policy: &str, pages: u64) -> RunResult {
    let page = PageSize::new(PAGE).expect("a page size");
    let config = Config::new(page, pages * PAGE);
    let policy = PolicySpec::parse(policy).expect("a policy");
    let setup = Setup {
        workload,
        policy: &policy,
        config,
        host_ns_per_kib: 0,
    };
    run(
        &setup,
        presets::find("hdd-theory").expect("a preset").build(1),
    )
}

fn ns(result: &RunResult) -> u64 {
    (result.time_s * 1e9).round() as u64
}

fn touches(pages: &[u64]) -> Vec<Request> {
    pages
        .iter()
        .map(|p| Request::touch(p * PAGE + 17))
        .collect()
}

/// The first touch of a page is a fault and reads it; a second one is nothing at all.
#[test]
fn a_mapped_page_is_touched_for_nothing() {
    let one = workload(
        &[1 << 20],
        vec![Job::new(0, 0, touches(&[0, 3, 0, 3, 4, 3]))],
    );
    let result = simulate(&one, "none", 64);
    let s = result.stats;
    assert_eq!(
        (s.demand_reads, s.misses, s.source_reads, s.source_bytes),
        (3, 3, 3, 3 * PAGE)
    );
    assert_eq!(
        (result.distinct_bytes, ns(&result)),
        (3 * PAGE, 3 * PAGE_NS),
        "overfetch of none is 1"
    );
    assert_eq!(result.latency.len(), 3);
}

/// Another mapping of the same file has its own faults, and finds the pages here.
#[test]
fn each_mapping_has_its_own_page_table() {
    let second = Job {
        after: Some(0),
        ..Job::new(0, 1, touches(&[1, 0, 1]))
    };
    let two = workload(&[1 << 20], vec![Job::new(0, 0, touches(&[0, 1])), second]);
    let s = simulate(&two, "none", 64).stats;
    assert_eq!((s.demand_reads, s.hits, s.source_reads), (4, 2, 2));
    // The same open description later on: its pages are still mapped.
    let again = Job {
        after: Some(0),
        ..Job::new(0, 0, touches(&[1, 2]))
    };
    let s = simulate(
        &workload(&[1 << 20], vec![Job::new(0, 0, touches(&[0, 1])), again]),
        "none",
        64,
    )
    .stats;
    assert_eq!((s.demand_reads, s.hits, s.source_reads), (3, 0, 3));
}

/// What leaves the cache is unmapped, and only that.
#[test]
fn a_page_that_was_evicted_faults_again() {
    let faults = |pages| {
        let touched: Vec<u64> = (0..20).chain([0, 19]).collect();
        simulate(
            &workload(&[1 << 20], vec![Job::new(0, 0, touches(&touched))]),
            "none",
            pages,
        )
        .stats
        .demand_reads
    };
    assert_eq!((faults(64), faults(8)), (20, 21));
}

/// The policy is asked about faults: it reads around them, and what it brings in is used by later ones.
#[test]
fn a_fault_is_read_around() {
    let one = workload(
        &[1 << 20],
        vec![Job::new(0, 0, touches(&[100, 84, 115, 116]))],
    );
    let s = simulate(&one, "linux-6.18:max=128K", 1024).stats;
    // 32 pages from 84 on, then again from 100 to 131, of which 100 to 115 are here.
    assert_eq!(
        (s.demand_reads, s.misses, s.source_bytes),
        (4, 2, 48 * PAGE)
    );
    assert_eq!((s.used_bytes, s.ra_bytes), (2 * PAGE, 46 * PAGE));
}

/// A hint takes no time, is no read, and does what it says.
#[test]
fn hints_count() {
    let hinted = |advice: Option<Advice>| {
        let hint = advice.map(|advice| Request::hint(advice, 0, 1 << 20));
        let requests = hint
            .into_iter()
            .chain([Request::read(0, PAGE), Request::read(PAGE, PAGE)])
            .collect();
        let result = simulate(
            &workload(&[1 << 20], vec![Job::new(0, 0, requests)]),
            "linux-6.18",
            1024,
        );
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
    let s = simulate(
        &workload(&[1 << 20], vec![Job::new(0, 0, requests)]),
        "none",
        1024,
    )
    .stats;
    assert_eq!((s.demand_reads, s.misses), (2, 2));
}

/// A process opens one file after the other; two processes do so at the same time.
#[test]
fn jobs_follow_each_other() {
    let page = |file, after| Job {
        after,
        ..Job::new(file, file, vec![Request::read(0, PAGE)])
    };
    let chain = workload(
        &[PAGE; 4],
        vec![
            page(0, None),
            page(1, Some(0)),
            page(2, Some(1)),
            page(3, Some(1)),
        ],
    );
    let result = simulate(&chain, "none", 64);
    assert_eq!((result.stats.demand_reads, ns(&result)), (4, 4 * PAGE_NS));
    let last_two = result.latency.max();
    assert!(
        last_two > 2 * PAGE_NS - 20_000,
        "the two that follow the same job run at once: {last_two}"
    );
    // The pause before the first request of a follower counts from the end of the one before it, and a job of
    // several outstanding requests ends with the last of them.
    let mut deep = Job {
        depth: 3,
        ..Job::new(
            0,
            0,
            (0..3).map(|p| Request::read(p * 2 * PAGE, PAGE)).collect(),
        )
    };
    let paused = Request {
        think_ns: 1_000_000,
        ..Request::read(0, PAGE)
    };
    let second = Job {
        after: Some(0),
        ..Job::new(1, 1, vec![paused])
    };
    let result = simulate(
        &workload(&[1 << 20, PAGE], vec![deep.clone(), second.clone()]),
        "none",
        64,
    );
    assert_eq!(ns(&result), 3 * PAGE_NS + 1_000_000 + PAGE_NS);
    // A job without requests, or with fewer than it may have outstanding, ends all the same.
    deep.requests.clear();
    let result = simulate(&workload(&[1 << 20, PAGE], vec![deep, second]), "none", 64);
    assert_eq!(
        (result.stats.demand_reads, ns(&result)),
        (1, 1_000_000 + PAGE_NS)
    );
}

/// The disk does one read after the other. Four are outstanding: each waits for the three before it unless it goes out
/// with the others of its batch, when these have been served.
#[test]
fn a_batch_goes_out_together() {
    let total = |batch: u32, reads: u64| {
        let requests = (0..reads)
            .map(|p| Request::read(p * 2 * PAGE, PAGE))
            .collect();
        let job = Job {
            depth: 4,
            batch,
            ..Job::new(0, 0, requests)
        };
        let result = simulate(&workload(&[1 << 20], vec![job]), "none", 64);
        assert_eq!(
            (result.stats.demand_reads, ns(&result)),
            (reads, reads * PAGE_NS),
            "batches of {batch}"
        );
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
        let reads = (from..from + 16)
            .map(|p| Request::read(p * PAGE, PAGE))
            .collect();
        Job {
            after,
            ..Job::new(0, open, reads)
        }
    };
    let forget = || Job {
        after: Some(0),
        ..Job::new(0, 9, vec![Request::hint(Advice::DontNeed, 0, 8 << 20)])
    };
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
        simulate(&workload(&[8 << 20], jobs), "rbd-plain", 4096)
            .stats
            .ra_planned_ops
    };
    assert_eq!((shared(0), shared(1)), (3, 4));
}

/// A run is over when the last reader has what it wanted, though readahead is still in flight.
#[test]
fn no_read_waits_for_the_readahead_at_the_end() {
    let reads = vec![
        Request::read(0, 16 * PAGE),
        Request::read(16 * PAGE, 16 * PAGE),
    ];
    let result = simulate(
        &workload(&[1 << 20], vec![Job::new(0, 0, reads)]),
        "linux-6.18",
        4096,
    );
    assert!(result.stats.unresolved_bytes > 0, "{:?}", result.stats);
    assert_eq!(
        ns(&result),
        result.stats.stall_ns,
        "depth 1, no pause, no copy: all of the time is stall"
    );
}
