//! Where an NBD server is, as people write it (the NBD project's `doc/uri.md`).
//!
//! Never: a password, or TLS.

use crate::source::{self, SourceName, SourceOpenError};
use percent_encoding::percent_decode_str;
use std::path::PathBuf;

/// The port that the protocol was given.
const PORT: u16 = 10809;
const REMEDY: &str = "write nbd://HOST[:PORT][/EXPORT] or nbd+unix:///[EXPORT]?socket=PATH";
const EINVAL: i32 = rustix::io::Errno::INVAL.raw_os_error();

/// A server and one of its exports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub place: ServerPlace,
    /// The empty name is the default export.
    pub export: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerPlace {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

pub fn parse(name: &SourceName) -> Result<Address, SourceOpenError> {
    let text = source::text(name)?;
    let error = |why: &str, remedy: &str| SourceOpenError {
        what: name.clone(),
        why: why.to_string(),
        remedy: remedy.to_string(),
        errno: EINVAL,
    };
    let decode = |part: &str| {
        let decoded = percent_decode_str(part)
            .decode_utf8()
            .map(|t| t.into_owned());
        decoded
            .ok()
            .filter(|t| !t.contains('\0'))
            .ok_or_else(|| error("it is not text", REMEDY))
    };
    if text.starts_with("nbds") {
        return Err(error(
            "TLS is not built in",
            "use a tunnel (stunnel, ssh -L), then nbd://localhost:PORT",
        ));
    }
    if let Some(rest) = text.strip_prefix("nbd+unix://") {
        let (export, query) = rest.split_once('?').unwrap_or((rest, ""));
        let export = export
            .strip_prefix('/')
            .ok_or_else(|| error("a unix socket has no host", REMEDY))?;
        let socket = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("socket="))
            .filter(|path| !path.is_empty());
        let socket = socket.ok_or_else(|| error("no socket is named", REMEDY))?;
        return Ok(Address {
            place: ServerPlace::Unix(decode(socket)?.into()),
            export: decode(export)?,
        });
    }
    let rest = text
        .strip_prefix("nbd://")
        .ok_or_else(|| error("it is not the address of an NBD server", REMEDY))?;
    let (rest, _query) = rest.split_once('?').unwrap_or((rest, ""));
    let (host, export) = rest.split_once('/').unwrap_or((rest, ""));
    if host.contains('@') {
        return Err(error("NBD knows no users", REMEDY));
    }
    // The colons of an IPv6 address stand in brackets.
    let end_of_name = host.rfind(']').map_or(0, |i| i + 1);
    let (host, port) = match host[end_of_name..].find(':') {
        Some(colon) => (
            &host[..end_of_name + colon],
            Some(&host[end_of_name + colon + 1..]),
        ),
        None => (host, None),
    };
    let port = port.map_or(Ok(PORT), |p| {
        p.parse()
            .map_err(|_| error("the port is not a number from 0 to 65535", REMEDY))
    })?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() {
        return Err(error("no host is named", REMEDY));
    }
    Ok(Address {
        place: ServerPlace::Tcp {
            host: decode(host)?,
            port,
        },
        export: decode(export)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16, export: &str) -> Address {
        Address {
            place: ServerPlace::Tcp {
                host: host.into(),
                port,
            },
            export: export.into(),
        }
    }

    #[test]
    fn the_notations() {
        let unix = |path: &str, export: &str| Address {
            place: ServerPlace::Unix(path.into()),
            export: export.into(),
        };
        for (text, address) in [
            ("nbd://localhost", tcp("localhost", 10809, "")),
            ("nbd://localhost/", tcp("localhost", 10809, "")),
            (
                "nbd://10.0.0.1:1234/a/b%20c",
                tcp("10.0.0.1", 1234, "a/b c"),
            ),
            ("nbd://[::1]:5", tcp("::1", 5, "")),
            ("nbd://[::1]/x?tls=no", tcp("::1", 10809, "x")),
            ("nbd+unix:///?socket=/run/s", unix("/run/s", "")),
            (
                "nbd+unix:///disk?a=b&socket=relative%2Fs",
                unix("relative/s", "disk"),
            ),
        ] {
            assert_eq!(parse(&text.into()).expect(text), address);
        }
    }

    #[test]
    fn what_is_none_is_said_in_one_line() {
        for (text, why) in [
            ("nbds://host", "TLS is not built in"),
            ("nbds+unix:///?socket=x", "TLS is not built in"),
            ("nbd://", "no host is named"),
            ("nbd://:5", "no host is named"),
            ("nbd://h:99999", "the port is not a number from 0 to 65535"),
            ("nbd://u@h", "NBD knows no users"),
            ("nbd+unix://h/x?socket=y", "a unix socket has no host"),
            ("nbd+unix:///x", "no socket is named"),
            ("nbd+unix:///x?socket=%ff", "it is not text"),
            ("nbd://h/%00", "it is not text"),
        ] {
            let error = parse(&text.into()).expect_err(text);
            assert_eq!((error.why.as_str(), error.errno), (why, EINVAL));
            assert!(
                error
                    .to_string()
                    .starts_with(&SourceName::from(text).to_string())
            );
        }
    }
}
