//! Compares the rotating disk model with real disks: service times of requests, measured by the authors of DiskSim.
//!
//! Three parameters of each drive are fitted to the first half of its trace (least squares, no search, no random
//! numbers). A device with these parameters gets the second half at the times of the trace, and its service times are
//! compared with the measured ones, for reads farther than 512 sectors from the previous request:
//!
//! ```text
//!   T = o + k * sqrt(distance / capacity) + turn * U(0, 1) + e * sectors
//!
//!   mean error   mean of the model / mean measured - 1
//!   demerit      rms horizontal distance of the two distributions / mean measured
//! ```
//!
//! The traces are not in the repository: `FOREREAD_TRACES` names a directory that contains them (`NAME.trace` or
//! `NAME.trace.gz`, also in a directory `disksim` below it). Only an excerpt of one trace is included, with wide bounds
//! because it has few requests. Writes are not compared, and neither are reads near the last request, because a drive's
//! buffer serves them.

use foreread_sim::device::hdd::{BufferModel, Hdd, HddModel, Seek, TrackRates};
use foreread_sim::device::{Command, Device};
use std::io::Read;
use std::path::{Path, PathBuf};

const SECTOR: u64 = 512;
/// A read nearer to the request before it is not compared.
const NEAR_SECTORS: u64 = 512;
/// The device is run so often, with its platter at another angle each time.
const PHASES: u64 = 5;

/// Nominal turns a minute: the traces do not tell.
const TURNS: [(&str, u32); 10] = [
    ("cheetah9LP", 10_045),
    ("cheetah4LP", 10_033),
    ("barracuda", 7_200),
    ("atlas_III", 7_200),
    ("atlas10k", 10_025),
    ("ibm18es", 7_200),
    ("hp_c2247a", 5_400),
    ("hp_c2490a", 6_400),
    ("hp_c3323a", 5_400),
    ("dec_rz26", 5_400),
];

#[derive(Clone, Copy)]
struct Request {
    is_read: bool,
    lbn: u64,
    sectors: u64,
    service_us: f64,
    next_us: f64,
}

fn parse(text: &str) -> Vec<Request> {
    let request = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [kind, _, lbn, sectors, service, next] = fields[..] else {
            panic!("six fields, not: {line}")
        };
        let number = |field: &str| field.parse::<f64>().expect("a number");
        let (lbn, sectors) = (number(lbn) as u64, number(sectors) as u64);
        Request {
            is_read: kind == "R",
            lbn,
            sectors,
            service_us: number(service),
            next_us: number(next),
        }
    };
    text.lines().map(request).collect()
}

/// Sectors between a read and the request before it, for the reads that are compared.
fn far(before: &Request, now: &Request) -> Option<f64> {
    let distance = before.lbn.abs_diff(now.lbn);
    (now.is_read && distance > NEAR_SECTORS).then_some(distance as f64)
}

/// What was fitted: microseconds, and sectors of the disk as far as its first half was used.
#[derive(Clone, Copy, Debug)]
struct Fit {
    o_us: f64,
    k_us: f64,
    e_us: f64,
    sectors: u64,
    /// Mean service time: what a disk of constant time would have.
    mean_us: f64,
}

/// Least squares of `service - turn / 2` over 1, sqrt(distance / capacity) and the number of sectors.
fn fit(half: &[Request], turn_us: f64) -> Fit {
    let ends = half.iter().map(|r| r.lbn + r.sectors);
    let sectors = ends.max().expect("requests");
    let mut normal = [[0.0; 4]; 3];
    let (mut count, mut total) = (0.0, 0.0);
    for pair in half.windows(2) {
        let Some(distance) = far(&pair[0], &pair[1]) else {
            continue;
        };
        let x = [
            1.0,
            (distance / sectors as f64).sqrt(),
            pair[1].sectors as f64,
            pair[1].service_us - turn_us / 2.0,
        ];
        for (row, left) in normal.iter_mut().zip(x) {
            row.iter_mut()
                .zip(x)
                .for_each(|(cell, right)| *cell += left * right);
        }
        (count, total) = (count + 1.0, total + pair[1].service_us);
    }
    let [o_us, k_us, e_us] = solve(normal);
    assert!(
        o_us > 0.0 && k_us > 0.0 && e_us > 0.0,
        "no disk has {o_us} {k_us} {e_us}"
    );
    Fit {
        o_us,
        k_us,
        e_us,
        sectors,
        mean_us: total / count,
    }
}

/// Gauss and Jordan, three unknowns; a sum of squares needs no other pivot than its diagonal.
fn solve(mut rows: [[f64; 4]; 3]) -> [f64; 3] {
    for pivot in 0..3 {
        let scaled = rows[pivot].map(|cell| cell / rows[pivot][pivot]);
        rows[pivot] = scaled;
        for (n, row) in rows.iter_mut().enumerate() {
            let factor = if n == pivot { 0.0 } else { row[pivot] };
            row.iter_mut()
                .zip(scaled)
                .for_each(|(cell, s)| *cell -= factor * s);
        }
    }
    rows.map(|row| row[3])
}

fn device(fit: &Fit, rpm: u32, seed: u64) -> Hdd {
    let rate = (SECTOR as f64 / fit.e_us * 1e6) as u64;
    let seek = Seek {
        settle_ns: 0,
        root_ns: (fit.k_us * 1e3) as u64,
        linear_from: 1.0,
        full_ns: 0,
    };
    let [outer, inner] = [rate; 2];
    let buffer = BufferModel {
        segments: 0,
        segment_bytes: 0,
        hit_ns: 0,
        interface_bytes_per_s: 1,
    };
    let model = HddModel {
        capacity_bytes: fit.sectors * SECTOR,
        rpm,
        command_ns: (fit.o_us * 1e3) as u64,
        seek,
        bytes_per_s: TrackRates { outer, inner },
        buffer,
        queue_depth: 1,
        patience_ns: u64::MAX,
    };
    Hdd::new(model, seed)
}

/// Measured and modelled service times of the reads that are compared, in microseconds, both sorted.
fn services(half: &[Request], fit: &Fit, rpm: u32) -> (Vec<f64>, Vec<f64>) {
    let compared = |pair: &[Request]| far(&pair[0], &pair[1]).map(|_| pair[1].service_us);
    let mut measured: Vec<f64> = half.windows(2).filter_map(compared).collect();
    let mut modelled = Vec::new();
    for seed in 0..PHASES {
        let mut disk = device(fit, rpm, seed);
        let (mut comes_us, mut free_ns, mut out) = (0.0_f64, 0, Vec::new());
        for (n, request) in half.iter().enumerate() {
            let start_ns = free_ns.max((comes_us * 1e3) as u64);
            let (at, len) = (request.lbn * SECTOR, request.sectors * SECTOR);
            disk.submit(start_ns, Command::new(n as u64, 0, at, len));
            free_ns = disk.next_time().expect("a command is under way");
            disk.advance(free_ns, &mut out);
            if n > 0 && far(&half[n - 1], request).is_some() {
                modelled.push((free_ns - start_ns) as f64 / 1e3);
            }
            comes_us += request.next_us;
        }
    }
    measured.sort_by(f64::total_cmp);
    modelled.sort_by(f64::total_cmp);
    (measured, modelled)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The rms distance between the quantiles of `measured` and `model(share)`, over the mean measured.
fn demerit(measured: &[f64], model: impl Fn(f64) -> f64) -> f64 {
    let n = measured.len() as f64;
    let gap = |(i, us): (usize, &f64)| (us - model((i as f64 + 0.5) / n)).powi(2);
    let gaps = measured.iter().enumerate().map(gap);
    (gaps.sum::<f64>() / n).sqrt() / mean(measured)
}

/// How far the device is off in the second half: mean error, demerit, demerit of a constant time.
fn check(name: &str, text: &str) -> (f64, f64, f64) {
    let known = TURNS.iter().find(|(known, _)| *known == name);
    let rpm = known.expect("a known drive").1;
    let requests = parse(text);
    let (first, second) = requests.split_at(requests.len() / 2);
    let fit = fit(first, 60e6 / f64::from(rpm));
    let (measured, modelled) = services(second, &fit, rpm);
    let quantile = |share: f64| modelled[(share * modelled.len() as f64) as usize];
    let error = mean(&modelled) / mean(&measured) - 1.0;
    let ours = demerit(&measured, quantile);
    let constant = demerit(&measured, |_| fit.mean_us);
    let reads = measured.len();
    println!("{name}: {rpm} rpm, {fit:.2?}, {reads} reads");
    println!("mean {error:+.3}, demerit {ours:.3}, constant time {constant:.3}");
    (error, ours, constant)
}

#[test]
fn a_cut_of_one_drive() {
    let (error, demerit, constant) = check("ibm18es", include_str!("fixtures/ibm18es-600.trace"));
    assert!(error.abs() <= 0.05, "mean {error:.3}");
    let is_good = demerit <= 0.08 && demerit < constant / 3.0;
    assert!(is_good, "demerit {demerit:.3}, constant {constant:.3}");
}

/// The traces in a directory or in `disksim` below it.
fn traces(dir: &Path) -> Vec<(String, PathBuf)> {
    let below = dir.join("disksim");
    let dir = if below.is_dir() { &below } else { dir };
    let files = std::fs::read_dir(dir).expect("a directory that can be read");
    let paths = files.filter_map(|entry| entry.ok().map(|e| e.path()));
    let named = paths.filter_map(|path| {
        let (name, _) = path.file_name()?.to_str()?.split_once(".trace")?;
        let is_known = TURNS.iter().any(|(known, _)| *known == name);
        is_known.then(|| (name.to_string(), path.clone()))
    });
    let mut traces = Vec::from_iter(named);
    traces.sort();
    traces
}

fn read(path: &Path) -> String {
    let bytes = std::fs::read(path).expect("a trace that can be read");
    let mut text = String::new();
    let packed = path.extension().is_some_and(|e| e == "gz");
    let got = if packed {
        flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text)
    } else {
        (&bytes[..]).read_to_string(&mut text)
    };
    got.expect("text");
    text
}

#[test]
fn every_drive_that_is_there() {
    let Some(dir) = std::env::var_os("FOREREAD_TRACES") else {
        println!("skipped: needs FOREREAD_TRACES (a directory with disksim traces)");
        return;
    };
    let traces = traces(Path::new(&dir));
    assert!(!traces.is_empty(), "no trace of a known drive in {dir:?}");
    for (name, path) in traces {
        let (error, demerit, constant) = check(&name, &read(&path));
        let is_good = error.abs() <= 0.02 && demerit <= 0.05;
        assert!(is_good, "{name}: mean {error:.3}, demerit {demerit:.3}");
        assert!(constant > 0.2, "{name}: constant time {constant:.3}");
    }
}
