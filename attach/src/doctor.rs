//! Finds wrong readahead settings of a machine: examines every backing device, explains where its value comes from, and rates the value.
//!
//! ```text
//!   look ──► rules, pins: origin of the value     ──► judge: what it costs ──► verdict ──► render, --json
//!                                measure ──► costs ──┘                            └──► fix: a udev rule, and the value now
//! ```
//! `doctor` examines devices without root, and without opening them. No setting is changed unless the user asks for it.

pub mod fix;
pub mod judge;
pub mod look;
pub mod measure;
pub mod pins;
pub mod render;
pub mod rules;
pub mod verdict;

use fix::{DiskToFix, FixOutcome};
use foreread_lab::glance::Unmeasured;
use foreread_lab::probe::today;
use foreread_lab::verdict::Standing;
use foreread_lab::verdict::disk::{DiskLook, SettingLimits};
use foreread_os::failure::Failure;
use foreread_os::host::{DiskCounters, Host, KernelVersion};
use foreread_report::number::{percent, size};
use look::DeviceFacts;
use measure::measure;
use pins::{Pin, Settings};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use verdict::{DeviceVerdict, DoctorReport, PressureFacts, SCHEMA};

/// Fewest reads of all disks for which a share of faults has a meaning.
const MIN_READS: u64 = 1000;
/// Fewest page faults in a moment that have a meaning.
const MIN_FAULTS_NOW: u64 = 10;
/// If page faults read at least this fraction of the bytes, the report says so.
const MANY_FAULTS: f64 = 0.2;
/// Most programs that are named.
const MAX_PROGRAMS: usize = 6;
/// From this percentage of the last minute with memory stalls on, memory is short.
const STALLED_PERCENT: f64 = 1.0;

/// Most disks that are measured: the whole takes at most ten seconds.
const MAX_MEASURED: usize = 4;
/// The latest start of a measurement, if no disk was named: then the whole takes three seconds.
const LAST_MEASURED: Duration = Duration::from_millis(500);

#[derive(Clone, Debug, Default)]
pub struct DoctorOptions {
    /// Names of devices, or nodes, or paths of files on them; empty for all devices.
    pub devices: Vec<String>,
    /// Whether disks may be read.
    pub may_measure: bool,
    /// How long page faults and reads are counted; zero uses only the counters since the machine started.
    pub counted_for: Duration,
    /// The value to set, in bytes, instead of the advised one.
    pub to: Option<u64>,
}

struct ExaminedDevice {
    facts: DeviceFacts,
    pin: Option<Pin>,
    verdict: DeviceVerdict,
}

pub fn examine(host: &Host, options: &DoctorOptions) -> Result<DoctorReport, Failure> {
    let mut notes = Vec::new();
    let kernel = host.kernel_release();
    let version = host.kernel_version();
    let all = look_at(host)?;
    let pressure = pressure(host, &all, options.counted_for);
    let examined = examine_devices(host, all, version, options, &mut notes)?;
    let devices: Vec<DeviceVerdict> = examined.into_iter().map(|device| device.verdict).collect();
    let standing = devices.iter().map(|device| device.verdict.standing).max();
    notes.extend(notes_of(host, version, &devices));
    Ok(DoctorReport {
        schema: SCHEMA,
        foreread: env!("CARGO_PKG_VERSION"),
        kernel,
        standing: standing.unwrap_or_default(),
        devices,
        pressure,
        notes,
    })
}

fn look_at(host: &Host) -> Result<Vec<DeviceFacts>, Failure> {
    if !host.has_sysfs() {
        let remedy = "run it on the host, or mount sysfs";
        return Err(Failure::cannot("there is no sysfs here", "", remedy));
    }
    Ok(look::look(host))
}

fn examine_devices(
    host: &Host,
    all: Vec<DeviceFacts>,
    version: Option<KernelVersion>,
    options: &DoctorOptions,
    notes: &mut Vec<String>,
) -> Result<Vec<ExaminedDevice>, Failure> {
    let memory_bytes = host.memory_bytes();
    let chosen = choose(host, all, &options.devices)?;
    let settings = Settings::read(host);
    let (mut examined, mut measured) = (Vec::new(), 0);
    let began = Instant::now();
    for facts in chosen {
        let pin = settings.pin(host, &facts);
        let rule = version.and_then(|version| rules::rule(version, &facts));
        let limits = SettingLimits {
            request_bytes: facts.device.max_request,
            memory_bytes,
        };
        let judged = |look: &DiskLook| judge::judge(&facts, rule.as_ref(), pin.as_ref(), look);
        let mut verdict = judged(&DiskLook {
            has_bytes: facts.device.read_ahead,
            costs: judge::assumed(&facts),
            limits,
            checked: Vec::new(),
        });
        // For a device that is fine by its class no figure is shown: it is not worth a read, unless the user named
        // it.
        let is_asked = verdict.verdict.standing != Standing::Fine || !options.devices.is_empty();
        let has_time = !options.devices.is_empty() || began.elapsed() < LAST_MEASURED;
        if options.may_measure && is_asked && has_time && measured < MAX_MEASURED {
            match measure(host, &facts, limits) {
                Ok(Some(look)) => {
                    verdict = judged(&look);
                    measured += 1;
                }
                Err(Unmeasured::Busy) => verdict = verdict.busy(),
                Err(Unmeasured::Failed(why)) => {
                    let name = &facts.device.name;
                    notes.push(format!("{name} was not measured: {why}"));
                }
                Ok(None) => {}
            }
        }
        examined.push(ExaminedDevice {
            facts,
            pin,
            verdict,
        });
    }
    Ok(examined)
}

/// Sets the advised readahead for the named devices, or for all devices with a suspicious value.
pub fn set(
    host: &Host,
    options: &DoctorOptions,
    force: bool,
    is_dry: bool,
) -> Result<FixOutcome, Failure> {
    let version = host.kernel_version();
    let all = look_at(host)?;
    let examined = examine_devices(host, all, version, options, &mut Vec::new())?;
    let is_meant = |device: &&ExaminedDevice| {
        !options.devices.is_empty()
            || device.verdict.verdict.standing == Standing::Suspicious
                && device.facts.device.is_disk
    };
    let meant: Vec<&ExaminedDevice> = examined.iter().filter(is_meant).collect();
    are_measured(meant.iter().map(|device| &device.verdict))?;
    let disks: Vec<DiskToFix<'_>> = meant
        .iter()
        .map(|device| DiskToFix {
            device: &device.facts.device,
            advised: options
                .to
                .or(device.verdict.advised.map(|size| size.readahead_bytes)),
            reason: &device.verdict.reason,
            pin: device.pin.as_ref(),
        })
        .collect();
    let mut outcome = fix::fix(host, &disks, &today(), force, is_dry)?;
    if outcome.text.is_some() && !is_dry {
        outcome.lines.extend(open_files(host, &meant));
    }
    Ok(outcome)
}

/// Refuses to set a value if the machine is too busy to measure which one is right.
fn are_measured<'a>(devices: impl Iterator<Item = &'a DeviceVerdict>) -> Result<(), Failure> {
    let mut busy = devices.filter(|device| device.is_busy);
    busy.next().map_or(Ok(()), |device| {
        let what = "the machine is too busy to measure which readahead is right";
        let remedy = "try again when it is idle, or name a value with --to";
        Err(Failure::cannot(what, &device.verdict.device, remedy))
    })
}

/// The programs that keep the old value.
fn open_files(host: &Host, devices: &[&ExaminedDevice]) -> Option<String> {
    let mut numbers = Vec::new();
    for device in devices.iter().map(|device| &device.facts.device) {
        numbers.extend(device.number);
        numbers.extend(&device.partitions);
    }
    let programs = host.programs_on(&numbers);
    let mut names: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for program in &programs {
        names.entry(&program.name).or_default().push(program.pid);
    }
    let mut words: Vec<String> = names
        .iter()
        .map(|(name, pids)| match pids[..] {
            [pid] => format!("{name} ({pid})"),
            _ => format!("{name} ({} of them)", pids.len()),
        })
        .collect();
    let more = words.len().saturating_sub(MAX_PROGRAMS);
    words.truncate(MAX_PROGRAMS);
    if more > 0 {
        words.push(format!("{more} more programs"));
    }
    (!words.is_empty()).then(|| {
        format!(
            "Open files keep the old value until they are opened again; restart these programs if it matters: {}.",
            words.join(", ")
        )
    })
}

/// The named devices; all devices if none is named. A partition's node and a file denote the disk below them.
fn choose(
    host: &Host,
    all: Vec<DeviceFacts>,
    named: &[String],
) -> Result<Vec<DeviceFacts>, Failure> {
    if named.is_empty() {
        // A loop device without a file cannot be read.
        return Ok(all.into_iter().filter(DeviceFacts::has_bytes).collect());
    }
    let mut chosen: Vec<DeviceFacts> = Vec::new();
    for name in named {
        let short = name.strip_prefix("/dev/").unwrap_or(name);
        let mapped = short.strip_prefix("mapper/").unwrap_or(short);
        let of_name = all.iter().find(|facts| {
            facts.device.name == short || facts.device.mapped_name.as_deref() == Some(mapped)
        });
        let by_path = || {
            let number = host.device_of(std::path::Path::new(name)).ok()?.number;
            let is_its = |facts: &&DeviceFacts| facts.device.number == Some(number);
            all.iter().find(is_its)
        };
        let found = of_name.or_else(by_path).ok_or_else(|| {
            let remedy = "'foreread doctor' lists all; name a disk such as sdb, or a file on it";
            Failure::input("no such device with readahead", name, remedy)
        })?;
        if !chosen
            .iter()
            .any(|facts| facts.device.name == found.device.name)
        {
            chosen.push(found.clone());
        }
    }
    Ok(chosen)
}

/// Counters of the machine's major faults and of its disks' reads.
struct FaultCounters {
    faults: Option<u64>,
    disks: BTreeMap<String, DiskCounters>,
}

impl FaultCounters {
    fn now(host: &Host, devices: &[DeviceFacts]) -> FaultCounters {
        let disks = devices.iter().filter(|facts| facts.device.is_disk);
        let disks = disks.map(|facts| facts.device.name.clone());
        FaultCounters {
            faults: host.memory_pressure().major_faults,
            disks: disks
                .filter_map(|name| Some((name.clone(), host.disk_counters(&name)?)))
                .collect(),
        }
    }

    /// Faults / reads of all disks. A disk below another one counts once.
    fn share(&self, devices: &[DeviceFacts]) -> Option<f64> {
        let lowest = devices.iter().filter(|facts| facts.device.below.is_empty());
        let counters = lowest.filter_map(|facts| self.disks.get(&facts.device.name));
        let reads: u64 = counters.map(|counters| counters.reads).sum();
        let faults = self.faults.filter(|_| reads >= MIN_READS)?;
        Some(faults as f64 / reads as f64)
    }

    /// The part of a disk's reads since `earlier` that faults can have caused, if each fault reads a window. It is computed in bytes,
    /// because a large window is many requests.
    fn share_since(&self, earlier: &FaultCounters, facts: &DeviceFacts) -> Option<f64> {
        let faults = self.faults?.saturating_sub(earlier.faults?);
        let name = &facts.device.name;
        let read = |counters: &FaultCounters| Some(counters.disks.get(name)?.read_bytes);
        let bytes = read(self)?.saturating_sub(read(earlier)?);
        let by_faults = faults.saturating_mul(facts.device.read_ahead?.max(4096));
        (faults >= MIN_FAULTS_NOW && bytes > 0).then(|| (by_faults as f64 / bytes as f64).min(1.0))
    }
}

fn pressure(host: &Host, devices: &[DeviceFacts], counted_for: Duration) -> PressureFacts {
    let since_start = FaultCounters::now(host, devices);
    let mut at_present = String::new();
    if counted_for > Duration::ZERO {
        std::thread::sleep(counted_for);
        let now = FaultCounters::now(host, devices);
        for facts in devices {
            let part = now.share_since(&since_start, facts);
            if let Some(part) = part.filter(|part| *part >= MANY_FAULTS) {
                at_present += &format!(
                    " At present, page faults are {} % of the reads from {}; 'foreread tune --pid PID' finds the readahead for a program.",
                    percent(part),
                    facts.device.name
                );
            }
        }
    }
    let pressure = host.memory_pressure();
    let faults_of_reads = since_start.share(devices);
    let stalls = match pressure.stalled_percent {
        Some(percent) if percent >= STALLED_PERCENT => {
            format!(
                "Memory is short: programs waited for memory in {percent:.1} % of the last minute"
            )
        }
        Some(_) => "Memory is not short now".to_string(),
        None => "Whether memory is short is unknown (no PSI)".to_string(),
    };
    let refaulted = pressure.refaulted_bytes().map(|bytes| {
        format!(
            "; {} of file data were read again soon after their eviction from the page cache",
            size(bytes)
        )
    });
    let faults = faults_of_reads.map(|part| {
        format!(
            "; page faults are {} % of the reads",
            percent(part.min(1.0))
        )
    });
    PressureFacts {
        major_faults: pressure.major_faults,
        refaulted_pages: pressure.refaults,
        faults_of_reads,
        stalled_percent: pressure.stalled_percent,
        memory_bytes: pressure.memory_bytes,
        words: format!(
            "{stalls}{}{}{}.{}",
            refaulted.as_deref().unwrap_or_default(),
            faults.as_deref().unwrap_or_default(),
            if refaulted.is_some() || faults.is_some() {
                " (since boot)"
            } else {
                ""
            },
            at_present
        ),
    }
}

fn notes_of(host: &Host, version: Option<KernelVersion>, devices: &[DeviceVerdict]) -> Vec<String> {
    let mut notes = Vec::new();
    if version.is_none() {
        notes.push(
            "The kernel release is unknown, so its readahead rule is unknown too".to_string(),
        );
    }
    let mounts = host.mounts_of_root();
    let root = mounts
        .iter()
        .rev()
        .find(|mount| mount.point == std::path::Path::new("/"));
    if let Some(root) = root.filter(|root| root.kind == "overlay") {
        let upper = root
            .options
            .split(',')
            .find_map(|word| word.strip_prefix("upperdir="));
        let upper = upper.map_or_else(String::new, |path| {
            format!(" (for changed files: the layer of {path})")
        });
        notes.push(format!(
            "The root is an overlay file system: a file has the readahead of the layer that contains it{upper}"
        ));
    }
    // The root is on no disk: a virtual machine may also have the marks of a container.
    if host.is_container() && root.is_some_and(|root| root.number.major == 0) {
        notes.push(
            "This is a container: the settings belong to its host, and can only be changed there"
                .to_string(),
        );
    }
    let wrong = devices
        .iter()
        .any(|device| device.verdict.standing == Standing::Suspicious);
    if wrong && let Some(fate) = version.and_then(rules::fate_of_a_set_value) {
        notes.push(format!(
            "A value that is set manually does not last: {fate}"
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreread_os::host::backing::BackingDevice;

    fn device(read_ahead: u64) -> DeviceFacts {
        let device = BackingDevice {
            name: "sda".to_string(),
            read_ahead: Some(read_ahead),
            size: Some(1 << 40),
            is_disk: true,
            rotates: Some(false),
            ..BackingDevice::default()
        };
        DeviceFacts {
            device,
            kind: look::StorageKind::Disk,
            is_virtual: Some("a virtual disk"),
            used_by: Vec::new(),
        }
    }

    #[test]
    fn a_busy_machine_gets_no_value() {
        for (bytes, standing) in [(8 << 20, Standing::Suspicious), (64 << 10, Standing::Fine)] {
            let facts = device(bytes);
            let look = DiskLook {
                has_bytes: Some(bytes),
                costs: judge::assumed(&facts),
                limits: SettingLimits {
                    request_bytes: None,
                    memory_bytes: 16 << 30,
                },
                checked: Vec::new(),
            };
            let assumed = judge::judge(&facts, None, None, &look);
            assert_ne!(assumed.verdict.standing, Standing::Fine);
            are_measured(std::iter::once(&assumed)).expect("a value");
            let busy = assumed.busy();
            assert_eq!(busy.verdict.standing, standing);
            assert_eq!((busy.verdict.should_bytes, busy.advised), (None, None));
            let line = render::line(&busy);
            assert!(
                line.contains("too busy") && !line.contains("--fix"),
                "{line}"
            );
            let refused = are_measured(std::iter::once(&busy)).expect_err("no value");
            assert!(
                refused
                    .to_string()
                    .contains("sda; try again when it is idle")
            );
        }
    }

    #[test]
    fn the_share_of_faults_is_of_the_bytes_that_a_disk_reads() {
        let counters = |faults, read_bytes| FaultCounters {
            faults: Some(faults),
            disks: BTreeMap::from([(
                "sda".to_string(),
                DiskCounters {
                    read_bytes,
                    ..DiskCounters::default()
                },
            )]),
        };
        let before = counters(1000, 1 << 30);
        let share = |faults: u64, bytes: u64, window| {
            counters(1000 + faults, (1 << 30) + bytes).share_since(&before, &device(window))
        };
        assert_eq!(share(20, 160 << 20, 8 << 20), Some(1.0));
        assert_eq!(share(20, 320 << 20, 8 << 20), Some(0.5));
        assert_eq!(share(9, 72 << 20, 8 << 20), None, "too few faults");
        assert_eq!(share(20, 0, 8 << 20), None);
    }
}
