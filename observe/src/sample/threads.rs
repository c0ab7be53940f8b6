//! A sampled thread: its waits, how long they take, and its sequential runs.
//!
//! ```text
//!   samples    blocked at 1M   running        running        blocked at 3M
//!   rchar      1.0M            1.5M           2.2M           3.0M
//!   touches    read 1M..       read ..1.5M    read ..2.2M    read ..3M, read 3M..      2 MiB were read in between: the run continued
//! ```
//! A run is a sequence of sequential reads of one file; only its end is stored. If a thread blocks at a position after the end of a run,
//! the thread may have continued the run up to there. This module assumes so if the thread has read at least the bytes in between since the
//! run was last observed. If a thread has several runs, the bytes that it has read are divided among the runs.

use super::calls::{Doing, ReadCall, parse};
use super::{STREAK_NS, StorageUse};
use crate::touch::{Touch, TouchKind, place_of_open};
use crate::tracefs::now_ns;
use foreread_pagecache::page_bytes;
use foreread_trace::follow::call::FileKey;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A sequential run is assumed to have continued after its last observed position by at most this number of bytes, times the number of
/// observations.
pub const MAX_GUESSED_BYTES: u64 = 4 << 20;
/// Most times that count.
const MAX_TIMES: u32 = 32;
/// For a longer read, only its beginning is recorded.
const MAX_READ_BYTES: u64 = 16 << 20;
/// The assumed length of a vectored read, whose length cannot be observed.
const UNKNOWN_BYTES: u64 = 4096;
/// The least that the kernel reads ahead of sequential reads.
const KERNEL_WINDOW_BYTES: u64 = 128 << 10;
/// A longer wait is reported with this duration.
const MAX_STREAK_NS: u64 = 100_000_000;
/// A run that was seen at least this often is assumed to continue between samples.
const MIN_TIMES: u32 = 2;
const MAX_RUNS: usize = 32;
/// A run that was not seen for this long, for each time that it was seen, gets no share of the bytes.
const RUN_IS_OLD_NS: u64 = 200_000_000;
/// Most bytes of a line in /proc that are read.
const LINE_BYTES: usize = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadState {
    Runs,
    Reads,
    Faults,
    Gone,
    /// This user may not inspect it.
    Hidden,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct SampledRead {
    file: FileKey,
    descriptor: u32,
    offset: u64,
    bytes: u64,
    by_position: bool,
}

impl SampledRead {
    fn pages(&self) -> (u64, u64) {
        pages(self.offset, self.offset + self.bytes)
    }
}

/// A read for which a thread waited and which has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedWait {
    pub thread: u32,
    pub file: FileKey,
    pub offset: u64,
    /// Requested bytes that the file has.
    pub bytes: u64,
    /// When a sample first saw it; its end is between the last sample that saw it and the next one.
    pub since_ns: u64,
    pub ended_ns: u64,
}

struct SampledRun {
    file: FileKey,
    descriptor: u32,
    by_position: bool,
    /// The end of what was seen, and the end of what was reported.
    end: u64,
    given: u64,
    /// How often it was seen, and when last.
    times: u32,
    seen_ns: u64,
    /// Bytes that the thread had read at that time.
    read_bytes: u64,
}

impl SampledRun {
    fn is_live(&self, now_ns: u64) -> bool {
        let times = self.times.clamp(1, MAX_TIMES);
        now_ns.saturating_sub(self.seen_ns) < RUN_IS_OLD_NS * u64::from(times)
    }

    /// How many bytes it may have continued unobserved.
    fn max_guessed(&self) -> u64 {
        MAX_GUESSED_BYTES * u64::from(self.times.clamp(1, MAX_TIMES))
    }

    fn guessed(&self) -> u64 {
        self.given.saturating_sub(self.end)
    }

    /// How far it may have advanced: twice its share of what the thread has read since.
    fn reach(&self, read_bytes: u64, live: u64) -> u64 {
        let read = read_bytes.saturating_sub(self.read_bytes);
        self.end + (2 * read / live).min(read)
    }
}

struct ThreadStreak {
    read: SampledRead,
    /// How much the kernel reads ahead of sequential reads.
    window_bytes: u64,
    since_ns: u64,
    /// Bytes that the thread had read at that time.
    read_bytes: u64,
    /// How many of them continue a run.
    in_order: u32,
}

#[derive(Default)]
pub struct SampledThread {
    pub pid: u32,
    call: Option<File>,
    io: Option<File>,
    /// What it waits for, and whether the latest sample was the first to see this wait.
    wait: Option<SampledRead>,
    wait_since_ns: u64,
    pub is_new: bool,
    /// The wait that had ended by this sample.
    pub ended: Option<EndedWait>,
    streak: Option<ThreadStreak>,
    runs: Vec<SampledRun>,
}

fn pages(start: u64, end: u64) -> (u64, u64) {
    let page = page_bytes();
    (start / page, end.max(start + 1).saturating_sub(1) / page)
}

fn read_of_pages(thread: u32, file: FileKey, start: u64, end: u64, at_ns: u64) -> Touch {
    Touch {
        at_ns,
        thread,
        file,
        pages: pages(start, end),
        kind: TouchKind::Read,
    }
}

fn line(file: &File) -> std::io::Result<String> {
    let mut buffer = [0; LINE_BYTES];
    let bytes = file.read_at(&mut buffer, 0)?;
    Ok(String::from_utf8_lossy(&buffer[..bytes]).into_owned())
}

/// Whether the thread has ended. All other errors, such as too many open files, are temporary.
fn is_gone(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::NotFound
        || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

fn field(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim().parse().ok()
}

impl SampledThread {
    pub fn new(pid: u32) -> SampledThread {
        SampledThread {
            pid,
            ..SampledThread::default()
        }
    }

    /// Returns the storage device for which the thread waits in a system call, or `None` if it does not wait.
    pub fn waits_for(&self) -> Option<u32> {
        self.wait.map(|read| read.file.dev)
    }

    pub fn look(
        &mut self,
        id: u32,
        since_look_ns: u64,
        usage: &dyn Fn(u32) -> StorageUse,
        touches: &mut Vec<Touch>,
    ) -> ThreadState {
        let now_ns = now_ns();
        let doing = match self.doing(id) {
            Ok(doing) => doing.unwrap_or(Doing::Other),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return ThreadState::Hidden;
            }
            Err(error) if is_gone(&error) => return ThreadState::Gone,
            Err(_) => return ThreadState::Runs,
        };
        let read = match doing {
            Doing::Reads(call) => self.read_of(id, call),
            _ => None,
        };
        let is_new = read.is_some() && read != self.wait;
        let over = self.wait.filter(|_| read != self.wait);
        self.ended = over.map(|over| EndedWait {
            thread: id,
            file: over.file,
            offset: over.offset,
            bytes: over.bytes,
            since_ns: self.wait_since_ns,
            ended_ns: now_ns
                .saturating_sub(since_look_ns / 2)
                .max(self.wait_since_ns),
        });
        if is_new {
            self.wait_since_ns = now_ns;
        }
        self.wait = read;
        self.is_new = is_new;
        let looked = read.and_then(|read| usage(read.file.dev).looked());
        if let Some(read) = read.filter(|_| is_new || looked.is_some()) {
            let read_bytes = self.read_bytes(id);
            let is_in_order = is_new && self.seen(id, read, read_bytes, now_ns, usage, touches);
            if let Some(window_bytes) = looked {
                let streak = self.streak.get_or_insert(ThreadStreak {
                    read,
                    window_bytes: window_bytes.max(KERNEL_WINDOW_BYTES),
                    since_ns: now_ns,
                    read_bytes,
                    in_order: 0,
                });
                streak.in_order += u32::from(is_in_order);
                // Its first wait continues: its duration is not known yet.
                let goes_on = read == streak.read && read_bytes == streak.read_bytes;
                let time_ns = now_ns.saturating_sub(streak.since_ns);
                if time_ns >= STREAK_NS && !goes_on || time_ns >= MAX_STREAK_NS {
                    self.end_streak(id, read_bytes, now_ns, touches);
                }
            }
        }
        if looked.is_none() && self.streak.is_some() {
            // It ended at some time between two samples.
            let ended_ns = now_ns.saturating_sub(since_look_ns / 2);
            let read_bytes = self.read_bytes(id);
            self.end_streak(id, read_bytes, ended_ns, touches);
        }
        match doing {
            Doing::Faults => ThreadState::Faults,
            Doing::Reads(_) if read.is_some() => ThreadState::Reads,
            _ => {
                self.guess(id, now_ns, usage, touches);
                ThreadState::Runs
            }
        }
    }

    /// Returns the storage devices from which the thread reads sequentially.
    pub fn devices(&self) -> std::collections::BTreeSet<u32> {
        self.runs.iter().map(|run| run.file.dev).collect()
    }

    /// Returns how many bytes of a storage device count as read although no sample observed a read of them.
    pub fn guessed(&self, dev: u32) -> u64 {
        let of_dev = self.runs.iter().filter(|run| run.file.dev == dev);
        of_dev.map(SampledRun::guessed).sum()
    }

    fn doing(&mut self, id: u32) -> std::io::Result<Option<Doing>> {
        let pid = self.pid;
        let file = match &mut self.call {
            Some(file) => file,
            none => none.insert(File::open(format!("/proc/{pid}/task/{id}/syscall"))?),
        };
        Ok(parse(&line(file)?))
    }

    /// The file and range that a call reads, if it reads a file.
    fn read_of(&self, id: u32, call: ReadCall) -> Option<SampledRead> {
        let descriptor = call.descriptor;
        let link = format!("/proc/{id}/fd/{descriptor}");
        let (file, size) = place_of_open(Path::new(&link))?;
        let place = place_of_descriptor(id, descriptor)?;
        // It bypasses the page cache.
        if place.flags & foreread_trace::follow::O_DIRECT != 0 {
            return None;
        }
        let offset = call.offset.unwrap_or(place.bytes);
        let bytes = call.bytes.unwrap_or(UNKNOWN_BYTES).min(MAX_READ_BYTES);
        (offset < size).then(|| SampledRead {
            file,
            descriptor,
            offset,
            bytes: bytes.min(size - offset),
            by_position: call.offset.is_none(),
        })
    }

    /// Reports, for a storage device under examination, a miss and the read at its end for all consecutive waits, with the mean
    /// duration of a wait. Sequential reads wait once for each window of the kernel's readahead, other reads wait each time.
    fn end_streak(&mut self, id: u32, read_bytes: u64, ended_ns: u64, touches: &mut Vec<Touch>) {
        let Some(streak) = self.streak.take() else {
            return;
        };
        let bytes = read_bytes.saturating_sub(streak.read_bytes);
        let of_one = match streak.in_order {
            0 => streak.read.bytes,
            _ => streak.read.bytes.max(streak.window_bytes),
        };
        let count = (bytes / of_one.max(1)).max(1);
        let touch = |kind, at_ns| Touch {
            at_ns,
            thread: id,
            file: streak.read.file,
            pages: streak.read.pages(),
            kind,
        };
        let wait_ns = ended_ns.saturating_sub(streak.since_ns) / count;
        let missed = pages(streak.read.offset, streak.read.offset + of_one);
        touches.push(Touch {
            pages: missed,
            ..touch(TouchKind::Miss, streak.since_ns)
        });
        touches.push(touch(TouchKind::Read, streak.since_ns + wait_ns));
    }

    /// Processes a new wait for a read. Returns whether it continues a run.
    fn seen(
        &mut self,
        id: u32,
        read: SampledRead,
        read_bytes: u64,
        now_ns: u64,
        usage: &dyn Fn(u32) -> StorageUse,
        touches: &mut Vec<Touch>,
    ) -> bool {
        let end = read.offset + read.bytes;
        let live = |run: &&SampledRun| run.is_live(now_ns);
        let live = self.runs.iter().filter(live).count().max(1) as u64;
        let of_run = |run: &&mut SampledRun| {
            run.file == read.file
                && run.end <= end
                && read.offset <= run.reach(read_bytes, live).max(run.given)
        };
        let is_ahead = usage(read.file.dev) == StorageUse::ReadAhead;
        let mut give = |start: u64, end: u64| {
            if is_ahead && start < end {
                touches.push(read_of_pages(id, read.file, start, end, now_ns));
            }
        };
        let nearest = |run: &&mut SampledRun| run.end.abs_diff(read.offset);
        match self.runs.iter_mut().filter(of_run).min_by_key(nearest) {
            Some(run) => {
                give(run.given, read.offset);
                give(read.offset, end);
                (run.end, run.given) = (end, end);
                (run.times, run.seen_ns) = (run.times + 1, now_ns);
                (run.read_bytes, run.descriptor) = (read_bytes, read.descriptor);
                true
            }
            None => {
                give(read.offset, end);
                if self.runs.len() == MAX_RUNS {
                    let oldest = (0..MAX_RUNS).min_by_key(|n| self.runs[*n].seen_ns);
                    self.runs.swap_remove(oldest.unwrap_or(0));
                }
                self.runs.push(SampledRun {
                    file: read.file,
                    descriptor: read.descriptor,
                    by_position: read.by_position,
                    end,
                    given: end,
                    times: 1,
                    seen_ns: now_ns,
                    read_bytes,
                });
                false
            }
        }
    }

    /// The thread runs, or waits for something else: advances its runs by the number of bytes it has read.
    fn guess(
        &mut self,
        id: u32,
        now_ns: u64,
        usage: &dyn Fn(u32) -> StorageUse,
        touches: &mut Vec<Touch>,
    ) {
        let is_live = |run: &SampledRun| {
            run.times > MIN_TIMES
                && run.is_live(now_ns)
                && usage(run.file.dev) == StorageUse::ReadAhead
        };
        let live = self.runs.iter().filter(|run| is_live(run)).count() as u64;
        if live == 0 {
            return;
        }
        let read_bytes = self.read_bytes(id);
        for run in self.runs.iter_mut().filter(|run| is_live(run)) {
            let read = read_bytes.saturating_sub(run.read_bytes);
            if read == 0 {
                continue;
            }
            // The descriptor may now belong to another file.
            let at = if run.by_position {
                place_of_descriptor(id, run.descriptor)
                    .map(|place| place.bytes)
                    .filter(|at| (run.end..=run.end.saturating_add(read)).contains(at))
            } else {
                let end = run.end + (read / live).min(run.max_guessed());
                is_of_file(id, run.descriptor, run.file).then_some(end)
            };
            let Some(at) = at else { continue };
            if at > run.given {
                touches.push(read_of_pages(id, run.file, run.given, at, now_ns));
                run.given = at;
            }
            if run.by_position {
                (run.end, run.read_bytes, run.seen_ns) = (at, read_bytes, now_ns);
            }
        }
    }

    /// Bytes that it has read by system calls, from files and everything else.
    fn read_bytes(&mut self, id: u32) -> u64 {
        let pid = self.pid;
        if self.io.is_none() {
            self.io = File::open(format!("/proc/{pid}/task/{id}/io")).ok();
        }
        let text = self.io.as_ref().and_then(|file| line(file).ok());
        text.and_then(|text| field(&text, "rchar:")).unwrap_or(0)
    }
}

/// Whether a descriptor still belongs to this file.
fn is_of_file(id: u32, descriptor: u32, file: FileKey) -> bool {
    let link = format!("/proc/{id}/fd/{descriptor}");
    place_of_open(Path::new(&link)).is_some_and(|(found, _)| found == file)
}

/// Returns whether this user may inspect the threads of a process.
pub fn may_look(pid: u32) -> std::io::Result<()> {
    line(&File::open(format!("/proc/{pid}/syscall"))?).map(|_| ())
}

/// Returns how many bytes a process has read by system calls, from files, pipes, sockets and so on; `thread` is any of its threads.
pub fn bytes_read_by(thread: u32) -> Option<u64> {
    let file = File::open(format!("/proc/{thread}/io")).ok()?;
    field(&line(&file).ok()?, "rchar:")
}

pub fn process_of(thread: u32) -> Option<u32> {
    let file = File::open(format!("/proc/{thread}/status")).ok()?;
    u32::try_from(field(&line(&file).ok()?, "Tgid:")?).ok()
}

/// The position of a descriptor, and how it was opened.
pub(crate) struct DescriptorPlace {
    pub bytes: u64,
    pub flags: u64,
}

/// `id` is a thread, a process, or `self`.
pub(crate) fn place_of_descriptor(
    id: impl std::fmt::Display,
    descriptor: impl std::fmt::Display,
) -> Option<DescriptorPlace> {
    let file = File::open(format!("/proc/{id}/fdinfo/{descriptor}")).ok()?;
    let text = line(&file).ok()?;
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"))?;
    Some(DescriptorPlace {
        bytes: field(&text, "pos:")?,
        flags: u64::from_str_radix(flags.trim(), 8).ok()?,
    })
}
