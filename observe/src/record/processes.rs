//! Which processes there are, their threads, what they have open.
//!
//! All of it is read from /proc, so it is a look at what changes meanwhile: a process that has ended by then has nothing.

use super::Before;
use super::names::place_of_open;
use crate::tracefs::Instance;
use foreread_os::failure::Failure;
use foreread_trace::follow::OpenBefore;
use foreread_trace::follow::event::FileKey;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};

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
        let info =
            fs::read_to_string(format!("/proc/{pid}/fdinfo/{descriptor}")).unwrap_or_default();
        let of = |key: &str| {
            info.lines()
                .find_map(|line| line.strip_prefix(key))
                .map(str::trim)
        };
        let flags = of("flags:")
            .and_then(|text| u64::from_str_radix(text, 8).ok())
            .unwrap_or(0);
        if pid == "self" && flags & 0o2_000_000 != 0 {
            continue;
        }
        let place = place_of_open(&entry.path()).map(|(place, _)| place);
        let position = of("pos:").and_then(|text| text.parse().ok());
        found.push(OpenBefore {
            descriptor,
            place,
            position,
            direct: flags & foreread_trace::follow::O_DIRECT != 0,
        });
    }
    found
}

pub(crate) fn threads_of(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    tasks
        .filter_map(|task| task.file_name().to_str()?.parse().ok())
        .collect()
}

/// A process and all that it has begun.
pub(crate) fn family(pid: u32) -> Vec<u32> {
    let mut all = Vec::new();
    let mut next = vec![pid];
    while let Some(pid) = next.pop() {
        let threads = threads_of(pid);
        if threads.is_empty() || all.contains(&pid) {
            continue;
        }
        all.push(pid);
        for thread in threads {
            let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/children"))
                .unwrap_or_default();
            next.extend(
                text.split_whitespace()
                    .filter_map(|word| word.parse::<u32>().ok()),
            );
        }
    }
    all
}

/// A process that runs: a descriptor that can be read once it has ended.
///
/// # Errors
/// There is none of this number.
pub fn join(pid: u32) -> Result<OwnedFd, Failure> {
    let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let process = number.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    process.ok_or_else(|| no_process(pid))
}

/// Waits until a command has ended, or a process of others; for that one also until `enough`.
///
/// # Errors
/// The system does not say.
pub(super) fn until_ended(
    child: Option<&mut Child>,
    joined: Option<&OwnedFd>,
    enough: &AtomicBool,
) -> std::io::Result<Option<ExitStatus>> {
    if let Some(child) = child {
        return child.wait().map(Some);
    }
    let Some(joined) = joined else {
        return Ok(None);
    };
    let time = Timespec {
        tv_sec: 0,
        tv_nsec: 20_000_000,
    };
    // It has ended when it can be read: also where its parent has not waited for it yet.
    while !enough.load(Ordering::Acquire) {
        match poll(&mut [PollFd::new(joined, PollFlags::IN)], Some(&time)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
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
    let leader = |thread: &u32| {
        let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
        status
            .lines()
            .find_map(|line| line.strip_prefix("Tgid:"))?
            .trim()
            .parse::<u32>()
            .ok()
    };
    let all: HashSet<u32> = threads.iter().filter_map(leader).collect();
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
