//! Names that an answer told of beside the one that was asked for: a program that goes through a list of its files, in whatever order,
//! looks up each of them, and one request can answer a thousand look-ups.
//!
//! Such an answer is a page of a listing, some 250 bytes a name; the plain question is two requests for one name. So it pays where
//! names of one folder are looked up one after the other, and not where they are drawn from a million. The account decides:
//!
//! ```text
//!   credit 2 ──page asked for: -1──► 1 ──a name of it is looked up: +1──► 2        at most 64
//!   credit 0: plain questions alone; each 64th gives 1
//! ```
//! Names are believed as long as those of a listing, and are at most 16,384; with one more all are forgotten.
//!
//! Example: 1,000 objects of one folder, opened in random order within 5 s: about 8 pages and no plain question but the first.

use super::{KernelErrno, View};
use crate::source::tree::{Meta, NameBytes};
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Names kept at once.
const MAX_NAMES: usize = 1 << 14;
/// Bytes of a name beside its letters and those of its version.
const NAME_BYTES: u64 = 300;
/// Pages that may be asked for before one of their names is looked up.
const FIRST_CREDIT: u32 = 2;
const MAX_CREDIT: u32 = 64;
/// Plain questions after which a page is tried once more.
const RETRY_AFTER: u32 = 64;
/// Folders that are remembered: as many may be read in turn.
const MAX_FOLDERS: usize = 16;

pub struct UnaskedNames {
    names: HashMap<PathBuf, (Meta, Instant)>,
    /// Those of the names since they were forgotten last.
    bytes: NameBytes,
    credit: u32,
    plain: u32,
    /// Where the latest plain questions were.
    folders: VecDeque<PathBuf>,
}

impl Default for UnaskedNames {
    fn default() -> UnaskedNames {
        let (names, bytes) = (HashMap::new(), NameBytes::default());
        UnaskedNames {
            names,
            bytes,
            credit: FIRST_CREDIT,
            plain: 0,
            folders: VecDeque::new(),
        }
    }
}

impl UnaskedNames {
    /// What an answer has told of a name, if it is not older than `ttl`.
    fn take(&mut self, path: &Path, ttl: Duration) -> Option<(Meta, Instant)> {
        let found = self
            .names
            .remove(path)
            .filter(|(_, seen)| seen.elapsed() < ttl)?;
        self.credit = (self.credit + 1).min(MAX_CREDIT);
        Some(found)
    }

    pub fn keep(&mut self, path: PathBuf, meta: Meta, seen: Instant) {
        let bytes = NAME_BYTES + path.as_os_str().len() as u64 + meta.heap_bytes();
        if self.names.len() >= MAX_NAMES || !self.bytes.grow(bytes) {
            self.names.clear();
            self.bytes = NameBytes::default();
        } else {
            self.names.insert(path, (meta, seen));
        }
    }

    /// Whether a page is to be asked for, from this path on: in a folder that was asked about lately, if there is credit.
    fn is_worth_a_page(&mut self, path: &Path) -> bool {
        let folder = path.parent().unwrap_or(Path::new(""));
        let again = self.folders.iter().any(|other| other == folder);
        if !again {
            self.folders.truncate(MAX_FOLDERS - 1);
            self.folders.push_front(folder.to_path_buf());
        }
        if again && self.credit > 0 {
            self.credit -= 1;
            return true;
        }
        self.plain += 1;
        if self.plain.is_multiple_of(RETRY_AFTER) && self.credit == 0 {
            self.credit = 1;
        }
        false
    }
}

impl View {
    /// What is at a path that the kernel does not know, and when that was asked.
    pub(super) fn look_anew(&self, path: &Path) -> Result<(Meta, Instant), KernelErrno> {
        let page = self.lists_versions && {
            let mut unasked = self.unasked();
            if let Some(found) = unasked.take(path, self.ttl) {
                return Ok(found);
            }
            unasked.is_worth_a_page(path)
        };
        if page {
            return self.look_ahead(path);
        }
        let asked = Instant::now();
        Ok((
            self.tree.look(path).map_err(|e| self.refuse_source(&e))?,
            asked,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::tree::Kind;

    const TTL: Duration = Duration::from_secs(60);

    fn meta() -> Meta {
        Meta {
            kind: Kind::File,
            size: 1,
            mtime_ns: 0,
            permissions: 0o444,
            owner: None,
            version: [1].into(),
        }
    }

    #[test]
    fn pages_are_asked_for_as_long_as_their_names_are_looked_up() {
        let mut unasked = UnaskedNames::default();
        let path = |n: u32| PathBuf::from(format!("d/{n}"));
        let asked: Vec<bool> = (0..5).map(|n| unasked.is_worth_a_page(&path(n))).collect();
        assert_eq!(
            asked,
            [false, true, true, false, false],
            "names that no page has"
        );
        assert_eq!(
            (5..80)
                .filter(|n| unasked.is_worth_a_page(&path(*n)))
                .count(),
            1,
            "tried once more"
        );
        unasked.keep(path(1), meta(), Instant::now());
        assert!(unasked.take(&path(2), TTL).is_none() && !unasked.is_worth_a_page(&path(2)));
        assert!(unasked.take(&path(1), TTL).is_some() && unasked.is_worth_a_page(&path(3)));
        assert!(
            unasked.take(&path(1), TTL).is_none(),
            "the kernel has it now"
        );
    }

    #[test]
    fn a_name_is_believed_for_a_while_and_names_have_a_limit() {
        let mut unasked = UnaskedNames::default();
        unasked.keep("a".into(), meta(), Instant::now());
        assert!(unasked.take(Path::new("a"), Duration::ZERO).is_none());
        for n in 0..=MAX_NAMES {
            unasked.keep(n.to_string().into(), meta(), Instant::now());
        }
        assert!(unasked.names.is_empty() && unasked.bytes.bytes() == 0);
        let other = |unasked: &mut UnaskedNames, folder: &str| {
            unasked.is_worth_a_page(&Path::new(folder).join("x"))
        };
        let turns: Vec<bool> = ["a", "b", "a", "b"]
            .iter()
            .map(|folder| other(&mut unasked, folder))
            .collect();
        assert_eq!(turns, [false, false, true, true], "folders in turn");
        unasked.credit = FIRST_CREDIT;
        (0..MAX_FOLDERS).for_each(|n| assert!(!other(&mut unasked, &n.to_string())));
        assert!(!other(&mut unasked, "a"), "too long ago");
    }
}
