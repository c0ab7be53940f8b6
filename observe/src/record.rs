//! Records what a command reads, from the kernel's tracepoints; or records only the reads for which the command waits, by sampling
//! (`sampled.rs`).
//!
//! ```text
//!   active: instance, command ──► drain: raw events      ──► follow, twice ──► items ──► a trace in foreread's format
//!           tracefs               one file for each CPU          names between the two
//! ```
//! Tracing needs root and tracefs, but no eBPF toolchain and no kernel module. No tracepoint stays enabled afterwards, and lost events are
//! always reported.

pub mod active;
pub mod drain;
pub mod event;
pub mod names;
mod processes;
pub mod sampled;
#[cfg(test)]
mod tests;

use crate::tracefs::Stats;
use drain::{Merge, Spill};
use event::Decoder;
use foreread_os::failure::{Failure, FailureKind};
use foreread_pagecache::page_bytes;
use foreread_trace::error::TracePosition;
use foreread_trace::follow::call::FileKey;
use foreread_trace::follow::{Counts, Follow, LearnedFiles, LearnedRun, Names, OpenBefore};
use foreread_trace::formats::step::{self, Step};
use foreread_trace::{FileInfo, Header, Item, Items, Lacks, LeftOut, Level, TraceError};
use names::Finder;
pub use processes::{Followed, Target, follow_family};
use std::collections::{HashMap, VecDeque};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The format name in the header of a trace.
pub const FORMAT: &str = "record";

/// The error for other refusals of the system.
fn refused(error: impl Into<std::io::Error>) -> Failure {
    let error = error.into();
    let is_full = matches!(
        error.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded
    );
    let refused = Failure::of(FailureKind::Input, error).within("cannot record");
    match is_full {
        true => Failure {
            place: "the folder of the trace".to_string(),
            remedy: "free some space, or write the trace elsewhere (--out)".to_string(),
            ..refused
        },
        false => refused,
    }
}

/// The alternatives to recording by tracepoints.
const OTHER_WAYS: &str = "or record what the program waits for (record --by sample), or what passes through 'foreread mount' or 'serve' with --record TRACE, or import \
     what 'strace -f -ttt -T -y -o FILE CMD' wrote";

/// Takes an error which says that this machine cannot record, and adds a list of other ways to record a trace; a second call has no
/// effect.
pub fn with_other_ways(error: Failure) -> Failure {
    let remedy = match (error.kind, error.remedy.as_str()) {
        (FailureKind::Cannot, "") => OTHER_WAYS.to_string(),
        (FailureKind::Cannot, remedy) if !remedy.ends_with(OTHER_WAYS) => {
            format!("{remedy}, {OTHER_WAYS}")
        }
        _ => return error,
    };
    Failure { remedy, ..error }
}

/// A thread that existed before the recording, with its open descriptors at that time.
#[derive(Clone, Debug, Default)]
pub struct Before {
    pub thread: u32,
    pub descriptors: Vec<OpenBefore>,
    /// The thread whose descriptors it shares, if it has none of its own.
    pub shares: Option<u32>,
    /// Whether its own events are not recorded.
    pub ignored: bool,
}

/// The recorded events, and everything that is needed to interpret them.
pub struct Capture {
    /// Waits for the removal of the instance when it is dropped.
    _ending: active::InstanceRemoval,
    spill: Spill,
    /// Whether reads of io_uring's workers are recorded.
    sees_workers: bool,
    decoder: Arc<Decoder>,
    before: Vec<Before>,
    /// Until this time descriptors were still being examined: a call that began before may have moved them.
    settled_ns: u64,
    finder: Finder,
    /// Whether file systems have answered until now.
    answers: bool,
    /// Words of the command, which may be paths, and its folder.
    roots: Vec<PathBuf>,
    /// When it ended, in calendar time.
    until_unix_ns: i128,
    /// Events that the kernel reports as lost.
    pub lost: Stats,
    /// What another program switched off before the end, if anything.
    pub off: Option<SwitchedOff>,
    pub seconds: f64,
    /// Processor time of the thread that took the events during this time.
    pub drain_cpu_seconds: f64,
}

/// Another program has switched the recording off.
#[derive(Clone, Debug, PartialEq)]
pub struct SwitchedOff {
    /// The file of the instance that shows it.
    pub what: String,
    /// When it was first noticed, in seconds since the recording began; it is checked ten times a second.
    pub at_s: f64,
}

impl std::fmt::Display for SwitchedOff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let SwitchedOff { what, at_s } = self;
        write!(
            f,
            "another program switched the recording off before {at_s:.1} s ({what} is 0): reads while it was off are missing"
        )
    }
}

pub struct Understood {
    pub header: Header,
    pub items: Items,
    pub left_out: LeftOut,
    pub counts: Counts,
    pub files: u64,
    pub nameless: u64,
    pub events: u64,
    pub event_bytes: u64,
}

/// The note for a refused second instance.
const UNSEEN_WORKERS: &str = "reads of io_uring's workers (iou-wrk, iou-sqp: SQPOLL, IOSQE_ASYNC, overlayfs) are missing: the kernel refused to record them";
const WRONG: &str = "record it again, with fewer processes";

impl Capture {
    /// Does the first pass over the events, and finds the names of files. Prepares the second pass, which emits the records. Returns an
    /// error if the events cannot be read back, or if they have more threads or descriptors than are allowed.
    pub fn understand(mut self, path: &Path) -> Result<Understood, TraceError> {
        let none: Names = Box::new(|_| FileInfo::default());
        let mut first = self.steps(LearnedFiles::new(), none, LeftOut::default(), path)?;
        let (mut out, mut events) = (VecDeque::new(), 0);
        while first.step(&mut out)? {
            out.clear();
            events += 1;
        }
        let lost_of_workers = first.merge.lost_of_workers;
        let mut ran: Vec<PathBuf> = first.merge.ran.drain().map(PathBuf::from).collect();
        // The search begins there and is limited, so sort them to get the same result in every run.
        ran.sort();
        let LearnedRun {
            files: learned,
            read: places,
            counts,
        } = first.follow.learned();
        let wanted: Vec<FileKey> = places
            .iter()
            .copied()
            .filter(|place| !self.decoder.blocks.has(*place))
            .collect();
        let nameless = self.find(ran, &wanted);
        let left_out = LeftOut::default();
        let named: HashMap<FileKey, FileInfo> = places
            .iter()
            .map(|place| (*place, self.info(*place)))
            .collect();
        let names: Names = Box::new(move |place| named.get(&place).cloned().unwrap_or_default());
        let header = self.header(&counts, nameless, lost_of_workers);
        let (files, event_bytes) = (wanted.len() as u64, self.spill.bytes);
        let mut second = self.steps(learned, names, left_out.clone(), path)?;
        second.follow.only_of(&places);
        let items = step::items(second);
        Ok(Understood {
            header,
            items,
            left_out,
            counts,
            files,
            nameless,
            events,
            event_bytes,
        })
    }

    /// Searches for the names of files, as long as file systems answer. Returns how many files have no name in the
    /// end.
    fn find(&mut self, ran: Vec<PathBuf>, wanted: &[FileKey]) -> u64 {
        let roots = std::mem::take(&mut self.roots);
        let (own, until) = (wanted.to_vec(), self.until_unix_ns);
        let finder = &self.finder;
        self.answers = self.answers && finder.search_while_answered(own, roots, ran, until);
        finder.nameless(wanted) as u64
    }

    fn info(&self, place: FileKey) -> FileInfo {
        let of_block = self.decoder.blocks.get(place).cloned();
        let named = of_block.or_else(|| self.finder.get(place));
        named.map_or_else(|| place.nameless(), |named| named.info())
    }

    fn steps(
        &self,
        known: LearnedFiles,
        names: Names,
        left_out: LeftOut,
        path: &Path,
    ) -> Result<Events, TraceError> {
        let mut follow = Follow::new(page_bytes(), known, names, left_out);
        follow.settled(self.settled_ns);
        for one in &self.before {
            let known = match one.shares {
                Some(leader) => follow.share(leader, one.thread),
                None => follow.inherit(one.thread, &one.descriptors, one.ignored),
            };
            known.map_err(|(what, remedy)| {
                TraceError::new(path, TracePosition::Whole, what, remedy)
            })?;
        }
        let merge = self.spill.events();
        Ok(Events {
            follow,
            merge: merge.map_err(|error| TraceError::io(path, TracePosition::Whole, &error))?,
            decoder: Arc::clone(&self.decoder),
            path: path.to_path_buf(),
            number: 0,
        })
    }

    fn header(&self, counts: &Counts, nameless: u64, lost_of_workers: u64) -> Header {
        let mut notes = vec![
            "of a mapped file, only the first touch of each block that the kernel maps (64 KiB, or a large folio) is \
             recorded"
                .to_string(),
            "a readv or preadv has the length that it returned, not the requested length".to_string(),
        ];
        if counts.by_page > 0 {
            notes.push(format!(
                "the offsets of {} reads (sendfile, io_uring, exec) are known only to the nearest page",
                counts.by_page
            ));
        }
        notes.extend(notes_of_names(nameless, self.answers));
        let lost = self.lost.overrun + self.lost.dropped;
        if lost > 0 {
            notes.push(format!(
                "{lost} events were lost, in {} gaps; record with a larger --memory",
                counts.gaps
            ));
        }
        notes.extend(self.off.as_ref().map(ToString::to_string));
        if !self.sees_workers {
            notes.push(UNSEEN_WORKERS.to_string());
        } else if lost_of_workers > 0 {
            notes.push(format!(
                "events of io_uring's workers were lost in {lost_of_workers} gaps: some of their reads are missing"
            ));
        }
        if !self.decoder.missing.is_empty() {
            notes.push(format!(
                "this kernel has no tracepoint {}",
                self.decoder.missing.join(", ")
            ));
        }
        Header {
            format: FORMAT.to_string(),
            time_unit: "ns".to_string(),
            offset_unit: "bytes".to_string(),
            lacks: Lacks::default(),
            level: Level::Program,
            notes,
            sampled_ns: None,
        }
    }
}

/// The notes about the names in a trace.
fn notes_of_names(nameless: u64, answers: bool) -> impl Iterator<Item = String> {
    let some = format!("{nameless} files have no name, because they were deleted or not found");
    let none = "a file system did not answer, so the search for names was not completed";
    let some = Some(some).filter(|_| nameless > 0);
    let none = Some(none.to_string()).filter(|_| !answers);
    some.into_iter().chain(none)
}

/// The events that become items.
struct Events {
    follow: Follow,
    merge: Merge,
    decoder: Arc<Decoder>,
    path: PathBuf,
    number: u64,
}

impl Step for Events {
    fn step(&mut self, out: &mut VecDeque<Item>) -> Result<bool, TraceError> {
        let next = self.merge.next(&self.decoder);
        match next.map_err(|error| TraceError::io(&self.path, TracePosition::Whole, &error))? {
            Some(event) => {
                self.number += 1;
                let wrong = |(what, _): (&str, &str)| {
                    TraceError::new(&self.path, TracePosition::Record(self.number), what, WRONG)
                };
                self.follow.event(&event, out).map_err(wrong)?;
                Ok(true)
            }
            None => {
                self.follow.end(out);
                Ok(false)
            }
        }
    }
}
