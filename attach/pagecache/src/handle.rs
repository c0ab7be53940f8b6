//! Opens a file on ext4 by its inode number, with open_by_handle_at(2).
//!
//! The kernel's events identify a file by device and inode. A file handle of ext4 consists of the inode number and a
//! generation number; generation 0 matches every generation:
//!
//! ```text
//!   open(a folder of the mount, 12)   the file with inode 12, whatever its names are, even if no program has it open
//! ```
//! File systems other than ext4 check the generation number, which the kernel's events do not contain, so this works only
//! on ext4. The caller needs CAP_DAC_READ_SEARCH.
//!
//! Only regular files are opened, because opening others may have side effects.

use rustix::fs::{FileType, Mode, OFlags, fstat, fstatfs};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// `EXT4_SUPER_MAGIC` from the manual page of statfs(2).
const EXT4: i64 = 0xef53;
/// `FILEID_INO32_GEN` of the kernel: inode and generation, 32 bits each.
const INODE_AND_GENERATION: libc::c_int = 1;

#[repr(C)]
struct Handle {
    bytes: libc::c_uint,
    kind: libc::c_int,
    inode: u32,
    generation: u32,
}

/// Returns whether files on this file system can be opened by inode number.
pub fn is_supported(mount: impl AsFd) -> bool {
    fstatfs(mount).is_ok_and(|fs| fs.f_type == EXT4)
}

/// Opens the regular file with this inode for reading; its access time is not changed.
pub fn open(mount: impl AsFd, inode: u64) -> io::Result<File> {
    let inode = u32::try_from(inode).map_err(|_| io::ErrorKind::InvalidInput)?;
    if !is_supported(&mount) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let path = by_handle(&mount, inode, libc::O_PATH | libc::O_CLOEXEC)?;
    if FileType::from_raw_mode(fstat(&path)?.st_mode) != FileType::RegularFile {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let link = foreread_os::open::descriptor_path(&path);
    Ok(rustix::fs::open(
        link,
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOATIME,
        Mode::empty(),
    )?
    .into())
}

#[allow(unsafe_code)] // rustix has no open_by_handle_at.
fn by_handle(mount: impl AsFd, inode: u32, flags: libc::c_int) -> io::Result<OwnedFd> {
    let mut handle = Handle {
        bytes: 8,
        kind: INODE_AND_GENERATION,
        inode,
        generation: 0,
    };
    // SAFETY: the kernel reads a header and `bytes` more, all of which are in `handle`, and writes nothing.
    let opened = unsafe {
        libc::open_by_handle_at(
            mount.as_fd().as_raw_fd(),
            (&raw mut handle).cast::<libc::file_handle>(),
            flags,
        )
    };
    if opened < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(opened) })
}
