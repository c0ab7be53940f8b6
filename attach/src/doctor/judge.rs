//! Whether a setting is right: the advice of the lab about what it costs and gains, and what is suspicious about where it is from.

use super::look::{DeviceFacts, StorageKind};
use super::pins::Pin;
use super::rules::RuleValue;
use super::verdict::{DeviceVerdict, Verdict};
use foreread_lab::setting::{SettingLimits, SizeCosts, StorageCosts};
use foreread_report::number::{size, three};

/// An optimal size above this is named wrongly by a device that does not turn.
const LARGE_OPTIMAL_BYTES: u64 = 2 << 20;
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

/// Judges a device.
#[must_use]
pub fn judge(
    facts: &DeviceFacts,
    rule: Option<&RuleValue>,
    pin: Option<&Pin>,
    costs: StorageCosts,
    limits: &SettingLimits,
) -> DeviceVerdict {
    let device = &facts.device;
    let now = device.read_ahead.map(|bytes| costs.at(bytes));
    let best = costs.best(limits);
    let (verdict, reason) = match now {
        None => (Verdict::Fine, "says no readahead".to_string()),
        Some(now) => finding(facts, rule, pin, &costs, &now, &best, limits),
    };
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
        now,
        advised: (verdict != Verdict::Fine).then_some(best),
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
) -> (Verdict, String) {
    let bytes = now.readahead_bytes;
    let origin = origin(bytes, rule, pin);
    if !facts.has_bytes() || facts.kind == StorageKind::Memory {
        return (Verdict::Fine, origin);
    }
    if bytes == 0 && facts.kind != StorageKind::NineP {
        return (
            Verdict::Suspicious,
            format!("it reads nothing ahead; {origin}"),
        );
    }
    // btrfs and Ceph mean their large values.
    let is_own = matches!(facts.kind, StorageKind::Btrfs | StorageKind::Ceph);
    if costs.is_too_large(bytes, best) && !(is_own && bytes <= 8 << 20) {
        let claim = match facts.is_virtual {
            _ if costs.is_measured && !costs.turns && facts.device.rotates == Some(true) => {
                format!(
                    "it claims to rotate and answers in {} ms; ",
                    three(costs.latency_us / 1e3)
                )
            }
            Some(_) if facts.claims_to_rotate() => "it claims to rotate; ".to_string(),
            _ if facts
                .device
                .optimal
                .is_some_and(|optimal| optimal > LARGE_OPTIMAL_BYTES) =>
            {
                format!(
                    "it names an optimal size of {}; ",
                    size(facts.device.optimal.unwrap_or(0))
                )
            }
            _ => String::new(),
        };
        return (Verdict::Suspicious, format!("{claim}{origin}"));
    }
    if now.streams_bytes > limits.memory_bytes / 2 {
        let text = format!(
            "sixteen streams take {} of memory; {origin}",
            size(now.streams_bytes)
        );
        return (Verdict::Suspicious, text);
    }
    // Its server may read ahead by itself: windows of 2 MiB, which the kernel asks for in parts at once, made rclone 14 times slower.
    if facts.kind == StorageKind::Fuse && !costs.is_measured {
        let text = "its server may read ahead by itself: no larger value is advised unless 'foreread tune -- CMD' finds one";
        return (Verdict::Fine, format!("{origin}; {text}"));
    }
    let gain = best.in_order_mb_per_s[0] / now.in_order_mb_per_s[0];
    let gain_of_four = best.in_order_mb_per_s[1] / now.in_order_mb_per_s[1];
    let gain = gain.max(gain_of_four);
    if gain >= MIN_GAIN && best.readahead_bytes > bytes && pin.is_none() {
        return (Verdict::Gain, origin);
    }
    (Verdict::Fine, origin)
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
