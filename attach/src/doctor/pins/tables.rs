//! Finds the readahead that a configuration file sets for a disk, if the file is a table of values or of commands.
//!
//! ```text
//!   tmpfiles.d     w /sys/block/sd*/queue/read_ahead_kb - - - - 4096
//!   sysfs.conf     block/sda/queue/read_ahead_kb = 4096
//!   hdparm.conf    /dev/sda { read_ahead_sect = 8192 }          sectors of 512 bytes
//!   unit           ExecStart=/sbin/blockdev --setra 8192 /dev/%i
//!   crontab        @reboot root blockdev --setra 8192 /dev/sda
//! ```
//! Sources: tmpfiles.d(5), systemd.service(5), crontab(5), hdparm.conf(5), sysfs.conf of sysfsutils.

use super::commands::{self, SetValue, words};
use super::pattern::{DiskNames, braces};
use foreread_os::host::settings::SettingFile;
use std::path::Path;

#[must_use]
pub fn tmpfiles(file: &SettingFile, names: &DiskNames) -> SetValue {
    let mut found = None;
    for line in rows(&file.text, "#") {
        let words = words(line);
        // Type, path, mode, user, group, age, and the rest of the line.
        let [kind, path, _, _, _, _, value @ ..] = &words[..] else {
            continue;
        };
        let writes = kind.starts_with('w') || kind.starts_with('F') || kind.starts_with("f+");
        if writes && braces(path).iter().any(|path| names.has_setting(path)) {
            found = Some(value.join(" ").trim().parse().ok());
        }
    }
    found
}

#[must_use]
pub fn sysfs(file: &SettingFile, names: &DiskNames) -> SetValue {
    let values = rows(&file.text, "#").filter_map(|line| line.split_once('='));
    let ours = values.filter(|(path, _)| {
        // `mode PATH = 0644` and `owner PATH = root` set no values.
        let path = path.trim().trim_start_matches('/');
        if path.contains(char::is_whitespace) {
            return false;
        }
        names.has_setting(&format!("/sys/{}", path.trim_start_matches("sys/")))
    });
    ours.map(|(_, value)| value.trim().parse().ok()).last()
}

#[must_use]
pub fn hdparm(file: &SettingFile, names: &DiskNames) -> SetValue {
    // Values before the first disk apply to all disks without their own value.
    let (mut is_ours, mut for_all, mut own) = (None, None, None);
    for line in rows(&file.text, "#") {
        if let Some((disk, _)) = line.split_once('{') {
            is_ours = Some(names.has_node(disk.trim()));
        }
        let value = line
            .split(['{', '}'])
            .filter_map(|part| part.split_once('='))
            .find(|(key, _)| key.trim() == "read_ahead_sect");
        let value = value.map(|(_, text)| text.trim().parse().ok().map(|sectors: u64| sectors / 2));
        match is_ours {
            None => for_all = value.or(for_all),
            Some(true) => own = value.or(own),
            Some(false) => {}
        }
        if line.contains('}') {
            is_ours = Some(false);
        }
    }
    own.or(for_all.filter(|_| names.is_disk && names.name.starts_with(['s', 'h'])))
}

#[must_use]
pub fn unit(file: &SettingFile, names: &DiskNames) -> SetValue {
    let name = file.path.file_name().unwrap_or_default().to_string_lossy();
    if name.ends_with("@.service") {
        let instances = file.instances.iter();
        return instances
            .filter_map(|instance| unit_instance(file, names, instance))
            .next_back();
    }
    unit_instance(file, names, "")
}

/// An empty command removes those before it.
fn unit_instance(file: &SettingFile, names: &DiskNames, instance: &str) -> SetValue {
    const KEYS: [&str; 3] = ["ExecStartPre", "ExecStart", "ExecStartPost"];
    let mut found = [None; KEYS.len()];
    let mut variables: Vec<(String, String)> = Vec::new();
    let text = joined(&file.text);
    for (key, value) in rows(&text, "#;").filter_map(|line| line.split_once('=')) {
        let (key, value) = (key.trim(), value.trim());
        if key == "Environment" {
            let pairs = words(value).into_iter();
            variables.extend(pairs.filter_map(|pair| {
                let (name, value) = pair.split_once('=')?;
                Some((name.to_string(), value.to_string()))
            }));
        }
        let Some(place) = KEYS.iter().position(|known| *known == key) else {
            continue;
        };
        if value.is_empty() {
            found[place] = None;
            continue;
        }
        let command = value.trim_start_matches(['-', '@', '+', '!', ':', '|']);
        let mut command = specifiers(command, instance);
        for (name, value) in &variables {
            command = command.replace(&format!("${{{name}}}"), value);
            command = command.replace(&format!("${name}"), value);
        }
        let command = command.replace("$$", "$");
        found[place] = commands::command(&command, names, &file.scripts).or(found[place]);
    }
    found.into_iter().flatten().last()
}

/// Expands `%i` of a template, and `%%`.
fn specifiers(text: &str, instance: &str) -> String {
    let plain = instance.replace("\\x2d", "\u{0}");
    let path = plain.replace('-', "/").replace('\u{0}', "-");
    text.replace("%%", "\u{0}")
        .replace("%i", &instance.replace("\\x2d", "-"))
        .replace("%j", instance)
        .replace("%I", &path)
        .replace("%f", &format!("/{path}"))
        .replace('\u{0}', "%")
}

#[must_use]
pub fn crontab(file: &SettingFile, names: &DiskNames) -> SetValue {
    let has_user = file.path.starts_with(Path::new("/etc"));
    let commands = rows(&file.text, "#").filter_map(|line| {
        let times = if line.starts_with('@') { 1 } else { 5 };
        (0..times + usize::from(has_user)).try_fold(line, |rest, _| {
            let (_, rest) = rest.split_once(char::is_whitespace)?;
            Some(rest.trim_start())
        })
    });
    let values = commands.filter_map(|text| commands::script(text, &[], names, &file.scripts));
    values.last()
}

/// Returns the trimmed lines of a text, without empty lines and comments.
pub fn rows<'a>(text: &'a str, comments: &'a str) -> impl Iterator<Item = &'a str> {
    let lines = text.lines().map(str::trim);
    lines.filter(move |line| !line.is_empty() && !line.starts_with(|sign| comments.contains(sign)))
}

/// Joins a line that ends in a backslash with the next line that is not a comment.
fn joined(text: &str) -> String {
    let mut whole = String::new();
    let mut goes_on = false;
    for line in text.lines().map(str::trim_end) {
        if goes_on && line.trim_start().starts_with(['#', ';']) {
            continue;
        }
        let part = line.strip_suffix('\\');
        whole += part.unwrap_or(line);
        whole.push(if part.is_some() { ' ' } else { '\n' });
        goes_on = part.is_some();
    }
    whole
}
