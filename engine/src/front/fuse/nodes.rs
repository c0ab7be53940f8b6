//! Inode numbers: what the kernel calls the paths that it has looked up.
//!
//! A new version of a file is a new number, so pages and attributes that the kernel keeps under a number are those of one
//! version. A folder keeps its number while it is a folder. Never: gives a number twice, or forgets one that the
//! kernel still knows.
//!
//! ```text
//!   look-up ──► (path, version) known? ── yes ──► its number, counted once more
//!                       └─ no ──► the next number; the old one stays for its open handles
//!   forget ──► counted down to zero ──► gone, with the reader that was kept for it
//! ```
//!
//! A number also knows the one behind it in the listing of its folder, and may be listed in the engine (`view/order.rs`).

use super::listed::{ListedName, ListedNumbers, MIN_LISTED};
use crate::source::tree::{FolderNames, Kind, Meta, NameBytes};
use crate::{ListedFile, Reader};
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Instant;

/// The number of the root.
pub const ROOT: u64 = 1;

/// Bytes of a number, beside the letters of its path and those of its version: the node, its places in two tables that are half full at
/// worst, and what the allocator adds to the node and the path.
const NODE_BYTES: u64 =
    (size_of::<Node>() + 2 * size_of::<(u64, Box<Node>, Arc<Path>, u64)>() + 3 * 16) as u64;

/// One number.
pub struct Node {
    pub path: Arc<Path>,
    pub meta: Meta,
    /// When the storage was asked what said so; nothing where that is doubted.
    pub seen: Option<Instant>,
    /// How often the kernel has been told of it.
    told: u64,
    /// Open handles.
    opens: u32,
    /// It has been opened, so the kernel may have pages of it.
    pub was_opened: bool,
    /// The file in the engine: its pages stay while this is here.
    pub base: Option<Arc<Reader>>,
    /// The same before it is opened for the first time.
    pub listed: Option<Arc<ListedFile>>,
    /// The file behind it in the listing of its folder, or in the caller's order.
    pub next: Option<u64>,
    /// The caller will open it in its turn, and has not yet: counted in `told`.
    pub planned: bool,
}

impl Node {
    fn new(path: Arc<Path>, meta: Meta, seen: Option<Instant>) -> Node {
        Node {
            path,
            meta,
            seen,
            told: 1,
            opens: 0,
            was_opened: false,
            base: None,
            listed: None,
            next: None,
            planned: false,
        }
    }
}

fn bytes_of(path: &Path, meta: &Meta) -> u64 {
    NODE_BYTES + path.as_os_str().len() as u64 + meta.heap_bytes()
}

/// What is not kept any more, to be dropped without the lock.
#[derive(Default)]
#[must_use]
pub struct UnusedNodes {
    _base: Option<Arc<Reader>>,
    _listed: Option<Arc<ListedFile>>,
}

pub struct Nodes {
    /// In boxes: a table is up to half empty, and twice there while it grows.
    by_number: HashMap<u64, Box<Node>>,
    /// The newest number of each path.
    newest: HashMap<Arc<Path>, u64>,
    next: u64,
    most: usize,
    /// Numbers that are places in a listing.
    places: ListedNumbers,
    /// Those of all nodes.
    bytes: NameBytes,
    /// Closed files whose pages are kept, oldest first.
    idle: VecDeque<u64>,
    most_idle: usize,
    /// Numbers that are listed in the engine, oldest first; some of them were opened since.
    listed: VecDeque<u64>,
    /// Numbers that were planned, oldest first; some of them were opened since.
    planned: VecDeque<u64>,
}

impl Nodes {
    /// At most `most` numbers at once, and the pages of at most `most_idle` closed files.
    pub fn new(root: Meta, most: usize, most_idle: usize) -> Nodes {
        let path: Arc<Path> = Arc::from(PathBuf::new());
        let node = Node::new(Arc::clone(&path), root, None);
        Nodes {
            by_number: HashMap::from([(ROOT, Box::new(node))]),
            newest: HashMap::from([(path, ROOT)]),
            next: ROOT + 1,
            most,
            places: ListedNumbers::default(),
            bytes: NameBytes::default(),
            idle: VecDeque::new(),
            most_idle,
            listed: VecDeque::new(),
            planned: VecDeque::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.by_number.len() + self.places.len()
    }

    fn get(&self, number: u64) -> Option<&Node> {
        self.by_number.get(&number).map(|node| &**node)
    }

    /// What is known of a number. A place in a listing becomes a node.
    pub fn known(&mut self, number: u64) -> Option<&Node> {
        if !self.by_number.contains_key(&number) {
            let listed = self.places.get(number).filter(|listed| listed.told > 0)?;
            if !self.bytes.grow(bytes_of(&listed.path, &listed.meta)) {
                return None;
            }
            self.places.forget(number, listed.told);
            self.insert(listed);
        }
        self.get(number)
    }

    fn insert(&mut self, listed: ListedName) {
        let (number, path) = (listed.number, Arc::<Path>::from(listed.path));
        self.newest.entry(Arc::clone(&path)).or_insert(number);
        let mut node = Node::new(path, listed.meta, Some(listed.seen));
        (node.told, node.next) = (listed.told, listed.next);
        self.by_number.insert(number, Box::new(node));
    }

    /// The newest number of a path.
    pub fn number(&self, path: &Path) -> Option<u64> {
        let newest = self.newest.get(path).copied();
        newest.or_else(|| self.places.number(path))
    }

    pub fn at(&mut self, path: &Path) -> Option<&Node> {
        let number = self.number(path)?;
        self.known(number)
    }

    /// A folder with versions was listed at `seen`. Names of a long listing have places there, until more is asked about them. False:
    /// there is no room for their numbers.
    pub fn list_names(
        &mut self,
        folder: &Arc<Path>,
        names: &Arc<FolderNames>,
        seen: Instant,
    ) -> bool {
        if names.len() < MIN_LISTED {
            return true;
        }
        let Some(gone) = self.places.list(folder, names, seen, &mut self.next) else {
            return false;
        };
        for listed in gone {
            // The kernel has them already, so that they are kept at any rate.
            let _ = self.bytes.grow(bytes_of(&listed.path, &listed.meta));
            self.insert(listed);
        }
        true
    }

    /// The kernel gets the name at a place of a listing; see [`Nodes::enter`].
    pub fn enter_listed(
        &mut self,
        folder: &Path,
        (names, place): (&Arc<FolderNames>, usize),
        path: PathBuf,
        meta: Meta,
        seen: Instant,
    ) -> Result<u64, PathBuf> {
        let newest = self.newest.get(path.as_path()).copied();
        match self.places.number_of(folder, names, place) {
            Some(number) if newest.is_none_or(|newest| newest == number) => {
                match self.by_number.get_mut(&number) {
                    Some(_) => self.enter(path, meta, seen),
                    None => {
                        self.places.tell(number);
                        Ok(number)
                    }
                }
            }
            _ => self.enter(path, meta, seen),
        }
    }

    /// A listing is open no more.
    pub fn drop_unused(&mut self) {
        self.places.drop_unused();
    }

    /// The storage was asked at `seen`, and this is at a path: known attributes stay valid, if it is the same. False: no number has
    /// this path.
    pub fn refresh(&mut self, path: &Path, meta: &Meta, seen: Instant) -> bool {
        let number = self.number(path);
        let known = number.filter(|&number| self.known(number).is_some());
        let Some(node) = known.and_then(|number| self.by_number.get_mut(&number)) else {
            return false;
        };
        if node.meta.kind == meta.kind && node.meta.version == meta.version {
            node.seen = Some(seen);
        }
        true
    }

    /// What is known of a number may be wrong: it is asked for before it is believed again. `failed` is a reader of another version by
    /// now, which is not kept. Returns what has to be dropped.
    pub fn doubt(&mut self, number: u64, failed: Option<&Weak<Reader>>) -> UnusedNodes {
        let Some(node) = self.by_number.get_mut(&number) else {
            return UnusedNodes::default();
        };
        node.seen = None;
        let is_failed = |base: &Arc<Reader>| {
            failed.is_some_and(|failed| std::ptr::eq(Arc::as_ptr(base), failed.as_ptr()))
        };
        let base = if node.base.as_ref().is_some_and(is_failed) {
            node.base.take()
        } else {
            None
        };
        UnusedNodes {
            _base: base,
            _listed: None,
        }
    }

    /// The kernel gets what is at a path, as the storage said when it was asked at `seen`. The path when there are too
    /// many numbers, or they take too many bytes.
    pub fn enter(&mut self, path: PathBuf, meta: Meta, seen: Instant) -> Result<u64, PathBuf> {
        let number = self.number(&path);
        let number = number.filter(|&number| self.known(number).is_some());
        if let Some(number) = number
            && let Some(node) = self.by_number.get_mut(&number)
        {
            let folder = meta.kind == Kind::Folder && node.meta.kind == Kind::Folder;
            if folder || node.meta.kind == meta.kind && node.meta.version == meta.version {
                node.told += 1;
                node.meta = meta;
                node.seen = Some(seen);
                return Ok(number);
            }
            // The old version cannot be opened any more.
            if node.opens == 0 {
                (node.base, node.listed) = (None, None);
            }
        }
        if self.by_number.len() >= self.most || !self.bytes.grow(bytes_of(&path, &meta)) {
            return Err(path);
        }
        let (number, path) = (self.next, Arc::<Path>::from(path));
        self.next += 1;
        self.newest.insert(Arc::clone(&path), number);
        self.by_number
            .insert(number, Box::new(Node::new(path, meta, Some(seen))));
        Ok(number)
    }

    /// The kernel has forgotten what it was told `times` times. Returns what has to be dropped.
    pub fn forget(&mut self, number: u64, times: u64) -> UnusedNodes {
        let Some(node) = self.by_number.get_mut(&number) else {
            self.places.forget(number, times);
            return UnusedNodes::default();
        };
        node.told = node.told.saturating_sub(times);
        if node.told > 0 || node.opens > 0 || number == ROOT {
            return UnusedNodes::default();
        }
        let Some(node) = self.by_number.remove(&number) else {
            return UnusedNodes::default();
        };
        self.bytes.shrink(bytes_of(&node.path, &node.meta));
        if self.newest.get(&node.path) == Some(&number) {
            self.newest.remove(&node.path);
        }
        self.idle.retain(|&n| n != number);
        UnusedNodes {
            _base: node.base,
            _listed: node.listed,
        }
    }

    // ---- the order of a listing ----

    /// In the listing of a folder `number` is the file behind `before`.
    pub fn follow(&mut self, before: u64, number: u64) {
        // A place knows the one behind it, and the caller's order stays.
        if self.by_number.contains_key(&before)
            && self.next(before).is_none_or(|(_, next)| !next.planned)
            && let Some(node) = self.by_number.get_mut(&before)
        {
            node.next = Some(number);
        }
    }

    /// The caller will open `number` behind `before`, and it was counted for that. Returns what has to be dropped: if more than `most`
    /// are planned, the oldest one is not any more.
    pub fn plan(&mut self, before: Option<u64>, number: u64, most: usize) -> UnusedNodes {
        let Some(node) = self.by_number.get_mut(&number) else {
            return UnusedNodes::default();
        };
        if std::mem::replace(&mut node.planned, true) {
            // It is counted already, and has a new place.
            node.told -= 1;
        } else {
            self.planned.push_back(number);
        }
        if let Some(node) = before.and_then(|before| self.by_number.get_mut(&before)) {
            node.next = Some(number);
        }
        let oldest = if self.planned.len() > most {
            self.planned.pop_front()
        } else {
            None
        };
        oldest.map_or_else(UnusedNodes::default, |oldest| self.unplan(oldest))
    }

    /// A number is planned no more. Returns what has to be dropped.
    fn unplan(&mut self, number: u64) -> UnusedNodes {
        let node = self.by_number.get_mut(&number);
        if node.is_some_and(|node| std::mem::take(&mut node.planned)) {
            self.forget(number, 1)
        } else {
            UnusedNodes::default()
        }
    }

    /// The file behind a number, if it is not gone.
    pub fn next(&mut self, number: u64) -> Option<(u64, &Node)> {
        let next = self.get(number)?.next?;
        Some((next, self.known(next)?))
    }

    /// The engine knows the file of a number, which was not opened yet. Returns what has to be dropped: the oldest one, if more than
    /// `most` are listed; the new one, if the file has been opened or has gone meanwhile.
    pub fn list(&mut self, number: u64, file: Arc<ListedFile>, most: usize) -> UnusedNodes {
        match self.by_number.get_mut(&number) {
            Some(node) if node.base.is_none() && node.listed.is_none() => node.listed = Some(file),
            _ => {
                return UnusedNodes {
                    _base: None,
                    _listed: Some(file),
                };
            }
        }
        self.listed.push_back(number);
        let oldest = if self.listed.len() > most {
            self.listed.pop_front()
        } else {
            None
        };
        let oldest = oldest.and_then(|oldest| self.by_number.get_mut(&oldest));
        UnusedNodes {
            _base: None,
            _listed: oldest.and_then(|node| node.listed.take()),
        }
    }

    // ---- open files ----

    /// A handle is made on `base`, or on the one that another thread has put there meanwhile. The file is listed no more: with the
    /// reader returns what has to be dropped.
    pub fn opened(
        &mut self,
        number: u64,
        base: &Arc<Reader>,
    ) -> Option<(Arc<Reader>, UnusedNodes)> {
        let node = self.by_number.get_mut(&number)?;
        node.opens += 1;
        node.was_opened = true;
        if std::mem::take(&mut node.planned) {
            node.told = node.told.saturating_sub(1);
        }
        self.idle.retain(|&n| n != number);
        let unused = UnusedNodes {
            _base: None,
            _listed: node.listed.take(),
        };
        Some((
            Arc::clone(node.base.get_or_insert_with(|| Arc::clone(base))),
            unused,
        ))
    }

    /// A handle is gone. Returns what has to be dropped: the file that has been idle for longest, if there are too many.
    #[must_use]
    pub fn released(&mut self, number: u64) -> Option<Arc<Reader>> {
        let current = self
            .by_number
            .get(&number)
            .is_some_and(|n| self.newest.get(&n.path) == Some(&number));
        let node = self.by_number.get_mut(&number)?;
        node.opens = node.opens.saturating_sub(1);
        if node.opens > 0 {
            return None;
        }
        if !current {
            return node.base.take();
        }
        self.idle.push_back(number);
        if self.idle.len() <= self.most_idle {
            return None;
        }
        let oldest = self.idle.pop_front()?;
        self.by_number.get_mut(&oldest)?.base.take()
    }

    /// Gives up the pages of all closed files, for their descriptors. Returns what has to be dropped.
    #[must_use]
    pub fn drop_idle(&mut self) -> Vec<Arc<Reader>> {
        let idle = std::mem::take(&mut self.idle);
        idle.into_iter()
            .filter_map(|number| self.by_number.get_mut(&number)?.base.take())
            .collect()
    }

    /// What was opened is not the version of this number any more.
    pub fn outdated(&mut self, number: u64) -> UnusedNodes {
        let Some(node) = self.by_number.get_mut(&number) else {
            return UnusedNodes::default();
        };
        node.seen = None;
        let base = if node.opens == 0 {
            node.base.take()
        } else {
            None
        };
        UnusedNodes {
            _base: base,
            _listed: node.listed.take(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Mem;
    use crate::{Engine, Options};

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

    #[test]
    fn a_new_version_is_a_new_number_and_a_folder_keeps_its_own() {
        let mut nodes = Nodes::new(meta(Kind::Folder, 0), 10, 2);
        let path = |p: &str| PathBuf::from(p);
        let one = nodes.enter(path("a"), meta(Kind::File, 1), Instant::now());
        assert_eq!(
            nodes.enter(path("a"), meta(Kind::File, 1), Instant::now()),
            one,
            "the same version"
        );
        let two = nodes.enter(path("a"), meta(Kind::File, 2), Instant::now());
        assert_ne!(one, two);
        assert_ne!(
            nodes.enter(path("a"), meta(Kind::File, 1), Instant::now()),
            one,
            "a version that comes back is a new one"
        );
        let folder = nodes.enter(path("d"), meta(Kind::Folder, 1), Instant::now());
        assert_eq!(
            nodes.enter(path("d"), meta(Kind::Folder, 2), Instant::now()),
            folder
        );
        assert_ne!(
            nodes.enter(path("d"), meta(Kind::File, 2), Instant::now()),
            folder
        );
        assert_eq!(
            nodes.enter(PathBuf::new(), meta(Kind::Folder, 7), Instant::now()),
            Ok(ROOT)
        );
    }

    #[test]
    fn one_number_too_many_is_refused() {
        let mut nodes = Nodes::new(meta(Kind::Folder, 0), 3, 1);
        let mut enter = |name: &str| nodes.enter(name.into(), meta(Kind::File, 1), Instant::now());
        let (first, second, third) = (enter("a"), enter("b"), enter("c"));
        assert!(first.is_ok() && second.is_ok() && third.is_err() && enter("a") == first);
        let _ = nodes.forget(second.expect("a number"), 1);
        assert!(
            nodes
                .enter("c".into(), meta(Kind::File, 1), Instant::now())
                .is_ok(),
            "one that was given back"
        );
    }

    #[test]
    fn forgotten_after_as_many_forgets_as_lookups() {
        let mut nodes = Nodes::new(meta(Kind::Folder, 0), 3, 2);
        let told = |nodes: &mut Nodes, p: &str| {
            nodes.enter(PathBuf::from(p), meta(Kind::File, 1), Instant::now())
        };
        let a = told(&mut nodes, "a").expect("room");
        told(&mut nodes, "a").expect("room");
        assert!(
            told(&mut nodes, "b").is_ok() && told(&mut nodes, "c").is_err(),
            "three numbers, with the root"
        );
        let _ = nodes.forget(a, 1);
        assert!(nodes.get(a).is_some());
        let _ = nodes.forget(a, 1);
        assert!(nodes.get(a).is_none());
        assert!(
            told(&mut nodes, "c").is_ok_and(|c| c > a),
            "numbers are not used again"
        );
        let _ = nodes.forget(ROOT, 9);
        assert!(nodes.get(ROOT).is_some());
    }

    /// What is planned stays known until it is opened, or until too many are.
    #[test]
    fn planned_numbers_are_held_up_to_the_limit() {
        let mut nodes = Nodes::new(meta(Kind::Folder, 0), 100, 2);
        let enter = |nodes: &mut Nodes, name: &str| {
            nodes
                .enter(name.into(), meta(Kind::File, 1), Instant::now())
                .expect("room")
        };
        let [a, b, c] = ["a", "b", "c"].map(|name| enter(&mut nodes, name));
        let (_, _) = (nodes.plan(None, a, 2), nodes.plan(Some(a), b, 2));
        nodes.follow(a, c);
        assert_eq!(
            nodes.next(a).map(|(next, _)| next),
            Some(b),
            "a listing does not change the caller's order"
        );
        // The kernel looks it up and forgets it; planned again it is counted once.
        enter(&mut nodes, "b");
        let _ = nodes.forget(b, 1);
        enter(&mut nodes, "b");
        let _ = nodes.plan(None, b, 2);
        assert!(nodes.get(b).is_some());
        drop(nodes.opened(b, &reader()).expect("known"));
        drop(nodes.released(b));
        let _ = nodes.forget(b, 1);
        assert!(
            nodes.get(a).is_some() && nodes.get(b).is_none(),
            "opened, it is the kernel's alone"
        );
        let _ = nodes.plan(None, c, 1);
        assert!(
            nodes.get(a).is_none() && nodes.get(c).is_some(),
            "the oldest is not planned any more"
        );
    }

    #[test]
    fn closed_files_keep_their_pages_up_to_the_limit() {
        let mut nodes = Nodes::new(meta(Kind::Folder, 0), 100, 2);
        let mut numbers = Vec::new();
        for n in 0..4 {
            let number = nodes
                .enter(
                    PathBuf::from(n.to_string()),
                    meta(Kind::File, 1),
                    Instant::now(),
                )
                .expect("room");
            drop(nodes.opened(number, &reader()).expect("known"));
            numbers.push(number);
        }
        let kept = |nodes: &Nodes| {
            numbers
                .iter()
                .filter(|&&n| nodes.get(n).is_some_and(|n| n.base.is_some()))
                .count()
        };
        assert_eq!(kept(&nodes), 4, "open ones are not counted");
        let dropped = numbers.iter().filter_map(|&n| nodes.released(n)).count();
        assert_eq!((dropped, kept(&nodes)), (2, 2));
        nodes
            .enter(PathBuf::from("3"), meta(Kind::File, 2), Instant::now())
            .expect("room");
        assert_eq!(kept(&nodes), 1, "an old version is not kept");
        assert_eq!((nodes.drop_idle().len(), kept(&nodes)), (1, 0));
    }
}
