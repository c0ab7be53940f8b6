//! All runs of a design on several threads, the longest kinds first, without those that are known already.
//!
//! ```text
//!   keys ──less those known──► queue ──► thread 1 ──┐
//!                                  └───► thread 2 ──┴─► each(key, figures)   one at a time, as they end
//! ```
//! A run depends on its key alone, so the order in which runs end changes nothing in a report.

use super::measure::{Figures, Key, measure};
use super::{Cell, Design};
use crate::limits::ORACLE;
use foreread_core::policy::SpecError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// A run that is over; none where its row is left out.
pub type Done = (Key, Option<Figures>);

/// The runs of a design for its opponents and `judged`, cell by cell; the oracle for one judging seed.
#[must_use]
pub fn keys(cells: &[Cell], design: Design, judged: &[String]) -> Vec<Key> {
    let (choose, judge) = design.seeds();
    let opponents = design.opponents();
    let mut keys = Vec::new();
    for cell in cells {
        let key = |policy: &str, seed| Key { cell: cell.clone(), policy: policy.to_string(), seed };
        for policy in opponents.iter().chain(judged.iter().filter(|p| !opponents.contains(p))) {
            let seeds = choose.iter().chain(&judge);
            keys.extend(seeds.filter(|s| opponents.contains(policy) || !choose.contains(s)).map(|s| key(policy, *s)));
        }
        keys.extend(
            judge.first().filter(|_| cell.predictable() || design == Design::Baseline).map(|s| key(ORACLE, *s)),
        );
    }
    keys.sort();
    keys.dedup();
    keys
}

/// Carries out every run on `threads` threads and gives each to `each`, in the order in which they end.
///
/// # Errors
/// The first run that could not be made; runs that were begun are ended.
pub fn run(keys: &[Key], threads: usize, each: &mut (dyn FnMut(Done) + Send)) -> Result<(), SpecError> {
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<SpecError>> = Mutex::new(None);
    let each = Mutex::new(each);
    let work = || {
        while let Some(key) = keys.get(next.fetch_add(1, Ordering::Relaxed)) {
            match measure(key) {
                Ok(figures) => (each.lock().unwrap_or_else(PoisonError::into_inner))((key.clone(), figures)),
                Err(error) => {
                    next.store(keys.len(), Ordering::Relaxed);
                    failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        (0..threads.max(1)).for_each(|_| _ = scope.spawn(work));
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_the_same_on_any_number_of_threads() {
        let cells: Vec<Cell> =
            Design::Fractional.cells().into_iter().filter(|c| c.workload == "fsspec-random").collect();
        let all = keys(&cells, Design::Fractional, &["linux-3.12".to_string()]);
        let run = |threads| {
            let mut done = Vec::new();
            run(&all, threads, &mut |one| done.push(one)).expect("valid");
            done.sort_by(|a, b| a.0.cmp(&b.0));
            done
        };
        let one = run(1);
        assert_eq!(one, run(3));
        // 8 opponents with three seeds, the judged policy with two.
        assert_eq!(one.len(), cells.len() * (8 * 3 + 2));
        let bad = [Key { policy: "oracel".to_string(), ..all[0].clone() }];
        assert!(super::run(&bad, 2, &mut |_| ()).is_err());
    }
}
