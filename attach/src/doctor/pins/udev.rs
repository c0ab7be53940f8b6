//! Finds the readahead that the rules of udev set for a disk: all rule files are evaluated, in udev's order, for the disk's `add` and
//! `change` events.
//!
//! ```text
//!   SUBSYSTEM=="block", KERNEL=="sd*", ATTRS{vendor}=="ATA", ATTR{queue/read_ahead_kb}="4096"
//!   KERNEL!="nvme*", GOTO="end"            RUN+="/sbin/blockdev --setra 8192 /dev/%k"            LABEL="end"
//!   ─────── conditions ────────            ──── runs after all rules have been read ────
//! ```
//! The rules are evaluated for the events of the disk, of its partitions (a command on a partition's device node may set the whole disk),
//! and of its backing device. A condition that cannot be evaluated (the output of a program, a tag) is assumed to hold.
//!
//! Source: udev(7).

use super::super::look::{DeviceFacts, StorageKind};
use super::commands::{self, SetValue};
use super::pattern::{DiskNames, is_match};
use foreread_os::host::Host;
use foreread_os::host::settings::{SettingFile, UdevRecord};
use foreread_os::host::sys_device::SysDevice;
use std::collections::BTreeMap;

/// Attributes that every disk has: if one is missing here, it counts as unknown.
const ALWAYS: [&str; 6] = ["removable", "ro", "size", "range", "dev", "hidden"];

/// Names of disks, and the subsystem to which they belong.
const BUSES: [(&str, &str); 4] = [
    ("sd", "scsi"),
    ("nvme", "nvme"),
    ("vd", "virtio"),
    ("mmcblk", "mmc"),
];
/// Properties that a disk lacks if udev has not processed it.
const IDENTITIES: [&str; 7] = [
    "ID_SERIAL",
    "ID_WWN",
    "ID_PATH",
    "ID_FS_",
    "ID_PART_",
    "DM_",
    "MD_",
];

/// Properties that are attributes in sysfs.
const DERIVED: [(&str, &str); 5] = [
    ("DM_UUID", "dm/uuid"),
    ("DM_NAME", "dm/name"),
    ("MD_LEVEL", "md/level"),
    ("ID_MODEL", "device/model"),
    ("ID_VENDOR", "device/vendor"),
];

/// Long names of the substitutions in the text of a rule. Longer names come before their prefixes.
const LONG: [(&str, char); 12] = [
    ("devpath", 'p'),
    ("devnode", 'N'),
    ("tempnode", 'N'),
    ("kernel", 'k'),
    ("number", 'n'),
    ("attr", 's'),
    ("sysfs", 's'),
    ("env", 'E'),
    ("root", 'r'),
    ("sys", 'S'),
    ("name", 'k'),
    ("links", 'L'),
];

/// The udev rules in one file.
pub struct Rules<'a> {
    pub file: &'a SettingFile,
    rules: Vec<Vec<RuleTerm>>,
}

/// A part of a rule: `ATTR{queue/rotational}=="1"`.
#[derive(Debug, PartialEq, Eq)]
struct RuleTerm {
    key: String,
    /// The text in its braces.
    of: Option<String>,
    operator: &'static str,
    text: String,
}

impl RuleTerm {
    fn is_condition(&self) -> bool {
        matches!(self.operator, "==" | "!=")
    }
}

/// Longer operators come first.
const OPERATORS: [&str; 6] = ["==", "!=", "+=", "-=", ":=", "="];

impl<'a> Rules<'a> {
    #[must_use]
    pub fn parse(file: &'a SettingFile) -> Rules<'a> {
        let rules = lines(&file.text).iter().map(|line| terms(line)).collect();
        Rules { file, rules }
    }
}

/// Lines without comments; a line that ends in a backslash continues in the next.
fn lines(text: &str) -> Vec<String> {
    let (mut found, mut before) = (Vec::new(), String::new());
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with('#') {
            continue;
        }
        match line.strip_suffix('\\') {
            Some(part) => before += part,
            None => found.push(std::mem::take(&mut before) + line),
        }
    }
    found.push(before);
    found
}

/// Splits a rule into terms. Text in quotes may contain `\"` and may have a letter before the quotes: `e"..."`,
/// `i"..."`.
fn terms(line: &str) -> Vec<RuleTerm> {
    let mut found = Vec::new();
    let mut rest = line;
    while let Some((head, behind)) = rest.split_once('"') {
        let is_end =
            |(at, letter): &(usize, char)| *letter == '"' && !behind[..*at].ends_with('\\');
        let Some((end, _)) = behind.char_indices().find(is_end) else {
            break;
        };
        let (text, next) = (&behind[..end], &behind[end + 1..]);
        let head = head.trim_start_matches([',', ' ', '\t']);
        let head = head
            .strip_suffix(['e', 'i'])
            .filter(|head| head.ends_with('='))
            .unwrap_or(head)
            .trim_end();
        if let Some(operator) = OPERATORS.iter().find(|operator| head.ends_with(**operator)) {
            let key = head[..head.len() - operator.len()].trim();
            let (key, of) = match key.split_once('{') {
                Some((key, of)) => (key, Some(of.trim_end_matches('}').to_string())),
                None => (key, None),
            };
            found.push(RuleTerm {
                key: key.to_string(),
                of,
                operator,
                text: text.replace("\\\"", "\""),
            });
        }
        rest = next;
    }
    found
}

/// A disk, with the properties that the conditions of udev rules can test.
pub struct UdevDisk<'a> {
    pub facts: &'a DeviceFacts,
    pub names: &'a DiskNames,
    pub record: Option<&'a UdevRecord>,
    pub host: &'a Host,
}

/// Returns the index of the file in `files` that determines the readahead of a disk, and the value in KiB.
#[must_use]
pub fn pin(files: &[Rules<'_>], disk: &UdevDisk<'_>) -> Option<(usize, Option<u64>)> {
    let device = &disk.facts.device;
    let name = &device.name;
    let bdi = device
        .number
        .map_or(name.clone(), |number| number.to_string());
    let mut events = vec![Event::new(
        disk,
        "bdi",
        &bdi,
        &format!("class/bdi/{bdi}"),
        None,
    )];
    if device.is_disk {
        let folder = format!("block/{name}");
        events.push(Event::new(
            disk,
            "block",
            name,
            &folder,
            disk.record.cloned(),
        ));
        for partition in disk.host.partitions(name) {
            let record = partition
                .number
                .and_then(|number| disk.host.udev_record(number));
            let folder = format!("{folder}/{}", partition.name);
            let mut event = Event::new(disk, "block", &partition.name, &folder, record);
            event.is_partition = true;
            events.push(event);
        }
    }
    let mut found = None;
    for mut event in events {
        for action in ["add", "change"] {
            event.action = action;
            found = event.run(files).or(found);
        }
    }
    found
}

/// An event for a device.
struct Event<'a> {
    disk: &'a UdevDisk<'a>,
    action: &'static str,
    subsystem: &'static str,
    kernel: String,
    is_partition: bool,
    record: Option<UdevRecord>,
    device: Option<SysDevice>,
    parents: Vec<SysDevice>,
    /// Properties that rules have set.
    properties: BTreeMap<String, String>,
    /// Whether a condition names this device itself, not just its kind.
    is_named: bool,
}

impl<'a> Event<'a> {
    fn new(
        disk: &'a UdevDisk<'a>,
        subsystem: &'static str,
        kernel: &str,
        folder: &str,
        record: Option<UdevRecord>,
    ) -> Event<'a> {
        let device = disk.host.sys_device(folder);
        Event {
            disk,
            action: "add",
            subsystem,
            kernel: kernel.to_string(),
            is_partition: false,
            record,
            parents: device.as_ref().map(SysDevice::parents).unwrap_or_default(),
            device,
            properties: BTreeMap::new(),
            is_named: false,
        }
    }

    /// Evaluates all rules, then runs the commands that they have queued.
    fn run(&mut self, files: &[Rules<'_>]) -> Option<(usize, Option<u64>)> {
        self.properties.clear();
        let mut found = None;
        let mut runs: Vec<(usize, String)> = Vec::new();
        for (number, file) in files.iter().enumerate() {
            let mut at = 0;
            while let Some(rule) = file.rules.get(at) {
                at += 1;
                self.is_named = false;
                if !self.fits(rule) {
                    continue;
                }
                if let Some(value) = self.assign(rule, number, &mut runs) {
                    found = Some((number, value));
                }
                let label = rule.iter().find(|term| term.key == "GOTO");
                if let Some(label) = label {
                    let is_label = |term: &RuleTerm| term.key == "LABEL" && term.text == label.text;
                    let ahead = file.rules[at..]
                        .iter()
                        .position(|rule| rule.iter().any(is_label));
                    at = ahead.map_or(file.rules.len(), |ahead| at + ahead);
                }
            }
        }
        for (number, text) in runs {
            let scripts = &files[number].file.scripts;
            if let Some(value) = commands::command(&text, self.disk.names, scripts) {
                found = Some((number, value));
            }
        }
        found
    }

    /// The readahead that a rule sets; its other assignments are stored.
    fn assign(
        &mut self,
        rule: &[RuleTerm],
        number: usize,
        runs: &mut Vec<(usize, String)>,
    ) -> SetValue {
        let mut found = None;
        for term in rule.iter().filter(|term| !term.is_condition()) {
            let text = self.filled(&term.text);
            match (term.key.as_str(), term.of.as_deref()) {
                ("ENV", Some(name)) => {
                    self.properties.insert(name.to_string(), text);
                }
                ("ATTR", Some(name)) if self.is_setting(name) => {
                    found = self.value(rule, text.trim().parse().ok()).or(found);
                }
                ("RUN", None | Some("program")) => {
                    if matches!(term.operator, "=" | ":=") {
                        runs.clear();
                    }
                    if term.operator != "-=" {
                        runs.push((number, text));
                    }
                }
                _ => {}
            }
        }
        found
    }

    /// A rule for all backing devices, of mounts and of disks, counts for a disk only if the disk has that value. nfsrahead reads
    /// nfs.conf.
    fn value(&self, rule: &[RuleTerm], kib: Option<u64>) -> SetValue {
        let device = &self.disk.facts.device;
        let is_of_nfs = rule.iter().any(|term| term.text.contains("nfsrahead"));
        let is_for_all = self.subsystem == "bdi" && !self.is_named;
        let has_it = kib.is_some() && kib.map(|kib| kib.saturating_mul(1024)) == device.read_ahead;
        let is_its = match is_of_nfs {
            true => self.disk.facts.kind == StorageKind::Nfs,
            false => !(is_for_all && device.is_disk) || has_it,
        };
        is_its.then_some(kib)
    }

    fn is_setting(&self, name: &str) -> bool {
        match (self.subsystem, self.is_partition) {
            ("bdi", _) => name == "read_ahead_kb",
            (_, false) => matches!(name, "queue/read_ahead_kb" | "bdi/read_ahead_kb"),
            (_, true) => matches!(name, "../queue/read_ahead_kb" | "../bdi/read_ahead_kb"),
        }
    }

    /// Whether all conditions hold; conditions on parent devices have to hold for a single parent.
    fn fits(&mut self, rule: &[RuleTerm]) -> bool {
        let is_above = |term: &&RuleTerm| {
            matches!(
                term.key.as_str(),
                "KERNELS" | "SUBSYSTEMS" | "DRIVERS" | "ATTRS"
            )
        };
        for term in rule
            .iter()
            .filter(|term| term.is_condition() && !is_above(term))
        {
            if !holds(term, self.known(term)) {
                return false;
            }
            let is_name = term.key == "KERNEL"
                && term.operator == "=="
                && term
                    .text
                    .starts_with(|letter: char| letter.is_ascii_alphanumeric());
            self.is_named |= is_name;
        }
        let above: Vec<&RuleTerm> = rule
            .iter()
            .filter(|term| term.is_condition() && is_above(term))
            .collect();
        let devices = self.device.iter().chain(&self.parents);
        let is_all = |device: &SysDevice| {
            above
                .iter()
                .all(|term| holds(term, self.known_above(term, device)))
        };
        above.is_empty() || self.device.is_none() || devices.into_iter().any(is_all)
    }

    /// The device's value for a key, if it is known.
    fn known(&self, term: &RuleTerm) -> Known {
        let text = |text: &str| Known::Texts(vec![text.to_string()]);
        match (term.key.as_str(), term.of.as_deref()) {
            ("ACTION", _) => text(self.action),
            ("KERNEL" | "NAME", _) => text(&self.kernel),
            ("SUBSYSTEM", _) => text(self.subsystem),
            ("DRIVER", _) => text(""),
            ("DEVPATH", _) => text(&self.path()),
            ("ENV", Some(name)) => self.property(name),
            ("ATTR", Some(name)) => self.attribute(name),
            ("SYMLINK", _) => match &self.record {
                Some(record) => Known::Texts(record.links.clone()),
                None => Known::Nothing,
            },
            ("TEST", _) => {
                let own = || {
                    self.device
                        .as_ref()
                        .is_some_and(|device| device.has(&term.text))
                };
                let is_there = match term.text.starts_with('/') {
                    true => self.disk.host.path(&term.text).exists(),
                    false => own(),
                };
                match is_there {
                    true => text(&term.text),
                    false if may_be_missing(&term.text) => Known::Texts(Vec::new()),
                    false => Known::Nothing,
                }
            }
            _ => Known::Nothing,
        }
    }

    fn attribute(&self, name: &str) -> Known {
        attribute(self.device.as_ref(), name)
    }

    fn known_above(&self, term: &RuleTerm, device: &SysDevice) -> Known {
        let text = |text| Known::Texts(vec![text]);
        match (term.key.as_str(), term.of.as_deref()) {
            ("KERNELS", _) => text(device.name()),
            ("SUBSYSTEMS", _) => device.link("subsystem").map_or_else(|| self.bus(), text),
            ("DRIVERS", _) => device.link("driver").map_or(Known::Nothing, text),
            (_, Some(name)) => attribute(Some(device), name),
            _ => Known::Nothing,
        }
    }

    /// The subsystem of disks with this name, if sysfs has no links, as with the root folder of a container.
    fn bus(&self) -> Known {
        let disk = self.disk.names.name.as_str();
        let bus = BUSES.iter().find(|(begin, _)| disk.starts_with(begin));
        bus.map_or(Known::Nothing, |(_, bus)| {
            Known::Texts(vec![bus.to_string()])
        })
    }

    /// A property: set by a rule, stored by udev, or derived from sysfs. If udev would have stored it, it is empty.
    fn property(&self, name: &str) -> Known {
        let kept = || self.record.as_ref()?.properties.get(name);
        let derived = || {
            let is_block = self.subsystem == "block";
            Some(match name {
                "DEVTYPE" if is_block && self.is_partition => "partition".to_string(),
                "DEVTYPE" if is_block => "disk".to_string(),
                "SUBSYSTEM" => self.subsystem.to_string(),
                "ACTION" => self.action.to_string(),
                "DEVNAME" => format!("/dev/{}", self.kernel),
                "DEVPATH" => self.path(),
                _ => {
                    let (_, file) = DERIVED.iter().find(|(property, _)| *property == name)?;
                    if self.record.is_some() && name.starts_with("ID_") {
                        return None;
                    }
                    let value = self
                        .device
                        .as_ref()
                        .and_then(|device| device.attribute(file));
                    // udev replaces blanks by underscores.
                    let value = value.unwrap_or_default();
                    value.split_whitespace().collect::<Vec<_>>().join("_")
                }
            })
        };
        let value = self.properties.get(name).or_else(kept).cloned();
        let is_stored =
            self.record.is_some() || IDENTITIES.iter().any(|begin| name.starts_with(begin));
        match value.or_else(derived) {
            Some(text) => Known::Texts(vec![text]),
            None if is_stored => Known::Texts(vec![String::new()]),
            None => Known::Nothing,
        }
    }

    fn path(&self) -> String {
        let of_sysfs = self.device.as_ref().map(SysDevice::path);
        of_sysfs.unwrap_or_else(|| format!("/{}/{}", self.subsystem, self.kernel))
    }

    /// A text with `%k` and `$env{NAME}` expanded. Unknown parts become `*`.
    fn filled(&self, text: &str) -> String {
        let (mut found, mut rest) = (String::new(), text);
        while let Some(at) = rest.find(['%', '$']) {
            found += &rest[..at];
            let sign = &rest[at..=at];
            rest = &rest[at + 1..];
            let long = LONG
                .iter()
                .find(|(word, _)| sign == "$" && rest.starts_with(word));
            let short = rest
                .chars()
                .next()
                .filter(|letter| sign == "%" && letter.is_ascii_alphabetic());
            let long = long.map(|(word, letter)| (word.len(), *letter));
            let Some((len, letter)) = long.or(short.map(|letter| (1, letter))) else {
                // `%%` and `$$` are one sign.
                found += sign;
                rest = rest.strip_prefix(sign).unwrap_or(rest);
                continue;
            };
            rest = &rest[len..];
            let inner = rest
                .strip_prefix('{')
                .and_then(|inner| inner.split_once('}'));
            rest = inner.map_or(rest, |(_, behind)| behind);
            found += &self.substitute(letter, inner.map(|(name, _)| name));
        }
        found + rest
    }

    fn substitute(&self, letter: char, of: Option<&str>) -> String {
        let number = self.disk.facts.device.number.filter(|_| !self.is_partition);
        let known = match (letter, of, number) {
            ('k' | 'D', ..) => Some(self.kernel.clone()),
            ('p', ..) => Some(self.path()),
            ('N', ..) => Some(format!("/dev/{}", self.kernel)),
            ('n', ..) => {
                let disk = self
                    .kernel
                    .trim_end_matches(|letter: char| letter.is_ascii_digit());
                Some(self.kernel[disk.len()..].to_string())
            }
            ('r', ..) => Some("/dev".to_string()),
            ('S', ..) => Some("/sys".to_string()),
            ('E', Some(name), _) => self.property(name).first(),
            ('s', Some(name), _) => self.attribute(name).first(),
            ('M', _, Some(number)) => Some(number.major.to_string()),
            ('m', _, Some(number)) => Some(number.minor.to_string()),
            _ => None,
        };
        known.unwrap_or_else(|| "*".to_string())
    }
}

/// The known values for a condition.
enum Known {
    /// The value is one of these.
    Texts(Vec<String>),
    /// The device has no such attribute: no condition on it holds.
    Missing,
    Nothing,
}

impl Known {
    fn first(self) -> Option<String> {
        match self {
            Known::Texts(texts) => Some(texts.into_iter().next().unwrap_or_default()),
            Known::Nothing | Known::Missing => None,
        }
    }
}

fn holds(term: &RuleTerm, known: Known) -> bool {
    let Known::Texts(texts) = known else {
        return matches!(known, Known::Nothing);
    };
    let fits = |text: &String| term.text.split('|').any(|pattern| is_match(pattern, text));
    texts.iter().any(fits) == (term.operator == "==")
}

fn attribute(device: Option<&SysDevice>, name: &str) -> Known {
    match device.and_then(|device| device.attribute(name)) {
        Some(text) => Known::Texts(vec![text]),
        None if may_be_missing(name) => Known::Missing,
        None => Known::Nothing,
    }
}

fn may_be_missing(name: &str) -> bool {
    !(name.starts_with("queue/")
        || name.starts_with("bdi/")
        || name.contains('*')
        || ALWAYS.contains(&name))
}
