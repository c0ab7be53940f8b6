//! Any source as a tree of one file.
//!
//! The source is opened once and kept; when it says that it has changed, the next look opens it anew, as another version.
//! Never: two versions under one number.

use super::{Entry, Kind, Meta, Tree};
use crate::source::{self, Defaults, Source, SourceError, SourceName, SourceOpenError, default_readahead_bytes};
use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

type Opener = dyn Fn() -> Result<Arc<dyn Source>, SourceOpenError> + Send + Sync;

/// See the head of this file.
pub struct Single {
    name: OsString,
    what: SourceName,
    opener: Box<Opener>,
    now: Mutex<Now>,
}

struct Now {
    source: Arc<dyn Source>,
    /// Counts the versions.
    number: u64,
}

impl Single {
    /// The source that a text names, as a file with the last part of that name.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(name: &SourceName) -> Result<Single, SourceOpenError> {
        let again = name.clone();
        Single::new(&file_name(name), name.clone(), move || source::open(&again))
    }

    /// A source and how it is opened anew.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn new(
        name: &str,
        what: impl Into<SourceName>,
        opener: impl Fn() -> Result<Arc<dyn Source>, SourceOpenError> + Send + Sync + 'static,
    ) -> Result<Single, SourceOpenError> {
        let now = Mutex::new(Now { source: opener()?, number: 0 });
        Ok(Single { name: name.into(), what: what.into(), opener: Box::new(opener), now })
    }

    /// The source and its number, after it was asked whether it is still the same.
    fn current(&self) -> Result<(Arc<dyn Source>, Meta), SourceError> {
        let (source, number) = {
            let now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
            (Arc::clone(&now.source), now.number)
        };
        // Not behind the lock: this may block.
        match source.check() {
            Ok(size) => Ok((source, meta(Kind::File, size, number))),
            Err(SourceError::Changed { .. }) => {
                let refused = |e: SourceOpenError| SourceError::Io { errno: e.errno, what: e.to_string() };
                let source = (self.opener)().map_err(refused)?;
                let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
                if now.number == number {
                    *now = Now { source, number: number + 1 };
                }
                Ok((Arc::clone(&now.source), meta(Kind::File, now.source.size(), now.number)))
            }
            Err(error) => Err(error),
        }
    }

    fn is_mine(&self, path: &Path) -> Result<(), SourceError> {
        if path.as_os_str() == self.name.as_os_str() {
            return Ok(());
        }
        let errno = rustix::io::Errno::NOENT.raw_os_error();
        Err(SourceError::Io { errno, what: format!("{} of {}", path.display(), self.what) })
    }
}

impl Tree for Single {
    fn list(&self, _: &Path, each: &mut dyn FnMut(Entry) -> bool) -> Result<(), SourceError> {
        each(Entry::new(self.name.clone(), Kind::File));
        Ok(())
    }

    fn look(&self, path: &Path) -> Result<Meta, SourceError> {
        if path.as_os_str().is_empty() {
            return Ok(meta(Kind::Folder, 0, 0));
        }
        self.is_mine(path)?;
        Ok(self.current()?.1)
    }

    fn open(&self, path: &Path) -> Result<(Arc<dyn Source>, Meta), SourceError> {
        self.is_mine(path)?;
        self.current()
    }

    fn defaults(&self) -> Defaults {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).source.defaults()
    }

    fn readahead_bytes(&self) -> Option<u64> {
        default_readahead_bytes(self.what.path())
    }

    fn describe(&self) -> String {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).source.describe()
    }
}

fn meta(kind: Kind, size: u64, number: u64) -> Meta {
    let permissions = if kind == Kind::Folder { 0o555 } else { 0o444 };
    // Growth makes a new version: an inode has one size.
    let version = [number.to_le_bytes(), size.to_le_bytes()].concat();
    Meta { kind, size, mtime_ns: 0, permissions, owner: None, version: version.into() }
}

/// The last part of a source's name that can be a file name: of the name as it is shown, since the file is shown to all.
fn file_name(name: &SourceName) -> String {
    let text = name.to_string();
    let text = text.as_str();
    let path = text.split_once(':').map_or(text, |(_, rest)| rest);
    let path = path.split(['?', '#']).next().unwrap_or(path);
    let plain = |part: &&str| !part.is_empty() && ![".", "..", "..."].contains(part);
    let clean = |part: &str| part.chars().filter(|c| !c.is_control()).take(200).collect::<String>();
    path.rsplit(['/', ':']).find(plain).map(clean).filter(|name| !name.is_empty()).unwrap_or("data".to_string())
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
        ] {
            assert_eq!(file_name(&text.into()), name, "{text}");
        }
    }

    #[test]
    fn one_file_and_nothing_else() {
        let tree = Single::new("disk", "mem", || Ok(Arc::new(Mem::new(vec![1; 10])))).expect("opened");
        let mut names = Vec::new();
        tree.list(Path::new(""), &mut |entry| {
            names.push(entry.name);
            true
        })
        .expect("listed");
        assert_eq!(names, ["disk"]);
        assert_eq!(tree.look(Path::new("disk")).expect("there").size, 10);
        assert_eq!(tree.look(Path::new("")).expect("there").kind, Kind::Folder);
        assert!(tree.look(Path::new("disk/disk")).is_err() && tree.open(Path::new("")).is_err());
    }
}
