//! The XML of a listing: elements with their texts, in a document with one root.
//!
//! A web server that is not a store may reply with an unrelated page, and a failing store may send half of a listing. If such a reply
//! were parsed as a listing, the folder would seem empty. So the root element is checked first; if it is not the root element of a
//! listing, the error contains its name. A truncated document is an error.
//!
//! ```text
//!   <ListBucketResult>, <s3:ListBucketResult>   ──► each element's path and text
//!   <Error>                                     ──► its code and message
//!   <html>, <ListAllMyBucketsResult>, {"a": 1}, OK, nothing ──► NoListing, with the beginning of the reply
//! ```
//! Source: XML 1.0; Amazon S3 API reference, error responses.

use crate::source::object::refusal::{Refusal, one_line};
use quick_xml::Reader;
use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::Event;

/// Levels of elements that are used: `EnumerationResults`, `Blobs`, `Blob`, `Properties`, `Etag`.
const LEVELS: usize = 5;
/// Maximum characters of a reply that an error shows if the reply is not XML.
const MAX_SHOWN_TEXT: usize = 40;

/// Calls `each` at the end of every element, with the element's path and text.
/// Fails if the document is not a listing, or is incomplete.
pub fn read(
    root: &str,
    body: &[u8],
    mut each: impl FnMut(&[&str], &mut String),
) -> Result<(), Refusal> {
    let text = std::str::from_utf8(body).map_err(|_| {
        Refusal::Garbled("the listing cannot be read: it is not valid UTF-8".into())
    })?;
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let (mut code, mut message) = (String::new(), String::new());
    let found = elements(root, text, |path, text| match path {
        [first, ..] if *first == root => each(path, text),
        ["Error", "Code"] => code = one_line(text),
        ["Error", "Message"] => message = one_line(text),
        _ => {}
    })?;
    match found.as_str() {
        found if found == root => Ok(()),
        "Error" => Err(Refusal::ErrorForListing { code, message }),
        found => Err(Refusal::NoListing(named(found, text))),
    }
}

/// Parses a document whose root can be read. Returns the name of the root.
fn elements(
    wanted: &str,
    text: &str,
    mut each: impl FnMut(&[&str], &mut String),
) -> Result<String, Refusal> {
    let garbled =
        |why: String| Refusal::Garbled(format!("the listing cannot be read: {}", one_line(&why)));
    let mut reader = Reader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    let (mut path, mut depth, mut text_here): (Vec<String>, _, _) =
        (Vec::new(), 0_usize, String::new());
    let mut root: Option<String> = None;
    loop {
        let event = match reader.read_event() {
            Ok(event) => event,
            // If even the beginning is not XML, it is some other text.
            Err(_) if root.is_none() => return Ok(String::new()),
            Err(error) => return Err(garbled(error.to_string())),
        };
        match event {
            Event::Start(start) => {
                let name = String::from_utf8_lossy(start.local_name().as_ref()).into_owned();
                if root.is_none() && name != wanted && name != "Error" {
                    return Ok(name);
                }
                root.get_or_insert_with(|| name.clone());
                text_here.clear();
                depth += 1;
                if depth <= LEVELS {
                    path.push(name);
                }
            }
            Event::End(_) => {
                if depth <= LEVELS {
                    let names: Vec<&str> = path.iter().map(String::as_str).collect();
                    each(&names, &mut text_here);
                    path.pop();
                }
                depth = depth.saturating_sub(1);
            }
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
                let letter = number.map(String::from);
                let letter = letter.or_else(|| resolve_xml_entity(&name).map(str::to_string));
                text_here
                    .push_str(&letter.ok_or_else(|| garbled(format!("unknown entity {name}")))?);
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

/// A description of a reply that is not a listing.
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

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "ListBucketResult";

    fn keys(body: &[u8]) -> Result<Vec<String>, Refusal> {
        let mut keys = Vec::new();
        read(ROOT, body, |path, text| {
            if path == [ROOT, "Contents", "Key"] {
                keys.push(std::mem::take(text));
            }
        })?;
        Ok(keys)
    }

    fn listing() -> String {
        let head = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_string();
        head + "<ListBucketResult><Contents><Key>a\u{e9}</Key></Contents><Empty/></ListBucketResult>"
    }

    #[test]
    fn a_listing_is_read_in_each_writing() {
        let prefixed = listing()
            .replace("</", "</s3:")
            .replace("<C", "<s3:C")
            .replace("<K", "<s3:K");
        let prefixed = prefixed.replace("<L", "<s3:L").replace("<E", "<s3:E");
        for body in [
            listing().into_bytes(),
            listing()
                .replacen("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n", "", 1)
                .into_bytes(),
            format!("\u{feff}{}", listing()).into_bytes(),
            format!("\n\n  {}", listing()).into_bytes(),
            listing().replace("?>", "?><!DOCTYPE x>").into_bytes(),
            listing().replace("<Key>", "<Key><!-- c -->").into_bytes(),
            listing()
                .replace("a\u{e9}", "&#97;<![CDATA[\u{e9}]]>")
                .into_bytes(),
            prefixed.into_bytes(),
        ] {
            assert_eq!(
                keys(&body).as_deref(),
                Ok(&["a\u{e9}".to_string()][..]),
                "{}",
                String::from_utf8_lossy(&body)
            );
        }
        let body = listing();
        for cut in 1..body.len() - 1 {
            if body.is_char_boundary(cut) {
                assert!(keys(&body.as_bytes()[..cut]).is_err(), "cut at {cut}");
            }
        }
    }

    #[test]
    fn answers_that_are_not_listings_are_named() {
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
        let refusal = keys(b"<ListBucketResult>\xff</ListBucketResult>").expect_err("no text");
        assert!(refusal.to_string().contains("not valid UTF-8"), "{refusal}");
    }
}
