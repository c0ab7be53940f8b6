//! `--disk-cache` of a store that is read for real: `DIR[,size=BYTES]...`, as everywhere else.
//!
//! Each pair of runs has a folder below DIR, which goes when the pair is done. The second run opens it as a new process would.

use super::super::{CachedRun, Description};
use crate::compare::CompareError;
use crate::live::LiveError;
use crate::report::{CacheRun, ReportDiskCache};
use foreread::source::Source;
use foreread::source::disk_cache::{self, DiskCache, DiskCacheSettings};
use foreread_sim::device::disk_cache::DiskCacheCounts;
use foreread_sim::simulator::RunResult;
use std::sync::Arc;
use std::time::Duration;

/// How long the first run's last pieces may take to be written. Chosen: the 128 MiB that may wait, on a disk of 4 MB/s.
const WRITTEN_AFTER: Duration = Duration::from_secs(30);

/// A cache on disk in front of a store.
pub struct LiveDiskCache(DiskCacheSettings);

impl LiveDiskCache {
    pub fn parse(text: &str) -> Result<LiveDiskCache, CompareError> {
        let settings = DiskCacheSettings::parse(text).map_err(|why| CompareError::DiskCache {
            text: text.to_string(),
            why,
            notation: disk_cache::NOTATION,
        })?;
        Ok(LiveDiskCache(settings))
    }

    /// Notes it in what is known of its store.
    pub fn describe(&self, about: &mut Description) {
        about.disk_cache = Some(ReportDiskCache {
            run: CacheRun::First,
            size_bytes: self.0.size_bytes,
            disk: self.0.dir.display().to_string(),
        });
    }

    /// Both runs of one policy: with an empty cache, and with what the first left.
    pub fn run(
        &self,
        store: impl Fn() -> Arc<dyn Source>,
        run: impl Fn(Arc<dyn Source>) -> Result<RunResult, CompareError>,
    ) -> Result<[CachedRun; 2], CompareError> {
        let failed = |what: &str| LiveError::io(format!("{what} {}", self.0.dir.display()));
        std::fs::create_dir_all(&self.0.dir).map_err(failed("making the folder"))?;
        let folder = tempfile::Builder::new()
            .prefix("foreread-compare-")
            .tempdir_in(&self.0.dir)
            .map_err(failed("making a folder for two runs in"))?;
        let one = || -> Result<CachedRun, CompareError> {
            let cache = DiskCache::open(DiskCacheSettings {
                dir: folder.path().to_path_buf(),
                ..self.0.clone()
            })
            .map_err(LiveError::from)?;
            let result = run(cache.over(store()))?;
            cache.flush(WRITTEN_AFTER);
            let counts = cache.counts();
            Ok(CachedRun {
                result,
                counts: DiskCacheCounts {
                    store_reads: counts.misses,
                    store_bytes: counts.miss_bytes + counts.passed_over_bytes,
                    disk_bytes: counts.hit_bytes,
                    written_bytes: counts.written_bytes,
                    dropped_bytes: counts.dropped_bytes,
                    evicted_bytes: counts.evicted_bytes,
                    held_bytes: cache.bytes().unwrap_or_default(),
                },
            })
        };
        let first = one()?;
        Ok([first, one()?])
    }
}
