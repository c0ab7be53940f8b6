//! Finds the file that has set a device's readahead, and the value in it.
//!
//! ```text
//!   udev rules ──► tmpfiles, sysfs.conf, hdparm.conf ──► units ──► the profile of tuned ──► crontab, scripts
//!   each kind of file has its parser: text and names of the disk ──► KiB, or "sets it to an unknown value", or nothing
//! ```
//! If several files set the readahead, the result is the file whose value the device has now, or the last file if the device has none of
//! their values.

mod commands;
mod pattern;
mod tables;
mod tuned;
mod udev;

use super::look::DeviceFacts;
use commands::SetValue;
use foreread_os::host::Host;
use foreread_os::host::settings::{SettingFile, SettingKind};
use pattern::DiskNames;
use std::path::PathBuf;

/// A configuration file that sets the readahead of a device, and the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    pub path: PathBuf,
    pub kind: SettingKind,
    /// The value in KiB, if the file gives one.
    pub kib: Option<u64>,
}

/// The configuration files of a machine that set readahead.
pub struct Settings {
    files: Vec<SettingFile>,
    /// Links to device nodes, and the nodes.
    links: Vec<(String, String)>,
}

type Parser = fn(&SettingFile, &DiskNames) -> SetValue;

/// Kinds of files that can each set the readahead of a disk, with their parsers.
const PARSERS: [(SettingKind, Parser); 6] = [
    (SettingKind::Tmpfiles, tables::tmpfiles),
    (SettingKind::SysfsConf, tables::sysfs),
    (SettingKind::HdparmConf, tables::hdparm),
    (SettingKind::SystemdUnit, tables::unit),
    (SettingKind::Crontab, tables::crontab),
    (SettingKind::Script, |file, names| {
        commands::script(&file.text, &["start"], names, &file.scripts)
    }),
];

impl Settings {
    #[must_use]
    pub fn read(host: &Host) -> Settings {
        let files = host.readahead_settings();
        let links = if files.is_empty() {
            Vec::new()
        } else {
            host.node_links()
        };
        Settings { files, links }
    }

    /// Returns the configuration file that sets the readahead of a device, or `None` if no file sets it.
    #[must_use]
    pub fn pin(&self, host: &Host, facts: &DeviceFacts) -> Option<Pin> {
        if self.files.is_empty() {
            return None;
        }
        let device = &facts.device;
        let record = device.number.and_then(|number| host.udev_record(number));
        let names = self.names(host, facts);
        let of = |kind| self.files.iter().filter(move |file| file.kind == kind);
        let mut pins = Vec::new();
        let mut add = |file: &SettingFile, kib| {
            pins.push(Pin {
                path: file.path.clone(),
                kind: file.kind,
                kib,
            });
        };
        let rules: Vec<_> = of(SettingKind::UdevRules).map(udev::Rules::parse).collect();
        let disk = udev::UdevDisk {
            facts,
            names: &names,
            record: record.as_ref(),
            host,
        };
        if let Some((number, kib)) = udev::pin(&rules, &disk) {
            add(rules[number].file, kib);
        }
        for (kind, parser) in PARSERS {
            // The profile of tuned is applied after units.
            if kind == SettingKind::Crontab {
                let profiles: Vec<&SettingFile> = of(SettingKind::TunedProfile).collect();
                if let Some((number, kib)) = tuned::pin(&profiles, &names) {
                    add(profiles[number], kib);
                }
            }
            for file in of(kind) {
                if let Some(kib) = parser(file, &names) {
                    add(file, kib);
                }
            }
        }
        let has_it = |pin: &&Pin| {
            let bytes = pin.kib.map(|kib| kib.saturating_mul(1024));
            bytes.is_some() && bytes == device.read_ahead
        };
        let last = pins.last().cloned();
        pins.iter().rev().find(has_it).cloned().or(last)
    }

    fn names(&self, host: &Host, facts: &DeviceFacts) -> DiskNames {
        let device = &facts.device;
        let partitions = if device.is_disk {
            host.partitions(&device.name)
        } else {
            Vec::new()
        };
        let numbers = device
            .number
            .into_iter()
            .chain(partitions.iter().filter_map(|partition| partition.number));
        let records = numbers.filter_map(|number| host.udev_record(number));
        let mut links: Vec<String> = records
            .flat_map(|record| record.links)
            .map(|link| format!("/dev/{link}"))
            .collect();
        let partitions: Vec<String> = partitions
            .into_iter()
            .map(|partition| partition.name)
            .collect();
        let is_its = |node: &String| *node == device.name || partitions.contains(node);
        links.extend(
            self.links
                .iter()
                .filter(|(_, node)| is_its(node))
                .map(|(link, _)| link.clone()),
        );
        if let Some(name) = &device.mapped_name {
            links.push(format!("/dev/mapper/{name}"));
            links.extend(volume(name).map(|path| format!("/dev/{path}")));
        }
        let model = || {
            let own = host.sys_device(&format!("block/{}", device.name))?;
            let model = own.attribute("device/model")?.trim().replace(' ', "_");
            (!model.is_empty()).then_some(model)
        };
        DiskNames {
            model: if links.is_empty() { model() } else { None },
            name: device.name.clone(),
            number: device.number.map(|number| number.to_string()),
            partitions,
            links,
            is_disk: device.is_disk,
        }
    }
}

/// `vg/data` of `vg-data`. LVM doubles a hyphen in a name.
fn volume(mapped: &str) -> Option<String> {
    let plain = mapped.replace("--", "\u{0}");
    let (group, volume) = plain.split_once('-')?;
    Some(format!("{group}/{volume}").replace('\u{0}', "-"))
}

#[cfg(test)]
mod tests;
