//! One event of a thread, as the kernel's tracepoints tell it: in binary (`foreread record`) or as text (`formats/ftrace.rs`).
//!
//! What it means for a file or a descriptor is [`super::Follow`]'s to say.

use super::call::Call;
use crate::FileInfo;

/// A file as the kernel names it: the number of its device (major << 20 | minor) and of its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileKey {
    /// The device.
    pub dev: u32,
    /// The inode.
    pub ino: u64,
}

/// Bits of the number of a device that are the minor one.
const MINOR_BITS: u32 = 20;

impl FileKey {
    /// The file of an inode on the device of these numbers.
    pub fn new(major: u32, minor: u32, ino: u64) -> FileKey {
        FileKey {
            dev: (major << MINOR_BITS) | minor,
            ino,
        }
    }

    /// Major and minor number of its device.
    pub fn device(self) -> (u32, u32) {
        (self.dev >> MINOR_BITS, self.dev & ((1 << MINOR_BITS) - 1))
    }

    /// What a trace calls a file of which no name is known.
    pub fn nameless(self) -> FileInfo {
        let (major, minor) = self.device();
        FileInfo {
            name: format!("inode {} of {major}:{minor}", self.ino),
            size: None,
        }
    }
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, in nanoseconds of some clock.
    pub at_ns: u64,
    /// Whose.
    pub thread: u32,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A call began.
    Enter(Call, [u64; 6]),
    /// It returned.
    Exit(Call, i64),
    /// A read looks for these pages, from the first to the last, in the page cache.
    Pages(FileKey, u64, u64),
    /// A fault found these pages there and mapped them.
    Mapped(FileKey, u64, u64),
    /// A fault of this page went to the file.
    Fault(FileKey, u64),
    /// A folio of several pages came into the page cache: its first page, its pages.
    Folio(FileKey, u64, u64),
    /// A file system reads its own data, these pages of its block device: first page, pages.
    Metadata(FileKey, u64, u64),
    /// A fault of this address begins.
    Address(u64),
    /// Bytes past the page cache: offset, length; the size of the file.
    Direct(FileKey, u64, u64, u64),
    /// A thread was begun, with these flags of clone(2).
    Born(u32, u64),
    /// The thread ended.
    Gone,
    /// It runs another program; before that it was this thread.
    Exec(u32),
    /// The kernel reads ahead: first page, pages.
    Ahead(FileKey, u64, u64),
    /// It does so page by page: by its own decision, or because the file system has no other way to carry out the last one.
    AheadByPage(FileKey, u64, u64),
    /// Events were lost here.
    Lost,
}

/// Flags of clone(2): memory and descriptors are shared.
pub const CLONE_VM: u64 = 0x100;
/// See there.
pub const CLONE_FILES: u64 = 0x400;
/// The kernel's own: of a thread that it begins to work for io_uring, too.
pub const CLONE_UNTRACED: u64 = 0x80_0000;
