//! `mount -d`: starts the command again in the background, and returns once the source is mounted.
//!
//! ```text
//!   foreread mount -d s3://b/ mnt      starts itself with FOREREAD_MOUNT_BACKGROUND=its pid, stdout and stderr on one pipe
//!     │  lines of the pipe ──► stderr, until the line that it is mounted
//!     └─ returns 0; the background process has its own session, and its later messages are lost
//! ```
//! The background process keeps none of the caller's files open. The background process reads its arguments from stdin, so that ps shows no
//! secrets. If mounting fails, the background process ends too.

use crate::fail::{Fail, say};
use foreread_os::secrets;
use foreread_pagecache::program;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::parent_id;
use std::process::Stdio;
use std::sync::LazyLock;

/// Set in the background process.
const IS_BEHIND: &str = "FOREREAD_MOUNT_BACKGROUND";

/// The line that the background process prints once the source is mounted.
pub const READY: &str = "foreread: mounted, in the background";

/// Returns whether this process is the background process of `mount -d`. An environment variable marks the background process. The variable
/// contains the parent's pid, so it has no effect in other programs that inherit it.
pub fn is_behind() -> bool {
    static IS: LazyLock<bool> = LazyLock::new(|| {
        let parent = std::env::var(IS_BEHIND).ok();
        parent == Some(parent_id().to_string())
    });
    *IS
}

/// Maximum size of the arguments for the background process in bytes; the kernel's limit for a command line is lower.
const MAX_ARGUMENT_BYTES: u64 = 8 << 20;

/// Returns the arguments of this process or, in the background process, the arguments that the parent sent.
pub fn arguments(own: &[OsString]) -> Vec<OsString> {
    if own.get(1).is_none_or(|word| word != "mount") || !is_behind() {
        return own.to_vec();
    }
    static SENT: LazyLock<Vec<OsString>> = LazyLock::new(|| {
        let mut sent = Vec::new();
        let mut stdin = std::io::stdin().take(MAX_ARGUMENT_BYTES);
        let _ = stdin.read_to_end(&mut sent);
        let words = sent.split_inclusive(|byte| *byte == 0);
        let words = words.filter_map(|word| word.strip_suffix(&[0]));
        words
            .map(|word| OsString::from_vec(word.to_vec()))
            .collect()
    });
    let sent = SENT.iter().cloned();
    own.iter().take(1).cloned().chain(sent).collect()
}

/// An argument for ps: secrets are removed from names, also after `--OPTION=`.
fn shown(word: &OsStr) -> OsString {
    let Some(text) = word.to_str() else {
        return word.to_os_string();
    };
    let (option, value) = match text.split_once('=') {
        Some((option, value)) if text.starts_with("--") => (format!("{option}="), value),
        _ => (String::new(), text),
    };
    // One of several settings may contain the name of a source.
    let one = |part: &str| match part.split_once('=') {
        Some((key, value)) if !key.contains(['/', ':', '?']) => {
            format!("{key}={}", secrets::shown(value))
        }
        _ => secrets::shown(part),
    };
    // A password may contain a comma.
    let whole = secrets::shown(value);
    let parts: Vec<String> = whole.split(',').map(one).collect();
    format!("{option}{}", parts.join(",")).into()
}

/// Starts the command `arguments` in the background, and waits until the source is mounted.
pub fn begin(arguments: &[OsString]) -> Result<(), Fail> {
    let cannot = |error: std::io::Error| {
        Fail::cannot("cannot start in the background", error, "leave -d out")
    };
    let (from, to) = std::io::pipe().map_err(cannot)?;
    let mut command = program::again_behind();
    command
        .args(arguments.iter().skip(1).map(|word| shown(word)))
        .env(IS_BEHIND, std::process::id().to_string());
    command.stdin(Stdio::piped());
    command.stdout(to.try_clone().map_err(cannot)?).stderr(to);
    let mut process = command.spawn().map_err(cannot)?;
    let sent: Vec<u8> = arguments
        .iter()
        .skip(1)
        .flat_map(|word| word.as_bytes().iter().copied().chain([0]))
        .collect();
    if let Some(mut stdin) = process.stdin.take() {
        // If the process has ended already, its output gives the reason.
        let _ = stdin.write_all(&sent);
    }
    // Drops the write ends of the pipe.
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
