//! The options of `foreread-csi`.

use clap::Parser;
use foreread_core::units::parse_size;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The name by which volumes name the plugin, unless another is given.
pub const NAME: &str = "csi.foreread";

/// Serve volumes of Kubernetes by the Container Storage Interface
///
/// Mounts buckets, prefixes and repositories by 'foreread mount', once for each volume and node, and shows the mount to pods, read-only.
/// docs/kubernetes.md has the attributes of volumes; contrib/helm/foreread installs it.
#[derive(Clone, Debug, Parser)]
#[command(name = "foreread-csi", version)]
pub struct Arguments {
    /// The socket to serve at
    #[arg(long, value_name = "unix:PATH", default_value = "unix:///csi/csi.sock")]
    pub endpoint: String,
    /// The name of this node
    #[arg(long, value_name = "NAME")]
    pub node_id: String,
    /// The name of the plugin, as volumes and the CSIDriver object have it
    #[arg(long, value_name = "NAME", default_value = NAME)]
    pub driver_name: String,
    /// The command foreread [default: beside this one, else that of PATH]
    #[arg(long, value_name = "PATH")]
    pub foreread: Option<PathBuf>,
    /// A private folder for what lives as long as a mount; best on a tmpfs
    #[arg(long, value_name = "DIR", default_value = "/run/foreread-csi")]
    pub state: PathBuf,
    /// Serve Prometheus metrics and /healthz here
    #[arg(long, value_name = "ADDR:PORT")]
    pub metrics: Option<SocketAddr>,
    /// Volumes that a node may have
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub max_volumes: u32,
    /// Inline volumes among them: any user that may make a pod makes them
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub max_inline: u32,
    /// Memory for the cache of a volume that names none, and the most for an inline one
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size)]
    pub cache: u64,
    /// Memory that a volume may name
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size)]
    pub max_cache: u64,
    /// Volumes with diskCache keep bytes in folders below this one
    #[arg(long, value_name = "DIR")]
    pub disk_cache: Option<PathBuf>,
    /// Disk that a volume with diskCache has, unless it names a size
    #[arg(long, value_name = "SIZE", default_value = "10G", value_parser = size)]
    pub disk_cache_size: u64,
    /// Disk that a volume may name
    #[arg(long, value_name = "SIZE", default_value = "100G", value_parser = size)]
    pub max_disk_cache: u64,
    /// How long 'foreread mount' may take, in seconds
    ///
    /// The kubelet itself waits for two minutes.
    #[arg(long, value_name = "S", default_value = "90", value_parser = seconds)]
    pub mount_timeout: Duration,
    /// Let pods name sources themselves, in inline volumes
    ///
    /// They get no credentials but those of their Secret.
    #[arg(long)]
    pub inline: bool,
    /// Let inline volumes name stores without TLS
    ///
    /// The plugin then asks any HTTP server that it reaches, for every user that may make a pod.
    #[arg(long, requires = "inline")]
    pub inline_http: bool,
    /// Mount volumes read-only whose access mode would let them be written
    #[arg(long)]
    pub any_access_mode: bool,
    /// Make volumes of claims too: the controller service
    #[arg(long)]
    pub controller: bool,
    /// Folders of the node below which a volume's source may be
    #[arg(long, value_name = "DIR")]
    pub local: Vec<PathBuf>,
}

fn size(text: &str) -> Result<u64, String> {
    quantity(text).ok_or_else(|| "it is not a size such as 512M or 50Gi".to_string())
}

/// A size as foreread writes it (`50G`) or as Kubernetes does (`50Gi`): both are powers of two.
#[must_use]
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
