//! `oracle-general`: the binary traces of the cache simulator libCacheSim, of 24 and of 27 bytes a record.
//!
//! ```text
//!    24 B   u32 seconds, u64 object, u32 size, i64 next                          little-endian
//!    27 B   u32 seconds, u64 object, u32 size, u8 op, u16 namespace, i64 next    next: number of its next access, -1 or
//!                                                                                the largest for never
//! ```
//!
//! Objects are keys, not offsets: the user has to give the unit (`unit=512` where it was a sector). Seconds are
//! shared by thousands of records, so they are left out; what `op` means differs from tracer to tracer, so every record
//! counts as a read. Which of the two it is shows in `next`, which must be later than the record itself.
//! Never: an object taken for an offset unasked.

use super::lirs::block;
use super::scan::{Names, choice};
use super::step::{Step, items};
use crate::error::{TraceError, TracePosition};
use crate::format::{Fit, Format, Pairs};
use crate::input::Input;
use crate::{FileInfo, Header, Import, Item, Lacks, LeftOut, Level, Record};
use std::collections::VecDeque;

/// Records that must fit before a file is surely one of these.
const SURE_RECORDS: usize = 4;
const SIZES: [usize; 2] = [24, 27];
/// No trace has more records: a next access beyond is nonsense.
const MAX_RECORDS: i64 = 1 << 40;

pub static FORMAT: Format = Format {
    name: "oracle-general",
    summary: "libCacheSim oracleGeneral: binary; seconds (left out), objects of unit= bytes",
    keys: &[
        (
            "unit",
            "bytes between an object number and the next: 512 if it was a sector",
        ),
        (
            "record",
            "bytes of a record, 24 or 27, where it does not show",
        ),
    ],
    detect: |head| fits(head, SIZES[0]).max(fits(head, SIZES[1])),
    import: Some(import),
    export: None,
};

fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + N]
        .iter()
        .rev()
        .fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn fits(head: &[u8], size: usize) -> Fit {
    let (mut latest, mut records) = (0, 0);
    for (record, n) in head.chunks_exact(size).zip(0_i64..) {
        let seconds = number::<4>(record, 0);
        let next = number::<8>(record, size - 8).cast_signed();
        let sane = next == -1 || next == i64::MAX || (next > n && next < MAX_RECORDS);
        if !sane || seconds < latest {
            return Fit::No;
        }
        (latest, records) = (seconds, records + 1);
    }
    match records {
        0 => Fit::No,
        n if n < SURE_RECORDS => Fit::Maybe,
        _ => Fit::Sure,
    }
}

fn import(inputs: Vec<Input>, mut pairs: Pairs) -> Result<Import, TraceError> {
    let mut input = Input::only(inputs, FORMAT.name)?;
    let unit = block(&mut pairs, "unit", &input)?;
    let size = choice(&mut pairs, "record", &["24", "27"], input.path())?;
    pairs.finish(input.path(), FORMAT.name, &["unit", "record"])?;
    let path = input.path().to_path_buf();
    let refuse =
        |what: &str, remedy: &str| Err(TraceError::new(&path, TracePosition::Whole, what, remedy));
    let Some(unit) = unit else {
        let remedy = "say oracle-general:unit=BYTES (512 where an object was a sector)";
        return refuse("its objects are no offsets", remedy);
    };
    let size = match size {
        Some(n) => SIZES[n],
        None => {
            let head = input.head()?;
            let both = "records of 24 and of 27 bytes both make sense of it";
            let neither = "records neither of 24 nor of 27 bytes make sense of it";
            match SIZES.map(|size| fits(head, size) > Fit::No) {
                [true, false] => SIZES[0],
                [false, true] => SIZES[1],
                _ if head.is_empty() => SIZES[0],
                [true, true] => return refuse(both, "say record=24 or record=27"),
                [false, false] => return refuse(neither, "it is damaged, or of another format"),
            }
        }
    };
    let header = Header {
        format: FORMAT.name.to_string(),
        time_unit: "none (whole seconds, left out)".to_string(),
        offset_unit: format!("objects of {unit} B"),
        lacks: Lacks { starts: true, ends: true, opens: true, threads: true, lens: false, ops: true },
        level: Level::Unknown,
        notes: vec![
            "Its records are object numbers, read as offsets with the given unit.".to_string(),
            "The times are whole seconds that many records share: left out, the order of the file is kept.".to_string(),
        ],
    };
    let objects = Objects {
        input,
        unit,
        size,
        spaces: Names::default(),
    };
    Ok(Import::new(header, items(objects), LeftOut::default()))
}

struct Objects {
    input: Input,
    unit: u64,
    size: usize,
    spaces: Names,
}

impl Step for Objects {
    fn step(&mut self, out: &mut VecDeque<Item>) -> Result<bool, TraceError> {
        let mut record = [0; SIZES[1]];
        let record = &mut record[..self.size];
        if !self.input.record(record)? {
            return Ok(false);
        }
        let refuse = |what, remedy| self.input.record_error(self.size as u64, what, remedy);
        let object = number::<8>(record, 4);
        let remedy = "its objects are no places, or of a smaller unit=";
        let far = || refuse("an object beyond 2^64 bytes", remedy);
        let offset = object.checked_mul(self.unit).ok_or_else(far)?;
        let space: &[u8] = if self.size == SIZES[0] {
            b""
        } else {
            &record[17..19]
        };
        let named = || FileInfo {
            name: match space {
                [low, high] => format!("namespace {}", u16::from_le_bytes([*low, *high])),
                _ => "objects".to_string(),
            },
            size: None,
        };
        let file = self.spaces.file(space, out, named);
        let file = file.ok_or_else(|| refuse("too many namespaces", "cut the trace in parts"))?;
        let record = Record::read(file, offset, number::<4>(record, 12));
        out.push_back(Item::Record(record));
        Ok(true)
    }
}
