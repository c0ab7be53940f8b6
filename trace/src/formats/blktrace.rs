//! `blktrace`: the binary files that blktrace writes, one for each CPU.
//!
//! ```text
//!   0 magic|version u32 · 4 sequence u32 · 8 ns u64 · 16 sector u64 · 24 bytes u32 · 28 action u32
//!   32 pid u32 · 36 device u32 (major << 20 | minor) · 40 cpu u32 · 44 error u16 · 46 payload length u16 · payload
//! ```
//!
//! The byte order is that of the traced host, which the magic number shows; the payload of a remap event is always big-endian.
//! The files are merged by time, and the first event is at time 0. Versions other than 7 are refused (records may be
//! longer); process names and messages among the events are ignored.

use super::super::error::{Fault, TraceError};
use super::super::format::{Fit, Format, Pairs};
use super::super::input::Input;
use super::super::order::{MAX_DISORDER, Sorter, TOO_LATE, TooLate};
use super::super::{Import, Item, LeftOut};
use super::block::{self, Action, BlockKind, Event, Requests};
use super::step::{self, Step};
use std::collections::{BTreeMap, VecDeque};

pub static FORMAT: Format = Format {
    name: "blktrace",
    summary: "binary files of blktrace, one for each CPU; ns, 512 B sectors, either byte order",
    keys: block::KEYS,
    detect,
    import,
    export: None,
};

/// Bytes of a record before its payload.
const RECORD: usize = 48;
const VERSION: u8 = 7;
/// `eat` in the upper bytes of the first word.
const MAGIC: [u8; 3] = [0x65, 0x61, 0x74];
/// A remap's payload: device from, device to, sector from, all big-endian.
const REMAP_PAYLOAD: usize = 16;
/// The bits of an action above the low sixteen.
mod category {
    pub const WRITE: u32 = 1 << 1;
    pub const COMMAND: u32 = 1 << 9;
    pub const NOTIFY: u32 = 1 << 10;
    pub const AHEAD: u32 = 1 << 11;
    pub const DISCARD: u32 = 1 << 13;
}

/// Whether the first word of a record is big-endian, and the version.
fn order_of(word: &[u8]) -> Option<(bool, u8)> {
    match *word {
        [version, t, a, e, ..] if [e, a, t] == MAGIC => Some((false, version)),
        [e, a, t, version, ..] if [e, a, t] == MAGIC => Some((true, version)),
        _ => None,
    }
}

fn detect(head: &[u8]) -> Fit {
    // A version below 32 is not a letter, so text that starts with "eat" does not match.
    match order_of(head) {
        Some((_, version)) if version < 32 => Fit::Sure,
        _ => Fit::No,
    }
}

fn import(inputs: Vec<Input>, pairs: Pairs) -> Result<Import, TraceError> {
    let path = inputs
        .first()
        .map_or_else(|| "-".into(), |input| input.path().to_path_buf());
    let (mut sources, mut first) = (Vec::new(), Vec::new());
    for mut input in inputs {
        let head = input.head()?;
        let big = order_of(head).is_some_and(|(big, _)| big);
        actions(head, big, &mut first);
        sources.push(Source {
            input,
            big,
            payload: Vec::new(),
        });
    }
    let wanted = block::wanted(&pairs, FORMAT.name, &path, &first)?;
    let left_out = LeftOut::default();
    let requests = Requests::new(wanted, left_out.clone());
    let merge = Merge {
        sources,
        next: BTreeMap::new(),
        begun: false,
        base_ns: None,
        sorter: Sorter::new(MAX_DISORDER),
        requests,
    };
    let header = block::header(FORMAT.name, wanted);
    Ok(Import::new(header, step::items(merge), left_out))
}

/// The actions of the complete records at the start of a file.
fn actions(mut head: &[u8], big: bool, to: &mut Vec<Action>) {
    while let Some(record) = head.first_chunk::<RECORD>() {
        let fields = Fields { record, big };
        to.extend(fields.event(&[]).map(|event| event.action));
        head = head
            .get(RECORD + usize::from(fields.u16(46))..)
            .unwrap_or_default();
    }
}

struct Fields<'a> {
    record: &'a [u8; RECORD],
    big: bool,
}

impl Fields<'_> {
    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.record[at..at + N]);
        if self.big {
            bytes.reverse();
        }
        bytes
    }
    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.bytes(at))
    }
    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes(at))
    }
    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes(at))
    }

    /// The event; `None` if it is a message of the tracer.
    fn event(&self, payload: &[u8]) -> Option<Event> {
        let (action, bytes, device) = (self.u32(28), self.u32(24), self.u32(36));
        let category = action >> 16;
        let is = |bit| category & bit != 0;
        if is(category::NOTIFY) {
            return None;
        }
        let kind = match () {
            () if is(category::COMMAND) => BlockKind::Command,
            () if is(category::DISCARD) => BlockKind::Discard,
            () if is(category::WRITE) => BlockKind::Write,
            () if bytes > 0 => BlockKind::Read,
            () => BlockKind::Nothing,
        };
        let action = match action & 0xffff {
            1 => Action::Queue,
            6 => Action::Requeue,
            7 => Action::Issue,
            8 => Action::Complete {
                failed: self.u16(44) != 0,
            },
            15 => match payload.first_chunk::<REMAP_PAYLOAD>() {
                Some([a, b, c, d, ..]) => Action::Remap {
                    from: numbers(u32::from_be_bytes([*a, *b, *c, *d])),
                },
                None => Action::Other,
            },
            _ => Action::Other,
        };
        Some(Event {
            at_ns: self.u64(8),
            device: numbers(device),
            action,
            kind,
            ahead: is(category::AHEAD),
            sector: self.u64(16),
            bytes: u64::from(bytes),
            pid: self.u32(32),
        })
    }
}

fn numbers(device: u32) -> (u32, u32) {
    (device >> 20, device & 0xf_ffff)
}

struct Source {
    input: Input,
    big: bool,
    payload: Vec<u8>,
}

impl Source {
    fn next(&mut self) -> Result<Option<Event>, TraceError> {
        loop {
            let mut record = [0; RECORD];
            if !self.input.record(&mut record)? {
                return Ok(None);
            }
            let error = |what: String, remedy: &str| {
                Err(self.input.record_error(RECORD as u64, what, remedy))
            };
            match order_of(&record) {
                Some((big, VERSION)) if big == self.big => {}
                Some((big, version)) if big == self.big => {
                    let what = format!(
                        "a blktrace file of version {version}; only version {VERSION} can be read"
                    );
                    let remedy =
                        "convert it with blkparse on the recording host, and import that text";
                    return error(what, remedy);
                }
                _ => {
                    let what = "no magic number where a record should begin".to_string();
                    return error(what, "the file is damaged; cut it before this record");
                }
            }
            let fields = Fields {
                record: &record,
                big: self.big,
            };
            self.payload.resize(usize::from(fields.u16(46)), 0);
            self.input.rest(&mut self.payload)?;
            if let Some(event) = fields.event(&self.payload) {
                let len = RECORD as u64 + self.payload.len() as u64;
                let checked = event.checked().map(Some);
                return checked
                    .map_err(|(what, remedy)| self.input.record_error(len, what, remedy));
            }
        }
    }
}

struct Merge {
    sources: Vec<Source>,
    /// The next event of each file, sorted by time and file number.
    next: BTreeMap<(u64, usize), Event>,
    begun: bool,
    /// The time of the first event.
    base_ns: Option<u64>,
    sorter: Sorter<Event>,
    requests: Requests,
}

impl Merge {
    fn refill(&mut self, file: usize) -> Result<(), TraceError> {
        if let Some(event) = self.sources[file].next()? {
            self.next.insert((event.at_ns, file), event);
        }
        Ok(())
    }

    fn sorted(
        &mut self,
        mut event: Event,
        file: usize,
        out: &mut VecDeque<Item>,
    ) -> Result<(), TraceError> {
        event.at_ns -= *self.base_ns.get_or_insert(event.at_ns);
        let done = self.requests.event(&event, out);
        done.map_err(|fault| self.error(file, fault))
    }

    /// An error in the latest record of a file.
    fn error(&self, file: usize, (what, remedy): Fault) -> TraceError {
        let input = &self.sources[file].input;
        input.record_error(RECORD as u64, what, remedy)
    }
}

impl Step for Merge {
    fn step(&mut self, out: &mut VecDeque<Item>) -> Result<bool, TraceError> {
        if !self.begun {
            self.begun = true;
            for file in 0..self.sources.len() {
                self.refill(file)?;
            }
        }
        let Some(((_, file), event)) = self.next.pop_first() else {
            while let Some(event) = self.sorter.pop() {
                self.sorted(event, 0, out)?;
            }
            self.requests.end(out);
            return Ok(false);
        };
        let pushed = self.sorter.push(event.at_ns, event);
        let pushed = pushed.map_err(|TooLate| self.error(file, TOO_LATE))?;
        if let Some(event) = pushed {
            self.sorted(event, file, out)?;
        }
        self.refill(file)?;
        Ok(true)
    }
}
