//! Finds the tensors of a model file in its header, so that a plan can be made without recording a program.
//!
//! ```text
//!   model.safetensors, names "layer.0.*" ──► header 0..1200, layer.0.w 1200..5296, layer.0.b ...
//! ```
//! This module reads only headers. A header may be malicious, so its size is limited, the memory for its contents is part of the plan's
//! memory limit, and each part must be within the file. Headers are read through the trait [`ReadAt`], so that the file may be in any
//! storage, such as an object store.

use crate::runs::{Account, Full};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

mod gguf;
mod safetensors;

/// Maximum size of a header in bytes, which is the limit of the safetensors library.
pub const MAX_HEADER_BYTES: u64 = 100_000_000;
/// Bytes at the start of an index that contain its key.
const INDEX_HEAD_BYTES: u64 = 64 << 10;
/// Maximum number of parts of a file.
pub const MAX_PARTS: usize = 1 << 20;

/// Reads at any offset of a file, whatever its source.
pub trait ReadAt {
    fn size(&self) -> io::Result<u64>;

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
}

impl ReadAt for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(buf, offset)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Hugging Face's tensor files.
    Safetensors,
    /// Model files of llama.cpp.
    Gguf,
}

pub const FORMATS: [(&str, Format); 2] =
    [("safetensors", Format::Safetensors), ("gguf", Format::Gguf)];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Name of the part; `header` for the part that lists the others.
    pub name: String,
    pub range: Range<u64>,
}

/// The error if the parts of a file cannot be read from its header.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    #[error("cannot read the header: {0}")]
    Io(#[from] io::Error),
    /// The file has another format, or is damaged.
    #[error("{0}")]
    Damaged(String),
    /// The file is of another known kind.
    #[error("{what}")]
    Other {
        what: &'static str,
        remedy: &'static str,
    },
    #[error("no part of the file has a name like {0}")]
    NoSuchName(String),
    /// The header exceeds the memory budget of a plan.
    #[error("{0}")]
    TooLarge(#[from] Full),
}

impl LayoutError {
    fn damaged(format: &str, what: impl std::fmt::Display) -> LayoutError {
        let text: String = what
            .to_string()
            .chars()
            .filter(|c| !c.is_control())
            .take(200)
            .collect();
        LayoutError::Damaged(format!("not a {format} file, or damaged ({text})"))
    }
}

/// Collects the parts of a file.
#[derive(Default)]
struct Parts {
    list: Vec<Part>,
    header: Option<Part>,
    account: Account,
}

impl Parts {
    fn add(&mut self, name: String, range: Range<u64>) -> Result<(), LayoutError> {
        if self.list.len() >= MAX_PARTS {
            return Err(LayoutError::Damaged("more than 1048576 parts".to_string()));
        }
        self.account.take::<Part>(name.capacity())?;
        self.list.push(Part { name, range });
        Ok(())
    }

    fn header(&mut self, range: Range<u64>) {
        self.header = Some(Part {
            name: "header".to_string(),
            range,
        });
    }
}

/// Returns the header and the parts with matching names, in file order.
pub fn parts(format: Format, source: &dyn ReadAt, names: &Names) -> Result<Vec<Part>, LayoutError> {
    let mut found = Parts::default();
    let done = match format {
        Format::Safetensors => safetensors::parts(source, &mut found),
        Format::Gguf => gguf::parts(source, &mut found),
    };
    done.map_err(|error| {
        if is_lfs_pointer(source) {
            return LayoutError::Other {
                what: "a Git LFS pointer, not the file itself",
                remedy: "fetch it: git lfs pull",
            };
        }
        if is_index(source) {
            return LayoutError::Other {
                what: "an index of a model's files, not one of the files",
                remedy: "name the files that it lists, such as model-*.safetensors",
            };
        }
        error
    })?;
    let (size, header, mut list) = (source.size()?, found.header, found.list);
    let is_beyond = |part: &&Part| part.range.start > part.range.end || part.range.end > size;
    if let Some(part) = header.iter().chain(&list).find(is_beyond) {
        let what = format!("the part {:?} is not within the file", part.name);
        return Err(LayoutError::Damaged(what));
    }
    list.retain(|part| names.has(&part.name) && !part.range.is_empty());
    if list.is_empty() && !names.is_all() {
        return Err(LayoutError::NoSuchName(names.to_string()));
    }
    Ok(header.into_iter().chain(list).collect())
}

/// `model.safetensors.index.json`, `pytorch_model.bin.index.json`: `{"metadata": {...}, "weight_map": {...}}`.
fn is_index(source: &dyn ReadAt) -> bool {
    let size = source.size().unwrap_or(0).min(INDEX_HEAD_BYTES);
    let mut head = vec![0; size as usize];
    let text = source
        .read_at(&mut head, 0)
        .map(|()| String::from_utf8_lossy(&head));
    text.is_ok_and(|text| text.trim_start().starts_with('{') && text.contains("\"weight_map\""))
}

/// The pointer that a clone without Git LFS has instead of a large file.
fn is_lfs_pointer(source: &dyn ReadAt) -> bool {
    const START: &[u8] = b"version https://git-lfs.github.com/spec/";
    let mut head = [0; START.len()];
    source.read_at(&mut head, 0).is_ok() && head == START
}

// Names of parts, with `*` for any characters.
//
// `model.layers.0.*,lm_head.weight` matches `model.layers.0.w` and `lm_head.weight`. An empty list matches every name.

#[derive(Clone, Debug, Default)]
pub struct Names(Vec<String>);

impl Names {
    /// Creates a filter of part names from a list of patterns; an empty list selects every name.
    pub fn new(patterns: Vec<String>) -> Names {
        Names(patterns)
    }

    pub fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    pub fn has(&self, name: &str) -> bool {
        self.is_all() || self.0.iter().any(|pattern| matches(pattern, name))
    }
}

impl std::fmt::Display for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

/// The parts between the stars must occur in order, the first at the start of the name and the last at its end.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(mut name) = name.strip_prefix(first) else {
        return false;
    };
    let mut pieces: Vec<&str> = rest.split('*').collect();
    let last = pieces.pop().unwrap_or_default();
    for piece in pieces {
        let Some(at) = name.find(piece) else {
            return false;
        };
        name = &name[at + piece.len()..];
    }
    name.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_match_any_characters() {
        let names = ["layer.0.*", "*.bias", "a*b*c", "lm_head"];
        let names = Names::new(names.map(str::to_string).to_vec());
        for name in "layer.0. layer.0.w x.bias abc a1b2c abbc lm_head".split(' ') {
            assert!(names.has(name), "{name}");
        }
        for name in "layer.1.w bias ac ab acb lm_head2 ".split(' ') {
            assert!(!names.has(name), "{name}");
        }
        assert!(Names::default().has("anything") && !Names::new(vec!["ab*ba".into()]).has("aba"));
    }
}
