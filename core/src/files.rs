//! The files that the state machine knows, and the order in which a program is expected to read them.
//!
//! A file is known from the time when it is opened or listed ([`crate::event::Event::List`]), until the caller sends
//! [`crate::event::Event::Forget`]. A listing also gives an order: which file a program reads next if it goes through a folder, a bucket
//! or its own list of files. A file order alone causes no I/O. A policy may use the order to read ahead in a file that is not open yet; the
//! pages of this file stay in the cache like any others.
//!
//! ```text
//!   List 4   List 5 after 4   List 6 after 5        4 ──► 5 ──► 6
//!   Forget 5                                        4     6          a reused number has no order
//! ```
//!
//! Example: a folder has 5,000 files of 12 KiB. If the folder was listed, a policy that sees files 4 and 5 opened one after the other can
//! fetch file 6 before a program opens it. Without the listing the policy does not know the next file.
//!
//! Source: the project's own design.

use crate::units::FileId;
use alloc::vec::Vec;

/// What the state machine knows about a file.
#[derive(Clone, Debug, Default)]
pub struct KnownFile {
    /// Size in bytes.
    pub size: u64,
    /// Number of open descriptions.
    pub opens: u32,
    /// The policy state that all readers share, for policies of [`crate::policy::Scope::File`].
    pub stream: Option<u32>,
    /// The neighbours of the file in the order.
    before: Option<FileId>,
    after: Option<FileId>,
    /// The caller has announced that it will read this file in this order.
    planned: bool,
}

/// The file that follows another file in a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextFile {
    /// The number of the file.
    pub file: FileId,
    /// The size of the file in bytes.
    pub size: u64,
    /// The caller announced the order; otherwise the order is that of a listing.
    pub planned: bool,
}

/// The files that the state machine knows, each with its neighbours in a listing.
#[derive(Clone, Debug, Default)]
pub struct FileTable(Vec<Option<KnownFile>>);

impl FileTable {
    /// The file, if it is known.
    #[must_use]
    pub fn get(&self, file: FileId) -> Option<&KnownFile> {
        self.0.get(file.0 as usize)?.as_ref()
    }

    /// Like [`Self::get`], but mutable.
    pub fn get_mut(&mut self, file: FileId) -> Option<&mut KnownFile> {
        self.0.get_mut(file.0 as usize)?.as_mut()
    }

    /// Returns the file. If the file is unknown, first adds it with this size.
    pub fn get_or_add(&mut self, file: FileId, size: u64) -> &mut KnownFile {
        let at = file.0 as usize;
        if self.0.len() <= at {
            self.0.resize_with(at + 1, || None);
        }
        self.0[at].get_or_insert_with(|| KnownFile {
            size,
            ..KnownFile::default()
        })
    }

    /// Records that `file` follows `after` in a listing. If the two files had other neighbours before, those links are removed.
    pub fn list(&mut self, file: FileId, size: u64, after: Option<FileId>, planned: bool) {
        self.get_or_add(file, size).planned = planned;
        let Some(after) = after.filter(|after| *after != file && self.get(*after).is_some()) else {
            return;
        };
        self.part(Some(after), self.get(after).and_then(|entry| entry.after));
        self.part(self.get(file).and_then(|entry| entry.before), Some(file));
        self.link(Some(after), Some(file), |entry, next| entry.after = next);
        self.link(Some(file), Some(after), |entry, previous| {
            entry.before = previous
        });
    }

    /// Removes a file. The links from neighbouring files to this file are removed, too.
    pub fn remove(&mut self, file: FileId) {
        let Some(entry) = self.0.get_mut(file.0 as usize).and_then(Option::take) else {
            return;
        };
        self.link(entry.before, None, |entry, next| entry.after = next);
        self.link(entry.after, None, |entry, previous| entry.before = previous);
    }

    /// The file that follows `file` in the listing.
    #[must_use]
    pub fn next(&self, file: FileId) -> Option<NextFile> {
        let next = self.get(file)?.after?;
        self.get(next).map(|entry| NextFile {
            file: next,
            size: entry.size,
            planned: entry.planned,
        })
    }

    /// The file before `file` in the listing.
    #[must_use]
    pub fn before(&self, file: FileId) -> Option<FileId> {
        self.get(file)?.before
    }

    /// Unlinks two neighbours in the order.
    fn part(&mut self, first: Option<FileId>, second: Option<FileId>) {
        if first.is_some() && second.is_some() {
            self.link(first, None, |entry, next| entry.after = next);
            self.link(second, None, |entry, previous| entry.before = previous);
        }
    }

    fn link(
        &mut self,
        of: Option<FileId>,
        to: Option<FileId>,
        set: fn(&mut KnownFile, Option<FileId>),
    ) {
        if let Some(entry) = of.and_then(|of| self.get_mut(of)) {
            set(entry, to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(table: &FileTable, first: u32) -> Vec<u32> {
        core::iter::successors(Some(FileId(first)), |file| Some(table.next(*file)?.file))
            .map(|file| file.0)
            .collect()
    }

    /// The drawing in the header, and a second listing with a different order.
    #[test]
    fn an_order_is_a_chain() {
        let mut table = FileTable::default();
        table.list(FileId(4), 10, None, false);
        table.list(FileId(5), 20, Some(FileId(4)), false);
        table.list(FileId(6), 30, Some(FileId(5)), true);
        assert_eq!(order(&table, 4), [4, 5, 6]);
        assert_eq!(
            table.next(FileId(5)),
            Some(NextFile {
                file: FileId(6),
                size: 30,
                planned: true
            })
        );
        assert_eq!(table.before(FileId(5)), Some(FileId(4)));
        // Known files keep their size; file 6 gets a new position.
        table.list(FileId(6), 99, Some(FileId(4)), false);
        assert_eq!(
            (order(&table, 4), order(&table, 5)),
            (alloc::vec![4, 6], alloc::vec![5])
        );
        assert_eq!(
            (
                table.before(FileId(5)),
                table.next(FileId(4)).map(|next| next.size)
            ),
            (None, Some(30))
        );
        table.remove(FileId(6));
        table.get_or_add(FileId(6), 7);
        assert_eq!(
            (order(&table, 4), order(&table, 6)),
            (alloc::vec![4], alloc::vec![6])
        );
        table.list(FileId(6), 7, Some(FileId(6)), false);
        table.list(FileId(6), 7, Some(FileId(77)), false);
        assert_eq!(
            (order(&table, 6), table.before(FileId(6))),
            (alloc::vec![6], None)
        );
    }
}
