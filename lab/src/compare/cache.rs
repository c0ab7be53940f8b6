//! Checks whether a cache of the given size is possible. Without this check, a run could silently use another size.

use super::CompareError;
use super::targets::Description;
use foreread::Budget;
use foreread_core::policy::PolicySpec;
use foreread_core::units::PageSize;
use foreread_os::failure::Failure;
use foreread_report::number;

/// Fewest pages of a cache: a limit of the machine.
const MIN_PAGES: u64 = 4;

/// Returns an error if the cache is too small or too large for rows with these cache page sizes.
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
            "it is more memory than caches may use on this machine or in this control group"
        }
        _ => return Ok(()),
    };
    let [asked, least, most] = [asked, least, most].map(number::size_b);
    Err(refused(&asked, why, &least, &most))
}

/// Returns an error if the memory size is smaller than the window that one of the policies reads around a page fault. In such a small
/// memory, the kernel would read this window in parts, and each part would evict the previous part.
pub fn check_windows(
    asked: u64,
    policies: impl Iterator<Item = PolicySpec>,
) -> Result<(), CompareError> {
    let windows = policies.filter(|p| p.build().wants().around);
    let windows = windows.filter_map(|p| Some((p.value("max")?, p)));
    let Some((window, policy)) = windows.max_by_key(|(bytes, _)| *bytes) else {
        return Ok(());
    };
    if asked >= window {
        return Ok(());
    }
    let [asked, least, most] = [asked, window, u64::from(u32::MAX) * 4096].map(number::size_b);
    let why = format!("it is less than one window of {policy}");
    Err(refused(&asked, &why, &least, &most))
}

fn refused(asked: &str, why: &str, least: &str, most: &str) -> CompareError {
    let what = format!("memory of {asked} for the cache");
    let remedy = format!("name a size from {least} to {most}");
    Failure::input(what, "", remedy).because(why).into()
}
