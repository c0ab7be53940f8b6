//! The files of a plan, opened when they are needed: only regular files that are as the plan has them.

use foreread_plan::PlanFile;
use rustix::fs::{FileType, Mode, OFlags, fstat, open, stat};
use std::fs::File;
use std::path::Path;

/// Size and time of the last change, in nanoseconds since 1970.
pub fn identity(path: &Path) -> Result<(u64, i64), String> {
    let meta = stat(path).map_err(|errno| std::io::Error::from(errno).to_string())?;
    match FileType::from_raw_mode(meta.st_mode) {
        FileType::RegularFile => Ok((meta.st_size.unsigned_abs(), mtime_ns(&meta))),
        _ => Err("it is no regular file".to_string()),
    }
}

fn mtime_ns(meta: &rustix::fs::Stat) -> i64 {
    meta.st_mtime.saturating_mul(1_000_000_000).saturating_add(i64::try_from(meta.st_mtime_nsec).unwrap_or(0))
}

/// Opens a file, with the number of its device, or says why it is left out.
pub fn open_as_planned(file: &PlanFile) -> Result<(File, u64), String> {
    let problem = |errno: rustix::io::Errno| std::io::Error::from(errno).to_string();
    // A pipe would wait for a writer, and a device may do something when it is opened.
    identity(&file.path)?;
    let opened = open(&file.path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty());
    let opened = File::from(opened.map_err(problem)?);
    let meta = fstat(&opened).map_err(problem)?;
    if FileType::from_raw_mode(meta.st_mode) != FileType::RegularFile {
        return Err("it is no regular file".to_string());
    }
    let changed = meta.st_size.unsigned_abs() != file.size || file.mtime_ns.is_some_and(|then| then != mtime_ns(&meta));
    if changed {
        return Err("it has changed since the plan was made".to_string());
    }
    foreread_pagecache::readahead::only_as_asked(&opened).map_err(|error| error.to_string())?;
    Ok((opened, meta.st_dev))
}
