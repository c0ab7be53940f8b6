//! Makes plans from recorded runs, and from the headers of model and table files.
//!
//! ```text
//!   A.frt, B.frt ──► touches by file ──► identity of each file now ──► foreread_plan::runs ──► Plan
//!   model.safetensors ──► header ──► foreread_plan::layout ──────────────────────────────────► Plan
//! ```
//! A file that differs from the recording, or was changed after the recording was written, is left out and reported. If the
//! recording was made by `foreread serve` or `mount`, its file names are known only to that server, so a file is identified by its
//! size.
//!
//! This module reads only headers of the files in a plan, and writes nothing.

mod headers;

pub use headers::of_headers;

use crate::warm::{LeftOut, mounted_device};
use foreread_os::open::look;
use foreread_plan::runs::{Account, Full, Runs, Selection, Touch};
use foreread_plan::{Plan, PlanFile};
use foreread_trace::error::TracePosition;
use foreread_trace::{Flags, Import, Item, Op, Record, TraceError};
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Longest gap between two touches of a sampled recording that the plan reads, too. Samples show only the first pages of the kernel's
/// readahead windows; a plan of these pages alone interrupts the readahead, and the program took up to twice as long.
const SAMPLED_GAP_BYTES: u64 = 1 << 20;

#[derive(Debug, Default)]
pub struct PlanReport {
    pub plan: Plan,
    pub left_out: Vec<LeftOut>,
    /// Reads beyond the limit of a plan.
    pub dropped: u64,
    /// Traces that say that some of their reads are missing.
    pub incomplete: Vec<LeftOut>,
}

/// Makes a plan from recorded runs of a program. Each of the traces contains one run of the program.
pub fn of_traces(
    traces: &[PathBuf],
    format: Option<&str>,
    selection: &Selection,
) -> Result<PlanReport, TraceError> {
    let mut making = PlanBuilder::default();
    for trace in traces {
        let import = foreread_trace::open(trace, format)?;
        making.run(import, trace)?;
    }
    let dropped = making.runs.dropped;
    let bad = making.bad.into_iter().map(|(path, why)| LeftOut {
        path: path.into(),
        why,
    });
    let mut plan = making.runs.plan(selection);
    let made_from = traces.iter().map(|trace| trace.display().to_string());
    plan.made_from = made_from.collect();
    Ok(PlanReport {
        plan,
        left_out: LeftOut::named(bad),
        dropped,
        incomplete: making.incomplete,
    })
}

#[derive(Default)]
struct PlanBuilder {
    runs: Runs,
    numbers: HashMap<String, u32>,
    bad: HashMap<String, String>,
    incomplete: Vec<LeftOut>,
    account: Account,
    /// Of a sampled recording: the end of the latest touch of each file.
    sampled_ends: Option<HashMap<u32, u64>>,
}

impl PlanBuilder {
    fn run(&mut self, import: Import, trace: &Path) -> Result<(), TraceError> {
        let is_remote =
            ["foreread serve", "foreread mount"].contains(&import.header.format.as_str());
        let written_ns = fs::metadata(trace)
            .ok()
            .and_then(|meta| PlanFile::of(trace.into(), &meta).mtime_ns);
        let notes = import.header.notes.iter();
        self.sampled_ends = import.header.sampled_ns.map(|_| HashMap::new());
        let missing = notes.filter(|note| note.contains("missing") || note.contains("were lost"));
        self.incomplete.extend(missing.map(|why| LeftOut {
            path: trace.into(),
            why: why.clone(),
        }));
        let mut numbers = Vec::new();
        let (mut began, mut order) = (None, 0);
        for item in import.items {
            match item? {
                Item::File(file) => {
                    let number = self.file(&file.name, file.size, written_ns, is_remote);
                    numbers.push(number.map_err(|full| {
                        let (place, remedy) = (TracePosition::Whole, "plan fewer recordings");
                        TraceError::new(trace, place, full.to_string(), remedy)
                    })?);
                }
                Item::Record(record) => {
                    order += 1;
                    let Some(file) = numbers.get(record.file as usize).copied().flatten() else {
                        continue;
                    };
                    // Without times the order of the records is kept.
                    let start = record.start_ns.unwrap_or(order * 1000);
                    let at_ns = start.saturating_sub(*began.get_or_insert(start));
                    self.record(&record, file, at_ns);
                }
            }
        }
        self.runs.end_run();
        Ok(())
    }

    fn record(&mut self, record: &Record, file: u32, at_ns: u64) {
        let is_readahead = record.flags.has(Flags::AHEAD) && !record.flags.has(Flags::METADATA);
        let passes = is_readahead || record.flags.has(Flags::DIRECT);
        if passes || !matches!(record.op, Op::Read | Op::Fault) {
            return;
        }
        let len = record.returned.unwrap_or(record.len);
        let stall_ns = record
            .end_ns
            .zip(record.start_ns)
            .map_or(0, |(end, start)| end.saturating_sub(start));
        let mut range = record.offset..record.offset.saturating_add(len);
        if let Some(ends) = &mut self.sampled_ends {
            let before = ends.insert(file, range.end).unwrap_or(range.start);
            if range.start.saturating_sub(before) <= SAMPLED_GAP_BYTES {
                range.start = range.start.min(before);
            }
        }
        self.runs.touch(Touch {
            file,
            range,
            at_ns,
            thread: record.thread,
            stall_ns,
        });
    }

    /// The number of a file, if it is still as in the trace.
    fn file(
        &mut self,
        name: &str,
        size: Option<u64>,
        written_ns: Option<i64>,
        is_remote: bool,
    ) -> Result<Option<u32>, Full> {
        if let Some(number) = self.numbers.get(name) {
            return Ok(Some(*number));
        }
        if self.bad.contains_key(name) {
            return Ok(None);
        }
        let file = match is_remote {
            true => remote(name, size),
            false => local(name, size, written_ns),
        };
        match file {
            Ok(Some(file)) => {
                // The name is stored twice: here, and as a path of the plan.
                let account = &mut self.account;
                account.take::<(PlanFile, String, u32)>(2 * name.len())?;
                let number = self.runs.file(file);
                self.numbers
                    .extend(number.map(|number| (name.to_string(), number)));
                Ok(number)
            }
            Ok(None) => Ok(None),
            Err(why) => {
                let account = &mut self.account;
                account.take::<(String, String)>(name.len() + why.len())?;
                self.bad.insert(name.to_string(), why);
                Ok(None)
            }
        }
    }
}

fn remote(name: &str, size: Option<u64>) -> Result<Option<PlanFile>, String> {
    let size = size.ok_or("the recording does not contain its size")?;
    Ok(Some(PlanFile::sized(name, size)))
}

/// Returns `None` for files that the page cache does not serve: pseudo files, pipes, devices without a file system.
fn local(
    name: &str,
    size: Option<u64>,
    written_ns: Option<i64>,
) -> Result<Option<PlanFile>, String> {
    let path = std::path::absolute(name).map_err(|error| error.to_string())?;
    let looked = look(&path).map_err(|error| error.to_string())?;
    let meta = looked.meta();
    if meta.file_type().is_block_device() {
        return mounted_device(&path).map(|(_, size)| Some(PlanFile::sized(path, size)));
    }
    let is_pseudo = ["/proc", "/sys", "/dev"]
        .iter()
        .any(|root| path.starts_with(root));
    if !meta.is_file() || is_pseudo || meta.len() == 0 {
        return Ok(None);
    }
    if size.is_some_and(|size| size != meta.len()) {
        return Err("its size has changed since the recording".to_string());
    }
    let file = PlanFile::of(path, meta);
    if written_ns.is_some_and(|written| file.mtime_ns > Some(written)) {
        return Err("it was changed after the recording".to_string());
    }
    Ok(Some(file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreread_trace::{FileInfo, Header};

    #[test]
    fn a_sampled_recording_is_planned_with_its_short_gaps() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("f");
        fs::write(&path, vec![0; 4 << 20]).expect("written");
        let planned = |sampled_ns: Option<u64>| {
            let name = path.display().to_string();
            let file = FileInfo::new(name, None);
            let pages = [0, 128 << 10, 256 << 10, 2 << 20, 64 << 10];
            let records = pages.map(|offset| Ok(Item::Record(Record::read(0, offset, 4096))));
            let items = std::iter::once(Ok(Item::File(file))).chain(records);
            let header = Header {
                sampled_ns,
                ..Header::default()
            };
            let import = Import {
                header,
                items: Box::new(items),
                left_out: foreread_trace::LeftOut::default(),
            };
            let mut making = PlanBuilder::default();
            making.run(import, &path).expect("a run");
            let plan = making.runs.plan(&Selection::default());
            Vec::from_iter(plan.ranges.iter().map(|range| range.len))
        };
        let pages = planned(None);
        assert!(pages.iter().all(|&len| len <= 4096), "{pages:?}");
        // The first three, with what is between, and one alone.
        let sampled: u64 = planned(Some(1)).iter().sum();
        assert_eq!(sampled, (256 << 10) + 2 * 4096);
    }
}
