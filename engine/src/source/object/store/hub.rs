//! The Hugging Face Hub: `hf://[datasets/|spaces/]USER/REPO[@REVISION]/PATH`.
//!
//! Names are written as for Hugging Face's own `HfFileSystem`. A name without a path, or with `/` at its end, names a folder,
//! with all files below it. The token is sent only to the hub. All files below one opened name are of the same commit.
//!
//! ```text
//!   hf://u/r/a.bin                      model u/r, revision main, file a.bin
//!   hf://datasets/u/r@refs%2Fpr%2F1/d/  dataset u/r, revision refs/pr/1, folder d
//!   HF_TOKEN ──► the file HF_TOKEN_PATH ──► HF_HOME/token ──► XDG_CACHE_HOME/huggingface/token ──► ~/.cache/huggingface/token ──► none
//! ```
//! Source: the documentation of the Hub's API and of `huggingface_hub` (environment variables, `HfFileSystem`).

mod page;
mod signed;

use super::{
    Advice, Place, Store, Unfit, check_endpoint, client, keeper_of, may_be_plain, no_retries,
};
use crate::source::object::credentials::{Chain, ChainAnswer, FoundCredential, Provider, web};
use crate::source::object::refusal::line_of;
use crate::source::object::settings::ObjectSettings;
use foreread_os::open::read_small_text;
use futures_util::future::BoxFuture;
use object_store::HeaderValue;
use object_store::http::HttpBuilder;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use signed::{Hub, HubConnector};
use std::path::PathBuf;
use std::sync::Arc;
use url::Url;

static ADVICE: Advice = Advice {
    refused: "check that the token has read permission (hf auth whoami), log in again (hf auth login), or read public repositories without a token (--no-sign-request)",
    unsigned: "log in (hf auth login), or set HF_TOKEN",
    absent: "check USER/REPO, revision and path, and HF_ENDPOINT",
    elsewhere: "check HF_ENDPOINT",
    list: "HfFileSystem().ls:",
    no_listing: "check HF_ENDPOINT: it must be the URL of a Hugging Face hub, not of another web page",
};

/// The notation of a name.
const WRITTEN: &str = "hf://[datasets/|spaces/]USER/REPO[@REVISION]/PATH";
/// Maximum bytes of the name of a user, of a repository, and of a revision.
const MAX_WORD_BYTES: usize = 255;
/// Maximum bytes of a token; those of the hub have 37.
const MAX_TOKEN_BYTES: u64 = 4 << 10;
/// Characters that are escaped in a URL.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

pub struct HubPlace {
    repository: Repository,
    /// Path of a file or a folder.
    path: String,
}

pub fn read(text: &str) -> Result<HubPlace, Unfit> {
    let rest = text.strip_prefix("hf:").unwrap_or_default();
    let (repository, path) = Repository::parse(rest)?;
    Ok(HubPlace { repository, path })
}

impl Place for HubPlace {
    fn key(&self) -> &str {
        &self.path
    }

    fn connect(&self, settings: &ObjectSettings) -> Result<Store, Unfit> {
        let endpoint = endpoint(settings)?;
        let tokens = keeper_of("the Hugging Face Hub", settings, || {
            HubChain(settings.clone())
        })?;
        let hub = Arc::new(Hub::new(
            self.repository.clone(),
            endpoint,
            client(settings, true)?,
            tokens.clone().map(Provider),
        ));
        let store = HttpBuilder::new()
            .with_url(hub.files_url())
            .with_retry(no_retries())
            .with_http_connector(HubConnector(Arc::clone(&hub)))
            .build();
        let store = store.map_err(|error| Unfit::new(line_of(&error), "check HF_ENDPOINT"))?;
        let listing = Arc::clone(&hub);
        let place = format!("{}/{}", hub.server(), self.repository.page());
        let store = Store::new(Arc::new(store), listing, &ADVICE, tokens, hub.server());
        // The same for all commits: the ETag of a file is a hash of its bytes.
        Ok(Store {
            place: place.into(),
            ..store
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Repository {
    /// `models`, `datasets` or `spaces`.
    kind: &'static str,
    /// `USER/REPO`.
    id: String,
    /// Unescaped, not as in a URL.
    revision: String,
}

impl Repository {
    /// Parses the text after `hf:`. Returns the repository and the path in it; for many files the path is empty, or ends with
    /// `/`.
    fn parse(rest: &str) -> Result<(Repository, String), Unfit> {
        let unfit = |why: &str| Unfit::new(why, format!("write {WRITTEN}"));
        let rest = rest
            .strip_prefix("//")
            .ok_or_else(|| unfit("the repository is missing"))?;
        let (kind, rest) = match rest.split_once('/') {
            Some(("models", rest)) => ("models", rest),
            Some(("datasets", rest)) => ("datasets", rest),
            Some(("spaces", rest)) => ("spaces", rest),
            Some(("buckets" | "kernels", _)) => {
                return Err(unfit("only models, datasets and spaces can be read"));
            }
            _ => ("models", rest),
        };
        let (user, rest) = rest
            .split_once('/')
            .ok_or_else(|| unfit("the repository is missing (USER/REPO)"))?;
        let end = rest.find('/').unwrap_or(rest.len());
        let (repo, revision, path) = match rest[..end].split_once('@') {
            None => (&rest[..end], "main".to_string(), rest[end..].to_string()),
            Some((repo, _)) => {
                let (revision, path) = revision(&rest[repo.len() + 1..]);
                (repo, revision, path)
            }
        };
        if !is_word(user) || !is_word(repo) {
            return Err(unfit("the repository is missing (USER/REPO)"));
        }
        let is_dots = matches!(revision.as_str(), "" | "." | "..");
        if is_dots || revision.len() > MAX_WORD_BYTES || revision.contains(char::is_control) {
            return Err(unfit("the revision is invalid"));
        }
        let path = path.strip_prefix('/').unwrap_or(&path).to_string();
        if path.starts_with('/') {
            return Err(unfit("the path has an empty part"));
        }
        let repository = Repository {
            kind,
            id: format!("{user}/{repo}"),
            revision,
        };
        Ok((repository, path))
    }

    /// The name in the hub's web pages: `USER/REPO`, `datasets/USER/REPO`.
    fn page(&self) -> String {
        match self.kind {
            "models" => self.id.clone(),
            kind => format!("{kind}/{}", self.id),
        }
    }

    fn api(&self) -> String {
        format!("api/{}/{}", self.kind, self.id)
    }
}

/// Splits a revision from what follows it. `refs/pr/N` and `refs/convert/NAME` need no escaping.
fn revision(text: &str) -> (String, String) {
    let mut slashes = text.match_indices('/').map(|(at, _)| at);
    let is_ref = ["refs/pr/", "refs/convert/"]
        .iter()
        .any(|start| text.starts_with(start));
    let end = slashes.nth(if is_ref { 2 } else { 0 });
    let (revision, path) = text.split_at(end.unwrap_or(text.len()));
    let revision = percent_decode_str(revision).decode_utf8_lossy();
    (revision.into_owned(), path.to_string())
}

fn is_word(text: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    (1..=MAX_WORD_BYTES).contains(&text.len())
        && !text.starts_with('.')
        && text.bytes().all(is_plain)
}

/// Escapes a text as one part of a URL's path.
fn escaped(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// The URL of the hub: HF_ENDPOINT, or the public one.
fn endpoint(settings: &ObjectSettings) -> Result<Url, Unfit> {
    let text = settings
        .variable("HF_ENDPOINT")
        .unwrap_or("https://huggingface.co");
    may_be_plain(Some(text), settings, "HF_ALLOW_HTTP")?;
    check_endpoint("HF_ENDPOINT", text)
}

/// Finds the token: the header `Authorization` of the first link that has one.
struct HubChain(ObjectSettings);

impl Chain<HeaderValue> for HubChain {
    fn find(&self) -> BoxFuture<'_, ChainAnswer<HeaderValue>> {
        Box::pin(std::future::ready(find_token(&self.0)))
    }
}

/// Fails if a link has a value that is not a token; the error does not show it.
fn find_token(settings: &ObjectSettings) -> ChainAnswer<HeaderValue> {
    for link in ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"] {
        let text = settings.variable(link).map(str::trim);
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            return found(text, link).map(Some);
        }
    }
    let Some((path, link)) = token_file(settings) else {
        return Ok(None);
    };
    match read_small_text(&path, MAX_TOKEN_BYTES) {
        Ok(text) if text.trim().is_empty() => Ok(None),
        Ok(text) => found(text.trim(), link).map(Some),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let why = format!("the token file of huggingface_hub ({link}) cannot be read: {error}");
            Err(Unfit::new(
                why,
                "check the permissions of this file, or set HF_TOKEN",
            ))
        }
    }
}

fn found(text: &str, link: &str) -> Result<FoundCredential<HeaderValue>, Unfit> {
    let header = HeaderValue::from_str(&format!("Bearer {text}")).ok();
    let header = header.filter(|_| web::is_header(text));
    let Some(mut header) = header else {
        let why = format!("the token in {link} contains a blank or a character that is not ASCII");
        return Err(Unfit::new(
            why,
            "log in again (hf auth login), or set HF_TOKEN",
        ));
    };
    header.set_sensitive(true);
    Ok(FoundCredential::new(header, link, None, ADVICE.refused))
}

/// The file where `hf auth login` has stored the token, and the variable that specifies it.
fn token_file(settings: &ObjectSettings) -> Option<(PathBuf, &'static str)> {
    let named = [
        ("HF_TOKEN_PATH", ""),
        ("HF_HOME", "token"),
        ("XDG_CACHE_HOME", "huggingface/token"),
    ];
    for (link, below) in named {
        if let Some(path) = settings.variable(link) {
            let path = settings.expand(path);
            return Some((
                if below.is_empty() {
                    path
                } else {
                    path.join(below)
                },
                link,
            ));
        }
    }
    let link = "~/.cache/huggingface/token";
    settings.home().map(|_| (settings.expand(link), link))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::object::settings::tests::of_variables;

    #[test]
    fn names_are_those_of_the_hubs_own_file_system() {
        let names = "\
            //u/r > models u/r main
            //u/r/ > models u/r main
            //models/u/r/a > models u/r main a
            //u/r/a/b@c > models u/r main a/b@c
            //datasets/u/r.1/a b%20/ > datasets u/r.1 main a b%20/
            //spaces/u/r@v1.0/a > spaces u/r v1.0 a
            //u/r@refs%2Fpr%2F1/a > models u/r refs/pr/1 a
            //u/r@refs/pr/1/a > models u/r refs/pr/1 a
            //u/r@refs/convert/parquet > models u/r refs/convert/parquet
            //u/r@a@b/c > models u/r a@b c";
        for row in names.lines() {
            let (name, wanted) = row.trim_start().split_once(" > ").expect(row);
            let (found, path) = Repository::parse(name).expect(name);
            let text = format!("{} {} {} {path}", found.kind, found.id, found.revision);
            assert_eq!(text.trim_end(), wanted, "{name}");
        }
        let refused = "u/r/a|//|//u|//u/|///r|//u/@v|//u/r@|//u/r@/a|//u/r@../a|//u/r@%2e%2e/a|//u:secret@h/r|//u/../a|\
            //datasets/u|//buckets/u/r/a|//u/r@a%0a/b|//u/r//a";
        for name in refused.split('|') {
            let unfit = Repository::parse(name).expect_err(name);
            assert!(!unfit.why.contains("secret"), "{}", unfit.why);
        }
    }

    #[test]
    fn the_token_is_that_of_the_first_link_that_has_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let put = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(&path, text).expect("written");
            path.display().to_string()
        };
        let file = put("file", "of-path\n");
        let home = folder.path().display().to_string();
        put("token", "of-home");
        put("huggingface/token", "of-xdg");
        put(".cache/huggingface/token", " of-user \n");
        let none = put("empty", "\n");
        let rows = "\
            | HOME=HERE|of-user HOME=/none| HOME=/none,XDG_CACHE_HOME=HERE|of-xdg XDG_CACHE_HOME=/none,HF_HOME=HERE|of-home \
            HF_HOME=~/,HOME=HERE|of-home HF_HOME=HERE,HF_TOKEN_PATH=FILE|of-path HF_TOKEN_PATH=NONE| \
            HF_TOKEN_PATH=FILE,HUGGING_FACE_HUB_TOKEN=old|old HF_TOKEN_PATH=FILE,HF_TOKEN=\u{a0}new\u{a0}|new";
        for row in rows.split(' ') {
            let (variables, token) = row.split_once('|').expect(row);
            let own = |text: &str| {
                text.replace("HERE", &home)
                    .replace("FILE", &file)
                    .replace("NONE", &none)
            };
            let variables: Vec<(String, String)> = variables
                .split(',')
                .filter_map(|pair| pair.split_once('='))
                .map(|(name, value)| (name.to_string(), own(value)))
                .collect();
            let settings = ObjectSettings {
                variables,
                ..ObjectSettings::default()
            };
            let found = find_token(&settings).expect("no error");
            let found = found.map_or(String::new(), |found| {
                format!("{:?}", found.credential.to_str())
            });
            let wanted = match token {
                "" => String::new(),
                token => format!("Ok(\"Bearer {token}\")"),
            };
            assert_eq!(found, wanted, "{row}");
        }
        for text in ["can ary", "can\u{e4}ry"] {
            let unfit = find_token(&of_variables(&[("HF_TOKEN", text)]))
                .err()
                .expect("refused");
            assert!(
                unfit.why.starts_with("the token in HF_TOKEN") && !unfit.why.contains("can\u{e4}")
            );
            assert!(!unfit.why.contains("ary"), "{}", unfit.why);
        }
    }

    #[test]
    fn an_endpoint_is_a_url_without_secrets() {
        let url =
            |text| endpoint(&of_variables(&[("HF_ENDPOINT", text)])).map(|url| url.to_string());
        for (text, same) in [
            ("http://127.0.0.1:1/hf/", "http://127.0.0.1:1/hf/"),
            ("https://h", "https://h/"),
            ("", "https://huggingface.co/"),
        ] {
            assert_eq!(url(text), Ok(same.to_string()));
        }
        for text in [
            "canary",
            "ftp://canary",
            "https://u:canary@h",
            "https://h?canary",
            "http://canary",
        ] {
            let unfit = url(text).expect_err(text);
            assert!(!unfit.why.contains("canary"), "{}", unfit.why);
        }
        let plain = of_variables(&[("HF_ENDPOINT", "http://h"), ("HF_ALLOW_HTTP", "true")]);
        assert!(endpoint(&plain).is_ok());
    }
}
