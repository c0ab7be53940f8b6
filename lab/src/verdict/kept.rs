//! Keeps the measurement of a disk in a file for half an hour, so that all commands report the same figures for the
//! disk.
//!
//! ```text
//!   doctor, probe, tune, compare, watch ──► kept for this disk? ──yes──► its figures, and their age
//!                                               │ no: the disk is read for at most three seconds, and the result is kept
//!   /run/foreread/disk-17, $XDG_RUNTIME_DIR/foreread/disk-17      17: the kernel's sequence number of the disk
//! ```
//! A stored measurement is never used for another disk. The kernel gives a new sequence number to each disk that appears (also to a loop
//! device that gets another file), and the folder is empty after a reboot. If the readahead setting of the disk has changed since the
//! measurement, the file is not used.

use super::disk::StorageCosts;
use crate::glance::CheckedRate;
use foreread_os::host::Host;
use foreread_os::open;
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, Metadata};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How long a measurement is used.
const KEPT: Duration = Duration::from_secs(30 * 60);
/// Largest file that is read: a measurement takes less than 1 KiB.
const MAX_BYTES: u64 = 16 << 10;

/// What was measured on a disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct KeptMeasurement {
    /// The readahead that the disk had, in bytes.
    pub has_bytes: Option<u64>,
    pub costs: StorageCosts,
    pub checked: Vec<CheckedRate>,
}

impl KeptMeasurement {
    /// Reads the stored measurement of this disk. Returns `None` if there is no measurement, if it is too old, or if the disk's readahead
    /// has changed since then.
    pub fn find(disk: &str, has_bytes: Option<u64>) -> Option<KeptMeasurement> {
        KeptMeasurement::read(&path(disk)?, has_bytes)
    }

    fn read(path: &Path, has_bytes: Option<u64>) -> Option<KeptMeasurement> {
        std::fs::symlink_metadata(path.parent()?)
            .ok()
            .filter(is_private)?;
        let file = open::regular(path).ok()?;
        let age = SystemTime::now().duration_since(file.metadata().ok()?.modified().ok()?);
        let age = age.ok().filter(|age| *age < KEPT)?;
        let mut text = String::new();
        file.take(MAX_BYTES).read_to_string(&mut text).ok()?;
        let mut kept: KeptMeasurement = serde_json::from_str(&text).ok()?;
        kept.costs.age_s = age.as_secs();
        let rates = kept.checked.iter().map(|rate| rate.mb_per_s);
        let figures = rates.chain([kept.costs.latency_us, kept.costs.mb_per_s]);
        let is_sound = figures.fold(true, |sound, figure| {
            sound && figure.is_finite() && figure > 0.0
        });
        (is_sound && kept.has_bytes == has_bytes).then_some(kept)
    }

    /// Stores the measurement of this disk for later commands. This function does nothing if no private folder is available.
    pub fn keep(&self, disk: &str) {
        let _ = path(disk).map(|path| self.write(&path));
    }

    fn write(&self, path: &Path) -> std::io::Result<()> {
        let folder = path.parent().unwrap_or(path);
        let _ = DirBuilder::new().mode(0o700).create(folder);
        let meta = std::fs::symlink_metadata(folder)?;
        if !is_private(&meta) {
            return Err(std::io::ErrorKind::PermissionDenied.into());
        }
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(serde_json::to_string(self)?.as_bytes())?;
        file.persist(path)?;
        Ok(())
    }
}

/// The file of a disk. Returns `None` if the kernel does not number disks (before 5.15), or if this user has no runtime folder.
fn path(disk: &str) -> Option<PathBuf> {
    let number = Host::here().disk_sequence(disk)?;
    let runtime = match rustix::process::geteuid().is_root() {
        true => PathBuf::from("/run"),
        false => PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?),
    };
    Some(runtime.join("foreread").join(format!("disk-{number}")))
}

/// Returns true if this is a folder of this user that no other user can open.
fn is_private(meta: &Metadata) -> bool {
    let own = rustix::process::geteuid().as_raw();
    meta.is_dir() && meta.uid() == own && meta.mode() & 0o077 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> KeptMeasurement {
        KeptMeasurement {
            has_bytes: Some(128 << 10),
            costs: StorageCosts {
                latency_us: 2000.0,
                mb_per_s: 200.0,
                is_measured: true,
                turns: false,
                age_s: 0,
            },
            checked: vec![CheckedRate {
                readahead_bytes: 128 << 10,
                mb_per_s: 50.0,
            }],
        }
    }

    #[test]
    fn a_measurement_is_used_for_half_an_hour_with_the_same_readahead() {
        let runtime = tempfile::tempdir().expect("a folder");
        let path = runtime.path().join("foreread/disk-17");
        let find = |has| KeptMeasurement::read(&path, has);
        let has = Some(128 << 10);
        assert_eq!(find(has), None, "nothing is kept yet");
        measured().write(&path).expect("written");
        assert_eq!(find(has), Some(measured()));
        assert_eq!(find(Some(2 << 20)), None, "another readahead");
        let set = |ago: u64| {
            let then = SystemTime::now() - Duration::from_secs(ago);
            let file = std::fs::File::options()
                .append(true)
                .open(&path)
                .expect("it is there");
            file.set_modified(then).expect("set");
        };
        set(125);
        assert_eq!(find(has).map(|kept| kept.costs.age_s / 5), Some(25));
        set(KEPT.as_secs() + 1);
        assert_eq!(find(has), None, "too old");
    }

    #[test]
    fn only_a_folder_that_other_users_cannot_open_is_used() {
        let runtime = tempfile::tempdir().expect("a folder");
        let folder = runtime.path().join("foreread");
        let path = folder.join("disk-17");
        let has = Some(128 << 10);
        assert_eq!(KeptMeasurement::read(&path, has), None);
        assert!(!folder.exists(), "a search creates nothing");
        measured().write(&path).expect("the folder is created");
        assert_eq!(KeptMeasurement::read(&path, has), Some(measured()));
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&folder, open).expect("set");
        assert_eq!(KeptMeasurement::read(&path, has), None);
        measured().write(&path).expect_err("others can open it");
    }

    #[test]
    fn a_damaged_file_is_not_used() {
        let runtime = tempfile::tempdir().expect("a folder");
        let path = runtime.path().join("foreread/disk-17");
        measured().write(&path).expect("written");
        let good = serde_json::to_string(&measured()).expect("text");
        for text in [
            "",
            "null",
            &good[1..],
            &good.replace("200.0", "-200.0"),
            &good.replace("2000.0", "1e999"),
            &good.replace("50.0", "0.0"),
            &" ".repeat(1 << 20),
        ] {
            std::fs::write(&path, text).expect("written");
            assert_eq!(
                KeptMeasurement::read(&path, Some(128 << 10)),
                None,
                "{text:.80}"
            );
        }
    }
}
