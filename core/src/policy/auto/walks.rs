//! Keeps track of walks, that is, readers that open files in listing order: which files were read ahead for each walk, and how much of
//! them was used.
//!
//! ```text
//!   opened 7 after 6      a walk begins        run 1         planned: 8 9 10 11        end: 11
//!   opened 8              the walk continues   run 2         ahead:     9 10 11
//!   opened 30             its predecessor was not opened recently: no walk
//!   closed 8              its entry is removed; bytes of it that were not read are wasted
//! ```
//! If the reader skips a file that was read ahead, the entry of the file is kept until 16 more files were opened. A walk ends if none of
//! its files was among the last 256 files opened, or if a ninth walk begins. Unused readahead of an ended walk counts as wasted
//! (`credit.rs`).
//!
//! Example: four programs take files in turn from one list. Files 4 to 7 are open at the same time. The predecessor of each is among the
//! last 16 files opened, so the four programs together are one walk.
//!
//! Source: the project's own design.

use super::{Auto, RunKind, survival};
use crate::units::FileId;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// The largest number of walks of a source, which limits their bookkeeping.
const MAX_WALKS: usize = 8;
/// A file continues a walk if its predecessor is among this number of files opened last. So many readers may go through a listing in turn.
const RECENT: usize = 16;
/// A walk has ended if it continued with none of this number of files opened last.
const IDLE_OPENS: u64 = 256;

/// A file that was read ahead for a walk (a reader that opens files in listing order).
pub struct WalkFile {
    pub walk: u32,
    /// The number of its first bytes that were planned, and how many of them no read has demanded.
    pub planned: u64,
    pub unread: u64,
    /// Bytes that the planned pages occupy in the cache, and bytes of the file that its reader is expected to read.
    pub held: u64,
    pub far: u64,
    pub opened: bool,
}

/// A reader that opens one file after the other in listing order.
#[derive(Default)]
pub struct Walk {
    pub number: u32,
    /// The file that it opened last, and the last file that was planned.
    pub at: FileId,
    pub end: FileId,
    /// Number of files that it opened in a row.
    pub run: u64,
    /// Files that were planned, oldest first; some of them may be closed.
    pub queue: VecDeque<u32>,
    /// Number of planned files that are not opened yet, the bytes that they occupy in the cache, and the bytes that the reader is expected
    /// to read of them.
    pub files: usize,
    pub bytes: u64,
    pub far: u64,
    pub unmarked: usize,
    /// Length of its reads. The last read of a file may be shorter and lowers it only slowly.
    pub len: u64,
    /// Bytes read ahead and not used yet.
    pub held: u64,
    /// The source's count of opened files when the walk last continued.
    pub seen: u64,
}

impl Walk {
    /// Records that the reader has reached or passed a file.
    fn reached(&mut self, entry: &WalkFile) {
        self.files = self.files.saturating_sub(1);
        (self.bytes, self.far) = (
            self.bytes.saturating_sub(entry.held),
            self.far.saturating_sub(entry.far),
        );
    }
}

/// The walks of a source: its readers that open files in listing order.
#[derive(Default)]
pub struct Walks {
    pub all: Vec<Walk>,
    pub listed: BTreeMap<u32, WalkFile>,
    recent: VecDeque<FileId>,
    pub opened: u64,
    number: u32,
    /// Number of opened files that have a predecessor, and how many of these predecessors were opened recently.
    judged: u64,
    followed: u64,
}

impl Walks {
    /// The part of opened files whose predecessor was opened recently; 1/2 while nothing is known.
    fn rate(&self) -> u64 {
        survival::ONE * (self.followed + 1) / (self.judged + 2)
    }

    /// Returns the chance that the next file in listing order is opened, too.
    pub fn each(&self, walk: &Walk) -> u64 {
        let (rate, run) = (self.rate(), walk.run);
        let own = survival::ONE * (run + 1) / (run + 2);
        // The files of a long walk are also part of the rate, and must not count twice.
        ((run * survival::ONE + 2 * rate) / (run + 2)).min(rate.max(own))
    }

    /// The number of walks (readers that open files in listing order) that have read ahead files which are not opened
    /// yet.
    pub fn active(&self) -> u64 {
        self.all.iter().filter(|walk| walk.files > 0).count() as u64
    }

    pub fn walk(&mut self, number: u32) -> Option<&mut Walk> {
        self.all.iter_mut().find(|walk| walk.number == number)
    }

    /// Returns the index of the walk (reader in listing order) for which this file was read ahead, or whose reader opened it last.
    pub fn position(&self, file: FileId) -> Option<usize> {
        let number = self.listed.get(&file.0).map(|listed| listed.walk);
        self.all
            .iter()
            .position(|walk| number.map_or(walk.at == file, |number| walk.number == number))
    }
}

impl Auto {
    /// Records that a file was opened; `before` is its predecessor in the order.
    pub(super) fn opened(&mut self, file: FileId, before: Option<FileId>) {
        let walks = &mut self.walks;
        let follows = before.is_some_and(|before| walks.recent.contains(&before));
        walks.opened += 1;
        if before.is_some() {
            (walks.judged, walks.followed) =
                (walks.judged + 1, walks.followed + u64::from(follows));
            if walks.judged >= u64::from(survival::HALVED_AT) {
                (walks.judged, walks.followed) = (walks.judged / 2, walks.followed / 2);
            }
        }
        walks.recent.push_front(file);
        walks.recent.truncate(RECENT);
        let of_walk = walks.position(file);
        let next_of = || walks.all.iter().position(|walk| Some(walk.at) == before);
        match of_walk.or_else(next_of) {
            Some(at) => self.go_to(at, (file, before), follows),
            None if follows => _ = self.start_walk(file, 1),
            None => {}
        }
    }

    /// Records that a walk opened a file.
    fn go_to(&mut self, at: usize, (file, before): (FileId, Option<FileId>), follows: bool) {
        let Walks {
            all,
            listed,
            opened,
            ..
        } = &mut self.walks;
        let walk = &mut all[at];
        (walk.at, walk.seen) = (file, *opened);
        walk.run = if follows { walk.run + 1 } else { walk.run / 2 };
        match listed.get_mut(&file.0) {
            Some(entry) if !entry.opened => {
                entry.opened = true;
                walk.reached(entry);
            }
            Some(_) => {}
            // The reader has overtaken its readahead, which continues from here.
            None if Some(walk.end) == before => walk.end = file,
            None => {}
        }
        // The walk gives up files that the reader skipped long ago.
        let here = walk
            .queue
            .iter()
            .position(|other| *other == file.0)
            .unwrap_or(0);
        let passed: Vec<u32> = walk
            .queue
            .iter()
            .take(here.saturating_sub(RECENT))
            .copied()
            .collect();
        walk.queue.drain(..passed.len());
        passed
            .into_iter()
            .filter(|other| *other != file.0)
            .for_each(|other| self.give_up(FileId(other), false));
    }

    /// Adds a walk and removes walks that have ended. If there are too many, the new walk replaces the one that continued longest ago.
    pub(super) fn start_walk(&mut self, file: FileId, run: u64) -> usize {
        let walks = &mut self.walks;
        let opened = walks.opened;
        let oldest = walks.all.iter().map(|walk| walk.seen).min().unwrap_or(0);
        let is_full = walks.all.len() == MAX_WALKS;
        let is_over =
            |walk: &mut Walk| walk.seen + IDLE_OPENS < opened || (is_full && walk.seen == oldest);
        let gone: Vec<Walk> = walks.all.extract_if(.., is_over).collect();
        for walk in gone {
            self.credit.change(walk.held, 0);
            walk.queue
                .iter()
                .for_each(|file| _ = walks.listed.remove(file));
        }
        walks.number += 1;
        walks.all.push(Walk {
            number: walks.number,
            at: file,
            end: file,
            run,
            seen: opened,
            ..Walk::default()
        });
        walks.all.len() - 1
    }

    /// Gives up what was read ahead of a file. If `learns` is set, the part that was read counts as a run from the start of the file.
    pub(super) fn give_up(&mut self, file: FileId, learns: bool) {
        let Some(entry) = self.walks.listed.remove(&file.0) else {
            return;
        };
        let read = entry.planned.saturating_sub(entry.unread);
        if learns && read > 0 {
            self.survival
                .grew(RunKind::Start, None, survival::octave(read));
            if entry.unread > 0 {
                self.survival.ended(RunKind::Start, survival::octave(read));
            }
        }
        let Some(walk) = self.walks.walk(entry.walk) else {
            return;
        };
        self.credit.read(&mut walk.held, entry.unread);
        if !entry.opened {
            walk.reached(&entry);
        }
    }

    /// Records that bytes which a walk had read ahead were demanded.
    pub(super) fn used_by_walk(&mut self, file: FileId, bytes: u64) {
        let Some(entry) = self
            .walks
            .listed
            .get_mut(&file.0)
            .filter(|entry| entry.unread > 0)
        else {
            return;
        };
        let (bytes, number) = (bytes.min(entry.unread), entry.walk);
        entry.unread -= bytes;
        if let Some(walk) = self.walks.walk(number) {
            self.credit.read(&mut walk.held, bytes);
        }
    }

    /// Lets a stream in this file take over what a walk has read ahead after `pos`. Returns the end of that readahead, and its unread
    /// bytes.
    pub(super) fn take_over(&mut self, file: FileId, pos: u64) -> Option<(u64, u64)> {
        let entry = self
            .walks
            .listed
            .get_mut(&file.0)
            .filter(|entry| entry.planned > pos)?;
        let (end, held, number) = (
            entry.planned,
            core::mem::take(&mut entry.unread),
            entry.walk,
        );
        let walk = self.walks.walk(number)?;
        let held = held.min(walk.held);
        walk.held -= held;
        Some((end, held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of `files.rs`, and a source where files are seldom opened in listing order.
    #[test]
    fn a_long_walk_is_believed() {
        let mut auto = Auto::new(1265);
        auto.opened(FileId(0), None);
        assert!(auto.walks.all.is_empty(), "nothing is before it");
        auto.opened(FileId(1), Some(FileId(0)));
        let each = |auto: &Auto| auto.walks.each(&auto.walks.all[0]);
        assert_eq!(
            (auto.walks.all.len(), each(&auto)),
            (1, survival::ONE * 2 / 3)
        );
        (2..21).for_each(|file| auto.opened(FileId(file), Some(FileId(file - 1))));
        assert_eq!(
            (auto.walks.all.len(), auto.walks.all[0].run, each(&auto)),
            (1, 20, survival::ONE * 21 / 22)
        );
        // Files opened at random are no walk, and lower the rate.
        (0..200).for_each(|n| auto.opened(FileId(1000 + 100 * n), Some(FileId(999 + 100 * n))));
        assert_eq!(auto.walks.all.len(), 1);
        assert!(auto.walks.rate() < survival::ONE / 8 && each(&auto) > survival::ONE * 9 / 10);
        let run = 1;
        auto.walks.all[0].run = run;
        assert!(
            each(&auto) < survival::ONE / 2,
            "one file may follow by chance"
        );
    }

    /// A ninth walk ends the oldest walk.
    #[test]
    fn walks_have_a_limit() {
        let mut auto = Auto::new(1265);
        for walk in 0..20 {
            auto.opened(FileId(walk * 100), None);
            auto.opened(FileId(walk * 100 + 1), Some(FileId(walk * 100)));
        }
        let first: Vec<u32> = auto.walks.all.iter().map(|walk| walk.at.0 / 100).collect();
        assert_eq!(first, (12..20).collect::<Vec<_>>());
    }
}
