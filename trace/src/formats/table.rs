//! Shared by the published tables of block requests: a line is a row with a fixed number of fields, a volume is a file.
//!
//! Never: a float; quotes (the tables have none; `csv` has).

use super::scan::{Names, whole_lines};
use super::step::{Lines, Text, items};
use crate::error::Fault;
use crate::format::Fit;
use crate::input::Input;
use crate::{FileInfo, Header, Import, Item, LeftOut, Record, order};
use std::collections::VecDeque;

/// Lines that a detector looks at.
const DETECT_LINES: usize = 100;
/// How well the lines of `head` fit: each must do, as `line` says of it. The last one may be cut and does not count.
pub fn lines_fit(head: &[u8], line: impl Fn(usize, &[u8]) -> Fit) -> Fit {
    let lines = whole_lines(head).take(DETECT_LINES).enumerate();
    let fits = lines.map(|(i, text)| line(i, text.strip_suffix(b"\r").unwrap_or(text)));
    fits.min().filter(|_| !head.is_empty()).unwrap_or(Fit::No)
}

pub enum Row<'a> {
    /// A record of the volume of this name; its number is still to be filled in.
    Record(&'a [u8], Record),
    /// Nothing to keep, for this reason (a plural).
    LeftOut(&'static str),
    /// Nothing at all: a header.
    Nothing,
}

struct Table<R> {
    row: R,
    name: fn(&[u8]) -> String,
    volumes: Names,
    left_out: LeftOut,
}

impl<R> Lines for Table<R>
where
    R: FnMut(&[u8]) -> Result<Row<'_>, Fault> + Send,
{
    fn line(&mut self, line: &[u8], out: &mut VecDeque<Item>) -> Result<bool, Fault> {
        if line.is_empty() {
            return Ok(true);
        }
        match (self.row)(line)? {
            Row::Record(volume, mut record) => {
                let named = || FileInfo {
                    name: (self.name)(volume),
                    size: None,
                };
                let file = self.volumes.file(volume, out, named);
                record.file =
                    file.ok_or(("too many names of volumes", "cut the trace in parts"))?;
                record.open = record.file;
                out.push_back(Item::Record(record));
            }
            Row::LeftOut(reason) => self.left_out.count(reason),
            Row::Nothing => {}
        }
        Ok(true)
    }
}

/// Reads a table whose keys are taken: `row` makes a row of a line, `name` a file's name of a volume. Where it has times,
/// the records come in their order, and the first begins at 0.
pub fn import<R>(input: Input, header: Header, name: fn(&[u8]) -> String, row: R) -> Import
where
    R: FnMut(&[u8]) -> Result<Row<'_>, Fault> + Send + 'static,
{
    let left_out = LeftOut::default();
    let path = input.path().to_path_buf();
    let lines = Table {
        row,
        name,
        volumes: Names::default(),
        left_out: left_out.clone(),
    };
    let mut items = items(Text { input, lines });
    if !header.lacks.starts {
        items = order::by_start(items, &path);
    }
    Import::new(header, items, left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_line_decides_and_a_cut_one_does_not_count() {
        let fit = |_: usize, line: &[u8]| if line == b"x" { Fit::Sure } else { Fit::No };
        assert_eq!(lines_fit(b"x\r\nx\ny", fit), Fit::Sure);
        assert_eq!(lines_fit(b"x\ny\nx\n", fit), Fit::No);
        assert_eq!(lines_fit(b"x", fit), Fit::Sure);
        assert_eq!(lines_fit(b"", fit), Fit::No);
    }
}
