//! Why a request brought no bytes: what the server did, whether to ask again, and what its owner can do.
//!
//! Never: holds more of the server's text than a line, or a URL.
//!
//! ```text
//!   gate, fetch ──► Refusal ──► again?   (fetch.rs)
//!                          └──► SourceError: an error number, one line     (reads)
//!                          └──► SourceOpenError: ... and a remedy          (open)
//! ```

use super::date::Date;
use crate::source::{SourceError, SourceName, SourceOpenError};
use object_store::client::{HttpError, HttpErrorKind};
use rustix::io::Errno;
use std::time::Duration;

/// Longest text of a library's or server's error that is passed on.
const MAX_TEXT: usize = 200;

/// See the head of this file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "the server sends the whole object where a part was asked for: it does not know ranges"
    )]
    WholeObject,
    #[error("the server sent another part than was asked for")]
    OtherPart,
    #[error("the server does not say which part it sent: its 206 has no Content-Range")]
    NoContentRange,
    #[error(
        "the server does not say which part of how long an object it sent (Content-Range: {0})"
    )]
    ContentRange(String),
    #[error("the object is empty")]
    Empty {
        etag: Option<String>,
        modified: Option<Date>,
    },
    #[error("the server sent {got} bytes where {asked} were asked for")]
    Length { got: u64, asked: u64 },
    #[error("the server sends it compressed ({0}), so that offsets are not those of the object")]
    Encoded(String),
    #[error("the server left the ETag out")]
    NoEtag,
    #[error("the object has changed: {0}")]
    Changed(String),
    #[error("the server answered 412: the object's ETag or date is another")]
    Unmet,
    #[error("the object ends before the first byte that was asked for")]
    PastEnd { size: Option<u64> },
    #[error("the server answered {}{}", status_text(*status, code), after_text(*retry_after))]
    Status {
        status: u16,
        code: String,
        retry_after: Option<Duration>,
        region: Option<String>,
    },
    #[error("no byte came within {0:?}")]
    FirstByte(Duration),
    #[error("the bytes stopped coming for {0:?}")]
    Stall(Duration),
    #[error("it took longer than {0:?} in all")]
    Total(Duration),
    #[error("the server sends page after page of its listing, and no new name came within {0:?}")]
    NoNames(Duration),
    #[error("the server answered with {0} in place of a listing")]
    NoListing(String),
    #[error(
        "the server answered with an error in place of a listing: {code}{}",
        message_text(message)
    )]
    ErrorForListing { code: String, message: String },
    #[error("the listing cannot go on: {0}")]
    Endless(String),
    #[error("{0}")]
    TooMany(String),
    #[error("nothing needs it any more")]
    Cancelled,
    #[error("the connection cannot be made: {0}")]
    Connect(String),
    #[error("the server's certificate is not valid for its name, or it does not speak TLS: {0}")]
    Tls(String),
    #[error("the connection broke: {0}")]
    Lost(String),
    #[error("the server answers with redirects that do not end, or lead nowhere")]
    Redirects,
    #[error("the answer makes no sense: {0}")]
    Garbled(String),
}

fn status_text(status: u16, code: &str) -> String {
    if code.is_empty() {
        status.to_string()
    } else {
        format!("{status} {code}")
    }
}

fn after_text(retry_after: Option<Duration>) -> String {
    let seconds = retry_after
        .map(|after| after.as_secs())
        .filter(|&seconds| seconds > 0);
    seconds.map_or_else(String::new, |seconds| {
        format!(", to be asked again after {seconds} s")
    })
}

fn message_text(message: &str) -> String {
    if message.is_empty() {
        String::new()
    } else {
        format!(" ({message})")
    }
}

/// Codes of S3 for a caller that may not read.
const NOT_ALLOWED_CODES: [&str; 3] = [
    "AccessDenied",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
];

/// What S3 says by 500 and 503, and some servers by 200.
const PASSING_CODES: [&str; 5] = [
    "InternalError",
    "SlowDown",
    "ServiceUnavailable",
    "RequestTimeout",
    "Busy",
];

impl Refusal {
    /// What object_store made of it: the refusal of our own gate, or an error of the connection.
    pub fn of(error: &(dyn std::error::Error + 'static)) -> Refusal {
        let mut chain = Some(error);
        let mut kind = None;
        let mut text = String::new();
        let mut whole = String::new();
        while let Some(link) = chain {
            if let Some(own) = link.downcast_ref::<Refusal>() {
                return own.clone();
            }
            kind = link
                .downcast_ref::<HttpError>()
                .map(HttpError::kind)
                .or(kind);
            text = link.to_string();
            whole.push_str(&text);
            chain = link.source();
        }
        let text = one_line(&text);
        match kind {
            _ if whole.contains("redirect") => Refusal::Redirects,
            _ if whole.contains("certificate") || whole.contains("InvalidContentType") => {
                Refusal::Tls(text)
            }
            Some(HttpErrorKind::Connect) => Refusal::Connect(text),
            Some(HttpErrorKind::Request | HttpErrorKind::Timeout | HttpErrorKind::Interrupted) => {
                Refusal::Lost(text)
            }
            _ => Refusal::Garbled(text),
        }
    }

    /// May the next try go better?
    pub fn is_passing(&self) -> bool {
        match self {
            Refusal::Status { status, .. } => matches!(status, 408 | 429 | 500 | 502 | 503 | 504),
            Refusal::ErrorForListing { code, .. } => PASSING_CODES.contains(&code.as_str()),
            Refusal::FirstByte(_) | Refusal::Stall(_) | Refusal::Connect(_) | Refusal::Lost(_) => {
                true
            }
            _ => false,
        }
    }

    /// The server asks for fewer requests.
    pub fn asks_for_fewer(&self) -> bool {
        matches!(
            self,
            Refusal::Status {
                status: 429 | 503,
                ..
            }
        )
    }

    /// An object without bytes may have been asked for its first one.
    pub fn may_be_of_nothing(&self) -> bool {
        matches!(
            self,
            Refusal::PastEnd {
                size: None | Some(0)
            } | Refusal::Status { status: 400, .. }
        )
    }

    /// The object may be another, or the server may not know its own version: asked without a condition it says which.
    pub fn is_change(&self) -> bool {
        matches!(self, Refusal::Changed(_) | Refusal::Unmet | Refusal::NoEtag)
    }

    /// How long the server wants to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Refusal::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    fn errno(&self) -> i32 {
        let errno = match self {
            Refusal::Changed(_) | Refusal::Unmet => Errno::STALE,
            Refusal::TooMany(_) => Errno::TOOBIG,
            Refusal::ErrorForListing { code, .. } if NOT_ALLOWED_CODES.contains(&code.as_str()) => {
                Errno::ACCESS
            }
            Refusal::ErrorForListing { .. } => Errno::REMOTEIO,
            Refusal::Status {
                status: 401 | 403, ..
            } => Errno::ACCESS,
            Refusal::Status {
                status: 404 | 410, ..
            } => Errno::NOENT,
            Refusal::Status { .. } => Errno::REMOTEIO,
            Refusal::FirstByte(_) | Refusal::Stall(_) | Refusal::Total(_) | Refusal::NoNames(_) => {
                Errno::TIMEDOUT
            }
            Refusal::Connect(_) => Errno::CONNREFUSED,
            Refusal::Lost(_) => Errno::CONNRESET,
            Refusal::Redirects => Errno::LOOP,
            Refusal::Cancelled => Errno::CANCELED,
            _ => Errno::PROTO,
        };
        errno.raw_os_error()
    }

    /// For a read of `name`.
    pub fn read_error(&self, name: &SourceName) -> SourceError {
        // What a mount is refused beside its reads, too: listings and look-ups.
        tracing::debug!("{name}: {self}");
        match self {
            Refusal::Changed(_) | Refusal::Unmet => SourceError::Changed {
                what: format!("{name}: {self}"),
            },
            _ => SourceError::Io {
                errno: self.errno(),
                what: format!("{name}: {self}"),
            },
        }
    }

    /// For opening `name`; `account` says that S3 is asked, and whether an account is named.
    pub fn open_error(&self, name: &SourceName, account: Account) -> SourceOpenError {
        let remedy = self.remedy(account);
        SourceOpenError {
            what: name.clone(),
            why: self.to_string(),
            remedy,
            errno: self.errno(),
        }
    }

    fn remedy(&self, account: Account) -> String {
        // An error that comes with a 200 has the remedy of the status that it should have had.
        let meant = |status| Refusal::Status {
            status,
            code: String::new(),
            retry_after: None,
            region: None,
        };
        match self {
            Refusal::ErrorForListing { code, .. } if NOT_ALLOWED_CODES.contains(&code.as_str()) => {
                return meant(403).remedy(account);
            }
            Refusal::ErrorForListing { code, .. } if code == "NoSuchBucket" => {
                return meant(404).remedy(account);
            }
            _ => {}
        }
        let text = match (self, account) {
            (
                Refusal::Status {
                    region: Some(region),
                    status: 301 | 307 | 400,
                    ..
                },
                _,
            ) => {
                return format!("the bucket is in {region}: set AWS_REGION={region}");
            }
            (
                Refusal::Status {
                    status: 301 | 307 | 400,
                    ..
                },
                Account::Named | Account::Unsigned,
            ) => {
                "set AWS_REGION to the bucket's region, and AWS_ENDPOINT_URL where it is not Amazon's"
            }
            (
                Refusal::Status {
                    status: 401 | 403, ..
                },
                Account::Named,
            ) => {
                "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, and that they may read it"
            }
            (
                Refusal::Status {
                    status: 401 | 403, ..
                },
                Account::Unsigned,
            ) => {
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: without them only public objects can be read"
            }
            (
                Refusal::Status {
                    status: 401 | 403, ..
                },
                Account::Http,
            ) => {
                "check the user and password in the URL (https://USER:PASSWORD@HOST/), or its token"
            }
            (
                Refusal::Status {
                    status: 404 | 410, ..
                },
                Account::Http,
            ) => "check the URL",
            (
                Refusal::Status {
                    status: 404 | 410, ..
                },
                _,
            ) => "check bucket and key, and AWS_ENDPOINT_URL",
            (Refusal::WholeObject, _) => {
                "use a server that knows ranges (nginx, S3), or download the object"
            }
            (Refusal::Encoded(_), _) => "switch compression off for it on the server",
            (Refusal::Tls(_), _) => {
                "check the server's certificate, or that it speaks TLS on this port"
            }
            (Refusal::Connect(_), _) => "check the host and the port, and that the server runs",
            (Refusal::Redirects, _) => "open the URL that it leads to",
            (Refusal::Changed(_) | Refusal::Unmet, _) => "open it again",
            (Refusal::NoListing(_), _) => {
                "check AWS_ENDPOINT_URL: it names a server of S3, not a page in front of it"
            }
            (Refusal::ErrorForListing { code, .. }, _)
                if PASSING_CODES.contains(&code.as_str()) =>
            {
                "try again later, or look at the server"
            }
            (
                Refusal::Status {
                    status: 408 | 429 | 500..,
                    ..
                },
                _,
            ) => "try again later, or look at the server",
            (Refusal::FirstByte(_) | Refusal::Stall(_) | Refusal::Total(_), _) => {
                "look at the server, or give it more time (FOREREAD_OBJECT=first-byte=60,stall=60,total=600)"
            }
            _ => "look at the server",
        };
        text.to_string()
    }
}

/// The account of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    /// No S3.
    Http,
    /// S3 with credentials.
    Named,
    /// S3 without.
    Unsigned,
}

/// Foreign text on one line, cut.
pub fn one_line(text: &str) -> String {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(MAX_TEXT).collect::<String>().trim().to_string()
}
