//! What the maxima of the kernel's readahead make of the reads of a trace: the part of `tune` that `watch` repeats.
//!
//! No hint, no policy of foreread and no oracle is tried, so a recording of a minute takes seconds. Example: today 128 KiB; of
//! 32 KiB, 128 KiB, 512 KiB, 2 MiB and 8 MiB the best that gains is 2 MiB, and the mean wait of each is given beside it.
//!
//! They are judged by what reads wait and not by the time of all: programs that read for a second and compute for a minute would hide any gain.
//! Example: `cat` of one file after the other over 3 ms takes 1.64 s a file with 128 KiB and 0.64 s with 512; by the time of a recording of
//! six seconds 512 was said to take 88 % of it.

use super::Gain;
use super::candidates::{self, Candidate, Choice};
use super::choose::{self, Choices};
use crate::compare::{self, ComparePlan, OracleRow};
use crate::replay::Replay;
use crate::report::Report;
use foreread_os::failure::Failure;
use foreread_report::progress::Progress;
use foreread_sim::device::presets::Preset;
use std::sync::Arc;

/// Pairs of runs. Half of what `tune` makes: its answer is asked for twice before it counts.
const RUNS: u32 = 5;

#[derive(Clone, Debug, PartialEq)]
pub struct Maxima {
    /// That of the disk, or the smallest, of those that gain nearly as much as the best over today, if one gains 10 %.
    pub gain: Option<Gain>,
    /// Each maximum in bytes, and the mean time that a read waits with it, in seconds.
    pub times: Vec<(u64, f64)>,
}

/// Compares the maxima that `tune` tries, and `also`, with today's. `of_disk`: what the disk should have whatever is read.
///
/// # Errors
/// The reads cannot be compared on this model.
pub fn maxima(
    replay: Arc<Replay>,
    preset: &'static Preset,
    today_bytes: u64,
    also: &[u64],
    of_disk: Option<u64>,
    progress: &mut dyn Progress,
) -> Result<Maxima, Failure> {
    let also: Vec<u64> = also.iter().copied().chain(of_disk).collect();
    let mut candidates = candidates::all(today_bytes, &also);
    candidates.retain(|candidate| matches!(candidate.choice, Choice::Kernel { .. }));
    let plan = ComparePlan {
        replay: Some(replay),
        on: Some(compare::preset(preset)),
        policies: candidates
            .iter()
            .map(|candidate| candidate.policy.clone())
            .collect(),
        oracle: OracleRow::Usual,
        runs: Some(RUNS),
        seed: 1,
        ..ComparePlan::default()
    };
    let mut tables = compare::run(&plan, progress)?;
    let pace = tables.first_mut().and_then(|table| table.pace.as_mut());
    if let Some(pace) = pace {
        pace.is_by_waits = true;
    }
    let report = tables
        .first()
        .map(Report::of)
        .unwrap_or_else(|| unreachable!("a plan with a trace has a table"));
    let time = |candidate: &Candidate| {
        let name = candidate.policy.to_string();
        let row = report.row(&name)?;
        Some((candidate.choice.window_bytes(), row.judged()?.mean))
    };
    Ok(Maxima {
        times: candidates.iter().filter_map(time).collect(),
        gain: choose::kernel(
            &report,
            &candidates::kernel(today_bytes),
            &Choices {
                candidates: &candidates,
                of_disk,
            },
        ),
    })
}
