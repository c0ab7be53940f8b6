//! A prefix of a store with listings cached on disk: a mount shows a folder as an earlier mount listed it, before the store has
//! answered.
//!
//! ```text
//!   names(d) ──► names/<hash of d> on the disk? ── no, or this mount has listed d ──► the store, and a copy for the disk
//!                  └─ yes ──► shown at once; d is listed in the background ──► finds names that have changed or are gone
//!   open(d/a), before that is done ──► waits for a listing of one page, or requests a alone ── it has changed ──► looked up again
//! ```
//! The store is first contacted when a folder's listing is not on the disk, when a listing must be checked, or when a file is
//! opened. The cached listing of a folder is shown only until the store has answered: after that, the mount shows the store's
//! listing. If the store refuses to list a folder, its cached listing is not checked again.
//!
//! This module opens a file only after the store has confirmed that the file exists. If a cached listing lacks a name, the store is asked
//! before the name is reported as absent. A thread stops waiting for the check of a listing as soon as the result is no longer needed.

use super::names::{self, KeptListing, NewListing, now_ms};
use super::tier::Note;
use super::{DiskCache, SourceName, SourceOpenError};
use crate::source::object::{ObjectSettings, Prefix};
use crate::source::tree::{FolderNames, LOOKS_EVERY, Meta, Tree, needed, while_needed};
use crate::source::{Defaults, Source, SourceError};
use crate::sync::lock;
use foreread_os::threads::spawn;
use rustix::io::Errno;
use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of folders that are listed in the background at once.
const CHECKERS: usize = 4;
/// An open waits for a listing of up to this many names (one page). If the folder has more, it requests the single name.
const PAGE: usize = 1000;
/// Maximum number of names held in memory. Beyond it, folders are shown from the store only.
const MAX_HELD: usize = 1 << 20;
/// Maximum number of folders in `settled`. Beyond it, no further folder is shown from the disk.
const MAX_SETTLED: usize = 1 << 20;
/// To look up one name, a cached listing longer than this is not read, and the folder is not listed.
const LOOK_BYTES: usize = 1 << 20;
/// Unchanged listings are rewritten after this time, so that they do not expire.
const RENEWED_EACH: Duration = Duration::from_secs(86_400);
/// A folder that is listed again and again is written at most this often.
const WRITTEN_EACH: Duration = Duration::from_secs(60);

/// A prefix of a store, with the listings that are cached on disk.
pub struct KeptTree(Arc<KeptPrefix>);

struct KeptPrefix {
    name: SourceName,
    settings: ObjectSettings,
    /// Serves operations that send no request to the store.
    unasked: Prefix,
    cache: DiskCache,
    state: Mutex<TreeState>,
    /// Signalled when the state of a folder or of the store has changed.
    changed: Condvar,
    hasher: RandomState,
    ended: Arc<AtomicBool>,
}

#[derive(Default)]
struct TreeState {
    store: Option<Arc<Prefix>>,
    is_opening: bool,
    folders: HashMap<PathBuf, KeptFolder>,
    /// Hashes of the folders that this mount has listed or begun to show from the disk, and when each listing was last written. A folder
    /// whose hash equals another's is listed from the store.
    settled: HashMap<u64, Option<Instant>>,
    /// Total number of names in `folders`.
    held: usize,
    queue: VecDeque<PathBuf>,
    checkers: usize,
}

/// A folder whose cached listing is shown, or was until the store listed the folder and the listing was another.
struct KeptFolder {
    /// The cached listing; the store's when the check is done.
    listing: KeptListing,
    check: CheckState,
    /// Whether a name of the cached listing is known to be outdated.
    is_wrong: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CheckState {
    Waiting,
    Running,
    /// The store did not answer: cached names are shown, and each open sends a request.
    Failed,
    Done,
}

impl KeptFolder {
    fn held(&self) -> usize {
        self.listing.names.len()
    }

    /// The names that may be shown without contacting the store.
    fn shown(&self) -> Option<&Arc<FolderNames>> {
        let is_checking = matches!(self.check, CheckState::Waiting | CheckState::Running);
        (is_checking && !self.is_wrong).then_some(&self.listing.names)
    }

    fn is_unchecked(&self) -> bool {
        self.check != CheckState::Done
    }
}

impl TreeState {
    fn put(&mut self, folder: &Path, kept: KeptFolder) {
        self.held += kept.held();
        let old = self.folders.insert(folder.to_path_buf(), kept);
        self.held -= old.map_or(0, |old| old.held());
    }

    fn take(&mut self, folder: &Path) -> Option<KeptFolder> {
        let kept = self.folders.remove(folder)?;
        self.held -= kept.held();
        Some(kept)
    }
}

impl KeptTree {
    /// Opens a prefix with cached listings. No request is sent if the listing of its root folder is cached.
    ///
    /// # Errors
    /// Returns the errors of [`Prefix::open_with`].
    pub fn open(
        cache: &DiskCache,
        name: SourceName,
        settings: ObjectSettings,
    ) -> Result<KeptTree, SourceOpenError> {
        let own = KeptPrefix {
            unasked: Prefix::unasked(&name, settings.clone())?,
            name,
            settings,
            cache: cache.clone(),
            state: Mutex::default(),
            changed: Condvar::new(),
            hasher: RandomState::new(),
            ended: Arc::default(),
        };
        let root = own.read(Path::new(""), None);
        if root.is_none_or(|root| root.names.is_empty()) {
            let store = Prefix::open_with(own.name.clone(), own.settings.clone())?;
            lock(&own.state).store = Some(Arc::new(store));
        }
        Ok(KeptTree(Arc::new(own)))
    }
}

impl Drop for KeptTree {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Relaxed);
    }
}

impl KeptPrefix {
    /// Reads the cached listing of a folder from the disk.
    fn read(&self, folder: &Path, most: Option<usize>) -> Option<KeptListing> {
        let name = self.unasked.folder_name(folder)?;
        names::read(&self.cache.disk.opened().folder, &name, most)
    }

    fn keep(&self, path: &Path, names: Option<Arc<FolderNames>>, listed_ms: u64) {
        if let Some(folder) = self.unasked.folder_name(path) {
            self.cache.parts.writer.note(Note::Names(NewListing {
                shown: self.unasked.folder_shown(path),
                folder,
                names,
                listed_ms,
            }));
        }
    }

    /// Waits until something has changed. Returns an error if the caller no longer needs the answer.
    fn wait<'a>(
        &self,
        state: MutexGuard<'a, TreeState>,
    ) -> Result<MutexGuard<'a, TreeState>, SourceError> {
        let waited = self.changed.wait_timeout(state, LOOKS_EVERY);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if needed().is_none_or(|need| need()) {
            return Ok(state);
        }
        Err(SourceError::Io {
            errno: Errno::CANCELED.raw_os_error(),
            what: self.name.to_string(),
        })
    }

    /// The store, opened on first use.
    fn store(&self) -> Result<Arc<Prefix>, SourceError> {
        let mut state = lock(&self.state);
        while state.is_opening {
            state = self.wait(state)?;
        }
        if let Some(store) = &state.store {
            return Ok(Arc::clone(store));
        }
        state.is_opening = true;
        drop(state);
        let opened = Prefix::open_with(self.name.clone(), self.settings.clone()).map(Arc::new);
        let mut state = lock(&self.state);
        state.is_opening = false;
        state.store = opened.as_ref().ok().cloned();
        drop(state);
        self.changed.notify_all();
        opened.map_err(|error| SourceError::Io {
            errno: error.errno,
            what: error.to_string(),
        })
    }

    // ---- names ----

    /// The names of a folder that may be shown without contacting the store. `is_one`: the caller looks up a single name.
    fn shown(self: &Arc<Self>, folder: &Path, is_one: bool) -> Option<Arc<FolderNames>> {
        let hash = self.hasher.hash_one(folder);
        {
            let state = lock(&self.state);
            if let Some(known) = state.folders.get(folder) {
                return known.shown().cloned();
            }
            let is_known = state.settled.contains_key(&hash) || state.settled.len() >= MAX_SETTLED;
            if is_known || state.held >= MAX_HELD {
                return None;
            }
        }
        let listing = self.read(folder, is_one.then_some(LOOK_BYTES))?;
        let names = Arc::clone(&listing.names);
        let mut state = lock(&self.state);
        // Another thread may have been first.
        if state.settled.contains_key(&hash) {
            return state.folders.get(folder)?.shown().cloned();
        }
        state.settled.insert(hash, None);
        let kept = KeptFolder {
            listing,
            check: CheckState::Waiting,
            is_wrong: false,
        };
        state.put(folder, kept);
        state.queue.push_back(folder.to_path_buf());
        let starts = state.checkers < CHECKERS;
        state.checkers += usize::from(starts);
        drop(state);
        if starts {
            self.start_checker();
        }
        Some(names)
    }

    /// Lists a folder from the store, and keeps the answer.
    fn list(&self, folder: &Path) -> Result<Arc<FolderNames>, SourceError> {
        let listed_ms = now_ms();
        let listed = self.store().and_then(|store| store.names(folder));
        match &listed {
            Ok(names) => self.settle(folder, Some(names), listed_ms),
            Err(error) if error.errno() == Errno::NOENT.raw_os_error() => {
                self.settle(folder, None, listed_ms);
            }
            Err(_) => {}
        }
        listed
    }

    /// Takes over the store's listing of a folder. `None`: the folder is gone. Writes the listing to the disk if its names differ from
    /// those on the disk, or if the listing on the disk is old.
    fn settle(&self, folder: &Path, names: Option<&Arc<FolderNames>>, listed_ms: u64) {
        let hash = self.hasher.hash_one(folder);
        let mut state = lock(&self.state);
        let kept = state.take(folder);
        let kept = kept.map(|kept| {
            let old = &kept.listing.names;
            let is_same = names.is_some_and(|new| {
                let is_same = |at| old.is_same(at, new, at);
                old.len() == new.len() && (0..new.len()).all(is_same)
            });
            (kept.check != CheckState::Done && is_same, kept)
        });
        let is_fresh = kept
            .as_ref()
            .is_some_and(|(is_same, kept)| *is_same && kept.listing.is_younger(RENEWED_EACH));
        let written = state.settled.entry(hash).or_default();
        let is_recent = written.is_some_and(|written| written.elapsed() < WRITTEN_EACH);
        let is_news = names.is_none() || !is_fresh && !is_recent;
        if is_news && names.is_some() {
            *written = Some(Instant::now());
        }
        if let Some((false, _)) = kept {
            // The caller may still open names with the versions of the cached listing.
            let names = names.cloned().unwrap_or_default();
            let now = KeptFolder {
                listing: KeptListing { names, listed_ms },
                check: CheckState::Done,
                is_wrong: false,
            };
            state.put(folder, now);
        }
        drop(state);
        self.changed.notify_all();
        if is_news {
            self.keep(folder, names.cloned(), listed_ms);
        }
    }

    fn known(self: &Arc<Self>, path: &Path) -> Option<Meta> {
        let names = self.shown(path.parent()?, true)?;
        names.meta(names.find(path.file_name()?, usize::MAX)?)
    }

    fn is_same(&self, listed: &Meta, now: &Meta) -> bool {
        listed.version == now.version || self.unasked.is_same(listed, now)
    }

    /// Checks that a listed file still has the version in `meta`.
    fn confirm(&self, path: &Path, meta: &Meta) -> Result<(), SourceError> {
        let Some((folder, name)) = path.parent().zip(path.file_name()) else {
            return Ok(());
        };
        let mut state = lock(&self.state);
        loop {
            let Some(known) = state.folders.get(folder) else {
                return Ok(());
            };
            let names = &known.listing.names;
            match known.check {
                CheckState::Running if known.held() <= PAGE => state = self.wait(state)?,
                CheckState::Waiting | CheckState::Running | CheckState::Failed => break,
                CheckState::Done => {
                    let now = names.find(name, usize::MAX).and_then(|at| names.meta(at));
                    if now.is_some_and(|now| self.is_same(&now, meta)) {
                        return Ok(());
                    }
                    break;
                }
            }
        }
        drop(state);
        let store = self.store()?;
        match store.look(path) {
            Ok(now) if self.is_same(meta, &now) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.errno() == Errno::NOENT.raw_os_error() => {}
            Err(error) => return Err(error),
        }
        if let Some(known) = lock(&self.state).folders.get_mut(folder) {
            known.is_wrong = true;
        }
        Err(SourceError::Changed {
            what: format!("{}: {} was replaced or removed", self.name, path.display()),
        })
    }

    // ---- checks ----

    fn start_checker(self: &Arc<Self>) {
        let own = Arc::clone(self);
        let done = spawn("foreread-names", move || {
            let ended = Arc::clone(&own.ended);
            let need = move || !ended.load(Ordering::Relaxed);
            while_needed(Arc::new(need), || own.check_all());
        });
        if done.is_err() {
            // Without a checker, each open sends a request for its file.
            lock(&self.state).checkers -= 1;
        }
    }

    fn check_all(&self) {
        loop {
            let folder = {
                let mut state = lock(&self.state);
                let next = state.queue.pop_front();
                let Some(folder) = next.filter(|_| !self.ended.load(Ordering::Relaxed)) else {
                    state.checkers -= 1;
                    return;
                };
                match state.folders.get_mut(&folder) {
                    Some(kept) if kept.check == CheckState::Waiting => {
                        kept.check = CheckState::Running;
                    }
                    // The folder was listed meanwhile.
                    _ => continue,
                }
                folder
            };
            let listed = self.list(&folder);
            if listed.is_err() {
                let mut state = lock(&self.state);
                if let Some(kept) = state.folders.get_mut(&folder)
                    && kept.check == CheckState::Running
                {
                    kept.check = CheckState::Failed;
                }
                drop(state);
                self.changed.notify_all();
            }
        }
    }
}

impl Tree for KeptTree {
    fn names(&self, folder: &Path) -> Result<Arc<FolderNames>, SourceError> {
        let shown = self.0.shown(folder, false);
        shown.map_or_else(|| self.0.list(folder), Ok)
    }

    fn lists_versions(&self) -> bool {
        self.0.unasked.lists_versions()
    }

    fn is_unsure(&self, path: &Path) -> bool {
        let state = lock(&self.0.state);
        let folder = path.parent().and_then(|folder| state.folders.get(folder));
        folder.is_some_and(KeptFolder::is_unchecked)
    }

    fn shows(&self, folder: &Path, names: &Arc<FolderNames>) -> bool {
        let state = lock(&self.0.state);
        let known = state.folders.get(folder);
        known.is_none_or(|known| !known.is_unchecked() && Arc::ptr_eq(&known.listing.names, names))
    }

    fn is_same(&self, listed: &Meta, opened: &Meta) -> bool {
        self.0.unasked.is_same(listed, opened)
    }

    fn names_exactly(&self, meta: &Meta) -> bool {
        let state = lock(&self.0.state);
        let store = state.store.as_ref();
        store.is_some_and(|store| store.names_exactly(meta))
    }

    fn open_again(&self, path: &Path, meta: &Meta) -> Result<(Arc<dyn Source>, Meta), SourceError> {
        self.0.confirm(path, meta)?;
        self.0.store()?.open_again(path, meta)
    }

    fn look(&self, path: &Path) -> Result<Meta, SourceError> {
        if path.as_os_str().is_empty() {
            return self.0.unasked.look(path);
        }
        if let Some(meta) = self.0.known(path) {
            return Ok(meta);
        }
        self.0.store()?.look(path)
    }

    fn look_ahead(
        &self,
        path: &Path,
        each: &mut dyn FnMut(PathBuf, Meta),
    ) -> Result<Meta, SourceError> {
        match self.0.known(path) {
            Some(meta) => Ok(meta),
            None => self.0.store()?.look_ahead(path, each),
        }
    }

    fn small_folder(&self, folder: &Path) -> Result<Option<Arc<FolderNames>>, SourceError> {
        self.0.store()?.small_folder(folder)
    }

    fn open_listed(
        &self,
        path: &Path,
        meta: &Meta,
    ) -> Result<(Arc<dyn Source>, Meta), SourceError> {
        self.0.confirm(path, meta)?;
        self.0.store()?.open_listed(path, meta)
    }

    fn open(&self, path: &Path) -> Result<(Arc<dyn Source>, Meta), SourceError> {
        self.0.store()?.open(path)
    }

    fn describe(&self) -> String {
        self.0.unasked.describe()
    }

    fn defaults(&self) -> Defaults {
        self.0.unasked.defaults()
    }

    fn left_out(&self) -> u64 {
        let state = lock(&self.0.state);
        state.store.as_ref().map_or(0, |store| store.left_out())
    }
}
