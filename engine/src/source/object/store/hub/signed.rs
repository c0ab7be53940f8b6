//! Reads a hub's files at signed URLs (addresses) of its content delivery network, which expire. foreread requests the address of a
//! file once, shares it among all reads, and renews it.
//!
//! This layer is below the check of replies ([`crate::source::object::reply`]) and above the HTTP client. Requests to the hub carry
//! the token. Requests to the content network carry only the range. The first reply contains the commit, and every later request is
//! for that commit. In a reply of the content network, this module replaces the ETag by the hub's, so that it can be compared with
//! the listing and with other replies. This module never follows a redirect from https to http, never requests the address of a
//! file twice at the same time, and keeps at most [`MAX_ADDRESSES`].
//!
//! ```text
//!   range of a file ──► an address? ── none, expired, refused ──► hub: resolve/COMMIT/PATH ──► 302: the address, ETag, size, commit
//!                          │                                                              └──► 200, 206: the bytes of a small file, or of a mirror
//!                          ▼                                                              └──► a redirect of the hub: followed
//!                      content network ── 400, 401, 403, 410 ──► request a new address; if this one is new: an error
//!                          └──► 206 + the hub's ETag
//! ```
//! If the content network refuses an address that the hub has just issued, and that was never accepted before, the read fails. There is
//! no retry, because each reader would then request yet another address from the hub, and the content network would refuse that address
//! as well.
//!
//! A mirror of the hub may send large files itself, with another kind of ETag than the hub, or without an ETag. This module replaces the
//! mirror's ETag by the ETag that the mirror's API reports for the file at the commit. Every later reply must have the same ETag as the
//! mirror's first reply. If neither the source's name nor the reply contains the commit, this module requests it from the API.
//!
//! Example: eight parts of a file are requested, and the address has expired. The first of these requests that gets a 403
//! requests a new address from the hub. The other seven requests wait for the new address, and then use it. The program that
//! reads the file gets no error.

use super::{Repository, escaped, page};
use crate::source::object::client::{Answer, MAX_HOPS, target};
use crate::source::object::credentials::Provider;
use crate::source::object::page::{NextPage, Page, PageRequest, http_date};
use crate::source::object::refusal::{ADDRESS_REFUSED, Refusal, garbled, refuse};
use crate::source::object::reply::{checked, header, refused, whole};
use crate::source::object::store::Listing;
use crate::source::object::store::http::PLAIN;
use crate::sync::lock;
use futures_util::future::BoxFuture;
use http::Method;
use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpService,
};
use object_store::{CredentialProvider, HeaderMap, HeaderValue};
use percent_encoding::percent_decode_str;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};
use tokio::sync::Mutex;
use url::Url;

/// Maximum files of one mount or reader whose addresses are kept.
const MAX_ADDRESSES: usize = 1024;
/// Maximum bytes of an address; those of the hub have about 1.5 KiB.
const MAX_ADDRESS_BYTES: usize = 16 << 10;
/// The part of its lifetime after which an address is renewed without another try. Chosen value: a request needs part of the
/// remaining time.
const USED_LIFE: f64 = 0.9;
/// A repository of a hub, at one commit.
pub struct Hub {
    /// Follows no redirects.
    client: HttpClient,
    endpoint: Url,
    repository: Repository,
    /// The header `Authorization`. `None` if no link of the chain has a token.
    tokens: Option<Provider<HeaderValue>>,
    /// The commit of every request, once it is known.
    commit: OnceLock<String>,
    files: std::sync::Mutex<HashMap<String, Arc<File>>>,
    uses: AtomicU64,
}

/// What is known about the location of a file's bytes.
#[derive(Default)]
struct File {
    /// Locked while the hub is queried.
    place: Mutex<Option<SignedAddress>>,
    /// The hub or a mirror sends it itself.
    is_here: OnceLock<()>,
    /// The ETags of its version in the API and in a mirror. `None` if the API has none.
    mirrored: OnceLock<Option<MirroredTag>>,
    /// When it was used last, in a count of all uses.
    used: AtomicU64,
}

struct MirroredTag {
    of_hub: HeaderValue,
    of_mirror: Option<HeaderValue>,
    size: u64,
}

#[derive(Clone)]
struct SignedAddress {
    url: Url,
    etag: HeaderValue,
    size: Option<u64>,
    /// Assumed valid until this time.
    until: Option<SystemTime>,
    /// When it was issued, in the count of the hub's uses.
    given: u64,
    /// The content network has accepted it once.
    is_proven: Arc<AtomicBool>,
}

/// The hub's reply to a request for a file.
enum HubReply {
    /// A request for its bytes is sent to this address.
    At(SignedAddress),
    /// The bytes, which the hub sends itself, or a refusal.
    Here(HttpResponse),
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hub")
    }
}

/// Makes the library object_store send its requests to a hub.
#[derive(Clone, Debug)]
pub struct HubConnector(pub Arc<Hub>);

impl HttpConnector for HubConnector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(checked(HttpClient::new(self.clone()), None, &PLAIN))
    }
}

impl HttpService for HubConnector {
    fn call<'a, 'b>(&'a self, request: HttpRequest) -> Answer<'b>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(self.0.pass(request))
    }
}

impl Hub {
    pub fn new(
        repository: Repository,
        endpoint: Url,
        client: HttpClient,
        tokens: Option<Provider<HeaderValue>>,
    ) -> Hub {
        let named = Some(repository.revision.to_ascii_lowercase());
        let named = named.filter(|revision| is_commit(revision));
        Hub {
            client,
            endpoint,
            repository,
            tokens,
            commit: named.map_or_else(OnceLock::new, OnceLock::from),
            files: std::sync::Mutex::default(),
            uses: AtomicU64::new(0),
        }
    }

    /// Returns the URL of the hub for the library object_store; all files are below it.
    pub fn files_url(&self) -> String {
        format!("{}/resolve", self.url(&self.repository.page()))
    }

    /// Returns the address of the hub; what foreread learns about a server is stored under this name, for all files of the hub.
    pub fn server(&self) -> &str {
        self.endpoint.as_str()
    }

    fn url(&self, rest: &str) -> String {
        format!("{}/{rest}", self.endpoint.as_str().trim_end_matches('/'))
    }

    fn revision(&self) -> String {
        escaped(self.commit.get().unwrap_or(&self.repository.revision))
    }

    /// Requests the commit of the revision, and keeps it.
    async fn pin(&self) -> Result<(), HttpError> {
        if self.commit.get().is_some() {
            return Ok(());
        }
        let (_, body) = self
            .api(&format!("revision/{}", self.revision()), None)
            .await?;
        self.keep_commit(&page::commit(&body).map_err(refuse)?)
    }

    /// Requests a page of names. If the request is for a single name, it is a request for that path.
    async fn names(&self, wanted: &PageRequest) -> Result<Page, HttpError> {
        self.pin().await?;
        let revision = self.revision();
        let folder = wanted.prefix.trim_end_matches('/');
        if wanted.most == 1 && !folder.is_empty() {
            let paths = format!("paths={}&expand=False", escaped(folder));
            let (_, body) = self
                .api(&format!("paths-info/{revision}"), Some(paths))
                .await?;
            return page::path(&body, wanted).map_err(refuse);
        }
        let parts = folder.split('/').filter(|part| !part.is_empty());
        let path: String = parts.map(|part| format!("/{}", escaped(part))).collect();
        let query = wanted
            .next
            .token()
            .unwrap_or("recursive=false&expand=false");
        let answer = self
            .api(&format!("tree/{revision}{path}?{query}"), None)
            .await;
        match answer {
            Ok((headers, body)) => page::tree(&headers, &body, wanted).map_err(refuse),
            // The folder does not exist.
            Err(error) if matches!(Refusal::of(&error), Refusal::Status { code, .. } if code == "EntryNotFound") => {
                Ok(Page::default())
            }
            Err(error) => Err(error),
        }
    }

    /// Calls the API, with POST if there is a form.
    async fn api(
        &self,
        call: &str,
        form: Option<String>,
    ) -> Result<(HeaderMap, Vec<u8>), HttpError> {
        let url = parse(&self.url(&format!("{}/{call}", self.repository.api())))?;
        let mut headers = HeaderMap::new();
        if form.is_some() {
            let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
            headers.insert("content-type", kind);
        }
        match self.ask(url, &headers, form.as_deref()).await? {
            HubReply::Here(reply) if reply.status().is_success() => {
                let (parts, body) = reply.into_parts();
                Ok((parts.headers, whole(body).await?))
            }
            HubReply::Here(reply) => {
                let status = reply.status().as_u16();
                Err(refuse(refused(status, reply).await))
            }
            HubReply::At(_) => Err(refuse(Refusal::Redirects)),
        }
    }

    /// Handles a request of object_store for a file or a part of it.
    async fn pass(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let uri = request.uri().to_string();
        let base = self.files_url();
        let path = uri
            .strip_prefix(&base)
            .and_then(|path| path.strip_prefix('/'))
            .ok_or_else(|| refuse(garbled("the URL is not that of a file on the hub")))?;
        let (headers, file) = (request.headers(), self.file(path));
        let mut old: Option<SignedAddress> = None;
        let begun = self.next_use();
        for _ in 0..MAX_HOPS {
            if file.is_here.get().is_some()
                && let HubReply::Here(reply) = self.locate(path, headers).await?
            {
                return self.named(reply, path, &file, headers).await;
            }
            let address = match self.address(&file, path, headers, old.as_ref()).await? {
                HubReply::At(address) => address,
                HubReply::Here(reply) => {
                    return self.named(reply, path, &file, headers).await;
                }
            };
            meets(headers, &address.etag).map_err(refuse)?;
            let reply = match self.content(&address, headers).await {
                Err(error) if error.kind() == HttpErrorKind::Connect => {
                    // A further try queries the hub, which may return another location.
                    forget(&file, &address).await;
                    return Err(error);
                }
                reply => reply?,
            };
            match reply.status().as_u16() {
                // Issued for this request or for another waiting one, and never accepted: another signature would be refused as
                // well.
                status @ (400 | 401 | 403 | 410) if address.is_refused_as_new(begun) => {
                    forget(&file, &address).await;
                    let refusal = Refusal::of_status(status, ADDRESS_REFUSED, None);
                    return Err(refuse(refusal));
                }
                400 | 401 | 403 | 410 => old = Some(address),
                _ => {
                    address.is_proven.store(true, Ordering::Relaxed);
                    let named = as_of_hub(reply, &address.etag, address.size);
                    return named.map_err(refuse);
                }
            }
        }
        Err(refuse(Refusal::Redirects))
    }

    /// An address that is valid as far as is known, and is not `old`. One request queries the hub, and the others wait for it.
    async fn address(
        &self,
        file: &File,
        path: &str,
        headers: &HeaderMap,
        old: Option<&SignedAddress>,
    ) -> Result<HubReply, HttpError> {
        let mut place = file.place.lock().await;
        let known = place
            .clone()
            .filter(|known| old.is_none_or(|old| old.url != known.url))
            .filter(|known| known.is_good_at(SystemTime::now()));
        if let Some(known) = known {
            return Ok(HubReply::At(known));
        }
        let mut located = self.locate(path, headers).await?;
        match &mut located {
            HubReply::At(address) => {
                address.given = self.next_use();
                *place = Some(address.clone());
            }
            HubReply::Here(reply) if reply.status().is_success() => {
                let _ = file.is_here.set(());
            }
            HubReply::Here(_) => {}
        }
        Ok(located)
    }

    fn next_use(&self) -> u64 {
        self.uses.fetch_add(1, Ordering::Relaxed)
    }

    /// What is known about a file. If there are too many files, the least recently used one is dropped.
    fn file(&self, path: &str) -> Arc<File> {
        let now = self.next_use();
        let mut files = lock(&self.files);
        if files.len() >= MAX_ADDRESSES && !files.contains_key(path) {
            let oldest = files
                .iter()
                .min_by_key(|(_, file)| file.used.load(Ordering::Relaxed));
            if let Some(oldest) = oldest.map(|(path, _)| path.clone()) {
                files.remove(&oldest);
            }
        }
        let file = files.entry(path.to_string()).or_default();
        file.used.store(now, Ordering::Relaxed);
        Arc::clone(file)
    }

    async fn locate(&self, path: &str, headers: &HeaderMap) -> Result<HubReply, HttpError> {
        let mut own = headers.clone();
        // A mirror would compare it with its own ETag.
        own.remove("if-match");
        loop {
            let url = format!("{}/{}/{path}", self.files_url(), self.revision());
            let located = self.ask(parse(&url)?, &own, None).await?;
            let is_found = match &located {
                HubReply::At(_) => true,
                HubReply::Here(reply) => reply.status().is_success(),
            };
            if !is_found || self.commit.get().is_some() {
                return Ok(located);
            }
            self.pin().await.map_err(|error| {
                let why = "the reply does not name the commit it belongs to (X-Repo-Commit); check that HF_ENDPOINT is a Hugging Face hub";
                match Refusal::of(&error).is_passing() {
                    true => error,
                    false => refuse(Refusal::Garbled(why.to_string())),
                }
            })?;
        }
    }

    /// A reply with bytes, from the hub or a mirror, with the hub's ETag of the file.
    async fn named(
        &self,
        mut reply: HttpResponse,
        path: &str,
        file: &File,
        asked: &HeaderMap,
    ) -> Result<HttpResponse, HttpError> {
        if !reply.status().is_success() {
            return Ok(reply);
        }
        if let Some(etag) = reply.headers().get("x-linked-etag").cloned() {
            let size = linked_size(reply.headers());
            reply = as_of_hub(reply, &etag, size).map_err(refuse)?;
        } else if !is_of_hub(reply.headers()) {
            let of_mirror = reply.headers().get("etag").cloned();
            if file.mirrored.get().is_none() {
                let tag = self.tag_of(path).await?;
                let _ = file.mirrored.set(tag.map(|(of_hub, size)| MirroredTag {
                    of_hub,
                    of_mirror: of_mirror.clone(),
                    size,
                }));
            }
            let mirrored = file.mirrored.get().and_then(Option::as_ref);
            if let Some(tag) = mirrored.filter(|tag| tag.of_mirror == of_mirror) {
                reply = as_of_hub(reply, &tag.of_hub, Some(tag.size)).map_err(refuse)?;
            }
        }
        if let Some(etag) = reply.headers().get("etag") {
            meets(asked, etag).map_err(refuse)?;
        }
        Ok(reply)
    }

    /// The ETag and the size that the API has for a file, whose path is escaped. Returns `None` if the API has none.
    async fn tag_of(&self, path: &str) -> Result<Option<(HeaderValue, u64)>, HttpError> {
        let path = percent_decode_str(path).decode_utf8_lossy().into_owned();
        let wanted = PageRequest {
            prefix: path,
            most: 1,
            next: NextPage::End,
        };
        let page = match self.names(&wanted).await {
            Err(error) if Refusal::of(&error).is_passing() => return Err(error),
            page => page.unwrap_or_default(),
        };
        let found = page.objects.first().and_then(|object| {
            let etag = HeaderValue::from_str(object.e_tag.as_deref()?).ok()?;
            Some((etag, object.size))
        });
        Ok(found)
    }

    /// Queries the hub, and follows redirects until one leads to the content network.
    async fn ask(
        &self,
        mut url: Url,
        headers: &HeaderMap,
        form: Option<&str>,
    ) -> Result<HubReply, HttpError> {
        let mut token = self.token().await?;
        for _ in 0..MAX_HOPS {
            let own = self.with_token(headers, &mut token, &url);
            let mut reply = self.send(&url, own, form).await?;
            settle_limit(reply.headers_mut());
            if let Some(commit) = header(reply.headers(), "x-repo-commit") {
                self.keep_commit(commit)?;
            }
            let found = target(&url, reply.status(), reply.headers()).await;
            match found.map_err(refuse)? {
                None => return Ok(HubReply::Here(reply)),
                Some(to) if reply.headers().contains_key("x-linked-etag") => {
                    return SignedAddress::of(to, reply.headers())
                        .map(HubReply::At)
                        .map_err(refuse);
                }
                Some(to) => url = to,
            }
        }
        Err(refuse(Refusal::Redirects))
    }

    async fn token(&self) -> Result<Option<Arc<HeaderValue>>, HttpError> {
        let Some(tokens) = &self.tokens else {
            return Ok(None);
        };
        let found = tokens.get_credential().await;
        found.map(Some).map_err(|error| refuse(Refusal::of(&error)))
    }

    /// The headers of a request, with the token if it goes to the hub. After a redirect away from the hub, no request gets it.
    fn with_token(
        &self,
        headers: &HeaderMap,
        token: &mut Option<Arc<HeaderValue>>,
        url: &Url,
    ) -> HeaderMap {
        if url.origin() != self.endpoint.origin() {
            *token = None;
        }
        let mut own = headers.clone();
        own.remove("authorization");
        if let Some(token) = token {
            own.insert("authorization", HeaderValue::clone(token));
        }
        own
    }

    /// Requests the bytes from the content network; a mirror may host its content network itself.
    async fn content(
        &self,
        address: &SignedAddress,
        headers: &HeaderMap,
    ) -> Result<HttpResponse, HttpError> {
        let mut own = HeaderMap::new();
        for name in ["range", "accept-encoding"] {
            if let Some(value) = headers.get(name) {
                own.insert(name, value.clone());
            }
        }
        let mut url = address.url.clone();
        let mut token = match url.origin() == self.endpoint.origin() {
            true => self.token().await?,
            false => None,
        };
        for _ in 0..MAX_HOPS {
            let own = self.with_token(&own, &mut token, &url);
            let reply = self.send(&url, own, None).await?;
            let found = target(&url, reply.status(), reply.headers()).await;
            match found.map_err(refuse)? {
                None => return Ok(reply),
                Some(to) => url = to,
            }
        }
        Err(refuse(Refusal::Redirects))
    }

    async fn send(
        &self,
        url: &Url,
        headers: HeaderMap,
        form: Option<&str>,
    ) -> Result<HttpResponse, HttpError> {
        let mut request = HttpRequest::new(form.unwrap_or_default().to_string().into());
        if form.is_some() {
            *request.method_mut() = Method::POST;
        }
        let uri = url.as_str().parse();
        *request.uri_mut() = uri.map_err(|_| refuse(garbled("the hub returned an invalid URL")))?;
        *request.headers_mut() = headers;
        self.client.execute(request).await
    }

    fn keep_commit(&self, said: &str) -> Result<(), HttpError> {
        if !is_commit(said) {
            return Err(refuse(garbled("the hub returned an invalid commit id")));
        }
        if self.commit.get_or_init(|| said.to_string()) != said {
            return Err(refuse(Refusal::Changed(
                "the reply belongs to another commit than earlier replies".to_string(),
            )));
        }
        Ok(())
    }
}

impl SignedAddress {
    fn is_good_at(&self, now: SystemTime) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    fn of(url: Url, headers: &HeaderMap) -> Result<SignedAddress, Refusal> {
        if url.as_str().len() > MAX_ADDRESS_BYTES {
            return Err(garbled("the hub returned a URL that is too long"));
        }
        let etag = headers.get("x-linked-etag").ok_or(Refusal::NoEtag)?.clone();
        let size = linked_size(headers);
        let until = life(&url, headers)
            .and_then(|life| SystemTime::now().checked_add(life.mul_f64(USED_LIFE)));
        Ok(SignedAddress {
            url,
            etag,
            size,
            until,
            given: 0,
            is_proven: Arc::default(),
        })
    }

    /// Whether the address was issued after a request began, and never accepted so far: if it is refused now, it was not too
    /// old.
    fn is_refused_as_new(&self, begun: u64) -> bool {
        self.given >= begun && !self.is_proven.load(Ordering::Relaxed)
    }
}

impl Listing for Hub {
    fn page(&self, wanted: PageRequest) -> BoxFuture<'_, Result<Page, Refusal>> {
        Box::pin(async move {
            let page = self.names(&wanted).await;
            page.map_err(|error| Refusal::of(&error))
        })
    }
}

/// Converts the hub's `RateLimit`, such as `"resolvers";r=0;t=55`, to the time of a retry.
fn settle_limit(headers: &mut HeaderMap) {
    let reset = header(headers, "ratelimit").and_then(|limit| {
        let parts = || limit.split(';').map(str::trim);
        parts().find(|part| *part == "r=0")?;
        parts().find_map(|part| part.strip_prefix("t=")?.parse::<u32>().ok())
    });
    if let (Some(seconds), false) = (reset, headers.contains_key("retry-after")) {
        headers.insert("retry-after", HeaderValue::from(seconds));
    }
}

fn is_commit(text: &str) -> bool {
    (40..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn linked_size(headers: &HeaderMap) -> Option<u64> {
    header(headers, "x-linked-size").and_then(|size| size.trim().parse().ok())
}

/// Whether the ETag of a reply is the hub's own: it comes with the commit, and is a hash.
fn is_of_hub(headers: &HeaderMap) -> bool {
    let tag = header(headers, "etag").map(tag);
    headers.contains_key("x-repo-commit") && tag.is_some_and(is_commit)
}

/// The content of an ETag, without quotes and weakness mark.
fn tag(etag: &str) -> &str {
    etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"')
}

/// Checks that the version of a file is the one that a request is for.
fn meets(asked: &HeaderMap, etag: &HeaderValue) -> Result<(), Refusal> {
    let is_same = |name| {
        let asked = header(asked, name).map(tag);
        asked.map(|asked| etag.to_str().is_ok_and(|etag| tag(etag) == asked))
    };
    match (is_same("if-match"), is_same("if-none-match")) {
        (Some(false), _) => Err(Refusal::Unmet),
        (_, Some(true)) => Err(Refusal::Unmodified),
        _ => Ok(()),
    }
}

async fn forget(file: &File, address: &SignedAddress) {
    let mut place = file.place.lock().await;
    if place.as_ref().is_some_and(|known| known.url == address.url) {
        *place = None;
    }
}

/// The lifetime of an address, if it has one: `Expires=SECONDS` since 1970, compared with the hub's clock if the reply has its
/// time.
fn life(url: &Url, headers: &HeaderMap) -> Option<Duration> {
    let expires = url.query_pairs().find(|(key, _)| key == "Expires")?.1;
    let until = Duration::from_secs(expires.parse().ok()?);
    let now = header(headers, "date")
        .and_then(http_date)
        .map_or_else(SystemTime::now, SystemTime::from)
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    // An address that has expired already indicates a wrong clock.
    until.checked_sub(now).filter(|life| !life.is_zero())
}

/// Adds the hub's version to a reply of the content network or a mirror.
fn as_of_hub(
    mut reply: HttpResponse,
    etag: &HeaderValue,
    linked: Option<u64>,
) -> Result<HttpResponse, Refusal> {
    let is_whole = reply.status().as_u16() == 200;
    let headers = reply.headers_mut();
    let size = header(headers, "content-range")
        .and_then(|range| range.rsplit_once('/'))
        .and_then(|(_, size)| size.trim().parse::<u64>().ok());
    // Check the size of a whole file: a page of a proxy is not the file.
    let whole = header(headers, "content-length").and_then(|len| len.trim().parse().ok());
    let size = size.or(whole.filter(|_| is_whole));
    if let (Some(size), Some(linked)) = (size, linked)
        && size != linked
    {
        return Err(Refusal::Changed(format!(
            "the server that stores the file reports {size} bytes, but the hub reports {linked}"
        )));
    }
    headers.insert("etag", etag.clone());
    // The date is that of the underlying storage.
    headers.remove("last-modified");
    Ok(reply)
}

fn parse(url: &str) -> Result<Url, HttpError> {
    Url::parse(url).map_err(|_| refuse(garbled("the file's name does not form a valid URL")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(status: u16, headers: &[(&'static str, &'static str)]) -> HttpResponse {
        let mut reply = HttpResponse::new(Vec::new().into());
        *reply.status_mut() = status.try_into().expect("a status");
        for (name, value) in headers {
            reply
                .headers_mut()
                .insert(*name, HeaderValue::from_static(value));
        }
        reply
    }

    #[test]
    fn addresses_are_kept_of_as_many_files_as_may_be() {
        let (repository, _) = Repository::parse("//u/r/").expect("a name");
        let endpoint = Url::parse("https://h").expect("a URL");
        let client = HttpClient::new(reqwest::Client::new());
        let hub = Hub::new(repository, endpoint, client, None);
        let first = hub.file("0");
        for n in 1..MAX_ADDRESSES + 10 {
            hub.file(&n.to_string());
            assert!(
                Arc::ptr_eq(&hub.file("0"), &first),
                "it is used again and again"
            );
        }
        let files = hub.files.lock().expect("no panic");
        assert_eq!(files.len(), MAX_ADDRESSES);
        assert!(!files.contains_key("1") && files.contains_key("11"));
    }

    #[test]
    fn a_rate_limit_without_retry_after_gives_the_time() {
        let after = |headers: &[(&'static str, &'static str)]| {
            let mut reply = reply(429, headers);
            settle_limit(reply.headers_mut());
            header(reply.headers(), "retry-after").map(str::to_string)
        };
        let limit = ("ratelimit", "\"resolvers\";r=0;t=55");
        assert_eq!(after(&[limit]).as_deref(), Some("55"));
        assert_eq!(after(&[limit, ("retry-after", "5")]).as_deref(), Some("5"));
        assert_eq!(
            (after(&[("ratelimit", "t=x;r=0")]), after(&[])),
            (None, None)
        );
    }

    #[test]
    fn an_address_expires_by_the_hubs_clock() {
        let url = Url::parse("https://cdn/x?a=1&Expires=1767323105&b=2").expect("a URL");
        let life_of = |url: &Url, date| life(url, reply(302, &[("date", date)]).headers());
        let life = life_of(&url, "Fri, 02 Jan 2026 03:04:05 GMT");
        assert_eq!(life, Some(Duration::from_secs(60)));
        assert_eq!(life_of(&url, "Fri, 02 Jan 2026 03:05:05 GMT"), None);
        let mut reply = reply(302, &[("date", "Fri, 02 Jan 2026 03:04:05 GMT")]);
        let tag = HeaderValue::from_static("\"a\"");
        reply.headers_mut().insert("x-linked-etag", tag);
        let address = SignedAddress::of(url, reply.headers()).expect("an address");
        let now = SystemTime::now();
        assert!(address.is_good_at(now));
        assert!(
            !address.is_good_at(now + Duration::from_secs(54)),
            "it is renewed before"
        );
        let plain = Url::parse("https://cdn/x").expect("a URL");
        assert_eq!(life_of(&plain, "Fri, 02 Jan 2026 03:04:05 GMT"), None);
    }
}
