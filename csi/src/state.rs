//! Stores what the mount table does not contain about a mount: the files with its keys, the address of its metrics page, and the origin of
//! its keys.
//!
//! ```text
//!   STATE/                 0700, best on a tmpfs
//!     vmodels-bb02.../     one folder for each volume that is mounted
//!       aws, hf, key.json  0600, if the Secret has such a key
//!       mount              0600: {"has_keys":true,"metrics":"127.0.0.1:41233","source":13475...}
//! ```
//! If these files are lost, an existing mount is still served, published and unmounted as before.

use crate::secrets::{KeyFile, SecretKeys};
use foreread_os::open::read_small_text;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io::{ErrorKind, Result, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

const NOTE: &str = "mount";
/// The temporary name of a file of keys.
const NEW: &str = "new";
/// Maximum bytes of a file of keys. The keys of a Secret have at most 64 KiB.
const MAX_KEYS: u64 = 128 << 10;
const MAX_NOTE: u64 = 4096;

#[derive(Clone, Debug)]
pub struct StateFolder(PathBuf);

#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct MountNote {
    /// Whether its keys come from a request's secrets.
    pub has_keys: bool,
    pub metrics: Option<SocketAddr>,
    /// A hash of its source, because the mount table may write it differently.
    pub source: Option<u64>,
}

/// Returns a hash of 64 bits (FNV-1a), which is the same in every version of the plugin.
pub fn number(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |number, byte| {
            (number ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
}

impl StateFolder {
    /// Creates the folder if needed, with access for its owner only.
    pub fn open(path: &Path) -> Result<StateFolder> {
        private_folder(path)?;
        std::fs::set_permissions(path, Permissions::from_mode(0o700))?;
        Ok(StateFolder(path.to_path_buf()))
    }

    /// Creates an empty folder for the state of a volume.
    pub fn begin(&self, name: &str) -> Result<()> {
        self.forget(name)?;
        private_folder(&self.0.join(name))
    }

    /// Writes keys to a file and returns its path.
    pub fn keep_keys(&self, name: &str, file: &KeyFile) -> Result<PathBuf> {
        let path = self.0.join(name).join(file.name);
        private_file(&path, &file.content)?;
        Ok(path)
    }

    /// Rewrites a mount's file of keys if the keys have changed. Returns whether they had changed.
    pub fn renew_keys(&self, name: &str, file: &KeyFile) -> Result<bool> {
        let path = self.0.join(name).join(file.name);
        let Ok(old) = read_small_text(&path, MAX_KEYS) else {
            return Ok(false);
        };
        if old == file.content {
            return Ok(false);
        }
        // Atomic: a reader sees the old keys or the new ones.
        let new = self.0.join(name).join(NEW);
        without_missing(std::fs::remove_file(&new))?;
        private_file(&new, &file.content)?;
        std::fs::rename(new, path)?;
        Ok(true)
    }

    pub fn keep_note(&self, name: &str, note: MountNote) -> Result<()> {
        let text = serde_json::to_string(&note)?;
        private_file(&self.0.join(name).join(NOTE), &text)
    }

    pub fn note(&self, name: &str) -> MountNote {
        let path = self.0.join(name).join(NOTE);
        let text = read_small_text(&path, MAX_NOTE).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names = Vec::from_iter(names);
        names.sort();
        names
    }

    pub fn forget(&self, name: &str) -> Result<()> {
        let folder = self.0.join(name);
        for file in SecretKeys::FILES.into_iter().chain([NEW, NOTE]) {
            without_missing(std::fs::remove_file(folder.join(file)))?;
        }
        without_missing(std::fs::remove_dir(folder))
    }
}

fn without_missing(done: Result<()>) -> Result<()> {
    match done {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Creates a folder and its parents, with access for the owner only.
pub fn private_folder(path: &Path) -> Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn private_file(path: &Path, content: &str) -> Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options.open(path)?.write_all(content.as_bytes())
}

// Locks by key, so that two calls do not work on the same volume or path at once.

/// The locks that are held now, one for each volume or path in use; all clones share them.
#[derive(Clone, Debug)]
pub struct Claims<T>(Arc<ClaimState<T>>);

#[derive(Debug)]
struct ClaimState<T> {
    all: Mutex<BTreeSet<T>>,
    /// Signalled when a lock is released.
    freed: Notify,
}

/// A lock that is held until this value is dropped.
pub struct Claim<T: Ord> {
    all: Claims<T>,
    what: T,
}

impl<T> Default for Claims<T> {
    fn default() -> Claims<T> {
        Claims(Arc::new(ClaimState {
            all: Mutex::default(),
            freed: Notify::new(),
        }))
    }
}

impl<T> Claims<T> {
    fn all(&self) -> MutexGuard<'_, BTreeSet<T>> {
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Ord + Clone> Claims<T> {
    /// Takes the lock for a volume or path; returns `None` while another call holds it.
    pub fn claim(&self, what: &T) -> Option<Claim<T>> {
        self.all().insert(what.clone()).then(|| Claim {
            all: self.clone(),
            what: what.clone(),
        })
    }

    /// Takes the lock for a volume or path, and waits until it is free.
    pub async fn claimed(&self, what: &T) -> Claim<T> {
        loop {
            let mut freed = std::pin::pin!(self.0.freed.notified());
            // Registered before the check, so that a release in between is not missed.
            freed.as_mut().enable();
            if let Some(claim) = self.claim(what) {
                return claim;
            }
            freed.await;
        }
    }
}

impl<T: Ord> Drop for Claim<T> {
    fn drop(&mut self) {
        self.all.all().remove(&self.what);
        self.all.0.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_private_and_go_away() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("state");
        let state = StateFolder::open(&path).expect("made");
        state.begin("v1").expect("made");
        let file = |content: &str| KeyFile {
            name: SecretKeys::FILES[0],
            variable: "",
            content: content.to_string(),
        };
        assert!(!state.renew_keys("v1", &file("1")).expect("none to renew"));
        let key = state.keep_keys("v1", &file("1")).expect("kept");
        assert!(!state.renew_keys("v1", &file("1")).expect("the same"));
        assert!(state.renew_keys("v1", &file("2")).expect("written"));
        assert_eq!(std::fs::read_to_string(&key).expect("there"), "2");
        let note = MountNote {
            has_keys: true,
            metrics: "127.0.0.1:9".parse().ok(),
            source: Some(number("s3://b/")),
        };
        state.keep_note("v1", note).expect("kept");
        let mode = |path: &Path| {
            let meta = std::fs::metadata(path).expect("there");
            meta.permissions().mode() & 0o777
        };
        assert_eq!((mode(&path), mode(&key)), (0o700, 0o600));
        assert_eq!(mode(key.parent().expect("a folder")), 0o700);
        assert_eq!(state.note("v1"), note);
        assert_eq!(state.names(), ["v1"]);
        assert_eq!(state.note("v2"), MountNote::default());
        state.forget("v1").expect("removed");
        state.forget("v1").expect("twice");
        assert!(state.names().is_empty());
    }
}
