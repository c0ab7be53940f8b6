//! Processes, their threads, and their open files.
//!
//! All data is read from /proc and may change while it is read: for a process that has ended, there is no data.

use super::Before;
use crate::sample::{place_of_descriptor, process_of};
use crate::touch::{family, place_of_open, threads_of};
use crate::tracefs::Instance;
use foreread_os::failure::Failure;
use foreread_os::poll::readable;
use foreread_pagecache::program;
use foreread_trace::follow::OpenBefore;
use foreread_trace::follow::call::FileKey;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often to check whether a process was followed for long enough.
const ASKED_EVERY: Duration = Duration::from_millis(20);

/// Removes positions that may be shared: two descriptors of a file with the same position may belong to the same open
/// description (fork, dup), and /proc does not show this. A read through one of them would then also move the other.
pub(super) fn unsure(before: &mut [Before]) {
    let mut times: HashMap<(FileKey, u64), u32> = HashMap::new();
    let key = |one: &OpenBefore| one.place.zip(one.position);
    let all = before.iter().flat_map(|one| &one.descriptors);
    for key in all.filter_map(key) {
        *times.entry(key).or_default() += 1;
    }
    for one in before.iter_mut().flat_map(|one| &mut one.descriptors) {
        one.position = one
            .position
            .filter(|_| key(one).is_none_or(|key| times[&key] == 1));
    }
}

/// The open files of a process; for this process, without those that an exec would close.
pub(super) fn descriptors_of(pid: &str) -> Vec<OpenBefore> {
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = entry.file_name();
        let Some(descriptor) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let at = place_of_descriptor(pid, descriptor);
        let flags = at.as_ref().map_or(0, |at| at.flags);
        if pid == "self" && flags & 0o2_000_000 != 0 {
            continue;
        }
        let place = place_of_open(&entry.path()).map(|(place, _)| place);
        found.push(OpenBefore {
            descriptor,
            place,
            position: at.map(|at| at.bytes),
            direct: flags & foreread_trace::follow::O_DIRECT != 0,
        });
    }
    found
}

/// What to record: a command to start, or a running process. All processes that this command or process starts are also recorded.
#[derive(Clone, Debug)]
pub enum Target {
    Command(Vec<OsString>),
    Process(u32),
}

/// What is being recorded: a command that was started, or a process that already existed.
pub enum Followed {
    Begun(Child),
    Joined(u32, OwnedFd),
}

impl Followed {
    /// Starts the command, or attaches to the process. Returns an error if the command cannot be run, or if there is
    /// no process with this number.
    pub fn start(target: &Target) -> Result<Followed, Failure> {
        match target {
            Target::Command(words) => {
                let none = || Failure::input("no command", "", "name one");
                let (name, rest) = words.split_first().ok_or_else(none)?;
                Ok(Followed::Begun(program::begin(name, rest)?))
            }
            Target::Process(pid) => Followed::join(*pid),
        }
    }

    pub fn join(pid: u32) -> Result<Followed, Failure> {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let process = number.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let process = process.ok_or_else(|| no_process(pid))?;
        Ok(Followed::Joined(pid, process))
    }

    pub fn pid(&self) -> u32 {
        match self {
            Followed::Begun(child) => child.id(),
            Followed::Joined(pid, _) => *pid,
        }
    }

    /// Waits until the process ends. For a process that already existed, the wait also ends when `enough` is set, and
    /// the exit code is unknown.
    pub fn wait(&mut self, enough: &AtomicBool) -> std::io::Result<Option<ExitStatus>> {
        let process = match self {
            Followed::Begun(child) => return child.wait().map(Some),
            Followed::Joined(_, process) => process,
        };
        // The descriptor is readable when the process has ended, even if its parent has not waited for it yet.
        while !enough.load(Ordering::Acquire) && !readable([&*process], ASKED_EVERY)[0] {}
        Ok(None)
    }
}

pub(super) fn no_process(pid: u32) -> Failure {
    Failure::input("no such process", pid, "see 'ps'")
}

/// Makes the tracefs instance follow a running process and all processes that it has started. Returns the threads of these processes; the
/// list is empty if the process has ended.
///
/// A descendant whose parent has already ended is not found.
pub fn follow_family(instance: &Instance, pid: u32) -> Result<Vec<u32>, Failure> {
    let mut followed: Vec<u32> = Vec::new();
    // Children of a followed process are followed automatically; others may have started in the meantime.
    loop {
        let threads = family(pid).into_iter().flat_map(threads_of);
        let fresh: Vec<u32> = threads
            .filter(|thread| !followed.contains(thread))
            .collect();
        if fresh.is_empty() {
            return Ok(followed);
        }
        instance.follow(&fresh)?;
        followed.extend(fresh);
    }
}

pub(super) fn processes(threads: &[u32]) -> Vec<u32> {
    let all: HashSet<u32> = threads.iter().copied().filter_map(process_of).collect();
    all.into_iter().collect()
}

/// The open files of the threads of these processes.
pub(super) fn before_of(processes: &[u32]) -> Vec<Before> {
    let mut before = Vec::new();
    for &pid in processes {
        let descriptors = descriptors_of(&pid.to_string());
        before.push(Before {
            thread: pid,
            descriptors,
            ..Before::default()
        });
        let others = threads_of(pid).into_iter().filter(|thread| *thread != pid);
        let shares = |thread| Before {
            thread,
            shares: Some(pid),
            ..Before::default()
        };
        before.extend(others.map(shares));
    }
    before
}
