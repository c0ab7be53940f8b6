//! Sets readahead permanently, and restores it: one file of udev rules contains both the rules and the old values.
//!
//! ```text
//!   --fix    lock ──► is it allowed? ──► the whole file, by rename ──► the value of each disk
//!   --undo   lock ──► the value that each disk had before ──► the file without them, or no file
//!
//!   # foreread-before sda 8192 1024        old and new value in KiB, for --undo
//!   SUBSYSTEM=="block", ENV{ID_SERIAL}=="S3X", ..., ATTR{queue/read_ahead_kb}="1024"
//! ```
//! If the process is killed, the file has either the old or the new text. The file is written before a value is set,
//! and deleted after all values are restored, so it always lists every change. If another program has changed a value since foreread set
//! it, `--undo` keeps the newer value; it also keeps the lines that an administrator added to the file. The lock is a separate file that
//! only root may open, because every user could lock a file that is readable for all.
//!
//! If a line of another file sets the readahead of a disk, or may set it, foreread changes this readahead only with `--force`. The file of udev
//! rules is never half written. The readahead of a mount without a disk, such as NFS, is never set, because such a mount gets another
//! device number each time it is mounted.

use super::pins::Pin;
use foreread_os::failure::Failure;
use foreread_os::host::Host;
use foreread_os::host::backing::BackingDevice;
use foreread_os::host::devices::{read_setting, writable_setting, write_setting};
use foreread_os::host::settings::UdevRecord;
use foreread_os::open::read_small_text;
use foreread_os::output;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

pub const RULES_FILE: &str = "/etc/udev/rules.d/61-foreread-readahead.rules";
const FOLDER: &str = "/etc/udev/rules.d";
const LOCK_FILE: &str = "/run/foreread-doctor.lock";
const TITLE: &str = "# Readahead of disks.";
const WRITTEN_ON: &str = "# Written on ";
const WRITTEN_BY: &str =
    "by 'foreread doctor --fix'; 'foreread doctor --undo' restores the old values.";
const STATE: &str = "# foreread-before ";
const MAX_BYTES: u64 = 1 << 20;

/// A disk for which the file of udev rules has a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedDisk {
    pub name: String,
    pub before_kib: u64,
    pub kib: u64,
    /// The line for udev; empty if it does not follow the line with the state.
    rule: String,
}

/// The changes that `--fix` or `--undo` made, or would make in a dry run.
#[derive(Clone, Debug, Default)]
pub struct FixOutcome {
    /// The new text of the file; `None` if the file is deleted.
    pub text: Option<String>,
    pub lines: Vec<String>,
}

/// The facts about a disk that `--fix` needs.
#[derive(Clone, Copy, Debug)]
pub struct DiskToFix<'a> {
    pub device: &'a BackingDevice,
    pub advised: Option<u64>,
    /// Why no value is advised, if so.
    pub reason: &'a str,
    pub pin: Option<&'a Pin>,
}

/// Sets the advised readahead of these disks. If `is_dry` is true, or if the rules cannot be written, changes nothing.
pub fn fix(
    host: &Host,
    disks: &[DiskToFix<'_>],
    date: &str,
    force: bool,
    is_dry: bool,
) -> Result<FixOutcome, Failure> {
    let path = host.path(RULES_FILE);
    let _lock = if is_dry { None } else { Some(lock(host)?) };
    let before = text_of(&path)?;
    let mut fixed = parse(&before);
    let mut outcome = FixOutcome::default();
    let mut to_set = Vec::new();
    for disk in disks {
        let Some(entry) = entry(host, disk, &fixed, force, &mut outcome.lines)? else {
            continue;
        };
        if !is_dry {
            writable_setting(&disk.device.setting)
                .map_err(|error| not_set(&disk.device.setting, error))?;
        }
        fixed.retain(|other| other.name != entry.name);
        to_set.push((disk.device, entry.clone()));
        fixed.push(entry);
    }
    if to_set.is_empty() {
        outcome.lines.push("Nothing to set.".to_string());
        return Ok(outcome);
    }
    let text = edited(&before, &fixed, date);
    outcome.text = Some(text.clone());
    if is_dry {
        return Ok(outcome);
    }
    output::write_for_all(&path, text.as_bytes())
        .map_err(|error| not_written(host, error, &to_set))?;
    for (device, entry) in &to_set {
        write_setting(&device.setting, entry.kib)
            .map_err(|error| not_set(&device.setting, error))?;
        let (name, before, kib) = (&entry.name, entry.before_kib, entry.kib);
        outcome.lines.push(format!(
            "{name}: read_ahead_kb {before} -> {kib}, now and at every boot by {RULES_FILE}."
        ));
    }
    if !host.has_udev() {
        outcome.lines.push(
            "udev does not run here, so the value lasts only until the next boot.".to_string(),
        );
    }
    Ok(outcome)
}

/// Restores the values that [`fix`] replaced, for these disks, or for all disks if `names` is empty.
pub fn undo(host: &Host, names: &[String], is_dry: bool) -> Result<FixOutcome, Failure> {
    let path = host.path(RULES_FILE);
    let _lock = if is_dry { None } else { Some(lock(host)?) };
    let text = text_of(&path)?;
    let fixed = parse(&text);
    let is_asked = |disk: &FixedDisk| {
        names.is_empty()
            || names
                .iter()
                .any(|name| name.trim_start_matches("/dev/") == disk.name)
    };
    let (undone, kept): (Vec<FixedDisk>, Vec<FixedDisk>) = fixed.into_iter().partition(is_asked);
    if undone.is_empty() {
        let remedy = "'foreread doctor --fix' sets values, and --undo restores the old ones";
        return Err(Failure::input("nothing to undo", RULES_FILE, remedy));
    }
    let mut outcome = FixOutcome::default();
    let devices = host.backing_devices();
    for disk in &undone {
        let (name, before_kib, kib) = (&disk.name, disk.before_kib, disk.kib);
        let device = devices.iter().find(|device| device.name == *name);
        let now = device.and_then(|device| read_setting(&device.setting).ok());
        let line = match (device, now) {
            (Some(device), Some(now)) if now == kib => {
                if !is_dry {
                    write_setting(&device.setting, before_kib)
                        .map_err(|error| not_set(&device.setting, error))?;
                }
                format!("{name}: read_ahead_kb {kib} -> {before_kib}.")
            }
            (Some(_), Some(now)) if now == before_kib => {
                format!("{name}: read_ahead_kb is {now} already.")
            }
            (Some(_), Some(now)) => {
                format!("{name}: read_ahead_kb {now} was set by another program, and is kept.")
            }
            _ => format!("{name} is not present now; its rule is removed."),
        };
        outcome.lines.push(line);
    }
    let date = text
        .lines()
        .find_map(|line| line.strip_prefix(WRITTEN_ON)?.get(..10));
    let left = edited(&text, &kept, date.unwrap_or("an earlier day"));
    outcome.text = Some(left).filter(|left| !left.is_empty());
    if is_dry {
        return Ok(outcome);
    }
    match &outcome.text {
        Some(text) => {
            output::write_for_all(&path, text.as_bytes()).map_err(|error| no_file(host, error))?;
            if kept.is_empty() {
                outcome.lines.push(format!(
                    "{RULES_FILE} keeps the lines that foreread did not write."
                ));
            }
        }
        None => {
            std::fs::remove_file(&path).map_err(|error| no_file(host, error))?;
            outcome.lines.push(format!("{RULES_FILE} is removed."));
        }
    }
    Ok(outcome)
}

/// The entry of a disk. Returns `None` if it already has the value, or if no value is advised.
fn entry(
    host: &Host,
    disk: &DiskToFix<'_>,
    fixed: &[FixedDisk],
    force: bool,
    lines: &mut Vec<String>,
) -> Result<Option<FixedDisk>, Failure> {
    let (device, name) = (disk.device, &disk.device.name);
    if !device.is_disk {
        let remedy = "set it at each mount: 'foreread doctor' prints the command, or use [nfsrahead] in nfs.conf";
        return Err(Failure::cannot(
            "a udev rule cannot set the readahead of a mount permanently",
            name,
            remedy,
        ));
    }
    let Some(kib) = disk.advised.map(|bytes| bytes / 1024) else {
        lines.push(format!("{name}: nothing to set ({}).", disk.reason));
        return Ok(None);
    };
    if let Some(pin) = disk.pin.filter(|pin| pin.is_foreign() && !force) {
        let what = match pin.is_certain {
            true => "another file sets its readahead",
            false => "another file may set its readahead",
        };
        let remedy = "change it there, or override that file with --force";
        return Err(Failure::input(what, format!("{name}, {pin}"), remedy));
    }
    let now = read_setting(&device.setting).map_err(|error| not_set(&device.setting, error))?;
    // If foreread has set it before, the value from before that counts.
    let earlier = fixed.iter().find(|other| other.name == *name);
    let before_kib = earlier.map_or(now, |earlier| earlier.before_kib);
    let (condition, warning) = match condition(host, device) {
        Some(condition) => (condition, None),
        None => (
            format!("KERNEL==\"{}\"", pattern(name)),
            Some(format!(
                "{name}: udev knows no serial number, so the rule uses the name, which another disk may have after a reboot."
            )),
        ),
    };
    lines.extend(warning);
    let rule = format!(
        "ACTION==\"add|change\", SUBSYSTEM==\"block\", ENV{{DEVTYPE}}==\"disk\", {condition}, ATTR{{queue/read_ahead_kb}}=\"{kib}\""
    );
    Ok(Some(FixedDisk {
        name: name.clone(),
        before_kib,
        kib,
        rule,
    }))
}

/// The text with these disks: a disk keeps its place or is appended, and lines that foreread did not write stay. Empty if nothing
/// remains.
fn edited(before: &str, disks: &[FixedDisk], date: &str) -> String {
    let mut left: Vec<&FixedDisk> = disks.iter().collect();
    let mut text = String::new();
    for part in parts(before) {
        match part {
            Part::Disk(old) => {
                let place = left.iter().position(|disk| disk.name == old.name);
                match place {
                    Some(at) => text += &entry_text(left.remove(at)),
                    // foreread also wrote the blank line before it.
                    None if text.ends_with("\n\n") => drop(text.pop()),
                    None => {}
                }
            }
            Part::Header => {}
            Part::Foreign(line) => text += &format!("{line}\n"),
        }
    }
    for disk in left {
        text += &format!("\n{}", entry_text(disk));
    }
    let text = text.trim_start_matches('\n');
    match (disks.is_empty(), text.trim().is_empty()) {
        (true, true) => String::new(),
        (true, false) => text.to_string(),
        (false, _) => format!("{TITLE}\n{WRITTEN_ON}{date} {WRITTEN_BY}\n\n{text}"),
    }
}

fn entry_text(disk: &FixedDisk) -> String {
    let end = if disk.rule.is_empty() { "" } else { "\n" };
    let state = format!("{STATE}{} {} {}", disk.name, disk.before_kib, disk.kib);
    format!("{state}\n{}{end}", disk.rule)
}

enum Part<'a> {
    Header,
    Disk(FixedDisk),
    Foreign(&'a str),
}

fn parts(text: &str) -> Vec<Part<'_>> {
    let mut lines = text.lines().peekable();
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        if line == TITLE || line.starts_with(WRITTEN_ON) && line.ends_with(WRITTEN_BY) {
            found.push(Part::Header);
            continue;
        }
        let Some((name, before_kib, kib)) = state(line) else {
            found.push(Part::Foreign(line));
            continue;
        };
        let is_rule = |line: &&str| {
            line.starts_with("ACTION==") && line.contains("ATTR{queue/read_ahead_kb}=")
        };
        let rule = lines.next_if(is_rule).unwrap_or_default().to_string();
        found.push(Part::Disk(FixedDisk {
            name,
            before_kib,
            kib,
            rule,
        }));
    }
    found
}

/// Name, previous value and value of a disk.
fn state(line: &str) -> Option<(String, u64, u64)> {
    let words: Vec<&str> = line.strip_prefix(STATE)?.split(' ').collect();
    let [name, before, kib] = words[..] else {
        return None;
    };
    Some((name.to_string(), before.parse().ok()?, kib.parse().ok()?))
}

/// The disks in a file. Lines that foreread did not write are ignored.
fn parse(text: &str) -> Vec<FixedDisk> {
    let disk = |part| match part {
        Part::Disk(disk) => Some(disk),
        Part::Header | Part::Foreign(_) => None,
    };
    parts(text).into_iter().filter_map(disk).collect()
}

fn text_of(path: &Path) -> Result<String, Failure> {
    match read_small_text(path, MAX_BYTES) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        Err(error) => {
            let remedy = "check the file, and remove it";
            Err(Failure::input("cannot read the rules", path.display(), remedy).caused_by(error))
        }
    }
}

/// Takes the lock: only one process at a time changes the rules. The folder of rules is created if it is missing.
fn lock(host: &Host) -> Result<File, Failure> {
    if host.is_nixos() {
        let remedy = "put the rule that --dry-run prints into services.udev.extraRules";
        return Err(Failure::cannot(
            "this is NixOS, which generates /etc from its configuration",
            FOLDER,
            remedy,
        ));
    }
    let path = host.path(LOCK_FILE);
    let folder = path.parent().map_or(Ok(()), output::folder_for_all);
    let own = folder.and_then(|()| output::own_file(&path));
    let own = own.map_err(|error| cannot(host, "cannot make the lock", LOCK_FILE, error))?;
    if flock(&own, FlockOperation::NonBlockingLockExclusive).is_err() {
        let remedy = "wait for it to end";
        return Err(Failure::input(
            "another 'foreread doctor' is running",
            LOCK_FILE,
            remedy,
        ));
    }
    output::folder_for_all(&host.path(FOLDER)).map_err(|error| no_file(host, error))?;
    Ok(own)
}

fn not_set(path: &Path, error: std::io::Error) -> Failure {
    let remedy = match error.kind() {
        ErrorKind::PermissionDenied => "run it as root",
        ErrorKind::ReadOnlyFilesystem => {
            "sysfs is read-only here, as in a container: run it on the host"
        }
        _ => "'foreread doctor --undo' restores the old values",
    };
    Failure::cannot("cannot set readahead", path.display(), remedy).caused_by(error)
}

fn no_file(host: &Host, error: std::io::Error) -> Failure {
    cannot(host, "cannot write the rules", RULES_FILE, error)
}

fn cannot(host: &Host, what: &str, place: &str, error: std::io::Error) -> Failure {
    let remedy = match error.kind() {
        ErrorKind::PermissionDenied => "run it as root",
        ErrorKind::ReadOnlyFilesystem if host.is_container() => {
            "run it on the host of this container"
        }
        ErrorKind::ReadOnlyFilesystem => {
            "/etc is read-only: add the rule that --dry-run prints to the udev rules in your system's image"
        }
        _ => "check the folder",
    };
    Failure::cannot(what, place, remedy).caused_by(error)
}

fn not_written(
    host: &Host,
    error: std::io::Error,
    to_set: &[(&BackingDevice, FixedDisk)],
) -> Failure {
    let failure = no_file(host, error);
    let names: Vec<&str> = to_set
        .iter()
        .map(|(device, _)| device.name.as_str())
        .collect();
    Failure {
        what: format!(
            "{} (nothing was changed: {})",
            failure.what,
            names.join(", ")
        ),
        ..failure
    }
}

// Finds a permanent identity of a disk for a udev rule; udev must know this identity when it processes the rule files whose names begin
// with 61.
//
// ```text
//   disk          ENV{ID_SERIAL}, ID_WWN, ID_PATH         60-persistent-storage.rules, at `add`
//   mapped        ENV{DM_UUID}                            10-dm.rules, at the `change` that ends each activation
//   MD array      ATTR{md/uuid}, on newer kernels         at the `change` that ends its assembly; MD_UUID is set by 63-md-raid-arrays.rules: too late
//                 RESULT of mdadm --detail --export       by the same program
//   bcache        ATTR{bcache/backing_dev_uuid}           else ENV{CACHED_UUID}, which the kernel's `change` event has
//   loop          ATTR{loop/backing_file}                 at the `change` that attaches the file
//   zvol, RBD     SYMLINK                                 60-zvol.rules, 50-rbd.rules, at `add`
// ```
// Sources: udev(7), and the udev rules of systemd, lvm2, mdadm, bcache-tools, OpenZFS and Ceph.

/// Properties that rules before 61 set, in order of preference.
const PROPERTIES: [&str; 5] = ["ID_SERIAL", "ID_WWN", "DM_UUID", "CACHED_UUID", "ID_PATH"];
/// Attributes that the kernel has in every event.
const ATTRIBUTES: [&str; 3] = ["loop/backing_file", "md/uuid", "bcache/backing_dev_uuid"];
/// Links that rules before 61 create.
const LINKS: [&str; 2] = ["zvol/", "rbd/"];

/// Returns the condition of a udev rule that matches only this disk, or `None` if the disk has no permanent identity except its name.
pub fn condition(host: &Host, device: &BackingDevice) -> Option<String> {
    let record = device.number.and_then(|number| host.udev_record(number));
    let UdevRecord { properties, links } = record.unwrap_or_default();
    let attribute = ATTRIBUTES.iter().find_map(|key| {
        let value = host.disk_attribute(&device.name, key)?;
        (!value.is_empty()).then(|| format!("ATTR{{{key}}}==\"{}\"", pattern(&value)))
    });
    let of_md = || {
        let uuid = properties.get("MD_UUID")?;
        let mdadm = ["/sbin/mdadm", "/usr/sbin/mdadm", "/usr/bin/mdadm"]
            .into_iter()
            .find(|path| host.path(path).exists())?;
        Some(format!(
            "KERNEL==\"md*\", PROGRAM==\"{mdadm} --detail --no-devices --export $devnode\", RESULT==\"*MD_UUID={}*\"",
            pattern(uuid)
        ))
    };
    let link = || {
        let is_its = |link: &&String| LINKS.iter().any(|begin| link.starts_with(begin));
        let link = links.iter().find(is_its)?;
        Some(format!("SYMLINK==\"{}\"", pattern(link)))
    };
    let property = || {
        let key = PROPERTIES
            .iter()
            .find(|key| properties.contains_key(**key))?;
        Some(format!("ENV{{{key}}}==\"{}\"", pattern(&properties[*key])))
    };
    attribute.or_else(of_md).or_else(link).or_else(property)
}

/// Converts a text to a udev pattern that matches it: each special character becomes `?`.
pub fn pattern(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.:/+ ,@!=#".contains(letter);
    text.chars()
        .map(|letter| if is_plain(letter) { letter } else { '?' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(name: &str, kib: u64) -> FixedDisk {
        FixedDisk {
            name: name.to_string(),
            before_kib: 8192,
            kib,
            rule: format!(
                "ACTION==\"add\", KERNEL==\"{name}\", ATTR{{queue/read_ahead_kb}}=\"{kib}\""
            ),
        }
    }

    #[test]
    fn lines_of_an_administrator_keep_their_places() {
        let ours = edited("", &[disk("sda", 1024), disk("sdb", 1024)], "2026-11-27");
        let first = "# ours\nKERNEL==\"sdz\", GOTO=\"end\"\n\n";
        let between = "KERNEL==\"sdy\", ATTR{queue/scheduler}=\"none\"\n";
        let at = ours.find("\n# foreread-before sdb").expect("a second disk");
        let mixed = format!(
            "{first}{}{between}{}LABEL=\"end\"\n",
            &ours[..at],
            &ours[at..]
        );
        let text = edited(&mixed, &[disk("sda", 2048), disk("sdc", 1)], "2026-11-28");
        assert_eq!(parse(&text), [disk("sda", 2048), disk("sdc", 1)]);
        let own = |text: &str| {
            let own = parts(text).into_iter().filter_map(|part| match part {
                Part::Foreign(line) if !line.is_empty() => Some(line.to_string()),
                _ => None,
            });
            own.collect::<Vec<String>>()
        };
        assert_eq!(own(&text), own(&mixed));
        assert_eq!(own(&text).len(), 4);
        let before = |a: &str, b: &str| text.find(a).expect(a) < text.find(b).expect(b);
        assert!(before("sdz", "sda") && before("sda", "sdy") && before("LABEL", "sdc"));
        let undone = edited(&text, &[], "2026-11-28");
        assert_eq!(own(&undone), own(&mixed));
        assert!(!undone.contains("foreread") && undone.starts_with("# ours\n"));
        // A line between the state and its rule is not the rule.
        let split = "# foreread-before sda 8192 1024\nKERNEL==\"sdz\"\n";
        assert_eq!(parse(split)[0].rule, "");
        assert!(edited(split, &[], "2026-11-28").contains("sdz"));
    }

    #[test]
    fn the_file_is_read_as_it_was_written() {
        let disks = vec![disk("sda", 1024), disk("dm-3", 1024)];
        let text = edited("", &disks, "2026-11-27");
        assert_eq!(parse(&text), disks);
        assert!(text.contains("# Written on 2026-11-27 "));
        assert_eq!(edited(&text, &disks, "2026-11-27"), text);
        assert_eq!(edited(&text, &[], "2026-11-27"), "");
        assert_eq!(
            parse("# foreread-before sda x 1\nrule\n# foreread-before sda 1"),
            []
        );
        assert_eq!(pattern("S3X*\"\n[a]"), "S3X????a?");
    }
}
