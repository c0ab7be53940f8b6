//! All runs of a design on several threads.
//!
//! ```text
//!   keys, less those known ──► queue ──► thread 1 ──┐
//!                                  └───► thread 2 ──┴─► each(key, figures)   one at a time, as they end
//! ```
//! A run depends on its key alone, so the order in which runs end changes nothing in a report. The cells are in a shuffled order,
//! the same each time, and all runs of a cell follow each other: then the time that is left can be told from the time that
//! has passed, and a schedule that was stopped has whole cells.

use super::measure::{Figures, Key};
use super::{Cell, Design};
use foreread_core::policy::SpecError;
use foreread_os::threads::for_each_on;
use foreread_sim::limits::ORACLE;
use foreread_sim::rng::Rng;
use std::ops::ControlFlow;

/// A run that is over; none where its row is left out.
pub type FinishedRun = (Key, Option<Figures>);

pub type Measure<'a> = &'a (dyn Fn(&Key) -> Result<Option<Figures>, SpecError> + Sync);

/// What is called with each run that is over; it may stop the schedule.
pub type Each<'a> = &'a mut (dyn FnMut(FinishedRun) -> ControlFlow<()> + Send);

/// Seed of the order of the cells.
const ORDER: u64 = 1;

/// The runs of a design for its opponents and `judged`, cell by cell; the oracle for one judging seed.
#[must_use]
pub fn keys(cells: &[Cell], design: Design, judged: &[String]) -> Vec<Key> {
    let (choose, judge) = design.seeds();
    let opponents = design.opponents();
    let mut keys = Vec::new();
    let mut cells = cells.to_vec();
    cells.sort();
    cells.dedup();
    Rng::new(ORDER).shuffle(&mut cells);
    for cell in &cells {
        let key = |policy: &str, seed| Key {
            cell: cell.clone(),
            policy: policy.to_string(),
            seed,
        };
        for policy in opponents
            .iter()
            .chain(judged.iter().filter(|p| !opponents.contains(p)))
        {
            let seeds = choose.iter().chain(&judge);
            keys.extend(
                seeds
                    .filter(|s| opponents.contains(policy) || !choose.contains(s))
                    .map(|s| key(policy, *s)),
            );
        }
        keys.extend(
            judge
                .first()
                .filter(|_| {
                    cell.predictable() || matches!(design, Design::Baseline | Design::Validation)
                })
                .map(|s| key(ORACLE, *s)),
        );
    }
    keys
}

/// Carries out every run on `threads` threads and gives each to `each`, in the order in which they end. Once `each` breaks no
/// further run begins; those that were begun are ended and given to `each` too.
///
/// # Errors
/// The first run that could not be made; runs that were begun are ended.
pub fn run(
    keys: &[Key],
    threads: usize,
    measure: Measure<'_>,
    each: Each<'_>,
) -> Result<(), SpecError> {
    for_each_on(keys, threads, measure, &mut |key, figures| {
        each((key.clone(), figures))
    })
}

#[cfg(test)]
mod tests {
    use super::super::measure::measure;
    use super::*;

    fn small() -> Vec<Key> {
        let mut cells = Design::Fractional.cells();
        cells.retain(|c| c.workload == "fsspec-random");
        keys(&cells, Design::Fractional, &["linux-3.12".to_string()])
    }

    #[test]
    fn runs_are_the_same_on_any_number_of_threads() {
        let all = small();
        let run = |threads| {
            let mut done = Vec::new();
            let mut each = |one| {
                done.push(one);
                ControlFlow::Continue(())
            };
            run(&all, threads, &measure, &mut each).expect("valid");
            done.sort_by(|a, b| a.0.cmp(&b.0));
            done
        };
        let one = run(1);
        assert_eq!(one, run(3));
        // 3 cells; 8 opponents with three seeds, the judged policy with two.
        assert_eq!(one.len(), 3 * (8 * 3 + 2));
        let bad = [Key {
            policy: "oracel".to_string(),
            ..all[0].clone()
        }];
        assert!(super::run(&bad, 2, &measure, &mut |_| ControlFlow::Continue(())).is_err());
    }

    /// After the fifth run no other begins; the one of the second thread still ends.
    #[test]
    fn a_schedule_can_be_stopped() {
        let all = small();
        let mut done = 0;
        let mut each = |_| {
            done += 1;
            if done == 5 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        run(&all, 2, &measure, &mut each).expect("valid");
        assert!((5..=6).contains(&done), "{done}");
    }

    /// Whole cells, in an order that does not follow the names.
    #[test]
    fn runs_of_a_cell_follow_each_other() {
        let cells = Design::Fractional.cells();
        let keys = keys(&cells, Design::Fractional, &["auto".to_string()]);
        let mut order: Vec<&Cell> = keys.iter().map(|k| &k.cell).collect();
        order.dedup();
        assert_eq!(order.len(), cells.len());
        assert!(!order.is_sorted());
        assert!(keys.len() <= 3000, "{}", keys.len());
    }
}
