//! Merges several recorded runs into one plan.
//!
//! Only the first read of each page in a run is used, because the page is cached afterwards. The plan starts with the ranges of the first
//! run; additional ranges of later runs are inserted next to the ranges that they follow or precede in their run:
//!
//! ```text
//!   run 1   a 0..64K at 0 ms     b 0..8K at 20 ms                          c 0..4K at 30 ms
//!   run 2   a 0..64K at 5 ms     b 0..8K at 45 ms     d 0..4K at 46 ms     c 0..4K at 60 ms
//!   plan    a at 0, 2 runs       b at 20, 2 runs      d at 21, 1 run       c at 30, 2 runs
//! ```
//! Metadata reads of a block device are merged by offset. If `at_least` is set, the plan contains only ranges that occur in at least this
//! number of runs. If `max_bytes` is set, the ranges that save the least waiting time per byte are left out, until the remaining ranges
//! have at most this many bytes.

use crate::{MAX_FILES, MAX_RANGES, Plan, PlanFile, PlanRange};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::Path;

/// Ranges consist of whole pages, the unit of the kernel's cache.
const PAGE_BYTES: u64 = 4096;
/// Consecutive touches in a file become one range of at most this size. The value is a choice: a range is fetched as a
/// whole, and if it is late, the program waits for all of it.
const MAX_RANGE_BYTES: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The minimum share of runs that contain a range: numerator and denominator.
    pub at_least: (u32, u32),
    /// Maximum bytes of all ranges.
    pub max_bytes: Option<u64>,
}

impl Default for Selection {
    fn default() -> Selection {
        Selection {
            at_least: (2, 3),
            max_bytes: None,
        }
    }
}

/// Recorded runs of a program, from which a plan is made.
#[derive(Debug, Default)]
pub struct Runs {
    files: Vec<PlanFile>,
    /// The runs before the current one.
    items: Vec<Item>,
    /// The ranges of each file among the items, by their start.
    places: Vec<BTreeMap<u64, usize>>,
    runs: u32,
    /// Pages of the current run, each at its first touch.
    current: Vec<Touch>,
    seen: HashMap<u32, Intervals>,
    latest: HashMap<u32, usize>,
    /// Number of touches dropped because there are too many.
    pub dropped: u64,
}

/// A range of the unfinished plan.
#[derive(Clone, Debug)]
struct Item {
    file: u32,
    range: Range<u64>,
    at_ns: u64,
    thread: u32,
    stall_ns: u64,
    runs: u32,
}

/// One read of a range in a recorded run.
#[derive(Clone, Debug)]
pub struct Touch {
    /// The number returned by [`Runs::file`].
    pub file: u32,
    pub range: Range<u64>,
    /// Time since the start of the run.
    pub at_ns: u64,
    pub thread: u32,
    /// How long the program waited for the read.
    pub stall_ns: u64,
}

impl Runs {
    /// Adds a file to the plan and returns the file's number, or `None` if there are too many files. The caller must add each file only
    /// once.
    pub fn file(&mut self, file: PlanFile) -> Option<u32> {
        if self.files.len() >= MAX_FILES {
            return None;
        }
        self.files.push(file);
        self.places.push(BTreeMap::new());
        u32::try_from(self.files.len() - 1).ok()
    }

    pub fn path(&self, file: u32) -> Option<&Path> {
        self.files
            .get(file as usize)
            .map(|file| file.path.as_path())
    }

    /// Adds a read of the current run; reads must be in the order of their times.
    pub fn touch(&mut self, touch: Touch) {
        let Some(file) = self.files.get(touch.file as usize) else {
            return;
        };
        let end = touch.range.end.min(file.size).next_multiple_of(PAGE_BYTES);
        let pages = touch.range.start / PAGE_BYTES * PAGE_BYTES..end;
        for range in self.seen.entry(touch.file).or_default().add(&pages) {
            let last = self
                .latest
                .get(&touch.file)
                .and_then(|number| self.current.get_mut(*number));
            let is_one =
                |last: &&mut Touch| goes_on(&last.range, &range) && last.thread == touch.thread;
            if let Some(last) = last.filter(is_one) {
                last.range.end = range.end;
                last.stall_ns = last.stall_ns.saturating_add(touch.stall_ns);
                continue;
            }
            if self.current.len() + self.items.len() >= MAX_RANGES {
                self.dropped += 1;
                continue;
            }
            self.latest.insert(touch.file, self.current.len());
            self.current.push(Touch {
                range,
                ..touch.clone()
            });
        }
    }

    /// Ends the current run and starts the next run.
    pub fn end_run(&mut self) {
        self.runs += 1;
        self.seen.clear();
        self.latest.clear();
        // Aligns this run with the plan: a time in the plan, and the matching time in this run.
        let mut cursor = (0, self.current.first().map_or(0, |need| need.at_ns));
        for need in std::mem::take(&mut self.current) {
            let mut at = need.range.start;
            for number in self.overlapping(need.file, &need.range) {
                let common = self.cut(number, &need.range);
                let item = &mut self.items[common];
                item.runs += 1;
                cursor = (item.at_ns, need.at_ns);
                let there = item.range.clone();
                if at < there.start {
                    self.add(&need, at..there.start, cursor);
                }
                at = there.end;
            }
            if at < need.range.end {
                self.add(&need, at..need.range.end, cursor);
            }
        }
    }

    /// The items of a file that overlap `range`, in order.
    fn overlapping(&self, file: u32, range: &Range<u64>) -> Vec<usize> {
        let places = &self.places[file as usize];
        let before = places.range(..range.start).next_back();
        let before = before.filter(|(_, number)| self.items[**number].range.end > range.start);
        before
            .into_iter()
            .chain(places.range(range.start..range.end))
            .map(|(_, number)| *number)
            .collect()
    }

    /// Splits an item so that one part is exactly its intersection with `range`, and returns that part.
    fn cut(&mut self, number: usize, range: &Range<u64>) -> usize {
        let whole = self.items[number].range.clone();
        let common = whole.start.max(range.start)..whole.end.min(range.end);
        if common.end < whole.end {
            self.insert(Item {
                range: common.end..whole.end,
                ..self.items[number].clone()
            });
            self.items[number].range.end = common.end;
        }
        if common.start > whole.start {
            self.items[number].range.end = common.start;
            return self.insert(Item {
                range: common,
                ..self.items[number].clone()
            });
        }
        number
    }

    fn insert(&mut self, item: Item) -> usize {
        self.places[item.file as usize].insert(item.range.start, self.items.len());
        self.items.push(item);
        self.items.len() - 1
    }

    fn add(&mut self, need: &Touch, range: Range<u64>, cursor: (u64, u64)) {
        if self.items.len() >= MAX_RANGES {
            self.dropped += 1;
            return;
        }
        let at_ns = if self.runs == 1 {
            need.at_ns
        } else {
            cursor.0 + need.at_ns.saturating_sub(cursor.1)
        };
        self.insert(Item {
            file: need.file,
            range,
            at_ns,
            thread: need.thread,
            stall_ns: need.stall_ns,
            runs: 1,
        });
    }

    /// The items in the order of need. Adjacent items of a block device are merged: a file system reads its metadata
    /// in single blocks, which threads need in any order, and a request for each would cost more than the extra bytes.
    fn gathered(&self, items: Vec<Item>) -> Vec<Item> {
        let is_device = |item: &Item| self.files[item.file as usize].is_device();
        let (mut blocks, mut items): (Vec<Item>, Vec<Item>) =
            items.into_iter().partition(is_device);
        blocks.sort_by_key(|item| (item.file, item.range.start));
        blocks.dedup_by(|next, last| {
            let follows = last.file == next.file && goes_on(&last.range, &next.range);
            if follows {
                last.range.end = next.range.end;
                (last.at_ns, last.runs) = (last.at_ns.min(next.at_ns), last.runs.min(next.runs));
                last.stall_ns = last.stall_ns.saturating_add(next.stall_ns);
            }
            follows
        });
        items.extend(blocks);
        items.sort_by_key(|item| item.at_ns);
        items
    }

    /// Makes the plan from all finished runs.
    pub fn plan(mut self, selection: &Selection) -> Plan {
        let [wanted, of] = [selection.at_least.0, selection.at_least.1].map(u64::from);
        let mut items = std::mem::take(&mut self.items);
        items.retain(|item| u64::from(item.runs) * of >= wanted * u64::from(self.runs));
        if let Some(max) = selection.max_bytes {
            items = most_valuable(items, max);
        }
        let items = self.gathered(items);
        let mut plan = Plan {
            runs: self.runs,
            files: std::mem::take(&mut self.files),
            ..Plan::default()
        };
        let sizes: Vec<u64> = plan.files.iter().map(|file| file.size).collect();
        plan.ranges = linked(&joined(items), &sizes);
        let mut used = vec![false; plan.files.len()];
        plan.ranges
            .iter()
            .for_each(|range| used[range.file as usize] = true);
        let mut used = used.into_iter();
        plan.retain_files(|_| used.next() == Some(true));
        plan
    }
}

/// Whether two ranges are adjacent and together not too long.
fn goes_on(last: &Range<u64>, next: &Range<u64>) -> bool {
    last.end == next.start && next.end - last.start <= MAX_RANGE_BYTES
}

/// Keeps as many ranges as fit into `max` bytes, ranked by waiting time per byte, then by time.
fn most_valuable(mut items: Vec<Item>, max: u64) -> Vec<Item> {
    let len = |item: &Item| item.range.end - item.range.start;
    let worth = |item: &Item, other: &Item| u128::from(item.stall_ns) * u128::from(len(other));
    items.sort_by(|a, b| {
        let by_worth = worth(b, a).cmp(&worth(a, b));
        by_worth.then(a.at_ns.cmp(&b.at_ns))
    });
    let mut left = max;
    items.retain(|item| {
        let rest = left.checked_sub(len(item));
        left = rest.unwrap_or(left);
        rest.is_some()
    });
    items
}

/// Joins adjacent ranges that were split only by other runs.
fn joined(items: Vec<Item>) -> Vec<Item> {
    let mut joined: Vec<Item> = Vec::with_capacity(items.len());
    let mut latest: HashMap<u32, usize> = HashMap::new();
    for item in items {
        let last = latest.get(&item.file).map(|number| &mut joined[*number]);
        let is_one =
            |last: &&mut Item| goes_on(&last.range, &item.range) && last.thread == item.thread;
        if let Some(last) = last.filter(is_one) {
            last.range.end = item.range.end;
            last.runs = last.runs.min(item.runs);
            last.stall_ns = last.stall_ns.max(item.stall_ns);
            continue;
        }
        latest.insert(item.file, joined.len());
        joined.push(item);
    }
    joined
}

/// The ranges, each with its predecessor in the same thread.
fn linked(items: &[Item], sizes: &[u64]) -> Vec<PlanRange> {
    let mut latest: HashMap<u32, usize> = HashMap::new();
    let mut ranges = Vec::with_capacity(items.len());
    for (number, item) in items.iter().enumerate() {
        let before = latest.insert(item.thread, number);
        let gap = |before: usize| {
            item.at_ns
                .saturating_sub(items[before].at_ns + items[before].stall_ns)
        };
        let end = item.range.end.min(sizes[item.file as usize]);
        ranges.push(PlanRange {
            at_ns: Some(item.at_ns),
            after: before.and_then(|before| u32::try_from(before).ok()),
            gap_ns: before.map(gap),
            runs: item.runs,
            stall_ns: item.stall_ns,
            ..PlanRange::of(item.file, &(item.range.start..end))
        });
    }
    ranges
}

// A set of byte ranges; touching ranges are merged.
//
// ```text
//   0..4K, 8K..12K   add 2K..9K   new: 4K..8K   the set: 0..12K
// ```

/// A set of ranges, sorted by their start; ranges that overlap or adjoin are merged.
#[derive(Debug, Default)]
pub struct Intervals(BTreeMap<u64, u64>);

impl Intervals {
    /// Adds a range, and returns the parts of the range that were not in the set, sorted by their start.
    pub fn add(&mut self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut new = Vec::new();
        if range.is_empty() {
            return new;
        }
        let (mut start, mut end, mut at) = (range.start, range.end, range.start);
        let before = self
            .0
            .range(..range.start)
            .next_back()
            .map(|(start, end)| (*start, *end));
        let first = before
            .filter(|(_, end)| *end >= range.start)
            .map_or(range.start, |(start, _)| start);
        let touched: Vec<(u64, u64)> = self
            .0
            .range(first..=range.end)
            .map(|(start, end)| (*start, *end))
            .collect();
        for (known_start, known_end) in touched {
            if known_start > at {
                new.push(at..known_start.min(range.end));
            }
            at = at.max(known_end);
            (start, end) = (start.min(known_start), end.max(known_end));
            self.0.remove(&known_start);
        }
        if at < range.end {
            new.push(at..range.end);
        }
        self.0.insert(start, end);
        new
    }
}

// A memory budget for a plan while it is made or read.
//
// Limits on the number of files or parts do not bound memory: a path has up to 4096 bytes, a tensor's name 64 KiB. So all memory of a plan is
// taken from one budget first, and a hostile folder or header causes an error instead of exhausting memory.
//
// ```text
//   256 MiB ──take(path, 4144)──► ──take(range, 72)──► ... ──► Full: "more than 256 MiB of names, paths and ranges"
// ```
// Example: 250,000 files with paths of 100 bytes take 57 MB; with paths of 3,900 bytes, there is an error after 66,000.

/// Maximum memory for a plan in bytes, which is sufficient for 1,048,576 files with paths of 60 bytes and 2,097,152 ranges.
pub const MAX_BYTES: usize = 256 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than 256 MiB of names, paths and ranges")]
pub struct Full;

#[derive(Clone, Debug)]
pub struct Account {
    left: usize,
}

impl Default for Account {
    fn default() -> Account {
        Account { left: MAX_BYTES }
    }
}

impl Account {
    /// Subtracts the size of a `T`, and of the `more` bytes to which the `T` points, from the remaining memory.
    pub fn take<T>(&mut self, more: usize) -> Result<(), Full> {
        let bytes = size_of::<T>().saturating_add(more);
        self.left = self.left.checked_sub(bytes).ok_or(Full)?;
        Ok(())
    }

    /// Adds the size of a dropped `T`, and of the `more` bytes to which the `T` pointed, to the remaining memory.
    pub fn give_back<T>(&mut self, more: usize) {
        self.left = self
            .left
            .saturating_add(size_of::<T>().saturating_add(more))
            .min(MAX_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_is_what_no_earlier_range_has() {
        let mut set = Intervals::default();
        // Small numbers, so that ranges touch in all possible ways; a plain set of bytes is the reference.
        let mut bytes = [false; 64];
        let mut seed: u64 = 1;
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (start, len) = (seed >> 33 & 63, seed >> 40 & 7);
            let range = start..(start + len).min(64);
            let new: Vec<u64> = set.add(&range).into_iter().flatten().collect();
            let expected: Vec<u64> = range
                .clone()
                .filter(|byte| !bytes[*byte as usize])
                .collect();
            assert_eq!(new, expected, "{range:?}");
            range.for_each(|byte| bytes[byte as usize] = true);
            if seed.is_multiple_of(97) {
                (set, bytes) = (Intervals::default(), [false; 64]);
            }
        }
    }

    #[test]
    fn an_account_ends_at_its_limit() {
        let mut account = Account::default();
        account.take::<u64>(MAX_BYTES - 16).expect("there are more");
        assert_eq!(account.take::<u64>(1), Err(Full));
        account.take::<u64>(0).expect("exactly these are left");
        assert_eq!(
            (account.take::<u8>(0), account.take::<u64>(usize::MAX)),
            (Err(Full), Err(Full))
        );
        account.give_back::<u64>(0);
        assert_eq!(
            (account.take::<u64>(0), account.take::<u8>(0)),
            (Ok(()), Err(Full))
        );
    }
}
