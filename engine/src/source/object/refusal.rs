//! Errors of requests to a store. An error tells what the server did, whether a retry may help, and what the user can do.
//!
//! A `Refusal` contains at most one line of text from the server, and never a URL.
//!
//! ```text
//!   reply, fetch ──► Refusal ──► retry?
//!                           └──► SourceError: an error number, one line     (reads)
//!                           └──► SourceOpenError: ... and a remedy          (open)
//! ```

mod meaning;

use crate::source::{
    Cause, NO_BUCKET, SourceError, SourceName, SourceOpenError, errno_text, redacted_message,
};
use chrono::{DateTime, Utc};
use foreread_os::failure::without_numbers;
use meaning::{Meaning, letters};
use object_store::client::{HttpError, HttpErrorKind};
use rustix::io::Errno;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Maximum length of a library's or server's error text that is passed on.
const MAX_TEXT: usize = 200;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the server sends the whole object instead of a part: it does not support ranges")]
    WholeObject,
    #[error("the server sent a different part than requested")]
    OtherPart,
    #[error("the server does not say which part it sent: its 206 has no Content-Range")]
    NoContentRange,
    #[error("the Content-Range of the reply does not tell which part of the object it is: {0}")]
    ContentRange(String),
    #[error("the object is empty")]
    Empty {
        etag: Option<String>,
        modified: Option<DateTime<Utc>>,
    },
    #[error("the server sent {got} bytes, but {asked} were requested")]
    Length { got: u64, asked: u64 },
    #[error(
        "the server sends the object compressed ({0}), so offsets in its reply are not offsets in the object"
    )]
    Encoded(String),
    #[error(
        "the server decompresses the stored object, so offsets in its reply are not offsets in the object"
    )]
    Unpacked,
    #[error("it is a folder")]
    Folder,
    #[error("the server does not say how long the object is (Content-Range: {0})")]
    NoSize(String),
    #[error("the server's reply has no ETag")]
    NoEtag,
    #[error("the object has changed: {0}")]
    Changed(String),
    #[error("the server answered 412: the object's ETag or date has changed")]
    Unmet,
    #[error("the server answered 304: the object has not changed")]
    Unmodified,
    #[error("the object ends before the first requested byte")]
    PastEnd { size: Option<u64> },
    #[error(
        "the server answered {}{}{}",
        status_text(*status, code),
        message_text(message),
        after_text(*retry_after)
    )]
    Status {
        status: u16,
        code: String,
        /// The server's message, if the code is not known here.
        message: String,
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
    #[error("the server redirects from https to http, where any machine on the path could read it")]
    Downgrade,
    /// Scheme, host and port of another server.
    #[error("the server redirects to {0}; foreread does not follow this redirect")]
    RedirectsTo(String),
    #[error("there are no credentials: {why}")]
    NoCredentials { why: String, remedy: String },
    #[error("the answer makes no sense: {0}")]
    Garbled(String),
    #[error("cannot start the threads of the HTTP client: {0}")]
    NoThreads(String),
    /// An error of the HTTP client, and that error itself.
    #[error("{seen}")]
    Client { seen: Box<Refusal>, cause: Cause },
    /// A program's own store has refused, after its own retries.
    #[error("{}", one_line(&cause.to_string()))]
    Foreign { errno: Errno, cause: Cause },
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
    seconds.map_or_else(String::new, |seconds| format!(", retry after {seconds} s"))
}

fn message_text(message: &str) -> String {
    if message.is_empty() {
        String::new()
    } else {
        format!(" ({message})")
    }
}

/// S3 codes for a caller without permission, whatever the status: servers other than Amazon's reply 404 if the account is
/// unknown.
const NOT_ALLOWED_CODES: [&str; 8] = [
    "AccessDenied",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "NotSignedUp",
    "NoSuchUser",
    "UserNotFound",
    "XAdminUserNotFound",
    "XMinioAdminNoSuchUser",
];
/// Codes that already say what their messages say.
const PLAIN_CODES: [&str; 9] = [
    "AuthorizationHeaderMalformed",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "NoSuchKey",
    "NoSuchBucket",
    "NoSuchVersion",
    "BlobNotFound",
    "ContainerNotFound",
    "ResourceNotFound",
];

/// Codes of S3 and Azure for expired credentials.
const EXPIRED_CODES: [&str; 4] = [
    "ExpiredToken",
    "ExpiredTokenException",
    "TokenRefreshRequired",
    "InvalidToken",
];

/// Codes of the Hugging Face Hub, and their remedies.
const HUB_CODES: [(&str, &str); 5] = [
    (
        "RepoNotFound",
        "check USER/REPO; a private repository needs a token with read permission (hf auth login, or HF_TOKEN)",
    ),
    ("RevisionNotFound", "check the revision after the @"),
    (
        "EntryNotFound",
        "check the path; a folder is written with / at its end",
    ),
    (
        "GatedRepo",
        "request access on the repository's web page, then log in (hf auth login) or set HF_TOKEN",
    ),
    (
        ADDRESS_REFUSED,
        "try again later: the content delivery network refuses a URL that the hub has just signed",
    ),
];
/// The error code that foreread uses if a content delivery network refuses a signed URL that the hub has just returned.
pub const ADDRESS_REFUSED: &str = "AddressRefused";

/// S3's codes with 500 and 503; some servers send them with 200.
const PASSING_CODES: [&str; 5] = [
    "InternalError",
    "SlowDown",
    "ServiceUnavailable",
    "RequestTimeout",
    "Busy",
];

/// Maximum characters of a server's message: the line also contains a name and a remedy.
const MAX_MESSAGE: usize = 120;

/// The refusal of an answer that makes no sense.
pub fn garbled(why: impl Into<String>) -> Refusal {
    Refusal::Garbled(why.into())
}

/// Wraps a `Refusal` as an error of the library object_store.
pub fn refuse(refusal: Refusal) -> HttpError {
    HttpError::new(HttpErrorKind::Decode, refusal)
}

/// The words before the missing permission in a message of Amazon; the name of the user before them may be long.
const NOT_AUTHORIZED: &str = "not authorized to perform";

/// Returns the first line of a server's message, unless the error code already has the same meaning.
pub fn message_beside(code: &str, message: &str) -> String {
    let is_known = [&PLAIN_CODES[..], &EXPIRED_CODES, &PASSING_CODES]
        .concat()
        .contains(&code);
    let line = message.lines().next().unwrap_or_default();
    if is_known || letters(line) == letters(code) {
        return String::new();
    }
    let line = line.find(NOT_AUTHORIZED).map_or(line, |at| &line[at..]);
    redacted_message(&one_line(line))
        .chars()
        .take(MAX_MESSAGE)
        .collect()
}

/// Whether the host name of the server cannot be resolved.
fn has_no_address(why: &str) -> bool {
    why.contains("lookup address")
}

/// What hyper says of a request that it did not send.
const CANCELED: &str = "operation was canceled";

impl Refusal {
    /// The refusal by a status, without a message. `region` is where the bucket is, if the server says so.
    pub fn of_status(status: u16, code: &str, region: Option<String>) -> Refusal {
        Refusal::Status {
            status,
            code: code.to_string(),
            message: String::new(),
            retry_after: None,
            region,
        }
    }

    /// Converts an error of the library object_store: either foreread's own check has refused the reply, or the connection has
    /// failed.
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
            _ if whole.contains("certificate") || whole.contains("InvalidContentType") => {
                Refusal::Tls(text)
            }
            Some(HttpErrorKind::Connect) => Refusal::Connect(text),
            // The server closed a connection of the pool before the request was sent on it.
            Some(HttpErrorKind::Unknown) if whole.contains(CANCELED) => Refusal::Lost(text),
            Some(HttpErrorKind::Request | HttpErrorKind::Timeout | HttpErrorKind::Interrupted) => {
                Refusal::Lost(text)
            }
            _ => Refusal::Garbled(text),
        }
    }

    /// Like [`Refusal::of`], and keeps an error of the HTTP client as the cause, so that programs can downcast it. If foreread has read
    /// a reply and not accepted it, there is no further cause.
    pub fn of_client(whole: object_store::Error) -> Refusal {
        let seen = Refusal::of(&whole);
        let is_of_client = matches!(
            seen,
            Refusal::Connect(_)
                | Refusal::Tls(_)
                | Refusal::Lost(_)
                | Refusal::Redirects
                | Refusal::Garbled(_)
        );
        if !is_of_client {
            return seen;
        }
        let cause = Cause::new(ClientError {
            text: seen.to_string(),
            whole,
        });
        Refusal::Client {
            seen: Box::new(seen),
            cause,
        }
    }

    fn cause(&self) -> Option<Cause> {
        match self {
            Refusal::Client { cause, .. } | Refusal::Foreign { cause, .. } => Some(cause.clone()),
            _ => None,
        }
    }

    /// Converts an error of a store that the program has created, and keeps that error as the cause.
    pub fn of_foreign(error: object_store::Error) -> Refusal {
        let errno = match &error {
            object_store::Error::Precondition { .. } => return Refusal::Unmet,
            object_store::Error::NotFound { .. } => Errno::NOENT,
            object_store::Error::PermissionDenied { .. }
            | object_store::Error::Unauthenticated { .. } => Errno::ACCESS,
            object_store::Error::NotSupported { .. }
            | object_store::Error::NotImplemented { .. } => Errno::NOTSUP,
            _ => Errno::REMOTEIO,
        };
        let cause = Cause::new(error);
        Refusal::Foreign { errno, cause }
    }

    /// Returns true if a retry may succeed.
    pub fn is_passing(&self) -> bool {
        match self {
            Refusal::Status { status, .. } => matches!(status, 408 | 429 | 500 | 502 | 503 | 504),
            Refusal::ErrorForListing { code, .. } => PASSING_CODES.contains(&code.as_str()),
            // "Name or service not known" is permanent; a failure of the DNS server is not.
            Refusal::Connect(why) => !has_no_address(why) || !why.contains("not known"),
            Refusal::FirstByte(_) | Refusal::Stall(_) | Refusal::Lost(_) => true,
            Refusal::Client { seen, .. } => seen.is_passing(),
            _ => false,
        }
    }

    pub fn asks_for_fewer(&self) -> bool {
        matches!(
            self,
            Refusal::Status {
                status: 429 | 503,
                ..
            }
        )
    }

    /// Returns the region of the bucket, if the request went to another region.
    pub fn region(&self) -> Option<&str> {
        match self {
            Refusal::Status {
                region: Some(region),
                status: 301..=308 | 400,
                ..
            } => Some(region),
            _ => None,
        }
    }

    fn meaning(&self) -> Option<Meaning> {
        match self {
            Refusal::Status { code, message, .. } | Refusal::ErrorForListing { code, message } => {
                Meaning::of(code, message)
            }
            _ => None,
        }
    }

    /// Returns true if the credentials were refused, and a request with other credentials may succeed.
    pub fn is_of_credentials(&self) -> bool {
        if self.meaning().is_some_and(|of| of != Meaning::ServiceKey) {
            return false;
        }
        match self {
            // The content network ignores tokens.
            Refusal::Status { code, .. } if code == ADDRESS_REFUSED => false,
            Refusal::Status { status, code, .. } => {
                matches!(status, 401 | 403)
                    || EXPIRED_CODES.contains(&code.as_str())
                    || NOT_ALLOWED_CODES.contains(&code.as_str())
            }
            Refusal::ErrorForListing { code, .. } => {
                EXPIRED_CODES.contains(&code.as_str()) || NOT_ALLOWED_CODES.contains(&code.as_str())
            }
            _ => false,
        }
    }

    /// For a request that was sent without credentials: returns true if it may succeed with credentials. Azure, for example,
    /// replies as if a private container did not exist.
    pub fn is_of_no_credentials(&self) -> bool {
        let words = ["ResourceNotFound", "PublicAccessNotPermitted"];
        match self {
            Refusal::Status { code, .. } => {
                self.is_of_credentials() || words.contains(&code.as_str())
            }
            _ => false,
        }
    }

    /// Returns true if the object may be empty, because a request for its first byte was refused.
    pub fn may_be_of_nothing(&self) -> bool {
        matches!(
            self,
            Refusal::PastEnd {
                size: None | Some(0)
            } | Refusal::Status { status: 400, .. }
        )
    }

    /// Returns true if the server may have refused the request only because of `If-None-Match`.
    pub fn may_be_of_condition(&self) -> bool {
        match self {
            Refusal::Unmodified | Refusal::Unmet | Refusal::PastEnd { .. } => true,
            Refusal::Status { status, region, .. } => {
                matches!(status, 400 | 405 | 501) && region.is_none()
            }
            _ => false,
        }
    }

    /// Returns true if either the object has changed, or the server does not recognise its own version; a request without a
    /// condition shows which is the case.
    pub fn is_change(&self) -> bool {
        matches!(self, Refusal::Changed(_) | Refusal::Unmet | Refusal::NoEtag)
    }

    /// Returns the time in the server's header `Retry-After`.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Refusal::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Returns true if the bucket exists, but the object does not, or is shorter than the requested range.
    #[cfg(feature = "disk-cache")]
    pub fn is_no_object(&self) -> bool {
        let is_of_bucket = matches!(self, Refusal::Status { code, .. }
            if NO_BUCKET.contains(&code.as_str()));
        matches!(self, Refusal::PastEnd { .. } | Refusal::Empty { .. })
            || self.is_absence() && !is_of_bucket
    }

    /// Returns true if the object does not exist.
    pub fn is_absence(&self) -> bool {
        self.errno_of() == Errno::NOENT
    }

    pub fn errno(&self) -> i32 {
        self.errno_of().raw_os_error()
    }

    fn errno_of(&self) -> Errno {
        match self {
            Refusal::Changed(_) | Refusal::Unmet => Errno::STALE,
            Refusal::Foreign { errno, .. } => *errno,
            Refusal::Client { seen, .. } => seen.errno_of(),
            Refusal::Folder => Errno::ISDIR,
            // The object exists, and no permission is missing.
            _ if self.meaning().is_some_and(|of| of != Meaning::ServiceKey) => Errno::NOTSUP,
            Refusal::TooMany(_) => Errno::TOOBIG,
            Refusal::ErrorForListing { code, .. } | Refusal::Status { code, .. }
                if NOT_ALLOWED_CODES.contains(&code.as_str()) =>
            {
                Errno::ACCESS
            }
            Refusal::ErrorForListing { .. } => Errno::REMOTEIO,
            Refusal::NoCredentials { .. }
            | Refusal::Status {
                status: 401 | 403, ..
            } => Errno::ACCESS,
            Refusal::Status {
                status: 404 | 410, ..
            } => Errno::NOENT,
            Refusal::Status { .. } => Errno::REMOTEIO,
            Refusal::FirstByte(_) | Refusal::Stall(_) | Refusal::Total(_) | Refusal::NoNames(_) => {
                Errno::TIMEDOUT
            }
            Refusal::Connect(why) if has_no_address(why) => Errno::HOSTUNREACH,
            Refusal::Connect(_) => Errno::CONNREFUSED,
            Refusal::Lost(_) => Errno::CONNRESET,
            Refusal::Redirects => Errno::LOOP,
            Refusal::Cancelled => Errno::CANCELED,
            Refusal::NoThreads(_) => Errno::AGAIN,
            _ => Errno::PROTO,
        }
    }

    pub fn read_error(&self, name: &SourceName) -> SourceError {
        // Logged here, because listings and look-ups of a mount fail with it, too.
        tracing::debug!("{name}: {self}");
        let (errno, what) = (self.errno(), format!("{name}: {self}"));
        let reason = errno_text(errno);
        match (self, self.cause()) {
            (Refusal::Changed(_) | Refusal::Unmet, _) => SourceError::Changed { what },
            (Refusal::Foreign { .. }, Some(cause)) => SourceError::Other { errno, what, cause },
            (_, Some(cause)) => {
                let what = format!("{}: {reason}", without_end(&what, &reason));
                SourceError::Other { errno, what, cause }
            }
            (_, None) => SourceError::io(errno, without_end(&what, &reason)),
        }
    }

    /// Converts this `Refusal` to the error of opening `name`; `account` has the credentials of the request.
    pub fn open_error(&self, name: &SourceName, account: &Account) -> SourceOpenError {
        let remedy = self.remedy(account);
        let mut why = self.to_string();
        if let (true, Some(link)) = (self.is_of_credentials(), &account.link) {
            why = format!("{why} (credentials: {})", link.name);
        }
        if let (true, Some(missing)) = (self.is_of_credentials(), &account.missing) {
            why = format!("{why}; {missing}");
        }
        SourceOpenError {
            what: name.clone(),
            why,
            remedy,
            errno: self.errno(),
            cause: self.cause(),
        }
    }

    fn remedy(&self, account: &Account) -> String {
        if let Some(meaning) = self.meaning() {
            return meaning.remedy().to_string();
        }
        // An error in a 200 reply has the remedy of the status that it should have had.
        let meant = |status| Refusal::of_status(status, "", None);
        match self {
            Refusal::Status {
                status: 401 | 403, ..
            } => {}
            _ if self.is_of_credentials() => return meant(403).remedy(account),
            Refusal::Status { code, .. } | Refusal::ErrorForListing { code, .. }
                if NO_BUCKET.contains(&code.as_str()) =>
            {
                let remedy =
                    "the bucket does not exist: check its name, the account and the endpoint";
                return remedy.to_string();
            }
            _ => {}
        }
        if let Refusal::Status {
            status: 401 | 403,
            code,
            ..
        } = self
            && account.is_unsigned
            && account.unsigned_by_option
            && !HUB_CODES.iter().any(|(own, _)| own == code)
        {
            let then = account.advice.unsigned;
            return format!("leave --no-sign-request out; if that is not enough, {then}");
        }
        if let Some(region) = self.region() {
            return format!("the bucket is in {region}: set AWS_REGION={region}");
        }
        let text = match self {
            Refusal::Client { seen, .. } => return seen.remedy(account),
            Refusal::Status { status, code, .. } => HUB_CODES
                .iter()
                .find(|(own, _)| own == code)
                .map_or_else(|| status_remedy(*status, account), |(_, remedy)| remedy),
            Refusal::WholeObject => {
                "use a server that supports ranges (nginx, S3), or download the object"
            }
            Refusal::Encoded(_) | Refusal::Unpacked => {
                "switch off compression for this object on the server"
            }
            Refusal::Folder => "add a / at the end of the name",
            Refusal::NoSize(_) => "use a server that reports the object's size in Content-Range",
            Refusal::Tls(_) => "check the server's certificate, or that it speaks TLS on this port",
            Refusal::Connect(why) if has_no_address(why) => {
                "check the network, the proxy (HTTPS_PROXY) and the endpoint: its host name cannot be resolved"
            }
            Refusal::Connect(_) => "check the host and the port, and that the server runs",
            Refusal::Redirects => "use the URL that the redirects lead to",
            Refusal::RedirectsTo(_) => account.advice.elsewhere,
            Refusal::Changed(_) | Refusal::Unmet => "open it again",
            Refusal::NoCredentials { remedy, .. } => remedy,
            Refusal::NoListing(_) => account.advice.no_listing,
            Refusal::NoThreads(_) => "allow more threads (ulimit -u, pids.max of the cgroup)",
            Refusal::ErrorForListing { code, .. } if PASSING_CODES.contains(&code.as_str()) => {
                "try again later, or check the server"
            }
            Refusal::FirstByte(_) | Refusal::Stall(_) | Refusal::Total(_) => {
                "check the server, or give it more time (FOREREAD_OBJECT=first-byte=60,stall=60,total=600)"
            }
            _ => "check the server",
        };
        text.to_string()
    }
}

/// The HTTP client's error of a request. It never shows a URL, because the URL may be signed: the outermost errors, which contain the
/// URL, are left out of the chain of causes.
///
/// ```text
///   object_store::Error ─► RetryError (with its URL) ─► HttpError ─► reqwest::Error ─► io::Error
///                                                       └────── source() of ours ──────┘
/// ```
struct ClientError {
    text: String,
    whole: object_store::Error,
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClientError").field(&self.text).finish()
    }
}

impl Error for ClientError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let mut link = self.whole.source();
        while link.is_some_and(|error| !error.is::<HttpError>()) {
            link = link.and_then(Error::source);
        }
        link
    }
}

fn status_remedy(status: u16, account: &Account) -> &str {
    let advice = account.advice;
    match status {
        301 | 307 | 400 => advice.elsewhere,
        401 | 403 if account.is_unsigned => advice.unsigned,
        401 | 403 => account
            .link
            .as_ref()
            .map_or(advice.refused, |link| &link.remedy),
        404 | 410 => advice.absent,
        408 | 429 | 500.. => "try again later, or check the server",
        _ => "check the server",
    }
}

/// The credentials of the requests to a store, and what an error message advises if the store refuses a request.
#[derive(Clone)]
pub struct Account {
    pub advice: &'static Advice,
    /// Requests carry no credentials, although they could.
    pub is_unsigned: bool,
    /// Requests carry no credentials because the settings say so (`--no-sign-request`).
    pub unsigned_by_option: bool,
    /// The source of the credentials.
    pub link: Option<Link>,
    /// Why there are no credentials, if a link should have had some.
    pub missing: Option<Arc<str>>,
}

/// A place in a chain of credentials.
#[derive(Clone, Debug)]
pub struct Link {
    /// Such as `profile dev (SSO)`.
    pub name: Arc<str>,
    /// The remedy if a store refuses it.
    pub remedy: Arc<str>,
}

impl Account {
    /// Creates the account (credentials and advice) for a store that has a chain of credentials; `link` is `None` if the chain
    /// found no credentials.
    pub fn of(advice: &'static Advice, link: Option<Link>) -> Account {
        Account {
            advice,
            is_unsigned: link.is_none(),
            unsigned_by_option: false,
            link,
            missing: None,
        }
    }

    /// Creates the account (credentials and advice) for a source that needs no credential chain, because its name has all
    /// credentials that are needed.
    pub fn without_chain(advice: &'static Advice) -> Account {
        Account {
            is_unsigned: false,
            ..Account::of(advice, None)
        }
    }
}

/// The remedies that error messages give if a store refuses a request.
pub struct Advice {
    /// For 401 and 403, after a request with credentials.
    pub refused: &'static str,
    /// For 401 and 403, after a request without credentials.
    pub unsigned: &'static str,
    /// For 404 and 410.
    pub absent: &'static str,
    /// For 301, 307 and 400.
    pub elsewhere: &'static str,
    /// The command that lists a prefix.
    pub list: &'static str,
    /// For a reply that is not a listing.
    pub no_listing: &'static str,
}

/// The reason why a location cannot be read, with a remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    pub why: String,
    pub remedy: String,
}

impl Unfit {
    pub fn new(why: impl Into<String>, remedy: impl Into<String>) -> Unfit {
        Unfit {
            why: why.into(),
            remedy: remedy.into(),
        }
    }

    pub fn open_error(self, name: &SourceName) -> SourceOpenError {
        SourceOpenError::new(name, self.why, self.remedy, Errno::INVAL.raw_os_error())
    }
}

/// Returns an error and its causes as one line. Text that an error repeats from its cause appears once.
pub fn line_of(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut chain = error.source();
    while let Some(link) = chain {
        let more = link.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        chain = link.source();
    }
    one_line(&text)
}

/// Returns `what` without its last part, if this part is `reason`: an error of the system already ends with the text of its number.
fn without_end(what: &str, reason: &str) -> String {
    let plain = without_numbers(what);
    let rest = plain
        .strip_suffix(reason)
        .and_then(|rest| rest.strip_suffix(": "));
    rest.map_or_else(|| what.to_string(), str::to_string)
}

/// Returns a text of a server or a library as one line: control characters become blanks, and a long text is cut.
pub fn one_line(text: &str) -> String {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(MAX_TEXT).collect::<String>().trim().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(status: u16, code: &str, message: &str) -> Refusal {
        Refusal::Status {
            status,
            code: code.to_string(),
            message: message_beside(code, message),
            retry_after: None,
            region: None,
        }
    }

    /// Servers other than Amazon's answer 404 where the account is unknown: no reason to look at the key of the object.
    #[test]
    fn an_unknown_account_is_a_refusal_for_any_status() {
        for code in ["XAdminUserNotFound", "NoSuchUser", "InvalidAccessKeyId"] {
            let refusal = status(404, code, "");
            let found = (
                refusal.errno_of(),
                refusal.is_of_credentials(),
                refusal.is_absence(),
            );
            assert_eq!(found, (Errno::ACCESS, true, false), "{code}");
        }
        let absent = status(404, "NoSuchKey", "The specified key does not exist.");
        assert_eq!(
            (absent.errno_of(), absent.is_of_credentials()),
            (Errno::NOENT, false)
        );
        assert_eq!(absent.to_string(), "the server answered 404 NoSuchKey");
    }

    #[test]
    fn a_message_is_kept_if_it_says_more_than_the_code() {
        let said = status(
            400,
            "QuotaPaused",
            "paid until May, see https://h/a?token=x\nRequestId: 7",
        );
        assert_eq!(
            said.to_string(),
            "the server answered 400 QuotaPaused (paid until May, see https://h/a?...)"
        );
    }

    /// A refusal whose reason is not the credentials' own, as servers word it: what is missing is said, and what to do.
    #[test]
    fn a_reason_beside_the_code_has_its_remedy() {
        let long = "User: arn:aws:sts::111122223333:assumed-role/".to_string() + &"r".repeat(200);
        let rows = "\
            403|AccessDenied|LONG/s is not authorized to perform: kms:Decrypt on resource: arn:aws:kms:eu-1:1:key/2|kms:Decrypt|(kms:Decrypt)
            403|AccessDenied|Permission denied on Cloud KMS key. Please ensure|KMS key|(kms:Decrypt)
            400|KMS.DisabledException|arn:aws:kms:eu-1:1:key/2 is disabled.|is disabled|(kms:Decrypt)
            403|KeyVaultEncryptionKeyNotFound||KeyVault|(kms:Decrypt)
            400|InvalidRequest|The object was stored using a form of Server Side Encryption. The correct parameters must be provided|Server Side Encryption|(SSE-C)
            403|AccessDenied|Requests specifying Server-Side Encryption with Customer provided keys|Server-Side|(SSE-C)
            400|ResourceIsEncryptedWithCustomerEncryptionKey||CustomerEncryptionKey|(SSE-C)
            409|BlobUsesCustomerSpecifiedEncryption|The blob is encrypted|Encryption|(SSE-C)
            403|SecondLevelDomainForbidden|addressed using OSS third level domain.|OSS|AWS_VIRTUAL_HOSTED_STYLE_REQUEST=true
            403|PathStyleDomainForbidden|addressed using COS virtual-styled domain.|COS|AWS_VIRTUAL_HOSTED_STYLE_REQUEST=true
            400|VirtualHostDomainRequired|Virtual host domain is required|Virtual|AWS_VIRTUAL_HOSTED_STYLE_REQUEST=true
            403|InvalidPathAccess|must be addressed using virtual host style|virtual|AWS_VIRTUAL_HOSTED_STYLE_REQUEST=true";
        for row in rows.lines() {
            let [of, code, message, said, remedy] =
                row.trim_start().split('|').collect::<Vec<_>>()[..]
            else {
                panic!("{row}")
            };
            let of: u16 = of.parse().expect("a status");
            let refusal = status(of, code, &message.replace("LONG", &long));
            let line = refusal.to_string();
            assert!(line.contains(said) && line.len() < 250, "{line}");
            let account = Account::without_chain(&crate::source::object::store::FOREIGN);
            let told = refusal.remedy(&account);
            assert!(told.contains(remedy), "{code}: {told}");
            let is_of_key = remedy == "(kms:Decrypt)";
            assert_eq!(refusal.errno_of() != Errno::NOTSUP, is_of_key, "{code}");
            assert_eq!(
                refusal.is_of_credentials(),
                of == 403 && is_of_key,
                "{code}"
            );
        }
        let plain = status(403, "AccessDenied", "Access Denied.");
        assert_eq!(plain.to_string(), "the server answered 403 AccessDenied");
    }

    #[test]
    fn the_reason_of_a_broken_connection_is_named_once() {
        for (refusal, end) in [
            (
                Refusal::Lost("Connection reset by peer (os error 104)".to_string()),
                "https://h/x: the connection broke: Connection reset by peer",
            ),
            (
                Refusal::Lost("end of file before message length reached".to_string()),
                "https://h/x: the connection broke: end of file before message length reached: Connection reset by peer",
            ),
        ] {
            assert_eq!(refusal.read_error(&"https://h/x".into()).to_string(), end);
        }
    }

    #[test]
    fn an_unresolvable_name_is_not_a_refusal() {
        let connect = |why: &str| Refusal::Connect(why.to_string());
        let absent = connect("failed to lookup address information: Name or service not known");
        assert_eq!(
            (absent.errno_of(), absent.is_passing()),
            (Errno::HOSTUNREACH, false)
        );
        let later =
            connect("failed to lookup address information: Temporary failure in name resolution");
        assert_eq!(
            (later.errno_of(), later.is_passing()),
            (Errno::HOSTUNREACH, true)
        );
        let refused = connect("tcp connect error: Connection refused");
        assert_eq!(
            (refused.errno_of(), refused.is_passing()),
            (Errno::CONNREFUSED, true)
        );
    }
}
