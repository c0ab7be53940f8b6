//! S3: `s3://BUCKET/KEY`, signed where the variables name an account, else not.
//!
//! Never: looks for credentials elsewhere than in the variables it is given.

use super::{
    Account, Advice, PaginatedListing, Place, Store, StoreKind, Unfit, bucket_and_key, check,
    client, connector, line, no_retries,
};
use crate::source::object::page;
use crate::source::object::reply::Wire;
use crate::source::object::settings::ObjectSettings;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use std::sync::Arc;

pub const S3: StoreKind = StoreKind {
    schemes: &["s3"],
    parse,
};

static ADVICE: Advice = Advice {
    refused: "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, and that they may read it",
    unsigned: "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: without them only public objects can be read",
    absent: "check bucket and key, and AWS_ENDPOINT_URL",
    elsewhere: "set AWS_REGION to the bucket's region, and AWS_ENDPOINT_URL where it is not Amazon's",
    no_listing: "check AWS_ENDPOINT_URL: it names a server of S3, not a page in front of it",
};

static WIRE: Wire = Wire {
    stores_codings: true,
    page: page::of_s3,
};

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

/// Variables that hold a URL.
const URLS: &[&str] = &[
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL_STS",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
];

struct S3Place {
    bucket: String,
    key: String,
}

fn parse(text: &str) -> Result<Box<dyn Place>, Unfit> {
    read(text).map(|place| Box::new(place) as Box<dyn Place>)
}

fn read(text: &str) -> Result<S3Place, Unfit> {
    let accounts = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
    let (bucket, key) = bucket_and_key(text, "s3://BUCKET/KEY", accounts)?;
    Ok(S3Place {
        bucket: bucket.to_string(),
        key: key.to_string(),
    })
}

impl Place for S3Place {
    fn key(&self) -> &str {
        &self.key
    }

    fn connect(&self, settings: &ObjectSettings) -> Result<Store, Unfit> {
        check(settings, VARIABLES, URLS)?;
        let allow_http = settings.is_on("AWS_ALLOW_HTTP");
        let endpoint = settings
            .variable("AWS_ENDPOINT_URL_S3")
            .or(settings.variable("AWS_ENDPOINT_URL"));
        if endpoint.is_some_and(|url| url.starts_with("http://")) && !allow_http {
            let why =
                "the endpoint speaks no TLS, so that any machine on the path could read the object";
            let remedy = "set AWS_ALLOW_HTTP=true, or an endpoint with https://";
            return Err(Unfit::new(why, remedy));
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
        let is_unsigned = !NAMES.iter().any(|name| settings.variable(name).is_some());
        let store = builder
            .with_bucket_name(&self.bucket)
            .with_skip_signature(is_unsigned)
            .with_retry(no_retries())
            .with_client_options(client(settings, allow_http))
            .with_http_connector(connector(settings, allow_http, &WIRE, None))
            .build();
        let remedy = "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL";
        let store = Arc::new(store.map_err(|error| Unfit::new(line(&error), remedy))?);
        let endpoint = endpoint.unwrap_or_default();
        Ok(Store {
            objects: store.clone(),
            listing: Some(Arc::new(PaginatedListing(store))),
            account: Account {
                advice: &ADVICE,
                is_unsigned,
                link: None,
            },
            credentials: None,
            server: super::server(&format!("{endpoint}/{}", self.bucket)),
        })
    }
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
            let place = parse("s3://bucket/key").expect("a name");
            let Unfit { why: said, remedy } = place
                .connect(&settings)
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
        let settings = ObjectSettings {
            variables,
            ..ObjectSettings::default()
        };
        assert_eq!(check(&settings, VARIABLES, URLS), Ok(()));
    }

    #[test]
    fn a_key_is_taken_as_it_is() {
        let read = |text: &str| read(text).map(|place| (place.bucket, place.key));
        let place = |bucket: &str, key: &str| Ok((bucket.to_string(), key.to_string()));
        assert_eq!(read("s3://b.c-d/a b/c#d?e"), place("b.c-d", "a b/c#d?e"));
        assert_eq!(read("s3://b/x/"), place("b", "x/"));
        assert_eq!(read("s3://b"), place("b", ""));
    }
}
