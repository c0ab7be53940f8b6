//! Reads a plan into the cache of foreread's own engine: the ranges of one source, in the plan's order, as far as they fit into the cache.
//!
//! ```text
//!   cache 256 MiB ──► at most 64 MiB of the plan are in flight or unused ──► clients read some ──► the next ranges
//! ```
//! The engine treats these fetches like any readahead: a read for which a client waits has priority.

use foreread::Reader;
use foreread_os::threads::{END_PATIENCE, Task};
use foreread_plan::Plan;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const PIECE_BYTES: u64 = 1 << 20;
/// Divisor of the cache size: this part holds data that the plan has fetched and no client has read. Chosen so that other
/// clients keep the rest.
const SHARE: u64 = 4;
/// How often to check whether clients have read something.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Returns the plan's ranges for a source with one of these names and this size, or `None` if no file of the plan matches. If the plan has
/// only one file, this file matches every name.
pub fn ranges_for(plan: &Plan, names: &[&str], size: u64) -> Option<Vec<Range<u64>>> {
    let is_it =
        |path: &Path| plan.files.len() == 1 || names.iter().any(|name| path == Path::new(name));
    let number = plan
        .files
        .iter()
        .position(|file| file.size == size && is_it(&file.path))?;
    let of_file = plan
        .ranges
        .iter()
        .filter(|range| range.file as usize == number);
    Some(of_file.map(|range| range.offset..range.end()).collect())
}

/// Reads a plan into the engine's cache in the background, until this value is dropped.
pub struct PlanFollower {
    stop: Arc<AtomicBool>,
    thread: Task<()>,
}

impl PlanFollower {
    /// Starts to read a plan into the engine's cache. `cache_bytes` is the size of the engine's cache.
    pub fn start(
        reader: Reader,
        ranges: Vec<Range<u64>>,
        cache_bytes: u64,
    ) -> std::io::Result<PlanFollower> {
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&stop);
        let follow = move || {
            for range in ranges {
                let mut at = range.start;
                while at < range.end {
                    let end = (at + PIECE_BYTES).min(range.end);
                    while waiting(&reader) >= (cache_bytes / SHARE).max(PIECE_BYTES) {
                        if is_over.load(Ordering::Acquire) {
                            return;
                        }
                        std::thread::sleep(LOOK_EVERY);
                    }
                    // If the source fails, the clients' own reads get the error.
                    if is_over.load(Ordering::Acquire) || reader.prefetch(at..end).is_err() {
                        return;
                    }
                    at = end;
                }
            }
        };
        let thread = Task::start("foreread-plan", follow)?;
        Ok(PlanFollower { stop, thread })
    }
}

/// Bytes of readahead that no client has read yet.
fn waiting(reader: &Reader) -> u64 {
    let stats = reader.stats();
    let settled = [stats.used_bytes, stats.unused_bytes, stats.ra_failed_bytes]
        .iter()
        .sum();
    stats.ra_bytes.saturating_sub(settled)
}

impl Drop for PlanFollower {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // The thread may be waiting for storage that does not answer.
        let _ = self.thread.within(END_PATIENCE);
    }
}
