//! An S3 and HTTP server for one bucket in memory: listings page by page, ranges, conditions, and a count of what it was asked.
//!
//! A real server over a folder cannot hold every key that S3 allows (`dir//c`, `dir/..`, a newline), nor say how many
//! requests of each kind it had, nor do what other servers do: [`Behaviour`] is a switch for each such thing. Any bucket name will do;
//! nothing is signed. Never: TLS, writes, or used outside tests and benches.
//!
//! ```text
//!   GET /bucket?list-type=2&prefix=a/...   ──► a page (`bucket_page.rs`)      ┐
//!   GET /bucket/KEY  Range, If-Match       ──► 206, 200, 404, 412, 416        ├──► each switch changes it (`behaviour.rs`)
//!   HEAD /bucket/KEY                       ──► 200, 404                       ┘
//! ```

use super::behaviour::{self, Answer, Behaviour};
use super::bucket_page::{self, PageRequest};
use super::link::{Link, PIECE_BYTES};
use super::range_server::{ServedRequest, parse_range, request};
use percent_encoding::percent_decode_str;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

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
pub(super) struct Object {
    pub bytes: Arc<Vec<u8>>,
    /// Counts the objects that were ever put: the ETag, and the seconds of the date.
    pub number: u64,
    /// Of the date: that of the first of those that were put within one second.
    second: u64,
}

impl Object {
    /// Day of January 2026, hour, minute, second.
    fn date(&self) -> [u64; 4] {
        let seconds = self.second;
        [
            2 + seconds / 86_400,
            seconds / 3600 % 24,
            seconds / 60 % 60,
            seconds % 60,
        ]
    }

    /// With a fraction, as in listings of S3.
    pub fn listed_date(&self) -> String {
        let [day, hour, minute, second] = self.date();
        format!("2026-01-{day:02}T{hour:02}:{minute:02}:{second:02}.700Z")
    }

    fn http_date(&self) -> String {
        let [day, hour, minute, second] = self.date();
        // 2026-01-01 was a Thursday.
        let name = ["Wed", "Thu", "Fri", "Sat", "Sun", "Mon", "Tue"][day as usize % 7];
        format!("{name}, {day:02} Jan 2026 {hour:02}:{minute:02}:{second:02} GMT")
    }
}

struct BucketState {
    objects: BTreeMap<String, Object>,
    puts: u64,
    requests: Requests,
    /// Keys of which bytes were asked for.
    asked: BTreeSet<String>,
    link: Link,
    on: Vec<Behaviour>,
    /// Those that later pages alone have.
    on_later_pages: Vec<Behaviour>,
}

pub struct BucketServer {
    address: SocketAddr,
    state: Arc<Mutex<BucketState>>,
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
        let (objects, requests, on, on_later_pages) =
            (BTreeMap::new(), Requests::default(), Vec::new(), Vec::new());
        let state = BucketState {
            objects,
            puts: 0,
            requests,
            asked: BTreeSet::new(),
            link,
            on,
            on_later_pages,
        };
        let server = BucketServer {
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
        [
            ("AWS_ENDPOINT_URL", endpoint.as_str()),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_REGION", "us-east-1"),
        ]
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .into()
    }

    /// The URL of an object, for a client of HTTP.
    #[must_use]
    pub fn url(&self, key: &str) -> String {
        format!("http://{}/bucket/{key}", self.address)
    }

    /// From now on it does this, and nothing else that is unusual.
    pub fn behave(&self, on: &[Behaviour]) {
        self.behave_by_page(on, on);
    }

    /// The same, where pages behind the first differ from it.
    pub fn behave_by_page(&self, first: &[Behaviour], later: &[Behaviour]) {
        let mut state = lock(&self.state);
        (state.on, state.on_later_pages) = (first.to_vec(), later.to_vec());
    }

    /// Puts an object, with an ETag and a date that no other ever had.
    pub fn put(&self, key: &str, bytes: Vec<u8>) {
        let mut state = lock(&self.state);
        state.puts += 1;
        let object = Object {
            bytes: Arc::new(bytes),
            number: state.puts,
            second: state.puts,
        };
        state.objects.insert(key.to_string(), object);
    }

    /// Puts another object of the same size within the same second: its ETag alone is new.
    ///
    /// # Panics
    /// There is none, or it has another size.
    pub fn put_within_the_second(&self, key: &str, bytes: Vec<u8>) {
        let mut state = lock(&self.state);
        state.puts += 1;
        let number = state.puts;
        let object = state
            .objects
            .get_mut(key)
            .unwrap_or_else(|| panic!("there is no {key}"));
        assert_eq!(object.bytes.len(), bytes.len());
        *object = Object {
            bytes: Arc::new(bytes),
            number,
            second: object.second,
        };
    }

    /// Takes an object away.
    pub fn delete(&self, key: &str) {
        lock(&self.state).objects.remove(key);
    }

    /// From now on answers go over this link.
    pub fn link(&self, link: Link) {
        lock(&self.state).link = link;
    }

    #[must_use]
    pub fn requests(&self) -> Requests {
        lock(&self.state).requests
    }

    /// Whether bytes of this object were asked for: what it had then is sent, whatever is put later.
    #[must_use]
    pub fn was_asked_for(&self, key: &str) -> bool {
        lock(&self.state).asked.contains(key)
    }
}

impl Drop for BucketServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.address));
    }
}

fn lock(state: &Mutex<BucketState>) -> MutexGuard<'_, BucketState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Request after request of one connection.
fn converse(stream: &TcpStream, state: &Mutex<BucketState>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while let Some(seen) = request(&mut reader)? {
        let (path, query) = seen.target.split_once('?').unwrap_or((&seen.target, ""));
        let key = path
            .trim_start_matches('/')
            .split_once('/')
            .map(|(_, key)| text(key))
            .unwrap_or_default();
        let (answer, link) = {
            let mut state = lock(state);
            let lists = key.is_empty() && query.contains("list-type=2");
            match (lists, seen.method.as_str()) {
                (true, _) => state.requests.lists += 1,
                (false, "HEAD") => state.requests.heads += 1,
                (false, _) => {
                    state.requests.gets += 1;
                    state.asked.insert(key.clone());
                }
            }
            let answer = if lists {
                page(&mut state, query)
            } else {
                part(&mut state, &key, &seen)
            };
            (answer, state.link.clone())
        };
        link.travel();
        send(stream, answer, seen.method == "HEAD", &link)?;
    }
    stream.shutdown(Shutdown::Both)
}

fn text(coded: &str) -> String {
    percent_decode_str(coded).decode_utf8_lossy().into_owned()
}

/// A page of the bucket's keys.
fn page(state: &mut BucketState, query: &str) -> Answer {
    let is_later = PageRequest::of(query, &state.on).is_later();
    let BucketState {
        objects,
        on,
        on_later_pages,
        ..
    } = state;
    let on = if is_later { on_later_pages } else { on };
    let asked = PageRequest::of(query, on);
    let page = bucket_page::page(objects, &asked, on);
    behaviour::change_page(on, page, is_later)
}

/// A part of an object, or why not.
fn part(state: &mut BucketState, key: &str, seen: &ServedRequest) -> Answer {
    let Some(object) = state.objects.get(key).cloned() else {
        return Answer::error(404, "NoSuchKey");
    };
    let (etag, date, size) = (
        format!("\"{}\"", object.number),
        object.http_date(),
        object.bytes.len() as u64,
    );
    let has = |behaviour| state.on.contains(&behaviour);
    // As servers do that compare texts: the ETag that a reply has, and no other.
    let own = match () {
        () if has(Behaviour::WeakEtag) => format!("W/{etag}"),
        () if has(Behaviour::BareEtag) => etag.trim_matches('"').to_string(),
        () => etag.clone(),
    };
    let unmet = seen.if_match.as_ref().is_some_and(|wanted| {
        has(Behaviour::IfMatchFails)
            || *wanted != own && !has(Behaviour::NoEtag)
            || wanted.starts_with("W/")
    });
    let too_late = seen
        .if_unmodified_since
        .as_ref()
        .is_some_and(|wanted| *wanted != date || has(Behaviour::DateFails));
    if unmet || too_late {
        return Answer::error(412, "PreconditionFailed");
    }
    let range = seen
        .range
        .as_deref()
        .and_then(parse_range)
        .filter(|_| !has(Behaviour::NoRanges));
    let range =
        range.filter(|range| !has(Behaviour::WholeIs200) || range.start > 0 || range.end < size);
    let is_head = seen.method == "HEAD";
    let from = range.as_ref().map_or(0, |range| range.start);
    let mut answer = match range {
        Some(range) if range.start >= size => Answer::new(416, ""),
        Some(range) => Answer::new(
            206,
            &object.bytes[range.start as usize..range.end.min(size) as usize],
        ),
        None => Answer::new(200, &object.bytes[..]),
    };
    let to = from + answer.body.len() as u64;
    match answer.status {
        416 => answer.set("Content-Range", &format!("bytes */{size}")),
        206 => answer.set("Content-Range", &format!("bytes {from}-{}/{size}", to - 1)),
        _ => {}
    }
    if answer.status != 416
        || state
            .on
            .iter()
            .any(|on| matches!(on, Behaviour::Nothing(..)))
    {
        answer.set("ETag", &etag);
        answer.set("Last-Modified", &date);
    }
    behaviour::change_object(&mut state.on, &mut answer, is_head, (from, size));
    answer
}

pub(super) fn send(
    stream: &TcpStream,
    answer: Answer,
    is_head: bool,
    link: &Link,
) -> std::io::Result<()> {
    let mut out = stream;
    let ready = Instant::now();
    let Answer {
        status,
        head: lines,
        body,
        is_chunked,
    } = answer;
    let mut head = format!("HTTP/1.1 {status} Answer\r\n");
    for (name, value) in lines {
        head += &format!("{name}: {value}\r\n");
    }
    let mut head = match is_chunked {
        true => head + "Transfer-Encoding: chunked\r\n\r\n",
        // RFC 9110 8.6: none with a 204.
        false if status == 204 => head + "\r\n",
        false => head + &format!("Content-Length: {}\r\n\r\n", body.len()),
    }
    .into_bytes();
    let body = if is_head { Vec::new() } else { body };
    // A short answer is one packet.
    for piece in body.chunks(PIECE_BYTES) {
        link.pass(piece.len(), ready);
        if is_chunked {
            head.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        }
        head.extend_from_slice(piece);
        if is_chunked {
            head.extend_from_slice(b"\r\n");
        }
        out.write_all(&head)?;
        head.clear();
    }
    if is_chunked && !is_head {
        head.extend_from_slice(b"0\r\n\r\n");
    }
    out.write_all(&head)
}
