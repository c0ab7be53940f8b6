//! The name of a source, as a user writes it: a path, `file:PATH`, or a URL that may hold a password or a token.
//!
//! `Display` and `Debug` show the name without its secrets, so no message, log or report can hold one by accident. Only
//! the code that opens a source asks for [`SourceName::unredacted`].
//!
//! ```text
//!   https://USER:PASSWORD@host:1/a/b?token=T#x     is shown as    https://host:1/a/b?...
//!   s3://KEY:SECRET@bucket/key                                    s3://bucket/key
//!   file:http://u:p@h/x                                           file:http://h/x
//!   http://u:pass/word@h/x      (not a URL: '/' in a password)    http://...
//!   /a/b, rbd:pool/image@snap, nbd+unix:///x?socket=s             as they are
//! ```
//!
//! The rule errs towards hiding: a text that is not quite a URL may be the URL that the user meant to write.

use super::{NameForm, form_of};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

/// The name of a source, as a user writes it: a path, `file:PATH`, or a URL that may hold a password or a token.
///
/// ```
/// use foreread::source::SourceName;
///
/// let name = SourceName::from("https://user:secret@example.org/disk.img?token=secret");
/// assert_eq!(name.to_string(), "https://example.org/disk.img?...");
/// assert_eq!(format!("{name:?}"), "\"https://example.org/disk.img?...\"");
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceName(OsString);

impl SourceName {
    /// The name with its secrets. For opening the source; never for a message.
    #[must_use]
    pub fn unredacted(&self) -> &OsStr {
        &self.0
    }

    /// The name with its secrets, where it is text. A URL always is; a path may be any bytes.
    #[must_use]
    pub fn unredacted_text(&self) -> Option<&str> {
        self.0.to_str()
    }

    /// The word before the first colon: `nbd` of `nbd://host`. Empty where there is no colon, or a slash comes first.
    #[must_use]
    pub fn scheme(&self) -> &str {
        let bytes = self.0.as_encoded_bytes();
        let end = bytes
            .iter()
            .position(|b| matches!(b, b':' | b'/'))
            .filter(|&at| bytes[at] == b':')
            .unwrap_or(0);
        std::str::from_utf8(&bytes[..end])
            .ok()
            .filter(|word| is_scheme(word))
            .unwrap_or_default()
    }

    /// It is written as a URL: a scheme, a colon and two slashes.
    #[must_use]
    pub fn is_url(&self) -> bool {
        let behind = &self.0.as_encoded_bytes()[self.scheme().len()..];
        !self.scheme().is_empty() && behind.starts_with(b"://")
    }

    /// The name as the path of a file: without `file:`.
    #[must_use]
    pub fn path(&self) -> &Path {
        use std::os::unix::ffi::OsStrExt;
        let bytes = self.0.as_bytes();
        Path::new(OsStr::from_bytes(
            bytes.strip_prefix(b"file:").unwrap_or(bytes),
        ))
    }

    /// True for an empty name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A URL's scheme is written in lower case and begins the name: `  HTTP://h` is `http://h`. Anything else may be a path and
/// stays as it is.
impl From<OsString> for SourceName {
    fn from(name: OsString) -> SourceName {
        let Some(text) = name.to_str().map(str::trim_start) else {
            return SourceName(name);
        };
        match text.split_once("://") {
            Some((scheme, rest)) if is_scheme(scheme) => {
                SourceName(format!("{}://{rest}", scheme.to_ascii_lowercase()).into())
            }
            _ => SourceName(name),
        }
    }
}

impl From<&OsStr> for SourceName {
    fn from(name: &OsStr) -> SourceName {
        name.to_os_string().into()
    }
}

impl From<&str> for SourceName {
    fn from(name: &str) -> SourceName {
        OsString::from(name).into()
    }
}

impl From<String> for SourceName {
    fn from(name: String) -> SourceName {
        OsString::from(name).into()
    }
}

impl From<&String> for SourceName {
    fn from(name: &String) -> SourceName {
        name.as_str().into()
    }
}

impl From<&Path> for SourceName {
    fn from(path: &Path) -> SourceName {
        path.as_os_str().into()
    }
}

impl From<PathBuf> for SourceName {
    fn from(path: PathBuf) -> SourceName {
        path.into_os_string().into()
    }
}

impl From<&SourceName> for SourceName {
    fn from(name: &SourceName) -> SourceName {
        name.clone()
    }
}

impl fmt::Display for SourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redacted(&self.0.to_string_lossy()))
    }
}

impl fmt::Debug for SourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", redacted(&self.0.to_string_lossy()))
    }
}

/// Text of a message with every URL in it redacted, for what other programs and libraries say. What we say ourselves
/// names sources by [`SourceName`].
#[must_use]
pub fn redacted_message(text: &str) -> String {
    let is_gap =
        |c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '`' | '<' | '>' | '(' | ')');
    let mut message = String::with_capacity(text.len());
    for part in text.split_inclusive(is_gap) {
        let (word, gap) = match part.char_indices().next_back().filter(|(_, c)| is_gap(*c)) {
            Some((at, _)) => part.split_at(at),
            None => (part, ""),
        };
        // The colon or comma behind a name in a sentence is none of the name.
        let end = word.trim_end_matches([':', ',', ';', '.']).len();
        let (word, end) = word.split_at(end);
        message.push_str(&if may_hide(word) {
            redacted(word)
        } else {
            word.to_string()
        });
        message.push_str(end);
        message.push_str(gap);
    }
    message
}

/// Whether a word of a message may be a name with a secret: a URL, one with fewer slashes, a user without one, an RBD image.
fn may_hide(word: &str) -> bool {
    let user = word
        .split_once('@')
        .is_some_and(|(user, _)| user.contains(':'));
    user || word.contains("//")
        || word
            .get(..4)
            .is_some_and(|start| start.eq_ignore_ascii_case("rbd:"))
}

/// Letters, digits and `+-.` after a letter (RFC 3986, section 3.1).
fn is_scheme(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic())
        && word
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
}

fn redacted(text: &str) -> String {
    // Libraries that parse URLs pass over control characters and leading blanks.
    let plain: String = text.chars().filter(|c| !c.is_control()).collect();
    if let Some(at) = two_slashes(&plain) {
        let (head, rest) = plain.split_at(at + 2);
        let head = head.trim_start();
        // What comes before may be a user with a URL for a password.
        let head = if head.contains('@') { "...//" } else { head };
        let scheme = head
            .trim_end_matches(['/', ':'])
            .rsplit([':', '/'])
            .next()
            .unwrap_or_default();
        return format!(
            "{head}{}",
            behind_slashes(&scheme.to_ascii_lowercase(), rest)
        );
    }
    let Some((word, rest)) = plain
        .split_once(':')
        .filter(|(word, _)| !word.contains('/'))
    else {
        return without_query("", &plain);
    };
    let known = word.trim().to_ascii_lowercase();
    match known.as_str() {
        "file" | "model" | "model-live" | "trace" => format!("{word}:{}", redacted(rest)),
        "rbd" => format!("{word}:{}", image(rest)),
        // `http:u:p@h` and `http:/u:p@h` are URLs to some parsers.
        known if form_of(known).is_some_and(|form| form != NameForm::Path) => {
            format!("{word}:{}", behind_slashes(known, rest))
        }
        // A user without a scheme: `u:p@h`.
        _ => match rest.rsplit_once('@') {
            Some((_, host)) => format!("...@{}", without_query("", host)),
            None => without_query("", &plain),
        },
    }
}

/// Where the `//` of a URL is: after a colon, at the start, or where the colon was forgotten.
fn two_slashes(text: &str) -> Option<usize> {
    let start = text.trim_start();
    let blanks = text.len() - start.len();
    let forgotten = start
        .split_once("//")
        .filter(|(word, rest)| is_scheme(word) && rest.contains('@'));
    if start.starts_with("//") {
        Some(blanks)
    } else {
        forgotten.map(|(word, _)| blanks + word.len())
    }
    .or_else(|| text.find("://").map(|at| at + 1))
    .or_else(|| {
        text.strip_prefix("file:")
            .and_then(two_slashes)
            .map(|at| at + "file:".len())
    })
}

/// `[USER[:PASSWORD]@]HOST[:PORT][/PATH][?QUERY][#FRAGMENT]`
fn behind_slashes(scheme: &str, rest: &str) -> String {
    if scheme == "file" && rest.starts_with('/') {
        return without_query("", rest);
    }
    let plain = rest.trim_start_matches(['/', '\\']);
    let slashes = &rest[..rest.len() - plain.len()];
    let end = plain.find(['/', '\\', '?', '#']).unwrap_or(plain.len());
    // `CONTAINER@ACCOUNT.HOST`
    let is_account = plain[..end].ends_with(".core.windows.net");
    if scheme.starts_with("abfs") && is_account && !plain[..end].contains(':') {
        return without_query(scheme, rest);
    }
    let (authority, path) = plain.split_at(end);
    let host = authority.rsplit('@').next().unwrap_or_default();
    // The colons of an IPv6 address stand in brackets.
    let behind_name = &host[host.rfind(']').map_or(0, |at| at + 1)..];
    let port = behind_name.split_once(':').map(|(_, port)| port);
    let is_port = |port: &str| port.len() <= 5 && port.bytes().all(|b| b.is_ascii_digit());
    if port.is_some_and(|port| !is_port(port)) {
        // No host and port: the first part of a user and password that has a '/', '?' or '#' in it.
        return format!("{slashes}...");
    }
    if authority.len() == host.len() && path.contains('@') && port.is_some() {
        // `u:12/34@h` reads as host and port, too.
        return format!("{slashes}{host}/...");
    }
    if scheme == "rbd" {
        return format!("{slashes}{}", image(&format!("{host}{path}")));
    }
    let path = if path.contains("//") {
        redacted_path(path)
    } else {
        path.to_string()
    };
    format!("{slashes}{host}{}", without_query(scheme, &path))
}

/// A path that holds a URL, as those of proxies do.
fn redacted_path(path: &str) -> String {
    let (path, query) = path.split_at(path.find('?').unwrap_or(path.len()));
    let at = path.find("//").unwrap_or(0);
    let (head, rest) = path.split_at(at + 2);
    format!("{head}{}{query}", behind_slashes("", rest))
}

/// The part before the query, and of the query only that there is one. A socket is not secret. A `?` alone is part of a
/// file's name; with a `=` behind it, it may be a query without the URL.
fn without_query(scheme: &str, text: &str) -> String {
    let url = matches!(scheme, "http" | "https");
    let text = if url {
        text.split('#').next().unwrap_or_default()
    } else {
        text
    };
    match text.split_once('?') {
        Some((path, query)) if scheme == "nbd+unix" => shown_keys(path, query, &["socket"]),
        Some((path, query)) if matches!(scheme, "nbds" | "nbds+unix") => {
            let shown = [
                "socket",
                "tls-certificates",
                "tls-hostname",
                "tls-verify-peer",
            ];
            shown_keys(path, query, &shown)
        }
        // A bucket and a key have no query.
        Some((path, query))
            if url || query.contains('=') || form_of(scheme) == Some(NameForm::Bucket) =>
        {
            if query.is_empty() {
                format!("{path}?")
            } else {
                format!("{path}?...")
            }
        }
        _ => text.to_string(),
    }
}

/// `POOL/IMAGE[@SNAP][?conf=PATH&id=NAME]`, and as qemu writes it: `POOL/IMAGE[@SNAP]:key=SECRET`.
fn image(rest: &str) -> String {
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let path = match path.split_once(':') {
        Some((path, options)) if options.contains(['=', '@']) => format!("{path}:..."),
        _ => path.to_string(),
    };
    if query.is_empty() {
        path
    } else {
        shown_keys(&path, query, &["conf", "id"])
    }
}

/// A query with the values of these keys alone.
fn shown_keys(path: &str, query: &str, keys: &[&str]) -> String {
    let shown = |pair: &&str| {
        pair.is_empty()
            || pair
                .split_once('=')
                .is_some_and(|(key, _)| keys.contains(&key))
    };
    let pairs: Vec<&str> = query
        .split('&')
        .map(|pair| if shown(&pair) { pair } else { "..." })
        .collect();
    format!("{path}?{}", pairs.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_without_passwords_and_tokens() {
        for (name, shown) in [
            ("https://u:p@h:1/a/b?token=t#f", "https://h:1/a/b?..."),
            ("http://h", "http://h"),
            ("http://h/?", "http://h/?"),
            ("HTTP://u:p@w@h/x@y", "http://h/x@y"),
            ("https://h?sig=a/b@c", "https://h?..."),
            ("https://[::1]:8/x", "https://[::1]:8/x"),
            ("  https://u:p@h/x", "https://h/x"),
            ("s3://b/k", "s3://b/k"),
            ("s3://b/a b/c#d@e", "s3://b/a b/c#d@e"),
            ("hf://u/r@refs%2Fpr%2F1/a@b", "hf://u/r@refs%2Fpr%2F1/a@b"),
            ("hf://datasets/u/r/a b", "hf://datasets/u/r/a b"),
            ("hf://hf_token@u/r/a", "hf://u/r/a"),
            ("s3://KEY:SE/CR+ET@b/k", "s3://..."),
            ("s3://KEY:SECRET@b/k?X-Amz-Signature=1", "s3://b/k?..."),
            ("gs://KEY:SECRET@b/k?x", "gs://b/k?..."),
            ("az://KEY:SECRET@c/k", "az://c/k"),
            (
                "abfss://box@acc.dfs.core.windows.net/k?sig=s",
                "abfss://box@acc.dfs.core.windows.net/k?...",
            ),
            ("abfss://SECRET@acc/k", "abfss://acc/k"),
            ("file:http://u:p@h/x?t=1", "file:http://h/x?..."),
            ("nbd://u:p@h:10809/disk", "nbd://h:10809/disk"),
            (
                "nbd+unix:///x?socket=/run/s&psk=p",
                "nbd+unix:///x?socket=/run/s&...",
            ),
            (
                "nbds+unix://u:p@g/x?socket=/run/s&tls-certificates=d&tls-psk-file=p",
                "nbds+unix://g/x?socket=/run/s&tls-certificates=d&...",
            ),
            (
                "nbds://u:p@h/x?tls-hostname=g&tls-verify-peer=0&p",
                "nbds://h/x?tls-hostname=g&tls-verify-peer=0&...",
            ),
            (
                "rbd:p/n/i@s?conf=c&key=p&id=i",
                "rbd:p/n/i@s?conf=c&...&id=i",
            ),
            ("rbd:p/i@s:id=x:key=p", "rbd:p/i@s:..."),
            ("http:u:p@h/x", "http:h/x"),
            ("http:/u:p@h/x", "http:/h/x"),
            ("u:p@h/x", "...@h/x"),
            ("//u:p@h/x", "//h/x"),
            ("http://h:80/x@y", "http://h:80/..."),
            ("http://h/proxy/http://u:p@i/x", "http://h/proxy/http://i/x"),
            ("/a/b?c", "/a/b?c"),
            ("/a/b@c:d//e", "/a/b@c:d//e"),
            (
                "/dev/disk/by-path/pci-0000:00:1f.2-ata-1",
                "/dev/disk/by-path/pci-0000:00:1f.2-ata-1",
            ),
            ("host/x?sig=p", "host/x?..."),
            ("", ""),
        ] {
            assert_eq!(SourceName::from(name).to_string(), shown, "{name}");
            assert_eq!(
                format!("{:?}", SourceName::from(name)),
                format!("{shown:?}"),
                "{name}"
            );
            // What is shown may be part of a line that is redacted once more.
            let line = format!("cannot open {shown}: refused");
            assert_eq!(redacted_message(&line), line);
        }
    }

    #[test]
    fn no_spelling_shows_a_password() {
        let schemes = [
            "http",
            "HTTPS",
            "s3",
            "S3",
            "gs",
            "az",
            "abfss",
            "hf",
            "nbd",
            "nbd+unix",
            "nbds",
            "nbds+unix",
            "rbd",
            "ftp",
            "file:http",
            " http",
            "\thttp",
            "",
        ];
        let colons = ["://", ":/", ":", ":///", ":\\\\", "//"];
        let users = [
            "u:canary",
            "canary",
            "canary:x",
            ":canary",
            "u:x/canary",
            "u:canary/1",
            "u:x?canary",
            "u:x#canary",
            "u:@canary",
            "u%3Acanary",
        ];
        let tails = [
            "h/x",
            "h:80/x",
            "[::1]/x",
            "b",
            "b/k@l",
            "h/x?token=canary",
            "h?canary=1#canary",
        ];
        for (scheme, colon) in schemes.iter().flat_map(|s| colons.map(|c| (s, c))) {
            for (user, tail) in users.iter().flat_map(|u| tails.map(|t| (u, t))) {
                let name = format!("{scheme}{colon}{user}@{tail}");
                let shown = SourceName::from(name.as_str()).to_string();
                // By any reading a path, or the name of an RBD image: POOL@SNAP.
                let is_path = scheme.is_empty() && (!colon.contains("//") || user.starts_with(':'))
                    || name.starts_with("rbd:") && !colon.contains("//") && !user.starts_with("u:");
                assert!(
                    is_path || !shown.contains("canary"),
                    "{name} is shown as {shown}"
                );
                let line = redacted_message(&format!("cannot open '{name}': refused"));
                assert!(
                    is_path || user.contains(['?', '#']) || !line.contains("canary"),
                    "{name}: {line}"
                );
            }
        }
    }

    #[test]
    fn a_message_keeps_all_but_the_secrets() {
        for (text, shown) in [
            (
                "cannot open http://u:p@h/x?t=1: 404; try again",
                "cannot open http://h/x?...: 404; try again",
            ),
            (
                "invalid value 'S3://k:s@b' for '--tcp'",
                "invalid value 'S3://b' for '--tcp'",
            ),
            ("no such file: /a//b", "no such file: /a//b"),
            ("see https://h/x.", "see https://h/x."),
        ] {
            assert_eq!(redacted_message(text), shown);
        }
    }

    #[test]
    fn kinds_and_paths() {
        let name = |text: &str| SourceName::from(text);
        assert_eq!(
            ["NBD://h", "rbd:p/i", "/a:b", "a", "a b:c"].map(|t| name(t).scheme().to_string()),
            ["nbd", "rbd", "", "", ""]
        );
        assert_eq!(
            ["file:/a", "/a", "file:file:b"].map(|t| name(t).path().to_path_buf()),
            ["/a", "/a", "file:b"].map(PathBuf::from)
        );
        assert_eq!(name(" HTTP://u:P@H/X").unredacted(), "http://u:P@H/X");
        assert_eq!(name(" a").unredacted(), " a", "a file may be called so");
    }
}
