//! Open files and folders of a mount, and the names that listings keep in memory.
//!
//! ```text
//!   open ──► Handle (a pinned reader)      opendir ──► number ──readdir──► FolderListing, its memory counted while it is built
//! ```
//! A listing reserves memory for each name before it stores the name ([`FolderNames`]). A listing that fails releases its memory. The
//! memory of a complete listing is released when the listing is no longer trusted, the folder is closed, and the kernel no longer refers to
//! any of its names.

use crate::Reader;
use crate::source::tree::{FolderNames, Kind, Meta};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

/// One open file.
pub struct Handle {
    pub number: u64,
    pub reader: Reader,
    pub base: Weak<Reader>,
    pub size: u64,
    pub place: ReadPlace,
}

/// The position at which the kernel's latest request for an open file ended; see [`KernelCut`].
#[derive(Default)]
pub struct ReadPlace {
    next: AtomicU64,
    /// The end of its latest read if that read was a jump; otherwise 0.
    jumped_to: AtomicU64,
}

/// Predicts how the kernel splits a program's read into requests.
///
/// The kernel's page cache requests at most `most` bytes in one request. If a program reads `most` bytes from an offset that is not a
/// multiple of the page size, the kernel sends two requests. The kernel sends the second request only after the answer to the first, so the
/// program waits for the storage twice. So if a request of `most` bytes does not continue at the end of the latest request (a jump), the
/// mount also fetches the next `most` bytes. The mount fetches these additional bytes only while at least half of the recent jumps were
/// followed by a request for the bytes after them.
///
/// Example: a read of 131072 bytes at 9000000 becomes a request for 131072 bytes at 8998912 and a request for the 126976 bytes after
/// them.
pub struct KernelCut {
    /// Maximum length of a request; 0 if the kernel does not split reads.
    most: u64,
    /// Recent jumps, and how many of them were followed.
    jumps: AtomicU64,
    followed: AtomicU64,
}

/// Number of jumps that need not have been followed.
const FREE_JUMPS: u64 = 2;
/// Number of jumps after which the earlier ones count half.
const MANY_JUMPS: u64 = 64;

impl KernelCut {
    pub fn new(most: u64) -> KernelCut {
        KernelCut {
            most,
            jumps: AtomicU64::new(0),
            followed: AtomicU64::new(0),
        }
    }

    /// How many bytes to fetch beyond the end of a request. The counts are approximate: concurrent threads may miss each other's updates.
    pub fn behind(&self, place: &ReadPlace, offset: u64, len: u64) -> u64 {
        let end = offset + len;
        let is_jump = place.next.swap(end, Ordering::Relaxed) != offset;
        if place.jumped_to.swap(0, Ordering::Relaxed) == offset && offset > 0 {
            self.followed.fetch_add(1, Ordering::Relaxed);
        }
        if !is_jump || offset == 0 || len != self.most {
            return 0;
        }
        place.jumped_to.store(end, Ordering::Relaxed);
        let followed = self.followed.load(Ordering::Relaxed);
        let jumps = self.jumps.fetch_add(1, Ordering::Relaxed);
        if jumps >= MANY_JUMPS {
            self.jumps.store(jumps / 2, Ordering::Relaxed);
            self.followed.store(followed / 2, Ordering::Relaxed);
        }
        if 2 * followed + FREE_JUMPS < jumps {
            return 0;
        }
        self.most
    }
}

/// A listing of a folder.
pub struct FolderListing {
    pub folder: Arc<Path>,
    pub names: Arc<FolderNames>,
    /// When it was requested: later answers about one of its names are newer.
    pub asked: Instant,
    /// The start of the time for which it is trusted. A listing that a program requests is trusted from its end: a folder whose listing
    /// takes longer than that time would otherwise be listed twice by one `ls -l`.
    pub seen: Instant,
    is_outdated: AtomicBool,
}

impl FolderListing {
    /// A listing that is trusted from its request.
    pub fn new(
        folder: impl Into<Arc<Path>>,
        names: impl Into<Arc<FolderNames>>,
        asked: Instant,
    ) -> Arc<FolderListing> {
        FolderListing::of(folder.into(), names.into(), asked, asked)
    }

    /// A listing that has just ended.
    pub fn ended(folder: Arc<Path>, names: Arc<FolderNames>, asked: Instant) -> Arc<FolderListing> {
        FolderListing::of(folder, names, asked, Instant::now())
    }

    fn of(
        folder: Arc<Path>,
        names: Arc<FolderNames>,
        asked: Instant,
        seen: Instant,
    ) -> Arc<FolderListing> {
        Arc::new(FolderListing {
            folder,
            names,
            asked,
            seen,
            is_outdated: AtomicBool::new(false),
        })
    }

    /// Records that a newer answer about one of its names differs from it.
    pub fn outdate(&self) {
        self.is_outdated.store(true, Ordering::Relaxed);
    }

    pub fn is_outdated(&self) -> bool {
        self.is_outdated.load(Ordering::Relaxed)
    }

    /// The attributes of a name, if the listing has it.
    pub fn meta(&self, name: &OsStr) -> Option<Meta> {
        self.names.meta(self.names.find(name, usize::MAX)?)
    }

    /// The path of the name at a position of the listing, with its attributes according to the listing.
    pub fn entry(&self, place: u32) -> Option<(PathBuf, Meta)> {
        let place = place as usize;
        let path = self.folder.join(self.names.name(place)?);
        Some((path, self.names.meta(place)?))
    }

    /// The position of the next file after a position of the listing.
    pub fn file_after(&self, place: u32) -> Option<u32> {
        let mut after = place.checked_add(1)?..;
        let next = after.find(|&at| self.names.kind(at as usize) != Some(Kind::Folder))?;
        (self.names.kind(next as usize) == Some(Kind::File)).then_some(next)
    }
}

#[derive(Default)]
pub struct Handles {
    pub next: u64,
    pub files: HashMap<u64, Arc<Handle>>,
    pub folders: HashMap<u64, (u64, Option<Arc<FolderListing>>)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 128 << 10;

    fn behind(cut: &KernelCut, place: &ReadPlace, reads: &[(u64, u64)]) -> Vec<u64> {
        let one = |&(offset, len): &(u64, u64)| cut.behind(place, offset, len);
        reads.iter().map(one).collect()
    }

    #[test]
    fn reads_split_by_the_kernel_are_fetched_at_once() {
        let (cut, place) = (KernelCut::new(MOST), ReadPlace::default());
        for jump in 1..1000 {
            let at = jump * (10 << 20);
            let reads = [
                (at, MOST),
                (at + MOST, MOST - 4096),
                (at + 2 * MOST - 4096, MOST),
            ];
            assert_eq!(behind(&cut, &place, &reads), [MOST, 0, 0], "{jump}");
        }
    }

    #[test]
    fn jumps_that_are_not_followed_end_it_and_others_begin_it_again() {
        let (cut, place) = (KernelCut::new(MOST), ReadPlace::default());
        let alone: Vec<_> = (1..100).map(|n| (n * (1 << 20), MOST)).collect();
        let fetched = behind(&cut, &place, &alone);
        assert_eq!(fetched.iter().filter(|bytes| **bytes > 0).count(), 3);
        let cut_in_two = |n: u64| [(n * (1 << 20), MOST), (n * (1 << 20) + MOST, MOST)];
        let followed: Vec<_> = (1..200).flat_map(cut_in_two).collect();
        assert_eq!(behind(&cut, &place, &followed)[396..], [MOST, 0]);
    }

    #[test]
    fn in_order_in_small_reads_and_past_the_page_cache_nothing_is_added() {
        let (cut, place) = (KernelCut::new(MOST), ReadPlace::default());
        let in_order: Vec<_> = (0..50).map(|n| (n * MOST, MOST)).collect();
        assert!(
            behind(&cut, &place, &in_order)
                .iter()
                .all(|bytes| *bytes == 0)
        );
        let small: Vec<_> = (0..50).map(|n| (n * 9_000_000, MOST / 2)).collect();
        assert!(behind(&cut, &place, &small).iter().all(|bytes| *bytes == 0));
        assert_eq!(behind(&KernelCut::new(0), &place, &[(9 << 20, MOST)]), [0]);
    }
}
