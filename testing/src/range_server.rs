//! An HTTP server for one object: ranges, ETags and conditions.
//!
//! ```text
//!   GET /object ──► 206, 200, 404, 412, 416
//!                     ▲ the object: a source, its ETag, its date
//!                     │
//!                  replace: another object under the same name
//! ```

use super::http_server::{HttpServer, ServedAnswer, ServedRequest, lock};
use foreread::source::Source;
use std::io::{self, IoSliceMut};
use std::ops::{Deref, Range};
use std::sync::{Arc, Mutex};

#[derive(Clone)]
struct Object {
    source: Arc<dyn Source>,
    etag: Option<String>,
    date: Option<String>,
}

pub struct RangeServer {
    server: HttpServer,
    object: Arc<Mutex<Object>>,
}

impl RangeServer {
    /// Serves `source` as `/object` with its own ETag.
    pub fn start(source: impl Source + 'static) -> io::Result<RangeServer> {
        let object = Arc::new(Mutex::new(Object {
            source: Arc::new(source),
            etag: Some("\"one\"".to_string()),
            date: None,
        }));
        let own = Arc::clone(&object);
        let server = HttpServer::start(move |seen, _| {
            let object = lock(&own).clone();
            answer(seen, &object)
        })?;
        Ok(RangeServer { server, object })
    }

    /// The object's URL.
    pub fn url(&self) -> String {
        format!("http://{}/object", self.address())
    }

    /// Another object under the same name. `etag` with its quotation marks; `date` as in `Last-Modified`.
    pub fn replace(&self, source: impl Source + 'static, etag: Option<&str>, date: Option<&str>) {
        *lock(&self.object) = Object {
            source: Arc::new(source),
            etag: etag.map(str::to_string),
            date: date.map(str::to_string),
        };
    }
}

impl Deref for RangeServer {
    type Target = HttpServer;

    fn deref(&self) -> &HttpServer {
        &self.server
    }
}

pub(super) fn read(source: &dyn Source, range: Range<u64>) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    source
        .read_at(&mut [IoSliceMut::new(&mut bytes)], range.start)
        .map_err(io::Error::other)?;
    Ok(bytes)
}

fn answer(seen: &ServedRequest, object: &Object) -> io::Result<ServedAnswer> {
    if !seen.target.starts_with("/object") {
        return Ok(ServedAnswer::new(404, ""));
    }
    let (etag, date) = (object.etag.as_deref(), object.date.as_deref());
    let is_other_tag = |asked: &str| Some(asked) != etag || asked.starts_with("W/");
    let is_later = |asked: &str| date.is_some_and(|own| own != asked);
    if seen.header("if-match").is_some_and(is_other_tag)
        || seen.header("if-unmodified-since").is_some_and(is_later)
    {
        return Ok(ServedAnswer::new(412, ""));
    }
    let mut answer = ServedAnswer::new(200, "");
    answer.set("ETag", etag.unwrap_or_default());
    answer.set("Last-Modified", date.unwrap_or_default());
    let source = &*object.source;
    answer.part(seen, source.size(), |range| read(source, range))
}
