//! The folder of a cache as it is open: where the pieces are, and what processes that write it share.

use super::account::Account;
use super::claims::{Claim, Claims};
use super::folder::{CacheFolder, FolderError};
use super::piece::VersionHash;
use super::settings::DiskCacheSettings;
use rustix::io::Errno;
use std::ops::Range;

/// The folder and the files of it that are locked.
pub struct CacheFiles {
    pub folder: CacheFolder,
    /// Nothing where the folder cannot be written: what is in it is read.
    pub writable: Option<WritableFiles>,
}

/// What processes that write share.
pub struct WritableFiles {
    pub account: Account,
    pub claims: Claims,
}

impl CacheFiles {
    pub fn open(settings: &DiskCacheSettings) -> Result<CacheFiles, FolderError> {
        let folder = CacheFolder::open(settings)?;
        let files = Account::open(&folder).and_then(|account| {
            Claims::open(&folder).map(|claims| WritableFiles { account, claims })
        });
        let writable = match files {
            Ok(files) => Some(files),
            Err(Errno::ROFS | Errno::ACCESS | Errno::PERM) => None,
            Err(errno) => return Err(FolderError::of("nothing can be written there", errno)),
        };
        Ok(CacheFiles { folder, writable })
    }

    /// Bytes of all pieces; nothing where that is not known.
    pub fn bytes(&self) -> Option<u64> {
        self.writable
            .as_ref()
            .and_then(|files| files.account.bytes())
    }

    /// That many bytes of files were removed.
    pub fn removed(&self, bytes: u64) {
        if let Some(files) = &self.writable {
            files.account.removed(bytes);
        }
    }

    /// What changes when a process writes a piece of a version.
    pub fn stamp(&self, version: VersionHash) -> i128 {
        match &self.writable {
            Some(files) => files.account.writes(version).into(),
            None => self.folder.changed_at(version).unwrap_or(0),
        }
    }

    /// Claims bytes of a version, if no other process has any of them.
    pub fn claim(&self, version: VersionHash, bytes: &Range<u64>) -> Claim {
        let files = self.writable.as_ref();
        files.map_or(Claim::Unknown, |files| files.claims.take(version, bytes))
    }

    /// Gives bytes back that were claimed.
    pub fn give_back(&self, version: VersionHash, bytes: &Range<u64>) {
        if let Some(files) = &self.writable {
            files.claims.give_back(version, bytes);
        }
    }
}
