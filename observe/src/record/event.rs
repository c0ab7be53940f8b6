//! The recorded tracepoints, and the conversion of their binary records to an [`Event`].
//!
//! `foreread_trace::follow` then finds out which file and position each event refers to.

use super::names::BlockDevices;
use crate::tracefs::{EventFormat, Field, Instance};
use foreread_os::failure::Failure;
use foreread_os::host::Host;
use foreread_trace::follow::call::{Call, ENTRIES, Event, FileKey, What};

/// `IOCB_WRITE`, as in the format of `iomap_dio_rw_begin`.
const IOCB_WRITE: u64 = 1 << 18;

/// The events besides system calls, and the kind of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventKind {
    Enter(Call),
    Exit(Call),
    Pages,
    Mapped,
    Fault,
    Folio,
    Address,
    Direct,
    Born,
    Gone,
    Exec,
}

/// Each event with its fields, in the order of [`What`].
const OTHERS: &[(&str, EventKind, &str)] = &[
    (
        "filemap/mm_filemap_get_pages",
        EventKind::Pages,
        "s_dev i_ino index last_index",
    ),
    (
        "filemap/mm_filemap_map_pages",
        EventKind::Mapped,
        "s_dev i_ino index last_index",
    ),
    (
        "filemap/mm_filemap_fault",
        EventKind::Fault,
        "s_dev i_ino index",
    ),
    (
        "filemap/mm_filemap_add_to_page_cache",
        EventKind::Folio,
        "s_dev i_ino index order",
    ),
    ("exceptions/page_fault_user", EventKind::Address, "address"),
    (
        "exceptions/page_fault_kernel",
        EventKind::Address,
        "address",
    ),
    (
        "iomap/iomap_dio_rw_begin",
        EventKind::Direct,
        "dev ino pos count isize ki_flags",
    ),
    ("task/task_newtask", EventKind::Born, "pid clone_flags"),
    ("sched/sched_process_exit", EventKind::Gone, "pid"),
    ("sched/sched_process_exec", EventKind::Exec, "old_pid"),
];

/// A folio of a single page says nothing that its page does not, and there may be one for every 4 KiB that is read. For block
/// devices, the device of a folio has the major number 0, and the inode is the number of the block device, whose major number is
/// not 0.
const FOLIOS: &str = "order > 0 || (s_dev < 1048576 && i_ino >= 1048576)";
/// 2 MiB, the largest folio of the page cache on x86-64, has order 9; on arm64 with pages of 64 KiB it has 13.
const MAX_ORDER: u64 = 13;

/// The events that record io_uring workers, and the filter for threads with their names.
const OF_WORKERS: [&str; 2] = ["filemap/mm_filemap_get_pages", "iomap/iomap_dio_rw_begin"];
const ARE_WORKERS: &str = "comm ~ \"iou-*\"";

/// Enables the events of io_uring workers of all programs, in a separate instance.
pub fn enable_workers(instance: &Instance) -> Result<(), Failure> {
    OF_WORKERS
        .iter()
        .try_for_each(|event| instance.enable(event, Some(ARE_WORKERS)).map(drop))
}

/// The tracepoints without which reads cannot be interpreted.
pub const NEEDED: &[&str] = &[
    "syscalls/sys_enter_read",
    "syscalls/sys_exit_read",
    "syscalls/sys_exit_openat",
    "filemap/mm_filemap_get_pages",
    "task/task_newtask",
];

pub(super) struct EventLayout {
    kind: EventKind,
    fields: Vec<Field>,
}

/// Decodes tracepoint events from their binary records.
#[derive(Default)]
pub struct Decoder {
    pub(super) known: Vec<Option<EventLayout>>,
    /// The event for a program start, and its field with the program's path.
    exec: Option<(u16, Field)>,
    /// Events that this kernel does not have.
    pub missing: Vec<String>,
    pub(super) blocks: BlockDevices,
}

impl Decoder {
    /// Enables all tracepoints that are recorded.
    pub fn enable(instance: &Instance) -> Result<Decoder, Failure> {
        let mut decoder = Decoder {
            blocks: BlockDevices::of(&Host::here()),
            ..Decoder::default()
        };
        for entry in ENTRIES {
            for (side, kind, wanted, filter) in [
                ("enter", EventKind::Enter(entry.call), true, entry.filter),
                ("exit", EventKind::Exit(entry.call), entry.exit, None),
            ] {
                let name = format!("syscalls/sys_{side}_{}", entry.name);
                if wanted && let Some(format) = instance.enable(&name, filter)? {
                    let mut fields = format.fields.clone();
                    fields.retain(|field| field.name != "__syscall_nr");
                    decoder.know(&format, kind, fields);
                } else if wanted {
                    decoder.missing.push(name);
                }
            }
        }
        for (name, kind, fields) in OTHERS {
            let format = instance.format(name)?;
            let known = format.as_ref().and_then(|format| format.named(fields));
            let Some((format, fields)) = format.zip(known) else {
                decoder.missing.push((*name).to_string());
                continue;
            };
            instance.enable(name, (*kind == EventKind::Folio).then_some(FOLIOS))?;
            if *kind == EventKind::Exec {
                let name = format.field("filename");
                decoder.exec = name.map(|field| (format.id, field.clone()));
            }
            decoder.know(&format, *kind, fields);
        }
        Ok(decoder)
    }

    fn know(&mut self, format: &EventFormat, kind: EventKind, fields: Vec<Field>) {
        let id = usize::from(format.id);
        if self.known.len() <= id {
            self.known.resize_with(id + 1, || None);
        }
        self.known[id] = Some(EventLayout { kind, fields });
    }

    /// Decodes the event in `bytes`, or returns `None` if its tracepoint is not one of the recorded tracepoints.
    pub fn event(&self, at_ns: u64, bytes: &[u8]) -> Option<Event> {
        // All events begin like this, as their formats say: the number, and at offset 4 the thread.
        let id = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
        let thread = u32::from_ne_bytes(bytes.get(4..8)?.try_into().ok()?);
        let known = self.known.get(usize::from(id))?.as_ref()?;
        let mut values = [0; 6];
        for (value, field) in values.iter_mut().zip(&known.fields) {
            *value = field.value(bytes)?;
        }
        let what = match what(known.kind, values)? {
            What::Folio(place, first, pages) if self.blocks.has(place) => {
                What::Metadata(place, first, pages)
            }
            What::Folio(_, _, 1) => return None,
            other => other,
        };
        Some(Event {
            at_ns,
            thread,
            what,
        })
    }

    /// Returns the path of the program if this is the event of a program start (exec). The path is a text within the event; a field of the
    /// event contains the text's offset (lower half) and its length (upper half).
    pub fn ran<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let (id, field) = self.exec.as_ref()?;
        if bytes.get(..2)? != id.to_ne_bytes() {
            return None;
        }
        let place = field.value(bytes)?;
        let (at, len) = ((place & 0xffff) as usize, (place >> 16 & 0xffff) as usize);
        bytes.get(at..at + len)?.split(|b| *b == 0).next()
    }
}

fn what(kind: EventKind, values: [u64; 6]) -> Option<What> {
    let [a, b, c, d, e, f] = values;
    let place = FileKey {
        dev: a as u32,
        ino: b,
    };
    Some(match kind {
        EventKind::Enter(call) => What::Enter(call, values),
        EventKind::Exit(call) => What::Exit(call, a as i64),
        EventKind::Pages => What::Pages(place, c, d),
        EventKind::Mapped => What::Mapped(place, c, d),
        EventKind::Fault => What::Fault(place, c),
        EventKind::Folio if d > MAX_ORDER => return None,
        EventKind::Folio => What::Folio(place, c, 1 << d),
        EventKind::Address => What::Address(a),
        EventKind::Direct if f & IOCB_WRITE != 0 => return None,
        EventKind::Direct => What::Direct(place, c, d, e),
        EventKind::Born => What::Born(a as u32, b),
        EventKind::Gone => What::Gone,
        EventKind::Exec => What::Exec(a as u32),
    })
}
