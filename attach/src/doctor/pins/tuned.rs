//! Finds the readahead that the active profile of tuned sets for a disk.
//!
//! ```text
//!   [variables]                [disk_data]                 [sysfs]
//!   ra=4096                    type=disk                   /sys/block/sd*/queue/read_ahead_kb=${ra}
//!                              devices=sd*,!sda
//!                              readahead=>${ra}            at least 4096 KiB; `8192 s` counts sectors
//! ```
//! Sections with the same name in several files are merged, and later values win. The section that applies to a disk is the section whose
//! `devices` include the disk; if there is none, it is the section without `devices`.
//!
//! Source: the documentation of tuned, "Plug-ins".

use super::commands;
use super::pattern::{DiskNames, is_match};
use super::tables::rows;
use foreread_os::host::settings::SettingFile;

/// Most levels of variables that refer to each other.
const MAX_NESTED: usize = 8;

struct Section<'a> {
    name: &'a str,
    /// Key, value, and number of the file.
    values: Vec<(&'a str, &'a str, usize)>,
}

impl<'a> Section<'a> {
    fn get(&self, key: &str) -> Option<(&'a str, usize)> {
        let found = self.values.iter().rev().find(|(other, ..)| *other == key);
        found.map(|(_, value, file)| (*value, *file))
    }

    fn kind(&self) -> &'a str {
        self.get("type").map_or(self.name, |(kind, _)| kind)
    }

    fn is_enabled(&self) -> bool {
        !self.get("enabled").is_some_and(|(text, _)| {
            ["0", "false", "no", "off"].contains(&text.to_lowercase().as_str())
        })
    }
}

/// Returns the index of the file in `files` that determines the readahead of a disk, and the value in KiB.
#[must_use]
pub fn pin(files: &[&SettingFile], names: &DiskNames) -> Option<(usize, Option<u64>)> {
    let sections = sections(files);
    let value = |text: &str| with_variables(text, &sections);
    let mut found = None;
    let enabled = || sections.iter().filter(|section| section.is_enabled());
    let disks = || enabled().filter(|section| section.kind() == "disk");
    let is_named = |section: &&Section<'_>| {
        section
            .get("devices")
            .is_some_and(|(text, _)| has_device(&value(text), &names.name))
    };
    let is_for_all = |section: &&Section<'_>| section.get("devices").is_none();
    let owner = disks().find(is_named).or_else(|| disks().find(is_for_all));
    if let Some((text, file)) = owner
        .filter(|_| names.is_disk)
        .and_then(|section| section.get("readahead"))
    {
        found = Some((file, readahead(&value(text))));
    }
    for section in enabled() {
        for (key, text, file) in &section.values {
            match section.kind() {
                "sysfs" if names.has_setting(&value(key)) => {
                    found = Some((*file, value(text).trim().parse().ok()));
                }
                "script" if *key == "script" => {
                    let script = files[*file].scripts.get(value(text).as_str());
                    let scripts = &files[*file].scripts;
                    let set = script
                        .and_then(|script| commands::script(script, &["start"], names, scripts));
                    found = set.map(|kib| (*file, kib)).or(found);
                }
                _ => {}
            }
        }
    }
    found
}

fn sections<'a>(files: &[&'a SettingFile]) -> Vec<Section<'a>> {
    let mut sections: Vec<Section<'a>> = Vec::new();
    for (number, file) in files.iter().enumerate() {
        let mut at = None;
        for line in rows(&file.text, "#;") {
            if let Some(name) = line
                .strip_prefix('[')
                .and_then(|rest| rest.split(']').next())
            {
                let name = name.trim();
                let there = sections.iter().position(|section| section.name == name);
                at = Some(there.unwrap_or(sections.len()));
                if there.is_none() {
                    sections.push(Section {
                        name,
                        values: Vec::new(),
                    });
                }
            } else if let (Some(at), Some((key, value))) = (at, line.split_once('=')) {
                let (key, value) = (key.trim(), value.trim());
                if key == "replace" && matches!(value, "1" | "true") {
                    sections[at].values.retain(|(_, _, file)| *file == number);
                }
                sections[at].values.push((key, value, number));
            }
        }
    }
    sections
}

fn with_variables(text: &str, sections: &[Section<'_>]) -> String {
    let mut text = text.trim_matches('"').to_string();
    let variables = sections
        .iter()
        .filter(|section| section.name == "variables");
    let variables: Vec<_> = variables
        .flat_map(|section| &section.values)
        .rev()
        .collect();
    for _ in 0..MAX_NESTED {
        let Some((begin, rest)) = text.split_once("${") else {
            break;
        };
        let Some((name, end)) = rest.split_once('}') else {
            break;
        };
        // Functions of tuned are not evaluated.
        let value = variables
            .iter()
            .find(|(key, ..)| *key == name)
            .map_or("*", |(_, value, _)| value);
        text = format!("{begin}{value}{end}");
    }
    text
}

fn has_device(list: &str, name: &str) -> bool {
    let words = || {
        list.split([',', ';', ' ', '\t'])
            .filter(|word| !word.is_empty())
    };
    let is_excluded = words().any(|word| {
        word.strip_prefix('!')
            .is_some_and(|pattern| is_match(pattern, name))
    });
    let mut wanted = words().filter(|word| !word.starts_with('!')).peekable();
    !is_excluded && (wanted.peek().is_none() || wanted.any(|pattern| is_match(pattern, name)))
}

fn readahead(text: &str) -> Option<u64> {
    let text = text.trim().trim_start_matches(['>', '<']).trim();
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let number: u64 = digits.parse().ok()?;
    match text[digits.len()..].trim() {
        "" => Some(number),
        "s" => Some(number / 2),
        _ => None,
    }
}
