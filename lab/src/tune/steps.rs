//! The possible steps that make the reads of a trace faster: for each step, how much it gains, and the command to paste.
//!
//! The list starts with the cheapest step that gains as much as the best step; then follow steps that are cheaper but gain less, then the
//! rest. Example: for `grep -r` over 2,000 files on storage with 3 ms latency, no setting helps, because no file is long enough. But
//! `run` reads the files of a folder ahead of `grep`.

use super::{MIN_GAIN, TuneOptions, TuneReport, candidates, text};
use crate::report::row::Relation;
use crate::verdict::{
    Gain, Means, Standing, Step, Verdict, in_shell, mount_behind, replay_lines, to_set,
};
use foreread_core::policy::DEFAULT;
use foreread_os::host::devices::Device;
use foreread_os::host::{DeviceNumber, Host};
use foreread_report::number::{percent, size_in_words as size, span_s};
use foreread_sim::stats::EQUIVALENCE_MARGIN;
use std::collections::BTreeMap;
use std::path::Path;

/// Number of files that a text names; the others are counted.
const NAMED: usize = 3;
const OFF_BYTES: u64 = 4 << 10;

/// The gain of each kind of step over today.
pub(super) type Gains = BTreeMap<Means, Gain>;

/// Converts gains from times of the model to times of the program: `program_s` returns the program's time for a time of the model.
pub(super) fn of_program(gains: Gains, program_s: impl Fn(f64) -> f64) -> Gains {
    let scaled = |gain: Gain| {
        let today_s = program_s(gain.today_s);
        let ratio = |ratio: f64| program_s(gain.today_s * ratio) / today_s;
        Gain {
            today_s,
            with_s: program_s(gain.with_s),
            with_range_s: gain.with_range_s.map(|range| range.map(&program_s)),
            ratio: ratio(gain.ratio),
            ratio_ci95: gain.ratio_ci95.map(|ends| ends.map(ratio)),
            ..gain
        }
    };
    let gains = gains.into_iter().map(|(means, gain)| (means, scaled(gain)));
    gains
        .filter(|(_, gain)| gain.ratio <= 1.0 - MIN_GAIN)
        .collect()
}

/// The storage that is tuned.
pub(super) struct Place<'a> {
    pub device: Option<Device>,
    /// The verdict about the disk, independent of these reads.
    pub disk: Option<&'a Verdict>,
}

/// All steps that gain, in the order of the advice, and how many of them are described: the others gain no more than
/// those.
pub(super) fn all(
    tuned: &TuneReport,
    asked: &TuneOptions,
    mut gains: Gains,
    place: &Place<'_>,
) -> (Vec<Step>, usize) {
    let [kernel, run, hint, policy, plan] = [
        Means::Setting,
        Means::Run,
        Means::Hint,
        Means::Policy,
        Means::Plan,
    ]
    .map(|means| gains.remove(&means));
    let off = policy.clone().filter(Gain::is_off);
    // If the best policy is a setting of the kernel, foreread is not needed for it.
    let policy = policy.filter(|gain| kernel.as_ref() != Some(gain) && !gain.is_off());
    let off_or_kernel = kernel.or(off);
    let ways = [
        off_or_kernel.map(|gain| setting(tuned, asked, gain, place)),
        run.map(|gain| by_run(gain, asked)),
        hint.map(|gain| by_hint(gain, &tuned.hint_files)),
        policy.map(|gain| by_foreread(gain, asked, tuned.is_dropped, place.device.as_ref())),
    ];
    let ways: Vec<Step> = ways.into_iter().flatten().collect();
    let gain = |step: &Step| step.gain.clone();
    let gains = ways.iter().filter_map(gain);
    let best = gains.min_by(|a, b| a.ratio.total_cmp(&b.ratio));
    let is_as_good = |gain: &Gain, other: &Gain| is_as_good(tuned, gain, other);
    let first = best.as_ref().and_then(|best| {
        let is_good = |way: &&Step| gain(way).is_some_and(|gain| is_as_good(best, &gain));
        ways.iter().find(is_good).map(|way| way.means)
    });
    let (mut said, mut rest): (Vec<Step>, Vec<Step>) = ways
        .into_iter()
        .partition(|way| first.is_some_and(|first| way.means <= first));
    said.sort_by_key(|way| (Some(way.means) != first, way.means));
    // Steps that cost more and gain no more than a described one are not described.
    said.dedup_by(|dear, cheap| {
        let is_dearer = dear.means > cheap.means && Some(cheap.means) != first;
        is_dearer
            && gain(dear)
                .zip(gain(cheap))
                .is_some_and(|(dear, cheap)| is_as_good(&dear, &cheap))
    });
    let count = said.len();
    let limit = said
        .iter()
        .chain(&rest)
        .filter_map(gain)
        .map(|gain| gain.ratio)
        .fold(1.0, f64::min);
    said.extend(
        plan.filter(|plan| plan.ratio < limit * (1.0 - MIN_GAIN))
            .map(|gain| by_plan(gain, asked)),
    );
    // The disk's setting is wrong for other reads.
    if !said
        .iter()
        .chain(&rest)
        .any(|step| step.means == Means::Setting)
    {
        said.extend(for_others(place));
    }
    // A server or a mount costs time that is not in its gain, so it has to gain more than what is described.
    rest.retain(|step| step.means != Means::Policy);
    said.append(&mut rest);
    (said, count)
}

/// Whether a step is equal to the best one; a kernel setting is then preferred to running a program. A hint is measured in
/// other runs than the policies, so the most distant ends of both intervals have to be within the margin.
fn is_as_good(tuned: &TuneReport, best: &Gain, gain: &Gain) -> bool {
    if best.what == gain.what {
        return true;
    }
    if best.with_range_s.or(gain.with_range_s).is_some() {
        return gain.ratio <= best.ratio * (1.0 + EQUIVALENCE_MARGIN);
    }
    if let Some(relation) = tuned.report.relation(&best.what, &gain.what) {
        return relation == Relation::Equivalent;
    }
    match best.ratio_ci95.zip(gain.ratio_ci95) {
        Some(([least, _], [_, most])) => most <= least * (1.0 + EQUIVALENCE_MARGIN),
        // Perfect foresight is computed and has no interval.
        None => gain.ratio <= best.ratio * (1.0 + EQUIVALENCE_MARGIN),
    }
}

fn step(means: Means, what: String, line: String, why: String, gain: Gain) -> Step {
    let why = format!("{why}{}", text::in_words(&gain));
    Step {
        means,
        what,
        text: line,
        why,
        gain: Some(gain),
    }
}

fn setting(tuned: &TuneReport, asked: &TuneOptions, gain: Gain, place: &Place<'_>) -> Step {
    // Without a maximum, readahead is off: the command then sets one page, the smallest value that it accepts.
    let bytes = gain.max_bytes.unwrap_or(OFF_BYTES);
    let Step {
        text: line, why, ..
    } = to_set(place.device.as_ref(), bytes);
    let what = format!(
        "Set the kernel's readahead to {}{}",
        size(bytes),
        beside_disk(tuned, bytes, place)
    );
    let mut step = step(Means::Setting, what, line, format!("{why} "), gain);
    step.why.push_str(&reach(tuned, asked.partial));
    step
}

/// Why these reads need another value than the disk.
fn beside_disk(tuned: &TuneReport, bytes: u64, place: &Place<'_>) -> String {
    let of_disk = place
        .disk
        .and_then(|disk| disk.should_bytes)
        .filter(|of_disk| *of_disk != bytes);
    let row = of_disk.and_then(|of_disk| tuned.report.row(&candidates::kernel(of_disk)));
    let Some((of_disk, with)) = of_disk.zip(row.and_then(|row| row.judged())) else {
        return String::new();
    };
    format!(
        " for these reads (the advice for the disk in general is {}, with which {} {} s)",
        size(of_disk),
        tuned.subject(),
        span_s(tuned.program_s(with.mean), None)
    )
}

/// The step for a value that gains nothing for these reads but is wrong for others.
fn for_others(place: &Place<'_>) -> Option<Step> {
    let disk = place
        .disk
        .filter(|disk| disk.standing == Standing::Suspicious)?;
    let step = disk.steps.first()?;
    Some(Step {
        what: format!(
            "Set {}'s readahead to {} for other programs",
            disk.device,
            size(disk.should_bytes?)
        ),
        why: format!(
            "This changes nothing for these reads, but {}; 'foreread doctor' says why.",
            text::uncapitalised(&disk.why)
        ),
        ..step.clone()
    })
}

/// Which part of the storage's load the figures cover.
fn reach(tuned: &TuneReport, partial: bool) -> String {
    let mut said = String::new();
    if let Some(chosen) = &tuned.chosen {
        let parts = [
            (chosen.bytes_share, "bytes"),
            (chosen.time_share, "reading time"),
        ];
        let parts = parts.into_iter().filter_map(|(share, of)| {
            let share = share.filter(|share| *share < 0.995)?;
            Some(format!("{} % of its {of}", percent(share)))
        });
        let parts: Vec<String> = parts.collect();
        if !parts.is_empty() {
            said = format!(
                " Only part of the program's reads is on this storage: {}.",
                parts.join(" and ")
            );
        }
    }
    if partial {
        said.push_str(" Only part of the trace was used (--only, --records).");
    }
    said + " Other programs that read from this storage are not included."
}

/// The recorded command, or a placeholder.
fn command(asked: &TuneOptions) -> String {
    match &asked.command[..] {
        [] => "CMD".to_string(),
        words => in_shell(words),
    }
}

fn by_run(gain: Gain, asked: &TuneOptions) -> Step {
    let why = match gain.is_limit() {
        true => "'foreread run' reads the files of a folder ahead, in listing order. ",
        false => "",
    };
    let line = format!("foreread run -- {}", command(asked));
    let what = "Run the program with 'foreread run'".to_string();
    step(Means::Run, what, line, why.to_string(), gain)
}

fn by_plan(gain: Gain, asked: &TuneOptions) -> Step {
    let trace = asked.trace.as_deref().unwrap_or(Path::new("TRACE"));
    let line = replay_lines(&trace.to_string_lossy(), &command(asked));
    let what = "If the program reads the same data each time, replay a plan of it".to_string();
    step(
        Means::Plan,
        what,
        line,
        "The plan is made from this one run. ".to_string(),
        gain,
    )
}

fn by_hint(gain: Gain, files: &[String]) -> Step {
    let named: Vec<&str> = files.iter().take(NAMED).map(String::as_str).collect();
    let more = match files.len().saturating_sub(NAMED) {
        0 => String::new(),
        n => format!(", and {n} more (--json has all)"),
    };
    let what = format!("Call posix_fadvise({}) in the program", gain.what);
    let line = format!("posix_fadvise(fd, 0, 0, {});", gain.what);
    step(
        Means::Hint,
        what,
        line,
        format!("After each open of {}{more}. ", named.join(", ")),
        gain,
    )
}

/// The type of a file system, as in mountinfo.
fn kind_of(number: DeviceNumber) -> String {
    let mut mounts = Host::here().mounts().into_iter();
    let mount = mounts.find(|mount| mount.number == number);
    mount.map_or_else(String::new, |mount| mount.kind)
}

fn by_foreread(gain: Gain, asked: &TuneOptions, is_dropped: bool, device: Option<&Device>) -> Step {
    let path = asked.storage.path();
    let source = path.map_or_else(
        || "SOURCE".to_string(),
        |path| in_shell([path.to_string_lossy()]),
    );
    let named = |flag: &str| match gain.what.as_str() {
        DEFAULT => String::new(),
        policy => flag.replace("POLICY", policy),
    };
    let (flag, option) = (named(" --policy POLICY"), named(".policy(\"POLICY\")"));
    if is_dropped {
        let kind = device
            .map(|device| kind_of(device.number))
            .unwrap_or_default();
        let what = format!(
            "Mount the source of this file system with foreread ({}) instead",
            gain.what
        );
        let why = "This replaces the current mount of the same bucket or server. A program that reads files of folders without listing them \
            takes the longer time. The gain is computed with the latencies of that mount; to measure without it, use 'foreread compare \
            --on' with a file of the bucket or server. ";
        return step(
            Means::Policy,
            what,
            mount_behind(&kind, &flag),
            why.to_string(),
            gain,
        );
    }
    let what = format!("Use foreread with {}", gain.what);
    let line = format!(
        "foreread serve {source} --unix foreread.sock{flag}\nforeread mount {source} DIR{flag}"
    );
    let why = format!(
        "Use an NBD server, a mount, or the library (Options::default(){option}). The cost of going through a server or a mount is not included. "
    );
    step(Means::Policy, what, line, why, gain)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1.366 s in the model for what took 1.345 s when it was recorded.
    #[test]
    fn no_gain_starts_from_more_time_than_was_recorded() {
        let kernel = Gain {
            max_bytes: Some(512 << 10),
            ratio: 0.345,
            today_s: 1.366,
            with_s: 0.472,
            with_range_s: Some([0.472, 0.683]),
            ..Gain::default()
        };
        let gains = Gains::from([(Means::Setting, kernel)]);
        let of = |program_s: &dyn Fn(f64) -> f64| {
            of_program(gains.clone(), program_s).remove(&Means::Setting)
        };
        let is_near = |(a, b): (f64, f64)| (a - b).abs() < 1e-3;
        let scaled = |s| s * 1.345 / 1.366;
        let beside = of(&|s| scaled(s) + 1.0).map(|gain| [gain.today_s, gain.ratio]);
        assert!(beside.is_some_and(
            |[today_s, ratio]| is_near((today_s, 2.345)) && is_near((ratio, 1.4640 / 2.345))
        ));
        assert_eq!(of(&|s| s + 10.0), None, "0.89 s of 11.4 s");
        let gain = of(&scaled).expect("a gain");
        let times = [gain.today_s, gain.with_s, gain.with_s / gain.today_s];
        let wanted = [1.345, 0.4647, 0.3455];
        assert!(times.into_iter().zip(wanted).all(is_near), "{times:?}");
        let range = gain.with_range_s.expect("a range");
        assert!(is_near((range[1], 0.6725)), "{range:?}");
    }
}
