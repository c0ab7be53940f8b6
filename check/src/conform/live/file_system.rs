//! The file systems on which the kernel is tested: their names, how they are created, and their folio sizes.

use super::LiveError;
use crate::conform::recording::PAGE;
use std::path::Path;
use std::process::Command;

/// btrfs does not use the device's readahead; its folder in sysfs has this name.
pub(super) const BTRFS_UUID: &str = "7a1c7d5e-0f0b-4e3c-9a52-f0e6ead00001";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    Ext4,
    Ext4Small,
    Ext4Journal,
    Xfs,
    Xfs8,
    Xfs16,
    Xfs32,
    Xfs64,
    Btrfs,
    Erofs,
    Overlay,
}

const EXPANDS: &str = "it reads whole compressed blocks (readahead_expand), so the readahead policy does not choose all pages that are read";
const NO_SERVER: &str = "the kernel's readahead on it depends on the settings of a server, and this check starts no server";

/// The kernel driver to which a file system belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Driver {
    Ext4,
    Xfs,
    Btrfs,
    Erofs,
}

impl Driver {
    /// Returns the type's name for the kernel and mkfs, such as `ext4`.
    pub fn name(self) -> &'static str {
        match self {
            Driver::Ext4 => "ext4",
            Driver::Xfs => "xfs",
            Driver::Btrfs => "btrfs",
            Driver::Erofs => "erofs",
        }
    }
}

/// The name and the creation parameters of a file system.
struct Layout {
    name: &'static str,
    about: &'static str,
    block_kib: u64,
    driver: Driver,
}

impl FileSystem {
    /// All file systems, in the order in which tables list them.
    pub const ALL: [FileSystem; 11] = [
        FileSystem::Ext4,
        FileSystem::Ext4Small,
        FileSystem::Ext4Journal,
        FileSystem::Xfs,
        FileSystem::Xfs8,
        FileSystem::Xfs16,
        FileSystem::Xfs32,
        FileSystem::Xfs64,
        FileSystem::Btrfs,
        FileSystem::Erofs,
        FileSystem::Overlay,
    ];

    /// File systems that the test leaves out, and the reason for each.
    pub const REFUSED: [(&str, &str); 3] = [
        ("squashfs", EXPANDS),
        ("erofs-lz4", EXPANDS),
        ("fuse", NO_SERVER),
    ];

    fn layout(self) -> Layout {
        let of = |name, about, block_kib, driver| Layout {
            name,
            about,
            block_kib,
            driver,
        };
        match self {
            FileSystem::Ext4 => of("ext4", "Blocks of 4 KiB", 4, Driver::Ext4),
            FileSystem::Ext4Small => of("ext4-1k", "Blocks of 1 KiB", 1, Driver::Ext4),
            FileSystem::Ext4Journal => {
                let about = "With data=journal: no large folios";
                of("ext4-journal", about, 4, Driver::Ext4)
            }
            FileSystem::Xfs => of("xfs", "Blocks of 4 KiB", 4, Driver::Xfs),
            FileSystem::Xfs8 => of("xfs-8k", "Blocks of 8 KiB", 8, Driver::Xfs),
            FileSystem::Xfs16 => of("xfs-16k", "Blocks of 16 KiB", 16, Driver::Xfs),
            FileSystem::Xfs32 => of("xfs-32k", "Blocks of 32 KiB", 32, Driver::Xfs),
            FileSystem::Xfs64 => of("xfs-64k", "Blocks of 64 KiB", 64, Driver::Xfs),
            FileSystem::Btrfs => of("btrfs", "With the default options", 4, Driver::Btrfs),
            FileSystem::Erofs => of("erofs", "Without compression", 4, Driver::Erofs),
            FileSystem::Overlay => of("overlay", "Over ext4", 4, Driver::Ext4),
        }
    }

    /// Returns the name of the file system in the option `--fs`.
    pub fn name(self) -> &'static str {
        self.layout().name
    }

    pub fn about(self) -> &'static str {
        self.layout().about
    }

    pub(super) fn block_bytes(self) -> u64 {
        self.layout().block_kib << 10
    }

    /// The driver of the file system on the device.
    pub(super) fn driver(self) -> Driver {
        self.layout().driver
    }

    /// The smallest folio that holds a block (docs/spec/linux-readahead.md 4.1).
    pub(super) fn min_order(self) -> u32 {
        (self.block_bytes() / PAGE).max(1).ilog2()
    }

    /// The program that creates it, and the program's package.
    fn program(self) -> (&'static str, &'static str) {
        match self.driver() {
            Driver::Ext4 => ("mkfs.ext4", "e2fsprogs"),
            Driver::Xfs => ("mkfs.xfs", "xfsprogs"),
            Driver::Btrfs => ("mkfs.btrfs", "btrfs-progs"),
            Driver::Erofs => ("mkfs.erofs", "erofs-utils"),
        }
    }

    /// Whether it can be created here.
    pub(super) fn ready(self) -> Result<(), LiveError> {
        let (program, package) = self.program();
        let version = match self.driver() {
            Driver::Erofs => "--help",
            _ => "-V",
        };
        run("losetup", &["--version"], "mount (util-linux)")?;
        run(program, &[version], package).map(|_| ())
    }

    /// Creates it on a device, with the files of a folder if it is created together with its files.
    pub(super) fn make(self, device: &str, folder: Option<&Path>) -> Result<(), LiveError> {
        let (program, package) = self.program();
        let (block, sized) = (
            self.block_bytes().to_string(),
            format!("size={}", self.block_bytes()),
        );
        let folder = folder
            .map(|folder| folder.display().to_string())
            .unwrap_or_default();
        let args: &[&str] = match self.driver() {
            Driver::Ext4 => &["-q", "-F", "-b", &block, device],
            Driver::Xfs => &["-q", "-f", "-b", &sized, device],
            Driver::Btrfs => &["-q", "-f", "-U", BTRFS_UUID, device],
            Driver::Erofs => &[device, &folder],
        };
        run(program, args, package).map(|_| ())
    }
}

/// Runs a program and returns its output.
pub(super) fn run(program: &str, arguments: &[&str], package: &str) -> Result<String, LiveError> {
    let ran = Command::new(program)
        .args(arguments)
        .stdin(std::process::Stdio::null())
        .output();
    let ran = ran.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => LiveError::Unsupported(format!(
            "{program} is missing; install the package {package}"
        )),
        _ => LiveError::io(format!("cannot run {program}"), error),
    })?;
    if ran.status.success() {
        return Ok(String::from_utf8_lossy(&ran.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&ran.stderr);
    let said = said.lines().last().unwrap_or("no reason given").trim();
    Err(LiveError::Cannot(format!(
        "{program} failed: {said}; a free loop device is needed (/dev/loop-control)"
    )))
}
