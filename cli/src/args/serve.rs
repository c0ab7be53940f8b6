//! The arguments of `foreread serve`. Never: opens or binds anything.

use super::values::{address, cache, hint, time};
use foreread::source::SourceName;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Serve a source over NBD, with readahead and a cache
///
/// Every client has its own readahead state on one shared cache, and may only read unless --writable is given. The addresses are printed when clients can
/// connect; Ctrl-C, SIGTERM and SIGHUP end it: requests already taken are still answered. When the source changes, the connected
/// clients get errors and have to reconnect.
///
/// There is no password and no encryption unless --tls-certificates is given. A unix socket belongs to its owner alone; a TCP
/// port is bound to this machine unless an address is named. A socket that systemd passes on (LISTEN_FDS) is served as well.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread serve disk.img --unix disk.sock
  qemu-img info 'nbd+unix:///?socket=disk.sock'
  foreread serve nbd://far.example/disk --tcp 10809 --cache 1G --stats-every 5s")]
pub struct ServeArgs {
    /// PATH, file:PATH, nbd://HOST/EXPORT or nbd+unix:///EXPORT?socket=PATH
    #[arg(value_name = "SOURCE")]
    pub source: SourceName,
    /// Listen on a unix socket
    #[arg(long, value_name = "PATH")]
    pub unix: Option<PathBuf>,
    /// Listen on a port of this machine, or ADDR:PORT
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = address)]
    pub tcp: Option<SocketAddr>,
    /// Encrypt, with the certificate in this folder
    ///
    /// It holds server-cert.pem and server-key.pem, and for --tls-verify-peer ca-cert.pem and, if certificates were revoked,
    /// ca-crl.pem: the names of nbdkit and libnbd.
    #[cfg(feature = "tls")]
    #[arg(long, value_name = "DIR")]
    pub tls_certificates: Option<PathBuf>,
    /// Which clients are served: 'require', with TLS alone, or 'on', others too
    #[cfg(feature = "tls")]
    #[arg(
        long,
        value_name = "MODE",
        requires = "tls_certificates",
        hide_short_help = true,
        default_value = "require"
    )]
    pub tls: TlsMode,
    /// Serve clients alone that have a certificate issued by ca-cert.pem
    #[cfg(feature = "tls")]
    #[arg(long, requires = "tls_certificates", hide_short_help = true)]
    pub tls_verify_peer: bool,
    /// Let clients write, directly to the source
    #[arg(long)]
    pub writable: bool,
    /// Do not lock a writable source against other programs
    #[arg(long, requires = "writable", hide_short_help = true)]
    pub no_lock: bool,
    /// Treat growth of the source as an append: clients go on
    #[arg(long, hide_short_help = true)]
    pub appending: bool,
    /// Name of the export, besides ''
    #[arg(long, value_name = "NAME", default_value = "")]
    pub export: String,
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
    /// Like posix_fadvise, for all reads of the server. Policies of librbd take no hints.
    #[arg(long, value_name = "HINT", hide_short_help = true, value_parser = hint)]
    pub hint: Option<foreread::Advice>,
    /// Size of the cache, such as 64M
    #[arg(long, value_name = "SIZE", value_parser = cache, default_value = "256M")]
    pub cache: u64,
    /// Read the ranges of this plan ahead, in its order
    ///
    /// A plan of one file, or of one with the name of the export, in the size of the source: 'foreread plan' of a recording of 'serve
    /// --record'. At most a quarter of the cache is filled with what no client has read.
    #[arg(long, value_name = "PLAN", hide_short_help = true)]
    pub plan: Option<PathBuf>,
    /// Most clients at once
    #[arg(long, value_name = "N", hide_short_help = true, default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub max_clients: u32,
    /// Record all requests, complete at the end
    #[arg(long, value_name = "TRACE")]
    pub record: Option<PathBuf>,
    /// Serve Prometheus metrics at [ADDR:]PORT/metrics
    #[cfg(feature = "metrics")]
    #[arg(long, value_name = "PORT", value_parser = address)]
    pub metrics: Option<SocketAddr>,
    /// Print statistics to stderr, e.g. every 5s
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub stats_every: Option<Duration>,
}

/// Which clients a server with a certificate serves.
#[cfg(feature = "tls")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum TlsMode {
    /// Those with TLS alone
    Require,
    /// Those without TLS, too
    On,
}
