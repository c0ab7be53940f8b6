//! The kernel's tracepoints: a private instance in tracefs, its events, and their binary format.
//!
//! ```text
//!   root() ──► Instance foreread-PID ──► enable, filter, follow ──► per_cpu/cpuN/trace_pipe_raw ──► ring ──► format
//!   mounted,   removed when dropped;      a file of tracefs each                                  pages    fields
//!   or ours    a killed one's by its guard, or by the next run
//! ```
//!
//! Never: an event switched on outside of the instance, a mount that outlives the process, or a kprobe.

pub mod format;
pub mod guard;
mod instance;
pub mod ring;
/// A process has one instance, so tests take turns.
#[cfg(test)]
pub(crate) static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

pub use instance::{Instance, Stats};

use foreread_os::failure::Failure;
use rustix::fs::StatFs;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

fn refused(what: &str, path: &Path, error: std::io::Error) -> Failure {
    let remedy = "see 'dmesg' for what the kernel says of it";
    Failure::cannot(what, path.display(), remedy).caused_by(error)
}

/// Writes a value to a file of tracefs.
fn write(path: &Path, value: &str) -> Result<(), Failure> {
    let done = OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(path)
        .and_then(|mut f| f.write_all(value.as_bytes()));
    done.map_err(|error| refused(&format!("cannot write '{value}'"), path, error))
}

/// The initial PID namespace, as every Linux numbers it (`PROC_PID_INIT_INO`).
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Whether threads have the numbers of the events here. Tracepoints have those of the initial namespace, and in another one no thread
/// knows its own.
pub fn knows_threads() -> bool {
    let other = |namespace: PathBuf| namespace.as_os_str() != INITIAL_PID_NAMESPACE;
    !std::fs::read_link("/proc/self/ns/pid").is_ok_and(other)
}

/// The clock of the events, in nanoseconds.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Processor time of this thread, in seconds.
pub fn thread_cpu_seconds() -> f64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
}

/// Where tracefs is, for as long as this lives.
#[derive(Debug)]
pub struct Root {
    path: PathBuf,
    /// A detached mount: the kernel removes it with its last descriptor.
    _mount: Option<OwnedFd>,
}

/// Where distributions mount it: since Linux 4.1 in the first place, before and often still in the second.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// `TRACEFS_MAGIC`, as the manual page of statfs(2) has it.
const TRACEFS_MAGIC: i64 = 0x7472_6163;

/// Finds tracefs, or makes a detached mount of it.
/// Errors: the user is not root, or there is no tracefs that can be written.
pub fn root() -> Result<Root, Failure> {
    let mounted =
        |place: &str| rustix::fs::statfs(place).is_ok_and(|s: StatFs| s.f_type == TRACEFS_MAGIC);
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::cannot(
            "not root",
            "the kernel's tracepoints",
            "run it as root",
        ));
    }
    let mut places = PLACES.iter().filter(|place| mounted(place)).peekable();
    let is_mounted = places.peek().is_some();
    if let Some(place) = places.find(|place| is_writable(Path::new(place))) {
        return Ok(Root {
            path: PathBuf::from(place),
            _mount: None,
        });
    }
    // A container has it read-only, where it has it at all.
    let remedy = "use a kernel with CONFIG_FTRACE_SYSCALLS, outside of a container";
    let what = match is_mounted {
        true => "tracefs cannot be written here",
        false => "no tracefs",
    };
    let none = |why: String| Failure::cannot(what, why, remedy);
    let mount = detached().map_err(|error| none(std::io::Error::from(error).to_string()))?;
    let path = foreread_os::open::descriptor_path(&mount);
    if !is_writable(&path) {
        return Err(none("an instance cannot be made".to_string()));
    }
    Ok(Root {
        path,
        _mount: Some(mount),
    })
}

/// Whether an instance can be made there.
fn is_writable(place: &Path) -> bool {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    let instances = place.join("instances");
    accessat(CWD, &instances, Access::WRITE_OK, AtFlags::EACCESS).is_ok()
}

fn detached() -> rustix::io::Result<OwnedFd> {
    use rustix::mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen,
    };
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    fsmount(
        &context,
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::empty(),
    )
}

impl Root {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether there is such an event (`syscalls/sys_enter_read`).
    pub fn has(&self, event: &str) -> bool {
        self.path.join("events").join(event).join("format").exists()
    }
}
