//! Processes, their threads, and their open files.
//!
//! All data is read from /proc and may change meanwhile: a process that has ended has none.

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

/// How often it is asked whether a process was followed for long enough.
const ASKED_EVERY: Duration = Duration::from_millis(20);

/// Takes away positions that may be shared: descriptors of one file at one place may be of one open description (fork,
/// dup), and nothing in /proc says so. What moves one then moves the other unseen.
pub(super) fn unsure(before: &mut [Before]) {
    let mut times: HashMap<(FileKey, u64), u32> = HashMap::new();
    let key = |one: &OpenBefore| one.place.zip(one.position);
    for key in before
        .iter()
        .flat_map(|one| &one.descriptors)
        .filter_map(key)
    {
        *times.entry(key).or_default() += 1;
    }
    for one in before.iter_mut().flat_map(|one| &mut one.descriptors) {
        one.position = one
            .position
            .filter(|_| key(one).is_none_or(|key| times[&key] == 1));
    }
}

/// What a process has open, without what an exec would close where it is our own.
pub(super) fn descriptors_of(pid: &str) -> Vec<OpenBefore> {
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let Some(descriptor) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
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

/// What is followed, with all that it begins.
#[derive(Clone, Debug)]
pub enum Target {
    /// A command and its arguments, to be run.
    Command(Vec<OsString>),
    /// A process that runs already.
    Process(u32),
}

/// What is followed: a command that was begun, or a process that was there before.
pub enum Followed {
    Begun(Child),
    Joined(u32, OwnedFd),
}

impl Followed {
    /// Begins the command, or joins the process.
    /// Errors: it cannot be run, or there is no process with this number.
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

    /// Joins a process that runs.
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

    /// Waits for its end. Of a process that was there before: also until `enough`, and its exit code is not known.
    pub fn wait(&mut self, enough: &AtomicBool) -> std::io::Result<Option<ExitStatus>> {
        let process = match self {
            Followed::Begun(child) => return child.wait().map(Some),
            Followed::Joined(_, process) => process,
        };
        // It can be read once it has ended, also where its parent has not waited for it yet.
        while !enough.load(Ordering::Acquire) && !readable([&*process], ASKED_EVERY)[0] {}
        Ok(None)
    }
}

pub(super) fn no_process(pid: u32) -> Failure {
    Failure::input("no such process", pid, "see 'ps'")
}

/// Follows a process that runs, with all that it has begun. Gives the threads: none where it has ended.
///
/// A child whose parent has ended before this look is not found.
pub fn follow_family(instance: &Instance, pid: u32) -> Result<Vec<u32>, Failure> {
    let mut followed: Vec<u32> = Vec::new();
    // A child of a followed process is followed; others may have started during the look.
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

/// What the threads of these processes have open.
pub(super) fn before_of(processes: &[u32]) -> Vec<Before> {
    let mut before = Vec::new();
    for &pid in processes {
        let descriptors = descriptors_of(&pid.to_string());
        before.push(Before {
            thread: pid,
            descriptors,
            shares: None,
            ignored: false,
        });
        let others = threads_of(pid).into_iter().filter(|thread| *thread != pid);
        let shares = |thread| Before {
            thread,
            descriptors: Vec::new(),
            shares: Some(pid),
            ignored: false,
        };
        before.extend(others.map(shares));
    }
    before
}
