//! Readahead across files: if a program reads files in the order of a listing, reads the next files before the program opens them.
//!
//! A *walk* is a reader that opens one file after the other in listing order. The *rate* of a source says how often files are opened in
//! listing order. The rate is the fraction of opened files whose predecessor in the listing was among the last 16 files opened, estimated
//! by the rule of succession. The formulas are:
//!
//! ```text
//!   each    = (run + 2 x rate) / (run + 2)         the chance that the next file is opened, after `run` files opened in a row;
//!                                                  at most the rate, or (run + 1) / (run + 2) if that is more
//!   chance  = each ^ n                             of the n-th file; at least what survival.rs requires, which depends on its bytes
//!   each   >= 1/2                                  below that nothing is read ahead
//! ```
//! Files are read ahead whole, or only their first part if reads from the start of a file usually end early
//! (`survival.rs`). The bytes read ahead count against the distance (`distance.rs`) and, weighted by the chance that
//! they are wasted, against the credit (`credit.rs`). About every (n/8)th of n files that are read ahead has a *mark*,
//! a page whose first read makes the policy read ahead more files. If the caller has passed the list of files that it
//! will read, these files are certain to be read, and their readahead is limited only by the distance and the cache.
//!
//! Example: files of 12 KiB in a store with 15 ms latency. The second file opened follows the first: the rate is 2/3, and so is the chance
//! `each`. With this latency, a file is worth reading ahead if its chance is at least 1/33. The chance of the 8th file is (2/3)^8 = 1/26,
//! and that of the 9th is too low, so 8 files are read ahead. After 20 files, `each` is 21/22 and 74 files are read ahead. If files are
//! opened at random, the rate is close to 0, and no files are read ahead.
//!
//! Source: the project's own design; Laplace's rule of succession; the minimum of 1/2 for `each` is from the specification of `auto`.

use super::{Auto, Birth, Readers, RunKind, Walk, WalkFile, distance, survival::ONE};
use crate::policy::{Answer, Ask, Why};
use crate::units::{ByteRange, FileId};

/// A walk may be this number of files ahead, which limits its bookkeeping.
const MAX_FILES: usize = 1024;
/// Marks among the files that are read ahead.
const MARKS: usize = 8;
/// At each decision, the remembered read length shrinks by one part in this number.
const LEN_FORGOTTEN: u64 = 16;
/// A walk may be ahead by this number of requests of at most `SHORT` bytes for each request that may be in flight, whatever the distance.
const SLOTS: u64 = 4;
const SHORT: u64 = 128 << 10;
/// Of a file that is almost certain to be opened, one byte in this number is still expected to be wasted.
const MIN_WASTE: u64 = 8;
/// A larger file is not read ahead if the source answers one fetch at a time: its transfer takes longer than the seek that is saved, and
/// delays the file before it.
const LARGE: u64 = 1 << 20;

impl Auto {
    /// Makes the reader a stream if it reached a mark in a file of which only the first part was read ahead.
    pub(super) fn begin_in_walk(&mut self, ask: &Ask<'_>, answer: &mut Answer) {
        let end = ask.request.end().min(ask.file_size);
        let is_part = |entry: &WalkFile| entry.planned < ask.file_size && end < ask.file_size;
        if self.walks.listed.get(&ask.file.0).is_some_and(is_part) {
            self.file(ask).size = ask.file_size;
            self.begin(ask, Birth::run(RunKind::Start, end, end), (0, 0), answer);
        }
    }

    /// Reads ahead the files after the current one.
    pub(super) fn follow(&mut self, ask: &Ask<'_>, answer: &mut Answer) {
        let Some(next) = ask.probe.next_file(ask.file) else {
            return;
        };
        let at = match self.walks.position(ask.file) {
            Some(at) => at,
            None if next.planned => self.start_walk(ask.file, 0),
            None => return,
        };
        let active = self.active();
        let mut walk = self.walks.all.swap_remove(at);
        if walk.files == 0 {
            walk.end = ask.file;
        }
        let before = answer.windows.len();
        self.top_up(&mut walk, active, ask, answer);
        self.walks.all.push(walk);
        if answer.windows.len() > before && answer.why.is_none_or(|why| !why.is_on()) {
            answer.why = Some(Why::NextFile);
        }
    }

    fn top_up(&mut self, walk: &mut Walk, active: Readers, ask: &Ask<'_>, answer: &mut Answer) {
        let (source, page) = (&ask.source, ask.probe.page_bytes());
        walk.len = ask.request.len().max(walk.len - walk.len / LEN_FORGOTTEN);
        let most = distance::most(source, (walk.len, 0), active, &self.effort);
        let others = source.unread_bytes.saturating_sub(walk.held);
        let rest = ask.file_size.saturating_sub(ask.request.end());
        let room = distance::room(source, &self.effort)
            .saturating_sub(others)
            .saturating_sub(rest);
        let (limit, each) = (most.saturating_sub(rest).min(room), self.walks.each(walk));
        let price = self.credit.price(source);
        let left = walk.held + price.left;
        let (mut chance, mean) = chain(each, walk.files);
        let mut waste = walk.held.saturating_mul(ONE - mean) / ONE;
        // The loop is bounded, because cached files are skipped and an order may be circular.
        for _ in 0..MAX_FILES {
            let Some(next) = ask.probe.next_file(walk.end) else {
                break;
            };
            let (file, size, planned) = (next.file, next.size, next.planned);
            chance = chance * each / ONE;
            let first = walk.len.clamp(1, size.max(1));
            let threshold = price.threshold(first);
            let len = (first + self.survival.ahead(RunKind::Start, first, threshold)).min(size);
            // Cut a file only if it alone exceeds the limit.
            let len = if walk.bytes == 0 {
                len.min(limit.max(first))
            } else {
                len
            };
            let held = len.next_multiple_of(page);
            let bytes = walk.bytes + held;
            let far = (len + self.survival.ahead(RunKind::Start, len, ONE / 2)).min(size);
            let more = if planned {
                0
            } else {
                (len * (ONE - chance) / ONE).max(len / MIN_WASTE)
            };
            let is_likely = each >= ONE / 2 && chance >= threshold && waste + more <= price.free;
            // Small files take many requests for few bytes. Some requests must wait for a slot, so that the source stays busy.
            let requests = walk.files as u64 + (walk.far + far) / SHORT;
            let is_few = requests < SLOTS * u64::from(source.ahead_slots);
            let is_apart = source.single_rate == 0 && size > LARGE && !planned;
            let is_near = !is_apart
                && bytes <= room
                && (planned || bytes <= left)
                && (is_few || walk.far + far <= limit);
            if !(is_near && (planned || is_likely)) || walk.files >= MAX_FILES {
                break;
            }
            walk.end = file;
            let missing = ask
                .probe
                .of(file)
                .missing(ByteRange::between(0, len))
                .min(len);
            if missing == 0
                || self.files.contains_key(&file.0)
                || self.walks.listed.contains_key(&file.0)
            {
                continue;
            }
            let entry = WalkFile {
                walk: walk.number,
                planned: len,
                held,
                far,
                unread: missing,
                opened: false,
            };
            self.list(walk, (file, size), entry, page, answer);
            waste += more;
        }
        if answer.max_fetch == 0 {
            answer.max_fetch = distance::request(most, 1, source);
        }
        let known = &self.walks.listed;
        while walk
            .queue
            .front()
            .is_some_and(|file| !known.contains_key(file))
        {
            walk.queue.pop_front();
        }
    }

    /// Plans reading the first part of the next file of a walk, and records it.
    fn list(
        &mut self,
        walk: &mut Walk,
        (file, size): (FileId, u64),
        entry: WalkFile,
        page: u64,
        answer: &mut Answer,
    ) {
        let len = entry.planned;
        walk.unmarked += 1;
        let is_marked = walk.unmarked > walk.files / MARKS || len < size;
        walk.unmarked = if is_marked { 0 } else { walk.unmarked };
        read_head(file, (len, size), is_marked, page, answer);
        walk.bytes += entry.held;
        walk.far += entry.far;
        walk.files += 1;
        walk.held += entry.unread;
        walk.queue.push_back(file.0);
        self.credit.change(0, entry.unread);
        self.walks.listed.insert(file.0, entry);
    }
}

/// Plans to read the first `len` bytes of a file of `size` bytes. If these are only a part of the file, their second half gets a mark,
/// too, at which a stream continues.
fn read_head(
    file: FileId,
    (len, size): (u64, u64),
    is_marked: bool,
    page: u64,
    answer: &mut Answer,
) {
    let half = (len / 2).next_multiple_of(page);
    if len < size && half < len {
        answer.read_file(file, (0, half), Some(0));
        return answer.read_file(file, (half, len), Some(half));
    }
    answer.read_file(file, (0, len), is_marked.then_some(0));
}

/// The chance that the file `files` places further on is opened, and the mean chance of the files up to it.
fn chain(each: u64, files: usize) -> (u64, u64) {
    let (mut chance, mut sum) = (ONE, 0);
    for _ in 0..files {
        chance = chance * each / ONE;
        sum += chance;
    }
    (chance, if files == 0 { ONE } else { sum / files as u64 })
}
