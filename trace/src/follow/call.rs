//! The system calls that a recording contains: a table with one row for the tracepoints of each call.
//!
//! Other calls need not be recorded: for example, descriptors of `pipe` and `socket` may stay unknown, and `creat` opens files only for
//! writing. Reads by io_uring appear as page cache events. A test (`tests.rs`) checks that every row is needed: it removes each row in
//! turn, and the resulting records then differ.

use crate::FileInfo;

/// Linux's maximum transfer of one call, `MAX_RW_COUNT` with 4 KiB pages.
pub const MAX_CALL_BYTES: u64 = 0x7fff_f000;

/// A recorded call, with the positions of its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// `open`: the second argument is the flags.
    Open,
    /// `openat`: the third argument is the flags.
    OpenAt,
    /// `openat2`: the flags are in the program's memory.
    OpenAt2,
    /// `close`: descriptor.
    Close,
    /// `close_range`: first, last, flags.
    CloseRange,
    /// `dup`, `dup2`: from (to).
    Dup,
    /// `dup3`: from, to, flags.
    Dup3,
    /// `fcntl`: descriptor, command, value.
    Fcntl,
    /// `ioctl`: descriptor, command.
    Ioctl,
    /// `unshare`: flags.
    Unshare,
    /// `lseek`: descriptor, offset, whence.
    Seek,
    /// `read`: descriptor, buffer, bytes.
    Read,
    /// `pread64`: descriptor, buffer, bytes, offset.
    ReadAt,
    /// `readv`: descriptor, vector, buffers.
    ReadVector,
    /// `preadv`: descriptor, vector, buffers, offset.
    ReadVectorAt,
    /// `preadv2`: an offset of -1 is the position.
    ReadVectorAt2,
    /// Like [`Call::Read`], but writes.
    Write,
    /// Like [`Call::ReadAt`], but writes.
    WriteAt,
    /// Like [`Call::ReadVector`], but writes.
    WriteVector,
    /// Like [`Call::ReadVectorAt`], but writes.
    WriteVectorAt,
    /// Like [`Call::ReadVectorAt2`], but writes.
    WriteVectorAt2,
    /// `sendfile`: out, in, pointer to an offset, bytes.
    Sendfile,
    /// `copy_file_range`, `splice`: in, pointer to an offset, out, pointer to an offset, bytes.
    Copy,
    /// `fadvise64`: descriptor, offset, bytes, advice.
    Advise,
    /// `readahead`: descriptor, offset, bytes.
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

/// A recorded system call: a row of [`ENTRIES`].
pub struct Entry {
    /// The name in the tracepoint `sys_enter_NAME`.
    pub name: &'static str,
    /// The call.
    pub call: Call,
    /// Whether its return value is needed.
    pub exit: bool,
    /// The kernel's filter expression that selects the needed calls, if not all are.
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

/// All recorded system calls.
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
    // Records files, and anything that replaces a mapping (MAP_FIXED). Other anonymous memory (MAP_ANONYMOUS) goes to
    // free addresses.
    Entry {
        filter: Some("flags & 0x10 || !(flags & 0x20)"),
        ..row("mmap", Call::Map)
    },
    // Like close: the address range is free as soon as the call starts.
    Entry {
        exit: false,
        ..row("munmap", Call::Unmap)
    },
    row("mremap", Call::Remap),
    // NORMAL, RANDOM, SEQUENTIAL, WILLNEED. For a file mapping, DONTNEED leaves the page cache as it is.
    Entry {
        filter: Some("behavior <= 3"),
        ..row("madvise", Call::AdviseMapped)
    },
];

impl Call {
    /// Returns whether the call reads, writes or gives a hint, and so can become a record.
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

// One event of a thread, as the kernel's tracepoints report it.
//
// [`super::Follow`] decides what it means for a file or a descriptor.

/// A file as the kernel identifies it: by device number (major << 20 | minor) and inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileKey {
    /// Device number.
    pub dev: u32,
    /// Inode number.
    pub ino: u64,
}

/// Number of low bits of a device number that hold the minor number.
const MINOR_BITS: u32 = 20;

impl FileKey {
    /// Creates the key of the file with inode number `ino` on the device `major`:`minor`.
    pub fn new(major: u32, minor: u32, ino: u64) -> FileKey {
        FileKey {
            dev: (major << MINOR_BITS) | minor,
            ino,
        }
    }

    /// Returns the major and minor number of the file's device.
    pub fn device(self) -> (u32, u32) {
        (self.dev >> MINOR_BITS, self.dev & ((1 << MINOR_BITS) - 1))
    }

    /// Returns a file description for a trace, without the name, which is unknown.
    pub fn nameless(self) -> FileInfo {
        let (major, minor) = self.device();
        FileInfo::new(format!("inode {} of {major}:{minor}", self.ino), None)
    }
}

/// One event of the traced system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Time in nanoseconds; the clock is not specified.
    pub at_ns: u64,
    /// The thread that caused it.
    pub thread: u32,
    /// The event itself.
    pub what: What,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A call starts, with its arguments.
    Enter(Call, [u64; 6]),
    /// A call returns this value.
    Exit(Call, i64),
    /// A read looks up these pages in the page cache: the first and the last.
    Pages(FileKey, u64, u64),
    /// A page fault found these pages in the page cache and mapped them.
    Mapped(FileKey, u64, u64),
    /// A page fault on this page has to read the file.
    Fault(FileKey, u64),
    /// A folio of several pages was added to the page cache: its first page, and the number of pages.
    Folio(FileKey, u64, u64),
    /// A file system reads its own metadata from its block device: first page, number of pages.
    Metadata(FileKey, u64, u64),
    /// A page fault on this address starts.
    Address(u64),
    /// Direct I/O, bypassing the page cache: offset, length, and the size of the file.
    Direct(FileKey, u64, u64, u64),
    /// A thread was created, with these flags of clone(2).
    Born(u32, u64),
    /// The thread ended.
    Gone,
    /// The thread executes another program; its number was this one before.
    Exec(u32),
    /// The kernel reads ahead: first page, number of pages.
    Ahead(FileKey, u64, u64),
    /// Events were lost here.
    Lost,
}

/// The flag of clone(2) with which a child shares the memory of its parent.
pub const CLONE_VM: u64 = 0x100;
/// The flag of clone(2) with which a child shares the descriptors of its parent.
pub const CLONE_FILES: u64 = 0x400;
/// The flag of clone(2) for threads that the kernel itself creates, including the workers of io_uring.
pub const CLONE_UNTRACED: u64 = 0x80_0000;
