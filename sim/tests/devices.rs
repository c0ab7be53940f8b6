//! Tests of the models of current devices, which are not calibrated: they must behave as is generally known of such devices.
//! No figure claims to be that of a product.
//!
//! And that `Preset::least_ns` is a lower bound: no combination of commands that reads this many different bytes ends earlier, and
//! for each device some combination of commands comes near it.

use foreread_sim::device::Command;
use foreread_sim::device::presets::{self, PRESETS, Preset};
use foreread_sim::rng::Rng;

const KIB: u64 = 1024;

/// Seconds that `name` needs for `starts`, `len` bytes each, `depth` at once.
fn seconds(name: &str, starts: &[u64], len: u64, depth: usize) -> f64 {
    let commands = Vec::from_iter(starts.iter().map(|&start| (0, start, len)));
    let preset = presets::find(name).expect("a preset");
    time_ns(preset, 3, &commands, depth) as f64 / 1e9
}

fn random_reads_per_s(name: &str, depth: usize) -> f64 {
    let capacity = presets::find(name).expect("a preset").capacity_bytes;
    let (mut rng, reads) = (Rng::new(1), 4000);
    let starts: Vec<u64> = (0..reads)
        .map(|_| rng.below(capacity / 4096) * 4096)
        .collect();
    reads as f64 / seconds(name, &starts, 4096, depth)
}

fn mb_per_s(name: &str, from: u64, len: u64, depth: usize) -> f64 {
    let starts: Vec<u64> = (0..(256 << 20) / len).map(|n| from + n * len).collect();
    (256 << 20) as f64 / 1e6 / seconds(name, &starts, len, depth)
}

/// 0.3 ms, 8 ms of the arm on average and half a turn: 80 reads a second, and 2.0 to 2.5 times that from a queue of 32.
#[test]
fn a_disk_gains_from_its_queue_and_loses_inwards() {
    let [alone, queued] = [1, 32].map(|depth| random_reads_per_s("hdd-7200", depth));
    assert!((72.0..88.0).contains(&alone), "{alone:.0}");
    let gain = queued / alone;
    assert!((2.0..=2.5).contains(&gain), "{alone:.0} and {queued:.0}");
    let capacity = presets::find("hdd-7200").expect("a preset").capacity_bytes;
    for (from, rate) in [
        (0, 250.0),
        (capacity / 2, 185.0),
        (capacity - (256 << 20), 120.0),
    ] {
        let read = mb_per_s("hdd-7200", from, 1024 * KIB, 2);
        let error = (read / rate - 1.0_f64).abs();
        assert!(error < 0.06, "{read:.1} of {rate} MB/s at {from}");
    }
}

/// More at a time is faster, up to the link. What one and many reads of an SSD take is in `cited.rs`.
#[test]
fn a_sata_ssd_is_limited_by_its_link() {
    let rates = [4, 16, 64, 256, 1024, 8192].map(|kib| mb_per_s("ssd-sata", 0, kib * KIB, 1));
    assert!(rates.is_sorted_by(|a, b| a < b), "{rates:?}");
    assert!((500.0..550.0).contains(&rates[5]), "{rates:?}");
}

/// Pieces of at most `largest` bytes that cover `start..start + len` of `file`.
fn cut(rng: &mut Rng, file: u32, start: u64, len: u64, largest: u64) -> Vec<(u32, u64, u64)> {
    let (mut pieces, mut at) = (Vec::new(), start);
    while at < start + len {
        let piece = (1 + rng.below(largest)).min(start + len - at);
        pieces.push((file, at, piece));
        at += piece;
    }
    pieces
}

/// A mix of commands and the number of different bytes in it: some files, each cut differently, in any order, some
/// fetched twice.
fn mix(rng: &mut Rng, preset: &Preset) -> (Vec<(u32, u64, u64)>, u64) {
    let (mut commands, mut bytes) = (Vec::new(), 0);
    let largest = [4 * KIB, 64 * KIB, 1024 * KIB, 1 << 30][rng.below(4) as usize];
    for file in 0..=rng.below(3) as u32 {
        let scale = 8 << rng.below(21);
        let len = (1 + rng.below(scale)).min(preset.capacity_bytes / 4);
        let start = rng.below(preset.capacity_bytes / 4);
        commands.extend(cut(rng, file, start, len, largest.max(len / 500)));
        bytes += len;
    }
    if rng.below(2) == 0 {
        rng.shuffle(&mut commands);
    }
    let again = commands.len() / 8;
    commands.extend_from_within(..again);
    (commands, bytes)
}

/// When the last of `commands` ends, with `depth` of them in the device at once. The first is given at 0.
fn time_ns(preset: &Preset, seed: u64, commands: &[(u32, u64, u64)], depth: usize) -> u64 {
    let mut device = preset.build(seed);
    let (mut now, mut out, mut inside) = (0, Vec::new(), 0);
    let mut rest = commands.iter().zip(0..).peekable();
    loop {
        while inside < depth
            && let Some((&(file, start, len), id)) = rest.next()
        {
            device.submit(now, Command::new(id, file, start, len));
            inside += 1;
        }
        let Some(at) = device.next_time() else {
            return now;
        };
        now = at;
        device.advance(now, &mut out);
        inside -= out.drain(..).filter(|a| a.done).count();
    }
}

#[test]
fn no_mix_of_commands_is_faster() {
    for preset in PRESETS.iter() {
        let mut rng = Rng::new(11);
        for round in 0..150 {
            let (commands, bytes) = mix(&mut rng, preset);
            let depth = 1 << rng.below(8);
            let time = time_ns(preset, round, &commands, depth);
            let (least, name) = (preset.least_ns(bytes), preset.name);
            assert!(time >= least, "{name} {round}: {time} ns, bound {least} ns");
        }
    }
}

/// Long commands, many at once: the bound is not far below. What is left is the seek and the turn of a disk and the
/// first byte of a store.
#[test]
fn the_bound_is_worth_something() {
    for preset in PRESETS.iter() {
        // Eight commands for each that is in the device at once.
        let bytes = (1 << 30)
            .max(u64::from(preset.connections) << 26)
            .min(preset.capacity_bytes);
        let pieces = (0..bytes).step_by(8 << 20);
        let commands = Vec::from_iter(pieces.map(|at| (0, at, (8 << 20).min(bytes - at))));
        let depth = preset.connections as usize;
        let times = (0..3).map(|seed| time_ns(preset, seed, &commands, depth));
        let time = times.min().expect("three runs") as f64;
        let share = preset.least_ns(bytes) as f64 / time;
        assert!(share <= 1.0 && share > 0.5, "{}: {share:.3}", preset.name);
    }
}

#[test]
fn nothing_takes_no_time_and_more_takes_longer() {
    for preset in PRESETS.iter() {
        assert_eq!(preset.least_ns(0), 0, "{}", preset.name);
        let bounds = [1, 4096, 1 << 20, 1 << 30, 1 << 40].map(|bytes| preset.least_ns(bytes));
        let is_sorted = bounds.is_sorted_by(|a, b| a <= b) && bounds[3] < bounds[4];
        assert!(is_sorted, "{}: {bounds:?}", preset.name);
    }
}
