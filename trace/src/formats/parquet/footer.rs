//! Looks at the list of contents of a Parquet file before the library reads it: the library builds the schema by recursion
//! and makes room for as many children as a group claims, so a hostile schema would end the process.
//!
//! ```text
//!   list of contents:  1 version   2 schema: list of elements   3 rows   4 row groups   ...
//!   schema element:    1 type ... 4 name   5 number of children   ...   10 logical type     a group's children follow it
//! ```
//!
//! The first four fields have to come in this order and with the types of the format's description, as every writer has
//! them. A schema nested deeper than [`MAX_LEVELS`] is refused. Never: the row groups themselves.

use super::thrift::{BINARY, Compact, I8, I32, I64, LIST, STRUCT};
use std::fs::File;
use std::io::{BufReader, Seek, SeekFrom};

/// Groups within groups in a schema, its root and its columns included. A trace has two levels.
pub const MAX_LEVELS: usize = 32;
/// Elements of a schema: columns and groups.
pub const MAX_ELEMENTS: u64 = 4096;
/// Row groups; the writer here makes one for each 131,072 rows.
pub const MAX_GROUPS: u64 = 1 << 20;

/// Why a list of contents is not given to the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FooterRefusal {
    /// It is not in the form that the format describes.
    Damaged,
    Deep,
    Wide,
    Groups,
}

pub fn check(file: &File, start: u64, len: u64) -> Result<(), FooterRefusal> {
    let mut from = BufReader::new(file.try_clone().map_err(|_| FooterRefusal::Damaged)?);
    from.seek(SeekFrom::Start(start))
        .map_err(|_| FooterRefusal::Damaged)?;
    let mut footer = Compact::new(&mut from, len);
    let head = |footer: &mut Compact<'_>| {
        footer.expect(0, 1, I32)?;
        footer.integer()?;
        footer.expect(1, 2, LIST)?;
        footer.list().filter(|(_, kind)| *kind == STRUCT)
    };
    let (elements, _) = head(&mut footer).ok_or(FooterRefusal::Damaged)?;
    schema(&mut footer, elements)?;
    let groups = |footer: &mut Compact<'_>| {
        footer.expect(2, 3, I64)?;
        footer.integer()?;
        footer.expect(3, 4, LIST)?;
        footer.list().filter(|(_, kind)| *kind == STRUCT)
    };
    let (groups, _) = groups(&mut footer).ok_or(FooterRefusal::Damaged)?;
    if groups > MAX_GROUPS {
        Err(FooterRefusal::Groups)
    } else {
        Ok(())
    }
}

/// Reads the elements of the schema, which stand in the order of a walk through the tree, and follows the walk.
fn schema(footer: &mut Compact<'_>, elements: u64) -> Result<(), FooterRefusal> {
    if elements > MAX_ELEMENTS {
        return Err(FooterRefusal::Wide);
    }
    // Of each group that is open, how many children are still to come.
    let mut open: Vec<u64> = Vec::new();
    for _ in 0..elements {
        let children = element(footer).ok_or(FooterRefusal::Damaged)?;
        let children = u64::try_from(children)
            .ok()
            .filter(|n| *n < elements)
            .ok_or(FooterRefusal::Damaged)?;
        if let Some(left) = open.last_mut() {
            *left -= 1;
        }
        if children > 0 {
            open.push(children);
        }
        if open.len() >= MAX_LEVELS {
            return Err(FooterRefusal::Deep);
        }
        while open.last() == Some(&0) {
            open.pop();
        }
    }
    Ok(())
}

/// One element; returns the number of its children.
fn element(footer: &mut Compact<'_>) -> Option<i64> {
    let (mut last, mut children) = (0, 0);
    while let Some((id, kind)) = footer.field(last)? {
        match (id, kind) {
            (5, I32) => children = footer.integer()?,
            (4, BINARY) => footer.skip(kind, 0)?,
            (1..=3 | 6..=9, I32) => footer.skip(kind, 0)?,
            (10, STRUCT) => logical_type(footer)?,
            (..=10, _) => return None,
            // The library passes over what it does not know.
            _ => footer.skip(kind, 0)?,
        }
        last = id;
    }
    Some(children)
}

/// A union of structures, most of them empty: which types the fields of the others have.
fn logical_type(footer: &mut Compact<'_>) -> Option<()> {
    let mut last = 0;
    while let Some((id, kind)) = footer.field(last)? {
        match (id, kind) {
            (..=19, STRUCT) => {
                let mut inner = 0;
                while let Some((field, kind)) = footer.field(inner)? {
                    let scalar = match (id, field) {
                        (5, 1 | 2) | (18, 2) => kind == I32,
                        (7 | 8, 1) | (10, 2) => kind == 1 || kind == 2,
                        (10 | 16, 1) => kind == I8,
                        (17 | 18, 1) => kind == BINARY,
                        _ => false,
                    };
                    match (id, field, kind) {
                        _ if scalar => footer.skip(kind, 0)?,
                        (7 | 8, 2, STRUCT) => unit(footer)?,
                        _ => return None,
                    }
                    inner = field;
                }
            }
            (..=19, _) => return None,
            _ => footer.skip(kind, 0)?,
        }
        last = id;
    }
    Some(())
}

/// The unit of a time: a union of empty structures.
fn unit(footer: &mut Compact<'_>) -> Option<()> {
    let mut last = 0;
    while let Some((id, kind)) = footer.field(last)? {
        let empty = kind == STRUCT && footer.field(0)?.is_none();
        if !empty {
            return None;
        }
        last = id;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A list of contents whose schema has elements with this many children each.
    fn footer(children: &[i64], groups: u64) -> Result<(), FooterRefusal> {
        let varint = |mut n: u64| {
            let mut bytes = Vec::new();
            while n > 0x7f {
                bytes.push((n & 0x7f) as u8 | 0x80);
                n >>= 7;
            }
            bytes.push(n as u8);
            bytes
        };
        let mut bytes = vec![0x15, 2, 0x19, 0xfc];
        bytes.extend(varint(children.len() as u64));
        for &n in children {
            bytes.extend([0x35, 0, 0x18, 1, b'g', 0x15]);
            bytes.extend(varint(((n << 1) ^ (n >> 63)).cast_unsigned()));
            bytes.push(0);
        }
        bytes.extend([0x16, 0, 0x19, 0xfc]);
        bytes.extend(varint(groups));
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&bytes).expect("written");
        check(&file, 0, bytes.len() as u64)
    }

    #[test]
    fn a_schema_has_a_depth_and_a_width_and_no_more_children_than_elements() {
        let chain = |levels: usize| [vec![1; levels - 1], vec![0]].concat();
        assert_eq!(footer(&chain(2), 0), Ok(()));
        assert_eq!(footer(&chain(MAX_LEVELS), 0), Ok(()));
        assert_eq!(footer(&chain(MAX_LEVELS + 1), 0), Err(FooterRefusal::Deep));
        // A deep group behind one that has ended, and columns behind a deep group.
        assert_eq!(
            footer(&[&[3, 0][..], &chain(MAX_LEVELS - 1), &[0]].concat(), 0),
            Ok(())
        );
        assert_eq!(
            footer(&[&[3, 0][..], &chain(MAX_LEVELS), &[0]].concat(), 0),
            Err(FooterRefusal::Deep)
        );
        assert_eq!(
            footer(&[3, 0], 0),
            Err(FooterRefusal::Damaged),
            "room for children that are not there"
        );
        assert_eq!(
            footer(&[i64::from(i32::MAX), 0], 0),
            Err(FooterRefusal::Damaged)
        );
        assert_eq!(footer(&[-1, 0], 0), Err(FooterRefusal::Damaged));
        assert_eq!(
            footer(&vec![0; MAX_ELEMENTS as usize + 1], 0),
            Err(FooterRefusal::Wide)
        );
        assert_eq!(footer(&chain(2), MAX_GROUPS), Ok(()));
        assert_eq!(
            footer(&chain(2), MAX_GROUPS + 1),
            Err(FooterRefusal::Groups)
        );
    }
}
