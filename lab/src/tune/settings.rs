//! What to set, as text to paste, with what it gains: for the kernel, for the program, and for foreread.
//!
//! Settings without a gain get no text.

use super::text::uncapitalised;
use super::{Gain, MIN_GAIN, TuneOptions, TuneReport, candidates};
use crate::advice::{self, Means, in_shell, replay_lines};
use crate::compare::CompareOn;
use crate::probe::{self, Probe};
use crate::report::RowKind;
use crate::setting::{Setting, SettingLimits, StorageCosts, fault_in_words, to_set};
use foreread_core::policy::DEFAULT;
use foreread_os::host::devices::Device;
use foreread_os::host::{DeviceNumber, Host};
use foreread_report::number::{percent, size, span_s};
use std::path::Path;

/// Files that are named in a text; more are counted.
const NAMED: usize = 3;

/// Everything there is to paste: first a plan where it is said first, then that of the means that is advised first, the others from the cheapest on.
pub(super) fn for_paste(tuned: &TuneReport, asked: &TuneOptions) -> Vec<Setting> {
    let path = asked.storage.path();
    let mut settings = [
        (Some(Means::Setting), kernel(tuned, path, asked)),
        (Some(Means::Run), run(tuned, asked)),
        (None, replay(tuned, asked)),
        (Some(Means::Hint), hint(tuned)),
        (Some(Means::Policy), ours(tuned, path)),
    ];
    let first = tuned.first.as_ref().map(|first| first.means);
    let is_led = super::text::is_led_by_plan(tuned);
    settings.sort_by_key(|(means, _)| match means {
        None if is_led => 0,
        Some(_) if *means == first => 1,
        _ => 2,
    });
    settings
        .into_iter()
        .filter_map(|(_, setting)| setting)
        .collect()
}

fn kernel(tuned: &TuneReport, path: Option<&Path>, asked: &TuneOptions) -> Option<Setting> {
    let device = device_of(path);
    let costs = tuned
        .probe
        .as_ref()
        .and_then(|probe| of_storage(probe, device.as_ref()));
    let Some(gain) = tuned.kernel.as_ref() else {
        return too_large(tuned, device.as_ref(), costs?);
    };
    let bytes = gain.max_bytes?;
    let setting = to_set(device.as_ref(), bytes);
    let warning =
        costs.filter(|(costs, limits)| bytes > limits.most_bytes(costs).max(tuned.today_bytes));
    let warning = warning.map_or_else(String::new, |(costs, _)| {
        format!(
            " Not where programs read by mappings: {}.",
            uncapitalised(&fault_in_words(
                &costs.at(bytes),
                &costs.at(tuned.today_bytes)
            ))
        )
    });
    Some(Setting {
        why: format!(
            "{} {}{}{warning}{}",
            setting.why,
            super::text::in_words(gain),
            reach(tuned, asked.partial),
            beside_disk(tuned, bytes)
        ),
        ..setting
    })
}

/// What a read of the storage costs, where it was measured, and what limits its setting.
fn of_storage(probe: &Probe, device: Option<&Device>) -> Option<(StorageCosts, SettingLimits)> {
    let rotates = device.is_some_and(|device| device.rotates == Some(true));
    let costs = probe::costs(&probe.points, rotates)?;
    let limits = SettingLimits {
        request_bytes: device.and_then(|device| device.max_request),
        memory_bytes: Host::here().memory_bytes(),
        faults_of_reads: None,
    };
    Some((costs, limits))
}

/// The device below a file.
pub(super) fn device_of(path: Option<&Path>) -> Option<Device> {
    path.and_then(|path| Host::here().device_of(path).ok())
}

/// What the storage should have whatever is read from it, where it was measured.
pub(super) fn of_disk(probe: &Probe, storage: &CompareOn) -> Option<u64> {
    let device = device_of(storage.path());
    let (costs, limits) = of_storage(probe, device.as_ref())?;
    Some(costs.best(&limits).readahead_bytes)
}

/// Why these reads have another value than the disk.
fn beside_disk(tuned: &TuneReport, bytes: u64) -> String {
    let Some(of_disk) = tuned.of_disk_bytes.filter(|of_disk| *of_disk != bytes) else {
        return String::new();
    };
    let row = tuned.report.row(&candidates::kernel(of_disk));
    let Some(with) = row.and_then(|row| row.judged()) else {
        return String::new();
    };
    format!(
        " 'foreread doctor', which knows no reads, names {} for this disk: with it these take {} s.",
        size(of_disk),
        span_s(with.mean, None)
    )
}

/// The present value gains these reads nothing, and is too large for others.
fn too_large(
    tuned: &TuneReport,
    device: Option<&Device>,
    (costs, limits): (StorageCosts, SettingLimits),
) -> Option<Setting> {
    let best = costs.best(&limits);
    let is_suspicious = tuned.today_is_known && costs.is_too_large(tuned.today_bytes, &best);
    is_suspicious.then(|| {
        let setting = to_set(device, best.readahead_bytes);
        Setting {
            why: format!(
                "Changes nothing for these reads, but {}; 'foreread doctor' says why. {}",
                uncapitalised(&fault_in_words(&costs.at(tuned.today_bytes), &best)),
                setting.why
            ),
            ..setting
        }
    })
}

/// How much of what the storage serves the figures are about.
fn reach(tuned: &TuneReport, partial: bool) -> String {
    let mut said = String::new();
    let part = |share: Option<f64>, of: &str| {
        share
            .filter(|one| *one < 0.995)
            .map(|one| (one, of.to_string()))
    };
    if let Some(chosen) = &tuned.chosen {
        let parts = [
            part(chosen.bytes_share, "bytes"),
            part(chosen.time_share, "reading time"),
        ];
        let parts: Vec<String> = parts
            .into_iter()
            .flatten()
            .map(|(one, of)| format!("{} % of its {of}", percent(one)))
            .collect();
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
    said.push_str(" Other programs that read from it are not included.");
    said
}

/// The program, as it was recorded, or a word for it.
fn command(asked: &TuneOptions) -> String {
    match &asked.command[..] {
        [] => "CMD".to_string(),
        words => in_shell(words),
    }
}

fn run(tuned: &TuneReport, asked: &TuneOptions) -> Option<Setting> {
    let gain = tuned.run.as_ref()?;
    let why = if gain.kind == Some(RowKind::Oracle) {
        "It reads the files of a folder ahead in their order; here as if all were known before. "
    } else {
        ""
    };
    Some(Setting {
        place: "this program, unmodified".to_string(),
        text: format!("foreread run -- {}", command(asked)),
        why: format!("{why}{}", super::text::in_words(gain)),
    })
}

/// Only where it gains more than `run` does.
fn replay(tuned: &TuneReport, asked: &TuneOptions) -> Option<Setting> {
    let gain = tuned.replay.as_ref()?;
    let run = tuned.run.as_ref().map_or(1.0, |run| run.ratio);
    let trace = asked.trace.as_deref()?.to_string_lossy();
    (gain.ratio < run * (1.0 - MIN_GAIN)).then(|| Setting {
        place: "this program, where it reads the same each time".to_string(),
        text: replay_lines(&trace, &command(asked)),
        why: format!(
            "The plan is of this one run. {}",
            super::text::in_words(gain)
        ),
    })
}

fn hint(tuned: &TuneReport) -> Option<Setting> {
    let gain = tuned.hint.as_ref()?;
    let named: Vec<&str> = tuned
        .hint_files
        .iter()
        .take(NAMED)
        .map(String::as_str)
        .collect();
    let more = match tuned.hint_files.len().saturating_sub(NAMED) {
        0 => String::new(),
        n => format!(", and {n} more (--json has all)"),
    };
    Some(Setting {
        place: "the program".to_string(),
        text: format!("posix_fadvise(fd, 0, 0, {});", gain.what),
        why: format!(
            "After each open of {}{more}. {}",
            named.join(", "),
            super::text::in_words(gain)
        ),
    })
}

/// The kind of a file system, as mountinfo has it.
fn kind_of(number: DeviceNumber) -> String {
    let mut mounts = Host::here().mounts().into_iter();
    let mount = mounts.find(|mount| mount.number == number);
    mount.map_or_else(String::new, |mount| mount.kind)
}

/// A mount of foreread in place of the file system that has the files now.
fn behind(gain: &Gain, kind: &str, flag: &str) -> Setting {
    Setting {
        place: "foreread".to_string(),
        text: advice::mount_behind(kind, flag),
        why: format!(
            "In place of this mount, for the bucket or server behind it. Computed with the times of this mount; 'foreread compare --on' \
             of a file there measures without it. {}",
            super::text::in_words(gain)
        ),
    }
}

fn ours(tuned: &TuneReport, path: Option<&Path>) -> Option<Setting> {
    let gain = tuned.policy.as_ref().filter(|gain| !gain.is_off())?;
    let source = path.map_or_else(
        || "SOURCE".to_string(),
        |path| in_shell([path.to_string_lossy()]),
    );
    let named = |flag: &str| match gain.what.as_str() {
        DEFAULT => String::new(),
        policy => flag.replace("POLICY", policy),
    };
    if tuned.is_dropped {
        let kind = device_of(path).map(|device| kind_of(device.number));
        let kind = kind.unwrap_or_default();
        return Some(behind(gain, &kind, &named(" --policy POLICY")));
    }
    let (flag, option) = (named(" --policy POLICY"), named(".policy(\"POLICY\")"));
    let is_kernels = tuned.kernel.as_ref() == Some(gain);
    let same = if is_kernels {
        "Gains as much as the kernel's setting above; use it if you cannot change that. "
    } else {
        ""
    };
    Some(Setting {
        place: "foreread".to_string(),
        text: format!(
            "foreread serve {source} --unix foreread.sock{flag}\nforeread mount {source} DIR{flag}\n\
             let options = foreread::Options::default(){option};\n\
             let reader = foreread::Reader::open(\"file:...\", options)?;"
        ),
        why: format!(
            "{same}Use one of the three: an NBD server, a mount, or the library. The cost of going through a server or a mount \
             is not included. {}",
            super::text::in_words(gain)
        ),
    })
}
