//! What may be set for objects: deadlines, retries, how much at once, and the variables that name an account.
//!
//! Never: reads the environment after a source was opened, or prints a value of it.
//!
//! ```text
//!   request ──► first byte ──► piece ──► piece ──► ... ──► end
//!           first_byte     stall     stall                    each starts anew with every byte that comes
//!   └───────────────── total + length at slowest ──────────────┘ with all retries and the pauses between them
//! ```

use crate::source::{self, Defaults, SourceName, SourceOpenError};
use percent_encoding::percent_decode_str;
use std::ffi::OsString;
use std::time::Duration;
use url::Url;

/// The variable that sets these for sources that are opened by name.
pub const VARIABLE: &str = "FOREREAD_OBJECT";
/// How its value is written.
pub const NOTATION: &str =
    "first-byte=SECONDS,stall=SECONDS,total=SECONDS,retries=N,requests=N,part=BYTES,hedge=PERCENT";

/// Settings of an [`super::Object`]; each has a default.
#[derive(Clone)]
pub struct ObjectSettings {
    /// From the request to the first byte of its body. Default 10 s.
    pub first_byte: Duration,
    /// From one byte to the next. Default 10 s.
    pub stall: Duration,
    /// For a read with all its retries, beside the time that its length takes at `slowest_bytes_per_second`: a large
    /// read that moves is healthy. Default 60 s.
    pub total: Duration,
    /// What is slower than this is taken to be stuck. Default 16 KiB/s.
    pub slowest_bytes_per_second: u64,
    /// Requests that are made again for one read of a part, at most. Default 4.
    pub retries: u32,
    /// Pause before the first of them; each next one is twice as long, up to 5 s, and a random half of it is left out.
    /// Default 100 ms.
    pub pause: Duration,
    /// Requests that should be under way at once, from 1 to 256. Default that of [`Defaults::OBJECT`], which has more of short ones.
    pub requests: u32,
    /// Reads longer than this are several requests at once. Default the largest fetch,
    /// so that a fetch is one request; at least 64 KiB.
    pub part_bytes: u64,
    /// Requests that may be made a second time, in percent of all, from 0 to 50: where a read waits longer for its first byte than 95 % of those
    /// before. The answer that comes first is taken. Default 0.
    pub hedge_percent: u32,
    /// Names and values of `AWS_*`. Default those of the environment.
    pub variables: Vec<(String, String)>,
}

/// Values are secrets: only what is no variable is shown.
impl std::fmt::Debug for ObjectSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ObjectSettings {
            first_byte,
            stall,
            total,
            retries,
            requests,
            part_bytes,
            hedge_percent,
            ..
        } = self;
        write!(
            f,
            "first-byte={first_byte:?},stall={stall:?},total={total:?},retries={retries}"
        )?;
        write!(
            f,
            ",requests={requests},part={part_bytes},hedge={hedge_percent}"
        )
    }
}

impl Default for ObjectSettings {
    fn default() -> ObjectSettings {
        ObjectSettings {
            first_byte: Duration::from_secs(10),
            stall: Duration::from_secs(10),
            total: Duration::from_secs(60),
            slowest_bytes_per_second: 16 << 10,
            retries: 4,
            pause: Duration::from_millis(100),
            requests: Defaults::OBJECT.requests,
            part_bytes: Defaults::OBJECT.max_fetch_bytes,
            hedge_percent: 0,
            variables: variables(),
        }
    }
}

/// Those of the environment; one that is no text is no key.
fn variables() -> Vec<(String, String)> {
    let text = |(name, value): (OsString, OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os()
        .filter_map(text)
        .filter(|(name, _)| name.starts_with("AWS_"))
        .collect()
}

impl ObjectSettings {
    /// The defaults with what [`VARIABLE`] says.
    ///
    /// # Errors
    /// A line that says what is wrong with its value.
    pub fn from_environment() -> Result<ObjectSettings, String> {
        let text = std::env::var(VARIABLE).unwrap_or_default();
        ObjectSettings::default().with(&text)
    }

    /// These with what a text in [`NOTATION`] says.
    ///
    /// # Errors
    /// A line that says what is wrong with it.
    pub fn with(mut self, text: &str) -> Result<ObjectSettings, String> {
        for pair in text.split(',').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair
                .split_once('=')
                .ok_or_else(|| format!("`{pair}` has no value"))?;
            let number = |least: u64, most: u64| {
                let number = value.parse().ok().filter(|n| (least..=most).contains(n));
                number.ok_or_else(|| {
                    format!("{key} is a whole number from {least} to {most}, not `{value}`")
                })
            };
            match key {
                "first-byte" => self.first_byte = Duration::from_secs(number(1, 86_400)?),
                "stall" => self.stall = Duration::from_secs(number(1, 86_400)?),
                "total" => self.total = Duration::from_secs(number(1, 86_400)?),
                "retries" => self.retries = number(0, 100)? as u32,
                "requests" => self.requests = number(1, 256)? as u32,
                "hedge" => self.hedge_percent = number(0, 50)? as u32,
                "part" => self.part_bytes = number(64 << 10, 1 << 30)?,
                _ => return Err(format!("there is no `{key}`")),
            }
        }
        Ok(self)
    }

    /// How objects with these settings are read: a fetch is one part.
    pub fn defaults(&self) -> Defaults {
        let is_set = self.requests != Defaults::OBJECT.requests;
        let defaults = if is_set {
            Defaults::OBJECT.with_requests(self.requests)
        } else {
            Defaults::OBJECT
        };
        Defaults {
            max_fetch_bytes: self.part_bytes,
            ..defaults
        }
    }

    /// The time that a read of `bytes` may take in all.
    pub fn total_for(&self, bytes: u64) -> Duration {
        self.total
            + Duration::from_millis(
                bytes.saturating_mul(1000) / self.slowest_bytes_per_second.max(1),
            )
    }

    /// A variable's value, unless it is empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        let found = self
            .variables
            .iter()
            .find(|(own, value)| own == name && !value.is_empty());
        found.map(|(_, value)| value.as_str())
    }
}

// How objects are named: `http://`, `https://` and `s3://BUCKET/KEY`.
//
// Never: lets a password or a token into a message.

const EINVAL: i32 = rustix::io::Errno::INVAL.raw_os_error();

/// Where an object is.
#[derive(Clone, PartialEq, Eq)]
pub enum ObjectPlace {
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

pub fn parse(name: &SourceName) -> Result<ObjectPlace, SourceOpenError> {
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
        return Ok(ObjectPlace::S3 {
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
    Ok(ObjectPlace::Http { url, authorization })
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
    fn a_text_sets_what_it_names_and_nothing_else() {
        let plain = ObjectSettings::default();
        let set = ObjectSettings::default()
            .with("first-byte=1,stall=2,total=3,retries=0,requests=256,part=65536,hedge=5")
            .expect("so");
        let seconds = [set.first_byte, set.stall, set.total].map(|d| d.as_secs());
        assert_eq!(
            (seconds, set.retries, set.requests, set.part_bytes),
            ([1, 2, 3], 0, 256, 65536)
        );
        assert_eq!((set.hedge_percent, plain.hedge_percent), (5, 0));
        let one = ObjectSettings::default().with("stall=5").expect("so");
        assert_eq!(
            (one.first_byte, one.stall.as_secs(), one.retries),
            (plain.first_byte, 5, plain.retries)
        );
        for (text, why) in [
            ("stall", "`stall` has no value"),
            (
                "stall=0",
                "stall is a whole number from 1 to 86400, not `0`",
            ),
            (
                "requests=257",
                "requests is a whole number from 1 to 256, not `257`",
            ),
            (
                "part=65535",
                "part is a whole number from 65536 to 1073741824, not `65535`",
            ),
            ("hedge=51", "hedge is a whole number from 0 to 50, not `51`"),
            ("speed=1", "there is no `speed`"),
        ] {
            assert_eq!(ObjectSettings::default().with(text).expect_err(text), why);
        }
    }

    #[test]
    fn the_total_grows_with_the_length_and_never_overflows() {
        let settings = ObjectSettings::default();
        assert_eq!(settings.total_for(0), Duration::from_secs(60));
        assert_eq!(settings.total_for(1 << 20), Duration::from_secs(60 + 64));
        assert!(settings.total_for(u64::MAX) > Duration::from_secs(1 << 20));
    }
}

#[cfg(test)]
mod url_tests {
    use super::*;

    #[test]
    fn the_notations() {
        let http = |text: &str| match parse(&text.into()).expect(text) {
            ObjectPlace::Http { url, authorization } => (url.to_string(), authorization),
            ObjectPlace::S3 { .. } => panic!("{text} is no S3"),
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
        let s3 = |bucket: &str, key: &str| ObjectPlace::S3 {
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
