//! Parses the URI of an NBD server (the NBD project's `doc/uri.md`), with its TLS parameters.
//!
//! ```text
//!   nbds://HOST[:PORT][/EXPORT][?tls-certificates=DIR&tls-hostname=NAME&tls-verify-peer=0]
//!   nbds+unix://[NAME]/[EXPORT]?socket=PATH[&tls-...]     without NAME, a certificate for any name is accepted
//! ```
//!
//! Passwords, pre-shared keys (PSK) and unknown TLS parameters are refused.

use crate::source::{self, EINVAL, SourceName, SourceOpenError};
use percent_encoding::percent_decode_str;
use std::path::PathBuf;

/// The port assigned to the protocol.
const PORT: u16 = 10809;
const REMEDY: &str = "write nbd://HOST[:PORT][/EXPORT] or nbd+unix:///[EXPORT]?socket=PATH";

/// The address of an NBD server and of one of its exports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub place: ServerPlace,
    /// The empty name means the default export.
    pub export: String,
    /// `None` for plain text.
    #[cfg(feature = "tls")]
    pub tls: Option<TlsTerms>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerPlace {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// How a server must prove its identity.
#[cfg(feature = "tls")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsTerms {
    /// The folder with certificates; libnbd's default if the address has none.
    pub certificates: Option<PathBuf>,
    pub check: PeerCheck,
}

#[cfg(feature = "tls")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerCheck {
    /// The server needs a certificate for this name, from a trusted authority.
    Name(String),
    /// The server needs a certificate from a trusted authority, for any name.
    Authority,
    /// Any certificate is accepted, so a man in the middle is not detected.
    Nothing,
}

pub fn parse(name: &SourceName) -> Result<Address, SourceOpenError> {
    let text = source::text(name)?;
    let parser = Parser { name };
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let is_secure = match scheme {
        "nbd" | "nbd+unix" => false,
        "nbds" | "nbds+unix" => true,
        _ => return Err(parser.error("it is not the address of an NBD server", REMEDY)),
    };
    if is_secure && !cfg!(feature = "tls") {
        return Err(source::not_built(name, "tls"));
    }
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
    if authority.contains('@') {
        return Err(match is_secure {
            true => parser.no_psk(),
            false => parser.error("an NBD address must not contain a user name", REMEDY),
        });
    }
    let (place, host) = if scheme.ends_with("+unix") {
        if !(rest.starts_with('/') || is_secure && rest.contains('/')) {
            return Err(parser.error(
                "the address of a unix socket must not contain a host",
                REMEDY,
            ));
        }
        let socket = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("socket="))
            .filter(|path| !path.is_empty());
        let socket = socket.ok_or_else(|| parser.error("no socket is named", REMEDY))?;
        let place = ServerPlace::Unix(parser.decode(socket)?.into());
        (place, parser.decode(authority)?)
    } else {
        let (host, port) = parser.host(authority)?;
        let place = ServerPlace::Tcp {
            host: host.clone(),
            port,
        };
        (place, host)
    };
    let export = parser.decode(export)?;
    let tls: Vec<&str> = query
        .split('&')
        .filter(|pair| pair.starts_with("tls-"))
        .collect();
    if !is_secure && !tls.is_empty() {
        return Err(parser.error(
            "the address has tls- parameters, but does not use TLS",
            "write nbds:// (nbds+unix://) instead of nbd://, or remove the tls- parameters",
        ));
    }
    #[cfg(not(feature = "tls"))]
    drop(host);
    Ok(Address {
        place,
        export,
        #[cfg(feature = "tls")]
        tls: match is_secure {
            true => Some(parser.tls(host, &tls)?),
            false => None,
        },
    })
}

struct Parser<'a> {
    name: &'a SourceName,
}

impl Parser<'_> {
    fn error(&self, why: &str, remedy: &str) -> SourceOpenError {
        SourceOpenError::new(self.name.clone(), why, remedy, EINVAL)
    }

    fn no_psk(&self) -> SourceOpenError {
        self.error(
            "TLS with pre-shared keys (PSK) is not supported",
            "give the server a certificate and set the folder with its authority's certificate (tls-certificates=DIR), or use a tunnel (ssh -L), then nbd://localhost:PORT",
        )
    }

    fn decode(&self, part: &str) -> Result<String, SourceOpenError> {
        let decoded = percent_decode_str(part)
            .decode_utf8()
            .map(|t| t.into_owned());
        decoded
            .ok()
            .filter(|t| !t.contains('\0'))
            .ok_or_else(|| self.error("it is not text", REMEDY))
    }

    fn host(&self, authority: &str) -> Result<(String, u16), SourceOpenError> {
        // The colons of an IPv6 address are within brackets.
        let end_of_name = authority.rfind(']').map_or(0, |i| i + 1);
        let (host, port) = match authority[end_of_name..].find(':') {
            Some(colon) => (
                &authority[..end_of_name + colon],
                Some(&authority[end_of_name + colon + 1..]),
            ),
            None => (authority, None),
        };
        let port = port.map_or(Ok(PORT), |p| {
            p.parse()
                .map_err(|_| self.error("the port is not a number from 0 to 65535", REMEDY))
        })?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(self.error("the host is missing", REMEDY));
        }
        Ok((self.decode(host)?, port))
    }

    #[cfg(feature = "tls")]
    fn tls(&self, host: String, parameters: &[&str]) -> Result<TlsTerms, SourceOpenError> {
        let (mut certificates, mut name, mut verify) = (None, Some(host), true);
        for pair in parameters {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = self.decode(value)?;
            match (key, value.as_str()) {
                ("tls-certificates", dir) if !dir.is_empty() => certificates = Some(dir.into()),
                ("tls-hostname", _) if !value.is_empty() => name = Some(value),
                ("tls-verify-peer", "1" | "true") => verify = true,
                ("tls-verify-peer", "0" | "false") => verify = false,
                ("tls-type", "x509") => {}
                ("tls-psk-file" | "tls-username", _) | ("tls-type", "psk") => {
                    return Err(self.no_psk());
                }
                ("tls-type", "anon") => {
                    return Err(self.error(
                        "TLS without certificates is not supported, because it does not detect a man in the middle",
                        "give the server a certificate and set the folder with its authority's certificate (tls-certificates=DIR)",
                    ));
                }
                _ => {
                    return Err(self.error(
                        "a tls- parameter has an unknown name or value",
                        "use tls-certificates=DIR, tls-hostname=NAME, tls-verify-peer=0 or 1, or tls-type=x509",
                    ));
                }
            }
        }
        let name = name.filter(|name| !name.is_empty());
        Ok(TlsTerms {
            certificates,
            check: match name {
                _ if !verify => PeerCheck::Nothing,
                Some(name) => PeerCheck::Name(name),
                None => PeerCheck::Authority,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each notation, and what it means: host and port or path, export; with TLS the folder, and the check of the server.
    const NOTATIONS: &str = "\
        nbd://localhost = localhost 10809 ''
        nbd://localhost/ = localhost 10809 ''
        nbd://10.0.0.1:1234/a/b%20c = 10.0.0.1 1234 'a/b c'
        nbd://[::1]:5 = ::1 5 ''
        nbd://[::1]/x?tls=no = ::1 10809 'x'
        nbd+unix:///?socket=/run/s = /run/s ''
        nbd+unix:///disk?a=b&socket=relative%2Fs = relative/s 'disk'
        nbds://h = h 10809 '' None Name(\"h\")
        nbds://h:7/x?tls-certificates=%2Fa%20b&tls-type=x509 = h 7 'x' Some(\"/a b\") Name(\"h\")
        nbds://[::1]?tls-hostname=g&other=1 = ::1 10809 '' None Name(\"g\")
        nbds://h?tls-verify-peer=0&tls-hostname=g = h 10809 '' None Nothing
        nbds://h?tls-verify-peer=1 = h 10809 '' None Name(\"h\")
        nbds+unix:///x?socket=/s&tls-certificates=d = /s 'x' Some(\"d\") Authority
        nbds+unix://localhost/x?socket=/s = /s 'x' None Name(\"localhost\")
        nbds+unix:///?tls-hostname=g&socket=/s = /s '' None Name(\"g\")";
    /// Each name that is refused, and why.
    const REFUSED: &str = "\
        nbd:// = the host is missing
        nbd://:5 = the host is missing
        nbd://h:99999 = the port is not a number from 0 to 65535
        nbd://u@h = an NBD address must not contain a user name
        nbd+unix://h/x?socket=y = the address of a unix socket must not contain a host
        nbd+unix:///x = no socket is named
        nbd+unix:///x?socket=%ff = it is not text
        nbd://h/%00 = it is not text
        nbd://h/x?tls-certificates=d = the address has tls- parameters, but does not use TLS
        nbds:// = the host is missing
        nbds://u@h = TLS with pre-shared keys (PSK) is not supported
        nbds://u@h?tls-psk-file=/p = TLS with pre-shared keys (PSK) is not supported
        nbds://h?tls-psk-file=/p = TLS with pre-shared keys (PSK) is not supported
        nbds://h?tls-username=u = TLS with pre-shared keys (PSK) is not supported
        nbds+unix:///?socket=s&tls-type=psk = TLS with pre-shared keys (PSK) is not supported
        nbds://h?tls-verfy-peer=1 = a tls- parameter has an unknown name or value
        nbds://h?tls-verify-peer=no = a tls- parameter has an unknown name or value
        nbds://h?tls-certificates = a tls- parameter has an unknown name or value
        nbds://h?tls-certificates=%ff = it is not text
        nbds://h?tls-type=anon = TLS without certificates is not supported, because it does not detect a man in the middle
        nbds+unix://h?socket=s = the address of a unix socket must not contain a host";

    fn rows(table: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
        let rows = table
            .lines()
            .map(|row| row.trim_start().split_once(" = ").expect(row));
        rows.filter(|(name, _)| cfg!(feature = "tls") || !name.starts_with("nbds"))
    }

    #[test]
    fn the_notations() {
        for (text, wanted) in rows(NOTATIONS) {
            let address = parse(&text.into()).expect(text);
            let place = match address.place {
                ServerPlace::Tcp { host, port } => format!("{host} {port}"),
                ServerPlace::Unix(path) => path.display().to_string(),
            };
            let tls = String::new();
            #[cfg(feature = "tls")]
            let tls = address.tls.map_or(tls, |tls| {
                format!(" {:?} {:?}", tls.certificates, tls.check)
            });
            assert_eq!(
                format!("{place} '{}'{tls}", address.export),
                wanted,
                "{text}"
            );
        }
    }

    #[test]
    fn invalid_names_are_one_line_errors() {
        for (text, why) in rows(REFUSED) {
            let error = parse(&text.into()).expect_err(text);
            assert_eq!((error.why.as_str(), error.errno), (why, EINVAL), "{text}");
            let name = SourceName::from(text).to_string();
            assert!(error.to_string().starts_with(&name));
        }
    }
}
