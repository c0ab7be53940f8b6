//! One file system at one `read_ahead_kb`: recorded by one thread, compared by others at the same time.
//!
//! ```text
//!   recorder, on one CPU ──► Tee ─┬─pipe─► check, level full
//!                                 ├─pipe─► check, level pages     (where there are neither large folios nor faults)
//!                                 └──────► DIR/ext4-128-SEED-reads.jsonl.gz
//! ```
//! Reads and faults are two recordings, as a recording says in its first line which it is. Never: keeps a recording in memory.

use super::disk::{Disk, FileSystem};
use super::patterns;
use super::player::Helper;
use super::record::{Header, Recorder, Written, kernel};
use super::steps::Plan;
use super::trace::{self, Heard};
use super::{LiveError, RETRY};
use crate::conform::linux::{self, Level, Verdict};
use crate::conform::recording::{CheckError, PAGE};
use crate::draw::{Rng, mix};
use crate::report::Progress;
use flate2::{Compression, write::GzEncoder};
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use serde::Serialize;
use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind, PipeWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Scope, ScopedJoinHandle, sleep};
use std::time::{Duration, Instant};

/// One operation in so many needs the helper.
const FAULTS: u64 = 4;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// On which file systems.
    pub file_systems: Vec<FileSystem>,
    /// At which `read_ahead_kb`.
    pub read_ahead_kib: Vec<u64>,
    /// Operations of each combination.
    pub operations: u64,
    /// Of the patterns.
    pub seed: u64,
    /// A folder for the recordings.
    pub keep: Option<PathBuf>,
    /// What is listened to; all that the kernel tells when open.
    pub heard: Option<Heard>,
}

/// A combination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// On what.
    pub file_system: FileSystem,
    /// At which `read_ahead_kb`.
    pub read_ahead_kib: u64,
}

/// What one combination came to.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// `ext4`, `ext4-journal`, `xfs`.
    pub file_system: &'static str,
    /// The device's readahead.
    pub read_ahead_kb: u64,
    /// The file system makes large folios.
    pub large_folios: bool,
    /// Operations carried out, recorded and compared.
    pub operations: u64,
    /// Of these, page faults, readahead(2) and what goes with them; 0 without python3.
    pub fault_operations: u64,
    /// Decisions of the kernel that were compared.
    pub decisions: u64,
    /// Episodes with a difference, at either level.
    pub divergences: u64,
    /// The level `pages` was compared as well.
    pub pages: bool,
    /// What the kernel told: its decisions too, or the pages alone.
    pub heard: Heard,
    /// Episodes that were cut short because something else reached into them.
    pub cut_episodes: u64,
    /// The first difference in words.
    pub first: Option<String>,
    /// Wall-clock time.
    pub seconds: f64,
}

/// Records and compares everything that is wanted.
///
/// # Errors
/// This machine cannot, a file of ours could not be used, or `stop` was set.
pub fn check(wanted: &Wanted, stop: &AtomicBool, progress: &mut dyn Progress) -> Result<Vec<Found>, LiveError> {
    let heard = ready(wanted)?;
    let mut all = Vec::new();
    for &file_system in wanted.file_systems.iter().filter(|fs| fits(heard, **fs)) {
        let disk = Disk::new(file_system)?;
        for &read_ahead_kib in &wanted.read_ahead_kib {
            let cell = Cell { file_system, read_ahead_kib };
            progress.stage(&format!("{} at {read_ahead_kib} KiB", file_system.name()));
            all.push(compare((&disk, heard), cell, wanted, stop, progress)?);
        }
    }
    Ok(all)
}

/// Without tracepoints nobody knows of a folio's order, so there must be none but 0.
fn fits(heard: Heard, file_system: FileSystem) -> bool {
    heard != Heard::Presence || !file_system.large_folios()
}

/// Whether this machine and this user have what it takes, before anything is made; and what the kernel tells.
fn ready(wanted: &Wanted) -> Result<Heard, LiveError> {
    let root = std::fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0);
    if !root {
        let what = "asking the running kernel needs root, for tracepoints and a loop device";
        return Err(LiveError::Cannot(format!("{what}; as a user, compare a recording: conform linux --check REC")));
    }
    let page = rustix::param::page_size() as u64;
    if page != PAGE {
        return Err(LiveError::Cannot(format!("pages of {page} bytes; linux-6.18 is defined on pages of {PAGE}")));
    }
    let heard = wanted.heard.unwrap_or_else(trace::heard);
    let mut played = wanted.file_systems.iter().filter(|fs| fits(heard, **fs)).peekable();
    if played.peek().is_none() {
        let what = "this kernel has no tracepoints of its page cache: without them only ext4-journal can be compared";
        return Err(LiveError::Cannot(format!(
            "{what}; add it to --fs, or compare a recording: conform linux --check REC"
        )));
    }
    played.try_for_each(|fs| fs.ready())?;
    Ok(heard)
}

/// Records in a thread of its own, on one CPU, and watches it.
fn compare(
    disk: (&Disk, Heard),
    cell: Cell,
    wanted: &Wanted,
    stop: &AtomicBool,
    progress: &mut dyn Progress,
) -> Result<Found, LiveError> {
    let (began, done) = (Instant::now(), AtomicU64::new(0));
    let mut found = std::thread::scope(|scope| {
        let recorder = scope.spawn(|| {
            let tell = |operations| {
                done.store(operations, Ordering::Relaxed);
                if stop.load(Ordering::Relaxed) { Err(LiveError::Ended) } else { Ok(()) }
            };
            both(scope, disk, cell, wanted, &tell)
        });
        while !recorder.is_finished() {
            sleep(Duration::from_millis(50));
            progress.step(done.load(Ordering::Relaxed), wanted.operations);
        }
        recorder.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    found.seconds = began.elapsed().as_secs_f64();
    Ok(found)
}

/// The two recordings of a cell.
fn both<'scope>(
    scope: &'scope Scope<'scope, '_>,
    (disk, heard): (&Disk, Heard),
    cell: Cell,
    wanted: &Wanted,
    tell: &dyn Fn(u64) -> Result<(), LiveError>,
) -> Result<Found, LiveError> {
    let Cell { file_system, read_ahead_kib } = cell;
    let (any, one) = (affinity(None)?, one_cpu());
    // The helper plays where this thread does: pages under way in another CPU's batches could not be dropped.
    affinity(Some(&one))?;
    let helper = Helper::start()?;
    let faults = if helper.is_some() && heard != Heard::Presence { wanted.operations / FAULTS } else { 0 };
    let mut recorder = Recorder::new(disk, heard, helper)?;
    // Without readahead there would be no large folio to see.
    disk.set_read_ahead(128)?;
    let large_folios = recorder.large_folios()?;
    disk.set_read_ahead(read_ahead_kib)?;
    affinity(Some(&any))?;
    // What both sides draw depends on the seed and on the cell, and on nothing else.
    let salt = mix(read_ahead_kib ^ (file_system as u64) << 32);
    let mut rng = Rng::new(mix(wanted.seed) ^ salt);
    let mut found = Found {
        file_system: file_system.name(),
        read_ahead_kb: read_ahead_kib,
        large_folios,
        operations: 0,
        fault_operations: faults,
        decisions: 0,
        divergences: 0,
        pages: !large_folios,
        heard,
        cut_episodes: 0,
        first: None,
        seconds: 0.0,
    };
    let reads = Part { name: "reads", operations: wanted.operations - faults, draw: patterns::reads };
    let faults = Part { name: "faults", operations: faults, draw: patterns::faults };
    for Part { name, operations, draw } in [reads, faults].into_iter().filter(|part| part.operations > 0) {
        let header = header(disk, cell, wanted, &found, name == "faults")?;
        let both: &[Level] = &[Level::Full, Level::Pages];
        let levels = match heard {
            // Of a page that is there, nobody knows in what order it came, and by which folio.
            Heard::Presence => &both[1..],
            Heard::All | Heard::Pages if large_folios || header.mmap => &both[..1],
            Heard::All | Heard::Pages => both,
        };
        let keep = wanted.keep.as_deref().map(|folder| kept(folder, &header, read_ahead_kib, name));
        let (mut tee, checks) = Tee::new(scope, levels, keep.as_deref())?;
        let before = found.operations;
        affinity(Some(&one))?;
        let written = recorder.record(&mut tee, &header, operations, || draw(&mut rng), &mut |n| tell(before + n));
        affinity(Some(&any))?;
        let ended = tee.end();
        found.take_in(name, checks, written, ended)?;
    }
    Ok(found)
}

/// One recording of a cell.
struct Part {
    name: &'static str,
    operations: u64,
    draw: fn(&mut Rng) -> Plan,
}

fn header(disk: &Disk, cell: Cell, wanted: &Wanted, found: &Found, mmap: bool) -> Result<Header, LiveError> {
    Ok(Header {
        v: 1,
        kernel: kernel(),
        fs: found.file_system,
        page_size: PAGE,
        ra_pages: cell.read_ahead_kib * 1024 / PAGE,
        io_pages: disk.max_command()? * 1024 / PAGE,
        large_folios: found.large_folios,
        max_order: max_order(found.large_folios),
        min_order: 0,
        seed: wanted.seed,
        mmap,
    })
}

impl Found {
    /// What the checks of one recording found. A check that failed is why the writing did.
    fn take_in(
        &mut self,
        part: &str,
        checks: Vec<(Level, Check<'_>)>,
        written: Result<Written, LiveError>,
        ended: Result<(), LiveError>,
    ) -> Result<(), LiveError> {
        for (nth, (level, check)) in checks.into_iter().enumerate() {
            let verdict = check.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let verdict = match (&written, verdict) {
                // A recording that ended early proves nothing against itself.
                (Err(LiveError::Ended | LiveError::Cannot(_)), _) => continue,
                (_, verdict) => verdict?,
            };
            if nth == 0 {
                self.operations += verdict.operations;
                self.decisions += verdict.decisions;
            }
            self.divergences += verdict.divergences;
            let level = if level == Level::Full { "full" } else { "pages" };
            let first = verdict.first.map(|first| format!("{part}, level {level}, {first}"));
            self.first = self.first.take().or(first);
        }
        self.cut_episodes += written?.cut;
        ended
    }
}

/// Where a recording is kept.
fn kept(folder: &Path, header: &Header, read_ahead_kib: u64, part: &str) -> PathBuf {
    folder.join(format!("{}-{read_ahead_kib}-{}-{part}.jsonl.gz", header.fs, header.seed))
}

/// The largest folio: a huge page, where the kernel has those at all.
fn max_order(large: bool) -> u32 {
    let huge = Path::new("/sys/kernel/mm/transparent_hugepage").is_dir();
    if large && !huge { 0 } else { 9 }
}

fn one_cpu() -> CpuSet {
    let mut set = CpuSet::new();
    set.set(sched_getcpu());
    set
}

/// Sets the CPUs of this thread, and of what it starts; returns those it has.
fn affinity(set: Option<&CpuSet>) -> Result<CpuSet, LiveError> {
    let failed = |error: rustix::io::Errno| LiveError::io("sched_setaffinity", error);
    if let Some(set) = set {
        sched_setaffinity(None, set).map_err(failed)?;
    }
    rustix::thread::sched_getaffinity(None).map_err(failed)
}

type Check<'scope> = ScopedJoinHandle<'scope, Result<Verdict, CheckError>>;

/// One text to several readers.
struct Tee {
    pipes: Vec<BufWriter<PipeWriter>>,
    file: Option<GzEncoder<BufWriter<File>>>,
}

impl Tee {
    #[allow(clippy::type_complexity, reason = "a name would say less")]
    fn new<'scope>(
        scope: &'scope Scope<'scope, '_>,
        levels: &[Level],
        keep: Option<&Path>,
    ) -> Result<(Tee, Vec<(Level, Check<'scope>)>), LiveError> {
        let (mut pipes, mut checks) = (Vec::new(), Vec::new());
        for &level in levels {
            let (reader, writer) = std::io::pipe().map_err(|e| LiveError::io("pipe", e))?;
            pipes.push(BufWriter::with_capacity(1 << 16, writer));
            let reader = BufReader::with_capacity(1 << 16, reader);
            checks.push((level, scope.spawn(move || linux::check(reader, level, None))));
        }
        let made = |path: &Path| {
            let what = format!("cannot write the recording {}", path.display());
            File::create(path).map_err(|error| LiveError::Io { what, error, remedy: "name a folder that exists" })
        };
        let file = keep.map(made).transpose()?;
        let file = file.map(|file| GzEncoder::new(BufWriter::new(file), Compression::fast()));
        Ok((Tee { pipes, file }, checks))
    }

    /// Sends the rest on its way and closes everything.
    fn end(self) -> Result<(), LiveError> {
        let failed = |error| LiveError::Io { what: "the recording cannot be written".into(), error, remedy: RETRY };
        for mut pipe in self.pipes {
            closed(pipe.flush()).map_err(failed)?;
        }
        let Some(file) = self.file else { return Ok(()) };
        file.finish().and_then(|mut file| file.flush()).map_err(failed)
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

/// A check that has given up says why itself.
fn closed(wrote: std::io::Result<()>) -> std::io::Result<()> {
    wrote.or_else(|error| if error.kind() == ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })
}
