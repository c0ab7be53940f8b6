//! Checks that apply to all formats: the limits of a record, and the order of times.
//!
//! The checks run between an importer and its caller, so all formats report the same errors in the same words. The
//! checks do not repair or reorder records (importers of unsorted formats sort first).

use super::error::{TraceError, TracePosition};
use super::{Item, Items, Record};
use std::path::{Path, PathBuf};

/// Maximum size of a file: offsets are signed on every traced system.
pub const MAX_END: u64 = i64::MAX as u64;
/// Maximum number of files in a trace.
pub const MAX_FILES: u64 = 1 << 20;
/// Maximum size of a file name in bytes: the value of `PATH_MAX`, which limits paths.
pub const MAX_NAME_BYTES: usize = 4096;
/// Maximum number of dependencies of a record.
pub const MAX_AFTER: usize = 1 << 10;

/// An iterator that passes on valid items of a trace, and ends with an error at the first invalid item.
pub struct CheckedItems {
    items: Items,
    path: PathBuf,
    files: u64,
    records: u64,
    latest_ns: u64,
    ended: bool,
}

impl CheckedItems {
    /// Creates the check for `items` that were read from `path`.
    #[must_use]
    pub fn new(items: Items, path: &Path) -> CheckedItems {
        CheckedItems {
            items,
            path: path.to_path_buf(),
            files: 0,
            records: 0,
            latest_ns: 0,
            ended: false,
        }
    }

    fn look(&mut self, item: &Item) -> Result<(), TraceError> {
        let fault = match item {
            Item::File(file) => {
                self.files += 1;
                if self.files > MAX_FILES {
                    Some(("more than 1048576 files", "cut the trace into parts"))
                } else if file.name.len() > MAX_NAME_BYTES {
                    Some(("a file name longer than 4096 bytes", "shorten it"))
                } else if file.name.contains('\0') {
                    Some(("a file name with a zero byte", "remove it"))
                } else if file.size.is_some_and(|size| size > MAX_END) {
                    Some(("a file larger than 2^63 bytes", DAMAGED))
                } else {
                    None
                }
            }
            Item::Record(record) => {
                self.records += 1;
                let fault = self.fault(record);
                self.latest_ns = record.start_ns.unwrap_or(self.latest_ns);
                fault
            }
        };
        let Some((what, remedy)) = fault else {
            return Ok(());
        };
        let record = self.records + u64::from(matches!(item, Item::File(_)));
        let place = TracePosition::Record(record);
        Err(TraceError::new(&self.path, place, what, remedy))
    }

    /// What is wrong with a record, and what to do about it.
    fn fault(&self, record: &Record) -> Option<(&'static str, &'static str)> {
        let ends = record
            .offset
            .checked_add(record.len.max(record.returned.unwrap_or(0)));
        if ends.is_none_or(|end| end > MAX_END) {
            return Some(("a record that ends beyond 2^63 bytes", DAMAGED));
        }
        if u64::from(record.file) >= self.files {
            return Some((
                "a record refers to a file that was not named before",
                DAMAGED,
            ));
        }
        if record.start_ns.is_some_and(|start| start < self.latest_ns) {
            return Some(("time goes backwards", "sort the trace by time"));
        }
        if record
            .end_ns
            .is_some_and(|end| record.start_ns.is_none_or(|start| end < start))
        {
            return Some(("a record ends before it starts", DAMAGED));
        }
        if record.after.len() > MAX_AFTER {
            return Some(("a record waits for more than 1024 others", DAMAGED));
        }
        if record
            .after
            .iter()
            .any(|after| after.record >= self.records - 1)
        {
            return Some(("a record waits for a later record", DAMAGED));
        }
        None
    }
}

const DAMAGED: &str = "the file is damaged or of another format; see --format";

impl Iterator for CheckedItems {
    type Item = Result<Item, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let checked = self
            .items
            .next()?
            .and_then(|item| self.look(&item).map(|()| item));
        self.ended = checked.is_err();
        Some(checked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{After, FileInfo};

    fn first_error(items: Vec<Item>) -> String {
        let items: Items = Box::new(items.into_iter().map(Ok));
        let all: Vec<_> = CheckedItems::new(items, Path::new("t")).collect();
        match all.last() {
            Some(Err(error)) => error.to_string(),
            _ => String::new(),
        }
    }

    fn with(change: impl Fn(&mut Record)) -> String {
        let file = Item::File(FileInfo::default());
        let first = Record::read(0, 0, 1).between(10, 12);
        let mut second = Record::read(0, MAX_END - 1, 1).at(10);
        change(&mut second);
        first_error(vec![file, Item::Record(first), Item::Record(second)])
    }

    #[test]
    fn each_rule_names_its_record() {
        let after = |record| After::new(record, true, 0);
        assert_eq!(with(|_| ()), "");
        assert_eq!(with(|r| r.after = vec![after(0)]), "");
        let late = "time goes backwards: t, record 2; sort the trace by time";
        assert_eq!(with(|r| r.start_ns = Some(9)), late);
        let many = vec![after(0); MAX_AFTER + 1];
        let said = [
            with(|r| r.len = 2),
            with(|r| r.offset = u64::MAX),
            with(|r| r.file = 1),
            with(|r| r.end_ns = Some(9)),
            with(|r| r.after = vec![after(1)]),
            with(|r| r.after = many.clone()),
        ];
        let whats = [
            "that ends beyond 2^63 bytes",
            "that ends beyond 2^63 bytes",
            "refers to a file that was not named before",
            "ends before it starts",
            "waits for a later record",
            "waits for more than 1024 others",
        ];
        for (said, what) in said.iter().zip(whats) {
            let damaged = "t, record 2; the file is damaged or of another format; see --format";
            assert_eq!(*said, format!("a record {what}: {damaged}"));
        }
    }

    #[test]
    fn a_bad_file_is_named_by_the_record_that_would_follow() {
        for (name, size, what) in [
            ("a\0b", None, "a file name with a zero byte: t, record 1; "),
            ("a", Some(MAX_END + 1), "a file larger than 2^63 bytes"),
        ] {
            let name = name.to_string();
            let said = first_error(vec![Item::File(FileInfo::new(name, size))]);
            assert!(said.starts_with(what), "{said}");
        }
    }
}
