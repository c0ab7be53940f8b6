//! Settings of a disk cache: folder, size limit, free-space reserve, and whether other users may write to the folder.

use crate::source::SourceName;
use foreread_core::units::parse_size;
use std::path::PathBuf;
use std::time::Duration;

/// How the settings of a disk cache are written as text.
pub const NOTATION: &str = "DIR[,size=BYTES][,free=BYTES|PERCENT%][,shared=DIR[,shared-size=BYTES]|,shared=s3://BUCKET/PREFIX[,shared-endpoint=URL][,shared-profile=NAME]][,others=trusted][,slow-disk=read][,names=off]";

/// Default of [`SharedBucket::patience`]. Chosen, not measured.
const BUCKET_PATIENCE: Duration = Duration::from_millis(1500);

/// Settings of a [`super::DiskCache`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskCacheSettings {
    /// The folder, created if needed. The cache is in its subfolder `foreread-cache-2`.
    pub dir: PathBuf,
    /// Maximum size of all cached data in bytes, at least 1 MiB. Processes that use the folder share this limit, provided that their
    /// settings are the same. Default 50 GiB.
    pub size_bytes: u64,
    /// Space to keep free on the file system. Default 10 %.
    pub free: FreeSpace,
    /// Accept a folder that other users may write to. Any of these users can then feed arbitrary bytes to all readers of the cache.
    /// Default false: such a folder is refused.
    pub others_trusted: bool,
    /// Always read cached data from disk, even if the store is faster. This is for stores that charge for reads. Default false.
    pub reads_slow_disk: bool,
    /// Keep the listings of a mounted prefix for the next mount, which shows them at once and lists the folders again in the
    /// background. Until a folder has been listed again, opening one of its files asks the store for the file's version. Default true.
    pub keeps_names: bool,
    /// A second tier below this folder, shared by several machines. Everyone who can write to it is trusted. Default none.
    pub shared: Option<SharedCache>,
}

/// The shared tier: a folder or a bucket that several machines share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SharedCache {
    /// A folder, for example on a shared file system.
    Folder {
        /// Path of the folder.
        dir: PathBuf,
        /// Maximum size of all cached data in it, in bytes. Default 50 GiB.
        size_bytes: u64,
    },
    /// A prefix of a bucket. Needs the feature `object`.
    Bucket(SharedBucket),
}

/// A bucket that several machines share. Requests to the bucket use the credentials that the store's credential chain finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedBucket {
    /// The bucket and a prefix: `s3://BUCKET/PREFIX`, `gs://` or `az://`.
    pub name: SourceName,
    /// The endpoint of the bucket's server (S3), if it differs from that of the objects. Default: from the environment.
    pub endpoint_url: Option<SourceName>,
    /// An AWS profile for the bucket. Default: from the environment.
    pub profile: Option<String>,
    /// Time limit for the first listing of a version, and for each read of cached data. Default 1.5 s.
    pub patience: Duration,
}

/// The space that the cache leaves free on the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeSpace {
    /// A number of bytes.
    Bytes(u64),
    /// A percentage of the file system's size, from 0 to 99.
    Percent(u8),
}

impl FreeSpace {
    /// Converts it to bytes, for a file system of this size.
    pub(super) fn of(self, total: u64) -> u64 {
        match self {
            FreeSpace::Bytes(bytes) => bytes,
            FreeSpace::Percent(percent) => total / 100 * u64::from(percent),
        }
    }
}

/// Smallest size limit of a cache.
const MIN_BYTES: u64 = 1 << 20;
const DEFAULT_BYTES: u64 = 50 << 30;

impl DiskCacheSettings {
    /// Creates the default settings for a folder.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> DiskCacheSettings {
        DiskCacheSettings {
            dir: dir.into(),
            size_bytes: DEFAULT_BYTES,
            free: FreeSpace::Percent(10),
            others_trusted: false,
            reads_slow_disk: false,
            keeps_names: true,
            shared: None,
        }
    }

    /// Parses a text in [`NOTATION`]. The folder is the text before the first comma that is followed by a word and `=`; a path with such
    /// a comma cannot be given in this notation.
    ///
    /// # Errors
    /// Returns an error with the reason if the text is invalid.
    ///
    /// ```
    /// use foreread::source::disk_cache::DiskCacheSettings;
    ///
    /// let settings = DiskCacheSettings::parse("/var/cache/a,b,size=20G,free=5%").expect("a notation");
    /// assert_eq!((settings.dir.to_str(), settings.size_bytes), (Some("/var/cache/a,b"), 20 << 30));
    /// ```
    pub fn parse(text: &str) -> Result<DiskCacheSettings, String> {
        let is_key =
            |key: &str| !key.is_empty() && key.chars().all(|c| c == '-' || c.is_ascii_alphabetic());
        let mut pairs = Vec::new();
        let mut dir = text;
        while let Some((before, pair)) = dir.rsplit_once(',') {
            match pair.split_once('=') {
                Some((key, value)) if is_key(key) => pairs.push((key, value)),
                _ => break,
            }
            dir = before;
        }
        if dir.is_empty() {
            return Err(format!("the folder is missing; write {NOTATION}"));
        }
        let mut settings = DiskCacheSettings::new(dir);
        for (key, value) in pairs.into_iter().rev() {
            settings.set(key, value)?;
        }
        Ok(settings)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let bytes = |text: &str| {
            let bytes =
                parse_size(text).map_err(|_| format!("{key}={text} is not a size such as 50G"))?;
            if bytes < MIN_BYTES && key.ends_with("size") {
                return Err(format!("{key}={text} is less than 1M"));
            }
            Ok(bytes)
        };
        match (key, value) {
            ("size", _) => self.size_bytes = bytes(value)?,
            ("shared", text) => self.shared = Some(shared(text)?),
            ("shared-size", _) => match &mut self.shared {
                Some(SharedCache::Folder { size_bytes, .. }) => *size_bytes = bytes(value)?,
                _ => {
                    return Err("shared-size needs shared=FOLDER before it".to_string());
                }
            },
            ("shared-endpoint" | "shared-profile", _) => match &mut self.shared {
                _ if value.is_empty() => return Err(format!("{key} is empty")),
                Some(SharedCache::Bucket(bucket)) if bucket.name.scheme() != "s3" => {
                    return Err(format!("{key} works only with s3://"));
                }
                Some(SharedCache::Bucket(bucket)) if key == "shared-endpoint" => {
                    bucket.endpoint_url = Some(value.into());
                }
                Some(SharedCache::Bucket(bucket)) => bucket.profile = Some(value.to_string()),
                _ => {
                    return Err(format!(
                        "{key} needs a bucket before it (shared=s3://BUCKET)"
                    ));
                }
            },
            ("free", _) => {
                self.free = match value.strip_suffix('%') {
                    None => FreeSpace::Bytes(bytes(value)?),
                    Some(percent) => {
                        let percent = percent.parse().ok().filter(|percent| *percent < 100);
                        let why = || format!("free={value} is not a whole percent from 0 to 99");
                        FreeSpace::Percent(percent.ok_or_else(why)?)
                    }
                };
            }
            ("others", "trusted") => self.others_trusted = true,
            ("slow-disk", "read") => self.reads_slow_disk = true,
            ("names", "off") => self.keeps_names = false,
            ("others", _) => return Err(format!("others={value} is not others=trusted")),
            ("names", _) => return Err(format!("names={value} is not names=off")),
            ("slow-disk", _) => return Err(format!("slow-disk={value} is not slow-disk=read")),
            _ => return Err(format!("{key}= is not one of its keys")),
        }
        Ok(())
    }
}

/// Parses the value of `shared=`. The error never quotes the value: it may contain credentials.
fn shared(text: &str) -> Result<SharedCache, String> {
    if text.is_empty() {
        return Err("shared= names no folder".to_string());
    }
    let name = SourceName::from(text);
    // `s3:/x` is a typing error, not a folder.
    let is_url = text.contains("://")
        || ["s3:", "gs:", "az:"]
            .iter()
            .any(|&word| text.starts_with(word));
    match name.scheme() {
        _ if !is_url => Ok(SharedCache::Folder {
            dir: text.into(),
            size_bytes: DEFAULT_BYTES,
        }),
        "s3" | "gs" | "az" if text.contains("://") => Ok(SharedCache::Bucket(SharedBucket {
            name,
            endpoint_url: None,
            profile: None,
            patience: BUCKET_PATIENCE,
        })),
        _ => Err("shared= must be a folder, or a bucket such as s3://, gs:// or az://".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_names_the_folder_and_its_limits() {
        let parsed = |text: &str| DiskCacheSettings::parse(text).expect(text);
        assert_eq!(parsed("/c"), DiskCacheSettings::new("/c"));
        let all = parsed("/c,d,free=1G,size=3M,others=trusted,slow-disk=read,names=off");
        assert_eq!(
            all,
            DiskCacheSettings {
                dir: "/c,d".into(),
                size_bytes: 3 << 20,
                free: FreeSpace::Bytes(1 << 30),
                others_trusted: true,
                reads_slow_disk: true,
                keeps_names: false,
                shared: None,
            }
        );
        let shared = parsed("/c,shared=/mnt/x,shared-size=2G,size=1G");
        let dir = "/mnt/x".into();
        let size_bytes = 2 << 30;
        assert_eq!(shared.shared, Some(SharedCache::Folder { dir, size_bytes }));
        let bucket =
            parsed("/c,shared=S3://b/p,shared-endpoint=http://h:1,shared-profile=near,size=2M");
        assert_eq!(
            bucket.shared,
            Some(SharedCache::Bucket(SharedBucket {
                name: "s3://b/p".into(),
                endpoint_url: Some("http://h:1".into()),
                profile: Some("near".to_string()),
                patience: BUCKET_PATIENCE,
            }))
        );
        assert_eq!(bucket.size_bytes, 2 << 20);
        assert_eq!(parsed("a,free=0%").free.of(1000), 0);
        assert_eq!(parsed("a,free=7%").free.of(1000), 70);
        let missing = format!("the folder is missing; write {NOTATION}");
        assert_eq!(DiskCacheSettings::parse(""), Err(missing));
        let refused = "\
            size=1K: size=1K is less than 1M
            slow-disk=no: slow-disk=no is not slow-disk=read
            size=2M,sise=3M: sise= is not one of its keys
            size=x: size=x is not a size such as 50G
            shared=: shared= names no folder
            shared-size=1G: shared-size needs shared=FOLDER before it
            shared=s3://b/p,shared-size=1G: shared-size needs shared=FOLDER before it
            shared=/x,shared-profile=a: shared-profile needs a bucket before it (shared=s3://BUCKET)
            shared=s3://b,shared-endpoint=: shared-endpoint is empty
            shared=http://u:secret@h/p: shared= must be a folder, or a bucket such as s3://, gs:// or az://
            free=100%: free=100% is not a whole percent from 0 to 99
            others=all: others=all is not others=trusted
            names=10m: names=10m is not names=off";
        for (text, why) in refused
            .lines()
            .filter_map(|row| row.trim().split_once(": "))
        {
            let text = format!("/c,{text}");
            assert_eq!(DiskCacheSettings::parse(&text), Err(why.to_string()));
        }
    }
}
