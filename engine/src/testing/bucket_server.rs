//! An S3 server for one bucket in memory: listings page by page, ranges, `If-Match`, and a count of what it was asked.
//!
//! A real server over a folder cannot hold every key that S3 allows (`dir//c`, `dir/..`, a newline), nor say how many
//! requests of each kind it had. Any bucket name will do; nothing is signed. Never: TLS, writes, or used outside tests and
//! benches.
//!
//! ```text
//!   GET /bucket?list-type=2&prefix=a/&delimiter=/&max-keys=2     a/x  a/y/*  a/z     ──► a/x, a/y/ and a token
//!   GET /bucket/KEY  Range, If-Match                             ──► 206, 404, 412, 416
//! ```

use super::link::{Link, PIECE_BYTES};
use super::range_server::{ServedRequest, parse_range, request};
use crate::source::object::decoded;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Most keys of one page, as with S3.
const MAX_KEYS: usize = 1000;

/// What it was asked so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Pages of listings.
    pub lists: u64,
    /// Objects and parts of them.
    pub gets: u64,
    /// Heads of objects.
    pub heads: u64,
}

impl Requests {
    /// Of all kinds.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.lists + self.gets + self.heads
    }
}

#[derive(Clone)]
struct Object {
    bytes: Arc<Vec<u8>>,
    /// Counts the objects that were ever put: the ETag.
    number: u64,
}

struct State {
    objects: BTreeMap<String, Object>,
    puts: u64,
    requests: Requests,
    link: Link,
}

/// See the head of this file.
pub struct BucketServer {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
}

impl BucketServer {
    /// An empty bucket.
    ///
    /// # Errors
    /// No port is free.
    pub fn start() -> std::io::Result<BucketServer> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let link = Link::new(Duration::ZERO, 0);
        let state = State { objects: BTreeMap::new(), puts: 0, requests: Requests::default(), link };
        let server =
            BucketServer { address: listener.local_addr()?, state: Arc::new(Mutex::new(state)), stop: Arc::default() };
        let (state, stop) = (Arc::clone(&server.state), Arc::clone(&server.stop));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let state = Arc::clone(&state);
                std::thread::spawn(move || drop(converse(&stream, &state)));
            }
        });
        Ok(server)
    }

    /// The variables of a client.
    #[must_use]
    pub fn variables(&self) -> Vec<(String, String)> {
        let endpoint = format!("http://{}", self.address);
        [("AWS_ENDPOINT_URL", endpoint.as_str()), ("AWS_ALLOW_HTTP", "true"), ("AWS_REGION", "us-east-1")]
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .into()
    }

    /// Puts an object, with an ETag that no other ever had.
    pub fn put(&self, key: &str, bytes: Vec<u8>) {
        let mut state = lock(&self.state);
        state.puts += 1;
        let object = Object { bytes: Arc::new(bytes), number: state.puts };
        state.objects.insert(key.to_string(), object);
    }

    /// Takes an object away.
    pub fn delete(&self, key: &str) {
        lock(&self.state).objects.remove(key);
    }

    /// From now on answers go over this link.
    pub fn link(&self, link: Link) {
        lock(&self.state).link = link;
    }

    /// What it was asked so far.
    #[must_use]
    pub fn requests(&self) -> Requests {
        lock(&self.state).requests
    }
}

impl Drop for BucketServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.address));
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Request after request of one connection.
fn converse(stream: &TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while let Some(seen) = request(&mut reader)? {
        let (path, query) = seen.target.split_once('?').unwrap_or((&seen.target, ""));
        let key = path.trim_start_matches('/').split_once('/').map(|(_, key)| text(key)).unwrap_or_default();
        let (answer, link) = {
            let mut state = lock(state);
            let lists = key.is_empty() && query.contains("list-type=2");
            match (lists, seen.method.as_str()) {
                (true, _) => state.requests.lists += 1,
                (false, "HEAD") => state.requests.heads += 1,
                (false, _) => state.requests.gets += 1,
            }
            let object = state.objects.get(&key).cloned();
            (if lists { Ok(page(&state.objects, query)) } else { Err(object) }, state.link.clone())
        };
        link.travel();
        match answer {
            Ok(page) => send(stream, "200 OK", "Content-Type: application/xml\r\n", page.as_bytes(), &link)?,
            Err(object) => part(stream, &seen, object.as_ref(), &link)?,
        }
    }
    stream.shutdown(Shutdown::Both)
}

fn text(coded: &str) -> String {
    String::from_utf8_lossy(&decoded(coded)).into_owned()
}

/// A part of an object, or why not.
fn part(stream: &TcpStream, seen: &ServedRequest, object: Option<&Object>, link: &Link) -> std::io::Result<()> {
    let refused = |status: &str, code: &str| {
        send(stream, status, "", format!("<Error><Code>{code}</Code></Error>").as_bytes(), link)
    };
    let Some(object) = object else { return refused("404 Not Found", "NoSuchKey") };
    let (etag, size) = (format!("\"{}\"", object.number), object.bytes.len() as u64);
    if seen.if_match.as_ref().is_some_and(|wanted| *wanted != etag) {
        return refused("412 Precondition Failed", "PreconditionFailed");
    }
    let head = format!("ETag: {etag}\r\nLast-Modified: Fri, 02 Jan 2026 03:04:05 GMT\r\n");
    let range = seen.range.as_deref().and_then(parse_range);
    match range {
        Some(range) if range.start >= size => {
            send(stream, "416 Range Not Satisfiable", &format!("Content-Range: bytes */{size}\r\n"), b"", link)
        }
        Some(range) => {
            let end = range.end.min(size);
            let head = format!("{head}Content-Range: bytes {}-{}/{size}\r\n", range.start, end - 1);
            send(stream, "206 Partial Content", &head, &object.bytes[range.start as usize..end as usize], link)
        }
        None if seen.method == "HEAD" => {
            let mut out = stream;
            write!(out, "HTTP/1.1 200 OK\r\n{head}Content-Length: {size}\r\n\r\n")
        }
        None => send(stream, "200 OK", &head, &object.bytes, link),
    }
}

fn send(stream: &TcpStream, status: &str, head: &str, body: &[u8], link: &Link) -> std::io::Result<()> {
    let mut out = stream;
    let ready = Instant::now();
    let mut head = format!("HTTP/1.1 {status}\r\n{head}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
    // A short answer is one packet.
    for piece in body.chunks(PIECE_BYTES) {
        link.pass(piece.len(), ready);
        head.extend_from_slice(piece);
        out.write_all(&head)?;
        head.clear();
    }
    out.write_all(&head)
}

/// A page of the keys, as XML.
fn page(objects: &BTreeMap<String, Object>, query: &str) -> String {
    let values: BTreeMap<String, String> = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let value = |name: &str| values.get(name).map_or("", String::as_str);
    let (prefix, delimiter) = (value("prefix"), value("delimiter"));
    let after = if value("continuation-token").is_empty() { value("start-after") } else { value("continuation-token") };
    let most = value("max-keys").parse().unwrap_or(MAX_KEYS).min(MAX_KEYS);
    let (mut body, mut count, mut last) = (String::new(), 0, String::new());
    let mut truncated = false;
    for (key, object) in objects.range::<str, _>((Bound::Excluded(after), Bound::Unbounded)) {
        let Some(rest) = key.strip_prefix(prefix) else { continue };
        let folder = rest.find(delimiter).filter(|_| !delimiter.is_empty()).map(|at| &key[..prefix.len() + at + 1]);
        // Behind a folder that was named, the page goes on with what is not in it.
        if folder.is_some_and(|folder| folder == last || after.starts_with(folder)) {
            continue;
        }
        truncated = count == most;
        if truncated {
            break;
        }
        count += 1;
        last = folder.unwrap_or(key).to_string();
        let name = escaped(&last);
        // Writing to a text cannot fail.
        let _ = match folder {
            Some(_) => write!(body, "<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>"),
            None => write!(
                body,
                "<Contents><Key>{name}</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified>\
                 <ETag>&quot;{}&quot;</ETag><Size>{}</Size></Contents>",
                object.number,
                object.bytes.len()
            ),
        };
    }
    let token = if truncated { escaped(&last) } else { String::new() };
    let token = if truncated { format!("<NextContinuationToken>{token}</NextContinuationToken>") } else { token };
    format!("<ListBucketResult><IsTruncated>{truncated}</IsTruncated>{token}{body}</ListBucketResult>")
}

/// As text of XML; controls are numbers, which is what S3 writes.
fn escaped(text: &str) -> String {
    let mut all = String::new();
    for c in text.chars() {
        if c.is_control() || "&<>".contains(c) {
            let _ = write!(all, "&#{};", u32::from(c));
        } else {
            all.push(c);
        }
    }
    all
}
