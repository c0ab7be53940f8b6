//! Parses and validates replies: range, length and version.
//!
//! Servers write the same header in many forms, and object_store supports only one form of each header. So this module parses the headers
//! of a reply, and rewrites them for object_store. This module accepts a form of a header that has only one possible meaning. For any
//! other form, the read fails with an error that contains the header's text.
//!
//! ```text
//!   206  Content-Range: Bytes=0-9 / 10    ──► bytes 0-9/10
//!   206  bytes 0-0/0, bytes */0;  204     ──► Empty
//!   200  the requested bytes, or an object of up to 128 KiB, from which the part is cut ──► 206
//!   200  anything else                    ──► WholeObject
//!   206  bytes 0-9/*                      ──► NoSize
//!        decompressed by the server       ──► requested as stored (`Accept-Encoding: gzip`); decompressed again: Unpacked
//!        a folder of Azure                ──► Folder
//!   Last-Modified in a form of RFC 9110   ──► the form that object_store accepts; else none
//! ```
//! Example: a read requests `bytes=4096-8191` of an object of 10,000 bytes, and the server does not support ranges. The reply is a 200
//! with 10,000 bytes. This module turns this reply into a 206 with the requested 4,096 bytes. Source: RFC 9110, 13.1 to 15.5.17.

use super::client::{self, Answer, Redirects};
use super::first::FIRST_BYTES;
use super::page::{self, Page, PageRequest, http_date};
use super::refusal::{Refusal, garbled, message_beside, one_line, refuse};
use futures_util::StreamExt;
use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use object_store::{HeaderMap, HeaderValue};
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};
use url::Url;

/// Codings that change no byte, and words in this header that are not codings.
const NO_CODINGS: [&str; 8] = [
    "",
    "identity",
    "aws-chunked",
    "none",
    "binary",
    "8bit",
    "utf-8",
    "utf8",
];

/// The first and the last byte that a request asks for.
pub type RequestRange = (u64, u64);

pub fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

pub fn parse_range(text: &str) -> Option<RequestRange> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok()?))
}

/// A `Content-Range`, as far as it can be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ContentRange {
    /// First and last byte. `None` if the header has `*`.
    range: Option<RequestRange>,
    /// Bytes of the object. `None` if the header has `*`.
    size: Option<u64>,
}

impl ContentRange {
    fn of(text: &str) -> Option<ContentRange> {
        let text = text.trim();
        let unit = text
            .get(..5)
            .filter(|unit| unit.eq_ignore_ascii_case("bytes"))?;
        let rest = text[unit.len()..].trim_start_matches([' ', '\t', '=', ':']);
        let (range, size) = rest.split_once('/')?;
        let number = |text: &str| text.trim().parse::<u64>().ok().filter(|&n| n < u64::MAX);
        let size = if size.trim() == "*" {
            None
        } else {
            Some(number(size)?)
        };
        if range.trim() == "*" {
            return Some(ContentRange { range: None, size });
        }
        let (first, last) = range.split_once('-')?;
        // Some servers write 0--1 for an empty range.
        let range = number(first).zip(number(last));
        (range.is_some() || size == Some(0)).then_some(ContentRange { range, size })
    }
}

/// Keeps only version headers that object_store can parse: an unknown date format would make the whole reply an error.
pub fn settle_version(headers: &mut HeaderMap) {
    let date = header(headers, "last-modified").and_then(http_date);
    let date = date.and_then(|date| HeaderValue::from_str(&date.to_rfc2822()).ok());
    let _ = match date {
        Some(date) => headers.insert("last-modified", date),
        None => headers.remove("last-modified"),
    };
    if header(headers, "etag").is_none_or(|etag| etag.trim().is_empty()) {
        headers.remove("etag");
    }
}

/// Fails without an ETag. A missing date becomes that of 1970, which means none.
fn complete_version(headers: &mut HeaderMap) -> Result<(), Refusal> {
    let date = HeaderValue::from_static("Thu, 01 Jan 1970 00:00:00 GMT");
    headers.entry("last-modified").or_insert(date);
    let etag = headers.get("etag").map(|_| ());
    etag.ok_or(Refusal::NoEtag)
}

/// Checks that the bytes are those of the object.
fn check_coding(headers: &HeaderMap, stores_codings: bool) -> Result<(), Refusal> {
    let Some(coding) = header(headers, "content-encoding").filter(|_| !stores_codings) else {
        return Ok(());
    };
    let changes_none = |coding: &str| {
        NO_CODINGS
            .iter()
            .any(|plain| coding.trim().eq_ignore_ascii_case(plain))
    };
    if coding.split(',').all(changes_none) {
        Ok(())
    } else {
        Err(Refusal::Encoded(one_line(coding)))
    }
}

/// The coding in which Google has stored an object. It sends these bytes to clients that accept the coding, and the
/// decompressed bytes to others.
fn stored_coding(headers: &HeaderMap) -> Option<&str> {
    header(headers, "x-goog-stored-content-encoding").filter(|coding| *coding != "identity")
}

/// Whether a reply has other bytes than the object: its coding differs from the stored one, or it says so (RFC 7234, 5.5.6).
fn is_unpacked(headers: &HeaderMap) -> bool {
    let coding = header(headers, "content-encoding");
    let is_other = stored_coding(headers).is_some_and(|stored| coding != Some(stored));
    let warning = header(headers, "warning").unwrap_or_default();
    is_other || warning.trim_start().starts_with("214")
}

/// Whether it is an Azure folder: one of Data Lake, or a marker written by a tool.
fn is_folder(headers: &HeaderMap) -> bool {
    // Proxies replace underscores by other characters.
    [
        ("x-ms-resource-type", "directory"),
        ("x-ms-meta-hdi_isfolder", "true"),
        ("x-ms-meta-hdi-isfolder", "true"),
    ]
    .iter()
    .any(|(name, value)| header(headers, name).is_some_and(|own| own.eq_ignore_ascii_case(value)))
}

/// Checks that a reply with status 206 has the requested part.
pub fn check_part(
    headers: &mut HeaderMap,
    (first, last): RequestRange,
    stores_codings: bool,
) -> Result<(), Refusal> {
    check_coding(headers, stores_codings)?;
    let text = header(headers, "content-range").ok_or(Refusal::NoContentRange)?;
    let unreadable = || Refusal::ContentRange(one_line(text));
    let said = ContentRange::of(text).ok_or_else(unreadable)?;
    if said.size == Some(0) {
        return Err(empty(headers));
    }
    let (from, to) = said.range.ok_or_else(unreadable)?;
    let size = said.size.ok_or_else(|| Refusal::NoSize(one_line(text)))?;
    // A part may be shorter because the object is shorter: the caller knows the old size, and compares it.
    if from != first || to != last.min(size - 1) || from > to {
        return Err(Refusal::OtherPart);
    }
    let asked = to - from + 1;
    match header(headers, "content-length").map(str::parse::<u64>) {
        // A chunked body: the reader counts its bytes.
        None => {}
        Some(Ok(got)) if got == asked => {}
        Some(Ok(got)) => return Err(Refusal::Length { got, asked }),
        Some(Err(_)) => {
            return Err(garbled("the length in the reply's header is not a number"));
        }
    }
    write_part(headers, (from, to), size);
    Ok(())
}

fn write_part(headers: &mut HeaderMap, (from, to): RequestRange, size: u64) {
    headers.insert("content-length", HeaderValue::from(to - from + 1));
    // Digits are valid text.
    if let Ok(range) = HeaderValue::from_str(&format!("bytes {from}-{to}/{size}")) {
        headers.insert("content-range", range);
    }
}

/// Returns how long the server asks the client to wait. The header has seconds or a date; a date is compared with the server's
/// clock, if the reply has its time.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = header(headers, "retry-after")?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = http_date(text)?;
    let now = header(headers, "date").and_then(http_date);
    let now = now.unwrap_or_else(|| SystemTime::now().into());
    Some((until - now).to_std().unwrap_or_default())
}

/// Returns the error of a 416 reply, which has the object's size in `bytes */SIZE`.
pub fn past_end(headers: &HeaderMap) -> Refusal {
    Refusal::PastEnd {
        size: header(headers, "content-range")
            .and_then(ContentRange::of)
            .and_then(|said| said.size),
    }
}

/// Returns the error of an empty object, with the version in the reply.
pub fn empty(headers: &HeaderMap) -> Refusal {
    let modified = header(headers, "last-modified").and_then(http_date);
    Refusal::Empty {
        etag: header(headers, "etag").map(str::to_string),
        modified,
    }
}

/// Takes the requested part out of a reply with status 200 that has the whole object (see the module documentation).
pub async fn part_of_whole(
    mut reply: HttpResponse,
    (first, last): RequestRange,
    stores_codings: bool,
) -> Result<HttpResponse, Refusal> {
    check_coding(reply.headers(), stores_codings)?;
    let len = header(reply.headers(), "content-length").map(|text| text.trim().parse::<u64>());
    let len = len
        .transpose()
        .map_err(|_| garbled("the length in the reply's header is not a number"))?;
    if let Ok(partial) = 206_u16.try_into() {
        *reply.status_mut() = partial;
    }
    if let Some(len) = len.filter(|&len| first == 0 && len > 0 && len - 1 <= last) {
        write_part(reply.headers_mut(), (0, len - 1), len);
        return Ok(reply);
    }
    if len.is_some_and(|len| len > FIRST_BYTES) {
        return Err(Refusal::WholeObject);
    }
    let (mut parts, body) = reply.into_parts();
    let all = collected(body, FIRST_BYTES as usize, || Refusal::WholeObject).await;
    let all = all.map_err(|error| Refusal::of(&error))?;
    let size = all.len() as u64;
    match len {
        Some(len) if len != size => {
            return Err(Refusal::Lost("it ended too early".to_string()));
        }
        _ if size == 0 => return Err(empty(&parts.headers)),
        _ if first >= size => return Err(Refusal::PastEnd { size: Some(size) }),
        _ => {}
    }
    let last = last.min(size - 1);
    write_part(&mut parts.headers, (first, last), size);
    let part = all[first as usize..=last as usize].to_vec();
    Ok(HttpResponse::from_parts(
        parts,
        HttpResponseBody::from(part),
    ))
}

// Between object_store and the network: every reply is checked before it is used.
//
// object_store's own retries and resumption are off, because they would hide errors; its checks run after these. This code
// never passes on an error body, a compressed body, or a reply with another range.
//
// ```text
//   object_store ──request──► check ──► reqwest ──► the server
//                ◄──206 (checked)──┤◄──reply, read here
//                ◄──Refusal ───────┘      everything else (up to 4 KiB of an error's body for its code)
//                ◄──a token, at most 32 MiB; a listing is read here ([`super::page`])
// ```

/// Maximum bytes read of an error's body.
const MAX_ERROR_BODY: usize = 4 << 10;
/// Maximum bytes of a listing's page: 1000 keys of 1 KiB, with every character escaped, fit several times.
const MAX_LIST_BODY: usize = 32 << 20;
/// Time limit for an error's body, after its header has arrived.
const ERROR_BODY_TIME: Duration = Duration::from_secs(2);

/// How a store's replies differ from plain HTTP.
#[derive(Debug)]
pub struct Wire {
    /// The coding belongs to the stored object, and ranges are of the stored bytes.
    pub stores_codings: bool,
    /// The `Accept-Encoding` of requests for a part.
    pub accept_encoding: &'static str,
    /// The headers of versions, if the store numbers them.
    pub generation: Option<Generation>,
    /// Every reply has a version, and object_store refuses a reply without a date.
    pub has_versions: bool,
    /// Requests are signed for one host, and only that host gets them.
    pub is_account: bool,
    /// Parses a page of a listing.
    pub page: fn(&[u8], &PageRequest) -> Result<Page, Refusal>,
}

/// The headers of a store that numbers its versions (generations). foreread converts them from and to `ETag`, `If-Match` and
/// `If-None-Match`.
#[derive(Debug)]
pub struct Generation {
    pub replied: &'static str,
    pub asked: &'static str,
    pub asked_unless: &'static str,
}

impl Generation {
    fn ask(&self, headers: &mut HeaderMap) {
        for (condition, asked) in [
            ("if-match", self.asked),
            ("if-none-match", self.asked_unless),
        ] {
            let etag = headers.remove(condition);
            let etag = etag.as_ref().and_then(|etag| etag.to_str().ok());
            let number = etag.and_then(page::generation_of_etag);
            if let Some(number) = number.and_then(|number| HeaderValue::from_str(number).ok()) {
                headers.insert(asked, number);
            }
        }
    }

    fn settle(&self, headers: &mut HeaderMap) {
        let etag = header(headers, self.replied).map(page::etag_of_generation);
        if let Some(etag) = etag.and_then(|etag| HeaderValue::from_str(&etag).ok()) {
            headers.insert("etag", etag);
        }
    }
}

/// Creates clients that check replies.
#[derive(Clone)]
pub struct Connector {
    /// The header `Authorization` of every request; S3 signs its own requests.
    pub authorization: Option<HeaderValue>,
    /// This client is used whatever a builder requests. A builder requests http for the service of a machine, which it may
    /// query first.
    pub client: HttpClient,
    pub wire: &'static Wire,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connector")
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let redirects = Redirects {
            client: self.client.clone(),
            is_account: self.wire.is_account,
        };
        let authorization = self.authorization.clone();
        Ok(checked(
            HttpClient::new(redirects),
            authorization,
            self.wire,
        ))
    }
}

/// Creates a client whose replies are checked. Each of its requests gets this header `Authorization`, if any.
pub fn checked(
    inner: HttpClient,
    authorization: Option<HeaderValue>,
    wire: &'static Wire,
) -> HttpClient {
    HttpClient::new(ReplyCheck {
        inner,
        authorization,
        wire,
        unpacks: AtomicBool::new(false),
    })
}

struct ReplyCheck {
    inner: HttpClient,
    authorization: Option<HeaderValue>,
    wire: &'static Wire,
    /// The server decompresses stored objects, unless a request prevents it.
    unpacks: AtomicBool,
}

impl std::fmt::Debug for ReplyCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReplyCheck")
    }
}

/// The coding for which a server sends a compressed object as it is stored.
const AS_STORED: &str = "gzip";

impl HttpService for ReplyCheck {
    fn call<'a, 'b>(&'a self, request: HttpRequest) -> Answer<'b>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(self.pass(request))
    }
}

impl ReplyCheck {
    /// The error of a 304. A 304 with another version is not trusted. Some servers send none, and Google's may omit the
    /// generation.
    fn unmodified(&self, asked: Option<&HeaderValue>, replied: &HeaderMap) -> Refusal {
        let has_generations = self.wire.generation.is_some();
        let named = replied.get("etag").filter(|etag| {
            let etag = etag.to_str().unwrap_or_default();
            !has_generations || page::generation_of_etag(etag).is_some()
        });
        match asked {
            Some(asked) if named.is_none_or(|named| named == asked) => Refusal::Unmodified,
            Some(_) => Refusal::Unmet,
            None => garbled("the server answered 304 (Not Modified), but no condition was sent"),
        }
    }

    /// Whether a reply may contain the decompressed object. In a store that keeps codings, a reply without a length is not a
    /// part.
    fn may_be_unpacked(&self, request: &HttpRequest, reply: &HttpResponse) -> bool {
        let takes_stored = header(request.headers(), "accept-encoding") == Some(AS_STORED);
        let headers = reply.headers();
        let is_odd = self.wire.stores_codings
            && request.headers().contains_key("range")
            && reply.status().as_u16() == 200
            && !headers.contains_key("content-length");
        reply.status().is_success() && (is_unpacked(headers) || !takes_stored && is_odd)
    }

    /// Requests the stored bytes, once.
    async fn as_stored(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let stored = HeaderValue::from_static(AS_STORED);
        request.headers_mut().insert("accept-encoding", stored);
        let reply = self.inner.execute(request).await?;
        if is_unpacked(reply.headers()) {
            return Err(refuse(Refusal::Unpacked));
        }
        if reply.headers().contains_key("content-encoding") {
            self.unpacks.store(true, Ordering::Relaxed);
        }
        Ok(reply)
    }

    async fn pass(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let range = header(request.headers(), "range").and_then(parse_range);
        let lists = request.extensions().get::<PageRequest>().cloned();
        let unless = request.headers().get("if-none-match").cloned();
        if let Some(authorization) = &self.authorization {
            request
                .headers_mut()
                .insert("authorization", authorization.clone());
        }
        if range.is_some() {
            // Without this header, any encoding would be allowed.
            request.headers_mut().insert(
                "accept-encoding",
                HeaderValue::from_static(match self.unpacks.load(Ordering::Relaxed) {
                    true => AS_STORED,
                    false => self.wire.accept_encoding,
                }),
            );
        }
        if let Some(generation) = &self.wire.generation {
            generation.ask(request.headers_mut());
        }
        let asked = request.uri().clone();
        let is_get = request.method() == http::Method::GET;
        let again = (is_get && lists.is_none()).then(|| request.clone());
        let mut reply = self.inner.execute(request).await?;
        if let Some(again) = again.filter(|again| self.may_be_unpacked(again, &reply)) {
            reply = self.as_stored(again).await?;
        }
        let status = reply.status().as_u16();
        let stores_codings = self.wire.stores_codings || stored_coding(reply.headers()).is_some();
        if let Some(generation) = &self.wire.generation {
            generation.settle(reply.headers_mut());
        }
        settle_version(reply.headers_mut());
        if (200..300).contains(&status) && is_folder(reply.headers()) {
            return Err(refuse(Refusal::Folder));
        }
        match (status, range, lists) {
            (200..=299, _, Some(wanted)) => return listed(reply, &wanted, self.wire).await,
            (206, Some(range), _) => {
                check_part(reply.headers_mut(), range, stores_codings).map_err(refuse)?
            }
            (200 | 203, Some(range), _) => {
                let part = part_of_whole(reply, range, stores_codings).await;
                reply = part.map_err(refuse)?;
            }
            (204, Some(_), _) => return Err(refuse(empty(reply.headers()))),
            (200..=299, None, _) => return bounded(reply).await,
            (304, ..) => return Err(refuse(self.unmodified(unless.as_ref(), reply.headers()))),
            (412, ..) => return Err(refuse(Refusal::Unmet)),
            (416, ..) => return Err(refuse(past_end(reply.headers()))),
            (300..=399, ..) => return Err(refuse(led_away(&asked, reply).await)),
            _ => return Err(refuse(refused(status, reply).await)),
        }
        if self.wire.has_versions {
            complete_version(reply.headers_mut()).map_err(refuse)?;
        }
        Ok(reply)
    }
}

/// The error of a redirect that is not followed: the region of a bucket, which must be queried there, or another server.
async fn led_away(asked: &http::Uri, reply: HttpResponse) -> Refusal {
    let asked = Url::parse(&asked.to_string()).ok();
    let to = asked.and_then(|asked| client::location(reply.headers(), &asked));
    let status = reply.status().as_u16();
    let refusal = refused(status, reply).await;
    match to {
        Some(to) if refusal.region().is_none() => match client::region_of(&to) {
            Some(region) => Refusal::of_status(status, "", Some(region)),
            None => Refusal::RedirectsTo(client::place(&to)),
        },
        _ => refusal,
    }
}

/// Reads the error in a reply: its status, the error code of S3 or of a hub, the time before a retry, and the region of the bucket.
pub async fn refused(status: u16, reply: HttpResponse) -> Refusal {
    let (parts, body) = reply.into_parts();
    let retry_after = retry_after(&parts.headers);
    let word = |text: &str| {
        text.len() <= 64 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    let region = header(&parts.headers, "x-amz-bucket-region")
        .filter(|text| word(text))
        .map(str::to_string);
    let mut start = Vec::new();
    let mut stream = body.bytes_stream();
    let read = async {
        while let Some(Ok(bytes)) = stream.next().await {
            start.extend_from_slice(&bytes[..bytes.len().min(MAX_ERROR_BODY - start.len())]);
            if start.len() == MAX_ERROR_BODY {
                return;
            }
        }
    };
    // A body that does not arrive has no code.
    let _ = tokio::time::timeout(ERROR_BODY_TIME, read).await;
    let text = String::from_utf8_lossy(&start);
    let between = |start: &str, end: &str| {
        let (_, rest) = text.split_once(start)?;
        rest.split_once(end).map(|(found, _)| found)
    };
    let code = between("<Code>", "</Code>").or(header(&parts.headers, "x-error-code"));
    // KMS.DisabledException
    let code = code
        .filter(|code| word(&code.replace('.', "")))
        .unwrap_or_default()
        .to_string();
    if (300..400).contains(&status) && code.is_empty() && region.is_none() {
        return Refusal::Redirects;
    }
    let message = between("<Message>", "</Message>").filter(|_| !code.is_empty());
    Refusal::Status {
        status,
        message: message_beside(&code, &decoded(message.unwrap_or_default())),
        code,
        retry_after,
        region,
    }
}

/// Unescapes XML text. Invalid escapes are kept.
fn decoded(text: &str) -> Cow<'_, str> {
    quick_xml::escape::unescape(text).unwrap_or(Cow::Borrowed(text))
}

/// Reads a page of a listing. object_store gets an empty page, which it can always parse.
async fn listed(
    reply: HttpResponse,
    wanted: &PageRequest,
    wire: &Wire,
) -> Result<HttpResponse, HttpError> {
    let (mut parts, body) = reply.into_parts();
    let page = (wire.page)(&whole(body).await?, wanted).map_err(refuse)?;
    parts.extensions.insert(page);
    Ok(HttpResponse::from_parts(
        parts,
        HttpResponseBody::from(b"<ListBucketResult/>".to_vec()),
    ))
}

/// A token, or an object that cannot be requested in parts: complete, and limited in size.
async fn bounded(reply: HttpResponse) -> Result<HttpResponse, HttpError> {
    let (mut parts, body) = reply.into_parts();
    let all = whole(body).await?;
    // A chunked reply or a 204 has no length.
    parts
        .headers
        .insert("content-length", HeaderValue::from(all.len()));
    Ok(HttpResponse::from_parts(parts, HttpResponseBody::from(all)))
}

pub async fn whole(body: HttpResponseBody) -> Result<Vec<u8>, HttpError> {
    let too_long = || garbled(format!("the reply is longer than {MAX_LIST_BODY} bytes"));
    collected(body, MAX_LIST_BODY, too_long).await
}

/// All bytes of a body. If there are more than `most`, the body is refused.
async fn collected(
    body: HttpResponseBody,
    most: usize,
    too_long: fn() -> Refusal,
) -> Result<Vec<u8>, HttpError> {
    let mut all = Vec::new();
    let mut stream = body.bytes_stream();
    while let Some(bytes) = stream.next().await {
        let bytes = bytes?;
        if all.len() + bytes.len() > most {
            return Err(refuse(too_long()));
        }
        all.extend_from_slice(&bytes);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .fold(HeaderMap::new(), |mut headers, (name, value)| {
                headers.insert(*name, HeaderValue::from_static(value));
                headers
            })
    }

    #[test]
    fn conditions_of_a_store_with_generations_are_numbers() {
        let generation = Generation {
            replied: "x-goog-generation",
            asked: "x-goog-if-generation-match",
            asked_unless: "x-goog-if-generation-not-match",
        };
        for (condition, asked) in [
            ("if-match", "x-goog-if-generation-match"),
            ("if-none-match", "x-goog-if-generation-not-match"),
        ] {
            let mut headers = headers(&[(condition, "\"generation-17\"")]);
            generation.ask(&mut headers);
            assert_eq!(header(&headers, asked), Some("17"));
            assert_eq!(headers.len(), 1, "{condition} is not sent");
        }
    }

    #[test]
    fn a_range_is_read_in_any_writing_and_written_in_one() {
        let part = |text: &str, etag: &str, asked| {
            let mut headers = HeaderMap::new();
            for (name, value) in [("content-range", text), ("etag", etag)] {
                headers.insert(name, HeaderValue::from_str(value).expect(value));
            }
            settle_version(&mut headers);
            check_part(&mut headers, asked, false).map(|()| headers)
        };
        for text in
            "bytes 2-5/10|Bytes 2-5/10|bytes=2-5/10|bytes  2-5/10|BYTES: 2 - 5 / 10|\tbytes\t2-5/10"
                .split('|')
        {
            let headers = part(text, "", (2, 5)).expect(text);
            assert_eq!(header(&headers, "content-range"), Some("bytes 2-5/10"));
            let length = header(&headers, "content-length");
            assert_eq!(length, Some("4"), "in chunks there is none");
        }
        for text in ["bytes 0-0/0", "bytes */0", "bytes 0--1/0"] {
            let (etag, modified) = (Some("\"e\"".to_string()), None);
            let refused = part(text, "\"e\"", (0, 9));
            assert_eq!(refused, Err(Refusal::Empty { etag, modified }), "{text}");
        }
        let sizeless = part("bytes 2-5/*", "\"e\"", (2, 5));
        let refused = Err(Refusal::NoSize("bytes 2-5/*".to_string()));
        assert_eq!(sizeless, refused);
        for text in "bytes */10|items 2-5/10|2-5/10|bytes 2-5|bytes x-5/10|bytes 2-5/x".split('|') {
            let refused = Err(Refusal::ContentRange(text.to_string()));
            assert_eq!(part(text, "", (2, 5)), refused);
        }
        for text in "bytes 1-5/10|bytes 2-6/10|bytes 2-5/4|bytes 5-2/10".split('|') {
            assert_eq!(part(text, "", (2, 5)), Err(Refusal::OtherPart), "{text}");
        }
        assert_eq!(
            check_part(&mut headers(&[]), (2, 5), false),
            Err(Refusal::NoContentRange)
        );
    }

    #[test]
    fn a_coding_counts_over_http_and_not_on_s3() {
        let plain = [
            "",
            "identity",
            "AWS-Chunked",
            "aws-chunked, identity",
            "utf-8",
        ];
        let coded = ["gzip", "aws-chunked,gzip", "br"];
        for coding in plain.into_iter().chain(coded) {
            let is_plain = plain.contains(&coding);
            let headers = headers(&[("content-encoding", coding)]);
            assert_eq!(check_coding(&headers, false).is_ok(), is_plain, "{coding}");
            assert_eq!(check_coding(&headers, true), Ok(()), "{coding}");
        }
    }

    #[test]
    fn a_time_to_come_back_is_seconds_or_a_date() {
        let date = ("date", "Fri, 02 Jan 2026 03:04:05 GMT");
        for (after, seconds) in [
            (" 8 ", Some(8)),
            ("Fri, 02 Jan 2026 03:04:25 GMT", Some(20)),
            ("Fri, 02 Jan 2026 03:04:00 GMT", Some(0)),
            ("soon", None),
        ] {
            let found = retry_after(&headers(&[("retry-after", after), date]));
            assert_eq!(found, seconds.map(Duration::from_secs), "{after}");
        }
        let ours = retry_after(&headers(&[(
            "retry-after",
            "Fri, 02 Jan 1970 03:04:00 GMT",
        )]));
        assert_eq!(ours, Some(Duration::ZERO), "by our clock");
        assert_eq!(retry_after(&headers(&[])), None);
    }
}
