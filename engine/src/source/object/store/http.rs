//! Plain HTTP: `http://HOST/PATH`, `https://HOST/PATH`, with a user and a password if the URL has them.

use super::{Account, Advice, Place, Store, Unfit, connector, no_retries};
use crate::source::object::network;
use crate::source::object::page;
use crate::source::object::refusal::line_of;
use crate::source::object::reply::Wire;
use crate::source::object::settings::ObjectSettings;
use base64::prelude::*;
use object_store::HeaderValue;
use object_store::http::HttpBuilder;
use percent_encoding::percent_decode_str;
use std::sync::Arc;
use url::Url;

static ADVICE: Advice = Advice {
    refused: "check the user and password in the URL (https://USER:PASSWORD@HOST/), or the token or signature in its query",
    unsigned: "write the user and password into the URL (https://USER:PASSWORD@HOST/)",
    absent: "check the URL",
    elsewhere: "check the server",
    list: "curl",
    no_listing: "check the server",
};

/// How replies of plain HTTP are read; plain HTTP cannot list names.
pub static PLAIN: Wire = Wire {
    stores_codings: false,
    accept_encoding: "identity",
    generation: None,
    has_versions: false,
    is_account: false,
    page: page::of_s3,
};

pub struct HttpPlace {
    /// The URL without user, password and fragment.
    url: Url,
    /// The header `Authorization`, if the URL has a user.
    authorization: Option<String>,
}

pub fn read(text: &str) -> Result<HttpPlace, Unfit> {
    let remedy = "write http://HOST[:PORT]/PATH or https://HOST[:PORT]/PATH";
    let mut url =
        Url::parse(text).map_err(|e| Unfit::new(format!("it is not a URL ({e})"), remedy))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err(Unfit::new("it is not the URL of an object", remedy));
    }
    let authorization = (!url.username().is_empty() || url.password().is_some()).then(|| {
        let decoded = |text| percent_decode_str(text).collect::<Vec<u8>>();
        let both = [
            decoded(url.username()),
            b":".to_vec(),
            decoded(url.password().unwrap_or_default()),
        ]
        .concat();
        format!("Basic {}", BASE64_STANDARD.encode(both))
    });
    // Neither can fail for a URL that has a host.
    let _ = (url.set_username(""), url.set_password(None));
    url.set_fragment(None);
    Ok(HttpPlace { url, authorization })
}

impl Place for HttpPlace {
    fn key(&self) -> &str {
        ""
    }

    fn is_prefix(&self) -> bool {
        false
    }

    fn connect(&self, settings: &ObjectSettings) -> Result<Store, Unfit> {
        let authorization = self.authorization.as_deref();
        let authorization = authorization.and_then(|text| HeaderValue::from_str(text).ok());
        let allow_http = self.url.scheme() == "http";
        let connector = connector(settings, allow_http, &PLAIN, authorization)?;
        let store = HttpBuilder::new()
            .with_url(self.url.as_str())
            .with_retry(no_retries())
            .with_http_connector(connector)
            .build();
        let store = store.map_err(|error| Unfit::new(line_of(&error), "check the URL"))?;
        Ok(Store {
            objects: Arc::new(store),
            is_foreign: false,
            listing: None,
            account: Account::without_chain(&ADVICE),
            credentials: None,
            server: network::hold().server(self.url.authority()),
            place: unsigned(&self.url).as_str().into(),
        })
    }
}

/// The parameters that sign a URL and say until when; each set is recognized by its first parameter. A URL with another
/// signature is the same object. If the first parameter is present, it and all others of its set are removed.
const SIGNATURES: [&[&str]; 3] = [
    &[
        "X-Amz-Signature",
        "X-Amz-Algorithm",
        "X-Amz-Credential",
        "X-Amz-Date",
        "X-Amz-Expires",
        "X-Amz-SignedHeaders",
        "X-Amz-Security-Token",
    ],
    &[
        "X-Goog-Signature",
        "X-Goog-Algorithm",
        "X-Goog-Credential",
        "X-Goog-Date",
        "X-Goog-Expires",
        "X-Goog-SignedHeaders",
    ],
    // CloudFront.
    &["Key-Pair-Id", "Signature", "Expires", "Policy"],
];

/// A URL without its signature.
fn unsigned(url: &Url) -> Url {
    let mut plain = url.clone();
    let names: Vec<String> = url
        .query_pairs()
        .map(|(name, _)| name.into_owned())
        .collect();
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    let signed = SIGNATURES
        .iter()
        .find(|names| has(names[0]) && (names[0] != "Key-Pair-Id" || has("Signature")));
    if let Some(signature) = signed {
        let pairs = url.query_pairs();
        let kept = pairs.filter(|(name, _)| !signature.contains(&&**name));
        plain.query_pairs_mut().clear().extend_pairs(kept);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_split_from_its_user() {
        let http = |text: &str| {
            let place = read(text).expect(text);
            (place.url.to_string(), place.authorization)
        };
        assert_eq!(
            http("http://h/a%20b?x=1#y"),
            ("http://h/a%20b?x=1".to_string(), None)
        );
        assert_eq!(http("https://[::1]:8/").0, "https://[::1]:8/");
        let basic = Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==".to_string());
        assert_eq!(
            http("https://Aladdin:open%20sesame@h/x"),
            ("https://h/x".to_string(), basic),
            "RFC 7617"
        );
    }

    #[test]
    fn a_signature_is_not_part_of_an_objects_identity() {
        let plain = |text: &str| unsigned(&Url::parse(text).expect(text)).to_string();
        let rows = "\
            http://h/k?a=1&X-Amz-Signature=2&X-Amz-Date=3&x=4 http://h/k?a=1&x=4
            http://h/k?Key-Pair-Id=1&Signature=2&Policy=3&p=4 http://h/k?p=4
            http://h/k?policy=a&expires=1 http://h/k?policy=a&expires=1
            http://h/k?Signature=1&Expires=2 http://h/k?Signature=1&Expires=2
            http://h/k?x-amz-meta=1 http://h/k?x-amz-meta=1";
        for row in rows.lines() {
            let (signed, kept) = row.trim_start().split_once(' ').expect(row);
            assert_eq!(plain(signed), kept);
        }
    }
}
