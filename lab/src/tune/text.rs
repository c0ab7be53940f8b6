//! The text that `tune` prints, at most 100 columns wide: the verdict, the commands to paste and the measured storage;
//! if details are requested, also the table and the notes.
//!
//! Example: "Set the kernel's readahead to 8 MiB: the reads take 1.7 s instead of 26.3 s (15 times faster)."
//!
//! All figures come from [`TuneReport`].

use super::{MIN_GAIN, MIN_SAVED_S, OnDisk, TuneReport, WorkloadChoice, choose};
use crate::probe;
use crate::report::{
    self,
    row::{NOTE_OF_FILES, more_runs},
    table::Style,
};
use crate::verdict::{Gain, Means, Step};
use foreread_report::block::{self, Block};
use foreread_report::number::{self, size_b, size_in_words, span_s, times, wrap};
use foreread_report::width;

/// The gain of a step is stated with its bytes if it reads more than this factor times today's bytes.
const MANY_BYTES: f64 = 1.1;
/// Steps whose lines the terminal shows without details.
const SHOWN: usize = 4;

/// Why `foreread run`, plans and larger kernel windows are left out: with windows of 2 MiB, `sha256sum` over rclone took 8 times as long.
const DROPPED: &str = "'foreread run' and plans gain nothing here: the file system (FUSE without keep_cache) drops the cached pages of a file when \
     it is opened. The kernel's settings are left out: the FUSE server may process the parts of a larger readahead window out of order. A mount \
     of the same source by foreread is not measured here; to measure it, use 'foreread compare --on' with a file of the source.";

pub(super) fn in_words(gain: &Gain) -> String {
    let interval = gain.ratio_ci95.map_or_else(String::new, number::interval);
    let bytes = gain.bytes_ratio.filter(|r| (r - 1.0).abs() >= 0.01);
    let bytes = bytes.map_or_else(String::new, |r| format!(", for {} the bytes", times(r)));
    let [with, today] = [gain.with_s, gain.today_s].map(|seconds| span_s(seconds, None));
    if let Some(range) = gain.with_range_s {
        let [least, most] = range.map(|seconds| span_s(seconds, None));
        let [best, worst] = range.map(|seconds| times(seconds / gain.today_s));
        if range[1] >= gain.today_s {
            return format!(
                "At best {best} of today's time ({least} s instead of {today} s{bytes})."
            );
        }
        return format!(
            "Expected: {best} to {worst} of today's time, {least} to {most} s instead of {today} s{bytes}."
        );
    }
    let ratio = times(gain.ratio);
    format!("Expected: {ratio} of today's time{interval}, {with} s instead of {today} s{bytes}.")
}

/// The gain of a step that is described by its line only.
fn in_short(gain: &Gain) -> String {
    let [least, most] = gain.with_range_s.unwrap_or([gain.with_s; 2]);
    let [least, most] = [least, most].map(|seconds| times(seconds / gain.today_s));
    match gain.with_range_s {
        Some([_, most_s]) if most_s >= gain.today_s => format!("at best {least} of today's time"),
        Some(_) => format!("{least} to {most} of today's time"),
        None => format!("{least} of today's time"),
    }
}

/// A few sentences: what to do and what it gains, or that nothing is worth doing. Only the first `ways` steps are described
/// in full.
pub(super) fn verdict(tuned: &TuneReport, steps: &[Step], ways: usize) -> String {
    let tested = tuned.report.comparisons.iter().any(|c| c.p_value.is_some());
    if !tested {
        return "With one run of each policy, a gain cannot be told from noise: tune again with --runs 5 or more.".to_string();
    }
    let said = |step: &Step| match &step.gain {
        Some(gain) => format!("{}: {} {}.", step.what, tuned.subject(), effect(gain)),
        None => format!("{}.", step.what),
    };
    let mut sentences: Vec<String> = steps[..ways].iter().map(said).collect();
    for more in sentences.iter_mut().skip(1) {
        *more = format!("Or {}", uncapitalised(more));
    }
    if ways == 0 {
        sentences.push(no_way(tuned));
    }
    let also = steps[ways..]
        .iter()
        .filter(|step| step.means == Means::Plan || step.gain.is_none());
    sentences.extend(also.map(said));
    if tuned.is_dropped {
        sentences.push(DROPPED.to_string());
    }
    let has_limit = steps
        .iter()
        .any(|step| step.gain.as_ref().is_some_and(Gain::is_limit));
    let limit = tuned
        .report
        .limit()
        .filter(|_| !tuned.is_dropped && !has_limit && tuned.is_as_recorded());
    if let Some(limit) = limit.and_then(|row| row.judged()) {
        let beaten = tuned.report.oracle_beaten.as_ref();
        let beaten = beaten.map_or_else(String::new, |beaten| format!(" ({beaten})"));
        sentences.push(format!(
            "With perfect foresight: {} s{beaten}.",
            span_s(tuned.program_s(limit.mean), None)
        ));
    }
    sentences.join(" ") + &doubt(tuned)
}

/// "1.7 s instead of 26.3 s (15 times faster)".
fn effect(gain: &Gain) -> String {
    let bytes = gain.bytes_ratio.filter(|ratio| *ratio >= MANY_BYTES);
    let bytes = bytes.map_or_else(String::new, |ratio| {
        format!(", for {} times the bytes", number::three(ratio))
    });
    if let Some([least_s, most_s]) = gain.with_range_s {
        let [least, most, today] = [least_s, most_s, gain.today_s].map(|s| span_s(s, None));
        return match most_s < gain.today_s {
            true => format!(
                "{least} to {most} s instead of {today} s ({} to {} times faster{bytes})",
                number::three(gain.today_s / most_s),
                number::three(gain.today_s / least_s)
            ),
            false => format!("{least} s at best instead of {today} s, and may take as long as now"),
        };
    }
    format!(
        "{} s instead of {} s ({} times faster{bytes})",
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

/// The sentence for a run whose reads take almost no time.
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
            " and {at_least} s ({} {} s)",
            tuned.subject(),
            number::span_s(tuned.program_s(time_s), None)
        )
    })
}

/// The sentence for a run in which nothing gains: either the model does not match this storage, or no test finds a
/// gain.
fn no_way(tuned: &TuneReport) -> String {
    if let Some((recorded, today)) = tuned
        .recorded_s
        .zip(tuned.today_s())
        .filter(|_| !tuned.is_as_recorded())
    {
        let cached = match today > recorded {
            true => {
                " Data in the page cache during the recording can cause this: record from a cold cache."
            }
            false => {
                " Something else was slow during the recording, or the model lacks what these reads wait for: record again."
            }
        };
        let [recorded, today] = [recorded, today].map(|seconds| span_s(seconds, None));
        return format!(
            "No advice from the model: it predicts {today} s for reads that took {recorded} s when they were recorded.{cached}"
        );
    }
    let today = format!(
        "today's readahead of {}{}",
        size_in_words(tuned.today_bytes),
        if tuned.today_is_known {
            ""
        } else {
            " (the kernel's default; the storage's setting is unknown)"
        }
    );
    match choose::undecided(&tuned.report, &tuned.today) {
        Some((row, ratio)) => format!(
            "{} and {today} do not differ significantly in {} (ratio of their times: {}): tune again with --runs {}.",
            row.policy,
            number::plural(tuned.report.runs.into(), "run"),
            times(ratio),
            more_runs(tuned.report.runs)
        ),
        None if !tuned.explains_recorded() => {
            let times = [tuned.recorded_s, tuned.today_s()].map(|s| span_s(s.unwrap_or(0.0), None));
            let [recorded, today] = times;
            format!(
                "No advice: in the model nothing saves {} % of the time, but it predicts only {today} s for reads that took {recorded} s when \
                 they were recorded. Record again when the storage is idle.",
                number::percent(MIN_GAIN)
            )
        }
        None => format!(
            "Nothing to change: with {today}, no setting, hint or policy is expected to save {} % of the time{}.",
            number::percent(MIN_GAIN),
            short_time(tuned).unwrap_or_default()
        ),
    }
}

/// A warning if the model is far off the measurements.
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

/// Why a storage was chosen, and from which other storage the trace read.
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
        .chain(not_here.map(|one| format!("not found on this machine: {}", of_disk(one))))
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

/// The storage that was probed, how well the model fits it, and why it was chosen.
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

/// Formats the whole result as text for the terminal, with a newline at the end.
pub fn render(tuned: &TuneReport, style: Style) -> String {
    let steps = &tuned.verdict.steps;
    let mut blocks = vec![Block::Text(tuned.verdict.why.clone())];
    let shown = if style.details { steps.len() } else { SHOWN };
    for (n, step) in steps.iter().take(shown).enumerate() {
        let gain = step.gain.as_ref().filter(|_| n > 0 && !style.details);
        let gain = gain.map_or_else(String::new, |gain| format!(" ({})", in_short(gain)));
        let mut lines = vec![String::new(), format!("{}{gain}:", step.means.place())];
        lines.extend(step.text.lines().map(|line| format!("    {line}")));
        if n == 0 || style.details {
            let why = wrap(&step.why, width::columns() - 2);
            lines.extend(why.iter().map(|line| format!("  {line}")));
        }
        blocks.push(Block::Lines(lines));
    }
    blocks.push(Block::Gap);
    blocks.extend(storage(tuned).into_iter().map(Block::Text));
    let is_on_one = |note: &&String| tuned.chosen.is_none() && note.starts_with(NOTE_OF_FILES);
    let files = tuned.report.notes.iter().find(is_on_one);
    blocks.extend(files.filter(|_| !style.details).cloned().map(Block::Note));
    let notes = tuned.probe.iter().flat_map(|probe| &probe.notes);
    if style.details {
        blocks.push(Block::Gap);
        blocks.extend(report::table::blocks(&tuned.report, true));
        blocks.extend(notes.cloned().map(Block::Note));
    } else {
        let rows = number::plural(tuned.report.rows.len() as u64, "row");
        blocks.push(Block::Text(format!(
            "--why shows every step, and the table of all compared settings ({rows})."
        )));
    }
    block::text(blocks, width::columns(), style.bold)
}
