//! Chooses the best policy among those that are significantly faster than the current setting (by a test that is corrected for the number
//! of policies). If several policies are equally good, the choice is the setting that `doctor` advises for the disk, or, if that is not
//! among them, the policy with the smallest window.
//!
//! Example: the reads take 4 s with the current setting, 2.04 s with a window of 512 KiB and 2 s with 8 MiB. In this example, 512 KiB is
//! chosen if it counts as equal to 8 MiB, that is, if the confidence interval of the ratio of their times is within 5 %. The current
//! setting itself cannot be chosen, and a policy that saves less than 10 % of the time does not count as a gain. Among equal policies the
//! smaller window wins, because a larger window costs memory and evicts other readers' pages, and a model is not exact. If the runs do not
//! show which of two policies is faster, the policy with the shorter mean time is preferred.

use super::candidates::{Candidate, Choice};
use super::{MIN_GAIN, MIN_SAVED_S};
use crate::probe::FileTimes;
use crate::replay::LoadedTrace;
use crate::report::row::Relation;
use crate::report::{Report, Row, RowKind};
use crate::verdict::Gain;
use foreread_core::policy::DEFAULT;

/// A candidate that is better than today.
struct Gaining {
    gain: Gain,
    rank: u64,
}

/// The candidates, and the maximum that the disk should have for all reads ([`crate::verdict::disk`]), if it is known.
pub(super) struct Choices<'a> {
    pub candidates: &'a [Candidate],
    pub of_disk: Option<u64>,
}

impl Choices<'_> {
    /// Among equally good candidates the lowest rank is taken: the disk's own setting first, so that the disk has one value for
    /// everything that reads it, then the smallest window.
    fn rank(&self, choice: Choice) -> u64 {
        match choice {
            Choice::Kernel { max_bytes } if self.of_disk == Some(max_bytes) => 2,
            choice => choice.window_bytes(),
        }
    }
}

/// The best kernel maximum that is better than today; among equally good ones the disk's own value, else the
/// smallest.
pub(super) fn kernel(report: &Report, today: &str, choices: &Choices<'_>) -> Option<Gain> {
    best(report, today, choices, |choice| {
        matches!(choice, Choice::Kernel { .. })
    })
}

/// The best policy of all that is better than today; `none` is among the candidates.
pub(super) fn any(report: &Report, today: &str, choices: &Choices<'_>) -> Option<Gain> {
    best(report, today, choices, |_| true)
}

fn best(
    report: &Report,
    today: &str,
    choices: &Choices<'_>,
    is_of_kind: impl Fn(Choice) -> bool,
) -> Option<Gain> {
    let candidates = choices.candidates.iter();
    let candidates = candidates.filter(|candidate| is_of_kind(candidate.choice));
    let gaining = |candidate: &Candidate| {
        let name = candidate.policy.to_string();
        let row = report
            .rows
            .iter()
            .find(|row| row.policy == name && !row.limit)?;
        let max_bytes = match candidate.choice {
            Choice::Kernel { max_bytes } => Some(max_bytes),
            Choice::NoReadahead | Choice::Ours { .. } => None,
        };
        let gain = Gain {
            max_bytes,
            ..gain(report, today, row)?
        };
        Some(Gaining {
            gain,
            rank: choices.rank(candidate.choice),
        })
    };
    let all: Vec<Gaining> = candidates.filter_map(gaining).collect();
    let fastest = all
        .iter()
        .min_by(|a, b| a.gain.ratio.total_cmp(&b.gain.ratio))?;
    let fastest = fastest.gain.what.clone();
    let as_good = all.into_iter().filter(|one| {
        one.gain.what == fastest
            || report.relation(&fastest, &one.gain.what) == Some(Relation::Equivalent)
    });
    let bytes = |one: &Gaining| one.gain.bytes_ratio.unwrap_or(1.0);
    let order = |a: &Gaining, b: &Gaining| a.rank.cmp(&b.rank).then(bytes(a).total_cmp(&bytes(b)));
    as_good.min_by(order).map(|one| one.gain)
}

/// The gain of foreread's own policy, in a program that reads through foreread.
pub(super) fn ours(report: &Report, today: &str) -> Option<Gain> {
    gain(report, today, report.row(DEFAULT)?)
}

/// Seconds in which `foreread run` may still gain nothing: it has to see the reads first. Measured: 0.1 to 0.3 s on disks 3 and 20 ms
/// away.
const RUN_SEES_S: f64 = 0.3;
/// Reads of neighbouring files are joined, which perfect foresight does not do. Measured with small files: 0.72 to 0.8 of its time.
const JOINED: f64 = 0.75;

/// The gain of `foreread run`: that of `auto`, or, for a walk through folders, that of perfect foresight; at most, and if the first
/// [`RUN_SEES_S`] gain nothing, at least. The latter has to be worth it.
pub(super) fn run(report: &Report, today: &str, is_walk: bool) -> Option<Gain> {
    let base = report.row(today)?;
    let least = match is_walk {
        true => limit(report, base)?,
        false => ours(report, today)?,
    };
    if base.latency_s.is_some() {
        return Some(least);
    }
    let joined = if is_walk { JOINED } else { 1.0 };
    let most_s = (least.with_s + RUN_SEES_S * (1.0 - least.ratio)).min(least.today_s);
    let ratio = foreread_sim::stats::ratio(most_s, least.today_s)?;
    is_worth(base, ratio).then_some(Gain {
        ratio,
        ratio_ci95: None,
        with_range_s: Some([least.with_s * joined, most_s]),
        ..least
    })
}

/// Number of files after which a walk is detected.
const FIRST: f64 = 2.0;

/// The gain in a walk through small files if the next files are read ahead. Today's time is the recorded one: for each file a server may
/// send more than the file's bytes, and the listing is part of the time. A mount knows the next files only if the program lists the folder:
/// Python reads compiled modules of a folder that it does not list. A trace does not say so; without it, each file is read alone. A sampled
/// trace has the time of the whole program, of which only the observed waits can be saved.
pub(super) fn walk(times: &FileTimes, trace: &LoadedTrace) -> Option<Gain> {
    let files = trace.names.len() as f64;
    let today_s = trace.seconds().unwrap_or(files * times.alone_s);
    let own_s = match trace.header.sampled_ns {
        Some(_) => (today_s - trace.waited_s()).max(0.0),
        None => 0.0,
    };
    let with_s = own_s + files * times.together_s + FIRST * (today_s - own_s) / files;
    let ratio = foreread_sim::stats::ratio(with_s, today_s)?;
    let is_worth = ratio <= 1.0 - MIN_GAIN && today_s - with_s >= MIN_SAVED_S;
    is_worth.then(|| Gain {
        what: DEFAULT.to_string(),
        kind: Some(RowKind::Policy),
        ratio,
        today_s,
        with_s,
        with_range_s: Some([with_s, (own_s + files * times.alone_s).min(today_s)]),
        ..Gain::default()
    })
}

/// The gain of a plan of the same reads: at most that of perfect foresight with joined reads, and none if the program reads other data.
pub(super) fn foresight(report: &Report, today: &str) -> Option<Gain> {
    let base = report.row(today)?;
    let found = limit(report, base)?;
    is_worth(base, found.ratio).then_some(Gain {
        with_range_s: Some([found.with_s * JOINED, found.today_s]),
        ..found
    })
}

/// Perfect foresight compared with today. It is computed, not tested.
fn limit(report: &Report, base: &Row) -> Option<Gain> {
    of(base, report.limit()?)
}

/// The row with the least part of today's time among those that the runs do not tell apart from today, if it would be a gain
/// should more runs confirm it.
pub(super) fn undecided<'a>(report: &'a Report, today: &str) -> Option<(&'a Row, f64)> {
    let base = report.row(today)?;
    let base_s = base.judged()?.mean;
    let open = report
        .rows
        .iter()
        .filter(|row| report.relation(today, &row.policy) == Some(Relation::NotToldApart));
    let ratio = |row: &Row| foreread_sim::stats::ratio(row.judged()?.mean, base_s);
    let ratios = open.filter_map(|row| Some((row, ratio(row)?)));
    let least = ratios.min_by(|a, b| a.1.total_cmp(&b.1))?;
    is_worth(base, least.1).then_some(least)
}

/// Whether a change is worth it that takes this part of today's time: it has to save a tenth of it, and at least
/// [`MIN_SAVED_S`] if a time is judged.
fn is_worth(base: &Row, ratio: f64) -> bool {
    let saved_s = base.time_s.as_ref().map(|time| time.mean * (1.0 - ratio));
    // A latency belongs to a single read, so it may be short and still matter.
    let is_noticed = base.latency_s.is_some() || saved_s.is_some_and(|s| s >= MIN_SAVED_S);
    ratio <= 1.0 - MIN_GAIN && is_noticed
}

/// The gain of a row over today, if a test calls it a gain.
fn gain(report: &Report, today: &str, row: &Row) -> Option<Gain> {
    let base = report.row(today)?;
    let compared = report.comparison(today, &row.policy)?;
    let found = of(base, row)?;
    if compared.differs != Some(true) || !is_worth(base, found.ratio) {
        return None;
    }
    let turned = |[low, high]: [f64; 2]| {
        if compared.a == today {
            [low, high]
        } else {
            [high.recip(), low.recip()]
        }
    };
    Some(Gain {
        ratio_ci95: compared.ratio_ci95.map(turned),
        ..found
    })
}

/// The figures of a row compared with today's.
fn of(base: &Row, row: &Row) -> Option<Gain> {
    let (today_s, with_s) = (base.judged()?.mean, row.judged()?.mean);
    let bytes = row.source_bytes.zip(base.source_bytes);
    Some(Gain {
        what: row.policy.clone(),
        kind: Some(row.kind),
        ratio: foreread_sim::stats::ratio(with_s, today_s)?,
        today_s,
        with_s,
        bytes_ratio: bytes
            .and_then(|(with, today)| foreread_sim::stats::ratio(with as f64, today as f64)),
        ..Gain::default()
    })
}

#[cfg(test)]
mod tests {
    use super::super::candidates;
    use super::*;
    use crate::report::samples::{runs, table};

    fn report(rows: &[(&str, [f64; 3], u64)]) -> Report {
        let runs = |(name, times, bytes): &(&str, [f64; 3], u64)| runs(name, times, 0, 0, *bytes);
        Report::of(&table("w", "s", rows.iter().map(runs).collect()))
    }

    const TODAY: &str = "linux-6.18:max=128K";

    fn chosen(report: &Report) -> [Option<Gain>; 2] {
        chosen_on(report, None)
    }

    fn chosen_on(report: &Report, of_disk: Option<u64>) -> [Option<Gain>; 2] {
        let choices = Choices {
            candidates: &candidates::all(128 << 10, &[256 << 10]),
            of_disk,
        };
        [
            kernel(report, TODAY, &choices),
            any(report, TODAY, &choices),
        ]
    }

    /// 2 MiB is the value of the disk: as good as 512 KiB here, and where it is not, the reads decide.
    #[test]
    fn of_those_as_good_the_value_of_the_disk_is_chosen() {
        let of = |two: [f64; 3]| {
            let all = report(&[
                (TODAY, [9.0, 9.1, 8.9], 110),
                ("linux-6.18:max=512K", [2.02, 2.12, 1.92], 190),
                ("linux-6.18:max=2M", two, 190),
                ("linux-6.18:max=8M", [2.0, 2.1, 1.9], 180),
            ]);
            chosen_on(&all, Some(2 << 20)).map(|gain| gain.and_then(|gain| gain.max_bytes))
        };
        assert_eq!(of([2.03, 2.13, 1.93]), [Some(2 << 20); 2]);
        assert_eq!(of([3.03, 3.13, 2.93]), [Some(512 << 10); 2]);
    }

    #[test]
    fn the_smallest_that_is_as_good_is_chosen() {
        let all = report(&[
            ("none", [9.0, 9.1, 8.9], 100),
            (TODAY, [4.0, 4.1, 3.9], 110),
            ("linux-6.18:max=512K", [2.08, 2.18, 1.98], 190),
            ("linux-6.18:max=8M", [2.0, 2.1, 1.9], 180),
            ("linux-6.18:max=256K", [2.2, 2.3, 2.1], 115),
            ("rbd-plain", [1.0, 1.1, 0.9], 300),
        ]);
        let [kernel, any] = chosen(&all);
        let kernel = kernel.expect("a gain");
        assert_eq!(
            (kernel.what.as_str(), kernel.max_bytes),
            ("linux-6.18:max=512K", Some(512 << 10))
        );
        assert!(
            (kernel.ratio - 0.52).abs() < 1e-9
                && kernel.ratio_ci95.is_some_and(|[low, high]| low <= high)
        );
        assert_eq!(
            any.map(|g| (g.what, g.max_bytes)),
            Some(("rbd-plain".to_string(), None))
        );
    }

    /// 2.08 s beside 2 s in the mean, and up to a third of it in one run: that is no equality.
    #[test]
    fn a_smaller_window_that_is_not_told_apart_is_not_as_good() {
        let of = |small: [f64; 3]| {
            let all = report(&[
                (TODAY, [9.0, 9.1, 8.9], 110),
                ("linux-6.18:max=512K", small, 190),
                ("linux-6.18:max=8M", [2.0, 2.1, 1.9], 180),
            ]);
            let [kernel, _] = chosen(&all);
            kernel.map(|gain| gain.what)
        };
        let small = Some("linux-6.18:max=512K".to_string());
        assert_eq!(of([2.08, 2.18, 1.98]), small);
        assert_eq!(of([2.8, 1.5, 1.94]), Some("linux-6.18:max=8M".to_string()));
    }

    /// Today's time, that of `auto` in the model, and the time that `foreread run` took on disks 3 and 20 ms away: `cat`, a mapping, `sqlite3`,
    /// `sha256sum`. `unzip` reads for 0.04 s: `run` took longer.
    #[test]
    fn a_run_is_a_range_that_holds_and_none_if_it_may_gain_nothing() {
        let by_run = |today: f64, auto: f64| {
            let times = |s: f64| [s, s * 1.01, s * 0.99];
            let all = report(&[(TODAY, times(today), 1), (DEFAULT, times(auto), 1)]);
            run(&all, TODAY, false)
        };
        for (today, auto, took) in [
            (0.681, 0.475, 0.57),
            (1.366, 0.471, 0.68),
            (0.639, 0.198, 0.26),
            (3.97, 0.56, 0.80),
            (7.90, 0.56, 0.88),
            (3.10, 0.65, 1.07),
        ] {
            let gain = by_run(today, auto).expect("a gain");
            let [least, most] = gain.with_range_s.expect("a range");
            assert!(
                least * 0.8 <= took && took <= most * 1.26,
                "{least} to {most}: {took}"
            );
            assert!((gain.ratio - most / gain.today_s).abs() < 1e-9 && gain.ratio < 0.9);
        }
        assert_eq!(by_run(0.039, 0.029), None);
        assert_eq!(by_run(0.224, 0.193), None, "`git log -p`: 0.93 of its time");
    }

    /// Large folios are no setting of the kernel, however the policy is called.
    #[test]
    fn a_row_is_the_kernels_by_its_candidate_and_not_by_its_name() {
        let folios = report(&[
            (TODAY, [4.0, 4.1, 3.9], 1),
            ("linux-6.18:max=2M,folios=on", [1.0, 1.1, 0.9], 1),
        ]);
        let [kernel, any] = chosen(&folios);
        assert_eq!((kernel, any.map(|g| g.max_bytes)), (None, Some(None)));
    }

    /// A command that reads for 40 ms is no reason to change a disk.
    #[test]
    fn a_gain_that_is_not_noticed_is_none() {
        let of = |seconds: f64| {
            let all = report(&[
                (TODAY, [4.0, 4.1, 3.9].map(|n| n * seconds), 1),
                ("linux-6.18:max=8M", [1.0, 1.1, 0.9].map(|n| n * seconds), 1),
            ]);
            chosen(&all).map(|gain| gain.is_some())
        };
        assert_eq!((of(0.01), of(0.1)), ([false; 2], [true; 2]));
    }

    #[test]
    fn what_no_test_calls_a_gain_is_none() {
        let noise = report(&[
            (TODAY, [4.0, 5.0, 3.0], 1),
            ("linux-6.18:max=8M", [3.9, 3.0, 5.0], 1),
        ]);
        assert_eq!(chosen(&noise), [None, None]);
        assert_eq!(undecided(&noise, TODAY), None, "1 % in the mean");
        let open = report(&[
            (TODAY, [0.143, 0.859, 0.285], 1),
            ("linux-6.18:max=8M", [0.104, 0.106, 0.105], 1),
        ]);
        assert_eq!(chosen(&open), [None, None]);
        let (row, ratio) = undecided(&open, TODAY).expect("a quarter of the time");
        assert!(row.policy == "linux-6.18:max=8M" && (0.24..0.25).contains(&ratio));
        let worse = report(&[
            (TODAY, [1.0, 1.1, 0.9], 1),
            ("linux-6.18:max=8M", [2.0, 2.1, 1.9], 1),
        ]);
        assert_eq!(chosen(&worse), [None, None]);
        let small = report(&[
            (TODAY, [1.0, 1.001, 0.999], 1),
            ("linux-6.18:max=8M", [0.92, 0.921, 0.919], 1),
        ]);
        assert_eq!(
            chosen(&small),
            [None, None],
            "8 % is no reason to change a system"
        );
        let enough = report(&[
            (TODAY, [1.0, 1.001, 0.999], 1),
            ("linux-6.18:max=8M", [0.89, 0.891, 0.889], 1),
        ]);
        assert!(chosen(&enough).iter().all(Option::is_some));
    }
}
