//! The files of a recording that are on some devices, and their records.
//!
//! ```text
//!   file 0 (8:1)  file 1 (7:0)  read 1  read 0  read 1   ──only 7:0──►   file 0 (7:0)  read 0  read 0
//! ```
//! Files are known by the names that they have without a search, which are those of device and inode. Records past the page cache
//! (O_DIRECT) are left out as well: the kernel's readahead takes no part in them.

use foreread_os::host::DeviceNumber;
use foreread_trace::follow::event::FileKey;
use foreread_trace::{Flags, Item, Items, TraceError};
use std::collections::HashSet;

/// What the trace calls the files of `places` that are on one of `devices`.
pub(super) fn names(places: &[FileKey], devices: &[DeviceNumber]) -> HashSet<String> {
    let is_there = |place: &&FileKey| {
        let (major, minor) = place.device();
        devices.contains(&DeviceNumber { major, minor })
    };
    places
        .iter()
        .filter(is_there)
        .map(|place| place.nameless().name)
        .collect()
}

pub(super) struct Only {
    items: Items,
    wanted: HashSet<String>,
    /// Of each file of `items`: its number among those that are wanted.
    numbers: Vec<Option<u32>>,
    next: u32,
}

impl Only {
    pub(super) fn new(items: Items, wanted: HashSet<String>) -> Only {
        Only {
            items,
            wanted,
            numbers: Vec::new(),
            next: 0,
        }
    }
}

impl Iterator for Only {
    type Item = Result<Item, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.items.next()? {
                Ok(Item::File(file)) => {
                    let number = self.wanted.contains(&file.name).then_some(self.next);
                    self.numbers.push(number);
                    if number.is_some() {
                        self.next += 1;
                        return Some(Ok(Item::File(file)));
                    }
                }
                Ok(Item::Record(mut record)) => {
                    let number = self.numbers.get(record.file as usize).copied().flatten();
                    if let Some(number) = number.filter(|_| !record.flags.has(Flags::DIRECT)) {
                        record.file = number;
                        return Some(Ok(Item::Record(record)));
                    }
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreread_trace::{FileInfo, Record};

    #[test]
    fn what_is_on_other_devices_is_left_out_and_files_count_anew() {
        let places = [
            FileKey::new(8, 1, 5),
            FileKey::new(7, 0, 5),
            FileKey::new(7, 0, 6),
            FileKey::new(7, 1, 7),
        ];
        let file = |place: &FileKey| {
            Item::File(FileInfo {
                name: place.nameless().name,
                size: None,
            })
        };
        let read = |file, offset| Item::Record(Record::read(file, offset, 10));
        let all = [
            file(&places[0]),
            read(0, 1),
            file(&places[1]),
            read(1, 2),
            file(&places[2]),
            file(&places[3]),
        ];
        let past = Item::Record(Record {
            flags: Flags::DIRECT,
            ..Record::read(1, 9, 10)
        });
        let all = all
            .into_iter()
            .chain([read(3, 3), past, read(2, 4), read(1, 5)]);
        let items: Items = Box::new(all.map(Ok));
        let wanted = names(&places, &[DeviceNumber { major: 7, minor: 0 }]);
        let told = |item| match item {
            Item::File(file) => file.name,
            Item::Record(record) => format!("{} at {}", record.file, record.offset),
        };
        let left: Vec<String> = Only::new(items, wanted)
            .map(|item| told(item.expect("whole")))
            .collect();
        assert_eq!(
            left,
            [
                "inode 5 of 7:0",
                "0 at 2",
                "inode 6 of 7:0",
                "1 at 4",
                "0 at 5"
            ]
        );
    }
}
