//! A tracefs instance: tracing buffers and settings for this process only.
//!
//! The name of the instance is `foreread-PID-TIME`. The process that owns the instance holds a lock (flock) on the instance's folder as
//! long as the process lives. If the owner is killed, its guard process ([`super::guard`]) removes the instance. If the guard is killed
//! too, the next process that creates an instance removes all instances whose lock is free. A check of the process id would not be
//! sufficient: in another PID namespace, a living process has no /proc/PID. All mounts and namespaces share one tracefs, so the lock is
//! visible everywhere.
//!
//! ```text
//!   owner    mkdir ─► open ─► flock ─► still there? ──no──► again, with another name
//!   cleaner           open ─► flock, without waiting ─► switch off, rmdir
//! ```
//! This module never writes a file outside the instance, and never changes the instance of another living process.

use super::{EventFormat, Root, refused, write};
use foreread_os::failure::Failure;
use foreread_pagecache::program;
use rustix::fs::{FlockOperation, flock};
use std::ffi::OsString;
use std::fs;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write, copy, sink, stdin};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Most names that are tried if cleaners of other processes take the lock first.
const MAX_TRIES: u32 = 16;

/// A tracefs instance. Dropping an instance disables its events and removes it.
#[derive(Debug)]
pub struct Instance {
    path: PathBuf,
    lock: Option<File>,
    guard: Option<Guard>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Events that were overwritten before they were read.
    pub overrun: u64,
    /// Events that were not recorded: an interrupt found the buffer full, or overwriting is off.
    pub dropped: u64,
}

impl Instance {
    /// Creates an instance for this process, which does not record yet, and removes the instances of dead processes.
    pub fn create(root: &Root) -> Result<Instance, Failure> {
        let instance = Instance::create_without_clock(root)?;
        instance.set_clock()?;
        Ok(instance)
    }

    /// Makes the instance use the system's monotonic clock, which is the same on all CPUs. Before this call, the instance uses the kernel's
    /// default tracing clock.
    pub fn set_clock(&self) -> Result<(), Failure> {
        self.set("trace_clock", "mono")
    }

    /// Like [`Instance::create`], but does not call [`Instance::set_clock`], because the kernel takes up to 30 ms to change the clock.
    pub fn create_without_clock(root: &Root) -> Result<Instance, Failure> {
        let instances = root.path().join("instances");
        remove_stale(&instances);
        let mut made = None;
        for _ in 0..MAX_TRIES {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
            let name = format!(
                "{PREFIX}{}-{:x}{:08x}",
                std::process::id(),
                now.tv_sec,
                now.tv_nsec
            );
            let path = instances.join(&name);
            let locked = make(&path);
            let refused = |error| refused("cannot create an instance of tracefs", &path, error);
            if let Some(lock) = locked.map_err(refused)? {
                made = Some(Instance {
                    path,
                    lock: Some(lock),
                    guard: Guard::start(&name),
                });
                break;
            }
        }
        let instance = made.ok_or_else(|| {
            let remedy = "end the other programs that create and remove instances";
            Failure::cannot(
                "every instance of tracefs was removed as soon as it was created",
                instances.display().to_string(),
                remedy,
            )
        })?;
        instance.set("tracing_on", "0")?;
        Ok(instance)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn set(&self, file: &str, value: &str) -> Result<(), Failure> {
        write(&self.path.join(file), value)
    }

    pub fn get(&self, file: &str) -> Result<String, Failure> {
        let path = self.path.join(file);
        fs::read_to_string(&path).map_err(|error| refused("cannot read", &path, error))
    }

    /// Returns the format of an event, such as `sched/sched_process_exec`, or `None` if this kernel does not have the event.
    pub fn format(&self, event: &str) -> Result<Option<EventFormat>, Failure> {
        let Ok(text) = fs::read_to_string(self.path.join("events").join(event).join("format"))
        else {
            return Ok(None);
        };
        EventFormat::parse(&text).map(Some).ok_or_else(|| {
            let remedy =
                "this kernel's format is not supported yet: please report it with this file";
            Failure::cannot("cannot parse the format of an event", event, remedy)
        })
    }

    /// Enables an event, with the kernel's event filter `filter`. Returns the event's format, or `None` if this kernel does not have the
    /// event. Returns an error if the kernel refuses to enable the event, or if the event's format cannot be parsed.
    pub fn enable(
        &self,
        event: &str,
        filter: Option<&str>,
    ) -> Result<Option<EventFormat>, Failure> {
        let Some(format) = self.format(event)? else {
            return Ok(None);
        };
        let folder = self.path.join("events").join(event);
        if let Some(filter) = filter {
            write(&folder.join("filter"), filter)?;
        }
        write(&folder.join("enable"), "1")?;
        Ok(Some(format))
    }

    /// Also records events of these threads, and of the threads that they start from now on; if no thread is followed, events of all
    /// threads are recorded.
    pub fn follow(&self, threads: &[u32]) -> Result<(), Failure> {
        self.set("options/event-fork", "1")?;
        let list: Vec<String> = threads.iter().map(u32::to_string).collect();
        let path = self.path.join("set_event_pid");
        // Truncating the file would first remove the other threads, and wait until no CPU is in an event.
        let done = OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|mut f| f.write_all(list.join(" ").as_bytes()));
        done.map_err(|error| refused("cannot follow", &path, error))
    }

    /// Starts a command that is traced from its first instruction on, without an intermediate process: a thread of foreread traces itself
    /// and starts the command. Returns the number of the thread of foreread, and the command or the error.
    pub fn begin(&self, mut command: Command) -> Result<(u32, std::io::Result<Child>), Failure> {
        let follow_and_begin = || -> Result<(u32, std::io::Result<Child>), Failure> {
            let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
            self.follow(&[thread])?;
            self.set("tracing_on", "1")?;
            Ok((thread, command.spawn()))
        };
        std::thread::scope(|scope| {
            let thread =
                foreread_os::threads::spawn_scoped(scope, "foreread-begin", follow_and_begin);
            let thread =
                thread.map_err(|error| refused("cannot begin the command", &self.path, error))?;
            thread.join().expect("it does not panic")
        })
    }

    pub fn followed(&self) -> Vec<u32> {
        let text = self.get("set_event_pid").unwrap_or_default();
        text.split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect()
    }

    /// Opens the raw trace buffer of each CPU (`trace_pipe_raw`) for non-blocking reads.
    pub fn raw(&self) -> Result<Vec<File>, Failure> {
        let open = |cpu: u32| {
            let path = self.path.join(format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
            let flags = rustix::fs::OFlags::RDONLY
                | rustix::fs::OFlags::NONBLOCK
                | rustix::fs::OFlags::CLOEXEC;
            rustix::fs::open(&path, flags, rustix::fs::Mode::empty())
                .map(File::from)
                .map_err(|error| refused("cannot read the events", &path, error.into()))
        };
        self.cpus().into_iter().map(open).collect()
    }

    pub fn cpus(&self) -> Vec<u32> {
        let names = fs::read_dir(self.path.join("per_cpu"))
            .into_iter()
            .flatten()
            .flatten();
        let number = |entry: fs::DirEntry| {
            entry
                .file_name()
                .to_str()?
                .strip_prefix("cpu")?
                .parse()
                .ok()
        };
        let mut cpus: Vec<u32> = names.filter_map(number).collect();
        cpus.sort_unstable();
        cpus
    }

    pub fn stats(&self) -> Stats {
        let mut sum = Stats::default();
        for cpu in self.cpus() {
            let text = self
                .get(&format!("per_cpu/cpu{cpu}/stats"))
                .unwrap_or_default();
            let one = parse_stats(&text);
            sum.overrun += one.overrun;
            sum.dropped += one.dropped;
        }
        sum
    }

    /// If another program has turned recording off, returns the switch that is off: that of the whole instance, or of the first event in
    /// this list that is off. Returns `None` if all switches are on.
    pub fn switched_off(&self, events: &[&str]) -> Option<String> {
        let is_on = |file: &str| {
            self.get(file)
                .is_ok_and(|text| text.trim_end().starts_with('1'))
        };
        let events = events.iter().map(|event| format!("events/{event}/enable"));
        ["tracing_on".to_string()]
            .into_iter()
            .chain(events)
            .find(|file| !is_on(file))
    }

    /// Ends the instance: turns recording off, and lets the guard process remove the instance. The caller does not wait for the removal,
    /// which takes the kernel about 0.1 s. If there is no guard, this call itself removes the instance.
    ///
    /// All other files of the instance must be closed before this call.
    pub fn leave(mut self) {
        let is_off = self.set("tracing_on", "0").is_ok();
        if let Some(guard) = self.guard.take_if(|_| is_off) {
            // The guard waits for the lock.
            self.lock = None;
            guard.take_over();
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // If this process no longer holds the lock, the guard is responsible for the folder.
        if self.lock.is_some() {
            remove(&self.path);
            // The guard ends when the lock is free.
            self.lock = None;
        }
    }
}

fn parse_stats(text: &str) -> Stats {
    let of = |key: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
        line.and_then(|value| value.trim().parse().ok())
            .unwrap_or(0)
    };
    Stats {
        overrun: of("overrun"),
        dropped: of("dropped events") + of("commit overrun"),
    }
}

/// Creates the folder and locks it. Returns `None` if it already exists, or if a cleaner has taken the lock first.
fn make(path: &Path) -> std::io::Result<Option<File>> {
    let gone = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::AlreadyExists => Ok(None),
        _ => Err(error),
    };
    if let Err(error) = fs::create_dir(path) {
        return gone(error);
    }
    let lock = match File::open(path) {
        Ok(lock) => lock,
        Err(error) => return gone(error),
    };
    // Do not wait for the lock: any user who may read the folder can hold a lock on it.
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        let _ = fs::remove_dir(path);
        return Ok(None);
    }
    Ok(path.exists().then_some(lock))
}

fn remove_stale(instances: &Path) {
    for entry in fs::read_dir(instances).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let Ok(folder) = File::open(entry.path()) else {
            continue;
        };
        if flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok() {
            remove(&entry.path());
        }
    }
}

// A small process that removes a tracing instance when its owner was killed.
//
// SIGKILL gives the owner no time to remove its instance, which would keep tracing into its buffers until the next run. So the
// owner starts its own program a second time, with the instance's name and a pipe. The kernel closes the pipe when the owner ends,
// for whatever reason.
//
// ```text
//   owner ──── pipe ────► guard: reads until the pipe ends ─► opens the folder: removed? done
//     └─ flock on the instance's folder ─────────────────────► waits 2 s for the lock ─► switches off, removes
// ```
// The pipe decides: the guard never touches the instance of a living process. A program whose `main` does not call
// [`run_if_asked`] has no guards; then the next run removes the instance of a killed one.

/// Prefix of the names of foreread's instances.
pub(super) const PREFIX: &str = "foreread-";

/// The first argument of a guard; the second is the name of the instance.
const WORD: &str = "--tracefs-guard";
/// How often the removal of a busy instance is tried again, each time after [`PAUSE`]: other files of a killed owner
/// are closed within milliseconds, and an owner that ends waits at most 2 s.
const MAX_REMOVALS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// Whether this program can act as a guard.
static OFFERED: AtomicBool = AtomicBool::new(false);

/// Returns true, after the work is done, if `arguments` say that this process is a guard: it removes a tracefs instance if the owner is
/// killed. Otherwise returns false, and each instance that this process creates from now on gets a guard. `main` must call this function
/// first, with the arguments after the program's name.
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

/// Nothing is reported: the owner has ended, and what cannot be removed here is tried by the next run.
fn guard(name: &str) {
    // Open tracefs before the wait: if it is mounted nowhere, this keeps it available.
    let Ok(root) = super::root() else { return };
    let _ = copy(&mut stdin().lock(), &mut sink());
    let path = root.path().join("instances").join(name);
    let Ok(folder) = File::open(&path) else {
        return;
    };
    // The owner's lock is released with its process. Any user who may read the folder can hold another lock; that does not
    // prevent the removal.
    for _ in 0..MAX_REMOVALS {
        if flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok() {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    for _ in 0..MAX_REMOVALS {
        remove(&path);
        if !path.exists() {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Switches an instance off and removes it. A failure is reported when the next instance is created.
pub(super) fn remove(path: &Path) {
    let _ = write(&path.join("tracing_on"), "0");
    // Removing the instance also switches its events off. A busy instance remains, and its events would cost the machine's
    // programs time.
    if fs::remove_dir(path).is_err() {
        let _ = write(&path.join("events/enable"), "0");
        let _ = fs::remove_dir(path);
    }
}

/// The owner's handle to the guard of an instance. When it is dropped, the guard ends and removes what the owner
/// could not.
#[derive(Debug)]
pub(super) struct Guard(Option<Child>);

impl Guard {
    /// Starts a guard process for the instance `name`. Returns `None` if this program cannot be a guard, or if the
    /// system cannot start another process.
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

    /// Makes the guard process remove the instance now; the caller does not wait for the removal.
    pub fn take_over(mut self) {
        if let Some(mut child) = self.0.take() {
            drop(child.stdin.take());
            // A thread waits for the guard, so that an owner that lives on has no zombie child. If no thread can be
            // started, it has one until it ends.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stats_count_lost_bytes() {
        let text = "entries: 5\noverrun: 7\ncommit overrun: 1\nbytes: 2\noldest event ts: 1.5\ndropped events: 3\n";
        assert_eq!(
            parse_stats(text),
            Stats {
                overrun: 7,
                dropped: 4
            }
        );
        assert_eq!(parse_stats(""), Stats::default());
    }

    #[test]
    fn an_instance_is_removed_and_so_is_a_dead_ones() {
        let _turn = super::super::TURN
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let root = match super::super::root() {
            Ok(root) => root,
            Err(error) => {
                println!("skipped: needs tracefs ({error})");
                return;
            }
        };
        let stale = root.path().join("instances/foreread-4194305-1");
        fs::create_dir_all(&stale).expect("root may");
        // As another PID namespace sees it: no such process, but the lock is held.
        let alive = root.path().join("instances/foreread-4194305-2");
        let lock = make(&alive).expect("root may").expect("nothing is there");
        let instance = Instance::create(&root).expect("made");
        assert!(!stale.exists() && alive.exists());
        drop(lock);
        remove_stale(&root.path().join("instances"));
        assert!(
            !alive.exists() && instance.path().exists(),
            "the lock is free, and ours is not"
        );
        let format = instance
            .enable("sched/sched_process_exec", None)
            .expect("switched on")
            .expect("there");
        assert!(format.field("pid").is_some());
        assert_eq!(
            instance
                .enable("sched/no_such_event", None)
                .expect("no error"),
            None
        );
        assert!(
            instance
                .enable("sched/sched_process_exec", Some("nonsense =="))
                .is_err()
        );
        instance.follow(&[std::process::id()]).expect("followed");
        assert_eq!(instance.followed(), [std::process::id()]);
        assert_eq!(instance.stats(), Stats::default());
        let path = instance.path().to_path_buf();
        drop(instance);
        assert!(!path.exists());
    }
}
