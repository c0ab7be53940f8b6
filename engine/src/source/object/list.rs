//! The objects under a prefix as a tree: `s3://BUCKET/PREFIX/`.
//!
//! A `/` in a key is a folder. Where an object and a folder bear one name, the folder is shown: else what is in it would be
//! out of reach. Never: lists more than one folder at a time, or more than it may hold.
//!
//! ```text
//!   list(folder) ──► page ──token──► page ──► ... ──► names, sorted     each page at most 1000 keys
//!   look(path)   ──► anything below it? a folder   ┐ asked at once
//!                └─► an object of that very key?   ┘
//! ```

use super::refusal::{Account, Refusal};
use super::settings::Settings;
use super::store::{self, Store};
use super::url::{self, Place};
use super::version::Version;
use super::{EINVAL, Object, wait};
use crate::source::tree::{Kind, Meta, Tree};
use crate::source::{Source, SourceError, SourceName, SourceOpenError};
use futures_util::future::try_join;
use object_store::ListResult;
use object_store::aws::AmazonS3;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Component, Path};
use std::sync::Arc;
use tokio::time::timeout;

/// Most names of one folder; more is an error, because a part would look like the whole.
pub const MAX_NAMES: usize = 1 << 20;
/// Pages of one listing: a server may give fewer than 1000 keys a page, but not none for ever.
const MAX_PAGES: usize = 1 << 14;

/// See the head of this file.
pub struct Prefix {
    store: Store,
    s3: Arc<AmazonS3>,
    /// Without a `/` at its end; empty for the whole bucket.
    prefix: String,
    name: SourceName,
    settings: Settings,
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
    pub fn open_with(name: impl Into<SourceName>, settings: Settings) -> Result<Prefix, SourceOpenError> {
        let name = name.into();
        let error = |why: String, remedy: String| SourceOpenError { what: name.clone(), why, remedy, errno: EINVAL };
        let Place::S3 { bucket, key } = url::parse(&name)? else {
            let remedy = "write s3://BUCKET/PREFIX/, or name one object".to_string();
            return Err(error("only prefixes of S3 can be listed".to_string(), remedy));
        };
        let (s3, account) = store::s3(&bucket, &settings).map_err(|(why, remedy)| error(why, remedy))?;
        let prefix = key.trim_end_matches('/').to_string();
        let tree = Prefix { store: Store { objects: s3.clone(), account }, s3, prefix, name: name.clone(), settings };
        let first = wait(tree.page(&tree.key(Path::new("")).unwrap_or_default(), None, 1));
        let (first, _) = first.map_err(|refusal| refusal.open_error(&name, account))?;
        if !tree.prefix.is_empty() && first.objects.is_empty() && first.common_prefixes.is_empty() {
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

    fn absent(&self, path: &Path) -> SourceError {
        SourceError::Io { errno: Errno::NOENT.raw_os_error(), what: format!("{}: {}", self.name, path.display()) }
    }

    /// Keys that begin so, those with a `/` behind that as one, and the token of the page behind.
    async fn page(
        &self,
        key: &str,
        token: Option<String>,
        most: usize,
    ) -> Result<(ListResult, Option<String>), Refusal> {
        let options = PaginatedListOptions {
            delimiter: Some("/".into()),
            max_keys: Some(most),
            page_token: token,
            ..PaginatedListOptions::default()
        };
        let prefix = Some(key).filter(|key| !key.is_empty());
        let mut tries = 0;
        loop {
            let limit = self.settings.first_byte + self.settings.stall;
            let page = timeout(limit, self.s3.list_paginated(prefix, options.clone())).await;
            let page = page.map_err(|_| Refusal::FirstByte(limit));
            match page.and_then(|page| page.map_err(|error| Refusal::of(&error))) {
                Ok(page) => return Ok((page.result, page.page_token)),
                Err(refusal) => super::fetch::pause(&self.settings, &refusal, &mut tries).await?,
            }
        }
    }

    /// Every name in a folder; nothing where there are too many.
    async fn names(&self, key: &str) -> Result<Option<BTreeMap<OsString, Kind>>, Refusal> {
        let mut names = BTreeMap::new();
        let mut token = None;
        for _ in 0..MAX_PAGES {
            let (result, next) = self.page(key, token, 1000).await?;
            for object in &result.objects {
                if let Some(name) = name_in(key, object.location.as_ref()) {
                    names.entry(name).or_insert(Kind::File);
                }
            }
            for folder in &result.common_prefixes {
                names.extend(name_in(key, folder.as_ref()).map(|name| (name, Kind::Folder)));
            }
            if names.len() > MAX_NAMES {
                return Ok(None);
            }
            if next.is_none() {
                return Ok(Some(names));
            }
            token = next;
        }
        Ok(None)
    }

    /// What stands at a key with a `/` at its end.
    async fn stands(&self, key: &str) -> Result<Option<Meta>, Refusal> {
        let plain = key.trim_end_matches('/');
        let (below, named) = try_join(self.page(key, None, 1), self.page(plain, None, 1)).await?;
        if !below.0.common_prefixes.is_empty() || !below.0.objects.is_empty() {
            return Ok(Some(folder()));
        }
        let object = named.0.objects.into_iter().find(|object| object.location.as_ref() == plain);
        Ok(object.map(|object| file(&Version::new(object))))
    }
}

/// The last part of a key that lies in a folder itself. The marker of the folder has none.
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
    fn list(&self, folder: &Path, each: &mut dyn FnMut(OsString, Kind) -> bool) -> Result<(), SourceError> {
        let key = self.key(folder).ok_or_else(|| self.absent(folder))?;
        let names = wait(self.names(&key)).map_err(|refusal| refusal.read_error(&self.name))?;
        let names = names.ok_or_else(|| SourceError::Io {
            errno: Errno::TOOBIG.raw_os_error(),
            what: format!("{}: {} holds more than {MAX_NAMES} names", self.name, folder.display()),
        })?;
        // A folder is there as long as something is in it; the root is there anyway.
        if names.is_empty() && !folder.as_os_str().is_empty() {
            return Err(self.absent(folder));
        }
        let _ = names.into_iter().all(|(name, kind)| each(name, kind));
        Ok(())
    }

    fn look(&self, path: &Path) -> Result<Meta, SourceError> {
        if path.as_os_str().is_empty() {
            return Ok(folder());
        }
        let key = self.key(path).ok_or_else(|| self.absent(path))?;
        let found = wait(self.stands(&key)).map_err(|refusal| refusal.read_error(&self.name))?;
        found.ok_or_else(|| self.absent(path))
    }

    fn open(&self, path: &Path) -> Result<(Arc<dyn Source>, Meta), SourceError> {
        let key = self.key(path).ok_or_else(|| self.absent(path))?;
        let key = object_store::path::Path::parse(key.trim_end_matches('/')).map_err(|_| self.absent(path))?;
        let name = format!("{}/{}", self.name.to_string().trim_end_matches('/'), path.display());
        let name = SourceName::from(&name);
        let object = Object::at(self.store.clone(), key, name.clone(), self.settings.clone());
        let object = object.map_err(|e| SourceError::Io { errno: e.errno, what: format!("{name}: {}", e.why) })?;
        let meta = file(&object.accepted());
        Ok((Arc::new(object), meta))
    }

    fn describe(&self) -> String {
        match self.store.account {
            Account::Nobody => format!("{}, unsigned", self.name),
            Account::Named | Account::Http => self.name.to_string(),
        }
    }
}
