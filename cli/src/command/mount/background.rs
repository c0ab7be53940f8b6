//! `mount -d`: the command begins again in the background, and returns when the mount is there.
//!
//! ```text
//!   foreread mount -d s3://b/ mnt      begins the same with FOREREAD_MOUNT_BACKGROUND=its number, both outputs on one pipe
//!     │  lines of the pipe ──► stderr, until one says that it is mounted
//!     └─ returns 0; the other one is a session of its process alone, and its messages go nowhere from then on
//! ```
//! It keeps none of its caller's files open.
//! Never: leaves a process behind where nothing was mounted.

use crate::fail::{Fail, say};
use foreread_pagecache::program;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::process::parent_id;
use std::process::Stdio;
use std::sync::LazyLock;

/// Set in the process in the background.
const IS_BEHIND: &str = "FOREREAD_MOUNT_BACKGROUND";

/// The line by which it says that the mount is there.
pub const READY: &str = "foreread: mounted, in the background";

/// Whether this is the process in the background: the variable has its parent's number, so a program that inherits it is none.
pub fn is_behind() -> bool {
    static IS: LazyLock<bool> = LazyLock::new(|| {
        let parent = std::env::var(IS_BEHIND).ok();
        parent == Some(parent_id().to_string())
    });
    *IS
}

/// Begins the command `arguments` in the background, and waits until it is mounted.
pub fn begin(arguments: &[OsString]) -> Result<(), Fail> {
    let cannot = |error: std::io::Error| {
        Fail::cannot("cannot begin in the background", error, "leave -d out")
    };
    let (from, to) = std::io::pipe().map_err(cannot)?;
    let mut command = program::again_behind();
    command
        .args(arguments.iter().skip(1))
        .env(IS_BEHIND, std::process::id().to_string());
    command.stdin(Stdio::null());
    command.stdout(to.try_clone().map_err(cannot)?).stderr(to);
    let mut process = command.spawn().map_err(cannot)?;
    // It has the ends of the pipe that are written to.
    drop(command);
    let mut lines = BufReader::new(from).split(b'\n');
    while let Some(Ok(line)) = lines.next() {
        if line == READY.as_bytes() {
            return Ok(());
        }
        say(String::from_utf8_lossy(&line));
    }
    let status = process.wait().map_err(cannot)?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Err(Fail::Passed(code.filter(|code| *code > 0).unwrap_or(2)))
}
