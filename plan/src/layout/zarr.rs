//! zarr: an array is a folder with its metadata and a file for each chunk (or shard); groups are folders of arrays.
//!
//! ```text
//!   store/.zgroup, store/t/.zarray, store/t/0.0, store/t/0.1 ...        version 2
//!   store/zarr.json, store/t/zarr.json, store/t/c/0/0, store/t/c/0/1    version 3
//! ```
//! A plan contains the metadata first, and then the chunks in row-major order (the last dimension varies fastest). All
//! files of an array except its metadata are taken for chunks, so shapes and codecs need not be parsed.

use super::{LayoutError, MAX_PARTS, Names};
use crate::runs::Account;
use foreread_os::open::read_small;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Maximum bytes of a metadata file.
const MAX_METADATA_BYTES: u64 = 16 << 20;
/// Maximum depth of folders.
const MAX_DEPTH: usize = 64;
/// The metadata files of version 2 besides `.zarray`, and of version 3.
const METADATA: [&str; 5] = [".zarray", ".zgroup", ".zattrs", ".zmetadata", "zarr.json"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZarrFile {
    /// The array's path below the store; empty if the store is the array, and for metadata of groups.
    pub array: String,
    pub path: PathBuf,
    pub size: u64,
}

/// Returns the files of the requested arrays; the metadata files come first.
pub fn zarr(store: &Path, names: &Names) -> Result<Vec<ZarrFile>, LayoutError> {
    let mut found = ZarrContent::default();
    found.folder(store, "", None, 0)?;
    if found.metadata.is_empty() {
        return Err(LayoutError::damaged(
            "zarr store",
            "no .zarray, .zgroup or zarr.json",
        ));
    }
    let mut files = found.metadata;
    let mut chunks: Vec<_> = found
        .chunks
        .into_iter()
        .filter(|(_, file)| names.has(&file.array))
        .collect();
    if chunks.is_empty() && !names.is_all() {
        return Err(LayoutError::NoSuchName(names.to_string()));
    }
    chunks.sort_by(|(a, x), (b, y)| (&x.array, a, &x.path).cmp(&(&y.array, b, &y.path)));
    files.extend(chunks.into_iter().map(|(_, file)| file));
    Ok(files)
}

#[derive(Default)]
struct ZarrContent {
    metadata: Vec<ZarrFile>,
    /// Chunks, each with its position in the array.
    chunks: Vec<(Vec<u64>, ZarrFile)>,
    account: Account,
}

impl ZarrContent {
    /// Scans a folder. `array` is the array to which it belongs, and the depth of the array's root below the store.
    fn folder(
        &mut self,
        at: &Path,
        below: &str,
        array: Option<&str>,
        depth: usize,
    ) -> Result<(), LayoutError> {
        let damaged = |what| LayoutError::damaged("zarr store", what);
        if depth > MAX_DEPTH {
            return Err(damaged("folders are nested too deeply"));
        }
        let array = if is_array(at)? { Some(below) } else { array };
        for entry in fs::read_dir(at)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type()?;
            let name_below = if below.is_empty() {
                name.clone()
            } else {
                format!("{below}/{name}")
            };
            if kind.is_dir() {
                self.folder(&entry.path(), &name_below, array, depth + 1)?;
                continue;
            }
            let is_metadata = METADATA.contains(&name.as_str());
            if !kind.is_file() || !is_metadata && array.is_none() {
                continue;
            }
            if self.metadata.len() + self.chunks.len() >= MAX_PARTS {
                return Err(damaged("more than 1048576 files"));
            }
            let array = array.unwrap_or_default();
            let mut path = entry.path();
            path.shrink_to_fit();
            let file = ZarrFile {
                array: array.to_string(),
                path,
                size: entry.metadata()?.len(),
            };
            self.account
                .take::<ZarrFile>(file.array.capacity() + file.path.capacity())?;
            if is_metadata {
                self.metadata.push(file);
            } else {
                let words = name_below[array.len()..].split(['/', '.']);
                let place: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
                self.account
                    .take::<Vec<u64>>(place.capacity() * size_of::<u64>())?;
                self.chunks.push((place, file));
            }
        }
        self.metadata.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(())
    }
}

/// The needed fields of `zarr.json`. Other keys are ignored.
#[derive(Deserialize)]
struct Node {
    #[serde(default)]
    node_type: Option<String>,
}

/// Whether a folder is an array according to its metadata.
fn is_array(folder: &Path) -> Result<bool, LayoutError> {
    if metadata::<IgnoredAny>(folder, ".zarray")?.is_some() {
        return Ok(true);
    }
    Ok(metadata::<Node>(folder, "zarr.json")?
        .is_some_and(|node| node.node_type.as_deref() == Some("array")))
}

/// A metadata file, if it exists.
fn metadata<T: serde::de::DeserializeOwned>(
    folder: &Path,
    name: &str,
) -> Result<Option<T>, LayoutError> {
    let damaged = |error: &dyn std::fmt::Display| {
        LayoutError::damaged("zarr store", format!("{name}: {error}"))
    };
    match read_small(&folder.join(name), MAX_METADATA_BYTES) {
        Ok(text) => serde_json::from_slice(&text)
            .map(Some)
            .map_err(|error| damaged(&error)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(damaged(&error)),
    }
}
