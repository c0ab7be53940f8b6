//! What `tune` says: where it was measured, the table, the verdict, and what to paste. At most 100 columns wide.
//!
//! Never: a figure that is not in [`Tuned`].

use super::{Chosen, Gain, MIN_GAIN, OnDisk, Tuned};
use crate::report::number::{self, size_b, span_s, times, wrap};
use crate::report::table::Style;
use crate::report::width;
use crate::report::{self};

/// A model that is this far off in the median orders policies no more: those of quiet machines were 14 % off.
const DOUBTFUL: f64 = 0.25;

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

/// In one or two sentences: what is worth doing, or that nothing is.
pub(super) fn verdict(tuned: &Tuned) -> String {
    let today = format!(
        "today's readahead of {}{}",
        size_b(tuned.today_bytes),
        if tuned.today_is_known { "" } else { " (the kernel's default; the storage's own is not known)" }
    );
    let mut ways: Vec<(&str, &Gain)> = Vec::new();
    ways.extend(tuned.kernel.as_ref().map(|gain| ("the kernel's setting", gain)));
    ways.extend(tuned.hint.as_ref().map(|gain| ("a hint in the program", gain)));
    // What the kernel can do as well is its own to do.
    let more = |gain: &&Gain| tuned.kernel.as_ref().is_none_or(|kernel| kernel.what != gain.what) && !gain.is_off();
    ways.extend(tuned.policy.as_ref().filter(more).map(|gain| ("foreread", gain)));
    let tested = tuned.report.comparisons.iter().any(|c| c.p_value.is_some());
    if !tested {
        return "One run of each does not separate a gain from noise: tune again with --runs 5 or more.".to_string();
    }
    let limit = tuned.report.rows.iter().find(|row| row.limit).and_then(|row| row.judged());
    let base = tuned.report.rows.iter().find(|row| row.policy == tuned.today).and_then(|row| row.judged());
    let limit = limit.zip(base).and_then(|(limit, base)| foreread_sim::stats::ratio(limit.mean, base.mean));
    let limit = limit.map_or_else(String::new, |r| format!(" With perfect foresight: {} of that time.", times(r)));
    let limit = format!("{limit}{}", doubt(tuned));
    if ways.is_empty() {
        let off = tuned.policy.as_ref().filter(|gain| gain.is_off());
        return match off {
            Some(gain) => format!(
                "Readahead costs time here: without any the reads take {} of the time of {today}; no setting of it gains.\
                 {limit}",
                times(gain.ratio)
            ),
            None => format!(
                "Nothing worth changing: no setting, hint or policy is expected to save {} % of the time of {today}.{limit}",
                number::percent(MIN_GAIN)
            ),
        };
    }
    ways.sort_by(|a, b| a.1.ratio.total_cmp(&b.1.ratio));
    let list: Vec<String> =
        ways.iter().map(|(way, gain)| format!("{} of the time by {way} ({})", times(gain.ratio), gain.what)).collect();
    format!("Against {today} the reads can take {}.{limit}", list.join(", or "))
}

/// A word on a model that is far off what was measured.
fn doubt(tuned: &Tuned) -> String {
    let fit = tuned.probe.as_ref().map(|probe| &probe.fit).filter(|fit| fit.median_error > DOUBTFUL);
    fit.map_or_else(String::new, |fit| {
        format!(
            " But the model is {} % off what was measured, in the median: take this for a hint, and measure again on a \
             quiet machine.",
            number::percent(fit.median_error)
        )
    })
}

/// Why a storage was chosen, and what else was read.
fn why(chosen: &Chosen) -> String {
    let share =
        |share: Option<f64>| share.map_or_else(|| "all".to_string(), |one| format!("{} %", number::percent(one)));
    let mut said = format!("Chosen: {}, with {} of the bytes", chosen.disk.disk, share(chosen.bytes_share));
    if chosen.time_share.is_some() {
        said.push_str(&format!(" and {} of the time that reads took", share(chosen.time_share)));
    }
    said.push_str(&format!(" ({}). Measured: {}.", of_disk(&chosen.disk), chosen.probed));
    let rest = chosen.others.iter().map(|one| format!("{}: {}", one.disk, of_disk(one)));
    let not_here = Some(&chosen.not_here).filter(|one| one.files > 0);
    let rest: Vec<String> =
        rest.chain(not_here.map(|one| format!("not on this machine by name: {}", of_disk(one)))).collect();
    if !rest.is_empty() {
        said.push_str(&format!(" Left out: {}.", rest.join("; ")));
    }
    said
}

fn of_disk(one: &OnDisk) -> String {
    let files = if one.files == 1 { "1 file".to_string() } else { format!("{} files", number::count(one.files)) };
    let time = one.time_s.map_or_else(String::new, |time| format!(", {} s", span_s(time, None)));
    format!("{files}, {}{time}", size_b(one.bytes))
}

/// All of it; ends with a newline.
#[must_use]
pub fn render(tuned: &Tuned, style: Style) -> String {
    let mut lines = Vec::new();
    if let Some(probe) = &tuned.probe {
        let holds = if probe.fit.holds { "holds" } else { "does not hold everywhere" };
        lines.extend(wrap(
            &format!(
                "Storage: {} ({}), {}; the model {holds}: {} % off in the median, {} % at worst.",
                probe.source,
                probe.source_about,
                probe.fit.figures,
                number::percent(probe.fit.median_error),
                number::percent(probe.fit.worst_error)
            ),
            width::columns(),
        ));
        tuned.chosen.iter().for_each(|chosen| lines.extend(wrap(&why(chosen), width::columns())));
        probe.notes.iter().for_each(|note| lines.extend(wrap(&format!("Note: {note}."), width::columns())));
        lines.push(String::new());
    }
    lines.push(report::render(&tuned.report, style));
    lines.extend(wrap(&tuned.verdict, width::columns()));
    for setting in &tuned.settings {
        lines.push(String::new());
        lines.push(format!("{}:", setting.place));
        setting.text.lines().for_each(|line| lines.push(format!("    {line}")));
        lines.extend(wrap(&setting.why, width::columns() - 2).iter().map(|line| format!("  {line}")));
    }
    lines.join("\n") + "\n"
}
