//! Loads a trace for a replay: its records, the sizes of its files, and how many records were skipped.
//!
//! The whole trace is kept in memory, because a workload runs many times. Therefore the number of records is limited,
//! and a replay can be limited to the first records. If the trace has no times, foreread does not invent times.

use super::{KeptRecord, What};
use foreread_core::machine::MAX_IDS;
use foreread_sim::workload::Workload;
use foreread_trace::error::TracePosition;
use foreread_trace::{Flags, Header, Import, Item, Level, Op, Record, TraceError};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

/// Maximum number of records of a replay. A record and the data derived from it need about 250 bytes, so a replay needs at most 512 MiB.
pub const MAX_RECORDS: u64 = 1 << 21;

/// Counts of records that were skipped or clipped, or for which an assumption was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub writes: u64,
    /// Readahead of the recorded system.
    pub ahead: u64,
    /// Reads of zero bytes, or that began at or after the end of their file.
    pub empty: u64,
    /// Reads that ended after the end of their file.
    pub clipped: u64,
    /// Files without a recorded size.
    pub unsized_files: u64,
    /// Reads, faults and hints of files that were not selected.
    pub elsewhere: u64,
    /// Faults of which only the first page is replayed, because there are too many pages in all.
    pub cut_scans: u64,
    /// Whether records were left out because the user's limit was reached.
    pub cut: bool,
}

#[derive(Clone, Debug)]
pub struct LoadedTrace {
    /// The trace, as the user named it.
    pub name: String,
    pub header: Header,
    /// The size of each file that is read, in bytes.
    pub files: Vec<u64>,
    /// The names of these files in the trace.
    pub names: Vec<String>,
    /// The file of each open description.
    pub opens: Vec<u32>,
    pub(super) records: Vec<KeptRecord>,
    pub counts: Counts,
    /// Start of the first record that is replayed.
    pub first_ns: u64,
    /// Whether every replayed record has a start, and every read and touch also an end.
    pub has_starts: bool,
    /// Whether every replayed read and touch has an end.
    pub has_ends: bool,
    /// Whether any record waits for others.
    pub has_deps: bool,
}

/// Selects the part of a trace that is replayed; by default the whole trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Only the first records.
    pub limit: Option<u64>,
    /// Only records of files whose name contains this text (case matters).
    pub only: Option<String>,
    /// Only records of files with one of these names.
    pub files: Option<Arc<BTreeSet<String>>>,
}

impl Part {
    fn has(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only))
            && self.files.as_ref().is_none_or(|files| files.contains(name))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadOfFile {
    pub bytes: u64,
    /// Sum of the durations of all reads; `None` if the trace has no times.
    pub time_ns: Option<u64>,
}

/// Reads the part of a trace that `part` selects. `name` is the trace's name in messages.
/// Returns an error if the trace cannot be read, has more than [`MAX_RECORDS`] records, has no read that can be replayed, or if its times
/// are too far apart.
pub fn load(name: &str, import: Import, part: &Part) -> Result<LoadedTrace, TraceError> {
    load_at_most(MAX_RECORDS, name, import, part)
}

fn load_at_most(
    most: u64,
    name: &str,
    import: Import,
    part: &Part,
) -> Result<LoadedTrace, TraceError> {
    let mut loading = Loading::default();
    for item in import.items {
        match item? {
            Item::File(file) => {
                loading.wanted.push(part.has(&file.name));
                loading.sizes.push((file.size, 0));
                loading.names.push(file.name);
            }
            Item::Record(_)
                if part
                    .limit
                    .is_some_and(|limit| loading.records.len() as u64 >= limit) =>
            {
                loading.counts.cut = true;
                break;
            }
            Item::Record(_) if loading.records.len() as u64 == most => {
                let what = format!("more than {most} records");
                return Err(whole(
                    name,
                    what,
                    "replay its first part with --records 1000000",
                ));
            }
            Item::Record(record) => loading.take(name, record)?,
        }
    }
    loading.finish(name, import.header)
}

fn whole(name: &str, what: impl Into<String>, remedy: &str) -> TraceError {
    TraceError::new(Path::new(name), TracePosition::Whole, what, remedy)
}

#[derive(Default)]
struct Loading {
    /// For each file of the trace: its size if it is recorded, and the largest end of a record.
    sizes: Vec<(Option<u64>, u64)>,
    names: Vec<String>,
    /// For each file of the trace: whether it is replayed.
    wanted: Vec<bool>,
    /// Open descriptions by the trace's number and the file.
    opens: HashMap<(u32, u32), u32>,
    files_of_opens: Vec<u32>,
    records: Vec<KeptRecord>,
    counts: Counts,
}

impl Loading {
    fn take(&mut self, name: &str, record: Record) -> Result<(), TraceError> {
        let Record {
            op,
            file,
            open,
            thread,
            offset,
            len,
            returned,
            start_ns,
            end_ns,
            flags,
            after,
        } = record;
        // The returned length shows the end of a file better than the requested length.
        let end = offset.saturating_add(
            returned
                .unwrap_or(len)
                .min(len)
                .max(u64::from(op == Op::Fault)),
        );
        if let Some((_, seen)) = self.sizes.get_mut(file as usize)
            && !matches!(op, Op::Hint(_))
        {
            *seen = (*seen).max(end);
        }
        let wanted = self.wanted.get(file as usize).is_some_and(|wanted| *wanted);
        let is_metadata = flags.has(Flags::METADATA);
        let what = match op {
            Op::Write => What::Nothing,
            _ if !wanted => What::Nothing,
            _ if flags.has(Flags::AHEAD) => What::Nothing,
            Op::Read => What::Read,
            Op::Fault => What::Touch,
            Op::Hint(advice) => What::Hint(advice),
        };
        self.counts.writes += u64::from(op == Op::Write);
        self.counts.ahead +=
            u64::from(op != Op::Write && wanted && what == What::Nothing && !is_metadata);
        self.counts.elsewhere += u64::from(op != Op::Write && !wanted && !is_metadata);
        let fresh = self.files_of_opens.len() as u32;
        let number = *self.opens.entry((open, file)).or_insert(fresh);
        if number == fresh {
            if fresh == MAX_IDS {
                let what = format!("more than {MAX_IDS} open descriptions");
                return Err(whole(
                    name,
                    what,
                    "replay its first part with --records 1000000",
                ));
            }
            self.files_of_opens.push(file);
        }
        let executable = flags.has(Flags::EXECUTABLE);
        let direct = flags.has(Flags::DIRECT);
        self.records.push(KeptRecord {
            what,
            open: number,
            thread,
            offset,
            len,
            start_ns,
            end_ns,
            executable,
            direct,
            after,
        });
        Ok(())
    }

    fn finish(mut self, name: &str, header: Header) -> Result<LoadedTrace, TraceError> {
        self.clip();
        self.counts.cut_scans =
            super::scans::read_through(&mut self.records, super::scans::MAX_PAGES);
        let has_deps = self.records.iter().any(|r| !r.after.is_empty());
        if !has_deps {
            self.records.retain(|r| r.what != What::Nothing);
        }
        let demands = |r: &&KeptRecord| matches!(r.what, What::Read | What::Touch);
        if !self.records.iter().any(|r| demands(&r)) {
            let Counts {
                writes,
                ahead,
                empty,
                elsewhere,
                cut,
                ..
            } = self.counts;
            let is_sampled = header.sampled_ns.is_some() && !cut;
            let what = match writes + ahead + empty + elsewhere {
                0 if is_sampled => "no read waited".to_string(),
                0 if !cut => "nothing was read".to_string(),
                _ => format!(
                    "no read can be replayed ({writes} writes, {ahead} readahead reads, {empty} empty reads)"
                ),
            };
            let remedy = if elsewhere > 0 {
                "give --only a part of a file name in the trace ('foreread trace export --to csv' lists the names)"
            } else if cut {
                "replay more of the trace with a larger --records"
            } else if is_sampled {
                "the files were in the page cache: record with a cold cache, or as root"
            } else {
                "name a trace with demand reads"
            };
            return Err(whole(name, what, remedy));
        }
        let (files, names) = self.used_files();
        let replayed = || self.records.iter().filter(|r| r.what != What::Nothing);
        let has_starts = replayed().all(|r| r.start_ns.is_some());
        let has_ends = has_starts && replayed().filter(demands).all(|r| r.end_ns.is_some());
        let first_ns = replayed().filter_map(|r| r.start_ns).min().unwrap_or(0);
        let last_ns = replayed()
            .filter_map(|r| r.end_ns.or(r.start_ns))
            .max()
            .unwrap_or(0);
        if last_ns - first_ns > super::MAX_SPAN_NS {
            return Err(whole(
                name,
                "more than 400 days from its first to its last record",
                "cut it in parts",
            ));
        }
        let (records, counts) = (self.records, self.counts);
        let name = name.to_string();
        Ok(LoadedTrace {
            name,
            header,
            files,
            names,
            opens: self.files_of_opens,
            records,
            counts,
            first_ns,
            has_starts,
            has_ends,
            has_deps,
        })
    }

    /// Clips every record to its file, when all sizes are known.
    fn clip(&mut self) {
        for record in &mut self.records {
            let (told, seen) = self.sizes[self.files_of_opens[record.open as usize] as usize];
            let size = told.unwrap_or(seen);
            let room = size.saturating_sub(record.offset);
            match record.what {
                What::Nothing => {}
                // A hint without a length applies to the rest of the file.
                What::Hint(_) => {
                    record.offset = record.offset.min(size);
                    record.len = if record.len == 0 {
                        room
                    } else {
                        record.len.min(room)
                    };
                }
                What::Read | What::Touch
                    if room == 0 || (record.what == What::Read && record.len == 0) =>
                {
                    record.what = What::Nothing;
                    self.counts.empty += 1;
                }
                What::Read | What::Touch => {
                    self.counts.clipped +=
                        u64::from(record.what == What::Read && record.len > room);
                    record.len = record.len.min(room);
                }
            }
        }
    }

    /// The sizes and names of the replayed files. Open descriptions are renumbered.
    fn used_files(&mut self) -> (Vec<u64>, Vec<String>) {
        let mut used = vec![false; self.sizes.len()];
        for record in self.records.iter().filter(|r| r.what != What::Nothing) {
            used[self.files_of_opens[record.open as usize] as usize] = true;
        }
        let (mut files, mut names) = (Vec::new(), Vec::new());
        let mut numbers = vec![0_u32; self.sizes.len()];
        for (file, (told, seen)) in self
            .sizes
            .iter()
            .enumerate()
            .filter(|(file, _)| used[*file])
        {
            numbers[file] = files.len() as u32;
            files.push(told.unwrap_or(*seen));
            names.push(std::mem::take(&mut self.names[file]));
            self.counts.unsized_files += u64::from(told.is_none());
        }
        for file in &mut self.files_of_opens {
            *file = numbers[*file as usize];
        }
        (files, names)
    }
}

impl LoadedTrace {
    /// Returns how many bytes of each file were read, in the order of [`LoadedTrace::names`].
    pub fn read_of_files(&self) -> Vec<ReadOfFile> {
        let mut files = vec![ReadOfFile::default(); self.files.len()];
        for record in self
            .records
            .iter()
            .filter(|r| matches!(r.what, What::Read | What::Touch))
        {
            let file = &mut files[self.opens[record.open as usize] as usize];
            file.bytes += record.len;
            if let Some((start, end)) = record.start_ns.zip(record.end_ns) {
                file.time_ns = Some(file.time_ns.unwrap_or(0) + end.saturating_sub(start));
            }
        }
        files
    }

    /// Returns the time from the start of the first read to the end of the last read, if the trace has starts and ends; of a sampled trace,
    /// the time of the whole program.
    pub fn seconds(&self) -> Option<f64> {
        if let Some(ns) = self.header.sampled_ns {
            return Some(ns as f64 / 1e9).filter(|_| !self.counts.cut);
        }
        let ends = self.records.iter().map(|record| record.end_ns).max()?;
        let last = ends.filter(|_| self.has_starts && self.has_ends)?;
        Some(last.saturating_sub(self.first_ns) as f64 / 1e9)
    }

    /// Returns the time in which at least one read waited. A sampled trace has only some of the waits.
    pub fn waited_s(&self) -> f64 {
        let mut times =
            Vec::from_iter((self.records.iter()).filter_map(|r| r.start_ns.zip(r.end_ns)));
        times.sort_unstable();
        let mut last_ns = 0;
        let waits = times.into_iter().map(|(start_ns, end_ns)| {
            let began_ns = start_ns.max(last_ns);
            last_ns = last_ns.max(end_ns);
            end_ns.saturating_sub(began_ns)
        });
        waits.sum::<u64>() as f64 / 1e9
    }

    /// Returns the numbers of the files that were read, in the order of their first reads.
    pub fn files_in_order(&self) -> Vec<usize> {
        let mut seen = vec![false; self.files.len()];
        let demand = |r: &&KeptRecord| matches!(r.what, What::Read | What::Touch);
        let files = self.records.iter().filter(demand);
        files
            .map(|record| self.opens[record.open as usize] as usize)
            .filter(|file| !std::mem::replace(&mut seen[*file], true))
            .collect()
    }

    /// Returns whether most reads of the trace go through the page cache: only then can another process read ahead for the traced program.
    pub fn is_through_page_cache(&self) -> bool {
        let reads = || self.records.iter().filter(|r| r.what == What::Read);
        let direct = reads().filter(|r| r.direct).map(|r| r.len);
        2 * direct.sum::<u64>() <= reads().map(|r| r.len).sum::<u64>()
    }

    /// Whether the trace contains the calls of a program.
    pub(super) fn is_program(&self) -> bool {
        self.header.level == Level::Program
    }

    /// The cache page that fits: a sector if the trace has requests of a device in sectors, otherwise the page of a
    /// page cache.
    pub(super) fn page_bytes(&self) -> u64 {
        let reads = || self.records.iter().filter(|r| r.what == What::Read);
        let whole = |unit: u64| reads().all(|r| r.offset % unit == 0 && r.len % unit == 0);
        if !self.is_program() && whole(SECTOR_BYTES) && !whole(Workload::PAGE_BYTES) {
            return SECTOR_BYTES;
        }
        Workload::PAGE_BYTES
    }
}

/// The unit of a disk's requests.
const SECTOR_BYTES: u64 = 512;

#[cfg(test)]
mod tests;
