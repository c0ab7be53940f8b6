//! Runs `foreread-check`, in the same way as the tests of `foreread` run that command.

pub use foreread_testing::command::*;
pub use foreread_testing::says;

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

pub const FOREREAD: Binary = Binary(env!("CARGO_BIN_EXE_foreread-check"));

pub fn foreread<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Got {
    FOREREAD.with(args)
}

/// What this machine lacks to record its kernel with these events, if anything.
pub fn lacks(events: &str) -> Option<&'static str> {
    let there = |path: &str| Path::new(path).exists();
    let output = |program: &str, argument: &str| Command::new(program).arg(argument).output();
    let is_root = output("id", "-u").is_ok_and(|out| out.stdout == b"0\n");
    let events = there(&format!("/sys/kernel/tracing/events/{events}"));
    let wants = [
        (is_root, "root"),
        (there("/dev/loop-control"), "loop devices"),
        (events, "tracefs and a kernel with the tracepoints"),
        (output("losetup", "-V").is_ok(), "losetup (mount)"),
        (output("mkfs.ext4", "-V").is_ok(), "mkfs.ext4 (e2fsprogs)"),
        (output("mkfs.xfs", "-V").is_ok(), "mkfs.xfs (xfsprogs)"),
    ];
    let lack = wants.into_iter().find(|(has, _)| !has);
    let lack = lack.map(|(_, what)| what);
    if let Some(what) = lack {
        println!("skipped: needs {what}");
    }
    lack
}
