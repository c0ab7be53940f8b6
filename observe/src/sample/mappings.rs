//! Finds which pages of a process's mappings were accessed, from `/proc/PID/pagemap`.
//!
//! ```text
//!   file pages    0 ......... 900 |  .................  | 262144 ....... 263000 |
//!                 touched        end                     touched              end       two runs: each sample checks after each end
//!   sweep         all pages, when a thread waits for a fault and no end has moved: finds new runs
//! ```
//! The kernel maps the pages of 64 KiB around a fault, so accesses are visible only in blocks of that size: sixteen
//! pages of 4 KiB. Checking all pages of a mapping of 2 GiB takes 3 ms, so each such check is followed by a pause of thirty times its
//! duration.

use super::{STREAK_NS, StorageUse};
use crate::touch::{Touch, TouchKind};
use crate::tracefs::now_ns;
use foreread_os::host::{DeviceNumber, FileMapping, mapped_files};
use foreread_pagecache::page_bytes;
use foreread_trace::follow::call::FileKey;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// The granularity of observed touches: the range that the kernel maps around a fault (`fault_around_bytes`), or one
/// page if pages are larger.
pub const BLOCK_BYTES: u64 = 64 << 10;
/// Entries of pagemap that are read at once after an end, and in a sweep.
const NEAR_PAGES: u64 = 256;
const SWEEP_PAGES: usize = 8192;
/// Most pieces that are read after an end in one sample.
const MAX_PIECES: usize = 16;
const MAX_ENDS: usize = 64;
/// An end that has not moved in this many samples is checked only in one of [`QUIET_EVERY`] samples.
const QUIET_LOOKS: u32 = 16;
const QUIET_EVERY: usize = 16;
const MAX_MAPPINGS: usize = 256;
const MIN_BYTES: u64 = 128 << 10;
/// Most pages of a sweep; the rest of a larger process is not observed.
const MAX_SWEPT_PAGES: u64 = 64 << 20 >> 2;
const MAPS_EVERY_NS: u64 = 50_000_000;
const MIN_SWEEP_PAUSE_NS: u64 = 3_000_000;
const SWEEP_PAUSE: u64 = 30;
/// Bit 63: the page is in memory and mapped.
const PRESENT: u64 = 1 << 63;

struct MappedFile {
    block: u64,
    start: u64,
    pages: u64,
    file: FileKey,
    /// The page of the file that is mapped at the start.
    offset: u64,
    /// Blocks that were seen, as a bitmap.
    seen: Vec<u64>,
    ends: Vec<RunEnd>,
    looks: usize,
}

#[derive(Clone, Copy)]
struct RunEnd {
    /// The end, in pages from the start of the mapping.
    page: u64,
    /// Samples since it has moved.
    quiet: u32,
}

impl RunEnd {
    fn at(page: u64) -> RunEnd {
        RunEnd { page, quiet: 0 }
    }
}

/// The mapped files of a process, and their touched pages.
#[derive(Default)]
pub struct MappedFiles {
    pid: u32,
    pagemap: Option<File>,
    files: Vec<MappedFile>,
    maps_at_ns: Option<u64>,
    maps_cost_ns: u64,
    swept_at_ns: Option<u64>,
    sweep_cost_ns: u64,
    waiters: u64,
    streak: Option<FaultStreak>,
    /// The storage on which pages were last touched.
    latest: Option<u32>,
    buffer: Vec<u8>,
}

impl MappedFiles {
    pub fn new(pid: u32) -> MappedFiles {
        MappedFiles {
            pid,
            buffer: vec![0; SWEEP_PAGES * 8],
            ..MappedFiles::default()
        }
    }

    /// Returns the storage device on which pages were last touched. If a thread waits in a page fault, it is assumed to wait for
    /// this device, because samples do not show for which storage a fault waits.
    pub fn latest_device(&self) -> Option<u32> {
        self.latest
    }

    pub fn wait_for_faults(&mut self, threads: u64) {
        self.waiters = threads;
    }

    /// Takes one sample of the mappings. Returns whether a touched page was found.
    pub fn look(
        &mut self,
        at_ns: u64,
        usage: &dyn Fn(u32) -> StorageUse,
        touches: &mut Vec<Touch>,
    ) -> bool {
        let waiters = std::mem::take(&mut self.waiters);
        let is_waiting = waiters > 0;
        let is_old = |at: u64, pause: u64| at_ns.saturating_sub(at) >= pause;
        let pause = MAPS_EVERY_NS.max(self.maps_cost_ns * SWEEP_PAUSE);
        if is_waiting && self.maps_at_ns.is_none_or(|at| is_old(at, pause)) {
            self.maps_at_ns = Some(at_ns);
            let began_ns = now_ns();
            // After an exec, the open pagemap belongs to no memory.
            self.pagemap = File::open(format!("/proc/{}/pagemap", self.pid)).ok();
            let maps = fs::read(format!("/proc/{}/maps", self.pid)).unwrap_or_default();
            // A name may not be valid UTF-8.
            renew(&mut self.files, &String::from_utf8_lossy(&maps));
            self.maps_cost_ns = now_ns().saturating_sub(began_ns);
        }
        let mut found = Vec::new();
        let Self {
            files,
            buffer,
            pagemap,
            ..
        } = self;
        let Some(pagemap) = pagemap else {
            return false;
        };
        let in_use = |file: &&mut MappedFile| usage(file.file.dev) != StorageUse::PassedOver;
        for file in files.iter_mut().filter(in_use) {
            file.beyond_ends(pagemap, buffer, &mut found);
        }
        let pause = MIN_SWEEP_PAUSE_NS.max(self.sweep_cost_ns * SWEEP_PAUSE);
        if is_waiting && found.is_empty() && self.swept_at_ns.is_none_or(|at| is_old(at, pause)) {
            let began_ns = now_ns();
            let mut left = MAX_SWEPT_PAGES;
            for file in files.iter_mut().filter(in_use) {
                let pages = file.pages.min(left);
                left -= pages;
                file.sweep(pagemap, pages, buffer, &mut found);
            }
            let ended_ns = now_ns();
            self.sweep_cost_ns = ended_ns.saturating_sub(began_ns);
            self.swept_at_ns = Some(ended_ns);
        }
        let now_ns = now_ns();
        let has_found = !found.is_empty();
        self.latest = found.last().map(|found| found.file.dev).or(self.latest);
        let (looked, known): (Vec<FoundPages>, Vec<FoundPages>) = found
            .into_iter()
            .partition(|found| usage(found.file.dev).looked().is_some());
        let kind = match is_waiting {
            true => TouchKind::Fault,
            false => TouchKind::Mapped,
        };
        let known = known.iter();
        touches.extend(known.map(|found| found.touch(self.pid, kind, now_ns)));
        self.look_at_storage(looked, waiters, now_ns, touches);
        has_found
    }

    /// Combines consecutive waits, and reports them with their mean time.
    fn look_at_storage(
        &mut self,
        found: Vec<FoundPages>,
        waiters: u64,
        now_ns: u64,
        touches: &mut Vec<Touch>,
    ) {
        let pid = self.pid;
        for found in &found {
            touches.push(found.touch(pid, TouchKind::Mapped, now_ns));
        }
        if waiters == 0 && self.streak.is_none() {
            return;
        }
        let faults = || major_faults(pid).unwrap_or(0);
        // The pages that a sweep finds first may belong to any earlier fault.
        let is_first = self.streak.is_none();
        let streak = self.streak.get_or_insert_with(|| FaultStreak {
            since_ns: now_ns,
            faults: faults(),
            ..FaultStreak::default()
        });
        let pages = |found: &FoundPages| found.pages.1 - found.pages.0 + 1;
        if !is_first {
            streak.pages += found.iter().map(pages).sum::<u64>();
        }
        streak.found = streak.found.take().or(found.into_iter().next());
        (streak.looks, streak.waiters) = (streak.looks + 1, streak.waiters + waiters);
        let time_ns = now_ns.saturating_sub(streak.since_ns);
        if waiters > 0 && time_ns < STREAK_NS {
            return;
        }
        let Some(streak) = self.streak.take() else {
            return;
        };
        let Some(found) = streak.found else {
            return;
        };
        let count = faults().saturating_sub(streak.faults).max(1);
        let waited_ns = time_ns * streak.waiters / streak.looks / count;
        // The miss has as many pages as a fault has added on average.
        let (_, last) = found.pages;
        let asked = (last, last);
        let missed = (last, last + (streak.pages / count).max(1) - 1);
        let mut touch = |pages, kind, at_ns| {
            touches.push(FoundPages { pages, ..found }.touch(pid, kind, at_ns));
        };
        // In the order of the kernel's events.
        touch(asked, TouchKind::Fault, streak.since_ns);
        touch(missed, TouchKind::Miss, streak.since_ns);
        touch(asked, TouchKind::Mapped, streak.since_ns + waited_ns);
    }
}

#[derive(Default)]
struct FaultStreak {
    since_ns: u64,
    /// The process's number of major faults until then.
    faults: u64,
    /// The first pages that were added.
    found: Option<FoundPages>,
    pages: u64,
    looks: u64,
    /// Number of waiting threads, summed over all samples.
    waiters: u64,
}

fn major_faults(pid: u32) -> Option<u64> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    // The name may contain spaces and brackets.
    let (_, rest) = text.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(9)?.parse().ok()
}

/// Pages of a file that a process has touched since the last sample.
struct FoundPages {
    file: FileKey,
    pages: (u64, u64),
}

impl FoundPages {
    fn touch(&self, thread: u32, kind: TouchKind, at_ns: u64) -> Touch {
        Touch {
            at_ns,
            thread,
            file: self.file,
            pages: self.pages,
            kind,
        }
    }
}

/// Which of these entries are in memory.
fn present<'b>(
    pagemap: &File,
    page: u64,
    count: usize,
    buffer: &'b mut [u8],
) -> impl Iterator<Item = bool> + use<'b> {
    let wanted = (count * 8).min(buffer.len());
    let bytes = pagemap
        .read_at(&mut buffer[..wanted], page * 8)
        .unwrap_or(0);
    buffer[..bytes]
        .as_chunks::<8>()
        .0
        .iter()
        .map(|entry| u64::from_ne_bytes(*entry) & PRESENT != 0)
}

impl MappedFile {
    fn is_seen(&self, block: u64) -> bool {
        let word = self.seen.get((block / 64) as usize);
        word.is_some_and(|word| word & (1 << (block % 64)) != 0)
    }

    fn see(&mut self, first: u64, last: u64) {
        for block in first / self.block..=last / self.block {
            if let Some(word) = self.seen.get_mut((block / 64) as usize) {
                *word |= 1 << (block % 64);
            }
        }
    }

    fn forget(&mut self, block: u64) {
        if let Some(word) = self.seen.get_mut((block / 64) as usize) {
            *word &= !(1 << (block % 64));
        }
    }

    fn found(&self, first: u64, last: u64) -> FoundPages {
        FoundPages {
            file: self.file,
            pages: (self.offset + first, self.offset + last),
        }
    }

    /// How far each run has advanced.
    fn beyond_ends(&mut self, pagemap: &File, buffer: &mut [u8], found: &mut Vec<FoundPages>) {
        self.looks += 1;
        for n in 0..self.ends.len() {
            let RunEnd { page: end, quiet } = self.ends[n];
            if quiet >= QUIET_LOOKS && !(self.looks + n).is_multiple_of(QUIET_EVERY) {
                continue;
            }
            self.ends[n].quiet = quiet.saturating_add(1);
            let mut at = end;
            for piece in 0..MAX_PIECES {
                // Most ends in a program that reads at random never move.
                let near = if piece == 0 { self.block } else { NEAR_PAGES };
                let left = self.pages.saturating_sub(at).min(near) as usize;
                let gone = present(pagemap, self.start + at, left, buffer);
                let gone = gone.take_while(|is_present| *is_present).count();
                at += gone as u64;
                if left == 0 || gone < left {
                    break;
                }
            }
            if at > end {
                self.ends[n] = RunEnd::at(at);
                self.see(end, at - 1);
                found.push(self.found(end, at - 1));
            }
        }
        // An end that has reached another end, or the end of the mapping, is no longer a run.
        let pages = self.pages;
        self.ends.retain(|end| end.page < pages);
        let mut kept: Vec<RunEnd> = Vec::with_capacity(self.ends.len());
        for end in self.ends.drain(..) {
            if !kept.iter().any(|one| one.page == end.page) {
                kept.push(end);
            }
        }
        self.ends = kept;
    }

    /// Examines all pages: returns blocks that had not been seen before.
    fn sweep(
        &mut self,
        pagemap: &File,
        pages: u64,
        buffer: &mut [u8],
        found: &mut Vec<FoundPages>,
    ) {
        let (of_block, in_block) = (self.block, self.block as usize);
        let mut run: Option<(u64, u64)> = None;
        let mut at = 0;
        while at < pages {
            let count = (pages - at).min(SWEEP_PAGES as u64) as usize;
            let mut blocks = vec![None; count.div_ceil(in_block)];
            for (n, is_present) in present(pagemap, self.start + at, count, buffer).enumerate() {
                if is_present {
                    let page = at + n as u64;
                    let (first, _) = blocks[n / in_block].unwrap_or((page, page));
                    blocks[n / in_block] = Some((first, page));
                }
            }
            for (n, touched) in blocks.into_iter().enumerate() {
                let block = at / of_block + n as u64;
                match touched {
                    Some((first, last)) if !self.is_seen(block) => {
                        run = match run {
                            Some((start, end)) if end + of_block >= block * of_block => {
                                Some((start, last))
                            }
                            done => {
                                self.end_run(done, found);
                                Some((first, last))
                            }
                        };
                    }
                    Some(_) => self.end_run(run.take(), found),
                    None => {
                        // Pages that have left the memory may be touched again.
                        self.forget(block);
                        self.end_run(run.take(), found);
                    }
                }
            }
            at += count as u64;
        }
        self.end_run(run, found);
    }

    fn end_run(&mut self, run: Option<(u64, u64)>, found: &mut Vec<FoundPages>) {
        let Some((first, last)) = run else {
            return;
        };
        self.see(first, last);
        found.push(self.found(first, last));
        if last + 1 < self.pages {
            if self.ends.len() == MAX_ENDS {
                self.ends.remove(0);
            }
            self.ends.push(RunEnd::at(last + 1));
        }
    }
}

/// The file mappings in the text of `maps`; mappings that were already known keep their state.
fn renew(files: &mut Vec<MappedFile>, maps: &str) {
    let mut new: Vec<MappedFile> = Vec::new();
    for file in mapped_files(maps).filter_map(|found| mapped(&found)) {
        if new.len() == MAX_MAPPINGS {
            break;
        }
        let known = files.iter().position(|known| {
            (known.start, known.pages, known.file, known.offset)
                == (file.start, file.pages, file.file, file.offset)
        });
        new.push(known.map_or(file, |known| files.swap_remove(known)));
    }
    *files = new;
}

fn mapped(found: &FileMapping<'_>) -> Option<MappedFile> {
    let Range { start, end } = found.addresses;
    let bytes = end.checked_sub(start)?;
    if !found.is_readable || bytes < MIN_BYTES {
        return None;
    }
    let page = page_bytes();
    let (pages, block) = (bytes / page, (BLOCK_BYTES / page).max(1));
    let DeviceNumber { major, minor } = found.device;
    Some(MappedFile {
        block,
        start: start / page,
        pages,
        file: FileKey::new(major, minor, found.inode),
        offset: found.offset / page,
        seen: vec![0; pages.div_ceil(block * 64) as usize],
        ends: Vec::new(),
        looks: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_of_files_keep_seen_pages() {
        let maps = "7f0000000000-7f0040000000 r--s 00010000 fd:03 77 /models/a b.safetensors\n\
                    7f0050000000-7f0050010000 r--p 00000000 fd:03 78 /usr/lib/small.so\n\
                    7f0060000000-7f0070000000 rw-p 00000000 00:00 0 [heap]\n\
                    7f0080000000-7f0090000000 ---p 00000000 fd:03 79 /guard\nnonsense\n";
        let mut files = Vec::new();
        renew(&mut files, maps);
        assert_eq!(files.len(), 1);
        let file = &mut files[0];
        let page = page_bytes();
        assert_eq!(
            (file.pages, file.offset),
            ((1 << 30) / page, (64 << 10) / page)
        );
        assert_eq!((file.file.device(), file.file.ino), ((0xfd, 3), 77));
        let block = file.block;
        file.see(2 * block, 3 * block - 1);
        assert!(file.is_seen(2) && !file.is_seen(1) && !file.is_seen(3));
        renew(&mut files, maps);
        assert!(files[0].is_seen(2));
    }

    /// A fault, the pages that are read for it, and the thread that continues: the pages of the miss contain the page of the fault.
    #[test]
    fn waits_of_faults_are_reported_in_the_order_of_the_kernels_events() {
        let file = FileKey { dev: 7, ino: 12 };
        let mut files = MappedFiles::new(std::process::id());
        let mut touches = Vec::new();
        for (first, now_ns) in [(0, 0), (64, STREAK_NS)] {
            let pages = (first, first + 63);
            touches.clear();
            files.look_at_storage(vec![FoundPages { file, pages }], 1, now_ns, &mut touches);
        }
        let kinds = Vec::from_iter(touches.iter().map(|touch| touch.kind));
        use TouchKind::{Fault, Mapped, Miss};
        assert_eq!(kinds, [Mapped, Fault, Miss, Mapped]);
        let [_, fault, miss, mapped] = touches[..] else {
            unreachable!()
        };
        assert!(miss.pages.0 <= fault.pages.0 && fault.pages.1 <= miss.pages.1);
        assert!(fault.at_ns == 0 && fault.at_ns < mapped.at_ns);
    }
}
