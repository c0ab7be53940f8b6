//! What `doctor` found, as blocks: the verdict first, then what is wrong, then what is not, on one screen.

use super::fix::RULES_FILE;
use super::look::StorageKind;
use super::verdict::{DeviceVerdict, DoctorReport, Verdict};
use foreread_lab::setting::{SizeCosts, fault_in_words};
use foreread_os::host::devices::mount_setting;
use foreread_report::block::Block;
use foreread_report::number::{plural, size, three};

/// Devices that get lines of their text each; the others are named.
const MAX_SHOWN: usize = 2;
/// Names in one line.
const MAX_NAMES: usize = 12;

/// The report.
#[must_use]
pub fn blocks(report: &DoctorReport) -> Vec<Block> {
    let of = |verdict: Verdict| {
        let devices = report
            .devices
            .iter()
            .filter(move |device| device.verdict == verdict);
        devices.collect::<Vec<_>>()
    };
    let (mut bad, mut gain, fine) = (
        of(Verdict::Suspicious),
        of(Verdict::Gain),
        of(Verdict::Fine),
    );
    gain.sort_by(|one, other| factor(other).total_cmp(&factor(one)));
    // A disk before what is made of it.
    bad.sort_by_key(|device| device.kind != StorageKind::Disk);
    let mut blocks = vec![Block::Text(headline(&bad, &gain, report.devices.len()))];
    for device in bad.iter().take(MAX_SHOWN) {
        blocks.push(Block::Gap);
        blocks.extend(one(device));
    }
    if bad.len() > MAX_SHOWN {
        let more = &bad[MAX_SHOWN..];
        let more: Vec<&str> = more.iter().map(|device| device.name.as_str()).collect();
        blocks.push(Block::Text(format!("Also suspicious: {}.", names(&more))));
    }
    if !gain.is_empty() {
        blocks.push(Block::Gap);
        blocks.extend(alike(&gain, gain_text));
        let disk = gain.iter().find(|device| device.rotates.is_some());
        blocks.extend(
            disk.map(|disk| Block::line(format!("Set it:  foreread doctor --fix {}", disk.name))),
        );
    }
    if !fine.is_empty() {
        blocks.push(Block::Gap);
        blocks.extend(alike(&fine, |device| format!("fine: {}", device.reason)));
    }
    blocks.push(Block::Gap);
    blocks.push(Block::Text(report.pressure.words.clone()));
    blocks.extend(report.notes.iter().map(|note| Block::Note(note.clone())));
    blocks
}

/// The verdict of one device in a line, for a log.
#[must_use]
pub fn line(device: &DeviceVerdict) -> String {
    let value = device.readahead_bytes.map_or_else(|| "-".to_string(), size);
    match (device.verdict, &device.now, &device.advised) {
        (Verdict::Suspicious, Some(now), Some(to)) => format!(
            "{value} is suspicious: {}; {}. {} ({})",
            device.about,
            device.reason,
            fault_in_words(now, to),
            device.costs.in_words()
        ),
        (Verdict::Gain, _, _) => format!("{value} {}", gain_text(device)),
        _ => format!("{value} is fine: {}", device.reason),
    }
}

fn headline(bad: &[&DeviceVerdict], gain: &[&DeviceVerdict], all: usize) -> String {
    let list = |devices: &[&DeviceVerdict]| {
        let list: Vec<&str> = devices.iter().map(|device| called(device)).collect();
        names(&list)
    };
    let of = plural(all as u64, "device");
    match (bad.is_empty(), gain.is_empty()) {
        _ if all == 0 => "Nothing to look at: no device reads ahead here.".to_string(),
        (true, true) => format!("Nothing wrong with readahead here ({of})."),
        (true, false) => format!("Nothing wrong here ({of}); {} could gain.", list(gain)),
        (false, _) => {
            let number = bad.len();
            let more = match gain.is_empty() {
                true => String::new(),
                false => format!(" {} could gain.", list(gain)),
            };
            format!("Suspicious: {} ({number} of {of}).{more}", list(bad))
        }
    }
}

/// What people call it: a file system without a disk has a number, and the place where it is mounted.
fn called(device: &DeviceVerdict) -> &str {
    let is_number = device.name.starts_with(|c: char| c.is_ascii_digit());
    // Any user may choose the name of a folder: one that a terminal would obey is not shown.
    let is_plain = |place: &&String| !place.chars().any(char::is_control);
    let place = device.mounts.first().filter(|_| is_number);
    place.filter(is_plain).unwrap_or(&device.name)
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

fn one(device: &DeviceVerdict) -> Vec<Block> {
    let value = device.readahead_bytes.map_or_else(|| "-".to_string(), size);
    let mut first = format!(
        "{}  {value}  suspicious: {}; {}.",
        device.name, device.about, device.reason
    );
    if !device.mounts.is_empty() {
        let places: Vec<&str> = device.mounts.iter().map(String::as_str).take(4).collect();
        first += &format!(" Mounted at {}.", places.join(", "));
    }
    if device.is_swap {
        first += " Swap is on it.";
    }
    let mut blocks = vec![Block::Text(first)];
    let (Some(now), Some(to)) = (&device.now, &device.advised) else {
        return blocks;
    };
    blocks.push(Block::Indented(
        4,
        vec![Block::Text(costs(device, now, to))],
    ));
    blocks.push(Block::Indented(4, vec![Block::line(remedy(device, to))]));
    blocks
}

fn costs(device: &DeviceVerdict, now: &SizeCosts, to: &SizeCosts) -> String {
    let at_page = (device.costs.latency_us / 1e3).max(0.001);
    let [one, four] = ratios(now, to).map(three);
    let advised = size(to.readahead_bytes);
    let streams = [now.streams_bytes, to.streams_bytes].map(size);
    format!(
        "{}; its page alone {} ms. In order {advised} is {}x as fast with one reader, {}x with four. Sixteen streams hold \
         {} of memory, with {advised} {} ({}).",
        fault_in_words(now, to),
        three(at_page),
        one,
        four,
        streams[0],
        streams[1],
        device.costs.in_words()
    )
}

/// How much faster readers in order would be, one or four of them.
fn factor(device: &DeviceVerdict) -> f64 {
    let sizes = device.now.as_ref().zip(device.advised.as_ref());
    let [one, four] = sizes.map_or([1.0; 2], |(now, to)| ratios(now, to));
    one.max(four)
}

/// The throughput of a reader and of four of them, with one size / with another.
fn ratios(now: &SizeCosts, to: &SizeCosts) -> [f64; 2] {
    [0, 1].map(|n: usize| to.in_order_mb_per_s[n] / now.in_order_mb_per_s[n])
}

/// One sentence: it harms nothing as it is.
fn gain_text(device: &DeviceVerdict) -> String {
    let (Some(now), Some(to)) = (&device.now, &device.advised) else {
        return device.reason.clone();
    };
    let [one, four] = ratios(now, to);
    let (readers, gain) = if one >= four {
        ("a reader", one)
    } else {
        ("four readers", four)
    };
    format!(
        "could gain: with {} {readers} in order would be {}x as fast; a page fault of a mapping would take {} ms instead of {} ({})",
        size(to.readahead_bytes),
        three(gain),
        three(to.fault_ms),
        three(now.fault_ms),
        device.costs.in_words()
    )
}

fn remedy(device: &DeviceVerdict, to: &SizeCosts) -> String {
    let name = &device.name;
    if device.rotates.is_none() {
        return format!(
            "Set {}:  echo {} > {}     until it is unmounted",
            size(to.readahead_bytes),
            to.readahead_bytes / 1024,
            mount_setting(name)
        );
    }
    let is_foreign = device
        .set_by
        .as_ref()
        .is_some_and(|path| path != RULES_FILE);
    let force = if is_foreign { " --force" } else { "" };
    format!(
        "Set {}:  foreread doctor --fix {name}{force}     undo: foreread doctor --undo {name}",
        size(to.readahead_bytes)
    )
}

/// Those with the same value and the same words in one line.
fn alike(devices: &[&DeviceVerdict], words: impl Fn(&DeviceVerdict) -> String) -> Vec<Block> {
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for device in devices {
        let value = device.readahead_bytes.map_or_else(|| "-".to_string(), size);
        let text = format!("{value}  {}", words(device));
        match groups.iter_mut().find(|(other, _)| *other == text) {
            Some((_, names)) => names.push(called(device)),
            None => groups.push((text, vec![called(device)])),
        }
    }
    let more = groups.len().saturating_sub(3 * MAX_SHOWN);
    groups.truncate(3 * MAX_SHOWN);
    let line =
        |(text, list): (String, Vec<&str>)| Block::Text(format!("{}  {text}.", names(&list)));
    let mut blocks: Vec<Block> = groups.into_iter().map(line).collect();
    if more > 0 {
        blocks.push(Block::Text(format!(
            "And {more} kinds more: --json has them."
        )));
    }
    blocks
}
