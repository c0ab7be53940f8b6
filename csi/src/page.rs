//! The HTTP side: `/metrics` for Prometheus and `/healthz` for a probe, and the fetch of a mount's page. HTTP/1.1, one request for each
//! connection, within limits of bytes and of time.

use crate::identity::obstacle;
use crate::metrics::{END, merged};
use crate::node::NodeParts;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Time limit for a client's request.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for fetching a mount's page.
const MOUNT_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_REQUEST: usize = 4096;
/// Maximum bytes of a mount's page. With many open files it has some hundred kilobytes.
const MAX_PAGE: u64 = 4 << 20;
const MAX_CLIENTS: usize = 8;

/// Serves until the process ends.
pub async fn serve(listener: TcpListener, parts: Arc<NodeParts>) {
    let free = Arc::new(Semaphore::new(MAX_CLIENTS));
    loop {
        let Ok(permit) = Arc::clone(&free).acquire_owned().await else {
            return;
        };
        let Ok((mut client, _)) = listener.accept().await else {
            // File descriptors have run out for a moment.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let parts = Arc::clone(&parts);
        tokio::spawn(async move {
            let answered = async {
                let text = answer(&request(&mut client).await, &parts).await;
                let _ = client.write_all(text.as_bytes()).await;
                let _ = client.shutdown().await;
            };
            let _ = timeout(CLIENT_TIMEOUT, answered).await;
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
            ("200 OK", metrics(parts).await)
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

/// The plugin's page and those of all mounts. A mount that does not answer is left out, but counted in `foreread_csi_mounts`.
async fn metrics(parts: &NodeParts) -> String {
    let state = &parts.command.state;
    let mut asked = Vec::new();
    for name in state.names() {
        if let Some(address) = state.note(&name).metrics {
            asked.push((name, tokio::spawn(timeout(MOUNT_TIMEOUT, fetched(address)))));
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
