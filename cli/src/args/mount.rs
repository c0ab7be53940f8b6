//! The arguments of `foreread mount`. Never: looks at a folder or mounts one.

use super::values::{address, cache, hint, time, ttl};
use foreread::source::SourceName;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Mount a source as files, with readahead and a cache
///
/// Files can only be read. A folder is shown as it is, any other source as a folder with one file in it. Every open file has its own
/// readahead state; all share one cache. A file that changes becomes a new file: a process that has it open reads the version it
/// opened, or gets an error, and the next open gets the new one (seen after --attr-ttl at the latest).
///
/// The files belong to the user that mounts; other users see them with --allow-other, as permissions allow. It prints a line
/// when it is mounted. Ctrl-C, SIGTERM and SIGHUP unmount; with files still open only the mount point is removed, and a second
/// Ctrl-C ends it at once.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread mount data mnt
  foreread mount nbd://far.example/disk mnt --cache 1G --stats-every 5s
  fusermount3 -u mnt")]
pub struct MountArgs {
    /// A folder, PATH, or a source as for 'foreread serve'
    #[arg(value_name = "SOURCE")]
    pub source: SourceName,
    /// An empty folder to mount on
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// NAME[:key=value,...] [default: auto]
    ///
    /// Without it FOREREAD_POLICY, then the key 'policy' of $XDG_CONFIG_HOME/foreread/config.toml, then that of
    /// /etc/foreread.toml. docs/policies.md has all keys of these files.
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<String>,
    /// Bytes fetched for a byte demanded, at most, such as 1.1
    ///
    /// A bound for auto, beside a debt of a few MB; the same as --policy auto:max-overfetch=R. Default 1.265.
    #[arg(long, value_name = "R", hide_short_help = true)]
    pub max_overfetch: Option<String>,
    /// A hint for every open description: normal, sequential, random
    ///
    /// Like posix_fadvise, for all reads of the mount. Policies of librbd take no hints.
    #[arg(long, value_name = "HINT", hide_short_help = true, value_parser = hint)]
    pub hint: Option<foreread::Advice>,
    /// Size of the cache, such as 64M
    #[arg(long, value_name = "SIZE", value_parser = cache, default_value = "256M")]
    pub cache: u64,
    /// Treat growth of a file as an append: reads go on
    #[arg(long, hide_short_help = true)]
    pub appending: bool,
    /// Let other users read, as permissions allow
    #[arg(long)]
    pub allow_other: bool,
    /// How long names, sizes and dates are cached; default 5s for a prefix of S3, else 1s
    #[arg(long, value_name = "TIME", hide_short_help = true, value_parser = ttl)]
    pub attr_ttl: Option<Duration>,
    /// Take the order of files from 'foreread next' at this socket
    ///
    /// A unix socket that only this user can connect to. For prefixes of S3: their listings have versions.
    #[arg(long, value_name = "SOCKET", hide_short_help = true)]
    pub control: Option<PathBuf>,
    /// Read the ranges of this plan ahead, in its order
    ///
    /// Its names begin at the mount's folder: 'foreread plan' of a recording of 'mount --record'. They are read through the mount, into
    /// its cache and the kernel's.
    #[arg(long, value_name = "PLAN", hide_short_help = true)]
    pub plan: Option<PathBuf>,
    /// Record all reads as a trace, complete at the end
    #[arg(long, value_name = "TRACE")]
    pub record: Option<PathBuf>,
    /// Serve Prometheus metrics at [ADDR:]PORT/metrics
    #[cfg(feature = "metrics")]
    #[arg(long, value_name = "PORT", value_parser = address)]
    pub metrics: Option<SocketAddr>,
    /// Print statistics to stderr at this interval, e.g. 5s
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub stats_every: Option<Duration>,
}
