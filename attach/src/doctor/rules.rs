//! Determines the readahead that the kernel chooses for a device, from a table of kernel versions; each row names its source.
//!
//! ```text
//!   kernel 6.18, disk, rotational 1, optimal_io_size 0, max_sectors_kb 4096   ──► 2 x 4 MiB   since 6.17
//!   kernel 6.18, disk, rotational 0, optimal_io_size 0                        ──► 128 KiB
//! ```
//! A distribution may have backported a rule of a newer kernel: if only such a rule gives the device's value, the value is explained by
//! that rule. Every rule has a source in the kernel's history. Devices that are not in the table have no known rule.

use super::look::{DeviceFacts, StorageKind};
use foreread_os::host::KernelVersion;
use foreread_os::host::memory::page_bytes;

const DEFAULT_BYTES: u64 = 128 << 10;
const BTRFS_MIN_BYTES: u64 = 4 << 20;
const CEPH_BYTES: u64 = 8 << 20;
/// NFS requests that were read ahead before Linux 5.4.
const NFS_REQUESTS: u64 = 15;

/// How the value follows from the properties of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    Default,
    /// At most 128 KiB: the server of the mount may request less.
    AtMostDefault,
    /// 2 x optimal_io_size, and at least 128 KiB.
    TwiceOptimal,
    /// Like `TwiceOptimal`, but a rotating device without an optimal size uses its largest request.
    TwiceOptimalOrRequest,
    /// 128 KiB for each device, and at least 4 MiB.
    Btrfs,
    /// One page: ZFS reads ahead by itself.
    Page,
    NfsRequests,
    /// 8 MiB, or the value of the mount option rasize.
    Ceph,
}

/// A row: the rule for devices of these kinds from this version on.
struct RuleRow {
    since: KernelVersion,
    kinds: &'static [StorageKind],
    choice: Choice,
    source: &'static str,
}

const fn row(
    (major, minor): (u32, u32),
    kinds: &'static [StorageKind],
    choice: Choice,
    source: &'static str,
) -> RuleRow {
    RuleRow {
        since: KernelVersion(major, minor),
        kinds,
        choice,
        source,
    }
}

const QUEUES: &[StorageKind] = &[
    StorageKind::Disk,
    StorageKind::Loop,
    StorageKind::Mapped,
    StorageKind::Memory,
];
const ZVOL: &[StorageKind] = &[StorageKind::Zvol];
const MD: &[StorageKind] = &[StorageKind::Md];
const BTRFS: &[StorageKind] = &[StorageKind::Btrfs];
const NFS: &[StorageKind] = &[StorageKind::Nfs];
const FUSE: &[StorageKind] = &[StorageKind::Fuse];
const CEPH: &[StorageKind] = &[StorageKind::Ceph];
const AFS: &[StorageKind] = &[StorageKind::Afs];

const LINUX_6_17: &str = "Linux 6.17, commit 459779d04ae8";
const LINUX_5_10: &str = "Linux 5.10, commit c2e4cd57cfa1";
const LINUX_5_4: &str = "Linux 5.4, commit c128e575514c";
const FUSE_INIT: &str = "fs/fuse/inode.c: 128 KiB, or less if the server's INIT reply sets less";
const RASIZE: &str = "CEPH_RASIZE_DEFAULT, mount option rasize";

/// For each kind, newer rows come first.
const RULES: [RuleRow; 12] = [
    row((6, 17), QUEUES, Choice::TwiceOptimalOrRequest, LINUX_6_17),
    row((6, 17), MD, Choice::TwiceOptimalOrRequest, LINUX_6_17),
    row((5, 10), QUEUES, Choice::TwiceOptimal, LINUX_5_10),
    row((2, 6), MD, Choice::TwiceOptimal, "MD sets two stripes"),
    row((2, 6), QUEUES, Choice::Default, "VM_MAX_READAHEAD, 128 KiB"),
    row((2, 6), ZVOL, Choice::Page, "zvol_os.c of OpenZFS"),
    row(
        (3, 0),
        BTRFS,
        Choice::Btrfs,
        "fs/btrfs/disk-io.c, open_ctree",
    ),
    row((5, 4), NFS, Choice::Default, LINUX_5_4),
    row(
        (2, 6),
        NFS,
        Choice::NfsRequests,
        "NFS_MAX_READAHEAD, 15 x rsize",
    ),
    row((2, 6), FUSE, Choice::AtMostDefault, FUSE_INIT),
    row((3, 0), CEPH, Choice::Ceph, RASIZE),
    row((5, 10), AFS, Choice::Default, "fs/afs/super.c"),
];

/// From this version on, a change of a queue's limits applies the rule again, even if the value was set by hand.
const APPLIED_AGAIN: KernelVersion = KernelVersion(6, 9);
/// From this version on, the rule only raises the value.
const ONLY_RAISED: KernelVersion = KernelVersion(6, 15);

/// The readahead that a rule in the kernel gives to a device, and the source of this rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleValue {
    pub bytes: u64,
    /// Whether smaller values also follow the rule.
    pub is_most: bool,
    /// The rule as text: `2 x max_sectors`.
    pub words: String,
    pub source: &'static str,
    pub since: KernelVersion,
    /// Whether the rule belongs to a newer kernel.
    pub is_newer: bool,
}

/// Rules of at least this version are printed with their version: people compare kernels by it.
const RECENT: KernelVersion = KernelVersion(5, 4);

impl RuleValue {
    /// Returns a description of the rule, such as `default since Linux 6.17`.
    pub fn in_words(&self) -> String {
        let KernelVersion(major, minor) = self.since;
        if self.is_newer {
            return format!("default of Linux {major}.{minor}, backported to this kernel");
        }
        if self.since >= RECENT && self.bytes != DEFAULT_BYTES {
            return format!("default since Linux {major}.{minor}");
        }
        "the kernel's default".to_string()
    }

    pub fn explains(&self, bytes: u64) -> bool {
        bytes == self.bytes || self.is_most && bytes < self.bytes
    }
}

/// Returns the rule of this kernel version, or the rule of a newer version if only the newer rule gives the value
/// that the device has.
pub fn rule(version: KernelVersion, facts: &DeviceFacts) -> Option<RuleValue> {
    let rows = || RULES.iter().filter(|row| row.kinds.contains(&facts.kind));
    let ours = rows()
        .find(|row| row.since <= version)
        .and_then(|row| value(row, facts, false));
    let now = facts.device.read_ahead?;
    if ours.as_ref().is_some_and(|ours| ours.explains(now)) {
        return ours;
    }
    let newer = rows()
        .filter(|row| row.since > version)
        .filter_map(|row| value(row, facts, true));
    newer.into_iter().find(|value| value.explains(now)).or(ours)
}

fn value(row: &RuleRow, facts: &DeviceFacts, is_newer: bool) -> Option<RuleValue> {
    let device = &facts.device;
    let optimal = device.optimal.unwrap_or(0);
    let given = |bytes: u64, words: &str| (bytes.max(DEFAULT_BYTES), words.to_string());
    let option = |name: &str| {
        let options = device.mounts.first()?.options.split(',');
        let mut values = options.filter_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        values.next()?.parse::<u64>().ok()
    };
    let (bytes, words) = match row.choice {
        Choice::Default | Choice::AtMostDefault => given(0, "128 KiB"),
        Choice::TwiceOptimalOrRequest if optimal == 0 && device.rotates? => {
            given(device.max_request?.saturating_mul(2), "2 x max_sectors")
        }
        Choice::TwiceOptimal | Choice::TwiceOptimalOrRequest
            if optimal.saturating_mul(2) > DEFAULT_BYTES =>
        {
            given(optimal.saturating_mul(2), "2 x optimal_io_size")
        }
        Choice::TwiceOptimal | Choice::TwiceOptimalOrRequest => given(0, "128 KiB"),
        Choice::Page => (page_bytes(), "one page of ZFS".to_string()),
        // The number of devices is not known here: with up to 32 the minimum applies.
        Choice::Btrfs => (BTRFS_MIN_BYTES, "4 MiB of btrfs".to_string()),
        Choice::NfsRequests => {
            let bytes = option("rsize")?.saturating_mul(NFS_REQUESTS);
            (bytes, "15 x rsize".to_string())
        }
        Choice::Ceph => match option("rasize") {
            Some(bytes) => (bytes, "the mount option rasize".to_string()),
            None => (CEPH_BYTES, "8 MiB of Ceph".to_string()),
        },
    };
    Some(RuleValue {
        // The kernel stores the value in pages.
        bytes: bytes / page_bytes() * page_bytes(),
        is_most: row.choice == Choice::AtMostDefault,
        words,
        source: row.source,
        since: row.since,
        is_newer,
    })
}

/// Returns a sentence that says when the kernel overwrites a readahead that was set manually for this device, or `None` if the kernel never
/// does.
pub fn fate_of_a_set_value(version: KernelVersion) -> Option<&'static str> {
    match version {
        _ if version >= ONLY_RAISED => Some(
            "a rescan, a resize or a write to max_sectors_kb raises it to the value of the kernel's rule",
        ),
        _ if version >= APPLIED_AGAIN => Some(
            "a rescan, a resize or a write to max_sectors_kb sets the value of the kernel's rule",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreread_os::host::backing::BackingDevice;

    fn disk(rotates: bool, optimal: u64, now_kib: u64) -> DeviceFacts {
        let device = BackingDevice {
            name: "sda".to_string(),
            is_disk: true,
            rotates: Some(rotates),
            optimal: Some(optimal),
            max_request: Some(4 << 20),
            read_ahead: Some(now_kib << 10),
            ..BackingDevice::default()
        };
        DeviceFacts {
            device,
            kind: StorageKind::Disk,
            is_virtual: None,
            used_by: Vec::new(),
        }
    }

    /// Version, whether it turns, optimal size, the present value in KiB, what the rule gives in KiB.
    #[test]
    fn versions_and_their_values() {
        let rows = [
            ("2.6.32", true, 0, 128, 128),
            ("5.4.0-42-generic", true, 1 << 20, 128, 128),
            ("5.10.1", true, 1 << 20, 2048, 2048),
            ("6.16.3", true, 0, 128, 128),
            ("6.17", true, 0, 8192, 8192),
            ("6.18.44-x", false, 0, 128, 128),
            ("6.18", false, 32 << 20, 65_536, 65_536),
            ("6.18", false, 4096, 128, 128),
            // A distribution's kernel with the rule of a newer one.
            ("5.14.0-700.el9", true, 0, 8192, 8192),
            // Set by hand: the rule does not give it.
            ("6.18", true, 0, 512, 8192),
        ];
        for (release, rotates, optimal, now, wanted) in rows {
            let version = KernelVersion::parse(release).expect("a version");
            let value = rule(version, &disk(rotates, optimal, now)).expect("a rule");
            assert_eq!(value.bytes >> 10, wanted, "{release}: {value:?}");
            assert_eq!(value.is_newer, release.starts_with("5.14"), "{release}");
        }
        assert_eq!(KernelVersion::parse("linux"), None);
    }

    #[test]
    fn every_row_has_a_source_and_newer_rows_come_first() {
        for (n, row) in RULES.iter().enumerate() {
            assert!(!row.source.is_empty());
            let earlier = RULES[..n].iter().filter(|other| other.kinds == row.kinds);
            assert!(earlier.into_iter().all(|other| other.since > row.since));
        }
    }

    #[test]
    fn a_hostile_size_is_no_overflow() {
        let facts = disk(false, u64::MAX, 128);
        let value = rule(KernelVersion(6, 18), &facts).expect("a rule");
        assert!(value.bytes > 1 << 60);
    }
}
