//! A small process that puts `read_ahead_kb` back when `watch` was killed.
//!
//! ```text
//!   owner ── pipe: "2048", "512", ..., "done" ──► guard: reads until the pipe ends
//!     └─ lock on the setting, shared with the guard         without "done": the value is the latest of the pipe, or the one before?
//!                                                           the old value is written; any other value stays
//! ```
//! The owner announces a value before it writes it, so at any moment of a SIGKILL the value is the old one or one that was
//! announced. The kernel closes the pipe with the owner. SIGTERM, SIGINT and SIGHUP do not end a guard: systemd and terminals send
//! them to all processes of a service or a session.

use foreread_os::host::devices::{is_disk_setting, read_setting, write_setting};
use foreread_pagecache::program;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, Write, stdin};
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The first argument of a guard; then the file of the setting, and the old value.
const WORD: &str = "--readahead-guard";
/// The last line of an owner that has put the value back itself.
const DONE: &str = "done";

/// To be called first in `main`, with the arguments behind the program's name: true where it was started as a guard, which has then
/// done its work.
#[must_use]
pub fn run_if_asked(arguments: &[OsString]) -> bool {
    let [word, setting, old] = arguments else {
        return false;
    };
    if word != WORD {
        return false;
    }
    let setting = Path::new(setting);
    if let Some(old) = old
        .to_str()
        .and_then(|old| old.parse().ok())
        .filter(|_| is_disk_setting(setting))
    {
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            let _ = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)));
        }
        guard(setting, old, stdin().lock());
    }
    true
}

/// Nothing is reported: the owner is gone, and its stderr perhaps as well.
fn guard(setting: &Path, old: u64, announced: impl BufRead) {
    let mut ours = Vec::new();
    for line in announced.lines().map_while(Result::ok) {
        if line == DONE {
            return;
        }
        ours.extend(line.parse::<u64>());
    }
    // An announcement that the owner did not live to carry out leaves the one before it.
    let latest = &ours[ours.len().saturating_sub(2)..];
    if read_setting(setting).is_ok_and(|now| latest.contains(&now)) {
        let _ = write_setting(setting, old);
    }
}

/// The guard of a setting, as its owner has it.
#[derive(Debug)]
pub(super) struct Guard(Child);

impl Guard {
    /// Starts one. It holds `lock` as well: the setting is free when both are gone.
    pub fn start(setting: &Path, old: u64, lock: &File) -> std::io::Result<Guard> {
        let mut command = program::guard(WORD);
        command
            .arg(setting)
            .arg(old.to_string())
            .stdout(lock.try_clone()?);
        command.spawn().map(Guard)
    }

    /// A value that is about to be written.
    pub fn announce(&mut self, value: u64) -> std::io::Result<()> {
        self.write(&value.to_string())
    }

    /// The owner has put the value back, or left another's.
    pub fn done(mut self) {
        let _ = self.write(DONE);
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }

    fn write(&mut self, line: &str) -> std::io::Result<()> {
        let pipe = self
            .0
            .stdin
            .as_mut()
            .ok_or(std::io::ErrorKind::BrokenPipe)?;
        pipe.write_all(format!("{line}\n").as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value after an owner that set `now` last, having announced these.
    fn after(now: u64, announced: &str) -> u64 {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let setting = dir.path().join("read_ahead_kb");
        std::fs::write(&setting, format!("{now}\n")).expect("room");
        guard(&setting, 128, announced.as_bytes());
        read_setting(&setting).expect("a value")
    }

    #[test]
    fn what_the_owner_has_set_is_put_back_and_nothing_else() {
        assert_eq!(after(2048, "2048\n"), 128);
        assert_eq!(after(128, "2048\n"), 128, "announced, and not written");
        assert_eq!(
            after(2048, "2048\n512\n"),
            128,
            "the next was announced, and not written"
        );
        assert_eq!(after(4096, "2048\n"), 4096, "another's value");
        assert_eq!(
            after(2048, "2048\n512\n512\n"),
            2048,
            "another's, though it once was ours"
        );
        assert_eq!(after(2048, "2048\ndone\n"), 2048, "the owner has done it");
        assert_eq!(after(2048, ""), 2048);
    }

    #[test]
    fn other_arguments_are_no_guard() {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        assert!(!run_if_asked(&words(&["watch", "/dev/sda"])));
        assert!(!run_if_asked(&words(&[WORD, "x"])));
        assert!(
            run_if_asked(&words(&[WORD, "/etc/passwd", "128"])),
            "it does nothing"
        );
    }
}
