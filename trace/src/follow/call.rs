//! The recorded system calls, by the names of their tracepoints.
//!
//! Other calls are not needed: descriptors of `pipe` and `socket` stay unknown, files of `creat` are
//! write-only, and reads by io_uring appear in the page cache. Each row changes some trace
//! (`tests.rs` removes each in turn).

use crate::FileInfo;

/// Linux's maximum transfer of one call, `MAX_RW_COUNT` with 4 KiB pages.
pub const MAX_CALL_BYTES: u64 = 0x7fff_f000;

/// A recorded call, with the positions of its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// `open`: flags are the second.
    Open,
    /// `openat`: flags are the third.
    OpenAt,
    /// `openat2`: the flags are in the program's memory.
    OpenAt2,
    /// Descriptor.
    Close,
    /// First, last, flags.
    CloseRange,
    /// From (to, flags).
    Dup,
    /// `dup3`: from, to, flags.
    Dup3,
    /// Descriptor, command, value.
    Fcntl,
    /// `ioctl`: descriptor, command.
    Ioctl,
    /// `unshare`: flags.
    Unshare,
    /// Descriptor, offset, whence.
    Seek,
    /// Descriptor, buffer, bytes.
    Read,
    /// The same with an offset.
    ReadAt,
    /// Descriptor, vector, buffers.
    ReadVector,
    /// The same with an offset.
    ReadVectorAt,
    /// `preadv2`: an offset of -1 is the position.
    ReadVectorAt2,
    /// As [`Call::Read`].
    Write,
    /// As [`Call::ReadAt`].
    WriteAt,
    /// As [`Call::ReadVector`].
    WriteVector,
    /// As [`Call::ReadVectorAt`].
    WriteVectorAt,
    /// As [`Call::ReadVectorAt2`].
    WriteVectorAt2,
    /// Out, in, pointer to an offset, bytes.
    Sendfile,
    /// In, pointer to an offset, out, pointer to an offset, bytes.
    Copy,
    /// Descriptor, offset, bytes, advice.
    Advise,
    /// Descriptor, offset, bytes.
    Readahead,
    /// `mmap`: address, bytes, protection, flags, descriptor, offset.
    Map,
    /// `munmap`: address, bytes.
    Unmap,
    /// `mremap`: address, bytes, new bytes, flags.
    Remap,
    /// `madvise`: address, bytes, advice.
    AdviseMapped,
}

/// A row of [`ENTRIES`].
pub struct Entry {
    /// The name in the tracepoint `sys_enter_NAME`.
    pub name: &'static str,
    /// What it is.
    pub call: Call,
    /// Whether its return value is needed.
    pub exit: bool,
    /// A filter for the needed calls, in the kernel's syntax.
    pub filter: Option<&'static str>,
}

const fn row(name: &'static str, call: Call) -> Entry {
    Entry {
        name,
        call,
        exit: true,
        filter: None,
    }
}

/// Every call.
pub static ENTRIES: &[Entry] = &[
    row("open", Call::Open),
    row("openat", Call::OpenAt),
    row("openat2", Call::OpenAt2),
    // A descriptor is free as soon as close starts: a concurrent open may get its number.
    Entry {
        exit: false,
        ..row("close", Call::Close)
    },
    row("close_range", Call::CloseRange),
    row("dup", Call::Dup),
    row("dup2", Call::Dup),
    row("dup3", Call::Dup3),
    // F_DUPFD, F_SETFD, F_SETFL, F_DUPFD_CLOEXEC.
    Entry {
        filter: Some("cmd == 0 || cmd == 2 || cmd == 4 || cmd == 1030"),
        ..row("fcntl", Call::Fcntl)
    },
    // FIONCLEX, FIOCLEX: programs use it for F_SETFD. On an open descriptor it does not fail.
    Entry {
        filter: Some("cmd == 0x5450 || cmd == 0x5451"),
        exit: false,
        ..row("ioctl", Call::Ioctl)
    },
    row("unshare", Call::Unshare),
    row("lseek", Call::Seek),
    row("read", Call::Read),
    row("pread64", Call::ReadAt),
    row("readv", Call::ReadVector),
    row("preadv", Call::ReadVectorAt),
    row("preadv2", Call::ReadVectorAt2),
    row("write", Call::Write),
    row("pwrite64", Call::WriteAt),
    row("writev", Call::WriteVector),
    row("pwritev", Call::WriteVectorAt),
    row("pwritev2", Call::WriteVectorAt2),
    row("sendfile64", Call::Sendfile),
    row("copy_file_range", Call::Copy),
    row("splice", Call::Copy),
    row("fadvise64", Call::Advise),
    row("readahead", Call::Readahead),
    // Files, and what is put in place of something (MAP_FIXED). Memory (MAP_ANONYMOUS) else goes where nothing is.
    Entry {
        filter: Some("flags & 0x10 || !(flags & 0x20)"),
        ..row("mmap", Call::Map)
    },
    // As close: the place is free when it begins.
    Entry {
        exit: false,
        ..row("munmap", Call::Unmap)
    },
    row("mremap", Call::Remap),
    // NORMAL, RANDOM, SEQUENTIAL, WILLNEED. Of a file DONTNEED leaves the page cache as it is.
    Entry {
        filter: Some("behavior <= 3"),
        ..row("madvise", Call::AdviseMapped)
    },
];

impl Call {
    /// Whether it can become a record.
    pub fn is_data(self) -> bool {
        use Call::{
            Advise, AdviseMapped, Copy, Read, ReadAt, ReadVector, ReadVectorAt, ReadVectorAt2,
            Readahead, Sendfile, Write, WriteAt, WriteVector, WriteVectorAt, WriteVectorAt2,
        };
        matches!(
            self,
            Read | ReadAt
                | ReadVector
                | ReadVectorAt
                | ReadVectorAt2
                | Write
                | WriteAt
                | WriteVector
                | WriteVectorAt
                | WriteVectorAt2
                | Sendfile
                | Copy
                | Advise
                | AdviseMapped
                | Readahead
        )
    }
}

// One event of a thread, as the kernel's tracepoints tell it: in binary (`foreread record`) or as text (`formats/ftrace.rs`).
//
// What it means for a file or a descriptor is [`super::Follow`]'s to say.

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
