//! Compares every fitted device with the rows it was fitted to, and the stated errors with the computed ones.

use foreread_check::reproduce::published::Paper;
use foreread_check::reproduce::sweep::{self, Sweep};
use foreread_sim::device::disk::Form;
use foreread_sim::device::presets::{self, Preset};
use foreread_sim::device::{Command, alone_ns};

fn preset(name: &str) -> &'static Preset {
    presets::find(name).expect("a preset")
}

fn largest(errors: &[f64]) -> f64 {
    errors.iter().fold(0.0, |most, e| e.abs().max(most))
}

/// Whether the preset states `share` as its error, in percent with one digit.
#[track_caller]
fn states(name: &str, share: f64) {
    let percent = format!("{:.1} %", share * 100.0);
    let stated = preset(name).fit_error;
    assert!(
        stated.contains(&percent),
        "{name} is {percent} off and states: {stated}"
    );
}

#[test]
fn flash_of_2010_is_within_its_stated_errors() {
    for Sweep { device, rows, .. } in sweep::all() {
        let errors: Vec<f64> = rows
            .iter()
            .map(|(size, mb_per_s)| {
                *size as f64 / alone_ns(&mut *preset(&device).build(0), *size) as f64 * 1e3
                    / mb_per_s
                    - 1.0
            })
            .collect();
        states(&device, largest(&errors));
        let squares: f64 = errors.iter().map(|e| e * e).sum();
        states(&device, (squares / errors.len() as f64).sqrt());
    }
}

/// The largest error of throughput that one cost and one rate leave.
fn serial_error(rows: &[(u64, f64)]) -> f64 {
    let times: Vec<(u64, f64)> = rows
        .iter()
        .map(|&(bytes, mb_per_s)| (bytes, bytes as f64 / mb_per_s * 1e3))
        .collect();
    let form = Form {
        max_transfer_bytes: None,
        knees: Vec::new(),
    };
    let fit = form.fit(times.iter().copied()).expect("enough rows");
    let errors: Vec<f64> = times
        .iter()
        .map(|&(bytes, ns)| ns / fit(bytes) - 1.0)
        .collect();
    largest(&errors)
}

/// The posting prints 4, 8, 16 KiB ..., its script sets 4, 16, 32 KiB ...: a device that does one command after the other explains the
/// rows under the second labels only.
#[test]
fn the_labels_of_the_script_are_the_likely_ones() {
    for Sweep { device, rows, .. } in sweep::all().into_iter().filter(|s| s.device != "x25-m") {
        let halved = rows.iter().map(|&(size, mb)| ((size / 2).max(4096), mb));
        let (script, printed) = (
            serial_error(&rows),
            serial_error(&halved.collect::<Vec<_>>()),
        );
        assert!(
            script < 0.07 && printed > 2.5 * script,
            "{device}: {script:.3} {printed:.3}"
        );
    }
}

/// KiB/s of all `readers`, each of which reads one file to the end, a window after the other.
fn array_kib_per_s(name: &str, readers: u64, window_bytes: u64) -> f64 {
    let (windows, first) = (2000, 100);
    let mut device = preset(name).build(0);
    let mut next = vec![0; readers as usize];
    let mut command = |id: u64| {
        let start = next[id as usize];
        next[id as usize] += window_bytes;
        Command {
            id,
            file: id as u32,
            start,
            len: window_bytes,
        }
    };
    (0..readers).for_each(|file| device.submit(0, command(file)));
    let (mut now, mut out, mut done, mut since) = (0, Vec::new(), 0, 0);
    while let Some(at) = device.next_time().filter(|_| done < windows) {
        now = at;
        device.advance(now, &mut out);
        for arrival in out.drain(..) {
            done += 1;
            // The first windows come before all readers are known.
            since = if done == first { now } else { since };
            device.submit(now, command(arrival.id));
        }
    }
    ((windows - first) * window_bytes) as f64 / 1024.0 / ((now - since) as f64 / 1e9)
}

#[test]
fn arrays_are_within_their_stated_errors() {
    let figures = Paper::named("wu-2010a").expect("a paper").figures();
    for name in ["eva", "raid-6disk"] {
        let errors = figures.iter().filter_map(|figure| {
            let words: Vec<&str> = figure.ours.split_whitespace().collect();
            let ["kib_s", "readers", readers, window, device] = words[..] else {
                return None;
            };
            let window = foreread_core::units::parse_size(window).expect("a size");
            let ours = array_kib_per_s(name, readers.parse().expect("a number"), window);
            (device == name).then(|| ours / figure.value().expect("a rate") - 1.0)
        });
        let errors: Vec<f64> = errors.collect();
        assert_eq!(errors.len(), 10);
        states(name, largest(&errors));
    }
}
