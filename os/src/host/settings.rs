//! Reads configuration files that set readahead, and udev's data about a device.
//!
//! ```text
//!   udev/rules.d        below etc, run, usr/local/lib, usr/lib, lib      a name in an earlier folder replaces the later ones
//!   tmpfiles.d          below etc, run, usr/local/lib, usr/lib           likewise
//!   systemd/system      below etc, run, usr/local/lib, usr/lib, lib      likewise; NAME.service.d
//!   sysfs.conf, sysfs.d, hdparm.conf, crontab, cron.d, rc.local, init.d  below etc
//!   tuned/active_profile ──► its tuned.conf, after the profiles that it includes
//!   run/udev/data/b8:0                                                   E:ID_SERIAL=... S:disk/by-id/...
//! ```
//! Also the scripts that these files name by their full path. Files over 1 MiB are skipped, and so are files that do not mention readahead.

use super::devices::entries;
use super::{DeviceNumber, Host};
use crate::open::read_small;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

const MAX_FILE_BYTES: u64 = 1 << 20;
/// Maximum number of files read in a folder.
const MAX_FILES: usize = 4096;
/// Maximum depth of included tuned profiles.
const MAX_PROFILES: usize = 8;
/// Maximum number of scripts that a file names.
const MAX_SCRIPTS: usize = 32;

/// Folders of udev, systemd and tmpfiles, in order of precedence.
const LAYERS: [&str; 5] = ["etc", "run", "usr/local/lib", "usr/lib", "lib"];
/// Files of commands.
const SINGLE: [&str; 5] = [
    "etc/crontab",
    "var/spool/cron/root",
    "var/spool/cron/crontabs/root",
    "etc/rc.local",
    "etc/rc.d/rc.local",
];
/// Words that show that a file sets readahead.
const MARKS: [&str; 6] = [
    "read_ahead_kb",
    "--setra",
    "--setfra",
    "hdparm",
    "read_ahead_sect",
    "readahead",
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingFile {
    /// The path on the host: `/etc/udev/rules.d/60-disk.rules`.
    pub path: PathBuf,
    pub text: String,
}

/// udev's database entry of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UdevRecord {
    pub properties: BTreeMap<String, String>,
    /// Links below `/dev`, such as `disk/by-id/ata-X`.
    pub links: Vec<String>,
}

impl Host {
    /// Returns all files that may set readahead, in the order in which they apply at boot. Each script follows the file that names it.
    pub fn readahead_settings(&self) -> Vec<SettingFile> {
        let units = LAYERS.map(|layer| self.path(layer).join("systemd/system"));
        let drop_ins = units.iter().flat_map(|units| files(units, "d"));
        let drop_ins = drop_ins.flat_map(|folder| files(&folder, "conf"));
        let mut paths = self.layered("udev/rules.d", "rules");
        paths.extend(self.layered("tmpfiles.d", "conf"));
        paths.push(self.path("etc/sysfs.conf"));
        paths.extend(files(&self.path("etc/sysfs.d"), "conf"));
        paths.push(self.path("etc/hdparm.conf"));
        paths.extend(self.layered("systemd/system", "service"));
        paths.extend(drop_ins);
        paths.extend(self.tuned_profiles());
        paths.extend(all_files(&self.path("etc/cron.d")));
        paths.extend(all_files(&self.path("etc/init.d")));
        paths.extend(files(&self.path("etc/local.d"), "start"));
        paths.extend(SINGLE.map(|path| self.path(path)));
        let mut found: Vec<SettingFile> = Vec::new();
        for path in paths {
            let Some(text) = text_of(&path) else { continue };
            let scripts = self.scripts(&text);
            let own = SettingFile {
                path: self.shown(&path),
                text,
            };
            let own = Some(own).filter(|file| is_marked(&file.text));
            for file in own.into_iter().chain(scripts) {
                // A link to a file that was found already, such as rc.local.
                if !found.iter().any(|other| other.text == file.text) {
                    found.push(file);
                }
            }
        }
        found
    }

    /// The files of a folder in all layers, by name; earlier layers take precedence.
    fn layered(&self, folder: &str, ending: &str) -> Vec<PathBuf> {
        let mut by_name: BTreeMap<String, PathBuf> = BTreeMap::new();
        for layer in LAYERS {
            for path in files(&self.path(layer).join(folder), ending) {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                by_name.entry(name.into_owned()).or_insert(path);
            }
        }
        by_name.into_values().collect()
    }

    /// The scripts that a text names by path and that mention readahead.
    fn scripts(&self, text: &str) -> Vec<SettingFile> {
        let is_between =
            |letter: char| letter.is_whitespace() || "\"'=;@!:+|&()<>,".contains(letter);
        let lines = text
            .lines()
            .filter(|line| !line.trim_start().starts_with('#'));
        let words = lines
            .flat_map(|line| line.split(is_between))
            .filter(|word| word.starts_with('/'));
        let scripts = words.filter_map(|word| {
            let text = script(&self.path(word))?;
            Some(SettingFile {
                path: PathBuf::from(word),
                text,
            })
        });
        scripts.take(MAX_SCRIPTS).collect()
    }

    /// The path without the host's root folder.
    fn shown(&self, path: &Path) -> PathBuf {
        let inner = path.strip_prefix(&self.root).unwrap_or(path);
        Path::new("/").join(inner)
    }

    /// The files of tuned's active profiles, each after the profiles that it includes.
    fn tuned_profiles(&self) -> Vec<PathBuf> {
        let active = text_of(&self.path("etc/tuned/active_profile")).unwrap_or_default();
        let mut found = Vec::new();
        for name in active.split_whitespace() {
            self.add_profile(name, &mut found, MAX_PROFILES);
        }
        found
    }

    fn add_profile(&self, name: &str, found: &mut Vec<PathBuf>, depth: usize) {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        let folders = [
            "etc/tuned/profiles",
            "etc/tuned",
            "usr/lib/tuned/profiles",
            "usr/lib/tuned",
        ];
        let mut paths = folders
            .iter()
            .map(|folder| self.path(folder).join(name).join("tuned.conf"));
        let Some(path) = paths
            .find(|path| path.is_file())
            .filter(|path| depth > 0 && name.chars().all(is_plain) && !found.contains(path))
        else {
            return;
        };
        let text = text_of(&path).unwrap_or_default();
        let included = text.lines().filter_map(|line| {
            line.trim()
                .strip_prefix("include")?
                .trim_start()
                .strip_prefix('=')
        });
        for name in included.flat_map(|names| names.split([',', ' ', '\t', ';'])) {
            self.add_profile(name.trim_start_matches('-'), found, depth - 1);
        }
        // Profiles that include each other would be found again in each round.
        if !found.contains(&path) {
            found.push(path);
        }
    }

    /// Returns udev's data about a device, or `None` if udev has not processed the device.
    pub fn udev_record(&self, number: DeviceNumber) -> Option<UdevRecord> {
        let path = self.path("run/udev/data").join(format!("b{number}"));
        let text = text_of(&path)?;
        let mut record = UdevRecord::default();
        for line in text.lines() {
            let property = line
                .strip_prefix("E:")
                .and_then(|line| line.split_once('='));
            let property = property.map(|(key, value)| (key.to_string(), value.to_string()));
            record.properties.extend(property);
            record
                .links
                .extend(line.strip_prefix("S:").map(str::to_string));
        }
        Some(record)
    }

    /// Returns the symbolic links to devices in `/dev/disk` and `/dev/mapper`: the path below `/dev` and the target of each link.
    pub fn node_links(&self) -> Vec<(String, String)> {
        let disk = entries(&self.path("dev/disk"));
        let folders = disk.chain([self.path("dev/mapper")]);
        let links = folders.flat_map(|folder| entries(&folder)).take(MAX_FILES);
        let link = |path: PathBuf| {
            let node = std::fs::read_link(&path).ok()?;
            let name = node.file_name()?.to_str()?.to_string();
            let link = path.strip_prefix(self.path("dev")).ok()?;
            Some((link.to_str()?.to_string(), name))
        };
        links.filter_map(link).collect()
    }

    /// Returns true if a udev daemon has processed this machine's devices.
    pub fn has_udev(&self) -> bool {
        self.path("run/udev").is_dir()
    }

    /// Returns the name of the operating system if users must not edit its `/etc`, such as `NixOS`.
    pub fn is_nixos(&self) -> bool {
        self.path("etc/NIXOS").exists()
    }

    /// Returns true if this process is in a container that Docker, Podman or systemd has marked as such.
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

fn all_files(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = entries(folder).take(MAX_FILES).collect();
    paths.sort();
    paths
}

/// The text of a file; its comments may be in any encoding.
fn text_of(path: &Path) -> Option<String> {
    let bytes = read_small(path, MAX_FILE_BYTES).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn is_marked(text: &str) -> bool {
    MARKS.iter().any(|mark| text.contains(mark))
}

/// A shell script that mentions readahead.
fn script(path: &Path) -> Option<String> {
    // Most of these files are binaries, so check the first two bytes.
    let mut first = [0; 2];
    let file = crate::open::look(path).ok()?.regular().ok()?;
    file.for_reading().ok()?.read_exact(&mut first).ok()?;
    let text = text_of(path).filter(|_| first == *b"#!")?;
    is_marked(&text).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_that_set_readahead_are_found_in_their_order() {
        let root = tempfile::tempdir().expect("a folder for temporary files");
        let rule = "KERNEL==\"sda\", ATTR{queue/read_ahead_kb}=\"128\"\n";
        for (file, text) in [
            ("lib/udev/rules.d/60-a.rules", rule),
            ("lib/udev/rules.d/61-b.rules", rule),
            // This file replaces the system's file.
            ("etc/udev/rules.d/60-a.rules", "# nothing\n"),
            ("etc/tuned/active_profile", "mine\n"),
            ("etc/tuned/mine/tuned.conf", "include=base\nreadahead=1\n"),
            (
                "usr/lib/tuned/base/tuned.conf",
                "include=mine\nreadahead=>4096\n",
            ),
            (
                "usr/lib/systemd/system/a.service",
                "ExecStart=blockdev --setra 512 /dev/sda\n",
            ),
            (
                "usr/lib/systemd/system/b.service",
                "ExecStart=-/opt/ra.sh sda\n",
            ),
            ("opt/ra.sh", "#!/bin/sh\nblockdev --setra 512 /dev/$1\n"),
            (
                "etc/systemd/system/b.service",
                "ExecStart=/opt/other.sh sda\n",
            ),
            ("opt/other.sh", "#!/bin/sh\necho hello\n"),
            (
                "etc/systemd/system/c.service.d/ra.conf",
                "ExecStartPost=/opt/ra.sh sdb\n",
            ),
            (
                "usr/lib/systemd/system/d.service",
                "# ExecStart=/opt/no.sh\n",
            ),
            ("opt/no.sh", "#!/bin/sh\nblockdev --setra 1 /dev/$1\n"),
            (
                "usr/lib/tmpfiles.d/ra.conf",
                "w /sys/block/sda/queue/read_ahead_kb - - - - 1\n",
            ),
            ("etc/sysfs.d/ra.conf", "block/sda/queue/read_ahead_kb = 1\n"),
            ("etc/rc.local", "blockdev --setra 8 /dev/sda\n"),
            ("etc/rc.d/rc.local", "blockdev --setra 8 /dev/sda\n"),
            ("run/udev/data/b8:0", "S:disk/by-id/x\nE:ID_SERIAL=X=1\n"),
        ] {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        let host = Host::below(root.path());
        let found = host.readahead_settings();
        let paths: Vec<&str> = found.iter().filter_map(|file| file.path.to_str()).collect();
        let wanted = [
            "/lib/udev/rules.d/61-b.rules",
            "/usr/lib/tmpfiles.d/ra.conf",
            "/etc/sysfs.d/ra.conf",
            "/usr/lib/systemd/system/a.service",
            "/opt/ra.sh",
            "/usr/lib/tuned/base/tuned.conf",
            "/etc/tuned/mine/tuned.conf",
            "/etc/rc.local",
        ];
        assert_eq!(paths, wanted);
        let number = DeviceNumber::parse("8:0").expect("a number");
        let record = host.udev_record(number).expect("a record");
        assert_eq!(record.properties["ID_SERIAL"], "X=1");
        assert_eq!(record.links, ["disk/by-id/x"]);
    }
}
