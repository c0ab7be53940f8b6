//! Reads the readahead decisions and page cache changes of one device from a tracefs [`Instance`].
//!
//! ```text
//!   tracefs/instances/foreread-PID-TIME/ ── events, filters ──► trace_pipe ──► text, until nothing is left
//! ```

use super::{LiveError, RETRY};
use foreread_observe::tracefs::{self, Instance, Root};
use foreread_os::failure::Failure;
use foreread_os::host::DeviceNumber;
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;

/// Trace memory of each CPU: one operation writes at most a few thousand lines of 100 bytes.
const BUFFER_KIB: &str = "4096";
/// Decisions, and pages that are added and removed. Kernels older than 6.18 do not have all of them.
const EVENTS: [&str; 6] = [
    "readahead/page_cache_sync_ra",
    "readahead/page_cache_async_ra",
    "readahead/page_cache_ra_order",
    "readahead/page_cache_ra_unbounded",
    "filemap/mm_filemap_add_to_page_cache",
    "filemap/mm_filemap_delete_from_page_cache",
];

/// The events of one device as text.
pub(super) struct Trace {
    /// Declared before the instance, which cannot be removed while this is open.
    pipe: File,
    _instance: Instance,
    /// Keeps tracefs available if it is not mounted anywhere.
    _root: Root,
}

impl Trace {
    pub fn new(device: DeviceNumber) -> Result<Trace, LiveError> {
        let root = tracefs::root().map_err(refused)?;
        let events = root.path().join("events");
        if let Some(event) = EVENTS.iter().find(|event| !events.join(event).is_dir()) {
            return Err(LiveError::Cannot(format!(
                "this kernel lacks the tracepoint {event} of Linux 6.18; {RETRY}"
            )));
        }
        let instance = Instance::create(&root).map_err(refused)?;
        let set = |name: &str, value: &str| instance.set(name, value).map_err(refused);
        set("buffer_size_kb", BUFFER_KIB)?;
        // The kernel formats device numbers with 20 bits for the minor number.
        let filter = format!(
            "s_dev == {}",
            u64::from(device.major) << 20 | u64::from(device.minor)
        );
        for event in EVENTS {
            set(&format!("events/{event}/filter"), &filter)?;
            set(&format!("events/{event}/enable"), "1")?;
        }
        set("tracing_on", "1")?;
        let path = instance.path().join("trace_pipe");
        let pipe = File::options()
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
            .open(&path);
        let pipe = pipe.map_err(|e| LiveError::io(path.display().to_string(), e))?;
        Ok(Trace {
            pipe,
            _instance: instance,
            _root: root,
        })
    }

    /// Appends to `text` all trace lines that the kernel has written since the last call.
    pub fn read(&mut self, text: &mut Vec<u8>) -> Result<(), LiveError> {
        loop {
            // The kernel returns at most two pages at a time.
            let begin = text.len();
            text.resize(begin + (16 << 10), 0);
            let got = self.pipe.read(&mut text[begin..]);
            text.truncate(begin + *got.as_ref().unwrap_or(&0));
            match got {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(LiveError::io("trace_pipe", error)),
            }
        }
    }
}

fn refused(error: Failure) -> LiveError {
    let place = match error.why.as_str() {
        "" => error.place,
        why => format!("{}: {why}", error.place),
    };
    LiveError::Cannot(format!("{} ({place}); {RETRY}", error.what))
}
