//! What the API of a hub says of a repository: its commit, its tree page by page, and single paths.
//!
//! ```text
//!   GET  /api/models/USER/REPO[/revision/REV]                    ──► {"id", "sha", "siblings", ...}
//!   GET  /api/models/USER/REPO/tree/REV[/FOLDER]?recursive=true  ──► [{"type", "path", "size", "oid", "lfs"}, ...], Link: rel="next"
//!   POST /api/models/USER/REPO/paths-info/REV  paths=a&paths=b   ──► the same, of these paths alone
//! ```
//! Source: the documentation of the Hub's API, and what `huggingface_hub` takes.

use super::http_server::ServedAnswer as Answer;
use foreread::source::Source;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use url::form_urlencoded;

/// A file's bytes.
#[derive(Clone)]
pub(super) struct Blob {
    pub source: Arc<dyn Source>,
    /// In hexadecimal digits: 64 of a large file, 40 of a small one.
    pub tag: String,
    pub is_lfs: bool,
    /// Another server that has them.
    pub elsewhere: Option<String>,
}

pub(super) type Files = BTreeMap<String, Blob>;

/// A repository, as its API shows it.
pub(super) struct Info<'a> {
    /// `USER/REPO`.
    pub id: &'a str,
    pub sha: &'a str,
    pub is_private: bool,
    pub is_gated: bool,
    pub files: &'a Files,
}

pub(super) fn info(of: &Info<'_>) -> Answer {
    let siblings: Vec<String> = of
        .files
        .keys()
        .map(|path| format!("{{\"rfilename\":{}}}", quoted(path)))
        .collect();
    json(format!(
        "{{\"id\":{0},\"modelId\":{0},\"sha\":\"{1}\",\"lastModified\":\"2026-01-02T03:04:05.000Z\",\"private\":{2},\
         \"gated\":{3},\"tags\":[],\"downloads\":0,\"likes\":0,\"siblings\":[{4}]}}",
        quoted(of.id),
        of.sha,
        of.is_private,
        if of.is_gated { "\"manual\"" } else { "false" },
        siblings.join(","),
    ))
}

/// A page of a folder's tree: nothing where there is no such folder. `here` is the URL without its query.
pub(super) fn tree(
    files: &Files,
    folder: &str,
    query: &str,
    most: usize,
    here: &str,
) -> Option<Answer> {
    let value = |key: &str| {
        let mut pairs = form_urlencoded::parse(query.as_bytes());
        pairs.find(|(own, _)| own == key).map(|(_, value)| value)
    };
    let is_recursive = value("recursive").is_some_and(|v| v.eq_ignore_ascii_case("true"));
    let most = value("limit")
        .and_then(|limit| limit.parse().ok())
        .map_or(most, |limit: usize| limit.min(most));
    let cursor = value("cursor").unwrap_or_default();
    let below = if folder.is_empty() {
        String::new()
    } else {
        format!("{folder}/")
    };
    // Paths in the tree's order, folders among them.
    let mut paths = BTreeSet::new();
    for path in files.keys().filter(|path| path.starts_with(&below)) {
        let rest = &path[below.len()..];
        let cuts = rest.match_indices('/').map(|(at, _)| at);
        let folders: Vec<usize> = cuts.collect();
        match (is_recursive, folders.first()) {
            (false, Some(at)) => drop(paths.insert(&path[..below.len() + at])),
            (_, None) => drop(paths.insert(path)),
            (true, _) => {
                paths.extend(folders.iter().map(|at| &path[..below.len() + at]));
                paths.insert(path);
            }
        }
    }
    if paths.is_empty() && !folder.is_empty() {
        return None;
    }
    let mut rest = paths.into_iter().filter(|path| **path > *cursor);
    let page: Vec<&str> = rest.by_ref().take(most).collect();
    let entries: Vec<String> = page
        .iter()
        .map(|path| entry(path, files.get(*path)))
        .collect();
    let mut answer = json(format!("[{}]", entries.join(",")));
    if let (Some(last), Some(_)) = (page.last(), rest.next()) {
        let mut next = form_urlencoded::Serializer::new(String::new());
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            if key != "cursor" {
                next.append_pair(&key, &value);
            }
        }
        let next = next.append_pair("cursor", last).finish();
        answer.set("Link", &format!("<{here}?{next}>; rel=\"next\""));
    }
    Some(answer)
}

pub(super) fn paths_info(files: &Files, body: &[u8]) -> Answer {
    let mut found = Vec::new();
    for (key, path) in form_urlencoded::parse(body) {
        let path = path.trim_end_matches('/');
        let below = format!("{path}/");
        let is_folder = files.keys().any(|own| own.starts_with(&below));
        if key == "paths" && (is_folder || files.contains_key(path)) {
            found.push(entry(path, files.get(path)));
        }
    }
    json(format!("[{}]", found.join(",")))
}

/// A file, or a folder where there is none.
fn entry(path: &str, blob: Option<&Blob>) -> String {
    let path = quoted(path);
    let Some(blob) = blob else {
        let oid = "f".repeat(40);
        return format!("{{\"type\":\"directory\",\"oid\":\"{oid}\",\"size\":0,\"path\":{path}}}");
    };
    let (size, tag) = (blob.source.size(), &blob.tag);
    let lfs = if blob.is_lfs {
        format!(",\"lfs\":{{\"oid\":\"{tag}\",\"size\":{size},\"pointerSize\":134}}")
    } else {
        String::new()
    };
    let oid = &tag[tag.len() - 40..];
    format!("{{\"type\":\"file\",\"oid\":\"{oid}\",\"size\":{size}{lfs},\"path\":{path}}}")
}

fn json(text: String) -> Answer {
    let mut answer = Answer::new(200, text);
    answer.set("Content-Type", "application/json; charset=utf-8");
    answer
}

/// As JSON writes a text.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted += &format!("\\u{:04x}", u32::from(c)),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}
