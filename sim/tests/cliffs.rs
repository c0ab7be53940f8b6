//! Tests of `auto` beside a fixed window and beside no readahead, on reads for which it once was many times slower.
//!
//! Example: a list of an archive of 64 MiB, in a store with 60 ms latency. Each header that is fetched alone costs a
//! round trip.

use foreread_core::storage::KindLimits;
use foreread_sim::device::net::{Net, NetModel};
use foreread_sim::device::{Device, presets};
use foreread_sim::rng::Rng;
use foreread_sim::workload::{Request, Workload};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const SIZE: u64 = 64 * MIB;
const FIXED: &str = "linux-6.18:max=4M";

/// A store with 60 ms latency whose connections are slow.
const FAR: NetModel = NetModel {
    rtt_ns: 60_000_000,
    rtt_p99_ns: Some(180_000_000),
    connection_bytes_per_s: 40_000_000,
    link_bytes_per_s: 1_250_000_000,
    connections: 64,
    whole_answers: false,
};

/// How long `auto` takes, as a multiple of another policy's time.
fn ratio(requests: &[Request], cache: u64, other: &str, on: &str) -> f64 {
    let workload = Workload::single("test", SIZE, 1, requests.to_vec());
    let time = |policy| {
        let mut config = crate::config(cache);
        let limits = KindLimits::OBJECT;
        config.max_ahead_in_flight = limits.ahead_requests;
        config.max_short_ahead_in_flight = limits.short_ahead_requests;
        let device: Box<dyn Device> = match on {
            "far" => Box::new(Net::new(FAR, 1)),
            _ => presets::find(on).expect("a preset").build(1),
        };
        crate::simulate(&workload, policy, config, 75, device).time_s
    };
    time("auto") / time(other)
}

/// Reads of `len` bytes that go forward by these steps; one in `back` goes back first, by one to three records.
fn walk(len: u64, steps: &[u64], back: u64) -> Vec<Request> {
    let mut rng = Rng::new(4);
    let (mut at, mut requests) = (0, Vec::new());
    while at + len <= SIZE {
        let goes_back = back > 0 && rng.below(back) == 0;
        let records = if goes_back { 1 + rng.below(3) } else { 0 };
        let less = records * len;
        requests.push(Request::read(at.saturating_sub(less), len));
        at += steps[rng.below(steps.len() as u64) as usize];
    }
    requests
}

/// Short reads that skip as many bytes as they read: a list of an archive, the directory of a zip file, every second
/// record.
#[test]
fn forward_reads_with_gaps_are_read_as_a_stream() {
    let archive = |record: u64| [8, 9, 14, 14, 22, 33].map(|eighths| record * eighths / 8);
    let kinds = [
        ("archive", walk(4 * KIB, &archive(4 * KIB), 0)),
        ("archive of 16K", walk(16 * KIB, &archive(16 * KIB), 0)),
        ("archive of 64K", walk(64 * KIB, &archive(64 * KIB), 0)),
        ("with reads back", walk(16 * KIB, &archive(16 * KIB), 10)),
        ("directory", walk(KIB, &[512, 700, 4096, 2000, 9000], 0)),
        (
            "every second",
            walk(8 * KIB, &[1, 2, 3].map(|n| n * 8 * KIB), 0),
        ),
    ];
    for (name, requests) in &kinds {
        for on in ["far", "object-near", "rbd", "nvme"] {
            let ratio = ratio(requests, 256 * MIB, FIXED, on);
            assert!(ratio < 1.25, "{name} on {on}: {ratio:.2} of {FIXED}");
        }
    }
}

/// Irregular gaps repeat a distance by chance: that is no stride, whose records would be requested one by one.
#[test]
fn irregular_gaps_are_no_stride() {
    let steps = [2, 3, 4, 5, 6].map(|pages| pages * 4 * KIB);
    let ratio = ratio(&walk(8 * KIB, &steps, 0), 256 * MIB, "none", "hdd-7200");
    assert!(ratio < 1.05, "{ratio:.2} of none");
}

/// 32 readers take turns in a file with a cache of 16 MiB: more readers than a file has streams at first. Their streams displace each
/// other until the table grows.
#[test]
fn readers_in_turns_keep_their_streams() {
    let (readers, len) = (32, 16 * KIB);
    let turn = |turn| {
        (0..readers).map(move |reader| Request::read(reader * SIZE / readers + turn * len, len))
    };
    let requests: Vec<Request> = (0..SIZE / readers / len).flat_map(turn).collect();
    for on in ["far", "object-near", "nvme"] {
        let ratio = ratio(&requests, 16 * MIB, "linux-6.18", on);
        assert!(ratio < 2.0, "{on}: {ratio:.2} of linux-6.18");
    }
}
