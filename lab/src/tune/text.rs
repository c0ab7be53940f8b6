//! What `tune` prints: the verdict, what to paste, where it was measured, the table, the notes. At most 100 columns wide.
//!
//! Example: "Set the kernel's readahead to 8 MiB: reads take 1.7 s instead of 26.3 s (15 times faster)."
//!
//! All figures come from [`TuneReport`].

use super::{FirstMeans, Gain, MIN_GAIN, MIN_SAVED_S, OnDisk, TuneReport, WorkloadChoice, choose};
use crate::advice::Means;
use crate::probe;
use crate::report;
use crate::report::row::{Relation, more_runs};
use crate::report::table::Style;
use foreread_report::block::{self, Block};
use foreread_report::number::{self, size_b, size_in_words, span_s, times, wrap};
use foreread_report::width;
use foreread_sim::stats::EQUIVALENCE_MARGIN;

/// Bytes of a way / those of today from which on its gain is said with them.
const MANY_BYTES: f64 = 1.1;

/// Why nothing is said of means beside the program, and of those that have the kernel ask for more at once: with windows of 2 MiB `sha256sum`
/// over rclone took 8 times as long.
const DROPPED: &str = " 'foreread run' and plans gain nothing here: the file system (FUSE without keep_cache) drops what is cached of a file when \
     that is opened. Settings of the kernel are left out: its server may not take the parts of a larger window in order. What a mount by \
     foreread of what is behind it takes is not measured: see 'foreread compare --on' of a file there.";

/// A gain in one sentence.
pub(super) fn in_words(gain: &Gain) -> String {
    let interval = gain.ratio_ci95.map_or_else(String::new, number::interval);
    let bytes = gain.bytes_ratio.filter(|r| (r - 1.0).abs() >= 0.01);
    let bytes = bytes.map_or_else(String::new, |r| format!(", for {} the bytes", times(r)));
    format!(
        "Expected: {} of today's time{interval}, {} s instead of {} s{bytes}.",
        times(gain.ratio),
        span_s(gain.with_s, None),
        span_s(gain.today_s, None)
    )
}

/// In a few sentences: what to do and what it gains, or that nothing is worth doing.
pub(super) fn verdict(tuned: &TuneReport) -> String {
    let tested = tuned.report.comparisons.iter().any(|c| c.p_value.is_some());
    if !tested {
        return "One run of each does not separate a gain from noise: tune again with --runs 5 or more.".to_string();
    }
    let ways = ways(tuned);
    let plan = tuned.replay.as_ref().filter(|plan| !is_gained(&ways, plan));
    let replayed = plan.map_or_else(String::new, |plan| {
        let what = "Where the program reads the same each time, replay a plan of it";
        format!("{what}: {}.", effect(plan))
    });
    let is_led = is_led_by_plan(tuned);
    let mut said = match &ways[..] {
        [] => no_way(tuned),
        [first, more @ ..] => {
            let or = more
                .iter()
                .map(|way| format!(" Or {}: {}.", uncapitalised(&way.text), effect(way.gain)));
            format!(
                "{}: {}.{}",
                first.text,
                effect(first.gain),
                or.collect::<String>()
            )
        }
    };
    if is_led {
        said = format!("{replayed} Else {}", uncapitalised(&said));
    } else if !replayed.is_empty() {
        said = format!("{said} {replayed}");
    }
    if tuned.is_dropped {
        said.push_str(DROPPED);
    }
    let is_said = tuned.is_dropped || !replayed.is_empty();
    let limit = tuned.report.limit().filter(|_| !is_said);
    if let Some(limit) = limit.and_then(|row| row.judged()) {
        let beaten = tuned.report.oracle_beaten.as_ref();
        let beaten = beaten.map_or_else(String::new, |beaten| format!(" ({beaten})"));
        said.push_str(&format!(
            " With perfect foresight: {} s{beaten}.",
            span_s(limit.mean, None)
        ));
    }
    said + &doubt(tuned)
}

/// Something that can be done, and what it gains.
struct Way<'a> {
    means: Means,
    text: String,
    gain: &'a Gain,
}

/// What is done first: the best way, or no readahead, which is a setting of the kernel.
pub(super) fn first(tuned: &TuneReport) -> Option<FirstMeans> {
    let of = |means, gain: &Gain| FirstMeans {
        means,
        gain: gain.clone(),
    };
    let way = ways(tuned).first().map(|way| of(way.means, way.gain));
    let off = || tuned.policy.as_ref().filter(|gain| gain.is_off());
    way.or_else(|| off().map(|gain| of(Means::Setting, gain)))
}

/// What can be done. First the cheapest that is as good as the best; then what is cheaper, and less good.
fn ways(tuned: &TuneReport) -> Vec<Way<'_>> {
    // A policy of the kernel needs no foreread.
    let policy = tuned.policy.as_ref();
    let policy = policy.filter(|gain| tuned.kernel.as_ref() != Some(*gain) && !gain.is_off());
    let all = [
        (Means::Setting, tuned.kernel.as_ref()),
        (Means::Run, tuned.run.as_ref()),
        (Means::Hint, tuned.hint.as_ref()),
        (Means::Policy, policy),
    ];
    let ways = all.into_iter().filter_map(|(means, gain)| {
        let gain = gain?;
        let text = match means {
            Means::Setting => {
                let max = gain.max_bytes;
                let max = max.map_or_else(|| gain.what.clone(), size_in_words);
                format!("Set the kernel's readahead to {max}")
            }
            Means::Run => "Run the program by 'foreread run'".to_string(),
            Means::Hint => format!("Call posix_fadvise({}) in the program", gain.what),
            Means::Policy if tuned.is_dropped => format!(
                "Mount what is behind this file system by foreread ({}) instead",
                gain.what
            ),
            Means::Policy => format!("Use foreread with {}", gain.what),
        };
        Some(Way { means, text, gain })
    });
    let ways: Vec<Way<'_>> = ways.collect();
    let fastest = ways.iter().map(|way| way.gain);
    let Some(fastest) = fastest.min_by(|a, b| a.ratio.total_cmp(&b.ratio)) else {
        return Vec::new();
    };
    let first = ways.iter().find(|way| is_as_good(tuned, fastest, way.gain));
    let first = first.map_or(Means::Policy, |way| way.means);
    let (mut cheaper, mut best): (Vec<_>, Vec<_>) = ways
        .into_iter()
        .filter(|way| way.means <= first)
        .partition(|way| way.means < first);
    // Of those that gain less, what is dearer and gains no more is not said.
    cheaper.dedup_by(|dear, cheap| is_as_good(tuned, dear.gain, cheap.gain));
    best.append(&mut cheaper);
    best
}

/// Whether a plan is said first: it halves what any other way leaves, and no other way halves the time of today.
pub(super) fn is_led_by_plan(tuned: &TuneReport) -> bool {
    let ways = ways(tuned);
    let best = ways.iter().map(|way| way.gain.ratio).fold(1.0, f64::min);
    let plan = tuned.replay.as_ref();
    best > 0.5 && plan.is_some_and(|plan| plan.ratio < best / 2.0)
}

/// Whether another way is nearly as good as a plan.
fn is_gained(ways: &[Way<'_>], plan: &Gain) -> bool {
    let near = |way: &Way<'_>| way.gain.ratio * (1.0 - MIN_GAIN) <= plan.ratio;
    ways.iter().any(near)
}

/// Whether a way is equal to the best one: a setting of the kernel is then named before a program to run. A hint is measured
/// in other runs than policies; the ends of both intervals that are farthest apart have to be within the margin.
fn is_as_good(tuned: &TuneReport, best: &Gain, gain: &Gain) -> bool {
    if best.what == gain.what {
        return true;
    }
    if let Some(relation) = tuned.report.relation(&best.what, &gain.what) {
        return relation == Relation::Equivalent;
    }
    match best.ratio_ci95.zip(gain.ratio_ci95) {
        Some(([least, _], [_, most])) => most <= least * (1.0 + EQUIVALENCE_MARGIN),
        // Perfect foresight is computed.
        None => gain.ratio <= best.ratio * (1.0 + EQUIVALENCE_MARGIN),
    }
}

/// "reads take 1.7 s instead of 26.3 s (15 times faster)".
fn effect(gain: &Gain) -> String {
    let bytes = gain.bytes_ratio.filter(|ratio| *ratio >= MANY_BYTES);
    let bytes = bytes.map_or_else(String::new, |ratio| {
        format!(", for {} times the bytes", number::three(ratio))
    });
    format!(
        "reads take {} s instead of {} s ({} times faster{bytes})",
        span_s(gain.with_s, None),
        span_s(gain.today_s, None),
        number::three(gain.ratio.recip())
    )
}

pub(super) fn uncapitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_lowercase().chain(letters).collect()
    })
}

/// Nothing gains: either readahead costs time, or no test finds a gain.
/// What is said of a run whose reads take no time to speak of.
fn short_time(tuned: &TuneReport) -> Option<String> {
    let base = tuned.report.row(&tuned.today)?;
    let time_s = base
        .time_s
        .as_ref()
        .filter(|_| base.latency_s.is_none())?
        .mean;
    let at_least = number::span_s(MIN_SAVED_S, None);
    let is_short = time_s < 10.0 * MIN_SAVED_S;
    is_short.then(|| {
        format!(
            " and {at_least} s: its reads take {} s in all",
            number::span_s(time_s, None)
        )
    })
}

fn no_way(tuned: &TuneReport) -> String {
    let today = format!(
        "today's readahead of {}{}",
        size_in_words(tuned.today_bytes),
        if tuned.today_is_known {
            ""
        } else {
            " (the kernel's default; the storage's setting is not known)"
        }
    );
    match tuned.policy.as_ref().filter(|gain| gain.is_off()) {
        Some(gain) => format!(
            "Readahead costs time here. Without it {}; no other setting gains.",
            effect(gain)
        ),
        None => match choose::undecided(&tuned.report, &tuned.today) {
            Some((row, ratio)) => format!(
                "{} is not told apart from {today} by {}, and took {} of its time: tune again with --runs {}.",
                row.policy,
                number::plural(tuned.report.runs.into(), "run"),
                times(ratio),
                more_runs(tuned.report.runs)
            ),
            None => format!(
                "Nothing to change: no setting, hint or policy is expected to save {} % of the time with {today}{}.",
                number::percent(MIN_GAIN),
                short_time(tuned).unwrap_or_default()
            ),
        },
    }
}

/// A warning about a model that is far off the measurements.
fn doubt(tuned: &TuneReport) -> String {
    let fit = tuned
        .probe
        .as_ref()
        .map(|probe| &probe.fit)
        .filter(|fit| fit.median_error > probe::DOUBTFUL);
    fit.map_or_else(String::new, |fit| {
        format!(
            " Low confidence: the storage behaved irregularly (typical error {} %). Repeat when it is idle.",
            number::percent(fit.median_error)
        )
    })
}

/// Why a storage was chosen, and what else was read.
fn why(chosen: &WorkloadChoice) -> String {
    let share = |share: Option<f64>| {
        share.map_or_else(
            || "all".to_string(),
            |one| format!("{} %", number::percent(one)),
        )
    };
    let mut said = format!(
        "Chosen: {}, with {} of the bytes",
        chosen.disk.disk,
        share(chosen.bytes_share)
    );
    if chosen.time_share.is_some() {
        said.push_str(&format!(
            " and {} of the time that reads took",
            share(chosen.time_share)
        ));
    }
    said.push_str(&format!(
        " ({}). Measured: {}.",
        of_disk(&chosen.disk),
        chosen.probed
    ));
    let rest = chosen
        .others
        .iter()
        .map(|one| format!("{}: {}", one.disk, of_disk(one)));
    let not_here = Some(&chosen.not_here).filter(|one| one.files > 0);
    let rest: Vec<String> = rest
        .chain(not_here.map(|one| format!("not on this machine by name: {}", of_disk(one))))
        .collect();
    if !rest.is_empty() {
        said.push_str(&format!(" Left out: {}.", rest.join("; ")));
    }
    said
}

fn of_disk(one: &OnDisk) -> String {
    let files = number::plural(one.files, "file");
    let time = one
        .time_s
        .map_or_else(String::new, |time| format!(", {} s", span_s(time, None)));
    format!("{files}, {}{time}", size_b(one.bytes))
}

/// The storage that was probed, how well the model fits it, and why it is this one.
pub(super) fn storage(tuned: &TuneReport) -> Vec<String> {
    let Some(probe) = &tuned.probe else {
        return Vec::new();
    };
    let typical = number::percent(probe.fit.median_error);
    let worst = number::percent(probe.fit.worst_error);
    let storage = format!(
        "Storage: {} ({}), {}; model error {typical} % (worst {worst} %).",
        probe.source, probe.source_about, probe.fit.figures
    );
    [storage]
        .into_iter()
        .chain(tuned.chosen.as_ref().map(why))
        .collect()
}

/// All of it; ends with a newline.
#[must_use]
pub fn render(tuned: &TuneReport, style: Style) -> String {
    let mut blocks = vec![Block::Screen(tuned.verdict.clone())];
    for setting in &tuned.settings {
        let mut lines = vec![String::new(), format!("{}:", setting.place)];
        lines.extend(setting.text.lines().map(|line| format!("    {line}")));
        let why = wrap(&setting.why, width::columns() - 2);
        lines.extend(why.iter().map(|line| format!("  {line}")));
        blocks.push(Block::Lines(lines));
    }
    blocks.push(Block::Gap);
    if tuned.probe.is_some() {
        blocks.extend(storage(tuned).into_iter().map(Block::Screen));
        blocks.push(Block::Gap);
    }
    blocks.extend(report::table::blocks(&tuned.report, style.details));
    let notes = tuned.probe.iter().flat_map(|probe| &probe.notes);
    blocks.extend(notes.cloned().map(Block::Note));
    block::text(blocks, width::columns(), style.bold)
}
