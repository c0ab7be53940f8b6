//! `--real`: the seeds' own experiments on parts of this machine, beside the published rows.
//!
//! ```text
//!   scratch file without a name ──losetup──► /dev/loopN, held open and already detached: gone with its last user
//!        │                                      │  read_ahead_kb of this device only
//!        │                                      └─ 001: dd at each size;  003: fio
//!        └─ 002: sysbench, through a link in a directory that is removed as soon as sysbench has the file
//! ```
//!
//! Nothing is left behind however the run ends: the file has no name, and the loop device is told to go while it is
//! still held, so the kernel removes it with the last descriptor, SIGKILL or not. Reads only what it made, and sets
//! only what is its own. Never: a check; the hardware is another one, so every row is `shown`.

mod loopdev;
mod tools;

use super::published::{seed_001, seed_002, seed_003};
use super::{Reproduction, Row, SCHEMA, SEEDS, Table};
use crate::live::{LiveError, Scratch};
use crate::report::{Progress, number};
use loopdev::LoopDevice;
use tools::{Tool, find};

/// Bytes of the scratch file, and seconds of each timed run: a minute or two in total.
const SCRATCH_BYTES: u64 = 128 << 20;
const SECONDS: u32 = 5;
const OTHER: &str = "other hardware: a loop device on a file of this machine";

/// Why nothing could be measured: one line.
#[derive(Debug, thiserror::Error)]
pub enum RealError {
    /// This machine lacks something, or the caller lacks a right.
    #[error("{0}")]
    Needs(String),
    /// A tool failed.
    #[error("{what}: {why}; see whether it runs by hand")]
    Tool {
        /// The command.
        what: String,
        /// What it said.
        why: String,
    },
    /// The scratch file could not be made.
    #[error("{0}")]
    Scratch(#[from] LiveError),
}

/// What a run of these seeds needs, in words.
#[must_use]
pub fn needs() -> &'static str {
    "root, losetup and dd for seed 001, sysbench for 002, fio for 003 (Debian packages mount, coreutils, sysbench, fio)"
}

/// Measures what is asked for: an empty list is every seed that has an experiment for one machine.
///
/// # Errors
/// See [`RealError`]; what is missing is told before anything is made.
pub fn run(seeds: &[String], progress: &mut dyn Progress) -> Result<Reproduction, RealError> {
    let asked = |seed: &str| seeds.is_empty() || seeds.iter().any(|s| s == seed);
    if !seeds.is_empty() && seeds.iter().all(|s| s == "004") {
        let why = "--real: seed 004 needs a Ceph cluster; take 001, 002 or 003";
        return Err(RealError::Needs(why.to_string()));
    }
    // The sweep of seed 000 is that of 001.
    let wanted = SEEDS.map(|seed| asked(seed) || (seed == "001" && asked("000")));
    let [_, sweep, queries, aio, _] = wanted;
    let tools = Tools::find(sweep, queries, aio)?;
    progress.stage("writing a scratch file");
    let scratch = Scratch::make(SCRATCH_BYTES, &mut |done| progress.step(done, SCRATCH_BYTES))?;
    let device = match &tools.losetup {
        Some(losetup) => Some(LoopDevice::make(losetup, &scratch)?),
        None => None,
    };
    let mut tables = Vec::new();
    if let (Some(device), Some(dd)) = (&device, &tools.dd) {
        tables.push(sweep_001(device, dd, progress)?);
    }
    if let Some(sysbench) = &tools.sysbench {
        progress.stage("sysbench, random reads of 64 KiB");
        tables.push(sysbench_002(sysbench, &scratch)?);
    }
    if let (Some(device), Some(fio)) = (&device, &tools.fio) {
        tables.push(fio_003(device, fio, progress)?);
    }
    Ok(Reproduction { schema: SCHEMA.to_string(), tables })
}

/// The programs, those that are needed.
struct Tools {
    losetup: Option<Tool>,
    dd: Option<Tool>,
    sysbench: Option<Tool>,
    fio: Option<Tool>,
}

impl Tools {
    fn find(sweep: bool, queries: bool, aio: bool) -> Result<Tools, RealError> {
        let wanted = [("losetup", sweep || aio), ("dd", sweep), ("sysbench", queries), ("fio", aio)];
        let [losetup, dd, sysbench, fio] = wanted.map(|(name, needed)| needed.then(|| find(name)));
        let missing: Vec<&str> = [("losetup", &losetup), ("dd", &dd), ("sysbench", &sysbench), ("fio", &fio)]
            .into_iter()
            .filter(|(_, tool)| matches!(tool, Some(None)))
            .map(|(name, _)| name)
            .collect();
        if !missing.is_empty() {
            return Err(RealError::Needs(format!("--real: {} not found; it needs {}", missing.join(", "), needs())));
        }
        let [losetup, dd, sysbench, fio] = [losetup, dd, sysbench, fio].map(Option::flatten);
        Ok(Tools { losetup, dd, sysbench, fio })
    }
}

/// Seed 001's script: for each size, `dd` over the device.
fn sweep_001(device: &LoopDevice, dd: &Tool, progress: &mut dyn Progress) -> Result<Table, RealError> {
    let published = &seed_001::SWEEPS[0];
    progress.stage("dd by readahead size");
    let mut rows = Vec::new();
    for (at, run) in published.runs.iter().enumerate() {
        progress.step(at as u64, published.runs.len() as u64);
        device.set_read_ahead_kb(run.script_kib)?;
        device.drop_cache()?;
        let path = device.path();
        let said = dd.run(&[&format!("if={path}"), "of=/dev/null", "bs=4k"])?;
        let seconds = tools::dd_seconds(&said).ok_or_else(|| dd.odd(&said))?;
        let ours = SCRATCH_BYTES as f64 / seconds / 1e6;
        let row = Row::new(number::size(run.script_kib << 10), "MB/s", Some(run.mb_per_s()), Some(ours));
        rows.push(row.because(OTHER));
    }
    Ok(Table::new("001", format!("real: dd by readahead size, beside {}", published.device), rows))
}

/// Seed 002's sysbench. One kernel runs, so there is one figure, beside what was published for the rule it has.
fn sysbench_002(sysbench: &Tool, scratch: &Scratch) -> Result<Table, RealError> {
    let said = tools::sysbench(sysbench, scratch, SCRATCH_BYTES, seed_002::SYSBENCH_RECORD, SECONDS)?;
    let ours = tools::sysbench_mib_per_s(&said).ok_or_else(|| sysbench.odd(&said))?;
    let rows = seed_002::SYSBENCH.iter().map(|line| {
        let row = Row::new(format!("{}, {}", line.device, line.fs), "MB/s after", Some(line.after), Some(ours));
        row.because("other hardware: a file of this machine, the kernel that runs; a small file is cached in time")
    });
    Ok(Table::new("002", "real: sysbench, random 64 KiB", rows.collect()))
}

/// Seed 003's rows as far as a kernel of today can make them.
fn fio_003(device: &LoopDevice, fio: &Tool, progress: &mut dyn Progress) -> Result<Table, RealError> {
    progress.stage("fio, random reads of 64 KiB");
    let mut rows = Vec::new();
    for (at, (label, mib_per_s, _)) in seed_003::AIO.into_iter().enumerate() {
        progress.step(at as u64, seed_003::AIO.len() as u64);
        let how = match label {
            "sync" => Some(["psync", "1", "0"]),
            "fixed" => Some(["io_uring", "64", "0"]),
            "direct" => Some(["libaio", "64", "1"]),
            _ => None,
        };
        let Some([engine, depth, direct]) = how else {
            rows.push(Row::new(label, "MiB/s", Some(mib_per_s), None).because("no kernel of today reads so"));
            continue;
        };
        device.drop_cache()?;
        let said = tools::fio(fio, &device.path(), seed_003::RECORD, SECONDS, [engine, depth, direct])?;
        let ours = tools::fio_bytes_per_s(&said).map(|rate| rate / f64::from(1 << 20)).ok_or_else(|| fio.odd(&said))?;
        rows.push(Row::new(label, "MiB/s", Some(mib_per_s), Some(ours)).because(OTHER));
    }
    Ok(Table::new("003", "real: fio, random 64 KiB", rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Silent;

    #[test]
    fn a_cluster_is_not_a_part_of_this_machine() {
        let error = run(&["004".to_string()], &mut Silent).expect_err("no cluster").to_string();
        assert_eq!(error, "--real: seed 004 needs a Ceph cluster; take 001, 002 or 003");
    }
}
