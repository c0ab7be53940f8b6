//! The gate between object_store and the wire: every reply is checked before it is used.
//!
//! object_store's own retries and resumption are off, since they would hide what happens; its checks come after these.
//! Never: passes on an error body, a compressed body, or a reply to another range.
//!
//! ```text
//!   object_store ──request──► gate ──► reqwest ──► the server
//!                ◄──206, as asked──┤◄──reply, read by `reply.rs`
//!                ◄──Refusal ───────┘      everything else (up to 4 KiB of an error's body for its code)
//!                ◄──a token, at most 32 MiB; a listing is read here ([`super::page`])
//! ```

use super::network::{self, Client};
use super::page::{Page, Wanted};
use super::refusal::Refusal;
use super::reply::{self, header};
use futures_util::StreamExt;
use object_store::HeaderValue;
use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService, ReqwestConnector,
};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// Most of an error's body that is read.
const MAX_ERROR_BODY: usize = 4 << 10;
/// Longest page of a listing: 1000 keys of 1 KiB, every character escaped, fit several times.
const MAX_LIST_BODY: usize = 32 << 20;
/// For an error's body, once its head has come.
const ERROR_BODY_TIME: Duration = Duration::from_secs(2);

/// Makes clients with the gate in front. See the head of this file.
#[derive(Clone)]
pub struct Connector {
    /// The header `Authorization` of every request; S3 signs its own.
    pub authorization: Option<HeaderValue>,
    /// Which connections it shares.
    pub client: Client,
    pub is_s3: bool,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connector")
    }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let inner =
            network::hold().client(self.client, || ReqwestConnector::default().connect(options))?;
        Ok(HttpClient::new(Gate {
            inner,
            authorization: self.authorization.clone(),
            is_s3: self.is_s3,
        }))
    }
}

struct Gate {
    inner: HttpClient,
    authorization: Option<HeaderValue>,
    is_s3: bool,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gate")
    }
}

type Answer<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

impl HttpService for Gate {
    fn call<'a, 'b>(&'a self, request: HttpRequest) -> Answer<'b>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(self.pass(request))
    }
}

impl Gate {
    async fn pass(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let range = header(request.headers(), "range").and_then(reply::parse_range);
        let lists = request.extensions().get::<Wanted>().cloned();
        if let Some(authorization) = &self.authorization {
            request
                .headers_mut()
                .insert("authorization", authorization.clone());
        }
        if range.is_some() {
            // Where nothing is said, any encoding would be allowed.
            request
                .headers_mut()
                .insert("accept-encoding", HeaderValue::from_static("identity"));
        }
        let mut reply = self.inner.execute(request).await?;
        let status = reply.status().as_u16();
        reply::settle_version(reply.headers_mut());
        match (status, range, lists) {
            (200..=299, _, Some(wanted)) => return listed(reply, &wanted).await,
            (206, Some(range), _) => {
                reply::check_part(reply.headers_mut(), range, self.is_s3).map_err(refuse)?
            }
            (200 | 203, Some(range), _) => {
                return reply::part_of_whole(reply, range, self.is_s3)
                    .await
                    .map_err(refuse);
            }
            (204, Some(_), _) => return Err(refuse(reply::empty(reply.headers()))),
            (200..=299, None, _) => return bounded(reply).await,
            (412, ..) => return Err(refuse(Refusal::Unmet)),
            (416, ..) => return Err(refuse(reply::past_end(reply.headers()))),
            _ => return Err(refuse(refused(status, reply).await)),
        }
        Ok(reply)
    }
}

/// Retried by this file alone.
fn refuse(refusal: Refusal) -> HttpError {
    HttpError::new(HttpErrorKind::Decode, refusal)
}

/// What an error says: its status, S3's word for it, when to come back, and which region the bucket is in.
async fn refused(status: u16, reply: HttpResponse) -> Refusal {
    let (parts, body) = reply.into_parts();
    let retry_after = reply::retry_after(&parts.headers);
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
    // A body that does not come has no code.
    let _ = tokio::time::timeout(ERROR_BODY_TIME, read).await;
    let text = String::from_utf8_lossy(&start);
    let code = text
        .split_once("<Code>")
        .and_then(|(_, rest)| rest.split_once("</Code>"))
        .map(|(code, _)| code);
    let code = code
        .filter(|code| word(code))
        .unwrap_or_default()
        .to_string();
    if (300..400).contains(&status) && code.is_empty() && region.is_none() {
        return Refusal::Redirects;
    }
    Refusal::Status {
        status,
        code,
        retry_after,
        region,
    }
}

/// A page of a listing, read; object_store is given an empty one, which it cannot stumble over.
async fn listed(reply: HttpResponse, wanted: &Wanted) -> Result<HttpResponse, HttpError> {
    let (mut parts, body) = reply.into_parts();
    let page = Page::parse(&whole(body).await?, wanted).map_err(refuse)?;
    parts.extensions.insert(page);
    Ok(HttpResponse::from_parts(
        parts,
        HttpResponseBody::from(b"<ListBucketResult/>".to_vec()),
    ))
}

/// A token, or an object of which no part can be asked for, whole and in bounds.
async fn bounded(reply: HttpResponse) -> Result<HttpResponse, HttpError> {
    let (mut parts, body) = reply.into_parts();
    let all = whole(body).await?;
    // In chunks, or with a 204, there is no length.
    parts
        .headers
        .insert("content-length", HeaderValue::from(all.len()));
    Ok(HttpResponse::from_parts(parts, HttpResponseBody::from(all)))
}

async fn whole(body: HttpResponseBody) -> Result<Vec<u8>, HttpError> {
    let mut all = Vec::new();
    let mut stream = body.bytes_stream();
    while let Some(bytes) = stream.next().await {
        let bytes = bytes?;
        if all.len() + bytes.len() > MAX_LIST_BODY {
            return Err(refuse(Refusal::Garbled(format!(
                "it is longer than {MAX_LIST_BODY} bytes"
            ))));
        }
        all.extend_from_slice(&bytes);
    }
    Ok(all)
}
