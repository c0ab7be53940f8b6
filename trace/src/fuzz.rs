//! Requirements of every importer for arbitrary bytes: no panic, a one-line error without control characters, termination.
//!
//! The mutations of `tests/formats/mutants.rs` and the fuzz target in `fuzz/` both come in here. Never: judges what
//! the items mean; that is the golden files' matter.

use super::catalog;
use super::format::{Format, Pairs};
use super::input::Input;
use super::own;
use super::{Import, check::CheckedItems};
use std::io::Cursor;
use std::path::Path;

/// Items after which a trace has proved that it is read in pieces; a bomb of a terabyte need not be read to its end.
pub const MAX_ITEMS: u64 = 1 << 18;
/// Longest error line, in bytes: a place and a remedy, and a piece of the trace where it helps.
pub const MAX_LINE_BYTES: usize = 600;

/// How the reading of some bytes ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All were read: this many items.
    Whole(u64),
    /// There were more than [`MAX_ITEMS`].
    Many,
    /// They were refused in this line.
    Refused(String),
}

/// Reads `data` as `format`, with these keys.
pub fn one(format: &Format, pairs: Pairs, data: &[u8]) -> Result<Outcome, String> {
    let outcome = read(format, pairs, data)?;
    if let Outcome::Refused(line) = &outcome {
        if line.chars().any(char::is_control) {
            return Err(format!("an error with control characters: {line:?}"));
        }
        if line.len() > MAX_LINE_BYTES {
            return Err(format!("an error line of {} bytes", line.len()));
        }
    }
    Ok(outcome)
}

/// The format that `text` names, with its keys.
pub fn by_name(text: &str) -> Result<(&'static Format, Pairs), String> {
    catalog::parse(text, Path::new("t")).map_err(|error| error.to_string())
}

fn read(format: &Format, pairs: Pairs, data: &[u8]) -> Result<Outcome, String> {
    let path = Path::new("t");
    // What its detector makes of any bytes is part of it.
    let _ = (format.detect)(data);
    let opened = Input::of(path, Box::new(Cursor::new(data.to_vec())))
        .and_then(|input| (format.import)(vec![input], pairs));
    let Import {
        items, left_out, ..
    } = match opened {
        Ok(import) => import,
        Err(error) => return Ok(Outcome::Refused(error.to_string())),
    };
    let mut items = CheckedItems::new(items, path);
    let mut taken = 0;
    loop {
        match items.next() {
            None => break,
            Some(Err(error)) => {
                return match items.next() {
                    None => Ok(Outcome::Refused(error.to_string())),
                    Some(_) => Err("items behind an error".to_string()),
                };
            }
            Some(Ok(_)) if taken == MAX_ITEMS => return Ok(Outcome::Many),
            Some(Ok(_)) => taken += 1,
        }
    }
    drop(left_out.in_all());
    Ok(Outcome::Whole(taken))
}

/// A file of our own format around `plain`, as one block that claims `items`: bytes that no checksum keeps away.
#[must_use]
pub fn sealed(plain: &[u8], items: u32) -> Vec<u8> {
    own::around(plain, items)
}
