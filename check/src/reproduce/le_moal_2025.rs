//! The figures of [Le Moal 2025]: eight sequential readers on a disk that rotates, with the default of 128 KiB and with that of Linux 6.17.
//!
//! The model is `hdd-7200`, which has seen no figure of the commit. A command of Linux 6.17 has 4 MiB at most
//! (`max_sectors`), so the new default is 8 MiB.
//!
//! Never: a published figure (they are in `published`).

use super::published::le_moal_2025::LINES;
use super::runs::{Ask, Runs, bytes_per_s, over};
use super::{FigureKind, Paper, ReproduceError, Row, Table};

const PAPER: Paper = Paper::LeMoal2025;
const BEFORE: &str = "linux-6.18:max=128K";
const AFTER: &str = "linux-6.18:max=8M";
/// How far a rate may be off, as that of other blind rows.
const TARGET: f64 = 0.15;
const BUFFER: &str = "the model's disk reads on by itself into 32 buffers of 4 MiB, which hold each of eight streams whatever the kernel asks; \
    the disk of the post does not, and is not named, so nothing is fitted to it";
const DEFAULT: &str =
    "twice max_sectors, 8 MiB where a command may have 4 MiB: the post does not print it";

/// The table of the commit.
pub fn tables(runs: &mut Runs<'_>) -> Result<Vec<Table>, ReproduceError> {
    let mut rows = Vec::new();
    for line in &LINES {
        let table = runs.table(&Ask {
            workload: &format!("readers:streams=8,record={}", line.record),
            model: "hdd-7200",
            policies: &[BEFORE, AFTER],
            runs: 3,
            size_bytes: Some(4 << 30),
            ..Ask::default()
        })?;
        let ours = |policy| bytes_per_s(&table, policy).map(|rate| rate / 1e6);
        let (before, after) = (ours(BEFORE), ours(AFTER));
        let rate = |column: &str, published, ours, why: &str| {
            Row::new(line.record, column, Some(published), ours)
                .within(FigureKind::Blind, TARGET)
                .known()
                .because(why)
        };
        rows.push(rate("MB/s, 128K", line.before, before, BUFFER));
        rows.push(rate("MB/s, 2 x max_sectors", line.after, after, DEFAULT));
        let gain = over(Some(line.after), Some(line.before));
        let gain = Row::new(line.record, "of MB/s, after", gain, over(after, before));
        rows.push(gain.ordered().known().because(BUFFER));
    }
    Ok(vec![Table::new(
        PAPER,
        "eight readers on a SATA disk",
        rows,
    )])
}
