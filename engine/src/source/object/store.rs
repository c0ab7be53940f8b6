//! The supported kinds of object stores: each has a file in this folder and a row in [`KINDS`].
//!
//! The file of a store defines how its URLs are written, how to read and list a location, and how its replies differ from plain
//! HTTP. All stores share the rest of the code (retries, limits, versions, listings). The library object_store signs
//! and sends requests. This library is configured to use HTTP/1.1, and to have no retries and timeouts, because
//! foreread has its own. foreread checks each reply before object_store gets it.
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
use super::page::{self, Page, PageRequest};
use super::refusal::{Account, Advice, Refusal, Unfit};
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

/// The remedies for a store that the program has created itself.
pub(super) const FOREIGN: Advice = Advice {
    refused: "check the credentials that the store was built with",
    unsigned: "build the store with credentials",
    absent: "check the path",
    elsewhere: "check the settings that the store was built with",
    list: "",
    no_listing: "",
};

/// Parses the names of one kind of store.
type Parse = fn(&str) -> Result<Box<dyn Place>, Unfit>;

/// Every kind of store: one of its schemes in `source.rs`, and how its names are parsed.
const KINDS: [(&str, Parse); 5] = [
    ("s3", |text| boxed(s3::read(text))),
    ("gs", |text| boxed(gcs::read(text))),
    ("az", |text| boxed(azure::read(text))),
    ("hf", |text| boxed(hub::read(text))),
    ("http", |text| boxed(http::read(text))),
];

fn boxed(place: Result<impl Place + 'static, Unfit>) -> Result<Box<dyn Place>, Unfit> {
    place.map(|place| Box::new(place) as Box<dyn Place>)
}

/// A location in a store: an object, or a prefix.
pub trait Place: Send + Sync {
    /// The key of an object; empty for all of a bucket; a prefix ends with `/`.
    fn key(&self) -> &str;

    /// Whether it names many objects.
    fn is_prefix(&self) -> bool {
        self.key().is_empty() || self.key().ends_with('/')
    }

    /// Whether it is first requested without credentials.
    fn may_be_public(&self, _: &ObjectSettings) -> bool {
        false
    }

    /// Creates its client.
    fn connect(&self, settings: &ObjectSettings) -> Result<Store, Unfit>;
}

/// Creates the client of a location.
pub fn connect(place: &dyn Place, settings: &ObjectSettings) -> Result<Store, Unfit> {
    let mut store = place.connect(settings)?;
    store.account.unsigned_by_option = settings.no_sign_request;
    Ok(store)
}

/// A client for a bucket or for a host.
#[derive(Clone)]
pub struct Store {
    pub objects: Arc<dyn ObjectStore>,
    /// Whether the program created it.
    pub is_foreign: bool,
    /// `None` if the store cannot list names.
    pub listing: Option<Arc<dyn Listing>>,
    pub account: Account,
    /// `None` without credentials.
    pub credentials: Option<Arc<dyn Renew>>,
    pub server: Arc<Server>,
    /// The part before the key in an object's full name, without secrets: endpoint and bucket.
    pub place: Arc<str>,
}

impl Store {
    /// Wraps a store that the program has created. What foreread learns about the server of this store is not shared with other
    /// stores, even if they use the same server.
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

    /// Returns the function that turns an error of this store's client into a refusal.
    pub fn refuse(&self) -> fn(object_store::Error) -> Refusal {
        if self.is_foreign {
            Refusal::of_foreign
        } else {
            Refusal::of_client
        }
    }

    /// If requests carry no credentials: adds the reason why the chain of `store` has none, if it is known.
    fn with_missing(mut self, store: &'static str, settings: &ObjectSettings) -> Store {
        if self.account.is_unsigned && !settings.no_sign_request {
            self.account.missing = credentials::missing(store, chain_key(settings));
        }
        self
    }

    /// A store with a chain of credentials; `keeper` has the credentials that a link provided. `server` is a name that all its
    /// objects share.
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
    fn page(&self, wanted: PageRequest) -> BoxFuture<'_, Result<Page, Refusal>>;

    /// Whether pages can begin after a key.
    fn begins_behind_keys(&self) -> bool {
        true
    }

    /// Whether it supports any prefix, and not only one that ends with `/`.
    fn knows_any_prefix(&self) -> bool {
        true
    }

    /// Whether an empty folder may be an object with its name, without a `/` at its end ([`Page::marks_folder`]).
    fn marks_folders(&self) -> bool {
        false
    }
}

/// A listing requested by object_store, and parsed by our check of replies.
struct PaginatedListing<S> {
    store: Arc<S>,
    /// False for a directory bucket: its names are unordered, and prefixes end with `/`.
    is_ordered: bool,
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

/// Parses a name. The error never contains a password or a token.
pub fn parse(name: &SourceName) -> Result<Box<dyn Place>, SourceOpenError> {
    let text = source::text(name)?;
    let scheme = name.scheme();
    let kind = match scheme {
        "https" if azure::is_url(text) => "az",
        _ => scheme,
    };
    let mut kinds = KINDS.iter();
    let known = kinds.find(|(own, _)| source::is_same_kind(own, kind));
    let place = known.map_or_else(|| boxed(http::read(text)), |(_, parse)| parse(text));
    place.map_err(|unfit| unfit.open_error(name))
}

/// Opens an object or a prefix. If the object or prefix may be public, the first try is without credentials. If the store's error
/// shows that other settings are needed, such as another region, this function tries once more with those.
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
        let region = Some(region.to_string());
        return open(ObjectSettings { region, ..settings });
    }
    if may_be_public && refusal.is_of_no_credentials() {
        return open(settings);
    }
    Ok(first)
}

/// Returns true if a name refers to many objects: to a bucket, or to a prefix with `/` at its end.
#[must_use]
pub fn names_a_prefix(name: &SourceName) -> bool {
    parse(name).is_ok_and(|place| place.is_prefix())
}

struct BucketKey {
    bucket: String,
    key: String,
}

/// Parses `BUCKET/KEY` after the scheme of `text` and two slashes.
/// Fails if there are keys of an account before the bucket, or no bucket.
fn bucket_and_key(text: &str, write: &str, accounts: &str) -> Result<BucketKey, Unfit> {
    let rest = text.split_once("://").map_or("", |(_, rest)| rest);
    let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.contains('@') {
        let remedy = format!("write {write}, and {accounts}");
        return Err(Unfit::new(
            "the source's name contains access keys before the bucket",
            &remedy,
        ));
    }
    let is_name = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    if bucket.is_empty() || !bucket.bytes().all(is_name) {
        return Err(Unfit::new(
            "the bucket is missing",
            format!("write {write}"),
        ));
    }
    Ok(BucketKey {
        bucket: bucket.to_string(),
        key: key.to_string(),
    })
}

/// Returns the prefix of a location, without a `/` at its end; empty for all of a bucket.
pub fn prefix_of(place: &dyn Place) -> Result<String, Unfit> {
    let key = place.key();
    let prefix = key.strip_suffix('/').unwrap_or(key);
    if !key.is_empty() && page::plain(prefix).is_none() {
        let why = "the prefix has an empty part, a part `.` or `..`, a part of more than 255 bytes, or a control character";
        let remedy = "use the prefix above it, or copy the objects to simpler keys";
        return Err(Unfit::new(why, remedy));
    }
    Ok(prefix.to_string())
}

/// Returns the path of an object's key.
pub fn path_of(key: &str) -> Result<Path, Unfit> {
    Path::parse(key).map_err(|_| {
        let why = "the key has an empty part, a part `.` or `..`, or a control character";
        Unfit::new(why, "copy the object to a key without these")
    })
}

/// Checks the variables of a store before object_store uses them: it panics if an endpoint is not a URL, or if a value cannot
/// be used in a header. `urls` are further variables, which contain a URL. The error contains the variable's name, and never its
/// value.
fn check(settings: &ObjectSettings, names: &[&str], urls: &[&str]) -> Result<(), Unfit> {
    let is_checked = |name| names.contains(&name) || urls.contains(&name);
    let named = settings.variables.iter();
    let named = named.filter(|(name, value)| is_checked(name.as_str()) && !value.is_empty());
    for (name, value) in named {
        let refuse = |why: &str, remedy: &str| Err(Unfit::new(format!("{name} {why}"), remedy));
        let is_path = name.ends_with("_FILE");
        if !is_path && !value.bytes().all(|b| b.is_ascii_graphic()) {
            let remedy =
                "set the variable again, without blanks and line breaks (use printf, not echo)";
            return refuse(
                "contains a blank, a line break or a character that is not ASCII",
                remedy,
            );
        }
        let is_region = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        if name.ends_with("_REGION") && !value.bytes().all(is_region) {
            return refuse("is not a region", "use a region such as us-east-1");
        }
        if urls.contains(&name.as_str()) {
            check_endpoint(name, value)?;
        }
    }
    Ok(())
}

/// Checks a variable or an option that contains a URL. The error does not contain the value.
fn check_endpoint(name: &str, value: &str) -> Result<Url, Unfit> {
    let remedy = "write https://HOST[:PORT]";
    let refuse = |why: &str| Err(Unfit::new(format!("{name} {why}"), remedy));
    let url = Url::parse(value).ok();
    let Some(url) = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
    else {
        return refuse("is not a URL");
    };
    let may_ask = name.ends_with("_FULL_URI");
    if !url.username().is_empty() || url.password().is_some() || !may_ask && url.query().is_some() {
        return refuse("contains a user name, a password or a query");
    }
    Ok(url)
}

/// Whether plain HTTP is allowed: for this machine always, elsewhere only if a variable allows it.
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
    let why =
        "the endpoint does not use TLS, so any machine on the network path could read the object";
    let remedy = format!("set {variable}=true to allow this, or use an endpoint with https://");
    Err(Unfit::new(why, &remedy))
}

/// The keeper of the credentials for some settings. Returns `None` if requests carry none.
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

/// The settings that a chain depends on.
fn chain_key(settings: &ObjectSettings) -> impl Hash {
    let ObjectSettings {
        variables,
        profile,
        ca_file,
        ..
    } = settings;
    (variables, profile, ca_file)
}

/// With retries, object_store would also continue a broken body by itself.
fn no_retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: 0,
        retry_timeout: Duration::ZERO,
    }
}

/// Creates the clients of a location.
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
        let asked = |allow_http| {
            let connector =
                connector(&settings, allow_http, &http::PLAIN, None).expect("a connector");
            let any = ClientOptions::new().with_allow_http(true);
            let client = connector.connect(&any).expect("a client");
            let mut request = HttpRequest::new(String::new().into());
            *request.uri_mut() = url.parse().expect("a URL");
            network::wait(client.execute(request)).expect("threads")
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
