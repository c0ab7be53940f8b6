//! The files of a plan, opened when they are needed: only regular files that are as the plan has them.

use foreread_plan::PlanFile;
use rustix::fs::{Mode, OFlags, open};
use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;

/// What is known of a regular file, or why it is left out.
pub fn regular(meta: std::io::Result<Metadata>) -> Result<Metadata, String> {
    let meta = meta.map_err(|error| error.to_string())?;
    if meta.is_file() { Ok(meta) } else { Err("it is no regular file".to_string()) }
}

/// Opens a file, with the number of its device, or says why it is left out.
pub fn open_as_planned(file: &PlanFile) -> Result<(File, u64), String> {
    // A pipe would wait for a writer, and a device may do something when it is opened.
    regular(fs::metadata(&file.path))?;
    let opened = open(&file.path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty());
    let opened = File::from(opened.map_err(|errno| std::io::Error::from(errno).to_string())?);
    let meta = regular(opened.metadata())?;
    let now = PlanFile::of(file.path.clone(), &meta);
    if now.size != file.size || file.mtime_ns.is_some() && now.mtime_ns != file.mtime_ns {
        return Err("it has changed since the plan was made".to_string());
    }
    foreread_pagecache::readahead::only_as_asked(&opened).map_err(|error| error.to_string())?;
    Ok((opened, meta.dev()))
}
