//! Numbers of names that were listed to the kernel, and that nothing more is known of: 16 bytes each, beside the listing itself.
//!
//! `ls` of a bucket's folder has the kernel know a number for each name, and most of them are never asked about. Such a number is a place
//! in the listing. What is asked about becomes a node (`nodes.rs`) with the same number.
//!
//! ```text
//!   listing    a    b    c    d          the folder again    a    b'   d    e         b is another version, c is gone
//!   numbers   100  101  102  103                            100  104  103  105        101 and 102: nodes, until they are forgotten
//! ```
//! Small listings have nodes from the start. Never: gives a number twice, or one number to two versions.

use crate::source::tree::{FolderNames, Meta, NameBytes};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Names of a listing from which on they have no nodes.
pub const MIN_LISTED: usize = 4096;
/// A number, its place by number, and how often it was given out.
const NUMBER_BYTES: u64 = 16;

struct ListedFolder {
    names: Arc<FolderNames>,
    seen: Instant,
    /// By the place of the name.
    numbers: Vec<u64>,
    /// Places in the order of their numbers.
    by_number: Vec<u32>,
    /// How often the kernel has been told, by the place of the name.
    told: Vec<u32>,
    /// Names that the kernel was told of.
    live: usize,
    _bytes: NameBytes,
}

/// What a node is made of.
pub struct ListedName {
    pub number: u64,
    pub path: PathBuf,
    pub meta: Meta,
    pub seen: Instant,
    pub told: u64,
    /// The number of the name behind it.
    pub next: Option<u64>,
}

/// The newest listing of each folder.
#[derive(Default)]
pub struct ListedNumbers {
    folders: HashMap<Arc<Path>, ListedFolder>,
}

impl ListedFolder {
    fn place(&self, number: u64) -> Option<usize> {
        let found = self
            .by_number
            .binary_search_by_key(&number, |&place| self.numbers[place as usize]);
        found.ok().map(|at| self.by_number[at] as usize)
    }

    fn name(&self, folder: &Path, place: usize) -> Option<ListedName> {
        Some(ListedName {
            number: self.numbers[place],
            path: folder.join(self.names.name(place)?),
            meta: self.names.meta(place)?,
            seen: self.seen,
            told: u64::from(self.told[place]),
            next: self.numbers.get(place + 1).copied(),
        })
    }

    fn forget(&mut self, place: usize, times: u64) {
        let told = &mut self.told[place];
        let was = *told;
        *told = u32::try_from(u64::from(was).saturating_sub(times)).unwrap_or(0);
        self.live -= usize::from(was > 0 && *told == 0);
    }
}

impl ListedNumbers {
    /// Numbers that the kernel knows.
    pub fn len(&self) -> usize {
        self.folders.values().map(|folder| folder.live).sum()
    }

    /// A folder was listed at `seen`. Names that are as before keep their numbers, the others get those from `next` on. Returns what the
    /// kernel knows and the listing does not have; nothing where there is no room.
    pub fn list(
        &mut self,
        folder: &Arc<Path>,
        names: &Arc<FolderNames>,
        seen: Instant,
        next: &mut u64,
    ) -> Option<Vec<ListedName>> {
        let count = names.len();
        let mut bytes = NameBytes::default();
        if !bytes.grow(NUMBER_BYTES * count as u64) {
            return None;
        }
        let old = self.folders.remove(folder);
        let (mut numbers, mut told) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let (mut at, mut gone, mut live) = (0, Vec::new(), 0);
        let mut leave = |old: &ListedFolder, at: usize| {
            if old.told[at] > 0 {
                gone.extend(old.name(folder, at));
            }
        };
        for place in 0..count {
            let mut same = None;
            while let Some(old) = old.as_ref().filter(|old| at < old.numbers.len()) {
                match old.names.order(at, names, place) {
                    Ordering::Less => leave(old, at),
                    Ordering::Equal if old.names.is_same(at, names, place) => {
                        same = Some((old.numbers[at], old.told[at]));
                    }
                    Ordering::Equal => leave(old, at),
                    Ordering::Greater => break,
                }
                at += 1;
                if same.is_some() {
                    break;
                }
            }
            let (number, times) = same.unwrap_or_else(|| {
                *next += 1;
                (*next - 1, 0)
            });
            numbers.push(number);
            told.push(times);
            live += usize::from(times > 0);
        }
        if let Some(old) = &old {
            (at..old.numbers.len()).for_each(|at| leave(old, at));
        }
        let mut by_number: Vec<u32> = (0..count as u32).collect();
        by_number.sort_unstable_by_key(|&place| numbers[place as usize]);
        let listed = ListedFolder {
            names: Arc::clone(names),
            seen,
            numbers,
            by_number,
            told,
            live,
            _bytes: bytes,
        };
        self.folders.insert(Arc::clone(folder), listed);
        Some(gone)
    }

    /// The number of a name of a listing, which may be an older one than the newest.
    pub fn number_of(&self, folder: &Path, names: &Arc<FolderNames>, place: usize) -> Option<u64> {
        let listed = self.folders.get(folder)?;
        if Arc::ptr_eq(&listed.names, names) {
            return listed.numbers.get(place).copied();
        }
        let now = listed.names.find(names.name(place)?, place)?;
        let is_same = listed.names.is_same(now, names, place);
        is_same.then(|| listed.numbers[now])
    }

    /// The kernel gets a number.
    pub fn tell(&mut self, number: u64) {
        for listed in self.folders.values_mut() {
            if let Some(place) = listed.place(number) {
                listed.live += usize::from(listed.told[place] == 0);
                listed.told[place] = listed.told[place].saturating_add(1);
                return;
            }
        }
    }

    /// The number of a path that the kernel was told of.
    pub fn number(&self, path: &Path) -> Option<u64> {
        let listed = self.folders.get(path.parent()?)?;
        let place = listed.names.find(path.file_name()?, usize::MAX)?;
        (listed.told[place] > 0).then(|| listed.numbers[place])
    }

    /// What is known of a number that the kernel was told of.
    pub fn get(&self, number: u64) -> Option<ListedName> {
        let told = |(folder, listed): (&Arc<Path>, &ListedFolder)| {
            let place = listed.place(number)?;
            listed.name(folder, place)
        };
        self.folders.iter().find_map(told)
    }

    /// The kernel has forgotten what it was told `times` times.
    pub fn forget(&mut self, number: u64, times: u64) {
        for listed in self.folders.values_mut() {
            if let Some(place) = listed.place(number) {
                listed.forget(place, times);
                if listed.live == 0 {
                    break;
                }
                return;
            }
        }
        self.drop_unused();
    }

    /// Drops listings that neither the kernel nor an open folder has use for.
    pub fn drop_unused(&mut self) {
        self.folders
            .retain(|_, listed| listed.live > 0 || Arc::strong_count(&listed.names) > 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::tree::Kind;
    use std::ffi::OsStr;

    fn listing(versions: &[(&str, u8)]) -> Arc<FolderNames> {
        let mut names = FolderNames::default();
        for (name, version) in versions {
            let meta = Meta {
                kind: Kind::File,
                size: 1,
                mtime_ns: 0,
                permissions: 0o444,
                owner: None,
                version: [*version].into(),
            };
            assert!(names.push(OsStr::new(name), Kind::File, Some(&meta)));
        }
        names.sort(&mut |_| {});
        Arc::new(names)
    }

    #[test]
    fn names_that_are_as_before_keep_their_numbers() {
        let (mut all, mut next, seen) = (ListedNumbers::default(), 100, Instant::now());
        let folder: Arc<Path> = Path::new("d").into();
        let old = listing(&[("a", 1), ("b", 1), ("c", 1), ("d", 1)]);
        assert!(
            all.list(&folder, &old, seen, &mut next)
                .expect("room")
                .is_empty()
        );
        let number = |all: &ListedNumbers, names, place| all.number_of(&folder, names, place);
        for place in 0..4 {
            let told = number(&all, &old, place).expect("listed");
            assert_eq!(told, 100 + place as u64);
            assert_eq!(all.number(Path::new("d/a")).is_some(), place > 0);
            all.tell(told);
        }
        let new = listing(&[("a", 1), ("aa", 1), ("b", 2), ("d", 1), ("e", 1)]);
        let gone = all.list(&folder, &new, seen, &mut next).expect("room");
        let gone: Vec<(u64, PathBuf)> = gone.into_iter().map(|it| (it.number, it.path)).collect();
        assert_eq!(gone, [(101, "d/b".into()), (102, "d/c".into())]);
        let numbers = [0, 1, 2, 3, 4].map(|place| number(&all, &new, place));
        assert_eq!(numbers, [100, 104, 105, 103, 106].map(Some));
        assert_eq!(all.len(), 2);
        // The older listing is still read by another handle: what changed has no place any more.
        let numbers = [0, 1, 2, 3].map(|place| number(&all, &old, place));
        assert_eq!(numbers, [Some(100), None, None, Some(103)]);
        let known = all.get(103).expect("listed");
        assert_eq!(
            (known.path, known.told, known.next),
            ("d/d".into(), 1, Some(106))
        );
        // Kept as long as the kernel knows one of its names.
        drop((old, new));
        all.tell(100);
        all.forget(103, 1);
        all.forget(100, 1);
        assert_eq!((all.len(), all.number(Path::new("d/a"))), (1, Some(100)));
        all.forget(100, 1);
        assert!(all.folders.is_empty());
    }
}
