//! GGUF: typed metadata, then the tensors' names, shapes and offsets, then the tensors.
//!
//! ```text
//!   "GGUF", version u32, tensors u64, pairs u64
//!   pair:   key, type u32, value                       only general.alignment is used
//!   tensor: name, dimensions u32, u64 for each, type u32, offset u64      from the start of the data
//! ```
//! A tensor is assumed to end where the next tensor begins, so its size need not be computed from its type. Versions 2 and 3 are supported,
//! and only little-endian files. Source: the format's public description (ggml, docs/gguf.md).

use super::{LayoutError, MAX_HEADER_BYTES, MAX_PARTS, Parts, ReadAt};

/// Bytes of a read.
const PIECE_BYTES: u64 = 1 << 20;
const DEFAULT_ALIGNMENT: u64 = 32;
/// Maximum nesting of arrays.
const MAX_DEPTH: u32 = 4;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

const MAX_NAME_BYTES: u64 = 1 << 16;

pub fn parts(source: &dyn ReadAt, parts: &mut Parts) -> Result<(), LayoutError> {
    let size = source.size()?;
    let mut head = Window {
        source,
        end: size.min(MAX_HEADER_BYTES),
        piece: Vec::new(),
        piece_at: 0,
        at: 0,
    };
    if head.take(4)? != b"GGUF" {
        return Err(damaged("wrong magic"));
    }
    let version = head.u32()?;
    if (2..=3).contains(&version.swap_bytes()) {
        return Err(LayoutError::Other {
            what: "a GGUF file with big-endian numbers, which is not supported",
            remedy: "convert it: gguf_convert_endian.py FILE little, of llama.cpp's gguf-py",
        });
    }
    if !(2..=3).contains(&version) {
        return Err(damaged(&format!(
            "version {version}, but only versions 2 and 3 are supported"
        )));
    }
    let (tensors, pairs) = (head.u64()?, head.u64()?);
    if tensors > MAX_PARTS as u64 || pairs > MAX_PARTS as u64 {
        return Err(damaged("more than 1048576 tensors or keys"));
    }
    let mut alignment = DEFAULT_ALIGNMENT;
    for _ in 0..pairs {
        let (key, kind) = (string(&mut head)?, head.u32()?);
        if key == "general.alignment" && kind == 4 {
            alignment = u64::from(head.u32()?);
        } else {
            skip(&mut head, kind, MAX_DEPTH)?;
        }
    }
    // Ends are computed when all offsets are known.
    for _ in 0..tensors {
        let name = string(&mut head)?;
        let dimensions = head.u32()?;
        head.pass(u64::from(dimensions).saturating_mul(8))?;
        let _kind = head.u32()?;
        let offset = head.u64()?;
        parts.add(name, offset..offset)?;
    }
    let data = head
        .at
        .checked_next_multiple_of(alignment)
        .ok_or_else(|| damaged("an alignment of 0"))?;
    let at = |offset: u64| data.checked_add(offset).filter(|at| *at <= size);
    parts
        .list
        .sort_by(|a, b| (a.range.start, &a.name).cmp(&(b.range.start, &b.name)));
    let mut end = size;
    for part in parts.list.iter_mut().rev() {
        let start = at(part.range.start)
            .ok_or_else(|| damaged("a tensor starts beyond the end of the file"))?;
        part.range = start..end;
        end = start;
    }
    parts.header(0..data.min(size));
    Ok(())
}

/// Reads a header sequentially in pieces, so that it is scanned without holding it in memory.
struct Window<'a> {
    source: &'a dyn ReadAt,
    /// The end of the readable range.
    end: u64,
    piece: Vec<u8>,
    piece_at: u64,
    at: u64,
}

impl Window<'_> {
    fn end_of(&self, len: u64) -> Result<u64, LayoutError> {
        let end = self.at.checked_add(len).filter(|end| *end <= self.end);
        end.ok_or_else(|| damaged("the header is longer than the file, or than 100 MB"))
    }

    fn take(&mut self, len: u64) -> Result<&[u8], LayoutError> {
        let end = self.end_of(len)?;
        if self.at < self.piece_at || end > self.piece_at.saturating_add(self.piece.len() as u64) {
            let bytes = PIECE_BYTES.max(len).min(self.end - self.at);
            self.piece.resize(bytes as usize, 0);
            // A partly read piece is discarded.
            self.piece_at = u64::MAX;
            self.source.read_at(&mut self.piece, self.at)?;
            self.piece_at = self.at;
        }
        let start = (self.at - self.piece_at) as usize;
        self.at = end;
        Ok(&self.piece[start..start + len as usize])
    }

    /// Moves the read position forward without reading the bytes in between.
    fn pass(&mut self, len: u64) -> Result<(), LayoutError> {
        self.at = self.end_of(len)?;
        Ok(())
    }

    fn u32(&mut self) -> Result<u32, LayoutError> {
        Ok(self.take(4)?.try_into().map_or(0, u32::from_le_bytes))
    }

    fn u64(&mut self) -> Result<u64, LayoutError> {
        Ok(self.take(8)?.try_into().map_or(0, u64::from_le_bytes))
    }
}

fn damaged(what: &str) -> LayoutError {
    LayoutError::damaged("GGUF", what)
}

fn string(head: &mut Window<'_>) -> Result<String, LayoutError> {
    let len = head.u64()?;
    if len > MAX_NAME_BYTES {
        return Err(damaged("a name of more than 65536 bytes"));
    }
    Ok(String::from_utf8_lossy(head.take(len)?).into_owned())
}

fn skip(head: &mut Window<'_>, kind: u32, depth: u32) -> Result<(), LayoutError> {
    let width = |kind: u32| match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    };
    if let Some(width) = width(kind) {
        return head.pass(width);
    }
    match kind {
        STRING => {
            let len = head.u64()?;
            head.pass(len)
        }
        ARRAY if depth > 0 => {
            let (kind, len) = (head.u32()?, head.u64()?);
            if let Some(width) = width(kind) {
                return head.pass(len.saturating_mul(width));
            }
            // Each element takes at least 8 bytes, so the header's end stops a hostile length.
            (0..len).try_for_each(|_| skip(head, kind, depth - 1))
        }
        _ => Err(damaged("a value of an unknown type")),
    }
}
