//! safetensors: the header's length in 8 bytes, a header in JSON, then the tensors one after the other.
//!
//! ```text
//!   {"__metadata__":{...},"a":{"dtype":"F16","shape":[2,2],"data_offsets":[0,8]},...}      offsets from the end of the header
//! ```
//! Only the name and the offsets of each tensor are stored, because a header of 100 MB may contain a shape of 48 million dimensions.
//!
//! Source: the format's public description (huggingface/safetensors, README), which forbids holes and overlaps.

use super::{LayoutError, MAX_HEADER_BYTES, Parts, ReadAt};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use std::fmt;

/// The key that is not a tensor.
const METADATA: &str = "__metadata__";

pub fn parts(source: &dyn ReadAt, parts: &mut Parts) -> Result<(), LayoutError> {
    let damaged = |what: &dyn fmt::Display| LayoutError::damaged("safetensors", what);
    let size = source.size()?;
    if size < 8 {
        return Err(damaged(
            &"the file is shorter than the 8-byte header length field",
        ));
    }
    let mut len = [0; 8];
    source.read_at(&mut len, 0)?;
    let len = u64::from_le_bytes(len);
    if len > MAX_HEADER_BYTES.min(size - 8) {
        return Err(damaged(
            &"the header is longer than the file, or than 100 MB",
        ));
    }
    let mut header = vec![0; len as usize];
    source.read_at(&mut header, 8)?;
    let mut json = serde_json::Deserializer::from_slice(&header);
    Tensors {
        parts,
        start: 8 + len,
    }
    .deserialize(&mut json)
    .and_then(|()| json.end())
    .map_err(|error| damaged(&error))?;
    parts
        .list
        .sort_by_key(|part| (part.range.start, part.range.end));
    let mut last = 8 + len;
    for part in &parts.list {
        if part.range.start != last {
            return Err(damaged(&format_args!(
                "a hole or an overlap before the tensor {:?}",
                part.name
            )));
        }
        last = part.range.end;
    }
    parts.header(0..8 + len);
    Ok(())
}

/// The needed fields of a tensor. Other keys are ignored.
#[derive(Deserialize)]
struct Tensor {
    data_offsets: (u64, u64),
}

/// The tensors of a header, added to the parts one by one.
struct Tensors<'a> {
    parts: &'a mut Parts,
    /// The offset of the data.
    start: u64,
}

impl<'de> DeserializeSeed<'de> for Tensors<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Tensors<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            if name == METADATA {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let Tensor {
                data_offsets: (from, to),
            } = map.next_value()?;
            let at = |offset: u64| self.start.checked_add(offset);
            let (Some(from), Some(to)) = (at(from), at(to)) else {
                return Err(A::Error::custom("an offset larger than any file"));
            };
            self.parts.add(name, from..to).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}
