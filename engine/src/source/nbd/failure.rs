//! Converts errors of an NBD connection into errors of a source.
//!
//! ```text
//!   Lost       tried again on a new connection        Insecure   no TLS with this server: what, and what to do
//!   Refused    the server refuses permanently         Changed    another version of the export
//! ```

use crate::source::{EIO, SourceError, SourceName, SourceOpenError, errno_text};
use std::io::ErrorKind;

/// The error message if the host name cannot be resolved.
pub const NO_ADDRESS: &str = "its host name cannot be resolved";
/// The message if a server closes a TLS connection before it agrees on the export. Some servers report refusals only in this
/// way.
const LEFT_UNDER_TLS: &str = "the server closed the connection during the TLS handshake";
pub const EPROTO: i32 = rustix::io::Errno::PROTO.raw_os_error();
pub const ETIMEDOUT: i32 = rustix::io::Errno::TIMEDOUT.raw_os_error();

/// Why a request to an NBD server failed.
#[derive(Clone, Debug)]
pub enum LinkError {
    /// The connection is lost; another may work. Error number and description.
    Lost(i32, String),
    /// The server answered with an error, or a retry cannot help. Error number and description.
    Refused(i32, String),
    /// The server has no TLS, or its certificate is not the expected one.
    Insecure(Box<NoTls>),
    /// The export is another version.
    Changed(String),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why} ({remedy})")]
pub struct NoTls {
    pub errno: i32,
    pub why: String,
    pub remedy: String,
}

impl LinkError {
    pub fn lost(error: std::io::Error) -> LinkError {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
        if let Some(no_tls) = inner {
            return LinkError::Insecure(Box::new(NoTls::clone(no_tls)));
        }
        match error.kind() {
            ErrorKind::WouldBlock => LinkError::Lost(ETIMEDOUT, "the server is silent".to_string()),
            ErrorKind::TimedOut => LinkError::Lost(
                ETIMEDOUT,
                "the server did not answer within the time limit".to_string(),
            ),
            ErrorKind::UnexpectedEof => {
                LinkError::Lost(EIO, "the server closed the connection".to_string())
            }
            _ => match error.raw_os_error() {
                Some(errno) => LinkError::Lost(errno, errno_text(errno)),
                // An error of the resolver, which has no number.
                None => LinkError::Lost(EIO, error.to_string()),
            },
        }
    }

    /// Like [`LinkError::lost`], but for a connection that was lost after TLS had started and before the export was negotiated.
    #[cfg(feature = "tls")]
    pub fn lost_under_tls(error: std::io::Error) -> LinkError {
        match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                LinkError::Lost(EIO, LEFT_UNDER_TLS.to_string())
            }
            _ => LinkError::lost(error),
        }
    }

    pub fn odd(what: &str) -> LinkError {
        LinkError::Lost(EIO, format!("the server violates the protocol: {what}"))
    }

    pub fn no_tls(errno: i32, why: impl Into<String>, remedy: impl Into<String>) -> LinkError {
        LinkError::Insecure(Box::new(NoTls {
            errno,
            why: why.into(),
            remedy: remedy.into(),
        }))
    }

    pub fn open_error(self, what: &SourceName) -> SourceOpenError {
        let (errno, why, remedy) = match self {
            LinkError::Lost(errno, why) | LinkError::Refused(errno, why) => {
                let remedy = match why {
                    _ if why.starts_with(NO_ADDRESS) => {
                        "check the host's name, or write its address"
                    }
                    _ if why == LEFT_UNDER_TLS => {
                        "it may require a client certificate (client-cert.pem and client-key.pem in the folder tls-certificates=DIR), or accept only pre-shared keys (PSK), which are not supported: see its log"
                    }
                    _ => "check that the server runs and has this export (nbdinfo --list)",
                };
                (errno, why, remedy.to_string())
            }
            LinkError::Insecure(no_tls) => (no_tls.errno, no_tls.why, no_tls.remedy),
            LinkError::Changed(_) => (
                EIO,
                "the export is changing".to_string(),
                "try again".to_string(),
            ),
        };
        SourceOpenError::new(what, why, remedy, errno)
    }

    pub fn read_error(self, what: &SourceName) -> SourceError {
        match self {
            LinkError::Lost(errno, why) | LinkError::Refused(errno, why) => {
                SourceError::io(errno, format!("{what}: {why}"))
            }
            LinkError::Insecure(no_tls) => {
                SourceError::io(no_tls.errno, format!("{what}: {no_tls}"))
            }
            LinkError::Changed(why) => SourceError::Changed {
                what: format!("{what}: {why}"),
            },
        }
    }
}
