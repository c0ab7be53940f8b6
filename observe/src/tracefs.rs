//! The kernel's tracepoints: a private instance in tracefs, its events, and their binary format.
//!
//! ```text
//!   root() ──► Instance foreread-PID ──► enable, filter, follow ──► per_cpu/cpuN/trace_pipe_raw ──► ring ──► format
//!   mounted,   removed when dropped;      each a file of tracefs                                  pages    fields
//!   or ours    after a kill, by its guard or by the next run
//! ```
//!
//! No event is enabled outside this instance, the mount of tracefs ends with the process, and no kprobe is used.

use foreread_os::failure::Failure;
pub use instance::{Instance, Stats};
use rustix::fs::StatFs;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

pub mod instance;
pub mod ring;
/// A process has one instance, so tests take turns.
#[cfg(test)]
pub(crate) static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn refused(what: &str, path: &Path, error: std::io::Error) -> Failure {
    let remedy = "see 'dmesg' for the kernel's message";
    Failure::cannot(what, path.display(), remedy).caused_by(error)
}

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

/// Returns whether the thread ids in events are those of this process's PID namespace. Tracepoints report thread ids
/// of the initial PID namespace, which a thread in another namespace cannot find out.
pub fn knows_threads() -> bool {
    let other = |namespace: PathBuf| namespace.as_os_str() != INITIAL_PID_NAMESPACE;
    !std::fs::read_link("/proc/self/ns/pid").is_ok_and(other)
}

/// Returns the current time of the clock that events use, in nanoseconds.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

pub fn thread_cpu_seconds() -> f64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
}

/// The location of tracefs. If foreread has mounted tracefs, the mount ends when this value is dropped.
#[derive(Debug)]
pub struct Root {
    path: PathBuf,
    /// A detached mount: the kernel removes it with its last descriptor.
    _mount: Option<OwnedFd>,
}

/// Where distributions mount it: since Linux 4.1 in the first folder, before that, and often still, in the second.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// `TRACEFS_MAGIC` from the manual page of statfs(2).
const TRACEFS_MAGIC: i64 = 0x7472_6163;

/// Finds tracefs, or creates a detached mount of it. Returns an error if the user is not root, or if there is no
/// writable tracefs.
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
    // A container has tracefs read-only, if at all.
    let remedy = "use a kernel with CONFIG_FTRACE_SYSCALLS, outside of a container";
    let what = match is_mounted {
        true => "tracefs cannot be written here",
        false => "no tracefs",
    };
    let none = |why: String| Failure::cannot(what, why, remedy);
    let mount = detached().map_err(|error| none(std::io::Error::from(error).to_string()))?;
    let path = foreread_os::open::descriptor_path(&mount);
    if !is_writable(&path) {
        return Err(none("a tracefs instance cannot be created".to_string()));
    }
    Ok(Root {
        path,
        _mount: Some(mount),
    })
}

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

    /// Returns whether the kernel has this event, such as `syscalls/sys_enter_read`.
    pub fn has(&self, event: &str) -> bool {
        self.path.join("events").join(event).join("format").exists()
    }
}

// The layout of an event, from its `format` file.
//
// ```text
//   name: sys_exit_read
//   ID: 841
//   format:
//       field:int common_pid;  offset:4;  size:4;  signed:1;
//       field:long ret;        offset:16; size:8;  signed:1;
// ```
//
// No field is read outside the bytes of its event.

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    pub offset: usize,
    pub size: usize,
    pub signed: bool,
}

impl Field {
    /// Returns the field's value in the bytes of an event, with its sign extended, or `None` if the bytes do not contain the field.
    pub fn value(&self, event: &[u8]) -> Option<u64> {
        let bytes = event.get(self.offset..self.offset.checked_add(self.size)?)?;
        let wide = |number: i64| number as u64;
        Some(match (bytes, self.signed) {
            ([a], false) => u64::from(*a),
            ([a], true) => wide(i64::from(*a as i8)),
            (&[a, b], false) => u64::from(u16::from_ne_bytes([a, b])),
            (&[a, b], true) => wide(i64::from(i16::from_ne_bytes([a, b]))),
            (&[a, b, c, d], false) => u64::from(u32::from_ne_bytes([a, b, c, d])),
            (&[a, b, c, d], true) => wide(i64::from(i32::from_ne_bytes([a, b, c, d]))),
            _ => u64::from_ne_bytes(bytes.try_into().ok()?),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventFormat {
    /// The first two bytes of each such event.
    pub id: u16,
    /// The fields, without the common ones.
    pub fields: Vec<Field>,
}

impl EventFormat {
    /// Parses the `format` file of an event, or returns `None` if the file is malformed.
    pub fn parse(text: &str) -> Option<EventFormat> {
        let id = text
            .lines()
            .find_map(|line| line.strip_prefix("ID: "))?
            .trim()
            .parse()
            .ok()?;
        let lines = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("field:"));
        let fields: Option<Vec<Field>> = lines.map(field).collect();
        let fields = fields?
            .into_iter()
            .filter(|field| !field.name.starts_with("common_"))
            .collect();
        Some(EventFormat { id, fields })
    }

    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// The fields with these names, which are separated by spaces; `None` if one is missing.
    pub fn named(&self, names: &str) -> Option<Vec<Field>> {
        names
            .split(' ')
            .map(|name| self.field(name).cloned())
            .collect()
    }
}

/// `unsigned long fd;    offset:16;    size:8;    signed:0;`
fn field(text: &str) -> Option<Field> {
    let mut parts = text.split(';').map(str::trim);
    let declared = parts.next()?;
    let name = declared
        .rsplit(|c: char| c.is_whitespace() || c == '*')
        .next()?;
    let name = name.split('[').next()?.to_string();
    let (mut offset, mut size, mut signed) = (None, None, false);
    for part in parts {
        match part.split_once(':') {
            Some(("offset", value)) => offset = value.parse().ok(),
            Some(("size", value)) => size = value.parse().ok(),
            Some(("signed", value)) => signed = value == "1",
            _ => {}
        }
    }
    Some(Field {
        name,
        offset: offset?,
        size: size?,
        signed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name: x\nID: 841\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \n\tfield:int __syscall_nr;\toffset:8;\tsize:4;\tsigned:1;\n\tfield:const char * filename;\toffset:16;\tsize:8;\t\
        signed:0;\n\tfield:char comm[16];\toffset:24;\tsize:16;\tsigned:0;\n\nprint fmt: \"field:%d\", REC->ret\n";

    #[test]
    fn a_format_is_read() {
        let format = EventFormat::parse(TEXT).expect("a format");
        let names: Vec<&str> = format.fields.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(
            (format.id, names),
            (841, vec!["__syscall_nr", "filename", "comm"])
        );
        assert_eq!(EventFormat::parse("ID: x"), None);
        assert_eq!(
            EventFormat::parse("ID: 1\n field:int a; offset:b; size:4;"),
            None
        );
    }

    #[test]
    fn values_keep_their_sign_and_their_bounds() {
        let bytes = [0xff_u8; 16];
        let of = |offset, size, signed| {
            Field {
                name: String::new(),
                offset,
                size,
                signed,
            }
            .value(&bytes)
        };
        assert_eq!(
            (of(0, 4, true), of(0, 4, false)),
            (Some(u64::MAX), Some(0xffff_ffff))
        );
        assert_eq!(
            (of(1, 2, true), of(1, 1, false), of(8, 8, false)),
            (Some(u64::MAX), Some(255), Some(u64::MAX))
        );
        assert_eq!(
            (of(9, 8, false), of(0, 3, false), of(usize::MAX, 8, false)),
            (None, None, None)
        );
    }
}
