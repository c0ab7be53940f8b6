//! Parses one page of the listing of a repository from JSON.
//!
//! ```text
//!   [{"type": "file", "path": "d/a", "size": 9, "oid": "<sha1>"},                          a small file: its ETag is the oid
//!    {"type": "file", "path": "d/b", "size": 9, "oid": "...", "lfs": {"oid": "<sha256>"}}, a large one: its ETag is that of lfs
//!    {"type": "directory", "path": "d/e", "oid": "..."}]
//!   Link: <https://HUB/api/...?cursor=C>; rel="next"                                       another page follows
//! ```

use crate::source::object::page::{ListedObject, Page, PageRequest, PageText};
use crate::source::object::refusal::{Refusal, one_line};
use object_store::HeaderMap;
use serde::Deserialize;

/// Maximum bytes of a reply of the API: a thousand paths of 4 KiB, with their other fields.
const MAX_BODY: usize = 8 << 20;
/// Maximum bytes of the next page's query.
const MAX_QUERY_BYTES: usize = 8 << 10;

/// A file or a folder.
#[derive(Deserialize)]
struct TreeEntry {
    #[serde(rename = "type")]
    kind: String,
    /// From the repository's root.
    path: String,
    #[serde(default)]
    size: u64,
    oid: String,
    lfs: Option<LargeFile>,
}

#[derive(Deserialize)]
struct LargeFile {
    oid: String,
    size: u64,
}

/// The API's description of a repository.
#[derive(Deserialize)]
struct RepositoryInfo {
    sha: String,
}

impl TreeEntry {
    /// Adds it to a page. A submodule is neither a file nor a folder here.
    fn put(self, page: &mut PageText) {
        match self.kind.as_str() {
            "file" => {
                // Some mirrors report the pointer's size in addition to the file's.
                let size = self.lfs.as_ref().map_or(self.size, |lfs| lfs.size);
                let tag = self.lfs.map_or(self.oid, |lfs| lfs.oid);
                page.push(ListedObject {
                    key: self.path,
                    size: size.to_string(),
                    etag: Some(format!("\"{tag}\"")),
                    ..ListedObject::default()
                });
            }
            "directory" => page.push_prefix(self.path + "/"),
            _ => {}
        }
    }
}

/// Parses a page of the listing of a folder.
pub fn tree(headers: &HeaderMap, body: &[u8], wanted: &PageRequest) -> Result<Page, Refusal> {
    let entries: Vec<TreeEntry> = json(body)?;
    let links = headers
        .get_all("link")
        .iter()
        .filter_map(|link| link.to_str().ok());
    let mut next = links
        .flat_map(|link| link.split(','))
        .filter_map(next_query);
    let token = next.next().transpose()?.unwrap_or_default();
    let mut page = PageText::default();
    (page.is_truncated, page.token) = (Some(!token.is_empty()), token);
    for entry in entries {
        entry.put(&mut page);
    }
    Page::of(page, wanted)
}

/// Parses the hub's reply about the one requested path: nothing, a file, or a folder.
pub fn path(body: &[u8], wanted: &PageRequest) -> Result<Page, Refusal> {
    let entries: Vec<TreeEntry> = json(body)?;
    let asked = wanted.prefix.trim_end_matches('/');
    let Some(entry) = entries.into_iter().find(|entry| entry.path == asked) else {
        return Ok(Page::default());
    };
    let is_folder = wanted.prefix.ends_with('/');
    if is_folder {
        let any = entry.kind == "directory";
        return Ok(Page {
            any,
            ..Page::default()
        });
    }
    let mut page = PageText::default();
    page.is_truncated = Some(false);
    entry.put(&mut page);
    Page::of(page, wanted)
}

pub fn commit(body: &[u8]) -> Result<String, Refusal> {
    json::<RepositoryInfo>(body).map(|info| info.sha)
}

fn json<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Refusal> {
    if body.len() > MAX_BODY {
        let why = format!("the hub's reply is longer than {MAX_BODY} bytes");
        return Err(Refusal::Garbled(why));
    }
    serde_json::from_slice(body).map_err(|error| {
        let why = one_line(&error.to_string());
        Refusal::NoListing(format!("something else ({why})"))
    })
}

/// The query of `<URL>; rel="next"`. The rest of the URL is ignored, so that the token goes only to the hub.
fn next_query(link: &str) -> Option<Result<String, Refusal>> {
    let (url, params) = link.trim().strip_prefix('<')?.split_once('>')?;
    let mut params = params.split(';').map(str::trim);
    params.find(|param| matches!(*param, "rel=\"next\"" | "rel=next"))?;
    let query = url.split_once('?').map(|(_, query)| query.to_string());
    let query = query.filter(|query| query.len() <= MAX_QUERY_BYTES);
    Some(query.ok_or_else(|| {
        let why =
            "the link to the next page of the listing has no query string, or one that is too long";
        Refusal::Endless(why.to_string())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::object::page::NextPage;
    use object_store::HeaderValue;

    fn wanted(prefix: &str) -> PageRequest {
        PageRequest {
            prefix: prefix.to_string(),
            most: 1000,
            next: NextPage::End,
        }
    }

    fn page(link: &'static str, body: &str, prefix: &str) -> Result<Page, Refusal> {
        let mut headers = HeaderMap::new();
        headers.insert("link", HeaderValue::from_static(link));
        tree(&headers, body.as_bytes(), &wanted(prefix))
    }

    const BODY: &str = r#"[{"type":"directory","oid":"0","size":0,"path":"d/e"},
        {"type":"file","oid":"a1","size":9,"path":"d/a","new":{"x":[]}},
        {"type":"submodule","oid":"s","path":"d/sub"},
        {"type":"file","oid":"b1","size":134,"lfs":{"oid":"b2","size":99,"pointerSize":134},"path":"d/b"}]"#;

    fn files(page: &Page) -> Vec<(&str, u64, &str)> {
        let files = page.objects.iter();
        files
            .map(|file| {
                (
                    file.location.as_ref(),
                    file.size,
                    file.e_tag.as_deref().unwrap_or(""),
                )
            })
            .collect()
    }

    #[test]
    fn files_folders_and_the_next_page() {
        let link = "<https://other/api?recursive=false&cursor=c%3D>; rel=\"next\"";
        let page = page(link, BODY, "d/").expect("a page");
        assert_eq!(files(&page), [("d/a", 9, "\"a1\""), ("d/b", 99, "\"b2\"")]);
        assert_eq!(page.folders, ["d/e"]);
        let next = "recursive=false&cursor=c%3D".to_string();
        assert_eq!(page.next, NextPage::Token(next));
        assert_eq!(commit(br#"{"id":"u/r","sha":"c0"}"#), Ok("c0".to_string()));
    }

    #[test]
    fn one_path_is_a_file_or_a_folder_or_nothing() {
        let ask = |prefix: &str| path(BODY.as_bytes(), &wanted(prefix)).expect("an answer");
        assert_eq!(files(&ask("d/b")), [("d/b", 99, "\"b2\"")]);
        assert!(ask("d/e/").any && ask("d/e/").folders.is_empty());
        for other in ["d/b/", "d/c", "d/sub", "x/"] {
            assert!(!ask(other).any, "{other}");
        }
        assert!(files(&ask("d/e")).is_empty(), "it is a folder");
    }

    #[test]
    fn invalid_pages_are_refused_and_a_missing_link_is_the_end() {
        for body in [
            "",
            "{}",
            "[{}]",
            "<html>",
            "[1]",
            r#"[{"type":"file","path":"a","oid":1}]"#,
        ] {
            assert!(page("", body, "").is_err(), "{body}");
        }
        let one = r#"{"type":"file","path":"a","oid":"b"}"#;
        let many = format!("[{}{one}]", format!("{one},").repeat(10_000));
        assert!(page("", &many, "").is_err(), "more than a page has");
        assert!(page("", &format!("[{}{one}]", " ".repeat(MAX_BODY)), "").is_err());
        for link in ["", "<>", "<a?b>; rel=\"prev\"", "a?b; rel=\"next\""] {
            assert_eq!(
                page(link, "[]", "").expect("a page").next,
                NextPage::End,
                "{link}"
            );
        }
        assert!(page("<a>; rel=\"next\"", "[]", "").is_err(), "more follows");
    }
}
