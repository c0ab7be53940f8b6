//! Pages of a listing, as XML: those of a bucket in memory (`bucket_server.rs`).
//!
//! ```text
//!   prefix=a/&delimiter=/&max-keys=2     a/x  a/y/*  a/z     ──► a/x, a/y/ and a token
//! ```

use super::behaviour::Behaviour;
use super::bucket_server::Object;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Bound;

/// Most keys of one page, as with S3.
const MAX_KEYS: usize = 1000;

pub(super) struct PageRequest {
    prefix: String,
    delimiter: String,
    /// Behind this key.
    after: String,
    most: usize,
    /// The token of the page before it.
    token: String,
}

impl PageRequest {
    pub fn of(query: &str, on: &[Behaviour]) -> PageRequest {
        let values: BTreeMap<String, String> = url::form_urlencoded::parse(query.as_bytes())
            .into_owned()
            .collect();
        let is_on = |behaviour| on.contains(&behaviour);
        let value = |name: &str| values.get(name).cloned().unwrap_or_default();
        let token = value("continuation-token");
        let after = match token.as_str() {
            _ if is_on(Behaviour::ListVersionOne) => value("marker"),
            "" => value("start-after"),
            // Of a page without keys.
            "!" => String::new(),
            _ if is_on(Behaviour::ListSameToken) => String::new(),
            token => token.to_string(),
        };
        let page = on.iter().find_map(|behaviour| match behaviour {
            Behaviour::ListPage(most) => Some(*most),
            _ => None,
        });
        PageRequest {
            prefix: if is_on(Behaviour::ListNoPrefix) {
                String::new()
            } else {
                value("prefix")
            },
            delimiter: if is_on(Behaviour::ListNoDelimiter) {
                String::new()
            } else {
                value("delimiter")
            },
            after,
            most: value("max-keys")
                .parse()
                .unwrap_or(MAX_KEYS)
                .min(page.unwrap_or(MAX_KEYS)),
            token,
        }
    }

    /// It is not the first page.
    pub fn is_later(&self) -> bool {
        !self.token.is_empty() || !self.after.is_empty()
    }
}

/// A page of the keys.
pub(super) fn page(
    objects: &BTreeMap<String, Object>,
    asked: &PageRequest,
    on: &[Behaviour],
) -> String {
    let PageRequest {
        prefix,
        delimiter,
        after,
        most,
        token,
    } = asked;
    let is_on = |behaviour| on.contains(&behaviour);
    if is_on(Behaviour::ListEndless) {
        let next = format!("<NextContinuationToken>{token}x</NextContinuationToken>");
        return format!(
            "<ListBucketResult><IsTruncated>true</IsTruncated>{next}</ListBucketResult>"
        );
    }
    let (mut body, mut count, mut last) = (String::new(), 0, String::new());
    let mut truncated = false;
    for (key, object) in
        objects.range::<str, _>((Bound::Excluded(after.as_str()), Bound::Unbounded))
    {
        let Some(rest) = key.strip_prefix(prefix) else {
            continue;
        };
        let folder = rest
            .find(delimiter)
            .filter(|_| !delimiter.is_empty())
            .map(|at| &key[..prefix.len() + at + 1]);
        // Behind a folder that was named, the page goes on with what is not in it.
        if folder.is_some_and(|folder| folder == last || after.starts_with(folder)) {
            continue;
        }
        truncated = count == *most;
        if truncated {
            break;
        }
        count += 1;
        last = folder.unwrap_or(key).to_string();
        let name = escaped(&last, is_on(Behaviour::ListUrlEncoded));
        // Writing to a text cannot fail.
        let _ = match folder {
            Some(_) => write!(
                body,
                "<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>"
            ),
            None => write!(
                body,
                "<Contents><Key>{name}</Key>{}</Contents>",
                said_of(object, on)
            ),
        };
    }
    let mut head = format!("<IsTruncated>{truncated}</IsTruncated>");
    let more = usize::from(is_on(Behaviour::ListCountsOneMore));
    let _ = write!(head, "<KeyCount>{}</KeyCount>", count + more);
    if is_on(Behaviour::ListUrlEncoded) {
        head.push_str("<EncodingType>url</EncodingType>");
    }
    let at_end = on.iter().find_map(|behaviour| match behaviour {
        Behaviour::ListTokenAtEnd(token) => Some(*token),
        _ => None,
    });
    let token = |token: &str| format!("<NextContinuationToken>{token}</NextContinuationToken>");
    match () {
        () if is_on(Behaviour::ListSameToken) => {
            head = format!("<IsTruncated>true</IsTruncated>{}", token("same"))
        }
        () if is_on(Behaviour::ListNoToken) => {}
        () if truncated && is_on(Behaviour::ListVersionOne) => {
            let _ = write!(head, "<NextMarker>{}</NextMarker>", escaped(&last, false));
        }
        () if truncated => head.push_str(&token(&escaped(&last, false))),
        () => head.push_str(&at_end.map_or_else(String::new, token)),
    }
    format!("<ListBucketResult>{head}{body}</ListBucketResult>")
}

/// Date, ETag and size.
fn said_of(object: &Object, on: &[Behaviour]) -> String {
    let mut etag = Some(format!("&quot;{}&quot;", object.number));
    for behaviour in on {
        match behaviour {
            Behaviour::ListedEtag(other) => {
                etag = other.map(|other| format!("&quot;{other}&quot;"))
            }
            Behaviour::ListLongEtags(letters) => etag = Some("e".repeat(*letters)),
            _ => {}
        }
    }
    let etag = etag.map_or_else(String::new, |etag| format!("<ETag>{etag}</ETag>"));
    let date = format!("<LastModified>{}</LastModified>", object.listed_date());
    let date = if on.contains(&Behaviour::ListNoDates) {
        String::new()
    } else {
        date
    };
    format!("{date}{etag}<Size>{}</Size>", object.bytes.len())
}

/// As text of XML; controls are numbers, which is what S3 writes.
fn escaped(text: &str, as_url: bool) -> String {
    if as_url {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"/-_.".contains(&b);
        let letter = |b: u8| {
            if plain(b) {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        };
        return text.bytes().map(letter).collect();
    }
    let mut all = String::new();
    for c in text.chars() {
        if c.is_control() || "&<>".contains(c) {
            let _ = write!(all, "&#{};", u32::from(c));
        } else {
            all.push(c);
        }
    }
    all
}
