//! `foreread watch`: has the lab watch a disk, prints a line for each recording and each change.
//!
//! ```text
//!   Ctrl-C, SIGTERM, SIGHUP ──► the value is put back, the end          a second one ──► the end at once; the guard puts it back
//! ```
//! The lines are the result, so they go to stdout. Never: a decision.

use crate::args::values::time;
use crate::fail::{Fail, one_line};
use crate::out;
use crate::source;
use foreread::source::SourceName;
use foreread_attach::doctor::render;
use foreread_attach::watch::{
    AtEnd, Decision, Finding, Recording, WatchEvent, WatchOptions, WatchedDisk, watch,
};
use foreread_lab::tune::MIN_GAIN;
use foreread_os::threads;
use foreread_report::number::{amount, count, percent};
use foreread_sim::device::presets::Preset;
use serde_json::{Value, json};
use signal_hook::iterator::Signals;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::{Duration, SystemTime};

/// Set read_ahead_kb of a disk by what its readers do
///
/// A daemon. It begins with what 'foreread doctor' says of the disk; now and then it records what every process reads of files on the disk (kernel's tracepoints: root, tracefs), compares settings as
/// 'foreread tune' does, and sets what saves at least 10 % of the time that reads take. Two recordings one after the other
/// have to say the same. A value that is too large for page faults gives way to a smaller one where programs read by mappings; where
/// memory is short none is raised. The old value comes back when the gain is gone, and at the end: by Ctrl-C, SIGTERM, or a guard process after SIGKILL. A
/// value that another program sets meanwhile stays.
///
/// Files that are open keep the old value. Reads of the device itself (a virtual machine's disk) and past the page cache are not
/// seen. A recording costs the machine's system calls half a microsecond each while it runs.
///
/// Before it begins: 2 bad input, 3 this machine cannot.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread watch /dev/sdb --dry-run
  foreread watch /dev/sdb --every 30m --on model:sdb.toml")]
pub struct WatchArgs {
    /// The disk, such as /dev/sdb
    #[arg(value_name = "DEVICE")]
    pub device: PathBuf,
    /// From the start of a recording to the next
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = time)]
    pub every: Duration,
    /// How long to record
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = time)]
    pub length: Duration,
    /// Part of the reads' time that a change has to save
    #[arg(long, value_name = "PERCENT", default_value = "10%", value_parser = min_gain)]
    pub min_gain: f64,
    /// A model of the disk [default: it is measured]
    ///
    /// model:NAME or model:FILE.toml, which 'foreread probe DEVICE -o FILE.toml' writes. By default the disk is measured when a recording has
    /// enough reads, and again after a day: 15 seconds of direct reads.
    #[arg(long, value_name = "MODEL")]
    pub on: Option<SourceName>,
    /// Say what would be set, and set nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Make one recording, say what it shows, set nothing
    #[arg(long)]
    pub once: bool,
    /// Print a line of JSON for each event
    ///
    /// Schema foreread.watch/1.
    #[arg(long)]
    pub json: bool,
}

/// How long a disk is measured, in seconds: as by `tune`.
const PROBE_SECONDS: f64 = 15.0;
/// A longer recording has as many events as there may be on any machine that reads.
const MAX_LENGTH: Duration = Duration::from_secs(10 * 60);

/// Watches.
pub fn run(args: &WatchArgs) -> Result<(), Fail> {
    if args.length > args.every && !args.once {
        let remedy = "make --every longer, or --for shorter";
        return Err(Fail::input(
            "a recording longer than its interval",
            "--for",
            remedy,
        ));
    }
    if args.length > MAX_LENGTH {
        return Err(Fail::input(
            "the recording is too long",
            "--for",
            "record at most 10m",
        ));
    }
    let options = WatchOptions {
        disk: WatchedDisk::find(&args.device)?,
        every: args.every,
        length: args.length,
        min_gain: args.min_gain,
        is_dry: args.dry_run,
        once: args.once,
        model: args.on.as_ref().map(model).transpose()?,
        probe_seconds: PROBE_SECONDS,
        folder: std::env::temp_dir(),
    };
    crate::signals::end_at_second_signal()?;
    let mut signals = Signals::new(crate::signals::ending()).map_err(crate::signals::no_handler)?;
    let (handle, (to, stop)) = (signals.handle(), channel());
    let wait = move || {
        signals
            .forever()
            .for_each(|_| to.send(()).unwrap_or_default())
    };
    threads::spawn("foreread-signals", wait).map_err(Fail::of)?;
    let name = options.disk.name.clone();
    let mut closed = None;
    let done = watch(&options, &stop, |event| {
        let line = if args.json {
            in_json(event, &name)
        } else {
            in_words(event, &options)
        };
        // A log without a reader is no reason to end: the value would be put back.
        closed = out::print(line + "\n").err();
    });
    handle.close();
    done?;
    closed.map_or(Ok(()), |fail| {
        if matches!(fail, Fail::Closed) {
            Ok(())
        } else {
            Err(fail)
        }
    })
}

/// What `--on` names.
fn model(name: &SourceName) -> Result<&'static Preset, Fail> {
    let on = source::parse(name)?;
    on.preset().filter(|_| on.is_simulated()).ok_or_else(|| {
        let remedy = "write model:NAME or model:FILE.toml ('foreread probe DEVICE -o FILE.toml'), or leave it out";
        Fail::input(
            "watch accepts models only",
            format!("--on {name}"),
            remedy,
        )
    })
}

fn in_words(event: &WatchEvent<'_>, options: &WatchOptions) -> String {
    let name = &options.disk.name;
    let line = match event {
        WatchEvent::Started(kib, verdict) => {
            let rounds = match options.once {
                true => "one recording of".to_string(),
                false => format!(
                    "every {} a recording of",
                    humantime::format_duration(options.every)
                ),
            };
            let dry = if options.is_dry || options.once {
                ", nothing is set"
            } else {
                ""
            };
            let verdict = verdict.map_or_else(String::new, |verdict| {
                format!("doctor: {}; ", render::line(verdict))
            });
            format!(
                "{verdict}read_ahead_kb is {kib}; {rounds} {}{dry}",
                humantime::format_duration(options.length)
            )
        }
        WatchEvent::Recorded(finding) => {
            format!(
                "{}; {}",
                of_recording(finding.recording),
                of_decision(finding)
            )
        }
        WatchEvent::Set(before, now) => {
            format!("read_ahead_kb set to {now}, was {before}; open files keep theirs")
        }
        WatchEvent::Failed(error) => format!("no answer: {error}"),
        WatchEvent::Ended(_, AtEnd::Old(kib)) => {
            format!("ended; read_ahead_kb is {kib}, as at the start")
        }
        WatchEvent::Ended(old, AtEnd::Foreign(kib)) => {
            format!(
                "ended; read_ahead_kb is {kib}, set by another program, and is not put back to {old}"
            )
        }
        WatchEvent::Ended(old, AtEnd::Failed) => {
            format!(
                "ended; read_ahead_kb could not be put back to {old}: echo {old} > {}",
                options.disk.setting.display()
            )
        }
    };
    one_line(&format!("{name}: {line}"))
}

fn of_recording(recording: &Recording) -> String {
    let Recording {
        seconds,
        reads,
        bytes,
        faults,
        waited_s,
        refault_bytes,
        disk_bytes: _,
        lost_events,
        is_cut,
        is_walk,
    } = recording;
    let mut text = format!(
        "{} reads ({}) took {waited_s:.2} s in {seconds:.1} s",
        count(*reads),
        amount(*bytes)
    );
    if let Some(part) = recording.faults_of_reads().filter(|_| *faults > 0) {
        text.push_str(&format!(", {} % of them page faults", percent(part)));
    }
    if *refault_bytes > 0 {
        text.push_str(&format!(
            ", {} of files read again soon after they were dropped",
            amount(*refault_bytes)
        ));
    }
    if *is_cut {
        text.push_str(", cut short by its number of events");
    }
    if *lost_events > 0 {
        text.push_str(&format!(", {} events lost", count(*lost_events)));
    }
    if *is_walk {
        text.push_str(", a walk through folders: no value helps it, 'foreread run -- CMD' does");
    }
    text
}

fn of_decision(finding: &Finding<'_>) -> String {
    let Finding {
        recording: _,
        decision,
        kib,
        best,
        harm,
    } = finding;
    let gain = |value: &u64| match (best, harm) {
        (_, Some(harm)) if harm.advised == Some(*value) => {
            format!("{value} is as fast for these reads, and {kib} is too large for page faults")
        }
        (Some((best, ratio)), _) if best == value => {
            format!("{value} would take {} % of the time", percent(*ratio))
        }
        _ => format!("{kib} shows no gain any more"),
    };
    match decision {
        Decision::Keep if best.is_some_and(|(best, _)| best > *kib) && harm.is_some() => {
            format!("{kib} is kept: memory is short, and a larger value takes more")
        }
        Decision::Keep => format!("{kib} is kept"),
        Decision::Once(value) => format!("{}: the next recording has to say so too", gain(value)),
        Decision::Set(value) => format!("{}, for the second time", gain(value)),
        Decision::NoAnswer => "too little to say anything".to_string(),
        Decision::Foreign => format!("another program has set {kib}, which stays"),
    }
}

fn in_json(event: &WatchEvent<'_>, disk: &str) -> String {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64();
    let (what, fields) = match event {
        WatchEvent::Started(kib, verdict) => (
            "started",
            json!({ "read_ahead_kb": kib, "doctor": verdict }),
        ),
        WatchEvent::Recorded(finding) => ("recorded", recorded(finding)),
        WatchEvent::Set(before, now) => {
            ("set", json!({ "read_ahead_kb": now, "before_kb": before }))
        }
        WatchEvent::Failed(error) => ("failed", json!({ "error": error.to_string() })),
        WatchEvent::Ended(old, end) => {
            let (kib, is_old) = match end {
                AtEnd::Old(kib) => (Some(kib), true),
                AtEnd::Foreign(kib) => (Some(kib), false),
                AtEnd::Failed => (None, false),
            };
            (
                "ended",
                json!({ "read_ahead_kb": kib, "old_kb": old, "is_old": is_old }),
            )
        }
    };
    let mut whole =
        json!({ "schema": "foreread.watch/1", "unix_s": now, "disk": disk, "event": what });
    if let (Some(whole), Value::Object(fields)) = (whole.as_object_mut(), fields) {
        whole.extend(fields);
    }
    whole.to_string()
}

fn recorded(finding: &Finding<'_>) -> Value {
    let Finding {
        recording,
        decision,
        kib,
        best,
        harm,
    } = finding;
    let (word, wanted) = match decision {
        Decision::Keep => ("keep", None),
        Decision::Once(value) => ("once", Some(*value)),
        Decision::Set(value) => ("set", Some(*value)),
        Decision::NoAnswer => ("no-answer", None),
        Decision::Foreign => ("foreign", None),
    };
    json!({
        "seconds": recording.seconds,
        "reads": recording.reads,
        "bytes": recording.bytes,
        "faults": recording.faults,
        "refault_bytes": recording.refault_bytes,
        "disk_bytes": recording.disk_bytes,
        "waited_s": recording.waited_s,
        "lost_events": recording.lost_events,
        "is_cut": recording.is_cut,
        "is_walk": recording.is_walk,
        "decision": word,
        "wanted_kb": wanted,
        "read_ahead_kb": kib,
        "best_kb": best.map(|(value, _)| value),
        "best_ratio": best.map(|(_, ratio)| ratio),
        "memory_is_short": harm.is_some_and(|harm| harm.is_memory_short),
        "too_large_for_faults": harm.is_some_and(|harm| harm.advised.is_some()),
    })
}

/// A part of the time that is worth a change, in per cent: the tenth that `tune` asks for, or more.
fn min_gain(text: &str) -> Result<f64, String> {
    let percent: Option<f64> = text
        .strip_suffix('%')
        .unwrap_or(text)
        .trim_end()
        .parse()
        .ok();
    let part = percent
        .map(|percent| percent / 100.0)
        .filter(|part| (MIN_GAIN..=0.9).contains(part));
    part.ok_or_else(|| "write 10% to 90%: less is within what a model is off".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gains() {
        assert_eq!(
            (min_gain("10%"), min_gain("25"), min_gain("90 %")),
            (Ok(0.1), Ok(0.25), Ok(0.9))
        );
        assert!(
            ["9%", "91%", "0.2", "much", "-20%", "nan", ""]
                .into_iter()
                .all(|text| min_gain(text).is_err())
        );
    }
}
