//! Opens the files of a plan. Each file is opened when it is needed. Only two kinds of files are accepted: regular files that have not
//! changed since the plan was made, and block devices of mounted file systems whose metadata the plan contains.

use foreread_os::host::{DeviceNumber, Host};
use foreread_os::open::{UnopenedFile, look};
use foreread_pagecache::kept::Dropping;
use foreread_plan::PlanFile;
use std::fs::{File, Metadata};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// File systems that drop data that was read for other programs.
static DROPPING: Dropping = Dropping::new();
const DROPPED: &str =
    "its file system drops the cached pages of a file when it is opened (FUSE without keep_cache)";

/// Opens a file if it has not changed since the plan was made. Returns the file and the number of its device, or the reason why
/// it is left out.
pub fn open_as_planned(file: &PlanFile) -> Result<(File, u64), String> {
    const CHANGED: &str = "it has changed since the plan was made";
    let text = |error: std::io::Error| error.to_string();
    let (opened, dev) = if file.is_device() {
        let (opened, size) = mounted_device(&file.path)?;
        let meta = opened.metadata().map_err(text)?;
        if size != file.size {
            return Err(CHANGED.to_string());
        }
        (opened, meta.rdev())
    } else {
        let looked = look(&file.path)
            .and_then(UnopenedFile::regular)
            .map_err(text)?;
        let now = PlanFile::of(file.path.clone(), looked.meta());
        if now.size != file.size || file.mtime_ns.is_some() && now.mtime_ns != file.mtime_ns {
            return Err(CHANGED.to_string());
        }
        (looked.for_reading().map_err(text)?, looked.meta().dev())
    };
    if DROPPING.look(dev, &opened, None) {
        return Err(DROPPED.to_string());
    }
    foreread_pagecache::readahead::only_as_asked(&opened).map_err(text)?;
    Ok((opened, dev))
}

/// Opens a block device with a mounted file system. Returns the device and its size in bytes, or the reason why it is left out.
/// Only mounted devices are accepted, because the kernel drops the page cache of other devices when the last program closes them.
pub fn mounted_device(path: &Path) -> Result<(File, u64), String> {
    let text = |error: std::io::Error| error.to_string();
    let is_mounted = |meta: &Metadata| {
        let number = DeviceNumber::of(meta.rdev());
        let mut mounts = Host::here().mounts().into_iter();
        meta.file_type().is_block_device() && mounts.any(|mount| mount.number == number)
    };
    let looked = look(path).map_err(text)?;
    if !is_mounted(looked.meta()) {
        return Err("it is not a block device with a mounted file system".to_string());
    }
    let mut opened = looked.for_reading().map_err(text)?;
    let size = opened.seek(SeekFrom::End(0)).map_err(text)?;
    Ok((opened, size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_opened_only_where_a_file_system_is_mounted() {
        for path in ["/dev/null", "/dev/foreread-none", "/dev"] {
            let file = PlanFile::sized(path, 0);
            assert!(open_as_planned(&file).is_err(), "{path}");
        }
    }
}
