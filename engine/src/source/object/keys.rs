//! Reads, writes and lists the objects below one prefix by their keys; a shared cache in a bucket stores its data in such objects.
//! Each request is sent once, with a time limit that the caller sets. If the store refuses the credentials, and newer credentials
//! exist, the request is sent once more.
//!
//! ```text
//!   cache ──► Keys ──get, put, names──► object_store ──► check of replies ──► the server
//!               └─ refused, late: KeyRefusal, one line without secrets
//! ```
//! This module never removes an object, and never trusts the length that a reply states for its body.

use super::fetch::{Tries, pause};
use super::list::{MAX_KEYS, MAX_NAMES, Prefix};
use super::network;
use super::page::NextPage;
use super::refusal::{Refusal, garbled};
use super::settings::ObjectSettings;
use crate::source::{SourceName, SourceOpenError};
use bytes::Bytes;
use futures_util::StreamExt;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore, PutOptions, PutPayload};
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::time::Duration;
use tokio::time::timeout;

/// A page with fewer new names, followed by other pages, counts as poor. S3 sends such pages where many objects were deleted.
const MIN_NEW_NAMES: usize = 16;
/// Maximum poor pages in a row, after which a listing fails, and the pauses before the next page.
const MAX_POOR_PAGES: u32 = 10;
const MIN_POOR_PAUSE: Duration = Duration::from_millis(10);
const MAX_POOR_PAUSE: Duration = Duration::from_secs(1);

/// The objects below a prefix, to be read, written and listed by key.
pub struct Keys(Prefix);

/// Why a request for an object below a prefix failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyRefusal {
    /// There is no such object.
    Absent,
    /// No reply within the time limit.
    Late(Duration),
    /// The reason and the remedy, in one line.
    Refused(String),
}

impl std::fmt::Display for KeyRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            KeyRefusal::Absent => f.write_str("the object does not exist"),
            KeyRefusal::Late(limit) => write!(f, "no answer within {limit:?}"),
            KeyRefusal::Refused(line) => f.write_str(line),
        }
    }
}

impl Keys {
    /// Opens a prefix of a store. This function sends no request.
    pub fn open(name: &SourceName, settings: ObjectSettings) -> Result<Keys, SourceOpenError> {
        let retries = 0;
        Prefix::unasked(
            name,
            ObjectSettings {
                retries,
                ..settings
            },
        )
        .map(Keys)
    }

    /// Reads a part of an object. Returns fewer bytes if the object ends earlier.
    pub async fn get(&self, key: &str, range: Range<u64>) -> Result<Vec<u8>, Refusal> {
        let path = self.path(key)?;
        let most = range.end - range.start;
        let answer = self.ask(|| {
            let options = GetOptions {
                range: Some(GetRange::Bounded(range.clone())),
                ..GetOptions::default()
            };
            self.0.store.objects.get_opts(&path, options)
        });
        let mut body = answer.await?.into_stream();
        let mut bytes = Vec::with_capacity(most as usize);
        while let Some(part) = body.next().await {
            let part = part.map_err(|error| Refusal::of(&error))?;
            if (bytes.len() + part.len()) as u64 > most {
                return Err(Refusal::OtherPart);
            }
            bytes.extend_from_slice(&part);
        }
        Ok(bytes)
    }

    pub async fn put(&self, key: &str, bytes: Bytes) -> Result<(), Refusal> {
        let path = self.path(key)?;
        let answer = self.ask(|| {
            let payload = PutPayload::from_bytes(bytes.clone());
            let objects = &self.0.store.objects;
            objects.put_opts(&path, payload, PutOptions::default())
        });
        answer.await.map(|_| ())
    }

    /// Lists the names and sizes of the objects in a folder, page by page; each page must arrive within `limit`. The folder's key
    /// must end with `/`. Returns at most the first million objects. If page after page has almost no new names, the pauses
    /// between requests grow, until the listing fails.
    pub async fn names(
        &self,
        folder: &str,
        limit: Duration,
        mut each: impl FnMut(&str, u64) + Send,
    ) -> Result<(), Refusal> {
        let prefix = format!("{}{folder}", self.prefix());
        let mut pages = self.0.pages(&prefix, MAX_KEYS, None);
        let (mut seen, hasher) = (HashSet::new(), RandomState::new());
        let mut poor = 0;
        while seen.len() < MAX_NAMES {
            let page = timeout(limit, pages.next()).await;
            let Some(page) = page.unwrap_or(Err(Refusal::FirstByte(limit)))? else {
                break;
            };
            let before = seen.len();
            for object in &page.objects {
                if let Some(name) = object.location.as_ref().strip_prefix(&prefix)
                    && seen.insert(hasher.hash_one(name))
                {
                    each(name, object.size);
                }
            }
            pages.named(seen.len());
            let is_poor = seen.len() - before < MIN_NEW_NAMES && page.next != NextPage::End;
            poor = if is_poor { poor + 1 } else { 0 };
            if poor == MAX_POOR_PAGES {
                let why = format!(
                    "{poor} consecutive pages of a listing have almost no new names, and the listing continues"
                );
                return Err(Refusal::Endless(why));
            }
            if is_poor {
                let pause = MIN_POOR_PAUSE.saturating_mul(1 << poor.min(16));
                tokio::time::sleep(pause.min(MAX_POOR_PAUSE)).await;
            }
        }
        Ok(())
    }

    /// Waits for a result, at most `limit`.
    pub fn within<T: Send>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, Refusal>> + Send,
    ) -> Result<T, KeyRefusal> {
        let done = network::wait(async { timeout(limit, work).await });
        match done {
            Ok(Ok(done)) => done.map_err(|refusal| self.refused(&refusal)),
            Ok(Err(_)) => Err(KeyRefusal::Late(limit)),
            Err(refusal) => Err(self.refused(&refusal)),
        }
    }

    pub fn refused(&self, refusal: &Refusal) -> KeyRefusal {
        match refusal {
            refusal if refusal.is_no_object() => KeyRefusal::Absent,
            Refusal::FirstByte(limit) => KeyRefusal::Late(*limit),
            refusal => {
                let error = refusal.open_error(&self.0.name, &self.0.store.account);
                KeyRefusal::Refused(format!("{}; {}", error.why, error.remedy))
            }
        }
    }

    /// Sends a request, and sends it once more if its credentials are refused and there are new ones.
    async fn ask<T, F>(&self, request: impl Fn() -> F) -> Result<T, Refusal>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        let mut tries = Tries::within(Duration::ZERO);
        loop {
            let refusal = match request().await {
                Ok(answer) => return Ok(answer),
                Err(error) => Refusal::of(&error),
            };
            pause(&self.0.settings, &self.0.store, &refusal, &mut tries).await?;
        }
    }

    /// Empty, or with a `/` at its end.
    fn prefix(&self) -> String {
        self.0.key("".as_ref()).unwrap_or_default()
    }

    fn path(&self, key: &str) -> Result<Path, Refusal> {
        let key = format!("{}{key}", self.prefix());
        Path::parse(key).map_err(|_| garbled("the object's key is not valid"))
    }
}
