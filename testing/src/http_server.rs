//! An HTTP server: the code that all servers of this crate share. A function that the test provides returns the replies. A test can also
//! make the server send wrong replies.
//!
//! The server has one thread for each connection, and no async runtime. The server ends when it is dropped. The server has no
//! TLS; use it only for tests and benchmarks.
//!
//! ```text
//!   request ──► a lie left? ── Silence, Status, Garbage, ... ──► the lie alone
//!                   │ no, or a lie that changes a right answer
//!                   ▼
//!               the server's own answer ──► the lie ──► the edit ──► sent over the link
//! ```
//! Example: after `edit(|seen, answer| answer.set("etag", "\"other\""))`, every object seems to have changed.

use super::link::{Link, PIECE_BYTES};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Number of requests that are remembered.
const MAX_SEEN: usize = 1 << 16;
/// Maximum length of a request head.
const MAX_HEAD: u64 = 64 << 10;
/// Maximum length of a request body.
const MAX_BODY: u64 = 64 << 20;

/// A wrong answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lie {
    /// 200 and the whole object, whatever was requested.
    IgnoreRange,
    /// `Content-Range` gives another range.
    ContentRange,
    /// `Content-Range` is missing.
    NoContentRange,
    /// `Content-Range` gives another size of the object.
    OtherSize,
    /// This many bytes more (or fewer) than requested, with a matching `Content-Length`.
    Length(i64),
    /// `Content-Encoding: gzip`.
    Gzip,
    /// The object's bytes with a wrong ETag or generation.
    OtherEtag,
    /// No ETag, although the object has one.
    NoEtag,
    /// 304 with this ETag, whatever was requested.
    Unmodified(Option<&'static str>),
    /// Conditions are ignored.
    NoCondition,
    /// Nothing is sent, and the connection stays open.
    Silence,
    /// Nothing is sent after this many bytes of the body.
    Stall(usize),
    /// The body is sent one byte at a time, at this interval.
    Dribble(Duration),
    /// The connection is reset after this many bytes of the body.
    Reset(usize),
    /// The connection is closed normally after this many bytes of the body.
    Close(usize),
    /// This status, with `Retry-After` in seconds.
    Status(u16, Option<u64>),
    /// 500 and an endless body.
    EndlessError,
    RedirectLoop,
    EndlessHeaders,
    /// Bytes that are not HTTP.
    Garbage,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServedRequest {
    /// GET or HEAD.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Every header, with its name in lower case.
    pub headers: Vec<(String, String)>,
}

impl ServedRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(own, _)| own == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the requested range of bytes: `bytes=FIRST-LAST` or `bytes=FIRST-`.
    pub fn range(&self) -> Option<Range<u64>> {
        let (first, last) = self
            .header("range")?
            .strip_prefix("bytes=")?
            .split_once('-')?;
        let end = if last.is_empty() {
            u64::MAX
        } else {
            last.parse::<u64>().ok()?.checked_add(1)?
        };
        Some(first.parse().ok()?..end)
    }
}

/// An answer of the server, before it is sent.
#[derive(Clone, Debug, Default)]
pub struct ServedAnswer {
    pub status: u16,
    /// Every header except those for the body's length.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Whether the body is sent in chunks, without its length.
    pub is_chunked: bool,
}

impl ServedAnswer {
    /// Creates an answer without headers.
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> ServedAnswer {
        ServedAnswer {
            status,
            body: body.into(),
            ..ServedAnswer::default()
        }
    }

    /// Creates an error answer in the format of S3.
    pub fn error(status: u16, code: &str) -> ServedAnswer {
        ServedAnswer::new(status, format!("<Error><Code>{code}</Code></Error>"))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(own, _)| own.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// Sets a header, replacing an existing value; an empty value removes the header.
    pub fn set(&mut self, name: &str, value: &str) {
        self.headers
            .retain(|(own, _)| !own.eq_ignore_ascii_case(name));
        if !value.is_empty() {
            self.headers.push((name.to_string(), value.to_string()));
        }
    }

    /// Sets the requested part of an object of `size` bytes, read by `read`: 416 beyond its end, 200 for the whole object.
    pub(super) fn part(
        mut self,
        seen: &ServedRequest,
        size: u64,
        read: impl FnOnce(Range<u64>) -> io::Result<Vec<u8>>,
    ) -> io::Result<ServedAnswer> {
        self.set("Accept-Ranges", "bytes");
        let range = match seen.range() {
            Some(range) if range.start >= size => {
                self.status = 416;
                self.set("Content-Range", &format!("bytes */{size}"));
                return Ok(self);
            }
            Some(range) => {
                let range = range.start..range.end.min(size);
                self.status = 206;
                self.set_range([range.start, range.end - 1, size]);
                range
            }
            None => 0..size,
        };
        self.body = read(range)?;
        Ok(self)
    }

    /// FROM, TO and SIZE of its `Content-Range`.
    fn range(&self) -> Option<[u64; 3]> {
        let (range, size) = self.header("content-range")?.split_once('/')?;
        let (from, to) = range.strip_prefix("bytes ")?.split_once('-')?;
        Some([from.parse().ok()?, to.parse().ok()?, size.parse().ok()?])
    }

    fn set_range(&mut self, [from, to, size]: [u64; 3]) {
        self.set("Content-Range", &format!("bytes {from}-{to}/{size}"));
    }

    /// Applies a lie about a part of an object.
    fn change(&mut self, lie: &Lie) {
        let Some([from, to, size]) = self.range().filter(|_| self.status == 206) else {
            return;
        };
        match lie {
            Lie::IgnoreRange => {
                self.status = 200;
                self.set("content-range", "");
                // Adds zeroes before and after the part.
                self.body.splice(0..0, vec![0; from as usize]);
                self.body.resize(size as usize, 0);
            }
            Lie::ContentRange => self.set_range([from + 1, to + 1, size]),
            Lie::NoContentRange => self.set("content-range", ""),
            Lie::OtherSize => self.set_range([from, to, size + 1]),
            Lie::Length(more) => {
                let len = (self.body.len() as u64).saturating_add_signed(*more);
                self.body.resize(len as usize, 0);
            }
            Lie::Gzip => self.set("content-encoding", "gzip"),
            Lie::OtherEtag => {
                self.set("etag", "\"other\"");
                self.set("x-goog-generation", "7");
            }
            Lie::NoEtag => {
                self.set("etag", "");
                self.set("x-goog-generation", "");
            }
            _ => {}
        }
    }
}

type Handler = dyn Fn(&ServedRequest, &[u8]) -> io::Result<ServedAnswer> + Send + Sync;
type Edit = dyn Fn(&ServedRequest, &mut ServedAnswer) + Send + Sync;

struct ServerState {
    lies: Vec<(Lie, u64)>,
    edit: Option<Arc<Edit>>,
    seen: Vec<ServedRequest>,
    link: Link,
    connections: u64,
    /// Requests that are being answered, the maximum number of them, and the number of further requests refused with 503.
    under_way: u32,
    most: u32,
    refused: u64,
}

/// A server that runs until it is dropped.
pub struct HttpServer {
    address: SocketAddr,
    state: Arc<Mutex<ServerState>>,
    stop: Arc<AtomicBool>,
}

impl HttpServer {
    /// Listens on a port of this machine. The handler is called with each request and its body; if it returns an error, the
    /// connection is closed.
    pub fn start(
        handler: impl Fn(&ServedRequest, &[u8]) -> io::Result<ServedAnswer> + Send + Sync + 'static,
    ) -> io::Result<HttpServer> {
        HttpServer::on(TcpListener::bind("127.0.0.1:0")?, handler)
    }

    pub(super) fn on(
        listener: TcpListener,
        handler: impl Fn(&ServedRequest, &[u8]) -> io::Result<ServedAnswer> + Send + Sync + 'static,
    ) -> io::Result<HttpServer> {
        let server = HttpServer {
            address: listener.local_addr()?,
            state: Arc::new(Mutex::new(ServerState {
                lies: Vec::new(),
                edit: None,
                seen: Vec::new(),
                link: Link::new(Duration::ZERO, 0),
                connections: 0,
                under_way: 0,
                most: u32::MAX,
                refused: 0,
            })),
            stop: Arc::default(),
        };
        let (state, stop) = (Arc::clone(&server.state), Arc::clone(&server.stop));
        let handler: Arc<Handler> = Arc::new(handler);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                lock(&state).connections += 1;
                let (state, stop) = (Arc::clone(&state), Arc::clone(&stop));
                let handler = Arc::clone(&handler);
                std::thread::spawn(move || drop(converse(&stream, &*handler, &state, &stop)));
            }
        });
        Ok(server)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends this lie (a deliberately wrong answer) in reply to the next `times` requests. Lies of earlier calls that were not sent yet are
    /// sent first. HEAD requests are not counted.
    pub fn lie(&self, lie: Lie, times: u64) {
        lock(&self.state).lies.push((lie, times));
    }

    /// From now on, applies this change to every answer.
    pub fn edit(&self, edit: impl Fn(&ServedRequest, &mut ServedAnswer) + Send + Sync + 'static) {
        lock(&self.state).edit = Some(Arc::new(edit));
    }

    /// From now on, gives correct answers.
    pub fn honest(&self) {
        let mut state = lock(&self.state);
        state.lies.clear();
        state.edit = None;
    }

    /// From now on, answers with 503 if more than this number of requests are in flight.
    pub fn at_most(&self, requests: u32) {
        lock(&self.state).most = requests;
    }

    /// Returns the number of requests that were refused because of [`HttpServer::at_most`].
    pub fn refused(&self) -> u64 {
        lock(&self.state).refused
    }

    pub fn connections(&self) -> u64 {
        lock(&self.state).connections
    }

    /// From now on, sends answers over this simulated link.
    pub fn link(&self, link: Link) {
        lock(&self.state).link = link;
    }

    /// Returns all requests so far, but at most the first 65,536.
    pub fn seen(&self) -> Vec<ServedRequest> {
        lock(&self.state).seen.clone()
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.address));
    }
}

/// Takes the lock, even if a test panicked while it held it.
pub(super) fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers the requests of one connection, one after another.
fn converse(
    stream: &TcpStream,
    handler: &Handler,
    state: &Mutex<ServerState>,
    stop: &AtomicBool,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while let Some((seen, body)) = request(&mut reader)? {
        let (lie, edit, link) = {
            let mut state = lock(state);
            if state.seen.len() < MAX_SEEN {
                state.seen.push(seen.clone());
            }
            let mut lie = None;
            if seen.method != "HEAD" {
                state.lies.retain(|(_, left)| *left > 0);
                if let Some((next, left)) = state.lies.first_mut() {
                    *left -= 1;
                    lie = Some(next.clone());
                }
            }
            state.under_way += 1;
            if state.under_way > state.most {
                state.refused += 1;
                lie = Some(Lie::Status(503, None));
            }
            (lie, state.edit.clone(), state.link.clone())
        };
        link.travel();
        let own = || {
            let mut asked = seen.clone();
            if lie == Some(Lie::NoCondition) {
                asked.headers.retain(|(name, _)| !name.starts_with("if-"));
            }
            let mut answer = handler(&asked, &body)?;
            if let Some(lie) = &lie {
                answer.change(lie);
            }
            if let Some(edit) = edit {
                edit(&seen, &mut answer);
            }
            let is_head = seen.method == "HEAD";
            send(stream, answer, is_head, lie.as_ref(), &link, stop)
        };
        let goes_on = match strange(stream, &seen, lie.as_ref(), stop) {
            Ok(None) => own(),
            Ok(Some(goes_on)) => Ok(goes_on),
            Err(error) => Err(error),
        };
        lock(state).under_way -= 1;
        if !goes_on? {
            break;
        }
    }
    stream.shutdown(Shutdown::Both)
}

/// Reads a request. Returns `None` if the client has disconnected.
fn request(reader: &mut impl BufRead) -> io::Result<Option<(ServedRequest, Vec<u8>)>> {
    let mut head = reader.by_ref().take(MAX_HEAD);
    let mut line = String::new();
    if head.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(str::to_string);
    let seen = ServedRequest {
        method: words.next().unwrap_or_default(),
        target: words.next().unwrap_or_default(),
        headers: headers(&mut head)?,
    };
    let len = seen.header("content-length").and_then(|n| n.parse().ok());
    let len: u64 = len.unwrap_or(0);
    let mut body = Vec::new();
    reader.take(len.min(MAX_BODY)).read_to_end(&mut body)?;
    Ok(Some((seen, body)))
}

/// Reads headers up to the empty line after them, with their names in lower case.
pub(super) fn headers(reader: &mut impl BufRead) -> io::Result<Vec<(String, String)>> {
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let Some((name, value)) = line.trim_end().split_once(':') else {
            return Ok(headers);
        };
        headers.push((name.to_ascii_lowercase(), value.trim().to_string()));
    }
}

/// Sends an invalid answer. Returns `Some(false)` if the connection is over, and `None` if the answer should start normally.
fn strange(
    stream: &TcpStream,
    seen: &ServedRequest,
    lie: Option<&Lie>,
    stop: &AtomicBool,
) -> io::Result<Option<bool>> {
    let mut out = stream;
    match lie {
        Some(Lie::Silence) => hold(stream, stop)?,
        Some(Lie::Status(status, after)) => {
            let after = after.map_or(String::new(), |s| format!("Retry-After: {s}\r\n"));
            let head = format!("HTTP/1.1 {status} Lie\r\n{after}Content-Length: 4\r\n\r\nlie\n");
            out.write_all(head.as_bytes())?;
            return Ok(Some(true));
        }
        Some(Lie::Unmodified(etag)) => {
            let etag = etag.map_or(String::new(), |etag| format!("ETag: {etag}\r\n"));
            write!(out, "HTTP/1.1 304 Lie\r\n{etag}\r\n")?;
            return Ok(Some(true));
        }
        Some(Lie::EndlessError) => {
            out.write_all(b"HTTP/1.1 500 Lie\r\nTransfer-Encoding: chunked\r\n\r\n")?;
            while !stop.load(Ordering::Relaxed) {
                write!(out, "400\r\n{}\r\n", "x".repeat(1024))?;
            }
        }
        Some(Lie::RedirectLoop) => {
            let to = &seen.target;
            write!(
                out,
                "HTTP/1.1 302 Lie\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n"
            )?;
            return Ok(Some(true));
        }
        Some(Lie::EndlessHeaders) => {
            write!(out, "HTTP/1.1 206 Lie\r\n")?;
            for n in 0..u64::MAX {
                write!(out, "X-{n}: {}\r\n", "x".repeat(1024))?;
            }
        }
        Some(Lie::Garbage) => out.write_all(b"\0\x01SSH-2.0-none\r\n")?,
        _ => return Ok(None),
    }
    Ok(Some(false))
}

/// Sends an answer. Returns false if the connection is over.
fn send(
    stream: &TcpStream,
    answer: ServedAnswer,
    is_head: bool,
    lie: Option<&Lie>,
    link: &Link,
    stop: &AtomicBool,
) -> io::Result<bool> {
    let mut out = stream;
    let ready = Instant::now();
    let ServedAnswer {
        status,
        headers,
        body,
        is_chunked,
    } = answer;
    let mut head = format!("HTTP/1.1 {status} Answer\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += &match is_chunked {
        true => "Transfer-Encoding: chunked\r\n\r\n".to_string(),
        // RFC 9110 8.6: a 204 has no Content-Length.
        false if status == 204 => "\r\n".to_string(),
        false => format!("Content-Length: {}\r\n\r\n", body.len()),
    };
    let most = match lie {
        _ if is_head => 0,
        Some(Lie::Stall(bytes) | Lie::Reset(bytes) | Lie::Close(bytes)) => *bytes,
        _ => usize::MAX,
    };
    let piece_bytes = match lie {
        Some(Lie::Dribble(_)) => 1,
        _ => PIECE_BYTES,
    };
    // Sends a short answer as one packet.
    let mut packet = head.into_bytes();
    for piece in body[..body.len().min(most)].chunks(piece_bytes) {
        if stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        link.pass(piece.len(), ready);
        if is_chunked {
            packet.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        }
        packet.extend_from_slice(piece);
        if is_chunked {
            packet.extend_from_slice(b"\r\n");
        }
        out.write_all(&packet)?;
        packet.clear();
        if let Some(Lie::Dribble(pause)) = lie {
            std::thread::sleep(*pause);
        }
    }
    out.write_all(&packet)?;
    match lie {
        Some(Lie::Stall(_)) => hold(stream, stop)?,
        Some(Lie::Reset(_)) => {
            // With a linger time of zero, closing resets the connection; the error skips the normal shutdown.
            rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO))?;
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Some(Lie::Close(_)) => {}
        _ => {
            if is_chunked && !is_head {
                out.write_all(b"0\r\n\r\n")?;
            }
            return Ok(true);
        }
    }
    Ok(false)
}

/// Sends nothing until the client or the server is gone.
fn hold(stream: &TcpStream, stop: &AtomicBool) -> io::Result<()> {
    let mut stream = stream;
    stream.set_read_timeout(Some(Duration::from_millis(20)))?;
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut [0; 64]) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
