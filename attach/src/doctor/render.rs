//! The result of `doctor` as blocks: the wrong settings and the command that fixes them, in at most twelve lines; with
//! `--why` also the reasons for each device. Also as a text file for the Prometheus node exporter.

use super::look::StorageKind;
use super::verdict::{DeviceVerdict, DoctorReport};
use foreread_lab::verdict::Standing;
use foreread_lab::verdict::disk::ratios;
use foreread_report::block::Block;
use foreread_report::number::{plural, size_in_words as size, three};

const MAX_NAMES: usize = 6;
/// Notes on the first screen; the most important notes come first.
const MAX_NOTES: usize = 1;
/// Most groups of devices with the same text that get a separate line in the reasons.
const MAX_GROUPS: usize = 40;

const TOO_BUSY: &str = "The machine is too busy to measure which value is right.";

/// Devices by rating, the most important first.
struct Sorted<'a> {
    bad: Vec<&'a DeviceVerdict>,
    gain: Vec<&'a DeviceVerdict>,
    fine: Vec<&'a DeviceVerdict>,
    /// No value is advised, because the machine was too busy to measure them.
    busy: Vec<&'a DeviceVerdict>,
}

impl<'a> Sorted<'a> {
    fn of(report: &'a DoctorReport) -> Sorted<'a> {
        let of = |standing: Standing| {
            let devices = report.devices.iter();
            devices
                .filter(|device| device.verdict.standing == standing)
                .collect::<Vec<_>>()
        };
        let (busy, fine) = of(Standing::Fine).iter().partition(|device| device.is_busy);
        let mut sorted = Sorted {
            bad: of(Standing::Suspicious),
            gain: of(Standing::Gain),
            fine,
            busy,
        };
        // Devices in use come first; a disk comes before the devices built on it.
        sorted.bad.sort_by_key(|device| {
            let is_used = !device.mounts.is_empty() || device.is_swap;
            (!is_used, device.kind != StorageKind::Disk)
        });
        // A mount keeps its value until it is unmounted, a disk permanently.
        sorted.gain.sort_by(|one, other| {
            let key = |device: &DeviceVerdict| (is_disk(device), factor(device));
            key(other)
                .partial_cmp(&key(one))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        sorted
    }
}

/// Formats the report of `doctor` as text blocks that fit on one screen.
pub fn blocks(report: &DoctorReport) -> Vec<Block> {
    let Sorted {
        bad,
        gain,
        fine,
        busy,
    } = Sorted::of(report);
    let all = report.devices.len();
    let mut blocks = Vec::new();
    let first = bad.first().or(gain.first()).or(busy.first()).copied();
    match first {
        None if all == 0 => {
            blocks.push(Block::Text(
                "Nothing to examine: no device reads ahead here.".to_string(),
            ));
        }
        None if all == 1 => {
            let device = fine[0];
            let right = match device.costs.is_measured {
                true => "This is right for the device.",
                false => "This is right for its kind; the device was not measured.",
            };
            blocks.push(Block::Text(format!("{} {right}", readahead(device, "."))));
        }
        None if fine.iter().all(|device| device.costs.is_measured) => {
            blocks.push(Block::Text(format!(
                "Readahead is right on all {}.",
                plural(all as u64, "device")
            )));
        }
        None => blocks.push(Block::line("No device has a wrong readahead.")),
        Some(device) => blocks.extend(one(device)),
    }
    if bad.len() > 1 {
        let more: Vec<String> = bad[1..]
            .iter()
            .map(|device| format!("{} ({})", called(device), value(device)))
            .collect();
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        blocks.push(Block::Text(format!("Also suspicious: {}.", names(&more))));
    }
    for (what, list) in [
        ("A larger one would help", gain),
        ("Not measured, because the machine was busy", busy),
    ] {
        let is_first =
            |device: &DeviceVerdict| first.is_some_and(|first| std::ptr::eq(first, device));
        let list = list.into_iter().filter(|device| !is_first(device));
        let list: Vec<&str> = list.map(called).collect();
        if !list.is_empty() {
            blocks.push(Block::Text(format!("{what}: {}.", names(&list))));
        }
    }
    let is_measured = |device: &&DeviceVerdict| device.costs.is_measured;
    let (measured, assumed): (Vec<_>, Vec<_>) = fine.into_iter().partition(is_measured);
    if first.is_some() && !measured.is_empty() {
        let others = plural(measured.len() as u64, "other device");
        blocks.push(Block::Text(format!("Right on {others}.")));
    }
    if !assumed.is_empty() && all > 1 {
        blocks.push(Block::Text(format!(
            "Not measured, with the usual readahead of their kind: {}. 'foreread doctor DEVICE' measures one.",
            plural(assumed.len() as u64, "device")
        )));
    }
    blocks.extend(
        report
            .notes
            .iter()
            .take(MAX_NOTES)
            .map(|note| Block::Note(note.clone())),
    );
    let next = "Next: foreread tune -- CMD, for one program; doctor --why has the reasons.";
    blocks.push(Block::line(next));
    blocks
}

/// Formats the reasons for the rating of each device as text blocks, for `--why`.
pub fn reasons(report: &DoctorReport) -> Vec<Block> {
    let sorted = Sorted::of(report);
    let mut blocks = Vec::new();
    for device in [&sorted.bad, &sorted.gain, &sorted.busy]
        .into_iter()
        .flatten()
    {
        blocks.extend(one(device));
        blocks.push(Block::Indented(4, vec![Block::Text(reason(device))]));
        blocks.push(Block::Gap);
    }
    blocks.extend(alike(&sorted.fine));
    blocks.push(Block::Text(report.pressure.words.clone()));
    blocks.extend(report.notes.iter().map(|note| Block::Note(note.clone())));
    blocks
}

/// `vda: readahead is 8 MiB (default since Linux 6.17)`, followed by `end`.
fn readahead(device: &DeviceVerdict, end: &str) -> String {
    format!(
        "{}: readahead is {} ({}){end}",
        called(device),
        value(device),
        device.origin
    )
}

fn value(device: &DeviceVerdict) -> String {
    device
        .verdict
        .has_bytes
        .map_or_else(|| "-".to_string(), size)
}

fn is_disk(device: &DeviceVerdict) -> bool {
    device.rotates.is_some()
}

/// A device that is not fine: what is wrong, the line that sets it, and what that changes.
fn one(device: &DeviceVerdict) -> Vec<Block> {
    let verdict = &device.verdict;
    let why = match verdict.why.as_str() {
        "" => ".".to_string(),
        why => format!("; {why}."),
    };
    let mut text = readahead(device, &why);
    if device.is_busy {
        text += &format!(" {TOO_BUSY} Run doctor again when it is idle.");
    }
    let mut blocks = vec![Block::Text(text)];
    for step in &verdict.steps {
        let after = match is_disk(device) {
            true => format!("undo: foreread doctor --undo {}", verdict.device),
            false => "until it is unmounted".to_string(),
        };
        blocks.push(Block::line(format!(
            "    {}:  {}     {after}",
            step.what, step.text
        )));
        blocks.push(Block::Indented(4, vec![Block::Text(step.why.clone())]));
    }
    blocks
}

/// Why the value is what it is, what the device is, and the other costs of the value.
fn reason(device: &DeviceVerdict) -> String {
    let mut text = format!("{}: {}.", device.about, device.reason);
    if !device.mounts.is_empty() {
        let places: Vec<&str> = device.mounts.iter().map(String::as_str).collect();
        text += &format!(" Mounted at {}.", names(&places));
    }
    if device.is_swap {
        text += " Swap is on it.";
    }
    if let (Some(now), Some(to)) = (&device.now, &device.advised) {
        let [_, four] = ratios(now, to);
        let streams = [now.streams_bytes, to.streams_bytes].map(size);
        text += &format!(
            " Four sequential readers together would be {} times as fast. Sixteen sequential readers need {} of memory now; with a readahead of {} they need {}.",
            three(four),
            streams[0],
            size(to.readahead_bytes),
            streams[1]
        );
    }
    text
}

/// Formats the rating of one device as one line, for a log.
pub fn line(device: &DeviceVerdict) -> String {
    let verdict = &device.verdict;
    let value = verdict.has_bytes;
    let value = value.map_or_else(|| "-".to_string(), foreread_report::number::size);
    if device.is_busy {
        let reason = [verdict.why.as_str(), &device.reason]
            .into_iter()
            .find(|text| !text.is_empty());
        return format!("{value}: {}. {TOO_BUSY}", reason.unwrap_or_default());
    }
    let Some(step) = verdict.steps.first() else {
        return format!("{value} is fine: {}", device.reason);
    };
    let word = match verdict.standing {
        Standing::Suspicious => "is suspicious",
        _ => "could gain",
    };
    format!(
        "{value} {word}: {}. {}: {} ({})",
        verdict.why, step.what, step.text, step.why
    )
}

/// The name of a device for people. A file system without a disk has a number, so the place where it is mounted is
/// used.
fn called(device: &DeviceVerdict) -> &str {
    let name = &device.verdict.device;
    let is_number = name.starts_with(|c: char| c.is_ascii_digit());
    // Any user may choose the name of a folder: a name with control characters is not shown.
    let is_plain = |place: &&String| !place.chars().any(char::is_control);
    let place = device.mounts.first().filter(|_| is_number);
    place.filter(is_plain).unwrap_or(name)
}

fn names(list: &[&str]) -> String {
    let shown = list
        .iter()
        .take(MAX_NAMES)
        .copied()
        .collect::<Vec<_>>()
        .join(", ");
    match list.len().saturating_sub(MAX_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// How much faster sequential readers would be: one or four of them.
fn factor(device: &DeviceVerdict) -> f64 {
    let sizes = device.now.as_ref().zip(device.advised.as_ref());
    let [one, four] = sizes.map_or([1.0; 2], |(now, to)| ratios(now, to));
    one.max(four)
}

/// Fine devices: those with the same value and the same text share a line.
fn alike(devices: &[&DeviceVerdict]) -> Vec<Block> {
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for device in devices {
        let right = match device.costs.is_measured {
            true => "right",
            false => "right for its kind, not measured",
        };
        let text = format!("{}, {right}: {}", value(device), device.reason);
        match groups.iter_mut().find(|(other, _)| *other == text) {
            Some((_, names)) => names.push(called(device)),
            None => groups.push((text, vec![called(device)])),
        }
    }
    let more = groups.len().saturating_sub(MAX_GROUPS);
    groups.truncate(MAX_GROUPS);
    let line =
        |(text, list): (String, Vec<&str>)| Block::Text(format!("{}: {text}.", names(&list)));
    let mut blocks: Vec<Block> = groups.into_iter().map(line).collect();
    if more > 0 {
        blocks.push(Block::Text(format!(
            "{more} more groups of devices are listed with --json."
        )));
    }
    blocks
}

// The metrics file: a text file for the Prometheus node exporter.

type GaugeValue = fn(&DeviceVerdict) -> Option<u64>;

const GAUGES: [(&str, &str, GaugeValue); 4] = [
    (
        "foreread_doctor_readahead_bytes",
        "read_ahead_kb of the device.",
        |device| device.verdict.has_bytes,
    ),
    (
        "foreread_doctor_rule_bytes",
        "Readahead that the kernel's rule gives the device.",
        |device| device.rule_bytes,
    ),
    (
        "foreread_doctor_advised_bytes",
        "Readahead that foreread doctor advises, if the current value is not fine.",
        |device| Some(device.advised?.readahead_bytes),
    ),
    (
        "foreread_doctor_suspicious",
        "1 if the current value is suspicious.",
        |device| Some(u64::from(device.verdict.standing == Standing::Suspicious)),
    ),
];

/// Returns the text of the metrics file for the Prometheus node exporter.
pub fn metrics(report: &DoctorReport) -> String {
    let mut text = String::new();
    for (name, help, value) in GAUGES {
        text += &format!("# HELP {name} {help}\n# TYPE {name} gauge\n");
        for device in &report.devices {
            if let Some(value) = value(device) {
                text += &format!(
                    "{name}{{device=\"{}\"}} {value}\n",
                    escaped(&device.verdict.device)
                );
            }
        }
    }
    text
}

fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
