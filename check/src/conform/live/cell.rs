//! Checks one combination of file system, `read_ahead_kb` and access method (reads or mappings): one thread records the kernel, and other
//! threads compare the recording at the same time.
//!
//! ```text
//!   recorder, on one CPU ──► Tee ─┬─pipe─► check, level full
//!                                 ├─pipe─► check, level pages     (if there are neither large folios nor faults)
//!                                 └──────► DIR/ext4-128-SEED-reads.jsonl.gz
//! ```
//! A recording is compared while it is made, so the whole recording is never in memory.

use super::disk::Disk;
use super::file_system::FileSystem;
use super::player::Helper;
use super::record::{Header, RecordCounts, Recorder, kernel};
use super::{LiveError, RETRY, patterns};
use crate::conform::linux::{self, Level, Verdict};
use crate::conform::recording::{CheckError, PAGE};
use flate2::Compression;
use flate2::write::GzEncoder;
use foreread_os::threads::spawn_scoped;
use foreread_report::progress::Progress;
use foreread_sim::rng::{Rng, mix};
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use serde::Serialize;
use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind, PipeWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Scope, ScopedJoinHandle, sleep};
use std::time::{Duration, Instant};

/// The requested tests: every combination of the values in the first three fields.
#[derive(Clone, Debug)]
pub struct CellSelection {
    pub file_systems: Vec<FileSystem>,
    /// The values of `read_ahead_kb`.
    pub read_ahead_kib: Vec<u64>,
    /// Without mappings (reads and hints), or with them (page faults and readahead(2), with reads in between).
    pub mmap: Vec<bool>,
    pub operations: u64,
    pub seed: u64,
    /// A folder for the recordings.
    pub keep: Option<PathBuf>,
    /// Skips file systems that this machine cannot mount, with a message. Otherwise they are errors.
    pub what_there_is: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    pub file_system: FileSystem,
    pub read_ahead_kib: u64,
    pub mmap: bool,
}

impl Cell {
    /// The name for progress and differences.
    fn name(&self) -> String {
        let Cell {
            file_system,
            read_ahead_kib,
            mmap,
        } = self;
        let faults = if *mmap { ", page faults" } else { "" };
        format!("{} at {read_ahead_kib} KiB{faults}", file_system.name())
    }

    /// Random numbers that depend only on the seed and the cell.
    fn rng(&self, seed: u64) -> Rng {
        let salt =
            mix(self.read_ahead_kib ^ (self.file_system as u64) << 32 ^ u64::from(self.mmap) << 40);
        Rng::new(mix(seed) ^ salt)
    }
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct CellOutcome {
    /// The name on the command line: `ext4`, `ext4-journal`, `xfs-16k`.
    pub file_system: &'static str,
    pub block_bytes: u64,
    /// The device's readahead as it was set; the kernel rounds it to whole pages.
    pub read_ahead_kb: u64,
    /// Page faults and readahead(2) are included.
    pub mmap: bool,
    /// The file system creates large folios.
    pub large_folios: bool,
    /// Number of executed, recorded and compared operations.
    pub operations: u64,
    /// Number of compared decisions of the kernel.
    pub decisions: u64,
    /// Number of episodes with a difference, at either level, while memory was not short.
    pub divergences: u64,
    /// Number of episodes in which the kernel was short of memory.
    pub pressure_episodes: u64,
    /// How many of these have a difference.
    pub pressure_differences: u64,
    /// The level `pages` was compared, too.
    pub pages: bool,
    /// Number of episodes that ended early because something else changed their pages.
    pub cut_episodes: u64,
    /// The first difference in words.
    pub first: Option<String>,
    /// The first difference under memory pressure.
    pub first_under_pressure: Option<String>,
    /// Wall-clock time.
    pub seconds: f64,
}

#[derive(Clone, Debug, Default)]
pub struct CellOutcomes {
    pub cells: Vec<CellOutcome>,
    pub left_out: Vec<String>,
}

/// Records and compares all requested combinations. Returns an error if this machine cannot run the check, if a temporary file of the check
/// could not be used, or if `stop` was set.
pub fn check(
    wanted: &CellSelection,
    stop: &AtomicBool,
    progress: &mut dyn Progress,
) -> Result<CellOutcomes, LiveError> {
    ready(wanted)?;
    let mut all = CellOutcomes::default();
    let mmap = mappings(wanted, &mut all.left_out)?;
    let cells = wanted.file_systems.len() * wanted.read_ahead_kib.len() * mmap.len();
    let mut nth = 0;
    for &file_system in &wanted.file_systems {
        let disk = match file_system.ready().and_then(|()| Disk::new(file_system)) {
            Ok(disk) => disk,
            Err(LiveError::Unsupported(why)) if wanted.what_there_is => {
                nth += wanted.read_ahead_kib.len() * mmap.len();
                all.left_out.push(format!("{}: {why}", file_system.name()));
                continue;
            }
            Err(error) => return Err(error),
        };
        for &read_ahead_kib in &wanted.read_ahead_kib {
            for &mmap in &mmap {
                nth += 1;
                let cell = Cell {
                    file_system,
                    read_ahead_kib,
                    mmap,
                };
                progress.stage(&format!("{nth} of {cells}: {}", cell.name()));
                all.cells
                    .push(compare(&disk, cell, wanted, stop, progress)?);
            }
        }
    }
    match all.left_out.first() {
        Some(why) if all.cells.is_empty() => Err(LiveError::Cannot(why.clone())),
        _ => Ok(all),
    }
}

/// With and without mappings, if the helper that maps is available.
fn mappings(wanted: &CellSelection, left_out: &mut Vec<String>) -> Result<Vec<bool>, LiveError> {
    if !wanted.mmap.contains(&true) || Helper::start()?.is_some() {
        return Ok(wanted.mmap.clone());
    }
    let why = "page faults and readahead(2): they need python3 with ctypes";
    if !wanted.mmap.contains(&false) {
        return Err(LiveError::Unsupported(format!("{why}; use --mmap no")));
    }
    left_out.push(why.to_string());
    Ok(wanted.mmap.iter().copied().filter(|mmap| !mmap).collect())
}

/// Checks that this machine and this user have everything needed, before anything is created.
fn ready(wanted: &CellSelection) -> Result<(), LiveError> {
    if !rustix::process::geteuid().is_root() {
        let what = "checking the running kernel needs root, for tracepoints and a loop device";
        return Err(LiveError::Cannot(format!(
            "{what}; as a user, compare a recording: conform linux --check REC"
        )));
    }
    let page = foreread_os::host::memory::page_bytes();
    if page != PAGE {
        return Err(LiveError::Cannot(format!(
            "this kernel has pages of {page} bytes, but linux-6.18 is defined for pages of {PAGE} bytes"
        )));
    }
    if !wanted.what_there_is {
        wanted.file_systems.iter().try_for_each(|fs| fs.ready())?;
    }
    Ok(())
}

/// Records in another thread, on one CPU, and monitors it.
fn compare(
    disk: &Disk,
    cell: Cell,
    wanted: &CellSelection,
    stop: &AtomicBool,
    progress: &mut dyn Progress,
) -> Result<CellOutcome, LiveError> {
    let (began, done) = (Instant::now(), AtomicU64::new(0));
    let mut found = std::thread::scope(|scope| {
        let record = || {
            let tell = |operations| {
                done.store(operations, Ordering::Relaxed);
                if stop.load(Ordering::Relaxed) {
                    Err(LiveError::Ended)
                } else {
                    Ok(())
                }
            };
            one(scope, disk, cell, wanted, &tell)
        };
        let recorder = spawn_scoped(scope, "foreread-record", record)
            .map_err(|e| LiveError::io("recording", e))?;
        while !recorder.is_finished() {
            sleep(Duration::from_millis(50));
            progress.step(done.load(Ordering::Relaxed), wanted.operations);
        }
        recorder
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    found.seconds = began.elapsed().as_secs_f64();
    Ok(found)
}

/// Records one cell.
fn one<'scope>(
    scope: &'scope Scope<'scope, '_>,
    disk: &Disk,
    cell: Cell,
    wanted: &CellSelection,
    tell: &dyn Fn(u64) -> Result<(), LiveError>,
) -> Result<CellOutcome, LiveError> {
    let Cell {
        file_system,
        read_ahead_kib,
        mmap,
    } = cell;
    let (any, one) = (affinity(None)?, one_cpu());
    // The helper must run on the same CPU as this thread: pages in another CPU's batches could not be dropped.
    affinity(Some(&one))?;
    let helper = if mmap { Helper::start()? } else { None };
    let mut recorder = Recorder::new(disk, helper)?;
    // Without readahead no large folio would appear.
    disk.set_read_ahead(128)?;
    let large_folios = recorder.large_folios(file_system.min_order())?;
    let ra_pages = disk.set_read_ahead(read_ahead_kib)?;
    let mut found = CellOutcome {
        file_system: file_system.name(),
        block_bytes: file_system.block_bytes(),
        read_ahead_kb: read_ahead_kib,
        mmap,
        large_folios,
        pages: !large_folios && !mmap,
        ..CellOutcome::default()
    };
    let header = header(disk, cell, wanted, &found, ra_pages)?;
    let levels: &[Level] = if found.pages {
        &[Level::Full, Level::Pages]
    } else {
        &[Level::Full]
    };
    let part = if mmap { "faults" } else { "reads" };
    let keep = wanted
        .keep
        .as_deref()
        .map(|folder| kept(folder, &header, read_ahead_kib, part));
    affinity(Some(&any))?;
    let (mut tee, checks) = Tee::new(scope, levels, keep.as_deref())?;
    let mut rng = cell.rng(wanted.seed);
    let draw = if mmap {
        patterns::faults
    } else {
        patterns::reads
    };
    affinity(Some(&one))?;
    let written = recorder.record(
        &mut tee,
        &header,
        wanted.operations,
        || draw(&mut rng),
        &mut |n| tell(n),
    );
    affinity(Some(&any))?;
    let ended = tee.end();
    found.take_in(part, checks, written, ended)?;
    Ok(found)
}

fn header(
    disk: &Disk,
    cell: Cell,
    wanted: &CellSelection,
    found: &CellOutcome,
    ra_pages: u64,
) -> Result<Header, LiveError> {
    Ok(Header {
        v: 1,
        kernel: kernel(),
        fs: found.file_system,
        page_size: PAGE,
        ra_pages,
        io_pages: disk.io_pages()?,
        large_folios: found.large_folios,
        max_order: max_order(found.large_folios),
        min_order: cell.file_system.min_order(),
        seed: wanted.seed,
        mmap: cell.mmap,
    })
}

impl CellOutcome {
    /// Evaluates the checks of one recording. If a check failed, that is the reason why writing failed.
    fn take_in(
        &mut self,
        part: &str,
        checks: Vec<(Level, Check<'_>)>,
        written: Result<RecordCounts, LiveError>,
        ended: Result<(), LiveError>,
    ) -> Result<(), LiveError> {
        for (nth, (level, check)) in checks.into_iter().enumerate() {
            let verdict = check
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let verdict = match (&written, verdict) {
                // A recording that ended early proves nothing.
                (Err(LiveError::Ended | LiveError::Cannot(_)), _) => continue,
                (_, verdict) => verdict?,
            };
            if nth == 0 {
                self.operations += verdict.operations;
                self.decisions += verdict.decisions;
            }
            self.divergences += verdict.divergences;
            self.pressure_episodes = self.pressure_episodes.max(verdict.pressure_episodes);
            self.pressure_differences += verdict.pressure_differences;
            let level = if level == Level::Full {
                "full"
            } else {
                "pages"
            };
            let told = |first: Option<String>| {
                first.map(|first| format!("{part}, level {level}, {first}"))
            };
            self.first = self.first.take().or_else(|| told(verdict.first));
            self.first_under_pressure = self
                .first_under_pressure
                .take()
                .or_else(|| told(verdict.first_under_pressure));
        }
        self.cut_episodes += written?.cut;
        ended
    }
}

fn kept(folder: &Path, header: &Header, read_ahead_kib: u64, part: &str) -> PathBuf {
    folder.join(format!(
        "{}-{read_ahead_kib}-{}-{part}.jsonl.gz",
        header.fs, header.seed
    ))
}

/// The largest folio order: a huge page, if the kernel supports huge pages.
fn max_order(large: bool) -> u32 {
    if large && !foreread_os::host::Host::here().has_huge_pages() {
        0
    } else {
        9
    }
}

fn one_cpu() -> CpuSet {
    let mut set = CpuSet::new();
    set.set(sched_getcpu());
    set
}

/// Sets the CPUs of this thread and its children; returns the previous ones.
fn affinity(set: Option<&CpuSet>) -> Result<CpuSet, LiveError> {
    let failed = |error: rustix::io::Errno| LiveError::io("sched_setaffinity", error);
    if let Some(set) = set {
        sched_setaffinity(None, set).map_err(failed)?;
    }
    rustix::thread::sched_getaffinity(None).map_err(failed)
}

// Sends a recording to all checks that compare it, and optionally to a file.

/// A check that runs while the recording is made.
pub(super) type Check<'scope> = ScopedJoinHandle<'scope, Result<Verdict, CheckError>>;

/// Writes one text to several readers.
pub(super) struct Tee {
    pipes: Vec<BufWriter<PipeWriter>>,
    file: Option<GzEncoder<BufWriter<File>>>,
}

impl Tee {
    #[allow(clippy::type_complexity, reason = "a name would say less")]
    pub fn new<'scope>(
        scope: &'scope Scope<'scope, '_>,
        levels: &[Level],
        keep: Option<&Path>,
    ) -> Result<(Tee, Vec<(Level, Check<'scope>)>), LiveError> {
        let (mut pipes, mut checks) = (Vec::new(), Vec::new());
        for &level in levels {
            let (reader, writer) = std::io::pipe().map_err(|e| LiveError::io("pipe", e))?;
            pipes.push(BufWriter::with_capacity(1 << 16, writer));
            let reader = BufReader::with_capacity(1 << 16, reader);
            let check = spawn_scoped(scope, "foreread-check", move || {
                linux::check(reader, level, |_| {})
            });
            checks.push((level, check.map_err(|e| LiveError::io("checking", e))?));
        }
        let made = |path: &Path| {
            let what = format!("cannot write the recording {}", path.display());
            let remedy = "choose another folder, or remove the existing recording";
            foreread_os::output::growing(path, false).map_err(|error| LiveError::Io {
                what,
                error,
                remedy,
            })
        };
        let file = keep.map(made).transpose()?;
        let file = file.map(|file| GzEncoder::new(BufWriter::new(file), Compression::fast()));
        Ok((Tee { pipes, file }, checks))
    }

    /// Sends the remaining text to all readers of the recording, and closes the file and the pipes to the readers.
    pub fn end(self) -> Result<(), LiveError> {
        let failed = |error| LiveError::Io {
            what: "the recording cannot be written".into(),
            error,
            remedy: RETRY,
        };
        for mut pipe in self.pipes {
            closed(pipe.flush()).map_err(failed)?;
        }
        let Some(file) = self.file else { return Ok(()) };
        file.finish()
            .and_then(|mut file| file.flush())
            .map_err(failed)
    }
}

impl Write for Tee {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        for pipe in &mut self.pipes {
            closed(pipe.write_all(text))?;
        }
        if let Some(file) = &mut self.file {
            file.write_all(text)?;
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A check that has stopped reports the reason itself.
fn closed(wrote: std::io::Result<()>) -> std::io::Result<()> {
    wrote.or_else(|error| {
        if error.kind() == ErrorKind::BrokenPipe {
            Ok(())
        } else {
            Err(error)
        }
    })
}
