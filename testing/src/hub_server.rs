//! A Hugging Face Hub in memory: a server with repositories, and a content server to which it redirects with signed URLs.
//!
//! `engine/tests/hub.rs` checks this server with the client library `huggingface_hub`. Each of the two servers records all its
//! requests, so a test can show that no credential reached the content server. Signed URLs expire when a test calls a function, when they
//! reach a certain age, or after a number of uses. The server has no TLS and no uploads, and is for tests and benchmarks only.
//!
//! ```text
//!   /USER/REPO/resolve/REV/PATH   a large file  ──► 302, Location: http://CONTENT/SHA256?Expires=..., X-Linked-Etag, X-Linked-Size
//!   /datasets/USER/REPO/...       a small file  ──► 206, 200
//!   /spaces/USER/REPO/...         neither       ──► 401, 403, 404 with X-Error-Code
//!   /api/...                      answers of its API
//!   http://CONTENT/SHA256?...     not expired   ──► 206, 200
//!                                 expired       ──► 403
//! ```
//! Example: the second `put("u/r", "a.bin", ..)` makes the second commit of `main`. A client that opened `a.bin` before that still
//! reads the first commit.

use super::http_server::{HttpServer, ServedAnswer as Answer, ServedRequest, lock};
use super::range_server::read;
use foreread::source::{Mem, Source};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use url::form_urlencoded;

const DAY: Duration = Duration::from_secs(86_400);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HubRoute {
    /// A file of the hub.
    Resolve,
    Api,
    Content,
}

/// How a mirror of a hub answers requests for files, instead of redirecting to the content server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HubMirror {
    /// The bytes, with the hub's ETag in addition to its own.
    Linked,
    /// The bytes, with another ETag.
    OwnTag,
    /// The bytes, without an ETag.
    NoTag,
    /// The bytes, without the commit.
    NoCommit,
    /// The bytes, with neither the commit nor the hub's ETag.
    Plain,
    /// A redirect to a URL of its own, with the hub's ETag.
    SameOrigin,
}

#[derive(Clone)]
struct Commit {
    sha: String,
    files: Files,
}

#[derive(Clone, Default)]
struct Repository {
    commits: Vec<Commit>,
    /// Names of revisions, in addition to the commits.
    branches: BTreeMap<String, String>,
    is_private: bool,
    is_gated: bool,
}

/// An answer that replaces the right one.
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
    /// URLs that were signed in an earlier epoch are refused.
    epoch: u64,
    uses: u64,
    signatures: u64,
    used: HashMap<String, u64>,
    canned: Vec<CannedAnswer>,
    address: SocketAddr,
    /// The content server, or the server that signed URLs lead to instead.
    content_at: SocketAddr,
    mirror: Option<HubMirror>,
}

pub struct HubServer {
    hub: HttpServer,
    content: HttpServer,
    state: Arc<Mutex<HubState>>,
}

impl HubServer {
    /// Starts a hub without repositories.
    pub fn start() -> io::Result<HubServer> {
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
            uses: u64::MAX,
            signatures: 0,
            used: HashMap::new(),
            canned: Vec::new(),
            address: hub.local_addr()?,
            content_at: content.local_addr()?,
            mirror: None,
        };
        let state = Arc::new(Mutex::new(state));
        let answers = |is_hub| {
            let state = Arc::clone(&state);
            move |seen: &ServedRequest, body: &[u8]| {
                let answer = lock(&state).answer(seen, body, is_hub);
                // Bytes are read without the lock.
                match answer {
                    HubAnswer::Answer(answer) => Ok(answer),
                    HubAnswer::Part(answer, blob) => part(answer, &blob, seen),
                }
            }
        };
        let (of_hub, of_content) = (answers(true), answers(false));
        Ok(HubServer {
            hub: HttpServer::on(hub, of_hub)?,
            content: HttpServer::on(content, of_content)?,
            state,
        })
    }

    /// Returns the value of `HF_ENDPOINT` for a client.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.hub.address())
    }

    /// Returns the environment variables for a client, without a token.
    pub fn variables(&self) -> Vec<(String, String)> {
        vec![("HF_ENDPOINT".to_string(), self.endpoint())]
    }

    /// Puts a large file into `USER/REPO`, `datasets/USER/REPO` or `spaces/USER/REPO`, as a new commit of `main`.
    pub fn put(&self, repository: &str, path: &str, source: impl Source + 'static) {
        self.commit(repository, path, Arc::new(source), true);
    }

    /// Puts a file that the hub itself sends, without a redirect.
    pub fn put_small(&self, repository: &str, path: &str, bytes: Vec<u8>) {
        self.commit(repository, path, Arc::new(Mem::new(bytes)), false);
    }

    /// Replaces a file's bytes in all commits, without changing its name: simulates a faulty mirror.
    pub fn swap(&self, repository: &str, path: &str, bytes: Vec<u8>) {
        let source: Arc<dyn Source> = Arc::new(Mem::new(bytes));
        self.with(repository, |repository| {
            let commits = repository.commits.iter_mut();
            for blob in commits.filter_map(|commit| commit.files.get_mut(path)) {
                blob.source = Arc::clone(&source);
            }
        });
    }

    fn commit(&self, repository: &str, path: &str, source: Arc<dyn Source>, is_lfs: bool) {
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

    /// Makes this revision another name for the current commit of `main`.
    pub fn branch(&self, repository: &str, revision: &str) {
        self.with(repository, |repository| {
            let main = repository.branches["main"].clone();
            repository.branches.insert(revision.to_string(), main);
        });
    }

    /// Returns the current commit of `main`.
    pub fn main(&self, repository: &str) -> String {
        self.with(repository, |repository| repository.branches["main"].clone())
    }

    /// Redirects the old name of a repository to its new name.
    pub fn renamed(&self, old: &str, new: &str) {
        let (old, new) = (old.to_string(), new.to_string());
        lock(&self.state).renamed.insert(old, new);
    }

    /// Makes this token the only valid token.
    pub fn set_token(&self, token: &str) {
        lock(&self.state).token = Some(token.to_string());
    }

    /// Makes the repository visible only with the token.
    pub fn make_private(&self, repository: &str) {
        self.with(repository, |repository| repository.is_private = true);
    }

    /// Restricts the files of a repository to users that its owner has admitted (a gated repository); the user of the token is not
    /// admitted.
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

    /// Sets the maximum number of entries in a page of a listing.
    pub fn set_page(&self, entries: usize) {
        lock(&self.state).page = entries;
    }

    /// Refuses all URLs that were signed so far.
    pub fn expire(&self) {
        lock(&self.state).epoch += 1;
    }

    /// Makes each signed URL valid for this number of requests.
    pub fn set_uses(&self, uses: u64) {
        lock(&self.state).uses = uses;
    }

    /// Answers the next `times` requests for this route with this status, `X-Error-Code` and `Retry-After`.
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

    /// Answers the next `times` requests for this route with a redirect to `location`.
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

    pub fn answer_right(&self) {
        lock(&self.state).canned.clear();
    }

    /// Returns the addresses of the hub and of its content server.
    pub fn addresses(&self) -> [SocketAddr; 2] {
        [self.hub.address(), self.content.address()]
    }

    /// From now on, signed URLs lead to this address of a proxy in front of the content server.
    pub fn send_to(&self, proxy: SocketAddr) {
        lock(&self.state).content_at = proxy;
    }

    /// From now on, answers as a mirror of a hub does.
    pub fn mirror(&self, mirror: HubMirror) {
        lock(&self.state).mirror = Some(mirror);
    }

    /// Returns the number of URLs that were signed so far.
    pub fn signatures(&self) -> u64 {
        lock(&self.state).signatures
    }

    /// Returns all requests to the hub so far, but at most the first 65,536.
    pub fn hub_seen(&self) -> Vec<ServedRequest> {
        self.hub.seen()
    }

    /// Returns all requests to the content server so far, but at most the first 65,536.
    pub fn content_seen(&self) -> Vec<ServedRequest> {
        self.content.seen()
    }
}

/// The result for a request: an answer, or the requested part of a file with this head.
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
    let mut answer = json(&json!({ "error": message }));
    answer.status = status;
    answer.set("X-Error-Code", code);
    answer.set("X-Error-Message", message);
    answer
}

impl HubState {
    fn answer(&mut self, seen: &ServedRequest, body: &[u8], is_hub: bool) -> HubAnswer {
        let (path, query) = seen.target.split_once('?').unwrap_or((&seen.target, ""));
        let route = match is_hub {
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
        let answer = self.hub(path, query, seen, body);
        answer.unwrap_or_else(|(status, code)| HubAnswer::Answer(refusal(status, code)))
    }

    /// Answers with the bytes of a signed URL.
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
                // These headers come from the storage behind it, and differ from the hub's.
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
    ) -> Result<HubAnswer, (u16, &'static str)> {
        let is_owner = match (seen.header("authorization"), &self.token) {
            (None, _) => false,
            (Some(said), Some(token)) if said == format!("Bearer {token}") => true,
            _ => return Err((401, "")),
        };
        let parts: Vec<String> = path
            .split('/')
            .skip(1)
            .map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned())
            .collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        if let ["mirrored", tag] = &parts[..] {
            if self.token.is_some() && !is_owner {
                return Err((401, ""));
            }
            let blob = self.blobs.get(*tag).ok_or((404, ""))?.clone();
            let mut answer = Answer::new(200, "");
            answer.set("ETag", "\"mirrored\"");
            return Ok(HubAnswer::Part(answer, blob));
        }
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
            "info" => json(&json!({
                "id": id,
                "modelId": id,
                "sha": sha,
                "lastModified": "2026-01-02T03:04:05.000Z",
                "private": repository.is_private,
                "gated": if repository.is_gated { json!("manual") } else { json!(false) },
                "tags": [],
                "downloads": 0,
                "likes": 0,
                "siblings": Vec::from_iter(files.keys().map(|path| json!({ "rfilename": path }))),
            })),
            "paths-info" => paths_info(&files, body),
            "tree" => {
                let url = seen.target.split('?').next().unwrap_or_default();
                let here = format!("http://{}{url}", self.address);
                tree(&files, &path, query, self.page, &here).ok_or(entry_missing)?
            }
            "resolve" => {
                if repository.is_gated {
                    return Err((if is_owner { 403 } else { 401 }, "GatedRepo"));
                }
                let blob = files.get(&path).ok_or(entry_missing)?.clone();
                return Ok(self.resolve(blob, &sha));
            }
            _ => return Err((404, "")),
        };
        answer.set("X-Request-Id", "0");
        Ok(HubAnswer::Answer(answer))
    }

    /// Answers for a file: with its bytes, or with a redirect to them.
    fn resolve(&mut self, blob: Blob, sha: &str) -> HubAnswer {
        let tag = format!("\"{}\"", blob.tag);
        let size = blob.source.size().to_string();
        let is_here = !blob.is_lfs || self.mirror.is_some_and(|of| of != HubMirror::SameOrigin);
        if is_here {
            let own = format!("\"own-{size}\"");
            let (commit, etag) = match self.mirror {
                Some(HubMirror::Linked | HubMirror::OwnTag) => (sha, own.as_str()),
                Some(HubMirror::NoTag) => (sha, ""),
                Some(HubMirror::NoCommit) => ("", tag.as_str()),
                Some(HubMirror::Plain) => ("", own.as_str()),
                Some(HubMirror::SameOrigin) | None => (sha, tag.as_str()),
            };
            let mut answer = Answer::new(200, "");
            answer.set("X-Repo-Commit", commit);
            answer.set("ETag", etag);
            if self.mirror == Some(HubMirror::Linked) {
                answer.set("X-Linked-Etag", &tag);
                answer.set("X-Linked-Size", &size);
            }
            return HubAnswer::Part(answer, blob);
        }
        self.signatures += 1;
        let mut answer = Answer::new(302, "Found. Redirecting");
        answer.set("X-Repo-Commit", sha);
        answer.set("X-Linked-Etag", &tag);
        answer.set("X-Linked-Size", &size);
        if self.mirror == Some(HubMirror::SameOrigin) {
            let url = format!("http://{}/mirrored/{}", self.address, blob.tag);
            answer.set("Location", &url);
            return HubAnswer::Answer(answer);
        }
        let (serial, epoch) = (self.signatures, self.epoch);
        let until = seconds_now().saturating_add(DAY.as_secs());
        let url = format!(
            "http://{}/{}?Expires={until}&Epoch={epoch}&Signature={serial}",
            self.content_at, blob.tag
        );
        answer.set("Location", &url);
        HubAnswer::Answer(answer)
    }
}

fn part(mut answer: Answer, blob: &Blob, seen: &ServedRequest) -> io::Result<Answer> {
    let tag = answer.header("ETag");
    let asked = seen.header("if-match");
    if asked.is_some() && asked != tag {
        return Ok(Answer::new(412, ""));
    }
    if tag.is_some() && seen.header("if-none-match") == tag {
        answer.status = 304;
        return Ok(answer);
    }
    let source = &*blob.source;
    answer.part(seen, source.size(), |range| read(source, range))
}

fn seconds_now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}

// The API of a hub for a repository: its commit, its tree in pages, and single paths.
//
// ```text
//   GET  /api/models/USER/REPO[/revision/REV]                    ──► {"id", "sha", "siblings", ...}
//   GET  /api/models/USER/REPO/tree/REV[/FOLDER]?recursive=true  ──► [{"type", "path", "size", "oid", "lfs"}, ...], Link: rel="next"
//   POST /api/models/USER/REPO/paths-info/REV  paths=a&paths=b   ──► the same, of these paths alone
// ```
// Source: the documentation of the Hub's API, and what `huggingface_hub` accepts.

/// A file's bytes.
#[derive(Clone)]
pub(super) struct Blob {
    pub source: Arc<dyn Source>,
    /// Its hash in hexadecimal: 64 digits for a large file, 40 for a small one.
    pub tag: String,
    pub is_lfs: bool,
}

pub(super) type Files = BTreeMap<String, Blob>;

/// A page of a folder's tree. Returns `None` if the folder does not exist. `here` is the URL without its query.
pub(super) fn tree(
    files: &Files,
    folder: &str,
    query: &str,
    most: usize,
    here: &str,
) -> Option<Answer> {
    let value = |key: &str| {
        let mut pairs = form_urlencoded::parse(query.as_bytes());
        pairs.find(|(own, _)| own == key).map(|(_, value)| value)
    };
    let is_recursive = value("recursive").is_some_and(|v| v.eq_ignore_ascii_case("true"));
    let most = value("limit")
        .and_then(|limit| limit.parse().ok())
        .map_or(most, |limit: usize| limit.min(most));
    let cursor = value("cursor").unwrap_or_default();
    let below = if folder.is_empty() {
        String::new()
    } else {
        format!("{folder}/")
    };
    // All paths of the tree, including folders, in the tree's order.
    let mut paths = BTreeSet::new();
    for path in files.keys().filter(|path| path.starts_with(&below)) {
        let rest = &path[below.len()..];
        let cuts = rest.match_indices('/').map(|(at, _)| at);
        let folders: Vec<usize> = cuts.collect();
        match (is_recursive, folders.first()) {
            (false, Some(at)) => drop(paths.insert(&path[..below.len() + at])),
            (_, None) => drop(paths.insert(path)),
            (true, _) => {
                paths.extend(folders.iter().map(|at| &path[..below.len() + at]));
                paths.insert(path);
            }
        }
    }
    if paths.is_empty() && !folder.is_empty() {
        return None;
    }
    let mut rest = paths.into_iter().filter(|path| **path > *cursor);
    let page: Vec<&str> = rest.by_ref().take(most).collect();
    let entries = page.iter().map(|path| entry(path, files.get(*path)));
    let mut answer = json(&entries.collect());
    if let (Some(last), Some(_)) = (page.last(), rest.next()) {
        let mut next = form_urlencoded::Serializer::new(String::new());
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            if key != "cursor" {
                next.append_pair(&key, &value);
            }
        }
        let next = next.append_pair("cursor", last).finish();
        answer.set("Link", &format!("<{here}?{next}>; rel=\"next\""));
    }
    Some(answer)
}

pub(super) fn paths_info(files: &Files, body: &[u8]) -> Answer {
    let mut found = Vec::new();
    for (key, path) in form_urlencoded::parse(body) {
        let path = path.trim_end_matches('/');
        let below = format!("{path}/");
        let is_folder = files.keys().any(|own| own.starts_with(&below));
        if key == "paths" && (is_folder || files.contains_key(path)) {
            found.push(entry(path, files.get(path)));
        }
    }
    json(&Value::Array(found))
}

/// The entry of a file, or of a folder if there is no file.
fn entry(path: &str, blob: Option<&Blob>) -> Value {
    let Some(blob) = blob else {
        return json!({ "type": "directory", "oid": "f".repeat(40), "size": 0, "path": path });
    };
    let (size, tag) = (blob.source.size(), &blob.tag);
    let oid = &tag[tag.len() - 40..];
    let mut entry = json!({ "type": "file", "oid": oid, "size": size, "path": path });
    if blob.is_lfs {
        entry["lfs"] = json!({ "oid": tag, "size": size, "pointerSize": 134 });
    }
    entry
}

fn json(value: &Value) -> Answer {
    let mut answer = Answer::new(200, value.to_string());
    answer.set("Content-Type", "application/json; charset=utf-8");
    answer
}
