//! Requirements that every importer must meet for arbitrary bytes: it does not panic, its errors are one line without control characters,
//! and it terminates.
//!
//! The mutation tests in `tests/formats/mutants.rs` and the fuzz target in `fuzz/` use this module. This module does not check
//! whether the imported items are correct: the tests with golden files do that.

use super::catalog;
use super::format::{Format, Pairs};
use super::input::Input;
use super::own;
use super::{Import, check::CheckedItems};
use std::io::Cursor;
use std::path::Path;

/// Number of items after which the check stops reading, because a decompression bomb of a terabyte must not be read to its end.
pub const MAX_ITEMS: u64 = 1 << 18;
/// Maximum length of an error message in bytes; the message contains a position, a remedy, and possibly an excerpt of the
/// trace.
pub const MAX_LINE_BYTES: usize = 600;

/// The result of reading arbitrary bytes as a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All bytes were read, and gave this many items.
    Whole(u64),
    /// There were more than [`MAX_ITEMS`].
    Many,
    /// The bytes were refused with this error line.
    Refused(String),
}

/// Reads `data` as a trace in `format`, with these keys.
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

/// Finds the format that `text` names, and parses its keys.
pub fn by_name(text: &str) -> Result<(&'static Format, Pairs), String> {
    catalog::parse(text, Path::new("t")).map_err(|error| error.to_string())
}

fn read(format: &Format, pairs: Pairs, data: &[u8]) -> Result<Outcome, String> {
    let path = Path::new("t");
    // The detector must accept arbitrary bytes too.
    let _ = (format.detect)(data);
    let opened = Input::of(path, Box::new(Cursor::new(data.to_vec())))
        .and_then(|input| (format.import)(input, pairs));
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
                    Some(_) => Err("items after an error".to_string()),
                };
            }
            Some(Ok(_)) if taken == MAX_ITEMS => return Ok(Outcome::Many),
            Some(Ok(_)) => taken += 1,
        }
    }
    drop(left_out.in_all());
    Ok(Outcome::Whole(taken))
}

/// Creates a file in foreread's own format that contains the bytes `plain` as one block with `items` items. Since the block has
/// a valid checksum, arbitrary bytes reach the decoder.
#[must_use]
pub fn sealed(plain: &[u8], items: u32) -> Vec<u8> {
    own::around(plain, items)
}
