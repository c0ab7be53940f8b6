//! Records the reads for which a command waits, by sampling /proc, without root and without tracing.
//!
//! ```text
//!   a thread starts the command ──► samples until its end: touches, and ended waits ──► records ──► a trace in foreread's format
//!   another thread examines open files, because a file system may block it forever
//! ```
//! Example: a program reads 1 MiB sequentially in reads of 64 KiB from a disk with 2 ms latency. Two of the reads wait, and are observed
//! with their offset and length; their start and end times are accurate to half a millisecond. The page cache served the reads between
//! these two reads. The process's counter of read bytes shows that these cached reads took place. The cached reads between two observed
//! reads become records with zero duration and the length of the observed reads, which are counted as guessed.
//!
//! The recorder never records more bytes than the program has read by its own counter, and the program never waits for the recorder.

use super::active::{namer, unix_now_ns};
use super::names::Finder;
use super::processes::Followed;
use super::{FORMAT, Target, Understood, notes_of_names, refused};
use crate::sample::{BLOCK_BYTES, EndedWait, Sampler, StorageUse, may_look};
use crate::touch::{Touch, TouchKind, family};
use crate::tracefs::{now_ns, thread_cpu_seconds};
use foreread_os::failure::Failure;
use foreread_os::threads::spawn;
use foreread_pagecache::page_bytes;
use foreread_trace::follow::Counts;
use foreread_trace::follow::call::FileKey;
use foreread_trace::{Header, Item, Lacks, LeftOut, Level, Op, Record};
use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Most records that are kept; later ones are missing, and a note says so.
const MAX_RECORDS: usize = 4 << 20;
/// How often the open files of the command are examined while it reads files without a known name.
const NAMES_EVERY_NS: u64 = 20_000_000;
const MAX_NAMES_EVERY_NS: u64 = 2_000_000_000;

pub struct SampledRecording {
    followed: Followed,
    looks: JoinHandle<SampledReads>,
    stop: Sender<()>,
    finder: Finder,
    roots: Vec<PathBuf>,
    began_ns: u64,
}

/// Starts the recording. Returns an error if there is no such command or process, or if this user may not inspect it.
pub fn start(target: &Target) -> Result<SampledRecording, Failure> {
    let finder = Finder::default();
    let (to_looks, begins) = channel();
    let (stop, stops) = channel();
    let names = finder.clone();
    let began_ns = now_ns();
    // Start the thread before the command: if the system refuses the thread, no command is left running.
    let looks = move || match begins.recv() {
        Ok(pid) => {
            let pause = |interval| stops.recv_timeout(interval) == Err(RecvTimeoutError::Timeout);
            SampledReads::new(began_ns).look(pid, &names, pause)
        }
        Err(_) => SampledReads::new(began_ns),
    };
    let looks = spawn("foreread-looks", looks).map_err(refused)?;
    let mut roots: Vec<PathBuf> = Vec::new();
    match target {
        Target::Command(words) => {
            roots.extend(words.iter().skip(1).map(PathBuf::from));
            roots.extend(std::env::current_dir());
        }
        Target::Process(pid) => roots.extend(std::fs::read_link(format!("/proc/{pid}/cwd"))),
    }
    let followed = followed(target)?;
    // The thread waits for nothing else.
    let _ = to_looks.send(followed.pid());
    Ok(SampledRecording {
        followed,
        looks,
        stop,
        finder,
        roots,
        began_ns,
    })
}

/// Starts the command, or attaches to the process. Returns an error also if this user may not inspect the process.
pub fn followed(target: &Target) -> Result<Followed, Failure> {
    let followed = Followed::start(target)?;
    if let Followed::Joined(pid, _) = followed {
        may_look(pid).map_err(|error| {
            let what = format!("cannot see what process {pid} reads");
            let remedy =
                "run it as root or as the user of that process, with kernel.yama.ptrace_scope at 0";
            Failure::cannot(what, "", remedy).caused_by(error)
        })?;
    }
    Ok(followed)
}

impl SampledRecording {
    pub fn pid(&self) -> u32 {
        self.followed.pid()
    }

    /// Waits until the command or the process has ended; for a process that already existed, the wait also ends when `enough` is set.
    pub fn wait(&mut self, enough: &AtomicBool) -> std::io::Result<Option<ExitStatus>> {
        self.followed.wait(enough)
    }

    /// Ends the recording, and finds the names of the files.
    pub fn finish(self) -> SampledCapture {
        let seconds = (now_ns() - self.began_ns) as f64 / 1e9;
        drop(self.stop);
        let reads = self.looks.join().expect("it does not panic");
        let (finder, files) = (self.finder, reads.files.clone());
        let answers = finder.search_while_answered(files, self.roots, Vec::new(), unix_now_ns());
        SampledCapture {
            reads,
            finder,
            answers,
            is_joined: matches!(self.followed, Followed::Joined(..)),
            seconds,
        }
    }
}

/// The reads that the samples showed, with the names of their files.
pub struct SampledCapture {
    reads: SampledReads,
    finder: Finder,
    answers: bool,
    is_joined: bool,
    pub seconds: f64,
}

impl SampledCapture {
    pub fn cpu_seconds(&self) -> f64 {
        self.reads.cpu_seconds
    }

    pub fn understand(self) -> Understood {
        let nameless = self.finder.nameless(&self.reads.files) as u64;
        let header = self.header(nameless);
        let reads = self.reads;
        let files = reads.files.iter().map(|&place| {
            let named = self.finder.get(place);
            Item::File(named.map_or_else(|| place.nameless(), |named| named.info()))
        });
        let files = Vec::from_iter(files).into_iter();
        let records = reads.records.into_iter().map(Item::Record);
        Understood {
            header,
            items: Box::new(files.chain(records).map(Ok)),
            left_out: LeftOut::default(),
            counts: reads.counts,
            files: reads.files.len() as u64,
            nameless,
            events: reads.looks,
            event_bytes: 0,
        }
    }

    fn header(&self, nameless: u64) -> Header {
        let mb = |bytes: u64| bytes as f64 / 1e6;
        let read = mb(self.reads.counts.read_bytes);
        let guessed = mb(self.reads.guessed_bytes);
        let mut notes = vec![
            format!(
                "sampled: reads that waited were observed; {guessed:.1} of {read:.1} MB did not wait: they were counted, and their positions are estimated"
            ),
            "not observed: hints, writes, reads that bypass the page cache, mappings of less than 128 KiB; of larger mappings, only the first access to each 64 KiB is observed"
                .to_string(),
        ];
        if self.is_joined {
            notes.push(
                "the trace includes pages of mappings that were accessed before the recording began"
                    .to_string(),
            );
        }
        if self.reads.hides {
            notes.push(
                "a part of the program cannot be inspected (setuid, PR_SET_DUMPABLE, or Yama), so its reads are missing; record it as root"
                    .to_string(),
            );
        }
        if self.reads.is_full {
            notes.push(format!("recording stopped after {MAX_RECORDS} reads"));
        }
        notes.extend(notes_of_names(nameless, self.answers));
        Header {
            format: FORMAT.to_string(),
            time_unit: "ns".to_string(),
            offset_unit: "bytes".to_string(),
            lacks: Lacks {
                opens: true,
                ..Lacks::default()
            },
            level: Level::Unknown,
            notes,
            sampled_ns: Some((self.seconds * 1e9) as u64),
        }
    }
}

/// The end of the latest record of a thread in a file, and its index.
#[derive(Clone, Copy)]
struct LatestRecord {
    index: usize,
    end: u64,
}

#[derive(Default)]
struct SampledReads {
    began_ns: u64,
    files: Vec<FileKey>,
    numbers: HashMap<FileKey, u32>,
    records: Vec<Record>,
    latest: HashMap<(u32, FileKey), LatestRecord>,
    counts: Counts,
    /// Bytes of reads that no sample saw.
    guessed_bytes: u64,
    /// The time in which a thread waited, and the part of it that records account for.
    waited_ns: u64,
    given_ns: u64,
    /// When the latest fault was observed.
    fault_at_ns: u64,
    looks: u64,
    cpu_seconds: f64,
    is_full: bool,
    /// Whether some of its threads could not be inspected.
    hides: bool,
}

impl SampledReads {
    fn new(began_ns: u64) -> SampledReads {
        SampledReads {
            began_ns,
            ..SampledReads::default()
        }
    }

    /// Samples until `pause` says that it is enough.
    fn look(mut self, pid: u32, finder: &Finder, pause: impl Fn(Duration) -> bool) -> SampledReads {
        let mut sampler = Sampler::new(pid);
        sampler.keep_ended_waits();
        // If no thread can be started, names are searched for only at the end. The thread may never return from a
        // file system.
        let namer = namer(finder).ok();
        let mut touches = Vec::new();
        let (mut named_at_ns, mut pause_ns) = (0, NAMES_EVERY_NS);
        let mut nameless: Vec<FileKey> = Vec::new();
        let mut seen_files = 0;
        loop {
            sampler.look(&mut touches, &|_| StorageUse::ReadAhead);
            let waited = sampler.waits.values().map(|waits| waits.time_ns);
            self.waited_ns = waited.sum();
            // These belong to earlier samples than the touches.
            for wait in sampler.ended_waits() {
                self.ended(wait);
            }
            for touch in touches.drain(..) {
                self.touch(touch);
            }
            let at_ns = now_ns();
            if self.files.len() > seen_files {
                nameless.extend(&self.files[seen_files..]);
                (seen_files, pause_ns) = (self.files.len(), NAMES_EVERY_NS);
            }
            if !nameless.is_empty() && at_ns.saturating_sub(named_at_ns) > pause_ns {
                // A deleted file has no name, however often it is searched for.
                (named_at_ns, pause_ns) = (at_ns, (2 * pause_ns).min(MAX_NAMES_EVERY_NS));
                nameless.retain(|&file| finder.get(file).is_none());
                if let Some((to_namer, _)) = &namer {
                    let _ = to_namer.try_send(family(pid));
                }
            }
            if !pause(sampler.interval()) {
                break;
            }
        }
        self.looks = sampler.looks;
        self.hides = sampler.has_hidden();
        // A fault begins before it is observed.
        self.records.sort_by_key(|record| record.start_ns);
        self.split_guessed();
        self.cpu_seconds = thread_cpu_seconds();
        self
    }

    fn number(&mut self, file: FileKey) -> u32 {
        let next = self.files.len() as u32;
        let number = *self.numbers.entry(file).or_insert(next);
        if number == next {
            self.files.push(file);
        }
        number
    }

    fn touch(&mut self, touch: Touch) {
        let Range { start, end } = touch.bytes();
        match touch.kind {
            TouchKind::Miss => {}
            TouchKind::Read => {
                // Two pieces of one run share at most a page.
                let latest = self.latest.get(&(touch.thread, touch.file));
                let begun = latest.map(|latest| latest.end);
                let start = begun
                    .filter(|&known| (start..end).contains(&known) && known - start < page_bytes())
                    .unwrap_or(start);
                self.guessed_bytes += end - start;
                self.counts.reads += 1;
                self.counts.read_bytes += end - start;
                self.push(Op::Read, touch, start, end);
            }
            TouchKind::Mapped | TouchKind::Fault => {
                let mut at = start;
                while at < end {
                    let next = (at / BLOCK_BYTES + 1) * BLOCK_BYTES;
                    let next = next.min(end);
                    self.counts.faults += 1;
                    self.push(Op::Fault, touch, at, next);
                    at = next;
                }
            }
        }
    }

    fn push(&mut self, op: Op, touch: Touch, start: u64, end: u64) {
        if self.records.len() == MAX_RECORDS {
            self.is_full = true;
            return;
        }
        let file = self.number(touch.file);
        let index = self.records.len();
        let at_ns = touch.at_ns.saturating_sub(self.began_ns);
        // A fault is observed when its pages have arrived: threads waited before that.
        let waited_ns = self.waited_ns - std::mem::replace(&mut self.given_ns, self.waited_ns);
        let since_ns = match op {
            Op::Fault => at_ns
                .saturating_sub(waited_ns)
                .max(self.fault_at_ns)
                .min(at_ns),
            _ => at_ns,
        };
        if op == Op::Fault {
            self.fault_at_ns = at_ns;
        }
        self.records.push(Record {
            op,
            thread: touch.thread,
            start_ns: Some(since_ns),
            end_ns: Some(at_ns),
            ..Record::read(file, start, end - start)
        });
        let key = (touch.thread, touch.file);
        self.latest.insert(key, LatestRecord { index, end });
    }

    /// Splits what was read without a wait into reads of the length that the thread last waited for in this file, but not below
    /// [`BLOCK_BYTES`]: one long read would ask for more readahead than the program's reads did.
    fn split_guessed(&mut self) {
        let mut lengths: HashMap<(u32, u32), u64> = HashMap::new();
        for mut record in std::mem::take(&mut self.records) {
            let key = (record.thread, record.file);
            if record.op == Op::Read && record.start_ns < record.end_ns {
                lengths.insert(key, record.len.max(BLOCK_BYTES));
            } else if let Some(&len) = lengths.get(&key).filter(|_| record.op == Op::Read) {
                while record.len > len && self.records.len() < MAX_RECORDS {
                    self.counts.reads += 1;
                    self.records.push(Record {
                        len,
                        ..record.clone()
                    });
                    record.offset += len;
                    record.len -= len;
                }
            }
            self.records.push(record);
        }
    }

    /// A read that waited has returned: its bytes and its end are known.
    fn ended(&mut self, wait: EndedWait) {
        let since_ns = wait.since_ns.saturating_sub(self.began_ns);
        let Some(latest) = self.latest.get_mut(&(wait.thread, wait.file)) else {
            return;
        };
        let record = &mut self.records[latest.index];
        if record.op != Op::Read || record.start_ns != Some(since_ns) {
            return;
        }
        self.guessed_bytes = self.guessed_bytes.saturating_sub(record.len);
        self.counts.read_bytes = self.counts.read_bytes - record.len + wait.bytes;
        (record.offset, record.len) = (wait.offset, wait.bytes);
        record.end_ns = Some(wait.ended_ns.saturating_sub(self.began_ns).max(since_ns));
        latest.end = wait.offset + wait.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileKey = FileKey {
        dev: 7 << 20,
        ino: 12,
    };

    fn touch(at_ns: u64, pages: (u64, u64), kind: TouchKind) -> Touch {
        Touch {
            at_ns,
            thread: 1,
            file: FILE,
            pages,
            kind,
        }
    }

    fn wait(offset: u64, bytes: u64, since_ns: u64, ended_ns: u64) -> EndedWait {
        EndedWait {
            thread: 1,
            file: FILE,
            offset,
            bytes,
            since_ns,
            ended_ns,
        }
    }

    /// Offset, length, start and end.
    fn seen(reads: &SampledReads) -> Vec<[u64; 4]> {
        let of = |record: &Record| {
            let [start, end] = [record.start_ns, record.end_ns].map(|at| at.expect("known"));
            [record.offset, record.len, start, end]
        };
        reads.records.iter().map(of).collect()
    }

    /// A read of one and a half pages waits, what follows is read without a wait, and the next one waits again.
    #[test]
    fn waits_have_exact_bytes_and_gaps_are_guessed() {
        let page = page_bytes();
        let (first, guessed) = (page + page / 2, 8 * page + page / 2);
        let mut reads = SampledReads::new(100);
        reads.touch(touch(200, (0, 1), TouchKind::Read));
        reads.ended(wait(0, first, 200, 900));
        reads.touch(touch(1000, (1, 9), TouchKind::Read));
        reads.touch(touch(1000, (10, 10), TouchKind::Read));
        reads.ended(wait(10 * page, 100, 1000, 1500));
        assert_eq!(
            seen(&reads),
            [
                [0, first, 100, 800],
                [first, guessed, 900, 900],
                [10 * page, 100, 900, 1400]
            ]
        );
        assert_eq!(
            (reads.guessed_bytes, reads.counts.read_bytes),
            (guessed, first + guessed + 100)
        );
        // A wait of no record is none.
        reads.ended(wait(0, 1, 7, 8));
        assert_eq!(reads.records.len(), 3);
    }

    #[test]
    fn a_gap_is_reads_of_the_length_that_waited() {
        let mut reads = SampledReads::new(0);
        let pages = 4 * BLOCK_BYTES / page_bytes();
        reads.touch(touch(100, (0, 0), TouchKind::Read));
        reads.ended(wait(0, BLOCK_BYTES, 100, 900));
        reads.touch(touch(1000, (pages / 4, pages), TouchKind::Read));
        reads.split_guessed();
        let lengths = Vec::from_iter(seen(&reads).iter().map(|[_, len, ..]| *len));
        assert_eq!(lengths, [vec![BLOCK_BYTES; 4], vec![page_bytes()]].concat());
        assert_eq!(reads.counts.reads, 5);
    }

    #[test]
    fn faults_are_blocks_and_waited_before_they_are_seen() {
        let page = page_bytes();
        let block = BLOCK_BYTES.max(page) / page;
        let mut reads = SampledReads::new(0);
        reads.waited_ns = 300;
        reads.touch(touch(1000, (block - 1, block), TouchKind::Fault));
        reads.waited_ns = 10_000;
        reads.touch(touch(5000, (2 * block, 2 * block), TouchKind::Mapped));
        assert_eq!(
            seen(&reads),
            [
                [(block - 1) * page, page, 700, 1000],
                [block * page, page, 1000, 1000],
                [2 * block * page, page, 1000, 5000],
            ]
        );
        assert_eq!((reads.counts.faults, reads.counts.reads), (3, 0));
    }
}
