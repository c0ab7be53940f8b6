//! GGUF: metadata as typed keys and values, the tensors' names, shapes and offsets, the tensors.
//!
//! ```text
//!   "GGUF", version u32, tensors u64, pairs u64
//!   pair:   key, type u32, value                       general.alignment is the one that matters here
//!   tensor: name, dimensions u32, u64 for each, type u32, offset u64      from the start of the data
//! ```
//! A tensor ends where the next one begins, so the types of tensors need not be known. Versions 2 and 3, little-endian.
//! Source: the format's public description (ggml, docs/gguf.md).

use super::{LayoutError, MAX_HEADER_BYTES, MAX_PARTS, Part, ReadAt};

/// Bytes that are read at once.
const CHUNK_BYTES: u64 = 1 << 20;
/// Where nothing else is said, tensors begin at multiples of this.
const DEFAULT_ALIGNMENT: u64 = 32;
/// Arrays within arrays.
const MAX_DEPTH: u32 = 4;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

pub fn parts(source: &dyn ReadAt) -> Result<Vec<Part>, LayoutError> {
    let size = source.size()?;
    let mut head = Head { source, size, chunk: Vec::new(), chunk_at: 0, at: 0 };
    if head.take(4)? != b"GGUF" {
        return Err(damaged("other first bytes"));
    }
    let version = head.u32()?;
    if (2..=3).contains(&version.swap_bytes()) {
        let remedy = "convert it: gguf_convert_endian.py FILE little, of llama.cpp's gguf-py";
        return Err(LayoutError::Damaged(format!("a GGUF file with big-endian numbers, which is not read ({remedy})")));
    }
    if !(2..=3).contains(&version) {
        return Err(damaged(&format!("version {version}; 2 and 3 can be read")));
    }
    let (tensors, pairs) = (head.u64()?, head.u64()?);
    if tensors > MAX_PARTS as u64 || pairs > MAX_PARTS as u64 {
        return Err(damaged("more than 1048576 tensors or keys"));
    }
    let mut alignment = DEFAULT_ALIGNMENT;
    for _ in 0..pairs {
        let (key, kind) = (head.string()?, head.u32()?);
        if key == "general.alignment" && kind == 4 {
            alignment = u64::from(head.u32()?);
        } else {
            head.skip(kind, MAX_DEPTH)?;
        }
    }
    let mut starts: Vec<(u64, String)> = Vec::new();
    for _ in 0..tensors {
        let name = head.string()?;
        let dimensions = head.u32()?;
        head.pass(u64::from(dimensions).saturating_mul(8))?;
        let _kind = head.u32()?;
        starts.push((head.u64()?, name));
    }
    let data = head.at.checked_next_multiple_of(alignment).ok_or_else(|| damaged("an alignment of 0"))?;
    starts.sort();
    let mut parts = vec![Part { name: "header".to_string(), range: 0..data.min(size) }];
    for (number, (offset, name)) in starts.iter().enumerate() {
        let at = |offset: u64| data.checked_add(offset).filter(|at| *at <= size);
        let start = at(*offset).ok_or_else(|| damaged("a tensor that begins beyond the file"))?;
        let end = starts.get(number + 1).map_or(Some(size), |(next, _)| at(*next));
        let end = end.ok_or_else(|| damaged("a tensor that ends beyond the file"))?;
        parts.push(Part { name: name.clone(), range: start..end });
    }
    Ok(parts)
}

fn damaged(what: &str) -> LayoutError {
    LayoutError::damaged("GGUF", what)
}

/// The head, read piece by piece.
struct Head<'a> {
    source: &'a dyn ReadAt,
    size: u64,
    chunk: Vec<u8>,
    chunk_at: u64,
    at: u64,
}

impl Head<'_> {
    fn take(&mut self, len: u64) -> Result<&[u8], LayoutError> {
        let end = self.at.checked_add(len).filter(|end| *end <= self.size.min(MAX_HEADER_BYTES));
        let end = end.ok_or_else(|| damaged("a header that is longer than the file, or than 100 MB"))?;
        if self.at < self.chunk_at || end > self.chunk_at + self.chunk.len() as u64 {
            let bytes = CHUNK_BYTES.max(len).min(self.size - self.at);
            self.chunk.resize(bytes as usize, 0);
            self.source.read_at(&mut self.chunk, self.at)?;
            self.chunk_at = self.at;
        }
        let start = (self.at - self.chunk_at) as usize;
        self.at = end;
        Ok(&self.chunk[start..start + len as usize])
    }

    /// Passes over bytes without reading them.
    fn pass(&mut self, len: u64) -> Result<(), LayoutError> {
        let end = self.at.checked_add(len).filter(|end| *end <= self.size.min(MAX_HEADER_BYTES));
        self.at = end.ok_or_else(|| damaged("a header that is longer than the file, or than 100 MB"))?;
        Ok(())
    }

    fn u32(&mut self) -> Result<u32, LayoutError> {
        Ok(self.take(4)?.try_into().map_or(0, u32::from_le_bytes))
    }

    fn u64(&mut self) -> Result<u64, LayoutError> {
        Ok(self.take(8)?.try_into().map_or(0, u64::from_le_bytes))
    }

    fn string(&mut self) -> Result<String, LayoutError> {
        let len = self.u64()?;
        if len > 1 << 16 {
            return Err(damaged("a name of more than 65536 bytes"));
        }
        Ok(String::from_utf8_lossy(self.take(len)?).into_owned())
    }

    /// Passes over a value of this type.
    fn skip(&mut self, kind: u32, depth: u32) -> Result<(), LayoutError> {
        let width = |kind: u32| match kind {
            0 | 1 | 7 => Some(1),
            2 | 3 => Some(2),
            4..=6 => Some(4),
            10..=12 => Some(8),
            _ => None,
        };
        if let Some(width) = width(kind) {
            return self.pass(width);
        }
        match kind {
            STRING => {
                let len = self.u64()?;
                self.pass(len)
            }
            ARRAY if depth > 0 => {
                let (kind, len) = (self.u32()?, self.u64()?);
                if let Some(width) = width(kind) {
                    return self.pass(len.saturating_mul(width));
                }
                // Each element takes 8 bytes at least, so a hostile length ends with the header.
                (0..len).try_for_each(|_| self.skip(kind, depth - 1))
            }
            _ => Err(damaged("a value of a type that the format does not have")),
        }
    }
}
