//! S3: `s3://BUCKET/KEY`, signed with the credentials of the chain ([`AwsChain`]), not signed where no link has any.
//!
//! The region is that of the settings, or of the profile, or us-east-1; a bucket elsewhere says where it is. Buckets of S3 Express One Zone are
//! directory buckets: their requests are signed for a session, and their names come in no order.

use super::{
    BucketKey, Listing, PaginatedListing, Place, Store, StoreKind, bucket_and_key, check,
    connector, keeper_of, line, may_be_plain, no_retries,
};
use crate::source::object::credentials::Provider;
use crate::source::object::credentials::aws::{AwsChain, profile_in_use};
use crate::source::object::page;
use crate::source::object::refusal::{Advice, Unfit};
use crate::source::object::reply::Wire;
use crate::source::object::settings::ObjectSettings;
use object_store::aws::AmazonS3Builder;
use std::cell::LazyCell;
use std::sync::Arc;

pub const S3: StoreKind = StoreKind {
    scheme: "s3",
    parse,
};

static ADVICE: Advice = Advice {
    refused: "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, and that they may read it",
    unsigned: "log in (aws sso login, aws configure), or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: without credentials only public objects can be read",
    absent: "check bucket and key (a prefix ends with /), and AWS_ENDPOINT_URL",
    elsewhere: "set AWS_REGION to the bucket's region, and AWS_ENDPOINT_URL where it is not Amazon's",
    list: "aws s3 ls",
    no_listing: "check AWS_ENDPOINT_URL: it names a server of S3, not a page in front of it",
};

static WIRE: Wire = Wire {
    stores_codings: true,
    accept_encoding: "identity",
    generation: None,
    has_versions: false,
    is_account: true,
    page: page::of_s3,
};

/// Variables that are looked at before they are used.
const VARIABLES: &[&str] = &[
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_DEFAULT_REGION",
    "AWS_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL_STS",
    "AWS_ENDPOINT_URL_SSO",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
];
/// Variables that hold a URL.
const URLS: &[&str] = &[
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL_STS",
    "AWS_ENDPOINT_URL_SSO",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
];

struct S3Place(BucketKey);

fn parse(text: &str) -> Result<Box<dyn Place>, Unfit> {
    read(text).map(|place| Box::new(place) as Box<dyn Place>)
}

fn read(text: &str) -> Result<S3Place, Unfit> {
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
        // A token goes to each of them.
        for name in ["AWS_ENDPOINT_URL_STS", "AWS_ENDPOINT_URL_SSO"] {
            may_be_plain(settings.variable(name), settings, "AWS_ALLOW_HTTP")?;
        }
        let profile = LazyCell::new(|| profile_in_use(settings));
        let of_profile = |key| profile.get(key).cloned();
        let endpoint = settings
            .endpoint_of(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"])
            .map(str::to_string)
            .or_else(|| of_profile("endpoint_url"));
        let allow_http = may_be_plain(endpoint.as_deref(), settings, "AWS_ALLOW_HTTP")?;
        let named = [
            settings.region.as_deref(),
            settings.variable("AWS_REGION"),
            settings.variable("AWS_DEFAULT_REGION"),
        ];
        let region = named.into_iter().flatten().next().map(str::to_string);
        let region = region.or_else(|| of_profile("region"));
        let connector = connector(settings, allow_http, &WIRE, None)?;
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&self.0.bucket)
            .with_region(region.as_deref().unwrap_or("us-east-1"))
            .with_request_payer(settings.requester_pays || settings.is_on("AWS_REQUEST_PAYER"))
            .with_s3_express(self.is_directory_bucket())
            .with_virtual_hosted_style_request(settings.is_on("AWS_VIRTUAL_HOSTED_STYLE_REQUEST"))
            .with_retry(no_retries())
            .with_http_connector(connector);
        if let Some(endpoint) = &endpoint {
            builder = builder.with_endpoint(endpoint.trim_end_matches('/'));
        }
        let keeper = keeper_of("S3", settings, || AwsChain(settings.clone()))?;
        builder = match &keeper {
            Some(keeper) => builder.with_credentials(Arc::new(Provider(keeper.clone()))),
            None => builder.with_skip_signature(true),
        };
        let remedy = "check the bucket's name and AWS_ENDPOINT_URL";
        let store = builder.build();
        let store = Arc::new(store.map_err(|error| Unfit::new(line(&error), remedy))?);
        let endpoint = endpoint.unwrap_or_default();
        let listing: Arc<dyn Listing> = if self.is_directory_bucket() {
            Arc::new(PaginatedListing::without_order(store.clone()))
        } else {
            Arc::new(PaginatedListing::new(store.clone()))
        };
        let server = format!("{endpoint}/{}", self.0.bucket);
        Ok(Store::new(store, listing, &ADVICE, keeper, &server))
    }
}

impl S3Place {
    /// S3 Express One Zone.
    fn is_directory_bucket(&self) -> bool {
        self.0.bucket.ends_with("--x-s3")
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
        let read = |text: &str| read(text).map(|place| (place.0.bucket, place.0.key));
        let place = |bucket: &str, key: &str| Ok((bucket.to_string(), key.to_string()));
        assert_eq!(read("s3://b.c-d/a b/c#d?e"), place("b.c-d", "a b/c#d?e"));
        assert_eq!(read("s3://b/x/"), place("b", "x/"));
        assert_eq!(read("s3://b"), place("b", ""));
    }
}
