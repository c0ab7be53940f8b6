//! A proxy in front of a real server of HTTP that gives every wrong answer: what a [`super::RangeServer`] does to its one object, it does to
//! the answers of that server, whatever store it is of.
//!
//! Never: TLS, HEAD, large answers (each is read whole before it goes on), or used outside tests.
//!
//! ```text
//!   request ──► a lie left? ── Silence, Status, Garbage, ... ──► the lie alone
//!                   │ no, or one about a right answer
//!                   ▼
//!               the server ──► its answer ──► the lie ──► each edit ──► sent
//! ```
//! Example: `edit(|seen, answer| answer.set("etag", "\"other\""))` has every object of a store changed.

use super::link::Link;
use super::range_server::{self, Lie, ServedRequest, body, request, strange};
use foreread::source::Mem;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Longest body that is passed on.
const MAX_BODY: u64 = 64 << 20;

/// An answer of the server that is not sent yet.
#[derive(Clone, Debug, Default)]
pub struct ServedAnswer {
    /// The status.
    pub status: u16,
    /// Every header but those of the body's length, with its name in small letters.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl ServedAnswer {
    /// The value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(own, _)| own == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The header with this value, in place of the one that is there; without one where it is empty.
    pub fn set(&mut self, name: &str, value: &str) {
        self.headers.retain(|(own, _)| own != name);
        if !value.is_empty() {
            self.headers.push((name.to_string(), value.to_string()));
        }
    }

    /// FROM, TO and SIZE of its `Content-Range`.
    fn range(&self) -> Option<[u64; 3]> {
        let (range, size) = self.header("content-range")?.split_once('/')?;
        let (from, to) = range.strip_prefix("bytes ")?.split_once('-')?;
        Some([from.parse().ok()?, to.parse().ok()?, size.parse().ok()?])
    }

    fn set_range(&mut self, [from, to, size]: [u64; 3]) {
        self.set("content-range", &format!("bytes {from}-{to}/{size}"));
    }

    /// Changed by a lie about an object.
    fn change(&mut self, lie: &Lie) {
        let Some([from, to, size]) = self.range().filter(|_| self.status == 206) else {
            return;
        };
        match lie {
            Lie::IgnoreRange => {
                self.status = 200;
                self.set("content-range", "");
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

type Edit = dyn Fn(&ServedRequest, &mut ServedAnswer) + Send + Sync;

struct ProxyState {
    wrong: Vec<(Lie, u64)>,
    edit: Option<Arc<Edit>>,
    seen: u64,
}

/// A proxy that runs until it is dropped.
pub struct LyingProxy {
    address: SocketAddr,
    state: Arc<Mutex<ProxyState>>,
    stop: Arc<AtomicBool>,
}

impl LyingProxy {
    /// Listens on a port of this machine, in front of `server`.
    ///
    /// # Errors
    /// No port is free.
    pub fn start(server: SocketAddr) -> std::io::Result<LyingProxy> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let state = ProxyState {
            wrong: Vec::new(),
            edit: None,
            seen: 0,
        };
        let proxy = LyingProxy {
            address: listener.local_addr()?,
            state: Arc::new(Mutex::new(state)),
            stop: Arc::default(),
        };
        let (state, stop) = (Arc::clone(&proxy.state), Arc::clone(&proxy.stop));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let (state, stop) = (Arc::clone(&state), Arc::clone(&stop));
                std::thread::spawn(move || drop(converse(&stream, server, &state, &stop)));
            }
        });
        Ok(proxy)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next `times` requests, after those of earlier calls, get this answer.
    pub fn lie(&self, lie: Lie, times: u64) {
        lock(&self.state).wrong.push((lie, times));
    }

    /// Every answer is changed by this from now on.
    pub fn edit(&self, edit: impl Fn(&ServedRequest, &mut ServedAnswer) + Send + Sync + 'static) {
        lock(&self.state).edit = Some(Arc::new(edit));
    }

    /// The server's own answers from now on.
    pub fn honest(&self) {
        let mut state = lock(&self.state);
        state.wrong.clear();
        state.edit = None;
    }

    /// Requests so far.
    #[must_use]
    pub fn seen(&self) -> u64 {
        lock(&self.state).seen
    }
}

impl Drop for LyingProxy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.address));
    }
}

fn lock(state: &Mutex<ProxyState>) -> MutexGuard<'_, ProxyState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn converse(
    stream: &TcpStream,
    server: SocketAddr,
    state: &Mutex<ProxyState>,
    stop: &AtomicBool,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    let link = Link::new(Duration::ZERO, 0);
    while let Some(seen) = request(&mut reader)? {
        let len = seen.header("content-length").and_then(|n| n.parse().ok());
        let mut sent = Vec::new();
        let len: u64 = len.unwrap_or(0);
        let form = &mut reader;
        form.take(len.min(MAX_BODY)).read_to_end(&mut sent)?;
        let (lie, edit) = {
            let mut state = lock(state);
            state.seen += 1;
            (range_server::next(&mut state.wrong), state.edit.clone())
        };
        if let Some(goes_on) = strange(stream, &seen, lie.as_ref(), stop)? {
            if goes_on {
                continue;
            }
            break;
        }
        let mut answer = ask(server, &seen, &sent)?;
        if let Some(lie) = &lie {
            answer.change(lie);
        }
        if let Some(edit) = edit {
            edit(&seen, &mut answer);
        }
        let mut head = format!("HTTP/1.1 {} Answer\r\n", answer.status);
        for (name, value) in &answer.headers {
            head += &format!("{name}: {value}\r\n");
        }
        let len = answer.body.len() as u64;
        // RFC 9110 8.6: none with a 204.
        if answer.status != 204 {
            head += &format!("content-length: {len}\r\n");
        }
        let mut out = stream;
        out.write_all((head + "\r\n").as_bytes())?;
        let bytes = Mem::new(answer.body);
        if !body(stream, &bytes, 0..len, lie.as_ref(), &link, stop)? {
            break;
        }
    }
    stream.shutdown(Shutdown::Both)
}

/// The server's answer.
fn ask(server: SocketAddr, seen: &ServedRequest, sent: &[u8]) -> std::io::Result<ServedAnswer> {
    let mut head = format!(
        "{} {} HTTP/1.1\r\nconnection: close\r\n",
        seen.method, seen.target
    );
    for (name, value) in &seen.headers {
        match name.as_str() {
            "connection" => {}
            // A signature may be of the name by which the proxy was asked; where there is none, a server may know no name but its own.
            "host" if seen.authorization.is_none() => head += &format!("host: {server}\r\n"),
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
    let mut answer = ServedAnswer {
        status: status.ok_or(std::io::ErrorKind::InvalidData)?,
        ..ServedAnswer::default()
    };
    let (mut len, mut is_chunked) = (MAX_BODY, false);
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        let (name, value) = (name.to_ascii_lowercase(), value.trim().to_string());
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
        let chunk = &mut reader;
        chunk
            .take(len.min(MAX_BODY))
            .read_to_end(&mut answer.body)?;
        line.clear();
        reader.read_line(&mut line)?;
    }
}
