//! The disk of 2003 against the four figures that were published about it.
//!
//! Never: a policy. The commands are those that the readers of that time sent.

use foreread_check::reproduce::published::bhattacharya_2003::{AIO, DEPTH};
use foreread_sim::device::presets;
use foreread_sim::device::{Arrival, Command};
use foreread_sim::rng::Rng;

const RECORD: u64 = 64 << 10;
const FILE: u64 = 1 << 30;
/// A quarter of the published run: 4096 records.
const RECORDS: u64 = 4096;

/// MiB/s of `depth` readers that read random records, `step` bytes at a time.
fn mib_per_s(depth: u64, step: u64) -> f64 {
    let runs = 4;
    (0..runs)
        .map(|seed| one_run(seed, depth, step))
        .sum::<f64>()
        / runs as f64
}

fn one_run(seed: u64, depth: u64, step: u64) -> f64 {
    let mut device = presets::find("disk-2003").expect("a preset").build(seed);
    let mut rng = Rng::new(seed);
    let mut records = (0..RECORDS).map(|_| rng.below(FILE / RECORD) * RECORD);
    let command = |id, start| Command {
        id,
        file: 0,
        start,
        len: step,
    };
    let mut at: Vec<u64> = Vec::new();
    for (id, start) in (0..depth).zip(records.by_ref()) {
        device.submit(0, command(id, start));
        at.push(start);
    }
    let (mut now, mut out) = (0, Vec::new());
    while let Some(time) = device.next_time() {
        now = time;
        device.advance(now, &mut out);
        for Arrival { id, .. } in out.drain(..) {
            let place = &mut at[id as usize];
            *place += step;
            let next = if place.is_multiple_of(RECORD) {
                records.next()
            } else {
                Some(*place)
            };
            if let Some(start) = next {
                *place = start;
                device.submit(now, command(id, start));
            }
        }
    }
    (RECORDS * RECORD) as f64 / (1 << 20) as f64 / (now as f64 / 1e9)
}

/// Commands of 64 KiB one at a time and 64 at once, and pages by 64 streams: what was published, how far the model is
/// off, and how far it may be.
#[test]
fn three_published_figures() {
    let [(_, sync, _), (_, broken, _), (_, fixed, _), _] = AIO;
    let deep = u64::from(DEPTH);
    for (depth, step, measured, stated, slack) in [
        (1, RECORD, sync, 0.03, 0.02),
        (deep, RECORD, fixed, -0.03, 0.02),
        (deep, 4096, broken, -0.06, 0.02),
    ] {
        let rate = mib_per_s(depth, step);
        let error = rate / measured - 1.0;
        println!(
            "{depth} readers, {step} bytes a command: {rate:.2} MiB/s, measured {measured}, {:+.1} %",
            error * 100.0
        );
        assert!(
            (error - stated).abs() <= slack,
            "{depth} {step}: {rate:.2} MiB/s is {:.1} % off",
            error * 100.0
        );
    }
}

/// One reader alone that goes page by page finds the next page in the buffer: the head had nothing else to do.
#[test]
fn one_stream_alone_is_served_from_the_buffer() {
    let (pages, records) = (mib_per_s(1, 4096), mib_per_s(1, RECORD));
    println!("page by page {pages:.2} MiB/s, by record {records:.2} MiB/s");
    assert!(pages > 0.6 * records, "{pages:.2} and {records:.2} MiB/s");
}

/// More commands to choose from, shorter ways.
#[test]
fn a_deeper_queue_is_faster() {
    let rates = [1, 4, 16, 64].map(|depth| mib_per_s(depth, RECORD));
    assert!(rates.is_sorted_by(|a, b| a * 1.1 < *b), "{rates:?}");
}
