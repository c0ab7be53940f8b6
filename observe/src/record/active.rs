//! Runs a command, or attaches to a process, with the tracepoints enabled.
//!
//! ```text
//!   a thread follows itself ──► starts the command (its children are followed) ──► ends
//!   a second thread takes events from the kernel; a third examines open files, because a file system may block it forever
//! ```
//! All threads are started before the command: if the system refuses to start a thread, no command is left running. The command is traced
//! from its first instruction on, without an intermediate process. No decision depends on a clock; times are only written to the report.

use super::drain::Spill;
use super::event::{Decoder, NEEDED, enable_workers};
use super::names::Finder;
use super::processes::{
    Followed, before_of, descriptors_of, follow_family, no_process, processes, unsure,
};
use super::{Before, Capture, SwitchedOff, Target, refused, with_other_ways};
use crate::touch::family;
use crate::tracefs::{self, Instance, now_ns, thread_cpu_seconds};
use foreread_os::failure::Failure;
use foreread_os::threads::{self, END_PATIENCE, Task, spawn_scoped};
use foreread_pagecache::program;
use rustix::event::{EventfdFlags, eventfd};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::SystemTime;

/// How long the recorder sleeps while the rings are less than half full; then it examines which files are open, and whether
/// recording is still on.
const TICK_MS: u32 = 100;

/// Initial buffer for the events of a CPU: allocating all 64 MiB takes longer than many commands run.
const FIRST_BUFFER_KB: u64 = 8 << 10;
/// Initial buffer for events of io_uring workers.
const WORKER_BUFFER_KB: u64 = 1 << 10;

#[derive(Clone, Debug)]
pub struct RecordOptions {
    pub target: Target,
    /// Memory for unprocessed events of all CPUs together.
    pub buffer_bytes: u64,
    /// The folder in which events are stored during the recording.
    pub folder: PathBuf,
}

pub struct ActiveRecording {
    instance: Arc<Instance>,
    /// Records what io_uring workers read; `None` if the kernel refuses it.
    workers: Option<Instance>,
    root: tracefs::Root,
    decoder: Decoder,
    begun: RecordingStart,
    stop: Arc<OwnedFd>,
    /// Set when the recording is being ended: then it may be switched off.
    ending: Arc<AtomicBool>,
    drain: JoinHandle<Result<DrainedEvents, Failure>>,
    finder: Finder,
    /// The thread that examines which files are open.
    namer: Task<()>,
    began_ns: u64,
}

/// Checks that this machine can record, and returns the location of tracefs. Returns an error if the user is not root, there is no
/// tracefs, the kernel lacks the tracepoints, or this is a PID namespace.
pub fn possible() -> Result<tracefs::Root, Failure> {
    let root = tracefs::root()?;
    if let Some(missing) = NEEDED.iter().find(|event| !root.has(event)) {
        let what = format!("this kernel has no tracepoint {missing}, which recording needs");
        return Err(with_other_ways(Failure::cannot(what, "", "")));
    }
    if !tracefs::knows_threads() {
        return Err(with_other_ways(Failure::cannot(
            "cannot record in a PID namespace",
            "the kernel's tracepoints report process ids of the host, which differ from those of the namespace",
            "run it outside of the container, or with the host's (--pid=host)",
        )));
    }
    Ok(root)
}

/// Starts the recording. Returns an error if the user is not root, there is no tracefs, the kernel lacks the tracepoints, or there is no
/// such command or process.
pub fn start(asked: &RecordOptions) -> Result<ActiveRecording, Failure> {
    let root = possible()?;
    let instance = Arc::new(Instance::create(&root)?);
    let per_cpu_kb = (asked.buffer_bytes / 1024 / instance.cpus().len().max(1) as u64).max(8);
    let first_kb = per_cpu_kb.min(FIRST_BUFFER_KB).to_string();
    // The kernel waits for all CPUs in each of the two, so do both at the same time.
    let decoder = std::thread::scope(|scope| {
        let size = || instance.set("buffer_size_kb", &first_kb);
        let sized = spawn_scoped(scope, "foreread-buffer", size);
        let decoder = Decoder::enable(&instance);
        sized.map_or_else(|_| size(), |sized| sized.join().expect("it does not panic"))?;
        decoder
    })?;
    let workers = of_workers(&root).ok();
    let rings = workers.as_ref().map(Instance::raw).transpose()?;
    let rings = rings.unwrap_or_default();
    let spill = Spill::new(instance.raw()?, rings, &asked.folder).map_err(refused)?;
    let began_ns = now_ns();
    let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(refused)?);
    let ending = Arc::<AtomicBool>::default();
    let finder = Finder::default();
    let (looks, namer) = namer(&finder).map_err(refused)?;
    let drain = Drain {
        spill,
        instance: Arc::clone(&instance),
        stop: Arc::clone(&stop),
        ending: Arc::clone(&ending),
        began_ns,
        per_cpu_kb,
        looks,
    };
    let drain = threads::spawn("foreread-drain", move || drain.run()).map_err(refused)?;
    let begun = match begin(&instance, &asked.target) {
        Ok(begun) => begun,
        Err(error) => {
            // Nothing was followed, so the thread has nothing to take; it ends, and releases its part of the instance.
            let _ = rustix::io::write(&*stop, &1_u64.to_ne_bytes());
            let _ = drain.join();
            return Err(error);
        }
    };
    Ok(ActiveRecording {
        instance,
        workers,
        root,
        decoder,
        begun,
        stop,
        ending,
        drain,
        finder,
        namer,
        began_ns,
    })
}

/// An instance that records what io_uring workers of all programs read.
fn of_workers(root: &tracefs::Root) -> Result<Instance, Failure> {
    let instance = Instance::create(root)?;
    instance.set("buffer_size_kb", &WORKER_BUFFER_KB.to_string())?;
    enable_workers(&instance)?;
    instance.set("tracing_on", "1")?;
    Ok(instance)
}

/// The thread that takes events while the recording runs.
struct Drain {
    spill: Spill,
    instance: Arc<Instance>,
    stop: Arc<OwnedFd>,
    ending: Arc<AtomicBool>,
    began_ns: u64,
    per_cpu_kb: u64,
    looks: SyncSender<Vec<u32>>,
}

/// Starts a thread that examines the open files of processes. While it waits for a file system, no other process is
/// examined.
pub(super) fn namer(finder: &Finder) -> std::io::Result<(SyncSender<Vec<u32>>, Task<()>)> {
    let (to, looks) = sync_channel::<Vec<u32>>(1);
    let own = finder.clone();
    let look = move || looks.iter().for_each(|processes| own.look(&processes));
    Ok((to, Task::start("foreread-names", look)?))
}

impl Drain {
    fn run(mut self) -> Result<DrainedEvents, Failure> {
        let mut off = None;
        let mut rest = (self.per_cpu_kb > FIRST_BUFFER_KB).then_some(self.per_cpu_kb);
        let mut growth = None;
        while !self.spill.wait(&self.stop, TICK_MS) {
            off = off.or_else(|| switched_off(&self.instance, self.began_ns, &self.ending));
            if self.spill.is_ready() {
                // There are many events: another thread sets the requested buffer size, because events must be taken in
                // the meantime.
                if let Some(kb) = rest.take() {
                    let instance = Arc::clone(&self.instance);
                    let grow = move || instance.set("buffer_size_kb", &kb.to_string());
                    // If no thread can be started, the buffer keeps its size.
                    growth = threads::spawn("foreread-buffer", grow).ok();
                }
            } else {
                let _ = self.looks.try_send(processes(&self.instance.followed()));
            }
            self.spill.take().map_err(refused)?;
        }
        self.spill.take().map_err(refused)?;
        growth.map_or(Ok(()), |growth| growth.join().expect("it does not panic"))?;
        let cpu_seconds = thread_cpu_seconds();
        Ok(DrainedEvents {
            spill: self.spill,
            off,
            cpu_seconds,
        })
    }
}

/// What is switched off, unless the recording itself is switching it off.
fn switched_off(instance: &Instance, began_ns: u64, is_ending: &AtomicBool) -> Option<SwitchedOff> {
    let what = instance.switched_off(NEEDED)?;
    let by_us = is_ending.load(Ordering::SeqCst);
    (!by_us).then(|| SwitchedOff {
        what,
        at_s: (now_ns() - began_ns) as f64 / 1e9,
    })
}

struct DrainedEvents {
    spill: Spill,
    off: Option<SwitchedOff>,
    cpu_seconds: f64,
}

struct RecordingStart {
    followed: Followed,
    before: Vec<Before>,
    settled_ns: u64,
    roots: Vec<PathBuf>,
}

fn begin(instance: &Instance, target: &Target) -> Result<RecordingStart, Failure> {
    match target {
        Target::Command(words) => {
            let mut roots: Vec<PathBuf> = words.iter().skip(1).map(PathBuf::from).collect();
            roots.extend(std::env::current_dir());
            let descriptors = descriptors_of("self");
            let name = words.first().cloned().unwrap_or_default();
            let mut command = program::command(&name);
            command.args(words.iter().skip(1));
            let (thread, child) = instance.begin(command)?;
            let child = child.map_err(|error| program::not_begun(&name, &error))?;
            let mut before = vec![Before {
                thread,
                descriptors,
                ignored: true,
                ..Before::default()
            }];
            unsure(&mut before);
            Ok(RecordingStart {
                followed: Followed::Begun(child),
                before,
                settled_ns: 0,
                roots,
            })
        }
        Target::Process(pid) => join(instance, *pid),
    }
}

/// Follows a running process, with everything that it has started.
fn join(instance: &Instance, pid: u32) -> Result<RecordingStart, Failure> {
    let process = Followed::join(pid)?;
    let followed = follow_family(instance, pid)?;
    instance.set("tracing_on", "1")?;
    let mut before = before_of(&family(pid));
    if followed.is_empty() {
        return Err(no_process(pid));
    }
    unsure(&mut before);
    let roots = fs::read_link(format!("/proc/{pid}/cwd"))
        .into_iter()
        .collect();
    Ok(RecordingStart {
        followed: process,
        before,
        settled_ns: now_ns(),
        roots,
    })
}

impl ActiveRecording {
    pub fn pid(&self) -> u32 {
        self.begun.followed.pid()
    }

    /// Waits until the command or the process has ended; for a process that already existed, the wait also ends when `enough` is set.
    pub fn wait(&mut self, enough: &AtomicBool) -> std::io::Result<Option<ExitStatus>> {
        self.begun.followed.wait(enough)
    }

    /// Ends the recording and takes the remaining events.
    pub fn finish(self) -> Result<Capture, Failure> {
        let seconds = (now_ns() - self.began_ns) as f64 / 1e9;
        let off_now = switched_off(&self.instance, self.began_ns, &self.ending);
        self.ending.store(true, Ordering::SeqCst);
        // If it cannot be switched off any more, it is off.
        if off_now.is_none() {
            self.instance.set("tracing_on", "0")?;
        }
        let sees_workers = self.workers.is_some();
        if let Some(workers) = &self.workers {
            let _ = workers.set("tracing_on", "0");
        }
        rustix::io::write(&*self.stop, &1_u64.to_ne_bytes()).map_err(refused)?;
        let DrainedEvents {
            mut spill,
            off,
            cpu_seconds,
        } = self.drain.join().expect("it does not panic")?;
        let lost = self.instance.stats();
        // An instance with an open file cannot be removed.
        let closed = spill.close();
        // The kernel waits for all CPUs there; do other work in the meantime.
        let (instance, workers, root) = (self.instance, self.workers, self.root);
        let ending = threads::spawn("foreread-end", move || {
            drop(instance);
            drop(workers);
            drop(root);
        });
        // If no thread can be started, the instance is removed now.
        let ending = InstanceRemoval(ending.ok());
        closed.map_err(refused)?;
        let looked = self.namer.within(END_PATIENCE);
        Ok(Capture {
            _ending: ending,
            spill,
            sees_workers,
            decoder: Arc::new(self.decoder),
            before: self.begun.before,
            settled_ns: self.begun.settled_ns,
            finder: self.finder,
            answers: looked.is_some(),
            roots: self.begun.roots,
            until_unix_ns: unix_now_ns(),
            lost,
            off: off.or(off_now),
            seconds,
            drain_cpu_seconds: cpu_seconds,
        })
    }
}

/// A tracefs instance that a background thread is removing. Dropping this value waits until the instance is removed.
pub struct InstanceRemoval(Option<JoinHandle<()>>);

impl Drop for InstanceRemoval {
    fn drop(&mut self) {
        // A panic is not reported: the next run removes what is left.
        self.0.take().map(JoinHandle::join);
    }
}

/// The current calendar time, in nanoseconds since 1970.
pub(super) fn unix_now_ns() -> i128 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |now| now.as_nanos() as i128)
}
