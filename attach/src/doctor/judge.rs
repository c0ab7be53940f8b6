//! Rates a readahead setting by two criteria: the costs and gains that `foreread-lab` computes for the value, and whether the origin of
//! the value is suspicious.

use super::look::{DeviceFacts, StorageKind};
use super::pins::Pin;
use super::rules::RuleValue;
use super::verdict::DeviceVerdict;
use foreread_lab::verdict::disk::{DiskFinding, DiskLook, StorageCosts, change};
use foreread_lab::verdict::{Standing, Step, Verdict, set_readahead};
use foreread_report::number::{size_in_words as size, three};

/// If a device that does not rotate reports a larger optimal size, it is considered wrong.
const LARGE_OPTIMAL_BYTES: u64 = 2 << 20;
/// Up to this value, the readahead of a ZFS volume is left to ZFS, which sets one page.
const MAX_ZVOL_BYTES: u64 = 128 << 10;

/// Returns the assumed costs of reads from a device that was not measured, by its class; only the orders of magnitude are right.
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
        age_s: 0,
        turns,
    }
}

pub fn judge(
    facts: &DeviceFacts,
    rule: Option<&RuleValue>,
    pin: Option<&Pin>,
    look: &DiskLook,
) -> DeviceVerdict {
    let device = &facts.device;
    let found = look.find();
    let (standing, reason) = standing(facts, rule, pin, look, &found);
    let is_fine = standing == Standing::Fine;
    let DiskFinding {
        harm, has, best, ..
    } = found;
    let origin = device
        .read_ahead
        .map_or_else(String::new, |bytes| Origin::of(bytes, rule, pin).in_words());
    let step = has.filter(|_| !is_fine).map(|has| {
        let is_disk = device.rotates.is_some();
        let mut step = set_readahead(&device.name, is_disk, best.readahead_bytes);
        if is_disk && pin.is_some_and(Pin::is_foreign) {
            step.text.push_str(" --force");
        }
        Step {
            what: format!("Set {}", size(best.readahead_bytes)),
            why: change(&has, &best, &look.basis()),
            ..step
        }
    });
    let places = device
        .mounts
        .iter()
        .map(|mount| mount.point.display().to_string());
    DeviceVerdict {
        verdict: Verdict {
            device: device.name.clone(),
            has_bytes: device.read_ahead,
            should_bytes: match is_fine {
                true => device.read_ahead,
                false => Some(best.readahead_bytes),
            },
            standing,
            why: harm.filter(|_| !is_fine).unwrap_or_default(),
            confidence: look.confidence(),
            steps: step.into_iter().collect(),
        },
        kind: facts.kind,
        about: about(facts, &look.costs),
        reason,
        origin,
        rule_bytes: rule.map(|rule| rule.bytes),
        rule: rule.map(|rule| rule.words.clone()),
        rule_source: rule.map(|rule| rule.source),
        set_by: pin.map(Pin::to_string),
        is_virtual: facts.is_virtual.is_some(),
        rotates: device.rotates,
        optimal_bytes: device.optimal,
        max_request_bytes: device.max_request,
        size_bytes: device.size,
        scheduler: device.scheduler.clone(),
        model: device.model.clone(),
        mounts: places.take(100).collect(),
        is_swap: device.is_swap,
        is_busy: false,
        costs: look.costs,
        now: has,
        advised: (!is_fine).then_some(best),
    }
}

/// The rating of a value, and why it is what it is. The result of the measurement counts, unless it does not apply to the kind of device
/// or its setting.
fn standing(
    facts: &DeviceFacts,
    rule: Option<&RuleValue>,
    pin: Option<&Pin>,
    look: &DiskLook,
    found: &DiskFinding,
) -> (Standing, String) {
    let Some(bytes) = look.has_bytes else {
        return (Standing::Fine, "it reports no readahead".to_string());
    };
    let known = Origin::of(bytes, rule, pin);
    let origin = known.reason();
    if facts.is_hidden() {
        let above = facts.used_by.join(", ");
        let text =
            format!("files on it are read through {above}, whose readahead applies; {origin}");
        return (Standing::Fine, text);
    }
    if facts.kind == StorageKind::Zvol && bytes <= MAX_ZVOL_BYTES {
        return (
            Standing::Fine,
            format!("{origin}; ZFS reads ahead by itself"),
        );
    }
    // The server may read ahead by itself: windows of 2 MiB, which the kernel requests in parallel parts, made rclone 14 times
    // slower.
    if facts.kind == StorageKind::Fuse
        && !look.costs.is_measured
        && found.standing != Standing::Suspicious
    {
        let text = "its server may read ahead by itself, so a larger value is advised only if 'foreread tune -- CMD' finds one";
        return (Standing::Fine, format!("{origin}; {text}"));
    }
    // The large defaults of btrfs and Ceph are intended.
    let is_own = matches!(facts.kind, StorageKind::Btrfs | StorageKind::Ceph)
        && (1..=8 << 20).contains(&bytes);
    let is_meant = match found.standing {
        Standing::Suspicious => is_own || bytes == 0 && facts.kind == StorageKind::NineP,
        _ => !matches!(known, Origin::Rule(_) | Origin::Manual(_)),
    };
    if is_meant || !facts.has_bytes() || facts.kind == StorageKind::Memory {
        return (Standing::Fine, origin);
    }
    let claim = match found.standing {
        Standing::Suspicious => claim(facts, &look.costs),
        _ => String::new(),
    };
    (found.standing, format!("{claim}{origin}"))
}

/// A wrong claim of the device about itself; empty if there is none.
fn claim(facts: &DeviceFacts, costs: &StorageCosts) -> String {
    let optimal = facts.device.optimal.unwrap_or(0);
    if costs.is_measured && !costs.turns && facts.device.rotates == Some(true) {
        let latency = three(costs.latency_us / 1e3);
        return format!("it claims to be rotational, but answers in {latency} ms; ");
    }
    if facts.claims_to_rotate() {
        return "it claims to be rotational; ".to_string();
    }
    if optimal > LARGE_OPTIMAL_BYTES {
        return format!("it reports an optimal I/O size of {}; ", size(optimal));
    }
    String::new()
}

/// What has chosen the value.
enum Origin<'a> {
    /// The line has this value for this device.
    SetBy(&'a Pin),
    MaySet(&'a Pin),
    Rule(&'a RuleValue),
    /// The line has another value for this device.
    Differs(&'a Pin),
    Manual(Option<&'a RuleValue>),
}

impl<'a> Origin<'a> {
    fn of(bytes: u64, rule: Option<&'a RuleValue>, pin: Option<&'a Pin>) -> Origin<'a> {
        match (pin, rule) {
            (Some(pin), _) if pin.gives(bytes) && pin.is_certain => Origin::SetBy(pin),
            (Some(pin), _) if pin.gives(bytes) => Origin::MaySet(pin),
            (_, Some(rule)) if rule.explains(bytes) => Origin::Rule(rule),
            (Some(pin), _) if pin.is_certain => Origin::Differs(pin),
            (Some(pin), _) if pin.kib.is_none() => Origin::MaySet(pin),
            // The line has another value, and may be for another device.
            (_, rule) => Origin::Manual(rule),
        }
    }

    fn in_words(&self) -> String {
        match self {
            Origin::SetBy(pin) => format!("set by {pin}"),
            Origin::MaySet(pin) => format!("{pin} may set it"),
            Origin::Rule(rule) => rule.in_words(),
            Origin::Differs(pin) => format!("not the value of {pin}"),
            Origin::Manual(Some(_)) => "set manually".to_string(),
            Origin::Manual(None) => "no rule known".to_string(),
        }
    }

    fn reason(&self) -> String {
        match self {
            Origin::Rule(rule) => {
                let newer = if rule.is_newer {
                    ", in an older kernel"
                } else {
                    ""
                };
                format!("the kernel took {} ({}{newer})", rule.words, rule.source)
            }
            Origin::Differs(pin) => {
                let kib = pin.kib.map_or_else(String::new, |kib| {
                    format!(" says {}, but it", size(kib.saturating_mul(1024)))
                });
                format!("{pin}{kib} has another value now")
            }
            Origin::Manual(Some(rule)) => format!(
                "set manually or by an unknown program (the kernel's rule gives {})",
                size(rule.bytes)
            ),
            _ => self.in_words(),
        }
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
            (Some(model), true) => format!("{model}, rotating"),
            (Some(model), false) => model.clone(),
            (None, true) => "a rotating disk".to_string(),
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
