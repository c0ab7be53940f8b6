//! Starts and stops the plugin: the socket, the services, the metrics page.

use crate::command::MountCommand;
use crate::controller::{ControllerService, IdentityService};
use crate::metrics;
use crate::metrics::CallCounts;
use crate::mounts::MountTable;
use crate::node::{NodeParts, NodeService};
use crate::spec::controller_server::ControllerServer;
use crate::spec::identity_server::IdentityServer;
use crate::spec::node_server::NodeServer;
use crate::state::{Claims, StateFolder};
use clap::Parser;
use foreread_core::units::parse_size;
use foreread_os::failure::Failure;
use std::fs::Permissions;
use std::io::{Error, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

/// Maximum bytes of a message. The largest contains a Secret of at most 1 MiB.
const MAX_MESSAGE: usize = 2 << 20;
/// Maximum number of concurrent calls on one connection.
const MAX_CALLS: usize = 64;

/// Serves until SIGTERM or SIGINT. The mounts stay. Errors: the socket, the state folder or the metrics page is unavailable.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let cannot = |error| {
        Failure::cannot(
            "cannot start to serve",
            error,
            "allow more threads and descriptors",
        )
    };
    let runtime = runtime.map_err(cannot)?;
    let served = runtime.block_on(serve(arguments));
    // Threads blocked on hung mounts are not waited for.
    runtime.shutdown_background();
    served
}

async fn serve(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.node_id.is_empty() || arguments.node_id.len() > 256 {
        let remedy = "give the name of the node, of at most 256 letters";
        return Err(Failure::input("invalid node name", "--node-id", remedy));
    }
    let limits = [
        ("cache", arguments.cache, arguments.max_cache),
        (
            "disk-cache-size",
            arguments.disk_cache_size,
            arguments.max_disk_cache,
        ),
    ];
    for (option, usual, most) in limits {
        if usual > most {
            let place = format!("--{option} is {usual} bytes, more than the maximum of {most}");
            let remedy = "reduce it, or raise the maximum";
            return Err(Failure::input(
                "the default size is larger than the maximum",
                place,
                remedy,
            ));
        }
    }
    let socket = socket(&arguments.endpoint)?;
    let state = StateFolder::open(&arguments.state).map_err(|error| {
        let place = format!("{}: {error}", arguments.state.display());
        Failure::input(
            "cannot make the folder of the state",
            place,
            "use another folder with --state",
        )
    })?;
    let program = program(arguments.foreread.as_deref());
    let parts = Arc::new(NodeParts {
        arguments: arguments.clone(),
        mounts: MountTable::here(),
        command: MountCommand {
            program: program.clone(),
            timeout: arguments.mount_timeout,
            has_metrics: arguments.metrics.is_some(),
            state,
        },
        counts: CallCounts::default(),
        busy: Claims::default(),
    });
    let no_signals =
        |error: Error| Failure::cannot("cannot handle signals", error, "start it again");
    let mut terminate = signal(SignalKind::terminate()).map_err(no_signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(no_signals)?;
    if let Some(address) = arguments.metrics {
        let listener = TcpListener::bind(address).await.map_err(|error| {
            Failure::input(
                "cannot serve metrics",
                format!("{address}: {error}"),
                "use another port",
            )
        })?;
        let address = listener.local_addr().unwrap_or(address);
        eprintln!("foreread-csi: metrics at http://{address}/metrics");
        tokio::spawn(metrics::serve(listener, Arc::clone(&parts)));
    }
    let listener = listening(&socket)?;
    let identity = IdentityService {
        arguments: arguments.clone(),
        program,
    };
    let controller = ControllerService {
        arguments: arguments.clone(),
    };
    let ended = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    eprintln!(
        "foreread-csi: {} at {}",
        arguments.driver_name,
        socket.display()
    );
    let served = Server::builder()
        .concurrency_limit_per_connection(MAX_CALLS)
        .add_service(IdentityServer::new(identity).max_decoding_message_size(MAX_MESSAGE))
        .add_service(ControllerServer::new(controller).max_decoding_message_size(MAX_MESSAGE))
        .add_service(
            NodeServer::new(NodeService::new(parts)).max_decoding_message_size(MAX_MESSAGE),
        )
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), ended)
        .await;
    let _ = std::fs::remove_file(&socket);
    served.map_err(|error| Failure::cannot("the plugin has ended", error, "start it again"))
}

/// The path of `unix:///csi/csi.sock`, `unix:/csi/csi.sock` or `/csi/csi.sock`.
fn socket(endpoint: &str) -> Result<PathBuf, Failure> {
    let path = endpoint.strip_prefix("unix:").unwrap_or(endpoint);
    let path = path.strip_prefix("//").unwrap_or(path);
    if path.starts_with('/') {
        return Ok(PathBuf::from(path));
    }
    Err(Failure::input(
        "no unix socket",
        endpoint,
        "write unix:///csi/csi.sock",
    ))
}

/// Listens with access for this user only. A stale socket of an earlier plugin is replaced; a socket in use is not.
fn listening(path: &Path) -> Result<UnixListener, Failure> {
    let fail = |error: Error| {
        let place = format!("{}: {error}", path.display());
        Failure::input("cannot listen", place, "use another socket with --endpoint")
    };
    match std::fs::symlink_metadata(path) {
        Ok(meta) if !meta.file_type().is_socket() => {
            return Err(fail(Error::new(
                ErrorKind::AlreadyExists,
                "it is not a socket",
            )));
        }
        Ok(_) if UnixStream::connect(path).is_ok() => {
            return Err(fail(Error::new(
                ErrorKind::AddrInUse,
                "another plugin serves it",
            )));
        }
        Ok(_) => std::fs::remove_file(path).map_err(fail)?,
        Err(_) => {}
    }
    let listener = UnixListener::bind(path).map_err(fail)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(fail)?;
    Ok(listener)
}

/// The path of the command foreread: as given, or next to this program, or from PATH.
fn program(named: Option<&Path>) -> PathBuf {
    if let Some(named) = named {
        return named.to_path_buf();
    }
    let beside = std::env::current_exe().ok();
    let beside = beside
        .map(|own| own.with_file_name("foreread"))
        .filter(|path| path.is_file());
    beside.unwrap_or_else(|| PathBuf::from("foreread"))
}

// The options of `foreread-csi`.

/// The default name of the plugin, which volumes use.
pub const NAME: &str = "csi.foreread";

/// Serve volumes of Kubernetes by the Container Storage Interface
///
/// Mounts buckets, prefixes and repositories with 'foreread mount', once for each volume and node, and bind-mounts them read-only into pods.
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
    /// The name of the plugin in volumes and in the CSIDriver object
    #[arg(long, value_name = "NAME", default_value = NAME)]
    pub driver_name: String,
    /// The command foreread [default: the one beside this program, else from PATH]
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
    /// They get only the credentials of their Secret.
    #[arg(long)]
    pub inline: bool,
    /// Allow inline volumes with sources without TLS
    ///
    /// Then any user that may create a pod can make the plugin send requests to every HTTP server that it can reach.
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

/// A size in foreread's notation (`50G`) or in that of Kubernetes (`50Gi`): both are powers of two.
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
    fn endpoints_are_unix_sockets() {
        for endpoint in [
            "unix:///csi/csi.sock",
            "unix:/csi/csi.sock",
            "/csi/csi.sock",
        ] {
            assert_eq!(socket(endpoint).expect("good"), Path::new("/csi/csi.sock"));
        }
        for endpoint in ["", "unix:", "tcp://127.0.0.1:1", "csi.sock"] {
            assert!(socket(endpoint).is_err(), "{endpoint}");
        }
    }

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
