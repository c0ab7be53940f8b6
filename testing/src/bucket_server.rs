//! An S3 and HTTP server for one bucket in memory: it supports paged listings, byte ranges and conditional requests, and counts its
//! requests.
//!
//! A real server that stores its objects in a folder cannot hold every key that S3 allows (`dir//c`, `dir/..`, a newline), and does not
//! count its requests by kind. This server accepts any bucket name, and does not check signatures. The server has no TLS and no writes, and
//! is for tests and benchmarks only.
//!
//! ```text
//!   GET /bucket?list-type=2&prefix=a/&delimiter=/&max-keys=2     a/x  a/y/*  a/z  ──► a/x, a/y/ and a token
//!   GET /bucket/KEY  Range, If-Match       ──► 206, 200, 404, 412, 416
//!   HEAD /bucket/KEY                       ──► 200, 404
//! ```

use super::http_server::{HttpServer, ServedAnswer, ServedRequest, lock};
use percent_encoding::percent_decode_str;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io;
use std::ops::{Bound, Deref};
use std::sync::{Arc, Mutex};

/// Maximum number of keys in one page, as in S3.
const MAX_KEYS: usize = 1000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Requests for pages of listings.
    pub lists: u64,
    /// Requests for objects and parts of objects.
    pub gets: u64,
    pub heads: u64,
}

impl Requests {
    pub fn all(&self) -> u64 {
        self.lists + self.gets + self.heads
    }
}

#[derive(Clone)]
struct Object {
    bytes: Arc<Vec<u8>>,
    /// The number of this object among all that were ever put: it determines the ETag.
    number: u64,
    /// The seconds of its date: the number of the first object that was put within the same second.
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

    /// The date with a fraction, as in listings of S3.
    fn listed_date(&self) -> String {
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
    /// Keys whose bytes were requested.
    asked: BTreeSet<String>,
    page: usize,
}

pub struct BucketServer {
    server: HttpServer,
    state: Arc<Mutex<BucketState>>,
}

impl BucketServer {
    pub fn start() -> io::Result<BucketServer> {
        let state = Arc::new(Mutex::new(BucketState {
            objects: BTreeMap::new(),
            puts: 0,
            requests: Requests::default(),
            asked: BTreeSet::new(),
            page: MAX_KEYS,
        }));
        let own = Arc::clone(&state);
        let server = HttpServer::start(move |seen, _| lock(&own).answer(seen))?;
        Ok(BucketServer { server, state })
    }

    pub fn variables(&self) -> Vec<(String, String)> {
        let endpoint = format!("http://{}", self.address());
        [
            ("AWS_ENDPOINT_URL", endpoint.as_str()),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_REGION", "us-east-1"),
        ]
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .into()
    }

    /// Returns the URL of an object, for an HTTP client.
    pub fn url(&self, key: &str) -> String {
        format!("http://{}/bucket/{key}", self.address())
    }

    /// Sets the maximum number of keys in a page of a listing.
    pub fn set_page(&self, keys: usize) {
        lock(&self.state).page = keys;
    }

    /// Puts an object into the bucket, with an ETag and a date that no other object ever had.
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

    /// Replaces an object by another object of the same size and with the same date: only the ETag is new.
    ///
    /// # Panics
    /// Panics if the object does not exist, or has another size.
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

    pub fn delete(&self, key: &str) {
        lock(&self.state).objects.remove(key);
    }

    pub fn requests(&self) -> Requests {
        lock(&self.state).requests
    }

    /// Returns true if bytes of this object were requested. Once this function returns true, putting another object no longer changes the
    /// reply to that request.
    pub fn was_asked_for(&self, key: &str) -> bool {
        lock(&self.state).asked.contains(key)
    }
}

impl Deref for BucketServer {
    type Target = HttpServer;

    fn deref(&self) -> &HttpServer {
        &self.server
    }
}

impl BucketState {
    fn answer(&mut self, seen: &ServedRequest) -> io::Result<ServedAnswer> {
        let (path, query) = seen.target.split_once('?').unwrap_or((&seen.target, ""));
        let key = path.trim_start_matches('/').split_once('/');
        let key = key.map_or(String::new(), |(_, key)| {
            percent_decode_str(key).decode_utf8_lossy().into_owned()
        });
        if key.is_empty() && query.contains("list-type=2") {
            self.requests.lists += 1;
            let mut answer = ServedAnswer::new(200, self.list(query));
            answer.set("Content-Type", "application/xml");
            return Ok(answer);
        }
        if seen.method == "HEAD" {
            self.requests.heads += 1;
        } else {
            self.requests.gets += 1;
            self.asked.insert(key.clone());
        }
        let Some(object) = self.objects.get(&key) else {
            return Ok(ServedAnswer::error(404, "NoSuchKey"));
        };
        let (etag, date) = (format!("\"{}\"", object.number), object.http_date());
        let is_unmet = seen.header("if-match").is_some_and(|asked| asked != etag);
        let modified_since = seen.header("if-unmodified-since");
        if is_unmet || modified_since.is_some_and(|asked| asked != date) {
            return Ok(ServedAnswer::error(412, "PreconditionFailed"));
        }
        let mut answer = ServedAnswer::new(200, "");
        answer.set("ETag", &etag);
        answer.set("Last-Modified", &date);
        let bytes = &object.bytes;
        answer.part(seen, bytes.len() as u64, |range| {
            Ok(bytes[range.start as usize..range.end as usize].to_vec())
        })
    }

    /// Answers with one page of the keys.
    fn list(&self, query: &str) -> String {
        let values: BTreeMap<String, String> = url::form_urlencoded::parse(query.as_bytes())
            .into_owned()
            .collect();
        let value = |name: &str| values.get(name).map_or("", String::as_str);
        let (prefix, delimiter) = (value("prefix"), value("delimiter"));
        let after = match value("continuation-token") {
            "" => value("start-after"),
            token => token,
        };
        let most = value("max-keys").parse().unwrap_or(MAX_KEYS).min(self.page);
        let (mut body, mut count, mut last) = (String::new(), 0, String::new());
        let mut is_truncated = false;
        let behind = (Bound::Excluded(after), Bound::Unbounded);
        for (key, object) in self.objects.range::<str, _>(behind) {
            let Some(rest) = key.strip_prefix(prefix) else {
                continue;
            };
            let folder = rest
                .find(delimiter)
                .filter(|_| !delimiter.is_empty())
                .map(|at| &key[..prefix.len() + at + 1]);
            // After a folder that was listed, the page continues with the next key outside that folder.
            if folder.is_some_and(|folder| folder == last || after.starts_with(folder)) {
                continue;
            }
            is_truncated = count == most;
            if is_truncated {
                break;
            }
            count += 1;
            last = folder.unwrap_or(key).to_string();
            let name = escaped(&last);
            body += &match folder {
                Some(_) => format!("<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>"),
                None => format!(
                    "<Contents><Key>{name}</Key><LastModified>{}</LastModified><ETag>&quot;{}&quot;</ETag><Size>{}</Size></Contents>",
                    object.listed_date(),
                    object.number,
                    object.bytes.len()
                ),
            };
        }
        let mut head =
            format!("<IsTruncated>{is_truncated}</IsTruncated><KeyCount>{count}</KeyCount>");
        if is_truncated {
            let token = escaped(&last);
            head += &format!("<NextContinuationToken>{token}</NextContinuationToken>");
        }
        format!("<ListBucketResult>{head}{body}</ListBucketResult>")
    }
}

/// Escapes text for XML; control characters become numbers, as S3 writes them.
fn escaped(text: &str) -> String {
    let mut all = String::new();
    for c in text.chars() {
        if c.is_control() || "&<>".contains(c) {
            // Writing to a string cannot fail.
            let _ = write!(all, "&#{};", u32::from(c));
        } else {
            all.push(c);
        }
    }
    all
}
