//! How objects are named: `http://`, `https://` and `s3://BUCKET/KEY`.
//!
//! Never: lets a password or a token into a message.

use crate::source::{self, SourceName, SourceOpenError};
use percent_encoding::percent_decode_str;
use url::Url;

const EINVAL: i32 = rustix::io::Errno::INVAL.raw_os_error();

/// Where an object is.
#[derive(Clone, PartialEq, Eq)]
pub enum Place {
    Http {
        /// Without user, password and fragment.
        url: Url,
        /// The header `Authorization`, where a user is named.
        authorization: Option<String>,
    },
    S3 {
        bucket: String,
        /// Empty for the whole bucket; a prefix ends with `/`.
        key: String,
    },
}

/// Is it the name of many objects: a bucket, or a prefix with `/` at its end?
#[must_use]
pub fn names_a_prefix(name: &SourceName) -> bool {
    name.unredacted_text()
        .and_then(|name| name.strip_prefix("s3://"))
        .is_some_and(|rest| rest.ends_with('/') || !rest.contains('/'))
}

pub fn parse(name: &SourceName) -> Result<Place, SourceOpenError> {
    let text = source::text(name)?;
    let error = |why: String, remedy: &str| SourceOpenError {
        what: name.clone(),
        why,
        remedy: remedy.to_string(),
        errno: EINVAL,
    };
    if let Some(rest) = text.strip_prefix("s3:") {
        let rest = rest.strip_prefix("//").unwrap_or_default();
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.contains('@') {
            let why = "the name of a bucket has no keys before it";
            return Err(error(
                why.to_string(),
                "write s3://BUCKET/KEY, and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            ));
        }
        if bucket.is_empty()
            || !bucket
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
        {
            return Err(error(
                "it names no bucket".to_string(),
                "write s3://BUCKET/KEY",
            ));
        }
        return Ok(Place::S3 {
            bucket: bucket.to_string(),
            key: key.to_string(),
        });
    }
    let remedy = "write http://HOST[:PORT]/PATH or https://HOST[:PORT]/PATH";
    let mut url = Url::parse(text).map_err(|e| error(format!("it is no URL ({e})"), remedy))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err(error("it is no URL of an object".to_string(), remedy));
    }
    let authorization = (!url.username().is_empty() || url.password().is_some()).then(|| {
        let decoded = |text| percent_decode_str(text).collect::<Vec<u8>>();
        let both = [
            decoded(url.username()),
            b":".to_vec(),
            decoded(url.password().unwrap_or_default()),
        ]
        .concat();
        format!("Basic {}", base64(&both))
    });
    // Neither can fail for a URL that has a host.
    let _ = (url.set_username(""), url.set_password(None));
    url.set_fragment(None);
    Ok(Place::Http { url, authorization })
}

/// RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = (0..3).fold(0_u32, |bits, i| {
            bits << 8 | u32::from(three.get(i).copied().unwrap_or(0))
        });
        for i in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * i) & 63) as usize];
            text.push(if i <= three.len() {
                char::from(digit)
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notations() {
        let http = |text: &str| match parse(&text.into()).expect(text) {
            Place::Http { url, authorization } => (url.to_string(), authorization),
            Place::S3 { .. } => panic!("{text} is no S3"),
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
        let s3 = |bucket: &str, key: &str| Place::S3 {
            bucket: bucket.into(),
            key: key.into(),
        };
        assert!(parse(&"s3://b.c-d/a b/c#d?e".into()).expect("a key") == s3("b.c-d", "a b/c#d?e"));
        assert!(parse(&"s3://b/x/".into()).expect("a prefix") == s3("b", "x/"));
        assert!(parse(&"s3://b".into()).expect("a bucket") == s3("b", ""));
    }

    #[test]
    fn what_is_none_is_said_in_one_line_without_its_secrets() {
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
            assert_eq!(error.errno, EINVAL);
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

    #[test]
    fn base64_as_in_rfc_4648() {
        for (plain, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(plain.as_bytes()), text);
        }
    }
}
