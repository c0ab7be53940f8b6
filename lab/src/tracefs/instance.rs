//! An instance of tracefs: buffers and switches that nobody else uses.
//!
//! It is called `foreread-PID`, so that the next run can take away what a killed one has left. Never: a write to a file
//! outside of it.

use super::format::EventFormat;
use super::{Root, TracefsError};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

const PREFIX: &str = "foreread-";

/// An instance. It is switched off and removed when it is dropped.
#[derive(Debug)]
pub struct Instance {
    path: PathBuf,
}

/// What a CPU's buffer counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Events that were overwritten before they were read.
    pub overrun: u64,
    /// Events that were not taken: an interrupt met a full buffer, or overwriting is off.
    pub dropped: u64,
}

impl Instance {
    /// Makes the instance of this process, having removed those of dead ones. It records nothing yet.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn create(root: &Root) -> Result<Instance, TracefsError> {
        let instances = root.path().join("instances");
        remove_stale(&instances);
        let path = instances.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| TracefsError::io("cannot make an instance of tracefs", &path, &error))?;
        let instance = Instance { path };
        instance.set("tracing_on", "0")?;
        // The clock of the machine's other times, the same on all CPUs.
        instance.set("trace_clock", "mono")?;
        Ok(instance)
    }

    /// Its folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes `value` to one of its files.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn set(&self, file: &str, value: &str) -> Result<(), TracefsError> {
        write(&self.path.join(file), value)
    }

    /// What one of its files holds.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn get(&self, file: &str) -> Result<String, TracefsError> {
        let path = self.path.join(file);
        fs::read_to_string(&path).map_err(|error| TracefsError::io("cannot read", &path, &error))
    }

    /// Switches an event on, such as `sched/sched_process_exec`, for what passes `filter`; gives what it looks like, or
    /// nothing where this kernel does not have it.
    ///
    /// # Errors
    /// The kernel refuses it, or its form is not understood.
    pub fn enable(&self, event: &str, filter: Option<&str>) -> Result<Option<EventFormat>, TracefsError> {
        let folder = self.path.join("events").join(event);
        let Ok(text) = fs::read_to_string(folder.join("format")) else { return Ok(None) };
        let Some(format) = EventFormat::parse(&text) else {
            let remedy = "this kernel is not known yet: please report it with this file";
            return Err(TracefsError::new("the form of an event is not understood", event, remedy));
        };
        if let Some(filter) = filter {
            write(&folder.join("filter"), filter)?;
        }
        write(&folder.join("enable"), "1")?;
        Ok(Some(format))
    }

    /// Records events of these threads too, and of those that they begin from now on; while none is followed, of all.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn follow(&self, threads: &[u32]) -> Result<(), TracefsError> {
        self.set("options/event-fork", "1")?;
        let list: Vec<String> = threads.iter().map(u32::to_string).collect();
        let path = self.path.join("set_event_pid");
        // A truncation would take the others away first, and wait until no CPU is in an event.
        let done = OpenOptions::new().write(true).open(&path).and_then(|mut f| f.write_all(list.join(" ").as_bytes()));
        done.map_err(|error| TracefsError::io("cannot follow", &path, &error))
    }

    /// The threads that are followed at the moment.
    #[must_use]
    pub fn followed(&self) -> Vec<u32> {
        let text = self.get("set_event_pid").unwrap_or_default();
        text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    }

    /// The binary buffer of each CPU, for reading without waiting.
    ///
    /// # Errors
    /// One cannot be opened.
    pub fn raw(&self) -> Result<Vec<File>, TracefsError> {
        let open = |cpu: u32| {
            let path = self.path.join(format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
            let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC;
            rustix::fs::open(&path, flags, rustix::fs::Mode::empty())
                .map(File::from)
                .map_err(|error| TracefsError::io("cannot read the events", &path, &error.into()))
        };
        self.cpus().into_iter().map(open).collect()
    }

    /// The numbers of the CPUs that have a buffer.
    #[must_use]
    pub fn cpus(&self) -> Vec<u32> {
        let names = fs::read_dir(self.path.join("per_cpu")).into_iter().flatten().flatten();
        let number = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_prefix("cpu")?.parse().ok();
        let mut cpus: Vec<u32> = names.filter_map(number).collect();
        cpus.sort_unstable();
        cpus
    }

    /// What all CPUs together have lost.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut sum = Stats::default();
        for cpu in self.cpus() {
            let text = self.get(&format!("per_cpu/cpu{cpu}/stats")).unwrap_or_default();
            let one = parse_stats(&text);
            sum.overrun += one.overrun;
            sum.dropped += one.dropped;
        }
        sum
    }

    /// Switches everything off.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn stop(&self) -> Result<(), TracefsError> {
        self.set("tracing_on", "0")?;
        self.set("events/enable", "0")
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

fn write(path: &Path, value: &str) -> Result<(), TracefsError> {
    let done = OpenOptions::new().write(true).truncate(true).open(path).and_then(|mut f| f.write_all(value.as_bytes()));
    done.map_err(|error| TracefsError::io(&format!("cannot write '{value}'"), path, &error))
}

fn parse_stats(text: &str) -> Stats {
    let of = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
        line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
    };
    Stats { overrun: of("overrun"), dropped: of("dropped events") + of("commit overrun") }
}

/// Removes the instances of processes that are gone.
fn remove_stale(instances: &Path) {
    for entry in fs::read_dir(instances).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
        if pid.is_some_and(|pid| pid == std::process::id() || !Path::new(&format!("/proc/{pid}")).exists()) {
            remove(&entry.path());
        }
    }
}

/// Whatever fails here is met again, and told, when an instance is made.
fn remove(path: &Path) {
    for (file, value) in [("tracing_on", "0"), ("events/enable", "0")] {
        let _ = write(&path.join(file), value);
    }
    let _ = fs::remove_dir(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stats_count_what_was_lost() {
        let text = "entries: 5\noverrun: 7\ncommit overrun: 1\nbytes: 2\noldest event ts: 1.5\ndropped events: 3\n";
        assert_eq!(parse_stats(text), Stats { overrun: 7, dropped: 4 });
        assert_eq!(parse_stats(""), Stats::default());
    }

    #[test]
    fn an_instance_is_removed_and_so_is_a_dead_ones() {
        let _turn = super::super::TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let root = match super::super::root() {
            Ok(root) => root,
            Err(error) => {
                println!("skipped: needs tracefs ({error})");
                return;
            }
        };
        // A process id beyond the largest that Linux gives (2^22).
        let stale = root.path().join("instances/foreread-4194305");
        fs::create_dir_all(&stale).expect("root may");
        let instance = Instance::create(&root).expect("made");
        assert!(!stale.exists());
        let format = instance.enable("sched/sched_process_exec", None).expect("switched on").expect("there");
        assert!(format.field("pid").is_some());
        assert_eq!(instance.enable("sched/no_such_event", None).expect("no error"), None);
        assert!(instance.enable("sched/sched_process_exec", Some("nonsense ==")).is_err());
        instance.follow(&[std::process::id()]).expect("followed");
        assert_eq!(instance.followed(), [std::process::id()]);
        assert_eq!(instance.stats(), Stats::default());
        let path = instance.path().to_path_buf();
        drop(instance);
        assert!(!path.exists());
    }
}
