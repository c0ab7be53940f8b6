//! Room for new pieces: the limit, the space that stays free, and which pieces make way.
//!
//! Pieces are in two queues, as in 2Q (Johnson and Shasha, VLDB 1994) without its list of names that are gone: those that were used once,
//! by the read that fetched them, and those that were used again. The first make way first, the oldest before the others, as long as they
//! have more than a tenth of the limit; then the second, the least recently used before the others. So one scan of a large file pushes out
//! what other scans left, and not what is read again and again.
//!
//! ```text
//!   written ──► used once ──used again──► used again ──► (used: to the end of the queue)
//!                  └─ makes way first        └─ makes way when the first have a tenth of the limit or less
//! ```
//! The folder has no index: what makes way is found by a walk, which remembers the oldest pieces; the next ones are taken from memory. A
//! walk also sets the account right, and removes what writers left that are gone.

use super::files::CacheFiles;
use super::folder::{CacheFolder, PieceUse, inside};
use super::latest;
use super::names;
use super::piece::{Extent, FIRST_LETTERS};
use super::shared::{CacheState, Counts};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ffi::OsStr;

/// Pieces that a walk remembers of each queue: as many as make room for 64 GiB of the longest.
const MAX_OLDEST: usize = 1 << 16;
/// When there is no room, this part of the limit is freed.
const FREED_PART: u64 = 16;
/// What the account may be above the limit: a piece of each of many writers.
const SUSPECT_BYTES: u64 = 64 << 20;
/// The part of the limit that pieces used once keep.
const ONCE_PART: u64 = 10;
/// A trim asks after this many bytes whether it goes on.
const TRIM_STEP: u64 = 64 << 20;

#[derive(Default)]
struct UseQueue {
    /// The newest of them on top.
    oldest: BinaryHeap<Old>,
    bytes: u64,
}

#[derive(PartialEq, Eq)]
struct Old {
    used: PieceUse,
    /// By its name.
    bytes: u64,
    used_again: bool,
    path: String,
}

impl Ord for Old {
    fn cmp(&self, other: &Old) -> Ordering {
        (self.used.at_ns, &self.path).cmp(&(other.used.at_ns, &other.path))
    }
}

impl PartialOrd for Old {
    fn partial_cmp(&self, other: &Old) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl UseQueue {
    fn add(&mut self, old: Old) {
        self.bytes = self.bytes.saturating_add(old.bytes);
        self.oldest.push(old);
        if self.oldest.len() > MAX_OLDEST {
            self.oldest.pop();
        }
    }

    fn into_order(self) -> Order {
        Order {
            next: self.oldest.into_sorted_vec().into_iter(),
            bytes: self.bytes,
        }
    }
}

/// Pieces in the order in which they make way.
#[derive(Default)]
struct Order {
    next: std::vec::IntoIter<Old>,
    bytes: u64,
}

/// What is known of the pieces that could make way.
#[derive(Default)]
pub struct Evictor {
    once: Order,
    again: Order,
}

impl Evictor {
    /// Is there room for a file of that many bytes? Makes it where there is none.
    pub fn make_room(&mut self, shared: &CacheState, opened: &CacheFiles, bytes: u64) -> bool {
        let limit = shared.settings.size_bytes;
        let Ok((free, total)) = opened.folder.free_bytes() else {
            return false;
        };
        let reserve = shared.settings.free.of(total);
        let mut held = opened.bytes().unwrap_or_else(|| self.walk(opened));
        if held > limit.saturating_add(SUSPECT_BYTES) {
            // No process writes so much more than the limit: the number is wrong.
            held = self.walk(opened);
        }
        let over = held.saturating_add(bytes).saturating_sub(limit);
        let short = reserve.saturating_add(bytes).saturating_sub(free);
        let needed = over.max(short);
        if needed == 0 {
            return true;
        }
        if bytes > limit || short > held {
            shared.no_room(short > held);
            return false;
        }
        let wanted = needed.max((limit / FREED_PART).min(held / 2));
        self.evict(shared, opened, wanted) >= needed
    }

    /// A piece was written.
    pub fn wrote(&mut self, bytes: u64) {
        self.once.bytes += bytes;
    }

    /// Removes pieces until they have no more than the limit, or `goes_on`, which gets the bytes that are left, says false. Returns these.
    pub fn trim(
        &mut self,
        shared: &CacheState,
        opened: &CacheFiles,
        goes_on: &mut dyn FnMut(u64) -> bool,
    ) -> u64 {
        let mut held = self.walk(opened);
        names::trim_to(&opened.folder, shared.settings.size_bytes);
        while held > shared.settings.size_bytes && goes_on(held) {
            let over = held - shared.settings.size_bytes;
            let freed = self.evict(shared, opened, over.min(TRIM_STEP));
            if freed == 0 {
                break;
            }
            held = held.saturating_sub(freed);
        }
        held
    }

    /// Removes pieces of at least that many bytes, if there are such. Returns how many those had.
    fn evict(&mut self, shared: &CacheState, opened: &CacheFiles, wanted: u64) -> u64 {
        let (mut freed, mut has_walked) = (0, false);
        while freed < wanted {
            let from_once = self.once.bytes > shared.settings.size_bytes / ONCE_PART;
            let (first, second) = if from_once {
                (&mut self.once, &mut self.again)
            } else {
                (&mut self.again, &mut self.once)
            };
            let mut next = first.next.next();
            // What was written since the last walk is not in these lists.
            if next.is_none() && !has_walked {
                has_walked = true;
                self.walk(opened);
                continue;
            }
            next = next.or_else(|| second.next.next());
            let Some(old) = next else {
                break;
            };
            freed += self.remove(shared, opened, &old);
        }
        freed
    }

    /// Removes a piece, unless it was used since the walk. Returns its bytes.
    fn remove(&mut self, shared: &CacheState, opened: &CacheFiles, old: &Old) -> u64 {
        let now = opened.folder.use_of(&old.path);
        let is_same = now.is_ok_and(|used| used == old.used);
        if !is_same || opened.folder.remove(&old.path).is_err() {
            return 0;
        }
        let bytes = old.bytes;
        let queue = if old.used_again {
            &mut self.again
        } else {
            &mut self.once
        };
        queue.bytes = queue.bytes.saturating_sub(bytes);
        opened.removed(bytes);
        Counts::add(&shared.tier.counts.evicted, 1);
        Counts::add(&shared.tier.counts.evicted_bytes, bytes);
        bytes
    }

    /// Looks at all pieces. Returns their bytes.
    fn walk(&mut self, opened: &CacheFiles) -> u64 {
        let (mut once, mut again) = (UseQueue::default(), UseQueue::default());
        walk(&opened.folder, &mut |folder, name| {
            let path = inside(folder, &name.to_string_lossy());
            let piece = name.to_str().and_then(Extent::of_name);
            match (piece, opened.folder.use_of(&path)) {
                (Some((extent, used_again)), Ok(used)) => {
                    let queue = if used_again { &mut again } else { &mut once };
                    queue.add(Old {
                        bytes: extent.file_bytes(),
                        used_again,
                        used,
                        path,
                    });
                    true
                }
                (None, Ok(_)) => !opened.folder.remove_abandoned(folder, name),
                _ => false,
            }
        });
        latest::clean(&opened.folder);
        names::trim_to(&opened.folder, u64::MAX);
        let bytes = once.bytes.saturating_add(again.bytes);
        if let Some(files) = &opened.writable {
            files.account.set(bytes);
        }
        (self.once, self.again) = (once.into_order(), again.into_order());
        bytes
    }
}

/// Calls `each` with the folder of each version and each name in it; where that says false for all of them the folder is empty, and is
/// removed.
fn walk(folder: &CacheFolder, each: &mut dyn FnMut(&str, &OsStr) -> bool) {
    for version in versions(folder) {
        let mut is_empty = true;
        let looked = folder.names(&version, &mut |name| {
            is_empty &= !each(&version, name);
            true
        });
        if looked.is_ok() && is_empty && folder.use_of(&version).is_ok_and(PieceUse::is_abandoned) {
            let _ = folder.remove_version(&version);
        }
    }
}

/// The folders of all versions, as paths.
pub fn versions(folder: &CacheFolder) -> Vec<String> {
    let is_hash = |name: &OsStr, len: usize| {
        name.len() == len && name.as_encoded_bytes().iter().all(u8::is_ascii_hexdigit)
    };
    let (mut first, mut all) = (Vec::new(), Vec::new());
    let _ = folder.names("", &mut |name| {
        if is_hash(name, FIRST_LETTERS) {
            first.push(name.to_string_lossy().into_owned());
        }
        true
    });
    for outer in first {
        let _ = folder.names(&outer, &mut |name| {
            if is_hash(name, 32) {
                all.push(inside(&outer, &name.to_string_lossy()));
            }
            true
        });
    }
    all
}
