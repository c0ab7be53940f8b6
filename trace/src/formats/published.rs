//! The tables of published block traces: a row for each (see `preset`).

use super::preset::{Clock, Column, Ops, Preset};
use super::scan::{SECOND_NS, SECTOR, US_NS, number};
use super::spc;
use super::table::lines_fit;
use crate::Level;
use crate::format::{Fit, Format};

macro_rules! published {
    ($($(#[$doc:meta])* $format:ident { $($key:ident: $value:expr,)* })*) => {$(
        $(#[$doc])*
        pub static $format: Format = {
            static TABLE: Preset = Preset { $($key: $value,)* ..Preset::CSV };
            Format {
                name: TABLE.name,
                summary: TABLE.summary,
                keys: &[],
                detect: |head| (TABLE.fit)(&TABLE, head),
                import: |inputs, pairs| TABLE.import(inputs, &pairs),
                export: TABLE.export,
            }
        };
    )*};
}

/// Nanoseconds of the years 2001 to 2100.
const THIS_CENTURY_NS: std::ops::Range<u64> = 1_000_000_000_000_000_000..4_102_444_800_000_000_000;
/// Ticks of 100 ns since 1601 between 1970 and 2185: a file that holds other numbers is something else.
const TICKS: std::ops::Range<u64> = 116_444_736_000_000_000..184_467_440_737_095_516;
/// Number of `arc` lines whose numbers must be consecutive for a certain match.
const SURE_LINES: usize = 3;

fn named(kind: &str, volume: &[u8]) -> String {
    format!("{kind} {}", String::from_utf8_lossy(volume))
}

published! {
    /// A thousand volumes of Alibaba Cloud's block storage, 2020. Other tables have five columns too, so only timestamps of this
    /// century and whole sectors are certain. The later table with other columns is not supported.
    ALIBABA {
        name: "alibaba",
        summary: "Alibaba block traces 2020: CSV without header; us since 1970, bytes",
        columns: &[
            Column::VolumeNumber,
            Column::Op(Ops::of(&["R"], &["W"], "an opcode that is neither R nor W")),
            Column::Offset(1),
            Column::Len(1),
            Column::Start(Clock::whole(US_NS)),
        ],
        refusal: "not a line of device_id,opcode,offset,length,timestamp",
        time_unit: "us since 1970",
        notes: &[
            "Requests of virtual machines to their volumes, below their page caches; a volume is a file.",
        ],
        volume: |volume| named("device", volume),
        fit: |table, head| table.lines(head, |_, record| {
            let century = record.start_ns.is_some_and(|start| THIS_CENTURY_NS.contains(&start));
            century && record.offset.is_multiple_of(SECTOR) && record.len.is_multiple_of(SECTOR)
        }),
    }

    /// The lists that the adaptive replacement cache was measured with (`P1.lis` and others). The third field is 0 in most traces and
    /// another number in P2, P3, P6 and P12; it has no meaning here.
    ARC {
        name: "arc",
        summary: "ARC .lis: START BLOCKS IGNORED NUMBER; no times, blocks of 512 bytes, reads only",
        columns: &[
            Column::Offset(SECTOR),
            Column::Len(SECTOR),
            Column::Number,
            Column::Number,
        ],
        separator: None,
        refusal: "not a line of START BLOCKS IGNORED NUMBER",
        too_far: "a block beyond 2^64 bytes",
        offset_unit: "512 B blocks",
        level: Level::Unknown,
        notes: &["Everything is one file; every request counts as a read."],
        volume: |_| "blocks".to_string(),
        fit: counted,
    }

    /// The block traces of servers at Microsoft Research Cambridge, 2007. Times need 57 bits. The file is in the order of completion.
    MSR {
        name: "msr",
        summary: "MSR Cambridge: CSV without header; 100 ns since 1601, bytes",
        columns: &[
            Column::Start(Clock {
                range: Some((TICKS, "a time that is not in 100 ns since 1601")),
                ..Clock::whole(100)
            }),
            Column::Volume,
            Column::Volume,
            Column::Op(Ops::of(&["Read"], &["Write"], "a type that is neither Read nor Write")),
            Column::Offset(1),
            Column::Len(1),
            Column::Dur(Clock::whole(100)),
        ],
        refusal: "not a line of Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime",
        time_unit: "100 ns since 1601",
        notes: &["Taken below the file cache of a server; a volume is a file."],
        volume: |volume| String::from_utf8_lossy(volume).replace(',', "."),
        fit: |table, head| table.lines(head, |_, _| true),
    }

    /// The form of the Storage Performance Council, such as the traces of the UMass repository; in and out. Whole seconds could be
    /// another table with the same columns.
    SPC {
        name: "spc",
        summary: "SPC, UMass: CSV without header; seconds with decimals, blocks of 512 bytes, sizes in bytes",
        columns: &[
            Column::VolumeNumber,
            Column::Offset(SECTOR),
            Column::Len(1),
            Column::Op(Ops::of(&["r", "R"], &["w", "W"], "an opcode that is neither r nor w")),
            Column::Start(Clock::decimal(SECOND_NS)),
        ],
        refusal: "not a line of ASU,LBA,Size,Opcode,Timestamp",
        too_far: "a block beyond 2^64 bytes",
        time_unit: "seconds",
        offset_unit: "512 B blocks",
        notes: &["Requests to storage units, below whatever cache was above them; a unit is a file."],
        volume: |volume| named("ASU", volume),
        fit: |table, head| table.lines(head, |line, _| {
            line.rsplit(|b| *b == b',').next().is_some_and(|stamp| stamp.contains(&b'.'))
        }),
        export: Some(spc::export),
    }

    /// The virtual desktops of SYSTOR 2017. Of the nine decimals six are measured. A blank IOType is a request whose reply was not seen.
    SYSTOR {
        name: "systor",
        summary: "SYSTOR '17 virtual desktops: CSV with header; seconds with decimals, bytes",
        columns: &[
            Column::Start(Clock::decimal(SECOND_NS)),
            Column::DurOrNothing(Clock::decimal(SECOND_NS)),
            Column::Op(Ops {
                left_out: Some(("", "requests without a reply")),
                ..Ops::of(&["R"], &["W"], "an IOType that is neither R nor W nor blank")
            }),
            Column::Volume,
            Column::Offset(1),
            Column::Len(1),
        ],
        header: Some("Timestamp,Response,IOType,LUN,Offset,Size"),
        refusal: "not a line of Timestamp,Response,IOType,LUN,Offset,Size",
        time_unit: "seconds since 1970 (to the us)",
        notes: &[
            "Captured in front of a storage array, below the page caches of the desktops; a LUN is a file.",
            "Where an hour's log ends, some requests are missing.",
        ],
        volume: |volume| named("LUN", volume),
        fit: |table, head| lines_fit(head, |i, line| {
            let is_header = table.header.is_some_and(|header| header.as_bytes() == line);
            if i > 0 || is_header { Fit::Sure } else { Fit::No }
        }),
    }

    /// Volumes of Tencent's cloud block storage, 2018. Thousands of requests share a second, so the records come without times, in the
    /// order of the file. Five plain numbers could be anything: the format has to be named.
    TENCENT {
        name: "tencent",
        summary: "Tencent block storage: CSV without header; seconds (left out), sectors of 512 bytes",
        columns: &[
            Column::Number,
            Column::Offset(SECTOR),
            Column::Len(SECTOR),
            Column::Op(Ops::of(&["0"], &["1"], "an IOType that is neither 0 nor 1")),
            Column::VolumeNumber,
        ],
        refusal: "not a line of Timestamp,Offset,Size,IOType,VolumeID",
        too_far: "a sector beyond 2^64 bytes",
        time_unit: "none (whole seconds, left out)",
        offset_unit: "512 B sectors",
        notes: &[
            "Requests of virtual machines to their volumes, below their page caches; a volume is a file.",
            "The times are whole seconds that thousands of requests share: left out, the order of the file is kept.",
        ],
        volume: |volume| named("volume", volume),
        fit: |table, head| table.lines(head, |_, _| false),
    }
}

/// Sure where the last column numbers the lines.
fn counted(table: &Preset, head: &[u8]) -> Fit {
    let last = |line: &[u8]| number(&line[table.split(line)?[3].clone()]);
    let Some(first) = head.split(|b| *b == b'\n').next().and_then(last) else {
        return Fit::No;
    };
    let counts = |i: usize, line: &[u8]| last(line) == first.checked_add(i as u64);
    let fit = lines_fit(head, |i, line| {
        match (table.row(line).is_ok(), counts(i, line)) {
            (true, true) => Fit::Sure,
            (true, false) => Fit::Maybe,
            (false, _) => Fit::No,
        }
    });
    let few = head.iter().filter(|b| **b == b'\n').count() < SURE_LINES;
    if few { fit.min(Fit::Maybe) } else { fit }
}
