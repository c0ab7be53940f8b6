//! What `doctor` found, as blocks: the verdict first, then what is wrong, then what is not, on one screen.

use super::verdict::{DeviceVerdict, DoctorReport, SizeCosts, Verdict};
use foreread_os::host::devices::mount_setting;
use foreread_report::block::Block;
use foreread_report::number::{plural, size, three};

/// Devices that get lines of their text each; the others are named.
const MAX_SHOWN: usize = 4;
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
    let (bad, gain, fine) = (
        of(Verdict::Suspicious),
        of(Verdict::Gain),
        of(Verdict::Fine),
    );
    let mut blocks = vec![Block::Text(headline(&bad, &gain, report.devices.len()))];
    for (list, word) in [(&bad, "suspicious"), (&gain, "could gain")] {
        for device in list.iter().take(MAX_SHOWN) {
            blocks.push(Block::Gap);
            blocks.extend(one(device, word));
        }
        if list.len() > MAX_SHOWN {
            let more: Vec<&str> = list[MAX_SHOWN..]
                .iter()
                .map(|device| device.name.as_str())
                .collect();
            blocks.push(Block::Text(format!("Also {word}: {}.", names(&more))));
        }
    }
    if !fine.is_empty() {
        blocks.push(Block::Gap);
        blocks.extend(alike(&fine));
    }
    blocks.push(Block::Gap);
    blocks.push(Block::Text(report.pressure.words.clone()));
    blocks.extend(report.notes.iter().map(|note| Block::Note(note.clone())));
    blocks
}

fn headline(bad: &[&DeviceVerdict], gain: &[&DeviceVerdict], all: usize) -> String {
    let list = |devices: &[&DeviceVerdict]| {
        let list: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
        names(&list)
    };
    let of = plural(all as u64, "device");
    match (bad.is_empty(), gain.is_empty()) {
        _ if all == 0 => "Nothing to look at: no device reads ahead here.".to_string(),
        (true, true) => format!("Nothing wrong with readahead here ({of})."),
        (true, false) => format!("Nothing wrong here ({of}); {} could gain.", list(gain)),
        (false, _) => {
            let number = bad.len();
            format!("Suspicious: {} ({number} of {of}).", list(bad))
        }
    }
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

fn one(device: &DeviceVerdict, word: &str) -> Vec<Block> {
    let value = device.readahead_bytes.map_or_else(|| "-".to_string(), size);
    let mut first = format!(
        "{}  {value}  {word}: {}; {}.",
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
    let basis = if device.costs.is_measured {
        "measured"
    } else {
        "assumed"
    };
    let ms = |value: f64| format!("{} ms", three(value));
    let at_page = (device.costs.latency_us / 1e3).max(0.001);
    let ratio = |n: usize| to.in_order_mb_per_s[n] / now.in_order_mb_per_s[n];
    let readers = format!(
        "{}x with one reader, {}x with four",
        three(ratio(0)),
        three(ratio(1))
    );
    let [value, advised] = [now.readahead_bytes, to.readahead_bytes].map(size);
    if to.readahead_bytes < now.readahead_bytes {
        format!(
            "A page fault of a mapping reads up to {value}: {} instead of {} for its page; with {advised} {}. In order {advised} is \
             {readers}. Sixteen streams hold {} instead of {} ({basis}: {}, {} MB/s).",
            ms(now.fault_ms),
            ms(at_page),
            ms(to.fault_ms),
            size(now.streams_bytes),
            size(to.streams_bytes),
            ms(at_page),
            three(device.costs.mb_per_s),
        )
    } else {
        format!(
            "In order {advised} is {readers}; a page fault of a mapping takes {} instead of {} ({basis}: {}, {} MB/s).",
            ms(to.fault_ms),
            ms(now.fault_ms),
            ms(at_page),
            three(device.costs.mb_per_s),
        )
    }
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
    let force = if device.set_by.is_some() {
        " --force"
    } else {
        ""
    };
    format!(
        "Set {}:  foreread doctor --fix {name}{force}     undo: foreread doctor --undo {name}",
        size(to.readahead_bytes)
    )
}

/// Devices of which nothing is to be said: those with the same value and the same origin in one line.
fn alike(devices: &[&DeviceVerdict]) -> Vec<Block> {
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for device in devices {
        let value = device.readahead_bytes.map_or_else(|| "-".to_string(), size);
        let text = format!("{value}  fine: {}", device.reason);
        match groups.iter_mut().find(|(other, _)| *other == text) {
            Some((_, names)) => names.push(&device.name),
            None => groups.push((text, vec![&device.name])),
        }
    }
    let more = groups.len().saturating_sub(2 * MAX_SHOWN);
    groups.truncate(2 * MAX_SHOWN);
    let line =
        |(text, list): (String, Vec<&str>)| Block::Text(format!("{}  {text}.", names(&list)));
    let mut blocks: Vec<Block> = groups.into_iter().map(line).collect();
    if more > 0 {
        blocks.push(Block::Text(format!(
            "And {more} kinds more that are fine: --json has them."
        )));
    }
    blocks
}
