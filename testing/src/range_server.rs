//! An HTTP server for one object, with byte ranges, ETags and conditional requests.
//!
//! ```text
//!   GET /object ──► 206, 200, 404, 412, 416
//!                     ▲ the object: a source, its ETag, its date
//!                     │
//!                  replace: another object with the same name
//! ```

use super::http_server::{HttpServer, ServedAnswer, ServedRequest, headers, lock};
use foreread::source::Source;
use std::io;
use std::io::{BufRead, BufReader, IoSliceMut, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::{Deref, Range};
use std::sync::{Arc, Mutex};

#[derive(Clone)]
struct Object {
    source: Arc<dyn Source>,
    etag: Option<String>,
    date: Option<String>,
}

pub struct RangeServer {
    server: HttpServer,
    object: Arc<Mutex<Object>>,
}

impl RangeServer {
    /// Serves `source` as `/object`, with a unique ETag.
    pub fn start(source: impl Source + 'static) -> io::Result<RangeServer> {
        let object = Arc::new(Mutex::new(Object {
            source: Arc::new(source),
            etag: Some("\"one\"".to_string()),
            date: None,
        }));
        let own = Arc::clone(&object);
        let server = HttpServer::start(move |seen, _| {
            let object = lock(&own).clone();
            answer(seen, &object)
        })?;
        Ok(RangeServer { server, object })
    }

    pub fn url(&self) -> String {
        format!("http://{}/object", self.address())
    }

    /// Replaces the object. `etag` includes its quotation marks; `date` is in the form of `Last-Modified`.
    pub fn replace(&self, source: impl Source + 'static, etag: Option<&str>, date: Option<&str>) {
        *lock(&self.object) = Object {
            source: Arc::new(source),
            etag: etag.map(str::to_string),
            date: date.map(str::to_string),
        };
    }
}

impl Deref for RangeServer {
    type Target = HttpServer;

    fn deref(&self) -> &HttpServer {
        &self.server
    }
}

pub(super) fn read(source: &dyn Source, range: Range<u64>) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    source
        .read_at(&mut [IoSliceMut::new(&mut bytes)], range.start)
        .map_err(io::Error::other)?;
    Ok(bytes)
}

fn answer(seen: &ServedRequest, object: &Object) -> io::Result<ServedAnswer> {
    if !seen.target.starts_with("/object") {
        return Ok(ServedAnswer::new(404, ""));
    }
    let (etag, date) = (object.etag.as_deref(), object.date.as_deref());
    let is_other_tag = |asked: &str| Some(asked) != etag || asked.starts_with("W/");
    let is_later = |asked: &str| date.is_some_and(|own| own != asked);
    if seen.header("if-match").is_some_and(is_other_tag)
        || seen.header("if-unmodified-since").is_some_and(is_later)
    {
        return Ok(ServedAnswer::new(412, ""));
    }
    let mut answer = ServedAnswer::new(200, "");
    answer.set("ETag", etag.unwrap_or_default());
    answer.set("Last-Modified", date.unwrap_or_default());
    let source = &*object.source;
    answer.part(seen, source.size(), |range| read(source, range))
}

// A proxy in front of a real HTTP server: it gives the wrong answers of [`super::HttpServer`] for that server, whatever kind of
// store it is.
//
// It does not support TLS, HEAD or large answers (each answer is read completely before it is passed on).

/// Maximum length of a body that is passed on.
const MAX_BODY: u64 = 64 << 20;

/// A proxy in front of an HTTP server that can send wrong replies; it runs until it is dropped.
pub struct LyingProxy(HttpServer);

impl LyingProxy {
    /// Listens on a port of this machine, in front of `server`.
    pub fn start(server: SocketAddr) -> io::Result<LyingProxy> {
        HttpServer::start(move |seen, body| ask(server, seen, body)).map(LyingProxy)
    }
}

impl Deref for LyingProxy {
    type Target = HttpServer;

    fn deref(&self) -> &HttpServer {
        &self.0
    }
}

fn ask(server: SocketAddr, seen: &ServedRequest, sent: &[u8]) -> io::Result<ServedAnswer> {
    let mut head = format!(
        "{} {} HTTP/1.1\r\nconnection: close\r\n",
        seen.method, seen.target
    );
    for (name, value) in &seen.headers {
        match name.as_str() {
            "connection" => {}
            // A signature may cover the host name with which the proxy was called. Without a signature, use the server's own name,
            // because a server may know no other.
            "host" if seen.header("authorization").is_none() => {
                head += &format!("host: {server}\r\n");
            }
            _ => head += &format!("{name}: {value}\r\n"),
        }
    }
    let mut stream = TcpStream::connect(server)?;
    stream.write_all((head + "\r\n").as_bytes())?;
    stream.write_all(sent)?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let status = line
        .split_whitespace()
        .nth(1)
        .and_then(|text| text.parse().ok());
    let mut answer = ServedAnswer::new(status.ok_or(io::ErrorKind::InvalidData)?, "");
    let (mut len, mut is_chunked) = (MAX_BODY, false);
    for (name, value) in headers(&mut reader)? {
        match name.as_str() {
            "content-length" => len = value.parse().unwrap_or(0),
            "transfer-encoding" => is_chunked = true,
            "connection" | "keep-alive" => {}
            _ => answer.headers.push((name, value)),
        }
    }
    if !is_chunked {
        reader
            .take(len.min(MAX_BODY))
            .read_to_end(&mut answer.body)?;
        return Ok(answer);
    }
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let digits = line.trim().split(';').next().unwrap_or_default();
        let len = u64::from_str_radix(digits, 16).unwrap_or(0);
        if len == 0 {
            return Ok(answer);
        }
        let mut chunk = (&mut reader).take(len.min(MAX_BODY));
        chunk.read_to_end(&mut answer.body)?;
        line.clear();
        reader.read_line(&mut line)?;
    }
}
