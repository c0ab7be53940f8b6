//! A temporary file for measurements. The file has no name in the file system, so the kernel deletes it however the
//! process ends.

use super::LiveError;
use rustix::fs::Advice;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The number of an in-memory file system in `statfs`: reading it measures no storage.
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// The scratch file; it is deleted when this value is dropped.
pub struct Scratch {
    file: File,
    dir: PathBuf,
}

impl Scratch {
    /// Writes `bytes` incompressible bytes to a file, and drops them from the page cache. The file is in the working
    /// directory or, if that is unsuitable, in the directory for temporary files. `progress` is called with the number
    /// of bytes written.
    /// Returns an error if no directory has enough space, or if writing fails.
    pub fn make(bytes: u64, progress: &mut dyn FnMut(u64)) -> Result<Scratch, LiveError> {
        let dir = choose_dir(bytes)?;
        let what = || {
            format!(
                "writing a scratch file of {bytes} bytes in {}",
                dir.display()
            )
        };
        let mut file = tempfile::tempfile_in(&dir).map_err(LiveError::io(what()))?;
        let mut rng = foreread_sim::rng::Rng::new(bytes);
        let mut block = vec![0_u8; 1 << 20];
        let mut written = 0;
        while written < bytes {
            block
                .chunks_exact_mut(8)
                .for_each(|word| word.copy_from_slice(&rng.bits().to_le_bytes()));
            let part = (bytes - written).min(block.len() as u64);
            file.write_all(&block[..part as usize])
                .map_err(LiveError::io(what()))?;
            written += part;
            progress(written);
        }
        file.sync_all().map_err(LiveError::io(what()))?;
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)
            .map_err(|e| LiveError::io(what())(e.into()))?;
        Ok(Scratch { file, dir })
    }

    /// Returns a path by which other code can open the file; the path is valid as long as this value exists.
    pub fn path(&self) -> PathBuf {
        foreread_os::open::descriptor_path(&self.file)
    }

    /// Returns the directory in which the file was created.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

/// The working directory, or the one for temporary files; it must be on storage and have enough space.
fn choose_dir(bytes: u64) -> Result<PathBuf, LiveError> {
    let candidates = [
        std::env::current_dir().unwrap_or_default(),
        std::env::temp_dir(),
        PathBuf::from("/var/tmp"),
    ];
    let fits = |dir: &PathBuf| {
        let on_storage = rustix::fs::statfs(dir).is_ok_and(|s| s.f_type != TMPFS_MAGIC);
        let room = rustix::fs::statvfs(dir)
            .is_ok_and(|s| s.f_bavail.saturating_mul(s.f_frsize) / 2 > bytes);
        // Whether a directory is writable is found out by creating a file.
        on_storage && room && tempfile::tempfile_in(dir).is_ok()
    };
    candidates.into_iter().find(fits).ok_or_else(|| {
        let why = std::io::Error::other(
            "no directory on a disk has twice that much free space; use a smaller --size, or --on FILE",
        );
        LiveError::Io {
            what: format!("a scratch file of {bytes} bytes"),
            error: why,
        }
    })
}
