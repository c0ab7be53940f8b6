//! Files of a hub are at signed addresses of a content network, which expire: each is asked for once, shared, and renewed.
//!
//! Between the check of replies ([`crate::source::object::reply`]) and the wire. The hub has the token; the content network has the range
//! and nothing else. The first reply names the commit, and every later request is for that commit. A reply of the content network is
//! given the ETag that the hub named, so that it is compared with the listing and with other replies. Never: follows a redirect from https
//! to http, asks for an address twice at once, or keeps more than [`MAX_ADDRESSES`].
//!
//! ```text
//!   range of a file ──► an address? ── none, expired, refused ──► hub: resolve/COMMIT/PATH ──► 302: the address, ETag, size, commit
//!                          │                                                              └──► 200, 206: a small file's bytes
//!                          ▼                                                              └──► a redirect of the hub: followed
//!                      content network ── 400, 401, 403, 410 ──► as if there were none; of a new address: an error
//!                          └──► 206 + the hub's ETag
//! ```
//! An address that is refused though it was never taken before, and was given while the request waited, is an error: another would be refused
//! as well, and each reader would ask the hub for it.
//!
//! Example: eight parts of a file are asked for, and the address has expired. The first of them to be answered with 403 asks the hub
//! again; the other seven wait for that and then use the new address. The reader notices nothing.

use super::{Repository, escaped, page};
use crate::source::object::client::{MAX_HOPS, target};
use crate::source::object::credentials::Provider;
use crate::source::object::page::{Page, PageRequest, http_date};
use crate::source::object::refusal::{ADDRESS_REFUSED, Refusal, refuse};
use crate::source::object::reply::{checked, header, refused, whole};
use crate::source::object::store::Listing;
use crate::source::object::store::http::PLAIN;
use futures_util::future::BoxFuture;
use http::Method;
use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpService,
};
use object_store::{CredentialProvider, HeaderMap, HeaderValue};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::sync::Mutex;
use url::Url;

/// Files whose addresses are kept, of one mount or reader.
const MAX_ADDRESSES: usize = 1024;
/// Longest address: those of the hub have about 1.5 KiB.
const MAX_ADDRESS_BYTES: usize = 16 << 10;
/// Of its life, the part after which an address is renewed without being tried. Chosen: a request takes its part of what is left.
const USED_LIFE: f64 = 0.9;
/// A repository of a hub, at one commit.
pub struct Hub {
    /// Follows no redirects.
    client: HttpClient,
    endpoint: Url,
    repository: Repository,
    /// The header `Authorization`; nothing where no link of the chain has a token.
    tokens: Option<Provider<HeaderValue>>,
    /// What every request is for, once it is known.
    commit: OnceLock<String>,
    files: std::sync::Mutex<HashMap<String, Arc<File>>>,
    uses: AtomicU64,
}

/// What is known of where a file's bytes are.
#[derive(Default)]
struct File {
    /// Locked while the hub is asked.
    place: Mutex<Option<SignedAddress>>,
    /// The hub sends it.
    is_small: OnceLock<()>,
    /// Counts up with every use of any.
    used: AtomicU64,
}

#[derive(Clone)]
struct SignedAddress {
    url: Url,
    etag: HeaderValue,
    size: Option<u64>,
    /// Taken to be good until then, since 1970.
    until: Option<SystemTime>,
    /// When it was given, by the count of the hub's uses.
    given: u64,
    /// The content network has taken it once.
    is_proven: Arc<AtomicBool>,
}

/// Where a request for a file goes.
enum FileAddress {
    Signed(SignedAddress),
    /// The hub has answered itself.
    Small(HttpResponse),
}

/// What the hub answers to the question for a file.
enum HubReply {
    At(SignedAddress),
    /// The bytes, or a refusal.
    Here(HttpResponse),
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hub")
    }
}

type HubAnswer<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

/// Has object_store ask a hub.
#[derive(Clone, Debug)]
pub struct HubConnector(pub Arc<Hub>);

impl HttpConnector for HubConnector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(checked(HttpClient::new(self.clone()), &PLAIN))
    }
}

impl HttpService for HubConnector {
    fn call<'a, 'b>(&'a self, request: HttpRequest) -> HubAnswer<'b>
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
        Hub {
            client,
            endpoint,
            repository,
            tokens,
            commit: OnceLock::new(),
            files: std::sync::Mutex::default(),
            uses: AtomicU64::new(0),
        }
    }

    /// A URL of the hub, for the store above: files are below it.
    pub fn files_url(&self) -> String {
        format!("{}/resolve", self.url(&self.repository.page()))
    }

    /// A name that all files of a hub share.
    pub fn server(&self) -> &str {
        self.endpoint.as_str()
    }

    fn url(&self, rest: &str) -> String {
        format!("{}/{rest}", self.endpoint.as_str().trim_end_matches('/'))
    }

    fn revision(&self) -> String {
        escaped(self.commit.get().unwrap_or(&self.repository.revision))
    }

    /// Asks which commit the revision is, and stays with it.
    async fn pin(&self) -> Result<(), HttpError> {
        if self.commit.get().is_some() {
            return Ok(());
        }
        let (_, body) = self
            .api(&format!("revision/{}", self.revision()), None)
            .await?;
        self.keep_commit(&page::commit(&body).map_err(refuse)?)
    }

    /// A page of names. One that is asked for a single name, or for what has one name, is that of a path.
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
            // There is no such folder.
            Err(error) if matches!(Refusal::of(&error), Refusal::Status { code, .. } if code == "EntryNotFound") => {
                Ok(Page::default())
            }
            Err(error) => Err(error),
        }
    }

    /// Calls the API, by POST where there is a form.
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

    /// A request of the store above, for a file or a part of it.
    async fn pass(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let uri = request.uri().to_string();
        let base = self.files_url();
        let path = uri
            .strip_prefix(&base)
            .and_then(|path| path.strip_prefix('/'))
            .ok_or_else(|| refuse(Refusal::Garbled("it is no file of the hub".to_string())))?;
        let (headers, file) = (request.headers(), self.file(path));
        let mut old: Option<SignedAddress> = None;
        let begun = self.next_use();
        for _ in 0..MAX_HOPS {
            if file.is_small.get().is_some()
                && let HubReply::Here(reply) = self.locate(path, headers).await?
            {
                return Ok(reply);
            }
            let address = match self.address(&file, path, headers, old.as_ref()).await? {
                FileAddress::Signed(address) => address,
                FileAddress::Small(reply) => return Ok(reply),
            };
            if headers
                .get("if-match")
                .is_some_and(|own| *own != address.etag)
            {
                return Err(refuse(Refusal::Unmet));
            }
            if headers
                .get("if-none-match")
                .is_some_and(|own| *own == address.etag)
            {
                return Err(refuse(Refusal::Unmodified));
            }
            let reply = match self.content(&address, headers).await {
                Err(error) if error.kind() == HttpErrorKind::Connect => {
                    // Another try asks the hub, which may name another place.
                    forget(&file, &address).await;
                    return Err(error);
                }
                reply => reply?,
            };
            match reply.status().as_u16() {
                // Signed for this request or for another one that waits, and never taken: another signature would be refused as well.
                status @ (400 | 401 | 403 | 410) if address.is_refused_as_new(begun) => {
                    forget(&file, &address).await;
                    return Err(refuse(Refusal::Status {
                        status,
                        code: ADDRESS_REFUSED.to_string(),
                        message: String::new(),
                        retry_after: None,
                        region: None,
                    }));
                }
                400 | 401 | 403 | 410 => old = Some(address),
                _ => {
                    address.is_proven.store(true, Ordering::Relaxed);
                    return as_of_hub(reply, &address).map_err(refuse);
                }
            }
        }
        Err(refuse(Refusal::Redirects))
    }

    /// An address that is good as far as is known, and is not the `old` one. One request asks the hub, and the others wait for it.
    async fn address(
        &self,
        file: &File,
        path: &str,
        headers: &HeaderMap,
        old: Option<&SignedAddress>,
    ) -> Result<FileAddress, HttpError> {
        let mut place = file.place.lock().await;
        let known = place
            .clone()
            .filter(|known| old.is_none_or(|old| old.url != known.url))
            .filter(|known| known.is_good_at(SystemTime::now()));
        if let Some(known) = known {
            return Ok(FileAddress::Signed(known));
        }
        match self.locate(path, headers).await? {
            HubReply::At(mut address) => {
                address.given = self.next_use();
                Ok(FileAddress::Signed(place.insert(address).clone()))
            }
            HubReply::Here(reply) => {
                if reply.status().is_success() {
                    let _ = file.is_small.set(());
                }
                Ok(FileAddress::Small(reply))
            }
        }
    }

    fn next_use(&self) -> u64 {
        self.uses.fetch_add(1, Ordering::Relaxed)
    }

    /// What is known of a file; the one that was used least recently leaves for one more.
    fn file(&self, path: &str) -> Arc<File> {
        let now = self.next_use();
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
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
        let url = format!("{}/{}/{path}", self.files_url(), self.revision());
        let located = self.ask(parse(&url)?, headers, None).await?;
        let is_found = match &located {
            HubReply::At(_) => true,
            HubReply::Here(reply) => reply.status().is_success(),
        };
        if is_found && self.commit.get().is_none() {
            let why = "it does not say which commit it is of (X-Repo-Commit); HF_ENDPOINT may name no hub";
            return Err(refuse(Refusal::Garbled(why.to_string())));
        }
        Ok(located)
    }

    /// Asks the hub, and follows it as long as it names no place of the content network.
    async fn ask(
        &self,
        mut url: Url,
        headers: &HeaderMap,
        form: Option<&str>,
    ) -> Result<HubReply, HttpError> {
        let mut token = None;
        if let Some(tokens) = &self.tokens {
            let found = tokens.get_credential().await;
            token = Some(found.map_err(|error| refuse(Refusal::of(&error)))?);
        }
        for _ in 0..MAX_HOPS {
            // What has left the hub once gets no token any more.
            token = token.filter(|_| url.origin() == self.endpoint.origin());
            let mut own = headers.clone();
            own.remove("authorization");
            if let Some(token) = &token {
                own.insert("authorization", HeaderValue::clone(token));
            }
            let mut reply = self.send(&url, own, form).await?;
            settle_limit(reply.headers_mut());
            if let Some(commit) = header(reply.headers(), "x-repo-commit") {
                self.keep_commit(commit)?;
            }
            match target(&url, reply.status(), reply.headers()).map_err(refuse)? {
                None => return Ok(HubReply::Here(reply)),
                Some(to)
                    if reply.headers().contains_key("x-linked-etag")
                        && to.origin() != url.origin() =>
                {
                    return SignedAddress::of(to, reply.headers())
                        .map(HubReply::At)
                        .map_err(refuse);
                }
                Some(to) => url = to,
            }
        }
        Err(refuse(Refusal::Redirects))
    }

    /// Asks the content network.
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
        for _ in 0..MAX_HOPS {
            let reply = self.send(&url, own.clone(), None).await?;
            match target(&url, reply.status(), reply.headers()).map_err(refuse)? {
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
        *request.uri_mut() = url.as_str().parse().map_err(|_| {
            refuse(Refusal::Garbled(
                "the hub names a URL that is none".to_string(),
            ))
        })?;
        *request.headers_mut() = headers;
        self.client.execute(request).await
    }

    fn keep_commit(&self, said: &str) -> Result<(), HttpError> {
        let is_commit =
            (40..=64).contains(&said.len()) && said.bytes().all(|b| b.is_ascii_hexdigit());
        if !is_commit {
            return Err(refuse(Refusal::Garbled(
                "the hub names a commit that is none".to_string(),
            )));
        }
        if self.commit.get_or_init(|| said.to_string()) != said {
            return Err(refuse(Refusal::Changed(
                "it is of another commit".to_string(),
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
            return Err(Refusal::Garbled(
                "the hub names a URL that is too long".to_string(),
            ));
        }
        let etag = headers.get("x-linked-etag").ok_or(Refusal::NoEtag)?.clone();
        let size = header(headers, "x-linked-size").and_then(|size| size.trim().parse().ok());
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

    /// Given since a request has begun, and taken from no request so far: one that is refused now was not too old.
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

/// The hub says in `RateLimit` when to come back, as `"resolvers";r=0;t=55`.
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

/// The address is not used again.
async fn forget(file: &File, address: &SignedAddress) {
    let mut place = file.place.lock().await;
    if place.as_ref().is_some_and(|known| known.url == address.url) {
        *place = None;
    }
}

/// How long an address lasts, as far as it says: `Expires=SECONDS` since 1970, by the clock of the hub where the reply has its time.
fn life(url: &Url, headers: &HeaderMap) -> Option<Duration> {
    let expires = url.query_pairs().find(|(key, _)| key == "Expires")?.1;
    let until = Duration::from_secs(expires.parse().ok()?);
    let now = header(headers, "date")
        .and_then(http_date)
        .map_or_else(SystemTime::now, SystemTime::from)
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    // One that has expired already says that a clock is wrong.
    until.checked_sub(now).filter(|life| !life.is_zero())
}

/// A reply of the content network, with what the hub says of the version.
fn as_of_hub(mut reply: HttpResponse, address: &SignedAddress) -> Result<HttpResponse, Refusal> {
    let is_whole = reply.status().as_u16() == 200;
    let headers = reply.headers_mut();
    let size = header(headers, "content-range")
        .and_then(|range| range.rsplit_once('/'))
        .and_then(|(_, size)| size.trim().parse::<u64>().ok());
    // The whole: a page of a proxy is no file.
    let whole = header(headers, "content-length").and_then(|len| len.trim().parse().ok());
    let size = size.or(whole.filter(|_| is_whole));
    if let (Some(size), Some(linked)) = (size, address.size)
        && size != linked
    {
        return Err(Refusal::Changed(format!(
            "the content network has {size} bytes of it, and the hub says {linked}"
        )));
    }
    headers.insert("etag", address.etag.clone());
    // Of the storage behind it.
    headers.remove("last-modified");
    Ok(reply)
}

fn parse(url: &str) -> Result<Url, HttpError> {
    Url::parse(url).map_err(|_| refuse(Refusal::Garbled("it makes no URL".to_string())))
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
    fn a_limit_that_names_no_other_time_says_when_to_come_back() {
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
    fn an_address_lasts_as_long_as_the_hubs_clock_says() {
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

    #[test]
    fn a_reply_of_another_size_is_of_another_file() {
        let address = |size| SignedAddress {
            url: Url::parse("https://cdn/x").expect("a URL"),
            etag: HeaderValue::from_static("\"hub\""),
            size,
            until: None,
            given: 0,
            is_proven: Arc::default(),
        };
        let part = || {
            reply(
                206,
                &[
                    ("content-range", "bytes 0-1/9"),
                    ("etag", "\"cdn\""),
                    ("last-modified", "x"),
                ],
            )
        };
        for size in [None, Some(9)] {
            let reply = as_of_hub(part(), &address(size)).expect("as asked for");
            assert_eq!(header(reply.headers(), "etag"), Some("\"hub\""));
            assert!(!reply.headers().contains_key("last-modified"));
        }
        assert!(as_of_hub(part(), &address(Some(8))).is_err());
    }
}
