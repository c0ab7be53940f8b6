//! What servers of S3 and HTTP do beside what the documents say, each as one switch of a [`super::BucketServer`].
//!
//! The names say what the server does; what a client is to make of it is the matter of the tests. Several switches may be on at once.
//!
//! ```text
//!   request ──► the bucket's right answer ──► each switch changes it ──► sent
//! ```
//! Example: with `ListedEtag(Some("other"))` a listing has another ETag than the object, and both are right answers.

/// One thing that a server does otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Behaviour {
    // ---- listings ----
    /// Pages have this number of keys at most.
    ListPage(usize),
    /// A 200 with this body in place of a page.
    ListBody(&'static str),
    /// This status and an empty body in place of a page.
    ListStatus(u16),
    /// Pages are a 200 with an `<Error>` of this code, as often as the number says.
    ListError(&'static str, u64),
    /// The XML ends in its middle.
    ListCut,
    /// `KeyCount` is one more than there are.
    ListCountsOneMore,
    /// `IsTruncated` is true at the end as well, and there is no token; `start-after` is known.
    ListNoToken,
    /// Answers by version 1: `NextMarker` in place of a token, and `marker` alone is looked at.
    ListVersionOne,
    /// The token is always the same, and so is the page.
    ListSameToken,
    /// The last page has `IsTruncated` false and this token.
    ListTokenAtEnd(&'static str),
    /// The first page has no keys, and a token.
    ListEmptyFirstPage,
    /// Pages without a key, each with a new token.
    ListEndless,
    /// The delimiter is not looked at.
    ListNoDelimiter,
    /// The prefix is not looked at.
    ListNoPrefix,
    /// Keys as in a URL, though that was not asked for.
    ListUrlEncoded,
    /// In UTF-8 with a byte order mark.
    ListBom,
    /// Blanks and lines before the XML.
    ListBlanks,
    /// Every element has a namespace prefix.
    ListNamespace,
    /// No `LastModified`.
    ListNoDates,
    /// ETags have this number of letters.
    ListLongEtags(usize),
    // ---- versions ----
    /// The ETag of listings: none, or this one.
    ListedEtag(Option<&'static str>),
    /// Objects have their ETag without quotes.
    BareEtag,
    /// Objects have a weak ETag.
    WeakEtag,
    /// Objects have no ETag.
    NoEtag,
    /// `If-Match` fails always.
    IfMatchFails,
    /// `If-Unmodified-Since` fails always.
    DateFails,
    /// A 412 to requests for parts behind the first 128 KiB, as often as the number says.
    Fails412(u64),
    // ---- bytes ----
    /// `Content-Encoding`.
    Coding(&'static str),
    /// `Last-Modified`.
    Date(&'static str),
    /// How `Content-Range` is written: `FROM`, `TO` and `SIZE` are replaced; an empty one is left out.
    ContentRange(&'static str),
    /// 200 and the whole object, whatever was asked for.
    NoRanges,
    /// 200 where all of an object was asked for.
    WholeIs200,
    /// Bodies come in chunks, without their length.
    Chunked,
    /// What an empty object is: a status, and a `Content-Range` unless it is empty.
    Nothing(u16, &'static str),
    /// HEAD is answered with this status.
    HeadRefused(u16),
    /// Requests for parts behind the first 128 KiB are answered 503 with this `Retry-After`, as often as the number says.
    RetryAfter(&'static str, u64),
}

/// An answer that is not sent yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Answer {
    pub status: u16,
    pub head: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    pub is_chunked: bool,
}

impl Answer {
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Answer {
        Answer {
            status,
            head: Vec::new(),
            body: body.into(),
            is_chunked: false,
        }
    }

    pub fn error(status: u16, code: &str) -> Answer {
        Answer::new(status, format!("<Error><Code>{code}</Code></Error>"))
    }

    /// The header with this value, in place of the one that is there; without one where it is empty.
    pub fn set(&mut self, name: &'static str, value: &str) {
        self.head.retain(|(own, _)| *own != name);
        if !value.is_empty() {
            self.head.push((name, value.to_string()));
        }
    }
}

/// A page of a listing, changed. `is_later`: it is not the first.
pub(super) fn change_page(on: &mut [Behaviour], page: String, is_later: bool) -> Answer {
    let mut answer = Answer::new(200, page);
    answer.set("Content-Type", "application/xml");
    for behaviour in on {
        let text = || String::from_utf8_lossy(&answer.body).into_owned();
        match behaviour {
            Behaviour::ListBody(body) => answer.body = body.as_bytes().to_vec(),
            Behaviour::ListStatus(status) => (answer.status, answer.body) = (*status, Vec::new()),
            Behaviour::ListError(code, left) if *left > 0 => {
                *left -= 1;
                answer.body = Answer::error(200, code).body;
            }
            Behaviour::ListCut => answer.body.truncate(answer.body.len() / 2),
            Behaviour::ListEmptyFirstPage if !is_later => {
                let head =
                    "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>!";
                answer.body =
                    format!("{head}</NextContinuationToken></ListBucketResult>").into_bytes();
            }
            Behaviour::ListBom => answer.body = format!("\u{feff}{}", text()).into_bytes(),
            Behaviour::ListBlanks => answer.body = format!("\n\n  {}", text()).into_bytes(),
            Behaviour::ListNamespace => {
                let marked = text()
                    .replace("</", "\u{0}")
                    .replace('<', "<s3:")
                    .replace('\u{0}', "</s3:");
                answer.body = marked.into_bytes();
            }
            Behaviour::Chunked => answer.is_chunked = true,
            _ => {}
        }
    }
    answer
}

/// An answer about an object, changed. `range` is what was asked for, as far as it is there; `len` is the object's.
pub(super) fn change_object(
    on: &mut [Behaviour],
    answer: &mut Answer,
    is_head: bool,
    (from, len): (u64, u64),
) {
    for behaviour in on {
        let etag = answer
            .head
            .iter()
            .find(|(name, _)| *name == "ETag")
            .map(|(_, etag)| etag.clone())
            .unwrap_or_default();
        match behaviour {
            Behaviour::BareEtag => answer.set("ETag", etag.trim_matches('"')),
            Behaviour::WeakEtag if !etag.is_empty() => answer.set("ETag", &format!("W/{etag}")),
            Behaviour::NoEtag => answer.set("ETag", ""),
            Behaviour::Coding("") => answer.head.push(("Content-Encoding", String::new())),
            Behaviour::Coding(coding) => answer.set("Content-Encoding", coding),
            Behaviour::Date("") => {
                answer.set("Last-Modified", "");
                answer.head.push(("Last-Modified", String::new()));
            }
            Behaviour::Date(date) => answer.set("Last-Modified", date),
            Behaviour::ContentRange(form) if answer.status == 206 => {
                let to = from + answer.body.len() as u64 - 1;
                let said = form
                    .replace("FROM", &from.to_string())
                    .replace("TO", &to.to_string());
                answer.set("Content-Range", &said.replace("SIZE", &len.to_string()));
            }
            Behaviour::Chunked => answer.is_chunked = true,
            Behaviour::Nothing(status, range) if len == 0 && answer.status == 416 => {
                answer.status = *status;
                answer.set("Content-Range", range);
            }
            Behaviour::HeadRefused(status) if is_head => *answer = Answer::new(*status, ""),
            Behaviour::Fails412(left) if *left > 0 && from >= 128 << 10 => {
                *left -= 1;
                *answer = Answer::error(412, "PreconditionFailed");
            }
            Behaviour::RetryAfter(after, left) if *left > 0 && from >= 128 << 10 => {
                *left -= 1;
                *answer = Answer::error(503, "SlowDown");
                answer.set("Retry-After", after);
            }
            _ => {}
        }
    }
}
