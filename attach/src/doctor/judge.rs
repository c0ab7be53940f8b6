//! Whether a setting is right: the advice of the lab about what it costs and gains, and what is suspicious about where it is from.

use super::look::{DeviceFacts, StorageKind};
use super::measure::CheckedRate;
use super::pins::Pin;
use super::rules::RuleValue;
use super::verdict::{DeviceVerdict, Verdict};
use foreread_lab::setting::{SettingLimits, SizeCosts, StorageCosts};
use foreread_report::number::{size_in_words as size, three};

/// An optimal size above this is named wrongly by a device that does not turn.
const LARGE_OPTIMAL_BYTES: u64 = 2 << 20;
/// Up to here the readahead of a volume of ZFS is left to ZFS, which sets one page.
const MAX_ZVOL_BYTES: u64 = 128 << 10;
/// A gain that is worth a line.
const MIN_GAIN: f64 = 1.25;

/// The figures of a device that was not measured, by its class: orders of magnitude.
#[must_use]
pub fn assumed(facts: &DeviceFacts) -> StorageCosts {
    let is_nvme = facts.device.driver.as_deref() == Some("nvme");
    let turns = facts.device.rotates == Some(true) && facts.is_virtual.is_none();
    let (latency_us, mb_per_s) = match facts.kind {
        StorageKind::Memory => (5.0, 2000.0),
        kind if kind.is_network() || kind == StorageKind::Fuse => (500.0, 500.0),
        _ if turns => (12_000.0, 180.0),
        _ if facts.is_virtual.is_some() => (500.0, 250.0),
        _ if is_nvme => (80.0, 2500.0),
        _ => (120.0, 500.0),
    };
    StorageCosts {
        latency_us,
        mb_per_s,
        is_measured: false,
        turns,
    }
}

/// A larger value that was read this much faster is advised instead.
const MIN_CHECKED_GAIN: f64 = 1.1;

/// The value to have, and what the present and that one cost: of one reader in order the rates that were read, where they were.
fn with_checks(
    now: Option<SizeCosts>,
    best: SizeCosts,
    costs: &StorageCosts,
    checked: &[CheckedRate],
) -> (Option<SizeCosts>, SizeCosts) {
    let read = |size: SizeCosts| {
        let rate = checked
            .iter()
            .find(|rate| rate.readahead_bytes == size.readahead_bytes);
        let [one, four, sixteen] = size.in_order_mb_per_s;
        let one = rate.map_or(one, |rate| rate.mb_per_s);
        SizeCosts {
            in_order_mb_per_s: [one, four.max(one), sixteen.max(one)],
            ..size
        }
    };
    let best = read(best);
    let larger = checked.last().filter(|rate| {
        let advised = best.in_order_mb_per_s[0];
        let is_other = now.is_none_or(|now| now.readahead_bytes != rate.readahead_bytes);
        is_other
            && rate.readahead_bytes > best.readahead_bytes
            && rate.mb_per_s >= MIN_CHECKED_GAIN * advised
    });
    let best = larger.map_or(best, |rate| read(costs.at(rate.readahead_bytes)));
    (now.map(read), best)
}

/// Judges a device.
#[must_use]
pub fn judge(
    facts: &DeviceFacts,
    rule: Option<&RuleValue>,
    pin: Option<&Pin>,
    costs: StorageCosts,
    checked: &[CheckedRate],
    limits: &SettingLimits,
) -> DeviceVerdict {
    let device = &facts.device;
    let now = device.read_ahead.map(|bytes| costs.at(bytes));
    let (now, best) = with_checks(now, costs.best(limits), &costs, checked);
    let Finding {
        verdict,
        reason,
        harm,
    } = match now {
        None => Finding::fine("says no readahead".to_string()),
        Some(now) => finding(facts, rule, pin, &costs, &now, &best, limits),
    };
    let origin = device
        .read_ahead
        .map_or_else(String::new, |bytes| short_origin(bytes, rule, pin));
    let places = device
        .mounts
        .iter()
        .map(|mount| mount.point.display().to_string());
    let mounts = places.take(100).collect();
    DeviceVerdict {
        name: device.name.clone(),
        kind: facts.kind,
        about: about(facts, &costs),
        verdict,
        reason,
        origin,
        harm,
        readahead_bytes: device.read_ahead,
        rule_bytes: rule.map(|rule| rule.bytes),
        rule: rule.map(|rule| rule.words.clone()),
        rule_source: rule.map(|rule| rule.source),
        set_by: pin.map(|pin| pin.path.display().to_string()),
        is_virtual: facts.is_virtual.is_some(),
        rotates: device.rotates,
        optimal_bytes: device.optimal,
        max_request_bytes: device.max_request,
        size_bytes: device.size,
        scheduler: device.scheduler.clone(),
        model: device.model.clone(),
        mounts,
        is_swap: device.is_swap,
        costs,
        is_checked: !checked.is_empty(),
        now,
        advised: (verdict != Verdict::Fine).then_some(best),
    }
}

/// What is found about a value.
struct Finding {
    verdict: Verdict,
    reason: String,
    harm: Option<String>,
}

impl Finding {
    fn fine(reason: String) -> Finding {
        Finding {
            verdict: Verdict::Fine,
            reason,
            harm: None,
        }
    }

    fn suspicious(reason: String, harm: String) -> Finding {
        Finding {
            verdict: Verdict::Suspicious,
            reason,
            harm: Some(harm),
        }
    }
}

fn finding(
    facts: &DeviceFacts,
    rule: Option<&RuleValue>,
    pin: Option<&Pin>,
    costs: &StorageCosts,
    now: &SizeCosts,
    best: &SizeCosts,
    limits: &SettingLimits,
) -> Finding {
    let bytes = now.readahead_bytes;
    let origin = origin(bytes, rule, pin);
    if !facts.has_bytes() || facts.kind == StorageKind::Memory {
        return Finding::fine(origin);
    }
    if facts.is_hidden() {
        let above = facts.used_by.join(", ");
        let text = format!("reads of files go through {above}, whose readahead counts; {origin}");
        return Finding::fine(text);
    }
    if facts.kind == StorageKind::Zvol && bytes <= MAX_ZVOL_BYTES {
        return Finding::fine(format!("{origin}; ZFS reads ahead by itself"));
    }
    if bytes == 0 && facts.kind != StorageKind::NineP {
        let harm = "each read in order waits for the storage".to_string();
        return Finding::suspicious(format!("it reads nothing ahead; {origin}"), harm);
    }
    // btrfs and Ceph mean their large values.
    let is_own = matches!(facts.kind, StorageKind::Btrfs | StorageKind::Ceph);
    if costs.is_too_large(bytes, best) && !(is_own && bytes <= 8 << 20) {
        let harm = format!("random page faults read {} each", size(bytes));
        return Finding::suspicious(format!("{}{origin}", claim(facts, costs)), harm);
    }
    if now.streams_bytes > limits.memory_bytes / 2 {
        let harm = format!("sixteen streams take {} of memory", size(now.streams_bytes));
        return Finding::suspicious(format!("{harm}; {origin}"), harm);
    }
    // Its server may read ahead by itself: windows of 2 MiB, which the kernel asks for in parts at once, made rclone 14 times slower.
    if facts.kind == StorageKind::Fuse && !costs.is_measured {
        let text = "its server may read ahead by itself: no larger value is advised unless 'foreread tune -- CMD' finds one";
        return Finding::fine(format!("{origin}; {text}"));
    }
    let gains = [0, 1].map(|n: usize| best.in_order_mb_per_s[n] / now.in_order_mb_per_s[n]);
    if gains[0].max(gains[1]) >= MIN_GAIN && best.readahead_bytes > bytes && pin.is_none() {
        let (readers, gain) = match gains[0] >= gains[1] {
            true => ("a reader in order", gains[0]),
            false => ("four readers in order", gains[1]),
        };
        let advised = size(best.readahead_bytes);
        let harm = format!("with {advised} {readers} would be {}x as fast", three(gain));
        return Finding {
            verdict: Verdict::Gain,
            reason: origin,
            harm: Some(harm),
        };
    }
    Finding::fine(origin)
}

/// What the device says of itself that is not so; empty where nothing is.
fn claim(facts: &DeviceFacts, costs: &StorageCosts) -> String {
    let optimal = facts.device.optimal.unwrap_or(0);
    if costs.is_measured && !costs.turns && facts.device.rotates == Some(true) {
        let latency = three(costs.latency_us / 1e3);
        return format!("it claims to rotate and answers in {latency} ms; ");
    }
    if facts.claims_to_rotate() {
        return "it claims to rotate; ".to_string();
    }
    if optimal > LARGE_OPTIMAL_BYTES {
        return format!("it names an optimal size of {}; ", size(optimal));
    }
    String::new()
}

/// The same as [`origin`] for one line.
fn short_origin(bytes: u64, rule: Option<&RuleValue>, pin: Option<&Pin>) -> String {
    match (pin, rule) {
        (Some(pin), _) if pin.kib.is_none_or(|kib| kib.saturating_mul(1024) == bytes) => {
            format!("set by {}", pin.path.display())
        }
        (_, Some(rule)) if rule.explains(bytes) => rule.in_words(),
        (Some(pin), _) => format!("not the value of {}", pin.path.display()),
        (None, Some(_)) => "set by hand".to_string(),
        (None, None) => "no rule known".to_string(),
    }
}

/// What has chosen the value.
fn origin(bytes: u64, rule: Option<&RuleValue>, pin: Option<&Pin>) -> String {
    match (pin, rule) {
        (Some(pin), _) if pin.kib.is_none_or(|kib| kib.saturating_mul(1024) == bytes) => {
            format!("set by {}", pin.path.display())
        }
        (_, Some(rule)) if rule.explains(bytes) => {
            let newer = if rule.is_newer {
                ", in an older kernel"
            } else {
                ""
            };
            format!("the kernel took {} ({}{newer})", rule.words, rule.source)
        }
        (Some(pin), _) => {
            let kib = pin.kib.map_or_else(String::new, |kib| {
                format!(" says {}, but it", size(kib.saturating_mul(1024)))
            });
            format!("{}{kib} has another value now", pin.path.display())
        }
        (None, Some(rule)) => format!(
            "set by hand or by a program that is not known (the kernel's rule gives {})",
            size(rule.bytes)
        ),
        (None, None) => "no rule known".to_string(),
    }
}

fn about(facts: &DeviceFacts, costs: &StorageCosts) -> String {
    let device = &facts.device;
    let virtually = facts.is_virtual.map(str::to_string);
    match facts.kind {
        StorageKind::Loop => device
            .file
            .as_ref()
            .map_or("a loop device without a file".to_string(), |file| {
                format!("a loop device over {file}")
            }),
        StorageKind::Mapped => {
            let kind = device.mapped_kind.as_deref().unwrap_or("device mapper");
            let name = device.mapped_name.as_deref().unwrap_or_default();
            format!("{kind} {name} on {}", device.below.join(", "))
        }
        StorageKind::Md => {
            let level = device.raid_level.as_deref().unwrap_or("MD");
            format!("{level} of {}", device.below.join(", "))
        }
        StorageKind::Memory => "memory".to_string(),
        StorageKind::Zvol => "a volume of ZFS".to_string(),
        StorageKind::Disk => virtually.unwrap_or_else(|| match (&device.model, costs.turns) {
            (Some(model), true) => format!("{model}, rotates"),
            (Some(model), false) => model.clone(),
            (None, true) => "a disk that rotates".to_string(),
            (None, false) => "a disk".to_string(),
        }),
        _ => device
            .mounts
            .first()
            .map_or("a mount".to_string(), |mount| {
                format!("{} at {}", mount.kind, mount.point.display())
            }),
    }
}
