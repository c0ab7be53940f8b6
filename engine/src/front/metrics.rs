//! Serves `GET /metrics` for Prometheus, as OpenMetrics, or as plain text for clients that do not accept OpenMetrics, such as
//! browsers. The page `/` has a link to `/metrics`.
//!
//! One thread serves all clients, with one request per connection and a limit of two seconds for each request. A single thread is enough,
//! because Prometheus sends a request only every few seconds, and the time limit keeps a slow client from blocking others. The server
//! reads at most 8 KiB of a request, does not keep connections open, and is reachable from other machines only if configured.
//!
//! ```text
//!   accept ──► head of a request, at most 8 KiB, within 2 s ──► 200 with the text, 404, 405, 431 ──► closed
//! ```

mod table;
mod text;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use table::{
    FrontView, MAX_STREAMS, Metric, MetricBuckets, MetricKind, MetricPoint, MetricUnit,
    MetricValue, table,
};
pub use text::text;

/// Maximum length of a request head in bytes.
const MAX_HEAD: usize = 8 << 10;
/// Time limit for receiving the request, and for sending the answer.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// For a client that does not accept OpenMetrics; a browser displays this type.
const PLAIN: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const INDEX: &str = "<!doctype html><title>foreread</title><p><a href=\"/metrics\">metrics</a>\n";

/// The HTTP server of the metrics, which runs until it is dropped.
pub struct MetricsServer {
    address: SocketAddr,
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Listens on an address, and answers each request with the text that `say` returns. Clients need no password, so use a local
    /// address.
    ///
    /// # Errors
    /// Returns an error if the address is in use or not allowed.
    pub fn start(
        address: SocketAddr,
        say: impl Fn() -> String + Send + 'static,
    ) -> std::io::Result<MetricsServer> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let ending = Arc::new(AtomicBool::new(false));
        let own = Arc::clone(&ending);
        let work = move || {
            for stream in listener.incoming() {
                if own.load(Ordering::SeqCst) {
                    return;
                }
                match stream {
                    // An error of a scraper that disconnected is ignored.
                    Ok(stream) => drop(serve(stream, &say)),
                    // Out of file descriptors: wait until some may have been closed.
                    Err(_) => std::thread::sleep(Duration::from_millis(50)),
                }
            }
        };
        let thread = Some(crate::system::spawn("foreread-metrics", None, work)?);
        Ok(MetricsServer {
            address,
            ending,
            thread,
        })
    }

    /// The URL of the metrics page.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/metrics", self.address)
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::SeqCst);
        let mut to = self.address;
        if to.ip().is_unspecified() {
            let local = if to.is_ipv4() { "127.0.0.1" } else { "::1" };
            to.set_ip(local.parse().expect("an address"));
        }
        // Wakes the thread; if that fails, the thread ends with the process.
        if TcpStream::connect_timeout(&to, CLIENT_TIMEOUT).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

fn serve(mut stream: TcpStream, say: &impl Fn() -> String) -> std::io::Result<()> {
    stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let Some(head) = head(&mut stream)? else {
        return answer(
            &mut stream,
            "431 Request Header Fields Too Large",
            PLAIN,
            "",
        );
    };
    let mut words = head.split([' ', '\r']);
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let path = target.split('?').next().unwrap_or(target);
    let (kind, body) = match (method, path) {
        ("GET" | "HEAD", "/metrics") if accepts_open_metrics(&head) => (OPEN_METRICS, say()),
        ("GET" | "HEAD", "/metrics") => (PLAIN, say()),
        ("GET" | "HEAD", "/") => (HTML, INDEX.to_string()),
        ("GET" | "HEAD", _) => return answer(&mut stream, "404 Not Found", PLAIN, ""),
        _ => return answer(&mut stream, "405 Method Not Allowed", PLAIN, ""),
    };
    let body = if method == "GET" { &body } else { "" };
    answer(&mut stream, "200 OK", kind, body)
}

/// Whether to answer with OpenMetrics: the client accepts the type, or sends no `Accept` header.
fn accepts_open_metrics(head: &str) -> bool {
    let accepts = head.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("accept").then_some(value)
    });
    let mut accepts = accepts.peekable();
    accepts.peek().is_none() || accepts.any(|value| value.contains("application/openmetrics-text"))
}

/// Reads the head of a request. Returns `None` if it is too long.
fn head(stream: &mut TcpStream) -> std::io::Result<Option<String>> {
    let until = Instant::now() + CLIENT_TIMEOUT;
    let mut bytes = Vec::new();
    let mut part = [0; 1024];
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
        if bytes.len() > MAX_HEAD {
            return Ok(None);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            read => bytes.extend_from_slice(&part[..read]),
        }
    }
    let end = bytes.windows(4).position(|end| end == b"\r\n\r\n");
    let head = &bytes[..end.unwrap_or(bytes.len())];
    Ok(Some(String::from_utf8_lossy(head).into_owned()))
}

fn answer(stream: &mut TcpStream, status: &str, kind: &str, body: &str) -> std::io::Result<()> {
    let len = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n"
    );
    let whole = [head.as_bytes(), body.as_bytes()].concat();
    let until = Instant::now() + CLIENT_TIMEOUT;
    let mut rest = &whole[..];
    // A client that only takes a byte from time to time is disconnected, too.
    while !rest.is_empty() && Instant::now() < until {
        match stream.write(rest)? {
            0 => break,
            written => rest = &rest[written..],
        }
    }
    Ok(())
}
