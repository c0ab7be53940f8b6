//! Shows any source as a tree that has only one file.
//!
//! The source is opened once and stays open. When the source has reported a change, the next look-up of the file opens the source
//! again, as another version. Two versions never have the same version number.

use super::{FolderNames, Kind, Meta, Tree, too_many};
use crate::source::{
    self, Defaults, Source, SourceError, SourceName, SourceOpenError, default_readahead_bytes,
};
use crate::sync::lock;
use percent_encoding::percent_decode_str;
use rustix::io::Errno;
use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, Mutex};

type Opener = dyn Fn() -> Result<Arc<dyn Source>, SourceOpenError> + Send + Sync;

/// A tree that has only one file. The file can be any source.
pub struct Single {
    name: OsString,
    what: SourceName,
    opener: Box<Opener>,
    now: Mutex<SingleVersion>,
}

struct SingleVersion {
    source: Arc<dyn Source>,
    /// Number of versions so far.
    number: u64,
}

impl Single {
    /// Opens the source with this name, as a file with the last part of that name.
    ///
    /// # Errors
    /// Returns an error if the source cannot be opened.
    pub fn open(name: &SourceName) -> Result<Single, SourceOpenError> {
        let again = name.clone();
        Single::new(&file_name(name), name.clone(), move || source::open(&again))
    }

    /// Shows a source as a file called `name`; `opener` opens the source, and reopens it later.
    ///
    /// # Errors
    /// Returns an error if the source cannot be opened.
    pub fn new(
        name: &str,
        what: impl Into<SourceName>,
        opener: impl Fn() -> Result<Arc<dyn Source>, SourceOpenError> + Send + Sync + 'static,
    ) -> Result<Single, SourceOpenError> {
        let now = Mutex::new(SingleVersion {
            source: opener()?,
            number: 0,
        });
        Ok(Single {
            name: name.into(),
            what: what.into(),
            opener: Box::new(opener),
            now,
        })
    }

    /// The source and its number, after a check whether it is still the same.
    fn current(&self) -> Result<(Arc<dyn Source>, Meta), SourceError> {
        let (source, number) = {
            let now = lock(&self.now);
            (Arc::clone(&now.source), now.number)
        };
        // Not under the lock: this may block.
        match source.check() {
            Ok(size) => {
                let meta = meta(Kind::File, size, number, source.modified_ns());
                Ok((source, meta))
            }
            Err(SourceError::Changed { .. }) => {
                let refused = |e: SourceOpenError| SourceError::io(e.errno, e.to_string());
                let source = (self.opener)().map_err(refused)?;
                let mut now = lock(&self.now);
                if now.number == number {
                    *now = SingleVersion {
                        source,
                        number: number + 1,
                    };
                }
                let (source, number) = (Arc::clone(&now.source), now.number);
                let meta = meta(Kind::File, source.size(), number, source.modified_ns());
                Ok((source, meta))
            }
            Err(error) => Err(error),
        }
    }

    /// The source as it was opened last.
    fn held(&self) -> Arc<dyn Source> {
        let now = lock(&self.now);
        Arc::clone(&now.source)
    }

    fn is_mine(&self, path: &Path) -> Result<(), SourceError> {
        if path.as_os_str() == self.name.as_os_str() {
            return Ok(());
        }
        let errno = Errno::NOENT.raw_os_error();
        Err(SourceError::io(
            errno,
            format!("{} of {}", path.display(), self.what),
        ))
    }
}

impl Tree for Single {
    fn names(&self, folder: &Path) -> Result<Arc<FolderNames>, SourceError> {
        let mut names = FolderNames::default();
        if names.push(&self.name, Kind::File, None) {
            return Ok(Arc::new(names));
        }
        Err(too_many(self, folder, Errno::OVERFLOW))
    }

    fn look(&self, path: &Path) -> Result<Meta, SourceError> {
        if path.as_os_str().is_empty() {
            let modified = self.held().modified_ns();
            return Ok(meta(Kind::Folder, 0, 0, modified));
        }
        self.is_mine(path)?;
        Ok(self.current()?.1)
    }

    fn open(&self, path: &Path) -> Result<(Arc<dyn Source>, Meta), SourceError> {
        self.is_mine(path)?;
        self.current()
    }

    fn defaults(&self) -> Defaults {
        self.held().defaults()
    }

    fn readahead_bytes(&self) -> Option<u64> {
        default_readahead_bytes(self.what.path())
    }

    fn describe(&self) -> String {
        self.held().describe()
    }
}

fn meta(kind: Kind, size: u64, number: u64, modified_ns: Option<i128>) -> Meta {
    let permissions = if kind == Kind::Folder { 0o555 } else { 0o444 };
    // Growth makes a new version: an inode has one size.
    let version = [number.to_le_bytes(), size.to_le_bytes()].concat();
    Meta {
        kind,
        size,
        mtime_ns: modified_ns.unwrap_or(0),
        permissions,
        owner: None,
        version: version.into(),
    }
}

/// The last part of a source's name that can be a file name, taken from the displayed name, because everyone can see the file.
///
/// ```text
///   s3://bucket/a/b#c          b#c         a key is any text
///   https://host/my%20file?x   my file     a path in a URL is percent-encoded, and does not include ? or # and the rest
///   rbd:pool/image@snap        image@snap
/// ```
fn file_name(name: &SourceName) -> String {
    let shown = name.to_string();
    let last = match name.scheme() {
        _ if source::is_of_store(name) => last_of_key(name, &shown),
        "http" | "https" => last_of_path(&shown),
        _ => {
            let path = shown
                .split_once(':')
                .map_or(shown.as_str(), |(_, rest)| rest);
            let path = path.split(['?', '#']).next().unwrap_or(path);
            last_but(path, &['/', ':'], &[".", "..", HIDDEN])
        }
    };
    let clean = |part: String| {
        part.chars()
            .filter(|c| !c.is_control())
            .take(200)
            .collect::<String>()
    };
    last.map(clean)
        .filter(|name| !name.is_empty())
        .unwrap_or("data".to_string())
}

/// Replaces a secret in a displayed name.
const HIDDEN: &str = "...";

/// The last part that is neither empty nor in `none`.
fn last_but(path: &str, ends: &[char], none: &[&str]) -> Option<String> {
    path.rsplit(ends)
        .find(|part| !part.is_empty() && !none.contains(part))
        .map(str::to_string)
}

/// The file name of `s3://BUCKET/KEY`, `abfss://CONTAINER@ACCOUNT/KEY`, `hf://USER/REPO/PATH`. The part after a `?` is shown if
/// it cannot be the signature of a URL.
fn last_of_key(name: &SourceName, shown: &str) -> Option<String> {
    let (_, path) = shown.split_once("://")?;
    let (_, key) = path
        .split_once('/')
        .filter(|(bucket, _)| *bucket != HIDDEN)?;
    let none = [".", ".."];
    match (name.unredacted_text()?.split_once('?'), key.split_once('?')) {
        (Some((_, query)), Some((before, _))) if query.contains('=') => {
            last_but(before, &['/'], &none)
        }
        (Some((_, query)), Some((before, _))) => {
            last_but(&format!("{before}?{query}"), &['/'], &none)
        }
        _ => last_but(key, &['/'], &none),
    }
}

/// The file name of `https://HOST/PATH`.
fn last_of_path(shown: &str) -> Option<String> {
    let (_, rest) = shown.split_once("://")?;
    let rest = rest.split(['?', '#']).next().unwrap_or(rest);
    let last = last_but(rest, &['/'], &[".", "..", HIDDEN])?;
    let decoded = percent_decode_str(&last)
        .decode_utf8()
        .ok()
        .map(|name| name.into_owned());
    decoded
        .filter(|name| !name.contains(['/', '\0']) && ![".", ".."].contains(&name.as_str()))
        .or(Some(last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Mem;

    #[test]
    fn the_file_has_the_last_part_of_the_name() {
        for (text, name) in [
            ("nbd://host:10809/disk", "disk"),
            ("nbd+unix:///?socket=x.sock", "data"),
            ("rbd:pool/image@snap", "image@snap"),
            ("https://host/a/b.iso?sig=1/2", "b.iso"),
            ("/dev/vda", "vda"),
            ("nbd://host/..", "host"),
            ("http://user:secret@host", "host"),
            ("http://user:sec/ret@host", "data"),
            ("s3://b/a#b", "a#b"),
            ("s3://b/o/a?b", "a?b"),
            ("s3://b/o/a:b", "a:b"),
            ("s3://b/o/...", "..."),
            ("s3://b/o/..", "o"),
            ("s3://b/a%20b", "a%20b"),
            ("s3://b/o/a b", "a b"),
            ("s3://KEY:SECRET@b/k?X-Amz-Signature=1", "k"),
            ("s3://KEY:SE/CR+ET@b/k", "data"),
            ("s3://KEY:SE/CRET@b", "data"),
            ("gs://b/o/a#b", "a#b"),
            ("gcs://b/o/a?b", "a?b"),
            ("gs://b/o/a:b", "a:b"),
            ("gs://b/o/...", "..."),
            ("az://box/o/a#b", "a#b"),
            ("az://box/o/a?b", "a?b"),
            ("az://box/o/a:b", "a:b"),
            ("abfss://box@acc.dfs.core.windows.net/o/a#b", "a#b"),
            ("abfss://box@acc.dfs.core.windows.net/a b", "a b"),
            (
                "https://acc.blob.core.windows.net/box/my%20file?sv=1&sig=x/y",
                "my file",
            ),
            ("hf://u/r/o/a#b", "a#b"),
            ("hf://u/r/o/a:b", "a:b"),
            ("hf://u/r/a?b", "a?b"),
            ("hf://datasets/u/r@refs%2Fpr%2F1/d/a@b c", "a@b c"),
            ("https://host/my%20file.bin", "my file.bin"),
            ("https://host/a.bin?x=1", "a.bin"),
            ("https://host/a:b", "a:b"),
            ("https://host/a%2Fb", "a%2Fb"),
            ("https://host/%2e%2e", "%2e%2e"),
            ("https://host/a%00b", "a%00b"),
            ("https://host/", "host"),
        ] {
            assert_eq!(file_name(&text.into()), name, "{text}");
        }
    }

    #[test]
    fn one_file_and_nothing_else() {
        let tree =
            Single::new("disk", "mem", || Ok(Arc::new(Mem::new(vec![1; 10])))).expect("opened");
        let names = tree.names(Path::new("")).expect("listed");
        assert_eq!((names.len(), names.name(0)), (1, Some("disk".as_ref())));
        assert_eq!(tree.look(Path::new("disk")).expect("there").size, 10);
        assert_eq!(tree.look(Path::new("")).expect("there").kind, Kind::Folder);
        assert!(tree.look(Path::new("disk/disk")).is_err() && tree.open(Path::new("")).is_err());
    }
}
