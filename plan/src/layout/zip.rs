//! zip: the directory at the end names the entries; each has a header before its bytes.

use super::{LayoutError, MAX_PARTS, Part, ReadAt};
use std::io::{self, Read, Seek, SeekFrom};
use zip::ZipArchive;

pub fn parts(source: &dyn ReadAt) -> Result<Vec<Part>, LayoutError> {
    let damaged = |what: &dyn std::fmt::Display| LayoutError::damaged("zip", what);
    let size = source.size()?;
    let reader = io::BufReader::with_capacity(1 << 16, Cursor { source, size, at: 0 });
    let mut archive = ZipArchive::new(reader).map_err(|error| damaged(&error))?;
    if archive.len() > MAX_PARTS {
        return Err(damaged(&"more than 1048576 entries"));
    }
    // A program reads the directory first.
    let mut parts = vec![Part { name: "header".to_string(), range: archive.central_directory_start().min(size)..size }];
    for number in 0..archive.len() {
        let entry = archive.by_index_raw(number).map_err(|error| damaged(&error))?;
        let start = entry.header_start();
        let end = entry.data_start().and_then(|data| data.checked_add(entry.compressed_size()));
        let end = end.ok_or_else(|| damaged(&"an entry without bytes"))?;
        let name = String::from_utf8_lossy(entry.name_raw()).into_owned();
        parts.push(Part { name, range: start..end });
    }
    parts[1..].sort_by_key(|part| part.range.start);
    Ok(parts)
}

/// A source as the library reads it.
struct Cursor<'a> {
    source: &'a dyn ReadAt,
    size: u64,
    at: u64,
}

impl Read for Cursor<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = (buf.len() as u64).min(self.size.saturating_sub(self.at)) as usize;
        self.source.read_at(&mut buf[..len], self.at)?;
        self.at += len as u64;
        Ok(len)
    }
}

impl Seek for Cursor<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.size.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
