//! The tracepoints that a run uses: they show which pages of which files the command and its children request from the page cache.
//!
//! ```text
//!   all      get_pages (a read), fault, map_pages (touches of a mapping), and misses     while there may be something to gain
//!   misses   add_to_page_cache                                              no recent miss: wakes at the first miss
//!   nothing                                                                 nothing to gain: for a while there are no events and no cost
//! ```
//! The tracepoints of a run fire far less often than those of a recording. No system call is traced, so other programs are not slowed down.
//! If all data is cached, tracing slows down only the command's reads. A lost event costs only one readahead decision.
//!
//! The kernel filters out events of storage on which readahead can gain nothing.
//!
//! Events of different CPUs are not sorted by time; the order within each CPU is enough for readahead.

use foreread_observe::record::follow_family;
use foreread_observe::touch::{Touch, TouchKind};
use foreread_observe::tracefs::ring::{Page, empty_page, read_pages};
use foreread_observe::tracefs::{Field, Instance, Root};
use foreread_os::failure::Failure;
use foreread_os::poll::readable;
use foreread_trace::follow::call::FileKey;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Buffer for the unprocessed events of a CPU: 20,000 events.
const BUFFER_KB: &str = "1024";

/// Folios have fewer pages than 2 to the power of this.
const MAX_ORDER: u64 = 32;

const EVENTS: [(&str, TouchKind, &str); 4] = [
    (
        "filemap/mm_filemap_get_pages",
        TouchKind::Read,
        "s_dev i_ino index last_index",
    ),
    (
        "filemap/mm_filemap_map_pages",
        TouchKind::Mapped,
        "s_dev i_ino index last_index",
    ),
    (
        "filemap/mm_filemap_fault",
        TouchKind::Fault,
        "s_dev i_ino index index",
    ),
    (
        "filemap/mm_filemap_add_to_page_cache",
        TouchKind::Miss,
        "s_dev i_ino index order",
    ),
];

/// The tracepoints without which a run is not possible.
pub const NEEDED: [&str; 2] = [EVENTS[0].0, EVENTS[3].0];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    All,
    /// Trace only whether anything is read from storage.
    Misses,
    Nothing,
}

struct TapEvent {
    name: &'static str,
    id: u16,
    kind: TouchKind,
    fields: [Field; 4],
}

pub struct Tap {
    /// Dropped before the instance: an instance with an open file cannot be removed.
    rings: Vec<File>,
    instance: Instance,
    known: Vec<TapEvent>,
    level: Option<Level>,
    passed_over: Vec<u32>,
    page: Vec<u8>,
    pub events: u64,
    pub gaps: u64,
}

impl Tap {
    /// Creates a tap, which will observe reads through tracepoints; it observes nothing before [`Tap::prepare`] is called.
    pub fn create(root: &Root) -> Result<Tap, Failure> {
        let instance = Instance::create_without_clock(root)?;
        let (rings, known, page) = (Vec::new(), Vec::new(), empty_page());
        Ok(Tap {
            rings,
            instance,
            known,
            level: None,
            passed_over: Vec::new(),
            page,
            events: 0,
            gaps: 0,
        })
    }

    /// Prepares the tracing instance and traces the running command `pid`, but stops early if `is_over` reports that the command has ended.
    /// This function is slow: it waits several times for the kernel to synchronise all CPUs, about 20 ms each time.
    pub fn prepare(&mut self, pid: u32, is_over: impl Fn() -> bool) -> Result<(), Failure> {
        let instance = &self.instance;
        instance.set_clock()?;
        // Do this before any event is on: if no thread is followed, events of all threads are recorded.
        if is_over() || follow_family(instance, pid)?.is_empty() {
            return Ok(());
        }
        instance.set("tracing_on", "1")?;
        instance.set("buffer_size_kb", BUFFER_KB)?;
        // A reader is woken by the first event.
        instance.set("buffer_percent", "0")?;
        let mut known = Vec::new();
        for (name, kind, fields) in EVENTS {
            let Some(format) = instance.format(name)? else {
                continue;
            };
            if let Some(Ok(fields)) = format.named(fields).map(TryInto::try_into) {
                known.push(TapEvent {
                    name,
                    id: format.id,
                    kind,
                    fields,
                });
            }
        }
        self.rings = instance.raw()?;
        self.known = known;
        self.set_level(Level::Misses)
    }

    /// Stops observing without waiting for the kernel.
    pub fn leave(mut self) {
        let _ = self.set_level(Level::Nothing);
        let Tap {
            rings, instance, ..
        } = self;
        drop(rings);
        instance.leave();
    }

    pub fn level(&self) -> Option<Level> {
        self.level
    }

    pub fn pass_over(&mut self, mut devices: Vec<u32>) -> Result<(), Failure> {
        devices.sort_unstable();
        // With each filter the kernel waits for all CPUs.
        if self.passed_over == devices {
            return Ok(());
        }
        let terms: Vec<String> = devices
            .iter()
            .map(|dev| format!("s_dev != {dev}"))
            .collect();
        // The filter "0" removes the filter.
        let filter = if terms.is_empty() {
            "0".to_string()
        } else {
            terms.join(" && ")
        };
        self.passed_over = devices;
        self.known.iter().try_for_each(|known| {
            self.instance
                .set(&format!("events/{}/filter", known.name), &filter)
        })
    }

    pub fn set_level(&mut self, level: Level) -> Result<(), Failure> {
        let switch = |event: &str, on: bool| {
            self.instance.set(
                &format!("events/{event}/enable"),
                if on { "1" } else { "0" },
            )
        };
        let takes = |level, kind| match level {
            Some(Level::All) => true,
            Some(Level::Misses) => kind == TouchKind::Miss,
            Some(Level::Nothing) | None => false,
        };
        for TapEvent { kind, name, .. } in &self.known {
            if takes(self.level, *kind) != takes(Some(level), *kind) {
                switch(name, takes(Some(level), *kind))?;
            }
        }
        self.level = Some(level);
        Ok(())
    }

    /// Waits until an event arrives, a descriptor in `others` is readable, or `wait_ns` nanoseconds have passed. If `is_deaf` is true,
    /// events do not end the wait.
    pub fn wait(&self, others: &[&OwnedFd], wait_ns: u64, is_deaf: bool) {
        let rings = if is_deaf { &[][..] } else { &self.rings[..] };
        let others = others.iter().map(|other| other.as_fd());
        let all: Vec<BorrowedFd<'_>> = rings.iter().map(AsFd::as_fd).chain(others).collect();
        readable(&all, Duration::from_nanos(wait_ns));
    }

    pub fn take(&mut self, touches: &mut Vec<Touch>) -> std::io::Result<()> {
        let Tap {
            rings,
            page,
            known,
            events,
            gaps,
            ..
        } = self;
        for ring in rings.iter() {
            read_pages(ring, page, |page, len| {
                let page = Page::new(&page[..len]);
                *gaps += page.iter().filter(|page| page.lost).count() as u64;
                for (at_ns, bytes) in page.into_iter().flatten() {
                    *events += 1;
                    touches.extend(touch(known, at_ns, bytes));
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// Decodes the event in `bytes`; `None` if it is of another kind.
fn touch(known: &[TapEvent], at_ns: u64, bytes: &[u8]) -> Option<Touch> {
    // All events begin like this, as their formats say: the number, and at offset 4 the thread.
    let id = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
    let thread = u32::from_ne_bytes(bytes.get(4..8)?.try_into().ok()?);
    let TapEvent { kind, fields, .. } = known.iter().find(|known| known.id == id)?;
    let [dev, ino, first, last] = fields;
    let file = FileKey {
        dev: dev.value(bytes)? as u32,
        ino: ino.value(bytes)?,
    };
    let (first, last) = (first.value(bytes)?, last.value(bytes)?);
    // A miss has the order of its folio instead of the last page.
    let last = if *kind == TouchKind::Miss {
        first.saturating_add((1 << last.min(MAX_ORDER)) - 1)
    } else {
        last
    };
    Some(Touch {
        at_ns,
        thread,
        file,
        pages: (first, last),
        kind: *kind,
    })
}
