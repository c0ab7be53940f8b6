//! The inode numbers that the kernel knows, with their files and lookup counts.
//!
//! A number is a hash of path and version, so all mounts of the same files have the same numbers, whatever the lookup order. Backup
//! programs, `git status` and programs that detect hard links rely on numbers that do not change. A new version of a file has a new number,
//! so the pages and attributes that the kernel caches under a number are of one version. A folder's number depends only on its path. Two
//! versions of a file never have the same inode number, and a number is kept as long as the kernel refers to it.
//!
//! ```text
//!   path, version ──► number ── known? ── yes ──► counted once more
//!                                  └─ no ──► a name of a listing: its position there, 24 bytes; any other: a node
//!   queried, opened, next in order ──► a position becomes a node
//!   forget ──► counted down to zero ──► removed, with the reader that was kept for it
//! ```
//! Example: `ls` of a folder with 1,000,000 names creates 1,000,000 positions in one listing, but no node. If a program then opens one of
//! the files, nodes are created for this file and for the next files that are announced to the engine (`view/order.rs`).

mod orders;

pub use orders::by_number;

use super::handles::FolderListing;
use crate::source::tree::{Kind, Meta, NameBytes};
use crate::{ListedFile, Reader};
use orders::{Followed, OpenOrders};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, VecDeque};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

/// The inode number of the root folder.
pub const ROOT: u64 = 1;

/// Memory of a number in the table: 24 bytes, in tree nodes that are two thirds full.
const TOLD_BYTES: u64 = 40;
/// Bytes of a node in addition to its path and version, including allocator overhead.
const NODE_BYTES: u64 = size_of::<Node>() as u64 + 3 * 16;

/// What the mount knows about one inode number.
pub struct Node {
    pub path: Arc<Path>,
    pub meta: Meta,
    /// The kernel's lookup count.
    told: u64,
    opens: u32,
    /// Whether it was ever opened: if so, the kernel may have pages of it.
    pub was_opened: bool,
    /// The file in the engine: its pages are kept while this exists.
    pub base: Option<Arc<Reader>>,
    /// The listed file, before it is opened for the first time.
    pub listed: Option<Arc<ListedFile>>,
    /// The position at which a listing last gave it to the kernel.
    place: Option<(Arc<FolderListing>, u32)>,
    next: Option<u64>,
    /// Whether it is in the caller's order and was not opened yet; counted in `told`.
    pub planned: bool,
    /// Whether it was announced to the engine before the kernel knew it, and was not opened yet; counted in `told`.
    is_held: bool,
}

impl Node {
    fn new(path: Arc<Path>, meta: Meta) -> Node {
        Node {
            path,
            meta,
            told: 1,
            opens: 0,
            was_opened: false,
            base: None,
            listed: None,
            place: None,
            next: None,
            planned: false,
            is_held: false,
        }
    }

    fn bytes(&self) -> u64 {
        NODE_BYTES + self.path.as_os_str().len() as u64 + self.meta.heap_bytes()
    }
}

/// The file or folder of a number, as the kernel knows it.
enum Told {
    /// A name in a listing, about which nothing more is known.
    Place {
        listing: Arc<FolderListing>,
        place: u32,
        times: u32,
    },
    Node(Box<Node>),
}

impl Told {
    fn is(&self, path: &Path, meta: &Meta) -> bool {
        let is_same = |own: &Meta| {
            own.kind == meta.kind && (own.kind == Kind::Folder || own.version == meta.version)
        };
        match self {
            Told::Node(node) => *node.path == *path && is_same(&node.meta),
            Told::Place { listing, place, .. } => {
                let own = listing.entry(*place);
                own.is_some_and(|(own, meta)| own == path && is_same(&meta))
            }
        }
    }
}

/// A number that depends only on these values. It has 63 bits, so that signed fields can hold it.
fn number_of(path: &Path, meta: &Meta) -> u64 {
    if path.as_os_str().is_empty() {
        return ROOT;
    }
    let (path, mut hasher) = (path.as_os_str().as_bytes(), Sha256::new());
    hasher.update((path.len() as u64).to_le_bytes());
    hasher.update(path);
    match meta.kind {
        Kind::Folder => hasher.update([1]),
        Kind::File => hasher.update([2]),
        Kind::Link => hasher.update([3]),
    }
    if meta.kind != Kind::Folder {
        hasher.update(&meta.version);
    }
    let mut number = [0; 8];
    number.copy_from_slice(&hasher.finalize()[..8]);
    (u64::from_le_bytes(number) >> 1).max(ROOT + 1)
}

pub struct Nodes {
    /// A B-tree, because a hash table is up to half empty, and exists twice while it grows.
    told: BTreeMap<u64, Told>,
    /// Memory of all numbers.
    bytes: NameBytes,
    /// Closed files whose pages are kept, oldest first.
    idle: VecDeque<u64>,
    most_idle: usize,
    /// Numbers that are listed in the engine or held for it, oldest first; some were opened since.
    listed: VecDeque<u64>,
    /// Numbers that were planned, oldest first; some were opened since.
    planned: VecDeque<u64>,
    orders: OpenOrders,
    /// Readers and listings that are no longer used, until the lock is released: dropping one may take long.
    unused: Vec<Arc<dyn Send + Sync>>,
}

impl Nodes {
    /// Creates a table that keeps the pages of at most `most_idle` closed files.
    pub fn new(root: Meta, most_idle: usize) -> Nodes {
        let node = Node::new(Arc::from(PathBuf::new()), root);
        Nodes {
            told: BTreeMap::from([(ROOT, Told::Node(Box::new(node)))]),
            bytes: NameBytes::default(),
            idle: VecDeque::new(),
            most_idle,
            listed: VecDeque::new(),
            planned: VecDeque::new(),
            orders: OpenOrders::default(),
            unused: Vec::new(),
        }
    }

    /// Values to be dropped once the lock is released.
    pub fn take_unused(&mut self) -> Vec<Arc<dyn Send + Sync>> {
        std::mem::take(&mut self.unused)
    }

    /// Drops a value once the lock is released.
    fn drop_later(&mut self, unused: Option<Arc<impl Send + Sync + 'static>>) {
        if let Some(unused) = unused {
            self.unused.push(unused);
        }
    }

    pub fn len(&self) -> usize {
        self.told.len()
    }

    fn node(&mut self, number: u64) -> Option<&mut Node> {
        match self.told.get_mut(&number)? {
            Told::Node(node) => Some(node),
            Told::Place { .. } => None,
        }
    }

    /// The state of an inode number. If the number is known so far only as a position in a listing, its state is created from the
    /// listing's entry.
    pub fn known(&mut self, number: u64) -> Option<&Node> {
        let told = self.told.get_mut(&number)?;
        if let Told::Place {
            listing,
            place,
            times,
        } = told
        {
            let (path, meta) = listing.entry(*place)?;
            let mut node = Node::new(Arc::from(path), meta);
            node.told = u64::from(*times);
            node.place = Some((Arc::clone(listing), *place));
            if !self.bytes.grow(node.bytes()) {
                return None;
            }
            *told = Told::Node(Box::new(node));
        }
        self.node(number).map(|node| &*node)
    }

    /// The number of a path in a version, known or not. If two have the same hash, the second gets the next free number.
    fn slot(&self, path: &Path, meta: &Meta) -> u64 {
        let mut number = number_of(path, meta);
        while self
            .told
            .get(&number)
            .is_some_and(|told| !told.is(path, meta))
        {
            number = (number + 1).max(ROOT + 1);
        }
        number
    }

    /// Counts a lookup by the kernel of the file at a path, and returns the file's inode number. If the inode numbers take too much
    /// memory, the path is returned as the error.
    pub fn enter(&mut self, path: PathBuf, meta: Meta) -> Result<u64, PathBuf> {
        let number = self.slot(&path, &meta);
        match self.told.get_mut(&number) {
            Some(Told::Node(node)) => {
                node.told += 1;
                node.meta = meta;
            }
            Some(Told::Place { times, .. }) => *times += 1,
            None => {
                let node = Node::new(Arc::from(path), meta);
                if !self.bytes.grow(TOLD_BYTES + node.bytes()) {
                    return Err(node.path.to_path_buf());
                }
                self.told.insert(number, Told::Node(Box::new(node)));
            }
        }
        Ok(number)
    }

    /// Like [`Nodes::enter`], but for the name at position `place` of a listing; the path of this name is `path`.
    pub fn enter_listed(
        &mut self,
        listing: &Arc<FolderListing>,
        place: u32,
        path: PathBuf,
        meta: &Meta,
    ) -> Result<u64, PathBuf> {
        let number = self.slot(&path, meta);
        match self.told.get_mut(&number) {
            Some(Told::Node(node)) => {
                node.told += 1;
                node.meta = meta.clone();
                node.place = Some((Arc::clone(listing), place));
            }
            Some(Told::Place {
                listing: newest,
                place: at,
                times,
            }) => {
                (*newest, *at) = (Arc::clone(listing), place);
                *times += 1;
            }
            None if !self.bytes.grow(TOLD_BYTES) => return Err(path),
            None => {
                let told = Told::Place {
                    listing: Arc::clone(listing),
                    place,
                    times: 1,
                };
                self.told.insert(number, told);
            }
        }
        Ok(number)
    }

    /// Removes a reader that failed because its file now has another version.
    pub fn failed(&mut self, number: u64, failed: &Weak<Reader>) {
        let is_failed = |base: &mut Arc<Reader>| std::ptr::eq(Arc::as_ptr(base), failed.as_ptr());
        let node = self.node(number);
        let base = node.and_then(|node| node.base.take_if(is_failed));
        self.drop_later(base);
    }

    /// Subtracts `times` from the lookup count of an inode number, as the kernel has requested (FORGET).
    pub fn forget(&mut self, number: u64, times: u64) {
        let is_gone = match self.told.get_mut(&number) {
            Some(Told::Place { times: told, .. }) => {
                *told = u32::try_from(u64::from(*told).saturating_sub(times)).unwrap_or(0);
                *told == 0
            }
            Some(Told::Node(node)) => {
                node.told = node.told.saturating_sub(times);
                node.told == 0 && node.opens == 0 && number != ROOT
            }
            None => false,
        };
        if !is_gone {
            return;
        }
        self.bytes.shrink(TOLD_BYTES);
        match self.told.remove(&number) {
            Some(Told::Node(node)) => {
                self.bytes.shrink(node.bytes());
                self.idle.retain(|&n| n != number);
                self.drop_later(node.base);
                self.drop_later(node.listed);
                self.drop_later(node.place.map(|(listing, _)| listing));
            }
            Some(Told::Place { listing, .. }) => self.drop_later(Some(listing)),
            None => {}
        }
    }

    // ---- the order of files ----

    /// Records that the caller will open `number` after `before`. The caller has already counted a lookup of `number`. If more than
    /// `most` files are planned, the file that was planned first is no longer planned.
    pub fn plan(&mut self, before: Option<u64>, number: u64, most: usize) {
        self.known(number);
        let Some(node) = self.node(number) else {
            return;
        };
        if std::mem::replace(&mut node.planned, true) {
            // It was counted already, and now has a new position.
            node.told -= 1;
        } else {
            self.planned.push_back(number);
        }
        if let Some(node) = before.and_then(|before| self.node(before)) {
            node.next = Some(number);
        }
        if self.planned.len() > most
            && let Some(oldest) = self.planned.pop_front()
            && let Some(node) = self.node(oldest)
            && std::mem::take(&mut node.planned)
        {
            self.forget(oldest, 1);
        }
    }

    /// Records that a file was opened. Returns its listing if the files of the listing have to be sorted by number ([`Nodes::sorted`]).
    pub fn follow(&mut self, number: u64) -> Option<Arc<FolderListing>> {
        let (listing, place) = self.node(number)?.place.clone()?;
        match self.orders.follow(&listing, place, number) {
            Followed::AsBefore => None,
            // What was announced in the other order is announced anew.
            Followed::Otherwise => {
                self.drop_listed(0);
                None
            }
            Followed::Unsorted => Some(listing),
        }
    }

    /// Takes the files of a listing, sorted by number ([`by_number`]).
    pub fn sorted(&mut self, listing: &Arc<FolderListing>, files: Vec<(u64, u32)>) {
        self.orders.sorted(listing, files);
    }

    /// The file that follows a file in the caller's list or in a listing of its folder. A file of a listing that the kernel does not know
    /// yet is held until it is opened, or until too many are held ([`Nodes::list`]).
    pub fn next(&mut self, number: u64) -> Option<(u64, &Node)> {
        let node = self.node(number)?;
        let (next, place) = (node.next, node.place.clone());
        let next = match next {
            Some(next) => next,
            None => {
                let (listing, place) = place?;
                let place = self.orders.after(&listing, place, number)?;
                let (path, meta) = listing.entry(place)?;
                let next = self.slot(&path, &meta);
                if !self.told.contains_key(&next) {
                    self.enter_listed(&listing, place, path, &meta).ok()?;
                    if self.known(next).is_none() {
                        // There is no room for its state, so it is not held.
                        self.forget(next, 1);
                        return None;
                    }
                    self.node(next)?.is_held = true;
                    self.listed.push_back(next);
                }
                next
            }
        };
        Some((next, self.known(next)?))
    }

    /// Records that the file of an inode number, which is not open yet, has been announced to the engine. If more than `most` are
    /// announced, the first is no longer.
    pub fn list(&mut self, number: u64, file: Arc<ListedFile>, most: usize) {
        match self.node(number) {
            Some(node) if node.base.is_none() && node.listed.is_none() => {
                node.listed = Some(file);
                if !node.is_held {
                    self.listed.push_back(number);
                }
            }
            // It was opened or removed meanwhile.
            _ => self.drop_later(Some(file)),
        }
        self.drop_listed(most);
    }

    /// Announces no more than the `most` latest files to the engine, and holds no others.
    pub fn drop_listed(&mut self, most: usize) {
        while self.listed.len() > most
            && let Some(oldest) = self.listed.pop_front()
        {
            // The kernel may have forgotten it.
            let Some(node) = self.node(oldest) else {
                continue;
            };
            let listed = node.listed.take();
            if std::mem::take(&mut node.is_held) {
                self.forget(oldest, 1);
            }
            self.drop_later(listed);
        }
    }

    // ---- open files ----

    /// Opens a handle on the file's stored reader, or on `base` if no reader is stored yet. The file is no longer announced to the
    /// engine. Returns the reader.
    pub fn opened(&mut self, number: u64, base: &Arc<Reader>) -> Option<Arc<Reader>> {
        self.idle.retain(|&n| n != number);
        let node = self.node(number)?;
        node.opens += 1;
        node.was_opened = true;
        let is_planned = std::mem::take(&mut node.planned);
        let held = u64::from(is_planned) + u64::from(std::mem::take(&mut node.is_held));
        node.told = node.told.saturating_sub(held);
        let listed = node.listed.take();
        let base = Arc::clone(node.base.get_or_insert_with(|| Arc::clone(base)));
        self.drop_later(listed);
        Some(base)
    }

    /// Closes a handle. If the kernel has forgotten the number meanwhile, the number is removed. Otherwise, if too many closed files are
    /// kept, the pages of the file that has been closed for longest are no longer kept.
    pub fn released(&mut self, number: u64) {
        let Some(node) = self.node(number) else {
            return;
        };
        node.opens = node.opens.saturating_sub(1);
        match (node.opens, node.told) {
            (0, 0) => return self.forget(number, 0),
            (0, _) => self.idle.push_back(number),
            _ => {}
        }
        self.drop_idle(self.most_idle);
    }

    /// Frees the pages and file descriptors of closed files, the oldest first, until at most `most` are kept.
    pub fn drop_idle(&mut self, most: usize) {
        while self.idle.len() > most
            && let Some(oldest) = self.idle.pop_front()
        {
            let base = self.node(oldest).and_then(|node| node.base.take());
            self.drop_later(base);
        }
    }

    /// Handles an inode number whose file, when opened, had another version than the number.
    pub fn outdated(&mut self, number: u64) {
        let Some(node) = self.node(number) else {
            return;
        };
        let (opens, listed) = (node.opens, node.listed.take());
        let base = node.base.take_if(|_| opens == 0);
        self.drop_later(base);
        self.drop_later(listed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Mem;
    use crate::source::tree::FolderNames;
    use crate::{Engine, Options};
    use std::time::Instant;

    fn meta(kind: Kind, version: u8) -> Meta {
        Meta {
            kind,
            size: 9,
            mtime_ns: 0,
            permissions: 0o644,
            owner: None,
            version: [version].into(),
        }
    }

    fn reader() -> Arc<Reader> {
        let engine = Engine::new(Options::default().cache_bytes(1 << 20)).expect("an engine");
        Arc::new(engine.open(Arc::new(Mem::new(vec![0; 9]))).expect("opened"))
    }

    fn told(nodes: &mut Nodes, path: &str, meta: Meta) -> u64 {
        nodes.enter(path.into(), meta).expect("room")
    }

    fn has(nodes: &mut Nodes, number: u64) -> bool {
        nodes.known(number).is_some()
    }

    #[test]
    fn a_version_is_a_number_and_a_folder_keeps_its_own() {
        let mut nodes = Nodes::new(meta(Kind::Folder, 0), 2);
        let mut of = |path: &str, kind, version| told(&mut nodes, path, meta(kind, version));
        let one = of("a", Kind::File, 1);
        let two = of("a", Kind::File, 2);
        assert_ne!(one, two);
        assert_eq!(of("a", Kind::File, 1), one, "the same version");
        let others = [
            of("b", Kind::File, 1),
            of("d/a", Kind::File, 1),
            of("a", Kind::Link, 1),
            of("d", Kind::File, 1),
        ];
        assert!(!others.contains(&one));
        let folder = of("d", Kind::Folder, 1);
        assert_eq!(of("d", Kind::Folder, 2), folder);
        assert!(!others.contains(&folder));
        assert_eq!(of("", Kind::Folder, 7), ROOT);
    }

    /// The numbers are the same in every mount, whatever was looked up before. Backup programs rely on them.
    #[test]
    fn inode_numbers_depend_only_on_path_and_version() {
        let file = meta(Kind::File, 1);
        let number = 7_816_608_254_781_376_897;
        assert_eq!(number_of(Path::new("d/a"), &file), number);
        let bare = Meta {
            size: 1,
            mtime_ns: 5,
            permissions: 0,
            ..file.clone()
        };
        assert_eq!(number_of(Path::new("d/a"), &bare), number);
        let paths: Vec<String> = (0..1000).map(|n| format!("d/{n}")).collect();
        let numbers = |paths: &[String]| {
            let mut nodes = Nodes::new(meta(Kind::Folder, 0), 2);
            let of = |path: &String| (path.clone(), told(&mut nodes, path, file.clone()));
            paths.iter().map(of).collect::<BTreeMap<_, _>>()
        };
        let turned: Vec<String> = paths.iter().rev().cloned().collect();
        assert_eq!(numbers(&paths), numbers(&turned));
    }

    /// If two paths hash to one number, the second gets the next number, as long as both are known.
    #[test]
    fn a_number_that_is_taken_is_passed_over() {
        let mut nodes = Nodes::new(meta(Kind::Folder, 0), 2);
        let file = meta(Kind::File, 1);
        let number = number_of(Path::new("a"), &file);
        let other = Node::new(Arc::from(PathBuf::from("b")), file.clone());
        nodes.told.insert(number, Told::Node(Box::new(other)));
        for _ in 0..2 {
            assert_eq!(told(&mut nodes, "a", file.clone()), number + 1);
        }
        assert_eq!(&*nodes.known(number).expect("known").path, Path::new("b"));
        assert_eq!(
            &*nodes.known(number + 1).expect("known").path,
            Path::new("a")
        );
    }

    #[test]
    fn forgotten_after_as_many_forgets_as_lookups() {
        let mut nodes = Nodes::new(meta(Kind::Folder, 0), 2);
        let file = meta(Kind::File, 1);
        let a = told(&mut nodes, "a", file.clone());
        told(&mut nodes, "a", file.clone());
        nodes.forget(a, 1);
        assert!(has(&mut nodes, a));
        nodes.forget(a, 1);
        assert!(!has(&mut nodes, a) && nodes.bytes.bytes() == 0);
        nodes.forget(ROOT, 9);
        assert!(has(&mut nodes, ROOT));
        // The kernel may forget a file before its last handle is closed here.
        let a = told(&mut nodes, "a", file);
        drop(nodes.opened(a, &reader()).expect("known"));
        nodes.forget(a, 1);
        assert!(has(&mut nodes, a));
        nodes.released(a);
        assert!(!has(&mut nodes, a) && nodes.bytes.bytes() == 0);
    }

    fn listing(files: &[(&str, u8)]) -> Arc<FolderListing> {
        let mut names = FolderNames::default();
        for (name, version) in files {
            let (kind, name) = (Kind::File, std::ffi::OsStr::new(name));
            assert!(names.push(name, kind, Some(&meta(kind, *version))));
        }
        FolderListing::new(Path::new("d"), names, Instant::now())
    }

    fn enter_all(nodes: &mut Nodes, listing: &Arc<FolderListing>) -> Vec<u64> {
        let mut enter = |place| {
            let (path, meta) = listing.entry(place)?;
            nodes.enter_listed(listing, place, path, &meta).ok()
        };
        (0..).map_while(&mut enter).collect()
    }

    /// A name of a listing takes 24 bytes in the table, and becomes a node once it is queried. A listing is kept as long as the
    /// kernel knows one of its names through it.
    #[test]
    fn names_of_a_listing_are_places_in_it() {
        assert_eq!(size_of::<(u64, Told)>(), 24);
        let mut nodes = Nodes::new(meta(Kind::Folder, 0), 2);
        let old = listing(&[("a", 1), ("b", 1), ("c", 1)]);
        let numbers = enter_all(&mut nodes, &old);
        assert_eq!(nodes.bytes.bytes(), 3 * TOLD_BYTES);
        assert_eq!(told(&mut nodes, "d/a", meta(Kind::File, 1)), numbers[0]);
        let known = nodes.known(numbers[1]).expect("known");
        assert_eq!(
            (&*known.path, &*known.meta.version),
            (Path::new("d/b"), &[1][..])
        );
        assert!(nodes.bytes.bytes() > 3 * TOLD_BYTES);
        let next = |nodes: &mut Nodes, number| nodes.next(number).map(|(next, _)| next);
        assert_eq!(next(&mut nodes, numbers[1]), Some(numbers[2]));
        // The folder is listed again: b has another version, c is gone, e is new.
        let new = listing(&[("a", 1), ("b", 2), ("e", 1)]);
        let again = enter_all(&mut nodes, &new);
        assert_eq!(again[0], numbers[0]);
        assert_ne!(again[1], numbers[1]);
        nodes.known(again[1]);
        assert_eq!(next(&mut nodes, again[1]), Some(again[2]));
        assert_eq!(nodes.len(), 1 + 5);
        for (number, times) in [
            (numbers[1], 1),
            (numbers[2], 1),
            (again[0], 2),
            (again[0], 1),
        ] {
            assert!(has(&mut nodes, number) && Arc::strong_count(&new) > 1);
            nodes.forget(number, times);
            nodes.take_unused();
        }
        assert_eq!(
            (Arc::strong_count(&old), has(&mut nodes, again[0])),
            (1, false)
        );
    }

    /// A file of a listing that the kernel does not know is held until it is opened, or until too many are.
    #[test]
    fn the_next_files_of_a_listing_are_held_up_to_the_limit() {
        let mut nodes = Nodes::new(meta(Kind::Folder, 0), 0);
        let own = listing(&[("a", 1), ("b", 1), ("c", 1)]);
        let (path, first) = own.entry(0).expect("a");
        let a = nodes.enter_listed(&own, 0, path, &first).expect("room");
        nodes.known(a);
        let next = |nodes: &mut Nodes, number| nodes.next(number).expect("held").0;
        let b = next(&mut nodes, a);
        let c = next(&mut nodes, b);
        assert!(nodes.next(c).is_none() && nodes.len() == 1 + 3);
        // The kernel looks it up, opens it, and forgets it.
        assert_eq!(told(&mut nodes, "d/b", meta(Kind::File, 1)), b);
        drop(nodes.opened(b, &reader()).expect("known"));
        nodes.released(b);
        nodes.forget(b, 1);
        assert!(!has(&mut nodes, b), "opened, it is the kernel's alone");
        nodes.forget(a, 1);
        assert_eq!(nodes.len(), 1 + 1);
        nodes.drop_listed(0);
        assert!(!has(&mut nodes, c) && nodes.bytes.bytes() == 0);
        nodes.take_unused();
        assert_eq!(Arc::strong_count(&own), 1);
    }

    /// `cp -r` opens files in the order of their numbers, and a shell those of a pattern in the order of the listing.
    #[test]
    fn files_that_are_opened_by_number_follow_each_other() {
        let mut nodes = Nodes::new(meta(Kind::Folder, 0), 0);
        let names: Vec<String> = (10..40).map(|n| n.to_string()).collect();
        let own = listing(&Vec::from_iter(names.iter().map(|name| (name.as_str(), 1))));
        let in_listing = enter_all(&mut nodes, &own);
        let mut by_number = in_listing.clone();
        by_number.sort_unstable();
        let mut open = |number| {
            nodes.known(number).expect("known");
            if let Some(listing) = nodes.follow(number) {
                nodes.sorted(&listing, super::by_number(&listing));
            }
            nodes.next(number).map(|(next, _)| next)
        };
        let mut each = |order: &[u64], from: usize| {
            let next = order.windows(2).map(|pair| open(pair[0]) == Some(pair[1]));
            Vec::from_iter(next.skip(from))
                .iter()
                .all(|is_next| *is_next)
        };
        assert!(each(&in_listing, 0));
        assert!(
            each(&by_number, 4),
            "sorted by the third, believed by the fourth"
        );
        assert!(each(&in_listing, 2));
        assert_eq!(nodes.orders.count(), 1);
        drop((
            own,
            nodes.told.split_off(&(ROOT + 1)),
            std::mem::take(&mut nodes.listed),
        ));
        nodes.sorted(&listing(&[("a", 1)]), Vec::new());
        assert_eq!(
            nodes.orders.count(),
            1,
            "that of a listing which is gone is dropped"
        );
    }

    /// Planned files stay known until they are opened, or until too many are planned.
    #[test]
    fn planned_numbers_are_held_up_to_the_limit() {
        let mut nodes = Nodes::new(meta(Kind::Folder, 0), 2);
        let enter = |nodes: &mut Nodes, name: &str| told(nodes, name, meta(Kind::File, 1));
        let [a, c, b] = enter_all(&mut nodes, &listing(&[("a", 1), ("c", 1), ("b", 1)]))
            .try_into()
            .expect("three");
        nodes.plan(None, a, 2);
        nodes.plan(Some(a), b, 2);
        assert_eq!(
            nodes.next(a).map(|(next, _)| next),
            Some(b),
            "a listing does not change the caller's order"
        );
        // The kernel looks it up and forgets it; planned again, it is counted only once.
        enter(&mut nodes, "d/b");
        nodes.forget(b, 1);
        enter(&mut nodes, "d/b");
        nodes.plan(None, b, 2);
        assert!(has(&mut nodes, b));
        drop(nodes.opened(b, &reader()).expect("known"));
        nodes.released(b);
        nodes.forget(b, 1);
        assert!(
            has(&mut nodes, a) && !has(&mut nodes, b),
            "opened, it is the kernel's alone"
        );
        nodes.plan(None, c, 1);
        assert!(
            !has(&mut nodes, a) && has(&mut nodes, c),
            "the oldest is not planned any more"
        );
    }

    #[test]
    fn closed_files_keep_their_pages_up_to_the_limit() {
        let mut nodes = Nodes::new(meta(Kind::Folder, 0), 2);
        let mut numbers = Vec::new();
        for n in 0..4 {
            let number = told(&mut nodes, &n.to_string(), meta(Kind::File, 1));
            drop(nodes.opened(number, &reader()).expect("known"));
            numbers.push(number);
        }
        let kept = |nodes: &mut Nodes| {
            let is_kept = |number: &&u64| nodes.known(**number).is_some_and(|n| n.base.is_some());
            numbers.iter().filter(is_kept).count()
        };
        assert_eq!(kept(&mut nodes), 4, "open ones are not counted");
        numbers.iter().for_each(|&n| nodes.released(n));
        assert_eq!(kept(&mut nodes), 2);
        nodes.drop_idle(0);
        assert_eq!((nodes.take_unused().len(), kept(&mut nodes)), (4, 0));
    }
}
