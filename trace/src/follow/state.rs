//! Calls that open, close, share or seek descriptors.
//!
//! Failed calls do not move the position.

use super::call::Call;
use super::fds::Description;
use super::{Follow, Pending};
use crate::error::Fault;

/// `O_CLOEXEC` and `O_DIRECT` of x86-64 and of arm64, as open(2) has them in the headers of each.
const O_CLOEXEC: u64 = 0o2_000_000;
/// See there.
pub const O_DIRECT: u64 = if cfg!(target_arch = "aarch64") {
    0o200_000
} else {
    0o40_000
};
/// Commands of fcntl(2).
const F_DUPFD: u64 = 0;
const F_SETFD: u64 = 2;
const F_SETFL: u64 = 4;
const F_DUPFD_CLOEXEC: u64 = 1030;
/// Commands of ioctl(2).
const FIONCLEX: u64 = 0x5450;
const FIOCLEX: u64 = 0x5451;
/// Flags of mmap(2) and mremap(2).
const MAP_ANONYMOUS: u64 = 0x20;
const MREMAP_DONTUNMAP: u64 = 4;
/// Flags of close_range(2).
const CLOSE_RANGE_CLOEXEC: u64 = 4;

impl Follow {
    /// Calls that take effect when they start.
    pub(super) fn begun(&mut self, thread: u32, call: Call, args: [u64; 6]) -> bool {
        let fd = args[0] as i32;
        match call {
            Call::Close => self.tables.close(thread, fd),
            // A text may hold any of them.
            Call::Ioctl if !matches!(args[1], FIONCLEX | FIOCLEX) => {}
            Call::Ioctl => self
                .tables
                .set_close_on_exec(thread, fd, args[1] == FIOCLEX),
            Call::Unmap => self.spaces.unmap(thread, args[0], args[1]),
            _ => return false,
        }
        true
    }

    pub(super) fn state(
        &mut self,
        thread: u32,
        pending: &Pending,
        value: i64,
    ) -> Result<(), Fault> {
        let (args, fd) = (pending.args, pending.args[0] as i32);
        let returned = i32::try_from(value).unwrap_or(-1);
        match pending.call {
            Call::Open => self.opened(thread, returned, args[1])?,
            Call::OpenAt => self.opened(thread, returned, args[2])?,
            Call::OpenAt2 => self.opened(thread, returned, 0)?,
            Call::CloseRange if args[2] & CLOSE_RANGE_CLOEXEC == 0 => {
                let limit = |number: u64| i32::try_from(number as u32).unwrap_or(i32::MAX);
                self.tables
                    .close_range(thread, limit(args[0])..=limit(args[1]));
            }
            Call::Dup => self.tables.dup(thread, fd, returned, false)?,
            Call::Dup3 => self
                .tables
                .dup(thread, fd, returned, args[2] & O_CLOEXEC != 0)?,
            Call::Fcntl => match args[1] {
                F_DUPFD => self.tables.dup(thread, fd, returned, false)?,
                F_DUPFD_CLOEXEC => self.tables.dup(thread, fd, returned, true)?,
                F_SETFD => self.tables.set_close_on_exec(thread, fd, args[2] & 1 != 0),
                F_SETFL => {
                    if let Some((_, description)) = self.tables.get(thread, fd) {
                        description.direct = args[2] & O_DIRECT != 0;
                    }
                }
                _ => {}
            },
            Call::Unshare if args[0] & super::event::CLONE_FILES != 0 => {
                self.tables.unshare(thread)?
            }
            Call::Seek => {
                if let Some((_, description)) = self.tables.get(thread, fd) {
                    description.position = u64::try_from(value).ok();
                }
            }
            Call::Map if args[3] & MAP_ANONYMOUS != 0 => {
                self.spaces.unmap(thread, value as u64, args[1])
            }
            Call::Map => {
                let (open, _) = self.description(thread, args[4] as i32)?;
                self.spaces
                    .map(thread, value as u64, args[1], open, args[5])?;
            }
            Call::Remap => {
                // With length 0 it makes a second mapping.
                let keep = args[3] & MREMAP_DONTUNMAP != 0 || args[1] == 0;
                self.spaces
                    .remap(thread, (args[0], args[1]), (value as u64, args[2]), keep)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn opened(&mut self, thread: u32, fd: i32, flags: u64) -> Result<(), Fault> {
        let what = Description {
            name: None,
            position: Some(0),
            direct: flags & O_DIRECT != 0,
        };
        self.tables.open(thread, fd, what, flags & O_CLOEXEC != 0)?;
        Ok(())
    }
}
