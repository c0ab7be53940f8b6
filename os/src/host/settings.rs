//! Files that set readahead, and what udev knows about a device.
//!
//! ```text
//!   etc/udev/rules.d, run/udev/rules.d, usr/local/lib/..., usr/lib/..., lib/...   a name in an earlier folder replaces the later ones
//!   etc/tuned/active_profile ──► its tuned.conf: [disk] readahead=>4096
//!   etc/systemd/system, etc/tmpfiles.d, etc/rc.local                              files that name read_ahead_kb or --setra
//!   run/udev/data/b8:0                                                            E:ID_SERIAL=...
//! ```
//! A file is text of at most 1 MiB, or is passed over.

use super::devices::entries;
use super::{DeviceNumber, Host};
use crate::open::read_small_text;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const MAX_FILE_BYTES: u64 = 1 << 20;
/// Files of a folder that are looked at, at most.
const MAX_FILES: usize = 4096;
/// Profiles of tuned that include one another, at most.
const MAX_INCLUDES: usize = 8;

/// Where udev looks, the first before the others.
const UDEV_FOLDERS: [&str; 5] = [
    "etc/udev/rules.d",
    "run/udev/rules.d",
    "usr/local/lib/udev/rules.d",
    "usr/lib/udev/rules.d",
    "lib/udev/rules.d",
];
/// What says that a file sets readahead.
const MARKS: [&str; 2] = ["read_ahead_kb", "--setra"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingKind {
    UdevRule,
    TunedProfile,
    SystemdUnit,
    OtherFile,
}

/// A file that sets readahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingFile {
    pub kind: SettingKind,
    /// As this host has it: `/etc/udev/rules.d/60-disk.rules`.
    pub path: PathBuf,
    /// The lines that do; what a backslash divides is one.
    pub lines: Vec<String>,
}

impl Host {
    /// All of them, in the order in which udev reads its rules.
    #[must_use]
    pub fn readahead_settings(&self) -> Vec<SettingFile> {
        let mut rules: BTreeMap<String, PathBuf> = BTreeMap::new();
        for path in UDEV_FOLDERS
            .iter()
            .flat_map(|folder| files(&self.path(folder), "rules"))
        {
            if let Some(name) = path
                .file_name()
                .map(|name| name.to_string_lossy().into_owned())
            {
                rules.entry(name).or_insert(path);
            }
        }
        let mut found: Vec<SettingFile> = Vec::new();
        for path in rules.values() {
            found.extend(self.setting_file(SettingKind::UdevRule, path));
        }
        found.extend(self.tuned_profile());
        let units = ["etc/systemd/system", "usr/local/lib/systemd/system"];
        for path in units
            .iter()
            .flat_map(|folder| files(&self.path(folder), "service"))
        {
            found.extend(self.setting_file(SettingKind::SystemdUnit, &path));
        }
        for path in files(&self.path("etc/tmpfiles.d"), "conf") {
            found.extend(self.setting_file(SettingKind::OtherFile, &path));
        }
        for path in ["etc/rc.local", "etc/sysfs.conf"] {
            found.extend(self.setting_file(SettingKind::OtherFile, &self.path(path)));
        }
        found
    }

    fn setting_file(&self, kind: SettingKind, path: &Path) -> Option<SettingFile> {
        let text = read_small_text(path, MAX_FILE_BYTES)
            .ok()?
            .replace("\\\n", " ");
        let lines = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.starts_with('#'));
        let lines = lines.filter(|line| MARKS.iter().any(|mark| line.contains(mark)));
        let lines: Vec<String> = lines.map(str::to_string).collect();
        let path = self.shown(path);
        (!lines.is_empty()).then_some(SettingFile { kind, path, lines })
    }

    /// Without the folder that this host is in.
    fn shown(&self, path: &Path) -> PathBuf {
        let inner = path.strip_prefix(&self.root).unwrap_or(path);
        Path::new("/").join(inner)
    }

    /// The active profile of tuned, or one that it includes, where that sets readahead.
    fn tuned_profile(&self) -> Option<SettingFile> {
        let active =
            read_small_text(&self.path("etc/tuned/active_profile"), MAX_FILE_BYTES).ok()?;
        // Several profiles may be active; the last wins.
        let mut name = active.split_whitespace().last()?.to_string();
        for _ in 0..MAX_INCLUDES {
            if !name
                .chars()
                .all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter))
            {
                return None;
            }
            let folders = [
                "etc/tuned/profiles",
                "etc/tuned",
                "usr/lib/tuned/profiles",
                "usr/lib/tuned",
            ];
            let mut paths = folders
                .iter()
                .map(|folder| self.path(folder).join(&name).join("tuned.conf"));
            let path = paths.find(|path| path.is_file())?;
            let text = read_small_text(&path, MAX_FILE_BYTES).ok()?;
            let of = |key: &str| {
                let mut lines = text.lines().map(str::trim);
                lines.find(|line| {
                    line.strip_prefix(key)
                        .is_some_and(|rest| rest.trim_start().starts_with('='))
                })
            };
            if let Some(line) = of("readahead") {
                return Some(SettingFile {
                    kind: SettingKind::TunedProfile,
                    path: self.shown(&path),
                    lines: vec![line.to_string()],
                });
            }
            name = of("include")?.split_once('=')?.1.trim().to_string();
        }
        None
    }

    /// What udev found out about a device, such as `ID_SERIAL`.
    #[must_use]
    pub fn udev_properties(&self, number: DeviceNumber) -> BTreeMap<String, String> {
        let path = self.path("run/udev/data").join(format!("b{number}"));
        let text = read_small_text(&path, MAX_FILE_BYTES).unwrap_or_default();
        let pairs = text
            .lines()
            .filter_map(|line| line.strip_prefix("E:")?.split_once('='));
        pairs
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect()
    }

    /// Whether a udev daemon has looked at this machine's devices.
    #[must_use]
    pub fn has_udev(&self) -> bool {
        self.path("run/udev").is_dir()
    }

    /// What this host's `/etc` is, where it is not one to write to: `NixOS`.
    #[must_use]
    pub fn is_nixos(&self) -> bool {
        self.path("etc/NIXOS").exists()
    }

    /// Whether this process is in a container, as Docker, Podman and systemd mark it.
    #[must_use]
    pub fn is_container(&self) -> bool {
        [".dockerenv", "run/.containerenv", "run/systemd/container"]
            .iter()
            .any(|mark| self.path(mark).exists())
    }
}

fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let is_its = |path: &PathBuf| path.extension().is_some_and(|end| end == ending);
    let mut paths: Vec<PathBuf> = entries(folder).filter(is_its).take(MAX_FILES).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_that_set_readahead_are_found() {
        let root = tempfile::tempdir().expect("a folder for temporary files");
        let write = |file: &str, text: &str| {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, text).expect("written");
        };
        let rule = "KERNEL==\"sda\", \\\n  ATTR{queue/read_ahead_kb}=\"128\"\n# read_ahead_kb\n";
        write("lib/udev/rules.d/60-a.rules", rule);
        write("lib/udev/rules.d/61-b.rules", rule);
        // It replaces the one of the system.
        write("etc/udev/rules.d/60-a.rules", "# nothing\n");
        write("etc/tuned/active_profile", "mine\n");
        write("etc/tuned/mine/tuned.conf", "[main]\ninclude=base\n");
        write("usr/lib/tuned/base/tuned.conf", "[disk]\nreadahead=>4096\n");
        write(
            "etc/systemd/system/a.service",
            "ExecStart=blockdev --setra 512 /dev/sda\n",
        );
        write("run/udev/data/b8:0", "S:disk\nE:ID_SERIAL=X=1\n");
        let host = Host::below(root.path());
        let found = host.readahead_settings();
        let paths: Vec<&str> = found.iter().filter_map(|file| file.path.to_str()).collect();
        let wanted = [
            "/lib/udev/rules.d/61-b.rules",
            "/usr/lib/tuned/base/tuned.conf",
            "/etc/systemd/system/a.service",
        ];
        assert_eq!(paths, wanted);
        assert_eq!(found[0].lines.len(), 1, "{found:?}");
        let number = DeviceNumber::parse("8:0").expect("a number");
        assert_eq!(host.udev_properties(number)["ID_SERIAL"], "X=1");
        // A profile that includes itself ends.
        write("usr/lib/tuned/base/tuned.conf", "include=base\n");
        assert_eq!(host.readahead_settings().len(), 2);
    }
}
