//! Object stores: each is a file of this folder and a row of [`KINDS`].
//!
//! A store defines its notation, how to read and list a location, and how its replies differ from plain HTTP. All
//! else (first bytes, parts, retries, brake, hedges, versions, trees) is shared. object_store signs and sends, set up so that it hides
//! nothing: no retries, no built-in timeouts, HTTP/1.1, our check of replies in front.
//!
//! ```text
//!   name ──KINDS──► Place ──connect──► Store ─┬─ objects ──► object_store ──► check of replies ──► the server
//!   s3://b/dir/a    bucket b, key dir/a       └─ listing ──► pages of names
//! ```

mod azure;
mod gcs;
mod http;
mod hub;
mod s3;

use super::client::client;
use super::credentials::{self, Chain, Keeper, Renew};
use super::network::{self, Server};
use super::page::{Page, PageRequest};
use super::refusal::{Account, Advice, Refusal, Unfit, line_of};
use super::reply::{Connector, Wire};
use super::settings::ObjectSettings;
use crate::source::{self, SourceName, SourceOpenError};
use futures_util::future::BoxFuture;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{BackoffConfig, HeaderValue, ObjectStore, RetryConfig};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// Of a store that the program has set up itself.
pub(super) const FOREIGN: Advice = Advice {
    refused: "check the credentials that the store was built with",
    unsigned: "build the store with credentials",
    absent: "check the path",
    elsewhere: "check the settings that the store was built with",
    list: "",
    no_listing: "",
};

/// Every store.
const KINDS: [&StoreKind; 5] = [&s3::S3, &gcs::GCS, &azure::AZURE, &hub::HUB, &http::HTTP];

/// A kind of store.
pub struct StoreKind {
    /// One of the schemes of its row in `source.rs`.
    pub scheme: &'static str,
    /// Reads a name.
    pub parse: fn(&str) -> Result<Box<dyn Place>, Unfit>,
}

/// A location in a store.
pub trait Place: Send + Sync {
    /// The key of an object; empty for all of a bucket; a prefix ends with `/`.
    fn key(&self) -> &str;

    /// Is it the name of many objects?
    fn is_prefix(&self) -> bool {
        self.key().is_empty() || self.key().ends_with('/')
    }

    /// Whether it is first requested without credentials.
    fn may_be_public(&self, _: &ObjectSettings) -> bool {
        false
    }

    /// Creates its client.
    ///
    /// # Errors
    /// The error and a remedy.
    fn connect(&self, settings: &ObjectSettings) -> Result<Store, Unfit>;
}

/// A client for a bucket or a host.
#[derive(Clone)]
pub struct Store {
    pub objects: Arc<dyn ObjectStore>,
    /// Whether the program created it.
    pub is_foreign: bool,
    /// `None` if names cannot be listed.
    pub listing: Option<Arc<dyn Listing>>,
    pub account: Account,
    /// `None` without credentials.
    pub credentials: Option<Arc<dyn Renew>>,
    pub server: Arc<Server>,
    /// What is before the key of an object in its full name, without secrets: endpoint and bucket.
    pub place: Arc<str>,
}

impl Store {
    /// Of the program's own. Nothing is known of its server, which another store may ask by another name.
    pub fn foreign(objects: Arc<dyn ObjectStore>) -> Store {
        let place: Arc<str> = objects.to_string().into();
        Store {
            objects,
            is_foreign: true,
            listing: None,
            account: Account::without_chain(&FOREIGN),
            credentials: None,
            server: Arc::default(),
            place,
        }
    }

    /// Where requests carry no credentials: says why the chain of `store` has none, if it knows.
    fn with_missing(mut self, store: &'static str, settings: &ObjectSettings) -> Store {
        if self.account.is_unsigned && !settings.no_sign_request {
            self.account.missing = credentials::missing(store, chain_key(settings));
        }
        self
    }

    /// Of a store that has a chain of credentials, of which `keeper` has what a link had. `server` is a name that all its objects share.
    fn new<C: Send + Sync + PartialEq + 'static>(
        objects: Arc<dyn ObjectStore>,
        listing: Arc<dyn Listing>,
        advice: &'static Advice,
        keeper: Option<Arc<Keeper<C>>>,
        server: &str,
    ) -> Store {
        let credentials = keeper.map(|keeper| keeper as Arc<dyn Renew>);
        let link = credentials.as_ref().and_then(|keeper| keeper.link());
        Store {
            objects,
            is_foreign: false,
            listing: Some(listing),
            account: Account::of(advice, link),
            credentials,
            server: network::hold().server(server),
            place: server.into(),
        }
    }
}

/// Lists names below a prefix, page by page.
pub trait Listing: Send + Sync {
    /// A page, asked for once.
    fn page(&self, wanted: PageRequest) -> BoxFuture<'_, Result<Page, Refusal>>;

    /// It knows pages that begin behind a key.
    fn begins_behind_keys(&self) -> bool {
        true
    }

    /// It knows any beginning of keys, and not only one that ends with `/`.
    fn knows_any_prefix(&self) -> bool {
        true
    }

    /// An empty folder may be an object of its name, without a `/` at its end ([`Page::marks_folder`]).
    fn marks_folders(&self) -> bool {
        false
    }
}

/// A listing that object_store asks for. It is read by our check of replies.
struct PaginatedListing<S> {
    store: Arc<S>,
    is_ordered: bool,
}

impl<S> PaginatedListing<S> {
    fn new(store: Arc<S>) -> PaginatedListing<S> {
        PaginatedListing {
            store,
            is_ordered: true,
        }
    }

    /// Of a directory bucket: its names come in no order, and prefixes end with `/`.
    fn without_order(store: Arc<S>) -> PaginatedListing<S> {
        PaginatedListing {
            store,
            is_ordered: false,
        }
    }
}

impl<S: PaginatedListStore> Listing for PaginatedListing<S> {
    fn page(&self, wanted: PageRequest) -> BoxFuture<'_, Result<Page, Refusal>> {
        Box::pin(async move {
            let prefix = Some(wanted.prefix.clone()).filter(|prefix| !prefix.is_empty());
            let mut options = PaginatedListOptions {
                delimiter: Some("/".into()),
                max_keys: Some(wanted.most),
                page_token: wanted.next.token().map(str::to_string),
                offset: wanted.next.after().map(str::to_string),
                ..PaginatedListOptions::default()
            };
            options.extensions.insert(wanted);
            let answer = self.store.list_paginated(prefix.as_deref(), options).await;
            let mut answer = answer.map_err(|error| Refusal::of(&error))?;
            Ok(answer.result.extensions.remove().unwrap_or_default())
        })
    }

    fn begins_behind_keys(&self) -> bool {
        self.is_ordered
    }

    fn knows_any_prefix(&self) -> bool {
        self.is_ordered
    }
}

/// Reads a name.
///
/// # Errors
/// It is none; never with a password or a token.
pub fn parse(name: &SourceName) -> Result<Box<dyn Place>, SourceOpenError> {
    let text = source::text(name)?;
    let scheme = name.scheme();
    let kind = KINDS
        .iter()
        .find(|kind| source::is_same_kind(kind.scheme, scheme));
    let kind = match kind {
        _ if scheme == "https" && azure::is_url(text) => &azure::AZURE,
        Some(kind) => kind,
        None => &http::HTTP,
    };
    (kind.parse)(text).map_err(|unfit| unfit.open_error(name))
}

/// Opens something at a place: without credentials first where it may be public, and once more by other settings where the refusal says so.
///
/// # Errors
/// What the last one says.
pub fn open_at<T, E>(
    place: &dyn Place,
    settings: ObjectSettings,
    open: impl Fn(ObjectSettings) -> Result<T, E>,
    refusal_of: impl Fn(&T) -> Option<Refusal>,
) -> Result<T, E> {
    let may_be_public = place.may_be_public(&settings);
    let first = open(ObjectSettings {
        no_sign_request: settings.no_sign_request || may_be_public,
        ..settings.clone()
    })?;
    let Some(refusal) = refusal_of(&first) else {
        return Ok(first);
    };
    if let Some(region) = refusal.region() {
        return open(settings.in_region(region));
    }
    if may_be_public && refusal.is_of_no_credentials() {
        return open(settings);
    }
    Ok(first)
}

/// Is it the name of many objects: a bucket, or a prefix with `/` at its end?
#[must_use]
pub fn names_a_prefix(name: &SourceName) -> bool {
    parse(name).is_ok_and(|place| place.is_prefix())
}

/// A bucket, and what is in it.
struct BucketKey {
    bucket: String,
    key: String,
}

/// `BUCKET/KEY` behind the scheme of `text`, and two slashes.
///
/// # Errors
/// There are keys of an account before the bucket, or no bucket.
fn bucket_and_key(text: &str, write: &str, accounts: &str) -> Result<BucketKey, Unfit> {
    let rest = text.split_once("://").map_or("", |(_, rest)| rest);
    let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.contains('@') {
        let remedy = format!("write {write}, and {accounts}");
        return Err(Unfit::new(
            "the name of a bucket has no keys before it",
            &remedy,
        ));
    }
    let is_name = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    if bucket.is_empty() || !bucket.bytes().all(is_name) {
        return Err(Unfit::new("it names no bucket", &format!("write {write}")));
    }
    Ok(BucketKey {
        bucket: bucket.to_string(),
        key: key.to_string(),
    })
}

/// The path of an object's key.
///
/// # Errors
/// The request is invalid.
pub fn path_of(key: &str) -> Result<Path, Unfit> {
    Path::parse(key).map_err(|_| {
        let why = "the key has an empty part, `.`, `..` or a character that is no text";
        Unfit::new(why, "copy the object to a plainer key")
    })
}

/// Looks at the variables of a store before object_store does: it panics where an endpoint is no URL, or where a value cannot be
/// part of a header. `urls` are those that hold one. The line names the variable and never its value.
///
/// # Errors
/// The error of an unusable variable, with a remedy.
fn check(settings: &ObjectSettings, names: &[&str], urls: &[&str]) -> Result<(), Unfit> {
    let named = settings.variables.iter();
    let named = named.filter(|(name, value)| names.contains(&name.as_str()) && !value.is_empty());
    for (name, value) in named {
        let refuse = |why: &str, remedy: &str| Err(Unfit::new(format!("{name} {why}"), remedy));
        let is_path = name.ends_with("_FILE");
        if !is_path && !value.bytes().all(|b| b.is_ascii_graphic()) {
            let remedy = "set it again without blanks and line breaks (printf, not echo)";
            return refuse(
                "holds a blank, a line break or a character that is not ASCII",
                remedy,
            );
        }
        let is_region = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        if name.ends_with("_REGION") && !value.bytes().all(is_region) {
            return refuse("is no region", "write one such as us-east-1");
        }
        if urls.contains(&name.as_str()) {
            check_endpoint(name, value)?;
        }
    }
    Ok(())
}

/// Looks at a variable or an option that holds a URL.
///
/// # Errors
/// Why it cannot be used, without the value.
fn check_endpoint(name: &str, value: &str) -> Result<Url, Unfit> {
    let remedy = "write https://HOST[:PORT]";
    let refuse = |why: &str| Err(Unfit::new(format!("{name} {why}"), remedy));
    let url = Url::parse(value).ok();
    let Some(url) = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
    else {
        return refuse("is no URL");
    };
    let may_ask = name.ends_with("_FULL_URI");
    if !url.username().is_empty() || url.password().is_some() || !may_ask && url.query().is_some() {
        return refuse("holds a user, a password or a query");
    }
    Ok(url)
}

/// Whether plain HTTP is allowed: for this machine always, elsewhere only if a variable allows it.
///
/// # Errors
/// Nothing says so.
fn may_be_plain(
    endpoint: Option<&str>,
    settings: &ObjectSettings,
    variable: &str,
) -> Result<bool, Unfit> {
    let allowed = settings.is_on(variable);
    let Some(endpoint) = endpoint else {
        return Ok(allowed);
    };
    let url = check_endpoint("the endpoint", endpoint)?;
    if credentials::is_private(&url) || allowed {
        return Ok(allowed || url.scheme() == "http");
    }
    let why = "the endpoint speaks no TLS, so that any machine on the path could read the object";
    let remedy = format!("set {variable}=true, or an endpoint with https://");
    Err(Unfit::new(why, &remedy))
}

/// What keeps the credentials for some settings; nothing where requests carry none.
///
/// # Errors
/// A link of the chain is set up and cannot be used.
fn keeper_of<C, H>(
    store: &'static str,
    settings: &ObjectSettings,
    chain: impl FnOnce() -> H,
) -> Result<Option<Arc<Keeper<C>>>, Unfit>
where
    C: Send + Sync + PartialEq + 'static,
    H: Chain<C> + 'static,
{
    if settings.no_sign_request {
        return Ok(None);
    }
    credentials::keeper(store, chain_key(settings), chain)
}

/// What a chain depends on.
fn chain_key(settings: &ObjectSettings) -> impl Hash {
    let ObjectSettings {
        variables,
        profile,
        ca_file,
        ..
    } = settings;
    (variables, profile, ca_file)
}

/// With retries left, object_store would also go on with a broken body by itself.
fn no_retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: 0,
        retry_timeout: Duration::ZERO,
    }
}

/// What makes the clients of a place.
fn connector(
    settings: &ObjectSettings,
    allow_http: bool,
    wire: &'static Wire,
    authorization: Option<HeaderValue>,
) -> Result<Connector, Unfit> {
    Ok(Connector {
        authorization,
        client: client(settings, allow_http)?,
        wire,
    })
}

fn line(error: &object_store::Error) -> String {
    line_of(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::ClientOptions;
    use object_store::client::{HttpConnector, HttpRequest};
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// A builder without credentials asks first for a client that may ask the machine's own service, by http.
    #[test]
    fn a_client_of_tls_asks_no_plain_server_whoever_makes_it_first() {
        let settings = ObjectSettings {
            first_byte: Duration::from_millis(7919),
            ..ObjectSettings::default()
        };
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/", server.local_addr().expect("bound"));
        let serve = move || {
            let reply = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            for mut client in server.incoming().flatten() {
                let _ = client.read(&mut [0; 4096]);
                let _ = client.write_all(reply);
            }
        };
        foreread_os::threads::spawn("plain-server", serve).expect("a thread");
        static WIRE: Wire = Wire {
            stores_codings: true,
            accept_encoding: "identity",
            generation: None,
            has_versions: false,
            is_account: true,
            page: crate::source::object::page::of_s3,
        };
        let asked = |allow_http| {
            let connector = connector(&settings, allow_http, &WIRE, None).expect("a connector");
            let any = ClientOptions::new().with_allow_http(true);
            let client = connector.connect(&any).expect("a client");
            let mut request = HttpRequest::new(String::new().into());
            *request.uri_mut() = url.parse().expect("a URL");
            network::wait_here(client.execute(request)).expect("threads")
        };
        assert!(asked(false).is_err());
        asked(true).expect("a plain server, where that is allowed");
    }

    #[test]
    fn invalid_names_are_one_line_errors_without_secrets() {
        for text in [
            "s3://",
            "s3:///k",
            "s3:x",
            "s3:/b/k",
            "s3://k:secret@c/k",
            "http://",
            "http:///",
            "http://u:secret@/x?secret",
            "http://[/",
        ] {
            let error = parse(&text.into()).err().expect(text);
            assert_eq!(error.errno, rustix::io::Errno::INVAL.raw_os_error());
            let line = error.to_string();
            assert!(!line.contains("secret") && !line.contains('\n'), "{line}");
        }
    }

    #[test]
    fn prefixes_are_known_by_their_end() {
        let prefixes = ["s3://b", "s3://b/", "S3://b/x/"].map(|name| names_a_prefix(&name.into()));
        let others =
            ["s3://b/x", "http://h/x/", "/s3/", "b/"].map(|name| names_a_prefix(&name.into()));
        assert_eq!((prefixes, others), ([true; 3], [false; 4]));
    }
}
