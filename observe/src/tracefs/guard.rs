//! A small process that removes a tracing instance when its owner was killed.
//!
//! SIGKILL leaves the owner no time to remove it, and it would trace into its buffers until the next run. So the owner starts
//! its own program a second time, with the instance's name and a pipe. The kernel closes the pipe with the owner, whatever ends it.
//!
//! ```text
//!   owner ──── pipe ────► guard: reads until the pipe ends ─► opens the folder: gone? done
//!     └─ flock on the instance's folder ─────────────────────► waits 2 s for the lock ─► switches off, removes
//! ```
//! The pipe decides: the guard never touches the instance of a process that
//! lives. A program whose `main` does not call [`run_if_asked`] has no guards, and the next run removes what a killed one left.

use super::write;
use foreread_pagecache::program;
use rustix::fs::{FlockOperation, flock};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{copy, sink, stdin};
use std::path::Path;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What the names of our instances begin with.
pub(super) const PREFIX: &str = "foreread-";

/// The first argument of a guard; the second is the name of the instance.
const WORD: &str = "--tracefs-guard";
/// How often a busy instance is tried again, each time after [`PAUSE`]: other files of a killed owner close within
/// milliseconds, and an owner that ends waits no longer than 2 s.
const MAX_TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// Whether this program can be a guard.
static OFFERED: AtomicBool = AtomicBool::new(false);

/// To be called first in `main`, with the arguments behind the program's name: true where it was started as a guard, which
/// has then done its work. Otherwise the instances of this process have guards from now on.
pub fn run_if_asked(arguments: &[OsString]) -> bool {
    let mut arguments = arguments.iter();
    if arguments.next().is_none_or(|word| word != WORD) {
        OFFERED.store(true, Ordering::Relaxed);
        return false;
    }
    let name = arguments.next().and_then(|name| name.to_str());
    if let Some(name) = name.filter(|name| name.starts_with(PREFIX) && !name.contains('/')) {
        guard(name);
    }
    true
}

/// Nothing is reported: the owner is gone, and what cannot be removed here is tried by the next run.
fn guard(name: &str) {
    // Before the wait: a tracefs that is mounted nowhere is held from here on.
    let Ok(root) = super::root() else { return };
    let _ = copy(&mut stdin().lock(), &mut sink());
    let path = root.path().join("instances").join(name);
    let Ok(folder) = File::open(&path) else {
        return;
    };
    // The owner's lock goes with its process. Another one, which each user who may read the folder can hold, keeps nothing.
    for _ in 0..MAX_TRIES {
        if flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok() {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    for _ in 0..MAX_TRIES {
        remove(&path);
        if !path.exists() {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Switches an instance off and removes it. A failure is reported when the next instance is made.
pub(super) fn remove(path: &Path) {
    let _ = write(&path.join("tracing_on"), "0");
    // The kernel switches its events off with it. A busy one remains, and its events would cost the machine's programs time.
    if fs::remove_dir(path).is_err() {
        let _ = write(&path.join("events/enable"), "0");
        let _ = fs::remove_dir(path);
    }
}

/// The guard of an instance, as its owner has it. Dropped, it ends, and removes what the owner could not.
#[derive(Debug)]
pub(super) struct Guard(Option<Child>);

impl Guard {
    /// Starts one; none where this program cannot be one, or the system has no room for a process more.
    pub fn start(name: &str) -> Option<Guard> {
        if !OFFERED.load(Ordering::Relaxed) {
            return None;
        }
        program::guard(WORD)
            .arg(name)
            .spawn()
            .ok()
            .map(|child| Guard(Some(child)))
    }

    /// The owner has done with its instance, and does not wait for its end.
    pub fn take_over(mut self) {
        if let Some(mut child) = self.0.take() {
            drop(child.stdin.take());
            // An owner that lives on has no dead child. Without a thread it has one until its end.
            let _ = std::thread::Builder::new().spawn(move || child.wait());
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }
}
