//! Removes secrets from names of sources: all code that prints, logs or passes on a name uses this module.
//!
//! ```text
//!   https://USER:PASSWORD@host:1/a/b?token=T#x     is shown as    https://host:1/a/b?...
//!   s3://KEY:SECRET@bucket/key                                    s3://bucket/key
//!   file:http://u:p@h/x                                           file:http://h/x
//!   http://u:pass/word@h/x      (not a URL: '/' in a password)    http://...
//!   http%3A%2F%2Fu%3Ap%40h      (a fully escaped URL)              http://h
//!   /a/b, rbd:pool/image@snap, nbd+unix:///x?socket=s             unchanged
//! ```
//! If in doubt, this module hides text: a malformed URL may be a URL with a secret that the user has mistyped. Schemes and keys are
//! compared case-insensitively.

use percent_encoding::percent_decode_str;

/// Schemes in which the part before `@` is a user.
const HOSTS: [&str; 7] = [
    "nbd",
    "nbd+unix",
    "nbds",
    "nbds+unix",
    "http",
    "https",
    "hf",
];
/// Schemes of buckets, whose keys have no query.
const BUCKETS: [&str; 7] = ["s3", "gs", "gcs", "az", "azure", "abfs", "abfss"];
/// Suffixes of account hosts: in `CONTAINER@ACCOUNT.HOST` the part before `@` is not a user.
const ACCOUNTS: [&str; 6] = [
    ".core.windows.net",
    ".storage.azure.net",
    ".core.chinacloudapi.cn",
    ".core.usgovcloudapi.net",
    ".core.cloudapi.de",
    ".fabric.microsoft.com",
];

/// Maximum levels of escaping that are decoded.
const MAX_ESCAPES: usize = 3;

/// Returns true if a name contains secrets. A name with secrets must not be printed, and must not be passed to a program as an argument,
/// because every user of the machine can see arguments.
pub fn has_some(name: &str) -> bool {
    shown(name) != name
}

/// Removes the secrets from every URL in a message of another program or library. foreread's own messages use [`SourceName`].
pub fn shown_message(text: &str) -> String {
    let mut message = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(is_gap).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        // A colon or comma after a name in a sentence is not part of the name.
        let end = word.trim_end_matches([':', ',', ';', '.']).len();
        let (name, end) = word.split_at(end);
        let own = match may_hide(name) {
            true => shown(name),
            false => name.to_string(),
        };
        let more = match end.is_empty() && name.contains("//") {
            true => more_of_name(&own, behind),
            false => 0,
        };
        message += &own;
        message += end;
        let gap = behind.chars().next().filter(|_| more == 0);
        message.extend(gap);
        rest = &behind[more + gap.map_or(0, char::len_utf8)..];
    }
    message
}

fn is_gap(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\'' | '"' | '`' | '<' | '>' | '(' | ')')
}

/// How many bytes after a word belong to the same name, because the name contains a blank or a quote: up to a user's `@`, or the
/// rest of its query. `shown` is the word without its secrets.
fn more_of_name(shown: &str, behind: &str) -> usize {
    let clause = behind.find([';', ':']).unwrap_or(behind.len());
    let after = |at: usize| {
        let end = behind[at..]
            .find(is_gap)
            .map_or(behind.len(), |end| at + end);
        behind[..end].trim_end_matches([':', ',', ';', '.']).len()
    };
    let next = after(behind.chars().next().map_or(0, char::len_utf8));
    let is_host = !shown.split("//").nth(1).unwrap_or_default().contains('/');
    match behind[..clause].rfind('@') {
        Some(at) if shown.ends_with("//...") || is_host && at < next => after(at),
        _ if shown.ends_with("?...") && behind[..next].contains('=') => {
            next + more_of_name(shown, &behind[next..])
        }
        _ => 0,
    }
}

/// Whether a word of a message may be a name with a secret: a URL, a URL with missing slashes, a user without a URL, or an RBD
/// image.
fn may_hide(word: &str) -> bool {
    let user = word
        .split_once('@')
        .is_some_and(|(user, _)| user.contains(':'));
    user || is_escaped(word)
        || word.contains("//")
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

/// Returns a name without its secrets. If a URL with secrets is percent-encoded, the result is decoded.
pub fn shown(text: &str) -> String {
    let plain = shown_plain(text);
    let mut decoded = plain.clone();
    for _ in 0..MAX_ESCAPES {
        if !decoded.contains('%') {
            break;
        }
        decoded = percent_decode_str(&decoded)
            .decode_utf8_lossy()
            .into_owned();
        let shown = shown_plain(&decoded);
        if is_escaped(&plain) && shown != decoded {
            return shown;
        }
    }
    plain
}

/// Whether the text may contain an escaped URL: its slashes, one of them, or a user and a password. In a URL that is escaped twice,
/// the escapes are escaped as well.
fn is_escaped(text: &str) -> bool {
    let lower = text.to_ascii_lowercase().replace("%25", "%");
    let has_at = lower.contains('@') || lower.contains("%40");
    let is_in_part = || {
        ["%3a", "%2f/", "/%2f"]
            .iter()
            .any(|sign| lower.contains(sign))
    };
    lower.contains("%2f%2f") || has_at && is_in_part()
}

fn shown_plain(text: &str) -> String {
    // URL parsers ignore control characters and leading blanks.
    let plain: String = text.chars().filter(|c| !c.is_control()).collect();
    if let Some(at) = two_slashes(&plain) {
        let (head, rest) = plain.split_at(at + 2);
        let head = head.trim_start();
        // The text before it may be a user whose password is a URL.
        let head = if head.contains('@') { "...//" } else { head };
        let scheme = match head {
            // A URL without its scheme.
            "//" => "http",
            _ => head
                .trim_end_matches(['/', ':'])
                .rsplit([':', '/', '=', ',', ' '])
                .next()
                .unwrap_or_default(),
        };
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
        "file" | "model" | "trace" => format!("{word}:{}", shown_plain(rest)),
        "rbd" => format!("{word}:{}", image(rest)),
        // `http:u:p@h` and `http:/u:p@h` are URLs to some parsers.
        known if HOSTS.contains(&known) || BUCKETS.contains(&known) => {
            format!("{word}:{}", behind_slashes(known, rest))
        }
        // A user without a scheme: `u:p@h`.
        _ => match rest.rsplit_once('@') {
            Some((_, host)) => format!("...@{}", without_query("", host)),
            None => without_query("", &plain),
        },
    }
}

/// The position of the `//` of a URL: after a colon, at the start, or with a missing colon.
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
    let front = plain[..end].to_ascii_lowercase();
    let is_account = ACCOUNTS.iter().any(|account| front.ends_with(account));
    if scheme.starts_with("abfs") && is_account && !plain[..end].contains(':') {
        return without_query(scheme, rest);
    }
    let (authority, path) = plain.split_at(end);
    let host = authority.rsplit('@').next().unwrap_or_default();
    // The colons of an IPv6 address are in brackets.
    let behind_name = &host[host.rfind(']').map_or(0, |at| at + 1)..];
    let port = behind_name.split_once(':').map(|(_, port)| port);
    let is_port = |port: &str| port.len() <= 5 && port.bytes().all(|b| b.is_ascii_digit());
    if port.is_some_and(|port| !is_port(port)) || path.starts_with('\\') && path.contains('@') {
        // There is no host and port: this is the first part of a user and password that contain a '/', '\', '?' or '#'.
        return format!("{slashes}...");
    }
    if authority.len() == host.len() && path.contains('@') && port.is_some() {
        // `u:12/34@h` also parses as host and port.
        return format!("{slashes}{host}/...");
    }
    if scheme == "rbd" {
        return format!("{slashes}{}", image(&format!("{host}{path}")));
    }
    let path = if path.contains("//") {
        shown_path(path)
    } else {
        path.to_string()
    };
    format!("{slashes}{host}{}", without_query(scheme, &path))
}

/// A path that contains a URL, as in proxies.
fn shown_path(path: &str) -> String {
    let (path, query) = path.split_at(path.find('?').unwrap_or(path.len()));
    let at = path.find("//").unwrap_or(0);
    let (head, rest) = path.split_at(at + 2);
    format!("{head}{}{query}", behind_slashes("", rest))
}

/// The part before the query, and `?...` for the query. A socket is not secret. A `?` without a scheme is part of a file's name; if
/// a `=` follows it, it may be a query whose URL is missing.
fn without_query(scheme: &str, text: &str) -> String {
    let url = matches!(scheme, "http" | "https");
    let text = if url {
        text.split('#').next().unwrap_or_default()
    } else {
        text
    };
    // The end of a signed query whose '?' was lost.
    let signature = text.to_ascii_lowercase().find("&sig=");
    if let Some(at) = signature.filter(|_| !text.contains('?')) {
        return format!("{}&...", &text[..at]);
    }
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
        // Any URL may have a query.
        Some((path, query)) if !scheme.is_empty() || query.contains('=') => {
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
        Some((path, options)) if !options.is_empty() => format!("{path}:..."),
        _ => path.to_string(),
    };
    if query.is_empty() {
        path
    } else {
        shown_keys(&path, query, &["conf", "id"])
    }
}

/// A query with only these keys.
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
        for (name, wanted) in [
            ("https://u:p@h:1/a/b?token=t#f", "https://h:1/a/b?..."),
            ("http://h", "http://h"),
            ("http://h/?", "http://h/?"),
            ("HTTP://u:p@w@h/x@y", "HTTP://h/x@y"),
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
            ("rbd:p/i:key:p", "rbd:p/i:..."),
            ("https://h\\@u:p@h/x", "https://..."),
            ("//h/x?p", "//h/x?..."),
            ("az://c/k&sig=p&se=1", "az://c/k&..."),
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
            assert_eq!(shown(name), wanted, "{name}");
            // The shown name may be part of a line that is redacted once more.
            let line = format!("cannot open {wanted}: refused");
            assert_eq!(shown_message(&line), line);
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
        let colons = ["://", ":/", ":", ":///", ":\\\\", "//", "%3A//", ":%2F/"];
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
                let shown = shown(&name);
                // These are always a path, or the name of an RBD image: POOL@SNAP.
                let is_path = scheme.is_empty() && (!colon.contains("//") || user.starts_with(':'))
                    || name.starts_with("rbd:") && !colon.contains("//") && !user.starts_with("u:");
                assert!(
                    is_path || !shown.contains("canary"),
                    "{name} is shown as {shown}"
                );
                let line = shown_message(&format!("cannot open '{name}': refused"));
                assert!(
                    is_path || user.contains(['?', '#']) || !line.contains("canary"),
                    "{name}: {line}"
                );
            }
        }
    }

    #[test]
    fn a_name_is_passed_on_only_without_secrets() {
        for name in [
            "S3://K:P@b",
            "az://c/k?sig=s",
            "AZ://c/k?SIG=s",
            "hf://u:t@u/r",
            "hf://t@u/r",
            "HTTPS://u:p@h/x",
            "https://h/x?X-Amz-Signature=s",
            "https://h/x#t",
            "https://h?t",
            "nbd://u:p@h/x",
            "nbds://h/?password=p",
            "rbd:p/i:key=k",
            "https%3A%2F%2Fu%3Ap%40h%2Fx",
            "https%253A%252F%252Fu%253Ap%2540h%252Fx",
            "http://u:p@h/to/https%3A%2F%2Fu%3Ap%40i%2Fx",
            "HTTPS%3a//u%3ap%40h/x",
            "http://h/to/https%3A%2F%2Fu%3Ap%40i%2Fx",
            "http://u%3Ap%40h/x",
        ] {
            assert!(has_some(name), "{name} is {}", shown(name));
        }
        for name in [
            "s3://b/a@b/c",
            "hf://u/r@v1/a",
            "abfss://c@a.dfs.core.windows.net/k",
            "abfss://c@a.dfs.core.chinacloudapi.cn/k",
            "https://h/x%20y/a@b",
            "s3://crawl/https%3A%2F%2Fexample.org/page",
            "/a/b:c@d",
            "rbd:p/i@s",
        ] {
            assert!(!has_some(name), "{name} is {}", shown(name));
        }
    }

    #[test]
    fn a_message_keeps_all_but_the_secrets() {
        for (text, wanted) in [
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
            ("at http://u:p\"q\"<r>(s)@h/x; try", "at http://...; try"),
            ("at http://u:p\nq@h/x: no", "at http://...: no"),
            ("at http://u p@h/x: no", "at http://u: no"),
            ("at https://h/x?a b=c d=e: no", "at https://h/x?...: no"),
            ("at ftp://h/x?t (a 404)", "at ftp://h/x?... (a 404)"),
            (
                "run 'foreread serve nbd://h:10809 --x a@b'",
                "run 'foreread serve nbd://h:10809 --x a@b'",
            ),
            ("nbd://h refuses a@b", "nbd://h refuses a@b"),
            (
                "invalid value 'http://u:p w@h/x' for '--tcp'",
                "invalid value 'http://...' for '--tcp'",
            ),
            (
                "another file's 'a' is no name's of 's3://k:s s@b/c d'",
                "another file's 'a' is no name's of 's3://... d'",
            ),
            (
                "cannot open https%3a%2F%2Fu%3Ap%40h%2Fx: no such file",
                "cannot open https://h/x: no such file",
            ),
        ] {
            assert_eq!(shown_message(text), wanted);
        }
    }
}
