//! The file systems on which the kernel is tested: their names, how they are created, and their folio sizes.

use super::LiveError;
use crate::conform::recording::PAGE;
use std::process::Command;

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
}

impl FileSystem {
    /// All file systems, in the order in which tables list them.
    pub const ALL: [FileSystem; 8] = [
        FileSystem::Ext4,
        FileSystem::Ext4Small,
        FileSystem::Ext4Journal,
        FileSystem::Xfs,
        FileSystem::Xfs8,
        FileSystem::Xfs16,
        FileSystem::Xfs32,
        FileSystem::Xfs64,
    ];

    /// The name in the option `--fs`, a description, and the block size in KiB.
    fn row(self) -> (&'static str, &'static str, u64) {
        match self {
            FileSystem::Ext4 => ("ext4", "Blocks of 4 KiB", 4),
            FileSystem::Ext4Small => ("ext4-1k", "Blocks of 1 KiB", 1),
            FileSystem::Ext4Journal => ("ext4-journal", "With data=journal: no large folios", 4),
            FileSystem::Xfs => ("xfs", "Blocks of 4 KiB", 4),
            FileSystem::Xfs8 => ("xfs-8k", "Blocks of 8 KiB", 8),
            FileSystem::Xfs16 => ("xfs-16k", "Blocks of 16 KiB", 16),
            FileSystem::Xfs32 => ("xfs-32k", "Blocks of 32 KiB", 32),
            FileSystem::Xfs64 => ("xfs-64k", "Blocks of 64 KiB", 64),
        }
    }

    /// Returns the name of the file system in the option `--fs`.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    pub fn about(self) -> &'static str {
        self.row().1
    }

    pub(super) fn block_bytes(self) -> u64 {
        self.row().2 << 10
    }

    /// Whether it is XFS; otherwise it is ext4.
    fn is_xfs(self) -> bool {
        self.name().starts_with("xfs")
    }

    pub(super) fn driver(self) -> &'static str {
        if self.is_xfs() { "xfs" } else { "ext4" }
    }

    /// The smallest folio that holds a block (docs/spec/linux-readahead.md 4.1).
    pub(super) fn min_order(self) -> u32 {
        (self.block_bytes() / PAGE).max(1).ilog2()
    }

    /// The program that creates it, and the program's package.
    fn program(self) -> (&'static str, &'static str) {
        if self.is_xfs() {
            ("mkfs.xfs", "xfsprogs")
        } else {
            ("mkfs.ext4", "e2fsprogs")
        }
    }

    /// Whether it can be created here.
    pub(super) fn ready(self) -> Result<(), LiveError> {
        let (program, package) = self.program();
        run("losetup", &["--version"], "mount (util-linux)")?;
        run(program, &["-V"], package).map(|_| ())
    }

    pub(super) fn make(self, device: &str) -> Result<(), LiveError> {
        let (program, package) = self.program();
        let (block, sized) = (
            self.block_bytes().to_string(),
            format!("size={}", self.block_bytes()),
        );
        let args: &[&str] = if self.is_xfs() {
            &["-q", "-f", "-b", &sized, device]
        } else {
            &["-q", "-F", "-b", &block, device]
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
