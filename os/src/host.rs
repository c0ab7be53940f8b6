//! Facts about the host from `/proc` and `/sys`. Other modules read files in these folders only to observe processes and to use tracefs.
//!
//! ```text
//!   backing        disks and mounts that read ahead, with their attributes
//!   devices        the device below a file: read_ahead_kb, max_sectors_kb, rotational; disks, partitions, loop devices, attributes
//!   mounts         the mounts of mountinfo
//!   memory         memory of the machine, limits of control groups, room for more cached data
//!   programs       programs with open files on a device
//!   settings       files in /etc, /run and /usr that set readahead; what udev knows about a device
//! ```
//! The version of the kernel, device numbers, mappings of files and memory pressure are in this file.
//! A test creates a [`Host`] with its own `proc` and `sys` in a temporary folder.
//!
//! Reading never fails: a value that the kernel does not report is absent.

use memory::page_bytes;
pub use mounts::{FOREREAD_MOUNT, Mount, last_at};
use rustix::fs::{FileType, Stat};
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

pub mod backing;
pub mod devices;
pub mod memory;
mod mounts;
pub mod programs;
pub mod settings;

/// The root folder of a host's `/proc` and `/sys`.
#[derive(Clone, Debug)]
pub struct Host {
    root: PathBuf,
    proc: PathBuf,
    sys: PathBuf,
}

impl Host {
    pub fn here() -> Host {
        Host::below(Path::new("/"))
    }

    /// Creates a host whose `proc` and `sys` are in this folder.
    pub fn below(root: &Path) -> Host {
        Host {
            root: root.to_path_buf(),
            proc: root.join("proc"),
            sys: root.join("sys"),
        }
    }

    /// Returns a path on this host: `/etc` becomes `ROOT/etc`.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Returns the random ID that Linux generates at each boot.
    pub fn boot_id(&self) -> Option<String> {
        text(&self.proc.join("sys/kernel/random/boot_id"))
    }

    pub fn has_sysfs(&self) -> bool {
        self.sys.join("class").is_dir() || self.sys.join("block").is_dir()
    }

    /// Returns the release of the kernel, such as `6.18.5`.
    pub fn kernel_release(&self) -> Option<String> {
        text(&self.proc.join("sys/kernel/osrelease"))
    }

    /// Returns the firmware's strings for the machine's vendor and cloud, one line each; the result is empty if there are none.
    pub fn maker(&self) -> String {
        let files = [
            "sys_vendor",
            "product_name",
            "bios_version",
            "chassis_asset_tag",
        ];
        let folder = self.sys.join("class/dmi/id");
        let facts = files.iter().filter_map(|file| text(&folder.join(file)));
        facts.collect::<Vec<String>>().join("\n")
    }
}

fn text(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_string())
}

fn number(path: &Path) -> Option<u64> {
    text(path)?.parse().ok()
}

// The kernel version, as far as readahead rules depend on it.

/// `6.17` of `6.17.0-14-generic`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion(pub u32, pub u32);

impl KernelVersion {
    pub fn parse(release: &str) -> Option<KernelVersion> {
        let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
        Some(KernelVersion(
            numbers.next()?.parse().ok()?,
            numbers.next()?.parse().ok()?,
        ))
    }
}

impl Host {
    /// Returns the kernel version, if the release string starts with one.
    pub fn kernel_version(&self) -> Option<KernelVersion> {
        KernelVersion::parse(&self.kernel_release()?)
    }
}

// The number of a block device in the kernel's notation: `8:1` is the first partition of the first SCSI disk.

/// The major and minor number of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceNumber {
    pub major: u32,
    /// The number of the device within its driver.
    pub minor: u32,
}

impl DeviceNumber {
    /// Converts a `dev_t`, as `stat` returns it, to a device number.
    pub fn of(dev: u64) -> DeviceNumber {
        DeviceNumber {
            major: rustix::fs::major(dev),
            minor: rustix::fs::minor(dev),
        }
    }

    /// The number of a block device node, or of the device of a file's file system.
    fn below(stat: &Stat) -> DeviceNumber {
        let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice;
        DeviceNumber::of(if is_device { stat.st_rdev } else { stat.st_dev })
    }

    /// Parses a device number `MAJOR:MINOR`.
    pub fn parse(text: &str) -> Option<DeviceNumber> {
        let (major, minor) = text.split_once(':')?;
        Some(DeviceNumber {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
        })
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

// Mappings of files, from `/proc/PID/maps`: `7f00deadb000-7f00deadc000 r--p 00001000 07:00 12 /mnt/a b`.

pub struct FileMapping<'a> {
    pub addresses: Range<u64>,
    pub is_readable: bool,
    pub offset: u64,
    /// The number that the kernel uses; stat(2) returns another number for btrfs.
    pub device: DeviceNumber,
    pub inode: u64,
    pub path: &'a str,
}

/// Parses the mappings of files in this text (`/proc/PID/maps`). Lines that are not mappings of files are skipped.
pub fn mapped_files(maps: &str) -> impl Iterator<Item = FileMapping<'_>> {
    maps.lines().filter_map(parse)
}

fn parse(line: &str) -> Option<FileMapping<'_>> {
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let is_readable = words.next()?.starts_with('r');
    let offset = hex(words.next()?)?;
    let (major, minor) = words.next()?.split_once(':')?;
    let device = DeviceNumber {
        major: hex(major)?.try_into().ok()?,
        minor: hex(minor)?.try_into().ok()?,
    };
    Some(FileMapping {
        addresses: hex(start)?..hex(end)?,
        is_readable,
        offset,
        device,
        inode: words.next()?.parse().ok().filter(|inode| *inode > 0)?,
        path: &line[line.find('/')?..],
    })
}

// Memory pressure, and how many reads are page faults: counters since boot.
//
// Sources: proc_vmstat(5); the kernel's `accounting/psi.rst` and `admin-guide/iostats.rst`.

/// Counters of memory events since boot, and the stalls of the last minute.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemoryPressure {
    /// Page faults that waited for a disk.
    pub major_faults: Option<u64>,
    /// File pages that were read again soon after they were evicted (refaults).
    pub refaults: Option<u64>,
    /// Percentage of the last minute in which some program waited for memory.
    pub stalled_percent: Option<f64>,
    /// Memory of the machine or of the control groups of this process, whichever is less.
    pub memory_bytes: u64,
}

impl MemoryPressure {
    /// Returns how many bytes of files were read again soon after they were evicted from the page cache.
    pub fn refaulted_bytes(&self) -> Option<u64> {
        Some(self.refaults?.saturating_mul(page_bytes()))
    }
}

/// Counters of a disk since it was attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    pub reads: u64,
    pub read_bytes: u64,
    /// Total milliseconds of its reads.
    pub read_ms: u64,
    pub written_bytes: u64,
    pub in_flight: u64,
    /// Milliseconds with at least one request in flight.
    pub busy_ms: u64,
}

impl Host {
    pub fn memory_pressure(&self) -> MemoryPressure {
        let vmstat = text(&self.proc.join("vmstat")).unwrap_or_default();
        let counter = |name: &str| {
            let lines = vmstat.lines();
            let mut values = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            values.next()?.trim().parse().ok()
        };
        MemoryPressure {
            major_faults: counter("pgmajfault"),
            // Before Linux 5.9 files and other memory were counted together.
            refaults: counter("workingset_refault_file").or_else(|| counter("workingset_refault")),
            stalled_percent: self.stalled(),
            memory_bytes: self.memory_bytes(),
        }
    }

    /// `some avg10=0.00 avg60=1.25 ...`
    fn stalled(&self) -> Option<f64> {
        let text = text(&self.proc.join("pressure/memory"))?;
        let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
        let mut words = some.split_whitespace();
        let percent: f64 = words
            .find_map(|word| word.strip_prefix("avg60="))?
            .parse()
            .ok()?;
        Some(percent).filter(|percent| percent.is_finite())
    }

    pub fn disk_counters(&self, name: &str) -> Option<DiskCounters> {
        let text = text(&self.sys.join("block").join(name).join("stat"))?;
        let numbers = text.split_whitespace().map_while(|word| word.parse().ok());
        let numbers: Vec<u64> = numbers.collect();
        Some(DiskCounters {
            reads: *numbers.first()?,
            read_bytes: numbers.get(2)?.saturating_mul(512),
            read_ms: *numbers.get(3)?,
            written_bytes: numbers.get(6)?.saturating_mul(512),
            in_flight: *numbers.get(8)?,
            busy_ms: *numbers.get(9)?,
        })
    }

    /// Returns the processor time that other processes and the kernel have used since boot, and the time of all processors, both in
    /// ticks. Time that the host of a virtual machine took away counts as used.
    ///
    /// Source: proc_stat(5), proc_pid_stat(5).
    pub fn processor_ticks(&self) -> Option<(u64, u64)> {
        let numbers = |text: &str| -> Vec<u64> {
            let words = text.split_whitespace();
            words.filter_map(|word| word.parse().ok()).collect()
        };
        let stat = text(&self.proc.join("stat"))?;
        let all = numbers(stat.lines().next()?);
        let sum: u64 = all.iter().take(8).sum();
        let idle = all.get(3)?.saturating_add(*all.get(4)?);
        let own = text(&self.proc.join("self/stat"))?;
        // The name of the program may contain spaces. After it, user and system time are the words 12 and 13.
        let own = own.rsplit_once(')')?.1.split_whitespace().skip(11);
        let own: u64 = own
            .take(2)
            .filter_map(|word| word.parse::<u64>().ok())
            .sum();
        Some((sum.saturating_sub(idle.saturating_add(own)), sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_and_written() {
        let number = DeviceNumber::of(rustix::fs::makedev(259, 300_000));
        assert_eq!(number.to_string(), "259:300000");
        assert_eq!(DeviceNumber::parse("259:300000"), Some(number));
        assert_eq!(["259", "a:1"].map(DeviceNumber::parse), [None, None]);
    }

    #[test]
    fn mappings_of_files_are_taken() {
        let maps = "00400000-0048a000 r-xp 00000000 fd:03 960637 /bin/bash\n\
                    7f00deadb000-7f00deadc000 ---p 00001000 07:00 12 /mnt/a b\nnonsense\n\
                    7f0060000000-7f0070000000 rw-p 00000000 00:00 0 [heap]\n7f00-7f01 r--p 0 zz:00 0\n";
        let found: Vec<FileMapping<'_>> = mapped_files(maps).collect();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].path, found[1].path), ("/bin/bash", "/mnt/a b"));
        assert_eq!(found[0].addresses, 0x40_0000..0x48_a000);
        assert_eq!((found[1].inode, found[1].offset), (12, 4096));
        assert_eq!(found[0].device.to_string(), "253:3");
        assert!(found[0].is_readable && !found[1].is_readable);
    }
}
