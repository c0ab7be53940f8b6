//! Google Cloud Storage: `gs://BUCKET/KEY`, with the first credentials that are found ([`GoogleChain`]), or none.
//!
//! A version is a generation: each reply has it in `x-goog-generation`, and each request sends it in
//! `x-goog-if-generation-match`. Listings use Google's XML API: S3's format, with a `Generation` for each object. An object stored
//! with gzip encoding is requested in compressed form: otherwise the server decompresses it, and then supports no ranges. Source:
//! Google Cloud Storage, XML API: GET object, GET bucket; transcoding of gzip-compressed files.

use super::{
    BucketKey, PaginatedListing, Place, Store, bucket_and_key, check, connector, keeper_of,
    may_be_plain, no_retries,
};
use crate::source::object::credentials::Provider;
use crate::source::object::credentials::google::GoogleChain;
use crate::source::object::page;
use crate::source::object::refusal::{Advice, Unfit, line_of};
use crate::source::object::reply::{Generation, Wire};
use crate::source::object::settings::ObjectSettings;
use object_store::StaticCredentialProvider;
use object_store::gcp::{GcpCredential, GoogleCloudStorageBuilder, GoogleConfigKey};
use std::sync::Arc;

static ADVICE: Advice = Advice {
    refused: "check that the account has read permission (Storage Object Viewer)",
    unsigned: "log in (gcloud auth application-default login): without credentials only public objects can be read",
    absent: "check the bucket and key (gcloud storage ls); the name of a prefix ends with /",
    elsewhere: "check bucket and key (gcloud storage ls)",
    list: "gcloud storage ls",
    no_listing: "check STORAGE_EMULATOR_HOST: it must be a server with the API of Google Cloud Storage, not a web page",
};

static WIRE: Wire = Wire {
    stores_codings: true,
    accept_encoding: "gzip",
    generation: Some(Generation {
        replied: "x-goog-generation",
        asked: "x-goog-if-generation-match",
        asked_unless: "x-goog-if-generation-not-match",
    }),
    has_versions: true,
    is_account: true,
    page: page::of_google,
};

/// Variables that are checked before they are used.
const VARIABLES: &[&str] = &[
    "STORAGE_EMULATOR_HOST",
    "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE",
    "GOOGLE_BEARER_TOKEN",
    "GCE_METADATA_HOST",
];

pub struct GcsPlace(BucketKey);

pub fn read(text: &str) -> Result<GcsPlace, Unfit> {
    let accounts = "run gcloud auth application-default login";
    bucket_and_key(text, "gs://BUCKET/KEY", accounts).map(GcsPlace)
}

impl Place for GcsPlace {
    fn key(&self) -> &str {
        &self.0.key
    }

    fn connect(&self, settings: &ObjectSettings) -> Result<Store, Unfit> {
        check(settings, VARIABLES, &[])?;
        // The variable of Google's libraries: a URL or HOST:PORT. No credentials are sent to an emulator.
        let emulator = settings.variable("STORAGE_EMULATOR_HOST");
        let endpoint = emulator
            .or(settings.variable("CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE"))
            .map(|text| match text.contains("://") {
                true => text.to_string(),
                false => format!("http://{text}"),
            });
        let allow_http = may_be_plain(endpoint.as_deref(), settings, "GOOGLE_ALLOW_HTTP")?;
        let connector = connector(settings, allow_http, &WIRE, None)?;
        let mut builder = GoogleCloudStorageBuilder::new()
            .with_bucket_name(&self.0.bucket)
            .with_retry(no_retries())
            .with_http_connector(connector);
        if let Some(endpoint) = &endpoint {
            let endpoint = endpoint.trim_end_matches('/');
            builder = builder.with_config(GoogleConfigKey::BaseUrl, endpoint);
        }
        let mut keeper = None;
        if emulator.is_none() {
            keeper = keeper_of("Google Cloud Storage", settings, || {
                GoogleChain(settings.clone())
            })?;
        }
        let no_token = GcpCredential {
            bearer: String::new(),
        };
        builder = match &keeper {
            Some(keeper) => builder.with_credentials(Arc::new(Provider(keeper.clone()))),
            // A client without a provider would search for credentials itself.
            None => builder
                .with_credentials(Arc::new(StaticCredentialProvider::new(no_token)))
                .with_skip_signature(true),
        };
        let store = builder.build();
        let remedy = "check the bucket's name";
        let store = Arc::new(store.map_err(|error| Unfit::new(line_of(&error), remedy))?);
        let endpoint = endpoint.unwrap_or_else(|| "gs:".to_string());
        let listing = PaginatedListing {
            store: store.clone(),
            is_ordered: true,
        };
        let server = format!("{endpoint}/{}", self.0.bucket);
        Ok(Store::new(
            store,
            Arc::new(listing),
            &ADVICE,
            keeper,
            &server,
        ))
    }
}
