//! Turns a recorded trace into a workload that the simulator and the engine can run.
//!
//! ```text
//!   items ──load──► Loaded ──as_mode──► Replay: a Workload and its notes
//!           what is replayed  │ asap    each thread's next read when the previous one has ended    lanes.rs
//!           and what is not,  │ closed  like asap, but after the recorded pause                    lanes.rs
//!           sizes of files    │ open    each read at its recorded time, even if others still wait   here
//!                             └ deps    after what each record waits for, and its delay            here
//! ```
//!
//! A mode determines how the reads are timed. Times that were measured in different modes cannot be compared, so all
//! rows of a table have the same mode. A replay never writes. A replay contains only reads that the program itself requested: requests for
//! readahead in the trace are left out, and the report states their number.

mod infer;
mod lanes;
mod load;
mod notes;
mod scans;

use foreread_core::event::Advice;
use foreread_os::failure::Failure;
use foreread_os::threads::Task;
use foreread_report::number::{amount, plural};
use foreread_sim::workload::{Job, Link, Request, Workload};
use foreread_trace::After;
pub use load::{LoadedTrace, MAX_RECORDS, Part, ReadOfFile, load};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of reads of one open file description that are in flight in mode open. Further reads wait until a read has ended, and
/// their latency includes this wait.
pub const MAX_OUTSTANDING: u32 = 1 << 14;
/// Maximum time from the first to the last record, in nanoseconds: 400 days, longer than any known recording.
pub const MAX_SPAN_NS: u64 = 400 * 24 * 3600 * 1_000_000_000;
/// The largest factor by which recorded pauses can be multiplied.
pub const MAX_THINK: f64 = 100.0;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum What {
    #[default]
    Read,
    /// A touch of a page of a mapping.
    Touch,
    /// A hint.
    Hint(Advice),
    /// A skipped record, kept for the records that wait for it.
    Nothing,
}

/// A record in the compact form in which a replay keeps it in memory.
#[derive(Clone, Debug, Default)]
struct KeptRecord {
    what: What,
    /// An index into [`LoadedTrace::opens`].
    open: u32,
    thread: u32,
    offset: u64,
    /// Length in bytes. For a touch: how many of the bytes mapped with its page are read, see `scans.rs`.
    len: u64,
    start_ns: Option<u64>,
    end_ns: Option<u64>,
    executable: bool,
    /// Whether it bypasses the page cache (O_DIRECT).
    direct: bool,
    after: Vec<After>,
}

/// The note for a replay whose waits are inferred.
const INFERRED: &str = "The trace does not say what its reads wait for: each read waits for all reads that had ended before it began";

/// How a replay is timed. The doc comments of the variants are the help of `--mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// As fast as possible: a reader's next read begins when the one before has ended
    #[value(alias = "afap")]
    Asap,
    /// Like asap, but after the recorded pause between the two
    Closed,
    /// Each read at its recorded time; latency counts from then
    Open,
    /// Each read starts once what it depends on has happened and its recorded delay has passed
    Deps,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Mode; 4] = [Mode::Asap, Mode::Closed, Mode::Open, Mode::Deps];

    pub fn name(self) -> &'static str {
        match self {
            Mode::Asap => "asap",
            Mode::Closed => "closed",
            Mode::Open => "open",
            Mode::Deps => "deps",
        }
    }

    /// Name of the mode in JSON, where `asap` still has its old name `afap`.
    pub fn json_name(self) -> &'static str {
        if self == Mode::Asap {
            "afap"
        } else {
            self.name()
        }
    }

    /// Finds a mode by its name in JSON.
    pub fn of_json(name: &str) -> Option<Mode> {
        Mode::ALL.into_iter().find(|mode| mode.json_name() == name)
    }
}

/// A trace that is ready to be replayed.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The reads and their timing.
    pub workload: Workload,
    /// How the reads are timed.
    pub mode: Mode,
    /// The factor on recorded pauses; `None` if pauses are not used.
    pub think: Option<f64>,
    /// Notes about the replay, a sentence each.
    pub notes: Vec<String>,
    pub loaded: Arc<LoadedTrace>,
}

impl Replay {
    /// Prepares a trace for a replay in `mode` or, if no mode is given, in the best mode that the trace allows. The recorded pauses are
    /// multiplied by `think`.
    /// Returns an error if the trace lacks times or dependencies that the mode needs.
    pub fn of(
        loaded: &Arc<LoadedTrace>,
        mode: Option<Mode>,
        think: Option<f64>,
    ) -> Result<Replay, Failure> {
        let (best, why) = best(loaded);
        let mode_used = mode.unwrap_or(best);
        let factor = factor(loaded, mode_used, think)?;
        // The trace itself determines how many reads of the last two are in flight at the same time.
        let (jobs, overlap) = match mode_used {
            Mode::Asap | Mode::Closed => lanes::jobs(loaded, mode_used, factor.unwrap_or(0.0)),
            Mode::Open => (timed(loaded), None),
            Mode::Deps => (dependent(loaded, factor.unwrap_or(1.0))?, None),
        };
        let files = loaded.files.clone();
        let workload = Workload {
            name: loaded.name.clone(),
            files,
            listed: false,
            page_bytes: loaded.page_bytes(),
            jobs,
        };
        let mut notes = notes::all(
            loaded,
            mode_used,
            factor,
            mode.is_none().then_some(why),
            overlap,
        );
        if mode_used == Mode::Deps && !loaded.has_deps {
            notes.push(INFERRED.to_string());
        }
        Ok(Replay {
            workload,
            mode: mode_used,
            think: factor,
            notes,
            loaded: loaded.clone(),
        })
    }
}

/// The best mode that a trace allows, and why.
fn best(loaded: &LoadedTrace) -> (Mode, &'static str) {
    match () {
        () if loaded.has_deps => (Mode::Deps, "the trace says what each record waits for"),
        () if loaded.has_ends && loaded.is_program() => (
            Mode::Closed,
            "the trace has the calls of a program with their starts and ends",
        ),
        () if loaded.header.sampled_ns.is_some() => (
            Mode::Asap,
            "the reads were sampled, so pauses are not known",
        ),
        () if loaded.has_ends => (
            Mode::Asap,
            "the trace may mix the requests of several programs, so its pauses may not be those of one program",
        ),
        () => (
            Mode::Asap,
            "the trace does not say when reads ended, so the think time is unknown",
        ),
    }
}

/// The factor on pauses, if the mode has pauses.
fn factor(loaded: &LoadedTrace, mode: Mode, asked: Option<f64>) -> Result<Option<f64>, Failure> {
    let refuse = |what: &str, remedy: &str| {
        let place = format!("{}, mode {}", loaded.name, mode.name());
        Err(Failure::input(what, place, remedy))
    };
    if asked.is_some_and(|think| !(0.0..=MAX_THINK).contains(&think)) {
        return refuse(
            "the factor of --think is below 0 or above 100",
            "use --think 0, 0.5, 1 or 2",
        );
    }
    match (mode, asked) {
        (Mode::Closed, _) if !loaded.has_ends => refuse(
            "the think time is unknown, because the trace does not say when reads ended",
            "use --mode asap",
        ),
        (Mode::Open, _) if !loaded.has_starts => refuse(
            "the trace does not say when each read began",
            "use --mode asap",
        ),
        (Mode::Deps, _) if !loaded.has_deps && !loaded.has_ends => refuse(
            "the trace says neither what its records wait for nor when they ended",
            "use --mode asap",
        ),
        (Mode::Open, Some(_)) => refuse(
            "there is no pause to lengthen in mode open",
            "leave --think out",
        ),
        (Mode::Asap, Some(think)) if think > 0.0 && !loaded.has_starts => refuse(
            "there is no pause to lengthen, because the trace has no times",
            "leave --think out",
        ),
        (Mode::Open, None) => Ok(None),
        (Mode::Asap, think) => Ok(think.filter(|think| *think > 0.0)),
        (Mode::Closed | Mode::Deps, think) => Ok(Some(think.unwrap_or(1.0))),
    }
}

/// A pause multiplied by a factor.
fn scaled(ns: u64, factor: f64) -> u64 {
    // Times below 2^53 ns, 104 days, stay exact; a factor of 1 changes no time.
    if factor == 1.0 {
        ns
    } else {
        (ns as f64 * factor).round() as u64
    }
}

/// A job for each open description, with every request at its recorded time.
fn timed(loaded: &LoadedTrace) -> Vec<Job> {
    let mut of_open: Vec<Option<u32>> = vec![None; loaded.opens.len() * 2];
    let mut jobs: Vec<Job> = Vec::new();
    for record in loaded.records.iter() {
        if record.what == What::Nothing {
            continue;
        }
        let number = *of_open[record.open as usize * 2 + usize::from(record.executable)]
            .get_or_insert_with(|| {
                jobs.push(Job {
                    depth: MAX_OUTSTANDING,
                    timed: true,
                    ..record.job(loaded, Vec::new())
                });
                jobs.len() as u32 - 1
            });
        let think_ns = record.start_ns.unwrap_or(0) - loaded.first_ns;
        jobs[number as usize]
            .requests
            .extend(record.requests().map(|request| request.think(think_ns)));
    }
    jobs
}

/// A job for each record, which begins when the record's dependencies have ended. Skipped records end at once.
fn dependent(loaded: &LoadedTrace, factor: f64) -> Result<Vec<Job>, Failure> {
    let mut earliest: Vec<u64> = Vec::with_capacity(loaded.records.len());
    let mut jobs = Vec::with_capacity(loaded.records.len());
    let inferred = if loaded.has_deps {
        Vec::new()
    } else {
        infer::waits(&loaded.records)
    };
    for (number, record) in loaded.records.iter().enumerate() {
        let after = inferred.get(number).unwrap_or(&record.after);
        let links: Vec<Link> = (after.iter())
            .map(|after| Link {
                job: after.record as u32,
                end: after.end,
                delay_ns: scaled(after.delay_ns, factor),
            })
            .collect();
        let begin = links
            .iter()
            .map(|link| earliest[link.job as usize].saturating_add(link.delay_ns))
            .max();
        let begin = begin.unwrap_or(0);
        if begin > MAX_SPAN_NS {
            let place = format!("{}, record {}", loaded.name, jobs.len() + 1);
            return Err(Failure::input(
                "the delays add up to more than 400 days",
                place,
                "use --think 0, or the trace is damaged",
            ));
        }
        earliest.push(begin);
        jobs.push(Job {
            links,
            ..record.job(loaded, record.requests().collect())
        });
    }
    Ok(jobs)
}

impl KeptRecord {
    /// The requests of a record, without a pause: one for a read, one for each page of a touch, none for a skipped
    /// record.
    fn requests(&self) -> impl Iterator<Item = Request> {
        let one = match self.what {
            What::Read => Some(Request::read(self.offset, self.len)),
            What::Touch => Some(Request::touch(self.offset)),
            What::Hint(advice) => Some(Request::hint(advice, self.offset, self.len)),
            What::Nothing => None,
        };
        let more = if self.what == What::Touch {
            self.offset.saturating_add(self.len)
        } else {
            0
        };
        let next = self.offset - self.offset % Workload::PAGE_BYTES + Workload::PAGE_BYTES;
        one.into_iter().chain(
            (next..more)
                .step_by(Workload::PAGE_BYTES as usize)
                .map(Request::touch),
        )
    }

    /// A job with a separate open description.
    fn job(&self, loaded: &LoadedTrace, requests: Vec<Request>) -> Job {
        let file = loaded.opens[self.open as usize];
        Job {
            executable: self.executable,
            ..Job::new(file, self.open, requests)
        }
    }
}

// Lays out the files of a trace in one file, because a target is one file or device, but a trace may have thousands of files.
//
// ```text
//   trace   |--a--|  |---b---|  |c|
//   file    |--a--|..|---b---|..|c|......        each from a multiple of 1 MiB on, in the order of the trace
// ```

/// Files begin at multiples of this many bytes: no aligned readahead window crosses from one file into the next.
const GRAIN: u64 = 1 << 20;

/// The error if the target file is too small for the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the trace needs {} for {}", amount(*needs), plural(*files as u64, "file"))]
pub struct LayoutError {
    /// Bytes of all files of the trace.
    pub needs: u64,
    pub files: usize,
}

/// Converts a workload so that it reads one file of `size` bytes: the files of the workload are placed one after the
/// other in this file. A workload with a single file is not changed.
/// Returns an error if the workload's files do not fit into `size` bytes.
pub fn laid_out(workload: &Workload, size: u64) -> Result<Workload, LayoutError> {
    let (bases, end) = bases(&workload.files);
    if end > size {
        return Err(LayoutError {
            needs: end,
            files: workload.files.len(),
        });
    }
    let mut one = workload.clone();
    for job in &mut one.jobs {
        let base = bases[job.file as usize];
        job.file = 0;
        job.requests
            .iter_mut()
            .for_each(|request| request.offset += base);
    }
    one.files = vec![size];
    Ok(one)
}

/// For files of these sizes, returns the offset at which each file begins, and the offset at which the last file ends.
pub fn bases(files: &[u64]) -> (Vec<u64>, u64) {
    let mut end = 0_u64;
    let place = |file: &u64| {
        let base = end.div_ceil(GRAIN).saturating_mul(GRAIN);
        end = base.saturating_add(*file);
        base
    };
    (files.iter().map(place).collect(), end)
}

// Detects whether a recorded program reads the files of folders in listing order. For such a program, `foreread run`
// can read ahead the next files, which it knows from the folder listings.

const WALK_FILES: usize = 32;
/// Part of the files that a walk reads to their ends, and in the order of their folders.
const WALK_WHOLE: f64 = 0.8;
/// Most entries of a folder that a walk skips between two files: other kinds of files, and excluded ones.
const WALK_NEAR: usize = 8;
/// Most folders that are listed, and most entries of each.
const MAX_LISTED: usize = 256;
const MAX_ENTRIES: usize = 1 << 16;
/// Fewest files per folder on average: `run` lists a folder from its second file on.
const WALK_IN_FOLDER: usize = 4;

/// Returns whether the program of the trace reads the files of folders one after the other, each to its end, in the order of the folder
/// listings. For such a program, `foreread run` knows the next reads from the folder listings. A compiler also reads whole header files of
/// a folder, but not in the order of the listing: a compilation took a tenth longer under `foreread run` than without it.
pub fn is_walk(trace: &LoadedTrace) -> bool {
    let files = trace
        .names
        .iter()
        .zip(&trace.files)
        .zip(trace.read_of_files());
    let (mut count, mut whole, mut folders) = (0_usize, 0_usize, BTreeSet::new());
    for ((name, size), read) in files {
        count += 1;
        whole += usize::from(read.bytes >= *size);
        folders.insert(name.rsplit_once('/').map_or("", |(folder, _)| folder));
    }
    count >= WALK_FILES
        && whole as f64 >= WALK_WHOLE * count as f64
        && folders.len() * WALK_IN_FOLDER <= count
        && follows_folders(trace)
}

/// Whether most files come directly after the previous one in their folder's listing, or a few entries later. Folders that do not exist
/// on this machine are ignored.
fn follows_folders(trace: &LoadedTrace) -> bool {
    let mut listed: BTreeMap<&str, BTreeMap<OsString, usize>> = BTreeMap::new();
    let (mut asked, mut followed) = (0_usize, 0_usize);
    let names: Vec<(&str, &str)> = trace
        .files_in_order()
        .into_iter()
        .filter_map(|file| trace.names[file].rsplit_once('/'))
        .collect();
    for pair in names.windows(2) {
        let [(before, one), (folder, next)] = [pair[0], pair[1]];
        let is_new = !listed.contains_key(folder);
        if before != folder || is_new && listed.len() >= MAX_LISTED {
            continue;
        }
        if is_new {
            let Some(found) = places(folder) else { break };
            listed.insert(folder, found);
        }
        let places = &listed[folder];
        let place = |name: &str| places.get(OsStr::new(name));
        if let Some((one, next)) = place(one).zip(place(next)) {
            asked += 1;
            followed += usize::from((one + 1..=one + WALK_NEAR).contains(next));
        }
    }
    followed as f64 >= WALK_WHOLE * asked as f64
}

/// If listing a folder takes longer, its storage does not answer: a trace may name a mount whose server is gone.
const PATIENCE: Duration = Duration::from_secs(2);

/// The position of each entry in a folder's listing; empty if the folder does not exist. Returns `None` if the
/// storage does not answer.
fn places(folder: &str) -> Option<BTreeMap<OsString, usize>> {
    let folder = PathBuf::from(folder);
    if !folder.is_absolute() {
        return Some(BTreeMap::new());
    }
    let listed = Task::start("foreread-list", move || {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name());
        names.zip(0..MAX_ENTRIES).collect()
    });
    listed.ok()?.within(PATIENCE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreread_sim::workload::{Job, Request};

    #[test]
    fn files_lie_one_after_the_other() {
        let job = |file, open| Job::new(file, open, vec![Request::read(5, 10)]);
        let jobs = vec![job(1, 0), job(0, 1), job(2, 2)];
        let files = vec![GRAIN, GRAIN + 1, 15];
        let workload = Workload::of("t", files, jobs);
        let size = 3 * GRAIN + 15;
        let one = laid_out(&workload, size).expect("just large enough");
        let at: Vec<(u32, u32, u64)> = one
            .jobs
            .iter()
            .map(|j| (j.file, j.open, j.requests[0].offset))
            .collect();
        assert_eq!(
            (at, one.files),
            (
                vec![(0, 0, GRAIN + 5), (0, 1, 5), (0, 2, 3 * GRAIN + 5)],
                vec![size]
            )
        );
        let error = laid_out(&workload, size - 1).expect_err("too small");
        assert_eq!(error.to_string(), "the trace needs 3.15 MB for 3 files");
        let one = LayoutError { needs: 1, files: 1 };
        assert_eq!(one.to_string(), "the trace needs 1 B for 1 file");
    }
}
