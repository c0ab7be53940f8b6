//! The readahead decisions and the page cache's comings and goings of one device, from a tracing [`Instance`].
//!
//! ```text
//!   tracefs/instances/foreread-PID-TIME/ ── events, filters ──► trace_pipe ──► text, until nothing is left
//! ```

use super::{LiveError, RETRY};
use foreread_observe::tracefs::{self, Instance, Root};
use foreread_os::failure::Failure;
use foreread_os::host::DeviceNumber;
use rustix::fs::OFlags;
use serde::Serialize;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Trace memory of each CPU: one operation writes at most a few thousand lines of 100 bytes.
const BUFFER_KIB: &str = "4096";
/// Decisions: Linux 6.18 has these tracepoints, older kernels have none of them.
const DECISIONS: [&str; 4] = [
    "readahead/page_cache_sync_ra",
    "readahead/page_cache_async_ra",
    "readahead/page_cache_ra_order",
    "readahead/page_cache_ra_unbounded",
];
/// Pages that come and go.
const PAGES: [&str; 2] = [
    "filemap/mm_filemap_add_to_page_cache",
    "filemap/mm_filemap_delete_from_page_cache",
];

/// The events that a kernel offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Heard {
    /// Its decisions, and the pages that come and go.
    All,
    /// The pages alone.
    Pages,
    /// Nothing: which pages are there is looked up (mincore(2)).
    Presence,
}

impl Heard {
    fn events(self) -> impl Iterator<Item = &'static str> {
        let decisions = if self == Heard::All {
            &DECISIONS[..]
        } else {
            &[]
        };
        decisions.iter().chain(&PAGES).copied()
    }
}

/// The events of one device as text.
pub(super) struct Trace {
    /// Before the instance, which cannot be removed while it is open.
    pipe: File,
    _instance: Instance,
    /// Holds tracefs where it is mounted nowhere.
    _root: Root,
}

impl Trace {
    /// Listens to one device.
    pub fn new(device: DeviceNumber, heard: Heard) -> Result<Trace, LiveError> {
        let root = tracefs::root().map_err(refused)?;
        let instance = Instance::create(&root).map_err(refused)?;
        let set = |name: &str, value: &str| instance.set(name, value).map_err(refused);
        set("buffer_size_kb", BUFFER_KIB)?;
        // The kernel writes device numbers with 20 bits for the minor one.
        let filter = format!(
            "s_dev == {}",
            u64::from(device.major) << 20 | u64::from(device.minor)
        );
        for event in heard.events() {
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

    /// Appends all that was written since the last call.
    pub fn read(&mut self, text: &mut Vec<u8>) -> Result<(), LiveError> {
        loop {
            // The kernel hands out at most two pages at a time.
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

pub(super) fn heard() -> Heard {
    tracefs::root().map_or(Heard::Presence, |root| heard_at(root.path()))
}

/// A kernel without a tracepoint of a decision is asked for its pages alone. Those it has to tell with their folios' orders:
/// of a larger folio there is one event.
fn heard_at(root: &Path) -> Heard {
    let events = root.join("events");
    let has = |event: &&str| events.join(event).is_dir();
    let tells_order = |event: &&str| {
        std::fs::read_to_string(events.join(event).join("format"))
            .is_ok_and(|format| format.contains("order"))
    };
    if !PAGES.iter().all(|event| has(event) && tells_order(event)) {
        Heard::Presence
    } else if DECISIONS.iter().all(has) {
        Heard::All
    } else {
        Heard::Pages
    }
}

fn refused(error: Failure) -> LiveError {
    let place = match error.why.as_str() {
        "" => error.place,
        why => format!("{}: {why}", error.place),
    };
    LiveError::Cannot(format!("{} ({place}); {RETRY}", error.what))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a tracepoint of a decision there are the pages; without one of those, or without orders, what is there.
    #[test]
    fn a_kernel_is_asked_for_the_events_it_has() {
        let root = tempfile::tempdir().expect("a scratch folder");
        let make = |event: &str, format: &str| {
            let folder = root.path().join("events").join(event);
            std::fs::create_dir_all(&folder)
                .and_then(|()| std::fs::write(folder.join("format"), format))
                .expect("made");
        };
        for event in PAGES {
            assert_eq!(heard_at(root.path()), Heard::Presence);
            make(event, "field:unsigned long pfn;");
        }
        for event in PAGES {
            assert_eq!(
                heard_at(root.path()),
                Heard::Presence,
                "an order is missing"
            );
            make(event, "field:unsigned char order;");
        }
        for event in DECISIONS {
            assert_eq!(heard_at(root.path()), Heard::Pages);
            make(event, "");
        }
        assert_eq!(heard_at(root.path()), Heard::All);
    }
}
