//! Caches the store's recent answers about names: listings of folders, and look-ups of single names.
//!
//! An answer is trusted for [`super::View::ttl`] after the request; the time for which the kernel caches the answer is included. A name
//! that is not in the cache is requested from the store. One answer may contain more names than requested. If a program opens a list of
//! files in any order, the kernel looks up each of them, and one request to the store can answer a thousand lookups.
//!
//! If one request lists all names of a folder, it is sent instead of a page. This listing is trusted for what it lacks as well, because
//! programs look up many names that do not exist: compilers search folders for headers, Python for modules, git for objects. No other
//! listing is: a listing that a program has read may come from the disk, and be old.
//!
//! ```text
//!   listing of a folder, trusted  ┐
//!   answer about a name, newer    ┴─ has it ──► no request
//!                                      └─ had it, but is too old ──► a page
//!                                      └─ never had it
//!                                           ├─ all names were requested less than the TTL ago ──► absent, no request
//!                                           ├─ a name of this folder was absent lately ──► a page
//!                                           └─ otherwise the credit decides: a page, or a plain request
//!   page ──► all names of the folder, if it is not known to have more than one request lists; otherwise the name and those after it
//! ```
//! A page of a listing (one reply of the store) has about 250 bytes per name; looking up a single name takes two requests. So requesting a
//! page saves time if a program looks up many names of one folder in turn, but not if it looks up only a few of a million. Whether a page
//! or a single name is requested depends on a count of credits:
//!
//! ```text
//!   credit 2 ──page requested: -1──► 1 ──one of its names is looked up: +1──► 2    at most 64
//!   credit 0: only plain requests; every 64th adds 1
//! ```
//! If a program looks up names in the order of a listing or page, the mount can read the files after them ahead (`order.rs`).
//!
//! Example: 1,000 objects of one folder, opened in random order within 5 s, need one look-up of a single name, the first, and one listing.
//! `git log -p` of 120 commits looks for names that do not exist: it sends 120 requests, and sent 5,144 with two for each such name.

use super::{KernelErrno, View};
use crate::front::fuse::handles::FolderListing;
use crate::source::tree::{FolderNames, Kind, Meta, NameBytes};
use crate::sync::lock;
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum number of cached single names. When it is exceeded, the cache is cleared.
const MAX_NAMES: usize = 1 << 16;
/// Memory of a name in bytes, in addition to its letters and those of its version.
const NAME_BYTES: u64 = 300;
/// Number of listings that are kept without checking their age.
const FREE_LISTINGS: usize = 64;
/// Number of pages that may be requested before one of their names is looked up.
const FIRST_CREDIT: u32 = 2;
const MAX_CREDIT: u32 = 64;
/// Number of plain requests after which a page is tried again.
const RETRY_AFTER: u32 = 64;
/// Number of folders that are remembered: this many may be read in turn.
const MAX_FOLDERS: usize = 16;
/// Number of folders of which is remembered whether one request lists them.
const MAX_LISTED: usize = 1 << 10;
/// Names are looked up in the order of a listing if each is at most this many positions from the one before: several threads that share
/// an ordered list do not look them up exactly in its order.
const NEAR: u32 = 16;

pub struct SaidNames {
    ttl: Duration,
    folders: HashMap<Arc<Path>, Arc<FolderListing>>,
    /// When there are too many, all are forgotten.
    listed: HashMap<PathBuf, ListedFolder>,
    names: HashMap<PathBuf, SaidName>,
    /// Memory of the single names.
    bytes: NameBytes,
    /// Number of listings at which old ones are searched for and removed.
    most_listings: usize,
    credit: u32,
    plain: u32,
    /// The folders of the latest requests for single names.
    asked_in: VecDeque<PathBuf>,
}

/// What is known about a folder from look-ups of its names.
#[derive(Default)]
struct ListedFolder {
    /// The time of the latest look-up of an absent name.
    missed: Option<Instant>,
    /// When all its names were requested by one request.
    listed: Option<Instant>,
    /// It has more names than one request lists.
    is_large: bool,
    page: Option<Arc<FolderListing>>,
    /// The position of the latest file that was looked up, in the listing or page.
    last: Option<u32>,
}

struct SaidName {
    /// `None` if the answer is doubtful.
    meta: Option<Meta>,
    seen: Instant,
    /// Whether it came with the answer about another name, and was not looked up yet.
    is_unasked: bool,
}

impl SaidName {
    fn bytes(&self, path: &Path) -> u64 {
        let version = self.meta.as_ref().map_or(0, Meta::heap_bytes);
        NAME_BYTES + path.as_os_str().len() as u64 + version
    }
}

/// How to request a path, if at all.
#[derive(Debug, PartialEq)]
enum Question {
    /// No request is needed: a trusted answer and its time.
    None(Meta, Instant),
    /// No request is needed: a trusted listing lacks the name.
    Absent,
    /// All names of the folder.
    Folder,
    Page,
    Plain,
}

impl SaidNames {
    pub fn new(ttl: Duration) -> SaidNames {
        SaidNames {
            ttl,
            folders: HashMap::new(),
            listed: HashMap::new(),
            names: HashMap::new(),
            bytes: NameBytes::default(),
            most_listings: FREE_LISTINGS,
            credit: FIRST_CREDIT,
            plain: 0,
            asked_in: VecDeque::new(),
        }
    }

    /// The newest answer about a path, with its time; its value is `None` if it is doubtful.
    fn newest(&self, path: &Path) -> Option<(Option<Meta>, Instant)> {
        let listing = path.parent().and_then(|folder| self.folders.get(folder));
        if let Some(name) = self.names.get(path)
            && listing.is_none_or(|listing| listing.asked <= name.seen)
        {
            return Some((name.meta.clone(), name.seen));
        }
        let listing = listing?;
        let meta = listing.meta(path.file_name()?)?;
        Some((Some(meta), listing.seen))
    }

    fn believed(&self, path: &Path) -> Option<(Meta, Instant)> {
        let (meta, seen) = self.newest(path)?;
        Some((meta.filter(|_| seen.elapsed() < self.ttl)?, seen))
    }

    /// Whether the store's cached answer about this path has the file type and version in `meta`. Returns `None` if no answer is cached,
    /// or the answer is too old.
    pub fn says(&self, path: &Path, meta: &Meta) -> Option<bool> {
        let (said, _) = self.believed(path)?;
        let is_folder = said.kind == Kind::Folder;
        Some(said.kind == meta.kind && (is_folder || said.version == meta.version))
    }

    fn question(&mut self, path: &Path) -> Question {
        let unasked = self.names.get_mut(path);
        let was_unasked = unasked.is_some_and(|name| std::mem::take(&mut name.is_unasked));
        let folder = path.parent().unwrap_or(Path::new(""));
        let requested = self.requested(folder);
        if let Some((meta, seen)) = self.believed(path) {
            self.earn(was_unasked || requested == Some(seen));
            return Question::None(meta, seen);
        }
        let (is_known, ttl) = (self.newest(path).is_some(), self.ttl);
        let is_recent = |time: Option<Instant>| time.is_some_and(|time| time.elapsed() < ttl);
        if !is_known && is_recent(requested) {
            self.earn(true);
            self.listed(folder).missed = Some(Instant::now());
            return Question::Absent;
        }
        let known = self.listed.get(folder);
        let is_large = known.is_some_and(|folder| folder.is_large);
        let has_missed = known.is_some_and(|folder| is_recent(folder.missed));
        let is_page =
            has_missed && !is_large || !was_unasked && is_known || self.is_worth_a_page(path);
        match (is_page, is_large) {
            (false, _) => Question::Plain,
            (true, false) => Question::Folder,
            (true, true) => Question::Page,
        }
    }

    /// When the newest listing of a folder was requested for look-ups. `None` if a program has listed the folder since: that listing may
    /// come from the disk.
    fn requested(&self, folder: &Path) -> Option<Instant> {
        let listing = self.folders.get(folder)?;
        let listed = self.listed.get(folder)?.listed;
        listed.filter(|listed| *listed == listing.seen)
    }

    /// The trusted listing or page that has this file, and the file's position in it, if the file looked up before is near.
    pub fn place_in_order(
        &mut self,
        path: &Path,
        meta: &Meta,
    ) -> Option<(Arc<FolderListing>, u32)> {
        let (folder, name) = (path.parent()?, path.file_name()?);
        let ttl = self.ttl;
        let listing = self.folders.get(folder);
        let known = self.listed.get_mut(folder)?;
        let place_in = |listing: &Arc<FolderListing>| {
            let place = listing.names.find(name, usize::MAX)?;
            let is_same = listing.names.meta(place)? == *meta;
            let is_trusted = is_same && listing.seen.elapsed() < ttl;
            is_trusted.then_some((Arc::clone(listing), u32::try_from(place).ok()?))
        };
        let found = listing.and_then(place_in);
        let (listing, place) = found.or_else(|| known.page.as_ref().and_then(place_in))?;
        let last = known.last.replace(place)?;
        (last.abs_diff(place) <= NEAR).then_some((listing, place))
    }

    /// Adds one credit if a look-up needed no request because of a page.
    fn earn(&mut self, is_earned: bool) {
        self.credit = (self.credit + u32::from(is_earned)).min(MAX_CREDIT);
    }

    /// Whether to request a page that starts at this path: if names in the folder were requested recently and there is credit.
    fn is_worth_a_page(&mut self, path: &Path) -> bool {
        let folder = path.parent().unwrap_or(Path::new(""));
        let again = self.asked_in.iter().any(|other| other == folder);
        if !again {
            self.asked_in.truncate(MAX_FOLDERS - 1);
            self.asked_in.push_front(folder.to_path_buf());
        }
        if again && self.credit > 0 {
            self.credit -= 1;
            return true;
        }
        self.plain += 1;
        if self.plain.is_multiple_of(RETRY_AFTER) && self.credit == 0 {
            self.credit = 1;
        }
        false
    }

    /// Records the store's answer about a name. `is_unasked`: it came with the answer about another name.
    fn keep(&mut self, path: PathBuf, meta: Option<Meta>, seen: Instant, is_unasked: bool) {
        if self.names.get(&path).is_some_and(|own| own.seen > seen) {
            return;
        }
        let listing = path.parent().and_then(|folder| self.folders.get(folder));
        if let Some(listing) = listing.filter(|listing| listing.asked <= seen)
            && path.file_name().and_then(|name| listing.meta(name)) != meta
        {
            listing.outdate();
        }
        let said = SaidName {
            meta,
            seen,
            is_unasked,
        };
        if let Some(old) = self.names.remove(&path) {
            self.bytes.shrink(old.bytes(&path));
        }
        if self.names.len() >= MAX_NAMES || !self.bytes.grow(said.bytes(&path)) {
            self.forget_all();
        } else {
            self.names.insert(path, said);
        }
    }

    /// Stops trusting the cached answer about a path, so that the next look-up of the path sends a request.
    pub fn doubt(&mut self, path: &Path) {
        self.keep(path.to_path_buf(), None, Instant::now(), false);
    }

    /// The newest listing of a folder, however old.
    pub fn newest_listing(&self, folder: &Path) -> Option<Arc<FolderListing>> {
        self.folders.get(folder).cloned()
    }

    /// The listing of a folder, if it is trusted, and no newer answer about one of its names differs from it.
    pub fn listing(&self, folder: &Path) -> Option<Arc<FolderListing>> {
        let listing = self.newest_listing(folder)?;
        (listing.seen.elapsed() < self.ttl && !listing.is_outdated()).then_some(listing)
    }

    pub fn list(&mut self, listing: &Arc<FolderListing>) {
        // A listing with names that the kernel knows is in memory anyway, so keeping it costs nothing.
        if self.folders.len() >= self.most_listings {
            let is_of_use = |listing: &Arc<FolderListing>| {
                listing.seen.elapsed() < self.ttl || Arc::strong_count(listing) > 1
            };
            self.folders.retain(|_, listing| is_of_use(listing));
            self.most_listings = FREE_LISTINGS.max(2 * self.folders.len());
        }
        let (folder, own) = (Arc::clone(&listing.folder), Arc::clone(listing));
        self.folders.insert(folder, own);
    }

    /// Keeps a page of a folder, and drops those that are too old.
    fn keep_page(&mut self, folder: &Path, page: Option<Arc<FolderListing>>) {
        for other in self.listed.values_mut() {
            other.page.take_if(|page| page.seen.elapsed() >= self.ttl);
        }
        self.listed(folder).page = page;
    }

    fn listed(&mut self, folder: &Path) -> &mut ListedFolder {
        if self.listed.len() >= MAX_LISTED && !self.listed.contains_key(folder) {
            self.listed.clear();
        }
        self.listed.entry(folder.to_path_buf()).or_default()
    }

    /// Clears this cache of names, because it uses too much memory.
    pub fn forget_all(&mut self) {
        self.listed.clear();
        self.names.clear();
        self.folders.clear();
        self.bytes = NameBytes::default();
    }
}

impl View {
    /// The attributes at a path, and the time of the request.
    pub(super) fn look(&self, path: &Path) -> Result<(Meta, Instant), KernelErrno> {
        let question = match self.lists_versions {
            true => lock(&self.said).question(path),
            false => Question::Plain,
        };
        let (asked, mut others) = (Instant::now(), Vec::new());
        let folder = path.parent().unwrap_or(Path::new(""));
        let absent = Errno::NOENT.raw_os_error();
        let found = match question {
            Question::None(meta, seen) => return Ok((meta, seen)),
            Question::Absent => return Err(absent),
            Question::Folder => match self.list_small(folder, asked) {
                Some(listing) => {
                    let meta = path.file_name().and_then(|name| listing.meta(name));
                    return Ok((meta.ok_or(absent)?, asked));
                }
                None => self.tree.look(path),
            },
            Question::Page => {
                let mut each = |path, meta| others.push((path, meta));
                self.tree.look_ahead(path, &mut each)
            }
            Question::Plain => self.tree.look(path),
        };
        if self.lists_versions {
            let mut said = lock(&self.said);
            if let Ok(meta) = &found
                && !others.is_empty()
            {
                let page = page(path, meta, &others, asked);
                said.keep_page(folder, page);
            }
            for (path, meta) in others {
                said.keep(path, Some(meta), asked, true);
            }
            if let Ok(meta) = &found {
                said.keep(path.to_path_buf(), Some(meta.clone()), asked, false);
            }
            if found.as_ref().is_err_and(|error| error.errno() == absent) {
                said.listed(folder).missed = Some(Instant::now());
            }
        }
        Ok((found.map_err(|e| self.refuse_source(&e))?, asked))
    }

    /// Requests all names of a folder, and caches them. Returns `None` if one request does not list them.
    fn list_small(&self, folder: &Path, asked: Instant) -> Option<Arc<FolderListing>> {
        let names = self.tree.small_folder(folder).ok()?;
        let mut said = lock(&self.said);
        let known = said.listed(folder);
        known.listed = names.is_some().then_some(asked);
        known.is_large = names.is_none();
        let listing = FolderListing::new(folder, names?, asked);
        said.list(&listing);
        Some(listing)
    }
}

/// A page: a name, and those after it in its folder. `None` if there are no others.
fn page(
    path: &Path,
    meta: &Meta,
    others: &[(PathBuf, Meta)],
    seen: Instant,
) -> Option<Arc<FolderListing>> {
    let folder = path.parent()?;
    let mut names = FolderNames::default();
    let all =
        std::iter::once((path, meta)).chain(others.iter().map(|(path, meta)| (&**path, meta)));
    for (path, meta) in all.filter(|(path, _)| path.parent() == Some(folder)) {
        if !names.push(path.file_name()?, meta.kind, Some(meta)) {
            return None;
        }
    }
    names.sort(&mut |_| ());
    (names.len() > 1).then(|| FolderListing::new(folder, names, seen))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(60);

    fn meta(version: u8) -> Meta {
        Meta {
            kind: Kind::File,
            size: 1,
            mtime_ns: 0,
            permissions: 0o444,
            owner: None,
            version: [version].into(),
        }
    }

    #[test]
    fn pages_are_requested_while_their_names_are_looked_up() {
        let mut said = SaidNames::new(TTL);
        let path = |n: u32| PathBuf::from(format!("d/{n}"));
        let mut asks = |n: u32| said.question(&path(n)) == Question::Folder;
        assert_eq!(
            [0, 1, 2, 3, 4].map(&mut asks),
            [false, true, true, false, false],
            "names that no page has"
        );
        let pages = (5..80).filter(|n| asks(*n)).count();
        assert_eq!(pages, 1, "tried once more");
        said.keep(path(1), Some(meta(1)), Instant::now(), true);
        assert_eq!(said.question(&path(2)), Question::Plain);
        for _ in 0..3 {
            assert!(matches!(said.question(&path(1)), Question::None(..)));
        }
        assert_eq!(
            said.question(&path(3)),
            Question::Folder,
            "one was looked up"
        );
        assert_eq!(said.question(&path(3)), Question::Plain, "and counted once");
    }

    #[test]
    fn absent_names_are_answered_by_one_listing_of_a_small_folder() {
        let mut said = SaidNames::new(TTL);
        let asks = |said: &mut SaidNames, name: &str| said.question(&Path::new("d").join(name));
        let (seen, long_ago) = (Instant::now(), Instant::now() - 2 * TTL);
        said.credit = 0;
        assert_eq!(asks(&mut said, "a"), Question::Plain);
        said.listed(Path::new("d")).missed = Some(seen);
        assert_eq!(asks(&mut said, "b"), Question::Folder);
        said.listed(Path::new("d")).listed = Some(seen);
        let mut names = FolderNames::default();
        assert!(names.push("there".as_ref(), Kind::File, Some(&meta(1))));
        said.list(&FolderListing::new(Path::new("d"), names, seen));
        let there = Path::new("d/there");
        assert_eq!(asks(&mut said, "there"), Question::None(meta(1), seen));
        assert_eq!(asks(&mut said, "a"), Question::Absent);
        assert_eq!(said.credit, 2, "two requests were saved");
        let own = Arc::clone(&said.folders[Path::new("d")]);
        let listing = |names, seen| FolderListing::new(Path::new("d"), names, seen);
        let later = seen + Duration::from_nanos(1);
        said.list(&listing(Arc::<FolderNames>::default(), later));
        let other = asks(&mut said, "a");
        assert_eq!(other, Question::Folder, "a program has listed it");
        said.list(&own);
        said.keep("d/new".into(), Some(meta(2)), Instant::now(), false);
        assert!(matches!(asks(&mut said, "new"), Question::None(..)));
        said.doubt(there);
        assert_eq!(asks(&mut said, "there"), Question::Folder, "doubtful");
        said.credit = 0;
        said.list(&listing(Arc::clone(&own.names), long_ago));
        said.listed(Path::new("d")).listed = Some(long_ago);
        assert_eq!(asks(&mut said, "a"), Question::Folder, "an old listing");
        said.listed(Path::new("d")).is_large = true;
        assert_eq!(asks(&mut said, "a"), Question::Plain, "a large folder");
        said.credit = 1;
        assert_eq!(asks(&mut said, "a"), Question::Page, "a large folder");
        said.listed(Path::new("d")).is_large = false;
        said.listed(Path::new("d")).missed = Some(long_ago);
        assert_eq!(asks(&mut said, "a"), Question::Plain, "rarely absent");
        said.listed(Path::new("d")).missed = Some(Instant::now());
        said.ttl = Duration::ZERO;
        assert_eq!(asks(&mut said, "a"), Question::Plain, "nothing is trusted");
        for n in 0..=MAX_LISTED {
            said.listed(Path::new(&n.to_string()));
        }
        assert!(said.listed.len() <= MAX_LISTED);
    }

    #[test]
    fn answers_are_trusted_for_a_while_and_the_newest_counts() {
        let mut said = SaidNames::new(TTL);
        let (old, new) = (Instant::now() - TTL / 2, Instant::now());
        let path = Path::new("d/a");
        let listing = |version, seen| {
            let mut names = FolderNames::default();
            let name = path.file_name().expect("a name");
            assert!(names.push(name, Kind::File, Some(&meta(version))));
            FolderListing::new(Path::new("d"), names, seen)
        };
        assert_eq!(said.says(path, &meta(1)), None);
        said.list(&listing(1, old));
        assert_eq!(
            (said.says(path, &meta(1)), said.says(path, &meta(2))),
            (Some(true), Some(false))
        );
        assert_eq!(
            said.says(Path::new("d/b"), &meta(1)),
            None,
            "no listing says what is not there"
        );
        said.keep(path.into(), Some(meta(1)), new, false);
        let is_used = |said: &SaidNames| said.listing(Path::new("d")).is_some();
        assert!(is_used(&said), "the same answer");
        said.keep(path.into(), Some(meta(2)), new, false);
        said.keep(path.into(), Some(meta(3)), old, true);
        assert!(!is_used(&said), "another answer");
        assert_eq!(said.says(path, &meta(2)), Some(true));
        said.doubt(path);
        assert_eq!(
            (said.says(path, &meta(2)), said.question(path)),
            (None, Question::Folder)
        );
        said.list(&listing(4, Instant::now()));
        assert_eq!(
            said.question(path),
            Question::None(meta(4), said.folders[Path::new("d")].seen)
        );
        said.ttl = Duration::ZERO;
        assert_eq!(said.question(path), Question::Folder, "it was known");
    }

    #[test]
    fn a_long_listing_is_trusted_from_its_end() {
        let mut said = SaidNames::new(TTL);
        let mut names = FolderNames::default();
        assert!(names.push("a".as_ref(), Kind::File, Some(&meta(1))));
        let folder: Arc<Path> = Path::new("d").into();
        let asked = Instant::now() - 2 * TTL;
        said.list(&FolderListing::ended(folder, names.into(), asked));
        let path = Path::new("d/a");
        assert_eq!(said.says(path, &meta(1)), Some(true));
        // An answer that came while the folder was listed may be newer than the listing.
        said.keep(path.into(), Some(meta(2)), asked + TTL * 3 / 2, false);
        assert_eq!(said.says(path, &meta(2)), Some(true));
    }

    #[test]
    fn cached_answers_are_limited() {
        let mut said = SaidNames::new(TTL);
        for n in 0..=MAX_NAMES {
            said.keep(n.to_string().into(), Some(meta(1)), Instant::now(), true);
        }
        assert!(said.names.is_empty() && said.bytes.bytes() == 0);
        for _ in 0..2 {
            said.doubt(Path::new("a"));
            assert_eq!(said.bytes.bytes(), NAME_BYTES + 1);
        }
        said.ttl = Duration::ZERO;
        let listing = |n: usize| {
            let (folder, names) = (n.to_string(), FolderNames::default());
            FolderListing::new(Path::new(&folder), names, Instant::now())
        };
        let known = listing(0);
        said.list(&known);
        (1..10_000).for_each(|n| said.list(&listing(n)));
        assert!(said.folders.len() <= 2 * FREE_LISTINGS);
        assert!(
            said.folders.contains_key(Path::new("0")),
            "the kernel knows names of it"
        );
    }

    #[test]
    fn folders_that_are_read_in_turn_are_remembered() {
        let mut said = SaidNames::new(TTL);
        let asks = |said: &mut SaidNames, folder: &str| {
            said.question(&Path::new(folder).join("x")) == Question::Folder
        };
        let turns: Vec<bool> = ["a", "b", "a", "b"]
            .iter()
            .map(|folder| asks(&mut said, folder))
            .collect();
        assert_eq!(turns, [false, false, true, true]);
        said.credit = FIRST_CREDIT;
        (0..MAX_FOLDERS).for_each(|n| assert!(!asks(&mut said, &n.to_string())));
        assert!(!asks(&mut said, "a"), "too long ago");
    }
}
