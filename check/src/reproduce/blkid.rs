//! [Wu 2010b]'s report: `blkid` on a device of 505 kB and 15 kB/s, where 1 kB and 16 kB became 48 kB.
//!
//! ```text
//!   page  0    1    2    3    4    5 ...     11   12 ...                27
//!         ├─ first window ───┤├─ second ─────┤├─ third ─────────────────┤
//!         |-1-|               ▲
//!         |------ 16 kB -------|  ends in the page that bears the second window's mark
//! ```
//!
//! The posting names the first two windows, "4 pages" and "8 pages", and "turning a 16kB read into a 64kB one". By the
//! rules of that kernel the mark starts a third window of 64 KiB before the second read ends: the only 64 KiB there is.
//! The policy was written from the kernel's rules, so the two windows are blind predictions.
//!
//! Never: a published figure.

use super::published::wu_2010b::{BLKID, BLKID_KIB, TINY, TURNED_KIB, TURNED_PERCENT};
use super::runs::{Ask, Runs, mean, over};
use super::{FigureKind, Paper, ReproduceError, Row, Table};
use foreread_core::event::Event;
use foreread_core::machine::{Config, Machine};
use foreread_core::policy::capacity::Cap;
use foreread_core::units::{ByteRange, FileId, Nanos, OpenId, PageSize, ReadId};
use foreread_sim::zero_latency;

const UNCAPPED: &str = "linux-2.6.31:max=128K";
const PAGE: u64 = 4096;
const CACHE_BYTES: u64 = 1 << 20;
const THIRD: &str = "the second read ends in the page that bears the second window's mark, so a third window of \
    64 KiB follows by the rules of that kernel; the posting names the first two";

/// What it reads and how long it takes, without a cap, with the cap of the seed, with the hint RANDOM.
pub fn table(runs: &mut Runs<'_>) -> Result<Table, ReproduceError> {
    let cap_kib = Cap::First.bytes(TINY.0).map_or(0, |bytes| bytes / 1024);
    let capped = format!("linux-2.6.31:max={cap_kib}K");
    let [asked_kib, _] = cost(runs, "normal", "none")?;
    let wanted = BLKID.iter().map(|b| b.1).sum::<u64>() as f64 / 1024.0;
    let mut rows = vec![
        input(
            "the device",
            "kB",
            TINY.0 as f64 / 1e3,
            runs.preset("tiny-usb")?.capacity_bytes as f64 / 1e3,
        ),
        Row::new("asked for", "KiB", Some(wanted), asked_kib)
            .exact()
            .kind(FigureKind::Input)
            .because("17 KiB lie in five pages of 4 KiB"),
    ];
    rows.extend(decided()?);
    let [all, all_s] = cost(runs, "normal", UNCAPPED)?;
    rows.push(
        Row::new(
            "no cap, all that is read",
            "KiB",
            Some(BLKID_KIB as f64),
            all,
        )
        .because(THIRD),
    );
    rows.push(bytes_are_seconds("no cap", all_s));
    let [small, small_s] = cost(runs, "normal", &capped)?;
    rows.push(
        Row::new("cap by capacity", "KiB", None, small).because("the post prints no figure for it"),
    );
    rows.push(bytes_are_seconds("cap by capacity", small_s));
    let row = Row::new("no cap / cap by capacity", "of KiB", None, over(all, small)).ordered();
    rows.push(row.because(
        "\"less aggressive about read-ahead when the size of the device is small\": no figure",
    ));
    let [hinted, hinted_s] = cost(runs, "random", UNCAPPED)?;
    rows.push(Row::new("RANDOM", "KiB", None, hinted).because("the post prints no figure for it"));
    rows.push(bytes_are_seconds("RANDOM", hinted_s));
    let row = Row::new("no cap / RANDOM", "of KiB", None, over(all, hinted)).ordered();
    rows.push(row.because("\"good to fix blkid with fadvise(RANDOM)\": no figure"));
    Ok(Table::new(
        Paper::Wu2010b,
        "blkid on 505 kB at 15 kB/s",
        rows,
    ))
}

/// The windows that the policy decides on, and what the post says of them.
fn decided() -> Result<Vec<Row>, ReproduceError> {
    let windows = windows(UNCAPPED)?;
    let named = ["lseek 0, read 1024", "lseek 1536, read 16384"]
        .into_iter()
        .zip(BLKID)
        .zip(&windows);
    let page = |((label, (.., published)), ours): ((&str, (u64, u64, u64)), &u64)| {
        Row::new(label, "pages", Some(published as f64), Some(*ours as f64))
            .within(FigureKind::Formula, 0.0)
    };
    let mut rows: Vec<Row> = named.map(page).collect();
    let kib = |pages: u64| (pages * PAGE / 1024) as f64;
    let sum = kib(windows.iter().take(BLKID.len()).sum());
    let row = Row::new(
        "no cap, windows named",
        "KiB",
        Some(BLKID_KIB as f64),
        Some(sum),
    )
    .within(FigureKind::Formula, 0.0);
    rows.push(row.because("the two windows above, in KiB"));
    let third = windows.get(BLKID.len()).map(|pages| kib(*pages));
    let row = Row::new("16kB turned into", "KiB", Some(TURNED_KIB as f64), third);
    rows.push(row.because(
        "the post does not say which window it means; the third is the only one of 64 KiB",
    ));
    let part = third.map(|kib| kib * 1024.0 / TINY.0 as f64 * 100.0);
    let row = Row::new(
        "of the whole device",
        "% of it",
        Some(TURNED_PERCENT as f64),
        part,
    );
    rows.push(row.because("\"about 15%\": no bound follows from 'about'"));
    Ok(rows)
}

fn input(label: &str, column: &str, published: f64, ours: f64) -> Row {
    Row::new(label, column, Some(published), Some(ours)).within(FigureKind::Input, 0.0)
}

/// KiB from the device and seconds.
fn cost(
    runs: &mut Runs<'_>,
    advice: &str,
    policy: &str,
) -> Result<[Option<f64>; 2], ReproduceError> {
    let workload = format!("blkid:advice={advice}");
    let ask = Ask {
        workload: &workload,
        model: "tiny-usb",
        policies: &[policy],
        runs: 1,
        ..Ask::default()
    };
    let table = runs.table(&ask)?;
    Ok([
        mean(&table, policy, |r| r.stats.source_bytes as f64 / 1024.0),
        mean(&table, policy, |r| r.time_s),
    ])
}

/// The published rate is all that is known of the device, so the seconds say nothing that the bytes do not.
fn bytes_are_seconds(label: &str, seconds: Option<f64>) -> Row {
    Row::new(label, "s", None, seconds)
        .kind(FigureKind::Input)
        .because("the published rate is the model: bytes are seconds")
}

/// Pages of each window that the policy asks for.
fn windows(policy: &str) -> Result<Vec<u64>, ReproduceError> {
    let policy = foreread_history::parse_spec(policy)
        .map_err(|error| ReproduceError::Asked(error.to_string()))?;
    let page = PageSize::new(PAGE).expect("a power of two");
    let mut machine = Machine::new(Config::new(page, CACHE_BYTES), policy);
    machine.watch();
    machine.handle(
        Nanos(0),
        Event::Open {
            open: OpenId(0),
            file: FileId(0),
            size: TINY.0,
        },
    );
    for (n, (offset, len, _)) in BLKID.into_iter().enumerate() {
        let range = ByteRange::between(offset, offset + len);
        let read = Event::Read {
            read: ReadId(n as u64),
            open: OpenId(0),
            range,
            random: false,
        };
        zero_latency::tell(&mut machine, read, |_| ());
    }
    Ok(machine
        .take_decisions()
        .into_iter()
        .flat_map(|d| d.windows)
        .map(|w| w.range.len() / PAGE)
        .collect())
}
