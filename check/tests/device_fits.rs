//! Every fitted device against the rows it was fitted to, one by one, and the stated errors against the computed ones.
//!
//! The labels of the readahead sizes disagree: the posting of 2010 that raises the default size prints the rows of the
//! Intel drive under 4, 16, 32, ... KiB, the one about small devices prints the same rows under 4, 8, 16, ... and labels
//! four more devices so. Both columns are kept here. The devices are fitted to the first: the script printed beside the
//! second sets 4, 16, 32, ..., and a device that does one thing after the other explains the rows under the first
//! labels only ([`the_first_labels_are_the_likely_ones`]).
//!
//! Never: a device with a queue in it; each row is a closed loop of one reader.

use foreread_check::reproduce::published::crume_2014::WORKLOADS;
use foreread_check::reproduce::published::wu_2010a::{EVA, RAID, THEORY};
use foreread_check::reproduce::published::wu_2010b::{DD_BYTES, Labels, Run, SWEEPS, Sweep};
use foreread_sim::device::presets::{self, Preset};
use foreread_sim::device::{Command, Device};

fn sweep(name: &str) -> &'static Sweep {
    SWEEPS
        .iter()
        .find(|s| s.preset == name)
        .expect("a published device")
}

fn preset(name: &str) -> &'static Preset {
    presets::find(name).expect("a preset")
}

/// Lets `device` work until it is done, and returns that time.
fn run_dry(device: &mut dyn Device) -> u64 {
    let (mut last, mut out) = (0, Vec::new());
    while let Some(at) = device.next_time() {
        last = at;
        device.advance(at, &mut out);
    }
    last
}

/// Nanoseconds of one read of `kib` on the idle device.
fn read_ns(name: &str, kib: u64) -> f64 {
    let mut device = preset(name).build(0);
    device.submit(
        0,
        Command {
            id: 0,
            file: 0,
            start: 0,
            len: kib << 10,
        },
    );
    run_dry(device.as_mut()) as f64
}

fn largest(errors: &[f64]) -> f64 {
    errors.iter().fold(0.0, |most, e| e.abs().max(most))
}

fn rms(errors: &[f64]) -> f64 {
    (errors.iter().map(|e| e * e).sum::<f64>() / errors.len() as f64).sqrt()
}

/// Whether the preset states `share` as its error, in percent with one digit.
fn states(name: &str, share: f64) {
    let percent = format!("{:.1} %", share * 100.0);
    let stated = preset(name).fit_error;
    assert!(
        stated.contains(&percent),
        "{name} is {percent} off and states: {stated}"
    );
}

/// Prints the rows and checks the largest error of the mean of the runs, and its rms, in percent.
fn check(name: &str, most: f64, most_rms: f64) -> Vec<f64> {
    let error = |run: &Run| {
        let (kib, printed, measured) = (run.script_kib, run.printed_kib, run.mb_per_s());
        let modelled = (kib << 10) as f64 / read_ns(name, kib) * 1e3;
        let error = modelled / measured - 1.0;
        println!(
            "{name} {kib} KiB (printed {printed}): {modelled:.2} MB/s, measured {measured:.2}, {:+.1} %",
            error * 100.0
        );
        error
    };
    let errors: Vec<f64> = sweep(name).runs.iter().map(error).collect();
    let (max, rms) = (largest(&errors) * 100.0, rms(&errors) * 100.0);
    println!("{name}: at most {max:.2} %, rms {rms:.2} %");
    assert!(
        max <= most && rms <= most_rms,
        "{name}: {max:.2} % at most, rms {rms:.2} %"
    );
    states(name, max / 100.0);
    states(name, rms / 100.0);
    errors
}

#[test]
fn flash_of_2010_is_within_its_stated_errors() {
    check("sandisk-5000", 3.0, 1.45);
    check("usb-teclast", 4.15, 1.65);
    check("usb-cruzer", 2.15, 1.15);
    check("usb-2g", 4.05, 1.55);
}

#[test]
fn x25_m_is_within_its_stated_error() {
    check("x25-m", 1.35, 0.85);
    let single = sweep("x25-m").runs.iter().flat_map(|run| {
        let kib = run.script_kib;
        run.seconds
            .iter()
            .map(move |s| (kib << 10) as f64 * 1e9 / read_ns("x25-m", kib) / (DD_BYTES / s) - 1.0)
    });
    states("x25-m", largest(&single.collect::<Vec<_>>()));
}

/// `T = a + b * S` by least squares of the relative error, and its largest relative error of throughput.
fn serial_error(rows: &[(f64, f64)]) -> f64 {
    let sum =
        |f: &dyn Fn(f64, f64) -> f64| rows.iter().map(|&(s, t)| f(s, t) / (t * t)).sum::<f64>();
    let (n, s1, s2) = (sum(&|_, _| 1.0), sum(&|s, _| s), sum(&|s, _| s * s));
    let (t1, st) = (sum(&|_, t| t), sum(&|s, t| s * t));
    let b = (n * st - s1 * t1) / (n * s2 - s1 * s1);
    let a = (t1 - b * s1) / n;
    largest(
        &rows
            .iter()
            .map(|&(s, t)| t / (a + b * s) - 1.0)
            .collect::<Vec<_>>(),
    )
}

#[test]
fn the_first_labels_are_the_likely_ones() {
    for name in ["sandisk-5000", "usb-teclast", "usb-cruzer", "usb-2g"] {
        let under = |labels: Labels| {
            let point = |run: &Run| {
                let kib = run.kib(labels) as f64;
                (kib, run.mean_s() * kib * 1024.0 / DD_BYTES)
            };
            serial_error(&sweep(name).runs.iter().map(point).collect::<Vec<_>>())
        };
        let (script, printed) = (under(Labels::Script), under(Labels::Printed));
        println!(
            "{name}: off by {:.1} % under the script's labels, {:.1} % as printed",
            script * 100.0,
            printed * 100.0
        );
        assert!(
            script < 0.07 && printed > 2.5 * script,
            "{name}: {script:.3} and {printed:.3}"
        );
    }
}

/// KiB/s of all `readers`, each of which reads one file to the end, a window after the other.
fn array_kib_per_s(name: &str, readers: u32, window_kib: u64) -> f64 {
    let windows = 2000;
    let mut device = preset(name).build(0);
    let mut next = vec![0; readers as usize];
    let mut command = |file: u32| {
        next[file as usize] += 1;
        let start = ((next[file as usize] - 1) * window_kib) << 10;
        Command {
            id: u64::from(file),
            file,
            start,
            len: window_kib << 10,
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
            since = if done == 100 { now } else { since };
            device.submit(now, command(arrival.id as u32));
        }
    }
    ((windows - 100) * window_kib) as f64 / ((now - since) as f64 / 1e9)
}

#[test]
fn arrays_are_within_their_stated_errors() {
    for (name, table, most) in [("eva", EVA, 0.0085), ("raid-6disk", RAID, 0.0485)] {
        let rows = table
            .iter()
            .flat_map(|r| [(r.readers, 128, r.small.0), (r.readers, 512, r.large.0)]);
        let error = |(readers, kib, measured)| {
            let modelled = array_kib_per_s(name, readers, kib);
            let error = modelled / measured as f64 - 1.0;
            println!(
                "{name} {readers} readers, {kib} KiB: {modelled:.0} KiB/s, measured {measured}, {:+.1} %",
                error * 100.0
            );
            error
        };
        let errors: Vec<f64> = rows.map(error).collect();
        assert!(
            largest(&errors) <= most,
            "{name}: {:.2} %",
            largest(&errors) * 100.0
        );
        states(name, largest(&errors));
    }
}

#[test]
fn hdd_theory_is_the_published_table() {
    for (kib, transfer, latency, util, throughput) in THEORY {
        let ms = read_ns("hdd-theory", kib) / 1e6;
        // 64 KiB are 0.625 ms exactly, printed as 0.62 there: half to even, as here.
        assert_eq!(format!("{:.2}", ms - 8.0), transfer, "{kib}");
        assert_eq!(format!("{ms:.2}"), latency, "{kib}");
        assert_eq!(format!("{:.2}", (ms - 8.0) / ms * 100.0), util, "{kib}");
        let kib_per_s = kib as f64 / ms * 1e3;
        assert_eq!(format!("{kib_per_s:.2}"), throughput, "{kib}");
    }
}

/// The two rows that it was fitted to: 46.22 s for 57,516 reads of 407 MB, 138.55 s for 130,104 of 3044 MB.
#[test]
fn rbd_gives_the_rows_it_was_fitted_to() {
    let rtt_ns = read_ns("rbd", 0);
    let ns_per_byte = (read_ns("rbd", 1024) - rtt_ns) / (1024.0 * 1024.0);
    for name in ["boot-ide", "grep-ide"] {
        let row = WORKLOADS
            .iter()
            .find(|w| w.name == name)
            .expect("a workload");
        let (reads, mb, seconds) = (row.reads as f64, row.mb as f64, row.lines[0].time_s);
        let modelled = (reads * rtt_ns + mb * 1e6 * ns_per_byte) / 1e9;
        assert!(
            (modelled / seconds - 1.0_f64).abs() < 0.001,
            "{modelled:.2} s and {seconds} s"
        );
    }
}
