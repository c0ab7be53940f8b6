//! `lirs`: block numbers of programs, one a line, as the LIRS papers and cache simulators use them.
//!
//! `*` is a mark between programs and is passed over. There are no times and no lengths; what a block is, the file does
//! not say: 4096 bytes unless `block=` does, and the header says which. A list of numbers could be anything, so it has
//! to be named, unless there are marks in it. Never: two blocks made one request.

use super::scan::number;
use super::table::{self, Row, lines_fit};
use crate::error::{Fault, TracePosition};
use crate::format::{Fit, Format, Pairs};
use crate::input::Input;
use crate::{Header, Import, Lacks, Level, Record, TraceError};

/// What a block is unless it is said: a page.
const BLOCK: u64 = 4096;
/// The largest block: 1 GiB.
pub const MAX_BLOCK: u64 = 1 << 30;

/// The format.
pub static FORMAT: Format = Format {
    name: "lirs",
    summary: "LIRS: a block number a line, * between programs; no times, blocks of block= bytes",
    keys: &[("block", "bytes of a block (4096)")],
    detect,
    import: Some(import),
    export: None,
};

fn detect(head: &[u8]) -> Fit {
    let is_number = |line: &[u8]| number(line.trim_ascii()).is_some();
    let is_mark = |line: &[u8]| line.trim_ascii() == b"*";
    let lines = || head.split(|b| *b == b'\n');
    let fits = |_: usize, line: &[u8]| {
        if is_number(line) || is_mark(line) || line.trim_ascii().is_empty() {
            Fit::Maybe
        } else {
            Fit::No
        }
    };
    match lines_fit(head, fits) {
        Fit::Maybe if !lines().any(is_number) => Fit::No,
        Fit::Maybe if lines().any(is_mark) => Fit::Sure,
        fit => fit,
    }
}

/// Takes the key for how many bytes a block has, or what is given for none.
pub fn block(pairs: &mut Pairs, key: &str, input: &Input) -> Result<Option<u64>, TraceError> {
    let Some(text) = pairs.take(key) else {
        return Ok(None);
    };
    let block = number(text.as_bytes()).filter(|block| (1..=MAX_BLOCK).contains(block));
    block.map(Some).ok_or_else(|| {
        let what = format!("'{key}={text}' is no number of bytes");
        TraceError::new(
            input.path(),
            TracePosition::Whole,
            what,
            format!("{key} is from 1 to {MAX_BLOCK}"),
        )
    })
}

fn import(inputs: Vec<Input>, mut pairs: Pairs) -> Result<Import, TraceError> {
    let input = Input::only(inputs, FORMAT.name)?;
    let given = block(&mut pairs, "block", &input)?;
    pairs.finish(input.path(), FORMAT.name, &["block"])?;
    let block = given.unwrap_or(BLOCK);
    let mut notes =
        vec!["Everything is one file; every block counts as a read of one block.".to_string()];
    if given.is_none() {
        notes.push(
            "The file does not give the block size: 4096 bytes assumed (block=BYTES for another size).".to_string(),
        );
    }
    let header = Header {
        format: FORMAT.name.to_string(),
        time_unit: "none".to_string(),
        offset_unit: format!("blocks of {block} B"),
        lacks: Lacks {
            starts: true,
            ends: true,
            opens: true,
            threads: true,
            lens: true,
            ops: true,
        },
        level: Level::Unknown,
        notes,
    };
    let named = |_: &[u8]| "blocks".to_string();
    Ok(table::import(input, header, named, move |line| {
        row(line, block)
    }))
}

fn row(line: &[u8], block: u64) -> Result<Row<'_>, Fault> {
    let text = match line.trim_ascii() {
        b"" => return Ok(Row::Nothing),
        b"*" => return Ok(Row::LeftOut("marks between programs")),
        text => text,
    };
    let number = number(text).ok_or((
        "neither a block number nor *",
        "the file is damaged or of another format",
    ))?;
    let offset = number
        .checked_mul(block)
        .ok_or(("a block beyond 2^64 bytes", "give a smaller block="))?;
    Ok(Row::Record(b"", Record::read(0, offset, block)))
}
