//! The tables of [Wu 2010a]: theory, the X25-M, the defaults and what they cost, readers on two arrays, thrashing. Hit
//! ratios are in `hits`.
//!
//! Never: a published figure (they stand in `published`).

use super::published::wu_2010a::{
    DEFAULTS, EVA, RAID, Readers, STREAM_BUFFER_KIB, THEORY, THEORY_ACCESS_MS, X25_M_MB_PER_S,
};
use super::published::wu_2010b::Labels;
use super::runs::{Ask, Runs, bytes_per_s, mean, over, time_s};
use super::sweep::SweepModel;
use super::{FigureKind, Paper, ReproduceError, Row, Table, hits};
use foreread_core::event::Event;
use foreread_core::machine::{Config, Machine};
use foreread_core::policy::PolicySpec;
use foreread_core::units::{ByteRange, FileId, Nanos, OpenId, PageSize, ReadId};
use foreread_report::number;
use foreread_sim::device::Command;
use foreread_sim::device::presets::Preset;
use foreread_sim::device::sliced::Slices;
use foreread_sim::zero_latency;

const PAPER: Paper = Paper::Wu2010a;
/// How far the bandwidth of an array may be off.
const ARRAYS: f64 = 0.06;

/// All tables of the seed.
pub fn tables(runs: &mut Runs<'_>) -> Result<Vec<Table>, ReproduceError> {
    let mut tables = vec![theory(runs)?, x25_m(runs)?];
    tables.extend(hits::tables(runs)?);
    tables.extend([
        defaults()?,
        array(runs, "HP EVA", "eva", &EVA)?,
        array(runs, "hardware RAID", "raid-6disk", &RAID)?,
        thrash(runs)?,
    ]);
    Ok(tables)
}

/// Nanoseconds of one read of `bytes` on the idle device.
fn read_ns(preset: &Preset, bytes: u64) -> u64 {
    let mut device = preset.build(0);
    device.submit(
        0,
        Command {
            id: 0,
            file: 0,
            start: 0,
            len: bytes,
        },
    );
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
        rows.push(
            Row::new(
                number::size(kib << 10),
                "access, ms",
                Some(access),
                Some(access),
            )
            .kind(FigureKind::Input),
        );
        for (column, printed, ours) in [
            ("transfer, ms", transfer, ms - access),
            ("latency, ms", latency, ms),
            ("util, %", util, (ms - access) / ms * 100.0),
            ("throughput, KB/s", throughput, kib as f64 / ms * 1e3),
        ] {
            let text = format!("{ours:.2}");
            let row = Row::new(
                number::size(kib << 10),
                column,
                printed.parse().ok(),
                text.parse().ok(),
            );
            rows.push(row.judged(FigureKind::Formula, text == printed));
        }
    }
    Ok(Table::new(
        PAPER,
        "theory: a disk of 8 ms and 100 MB/s, by I/O size",
        rows,
    ))
}

const AGAIN: &str = "[Wu 2010b] prints these runs with their seconds, and they are counted there";

fn x25_m(runs: &Runs<'_>) -> Result<Table, ReproduceError> {
    let preset = runs.preset("x25-m")?;
    let points = X25_M_MB_PER_S
        .iter()
        .map(|(kib, [a, b])| (*kib, f64::midpoint(*a as f64, *b as f64)))
        .collect();
    let modelled = SweepModel::new(preset, Labels::Script, points).ok_or_else(|| {
        ReproduceError::Asked("x25-m is not a device of one command at a time".to_string())
    })?;
    let mut rows = modelled.rows(Some(AGAIN));
    for ((kib, runs), (_, ours)) in X25_M_MB_PER_S.iter().zip(modelled.model()) {
        for (number, published) in runs.iter().enumerate() {
            let label = format!("{}, run {}", number::size(kib << 10), number + 1);
            rows.push(
                Row::new(label, "MB/s, fitted", Some(*published as f64), Some(ours)).because(AGAIN),
            );
        }
    }
    Ok(Table::new(
        PAPER,
        "Intel X25-M: by readahead size, mean of two runs",
        rows,
    ))
}

/// The sizes of the patch, and what a stream keeps in memory with the new ones: "1 MB readahead buffer per stream".
fn defaults() -> Result<Table, ReproduceError> {
    let mut rows = Vec::new();
    for (label, policy, key, kib) in DEFAULTS {
        let spec = spec(policy)?;
        let at = spec.info.params.iter().position(|param| param.key == key);
        let ours = at.map(|at| spec.values[at] as f64 / 1024.0);
        let row = Row::new(format!("{label} {key}"), "KiB", Some(kib as f64), ours);
        rows.push(
            row.kind(FigureKind::Input)
                .because(format!("the default of {policy}")),
        );
    }
    let ours = Some(buffer_kib("linux-thrashsafe")?);
    let row = Row::new(
        "buffer of a stream",
        "KiB",
        Some(STREAM_BUFFER_KIB as f64),
        ours,
    );
    rows.push(
        row.within(FigureKind::Formula, BUFFER)
            .because("most that was read ahead and not read yet, one reader in order"),
    );
    let row = Row::new(
        "buffer of a stream, 128K",
        "KiB",
        None,
        Some(buffer_kib("linux-2.6.31:max=128K")?),
    );
    rows.push(
        row.because("no figure published: the same with the window that was the default before"),
    );
    Ok(Table::new(
        PAPER,
        "defaults, and the buffer of a stream",
        rows,
    ))
}

/// How far the buffer may be off: it is a count of pages of the same rules, less the page that is being read.
const BUFFER: f64 = 0.01;

fn spec(policy: &str) -> Result<PolicySpec, ReproduceError> {
    foreread_history::parse_spec(policy).map_err(|error| ReproduceError::Asked(error.to_string()))
}

/// The most that a reader of 16 MiB in order has read ahead and not read yet, in KiB.
fn buffer_kib(policy: &str) -> Result<f64, ReproduceError> {
    let (page, size) = (PageSize::new(4096).expect("a power of two"), 16 << 20);
    let mut machine = Machine::new(Config::new(page, 4 * size), spec(policy)?);
    machine.handle(
        Nanos(0),
        Event::Open {
            open: OpenId(0),
            file: FileId(0),
            size,
        },
    );
    let mut most = 0;
    for n in 0..size / 4096 {
        let range = ByteRange::between(n * 4096, (n + 1) * 4096);
        zero_latency::tell(
            &mut machine,
            Event::Read {
                read: ReadId(n),
                open: OpenId(0),
                range,
                random: false,
            },
            |_| (),
        );
        most = most.max(machine.stats().unresolved_bytes);
    }
    Ok(most as f64 / 1024.0)
}

/// One reader waits for no other.
const ALONE: &str = "one reader waits for no other, so its longest wait here is that for its own window; the post does \
    not say what it waited for";
/// What the model has of it, and what is missing.
const SLICES: &str = "the elevator's time slices make it: the same readers behind slices as CFQ documents them (100 ms \
    each, 300 ms shared by more than three) wait for those of all others. What the post has beyond that it does not \
    explain. Without slices a reader would wait for one window of each other reader";

/// NR sequential readers with windows of 128 and of 512 KiB: the rate as the array serves them as they come, the longest
/// wait behind the slices of an elevator.
fn array(
    runs: &mut Runs<'_>,
    name: &str,
    model: &str,
    published: &[Readers],
) -> Result<Table, ReproduceError> {
    let policies = ["linux-2.6.31:max=128K", "linux-2.6.31:max=512K"];
    let columns = |line: &Readers| [("128K", line.small), ("512K", line.large)];
    let mut rows = Vec::new();
    let mut waits: Vec<[Option<f64>; 2]> = Vec::new();
    for line in published {
        let workload = format!("readers:streams={}", line.readers);
        let ask = Ask {
            workload: &workload,
            model,
            policies: &policies,
            runs: 1,
            ..Ask::default()
        };
        let (served, sliced) = (runs.table(&ask)?, runs.table_sliced(&ask, Slices::CFQ)?);
        let longest =
            policies.map(|policy| mean(&sliced, policy, |r| r.latency.max() as f64 / 1e3));
        for ((policy, ours), (window, (kb_per_s, max_us))) in
            policies.into_iter().zip(longest).zip(columns(line))
        {
            let label = format!("{}, {window}", readers(line.readers));
            let rate = bytes_per_s(&served, policy).map(|rate| rate / 1024.0);
            rows.push(
                Row::new(&label, "KB/s", Some(kb_per_s as f64), rate)
                    .within(FigureKind::Fit, ARRAYS),
            );
            let row = Row::new(&label, "max. latency, us", Some(max_us), ours);
            rows.push(row.because(if line.readers == 1 { ALONE } else { SLICES }));
        }
        waits.push(longest);
    }
    // From two readers on: each number of readers beside the one before it.
    for (lines, ours) in published.windows(2).zip(waits.windows(2)).skip(1) {
        for (n, window) in ["128K", "512K"].into_iter().enumerate() {
            let [fewer, more] = [&lines[0], &lines[1]].map(|line| columns(line)[n].1.1);
            let label = format!(
                "{} / {}, {window}",
                lines[1].readers,
                readers(lines[0].readers)
            );
            let row = Row::new(
                label,
                "of max. latencies",
                Some(more / fewer),
                over(ours[1][n], ours[0][n]),
            );
            rows.push(row.ordered().because("more readers wait longer"));
        }
    }
    Ok(Table::new(
        PAPER,
        format!("sequential readers on {name}"),
        rows,
    ))
}

fn readers(n: u32) -> String {
    format!("{n} reader{}", if n == 1 { "" } else { "s" })
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
/// Where more than this part of the readahead of 2.6.31 is refused for lack of room it hardly reads ahead any more.
const REFUSED: f64 = 0.5;
/// A time within 1 % is not slower.
const NOT_SLOWER: f64 = 1.01;

const FITS: &str = "all windows fit: no reader thrashes, both do the same";
const HARDLY: &str = "more than half of 2.6.31's readahead is refused for lack of room, so it hardly reads ahead; the \
    check had been dropped by a rule that was made after 64 readers had been seen to read more bytes, not fewer";

/// Bytes of a window written in K.
fn window_bytes(text: &str) -> u64 {
    text.trim_end_matches('K')
        .parse::<u64>()
        .map_or(0, |kib| kib << 10)
}

fn thrash(runs: &mut Runs<'_>) -> Result<Table, ReproduceError> {
    let mut rows = Vec::new();
    for (streams, max, think) in THRASH {
        let policies = ["linux-2.6.31", "linux-thrashsafe"].map(|name| format!("{name}:max={max}"));
        let smallest = format!("linux-thrashsafe:max={max},min=4K");
        let workload = format!("thrash:streams={streams},think={think}");
        let [plain, safe, small] = [&policies[0], &policies[1], &smallest].map(String::as_str);
        let (names, cache_bytes) = ([plain, safe, small], Some(THRASH_CACHE));
        let ask = Ask {
            workload: &workload,
            model: "hdd-theory",
            policies: &names,
            runs: 1,
            cache_bytes,
            ..Ask::default()
        };
        let table = runs.table(&ask)?;
        let bytes = |policy: &str| mean(&table, policy, |r| r.stats.source_bytes as f64);
        let time = |policy: &str| time_s(&table, policy);
        let refused = over(
            mean(&table, plain, |r| r.stats.ra_refused_bytes as f64),
            mean(&table, plain, |r| r.stats.ra_planned_bytes as f64),
        );
        let fits = u64::from(streams) * 2 * window_bytes(max) < THRASH_CACHE;
        let row =
            |column: &str, ours| Row::new(format!("{streams} readers x {max}"), column, None, ours);
        let judged = |row: Row, most: f64, why: &str| match row.ours {
            Some(_) if fits => row.because(FITS),
            Some(ratio) if refused.is_some_and(|part| part > REFUSED) => row
                .judged(FigureKind::Order, ratio < most)
                .because(HARDLY)
                .known(),
            ours => row
                .judged(FigureKind::Order, ours.is_some_and(|ratio| ratio < most))
                .because(why),
        };
        rows.push(
            row("refused, 2.6.31", refused).because("part of its readahead that found no room"),
        );
        let ours = over(bytes(safe), bytes(plain));
        rows.push(judged(
            row("bytes / 2.6.31", ours),
            1.0,
            "no figure published; fewer bytes",
        ));
        let ours = over(time(safe), time(plain));
        rows.push(judged(
            row("time / 2.6.31", ours),
            NOT_SLOWER,
            "no figure published; at most 1 % slower",
        ));
        rows.push(
            row("time / min=4K", over(time(safe), time(small)))
                .because("what the minimum of 32 KiB gains"),
        );
    }
    Ok(Table::new(
        PAPER,
        "thrash-safe readahead, cache 16 MiB",
        rows,
    ))
}
