//! Parquet: the footer names the chunks of each column in each row group. Their order is that of a scan: row group by row group.

mod lists;

use super::{LayoutError, MAX_HEADER_BYTES, MAX_PARTS, Part, ReadAt};
use parquet::file::metadata::ParquetMetaDataReader;

/// The end of a file: the footer's length and "PAR1".
const TAIL_BYTES: u64 = 8;

pub fn parts(source: &dyn ReadAt) -> Result<Vec<Part>, LayoutError> {
    let damaged = |what: &dyn std::fmt::Display| LayoutError::damaged("Parquet", what);
    let size = source.size()?;
    let mut tail = [0; TAIL_BYTES as usize];
    if size < TAIL_BYTES {
        return Err(damaged(&"shorter than a footer"));
    }
    source.read_at(&mut tail, size - TAIL_BYTES)?;
    let len = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
    if &tail[4..] != b"PAR1" {
        return Err(damaged(&"other last bytes, or an encrypted footer"));
    }
    if len > MAX_HEADER_BYTES.min(size - TAIL_BYTES) {
        return Err(damaged(&"a footer that is longer than the file, or than 100 MB"));
    }
    let start = size - TAIL_BYTES - len;
    let mut footer = vec![0; len as usize];
    source.read_at(&mut footer, start)?;
    let decoded = ParquetMetaDataReader::decode_metadata(&footer);
    let metadata = match decoded {
        Err(_) if lists::widen(&mut footer) == Some(true) => ParquetMetaDataReader::decode_metadata(&footer),
        decoded => decoded,
    };
    let metadata = metadata.map_err(|error| damaged(&error))?;
    let mut parts = vec![Part { name: "header".to_string(), range: start..size }];
    for column in metadata.row_groups().iter().flat_map(|group| group.columns()) {
        if parts.len() >= MAX_PARTS {
            return Err(damaged(&"more than 1048576 chunks of columns"));
        }
        // Old writers set the offset of a dictionary that does not exist to 0, where the magic number is.
        let dictionary = column.dictionary_page_offset().filter(|&offset| offset != 0);
        let first = dictionary.unwrap_or(i64::MAX).min(column.data_page_offset());
        let (first, len) = (u64::try_from(first), u64::try_from(column.compressed_size()));
        let (Ok(first), Ok(len)) = (first, len) else {
            return Err(damaged(&"a negative offset"));
        };
        let end = first.checked_add(len).ok_or_else(|| damaged(&"an offset beyond all files"))?;
        parts.push(Part { name: column.column_path().string(), range: first..end });
    }
    Ok(parts)
}
