//! An HTTP server for one object: ranges, ETags, conditions, and every lie that a server may tell.
//!
//! One thread for each connection, no runtime; ends when it is dropped. Never: TLS, more than one object, or used
//! outside tests and benches.
//!
//! ```text
//!   request ──► head ──► a lie left? ── no ──► 206, 200, 404, 412, 416 as it should be
//!                            │ yes, one less       ▲ the object: a source, its ETag, its date
//!                            ▼                     │
//!                         the lie            replace: another object under the same name
//! ```

use super::link::{Link, PIECE_BYTES};
use foreread::source::Source;
use std::io::{BufRead, BufReader, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Requests that are remembered.
const MAX_SEEN: usize = 1 << 16;
/// Longest head of a request.
const MAX_HEAD: u64 = 64 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lie {
    /// 200 and the whole object, whatever was asked for.
    IgnoreRange,
    /// `Content-Range` says another range.
    ContentRange,
    /// There is no `Content-Range`.
    NoContentRange,
    /// `Content-Range` gives another size of the object.
    OtherSize,
    /// This many bytes more (or fewer) than asked for, and `Content-Length` agrees.
    Length(i64),
    /// `Content-Encoding: gzip`.
    Gzip,
    /// Another ETag than the object's, and the object's bytes.
    OtherEtag,
    /// No ETag, although the object has one.
    NoEtag,
    /// 304 with this ETag, whatever was asked for.
    Unmodified(Option<&'static str>),
    /// `If-Match` is not looked at.
    NoCondition,
    /// Nothing at all, and the connection stays open.
    Silence,
    /// Nothing more after this many bytes of the body.
    Stall(usize),
    /// One byte of the body in each such time.
    Dribble(Duration),
    /// The connection is reset after this many bytes of the body.
    Reset(usize),
    /// The connection is closed in good order after this many bytes of the body.
    Close(usize),
    /// This status, with `Retry-After` in seconds.
    Status(u16, Option<u64>),
    /// 500 and a body without end.
    EndlessError,
    /// A redirect to itself.
    RedirectLoop,
    /// Header after header.
    EndlessHeaders,
    /// No HTTP at all.
    Garbage,
}

/// A request, as far as tests ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServedRequest {
    /// GET or HEAD.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// The header `Range`.
    pub range: Option<String>,
    /// The header `If-Match`.
    pub if_match: Option<String>,
    /// The header `If-Unmodified-Since`.
    pub if_unmodified_since: Option<String>,
    /// The header `Authorization`.
    pub authorization: Option<String>,
    /// Every header, with its name in small letters.
    pub headers: Vec<(String, String)>,
}

impl ServedRequest {
    /// The value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(own, _)| own == name);
        found.map(|(_, value)| value.as_str())
    }
}

#[derive(Clone)]
struct Object {
    source: Arc<dyn Source>,
    etag: Option<String>,
    date: Option<String>,
}

struct RangeServerState {
    object: Object,
    wrong: Vec<(Lie, u64)>,
    seen: Vec<ServedRequest>,
    link: Link,
    connections: u64,
    /// GETs that are answered now, how many of them there may be, and how many more were refused with 503.
    under_way: u32,
    most: u32,
    refused: u64,
}

pub struct RangeServer {
    address: SocketAddr,
    state: Arc<Mutex<RangeServerState>>,
    stop: Arc<AtomicBool>,
}

impl RangeServer {
    /// Serves `source` as `/object` with its own ETag.
    ///
    /// # Errors
    /// No port is free.
    pub fn start(source: impl Source + 'static) -> std::io::Result<RangeServer> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let object = Object {
            source: Arc::new(source),
            etag: Some("\"one\"".to_string()),
            date: None,
        };
        let link = Link::new(Duration::ZERO, 0);
        let (wrong, seen) = (Vec::new(), Vec::new());
        let state = RangeServerState {
            object,
            wrong,
            seen,
            link,
            connections: 0,
            under_way: 0,
            most: u32::MAX,
            refused: 0,
        };
        let server = RangeServer {
            address: listener.local_addr()?,
            state: Arc::new(Mutex::new(state)),
            stop: Arc::default(),
        };
        let (state, stop) = (Arc::clone(&server.state), Arc::clone(&server.stop));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                lock(&state).connections += 1;
                let (state, stop) = (Arc::clone(&state), Arc::clone(&stop));
                std::thread::spawn(move || drop(converse(&stream, &state, &stop)));
            }
        });
        Ok(server)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The object's URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/object", self.address)
    }

    /// The next `times` GETs, after those of earlier calls, get this answer.
    pub fn lie(&self, lie: Lie, times: u64) {
        lock(&self.state).wrong.push((lie, times));
    }

    /// Right answers from now on.
    pub fn honest(&self) {
        lock(&self.state).wrong.clear();
    }

    /// GETs beyond this number at once get a 503 from now on.
    pub fn at_most(&self, requests: u32) {
        lock(&self.state).most = requests;
    }

    /// GETs that were refused by [`RangeServer::at_most`].
    #[must_use]
    pub fn refused(&self) -> u64 {
        lock(&self.state).refused
    }

    /// Connections so far.
    #[must_use]
    pub fn connections(&self) -> u64 {
        lock(&self.state).connections
    }

    /// From now on answers go over this link.
    pub fn link(&self, link: Link) {
        lock(&self.state).link = link;
    }

    /// Another object under the same name. `etag` with its quotation marks; `date` as in `Last-Modified`.
    pub fn replace(&self, source: impl Source + 'static, etag: Option<&str>, date: Option<&str>) {
        let (etag, date) = (etag.map(str::to_string), date.map(str::to_string));
        lock(&self.state).object = Object {
            source: Arc::new(source),
            etag,
            date,
        };
    }

    /// Every request so far, the first 65,536 of them.
    #[must_use]
    pub fn seen(&self) -> Vec<ServedRequest> {
        lock(&self.state).seen.clone()
    }
}

impl Drop for RangeServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.address));
    }
}

fn lock(state: &Mutex<RangeServerState>) -> MutexGuard<'_, RangeServerState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Request after request of one connection.
fn converse(
    stream: &TcpStream,
    state: &Mutex<RangeServerState>,
    stop: &AtomicBool,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while let Some(seen) = request(&mut reader)? {
        let (object, lie, link) = {
            let mut state = lock(state);
            if state.seen.len() < MAX_SEEN {
                state.seen.push(seen.clone());
            }
            let lie = if seen.method == "GET" {
                next(&mut state.wrong)
            } else {
                None
            };
            state.under_way += 1;
            let is_refused = state.under_way > state.most;
            state.refused += u64::from(is_refused);
            let lie = if is_refused {
                Some(Lie::Status(503, None))
            } else {
                lie
            };
            (state.object.clone(), lie, state.link.clone())
        };
        link.travel();
        let goes_on = answer(stream, &seen, &object, lie.as_ref(), &link, stop);
        lock(state).under_way -= 1;
        if !goes_on? {
            break;
        }
    }
    stream.shutdown(Shutdown::Both)
}

/// The lie whose turn it is.
pub(super) fn next(wrong: &mut Vec<(Lie, u64)>) -> Option<Lie> {
    wrong.retain(|(_, left)| *left > 0);
    let (lie, left) = wrong.first_mut()?;
    *left -= 1;
    Some(lie.clone())
}

/// Reads the head of a request; nothing when the client has gone.
pub(super) fn request(reader: &mut impl BufRead) -> std::io::Result<Option<ServedRequest>> {
    let mut head = reader.take(MAX_HEAD);
    let mut line = String::new();
    if head.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(str::to_string);
    let mut seen = ServedRequest {
        method: words.next().unwrap_or_default(),
        target: words.next().unwrap_or_default(),
        ..ServedRequest::default()
    };
    loop {
        line.clear();
        if head.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let Some((name, value)) = line.trim_end().split_once(':') else {
            return Ok(Some(seen));
        };
        let name = name.to_ascii_lowercase();
        let value = value.trim().to_string();
        seen.headers.push((name.clone(), value.clone()));
        let value = Some(value);
        match name.as_str() {
            "range" => seen.range = value,
            "if-match" => seen.if_match = value,
            "if-unmodified-since" => seen.if_unmodified_since = value,
            "authorization" => seen.authorization = value,
            _ => {}
        }
    }
}

/// Answers one request. False when the connection is over.
fn answer(
    stream: &TcpStream,
    seen: &ServedRequest,
    object: &Object,
    lie: Option<&Lie>,
    link: &Link,
    stop: &AtomicBool,
) -> std::io::Result<bool> {
    let mut out = stream;
    if let Some(done) = strange(stream, seen, lie, stop)? {
        return Ok(done);
    }
    let size = object.source.size();
    let empty = "Content-Length: 0\r\n\r\n";
    let unmet = seen
        .if_match
        .as_ref()
        .is_some_and(|tag| Some(tag) != object.etag.as_ref() || tag.starts_with("W/"))
        || seen
            .if_unmodified_since
            .as_ref()
            .is_some_and(|date| object.date.as_ref().is_some_and(|own| own != date));
    if !seen.target.starts_with("/object") {
        write!(out, "HTTP/1.1 404 Not Found\r\n{empty}")?;
        return Ok(true);
    }
    if unmet && lie != Some(&Lie::NoCondition) {
        write!(out, "HTTP/1.1 412 Precondition Failed\r\n{empty}")?;
        return Ok(true);
    }
    let asked = seen
        .range
        .as_deref()
        .and_then(parse_range)
        .filter(|_| lie != Some(&Lie::IgnoreRange));
    if asked.as_ref().is_some_and(|range| range.start >= size) {
        write!(
            out,
            "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Range: bytes */{size}\r\n{empty}"
        )?;
        return Ok(true);
    }
    let range = asked
        .clone()
        .map_or(0..size, |range| range.start..range.end.min(size));
    let len = match lie {
        Some(Lie::Length(more)) => (range.end - range.start).saturating_add_signed(*more),
        _ => range.end - range.start,
    };
    out.write_all(head(object, asked.is_some().then_some(&range), size, len, lie).as_bytes())?;
    if seen.method == "HEAD" {
        return Ok(true);
    }
    body(
        stream,
        &*object.source,
        range.start..range.start.saturating_add(len),
        lie,
        link,
        stop,
    )
}

/// Answers that are none. Nothing when the answer is to begin as it should.
pub(super) fn strange(
    stream: &TcpStream,
    seen: &ServedRequest,
    lie: Option<&Lie>,
    stop: &AtomicBool,
) -> std::io::Result<Option<bool>> {
    let mut out = stream;
    match lie {
        Some(Lie::Silence) => hold(stream, stop)?,
        Some(Lie::Status(status, after)) => {
            let after = after.map_or(String::new(), |s| format!("Retry-After: {s}\r\n"));
            write!(
                out,
                "HTTP/1.1 {status} Lie\r\n{after}Content-Length: 4\r\n\r\nlie\n"
            )?;
            return Ok(Some(true));
        }
        Some(Lie::Unmodified(etag)) => {
            let etag = etag.map_or(String::new(), |etag| format!("ETag: {etag}\r\n"));
            write!(out, "HTTP/1.1 304 Lie\r\n{etag}\r\n")?;
            return Ok(Some(true));
        }
        Some(Lie::EndlessError) => {
            write!(
                out,
                "HTTP/1.1 500 Lie\r\nTransfer-Encoding: chunked\r\n\r\n"
            )?;
            while !stop.load(Ordering::Relaxed) {
                write!(out, "400\r\n{}\r\n", "x".repeat(1024))?;
            }
        }
        Some(Lie::RedirectLoop) => {
            write!(
                out,
                "HTTP/1.1 302 Lie\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n",
                seen.target
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

/// The head of an answer with a body.
fn head(
    object: &Object,
    range: Option<&Range<u64>>,
    size: u64,
    len: u64,
    lie: Option<&Lie>,
) -> String {
    let mut head = match range {
        Some(_) => "HTTP/1.1 206 Partial Content\r\n".to_string(),
        None => "HTTP/1.1 200 OK\r\n".to_string(),
    };
    let mut line = |name: &str, value: String| head.push_str(&format!("{name}: {value}\r\n"));
    line("Content-Length", len.to_string());
    line("Accept-Ranges", "bytes".to_string());
    match (range, lie) {
        (None, _) | (_, Some(Lie::NoContentRange)) => {}
        (Some(r), Some(Lie::ContentRange)) => {
            line(
                "Content-Range",
                format!("bytes {}-{}/{size}", r.start + 1, r.end),
            );
        }
        (Some(r), Some(Lie::OtherSize)) => {
            line(
                "Content-Range",
                format!("bytes {}-{}/{}", r.start, r.end - 1, size + 1),
            );
        }
        (Some(r), _) => line(
            "Content-Range",
            format!("bytes {}-{}/{size}", r.start, r.end - 1),
        ),
    }
    match (&object.etag, lie) {
        (Some(etag), Some(Lie::OtherEtag)) => {
            line("ETag", format!("\"other than {}\"", etag.replace('"', "")));
        }
        (Some(etag), lie) if lie != Some(&Lie::NoEtag) => line("ETag", etag.clone()),
        _ => {}
    }
    if let Some(date) = &object.date {
        line("Last-Modified", date.clone());
    }
    if lie == Some(&Lie::Gzip) {
        line("Content-Encoding", "gzip".to_string());
    }
    head.push_str("\r\n");
    head
}

/// The bytes of an answer. False when the connection is over.
pub(super) fn body(
    stream: &TcpStream,
    source: &dyn Source,
    range: Range<u64>,
    lie: Option<&Lie>,
    link: &Link,
    stop: &AtomicBool,
) -> std::io::Result<bool> {
    let mut out = stream;
    let most = match lie {
        Some(Lie::Stall(bytes) | Lie::Reset(bytes) | Lie::Close(bytes)) => *bytes as u64,
        _ => u64::MAX,
    };
    let end = range.end.min(range.start.saturating_add(most));
    let mut piece = vec![
        0;
        if let Some(Lie::Dribble(_)) = lie {
            1
        } else {
            PIECE_BYTES
        }
    ];
    let mut at = range.start;
    let ready = Instant::now();
    while at < end && !stop.load(Ordering::Relaxed) {
        let len = usize::try_from(end - at)
            .unwrap_or(usize::MAX)
            .min(piece.len());
        // Bytes past the end, for the lie about the length, are zeros.
        piece[..len].fill(0);
        source
            .read_at(&mut [IoSliceMut::new(&mut piece[..len])], at)
            .map_err(std::io::Error::other)?;
        link.pass(len, ready);
        out.write_all(&piece[..len])?;
        at += len as u64;
        if let Some(Lie::Dribble(pause)) = lie {
            std::thread::sleep(*pause);
        }
    }
    match lie {
        Some(Lie::Stall(_)) => hold(stream, stop)?,
        Some(Lie::Reset(_)) => {
            // With a linger of nothing, closing is a reset; an error skips the shutdown in good order.
            rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO))?;
            return Err(std::io::ErrorKind::ConnectionReset.into());
        }
        Some(Lie::Close(_)) => {}
        _ => return Ok(true),
    }
    Ok(false)
}

/// Says nothing until the client or the server is gone.
fn hold(stream: &TcpStream, stop: &AtomicBool) -> std::io::Result<()> {
    let mut stream = stream;
    stream.set_read_timeout(Some(Duration::from_millis(20)))?;
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut [0; 64]) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                ) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// `bytes=FIRST-LAST` or `bytes=FIRST-`.
pub(super) fn parse_range(text: &str) -> Option<Range<u64>> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let end = if last.is_empty() {
        u64::MAX
    } else {
        last.parse::<u64>().ok()?.checked_add(1)?
    };
    Some(first.parse().ok()?..end)
}
