//! A Hugging Face Hub in memory: a server that knows repositories, and a content server to which it redirects with signed addresses.
//!
//! It is right where the client `huggingface_hub` accepts it (`engine/tests/hub.rs`). Each of the two servers keeps every request that it
//! had, so a test can show that no credential reached the content server. Addresses expire by a call, by their age, or by the number of
//! their uses. Never: TLS, uploads, or used outside tests and benches.
//!
//! ```text
//!   /USER/REPO/resolve/REV/PATH   a large file  ──► 302, Location: http://CONTENT/SHA256?Expires=..., X-Linked-Etag, X-Linked-Size
//!   /datasets/USER/REPO/...       a small file  ──► 206, 200
//!   /spaces/USER/REPO/...         neither       ──► 401, 403, 404 with X-Error-Code
//!   /api/...                      hub_api.rs
//!   http://CONTENT/SHA256?...     in its time   ──► 206, 200
//!                                 too late      ──► 403
//! ```
//! Example: `put("u/r", "a.bin", ..)` makes the second commit of `main`. A client that opened `a.bin` before keeps the first.

use super::behaviour::Answer;
use super::bucket_server::send;
use super::hub_api::{self, Info};
use super::link::Link;
use super::range_server::{ServedRequest, parse_range, request};
use foreread::source::{Mem, Source};
use percent_encoding::percent_decode_str;
use std::collections::{BTreeMap, HashMap};
use std::io::{BufReader, IoSliceMut, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Requests of each server that are remembered.
const MAX_SEEN: usize = 1 << 16;
/// Longest body of a request.
const MAX_BODY: u64 = 1 << 20;
const DAY: Duration = Duration::from_secs(86_400);

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HubRoute {
    /// A file, of the hub.
    Resolve,
    /// The API of the hub.
    Api,
    /// The content server.
    Content,
}

/// A file's bytes.
#[derive(Clone)]
pub(super) struct Blob {
    pub source: Arc<dyn Source>,
    /// In hexadecimal digits: 64 of a large file, 40 of a small one.
    pub tag: String,
    pub is_lfs: bool,
    /// Another server that has them.
    elsewhere: Option<String>,
}

pub(super) type Files = BTreeMap<String, Blob>;

#[derive(Clone)]
struct Commit {
    sha: String,
    files: Files,
}

#[derive(Clone, Default)]
struct Repository {
    commits: Vec<Commit>,
    /// Names of revisions beside the commits.
    branches: BTreeMap<String, String>,
    is_private: bool,
    is_gated: bool,
}

/// An answer in place of the right one.
#[derive(Clone)]
struct CannedAnswer {
    route: HubRoute,
    left: u64,
    answer: Answer,
}

struct HubState {
    repositories: BTreeMap<String, Repository>,
    renamed: BTreeMap<String, String>,
    blobs: HashMap<String, Blob>,
    puts: u64,
    token: Option<String>,
    page: usize,
    /// Addresses that were signed in an earlier one are refused.
    epoch: u64,
    life: Duration,
    uses: u64,
    signatures: u64,
    used: HashMap<String, u64>,
    canned: Vec<CannedAnswer>,
    hub_seen: Vec<ServedRequest>,
    content_seen: Vec<ServedRequest>,
    link: Link,
    /// Where addresses lead, in place of the content server.
    content_at: Option<SocketAddr>,
}

pub struct HubServer {
    hub: SocketAddr,
    content: SocketAddr,
    state: Arc<Mutex<HubState>>,
    stop: Arc<AtomicBool>,
}

impl HubServer {
    /// A hub without repositories.
    ///
    /// # Errors
    /// No port is free.
    pub fn start() -> std::io::Result<HubServer> {
        let (hub, content) = (
            TcpListener::bind("127.0.0.1:0")?,
            TcpListener::bind("127.0.0.1:0")?,
        );
        let state = HubState {
            repositories: BTreeMap::new(),
            renamed: BTreeMap::new(),
            blobs: HashMap::new(),
            puts: 0,
            token: None,
            page: 1000,
            epoch: 0,
            life: DAY,
            uses: u64::MAX,
            signatures: 0,
            used: HashMap::new(),
            canned: Vec::new(),
            hub_seen: Vec::new(),
            content_seen: Vec::new(),
            link: Link::new(Duration::ZERO, 0),
            content_at: None,
        };
        let server = HubServer {
            hub: hub.local_addr()?,
            content: content.local_addr()?,
            state: Arc::new(Mutex::new(state)),
            stop: Arc::default(),
        };
        for (listener, is_hub) in [(hub, true), (content, false)] {
            let (state, stop) = (Arc::clone(&server.state), Arc::clone(&server.stop));
            let at = Addresses {
                hub: server.hub,
                content: server.content,
                is_hub,
            };
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let state = Arc::clone(&state);
                    std::thread::spawn(move || drop(converse(&stream, &state, at)));
                }
            });
        }
        Ok(server)
    }

    /// `HF_ENDPOINT` of a client.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.hub)
    }

    /// The variables of a client; it has no token.
    #[must_use]
    pub fn variables(&self) -> Vec<(String, String)> {
        vec![("HF_ENDPOINT".to_string(), self.endpoint())]
    }

    /// Puts a large file into `USER/REPO`, `datasets/USER/REPO` or `spaces/USER/REPO`: a new commit of `main`.
    pub fn put(&self, repository: &str, path: &str, source: impl Source + 'static) {
        self.commit(repository, path, Arc::new(source), true, None);
    }

    /// Puts a file that the hub sends itself.
    pub fn put_small(&self, repository: &str, path: &str, bytes: Vec<u8>) {
        self.commit(repository, path, Arc::new(Mem::new(bytes)), false, None);
    }

    /// Puts a large file whose bytes another server has, at this URL, which must have a query.
    pub fn put_elsewhere(&self, repository: &str, path: &str, size: u64, url: &str) {
        let source = Mem::generated(size, |_, bytes| bytes.fill(0));
        self.commit(repository, path, Arc::new(source), true, Some(url));
    }

    fn commit(
        &self,
        repository: &str,
        path: &str,
        source: Arc<dyn Source>,
        is_lfs: bool,
        elsewhere: Option<&str>,
    ) {
        let mut state = lock(&self.state);
        state.puts += 1;
        let number = state.puts;
        let blob = Blob {
            source,
            tag: if is_lfs {
                format!("1f5{number:061x}")
            } else {
                format!("b10b{number:036x}")
            },
            is_lfs,
            elsewhere: elsewhere.map(str::to_string),
        };
        state.blobs.insert(blob.tag.clone(), blob.clone());
        let repository = state
            .repositories
            .entry(repository.to_string())
            .or_default();
        let mut files = repository
            .commits
            .last()
            .map(|commit| commit.files.clone())
            .unwrap_or_default();
        files.insert(path.to_string(), blob);
        let sha = format!("c0{number:038x}");
        repository.commits.push(Commit {
            sha: sha.clone(),
            files,
        });
        repository.branches.insert("main".to_string(), sha);
    }

    /// The commit of `main` is what this revision means, too.
    pub fn branch(&self, repository: &str, revision: &str) {
        self.with(repository, |repository| {
            let main = repository.branches["main"].clone();
            repository.branches.insert(revision.to_string(), main);
        });
    }

    /// The commit of `main`.
    #[must_use]
    pub fn main(&self, repository: &str) -> String {
        self.with(repository, |repository| repository.branches["main"].clone())
    }

    /// A repository had another name before: that leads to it.
    pub fn renamed(&self, old: &str, new: &str) {
        let (old, new) = (old.to_string(), new.to_string());
        lock(&self.state).renamed.insert(old, new);
    }

    /// This token is the only one that there is.
    pub fn set_token(&self, token: &str) {
        lock(&self.state).token = Some(token.to_string());
    }

    /// Only the owner of the token sees it.
    pub fn make_private(&self, repository: &str) {
        self.with(repository, |repository| repository.is_private = true);
    }

    /// Its files are for users that its owner has let in; the owner of the token is not one.
    pub fn make_gated(&self, repository: &str) {
        self.with(repository, |repository| repository.is_gated = true);
    }

    fn with<T>(&self, repository: &str, work: impl FnOnce(&mut Repository) -> T) -> T {
        let mut state = lock(&self.state);
        work(
            state
                .repositories
                .entry(repository.to_string())
                .or_default(),
        )
    }

    /// Entries of a page of a tree, at most.
    pub fn set_page(&self, entries: usize) {
        lock(&self.state).page = entries;
    }

    /// All addresses that were given are refused from now on.
    pub fn expire(&self) {
        lock(&self.state).epoch += 1;
    }

    /// Addresses that are given from now on last this long, in whole seconds.
    pub fn set_life(&self, life: Duration) {
        lock(&self.state).life = life;
    }

    /// Each address is good for this number of requests.
    pub fn set_uses(&self, uses: u64) {
        lock(&self.state).uses = uses;
    }

    /// The next `times` requests for this are answered with this status, `X-Error-Code` and `Retry-After`.
    pub fn refuse(
        &self,
        route: HubRoute,
        status: u16,
        code: &str,
        retry_after: Option<u64>,
        times: u64,
    ) {
        let mut answer = refusal(status, code);
        if let Some(seconds) = retry_after {
            answer.set("Retry-After", &seconds.to_string());
        }
        self.answer(route, answer, times);
    }

    /// The next `times` requests for this are answered with a redirect to `location`.
    pub fn redirect(&self, route: HubRoute, location: &str, times: u64) {
        let mut answer = Answer::new(302, "");
        answer.set("Location", location);
        self.answer(route, answer, times);
    }

    fn answer(&self, route: HubRoute, answer: Answer, left: u64) {
        lock(&self.state).canned.push(CannedAnswer {
            route,
            left,
            answer,
        });
    }

    /// Right answers from now on.
    pub fn answer_right(&self) {
        lock(&self.state).canned.clear();
    }

    /// From now on answers go over this link.
    pub fn link(&self, link: Link) {
        lock(&self.state).link = link;
    }

    /// The hub and its content server.
    #[must_use]
    pub fn addresses(&self) -> [SocketAddr; 2] {
        [self.hub, self.content]
    }

    /// Addresses that are given from now on lead here: to a proxy in front of the content server.
    pub fn send_to(&self, proxy: SocketAddr) {
        lock(&self.state).content_at = Some(proxy);
    }

    /// Addresses that were given.
    #[must_use]
    pub fn signatures(&self) -> u64 {
        lock(&self.state).signatures
    }

    /// Every request that the hub had, the first 65,536 of them.
    #[must_use]
    pub fn hub_seen(&self) -> Vec<ServedRequest> {
        lock(&self.state).hub_seen.clone()
    }

    /// The same of the content server.
    #[must_use]
    pub fn content_seen(&self) -> Vec<ServedRequest> {
        lock(&self.state).content_seen.clone()
    }
}

impl Drop for HubServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for address in [self.hub, self.content] {
            drop(TcpStream::connect(address));
        }
    }
}

fn lock(state: &Mutex<HubState>) -> MutexGuard<'_, HubState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone, Copy)]
struct Addresses {
    hub: SocketAddr,
    content: SocketAddr,
    is_hub: bool,
}

/// Request after request of one connection.
fn converse(stream: &TcpStream, state: &Mutex<HubState>, at: Addresses) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while let Some(seen) = request(&mut reader)? {
        let mut body = Vec::new();
        let len = seen.header("content-length").and_then(|n| n.parse().ok());
        let len: u64 = len.unwrap_or(0);
        reader
            .by_ref()
            .take(len.min(MAX_BODY))
            .read_to_end(&mut body)?;
        let (answer, link) = {
            let mut state = lock(state);
            let kept = if at.is_hub {
                &mut state.hub_seen
            } else {
                &mut state.content_seen
            };
            if kept.len() < MAX_SEEN {
                kept.push(seen.clone());
            }
            (state.answer(&seen, &body, at), state.link.clone())
        };
        // Bytes are read without the lock.
        let answer = match answer {
            HubAnswer::Answer(answer) => answer,
            HubAnswer::Part(answer, blob) => part(answer, &blob, &seen),
        };
        link.travel();
        send(stream, answer, seen.method == "HEAD", &link)?;
    }
    stream.shutdown(Shutdown::Both)
}

/// What a request gets: an answer, or the part of a file that it asks for, with this head.
enum HubAnswer {
    Answer(Answer),
    Part(Answer, Blob),
}

fn refusal(status: u16, code: &str) -> Answer {
    let message = match (status, code) {
        (_, "RepoNotFound") => "Repository not found",
        (_, "EntryNotFound") => "Entry not found",
        (_, "RevisionNotFound") => "Invalid rev id",
        (_, "GatedRepo") => "Access to this repository is restricted",
        (401, _) => "Invalid credentials in Authorization header",
        _ => "refused",
    };
    let mut answer = Answer::new(status, format!("{{\"error\":\"{message}\"}}"));
    answer.set("Content-Type", "application/json; charset=utf-8");
    answer.set("X-Error-Code", code);
    answer.set("X-Error-Message", message);
    answer
}

impl HubState {
    fn answer(&mut self, seen: &ServedRequest, body: &[u8], at: Addresses) -> HubAnswer {
        let (path, query) = seen.target.split_once('?').unwrap_or((&seen.target, ""));
        let route = match at.is_hub {
            false => HubRoute::Content,
            true if path.starts_with("/api/") => HubRoute::Api,
            true => HubRoute::Resolve,
        };
        self.canned.retain(|canned| canned.left > 0);
        let mut canned = self.canned.iter_mut();
        if let Some(canned) = canned.find(|canned| canned.route == route) {
            canned.left -= 1;
            return HubAnswer::Answer(canned.answer.clone());
        }
        if route == HubRoute::Content {
            return self.content(path, query);
        }
        let answer = self.hub(path, query, seen, body, at);
        answer.unwrap_or_else(|(status, code)| HubAnswer::Answer(refusal(status, code)))
    }

    /// Bytes, by a signed address.
    fn content(&mut self, path: &str, query: &str) -> HubAnswer {
        let value = |key: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let found = pairs.find(|(own, _)| *own == key)?.1.parse::<u64>();
            found.ok()
        };
        let used = self.used.entry(query.to_string()).or_default();
        *used += 1;
        let is_good = value("Expires").is_some_and(|until| seconds_now() < until)
            && value("Epoch") == Some(self.epoch)
            && *used <= self.uses;
        match self.blobs.get(path.trim_start_matches('/')) {
            Some(blob) if is_good => {
                let mut answer = Answer::new(200, "");
                // Of the storage behind it: not what the hub says.
                answer.set("ETag", &format!("\"storage-{}\"", &blob.tag[..8]));
                answer.set("Last-Modified", "Fri, 02 Jan 2026 03:04:05 GMT");
                HubAnswer::Part(answer, blob.clone())
            }
            _ => HubAnswer::Answer(Answer::error(403, "AccessDenied")),
        }
    }

    fn hub(
        &mut self,
        path: &str,
        query: &str,
        seen: &ServedRequest,
        body: &[u8],
        at: Addresses,
    ) -> Result<HubAnswer, (u16, &'static str)> {
        let is_owner = match (&seen.authorization, &self.token) {
            (None, _) => false,
            (Some(said), Some(token)) if *said == format!("Bearer {token}") => true,
            _ => return Err((401, "")),
        };
        let parts: Vec<String> = path
            .split('/')
            .skip(1)
            .map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned())
            .collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let (kind, rest) = match &parts[..] {
            ["api", "models", rest @ ..] => ("", rest),
            ["api", "datasets", rest @ ..] | ["datasets", rest @ ..] => ("datasets/", rest),
            ["api", "spaces", rest @ ..] | ["spaces", rest @ ..] => ("spaces/", rest),
            rest => ("", rest),
        };
        let [user, name, rest @ ..] = rest else {
            return Err((404, "RepoNotFound"));
        };
        let id = format!("{user}/{name}");
        let full = format!("{kind}{id}");
        if let Some(new) = self.renamed.get(&full) {
            let mut answer = Answer::new(307, "");
            let new = new.strip_prefix(kind).unwrap_or(new);
            answer.set("Location", &seen.target.replacen(&id, new, 1));
            return Ok(HubAnswer::Answer(answer));
        }
        let missing = (if is_owner { 404 } else { 401 }, "RepoNotFound");
        let repository = self.repositories.get(&full).ok_or(missing)?;
        if repository.is_private && !is_owner {
            return Err(missing);
        }
        let (call, revision, path) = match rest {
            [] => ("info", "main", String::new()),
            ["revision", revision] => ("info", *revision, String::new()),
            [call, revision, path @ ..] => (*call, *revision, path.join("/")),
            [_] => return Err((404, "")),
        };
        let sha = repository
            .branches
            .get(revision)
            .map_or(revision, |sha| sha);
        let mut commits = repository.commits.iter();
        let commit = commits.find(|commit| commit.sha == sha);
        let Commit { sha, files } = commit.ok_or((404, "RevisionNotFound"))?.clone();
        let entry_missing = (404, "EntryNotFound");
        let mut answer = match call {
            "info" => hub_api::info(&Info {
                id: &id,
                sha: &sha,
                is_private: repository.is_private,
                is_gated: repository.is_gated,
                files: &files,
            }),
            "paths-info" => hub_api::paths_info(&files, body),
            "tree" => {
                let url = seen.target.split('?').next().unwrap_or_default();
                let here = format!("http://{}{url}", at.hub);
                hub_api::tree(&files, &path, query, self.page, &here).ok_or(entry_missing)?
            }
            "resolve" => {
                if repository.is_gated {
                    return Err((if is_owner { 403 } else { 401 }, "GatedRepo"));
                }
                let blob = files.get(&path).ok_or(entry_missing)?.clone();
                return Ok(self.resolve(blob, &sha, at));
            }
            _ => return Err((404, "")),
        };
        answer.set("X-Request-Id", "0");
        Ok(HubAnswer::Answer(answer))
    }

    /// A file: its bytes, or where they are.
    fn resolve(&mut self, blob: Blob, sha: &str, at: Addresses) -> HubAnswer {
        let tag = format!("\"{}\"", blob.tag);
        if !blob.is_lfs {
            let mut answer = Answer::new(200, "");
            answer.set("X-Repo-Commit", sha);
            answer.set("ETag", &tag);
            return HubAnswer::Part(answer, blob);
        }
        self.signatures += 1;
        let mut answer = Answer::new(302, "Found. Redirecting");
        answer.set("X-Repo-Commit", sha);
        answer.set("X-Linked-Etag", &tag);
        answer.set("X-Linked-Size", &blob.source.size().to_string());
        let (serial, epoch) = (self.signatures, self.epoch);
        let until = seconds_now().saturating_add(self.life.as_secs());
        let url = match &blob.elsewhere {
            Some(url) => format!("{url}&Signature={serial}"),
            None => format!(
                "http://{}/{}?Expires={until}&Epoch={epoch}&Signature={serial}",
                self.content_at.unwrap_or(at.content),
                blob.tag
            ),
        };
        answer.set("Location", &url);
        HubAnswer::Answer(answer)
    }
}

/// What a request asks for of a file.
fn part(mut answer: Answer, blob: &Blob, seen: &ServedRequest) -> Answer {
    let size = blob.source.size();
    let asked = seen.range.as_deref().and_then(parse_range);
    let own = answer.head.iter().find(|(name, _)| *name == "ETag");
    let tag = own.map(|(_, tag)| tag.as_str());
    if seen.if_match.is_some() && seen.if_match.as_deref() != tag {
        return Answer::new(412, "");
    }
    if tag.is_some() && seen.header("if-none-match") == tag {
        answer.status = 304;
        return answer;
    }
    answer.set("Accept-Ranges", "bytes");
    let range = match asked {
        Some(range) if range.start >= size => {
            answer.status = 416;
            answer.set("Content-Range", &format!("bytes */{size}"));
            return answer;
        }
        Some(range) => {
            let range = range.start..range.end.min(size);
            let (from, to) = (range.start, range.end - 1);
            answer.status = 206;
            answer.set("Content-Range", &format!("bytes {from}-{to}/{size}"));
            range
        }
        None => 0..size,
    };
    answer.body = vec![0; (range.end - range.start) as usize];
    let bufs = &mut [IoSliceMut::new(&mut answer.body)];
    match blob.source.read_at(bufs, range.start) {
        Ok(_) => answer,
        Err(_) => Answer::new(500, ""),
    }
}

fn seconds_now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}
