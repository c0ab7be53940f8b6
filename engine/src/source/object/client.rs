//! The HTTP client of every store, and the one place that follows redirects.
//!
//! ```text
//!   reply 301, 302, 303, 307, 308 to a GET or HEAD
//!     same scheme, host and port      followed unchanged
//!     another host, for http(s)://    followed with only the range and its conditions
//!     another host, for a store that signs requests   returned to the caller: an error with the host, or S3's region
//!     https to http, a URL with a user, a redirect from elsewhere to this machine or its link   an error
//! ```
//! The client never sends the header `Referer`, which would reveal the query of a URL, and any secret in it, to the next server.
//! Source: RFC 9110, 10.1.3 and 15.4; Fetch Standard, HTTP-redirect fetch.

use super::authorities;
use super::network::{self, Client};
use super::refusal::{Refusal, Unfit, line_of, refuse};
use super::settings::ObjectSettings;
use futures_util::future::BoxFuture;
use http::{HeaderName, Method, StatusCode};
use object_store::HeaderMap;
use object_store::client::{
    HttpClient, HttpError, HttpRequest, HttpRequestBody, HttpResponse, HttpService,
};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use url::{Host, Origin, Url};

/// Maximum number of redirects that one request follows.
pub const MAX_HOPS: usize = 5;
/// Headers that are sent to another host: range and conditions, without credentials.
const PLAIN_HEADERS: [&str; 8] = [
    "accept",
    "accept-encoding",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-unmodified-since",
    "range",
    "user-agent",
];
/// Addresses of services that give a machine its credentials, in addition to link-local ones.
const METADATA: [IpAddr; 3] = [
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
];

/// Creates the client for these settings. The client does not follow redirects itself. The client has no timeout for a whole
/// request, because such a timeout would cut off large bodies that arrive normally. The client uses HTTP/1.1, because concurrent
/// requests should use separate connections.
pub fn client(settings: &ObjectSettings, allow_http: bool) -> Result<HttpClient, Unfit> {
    let remedy = "check the settings of the proxy and the certificates";
    let make = || {
        let builder = reqwest::Client::builder()
            .user_agent(concat!("foreread/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .https_only(!allow_http)
            .connect_timeout(settings.first_byte)
            .http1_only()
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            .dns_resolver(Arc::new(Resolver::default()))
            .pool_max_idle_per_host(settings.requests as usize * 2);
        let builder = authorities::trusted_by(builder, settings.ca_file.as_deref())?;
        let made = builder.build().map(HttpClient::new);
        made.map_err(|error| Unfit::new(line_of(&error), remedy))
    };
    network::hold().client(Client::of(settings, allow_http), make)
}

/// Resolves names with the system's resolver, and returns the addresses in a different order each time, so that connections go
/// to all servers of a store. It never returns a link-local address or one of a metadata service, whatever the name resolves
/// to.
#[derive(Default)]
struct Resolver {
    calls: Arc<AtomicUsize>,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let calls = Arc::clone(&self.calls);
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let mut found: Vec<SocketAddr> = found.filter(|at| !is_of_link(at.ip())).collect();
            if found.is_empty() {
                return Err("the host name resolves only to link-local or metadata service addresses, which are refused".into());
            }
            let count = found.len();
            found.rotate_left(calls.fetch_add(1, Ordering::Relaxed) % count);
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// Whether an address is link-local, or of a service that gives a machine its credentials.
fn is_of_link(address: IpAddr) -> bool {
    let address = bare(address);
    METADATA.contains(&address)
        || match address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        }
}

/// The IPv4 address embedded in an IPv6 address: mapped, compatible (RFC 4291), translated (RFC 6052) or of 6to4 (RFC 3056).
fn bare(address: IpAddr) -> IpAddr {
    let IpAddr::V6(whole) = address.to_canonical() else {
        return address.to_canonical();
    };
    let v4 = |high: u16, low: u16| IpAddr::V4((u32::from(high) << 16 | u32::from(low)).into());
    match whole.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => IpAddr::V6(whole),
        [0, 0, 0, 0, 0, 0, high, low] | [0x64, 0xff9b, _, _, _, _, high, low] => v4(high, low),
        [0x2002, high, low, ..] => v4(high, low),
        _ => IpAddr::V6(whole),
    }
}

/// Whether a URL refers to this machine, to its link, or to a metadata service of its cloud.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Reach {
    Network,
    Machine,
    Link,
}

fn is_of_machine(address: IpAddr) -> bool {
    let address = bare(address);
    address.is_loopback() || address.is_unspecified()
}

fn reach(url: &Url) -> Reach {
    let of_address = |address: IpAddr| match address {
        address if is_of_link(address) => Reach::Link,
        address if is_of_machine(address) => Reach::Machine,
        _ => Reach::Network,
    };
    match url.host() {
        Some(Host::Ipv4(address)) => of_address(address.into()),
        Some(Host::Ipv6(address)) => of_address(address.into()),
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            let is_below = |end: &str| name == end || name.ends_with(&format!(".{end}"));
            if is_below("localhost") {
                Reach::Machine
            } else if is_below("metadata.google.internal") || name == "metadata" {
                Reach::Link
            } else {
                Reach::Network
            }
        }
        None => Reach::Network,
    }
}

/// Returns the URL that a redirect leads to, or `None` if the reply is not a redirect. If a server on the network redirects to another
/// host name, foreread resolves that name, because a redirect to this machine is forbidden.
pub async fn target(
    from: &Url,
    status: StatusCode,
    headers: &HeaderMap,
) -> Result<Option<Url>, Refusal> {
    let Some(to) = named_target(from, status, headers)? else {
        return Ok(None);
    };
    if to.origin() != from.origin()
        && reach(from) == Reach::Network
        && let Some(Host::Domain(name)) = to.host()
        && let Ok(mut found) = tokio::net::lookup_host((name, 0)).await
        && found.any(|at| is_of_machine(at.ip()))
    {
        return Err(Refusal::RedirectsTo(place(&to)));
    }
    Ok(Some(to))
}

/// The target of a redirect, judged by its URL.
fn named_target(
    from: &Url,
    status: StatusCode,
    headers: &HeaderMap,
) -> Result<Option<Url>, Refusal> {
    if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let to = location(headers, from).ok_or(Refusal::Redirects)?;
    let is_plain = to.username().is_empty() && to.password().is_none();
    let is_http =
        matches!(to.scheme(), "http" | "https") && matches!(to.origin(), Origin::Tuple(..));
    if !is_http || !is_plain {
        return Err(Refusal::Redirects);
    }
    if from.scheme() == "https" && to.scheme() == "http" {
        return Err(Refusal::Downgrade);
    }
    if to.origin() != from.origin() && reach(&to) > reach(from) {
        return Err(Refusal::RedirectsTo(place(&to)));
    }
    Ok(Some(to))
}

/// Returns scheme, host and port of a URL, for error messages.
pub fn place(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// Sends a request to a store, and follows its redirects.
#[derive(Debug)]
pub struct Redirects {
    pub client: HttpClient,
    /// Requests carry credentials of an account, so none is sent to another host.
    pub is_account: bool,
}

pub type Answer<'a> = BoxFuture<'a, Result<HttpResponse, HttpError>>;

impl HttpService for Redirects {
    fn call<'a, 'b>(&'a self, request: HttpRequest) -> Answer<'b>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(self.pass(request))
    }
}

impl Redirects {
    async fn pass(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let method = request.method().clone();
        if !matches!(method, Method::GET | Method::HEAD) {
            return self.client.execute(request).await;
        }
        let (uri, mut headers) = (request.uri().clone(), request.headers().clone());
        let mut reply = self.client.execute(request).await?;
        if !reply.status().is_redirection() {
            return Ok(reply);
        }
        let mut from = Url::parse(&uri.to_string()).map_err(|_| refuse(Refusal::Redirects))?;
        for _ in 0..MAX_HOPS {
            if self.is_account && !stays(&from, &reply) {
                return Ok(reply);
            }
            let found = target(&from, reply.status(), reply.headers()).await;
            let Some(to) = found.map_err(refuse)? else {
                return Ok(reply);
            };
            if to.origin() != from.origin() {
                headers = plain(&headers);
            }
            let mut next = HttpRequest::new(HttpRequestBody::empty());
            *next.method_mut() = method.clone();
            *next.headers_mut() = headers.clone();
            *next.uri_mut() = to
                .as_str()
                .parse()
                .map_err(|_| refuse(Refusal::Redirects))?;
            reply = self.client.execute(next).await?;
            from = to;
        }
        Err(refuse(Refusal::Redirects))
    }
}

/// Whether a redirect is to the same scheme, host and port.
fn stays(from: &Url, reply: &HttpResponse) -> bool {
    reply.status().is_redirection()
        && location(reply.headers(), from).is_some_and(|to| to.origin() == from.origin())
}

pub fn location(headers: &HeaderMap, from: &Url) -> Option<Url> {
    from.join(headers.get("location")?.to_str().ok()?).ok()
}

/// Returns the region of an Amazon S3 server, taken from its host name: `BUCKET.s3.REGION.amazonaws.com`,
/// `s3-REGION.amazonaws.com`.
pub fn region_of(url: &Url) -> Option<String> {
    let host = url.host_str()?.to_ascii_lowercase();
    let name = host
        .strip_suffix(".amazonaws.com")
        .or_else(|| host.strip_suffix(".amazonaws.com.cn"))?;
    let mut labels = name.rsplit('.');
    let last = labels.next()?;
    let region = match last.strip_prefix("s3-") {
        Some(region) => region,
        None => (labels.next()? == "s3").then_some(last)?,
    };
    let is_region = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    (region.contains('-') && is_region(region)).then(|| region.to_string())
}

fn plain(headers: &HeaderMap) -> HeaderMap {
    let kept = headers.iter().filter(|(name, _)| is_plain(name));
    kept.map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

fn is_plain(name: &HeaderName) -> bool {
    PLAIN_HEADERS.contains(&name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::HeaderValue;

    fn leads(from: &str, status: u16, location: Option<&str>) -> Result<Option<String>, Refusal> {
        let from = Url::parse(from).expect(from);
        let mut headers = HeaderMap::new();
        if let Some(location) = location {
            let location = HeaderValue::from_str(location).expect("a header");
            headers.insert("location", location);
        }
        let status = StatusCode::from_u16(status).expect("a status");
        named_target(&from, status, &headers).map(|to| to.map(|to| to.to_string()))
    }

    #[test]
    fn a_redirect_leads_on_but_not_to_plain_http() {
        let to = |location| leads("https://h/a/b", 302, Some(location));
        assert_eq!(to("/c?d"), Ok(Some("https://h/c?d".to_string())));
        assert_eq!(to("HTTPS://cdn/x"), Ok(Some("https://cdn/x".to_string())));
        assert_eq!(to("HTTP://cdn/x"), Err(Refusal::Downgrade));
        for location in "ftp://h https://u:p@h/ https:// file:///etc/passwd data:,x".split(' ') {
            assert_eq!(to(location), Err(Refusal::Redirects), "{location}");
        }
        assert!(leads("https://h/", 302, None).is_err());
        for status in [200, 206, 300, 304, 305, 306, 404] {
            assert_eq!(leads("https://h/", status, Some("/")), Ok(None), "{status}");
        }
    }

    #[test]
    fn no_redirect_leads_to_this_machine_or_its_link() {
        let refused = |from: &str, to: &str| {
            let found = leads(from, 307, Some(to));
            matches!(found, Err(Refusal::RedirectsTo(_)))
        };
        let of_link = "169.254.169.254 [::ffff:169.254.169.254] 2852039166 0xa9fea9fe [fe80::1] [fd00:ec2::254] \
            [::169.254.169.254] [64:ff9b::169.254.169.254] [64:ff9b:1::a9fe:a9fe] [2002:a9fe:a9fe::1] 100.100.100.200 \
            168.63.129.16 Metadata.Google.internal.";
        for host in of_link.split(' ') {
            let to = format!("http://{host}/latest/meta-data");
            assert!(refused("http://example.org/x", &to), "{host}");
            assert!(refused("http://127.0.0.1/x", &to), "{host}");
        }
        let of_machine =
            "127.0.0.1 [::1] [::127.0.0.1] [64:ff9b::7f00:1] localhost a.LOCALHOST. 0.0.0.0 [::]";
        for host in of_machine.split(' ') {
            let to = format!("http://{host}:8080/x");
            assert!(refused("http://example.org/x", &to), "{host}");
            assert!(!refused("http://localhost/x", &to), "{host}");
        }
        assert!(!refused("http://10.0.0.1/x", "http://10.0.0.2/x"));
        let resolved = ["169.254.1.1", "fe80::1", "::ffff:169.254.169.254"];
        assert!(
            resolved
                .iter()
                .all(|at| is_of_link(at.parse().expect("an address")))
        );
    }

    /// A name of /etc/hosts, and each other one that the system takes for this machine.
    #[tokio::test]
    async fn a_redirect_to_a_name_of_this_machine_is_refused() {
        let local = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
        let names = local
            .lines()
            .filter(|line| line.starts_with("127."))
            .flat_map(|line| line.split_whitespace().skip(1))
            .filter(|name| !name.contains("localhost"));
        let mut names: Vec<_> = names.map(str::to_string).collect();
        if names.is_empty() {
            println!("skipped: needs a name of this machine in /etc/hosts");
            return;
        }
        let name = names.remove(0);
        let mut headers = HeaderMap::new();
        let to = format!("http://{name}:8080/x");
        headers.insert("location", HeaderValue::from_str(&to).expect("a header"));
        let from = |host: &str| Url::parse(&format!("http://{host}/x")).expect("a URL");
        let found = target(&from("192.0.2.1"), StatusCode::FOUND, &headers).await;
        assert!(matches!(found, Err(Refusal::RedirectsTo(_))), "{found:?}");
        let found = target(&from("127.0.0.1"), StatusCode::FOUND, &headers).await;
        assert_eq!(found.map(|to| to.is_some()), Ok(true));
    }

    #[test]
    fn the_host_of_an_amazon_server_names_its_region() {
        for (url, region) in [
            ("https://b.s3.eu-west-1.amazonaws.com/k", Some("eu-west-1")),
            ("https://b.s3-eu-west-1.amazonaws.com/k", Some("eu-west-1")),
            ("https://s3-us-west-2.amazonaws.com/b/k", Some("us-west-2")),
            (
                "https://a.b.S3.cn-north-1.amazonaws.com.cn/",
                Some("cn-north-1"),
            ),
            ("https://b.s3.amazonaws.com/k", None),
            ("https://eu-west-1.amazonaws.com/", None),
            ("https://s3.eu-west-1.amazonaws.com.evil.org/", None),
            ("https://s3.eu-west-1.evil.org/", None),
        ] {
            let url = Url::parse(url).expect(url);
            assert_eq!(region_of(&url).as_deref(), region, "{url}");
        }
    }
}
