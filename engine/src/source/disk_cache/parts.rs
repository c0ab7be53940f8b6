//! A cache: a tier, its writer, and the shared tier below it.

#[cfg(feature = "object")]
use super::bucket::{BucketTier, WRITERS};
use super::settings::{DiskCacheSettings, SharedCache};
use super::shared::DiskCacheCounts;
use super::tier::Tier;
use super::writer::Writer;
use super::{DiskCache, OpenSettings};
use crate::source::SourceOpenError;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A tier, what writes it, and the one below it.
pub struct Parts {
    pub tier: Arc<dyn Tier>,
    pub writer: Arc<Writer>,
    pub below: Option<SharedTier>,
}

impl Parts {
    /// Is a third of a queue full?
    pub fn is_behind(&self) -> bool {
        self.writer.queued_bytes() > self.writer.most_queued() / 3
            || self.below.as_ref().is_some_and(|below| below.0.is_behind())
    }

    pub fn flush(&self, most: Duration) -> bool {
        let began = Instant::now();
        let own = self.writer.flush(most);
        let left = most.saturating_sub(began.elapsed());
        own & self.below.as_ref().is_none_or(|below| below.0.flush(left))
    }
}

/// What several machines share, below a cache of this machine.
pub struct SharedTier(pub(super) Arc<Parts>);

impl SharedTier {
    pub(super) fn open(
        shared: &SharedCache,
        own: &DiskCacheSettings,
        open: &OpenSettings,
    ) -> Result<SharedTier, SourceOpenError> {
        match shared {
            SharedCache::Folder(shared) => {
                let settings = DiskCacheSettings {
                    dir: shared.dir.clone(),
                    size_bytes: shared.size_bytes,
                    others_trusted: true,
                    shared: None,
                    ..own.clone()
                };
                Ok(SharedTier(DiskCache::open(settings)?.parts))
            }
            #[cfg(feature = "object")]
            SharedCache::Bucket(bucket) => {
                let tier = BucketTier::open(bucket, own, open)?;
                Ok(SharedTier(Arc::new(Parts {
                    writer: Arc::new(Writer::new(tier.clone(), WRITERS)),
                    tier,
                    below: None,
                })))
            }
            #[cfg(not(feature = "object"))]
            SharedCache::Bucket(bucket) => {
                let _ = open;
                Err(SourceOpenError {
                    what: bucket.name.clone(),
                    why: "a bucket cannot be a shared cache: foreread was built without the feature `object`"
                        .to_string(),
                    remedy: "build it with that feature, or share a folder".to_string(),
                    errno: rustix::io::Errno::OPNOTSUPP.raw_os_error(), cause: None,
})
            }
        }
    }

    /// What it has done for this process.
    #[must_use]
    pub fn counts(&self) -> DiskCacheCounts {
        self.0.tier.state().counts.now()
    }
}
