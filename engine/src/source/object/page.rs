//! Parses a page of a listing (`ListObjectsV2`) from XML: keys that can be files and folders of a tree, and the next page.
//!
//! S3 allows keys that are not valid file names: an empty part (`dir//c`), `.` and `..`, control characters, parts of more than 255
//! bytes. This module separates the invalid keys, so that one invalid key does not make a folder unreadable. The library object_store,
//! which signs and sends the request, would refuse a whole page because of one such key. So object_store never gets the pages of a
//! listing: the check of replies ([`super::reply`]) reads each page, and passes an empty page to object_store. A reply that is not a page
//! of a listing, or that has fewer entries than it states, is refused: missing names would look like deleted files.
//!
//! ```text
//!   Contents        dir/c, dir/d    ──► objects, with size, date and ETag
//!                   dir/e/f         ──► a folder: the server ignores the delimiter
//!                   dir//c, dir/..  ──► odd
//!                   dir/            ──► nothing: the marker of the folder itself
//!   CommonPrefixes  dir/sub/        ──► folders
//!   IsTruncated     false           ──► the end, even if there is a token
//!                   true            ──► the token, else NextMarker, else the last key
//! ```
//!
//! Source: Amazon S3 API reference, ListObjects and ListObjectsV2, response elements.

pub mod xml;

use super::refusal::{Refusal, one_line};
use chrono::{DateTime, NaiveDateTime, Utc};
use object_store::ObjectMeta;
use object_store::path::Path;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::SystemTime;

/// Maximum keys and prefixes of one page; S3 sends at most 1000. A whole page is in memory, and is not counted as names.
const MAX_PAGE_KEYS: usize = 10_000;

/// Maximum bytes of a part of a path: NAME_MAX of Linux.
const MAX_NAME_BYTES: usize = 255;
/// Maximum bytes of an ETag; those of S3 have 40. A longer one counts as absent, because no request could contain it.
const MAX_ETAG_BYTES: usize = 1 << 10;
/// Maximum characters of an odd key in a warning.
const MAX_SHOWN: usize = 100;

/// Marks a request whose reply is a page of a listing.
#[derive(Clone)]
pub struct PageRequest {
    pub prefix: String,
    /// Maximum keys on the page.
    pub most: usize,
    /// Where it begins.
    pub next: NextPage,
}

#[derive(Clone, Debug, Default)]
pub struct Page {
    pub objects: Vec<ObjectMeta>,
    /// Folders, without the `/` at their ends.
    pub folders: Vec<String>,
    /// Keys, and prefixes of keys, that are not valid file names.
    pub odd: Vec<OddKey>,
    /// There is something on the page, even if it is only the marker of the folder.
    pub any: bool,
    /// The requested key, without a `/` at its end, marks a folder (Azure).
    pub marks_folder: bool,
    pub next: NextPage,
    /// The first key or prefix on the page.
    pub first: Option<String>,
}

/// A key that is not a valid file name. The key may be long, so only its beginning and its hash are kept; the hash distinguishes the key
/// from other keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OddKey {
    pub hash: u64,
    pub shown: String,
}

/// The position at which the listing continues after a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NextPage {
    #[default]
    End,
    Token(String),
    /// Begin after this key.
    After(String),
}

/// An object on a page of a listing, as the store describes it.
#[derive(Debug, Default)]
pub struct ListedObject {
    pub key: String,
    pub size: String,
    pub modified: String,
    pub etag: Option<String>,
    /// Google's version number.
    pub generation: Option<String>,
    /// It is not a file, but marks a folder.
    pub is_folder: bool,
}

/// The content of a page, before its keys are parsed.
#[derive(Debug, Default)]
pub struct PageText {
    pub objects: Vec<ListedObject>,
    /// Prefixes of keys, with a `/` at their ends.
    pub prefixes: Vec<String>,
    pub is_truncated: Option<bool>,
    pub token: String,
    pub marker: String,
    /// The number of objects and prefixes, as the server reports it.
    pub count: Option<usize>,
    /// The page has more than [`MAX_PAGE_KEYS`].
    is_too_long: bool,
}

impl PageText {
    fn is_full(&self) -> bool {
        self.objects.len() + self.prefixes.len() >= MAX_PAGE_KEYS
    }

    pub fn push(&mut self, object: ListedObject) {
        if self.is_full() {
            self.is_too_long = true;
        } else {
            self.objects.push(object);
        }
    }

    pub fn push_prefix(&mut self, prefix: String) {
        if self.is_full() {
            self.is_too_long = true;
        } else {
            self.prefixes.push(prefix);
        }
    }

    /// Handles the end of an element on a page of S3.
    fn take(&mut self, path: &[&str], entry: &mut ListedObject, text: &mut String) {
        match path {
            [_, "Contents", "Key"] => entry.key = std::mem::take(text),
            [_, "Contents", "Size"] => entry.size = std::mem::take(text),
            [_, "Contents", "LastModified"] => entry.modified = std::mem::take(text),
            [_, "Contents", "ETag"] => entry.etag = Some(std::mem::take(text)),
            [_, "Contents", "Generation"] => entry.generation = Some(std::mem::take(text)),
            [_, "Contents"] => self.push(std::mem::take(entry)),
            [_, "CommonPrefixes", "Prefix"] => self.push_prefix(std::mem::take(text)),
            [_, "NextContinuationToken"] => self.token = std::mem::take(text),
            [_, "NextMarker"] => self.marker = std::mem::take(text),
            [_, "IsTruncated"] => self.is_truncated = text.trim().to_ascii_lowercase().parse().ok(),
            [_, "KeyCount"] => self.count = text.trim().parse().ok(),
            _ => {}
        }
    }

    /// Fails if more pages follow and the page does not say where they begin.
    fn next(&self, most: usize) -> Result<NextPage, Refusal> {
        let count = self.objects.len() + self.prefixes.len();
        let is_full = self
            .is_truncated
            .unwrap_or(!self.token.is_empty() || count >= most);
        if !is_full {
            return Ok(NextPage::End);
        }
        if !self.token.is_empty() {
            return Ok(NextPage::Token(self.token.clone()));
        }
        let folder = self.prefixes.iter().max();
        let last = self
            .objects
            .iter()
            .map(|entry| &entry.key)
            .chain(folder)
            .max();
        let marker = Some(&self.marker).filter(|marker| !marker.is_empty());
        let Some(last) = marker.or(last) else {
            let why = "IsTruncated is true, with neither a token nor a key to continue from";
            return Err(Refusal::Endless(why.to_string()));
        };
        // The content of a folder sorts after the folder's name.
        let behind = if Some(last) == folder {
            char::MAX.to_string()
        } else {
            String::new()
        };
        Ok(NextPage::After(last.clone() + &behind))
    }
}

impl NextPage {
    pub fn token(&self) -> Option<&str> {
        match self {
            NextPage::Token(token) => Some(token),
            NextPage::End | NextPage::After(_) => None,
        }
    }

    pub fn after(&self) -> Option<&str> {
        match self {
            NextPage::After(key) => Some(key),
            NextPage::End | NextPage::Token(_) => None,
        }
    }
}

/// Parses a page in S3's format. Generations are ignored: over the S3 protocol, Google's server reports them in listings, but not in
/// replies to reads. Fails if the body is not a page in this format, or is incomplete.
pub fn of_s3(body: &[u8], wanted: &PageRequest) -> Result<Page, Refusal> {
    let mut said = text_of(body)?;
    for object in &mut said.objects {
        object.generation = None;
    }
    Page::of(said, wanted)
}

/// Like [`of_s3`], but for a store whose versions are numbers (generations).
/// Fails if the body is not a page in this format, or is incomplete.
pub fn of_google(body: &[u8], wanted: &PageRequest) -> Result<Page, Refusal> {
    Page::of(text_of(body)?, wanted)
}

fn text_of(body: &[u8]) -> Result<PageText, Refusal> {
    let (mut said, mut entry) = (PageText::default(), ListedObject::default());
    xml::read("ListBucketResult", body, |path, text| {
        said.take(path, &mut entry, text);
    })?;
    Ok(said)
}

impl Page {
    /// Fails if the content of the page is inconsistent.
    pub fn of(said: PageText, wanted: &PageRequest) -> Result<Page, Refusal> {
        if said.is_too_long {
            return Err(Refusal::Garbled(format!(
                "a page of the listing has more than {MAX_PAGE_KEYS} keys"
            )));
        }
        let next = said.next(wanted.most)?;
        let count = said.objects.len() + said.prefixes.len();
        if let Some(more) = said.count.filter(|&more| more > count) {
            return Err(Refusal::Garbled(format!(
                "the listing reports {more} keys, but has {count}"
            )));
        }
        let keys = said
            .objects
            .iter()
            .map(|entry| &entry.key)
            .chain(&said.prefixes);
        let first = keys.min().cloned();
        let mut page = Page {
            next,
            first,
            ..Page::default()
        };
        for entry in said.objects {
            page.entry(entry, &wanted.prefix)?;
        }
        for prefix in said.prefixes {
            page.folder(&prefix, &wanted.prefix);
        }
        if let Some(other) = page.first.as_deref().filter(|_| !page.any) {
            let (other, wanted) = (one_line(other), one_line(&wanted.prefix));
            return Err(Refusal::Garbled(format!(
                "the listing of \"{wanted}\" has a key outside this prefix: \"{other}\""
            )));
        }
        Ok(page)
    }

    fn entry(&mut self, entry: ListedObject, wanted: &str) -> Result<(), Refusal> {
        let Some(rest) = entry.key.strip_prefix(wanted) else {
            return Ok(());
        };
        self.any = true;
        if rest.is_empty() && wanted.ends_with('/') {
            return Ok(());
        }
        let folder = rest
            .split_once('/')
            .map(|(part, _)| part)
            .filter(|part| !part.is_empty());
        let folder = folder
            .map(|part| format!("{wanted}{part}"))
            .filter(|folder| plain(folder).is_some());
        if let Some(folder) = folder {
            self.folder(&folder, wanted);
            return Ok(());
        }
        if entry.is_folder {
            self.marks_folder |= rest.is_empty();
            self.folder(&entry.key, wanted);
            return Ok(());
        }
        let Some(location) = plain(&entry.key) else {
            self.odd.push(OddKey::of(&entry.key));
            return Ok(());
        };
        let size = entry.size.trim().parse().map_err(|_| {
            let (key, size) = (one_line(&entry.key), one_line(&entry.size));
            Refusal::Garbled(format!(
                "the listing cannot be read: the size of {key} is not a number: {size}"
            ))
        })?;
        let generation = entry.generation.as_deref().map(etag_of_generation);
        let e_tag = generation
            .or(entry.etag)
            .filter(|etag| !etag.trim_matches('"').is_empty() && etag.len() <= MAX_ETAG_BYTES);
        let last_modified = SystemTime::UNIX_EPOCH.into();
        let object = ObjectMeta {
            location,
            last_modified,
            size,
            e_tag,
            version: None,
        };
        self.objects.push(dated(object, entry.modified.trim()));
        Ok(())
    }

    fn folder(&mut self, prefix: &str, wanted: &str) {
        // Skip the requested folder itself: a server that ignores prefixes lists it.
        if !prefix.starts_with(wanted) || prefix.len() == wanted.len() {
            return;
        }
        self.any = true;
        let name = prefix.strip_suffix('/').unwrap_or(prefix);
        match plain(name) {
            Some(_) if self.folders.last().is_some_and(|last| last == name) => {}
            Some(_) => self.folders.push(name.to_string()),
            None => self.odd.push(OddKey::of(prefix)),
        }
    }
}

impl OddKey {
    pub fn of(key: &str) -> OddKey {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        OddKey {
            hash: hasher.finish(),
            shown: key
                .chars()
                .take(MAX_SHOWN)
                .flat_map(char::escape_default)
                .collect(),
        }
    }
}

/// The last second of the year 9999: RFC 2822 has four digits for a year.
const LAST_SECOND: i64 = 253_402_300_799;

/// Parses a date in one of the three forms of RFC 9110, 5.6.7, from 1970 to 9999.
pub fn http_date(text: &str) -> Option<DateTime<Utc>> {
    let text = text.trim();
    let imf = DateTime::parse_from_rfc2822(text).ok();
    let older = || {
        ["%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"]
            .into_iter()
            .find_map(|form| NaiveDateTime::parse_from_str(text, form).ok())
    };
    let date = imf.map(|date| date.naive_utc()).or_else(older)?.and_utc();
    (0..=LAST_SECOND)
        .contains(&date.timestamp())
        .then_some(date)
}

/// Adds the date of a listed object, if the listing has a readable one.
fn dated(mut object: ObjectMeta, text: &str) -> ObjectMeta {
    let iso = [text, &format!("{text}Z")];
    let iso = iso.into_iter().find_map(|text| text.parse().ok());
    if let Some(date) = iso.or_else(|| http_date(text)) {
        object.last_modified = date;
    }
    object
}

/// Converts the number of a version (generation) to an ETag, for stores that number their versions.
pub fn etag_of_generation(generation: &str) -> String {
    format!("\"generation-{generation}\"")
}

/// Returns the generation from which [`etag_of_generation`] made this ETag.
pub fn generation_of_etag(etag: &str) -> Option<&str> {
    etag.trim_matches('"').strip_prefix("generation-")
}

/// Returns the path of a key, if all its parts are valid file names.
pub fn plain(key: &str) -> Option<Path> {
    let fits = !key.is_empty() && key.split('/').all(|part| part.len() <= MAX_NAME_BYTES);
    // `Path::parse` removes a `/` at either end, which makes another key.
    Path::parse(key)
        .ok()
        .filter(|path| fits && path.as_ref() == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> PageRequest {
        PageRequest {
            prefix: "d/".to_string(),
            most: 1000,
            next: NextPage::End,
        }
    }

    fn parse(inside: &str) -> Result<Page, Refusal> {
        let head = "<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"x\"><Name>b</Name>";
        of_s3(
            format!("{head}{inside}</ListBucketResult>").as_bytes(),
            &wanted(),
        )
    }

    fn object(key: &str) -> String {
        let rest = "<LastModified>2026-01-02T03:04:05.000Z</LastModified><ETag>&quot;e&quot;</ETag><Size>7</Size>";
        format!("<Contents><Key>{key}</Key>{rest}<StorageClass>S</StorageClass></Contents>")
    }

    fn folder(prefix: &str) -> String {
        format!("<CommonPrefixes><Prefix>{prefix}</Prefix></CommonPrefixes>")
    }

    /// What says where the next page begins, in which order.
    #[test]
    fn a_page_continues_at_its_token() {
        let truncated = |is: &str| format!("<IsTruncated>{is}</IsTruncated>");
        let token = |text: &str| format!("<NextContinuationToken>{text}</NextContinuationToken>");
        let after = |key: &str| Ok(NextPage::After(key.to_string()));
        let keys = object("d/a") + &object("d/b");
        let marker = "<NextMarker>d/k</NextMarker>";
        for (inside, next) in [
            (
                truncated("true") + &token("t&#61;"),
                Ok(NextPage::Token("t=".to_string())),
            ),
            (token("t"), Ok(NextPage::Token("t".to_string()))),
            (truncated("false") + &token("t"), Ok(NextPage::End)),
            (truncated(" False ") + &keys, Ok(NextPage::End)),
            (token("") + &keys, Ok(NextPage::End)),
            (
                truncated("true") + "<NextContinuationToken/>" + &keys,
                after("d/b"),
            ),
            (truncated("true") + &keys + &folder("d/aa/"), after("d/b")),
            (
                truncated("true") + &keys + &folder("d/c/"),
                after("d/c/\u{10ffff}"),
            ),
            (truncated("true") + &keys + marker, after("d/k")),
            (truncated("true"), Err(())),
            (object("d/a").repeat(1000), after("d/a")),
            (object("d/a").repeat(999), Ok(NextPage::End)),
        ] {
            assert_eq!(
                parse(&inside).map(|page| page.next).map_err(|_| ()),
                next,
                "{inside:.100}"
            );
        }
    }

    #[test]
    fn a_date_is_read_in_each_form_of_http() {
        let dates = "Fri, 02 Jan 2026 03:04:05 GMT|Friday, 02-Jan-26 03:04:05 GMT| Fri Jan  2 03:04:05 2026 ";
        for text in dates.split('|') {
            let date = http_date(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(date.timestamp(), 1_767_323_045);
        }
        let others = "|0|-1|2026-01-02T03:04:05Z|Fri, 30 Feb 2026 03:04:05 GMT|Wed, 31 Dec 1969 23:59:59 GMT\
            |Fri Jan  1 00:00:00 99999|Sat, 01 Jan 10000 00:00:00 GMT";
        for text in others.split('|') {
            assert_eq!(http_date(text), None, "{text}");
        }
    }

    /// What a version can be told by may be absent; what is longer than any version is taken for absent.
    #[test]
    fn invalid_dates_and_etags_are_absent() {
        let at = |date: &str, etag: &str| {
            let head = "<Contents><Key>d/a</Key><Size> 7 </Size><LastModified>";
            let page = parse(&format!(
                "{head}{date}</LastModified><ETag>{etag}</ETag></Contents>"
            ))
            .expect("a page");
            (
                page.objects[0].last_modified.timestamp(),
                page.objects[0].e_tag.clone(),
            )
        };
        for date in [
            "2026-01-02T03:04:05Z",
            "2026-01-02T03:04:05.123456Z",
            "2026-01-02T04:04:05.000+01:00",
            "2026-01-02T03:04:05",
            "2026-01-02 03:04:05",
            "Fri, 02 Jan 2026 03:04:05 GMT",
        ] {
            assert_eq!(
                at(date, "e"),
                (1_767_323_045, Some("e".to_string())),
                "{date}"
            );
        }
        let long = "e".repeat(MAX_ETAG_BYTES + 1);
        for (date, etag) in [("", ""), ("yesterday", "&quot;&quot;"), ("0", &long)] {
            assert_eq!(at(date, etag), (0, None));
        }
        let bare = parse("<Contents><Key>d/a</Key><Size>7</Size></Contents>").expect("a page");
        assert_eq!(
            (
                bare.objects[0].last_modified.timestamp(),
                bare.objects[0].e_tag.as_deref()
            ),
            (0, None)
        );
    }

    #[test]
    fn invalid_and_truncated_pages_are_errors() {
        let bad_size = object("d/a").replace("<Size>7", "<Size>seven");
        let missing = "<KeyCount>2</KeyCount>".to_string() + &object("d/a");
        for (inside, words) in [
            ("&no;", "unknown entity no"),
            ("&#0;", "cannot be read"),
            (&bad_size, "the size of d/a is not a number: seven"),
            ("<Contents></Contents>", "a key outside this prefix"),
            ("<Contents><Key>d/a</Key></Contents>", "the size of d/a"),
            (&missing, "the listing reports 2 keys, but has 1"),
            (
                &object("other/a"),
                "the listing of \"d/\" has a key outside this prefix: \"other/a\"",
            ),
            (&folder("other/"), "a key outside this prefix"),
            ("<a></b>", "cannot be read"),
            ("<a>", "cannot be read"),
        ] {
            let error = parse(inside).expect_err(words).to_string();
            assert!(
                error.contains(words) && error.len() < 300,
                "{words}: {error}"
            );
        }
        assert!(!parse("<KeyCount>0</KeyCount>").expect("nothing").any);
        assert!(parse(&object("d/")).expect("a marker").any);
        // A server that ignores the delimiter.
        let flat = parse(&(object("d/flat/x") + &object("d/flat/y"))).expect("a page");
        assert_eq!(
            (flat.folders, flat.objects),
            (vec!["d/flat".to_string()], vec![])
        );
    }
}
