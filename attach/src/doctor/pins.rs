//! Which file has set a device's readahead: a udev rule, a profile of tuned, a unit of systemd.
//!
//! ```text
//!   SUBSYSTEM=="block", KERNEL=="sd*", ATTR{queue/rotational}=="1", ATTR{queue/read_ahead_kb}="4096"
//!   ─────────────── conditions that the facts of a device fulfil or not ──────────   ── value ──
//! ```
//! A condition on what is not known here (a program's answer, a label) does not rule a line out. The last line that fits wins, as in udev.

use super::look::DeviceFacts;
use foreread_os::host::settings::{SettingFile, SettingKind};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A file that sets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    pub path: PathBuf,
    pub kind: SettingKind,
    /// In KiB, where the file says so.
    pub kib: Option<u64>,
}

/// The file that sets the readahead of a device: the last that does.
#[must_use]
pub fn pin(
    files: &[SettingFile],
    facts: &DeviceFacts,
    udev: &BTreeMap<String, String>,
) -> Option<Pin> {
    let mut found = None;
    for file in files {
        let kib = match file.kind {
            SettingKind::UdevRule => {
                let mut values = file
                    .lines
                    .iter()
                    .filter_map(|line| udev_value(line, facts, udev));
                values.next_back().map(Some)
            }
            SettingKind::TunedProfile => facts.device.is_disk.then(|| tuned_kib(&file.lines[0])),
            // A program: what it does is not known. It names the device, or all devices.
            SettingKind::SystemdUnit | SettingKind::OtherFile => {
                let name = facts.device.name.as_str();
                let is_its = |line: &&String| {
                    words(line)
                        .any(|word| word == name || word.contains('*') && is_match(word, name))
                };
                file.lines.iter().find(is_its).map(|line| last_number(line))
            }
        };
        if let Some(kib) = kib {
            found = Some(Pin {
                path: file.path.clone(),
                kind: file.kind,
                kib,
            });
        }
    }
    found
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|letter: char| letter.is_whitespace() || "/=\"'".contains(letter))
}

fn last_number(line: &str) -> Option<u64> {
    // blockdev counts sectors.
    let sectors = line.split("--setra").nth(1);
    if let Some(number) =
        sectors.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
    {
        return Some(number / 2);
    }
    words(line).filter_map(|word| word.parse().ok()).last()
}

/// `readahead=>4096` is at least 4096 KiB; `4096 s` counts sectors.
fn tuned_kib(line: &str) -> Option<u64> {
    let value = line
        .split_once('=')?
        .1
        .trim()
        .trim_start_matches('>')
        .trim();
    let mut words = value.split_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    Some(if words.next() == Some("s") {
        number / 2
    } else {
        number
    })
}

/// The value that a line of udev's rules gives this device, if it fits.
fn udev_value(line: &str, facts: &DeviceFacts, udev: &BTreeMap<String, String>) -> Option<u64> {
    let mut value = None;
    for RuleTerm {
        key,
        operator,
        text,
    } in terms(line)
    {
        let attribute = key
            .strip_prefix("ATTR{")
            .map(|rest| rest.trim_end_matches('}'));
        let is_setting = attribute.is_some_and(|name| name.ends_with("read_ahead_kb"));
        match operator {
            "=" | ":=" if is_setting => value = text.parse().ok(),
            "==" | "!=" => {
                let known = known(key, attribute, facts, udev);
                let is_true = known.is_none_or(|known| {
                    text.split('|').any(|pattern| is_match(pattern, &known)) == (operator == "==")
                });
                if !is_true {
                    return None;
                }
            }
            _ => {}
        }
    }
    value
}

/// What the device has for a key, where that is known.
fn known(
    key: &str,
    attribute: Option<&str>,
    facts: &DeviceFacts,
    udev: &BTreeMap<String, String>,
) -> Option<String> {
    let device = &facts.device;
    let flag = |flag: bool| u8::from(flag).to_string();
    if let Some(name) = key.strip_prefix("ENV{") {
        let name = name.trim_end_matches('}');
        let kind = (name == "DEVTYPE" && device.is_disk).then(|| "disk".to_string());
        return udev.get(name).cloned().or(kind);
    }
    match (key, attribute) {
        ("KERNEL" | "NAME", _) => Some(device.name.clone()),
        ("SUBSYSTEM", _) => Some(if device.is_disk { "block" } else { "bdi" }.to_string()),
        (_, Some("queue/rotational")) => device.rotates.map(flag),
        (_, Some("queue/optimal_io_size")) => device.optimal.map(|bytes| bytes.to_string()),
        _ => None,
    }
}

/// A part of a rule: `KERNEL=="sd*"`.
struct RuleTerm<'a> {
    key: &'a str,
    operator: &'a str,
    text: &'a str,
}

fn terms(line: &str) -> Vec<RuleTerm<'_>> {
    let mut found = Vec::new();
    let mut rest = line;
    while let Some((head, behind)) = rest.split_once('"') {
        let Some((text, next)) = behind.split_once('"') else {
            break;
        };
        let head = head.trim_start_matches([',', ' ', '\t']);
        let key = head.trim_end_matches(['=', '!', ':', '+', '-', ' ', 'e', 'i']);
        let operator = head[key.len()..].trim().trim_end_matches(['e', 'i']);
        found.push(RuleTerm {
            key,
            operator,
            text,
        });
        rest = next;
    }
    found
}

/// The patterns of a shell: `*`, `?`, `[a-z]`.
fn is_match(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    // reached[n]: the pattern so far fits the first n letters.
    let mut reached = vec![false; text.len() + 1];
    reached[0] = true;
    let mut at = 0;
    while at < pattern.len() {
        let mut next = vec![false; text.len() + 1];
        match pattern[at] {
            '*' => {
                let first = reached
                    .iter()
                    .position(|fits| *fits)
                    .unwrap_or(text.len() + 1);
                next.iter_mut().skip(first).for_each(|fits| *fits = true);
            }
            letter => {
                let end = pattern[at..]
                    .iter()
                    .position(|letter| *letter == ']')
                    .filter(|_| letter == '[');
                let set = end.map(|end| &pattern[at + 1..at + end]);
                for n in 0..text.len() {
                    let fits = match set {
                        Some(set) => in_set(set, text[n]),
                        None => letter == '?' || letter == text[n],
                    };
                    next[n + 1] = reached[n] && fits;
                }
                at += end.unwrap_or(0);
            }
        }
        reached = next;
        at += 1;
    }
    reached[text.len()]
}

fn in_set(set: &[char], letter: char) -> bool {
    let (is_not, set) = match set.first() {
        Some('!' | '^') => (true, &set[1..]),
        _ => (false, set),
    };
    let mut at = 0;
    let mut is_in = false;
    while at < set.len() {
        let range = set.get(at + 1) == Some(&'-') && at + 2 < set.len();
        let last = if range { set[at + 2] } else { set[at] };
        is_in |= (set[at]..=last).contains(&letter);
        at += if range { 3 } else { 1 };
    }
    is_in != is_not
}

#[cfg(test)]
mod tests {
    use super::super::look::StorageKind;
    use super::*;
    use foreread_os::host::backing::BackingDevice;

    fn facts(name: &str, rotates: bool) -> DeviceFacts {
        DeviceFacts {
            device: BackingDevice {
                name: name.to_string(),
                is_disk: true,
                rotates: Some(rotates),
                ..BackingDevice::default()
            },
            kind: StorageKind::Disk,
            is_virtual: None,
        }
    }

    #[test]
    fn a_line_fits_by_what_is_known() {
        let rows = [
            (
                r#"ACTION=="add", SUBSYSTEM=="block", KERNEL=="sd*|nvme*n*", ATTR{queue/read_ahead_kb}="128""#,
                Some(128),
            ),
            (r#"KERNEL=="vd[a-z]", ATTR{bdi/read_ahead_kb}="64""#, None),
            (
                r#"KERNEL=="sd[!b]",ATTR{queue/rotational}=="1",ATTR{queue/read_ahead_kb}="4096""#,
                Some(4096),
            ),
            (
                r#"ATTR{queue/rotational}=="0", ATTR{queue/read_ahead_kb}="16""#,
                None,
            ),
            (r#"KERNEL!="sda", ATTR{queue/read_ahead_kb}="16""#, None),
            (
                r#"ENV{ID_MODEL}=="Disk?X", ATTR{queue/read_ahead_kb}="32""#,
                Some(32),
            ),
            (
                r#"ENV{ID_MODEL}=="Other", ATTR{queue/read_ahead_kb}="32""#,
                None,
            ),
            (
                r#"PROGRAM=="/bin/x", ATTR{queue/read_ahead_kb}="8""#,
                Some(8),
            ),
            (r#"ATTR{queue/read_ahead_kb}=="8""#, None),
            ("KERNEL==\"sda, ATTR{queue/read_ahead_kb}=", None),
        ];
        let udev = BTreeMap::from([("ID_MODEL".to_string(), "Disk X".to_string())]);
        for (line, wanted) in rows {
            assert_eq!(
                udev_value(line, &facts("sda", true), &udev),
                wanted,
                "{line}"
            );
        }
    }

    #[test]
    fn other_programs_are_found_by_the_name_of_the_device() {
        let file = |kind, line: &str| SettingFile {
            kind,
            path: "/etc/x".into(),
            lines: vec![line.to_string()],
        };
        let of = |kind, line: &str| {
            pin(&[file(kind, line)], &facts("sda", true), &BTreeMap::new()).map(|pin| pin.kib)
        };
        let unit = SettingKind::SystemdUnit;
        assert_eq!(
            of(unit, "ExecStart=/sbin/blockdev --setra 512 /dev/sda"),
            Some(Some(256))
        );
        assert_eq!(
            of(unit, "ExecStart=/sbin/blockdev --setra 512 /dev/sdb"),
            None
        );
        assert_eq!(
            of(
                SettingKind::OtherFile,
                "w /sys/block/sd*/queue/read_ahead_kb - - - - 64"
            ),
            Some(Some(64))
        );
        assert_eq!(
            of(SettingKind::TunedProfile, "readahead=>4096"),
            Some(Some(4096))
        );
        assert_eq!(
            of(SettingKind::TunedProfile, "readahead = 4096 s"),
            Some(Some(2048))
        );
    }
}
