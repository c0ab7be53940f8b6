//! One page of a listing (`ListObjectsV2`), read from XML: which of its keys can be files and folders of a tree.
//!
//! S3 allows keys that no file can be called by: an empty part (`dir//c`), `.` and `..`, control characters, parts of more
//! than 255 bytes. They are set apart here, so that one of them does not make a folder unreadable. object_store, which signs
//! and sends the request, refuses the whole page for one such key, so the gate ([`super::gate`]) reads the page in its
//! place and hands it an empty one.
//!
//! ```text
//!   Contents        dir/c, dir/d    ──► objects, with size, date and ETag
//!                   dir//c, dir/..  ──► odd
//!                   dir/            ──► nothing: the marker of the folder itself
//!   CommonPrefixes  dir/sub/        ──► folders
//! ```
//!
//! Source: Amazon S3 API reference, ListObjectsV2, response elements.

use super::refusal::{Refusal, one_line};
use object_store::ObjectMeta;
use object_store::path::Path;
use quick_xml::Reader;
use quick_xml::events::Event;

/// Longest part of a path, in bytes: NAME_MAX of Linux.
const MAX_NAME_BYTES: usize = 255;
/// Levels of elements that matter: `ListBucketResult`, `Contents`, `Key`.
const LEVELS: usize = 3;

/// Marks a request whose answer is a page.
#[derive(Clone)]
pub struct Wanted;

/// See the head of this file.
#[derive(Clone, Debug, Default)]
pub struct Page {
    pub objects: Vec<ObjectMeta>,
    /// Without the `/` at their ends.
    pub folders: Vec<String>,
    /// Keys, and beginnings of keys, that no file can be called by.
    pub odd: Vec<String>,
    /// Something is on it, and be it the marker of the folder.
    pub any: bool,
    /// Of the page behind this one.
    pub token: Option<String>,
}

/// One `Contents`, as far as it has come.
#[derive(Default)]
struct Object {
    key: String,
    size: String,
    modified: String,
    etag: Option<String>,
}

impl Page {
    /// # Errors
    /// It is no such page.
    pub fn parse(body: &[u8]) -> Result<Page, Refusal> {
        let garbled = |why: String| Refusal::Garbled(format!("the listing cannot be read: {}", one_line(&why)));
        let mut reader = Reader::from_reader(body);
        let (mut page, mut object) = (Page::default(), Object::default());
        let (mut path, mut depth, mut text) = (Vec::new(), 0_usize, String::new());
        loop {
            match reader.read_event().map_err(|error| garbled(error.to_string()))? {
                Event::Start(start) => {
                    if depth < LEVELS {
                        path.push(String::from_utf8_lossy(start.local_name().as_ref()).into_owned());
                    }
                    depth += 1;
                    text.clear();
                }
                Event::Text(part) => text.push_str(&part.decode().map_err(|error| garbled(error.to_string()))?),
                Event::CData(part) => text.push_str(&part.decode().map_err(|error| garbled(error.to_string()))?),
                Event::GeneralRef(entity) => {
                    let number = entity.resolve_char_ref().map_err(|error| garbled(error.to_string()))?;
                    let name = entity.decode().map_err(|error| garbled(error.to_string()))?;
                    let letter = number.or_else(|| named(&name));
                    text.push(letter.ok_or_else(|| garbled(format!("there is no entity {name}")))?);
                }
                Event::End(_) => {
                    if depth <= LEVELS {
                        let names: Vec<&str> = path.iter().map(String::as_str).collect();
                        page.take(&names, &mut object, &mut text).map_err(garbled)?;
                        path.pop();
                    }
                    depth = depth.saturating_sub(1);
                }
                Event::Eof if depth == 0 => return Ok(page),
                Event::Eof => return Err(garbled("it ends too early".to_string())),
                _ => {}
            }
        }
    }

    /// An element has ended.
    fn take(&mut self, path: &[&str], object: &mut Object, text: &mut String) -> Result<(), String> {
        match path {
            [_, "Contents", "Key"] => object.key = std::mem::take(text),
            [_, "Contents", "Size"] => object.size = std::mem::take(text),
            [_, "Contents", "LastModified"] => object.modified = std::mem::take(text),
            [_, "Contents", "ETag"] => object.etag = Some(std::mem::take(text)),
            [_, "Contents"] => self.object(std::mem::take(object))?,
            [_, "CommonPrefixes", "Prefix"] => self.folder(text),
            [_, "NextContinuationToken"] => self.token = Some(std::mem::take(text)),
            _ => {}
        }
        Ok(())
    }

    fn object(&mut self, object: Object) -> Result<(), String> {
        self.any = true;
        if object.key.ends_with('/') {
            return Ok(());
        }
        let Some(location) = plain(&object.key) else {
            self.odd.push(object.key);
            return Ok(());
        };
        let no = |what: &str, value: &str| format!("{what} of {}: {value}", object.key);
        let size = object.size.trim().parse().map_err(|_| no("the size", &object.size))?;
        let last_modified = object.modified.trim().parse().map_err(|_| no("the date", &object.modified))?;
        self.objects.push(ObjectMeta { location, last_modified, size, e_tag: object.etag, version: None });
        Ok(())
    }

    fn folder(&mut self, prefix: &str) {
        self.any = true;
        let name = prefix.strip_suffix('/').unwrap_or(prefix);
        match plain(name) {
            Some(_) => self.folders.push(name.to_string()),
            None => self.odd.push(prefix.to_string()),
        }
    }
}

/// The entities that XML has by itself.
fn named(name: &str) -> Option<char> {
    match name {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => None,
    }
}

/// A key whose parts can all be names of files.
pub fn plain(key: &str) -> Option<Path> {
    let fits = !key.is_empty() && key.split('/').all(|part| part.len() <= MAX_NAME_BYTES);
    // It strips a `/` at either end, which makes it another key.
    Path::parse(key).ok().filter(|path| fits && path.as_ref() == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(inside: &str) -> String {
        format!("<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"x\"><Name>b</Name>{inside}</ListBucketResult>")
    }

    fn object(key: &str) -> String {
        let rest = "<LastModified>2026-01-02T03:04:05.000Z</LastModified><ETag>&quot;e&quot;</ETag><Size>7</Size>";
        format!("<Contents><Key>{key}</Key>{rest}<StorageClass>S</StorageClass></Contents>")
    }

    #[test]
    fn keys_are_exact_and_odd_ones_are_set_apart() {
        let keys = [" a ", "d/&amp;&#x26;&lt;", "d/<![CDATA[<c>]]>", "d//c", "d/..", "d/a&#x9;b", "d/a\nb", "/x", "d/"];
        let long = format!("d/{}", "n".repeat(256));
        let prefixes =
            ["d/sub/", "d//", "/", "&#x1;/"].map(|p| format!("<CommonPrefixes><Prefix>{p}</Prefix></CommonPrefixes>"));
        let text = keys.map(object).concat() + &object(&long) + &prefixes.concat();
        let page = Page::parse(body(&(text + "<NextContinuationToken>t&#61;</NextContinuationToken>")).as_bytes());
        let page = page.expect("a page");
        let found: Vec<&str> = page.objects.iter().map(|object| object.location.as_ref()).collect();
        assert_eq!(found, [" a ", "d/&&<", "d/<c>"]);
        assert_eq!((page.objects[0].size, page.objects[0].e_tag.as_deref()), (7, Some("\"e\"")));
        assert_eq!(page.objects[0].last_modified.timestamp(), 1_767_323_045);
        assert_eq!((&page.folders[..], page.token.as_deref()), (&["d/sub".to_string()][..], Some("t=")));
        assert_eq!(page.odd, ["d//c", "d/..", "d/a\tb", "d/a\nb", "/x", &long, "d//", "/", "\u{1}/"]);
    }

    #[test]
    fn what_is_no_page_is_an_error() {
        let bad_size = body(&object("a").replace("<Size>7", "<Size>seven"));
        for text in ["<a>", "<a></b>", "<a>&no;</a>", "<a>&#0;</a>", &bad_size, "<a", &"<a>".repeat(100_000)] {
            let error = Page::parse(text.as_bytes()).expect_err("no page").to_string();
            assert!(error.contains("the listing cannot be read") && error.len() < 300, "{error}");
        }
        assert!(!Page::parse(b"").expect("nothing").any);
    }
}
