//! Seed 001's report: `blkid` on a device of 505 kB and 15 kB/s, where 1 kB and 16 kB became 48 kB.
//!
//! ```text
//!   page  0    1    2    3    4    5 ...     11   12 ...                27
//!         ├─ first window ───┤├─ second ─────┤├─ third ─────────────────┤
//!         |-1-|               ▲
//!         |------ 16 kB -------|  ends in the page that bears the second window's mark
//! ```
//!
//! The posting names the first two windows. By the rules of that kernel the mark starts a third one before the read
//! ends, of 64 KiB; the posting also says "turning a 16kB read into a 64kB one", without telling which. So the sum of
//! the two windows is checked, and all that is read is shown.
//!
//! Never: a published figure.

use super::published::seed_001::{BLKID, BLKID_KIB, TINY};
use super::runs::{Ask, Runs, mean};
use super::{ReproduceError, Role, Row, Table};
use crate::instant;
use foreread_core::event::Event;
use foreread_core::machine::{Config, Machine};
use foreread_core::policy::{PolicySpec, capacity::Cap};
use foreread_core::units::{ByteRange, FileId, Nanos, OpenId, PageSize, ReadId};

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
        Row::new("asked for", "KiB", Some(wanted), asked_kib)
            .exact()
            .role(Role::Input)
            .because("17 KiB lie in five pages of 4 KiB"),
    ];
    let first_two: u64 = windows(UNCAPPED)?.iter().take(BLKID.len()).map(|pages| pages * PAGE / 1024).sum();
    rows.push(
        Row::new("no cap, windows named", "KiB", Some(BLKID_KIB as f64), Some(first_two as f64))
            .within(Role::Check, 0.0),
    );
    let [all, all_s] = cost(runs, "normal", UNCAPPED)?;
    rows.push(Row::new("no cap, all that is read", "KiB", Some(BLKID_KIB as f64), all).because(THIRD));
    rows.push(bytes_are_seconds("no cap", all_s));
    let [small, small_s] = cost(runs, "normal", &capped)?;
    let near = small.zip(asked_kib).is_some_and(|(small, asked)| small <= asked + cap_kib as f64);
    let row = Row::new("cap by capacity", "KiB", None, small).judged(Role::Check, near);
    rows.push(row.because("no figure published; at most one window of the cap beyond what is asked for"));
    rows.push(bytes_are_seconds("cap by capacity", small_s));
    let [hinted, hinted_s] = cost(runs, "random", UNCAPPED)?;
    let row = Row::new("RANDOM", "KiB", None, hinted).judged(Role::Check, hinted.is_some() && hinted == asked_kib);
    rows.push(row.because("no figure published; exactly the pages that are asked for"));
    rows.push(bytes_are_seconds("RANDOM", hinted_s));
    Ok(Table::new("001", "blkid on 505 kB at 15 kB/s", rows))
}

/// KiB from the device and seconds.
fn cost(runs: &mut Runs<'_>, advice: &str, policy: &str) -> Result<[Option<f64>; 2], ReproduceError> {
    let workload = format!("blkid:advice={advice}");
    let ask = Ask { workload: &workload, model: "tiny-usb", policies: &[policy], runs: 1, ..Ask::default() };
    let table = runs.table(&ask)?;
    Ok([mean(&table, policy, |r| r.stats.source_bytes as f64 / 1024.0), mean(&table, policy, |r| r.time_s)])
}

/// The published rate is all that is known of the device, so the seconds say nothing that the bytes do not.
fn bytes_are_seconds(label: &str, seconds: Option<f64>) -> Row {
    Row::new(label, "s", None, seconds).role(Role::Input).because("the published rate is the model: bytes are seconds")
}

/// Pages of each window that the policy asks for.
fn windows(policy: &str) -> Result<Vec<u64>, ReproduceError> {
    let policy = PolicySpec::parse(policy).map_err(|error| ReproduceError::Asked(error.to_string()))?;
    let page = PageSize::new(PAGE).expect("a power of two");
    let mut machine = Machine::new(Config::new(page, CACHE_BYTES), policy);
    machine.watch();
    machine.handle(Nanos(0), Event::Open { open: OpenId(0), file: FileId(0), size: TINY.0 });
    for (n, (offset, len, _)) in BLKID.into_iter().enumerate() {
        let range = ByteRange::between(offset, offset + len);
        let read = Event::Read { read: ReadId(n as u64), open: OpenId(0), range, random: false };
        instant::tell(&mut machine, read, |_| ());
    }
    Ok(machine.take_decisions().into_iter().flat_map(|d| d.windows).map(|w| w.range.len() / PAGE).collect())
}
