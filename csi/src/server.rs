//! Starts and stops the plugin: the socket, the services, the metrics page over HTTP.

use crate::arguments::Arguments;
use crate::command::MountCommand;
use crate::controller::{ControllerService, IdentityService, obstacle};
use crate::metrics::{CallCounts, END, merged};
use crate::mounts::MountTable;
use crate::node::{NodeParts, NodeService};
use crate::spec::controller_server::ControllerServer;
use crate::spec::identity_server::IdentityServer;
use crate::spec::node_server::NodeServer;
use crate::state::{Claims, StateFolder};
use foreread_os::failure::Failure;
use std::fs::Permissions;
use std::io::Error;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::time;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

/// Maximum bytes of a message. The largest contains a Secret of at most 1 MiB.
const MAX_MESSAGE: usize = 2 << 20;
/// Maximum number of concurrent calls on one connection.
const MAX_CALLS: usize = 64;

/// Serves until SIGTERM or SIGINT. The mounts continue to work after that. Returns an error if the socket, the state folder or the metrics
/// page is unavailable.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let remedy = "allow more threads and descriptors";
    let cannot = |error| Failure::cannot("cannot start to serve", error, remedy);
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
    let on_disk = (arguments.disk_cache_size, arguments.max_disk_cache);
    let limits = [
        ("cache", (arguments.cache, arguments.max_cache)),
        ("disk-cache-size", on_disk),
    ];
    for (option, (usual, most)) in limits {
        if usual > most {
            let place = format!("--{option} is {usual} bytes, more than the maximum of {most}");
            let what = "the default size is larger than the maximum";
            let remedy = "reduce it, or raise the maximum";
            return Err(Failure::input(what, place, remedy));
        }
    }
    let socket = socket(&arguments.endpoint)?;
    let state = StateFolder::open(&arguments.state).map_err(|error| {
        let place = format!("{}: {error}", arguments.state.display());
        let what = "cannot make the folder of the state";
        Failure::input(what, place, "use another folder with --state")
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
            let place = format!("{address}: {error}");
            Failure::input("cannot serve metrics", place, "use another port")
        })?;
        let address = listener.local_addr().unwrap_or(address);
        eprintln!("foreread-csi: metrics at http://{address}/metrics");
        tokio::spawn(serve_pages(listener, Arc::clone(&parts)));
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
    let name = &arguments.driver_name;
    eprintln!("foreread-csi: {name} at {}", socket.display());
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
    let remedy = "write unix:///csi/csi.sock";
    Err(Failure::input("no unix socket", endpoint, remedy))
}

/// Listens with access for this user only. A stale socket of an earlier plugin is replaced; a socket in use is not.
fn listening(path: &Path) -> Result<UnixListener, Failure> {
    let fail = |error: Error| {
        let place = format!("{}: {error}", path.display());
        Failure::input("cannot listen", place, "use another socket with --endpoint")
    };
    match std::fs::symlink_metadata(path) {
        Ok(meta) if !meta.file_type().is_socket() => {
            return Err(fail(Error::other("it is not a socket")));
        }
        Ok(_) if UnixStream::connect(path).is_ok() => {
            return Err(fail(Error::other("another plugin serves it")));
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

// The HTTP side: `/metrics` for Prometheus and `/healthz` for a probe, and the fetch of a mount's page. HTTP/1.1, one request for each
// connection, within limits of bytes and of time.

/// Time limit for a client's request.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for fetching a mount's page.
const MOUNT_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_REQUEST: usize = 4096;
/// Maximum bytes of a mount's page. With many open files it has some hundred kilobytes.
const MAX_PAGE: u64 = 4 << 20;
const MAX_CLIENTS: usize = 8;

/// Serves the pages until the process ends.
async fn serve_pages(listener: TcpListener, parts: Arc<NodeParts>) {
    let free = Arc::new(Semaphore::new(MAX_CLIENTS));
    loop {
        let Ok(permit) = Arc::clone(&free).acquire_owned().await else {
            return;
        };
        let Ok((mut client, _)) = listener.accept().await else {
            // File descriptors have run out for a moment.
            time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let parts = Arc::clone(&parts);
        tokio::spawn(async move {
            let answered = async {
                let text = answer(&request(&mut client).await, &parts).await;
                let _ = client.write_all(text.as_bytes()).await;
                let _ = client.shutdown().await;
            };
            let _ = time::timeout(CLIENT_TIMEOUT, answered).await;
            drop(permit);
        });
    }
}

async fn request(client: &mut (impl AsyncRead + Unpin)) -> String {
    let (mut bytes, mut some) = (Vec::new(), [0; 512]);
    while bytes.len() < MAX_REQUEST && !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
        match client.read(&mut some).await {
            Ok(0) | Err(_) => break,
            Ok(read) => bytes.extend(&some[..read]),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn answer(request: &str, parts: &NodeParts) -> String {
    let mut words = request.split(' ');
    let (method, path) = (words.next(), words.next());
    let (mut kind, is_page) = ("text/plain; charset=utf-8", path == Some("/metrics"));
    let (status, body) = match (method, path) {
        (Some("GET"), _) if is_page => {
            kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ("200 OK", pages(parts).await)
        }
        (Some("GET"), Some("/healthz")) => match obstacle(&parts.command.program) {
            None => ("200 OK", "ok\n".to_string()),
            Some(why) => ("503 Service Unavailable", format!("{why}\n")),
        },
        (Some("GET"), _) => ("404 Not Found", "/metrics or /healthz\n".to_string()),
        _ => ("405 Method Not Allowed", "GET\n".to_string()),
    };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// The plugin's page and the pages of all mounts. A mount that does not answer is omitted, but counted in `foreread_csi_mounts`.
async fn pages(parts: &NodeParts) -> String {
    let state = &parts.command.state;
    let mut asked = Vec::new();
    for name in state.names() {
        if let Some(address) = state.note(&name).metrics {
            let page = time::timeout(MOUNT_TIMEOUT, fetched(address));
            asked.push((name, tokio::spawn(page)));
        }
    }
    let mut pages = Vec::new();
    for (name, page) in asked {
        if let Ok(Ok(Some(page))) = page.await {
            pages.push((name, page));
        }
    }
    let own = parts.counts.page(parts.mounts.servers());
    format!("{own}{}{END}\n", merged(&pages))
}

async fn fetched(address: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut text = String::new();
    stream.take(MAX_PAGE).read_to_string(&mut text).await.ok()?;
    let (head, page) = text.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 200 ").then(|| page.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_unix_sockets() {
        for before in ["unix://", "unix:", ""] {
            let found = socket(&format!("{before}/csi/csi.sock")).expect("good");
            assert_eq!(found, Path::new("/csi/csi.sock"));
        }
        for endpoint in ["", "unix:", "tcp://127.0.0.1:1", "csi.sock"] {
            assert!(socket(endpoint).is_err(), "{endpoint}");
        }
    }
}
