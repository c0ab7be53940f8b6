//! The objects below a prefix as a tree: `s3://BUCKET/PREFIX/`, and prefixes of every other store that supports listings.
//!
//! A `/` in a key separates folders. If an object and a folder have the same name (`x` for the keys `d/x` and `d/x/y`), only the folder
//! is shown, because its content would otherwise be unreachable. Such an object, and keys that cannot be file names ([`super::page`]),
//! are left out of the tree. The omitted keys are counted, and one warning lists them. This module never lists more than one folder at a
//! time, and never exceeds its limits for the number of names and for their bytes ([`crate::source::tree::NameBytes`]).
//!
//! ```text
//!   list(folder) ──► page ──► page ──► ... ──► names with versions, sorted     each page at most 1000 keys
//!   look(path)   ──► anything below it? a folder   ┐ requested at the same time
//!                └─► an object of that very key?   ┘
//!   look_ahead(path) ──► one page from that key on: it, and up to 999 names after it. If pages can begin only at prefixes: the first
//!                        page of the folder and, if the folder has more, a page of names with the same beginning
//!   open_listed(path) ──► no request; the first read specifies the listed version (If-Match)
//! ```

use super::fetch::{self, Asker, Tally, Tries};
use super::page::{NextPage, OddKey, Page, PageRequest};
use super::refusal::{Refusal, Unfit, one_line};
use super::settings::ObjectSettings;
use super::store::{self, Listing, Place, Store};
use super::version::{Validator, Version};
use super::{Object, wait};
use crate::source::tree::{FolderNames, Kind, Meta, NameBytes, Tree, too_many_bytes};
use crate::source::{Defaults, Source, SourceError, SourceName, SourceOpenError};
use crate::sync::lock;
use futures_util::future::try_join;
use object_store::ObjectMeta;
use object_store::path::Path as Key;
use rustix::io::Errno;
use std::collections::{BTreeMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, RandomState};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::timeout;

/// Maximum number of names in one folder. To list a larger folder is an error, because a partial listing would look complete.
pub const MAX_NAMES: usize = 1 << 20;
/// Maximum odd keys that are remembered (8 bytes each), so that each is counted and listed once. Further odd keys are left out,
/// too, but not counted.
const MAX_ODD: usize = 1 << 16;
/// Odd keys listed by one warning.
const MAX_NAMED: usize = 5;
/// Bytes of a name's hash during a listing: eight, in a table that is at least half full and exists twice while it grows.
const SEEN_BYTES: u64 = 32;

/// The objects below a prefix as a tree: `s3://BUCKET/PREFIX/`, and prefixes of every other store that supports listings.
pub struct Prefix {
    pub(super) store: Store,
    listing: Arc<dyn Listing>,
    /// The prefix without a `/` at its end; empty for the whole bucket.
    prefix: String,
    pub(super) name: SourceName,
    pub(super) settings: ObjectSettings,
    /// Omitted keys.
    odd: Mutex<HashSet<u64>>,
}

/// Why a key is omitted.
const IS_ODD: &str = "keys that are not valid file names";
const IS_HIDDEN: &str = "objects hidden by a folder of the same name (to read such an object, open it by its full name)";

/// The names of a folder received so far.
#[derive(Default)]
struct Names {
    names: FolderNames,
    /// Hashes of the names, to count the different ones: a server may repeat names without end.
    seen: HashSet<u64>,
    hasher: RandomState,
    bytes: NameBytes,
    /// The folder exists.
    there: bool,
}

impl Prefix {
    /// Opens a prefix with the settings in environment variables.
    ///
    /// # Errors
    /// Returns the errors of [`Prefix::open_with`].
    pub fn open(name: impl Into<SourceName>) -> Result<Prefix, SourceOpenError> {
        let name = name.into();
        let settings = super::settings(&name)?;
        Prefix::open_with(name, settings)
    }

    /// Opens a prefix, such as `s3://BUCKET/PREFIX/` or `gs://BUCKET`; requests one listing.
    ///
    /// # Errors
    /// Returns an error if the name is invalid or the bucket cannot be listed.
    pub fn open_with(
        name: impl Into<SourceName>,
        settings: ObjectSettings,
    ) -> Result<Prefix, SourceOpenError> {
        let name = name.into();
        let place = store::parse(&name)?;
        let open = |settings| {
            let tree = Prefix::at(&name, &*place, settings);
            let tree = tree.map_err(|unfit| unfit.open_error(&name))?;
            let first = wait(tree.is_folder(&tree.key(Path::new("")).unwrap_or_default()));
            Ok::<_, SourceOpenError>((tree, first))
        };
        let (tree, first) = store::open_at(&*place, settings, open, |(_, first)| {
            first.as_ref().err().cloned()
        })?;
        let first = first.map_err(|refusal| refusal.open_error(&name, &tree.store.account))?;
        if !tree.prefix.is_empty() && !first {
            let list = tree.store.account.advice.list;
            let remedy = format!("check bucket and prefix ({list} {name})");
            return Err(SourceOpenError::new(
                name,
                "no object has this prefix",
                remedy,
                Errno::NOENT.raw_os_error(),
            ));
        }
        Ok(tree)
    }

    /// Opens a prefix without checking that it exists and that the settings work. For operations without a request to the
    /// store.
    #[cfg(feature = "disk-cache")]
    pub(crate) fn unasked(
        name: &SourceName,
        settings: ObjectSettings,
    ) -> Result<Prefix, SourceOpenError> {
        let place = store::parse(name)?;
        Prefix::at(name, &*place, settings).map_err(|unfit| unfit.open_error(name))
    }

    /// The name of a folder, the same below every prefix, without secrets: endpoint, bucket and key.
    #[cfg(feature = "disk-cache")]
    pub(crate) fn folder_name(&self, folder: &Path) -> Option<String> {
        Some(format!("{}/{}", self.store.place, self.key(folder)?))
    }

    /// Like [`Prefix::folder_name`], in the form that users write.
    #[cfg(feature = "disk-cache")]
    pub(crate) fn folder_shown(&self, folder: &Path) -> String {
        let name = self.name_of(folder).to_string();
        format!("{}/", name.trim_end_matches('/'))
    }

    fn at(name: &SourceName, place: &dyn Place, settings: ObjectSettings) -> Result<Prefix, Unfit> {
        let store = store::connect(place, &settings)?;
        let Some(listing) = store.listing.clone() else {
            let remedy = "use the name of one object, or a prefix of a store that supports listings (docs/stores.md)";
            return Err(Unfit::new("the server does not support listings", remedy));
        };
        let prefix = store::prefix_of(place)?;
        Ok(Prefix {
            store,
            listing,
            prefix,
            name: name.clone(),
            settings,
            odd: Mutex::default(),
        })
    }

    /// The key of a folder, with `/` at its end; without the `/` it is that of an object. Returns `None` for a path that cannot
    /// be a key.
    pub(super) fn key(&self, path: &Path) -> Option<String> {
        let mut key = self.prefix.clone();
        for part in path.components() {
            let Component::Normal(part) = part else {
                return None;
            };
            if !key.is_empty() {
                key.push('/');
            }
            key.push_str(part.to_str()?);
        }
        if !key.is_empty() {
            key.push('/');
        }
        Some(key)
    }

    fn name_of(&self, path: &Path) -> SourceName {
        SourceName::from(&format!(
            "{}/{}",
            self.name.to_string().trim_end_matches('/'),
            path.display()
        ))
    }

    fn absent(&self, path: &Path) -> SourceError {
        SourceError::io(
            Errno::NOENT.raw_os_error(),
            format!("{}: {}", self.name, path.display()),
        )
    }

    /// Lists the keys that begin with `key`. If a key has a `/` after `key`, it is in a subfolder: all keys with the same text up
    /// to that `/` are listed as one entry. Each page has at most `most` keys, and the first begins after `after`.
    pub(super) fn pages<'a>(
        &'a self,
        key: &'a str,
        most: usize,
        after: Option<String>,
    ) -> Pages<'a> {
        Pages {
            tree: self,
            key,
            most,
            next: Some(after.map_or(NextPage::End, NextPage::After)),
            pages: 0,
            tokens: HashSet::new(),
            hasher: RandomState::new(),
            clock: Tries::within(self.settings.total),
            names: 0,
            named_at: Duration::ZERO,
        }
    }

    /// The first page with a key that begins with `key`. Returns `None` if there is none. A page without keys decides nothing:
    /// others may follow.
    async fn first_of(&self, key: &str) -> Result<Option<Page>, Refusal> {
        let mut pages = self.pages(key, 1, None);
        while let Some(page) = pages.next().await? {
            if page.any {
                return Ok(Some(page));
            }
        }
        Ok(None)
    }

    /// Whether there is something below a key that ends with `/`, or an object that marks an empty folder.
    async fn is_folder(&self, key: &str) -> Result<bool, Refusal> {
        if self.first_of(key).await?.is_some() {
            return Ok(true);
        }
        self.is_marked(key).await
    }

    async fn is_marked(&self, key: &str) -> Result<bool, Refusal> {
        let plain = key.trim_end_matches('/');
        if !self.listing.marks_folders() || plain.is_empty() {
            return Ok(false);
        }
        let page = self.first_of(plain).await?;
        Ok(page.is_some_and(|page| page.marks_folder))
    }

    /// Logs the keys that were left out of a page, unless they were logged before.
    fn leave_out(&self, mut keys: Vec<OddKey>, why: &str) {
        {
            let mut odd = lock(&self.odd);
            keys.retain(|key| odd.len() < MAX_ODD && odd.insert(key.hash));
        }
        if keys.is_empty() {
            return;
        }
        let named: Vec<String> = keys
            .iter()
            .take(MAX_NAMED)
            .map(|key| format!("\"{}\"", key.shown))
            .collect();
        let more = if keys.len() > MAX_NAMED { ", ..." } else { "" };
        let (count, named) = (keys.len(), named.join(", "));
        tracing::warn!("{}: left out {count} {why}: {named}{more}", self.name);
    }

    /// All names in a folder. Returns `None` if they take more pages than `most_pages`.
    async fn all_names(&self, key: &str, most_pages: usize) -> Result<Option<Names>, Refusal> {
        let mut names = Names::default();
        let mut pages = self.pages(key, MAX_KEYS, None);
        while let Some(page) = pages.next().await? {
            if page.next != NextPage::End && pages.pages >= most_pages {
                return Ok(None);
            }
            names.there |= page.any;
            for object in page.objects {
                let location = object.location.to_string();
                name_in(key, &location)
                    .map_or(Ok(()), |name| names.insert(name.as_ref(), &file(object)))?;
            }
            for key_of in &page.folders {
                name_in(key, key_of).map_or(Ok(()), |name| {
                    names.insert(name.as_ref(), &Meta::listed_folder())
                })?;
            }
            self.leave_out(page.odd, IS_ODD);
            pages.named(names.seen.len());
        }
        names.there = names.there || self.is_marked(key).await?;
        let mut hidden = Vec::new();
        names.names.sort(&mut |name| {
            if hidden.len() < MAX_ODD {
                hidden.push(OddKey::of(&format!("{key}{}", name.to_string_lossy())));
            }
        });
        self.leave_out(hidden, IS_HIDDEN);
        Ok(Some(names))
    }

    /// Like [`Self::all_names`], for a path. A folder that contains nothing is absent.
    fn folder_names(
        &self,
        folder: &Path,
        most_pages: usize,
    ) -> Result<Option<Arc<FolderNames>>, SourceError> {
        let key = self.key(folder).ok_or_else(|| self.absent(folder))?;
        let listed = wait(self.all_names(&key, most_pages));
        let listed = listed.map_err(|refusal| self.refused(folder, &refusal))?;
        // The root always exists.
        if listed.as_ref().is_some_and(|listed| !listed.there) && !folder.as_os_str().is_empty() {
            return Err(self.absent(folder));
        }
        Ok(listed.map(|listed| Arc::new(listed.names)))
    }

    /// The object or folder at a key that ends with `/`, and up to 999 other names of its folder. Empty if one page does not
    /// decide.
    async fn names_near(&self, key: &str) -> Result<Vec<(OsString, Meta)>, Refusal> {
        let plain = key.trim_end_matches('/');
        let (folder_key, name) = plain.split_at(folder_len(plain));
        let page = if self.listing.begins_behind_keys() {
            let mut pages = self.pages(folder_key, MAX_KEYS, Some(before(plain)));
            pages.next().await?
        } else {
            self.page_around(folder_key, name).await?
        };
        Ok(self.names_of(folder_key, page.unwrap_or_default()))
    }

    /// If no page can begin after a key: all names of a small folder, or those names of a larger folder that equal this one
    /// except for its last letters.
    async fn page_around(&self, folder_key: &str, name: &str) -> Result<Option<Page>, Refusal> {
        let page = self.pages(folder_key, MAX_KEYS, None).next().await?;
        if page.as_ref().is_some_and(|page| page.next == NextPage::End) {
            return Ok(page);
        }
        if !self.listing.knows_any_prefix() {
            return Ok(None);
        }
        let letters = name.char_indices().rev().take(NUMBER_LETTERS);
        let cut = letters.last().map_or(0, |(at, _)| at);
        if cut == 0 {
            return Ok(page);
        }
        let prefix = format!("{folder_key}{}", &name[..cut]);
        self.pages(&prefix, MAX_KEYS, None).next().await
    }

    /// The objects and folders of a page that are completely known.
    fn names_of(&self, folder_key: &str, page: Page) -> Vec<(OsString, Meta)> {
        let objects = page.objects.iter().map(|object| object.location.as_ref());
        let last = objects
            .chain(page.folders.iter().map(String::as_str))
            .max()
            .unwrap_or_default()
            .to_string();
        // A folder of the same name may be on the next page, and has precedence.
        let whole = |key: &str| page.next == NextPage::End || format!("{key}/") <= last;
        let (mut names, mut hidden) = (BTreeMap::new(), Vec::new());
        for object in page
            .objects
            .iter()
            .filter(|object| whole(object.location.as_ref()))
        {
            let name = name_in(folder_key, object.location.as_ref());
            names.extend(name.map(|name| (name, file(object.clone()))));
        }
        for key in &page.folders {
            let Some(name) = name_in(folder_key, key) else {
                continue;
            };
            let shown = names.insert(name, Meta::listed_folder());
            if shown.is_some_and(|shown| shown.kind == Kind::File) {
                hidden.push(OddKey::of(key));
            }
        }
        self.leave_out(page.odd, IS_ODD);
        self.leave_out(hidden, IS_HIDDEN);
        names.into_iter().collect()
    }

    /// The object or folder at a key that ends with `/`.
    async fn meta_of_key(&self, key: &str) -> Result<Option<Meta>, Refusal> {
        let plain = key.trim_end_matches('/');
        if !self.listing.knows_any_prefix() {
            return self.meta_by_version(key, plain).await;
        }
        let (below, named) = try_join(self.first_of(key), self.first_of(plain)).await?;
        if named.as_ref().is_some_and(|page| page.marks_folder) {
            return Ok(Some(Meta::listed_folder()));
        }
        let mut objects = named.into_iter().flat_map(|page| page.objects);
        let object = objects.find(|object| object.location.as_ref() == plain);
        if below.is_none() {
            return Ok(object.map(file));
        }
        if object.is_some() {
            self.leave_out(vec![OddKey::of(plain)], IS_HIDDEN);
        }
        Ok(Some(Meta::listed_folder()))
    }

    /// Like [`Self::meta_of_key`], if only folders can be listed: requests the object's version.
    async fn meta_by_version(&self, key: &str, plain: &str) -> Result<Option<Meta>, Refusal> {
        if self.first_of(key).await?.is_some() {
            return Ok(Some(Meta::listed_folder()));
        }
        let Ok(path) = Key::parse(plain) else {
            return Ok(None);
        };
        let asker = Asker {
            store: &self.store,
            path: &path,
            settings: &self.settings,
            tally: &Tally::default(),
        };
        match asker.version().await {
            Ok(said) => Ok(Some(of_said(&said))),
            Err(refusal) if refusal.is_absence() => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    /// The error of a refused listing. "Not found" does not mean that the name is absent: the bucket is gone, or another server
    /// replies for it.
    fn refused(&self, path: &Path, refusal: &Refusal) -> SourceError {
        match refusal.read_error(&self.name_of(path)) {
            SourceError::Io { errno, what } if errno == Errno::NOENT.raw_os_error() => {
                SourceError::io(Errno::REMOTEIO.raw_os_error(), what)
            }
            error => error,
        }
    }

    /// Opens a listed file, in the version that `pin` derives from the listing. Sends no request.
    fn open_known(&self, path: &Path, meta: &Meta, pin: fn(Validator) -> Version) -> Opened {
        let key = self
            .key(path)
            .and_then(|key| Key::parse(key.trim_end_matches('/')).ok());
        let Some((key, said)) = key.zip(Validator::of_file(meta)) else {
            return self.open(path);
        };
        let (store, name, settings) = (
            self.store.clone(),
            self.name_of(path),
            self.settings.clone(),
        );
        let object = Object::known(store, key, name, settings, pin(said));
        Ok((Arc::new(object), meta.clone()))
    }
}

/// An opened file, and what is known about it.
type Opened = Result<(Arc<dyn Source>, Meta), SourceError>;

impl Names {
    fn insert(&mut self, name: &OsStr, meta: &Meta) -> Result<(), Refusal> {
        let is_new = self.seen.insert(self.hasher.hash_one(name));
        let fits = (!is_new || self.bytes.grow(SEEN_BYTES))
            && self.names.push(name, meta.kind, Some(meta));
        if !fits {
            return Err(Refusal::TooMany(too_many_bytes()));
        }
        // Repeated names are removed at the end.
        if self.seen.len() > MAX_NAMES || self.names.len() > 2 * MAX_NAMES {
            return Err(Refusal::TooMany(format!(
                "it has more than {MAX_NAMES} names, which is the limit"
            )));
        }
        Ok(())
    }
}

/// A text that sorts before a key and after (nearly) all others that do: the last letter is decremented, and the greatest
/// letter follows. Keys between the two are on the page as well, which is harmless.
fn before(key: &str) -> String {
    let mut text = key.to_string();
    let less = text
        .pop()
        .and_then(|last| (0..u32::from(last)).rev().find_map(char::from_u32));
    text.extend(less.into_iter().chain(less.map(|_| char::MAX)));
    text
}

/// The length of the part of a key that is its folder.
fn folder_len(key: &str) -> usize {
    key.rfind('/').map_or(0, |at| at + 1)
}

/// The last part of a key directly in a folder. The marker of the folder has no such part.
fn name_in(folder: &str, key: &str) -> Option<OsString> {
    let name = key
        .strip_prefix(folder)
        .filter(|name| !name.is_empty() && !name.contains('/'))?;
    Some(name.into())
}

fn file(object: ObjectMeta) -> Meta {
    of_said(&Validator::of(&object))
}

fn of_said(said: &Validator) -> Meta {
    let seconds = said.seconds().map_or(0, i128::from);
    Meta::listed_file(said.size(), seconds, said.text().as_bytes())
}

impl Tree for Prefix {
    fn names(&self, folder: &Path) -> Result<Arc<FolderNames>, SourceError> {
        let names = self.folder_names(folder, usize::MAX)?;
        names.ok_or_else(|| self.absent(folder))
    }

    fn small_folder(&self, folder: &Path) -> Result<Option<Arc<FolderNames>>, SourceError> {
        self.folder_names(folder, 1)
    }

    fn lists_versions(&self) -> bool {
        true
    }

    fn look_ahead(
        &self,
        path: &Path,
        each: &mut dyn FnMut(PathBuf, Meta),
    ) -> Result<Meta, SourceError> {
        let (Some(key), Some(folder)) = (self.key(path), path.parent()) else {
            return self.look(path);
        };
        // A server that refuses this request may accept a simpler one.
        let Ok(names) = wait(self.names_near(&key)) else {
            return self.look(path);
        };
        let mut found = None;
        for (name, meta) in names {
            if Some(name.as_os_str()) == path.file_name() {
                found = Some(meta);
            } else {
                each(folder.join(name), meta);
            }
        }
        found.map_or_else(|| self.look(path), Ok)
    }

    fn open_listed(
        &self,
        path: &Path,
        meta: &Meta,
    ) -> Result<(Arc<dyn Source>, Meta), SourceError> {
        self.open_known(path, meta, Version::listed)
    }

    fn names_exactly(&self, meta: &Meta) -> bool {
        let is_exact = Validator::of_file(meta).is_some_and(|said| said.is_exact());
        is_exact && !self.store.server.conditions.lists_otherwise()
    }

    fn open_again(&self, path: &Path, meta: &Meta) -> Result<(Arc<dyn Source>, Meta), SourceError> {
        self.open_known(path, meta, Version::replied)
    }

    fn is_same(&self, listed: &Meta, opened: &Meta) -> bool {
        let both = Validator::of_file(listed).zip(Validator::of_file(opened));
        let is_alike = both.is_some_and(|(listed, opened)| listed.alike(&opened).is_ok());
        listed.kind == opened.kind && is_alike
    }

    fn look(&self, path: &Path) -> Result<Meta, SourceError> {
        if path.as_os_str().is_empty() {
            return Ok(Meta::listed_folder());
        }
        let key = self.key(path).ok_or_else(|| self.absent(path))?;
        let found = wait(self.meta_of_key(&key)).map_err(|refusal| self.refused(path, &refusal))?;
        found.ok_or_else(|| self.absent(path))
    }

    fn open(&self, path: &Path) -> Result<(Arc<dyn Source>, Meta), SourceError> {
        let key = self.key(path).ok_or_else(|| self.absent(path))?;
        let key = Key::parse(key.trim_end_matches('/')).map_err(|_| self.absent(path))?;
        let name = self.name_of(path);
        let (store, settings) = (self.store.clone(), self.settings.clone());
        let object = Object::at(store, key, name.clone(), settings, &|_| None);
        let object = object.map_err(|refusal| refusal.read_error(&name))?;
        let meta = of_said(object.accepted().now());
        Ok((Arc::new(object), meta))
    }

    fn defaults(&self) -> Defaults {
        self.settings.defaults()
    }

    fn left_out(&self) -> u64 {
        lock(&self.odd).len() as u64
    }

    fn describe(&self) -> String {
        if self.store.account.is_unsigned {
            format!("{}, unsigned", self.name)
        } else {
            self.name.to_string()
        }
    }
}

/// Number of keys requested for one page: the maximum that S3 allows.
pub const MAX_KEYS: usize = 1000;
/// The number of last letters in which the names of a numbered series differ: as many digits as the number of keys on a page
/// has.
const NUMBER_LETTERS: usize = 3;
/// Maximum pages of one listing.
const MAX_PAGES: usize = 1 << 14;
/// Additional time of a listing for each name: S3 sends a thousand names in 0.2 s.
const TIME_OF_A_NAME: Duration = Duration::from_millis(2);
/// How long a listing may go on without a new name, in multiples of the stall timeout.
const STALLS: u32 = 3;

/// Requests the pages of a listing one after the other, with limits that guarantee that the listing ends.
///
/// A server may send pages with fewer than 1000 keys or none (S3 does so if many objects were deleted), but only a limited number
/// of them. A listing has a total time limit, which grows with the number of names, and a time limit for the arrival of the next
/// new name. If two pages would begin at the same position, the listing fails. A page that does not arrive is never treated as
/// the end of the listing.
///
/// ```text
///   page ──token──► page ──key──► page ──► End
///              │            └─ a key that does not sort after that one: the server ignores start-after
///              └─ a token that it sent before
/// ```
/// Example: a bucket of 1,000,000 objects has 1,000 pages. Together, these pages may take 60 s plus 2 ms for each name, which is
/// 34 minutes. If the server sends an empty page every 8 s, the listing fails after the fourth page.
pub struct Pages<'a> {
    tree: &'a Prefix,
    /// The beginning of the keys.
    key: &'a str,
    most: usize,
    next: Option<NextPage>,
    pages: usize,
    /// Hashes of the tokens so far.
    tokens: HashSet<u64>,
    hasher: RandomState,
    clock: Tries,
    /// Number of names so far, and when the last one arrived.
    names: usize,
    named_at: Duration,
}

impl Pages<'_> {
    /// Sets the number of names that the caller has received so far; the time limits depend on it.
    pub fn named(&mut self, names: usize) {
        if names > self.names {
            (self.names, self.named_at) = (names, self.clock.elapsed());
        }
    }

    /// Returns the next page, or `None` after the last page.
    pub async fn next(&mut self) -> Result<Option<Page>, Refusal> {
        let Some(next) = self.next.take() else {
            return Ok(None);
        };
        let total = self.tree.settings.total
            + TIME_OF_A_NAME.saturating_mul(u32::try_from(self.names).unwrap_or(u32::MAX));
        let left = total.saturating_sub(self.clock.elapsed());
        let page = timeout(left, self.page(&next))
            .await
            .unwrap_or(Err(Refusal::Total(total)))?;
        self.pages += 1;
        self.check(&next, &page)?;
        self.next = Some(page.next.clone()).filter(|next| *next != NextPage::End);
        Ok(Some(page))
    }

    /// Checks that a page follows the previous one, and whether another may follow.
    fn check(&mut self, next: &NextPage, page: &Page) -> Result<(), Refusal> {
        if let (NextPage::After(key), Some(first), true) = (next, &page.first, self.pages > 1)
            && first <= key
        {
            let key = one_line(key);
            return Err(Refusal::Endless(format!(
                "IsTruncated is true without a token, and after \"{key}\" the server sends the same keys again \
                 (it ignores start-after)"
            )));
        }
        match &page.next {
            NextPage::End => return Ok(()),
            NextPage::Token(token) if !self.tokens.insert(self.hasher.hash_one(token)) => {
                let token = one_line(token);
                return Err(Refusal::Endless(format!(
                    "the server sends the token \"{token}\" a second time"
                )));
            }
            _ => {}
        }
        if self.pages == MAX_PAGES {
            return Err(Refusal::TooMany(format!(
                "the listing has more than {MAX_PAGES} pages"
            )));
        }
        let patience = self.tree.settings.stall.saturating_mul(STALLS);
        if self.clock.elapsed().saturating_sub(self.named_at) >= patience {
            return Err(Refusal::NoNames(patience));
        }
        Ok(())
    }

    async fn page(&self, next: &NextPage) -> Result<Page, Refusal> {
        let wanted = PageRequest {
            prefix: self.key.to_string(),
            most: self.most,
            next: next.clone(),
        };
        let mut tries = Tries::within(self.tree.settings.total);
        loop {
            tries.begin();
            let limit = self.tree.settings.first_byte + self.tree.settings.stall;
            let page = timeout(limit, self.tree.listing.page(wanted.clone())).await;
            match page.unwrap_or(Err(Refusal::FirstByte(limit))) {
                Ok(page) => return Ok(page),
                Err(refusal) => {
                    fetch::pause(&self.tree.settings, &self.tree.store, &refusal, &mut tries)
                        .await?
                }
            }
        }
    }
}
