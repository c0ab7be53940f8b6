//! The objects under a prefix as a tree: `s3://BUCKET/PREFIX/`.
//!
//! A `/` in a key is a folder. Where an object and a folder bear one name, the folder is shown: else what is in it would be
//! out of reach. Keys that no file can be called by ([`super::page`]) are left out, counted, and named once in a warning.
//! Never: lists more than one folder at a time, or more than it may hold.
//!
//! ```text
//!   list(folder) ──► page ──token──► page ──► ... ──► names with versions, sorted     each page at most 1000 keys
//!   look(path)   ──► anything below it? a folder   ┐ asked at once
//!                └─► an object of that very key?   ┘
//!   look_ahead(path) ──► one page from that key on: it, and up to 999 names behind it
//!   open_listed(path) ──► nothing; the first read asks for the version that was listed (If-Match)
//! ```

use super::page::{self, Page, Wanted};
use super::refusal::{Account, Refusal};
use super::settings::ObjectSettings;
use super::store::{self, Store};
use super::url::{self, Place};
use super::version::Version;
use super::{EINVAL, Object, wait};
use crate::source::tree::{Entry, Kind, Meta, Tree};
use crate::source::{Defaults, Source, SourceError, SourceName, SourceOpenError};
use futures_util::future::try_join;
use object_store::aws::AmazonS3;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path as Key;
use rustix::io::Errno;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::time::timeout;

/// Most names of one folder; more is an error, because a part would look like the whole.
pub const MAX_NAMES: usize = 1 << 20;
/// Pages of one listing: a server may give fewer than 1000 keys a page, but not none without end.
const MAX_PAGES: usize = 1 << 14;
/// Keys of one page: what S3 gives at most.
const MAX_KEYS: usize = 1000;
/// Odd keys that are remembered, so that each is counted and named once; about 100 bytes each. More are left out all the
/// same, and not counted.
const MAX_ODD: usize = 1 << 16;
/// Odd keys that one warning names.
const MAX_NAMED: usize = 5;

/// See the head of this file.
pub struct Prefix {
    store: Store,
    s3: Arc<AmazonS3>,
    /// Without a `/` at its end; empty for the whole bucket.
    prefix: String,
    name: SourceName,
    settings: ObjectSettings,
    odd: Mutex<HashSet<String>>,
}

impl Prefix {
    /// Opens a prefix with the settings of the environment.
    ///
    /// # Errors
    /// See [`Prefix::open_with`].
    pub fn open(name: impl Into<SourceName>) -> Result<Prefix, SourceOpenError> {
        let name = name.into();
        let settings = super::settings(&name)?;
        Prefix::open_with(name, settings)
    }

    /// Opens `s3://BUCKET/PREFIX/` or `s3://BUCKET`; asks for a listing once.
    ///
    /// # Errors
    /// The name is none, or the bucket cannot be listed.
    pub fn open_with(name: impl Into<SourceName>, settings: ObjectSettings) -> Result<Prefix, SourceOpenError> {
        let name = name.into();
        let error = |why: String, remedy: String| SourceOpenError { what: name.clone(), why, remedy, errno: EINVAL };
        let Place::S3 { bucket, key } = url::parse(&name)? else {
            let remedy = "write s3://BUCKET/PREFIX/, or name one object".to_string();
            return Err(error("only prefixes of S3 can be listed".to_string(), remedy));
        };
        let (s3, account) = store::s3(&bucket, &settings).map_err(|unfit| error(unfit.why, unfit.remedy))?;
        let prefix = key.strip_suffix('/').unwrap_or(&key).to_string();
        if !key.is_empty() && page::plain(&prefix).is_none() {
            let why = "the prefix has an empty part, `.`, `..` or a character that is no text".to_string();
            return Err(error(why, "name the prefix above it, or copy the objects to plainer keys".to_string()));
        }
        let store = Store::new(s3.clone(), account, &store::server_of(&bucket, &settings));
        let tree = Prefix { store, s3, prefix, name: name.clone(), settings, odd: Mutex::default() };
        let first = wait(tree.page(&tree.key(Path::new("")).unwrap_or_default(), Begin::Start, 1));
        let first = first.map_err(|refusal| refusal.open_error(&name, account))?;
        if !tree.prefix.is_empty() && !first.any {
            let remedy = format!("check bucket and prefix (aws s3 ls {name})");
            let why = "no object has a name that begins so".to_string();
            return Err(SourceOpenError { what: name, why, remedy, errno: Errno::NOENT.raw_os_error() });
        }
        Ok(tree)
    }

    /// The key of a folder, with `/` at its end; cut of that, of an object. Nothing for a path that no key can be.
    fn key(&self, path: &Path) -> Option<String> {
        let mut key = self.prefix.clone();
        for part in path.components() {
            let Component::Normal(part) = part else { return None };
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
        SourceName::from(&format!("{}/{}", self.name.to_string().trim_end_matches('/'), path.display()))
    }

    fn absent(&self, path: &Path) -> SourceError {
        SourceError::Io { errno: Errno::NOENT.raw_os_error(), what: format!("{}: {}", self.name, path.display()) }
    }

    /// Keys that begin so, those with a `/` behind that as one, and the token of the page behind.
    async fn page(&self, key: &str, from: Begin, most: usize) -> Result<Page, Refusal> {
        let mut options = PaginatedListOptions {
            delimiter: Some("/".into()),
            max_keys: Some(most),
            ..PaginatedListOptions::default()
        };
        match from {
            Begin::Start => {}
            Begin::Token(token) => options.page_token = Some(token),
            Begin::After(key) => options.offset = Some(key),
        }
        options.extensions.insert(Wanted);
        let prefix = Some(key).filter(|key| !key.is_empty());
        let mut tries = 0;
        loop {
            let limit = self.settings.first_byte + self.settings.stall;
            let page = timeout(limit, self.s3.list_paginated(prefix, options.clone())).await;
            let page = page.map_err(|_| Refusal::FirstByte(limit));
            match page.and_then(|page| page.map_err(|error| Refusal::of(&error))) {
                Ok(mut answer) => return Ok(answer.result.extensions.remove().unwrap_or_default()),
                Err(refusal) => super::fetch::pause(&self.settings, &refusal, &mut tries).await?,
            }
        }
    }

    /// Names the keys that were left out of a listing, unless they were named before.
    fn leave_out(&self, mut keys: Vec<String>) {
        {
            let mut odd = self.odd.lock().unwrap_or_else(PoisonError::into_inner);
            keys.retain(|key| odd.len() < MAX_ODD && odd.insert(key.clone()));
        }
        if keys.is_empty() {
            return;
        }
        let named: Vec<String> =
            keys.iter().take(MAX_NAMED).map(|key| format!("\"{}\"", key.escape_default())).collect();
        let more = if keys.len() > MAX_NAMED { ", ..." } else { "" };
        let (count, named) = (keys.len(), named.join(", "));
        tracing::warn!("{}: left out {count} keys that no file can be called by: {named}{more}", self.name);
    }

    /// Every name in a folder, and whether there is such a folder; nothing where there are too many.
    async fn names(&self, key: &str) -> Result<Option<(BTreeMap<OsString, Meta>, bool)>, Refusal> {
        let (mut names, mut there) = (BTreeMap::new(), false);
        let (mut from, mut odd) = (Begin::Start, Vec::new());
        for _ in 0..MAX_PAGES {
            let page = self.page(key, from, MAX_KEYS).await?;
            there |= page.any;
            for object in page.objects {
                if let Some(name) = name_in(key, object.location.as_ref()) {
                    names.entry(name).or_insert_with(|| file(&Version::new(object)));
                }
            }
            for key_of in &page.folders {
                names.extend(name_in(key, key_of).map(|name| (name, folder())));
            }
            odd.extend(page.odd.into_iter().take(MAX_ODD - odd.len()));
            if names.len() > MAX_NAMES {
                return Ok(None);
            }
            let Some(token) = page.token else {
                self.leave_out(odd);
                return Ok(Some((names, there)));
            };
            from = Begin::Token(token);
        }
        Ok(None)
    }

    /// The object or folder at a key with a `/` at its end, and up to 999 names behind it in its folder; nothing where one page does
    /// not say.
    async fn ahead(&self, key: &str) -> Result<Vec<(OsString, Meta)>, Refusal> {
        let plain = key.trim_end_matches('/');
        let folder_key = plain.rfind('/').map_or("", |at| &plain[..=at]);
        let page = self.page(folder_key, Begin::After(before(plain)), MAX_KEYS).await?;
        let objects = page.objects.iter().map(|object| object.location.as_ref());
        let last = objects.chain(page.folders.iter().map(String::as_str)).max().unwrap_or_default().to_string();
        // A folder of the same name may be on the next page, and is what is shown.
        let whole = |key: &str| page.token.is_none() || format!("{key}/") <= last;
        let mut names = BTreeMap::new();
        for object in page.objects.iter().filter(|object| whole(object.location.as_ref())) {
            let name = name_in(folder_key, object.location.as_ref());
            names.extend(name.map(|name| (name, file(&Version::new(object.clone())))));
        }
        names.extend(page.folders.iter().filter_map(|key| name_in(folder_key, key)).map(|name| (name, folder())));
        self.leave_out(page.odd);
        Ok(names.into_iter().collect())
    }

    /// The object or folder at a key with a `/` at its end.
    async fn meta_of_key(&self, key: &str) -> Result<Option<Meta>, Refusal> {
        let plain = key.trim_end_matches('/');
        let (below, named) = try_join(self.page(key, Begin::Start, 1), self.page(plain, Begin::Start, 1)).await?;
        if below.any {
            return Ok(Some(folder()));
        }
        let object = named.objects.into_iter().find(|object| object.location.as_ref() == plain);
        Ok(object.map(|object| file(&Version::new(object))))
    }
}

/// Where a page begins.
enum Begin {
    Start,
    /// Behind the page that gave it.
    Token(String),
    /// Behind a key.
    After(String),
}

/// A text that comes before a key and behind (nearly) every other that does: the last letter is one less, and the greatest
/// letter follows. Keys between the two are on the page as well, which is no harm.
fn before(key: &str) -> String {
    let mut text = key.to_string();
    let less = text.pop().and_then(|last| (0..u32::from(last)).rev().find_map(char::from_u32));
    text.extend(less.into_iter().chain(less.map(|_| char::MAX)));
    text
}

/// The last part of a key directly in a folder. The marker of the folder has none.
fn name_in(folder: &str, key: &str) -> Option<OsString> {
    let name = key.strip_prefix(folder).filter(|name| !name.is_empty() && !name.contains('/'))?;
    Some(name.into())
}

fn folder() -> Meta {
    Meta { kind: Kind::Folder, size: 0, mtime_ns: 0, permissions: 0o555, owner: None, version: Vec::new() }
}

fn file(version: &Version) -> Meta {
    Meta {
        kind: Kind::File,
        size: version.size(),
        mtime_ns: version.modified().map_or(0, |seconds| i128::from(seconds) * 1_000_000_000),
        permissions: 0o444,
        owner: None,
        version: version.text().into_bytes(),
    }
}

impl Tree for Prefix {
    fn list(&self, folder: &Path, each: &mut dyn FnMut(Entry) -> bool) -> Result<(), SourceError> {
        let key = self.key(folder).ok_or_else(|| self.absent(folder))?;
        let names = wait(self.names(&key)).map_err(|refusal| refusal.read_error(&self.name))?;
        let (names, there) = names.ok_or_else(|| SourceError::Io {
            errno: Errno::TOOBIG.raw_os_error(),
            what: format!("{}: {} holds more than {MAX_NAMES} names", self.name, folder.display()),
        })?;
        // A folder is there as long as something is in it; the root is there anyway.
        if !there && !folder.as_os_str().is_empty() {
            return Err(self.absent(folder));
        }
        let _ = names.into_iter().all(|(name, meta)| each(Entry { name, kind: meta.kind, meta: Some(meta) }));
        Ok(())
    }

    fn lists_versions(&self) -> bool {
        true
    }

    fn look_ahead(&self, path: &Path, each: &mut dyn FnMut(PathBuf, Meta)) -> Result<Meta, SourceError> {
        let (Some(key), Some(folder)) = (self.key(path), path.parent()) else { return self.look(path) };
        // A server that refuses this may know a plainer question.
        let Ok(names) = wait(self.ahead(&key)) else { return self.look(path) };
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

    fn open_listed(&self, path: &Path, meta: &Meta) -> Result<(Arc<dyn Source>, Meta), SourceError> {
        let key = self.key(path).and_then(|key| Key::parse(key.trim_end_matches('/')).ok());
        let text = std::str::from_utf8(&meta.version).ok();
        let listed = key.zip(text).and_then(|(key, text)| Some((key.clone(), Version::of_text(text, key)?)));
        let Some((key, version)) = listed else { return self.open(path) };
        let object = Object::known(self.store.clone(), key, self.name_of(path), self.settings.clone(), version);
        Ok((Arc::new(object), meta.clone()))
    }

    fn look(&self, path: &Path) -> Result<Meta, SourceError> {
        if path.as_os_str().is_empty() {
            return Ok(folder());
        }
        let key = self.key(path).ok_or_else(|| self.absent(path))?;
        let found = wait(self.meta_of_key(&key)).map_err(|refusal| refusal.read_error(&self.name))?;
        found.ok_or_else(|| self.absent(path))
    }

    fn open(&self, path: &Path) -> Result<(Arc<dyn Source>, Meta), SourceError> {
        let key = self.key(path).ok_or_else(|| self.absent(path))?;
        let key = Key::parse(key.trim_end_matches('/')).map_err(|_| self.absent(path))?;
        let name = self.name_of(path);
        let object = Object::at(self.store.clone(), key, name.clone(), self.settings.clone());
        let object = object.map_err(|e| SourceError::Io { errno: e.errno, what: format!("{name}: {}", e.why) })?;
        let meta = file(&object.accepted());
        Ok((Arc::new(object), meta))
    }

    fn defaults(&self) -> Defaults {
        self.settings.defaults()
    }

    fn left_out(&self) -> u64 {
        self.odd.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
    }

    fn describe(&self) -> String {
        match self.store.account {
            Account::Unsigned => format!("{}, unsigned", self.name),
            Account::Named | Account::Http => self.name.to_string(),
        }
    }
}
