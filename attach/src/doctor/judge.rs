//! Whether a setting is right: what a fault costs, what readers in order get, how much memory streams need.
//!
//! ```text
//!   fault    latency + size / bandwidth                  a fault of a mapping reads the whole window around it
//!   rate     ((1 / bandwidth)^1.5 + (latency / size)^1.5)^(-1/1.5)      one reader in order
//! ```
//! The exponent: at 1 reads of a window would not overlap with those of the next at all, at 2 the most that was seen of it. Measured
//! on Linux 6.18, ext4, 0.08 ms, 2.4 GB/s, MB/s by read_ahead_kb: 128 1080, 256 1346, 512 2141, 1024 2336, 2048 2348, 8192 2438; 1.5
//! gives 1220, 1750, 2130, 2320, 2390, 2440.
//!
//! The advice is the smallest setting that one, four and sixteen readers are within 5 % of their best at, and less where it would take
//! a quarter of memory for sixteen streams, or where faults are a large part of the reads. Never: a value above 2 MiB for a device
//! that does not turn.

use super::look::{DeviceFacts, StorageKind};
use super::pins::Pin;
use super::rules::RuleValue;
use super::verdict::{DeviceVerdict, SizeCosts, StorageCosts, Verdict};
use foreread_report::number::{size, three};

/// Sizes that are tried: 128 KiB to 64 MiB.
const SIZES: std::ops::RangeInclusive<u32> = 17..=26;
const READERS: [u32; 3] = [1, 4, 16];
/// How near to its best a reader has to be.
const NEAR: f64 = 0.95;
/// How the wait for a window and its transfer overlap.
const OVERLAP: f64 = 1.5;
/// The largest advice for what does not turn.
const MAX_STILL_BYTES: u64 = 2 << 20;
const MIN_BYTES: u64 = 128 << 10;
/// From here on a value of a device that does not turn is suspicious.
const LARGE_STILL_BYTES: u64 = 2 << 20;
const LARGE_TURNING_BYTES: u64 = 16 << 20;
/// A gain that is worth a line.
const MIN_GAIN: f64 = 1.25;
/// Faults of reads from which on programs are said to read by mappings.
const MANY_FAULTS: f64 = 0.2;
/// Of a first read of a device that turns and is read in order: no move of the head.
const IN_ORDER_US: f64 = 100.0;
/// A disk that turns takes half a turn, 4 ms at 7200 rpm, and the move of its head: none answers a random read in less than this.
pub const MIN_TURNING_US: f64 = 1000.0;

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

/// What a size costs and gains.
#[must_use]
pub fn size_costs(costs: &StorageCosts, bytes: u64) -> SizeCosts {
    // A fault reads a page at least.
    let read = bytes.max(4096) as f64;
    let rate = |readers: u32| {
        let wait_us = if costs.turns && readers == 1 {
            IN_ORDER_US
        } else {
            costs.latency_us
        };
        // Bytes in a microsecond are MB/s.
        let (transfer, wait) = (1.0 / costs.mb_per_s, wait_us / read);
        let one = (transfer.powf(OVERLAP) + wait.powf(OVERLAP)).powf(-1.0 / OVERLAP);
        if costs.turns {
            one
        } else {
            (one * f64::from(readers)).min(costs.mb_per_s)
        }
    };
    SizeCosts {
        readahead_bytes: bytes,
        fault_ms: (costs.latency_us + read / costs.mb_per_s) / 1e3,
        in_order_mb_per_s: READERS.map(rate),
        streams_bytes: bytes.saturating_mul(2 * 16),
    }
}

/// What counts beside the device itself.
#[derive(Clone, Copy, Debug)]
pub struct JudgeContext {
    pub memory_bytes: u64,
    /// Major faults / reads.
    pub faults_of_reads: Option<f64>,
}

impl JudgeContext {
    fn is_faulting(&self) -> bool {
        self.faults_of_reads.is_some_and(|part| part >= MANY_FAULTS)
    }
}

/// The smallest setting that is good enough.
#[must_use]
pub fn best(facts: &DeviceFacts, costs: &StorageCosts, context: &JudgeContext) -> SizeCosts {
    let all: Vec<SizeCosts> = SIZES.map(|bits| size_costs(costs, 1 << bits)).collect();
    let most = [0, 1, 2].map(|n| {
        let rates = all.iter().map(|size| size.in_order_mb_per_s[n]);
        rates.fold(0.0, f64::max)
    });
    let is_near = |size: &&SizeCosts| {
        let pairs = size.in_order_mb_per_s.iter().zip(most);
        pairs.into_iter().all(|(rate, most)| *rate >= NEAR * most)
    };
    let near = all
        .iter()
        .find(is_near)
        .map_or(u64::MAX, |size| size.readahead_bytes);
    let request = facts.device.max_request.unwrap_or(MIN_BYTES);
    let limit = match costs.turns {
        // The kernel's rule of 6.17: what was measured for disks that turn.
        true => request
            .saturating_mul(2)
            .clamp(512 << 10, LARGE_TURNING_BYTES),
        false if context.is_faulting() => MIN_BYTES,
        false => MAX_STILL_BYTES,
    };
    let of_memory = context.memory_bytes / 4 / (2 * 16);
    let mut bytes = near.min(limit);
    while bytes > MIN_BYTES && bytes > of_memory {
        bytes /= 2;
    }
    size_costs(costs, bytes.max(MIN_BYTES))
}

/// Judges a device.
#[must_use]
pub fn judge(
    facts: &DeviceFacts,
    rule: Option<&RuleValue>,
    pin: Option<&Pin>,
    costs: StorageCosts,
    context: &JudgeContext,
) -> DeviceVerdict {
    let device = &facts.device;
    let now = device.read_ahead.map(|bytes| size_costs(&costs, bytes));
    let best = best(facts, &costs, context);
    let (verdict, reason) = match now {
        None => (Verdict::Fine, "says no readahead".to_string()),
        Some(now) => finding(facts, rule, pin, &costs, &now, &best, context),
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
    context: &JudgeContext,
) -> (Verdict, String) {
    let bytes = now.readahead_bytes;
    let origin = origin(bytes, rule, pin);
    let large = if costs.turns {
        LARGE_TURNING_BYTES
    } else {
        LARGE_STILL_BYTES
    };
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
    if bytes > large && bytes > best.readahead_bytes && !(is_own && bytes <= 8 << 20) {
        let claim = match facts.is_virtual {
            _ if costs.is_measured && !costs.turns && facts.device.rotates == Some(true) => {
                format!(
                    "it claims to rotate and answers in {} ms; ",
                    three(costs.latency_us / 1e3)
                )
            }
            Some(_) if facts.claims_to_rotate() => "it claims to rotate, so ".to_string(),
            _ if facts.device.optimal.is_some_and(|optimal| optimal > large) => {
                format!(
                    "it names an optimal size of {}; ",
                    size(facts.device.optimal.unwrap_or(0))
                )
            }
            _ => String::new(),
        };
        return (Verdict::Suspicious, format!("{claim}{origin}"));
    }
    if now.streams_bytes > context.memory_bytes / 2 {
        let text = format!(
            "sixteen streams take {} of memory; {origin}",
            size(now.streams_bytes)
        );
        return (Verdict::Suspicious, text);
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
