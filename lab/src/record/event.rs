//! The tracepoints that are recorded, and how the bytes of each become an [`Event`].
//!
//! What an event means for a file or a descriptor is `foreread_trace::follow`'s to say.

use crate::tracefs::format::{EventFormat, Field};
use crate::tracefs::{Instance, TracefsError};
use foreread_trace::follow::call::{Call, ENTRIES};
use foreread_trace::follow::event::{Event, Place, What};

/// `IOCB_WRITE`, as the format of `iomap_dio_rw_begin` has it.
const IOCB_WRITE: u64 = 1 << 18;

/// The events beside the calls, and what each becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
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
    Ahead,
    AheadByPage,
}

/// Event, fields in the order of [`What`].
const OTHERS: &[(&str, Kind, &[&str])] = &[
    ("filemap/mm_filemap_get_pages", Kind::Pages, &["s_dev", "i_ino", "index", "last_index"]),
    ("filemap/mm_filemap_map_pages", Kind::Mapped, &["s_dev", "i_ino", "index", "last_index"]),
    ("filemap/mm_filemap_fault", Kind::Fault, &["s_dev", "i_ino", "index"]),
    ("filemap/mm_filemap_add_to_page_cache", Kind::Folio, &["s_dev", "i_ino", "index", "order"]),
    ("exceptions/page_fault_user", Kind::Address, &["address"]),
    ("exceptions/page_fault_kernel", Kind::Address, &["address"]),
    ("iomap/iomap_dio_rw_begin", Kind::Direct, &["dev", "ino", "pos", "count", "isize", "ki_flags"]),
    ("task/task_newtask", Kind::Born, &["pid", "clone_flags"]),
    ("sched/sched_process_exit", Kind::Gone, &["pid"]),
    ("sched/sched_process_exec", Kind::Exec, &["old_pid"]),
];

/// A folio of one page says nothing that its page does not; there may be one for every 4 KiB that is read.
const LARGE_FOLIOS: &str = "order > 0";
/// 2 MiB, the largest folio of the page cache on x86-64, has order 9; on arm64 with pages of 64 KiB it has 13.
const MAX_ORDER: u64 = 13;

/// The kernel's own decisions, which are recorded on demand.
const DECISIONS: &[(&str, Kind, &[&str])] = &[
    ("readahead/page_cache_ra_order", Kind::Ahead, &["s_dev", "i_ino", "index", "size"]),
    ("readahead/page_cache_ra_unbounded", Kind::AheadByPage, &["s_dev", "i_ino", "index", "nr_to_read"]),
];

/// Without these nothing can be said of a read.
pub const NEEDED: &[&str] = &[
    "syscalls/sys_enter_read",
    "syscalls/sys_exit_read",
    "syscalls/sys_exit_openat",
    "filemap/mm_filemap_get_pages",
    "task/task_newtask",
];

/// How to read an event.
pub(super) struct Known {
    kind: Kind,
    fields: Vec<Field>,
}

/// Reads events out of their bytes.
#[derive(Default)]
pub struct Decoder {
    /// By the number of the event.
    pub(super) known: Vec<Option<Known>>,
    /// The event of a program that is begun, and its field of the program's path.
    exec: Option<(u16, Field)>,
    /// Events that this kernel does not have.
    pub missing: Vec<String>,
}

impl Decoder {
    /// Switches on all that is recorded; `decisions` are the kernel's own.
    ///
    /// # Errors
    /// The kernel refuses an event.
    pub fn enable(instance: &Instance, decisions: bool) -> Result<Decoder, TracefsError> {
        let mut decoder = Decoder::default();
        for entry in ENTRIES {
            for (side, kind, wanted, filter) in [
                ("enter", Kind::Enter(entry.call), true, entry.filter),
                ("exit", Kind::Exit(entry.call), entry.exit, None),
            ] {
                let name = format!("syscalls/sys_{side}_{}", entry.name);
                if wanted && let Some(format) = instance.enable(&name, filter)? {
                    let fields = format.fields.iter().filter(|field| field.name != "__syscall_nr").cloned().collect();
                    decoder.know(&format, kind, fields);
                } else if wanted {
                    decoder.missing.push(name);
                }
            }
        }
        let more = if decisions { DECISIONS } else { &[] };
        for (name, kind, fields) in OTHERS.iter().chain(more) {
            let format = instance.format(name)?;
            let known = format.as_ref().and_then(|format| {
                fields.iter().map(|field| format.field(field).cloned()).collect::<Option<Vec<Field>>>()
            });
            let Some((format, fields)) = format.zip(known) else {
                decoder.missing.push((*name).to_string());
                continue;
            };
            instance.enable(name, (*kind == Kind::Folio).then_some(LARGE_FOLIOS))?;
            if *kind == Kind::Exec {
                decoder.exec = format.field("filename").map(|field| (format.id, field.clone()));
            }
            decoder.know(&format, *kind, fields);
        }
        Ok(decoder)
    }

    fn know(&mut self, format: &EventFormat, kind: Kind, fields: Vec<Field>) {
        let id = usize::from(format.id);
        if self.known.len() <= id {
            self.known.resize_with(id + 1, || None);
        }
        self.known[id] = Some(Known { kind, fields });
    }

    /// The event in `bytes`; nothing where it is none of ours.
    #[must_use]
    pub fn event(&self, at_ns: u64, bytes: &[u8]) -> Option<Event> {
        // Common to all events, as the format of each has it: the number, and at 4 the thread.
        let id = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
        let thread = u32::from_ne_bytes(bytes.get(4..8)?.try_into().ok()?);
        let known = self.known.get(usize::from(id))?.as_ref()?;
        let mut values = [0; 6];
        for (value, field) in values.iter_mut().zip(&known.fields) {
            *value = field.value(bytes)?;
        }
        what(known.kind, values).map(|what| Event { at_ns, thread, what })
    }

    /// The path of the program that is begun, if this is such an event. The field is a text somewhere in the event: the
    /// lower half says where, the upper how long.
    #[must_use]
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

fn what(kind: Kind, values: [u64; 6]) -> Option<What> {
    let [a, b, c, d, e, f] = values;
    let place = Place { dev: a as u32, ino: b };
    Some(match kind {
        Kind::Enter(call) => What::Enter(call, values),
        Kind::Exit(call) => What::Exit(call, a as i64),
        Kind::Pages => What::Pages(place, c, d),
        Kind::Mapped => What::Mapped(place, c, d),
        Kind::Fault => What::Fault(place, c),
        Kind::Folio if d > MAX_ORDER => return None,
        Kind::Folio => What::Folio(place, c, 1 << d),
        Kind::Address => What::Address(a),
        Kind::Direct if f & IOCB_WRITE != 0 => return None,
        Kind::Direct => What::Direct(place, c, d, e),
        Kind::Born => What::Born(a as u32, b),
        Kind::Gone => What::Gone,
        Kind::Exec => What::Exec(a as u32),
        Kind::Ahead => What::Ahead(place, c, d),
        Kind::AheadByPage => What::AheadByPage(place, c, d),
    })
}
