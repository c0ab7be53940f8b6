//! Tests with programs that open many files of a listing, in order or not: what `auto` gains, and what it wastes.
//!
//! Example: 1,000 files of 12 KiB that are read in order on `object-near` take 1,000 round trips one after the other
//! with a policy that does not know the order, and 1,000 requests, 16 at a time, with a policy that does.

use foreread_sim::device::presets;
use foreread_sim::simulator::RunResult;
use foreread_sim::workload::{Job, Request, Workload};

const KIB: u64 = 1 << 10;
const CACHE: u64 = 64 << 20;
/// What may be wasted beside a quarter of what is used and a 64th of what is demanded: debt and room.
const SLACK: u64 = CACHE / 8 + CACHE / 2;

/// A reader that opens these files one after the other and reads the first `bytes` of each in parts of 32 KiB.
fn reader(workload: &mut Workload, files: impl Iterator<Item = u32>, bytes: u64) {
    let mut after = None;
    for file in files {
        let len = bytes.min(workload.files[file as usize]);
        let reads = (0..len.div_ceil(32 * KIB))
            .map(|n| Request::read(n * 32 * KIB, (32 * KIB).min(len - n * 32 * KIB)));
        let number = workload.jobs.len() as u32;
        workload
            .jobs
            .push(Job::new(file, number, reads.collect()).after(after.replace(number)));
    }
}

fn files(size: u64) -> Workload {
    Workload {
        listed: true,
        ..Workload::on_files("test", vec![size; 1000])
    }
}

fn simulate(workload: &Workload, device: &str) -> RunResult {
    let device = presets::find(device).expect("a preset").build(1);
    let result = crate::simulate(workload, "auto", crate::config(CACHE), 0, device);
    let stats = &result.stats;
    let unused = stats.unused_bytes + stats.unresolved_bytes;
    let most = stats.used_bytes / 4 + stats.demand_bytes / 64 + SLACK;
    assert!(unused <= most, "{unused} wasted of {stats:?}");
    result
}

/// How many times as fast the order makes a workload.
fn gain(workload: &Workload, device: &str) -> f64 {
    let mut without = workload.clone();
    without.listed = false;
    simulate(&without, device).time_s / simulate(workload, device).time_s
}

fn overfetch(result: &RunResult) -> f64 {
    result.stats.source_bytes as f64 / result.distinct_bytes as f64
}

#[test]
fn files_in_order_are_read_before_they_are_opened() {
    let mut workload = files(12 * KIB);
    reader(&mut workload, 0..1000, u64::MAX);
    for (device, least) in [("object-near", 10.0), ("nvme", 10.0), ("rbd", 3.0)] {
        let gain = gain(&workload, device);
        assert!(gain > least, "{device}: {gain:.1} times as fast");
        assert!(overfetch(&simulate(&workload, device)) < 1.001, "{device}");
    }
}

/// Four programs that go through the listing in turns are one walk; two in their own halves are two.
#[test]
fn several_readers_follow_one_order() {
    let mut turns = files(12 * KIB);
    (0..4).for_each(|n| reader(&mut turns, (n..1000).step_by(4), u64::MAX));
    let mut halves = files(12 * KIB);
    reader(&mut halves, 0..500, u64::MAX);
    reader(&mut halves, 500..1000, u64::MAX);
    // Without the order four readers have four requests in flight, and two have two; readahead may have 16.
    for (workload, least) in [(turns, 1.8), (halves, 4.0)] {
        let gain = gain(&workload, "object-near");
        assert!(gain > least, "{gain:.1} times as fast");
        assert!(overfetch(&simulate(&workload, "object-near")) < 1.01);
    }
}

/// An order that is not followed costs nothing: files at random, backwards, and every tenth.
#[test]
fn files_out_of_order_are_not_read_ahead() {
    let orders: [fn(u32) -> u32; 3] = [|n| n * 387 % 1000, |n| 400 - n, |n| n * 10 % 4000];
    for order in orders {
        let mut workload = files(12 * KIB);
        let numbers = (0..400).map(order).filter(|n| *n < 1000);
        reader(&mut workload, numbers, u64::MAX);
        for device in ["object-near", "nvme"] {
            let overfetch = overfetch(&simulate(&workload, device));
            assert!(overfetch <= 1.02, "{device}: {overfetch}");
        }
    }
}

/// Where only the head of each file is read, no more than the head is read ahead after the first ones.
#[test]
fn heads_of_large_files_are_read_ahead() {
    let mut workload = files(1 << 20);
    reader(&mut workload, 0..1000, 32 * KIB);
    let result = simulate(&workload, "object-near");
    assert!(overfetch(&result) < 2.1, "{}", overfetch(&result));
    let gain = gain(&workload, "object-near");
    assert!(gain > 3.0, "{gain:.1} times as fast");
}

/// Large files are read ahead within themselves, and across their ends.
#[test]
fn large_files_in_order_are_no_slower() {
    let mut workload = files(8 << 20);
    reader(&mut workload, 0..40, u64::MAX);
    for device in ["object-near", "hdd-7200", "nvme"] {
        let gain = gain(&workload, device);
        assert!(gain > 0.99, "{device}: {gain:.3} times as fast");
        assert!(overfetch(&simulate(&workload, device)) < 1.02, "{device}");
    }
}

/// A stream takes the only request of a device that is there for readahead. What is near a read of a small file is read all the same.
#[test]
fn one_stream_is_no_crowd() {
    let mut workload = files(512 * KIB);
    let stream = (0..16).map(|n| Request::read(n * 32 * KIB, 32 * KIB));
    // 7 and the number of pages have no common divisor: each page once.
    let pieces = (0..128).map(|n| Request::read(n * 7 % 128 * 4 * KIB, KIB));
    workload.jobs.push(Job::new(0, 0, stream.collect()));
    workload
        .jobs
        .push(Job::new(1, 1, pieces.collect()).after(0));
    let device = presets::find("hdd-7200").expect("a preset").build(1);
    let mut config = crate::config(CACHE);
    (config.max_in_flight, config.max_ahead_in_flight) = (2, 1);
    let result = crate::simulate(&workload, "auto", config, 0, device);
    let requests = result.stats.source_reads;
    assert!(requests < 24, "{requests} requests");
}
