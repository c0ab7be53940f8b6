//! Tests of `auto` over a link with 30 ms latency and 200 MB/s, on which 256 MiB take 1.34 s: the conditions of a newly
//! mounted object store.

use foreread_core::storage::KindLimits;
use foreread_sim::device::net::{Net, NetModel};
use foreread_sim::simulator::RunResult;
use foreread_sim::workload::{Job, Request};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const SIZE: u64 = 256 * MIB;
/// The kernel's readahead, and so the length of a read through FUSE.
const READ: u64 = 128 * KIB;

fn simulate(files: &[u64], jobs: Vec<Job>) -> RunResult {
    let limits = KindLimits::OBJECT;
    let mut config = crate::config(SIZE);
    config.max_fetch_bytes = limits.max_fetch_bytes;
    config.max_ahead_in_flight = limits.ahead_requests;
    config.max_short_ahead_in_flight = limits.short_ahead_requests;
    let model = NetModel {
        rtt_ns: 30_000_000,
        rtt_p99_ns: Some(32_000_000),
        connection_bytes_per_s: 200_000_000,
        link_bytes_per_s: 200_000_000,
        connections: 64,
        whole_answers: false,
    };
    let workload = crate::workload(files, jobs);
    let net = Box::new(Net::new(model, 1));
    crate::simulate(&workload, "auto", config, 500, net)
}

/// Reads of 128 KiB of `threads` threads that take pieces of `piece` bytes of one file in turns, two of each at once.
fn in_turns(threads: u64, piece: u64) -> Vec<Job> {
    let read = move |n| (0..piece / READ).map(move |k| Request::read(n * piece + k * READ, READ));
    let job = |thread: u64| {
        let pieces = (thread..SIZE / piece).step_by(threads as usize);
        let mut job = Job::new(0, 0, pieces.flat_map(read).collect());
        job.requests[0].think_ns = thread * 1_000_000;
        job.depth = 2;
        job
    };
    (0..threads).map(job).collect()
}

/// Four and eight threads that read one file in order together are one reader, with the requests of one.
#[test]
fn threads_that_take_pieces_in_turns_are_one_stream() {
    for threads in [4, 8] {
        let result = simulate(&[SIZE], in_turns(threads, MIB));
        let (time_s, requests) = (result.time_s, result.stats.source_reads);
        assert_eq!(result.stats.source_bytes, SIZE, "{threads} threads");
        let is_one = time_s < 1.52 && requests <= 150;
        assert!(is_one, "{threads} threads: {time_s:.2} s, {requests}");
    }
}

/// 64 KiB of each 512 KiB, on a source whose latency is known: what was read ahead at the first read shows the stride, and the stream that
/// was expected there ends.
#[test]
fn a_stride_within_the_readahead_is_found() {
    let reads =
        (0..256).map(|n| Request::read(n * 512 * KIB, if n == 0 { READ } else { 64 * KIB }));
    let first = Job::new(1, 1, vec![Request::read(0, 4 * KIB)]);
    let stride = Job::new(0, 0, reads.collect()).after(0);
    let result = simulate(&[SIZE, 4 * KIB], vec![first, stride]);
    let (time_s, bytes) = (result.time_s, result.stats.source_bytes);
    let is_found = time_s < 0.40 && bytes as f64 / ((16 * MIB) as f64) < 2.1;
    assert!(is_found, "{time_s:.2} s, {bytes} bytes");
}

/// Four cursors in a file, each in order in its quarter: one round trip for each to be found, and no other wait than for the link.
#[test]
fn alternating_cursors_wait_only_for_the_link() {
    let quarter = SIZE / 4;
    let reads = (0..quarter / READ)
        .flat_map(|n| (0..4).map(move |cursor| Request::read(cursor * quarter + n * READ, READ)));
    let result = simulate(&[SIZE], vec![Job::new(0, 0, reads.collect())]);
    assert_eq!(result.stats.source_bytes, SIZE);
    assert!(result.time_s < 1.66, "{:.2} s", result.time_s);
}
