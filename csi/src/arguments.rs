//! The command line options of `foreread-csi`.

use clap::Parser;
use foreread_core::units::parse_size;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The default name of the plugin; volumes refer to the plugin by its name.
pub const NAME: &str = "csi.foreread";

/// Serve volumes of Kubernetes by the Container Storage Interface
///
/// Mounts buckets, prefixes and repositories with 'foreread mount', once for each volume and node, and bind-mounts them read-only into pods.
/// docs/kubernetes.md has the attributes of volumes; contrib/helm/foreread installs it.
#[derive(Clone, Debug, Parser)]
#[command(name = "foreread-csi", version)]
pub struct Arguments {
    /// The socket to listen on
    #[arg(long, value_name = "unix:PATH", default_value = "unix:///csi/csi.sock")]
    pub endpoint: String,
    /// The name of this node
    #[arg(long, value_name = "NAME")]
    pub node_id: String,
    /// The name of the plugin in volumes and in the CSIDriver object
    #[arg(long, value_name = "NAME", default_value = NAME)]
    pub driver_name: String,
    /// The command foreread [default: beside this program, else from PATH]
    #[arg(long, value_name = "PATH")]
    pub foreread: Option<PathBuf>,
    /// A private folder for state that lives as long as a mount; best on a tmpfs
    #[arg(long, value_name = "DIR", default_value = "/run/foreread-csi")]
    pub state: PathBuf,
    /// Serve Prometheus metrics and /healthz here
    #[arg(long, value_name = "ADDR:PORT")]
    pub metrics: Option<SocketAddr>,
    /// Maximum number of volumes on a node
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub max_volumes: u32,
    /// Maximum number of inline volumes: any user that may create a pod can create them
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub max_inline: u32,
    /// Default cache memory of a volume, and the maximum for an inline one
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size)]
    pub cache: u64,
    /// Maximum cache memory of a volume
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size)]
    pub max_cache: u64,
    /// Folder for the disk caches of volumes with diskCache
    #[arg(long, value_name = "DIR")]
    pub disk_cache: Option<PathBuf>,
    /// Default disk cache size of a volume with diskCache
    #[arg(long, value_name = "SIZE", default_value = "10G", value_parser = size)]
    pub disk_cache_size: u64,
    /// Maximum disk cache size of a volume
    #[arg(long, value_name = "SIZE", default_value = "100G", value_parser = size)]
    pub max_disk_cache: u64,
    /// Time limit for 'foreread mount', in seconds
    ///
    /// The kubelet waits for two minutes.
    #[arg(long, value_name = "S", default_value = "90", value_parser = seconds)]
    pub mount_timeout: Duration,
    /// Allow inline volumes, in which pods name their source
    ///
    /// Inline volumes get only the credentials of their Secret.
    #[arg(long)]
    pub inline: bool,
    /// Allow inline volumes with sources without TLS
    ///
    /// With this option, any user that may create a pod can make the plugin send requests to every HTTP server that it can reach.
    #[arg(long, requires = "inline")]
    pub inline_http: bool,
    /// Accept volumes with a writing access mode, and mount them read-only
    #[arg(long)]
    pub any_access_mode: bool,
    /// Also provision volumes for claims (controller service)
    #[arg(long)]
    pub controller: bool,
    /// Node folders in which a volume's source may be
    #[arg(long, value_name = "DIR")]
    pub local: Vec<PathBuf>,
}

fn size(text: &str) -> Result<u64, String> {
    quantity(text).ok_or_else(|| "it is not a size such as 512M or 50Gi".to_string())
}

/// A size in foreread's notation (`50G`) or in that of Kubernetes (`50Gi`): both mean multiples of 1024.
pub fn quantity(text: &str) -> Option<u64> {
    let text = text.strip_suffix('i').unwrap_or(text);
    parse_size(text).ok().filter(|bytes| *bytes > 0)
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text
        .parse()
        .ok()
        .filter(|number| (1..=3600).contains(number));
    number
        .map(Duration::from_secs)
        .ok_or_else(|| "it is not a number of seconds from 1 to 3600".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_foreread_and_of_kubernetes() {
        for (text, bytes) in [("50Gi", 50 << 30), ("50G", 50 << 30), ("512", 512)] {
            assert_eq!(quantity(text), Some(bytes), "{text}");
        }
        for text in ["", "i", "0", "1e3", "-1", "9999999T"] {
            assert_eq!(quantity(text), None, "{text}");
        }
    }
}
