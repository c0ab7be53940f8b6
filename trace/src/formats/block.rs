//! Converts events of the block layer to requests with completion times, for blkparse.
//!
//! ```text
//!   A remap   Q queue ──► (merged, split) ──► D issue ──► C complete
//!                │                              │            │
//!                └── action=Q starts here       └── or D     └── ends the requests that it covers, by device and sector
//! ```
//!
//! Each request becomes one record, which starts either at the request's Q event (queued in the block layer) or at its D event (issued to
//! the device). A completion may cover several requests (if they were merged) or a part of one request (if it was split). If a mapped
//! device and the device below it were both traced, the request of the lower device is skipped. Requests without bytes, failed requests and
//! duplicates are left out.

use super::super::error::{Fault, TraceError};
use super::super::format::Pairs;
use super::super::order::HeldRecords;
use super::super::{FileInfo, Flags, Header, Item, Lacks, LeftOut, Level, Op, Record};
use super::scan::{self, SECTOR};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::Path;

/// Maximum number of remaps whose request has not arrived yet: it follows at once, on the same CPU.
const MAX_REMAPS: usize = 64;
/// Number of earlier requests checked for an overlap with a completion.
const LOOK_BACK: usize = 8;

/// The major and minor number of a device.
pub type Device = (u32, u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Q.
    Queue,
    /// D.
    Issue,
    /// C, with whether it failed.
    Complete {
        failed: bool,
    },
    /// R: the request goes back to the queue and is issued again.
    Requeue,
    /// A: a request of another device is mapped to this one.
    Remap {
        from: Device,
    },
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    Read,
    Write,
    Discard,
    Command,
    /// No bytes: a flush.
    Nothing,
}

/// Parses the letters (RWBS) by which the kernel describes a request. F is a flush before it; then R, W, D or N; then F (FUA), A
/// (readahead), S (synchronous), M (metadata). Returns the kind, and whether the request is readahead.
pub fn rwbs(text: &[u8]) -> (BlockKind, bool) {
    let ahead = text.contains(&b'A');
    let after_flush = text.strip_prefix(b"F").unwrap_or(text);
    let kind = match after_flush.first() {
        Some(b'R') => BlockKind::Read,
        Some(b'W') => BlockKind::Write,
        Some(b'D') => BlockKind::Discard,
        _ => BlockKind::Nothing,
    };
    (kind, ahead)
}

#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub at_ns: u64,
    pub device: Device,
    pub action: Action,
    pub kind: BlockKind,
    pub ahead: bool,
    pub sector: u64,
    pub bytes: u64,
    pub pid: u32,
}

impl Event {
    /// Returns the event unless its end offset overflows. Must be called before the events are sorted, because the error message gives
    /// the position of the event in the trace.
    pub fn checked(self) -> Result<Event, Fault> {
        let end = self
            .sector
            .checked_mul(SECTOR)
            .and_then(|first| first.checked_add(self.bytes));
        if end.is_some() { Ok(self) } else { Err(FAR) }
    }
}

/// The action at which a request starts: queued or issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestAction {
    /// Q.
    Queue,
    /// D.
    Issue,
}

pub const KEYS: &[(&str, &str)] = &[(
    "action",
    "Q: requests as queued (the default if there are any); D: requests as issued to the device",
)];

/// Evaluates the key `action`, which sets the action at which requests start. If the key is not given, requests start at Q if the first
/// events contain a Q, otherwise at D.
pub fn wanted(
    pairs: &Pairs,
    format: &str,
    path: &Path,
    first: &[Action],
) -> Result<RequestAction, TraceError> {
    let asked = scan::choice(pairs, "action", &["Q", "D"], path)?;
    match asked {
        Some(0) => Ok(RequestAction::Queue),
        Some(_) => Ok(RequestAction::Issue),
        None if first.contains(&Action::Queue) => Ok(RequestAction::Queue),
        None if first.contains(&Action::Issue) => Ok(RequestAction::Issue),
        None => {
            let what = "no queued (Q) or issued (D) requests at the beginning";
            Err(TraceError::whole(
                path,
                what,
                format!("choose --format {format}:action=Q or {format}:action=D"),
            ))
        }
    }
}

pub fn header(format: &str, wanted: RequestAction) -> Header {
    let note = match wanted {
        RequestAction::Queue => {
            "requests start when they are queued (Q) and end at completion, so the time includes queueing"
        }
        RequestAction::Issue => {
            "requests start when they are issued to the device (D), after merging and splitting, and end at completion"
        }
    };
    let lacks = Lacks {
        opens: true,
        threads: wanted == RequestAction::Issue,
        ..Lacks::default()
    };
    let units = ["ns", "512 B sectors"];
    Header::of(format, units, lacks, Level::BelowCache, &[note])
}

/// Device number, whether it writes, first byte, ticket.
type Key = (u32, bool, u64, u64);

struct Open {
    /// The byte after its last one.
    end: u64,
    left: u64,
}

/// Converts events of the block layer to records; events and records are sorted by time.
pub struct Requests {
    wanted: RequestAction,
    devices: HashMap<Device, u32>,
    held: HeldRecords<Record>,
    open: BTreeMap<Key, Open>,
    remaps: VecDeque<(Device, u64)>,
    left_out: LeftOut,
}

const FAR: Fault = (
    "a sector beyond 2^63 bytes",
    "the trace is damaged; cut it before this entry",
);

impl Requests {
    pub fn new(wanted: RequestAction, left_out: LeftOut) -> Requests {
        Requests {
            wanted,
            devices: HashMap::new(),
            held: HeldRecords::default(),
            open: BTreeMap::new(),
            remaps: VecDeque::new(),
            left_out,
        }
    }

    /// Processes the next event; finished requests go to `out`.
    pub fn event(&mut self, event: &Event, out: &mut VecDeque<Item>) -> Result<(), Fault> {
        match (event.action, self.wanted) {
            (Action::Queue, RequestAction::Queue) | (Action::Issue, RequestAction::Issue) => {
                self.request(event, out)?
            }
            (Action::Complete { failed }, _) => self.complete(event, failed)?,
            (Action::Requeue, RequestAction::Issue) => self.requeue(event),
            (Action::Remap { from }, RequestAction::Queue) if self.devices.contains_key(&from) => {
                self.remaps.push_back((event.device, event.sector));
                if self.remaps.len() > MAX_REMAPS {
                    self.remaps.pop_front();
                }
            }
            _ => {}
        }
        self.leave(false, out);
        Ok(())
    }

    /// Must be called after the last event: emits incomplete requests without an end time.
    pub fn end(&mut self, out: &mut VecDeque<Item>) {
        self.leave(true, out);
    }

    fn leave(&mut self, all: bool, out: &mut VecDeque<Item>) {
        while let Some((record, ticket)) = self.held.next(all) {
            if let Some(ticket) = ticket {
                self.open
                    .remove(&(record.file, record.op == Op::Write, record.offset, ticket));
            }
            out.push_back(Item::Record(record));
        }
    }

    fn request(&mut self, event: &Event, out: &mut VecDeque<Item>) -> Result<(), Fault> {
        let op = match event.kind {
            BlockKind::Read if event.bytes > 0 => Op::Read,
            BlockKind::Write if event.bytes > 0 => Op::Write,
            BlockKind::Discard => return self.pass("discards"),
            BlockKind::Command => return self.pass("passthrough commands"),
            _ => return self.pass("requests without bytes (flushes)"),
        };
        let offset = event.sector.checked_mul(SECTOR).ok_or(FAR)?;
        let end = offset.checked_add(event.bytes).ok_or(FAR)?;
        if let Some(at) = self
            .remaps
            .iter()
            .position(|remap| *remap == (event.device, event.sector))
        {
            self.remaps.remove(at);
            return self
                .pass("requests of a mapped device, which are also traced on the device below it");
        }
        let next = u32::try_from(self.devices.len()).map_err(|_| FAR)?;
        let device = *self.devices.entry(event.device).or_insert_with(|| {
            let (major, minor) = event.device;
            out.push_back(Item::File(FileInfo::new(format!("{major},{minor}"), None)));
            next
        });
        let record = Record {
            op,
            thread: if self.wanted == RequestAction::Queue {
                event.pid
            } else {
                0
            },
            start_ns: Some(event.at_ns),
            flags: if event.ahead {
                Flags::AHEAD
            } else {
                Flags::default()
            },
            ..Record::read(device, offset, event.bytes)
        };
        let ticket = self.held.open(record);
        self.open.insert(
            (device, op == Op::Write, offset, ticket),
            Open {
                end,
                left: event.bytes,
            },
        );
        Ok(())
    }

    fn pass(&self, what: &'static str) -> Result<(), Fault> {
        self.left_out.count(what);
        Ok(())
    }

    /// Each completed byte counts for one request only: if two requests cover the same sectors, for the earlier one.
    fn complete(&mut self, event: &Event, failed: bool) -> Result<(), Fault> {
        let Some(&device) = self.devices.get(&event.device) else {
            return Ok(());
        };
        let write = event.kind == BlockKind::Write;
        let first = event.sector.checked_mul(SECTOR).ok_or(FAR)?;
        let last = first.checked_add(event.bytes).ok_or(FAR)?;
        if last == first {
            return Ok(());
        }
        let low = (device, write, first, 0);
        let before = self
            .open
            .range((device, write, 0, 0)..low)
            .rev()
            .take(LOOK_BACK);
        let reach = before
            .filter(|(_, open)| open.end > first)
            .map(|(key, _)| *key)
            .last();
        let mut at = first;
        let mut ended = Vec::new();
        for (key, open) in self
            .open
            .range_mut(reach.unwrap_or(low)..(device, write, last, 0))
        {
            let (from, to) = (key.2.max(at), open.end.min(last));
            if from >= to {
                continue;
            }
            at = to;
            open.left = open.left.saturating_sub(to - from);
            if open.left == 0 || failed {
                ended.push(*key);
            }
            if at == last {
                break;
            }
        }
        for key in ended {
            self.open.remove(&key);
            if failed {
                self.held.cancel(key.3);
                self.left_out.count("requests that failed");
            } else {
                self.held
                    .done(key.3, |record| record.end_ns = Some(event.at_ns));
            }
        }
        Ok(())
    }

    fn requeue(&mut self, event: &Event) {
        let Some(&device) = self.devices.get(&event.device) else {
            return;
        };
        let Some(offset) = event.sector.checked_mul(SECTOR) else {
            return;
        };
        let (device, write) = (device, event.kind == BlockKind::Write);
        let mut same = self
            .open
            .range((device, write, offset, 0)..=(device, write, offset, u64::MAX));
        if let Some((&key, _)) = same.next() {
            self.open.remove(&key);
            self.held.cancel(key.3);
            self.left_out
                .count("requests that were requeued, to be issued again");
        }
    }
}
