//! The tables of seed 000: theory, the X25-M, hit ratios of read-around, readers on two arrays, thrashing.
//!
//! Never: a published figure (they stand in `published`).

use super::published::seed_000::{
    EVA, HITS_CONSOLE, HITS_DESKTOP, RAID, Readers, THEORY, THEORY_ACCESS_MS, X25_M_MB_PER_S,
};
use super::published::seed_001::Labels;
use super::runs::{Ask, Runs, bytes_per_s, mean, over, time_s};
use super::sweep::Modelled;
use super::{Kind, ReproduceError, Row, Table};
use crate::device::Command;
use crate::device::presets::Preset;
use crate::report::number;

const SEED: &str = "000";
/// How far the bandwidth of an array may be off.
const ARRAYS: f64 = 0.06;

/// All tables of the seed.
pub fn tables(runs: &mut Runs<'_>) -> Result<Vec<Table>, ReproduceError> {
    Ok(vec![
        theory(runs)?,
        x25_m(runs)?,
        hits(runs, &Machine { name: "X", workload: "mmap-desktop", published: &HITS_DESKTOP, others: DESKTOPS })?,
        hits(runs, &Machine { name: "console", workload: "mmap-console", published: &HITS_CONSOLE, others: CONSOLES })?,
        array(runs, "HP EVA", "eva", &EVA)?,
        array(runs, "hardware RAID", "raid-6disk", &RAID)?,
        thrash(runs)?,
    ])
}

/// Nanoseconds of one read of `bytes` on the idle device.
fn read_ns(preset: &Preset, bytes: u64) -> u64 {
    let mut device = preset.build(0);
    device.submit(0, Command { id: 0, file: 0, start: 0, len: bytes });
    let (mut last, mut out) = (0, Vec::new());
    while let Some(at) = device.next_time() {
        last = at;
        device.advance(at, &mut out);
    }
    last
}

/// The printed digits of each cell.
fn theory(runs: &Runs<'_>) -> Result<Table, ReproduceError> {
    let preset = runs.preset("hdd-theory")?;
    let access = THEORY_ACCESS_MS as f64;
    let mut rows = Vec::new();
    for (kib, transfer, latency, util, throughput) in THEORY {
        let ms = read_ns(preset, kib << 10) as f64 / 1e6;
        rows.push(Row::new(number::size(kib << 10), "access, ms", Some(access), Some(access)).kind(Kind::Input));
        for (column, printed, ours) in [
            ("transfer, ms", transfer, ms - access),
            ("latency, ms", latency, ms),
            ("util, %", util, (ms - access) / ms * 100.0),
            ("throughput, KB/s", throughput, kib as f64 / ms * 1e3),
        ] {
            let text = format!("{ours:.2}");
            let row = Row::new(number::size(kib << 10), column, printed.parse().ok(), text.parse().ok());
            rows.push(row.judged(Kind::Formula, text == printed));
        }
    }
    Ok(Table::new(SEED, "theory: a disk of 8 ms and 100 MB/s, by I/O size", rows))
}

const AGAIN: &str = "seed 001 prints these runs with their seconds, and they are counted there";

fn x25_m(runs: &Runs<'_>) -> Result<Table, ReproduceError> {
    let preset = runs.preset("x25-m")?;
    let points = X25_M_MB_PER_S.iter().map(|(kib, [a, b])| (*kib, f64::midpoint(*a as f64, *b as f64))).collect();
    let modelled = Modelled::new(preset, Labels::Script, points)
        .ok_or_else(|| ReproduceError::Asked("x25-m is not a device of one command at a time".to_string()))?;
    Ok(Table::new(SEED, "Intel X25-M: by readahead size, mean of two runs", modelled.rows(Some(AGAIN))))
}

/// A machine whose hit ratio was measured.
struct Machine {
    name: &'static str,
    workload: &'static str,
    published: &'static [(u64, u64, u64)],
    others: [&'static str; 4],
}

/// Populations that were fitted to nothing: stretches a quarter and twice as long, gaps as long as the stretches or
/// twice that, long gaps from rare and short to common and long.
const DESKTOPS: [&str; 4] = [
    "mmap-desktop:stretch=5,gap-percent=100,long-gap=64,long-percent=5",
    "mmap-desktop:stretch=40,gap-percent=100,long-gap=512,long-percent=20",
    "mmap-desktop:stretch=20,gap-percent=200,long-gap=100,long-percent=20",
    "mmap-desktop:stretch=8,gap-percent=50,long-gap=400,long-percent=5",
];
const CONSOLES: [&str; 4] = [
    "mmap-console:stretch=5,gap-percent=100,long-gap=64,long-percent=5",
    "mmap-console:stretch=40,gap-percent=100,long-gap=512,long-percent=20",
    "mmap-console:stretch=20,gap-percent=200,long-gap=100,long-percent=20",
    "mmap-console:stretch=8,gap-percent=50,long-gap=400,long-percent=5",
];

/// The part of read-around that is used, in %, by its size; and whether it falls with the size where nothing was fitted.
fn hits(runs: &mut Runs<'_>, machine: &Machine) -> Result<Table, ReproduceError> {
    let percent = |used: u64, read: u64| used as f64 / read as f64 * 100.0;
    let fitted = accuracies(runs, machine.workload, machine.published)?;
    let mut rows = Vec::new();
    for (&(kib, used, read), ours) in machine.published.iter().zip(&fitted) {
        let row = Row::new(number::size(kib << 10), "hit ratio, %", Some(percent(used, read)), *ours);
        rows.push(row.because("the population of files is invented and was fitted to these ratios"));
    }
    for (at, other) in machine.others.into_iter().enumerate() {
        let ours = accuracies(runs, other, machine.published)?;
        let steps = machine.published.windows(2).zip(ours.windows(2));
        for (published, ours) in steps {
            let [(small, a, b), (large, c, d)] = [published[0], published[1]];
            let label = format!("files {}: {} / {}", at + 1, number::size(small << 10), number::size(large << 10));
            let habits = other.split_once(':').map_or(other, |(_, habits)| habits);
            let row = Row::new(label, "of hit ratios", Some(percent(a, b) / percent(c, d)), over(ours[0], ours[1]));
            rows.push(row.ordered().because(format!("files that were fitted to nothing: {habits}")));
        }
    }
    Ok(Table::new(SEED, format!("hit ratio by read-around size, {}", machine.name), rows))
}

/// Used part of what was read ahead, in %, for each size.
fn accuracies(
    runs: &mut Runs<'_>,
    workload: &str,
    sizes: &[(u64, u64, u64)],
) -> Result<Vec<Option<f64>>, ReproduceError> {
    let policies: Vec<String> = sizes.iter().map(|(kib, ..)| format!("linux-2.6.31:max={kib}K")).collect();
    let names: Vec<&str> = policies.iter().map(String::as_str).collect();
    let table = runs.table(&Ask { workload, model: "hdd-theory", policies: &names, runs: 5, ..Ask::default() })?;
    let part = |policy: &str| {
        let used = mean(&table, policy, |r| r.stats.used_bytes as f64);
        over(used, mean(&table, policy, |r| r.stats.ra_bytes as f64)).map(|part| part * 100.0)
    };
    Ok(names.into_iter().map(part).collect())
}

/// NR sequential readers with windows of 128 and of 512 KiB.
fn array(runs: &mut Runs<'_>, name: &str, model: &str, published: &[Readers]) -> Result<Table, ReproduceError> {
    let policies = ["linux-2.6.31:max=128K", "linux-2.6.31:max=512K"];
    let mut rows = Vec::new();
    for line in published {
        let workload = format!("readers:streams={}", line.readers);
        let table = runs.table(&Ask { workload: &workload, model, policies: &policies, runs: 1, ..Ask::default() })?;
        for (policy, window, (kb_per_s, max_us)) in
            [(policies[0], "128K", line.small), (policies[1], "512K", line.large)]
        {
            let label = format!("{} reader{}, {window}", line.readers, if line.readers == 1 { "" } else { "s" });
            let ours = bytes_per_s(&table, policy).map(|rate| rate / 1024.0);
            rows.push(Row::new(&label, "KB/s", Some(kb_per_s as f64), ours).within(Kind::Fit, ARRAYS));
            let ours = mean(&table, policy, |r| r.latency.max() as f64 / 1e3);
            let row = Row::new(&label, "max. latency, us", Some(max_us), ours);
            rows.push(row.because("the elevator's time slices are not modelled"));
        }
    }
    Ok(Table::new(SEED, format!("sequential readers on {name}"), rows))
}

/// What thrashing-safe readahead is for: readers, bytes of their windows, us between reads. Two windows of each reader
/// are more than the cache, but for the first.
const THRASH: [(u32, &str, u32); 7] = [
    (4, "512K", 200_000),
    (16, "512K", 200_000),
    (32, "512K", 200_000),
    (64, "512K", 200_000),
    (64, "128K", 500_000),
    (96, "128K", 500_000),
    (128, "128K", 500_000),
];
const THRASH_CACHE: u64 = 16 << 20;
/// Where more than this part of the readahead of 2.6.31 is refused for want of room it hardly reads ahead any more.
const REFUSED: f64 = 0.5;
/// A time within 1 % is not slower.
const NOT_SLOWER: f64 = 1.01;

const FITS: &str = "all windows fit: no reader thrashes, both do the same";
const HARDLY: &str = "more than half of 2.6.31's readahead is refused for want of room, so it hardly reads ahead; the \
    check had been dropped by a rule that was made after 64 readers had been seen to read more bytes, not fewer";

/// Bytes of a window written in K.
fn window_bytes(text: &str) -> u64 {
    text.trim_end_matches('K').parse::<u64>().map_or(0, |kib| kib << 10)
}

fn thrash(runs: &mut Runs<'_>) -> Result<Table, ReproduceError> {
    let mut rows = Vec::new();
    for (streams, max, think) in THRASH {
        let policies = ["linux-2.6.31", "linux-thrashsafe"].map(|name| format!("{name}:max={max}"));
        let smallest = format!("linux-thrashsafe:max={max},min=4K");
        let workload = format!("thrash:streams={streams},think={think}");
        let [plain, safe, small] = [&policies[0], &policies[1], &smallest].map(String::as_str);
        let (names, cache_bytes) = ([plain, safe, small], Some(THRASH_CACHE));
        let ask =
            Ask { workload: &workload, model: "hdd-theory", policies: &names, runs: 1, cache_bytes, ..Ask::default() };
        let table = runs.table(&ask)?;
        let bytes = |policy: &str| mean(&table, policy, |r| r.stats.source_bytes as f64);
        let time = |policy: &str| time_s(&table, policy);
        let refused = over(
            mean(&table, plain, |r| r.stats.ra_refused_bytes as f64),
            mean(&table, plain, |r| r.stats.ra_planned_bytes as f64),
        );
        let fits = u64::from(streams) * 2 * window_bytes(max) < THRASH_CACHE;
        let row = |column: &str, ours| Row::new(format!("{streams} readers x {max}"), column, None, ours);
        let judged = |row: Row, most: f64, why: &str| match row.ours {
            Some(_) if fits => row.because(FITS),
            Some(ratio) if refused.is_some_and(|part| part > REFUSED) => {
                row.judged(Kind::Order, ratio < most).because(HARDLY).known()
            }
            ours => row.judged(Kind::Order, ours.is_some_and(|ratio| ratio < most)).because(why),
        };
        rows.push(row("refused, 2.6.31", refused).because("part of its readahead that found no room"));
        let ours = over(bytes(safe), bytes(plain));
        rows.push(judged(row("bytes / 2.6.31", ours), 1.0, "no figure published; fewer bytes"));
        let ours = over(time(safe), time(plain));
        rows.push(judged(row("time / 2.6.31", ours), NOT_SLOWER, "no figure published; at most 1 % slower"));
        rows.push(row("time / min=4K", over(time(safe), time(small))).because("what the minimum of 32 KiB gains"));
    }
    Ok(Table::new(SEED, "thrash-safe readahead, cache 16 MiB", rows))
}
