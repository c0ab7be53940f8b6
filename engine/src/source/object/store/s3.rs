//! S3: `s3://BUCKET/KEY`, signed with the first credentials that are found ([`AwsChain`]), or unsigned if there are none.
//!
//! The region is taken from the settings, else from the profile, else it is us-east-1. If the bucket is in another region, the
//! error reply of the server names the right region. Buckets of S3 Express One Zone are directory buckets: requests to them are
//! signed for a session, and their listings are unordered.
//!
//! ```text
//!   path style, the default            https://HOST/BUCKET/KEY
//!   AWS_VIRTUAL_HOSTED_STYLE_REQUEST   https://BUCKET.HOST/KEY     OSS, COS, OBS and TOS support only this
//! ```

use super::{
    BucketKey, PaginatedListing, Place, Store, bucket_and_key, check, connector, keeper_of,
    may_be_plain, no_retries,
};
use crate::source::object::credentials::Provider;
use crate::source::object::credentials::aws::AwsChain;
use crate::source::object::credentials::hosts::Hosts;
use crate::source::object::credentials::profile::ProfileInUse;
use crate::source::object::page;
use crate::source::object::refusal::{Advice, Unfit, line_of};
use crate::source::object::reply::Wire;
use crate::source::object::settings::{ObjectSettings, is_yes};
use object_store::aws::AmazonS3Builder;
use std::sync::Arc;

static ADVICE: Advice = Advice {
    refused: "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, and that these credentials have read permission",
    unsigned: "log in (aws sso login, aws configure), or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: without credentials only public objects can be read",
    absent: "check the bucket, the key (the name of a prefix ends with /) and AWS_ENDPOINT_URL",
    elsewhere: "set AWS_REGION to the bucket's region, and AWS_ENDPOINT_URL if it is not on Amazon",
    list: "aws s3 ls",
    no_listing: "check AWS_ENDPOINT_URL: it must be an S3 server, not a web page",
};

static WIRE: Wire = Wire {
    stores_codings: true,
    accept_encoding: "identity",
    generation: None,
    has_versions: false,
    is_account: true,
    page: page::of_s3,
};

/// Variables that are checked before they are used.
const VARIABLES: &[&str] = &[
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_DEFAULT_REGION",
    "AWS_REGION",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
];
/// Variables that contain a URL, and are checked as one.
const URLS: &[&str] = &[
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL_STS",
    "AWS_ENDPOINT_URL_SSO",
    "AWS_ENDPOINT_URL_SSO_OIDC",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
];

pub struct S3Place(BucketKey);

pub fn read(text: &str) -> Result<S3Place, Unfit> {
    let accounts = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
    bucket_and_key(text, "s3://BUCKET/KEY", accounts).map(S3Place)
}

impl Place for S3Place {
    fn key(&self) -> &str {
        &self.0.key
    }

    fn connect(&self, settings: &ObjectSettings) -> Result<Store, Unfit> {
        check(settings, VARIABLES, URLS)?;
        let settings = &ObjectSettings {
            ca_file: settings.ca_bundle(),
            ..settings.clone()
        };
        // Each of these services receives a token.
        for name in [
            "AWS_ENDPOINT_URL_STS",
            "AWS_ENDPOINT_URL_SSO",
            "AWS_ENDPOINT_URL_SSO_OIDC",
        ] {
            may_be_plain(settings.variable(name), settings, "AWS_ALLOW_HTTP")?;
        }
        let profile = ProfileInUse::of(settings);
        let of_profile = |key| profile.get(key).map(str::to_string);
        let endpoint = settings.endpoint_url.clone();
        let endpoint = endpoint.or_else(|| profile.endpoint(settings, "S3"));
        let allow_http = may_be_plain(endpoint.as_deref(), settings, "AWS_ALLOW_HTTP")?;
        let named = [
            settings.region.as_deref(),
            settings.variable("AWS_REGION"),
            settings.variable("AWS_DEFAULT_REGION"),
        ];
        let region = named.into_iter().flatten().next().map(str::to_string);
        let region = region.or_else(|| of_profile("region"));
        let region = region.as_deref().unwrap_or("us-east-1");
        let mut hosts = Hosts::of(settings, &profile, region);
        hosts.is_dual_stack |= profile.get("s3.use_dualstack_endpoint").is_some_and(is_yes);
        let is_virtual = match settings.variable("AWS_VIRTUAL_HOSTED_STYLE_REQUEST") {
            Some(value) => is_yes(value),
            None => profile.get("s3.addressing_style") == Some("virtual"),
        };
        let connector = connector(settings, allow_http, &WIRE, None)?;
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&self.0.bucket)
            .with_region(region)
            .with_request_payer(settings.requester_pays || settings.is_on("AWS_REQUEST_PAYER"))
            .with_s3_express(self.is_directory_bucket())
            .with_virtual_hosted_style_request(is_virtual)
            .with_retry(no_retries())
            .with_http_connector(connector);
        if let Some(url) = self.url(endpoint.as_deref(), &hosts, is_virtual) {
            builder = builder.with_endpoint(url.trim_end_matches('/'));
        }
        let keeper = keeper_of("S3", settings, || AwsChain::new(settings.clone()))?;
        builder = match &keeper {
            Some(keeper) => builder.with_credentials(Arc::new(Provider(keeper.clone()))),
            None => builder.with_skip_signature(true),
        };
        let remedy = "check the bucket's name and AWS_ENDPOINT_URL";
        let store = builder.build();
        let store = Arc::new(store.map_err(|error| Unfit::new(line_of(&error), remedy))?);
        // Keys of another partition belong to another store.
        let endpoint = endpoint.or_else(|| {
            hosts
                .other_domain()
                .map(|domain| format!("https://s3.{domain}"))
        });
        let endpoint = endpoint.unwrap_or_default();
        let listing = PaginatedListing {
            store: store.clone(),
            is_ordered: !self.is_directory_bucket(),
        };
        let server = format!("{endpoint}/{}", self.0.bucket);
        let store = Store::new(store, Arc::new(listing), &ADVICE, keeper, &server);
        Ok(store.with_missing("S3", settings))
    }
}

impl S3Place {
    /// The URL for requests, with the bucket in the host name if that is configured. Returns `None` if object_store should
    /// derive the URL from the region.
    fn url(&self, named: Option<&str>, hosts: &Hosts<'_>, is_virtual: bool) -> Option<String> {
        let is_usual = !hosts.is_fips && !hosts.is_dual_stack && hosts.other_domain().is_none();
        let url = match named {
            Some(named) => named.to_string(),
            None if is_usual || self.is_directory_bucket() => return None,
            None => format!("https://{}", hosts.host("s3")),
        };
        let (scheme, host) = url.split_once("://")?;
        let bucket = &self.0.bucket;
        // Some servers have the bucket in their name already.
        let has_bucket = host.strip_prefix(bucket.as_str());
        let has_bucket = has_bucket.is_some_and(|rest| rest.starts_with('.'));
        match is_virtual && !has_bucket {
            true => Some(format!("{scheme}://{bucket}.{host}")),
            false => Some(url),
        }
    }

    /// Whether it is a bucket of S3 Express One Zone.
    fn is_directory_bucket(&self) -> bool {
        self.0.bucket.ends_with("--x-s3")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::object::settings::tests::of_variables;

    /// Each of these made object_store panic, or would have been sent to another host.
    #[test]
    fn a_variable_that_cannot_be_used_is_refused_without_its_value() {
        for (name, value, why) in [
            ("AWS_ENDPOINT_URL", "canary.example:9000", "is not a URL"),
            ("AWS_ENDPOINT_URL", "canary", "is not a URL"),
            ("AWS_ENDPOINT_URL_S3", "ftp://canary", "is not a URL"),
            ("AWS_ENDPOINT_URL_STS", "http://", "is not a URL"),
            ("AWS_ENDPOINT_URL", "https://u:canary@h", "contains a user"),
            ("AWS_ENDPOINT_URL", "https://h/?canary", "contains a user"),
            (
                "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                "canary",
                "is not a URL",
            ),
            ("AWS_SECRET_ACCESS_KEY", "canary\n", "contains a blank"),
            ("AWS_ACCESS_KEY_ID", "can\u{e4}ry", "contains a blank"),
            ("AWS_SESSION_TOKEN", "canary\r", "contains a blank"),
            ("AWS_REGION", "canary/x", "is not a region"),
        ] {
            let settings = of_variables(&[(name, value)]);
            let place = read("s3://bucket/key").expect("a name");
            let Unfit { why: said, remedy } = place
                .connect(&settings)
                .err()
                .unwrap_or_else(|| panic!("{name}={value} is taken"));
            assert!(said.starts_with(&format!("{name} {why}")), "{said}");
            assert!(!said.contains("can") && !remedy.is_empty(), "{said}");
        }
        let settings = of_variables(&[
            ("AWS_ENDPOINT_URL", "https://h:1/p"),
            ("AWS_REGION", "eu-1"),
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "/a b"),
        ]);
        assert_eq!(check(&settings, VARIABLES, URLS), Ok(()));
    }

    #[test]
    fn the_bucket_is_in_the_host_if_requested() {
        let place = read("s3://b.c/k").expect("a name");
        let url = |named, region, is_fips, is_virtual| {
            let hosts = Hosts {
                region,
                is_fips,
                is_dual_stack: false,
            };
            place.url(named, &hosts, is_virtual)
        };
        let is = |named, region, [is_fips, is_virtual]: [bool; 2], expected: &str| {
            let url = url(named, region, is_fips, is_virtual);
            assert_eq!(url.unwrap_or_default(), expected);
        };
        let oss = Some("https://oss.example:1/p");
        is(oss, "eu-1", [false; 2], "https://oss.example:1/p");
        is(oss, "eu-1", [true; 2], "https://b.c.oss.example:1/p");
        let own = Some("http://b.c.oss.example");
        is(own, "eu-1", [false, true], "http://b.c.oss.example");
        assert_eq!(url(None, "eu-1", false, true), None, "object_store's own");
        let fips = "https://b.c.s3-fips.us-2.amazonaws.com";
        is(None, "us-2", [true; 2], fips);
        let china = "https://s3.cn-n-1.amazonaws.com.cn";
        is(None, "cn-n-1", [false; 2], china);
    }

    #[test]
    fn a_key_is_not_normalised() {
        let read = |text: &str| read(text).map(|place| (place.0.bucket, place.0.key));
        let place = |bucket: &str, key: &str| Ok((bucket.to_string(), key.to_string()));
        assert_eq!(read("s3://b.c-d/a b/c#d?e"), place("b.c-d", "a b/c#d?e"));
        assert_eq!(read("s3://b/x/"), place("b", "x/"));
        assert_eq!(read("s3://b"), place("b", ""));
    }
}
