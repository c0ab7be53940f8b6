//! A file or a block device, read with direct I/O (`O_DIRECT`).
//!
//! If the file system does not support direct I/O (tmpfs, some network and FUSE file systems), the file is read through the page cache.
//! `POSIX_FADV_RANDOM` then switches off the kernel's readahead for the file, so that only foreread reads ahead. `describe` reports which
//! of the two ways is used.
//!
//! The version of a file is its size, its modification time and its inode. The version is checked after each read and
//! before each write ([`version`]). The check detects that the file shrank or was overwritten, and that a longer file
//! was copied over it. A file to which data was appended still counts as the same version, although it is larger. The
//! check misses a write that leaves size and time unchanged: two writes within one tick of the file system's clock,
//! `mmap` stores before the kernel updates the time, or a time set back. For a block device, no writes are detected,
//! because it has no modification time. The file is read through its open descriptor, so foreread does not notice if
//! another file is renamed over it.
//!
//! Readahead uses io_uring if it works (tested with one read when the file is opened), so that no threads wait for transfers. If io_uring
//! returns fewer bytes than requested, the code that serves all other reads also fetches the rest and checks the version.
//!
//! This source never writes unless it was prepared for writing ([`write`]), and never blocks on opening a pipe.
//!
//! ```text
//!   aligned part        preadv, or the ring, into the caller's buffers
//!   anything else       preadv into an aligned bounce buffer, then a copy
//! ```

#[cfg(feature = "uring")]
mod uring;
mod version;
mod write;

use super::{
    Alignment, Defaults, Extent, Holes, Io, Queue, Source, SourceError, SourceOpenError,
    WritableSource,
};
use crate::chunk::Pool;
use crate::sync::lock;
use crate::system::{self, SystemRequest};
use foreread_os::open::look;
use rustix::fs::{Advice, AtFlags, FileType, OFlags, SeekFrom, StatxFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::hash::RandomState;
use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use version::AcceptedVersion;
use version::Pick;
use write::Writes;

/// Maximum buffers of one system call (`IOV_MAX`).
const MAX_BUFFERS: usize = 1024;
/// Bytes read at a time through the bounce buffer.
const BOUNCE_BYTES: usize = 256 << 10;
/// An open file: its descriptor, its version, and blocking reads. All transfers in flight share it, so that the descriptor
/// stays open until the last of them has ended.
struct Core {
    file: File,
    path: PathBuf,
    direct: bool,
    device: bool,
    alignment: Alignment,
    known: Mutex<AcceptedVersion>,
    /// Growth is accepted as an append, without comparing the sample.
    appending: AtomicBool,
    /// How often the file was accepted as the same version, longer.
    growths: AtomicU64,
    /// Number of reads of this version.
    reads: AtomicU64,
    /// The last page of this version is not in the sample yet.
    tail_due: AtomicBool,
    hasher: RandomState,
    bounce: Arc<Pool>,
    writes: Writes,
}

/// A file or a block device, read with direct I/O (`O_DIRECT`).
pub struct FileSource {
    core: Arc<Core>,
    way: Way,
}

/// How reads wait for the device.
enum Way {
    /// Not decided yet. Holds the tested ring until a caller requests a queue.
    #[cfg(feature = "uring")]
    Ring(Mutex<Option<Arc<dyn Queue>>>),
    /// One thread for each transfer, and the reason.
    Threads(String),
}

impl FileSource {
    /// Opens a regular file or a block device for reading, with io_uring if it works.
    ///
    /// # Errors
    /// Returns an error if the file does not exist, is not readable, or is neither a regular file nor a block device.
    pub fn open(path: impl AsRef<Path>) -> Result<FileSource, SourceOpenError> {
        FileSource::open_by(path, Io::default())
    }

    /// Like [`FileSource::open`], with a chosen I/O method.
    ///
    /// # Errors
    /// Returns the errors of [`FileSource::open`].
    pub fn open_by(path: impl AsRef<Path>, io: Io) -> Result<FileSource, SourceOpenError> {
        let core = Arc::new(Core::open(path.as_ref())?);
        let way = match io {
            Io::Threads => Way::Threads("as requested".to_string()),
            // A transfer from the page cache would be a copy by a kernel thread, which is no better than a copy by one of ours.
            Io::Queue if !core.direct => Way::Threads(String::new()),
            Io::Queue => Way::best(&core),
        };
        Ok(FileSource { core, way })
    }

    /// Like [`FileSource::open`], but shows another name in messages. For a caller that opened the file by its descriptor: a
    /// file of a tree. The file is read by threads, because a ring for each of a million files would need a descriptor and
    /// locked memory each.
    pub(crate) fn open_called(path: &Path, shown: PathBuf) -> Result<FileSource, SourceOpenError> {
        let core = Core {
            path: shown,
            ..Core::open(path)?
        };
        Ok(FileSource {
            core: Arc::new(core),
            way: Way::Threads("a file of a tree".to_string()),
        })
    }

    /// The path by which the file was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.core.path
    }

    /// Returns true if reads bypass the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.core.direct
    }
}

impl Way {
    #[cfg(feature = "uring")]
    fn best(core: &Arc<Core>) -> Way {
        match uring::FileQueue::tried(core) {
            Ok(ring) => Way::Ring(Mutex::new(Some(Arc::new(ring)))),
            Err(why) => Way::Threads(why),
        }
    }

    #[cfg(not(feature = "uring"))]
    fn best(_: &Arc<Core>) -> Way {
        Way::Threads("foreread was built without io_uring".to_string())
    }
}

impl Core {
    fn open(path: &Path) -> Result<Core, SourceOpenError> {
        let refuse = |errno: Errno| cannot_open(path, errno);
        let told =
            |error: std::io::Error| refuse(Errno::from_io_error(&error).unwrap_or(Errno::IO));
        let looked = look(path).map_err(told)?;
        let kind = FileType::from_raw_mode(looked.meta().mode());
        check_kind(path, kind)?;
        let device = kind == FileType::BlockDevice;
        if system::allowed(SystemRequest::File).is_err() {
            return Err(refuse(Errno::MFILE));
        }
        let (fd, direct) = match looked.open(OFlags::RDONLY | OFlags::DIRECT) {
            Ok(file) => (OwnedFd::from(file), true),
            Err(error)
                if [Some(Errno::INVAL), Some(Errno::OPNOTSUPP)]
                    .contains(&Errno::from_io_error(&error)) =>
            {
                (OwnedFd::from(looked.for_reading().map_err(told)?), false)
            }
            Err(error) => return Err(told(error)),
        };
        let granule = if direct && (device || !in_memory(&fd)) {
            direct_alignment(&fd, device)
        } else {
            None
        };
        let bounce = Pool::new(4096, 4096, BOUNCE_BYTES as u64 * 2);
        let alignment = granule.unwrap_or(Alignment::NONE);
        let mut source = Core {
            file: File::from(fd),
            path: path.to_path_buf(),
            direct: direct && granule.is_some(),
            device,
            alignment,
            known: Mutex::default(),
            appending: AtomicBool::new(false),
            growths: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            tail_due: AtomicBool::new(true),
            hasher: RandomState::new(),
            bounce,
            writes: Writes::default(),
        };
        let identity = source.identity_now().map_err(refuse)?;
        source.known = Mutex::new(AcceptedVersion::new(identity));
        if !(source.direct && source.direct_works()) {
            source.go_buffered().map_err(refuse)?;
        }
        Ok(source)
    }

    /// Some file systems accept the flag and refuse the first read.
    fn direct_works(&self) -> bool {
        !matches!(self.note_tail(), Err(Errno::INVAL | Errno::OPNOTSUPP))
    }

    fn go_buffered(&mut self) -> Result<(), Errno> {
        let flags = rustix::fs::fcntl_getfl(&self.file)?;
        rustix::fs::fcntl_setfl(&self.file, flags - OFlags::DIRECT)?;
        self.direct = false;
        self.alignment = Alignment::NONE;
        self.tail_due = AtomicBool::new(true);
        // Only a hint: if it is refused, the file is still read.
        let _ = rustix::fs::fadvise(&self.file, 0, None, Advice::Random);
        Ok(())
    }

    /// One system call, restarted if it is interrupted.
    fn transfer(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, Errno> {
        rustix::io::retry_on_intr(|| rustix::io::preadv(&self.file, bufs, offset))
    }

    fn fits(&self, bufs: &[IoSliceMut<'_>], offset: u64) -> bool {
        let Alignment {
            offset: granule,
            memory,
        } = self.alignment;
        let place_fits = |len: usize| len.is_multiple_of(granule as usize);
        offset.is_multiple_of(u64::from(granule))
            && bufs.iter().all(|b| {
                place_fits(b.len()) && (b.as_ptr() as usize).is_multiple_of(memory as usize)
            })
    }

    /// Fills the buffers; fewer bytes only at the end of the file.
    fn fill(
        &self,
        mut bufs: &mut [IoSliceMut<'_>],
        offset: u64,
        pick: &mut Pick,
    ) -> Result<usize, Errno> {
        let mut done = 0;
        loop {
            IoSliceMut::advance_slices(&mut bufs, 0);
            if bufs.is_empty() {
                return Ok(done);
            }
            let at = offset + done as u64;
            let read = if self.fits(bufs, at) {
                let most = bufs.len().min(MAX_BUFFERS);
                self.transfer(&mut bufs[..most], at)?
            } else {
                self.bounced(&mut bufs[0], at)?
            };
            if read == 0 {
                return Ok(done);
            }
            pick.look(self, bufs, at, read);
            IoSliceMut::advance_slices(&mut bufs, read);
            done += read;
        }
    }

    /// Reads into the front of one buffer through an aligned bounce buffer.
    fn bounced(&self, buf: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let granule = u64::from(self.alignment.offset);
        let start = offset - offset % granule;
        let skip = (offset - start) as usize;
        let room = (skip + buf.len())
            .next_multiple_of(granule as usize)
            .min(BOUNCE_BYTES);
        let mut chunk = self.bounce.take(room.div_ceil(self.bounce.page_bytes()));
        let read = self.transfer(
            &mut [IoSliceMut::new(&mut chunk.bytes_mut()[..room])],
            start,
        )?;
        let got = chunk.bytes().get(skip..read).unwrap_or(&[]);
        let len = got.len().min(buf.len());
        buf[..len].copy_from_slice(&got[..len]);
        Ok(len)
    }

    /// Reads what follows the first `done` bytes, which have already arrived, and checks that all bytes are of the same
    /// version. `pick` was made before the first of them was read.
    fn read_on(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        offset: u64,
        done: usize,
        mut pick: Pick,
    ) -> Result<usize, SourceError> {
        let wanted = length(bufs);
        if offset
            .checked_add(wanted)
            .is_none_or(|end| end > i64::MAX as u64)
        {
            return Err(self.io(
                "reading beyond the largest possible file offset",
                Errno::INVAL,
            ));
        }
        pick.look(self, bufs, offset, done);
        let more = if (done as u64) < wanted {
            // Borrow again: `fill` consumes its slices, and the bytes may have to be compared below.
            let mut rest: Vec<_> = bufs.iter_mut().map(|buf| IoSliceMut::new(buf)).collect();
            let mut rest = &mut rest[..];
            IoSliceMut::advance_slices(&mut rest, done);
            self.fill(rest, offset + done as u64, &mut pick)
                .map_err(|errno| self.io("reading", errno))?
        } else {
            0
        };
        // If the last page cannot be read, the other pieces must suffice: this read needs none of its bytes.
        let _ = self.note_tail();
        let growths = pick.growths;
        let (read, size) = (done + more, self.same_version(pick)?);
        if self.growths.load(Ordering::Acquire) != growths {
            self.still_holds(bufs, offset, read)?;
        }
        if read == 0 && wanted > 0 && offset < size {
            return Err(SourceError::Short { at: offset, size });
        }
        Ok(read)
    }

    /// The data or the hole at `offset`, up to the start of the next hole or data. Reads do not use the descriptor's position,
    /// so no other thread is affected when it moves.
    fn extent_at(&self, offset: u64) -> Result<Extent, SourceError> {
        let size = self.same_version(Pick::default())?;
        let seek = |to| rustix::fs::seek(&self.file, to);
        let end = |at: u64| Extent {
            len: at.clamp(offset + 1, size.max(offset + 1)) - offset,
            is_hole: false,
        };
        match seek(SeekFrom::Data(offset)) {
            Ok(data) if data > offset => Ok(Extent {
                is_hole: true,
                ..end(data)
            }),
            // A file system without holes reports the end as the only hole.
            Ok(_) => seek(SeekFrom::Hole(offset))
                .map(end)
                .map_err(|errno| self.io("looking for holes", errno)),
            Err(Errno::NXIO) => Ok(Extent {
                is_hole: true,
                ..end(size)
            }),
            Err(errno) => Err(self.io("looking for data", errno)),
        }
    }

    fn io(&self, what: &str, errno: Errno) -> SourceError {
        SourceError::io(
            errno.raw_os_error(),
            format!("{what} of {}", self.path.display()),
        )
    }
}

/// Bytes of all buffers.
fn length(bufs: &[IoSliceMut<'_>]) -> u64 {
    bufs.iter().map(|buf| buf.len() as u64).sum()
}

impl Source for FileSource {
    fn size(&self) -> u64 {
        lock(&self.core.known).identity.size
    }

    fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, SourceError> {
        let pick = self.core.pick(offset, length(bufs));
        self.core.read_on(bufs, offset, 0, pick)
    }

    fn modified_ns(&self) -> Option<i128> {
        let is_file = !self.core.device;
        is_file.then(|| lock(&self.core.known).identity.mtime_ns)
    }

    fn defaults(&self) -> Defaults {
        Defaults::FILE
    }

    fn describe(&self) -> String {
        let how = if self.core.direct {
            "direct"
        } else {
            "by the page cache, because this file system has no direct I/O"
        };
        let by = match &self.way {
            #[cfg(feature = "uring")]
            Way::Ring(_) => "io_uring".to_string(),
            Way::Threads(why) if why.is_empty() => "threads".to_string(),
            Way::Threads(why) => format!("threads ({why})"),
        };
        format!("file:{}, {how}, {by}", self.core.path.display())
    }

    fn alignment(&self) -> Alignment {
        self.core.alignment
    }

    fn check(&self) -> Result<u64, SourceError> {
        self.core.same_version(Pick::default())
    }

    fn accept(&self) -> u64 {
        self.core.accept_now()
    }

    fn allow_appends(&self) {
        self.core.appending.store(true, Ordering::Relaxed);
    }

    fn writing(&self) -> Option<&dyn WritableSource> {
        Some(self)
    }

    fn holes(&self) -> Option<&dyn Holes> {
        // A block device does not report unwritten blocks.
        (!self.core.device).then_some(self)
    }

    fn queue(&self) -> Option<Arc<dyn Queue>> {
        match &self.way {
            #[cfg(feature = "uring")]
            Way::Ring(tried) => {
                let tried = lock(tried).take();
                // The second owner gets a new ring, or none if all rings are in use.
                tried.or_else(|| {
                    uring::FileQueue::new(&self.core)
                        .ok()
                        .map(|queue| Arc::new(queue) as _)
                })
            }
            Way::Threads(_) => None,
        }
    }
}

impl WritableSource for FileSource {
    fn allow_writes(&self) -> Result<(), SourceError> {
        self.core.open_to_write()
    }

    fn lock_writes(&self) -> Result<(), SourceError> {
        self.core.lock_writes()
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), SourceError> {
        write::aside(|| self.core.write(bytes, offset))
    }

    fn flush(&self) -> Result<(), SourceError> {
        write::aside(|| self.core.sync())
    }
}

impl Holes for FileSource {
    fn extent_at(&self, offset: u64) -> Result<Extent, SourceError> {
        self.core.extent_at(offset)
    }
}

/// Whether the file system accepts the flag (since Linux 6.6) although its files are only in the page cache. This is never true
/// for a device node: the node is in such a file system (devtmpfs), but its device is not.
fn in_memory(fd: &OwnedFd) -> bool {
    const TMPFS: i64 = 0x0102_1994;
    const RAMFS: i64 = 0x8584_58f6;
    #[allow(
        clippy::unnecessary_cast,
        reason = "the type of the field differs between machines"
    )]
    rustix::fs::fstatfs(fd).is_ok_and(|fs| matches!(fs.f_type as i64, TMPFS | RAMFS))
}

/// The alignment of direct I/O, or `None` if it is not supported.
fn direct_alignment(fd: &OwnedFd, device: bool) -> Option<Alignment> {
    if let Ok(statx) = rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
        && StatxFlags::from_bits_retain(statx.stx_mask).contains(StatxFlags::DIOALIGN)
    {
        let (offset, memory) = (statx.stx_dio_offset_align, statx.stx_dio_mem_align);
        let usable = offset.is_power_of_two()
            && memory.is_power_of_two()
            && offset <= 1 << 16
            && memory <= 4096;
        return usable.then_some(Alignment { offset, memory });
    }
    // Before Linux 6.1: for block devices the block size that the device reports, and for files a size that always fits.
    let block = if device {
        rustix::fs::ioctl_blksszget(fd).unwrap_or(4096)
    } else {
        4096
    };
    (block.is_power_of_two() && block <= 4096).then_some(Alignment {
        offset: block,
        memory: block,
    })
}

fn open_error(path: &Path, why: String, remedy: &str, errno: Errno) -> SourceOpenError {
    let mut what = OsString::from("file:");
    what.push(path);
    SourceOpenError::new(what, why, remedy, errno.raw_os_error()).of_system()
}

/// The error for an error number, with a remedy.
fn cannot_open(path: &Path, errno: Errno) -> SourceOpenError {
    let remedy = match errno {
        Errno::NOENT | Errno::NOTDIR => "check the path",
        Errno::ACCESS => "grant read permission, or run as another user",
        // A file fails with ACCES. A device that a container may not open fails with PERM, for root as well.
        Errno::PERM => {
            "give this container access to the device, or run foreread outside the container"
        }
        Errno::LOOP => "its symbolic links form a loop",
        Errno::NAMETOOLONG => "use a shorter path",
        Errno::MFILE | Errno::NFILE => "raise the limit of open files (ulimit -n)",
        Errno::NXIO | Errno::NODEV => "check that the device is attached",
        _ => "see the kernel log",
    };
    let why = super::errno_text(errno.raw_os_error());
    open_error(path, why, remedy, errno)
}

/// Only regular files and block devices can be read at an offset.
fn check_kind(path: &Path, kind: FileType) -> Result<(), SourceOpenError> {
    let (what, errno) = match kind {
        FileType::RegularFile | FileType::BlockDevice => return Ok(()),
        FileType::Directory => ("is a directory", Errno::ISDIR),
        FileType::Fifo => ("is a pipe", Errno::SPIPE),
        FileType::Socket => ("is a socket", Errno::SPIPE),
        FileType::CharacterDevice => ("is a character device", Errno::NOTSUP),
        _ => ("is neither a file nor a block device", Errno::NOTSUP),
    };
    let remedy = "use a regular file or a block device";
    Err(open_error(path, what.to_string(), remedy, errno))
}
