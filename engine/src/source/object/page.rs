//! One page of a listing (`ListObjectsV2`), read from XML: which of its keys can be files and folders of a tree, and what follows it.
//!
//! S3 allows keys that no file can be called by: an empty part (`dir//c`), `.` and `..`, control characters, parts of more
//! than 255 bytes. They are set apart here, so that one of them does not make a folder unreadable. object_store, which signs
//! and sends the request, refuses the whole page for one such key, so the check of replies ([`super::reply`]) reads the page in its
//! place and hands it an empty one. What is no page, or says of itself that something is missing, is refused: names that are not there
//! look like files that were deleted.
//!
//! ```text
//!   Contents        dir/c, dir/d    ──► objects, with size, date and ETag
//!                   dir/e/f         ──► a folder: the server knows no delimiter
//!                   dir//c, dir/..  ──► odd
//!                   dir/            ──► nothing: the marker of the folder itself
//!   CommonPrefixes  dir/sub/        ──► folders
//!   IsTruncated     false           ──► the end, whatever token there is
//!                   true            ──► the token; without one NextMarker; without one the last key
//! ```
//!
//! Source: Amazon S3 API reference, ListObjects and ListObjectsV2, response elements.

use super::refusal::{Date, Refusal, one_line};
use object_store::ObjectMeta;
use object_store::path::Path;
use percent_encoding::percent_decode_str;
use quick_xml::Reader;
use quick_xml::events::Event;
use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::SystemTime;

/// Keys and prefixes of one page. S3 has 1000 at most; what is on a page is in memory at once, beside the account of names.
const MAX_PAGE_KEYS: usize = 10_000;

/// Longest part of a path, in bytes: NAME_MAX of Linux.
const MAX_NAME_BYTES: usize = 255;
/// Longest ETag, in bytes: those of S3 have 40. One that is longer is taken for none, as no request could name it.
const MAX_ETAG_BYTES: usize = 1 << 10;
/// Letters of an odd key that a warning shows.
const MAX_SHOWN: usize = 100;

/// Marks a request whose answer is a page.
#[derive(Clone)]
pub struct PageRequest {
    pub prefix: String,
    /// Keys on it at most.
    pub most: usize,
}

#[derive(Clone, Debug, Default)]
pub struct Page {
    pub objects: Vec<ObjectMeta>,
    /// Without the `/` at their ends.
    pub folders: Vec<String>,
    /// Keys, and beginnings of keys, that no file can be called by.
    pub odd: Vec<OddKey>,
    /// Something is on it, and be it the marker of the folder.
    pub any: bool,
    pub next: NextPage,
    /// The first of its keys and beginnings of keys.
    pub first: Option<String>,
}

/// A key that no file can be called by: it may be long, so its front is kept, and a hash that separates it from others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OddKey {
    pub hash: u64,
    pub shown: String,
}

/// What follows a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NextPage {
    #[default]
    End,
    Token(String),
    /// Begin behind this key.
    After(String),
}

/// One `Contents`, as far as it has come.
#[derive(Default)]
struct Entry {
    key: String,
    size: String,
    modified: String,
    etag: Option<String>,
}

/// What a page says, before its keys are read.
#[derive(Default)]
struct PageHead {
    entries: Vec<Entry>,
    prefixes: Vec<String>,
    is_truncated: Option<bool>,
    token: String,
    marker: String,
    /// Entries and prefixes, by the server's count.
    count: Option<usize>,
    is_url_encoded: bool,
    /// It has more than [`MAX_PAGE_KEYS`].
    is_too_long: bool,
}

impl PageHead {
    fn is_full(&self) -> bool {
        self.entries.len() + self.prefixes.len() >= MAX_PAGE_KEYS
    }

    /// An element has ended.
    fn take(&mut self, path: &[&str], entry: &mut Entry, text: &mut String) {
        match path {
            [_, "Contents", "Key"] => entry.key = std::mem::take(text),
            [_, "Contents", "Size"] => entry.size = std::mem::take(text),
            [_, "Contents", "LastModified"] => entry.modified = std::mem::take(text),
            [_, "Contents", "ETag"] => entry.etag = Some(std::mem::take(text)),
            [_, "Contents"] | [_, "CommonPrefixes", "Prefix"] if self.is_full() => {
                self.is_too_long = true
            }
            [_, "Contents"] => self.entries.push(std::mem::take(entry)),
            [_, "CommonPrefixes", "Prefix"] => self.prefixes.push(std::mem::take(text)),
            [_, "NextContinuationToken"] => self.token = std::mem::take(text),
            [_, "NextMarker"] => self.marker = std::mem::take(text),
            [_, "IsTruncated"] => self.is_truncated = text.trim().to_ascii_lowercase().parse().ok(),
            [_, "KeyCount"] => self.count = text.trim().parse().ok(),
            [_, "EncodingType"] => self.is_url_encoded = text.trim().eq_ignore_ascii_case("url"),
            _ => {}
        }
    }

    /// Keys as they are, where the server has written them as in a URL.
    fn decode(&mut self) {
        if self.is_url_encoded {
            let keys = self.entries.iter_mut().map(|entry| &mut entry.key);
            for key in keys.chain(&mut self.prefixes).chain([&mut self.marker]) {
                *key = percent_decode_str(&key.replace('+', " "))
                    .decode_utf8_lossy()
                    .into_owned();
            }
        }
    }

    /// # Errors
    /// More follows, and nothing says where.
    fn next(&self, most: usize) -> Result<NextPage, Refusal> {
        let count = self.entries.len() + self.prefixes.len();
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
            .entries
            .iter()
            .map(|entry| &entry.key)
            .chain(folder)
            .max();
        let marker = Some(&self.marker).filter(|marker| !marker.is_empty());
        let Some(last) = marker.or(last) else {
            let why = "IsTruncated is true, with neither a token nor a key to go on from";
            return Err(Refusal::Endless(why.to_string()));
        };
        // What a folder holds comes behind its name.
        let behind = if Some(last) == folder {
            char::MAX.to_string()
        } else {
            String::new()
        };
        Ok(NextPage::After(last.clone() + &behind))
    }
}

impl Page {
    /// # Errors
    /// It is no such page, or not all of it.
    pub fn parse(body: &[u8], wanted: &PageRequest) -> Result<Page, Refusal> {
        let (mut said, mut entry) = (PageHead::default(), Entry::default());
        read(body, |path, text| said.take(path, &mut entry, text))?;
        if said.is_too_long {
            return Err(Refusal::Garbled(format!(
                "a page of the listing has more than {MAX_PAGE_KEYS} keys"
            )));
        }
        said.decode();
        let next = said.next(wanted.most)?;
        let count = said.entries.len() + said.prefixes.len();
        if let Some(more) = said.count.filter(|&more| more > count) {
            return Err(Refusal::Garbled(format!(
                "the listing says that it has {more} keys, and has {count}"
            )));
        }
        let keys = said
            .entries
            .iter()
            .map(|entry| &entry.key)
            .chain(&said.prefixes);
        let first = keys.min().cloned();
        let mut page = Page {
            next,
            first,
            ..Page::default()
        };
        for entry in said.entries {
            page.entry(entry, &wanted.prefix)?;
        }
        for prefix in said.prefixes {
            page.folder(&prefix, &wanted.prefix);
        }
        if let Some(other) = page.first.as_deref().filter(|_| !page.any) {
            let (other, wanted) = (one_line(other), one_line(&wanted.prefix));
            return Err(Refusal::Garbled(format!(
                "the listing of \"{wanted}\" has other keys: \"{other}\""
            )));
        }
        Ok(page)
    }

    fn entry(&mut self, entry: Entry, wanted: &str) -> Result<(), Refusal> {
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
        let Some(location) = plain(&entry.key) else {
            self.odd.push(OddKey::of(&entry.key));
            return Ok(());
        };
        let size = entry.size.trim().parse().map_err(|_| {
            let (key, size) = (one_line(&entry.key), one_line(&entry.size));
            Refusal::Garbled(format!(
                "the listing cannot be read: the size of {key}: {size}"
            ))
        })?;
        let e_tag = entry
            .etag
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
        // What was asked for is no part of itself: a server that looks at no prefix lists it so.
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
    fn of(key: &str) -> OddKey {
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

/// An object with its date, where the listing has one that can be read.
fn dated(mut object: ObjectMeta, text: &str) -> ObjectMeta {
    let of_http = Date::of_http(text).map_or_else(String::new, Date::iso_text);
    if let Some(date) = [text, &format!("{text}Z"), &of_http]
        .into_iter()
        .find_map(|text| text.parse().ok())
    {
        object.last_modified = date;
    }
    object
}

/// A key whose parts can all be names of files.
pub fn plain(key: &str) -> Option<Path> {
    let fits = !key.is_empty() && key.split('/').all(|part| part.len() <= MAX_NAME_BYTES);
    // It strips a `/` at either end, which makes it another key.
    Path::parse(key)
        .ok()
        .filter(|path| fits && path.as_ref() == key)
}

// The XML of a listing: elements with their texts, of a `ListBucketResult` and nothing else.
//
// A server that is no S3 answers with another page, and one that is broken with half of a listing. Read as a listing either would be
// a folder without names. So the root is looked at first, and what came is named; what ends early is an error.
//
// ```text
//   <ListBucketResult>, <s3:ListBucketResult>   ──► each element's path and text
//   <Error>                                     ──► its code and message
//   <html>, <ListAllMyBucketsResult>, {"a": 1}, OK, nothing ──► NoListing, with what came
// ```
// UTF-8, UTF-16 and Latin-1 are read. Source: XML 1.0, 4.3.3 and appendix F; Amazon S3 API reference, error responses.

/// Levels of elements that matter: `ListBucketResult`, `Contents`, `Key`.
const LEVELS: usize = 3;
/// Letters of an answer that is no XML that an error shows.
const MAX_SHOWN_TEXT: usize = 40;
const ROOT: &str = "ListBucketResult";

/// Calls `each` with the path and the text of every element that ends.
///
/// # Errors
/// It is no listing, or not all of one.
pub fn read(body: &[u8], mut each: impl FnMut(&[&str], &mut String)) -> Result<(), Refusal> {
    let text = text_of(body)?;
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let (mut code, mut message) = (String::new(), String::new());
    let root = elements(text, |path, text| match path {
        [ROOT, ..] => each(path, text),
        ["Error", "Code"] => code = one_line(text),
        ["Error", "Message"] => message = one_line(text),
        _ => {}
    })?;
    match root.as_str() {
        ROOT => Ok(()),
        "Error" => Err(Refusal::ErrorForListing { code, message }),
        root => Err(Refusal::NoListing(named(root, text))),
    }
}

/// Reads a document whose root can be read; the name of the root.
fn elements(text: &str, mut each: impl FnMut(&[&str], &mut String)) -> Result<String, Refusal> {
    let garbled =
        |why: String| Refusal::Garbled(format!("the listing cannot be read: {}", one_line(&why)));
    let mut reader = Reader::from_str(text);
    let (mut path, mut depth, mut text_here): (Vec<String>, _, _) =
        (Vec::new(), 0_usize, String::new());
    let mut root: Option<String> = None;
    loop {
        let event = match reader.read_event() {
            Ok(event) => event,
            // What is no XML from its start on is some other text.
            Err(_) if root.is_none() => return Ok(String::new()),
            Err(error) => return Err(garbled(error.to_string())),
        };
        let empty = matches!(event, Event::Empty(_));
        match event {
            Event::Start(start) | Event::Empty(start) => {
                let name = String::from_utf8_lossy(start.local_name().as_ref()).into_owned();
                if root.is_none() && name != ROOT && name != "Error" {
                    return Ok(name);
                }
                root.get_or_insert_with(|| name.clone());
                text_here.clear();
                depth += 1;
                if depth <= LEVELS {
                    path.push(name);
                }
                if empty {
                    end(&mut path, &mut depth, &mut text_here, &mut each);
                }
            }
            Event::End(_) => end(&mut path, &mut depth, &mut text_here, &mut each),
            Event::Text(part) => {
                text_here.push_str(&part.decode().map_err(|error| garbled(error.to_string()))?)
            }
            Event::CData(part) => {
                text_here.push_str(&part.decode().map_err(|error| garbled(error.to_string()))?)
            }
            Event::GeneralRef(entity) => {
                let number = entity
                    .resolve_char_ref()
                    .map_err(|error| garbled(error.to_string()))?;
                let name = entity
                    .decode()
                    .map_err(|error| garbled(error.to_string()))?;
                let letter = number.or_else(|| letter(&name));
                text_here
                    .push(letter.ok_or_else(|| garbled(format!("there is no entity {name}")))?);
            }
            Event::Eof if depth == 0 => return Ok(root.unwrap_or_default()),
            Event::Eof => return Err(garbled("it ends too early".to_string())),
            _ => {}
        }
        if root.is_none() && !text_here.trim().is_empty() {
            return Ok(String::new());
        }
    }
}

/// An element has ended.
fn end(
    path: &mut Vec<String>,
    depth: &mut usize,
    text: &mut String,
    each: &mut impl FnMut(&[&str], &mut String),
) {
    if *depth <= LEVELS {
        let names: Vec<&str> = path.iter().map(String::as_str).collect();
        each(&names, text);
        path.pop();
    }
    *depth = depth.saturating_sub(1);
}

/// The entities that XML has by itself.
fn letter(name: &str) -> Option<char> {
    match name {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => None,
    }
}

/// What an answer is that is no listing.
fn named(root: &str, text: &str) -> String {
    let front: String = text.chars().take(MAX_SHOWN_TEXT).collect();
    let is_html = |text: &str| text.to_ascii_lowercase().starts_with("<!doctype html");
    match root {
        "" if text.is_empty() => "nothing (an empty body)".to_string(),
        "" if text.starts_with(['{', '[']) => format!("JSON ({})", one_line(&front)),
        "" if is_html(&front) => "an HTML page".to_string(),
        "" => format!("a text ({})", one_line(&front)),
        "ListAllMyBucketsResult" => "a list of buckets (ListAllMyBucketsResult)".to_string(),
        root if root.eq_ignore_ascii_case("html") => "an HTML page".to_string(),
        root => format!(
            "<{}>",
            one_line(root)
                .chars()
                .take(MAX_SHOWN_TEXT)
                .collect::<String>()
        ),
    }
}

/// A body as text, whatever of three encodings it is in.
fn text_of(body: &[u8]) -> Result<Cow<'_, str>, Refusal> {
    let garbled = |why: &str| Refusal::Garbled(format!("the listing cannot be read: {why}"));
    let of_pairs = |pair: fn([u8; 2]) -> u16| {
        let units = body.chunks_exact(2).map(|two| pair([two[0], two[1]]));
        let text: Result<String, _> = char::decode_utf16(units).collect();
        text.ok()
            .filter(|_| body.len().is_multiple_of(2))
            .map(Cow::Owned)
            .ok_or_else(|| garbled("it is not all UTF-16"))
    };
    match body {
        [0xfe, 0xff, ..] | [0, b'<', ..] => return of_pairs(u16::from_be_bytes),
        [0xff, 0xfe, ..] | [b'<', 0, ..] => return of_pairs(u16::from_le_bytes),
        _ => {}
    }
    let front = String::from_utf8_lossy(&body[..body.len().min(200)]).to_ascii_lowercase();
    let head = front
        .split_once("<?xml")
        .and_then(|(_, rest)| rest.split_once("?>"))
        .map_or("", |(head, _)| head);
    let encoding = head
        .split_once("encoding")
        .map(|(_, rest)| rest.trim_start_matches([' ', '=', '"', '\'']));
    let encoding = encoding
        .map(|rest| rest.split(['"', '\'']).next().unwrap_or_default())
        .unwrap_or("utf-8");
    match encoding {
        "utf-8" | "utf8" | "us-ascii" | "ascii" | "" => std::str::from_utf8(body)
            .map(Cow::Borrowed)
            .map_err(|_| garbled("it is not all UTF-8")),
        "iso-8859-1" | "latin1" | "latin-1" => {
            Ok(Cow::Owned(body.iter().copied().map(char::from).collect()))
        }
        other => Err(garbled(&format!(
            "it is in {}, and only UTF-8, UTF-16 and ISO-8859-1 are read",
            one_line(other)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> PageRequest {
        PageRequest {
            prefix: "d/".to_string(),
            most: 1000,
        }
    }

    fn parse(inside: &str) -> Result<Page, Refusal> {
        let head = "<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"x\"><Name>b</Name>";
        Page::parse(
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

    fn names(page: &Page) -> Vec<&str> {
        page.objects
            .iter()
            .map(|object| object.location.as_ref())
            .collect()
    }

    #[test]
    fn keys_are_exact_and_odd_ones_are_set_apart() {
        let keys = [
            "d/ a ",
            "d/&amp;&#x26;&lt;",
            "d/<![CDATA[<c>]]>",
            "d//c",
            "d/..",
            "d/a&#x9;b",
            "d/a\nb",
            "x",
            "d/",
        ];
        let long = format!("d/{}", "n".repeat(2560));
        let prefixes = ["d/sub/", "d//", "d/&#x1;/", "/"].map(folder);
        let text =
            keys.map(object).concat() + &object(&long) + &object("d/flat/x") + &prefixes.concat();
        let page = parse(&text).expect("a page");
        assert_eq!(names(&page), ["d/ a ", "d/&&<", "d/<c>"]);
        assert_eq!(
            (page.objects[0].size, page.objects[0].e_tag.as_deref()),
            (7, Some("\"e\""))
        );
        assert_eq!(page.objects[0].last_modified.timestamp(), 1_767_323_045);
        assert_eq!(
            (&page.folders[..], page.next),
            (
                &["d/flat".to_string(), "d/sub".to_string()][..],
                NextPage::End
            )
        );
        let odd: Vec<&str> = page.odd.iter().map(|odd| odd.shown.as_str()).collect();
        assert_eq!(
            odd,
            [
                "d//c",
                "d/..",
                "d/a\\tb",
                "d/a\\nb",
                &long[..MAX_SHOWN],
                "d//",
                "d/\\u{1}/"
            ]
        );
        assert_ne!(
            page.odd[4],
            OddKey::of(&(long + "n")),
            "keys with the same front are two"
        );
    }

    /// What says where the next page begins, in which order.
    #[test]
    fn a_page_goes_on_where_it_says_so() {
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
    fn keys_are_decoded_where_the_server_wrote_them_as_in_a_url() {
        let keys =
            object("d/a%20b%2Bc+d") + "<EncodingType>url</EncodingType>" + &folder("d/%C3%A9/");
        let page = parse(&keys).expect("a page");
        assert_eq!(
            (names(&page), &page.folders[..]),
            (vec!["d/a b+c d"], &["d/\u{e9}".to_string()][..])
        );
        assert_eq!(
            names(&parse(&object("d/a%20b")).expect("a page")),
            ["d/a%20b"],
            "as it is"
        );
    }

    /// What a version can be told by may be absent; what is longer than any version is taken for absent.
    #[test]
    fn dates_and_etags_that_are_none_are_absent() {
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
    fn what_is_no_page_or_half_of_one_is_an_error() {
        let bad_size = object("d/a").replace("<Size>7", "<Size>seven");
        let missing = "<KeyCount>2</KeyCount>".to_string() + &object("d/a");
        for (inside, words) in [
            ("&no;", "no entity no"),
            ("&#0;", "cannot be read"),
            (&bad_size, "the size of d/a: seven"),
            ("<Contents></Contents>", "other keys"),
            ("<Contents><Key>d/a</Key></Contents>", "the size of d/a"),
            (&missing, "has 2 keys, and has 1"),
            (
                &object("other/a"),
                "the listing of \"d/\" has other keys: \"other/a\"",
            ),
            (&folder("other/"), "other keys"),
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
    }
}

#[cfg(test)]
mod xml_tests {
    use super::*;

    fn keys(body: &[u8]) -> Result<Vec<String>, Refusal> {
        let mut keys = Vec::new();
        read(body, |path, text| {
            if path == [ROOT, "Contents", "Key"] {
                keys.push(std::mem::take(text));
            }
        })?;
        Ok(keys)
    }

    fn listing(encoding: &str) -> String {
        let head = format!("<?xml version=\"1.0\" encoding=\"{encoding}\"?>\n");
        head + "<ListBucketResult><Contents><Key>a\u{e9}</Key></Contents><Empty/></ListBucketResult>"
    }

    #[test]
    fn a_listing_is_read_in_each_writing() {
        let utf16 = |pair: fn(u16) -> [u8; 2]| -> Vec<u8> {
            let text = format!("\u{feff}{}", listing("UTF-16"));
            text.encode_utf16().flat_map(pair).collect()
        };
        let latin: Vec<u8> = listing("ISO-8859-1")
            .chars()
            .map(|c| c as u32 as u8)
            .collect();
        let prefixed = listing("utf-8")
            .replace("</", "</s3:")
            .replace("<C", "<s3:C")
            .replace("<K", "<s3:K");
        let prefixed = prefixed.replace("<L", "<s3:L").replace("<E", "<s3:E");
        for body in [
            listing("UTF-8").into_bytes(),
            listing("UTF-8")
                .replacen("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n", "", 1)
                .into_bytes(),
            format!("\u{feff}{}", listing("utf-8")).into_bytes(),
            format!("\n\n  {}", listing("utf-8")).into_bytes(),
            listing("utf-8")
                .replace("?>", "?><!DOCTYPE x>")
                .into_bytes(),
            listing("utf-8")
                .replace("<Key>", "<Key><!-- c -->")
                .into_bytes(),
            prefixed.into_bytes(),
            utf16(u16::to_le_bytes),
            utf16(u16::to_be_bytes),
            utf16(u16::to_be_bytes)[2..].to_vec(),
            latin,
        ] {
            assert_eq!(
                keys(&body).as_deref(),
                Ok(&["a\u{e9}".to_string()][..]),
                "{}",
                String::from_utf8_lossy(&body)
            );
        }
        let body = listing("utf-8");
        for cut in 1..body.len() - 1 {
            if body.is_char_boundary(cut) {
                assert!(keys(&body.as_bytes()[..cut]).is_err(), "cut at {cut}");
            }
        }
    }

    #[test]
    fn what_is_no_listing_is_named() {
        for (body, words) in [
            ("", "nothing (an empty body)"),
            (" \n", "nothing (an empty body)"),
            (
                "<html><head><meta><title>Log in</title></head></html>",
                "an HTML page",
            ),
            ("<!DOCTYPE html>\n<HTML><br></HTML>", "an HTML page"),
            ("<!doctype html", "an HTML page"),
            (
                "<?xml version=\"1.0\"?><ListAllMyBucketsResult></ListAllMyBucketsResult>",
                "a list of buckets",
            ),
            ("{\"objects\": []}", "JSON ({\"objects\": []})"),
            ("OK\n", "a text (OK)"),
            ("<a/>", "<a>"),
            (
                "<ListBucketResults></ListBucketResults>",
                "<ListBucketResults>",
            ),
            (&"<a>".repeat(100_000), "<a>"),
        ] {
            match keys(body.as_bytes()) {
                Err(Refusal::NoListing(what)) => {
                    assert!(what.starts_with(words), "{words}: {what}")
                }
                other => panic!("{words}: {other:?}"),
            }
        }
        let body = "<s3:Error xmlns:s3='x'><s3:Code>SlowDown</s3:Code><s3:Message>Reduce\nit</s3:Message></s3:Error>";
        let (code, message) = ("SlowDown".to_string(), "Reduce it".to_string());
        assert_eq!(
            keys(body.as_bytes()),
            Err(Refusal::ErrorForListing { code, message })
        );
        for (body, words) in [
            (listing("EUC-JP").into_bytes(), "it is in euc-jp"),
            (
                b"<ListBucketResult>\xff</ListBucketResult>".to_vec(),
                "not all UTF-8",
            ),
            (b"\xff\xfe<".to_vec(), "not all UTF-16"),
        ] {
            let refusal = keys(&body).expect_err(words).to_string();
            assert!(refusal.contains(words), "{refusal}");
        }
    }
}
