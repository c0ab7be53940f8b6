//! safetensors: 8 bytes of length, a header in JSON, the tensors. The library of the format checks the header.

use super::{LayoutError, MAX_HEADER_BYTES, MAX_PARTS, Part, ReadAt};
use safetensors::tensor::Metadata;

pub fn parts(source: &dyn ReadAt) -> Result<Vec<Part>, LayoutError> {
    let damaged = |what: &dyn std::fmt::Display| LayoutError::damaged("safetensors", what);
    let size = source.size()?;
    if size < 8 {
        return Err(damaged(&"shorter than the length of a header"));
    }
    let mut len = [0; 8];
    source.read_at(&mut len, 0)?;
    let len = u64::from_le_bytes(len);
    if len > MAX_HEADER_BYTES.min(size - 8) {
        return Err(damaged(&"a header that is longer than the file, or than 100 MB"));
    }
    let mut header = vec![0; len as usize];
    source.read_at(&mut header, 8)?;
    let metadata: Metadata = serde_json::from_slice(&header).map_err(|error| damaged(&error))?;
    let start = 8 + len;
    let mut parts = vec![Part { name: "header".to_string(), range: 0..start }];
    for name in metadata.offset_keys() {
        let Some(info) = metadata.info(&name) else { continue };
        let at = |offset: usize| start.checked_add(offset as u64).ok_or_else(|| damaged(&"an offset beyond all files"));
        let range = at(info.data_offsets.0)?..at(info.data_offsets.1)?;
        if parts.len() >= MAX_PARTS {
            return Err(damaged(&"more than 1048576 tensors"));
        }
        parts.push(Part { name, range });
    }
    Ok(parts)
}
