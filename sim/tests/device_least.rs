//! Tests that `Preset::least_ns` is a lower bound: no combination of commands that reads this many different bytes ends earlier.
//!
//! The bound must also be tight: for each device some combination of commands comes near it.

use foreread_sim::device::Command;
use foreread_sim::device::presets::{PRESETS, Preset};
use foreread_sim::rng::Rng;

const KIB: u64 = 1024;

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
    for preset in PRESETS {
        let mut rng = Rng::new(11);
        for round in 0..150 {
            let (commands, bytes) = mix(&mut rng, preset);
            let depth = 1 << rng.below(8);
            let (time, least) = (
                time_ns(preset, round, &commands, depth),
                preset.least_ns(bytes),
            );
            assert!(
                time >= least,
                "{} round {round}: {bytes} bytes in {time} ns, bound {least} ns",
                preset.name
            );
        }
    }
}

/// Long commands, many at once: the bound is not far below. What is left is the seek and the turn of a disk and the
/// first byte of a store.
#[test]
fn the_bound_is_worth_something() {
    for preset in PRESETS {
        // Eight commands for each that is in the device at once.
        let bytes = (1 << 30)
            .max(u64::from(preset.connections) << 26)
            .min(preset.capacity_bytes);
        let pieces: Vec<_> = (0..bytes.div_ceil(8 << 20))
            .map(|n| n * (8 << 20))
            .collect();
        let commands: Vec<_> = pieces
            .iter()
            .map(|&at| (0, at, (8 << 20).min(bytes - at)))
            .collect();
        let times =
            (0..3).map(|seed| time_ns(preset, seed, &commands, preset.connections as usize));
        let time = times.min().expect("three runs") as f64;
        let share = preset.least_ns(bytes) as f64 / time;
        println!(
            "{}: bound {:.1} % of {:.3} s",
            preset.name,
            share * 100.0,
            time / 1e9
        );
        assert!(share <= 1.0 && share > 0.5, "{}: {share:.3}", preset.name);
    }
}

#[test]
fn nothing_takes_no_time_and_more_takes_longer() {
    for preset in PRESETS {
        assert_eq!(preset.least_ns(0), 0, "{}", preset.name);
        let bounds = [1, 4096, 1 << 20, 1 << 30, 1 << 40].map(|bytes| preset.least_ns(bytes));
        assert!(
            bounds.is_sorted_by(|a, b| a <= b) && bounds[3] < bounds[4],
            "{}: {bounds:?}",
            preset.name
        );
    }
}
