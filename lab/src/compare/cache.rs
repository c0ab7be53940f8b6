//! Whether a cache of a size can be had: a machine would otherwise make it larger or smaller without a word.

use super::CompareError;
use super::targets::Description;
use foreread::Budget;
use foreread_core::units::PageSize;
use foreread_report::number;

/// Pages that a cache has at least: the machine's own limit.
const MIN_PAGES: u64 = 4;

/// Refuses a cache that is too small or too large for rows with these pages.
pub fn check(
    asked: u64,
    place: &Description,
    pages: impl Iterator<Item = PageSize> + Clone,
) -> Result<(), CompareError> {
    let bytes = || pages.clone().map(PageSize::bytes);
    let least = MIN_PAGES * bytes().max().unwrap_or(4096);
    // The index counts pages in 32 bits.
    let index = u64::from(u32::MAX) * bytes().min().unwrap_or(4096);
    let memory = Budget::of_process().limits().memory_bytes;
    let most = if place.is_simulated {
        index
    } else {
        index.min(memory)
    };
    let why = match asked {
        _ if asked < least => "it holds fewer than four pages",
        _ if asked > index => "it holds more pages than can be counted",
        _ if asked > most => {
            "it is more than three quarters of the memory of this machine or control group"
        }
        _ => return Ok(()),
    };
    let [asked, least, most] = [asked, least, most].map(number::size_b);
    Err(CompareError::Cache {
        asked,
        why,
        least,
        most,
    })
}
