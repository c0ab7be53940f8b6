//! `mount -d`: the command begins again in the background, and returns when the mount is there.
//!
//! ```text
//!   foreread mount -d s3://b/ mnt      begins the same with FOREREAD_MOUNT_BACKGROUND=1, both outputs on one pipe
//!     │  lines of the pipe ──► stderr, until one is the place of the mount
//!     └─ returns 0; the other one is a session of its process alone, and its messages go nowhere from then on
//! ```
//! Never: leaves a process behind where nothing was mounted.

use crate::fail::{Fail, say};
use foreread_pagecache::program;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

/// Set in the process in the background.
const IS_BEHIND: &str = "FOREREAD_MOUNT_BACKGROUND";

/// Whether this is the process in the background.
pub fn is_behind() -> bool {
    std::env::var_os(IS_BEHIND).is_some()
}

/// Begins the command `arguments` in the background, and waits until `dir` is mounted.
pub fn begin(arguments: &[OsString], dir: &Path) -> Result<(), Fail> {
    let cannot = |error: std::io::Error| {
        Fail::cannot("cannot begin in the background", error, "leave -d out")
    };
    let (from, to) = std::io::pipe().map_err(cannot)?;
    let mut command = program::again();
    command.args(arguments.iter().skip(1)).env(IS_BEHIND, "1");
    command.stdin(Stdio::null());
    command.stdout(to.try_clone().map_err(cannot)?).stderr(to);
    let mut process = command.spawn().map_err(cannot)?;
    // It has the ends of the pipe that are written to.
    drop(command);
    let place = dir.display().to_string();
    for line in BufReader::new(from).lines() {
        let line = line.map_err(cannot)?;
        if line == place {
            return Ok(());
        }
        say(line);
    }
    let status = process.wait().map_err(cannot)?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Err(Fail::Passed(code.filter(|code| *code > 0).unwrap_or(2)))
}
