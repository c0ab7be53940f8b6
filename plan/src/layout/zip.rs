//! zip: the directory at the end of the archive lists the entries; each entry has a header before its bytes.
//!
//! ```text
//!   [header, name, extra][bytes] ...   [46 bytes, name, extra, comment] for each   [zip64: end, locator]   [end: 22 bytes, comment]
//!   entries                            directory                                   only in large files
//! ```
//! The directory is read in chunks, and only the name and the range of each entry are stored. Bytes in front of the archive (such as a
//! self-extracting program) shift all offsets. An archive that was written to a pipe may refer to a zip64 end record that does not exist,
//! or contain such a record without its locator. In these cases the entries of the directory are searched backwards from its end: each
//! entry ends where the next one begins.
//!
//! Source: APPNOTE.TXT 6.3 of PKWARE, 4.3 and 4.4.

use super::{LayoutError, MAX_PARTS, Parts, ReadAt, Window};
use std::ops::Range;

const DIRECTORY_PIECE_BYTES: u64 = 1 << 20;
/// Bytes of a read for an entry's header. Small entries share a read.
const ENTRY_PIECE_BYTES: u64 = 4 << 10;
const END_BYTES: usize = 22;
/// Size of a directory entry without name, extra field and comment.
const ENTRY_BYTES: u64 = 46;
const LOCATOR_BYTES: u64 = 20;
const END_64_BYTES: u64 = 56;
/// Bytes before the end of the file that are searched for a directory that the end record does not locate.
const MAX_SEARCHED_BYTES: u64 = 16 << 20;
const MAX_COMMENT_BYTES: usize = u16::MAX as usize;
/// A field whose value is in the zip64 part.
const ELSEWHERE_32: u64 = u32::MAX as u64;
const ELSEWHERE_16: u64 = u16::MAX as u64;

pub fn parts(source: &dyn ReadAt, parts: &mut Parts) -> Result<(), LayoutError> {
    let size = source.size()?;
    let directory = Directory::find(source, size)?;
    entries(source, &directory, parts)?;
    parts.list.sort_by_key(|part| part.range.start);
    let mut window = Window::new(source, size, ENTRY_PIECE_BYTES, || {
        damaged("an entry outside the file")
    });
    for part in &mut parts.list {
        window.at = part.range.start;
        let header = window.take(30)?;
        if !header.starts_with(b"PK\x03\x04") {
            return Err(damaged("an entry without a header"));
        }
        let data = part.range.start + 30 + number(header, 26..28) + number(header, 28..30);
        // So far the part had the length of the entry's data.
        let len = part.range.end - part.range.start;
        part.range.end = data
            .checked_add(len)
            .ok_or_else(|| damaged("an entry without bytes"))?;
    }
    // Programs read the directory first.
    parts.header(directory.range.start..size);
    Ok(())
}

fn damaged(what: &str) -> LayoutError {
    LayoutError::damaged("zip", what)
}

/// A little-endian number.
fn number(bytes: &[u8], at: Range<usize>) -> u64 {
    bytes
        .get(at)
        .unwrap_or_default()
        .iter()
        .rev()
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

struct Directory {
    range: Range<u64>,
    entries: u64,
    /// Number of bytes before the archive.
    shift: u64,
}

impl Directory {
    fn find(source: &dyn ReadAt, size: u64) -> Result<Directory, LayoutError> {
        let len = size.min((END_BYTES + MAX_COMMENT_BYTES) as u64) as usize;
        let mut tail = vec![0; len];
        source.read_at(&mut tail, size - len as u64)?;
        let is_end = |at: &usize| {
            let end = &tail[*at..];
            end.starts_with(b"PK\x05\x06") && at + END_BYTES + number(end, 20..22) as usize <= len
        };
        let at = len
            .checked_sub(END_BYTES)
            .and_then(|last| (0..=last).rev().find(is_end));
        let at = at.ok_or_else(|| damaged("no end-of-directory record"))?;
        let (end, end_at) = (&tail[at..], size - (len - at) as u64);
        let mut found = DirectoryEnd {
            entries: number(end, 10..12),
            bytes: number(end, 12..16),
            offset: number(end, 16..20),
            at: end_at,
        };
        if [found.bytes, found.offset].contains(&ELSEWHERE_32) || found.entries == ELSEWHERE_16 {
            found = match end_64(source, end_at)? {
                Ok(found) => found,
                Err(at) => without_end_64(source, DirectoryEnd { at, ..found })?,
            };
        }
        if number(end, 4..6) != 0 && number(end, 4..6) != ELSEWHERE_16 {
            return Err(damaged("a multi-file archive"));
        }
        if found.entries > MAX_PARTS as u64 {
            return Err(damaged("more than 1048576 entries"));
        }
        let start = found
            .at
            .checked_sub(found.bytes)
            .ok_or_else(|| damaged("the directory is longer than the file"))?;
        let shift = start
            .checked_sub(found.offset)
            .ok_or_else(|| damaged("a directory outside the file"))?;
        Ok(Directory {
            range: start..found.at,
            entries: found.entries,
            shift,
        })
    }
}

/// The end record of the archive.
struct DirectoryEnd {
    entries: u64,
    bytes: u64,
    offset: u64,
    /// End of the directory.
    at: u64,
}

/// Reads the zip64 end record of large files: at the locator's offset, or, with bytes in front of the archive, right
/// before the locator; without a locator, right before the end record. If there is none, returns the end of the
/// directory.
fn end_64(source: &dyn ReadAt, end_at: u64) -> Result<Result<DirectoryEnd, u64>, LayoutError> {
    let mut directory_end = end_at;
    let mut places = vec![(end_at.saturating_sub(END_64_BYTES), end_at)];
    if let Some(locator_at) = end_at.checked_sub(LOCATOR_BYTES) {
        let mut locator = [0; LOCATOR_BYTES as usize];
        source.read_at(&mut locator, locator_at)?;
        if locator.starts_with(b"PK\x06\x07") {
            directory_end = locator_at;
            places = vec![
                (number(&locator, 8..16), locator_at),
                (locator_at.saturating_sub(END_64_BYTES), locator_at),
            ];
        }
    }
    for (at, limit) in places {
        let mut end = [0; END_64_BYTES as usize];
        if at.checked_add(END_64_BYTES).is_some_and(|end| end <= limit) {
            source.read_at(&mut end, at)?;
        }
        if end.starts_with(b"PK\x06\x06") {
            return Ok(Ok(DirectoryEnd {
                entries: number(&end, 32..40),
                bytes: number(&end, 40..48),
                offset: number(&end, 48..56),
                at,
            }));
        }
    }
    Ok(Err(directory_end))
}

/// Reconstructs a missing end record from the entries before it. Such an archive has no bytes in front.
fn without_end_64(source: &dyn ReadAt, end: DirectoryEnd) -> Result<DirectoryEnd, LayoutError> {
    let mut end = end;
    if end.bytes == ELSEWHERE_32 {
        let len = end.at.min(MAX_SEARCHED_BYTES);
        let mut tail = vec![0; len as usize];
        source.read_at(&mut tail, end.at - len)?;
        let mut start = len;
        for (at, head) in tail.windows(ENTRY_BYTES as usize).enumerate().rev() {
            let bytes: u64 = [28, 30, 32]
                .map(|field| number(head, field..field + 2))
                .iter()
                .sum();
            if head.starts_with(b"PK\x01\x02") && at as u64 + ENTRY_BYTES + bytes == start {
                start = at as u64;
            }
        }
        if start == len {
            return Err(damaged("no zip64 end record"));
        }
        end.bytes = len - start;
    }
    if end.offset == ELSEWHERE_32 {
        end.offset = end.at.saturating_sub(end.bytes);
    }
    if end.entries == ELSEWHERE_16 {
        // The directory determines the number of entries.
        end.entries = 0;
    }
    Ok(end)
}

/// Adds the entries: each starts at its header, with the length of its data.
fn entries(
    source: &dyn ReadAt,
    directory: &Directory,
    parts: &mut Parts,
) -> Result<(), LayoutError> {
    let Directory {
        range,
        entries,
        shift,
    } = directory;
    let beyond = || damaged("a truncated directory");
    let mut window = Window::new(source, range.end, DIRECTORY_PIECE_BYTES, beyond);
    window.at = range.start;
    // Writers without zip64 store only the low 16 bits of a larger count.
    let mut count = 0;
    while count < *entries || window.at < range.end {
        count += 1;
        let head = window.take(ENTRY_BYTES)?;
        if head.starts_with(b"PK\x05\x05") && count > *entries {
            break;
        }
        if !head.starts_with(b"PK\x01\x02") {
            return Err(damaged("a directory entry without its signature"));
        }
        let (mut len, full, mut start) = (
            number(head, 20..24),
            number(head, 24..28),
            number(head, 42..46),
        );
        let [name, extra, comment] = [28, 30, 32].map(|at| number(head, at..at + 2));
        let name = String::from_utf8_lossy(window.take(name)?).into_owned();
        if len == ELSEWHERE_32 || start == ELSEWHERE_32 {
            let wide = wide_fields(window.take(extra)?);
            // In this order, and only the fields whose values are in the zip64 part.
            let mut wide = wide
                .chunks_exact(8)
                .map(|bytes| number(bytes, 0..8))
                .skip(usize::from(full == ELSEWHERE_32));
            for field in [&mut len, &mut start] {
                if *field == ELSEWHERE_32 {
                    *field = wide
                        .next()
                        .ok_or_else(|| damaged("an entry without its zip64 fields"))?;
                }
            }
        } else {
            window.pass(extra)?;
        }
        window.pass(comment)?;
        let start = shift.checked_add(start);
        let range = start.and_then(|start| Some(start..start.checked_add(len)?));
        parts.add(
            name,
            range.ok_or_else(|| damaged("an entry without bytes"))?,
        )?;
    }
    Ok(())
}

/// Finds the zip64 field of an extra field, whose fields have a tag, a length, and bytes of that length.
fn wide_fields(mut extra: &[u8]) -> &[u8] {
    while let Some((head, rest)) = extra.split_at_checked(4) {
        let Some((body, rest)) = rest.split_at_checked(number(head, 2..4) as usize) else {
            break;
        };
        if number(head, 0..2) == 1 {
            return body;
        }
        extra = rest;
    }
    &[]
}
