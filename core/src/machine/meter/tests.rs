//! Tests of the meter: fetches are submitted and arrive at given times, and the figures are checked.

use super::*;

const MS: u64 = 1_000_000;

/// The example of the header.
#[test]
fn four_fetches_together() {
    let mut meter = Meter::default();
    let mut sent: [FetchTiming; 4] = core::array::from_fn(|n| meter.sent(n as u32, 1_000_000));
    for (n, sent) in sent.iter_mut().enumerate() {
        let after = (15 + 5 * n as u64) * MS;
        meter.arrived(sent, 1_000_000, after);
        meter.ended(sent, after);
    }
    assert_eq!(
        (meter.latency_ns(), meter.rate() / 1_000_000, meter.busy()),
        (15 * MS, 133, 0)
    );
}

/// Three fetches of 8 MiB are submitted together and land whole after 120 ms, while a fetch of 4 KiB is in flight for
/// 0.2 ms. The rate is 209 MB/s, not 126 GB/s. The classes of `ArrivalHistogram` change it by up to a third.
#[test]
fn a_short_fetch_beside_long_ones_shows_no_higher_rate() {
    let mut meter = Meter::default();
    let mut long: [FetchTiming; 3] = core::array::from_fn(|n| meter.sent(n as u32, 8 << 20));
    let mut short = meter.sent(3, 4096);
    for sent in &mut long {
        meter.arrived(sent, 8 << 20, 120 * MS);
        meter.ended(sent, 120 * MS);
    }
    meter.arrived(&mut short, 4096, MS / 5);
    meter.ended(&short, MS / 5);
    assert_eq!(meter.rate() / 1_000_000, 270);
    // Bytes arrive in parts, each in flight since the previous one: 1 MiB every 5 ms. The short fetch sees one of these
    // parts.
    let mut meter = Meter::default();
    let mut long = meter.sent(0, 8 << 20);
    for n in 1..=8 {
        let mut short = meter.sent(1, 4096);
        meter.arrived(&mut long, 1 << 20, 5 * n * MS);
        meter.arrived(&mut short, 4096, MS / 5);
        meter.ended(&short, MS / 5);
    }
    assert_eq!(meter.rate() / 1_000_000, 210);
}

/// 1 MiB in four parts: the first after 10 ms, the others 10 ms later.
#[test]
fn the_rate_of_one_fetch_counts_from_its_first_bytes() {
    let mut meter = Meter::default();
    let mut sent = meter.sent(0, 1 << 20);
    meter.arrived(&mut sent, 1 << 18, 10 * MS);
    meter.arrived(&mut sent, 3 << 18, 20 * MS);
    meter.ended(&sent, 20 * MS);
    assert_eq!(meter.single_rate(), (3 << 18) * 100);
    assert_eq!(meter.rate(), (1 << 20) * 50);
}

/// Bytes that were read earlier show nothing about the source, and the meter does not wait for them.
#[test]
fn what_is_left_out_changes_no_figure() {
    let mut meter = Meter::default();
    let mut sent = meter.sent(0, 1 << 20);
    meter.leave_out(&mut sent);
    meter.leave_out(&mut sent);
    meter.arrived(&mut sent, 1 << 20, 1);
    meter.ended(&sent, 1);
    assert_eq!(
        (meter.latency_ns(), meter.rate(), meter.outstanding),
        (0, 0, 0)
    );
}

/// The latency of a request that is not a fetch counts until a fetch has been measured.
#[test]
fn another_answer_counts_until_a_fetch_is_measured() {
    let mut meter = Meter::default();
    meter.answered(90 * MS);
    assert_eq!(meter.latency_ns(), 90 * MS);
    let mut sent = meter.sent(0, 4096);
    meter.arrived(&mut sent, 4096, 30 * MS);
    assert_eq!(meter.latency_ns(), 30 * MS);
    meter.answered(90 * MS);
    assert_eq!(meter.latency_ns(), 30 * MS);
}

/// After four others, a fetch of 8 MiB in parts of 1 MiB counts as 16 and shows a rate before its end; if it lands
/// whole, it counts as one.
#[test]
fn a_long_fetch_counts_by_its_pieces() {
    let count = |parts: u64| {
        let mut meter = Meter::default();
        let mut sent = meter.sent(4, 8 << 20);
        for n in 1..=parts {
            meter.arrived(&mut sent, (8 << 20) / parts, 10 * n * MS);
        }
        let before = (meter.busy(), meter.rate() > 0);
        meter.ended(&sent, 100 * MS);
        (before, meter.busy())
    };
    assert_eq!(count(8), ((16, true), 16));
    assert_eq!(count(1), ((0, false), 1));
}

/// Eight consecutive fetches that take 30 times as long show a new latency; seven may be chance. The same applies to
/// eight fast ones.
#[test]
fn a_step_of_the_latency_is_followed() {
    let mut meter = Meter::default();
    let mut fetch = |after| {
        let mut sent = meter.sent(1, 4096);
        meter.arrived(&mut sent, 4096, after);
        meter.ended(&sent, after);
        meter.latency_ns()
    };
    assert_eq!(fetch(MS), 0, "not idle");
    (0..7).for_each(|_| _ = fetch(MS));
    assert_eq!(fetch(30 * MS), MS);
    (0..6).for_each(|_| _ = fetch(30 * MS));
    assert_eq!(fetch(30 * MS), 30 * MS);
    assert_eq!((0..8).map(|_| fetch(2 * MS)).last(), Some(2 * MS));
}

/// Six requests of 128 KiB wait for each other on a link of 62.5 MB/s. Each takes 12.6 ms, of which 0.7 ms are latency.
#[test]
fn a_queue_is_not_latency() {
    let mut meter = Meter::default();
    let (latency, len) = (700_000, 128 << 10);
    let mut alone = meter.sent(0, 4096);
    meter.arrived(&mut alone, 4096, latency);
    meter.ended(&alone, latency);
    let after = latency + 6 * len * 16;
    let mut queue: alloc::collections::VecDeque<FetchTiming> =
        (1..7).map(|n| meter.sent(n, len)).collect();
    for _ in 0..1000 {
        let mut sent = queue.pop_front().expect("six");
        meter.arrived(&mut sent, len, after);
        meter.ended(&sent, after);
        queue.push_back(meter.sent(5, len));
    }
    assert_eq!(
        (meter.latency_ns(), meter.rate() / 1_000_000),
        (latency, 59)
    );
    // The path becomes 100 ms longer, which no queue explains.
    for _ in 0..200 {
        let mut sent = queue.pop_front().expect("six");
        meter.arrived(&mut sent, len, after + 100 * MS);
        meter.ended(&sent, after + 100 * MS);
        queue.push_back(meter.sent(5, len));
    }
    assert!(
        (100 * MS..115 * MS).contains(&meter.latency_ns()),
        "{}",
        meter.latency_ns()
    );
}

/// Queued fetches take 15 ms in the median, and some take 5 ms: the latency is not lower. If they take 4 to 9 ms, it
/// is.
#[test]
fn the_minimum_is_not_the_latency() {
    let mut meter = Meter::default();
    let mut fetch = |in_flight, after| {
        let mut sent = meter.sent(in_flight, 4096);
        meter.arrived(&mut sent, 4096, after);
        meter.ended(&sent, after);
        meter.latency_ns()
    };
    (0..16).for_each(|_| _ = fetch(0, 15 * MS));
    (0..160).for_each(|n| _ = fetch(8, (5 + 2 * (n % 16)) * MS));
    assert_eq!(fetch(8, 5 * MS), 15 * MS);
    (0..160).for_each(|n| _ = fetch(8, (4 + n % 6) * MS));
    assert!(fetch(8, 5 * MS) < 8 * MS);
}

/// Reads of 4 KiB at a time show 40 kB/s, which does not change the earlier rate of 10 MB/s.
#[test]
fn a_source_that_is_not_busy_keeps_its_rate() {
    let mut meter = Meter::default();
    let mut fetch = |in_flight, bytes| {
        let mut sent = meter.sent(in_flight, bytes);
        meter.arrived(&mut sent, bytes, 100 * MS);
        meter.ended(&sent, 100 * MS);
        meter.rate()
    };
    assert_eq!(fetch(8, 1 << 20), 10_485_760);
    (0..1000).for_each(|_| _ = fetch(0, 4096));
    assert_eq!(fetch(0, 4096), 10_485_760);
}

/// The first fetch of an object costs no request, and eight readers follow at once. 30 ms are the latency, and not a
/// queue at 52 MB/s.
#[test]
fn without_an_idle_moment_the_least_time_is_the_latency() {
    let mut meter = Meter::default();
    let mut sent: [FetchTiming; 16] = core::array::from_fn(|n| meter.sent(1 + n as u32, 128 << 10));
    for (n, sent) in sent.iter_mut().enumerate() {
        let after = (30 + n as u64) * MS;
        meter.arrived(sent, 128 << 10, after);
        meter.ended(sent, after);
    }
    assert_eq!(meter.latency_ns(), 30 * MS);
}

/// A rate that is not reached again is forgotten after two rounds, and a busy source updates its latency.
#[test]
fn old_figures_are_forgotten() {
    let mut meter = Meter::default();
    let mut fetch = |in_flight, bytes, after| {
        let mut sent = meter.sent(in_flight, bytes);
        meter.arrived(&mut sent, bytes, after);
        meter.ended(&sent, after);
        (meter.latency_ns(), meter.rate())
    };
    assert_eq!(fetch(0, 1 << 20, MS), (MS, 1_048_576_000));
    let mut last = (0, 0);
    (0..64 * 20).for_each(|_| last = fetch(8, 1 << 20, 100 * MS));
    // At the earlier rate, a MiB takes 1 ms of the time.
    assert_eq!(last, (99 * MS, 10_485_760));
}
