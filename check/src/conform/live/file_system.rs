//! The file systems that the kernel is asked on: what each is called, how it is made, what its folios are.

use super::LiveError;
use crate::conform::recording::PAGE;
use std::path::Path;
use std::process::Command;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// ext4 with blocks of 4 KiB, as it is by default.
    Ext4,
    /// ext4 with blocks of 1 KiB.
    Ext4Small,
    /// ext4 with data=journal: no large folios.
    Ext4Journal,
    /// XFS with blocks of 4 KiB, as it is by default.
    Xfs,
    /// XFS with blocks of 8 KiB.
    Xfs8,
    /// XFS with blocks of 16 KiB.
    Xfs16,
    /// XFS with blocks of 32 KiB.
    Xfs32,
    /// XFS with blocks of 64 KiB.
    Xfs64,
    /// btrfs as it is by default.
    Btrfs,
    /// EROFS without compression.
    Erofs,
    /// An overlay over ext4.
    Overlay,
}

const EXPANDS: &str =
    "it reads whole compressed blocks (readahead_expand), so its pages are not the policy's alone";
const NO_SERVER: &str =
    "it needs a server, whose settings the kernel's readahead follows, and none is started here";

/// Which part of the kernel it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Driver {
    Ext4,
    Xfs,
    Btrfs,
    Erofs,
}

impl Driver {
    /// What the kernel and mkfs call it.
    pub fn name(self) -> &'static str {
        match self {
            Driver::Ext4 => "ext4",
            Driver::Xfs => "xfs",
            Driver::Btrfs => "btrfs",
            Driver::Erofs => "erofs",
        }
    }
}

impl FileSystem {
    /// All, in the order of a table.
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

    /// Others, which are not asked, and why.
    pub const REFUSED: [(&str, &str); 3] = [
        ("squashfs", EXPANDS),
        ("erofs-lz4", EXPANDS),
        ("fuse", NO_SERVER),
    ];

    /// As on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::Ext4Small => "ext4-1k",
            FileSystem::Ext4Journal => "ext4-journal",
            FileSystem::Xfs => "xfs",
            FileSystem::Xfs8 => "xfs-8k",
            FileSystem::Xfs16 => "xfs-16k",
            FileSystem::Xfs32 => "xfs-32k",
            FileSystem::Xfs64 => "xfs-64k",
            FileSystem::Btrfs => "btrfs",
            FileSystem::Erofs => "erofs",
            FileSystem::Overlay => "overlay",
        }
    }

    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            FileSystem::Ext4 | FileSystem::Xfs => "Blocks of 4 KiB",
            FileSystem::Ext4Small => "Blocks of 1 KiB",
            FileSystem::Ext4Journal => "With data=journal: no large folios",
            FileSystem::Xfs8 => "Blocks of 8 KiB",
            FileSystem::Xfs16 => "Blocks of 16 KiB",
            FileSystem::Xfs32 => "Blocks of 32 KiB",
            FileSystem::Xfs64 => "Blocks of 64 KiB",
            FileSystem::Btrfs => "As it is by default",
            FileSystem::Erofs => "Without compression",
            FileSystem::Overlay => "Over ext4",
        }
    }

    pub(super) fn block_bytes(self) -> u64 {
        match self {
            FileSystem::Ext4Small => 1 << 10,
            FileSystem::Ext4 | FileSystem::Ext4Journal | FileSystem::Xfs => 4 << 10,
            FileSystem::Btrfs | FileSystem::Erofs | FileSystem::Overlay => 4 << 10,
            FileSystem::Xfs8 => 8 << 10,
            FileSystem::Xfs16 => 16 << 10,
            FileSystem::Xfs32 => 32 << 10,
            FileSystem::Xfs64 => 64 << 10,
        }
    }

    /// The smallest folio that holds a block (docs/spec/linux-readahead.md 4.1).
    pub(super) fn min_order(self) -> u32 {
        (self.block_bytes() / PAGE).max(1).ilog2()
    }

    /// Whether it may make large folios.
    pub(super) fn large_folios(self) -> bool {
        self != FileSystem::Ext4Journal
    }

    /// Of the file system that is made on the device.
    pub(super) fn driver(self) -> Driver {
        match self {
            FileSystem::Ext4
            | FileSystem::Ext4Small
            | FileSystem::Ext4Journal
            | FileSystem::Overlay => Driver::Ext4,
            FileSystem::Btrfs => Driver::Btrfs,
            FileSystem::Erofs => Driver::Erofs,
            _ => Driver::Xfs,
        }
    }

    /// The program that makes it, and its package.
    fn program(self) -> (&'static str, &'static str) {
        match self.driver() {
            Driver::Ext4 => ("mkfs.ext4", "e2fsprogs"),
            Driver::Xfs => ("mkfs.xfs", "xfsprogs"),
            Driver::Btrfs => ("mkfs.btrfs", "btrfs-progs"),
            Driver::Erofs => ("mkfs.erofs", "erofs-utils"),
        }
    }

    /// Whether it can be made here.
    pub(super) fn ready(self) -> Result<(), LiveError> {
        let (program, package) = self.program();
        let version = match self.driver() {
            Driver::Erofs => "--help",
            _ => "-V",
        };
        run("losetup", &["--version"], "mount (util-linux)")?;
        run(program, &[version], package).map(|_| ())
    }

    /// Makes it on a device, with the files of a folder where it is made with files.
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
            Driver::Btrfs => &["-q", "-f", "-U", super::disk::BTRFS_UUID, device],
            Driver::Erofs => &[device, &folder],
        };
        run(program, args, package).map(|_| ())
    }
}

/// Runs a program and returns what it said.
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
        "{program} failed: {said}; there has to be a free loop device (/dev/loop-control)"
    )))
}
