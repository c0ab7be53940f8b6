//! `--disk-cache` of a model: `SIZE[,disk=model:NAME]`.
//!
//! Example: `10G,disk=model:ssd-sata` is a cache of 10 GiB on a SATA drive. Without a disk it is on `model:nvme`.

#[cfg(feature = "disk-cache")]
mod live;

use crate::compare::{CompareError, targets::CachedRun};
use foreread_core::units::parse_size;
use foreread_report::number;
use foreread_sim::device::Device;
use foreread_sim::device::custom;
use foreread_sim::device::disk_cache::DiskCache;
use foreread_sim::device::presets::Preset;
use foreread_sim::simulator::RunResult;

#[cfg(feature = "disk-cache")]
pub use live::LiveDiskCache;

pub const NOTATION: &str = "SIZE[,disk=model:NAME]";
/// As for a cache on disk that is one.
const MIN_BYTES: u64 = 1 << 20;
/// The disk where none is named.
const DISK: &str = "nvme";
const OF_MODEL: &str = "model:";

/// A cache on disk in front of a model.
pub struct ModelDiskCache {
    pub size_bytes: u64,
    pub disk: &'static Preset,
}

impl ModelDiskCache {
    pub fn parse(text: &str) -> Result<ModelDiskCache, CompareError> {
        let refused = |why: String| CompareError::DiskCache {
            text: text.to_string(),
            why,
            notation: NOTATION,
        };
        let (mut size_bytes, mut disk) = (None, DISK);
        for part in text.split(',') {
            match part.split_once('=') {
                Some(("disk", name)) => disk = name.strip_prefix(OF_MODEL).unwrap_or(name),
                Some(("size", size)) => size_bytes = Some(size),
                None if size_bytes.is_none() => size_bytes = Some(part),
                _ => return Err(refused(format!("'{part}' is of no model"))),
            }
        }
        let size = size_bytes.unwrap_or_default();
        let size_bytes =
            parse_size(size).map_err(|_| refused(format!("'{size}' is no size such as 10G")))?;
        if size_bytes < MIN_BYTES {
            let size = number::size_b(size_bytes);
            return Err(refused(format!("{size} is less than 1M")));
        }
        let disk = custom::find(disk)?;
        Ok(ModelDiskCache { size_bytes, disk })
    }

    /// Both runs of one policy: with an empty cache, and with what the first left.
    pub fn run(
        &self,
        seed: u64,
        store: impl Fn() -> Box<dyn Device>,
        run: impl Fn(Box<dyn Device>) -> RunResult,
    ) -> [CachedRun; 2] {
        let cache = DiskCache::new(self.size_bytes);
        [(), ()].map(|()| CachedRun {
            result: run(cache.over(store(), self.disk, seed)),
            counts: cache.counts(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_names_the_size_and_the_disk() {
        let parsed = |text: &str| {
            let cache = ModelDiskCache::parse(text).expect(text);
            (cache.size_bytes, cache.disk.name)
        };
        assert_eq!(parsed("10G"), (10 << 30, "nvme"));
        assert_eq!(parsed("size=1M,disk=ssd-sata"), (1 << 20, "ssd-sata"));
        assert_eq!(parsed("disk=model:ebs-gp3,2G"), (2 << 30, "ebs-gp3"));
        for (text, why) in [
            ("", "'' is no size such as 10G"),
            ("/var/cache/x", "'/var/cache/x' is no size such as 10G"),
            ("1K", "1K is less than 1M"),
            ("1G,free=10%", "'free=10%' is of no model"),
            ("1G,2G", "'2G' is of no model"),
        ] {
            let error = ModelDiskCache::parse(text).err().expect(text).to_string();
            assert!(error.contains(why) && error.contains(NOTATION), "{error}");
        }
        assert!(ModelDiskCache::parse("1G,disk=nmve").is_err());
    }
}
