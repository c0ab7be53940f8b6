//! object_store, set up so that it hides nothing: no retries, no built-in timeouts, HTTP/1.1, our check of replies in front.
//!
//! Never: looks for credentials elsewhere than in the variables it is given.
//!
//! ```text
//!   Place::Http ──► HttpStore at the URL itself, the empty path
//!   Place::S3   ──► AmazonS3, the key as path; signed where the variables name an account, else not
//! ```

use super::network::{self, Client, Server};
use super::refusal::Account;
use super::reply::Connector;
use super::settings::{ObjectPlace, ObjectSettings};
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::client::ClientConfigKey;
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, HeaderValue, ObjectStore, RetryConfig};
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// Variables that are passed on; others of object_store's would undo what is set here.
const VARIABLES: &[&str] = &[
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_DEFAULT_REGION",
    "AWS_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL_STS",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
    "AWS_REQUEST_PAYER",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
];
/// Any of these names an account.
const NAMES: &[&str] = &[
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
];
/// A place to ask.
#[derive(Clone)]
pub struct Store {
    pub objects: Arc<dyn ObjectStore>,
    pub account: Account,
    pub server: Arc<Server>,
}

impl Store {
    /// `server`: a name that all objects of a bucket or of a host share.
    pub fn new(objects: Arc<dyn ObjectStore>, account: Account, server: &str) -> Store {
        Store {
            objects,
            account,
            server: network::hold().server(server),
        }
    }
}

/// Why a place cannot be read from, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    pub why: String,
    pub remedy: String,
}

impl Unfit {
    fn new(why: String, remedy: &str) -> Unfit {
        Unfit {
            why,
            remedy: remedy.to_string(),
        }
    }
}

/// Sets up what reads from a place, and the path to ask it for.
///
/// # Errors
/// Why not, and what to do.
pub fn connect(place: &ObjectPlace, settings: &ObjectSettings) -> Result<(Store, Path), Unfit> {
    match place {
        ObjectPlace::Http { url, authorization } => {
            let line = |e: object_store::Error| {
                Unfit::new(super::refusal::one_line(&e.to_string()), "check the URL")
            };
            let authorization = authorization
                .as_deref()
                .and_then(|text| HeaderValue::from_str(text).ok());
            let store = HttpBuilder::new()
                .with_url(url.as_str())
                .with_retry(no_retries())
                .with_client_options(client(settings, url.scheme() == "http"))
                .with_http_connector(Connector {
                    authorization,
                    client: Client::of(settings, url.scheme() == "http"),
                    is_s3: false,
                });
            let objects = Arc::new(store.build().map_err(line)?);
            Ok((
                Store::new(objects, Account::Http, url.authority()),
                Path::default(),
            ))
        }
        ObjectPlace::S3 { bucket, key } => {
            let key = Path::parse(key).map_err(|_| {
                let why = "the key has an empty part, `.`, `..` or a character that is no text"
                    .to_string();
                Unfit::new(why, "copy the object to a plainer key")
            })?;
            let (objects, account) = s3(bucket, settings)?;
            Ok((
                Store::new(objects, account, &server_of(bucket, settings)),
                key,
            ))
        }
    }
}

/// Variables that hold a URL.
const URLS: &[&str] = &[
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL_STS",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
];

/// Looks at the variables before object_store does: it panics where an endpoint is no URL, or where a value cannot be
/// part of a header. The line names the variable and never its value.
///
/// # Errors
/// Why not, and what to do.
fn check(settings: &ObjectSettings) -> Result<(), Unfit> {
    let named = settings
        .variables
        .iter()
        .filter(|(name, value)| VARIABLES.contains(&name.as_str()) && !value.is_empty());
    for (name, value) in named {
        let refuse = |why: &str, remedy: &str| Err(Unfit::new(format!("{name} {why}"), remedy));
        if !name.ends_with("_FILE") && !value.bytes().all(|b| b.is_ascii_graphic()) {
            let remedy = "set it again without blanks and line breaks (printf, not echo)";
            return refuse(
                "holds a blank, a line break or a character that is not ASCII",
                remedy,
            );
        }
        if name.ends_with("_REGION")
            && !value
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        {
            return refuse("is no region", "write one such as us-east-1");
        }
        if URLS.contains(&name.as_str()) {
            let url = Url::parse(value)
                .ok()
                .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
            let remedy = "write https://HOST[:PORT], or http:// with AWS_ALLOW_HTTP=true";
            let Some(url) = url else {
                return refuse("is no URL", remedy);
            };
            let is_endpoint = name.starts_with("AWS_ENDPOINT");
            if !url.username().is_empty()
                || url.password().is_some()
                || is_endpoint && url.query().is_some()
            {
                return refuse("holds a user, a password or a query", remedy);
            }
        }
    }
    Ok(())
}

/// The name of a bucket's server.
pub fn server_of(bucket: &str, settings: &ObjectSettings) -> String {
    let endpoint = settings
        .variable("AWS_ENDPOINT_URL_S3")
        .or(settings.variable("AWS_ENDPOINT_URL"));
    format!("{}/{bucket}", endpoint.unwrap_or_default())
}

/// A bucket.
///
/// # Errors
/// Why not, and what to do.
pub fn s3(bucket: &str, settings: &ObjectSettings) -> Result<(Arc<AmazonS3>, Account), Unfit> {
    check(settings)?;
    let on = |name: &str| {
        settings
            .variable(name)
            .is_some_and(|v| matches!(v, "1" | "true" | "yes" | "TRUE" | "True"))
    };
    let endpoint = settings
        .variable("AWS_ENDPOINT_URL_S3")
        .or(settings.variable("AWS_ENDPOINT_URL"));
    if endpoint.is_some_and(|url| url.starts_with("http://")) && !on("AWS_ALLOW_HTTP") {
        let why =
            "the endpoint speaks no TLS, so that any machine on the path could read the object"
                .to_string();
        return Err(Unfit::new(
            why,
            "set AWS_ALLOW_HTTP=true, or an endpoint with https://",
        ));
    }
    let mut builder = AmazonS3Builder::new();
    for (name, value) in &settings.variables {
        if VARIABLES.contains(&name.as_str())
            && !value.is_empty()
            && let Ok(key) = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>()
        {
            builder = builder.with_config(key, value);
        }
    }
    // One of them wins, whatever order they come in.
    if let Some(region) = settings
        .variable("AWS_REGION")
        .or(settings.variable("AWS_DEFAULT_REGION"))
    {
        builder = builder.with_region(region);
    }
    let named = NAMES.iter().any(|name| settings.variable(name).is_some());
    let store = builder
        .with_bucket_name(bucket)
        .with_skip_signature(!named)
        .with_retry(no_retries())
        .with_client_options(client(settings, on("AWS_ALLOW_HTTP")))
        .with_http_connector(Connector {
            authorization: None,
            client: Client::of(settings, on("AWS_ALLOW_HTTP")),
            is_s3: true,
        })
        .build();
    let store = store.map_err(|error| {
        let why = super::refusal::one_line(&error.to_string());
        Unfit::new(
            why,
            "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL",
        )
    })?;
    Ok((
        Arc::new(store),
        if named {
            Account::Named
        } else {
            Account::Unsigned
        },
    ))
}

/// With retries left, object_store would also go on with a broken body by itself.
fn no_retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: 0,
        retry_timeout: Duration::ZERO,
    }
}

/// No timeout for a whole request: it would end large bodies that are well. HTTP/1.1, because parts that are asked for
/// at once should use separate connections.
fn client(settings: &ObjectSettings, allow_http: bool) -> ClientOptions {
    ClientOptions::new()
        .with_allow_http(allow_http)
        .with_timeout_disabled()
        .with_connect_timeout(settings.first_byte)
        .with_http1_only()
        .with_pool_max_idle_per_host(settings.requests as usize * 2)
        .with_config(
            ClientConfigKey::UserAgent,
            concat!("foreread/", env!("CARGO_PKG_VERSION")),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of these made object_store panic, or would have been sent to another host.
    #[test]
    fn a_variable_that_cannot_be_used_is_refused_without_its_value() {
        for (name, value, why) in [
            ("AWS_ENDPOINT_URL", "canary.example:9000", "is no URL"),
            ("AWS_ENDPOINT_URL", "canary", "is no URL"),
            ("AWS_ENDPOINT_URL_S3", "ftp://canary", "is no URL"),
            ("AWS_ENDPOINT_URL_STS", "http://", "is no URL"),
            ("AWS_ENDPOINT_URL", "https://u:canary@h", "holds a user"),
            ("AWS_ENDPOINT_URL", "https://h/?canary", "holds a user"),
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "canary", "is no URL"),
            ("AWS_SECRET_ACCESS_KEY", "canary\n", "holds a blank"),
            ("AWS_ACCESS_KEY_ID", "can\u{e4}ry", "holds a blank"),
            ("AWS_SESSION_TOKEN", "canary\r", "holds a blank"),
            ("AWS_REGION", "canary/x", "is no region"),
        ] {
            let variables = vec![(name.to_string(), value.to_string())];
            let settings = ObjectSettings {
                variables,
                ..ObjectSettings::default()
            };
            let place = ObjectPlace::S3 {
                bucket: "bucket".to_string(),
                key: "key".to_string(),
            };
            let Unfit { why: said, remedy } = connect(&place, &settings)
                .err()
                .unwrap_or_else(|| panic!("{name}={value} is taken"));
            assert!(said.starts_with(&format!("{name} {why}")), "{said}");
            assert!(!said.contains("can") && !remedy.is_empty(), "{said}");
        }
        let variables = [
            ("AWS_ENDPOINT_URL", "https://h:1/p"),
            ("AWS_REGION", "eu-1"),
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "/a b"),
        ];
        let variables = variables
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .into();
        assert_eq!(
            check(&ObjectSettings {
                variables,
                ..ObjectSettings::default()
            }),
            Ok(())
        );
    }
}
