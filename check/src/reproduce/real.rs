//! `--real`: the papers' own experiments on parts of this machine, beside the published rows.
//!
//! ```text
//!   scratch file without a name ──losetup──► /dev/loopN, held open and already detached: gone with its last user
//!        │                                      │  read_ahead_kb of this device only
//!        │                                      └─ 001: dd at each size;  003: fio
//!        └─ 002: sysbench, through a link in a directory that is removed as soon as sysbench has the file
//! ```
//!
//! Nothing is left behind however the run ends: the file has no name, the loop device is detached while it is still
//! held, so the kernel removes it with the last descriptor, and a `Guard` undoes what is not yet or never the kernel's
//! to undo, SIGKILL or not. Reads only what it made, and sets only what is its own. Never: a check; the hardware is
//! another one, so every row is `shown` and has no error.

mod guard;
mod loopdev;
mod tools;

use super::published::{bhattacharya_2003, wu_2010b, wu_2013};
use super::{Paper, Reproduction, Row, Table};
use foreread_lab::live::{LiveError, Scratch};
use foreread_os::failure::{Failure, FailureKind};
use foreread_report::{number, progress::Progress};
use loopdev::LoopDevice;
use tools::Tools;

#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Bytes of the scratch file, a multiple of 1 MiB.
    pub bytes: u64,
    /// Seconds of a timed run, at most.
    pub seconds: u64,
}

impl Default for Extent {
    /// A quarter of a minute in total on fast storage, a minute or two on slow.
    fn default() -> Extent {
        Extent {
            bytes: 128 << 20,
            seconds: 5,
        }
    }
}

const OTHER: &str = "other hardware: a loop device on a file of this machine";
const FILE: &str =
    "other hardware: a file of this machine, one figure for the file system and the kernel it has";

/// Why nothing could be measured: one line.
#[derive(Debug, thiserror::Error)]
pub enum RealError {
    /// This machine lacks something, or the caller lacks a right.
    #[error("{0}")]
    Needs(String),
    /// A tool failed.
    #[error("{what}: {why}; try to run it by hand")]
    Tool {
        /// The command.
        what: String,
        why: String,
    },
    /// The scratch file could not be made.
    #[error("{0}")]
    Scratch(#[from] LiveError),
}

/// What this machine cannot do is no fault of the input.
impl From<RealError> for Failure {
    fn from(error: RealError) -> Failure {
        Failure::of(FailureKind::Cannot, error)
    }
}

/// What a run of all papers needs, in words.
#[must_use]
pub fn needs() -> &'static str {
    "root, xargs, rm and dd, losetup for wu-2010b and bhattacharya-2003, sysbench for wu-2013, fio for \
        bhattacharya-2003 (Debian packages findutils, coreutils, mount, sysbench, fio)"
}

/// Measures what is asked for: an empty list is every paper with an experiment for one machine.
///
/// # Errors
/// See [`RealError`]; missing tools are reported before anything is made.
pub fn run(
    papers: &[Paper],
    extent: &Extent,
    progress: &mut dyn Progress,
) -> Result<Reproduction, RealError> {
    if !papers.is_empty() && papers.iter().all(|paper| *paper == Paper::Crume2014) {
        let why =
            "--real: crume-2014 needs a Ceph cluster; take wu-2010b, wu-2013 or bhattacharya-2003";
        return Err(RealError::Needs(why.to_string()));
    }
    let wanted = |paper| papers.is_empty() || papers.contains(&paper);
    // The sweep of [Wu 2010a] is that of [Wu 2010b].
    let sweep = wanted(Paper::Wu2010b) || wanted(Paper::Wu2010a);
    let (queries, aio) = (wanted(Paper::Wu2013), wanted(Paper::Bhattacharya2003));
    let mut names = vec!["xargs"];
    names.extend(if sweep || aio {
        &["dd", "losetup"][..]
    } else {
        &[]
    });
    names.extend(if queries {
        &["rm", "sysbench"][..]
    } else {
        &[]
    });
    names.extend(aio.then_some("fio"));
    let tools = Tools::find(&names)?;
    progress.stage("writing a scratch file");
    let scratch = Scratch::make(extent.bytes, &mut |done| progress.step(done, extent.bytes))?;
    // First, while the file is not cached: a loop device may have to go through that.
    let read = if queries {
        Some(sysbench_table(&tools, &scratch, extent, progress)?)
    } else {
        None
    };
    let device = if sweep || aio {
        Some(LoopDevice::make(&tools, &scratch)?)
    } else {
        None
    };
    let mut tables = Vec::new();
    if let Some(device) = device.as_ref().filter(|_| sweep) {
        tables.push(sweep_table(device, &tools, extent, progress)?);
    }
    tables.extend(read);
    if let Some(device) = device.as_ref().filter(|_| aio) {
        tables.push(fio_table(device, &tools, extent, progress)?);
    }
    Ok(Reproduction::new(tables))
}

/// [Wu 2010b]'s script: for each size, `dd` over the device.
fn sweep_table(
    device: &LoopDevice,
    tools: &Tools,
    extent: &Extent,
    progress: &mut dyn Progress,
) -> Result<Table, RealError> {
    let (published, dd) = (&wu_2010b::SWEEPS[0], tools.get("dd")?);
    progress.stage("dd by readahead size");
    let mut rows = Vec::new();
    for (at, run) in published.runs.iter().enumerate() {
        progress.step(at as u64, published.runs.len() as u64);
        device.set_read_ahead_kb(run.script_kib)?;
        device.drop_cache()?;
        let path = device.path();
        let said = dd.run(&[&format!("if={path}"), "of=/dev/null", "bs=4k"])?;
        let seconds = tools::dd_seconds(&said).ok_or_else(|| dd.odd(&said))?;
        let ours = extent.bytes as f64 / seconds / 1e6;
        let row = Row::new(
            number::size(run.script_kib << 10),
            "MB/s",
            Some(run.mb_per_s()),
            Some(ours),
        );
        rows.push(row.exact().because(OTHER));
    }
    Ok(Table::new(
        Paper::Wu2010b,
        format!("real: dd by readahead size, beside {}", published.device),
        rows,
    ))
}

/// [Wu 2013]'s sysbench: as many reads for the records of the file as were published. One kernel runs, so there is one
/// figure, beside what was published for the rule it has.
fn sysbench_table(
    tools: &Tools,
    scratch: &Scratch,
    extent: &Extent,
    progress: &mut dyn Progress,
) -> Result<Table, RealError> {
    progress.stage("sysbench, random reads of 64 KiB");
    let record = wu_2013::SYSBENCH_RECORD;
    let events = (wu_2013::SYSBENCH_READS * extent.bytes / wu_2013::SYSBENCH_BYTES).max(1);
    let said = tools::sysbench(
        tools,
        scratch,
        events,
        [extent.bytes, record, extent.seconds],
    )?;
    let ours =
        tools::sysbench_mib_per_s(&said).ok_or_else(|| said_nothing(tools, "sysbench", &said))?;
    let rows = wu_2013::SYSBENCH.iter().map(|line| {
        let row = Row::new(
            format!("{}, {}", line.device, line.fs),
            "MB/s after",
            Some(line.after),
            Some(ours),
        );
        row.exact().because(FILE)
    });
    Ok(Table::new(
        Paper::Wu2013,
        "real: sysbench, random 64 KiB",
        rows.collect(),
    ))
}

/// The error of a program whose output has no figure.
fn said_nothing(tools: &Tools, name: &str, said: &str) -> RealError {
    tools
        .get(name)
        .map_or_else(|error| error, |tool| tool.odd(said))
}

/// [Bhattacharya 2003]'s rows as far as a kernel of today can make them.
fn fio_table(
    device: &LoopDevice,
    tools: &Tools,
    extent: &Extent,
    progress: &mut dyn Progress,
) -> Result<Table, RealError> {
    progress.stage("fio, random reads of 64 KiB");
    let mut rows = Vec::new();
    for (at, (label, mib_per_s, _)) in bhattacharya_2003::AIO.into_iter().enumerate() {
        progress.step(at as u64, bhattacharya_2003::AIO.len() as u64);
        let how = match label {
            "sync" => Some(["psync", "1", "0"]),
            "fixed" => Some(["io_uring", "64", "0"]),
            "direct" => Some(["libaio", "64", "1"]),
            _ => None,
        };
        let Some(how) = how else {
            rows.push(
                Row::new(label, "MiB/s", Some(mib_per_s), None)
                    .because("no kernel of today reads so"),
            );
            continue;
        };
        device.drop_cache()?;
        let said = tools::fio(
            tools.get("fio")?,
            &device.path(),
            bhattacharya_2003::RECORD,
            extent.seconds,
            how,
        )?;
        let rate =
            tools::fio_bytes_per_s(&said).ok_or_else(|| said_nothing(tools, "fio", &said))?;
        let ours = Some(rate / f64::from(1 << 20));
        rows.push(
            Row::new(label, "MiB/s", Some(mib_per_s), ours)
                .exact()
                .because(OTHER),
        );
    }
    Ok(Table::new(
        Paper::Bhattacharya2003,
        "real: fio, random 64 KiB",
        rows,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreread_report::progress::Silent;

    #[test]
    fn a_cluster_is_not_a_part_of_this_machine() {
        let error = run(&[Paper::Crume2014], &Extent::default(), &mut Silent)
            .expect_err("no cluster")
            .to_string();
        assert_eq!(
            error,
            "--real: crume-2014 needs a Ceph cluster; take wu-2010b, wu-2013 or bhattacharya-2003"
        );
    }
}
