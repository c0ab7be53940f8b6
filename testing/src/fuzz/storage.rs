//! What the stories of the engine read and write: bytes in memory, or a file that other programs write as well.
//!
//! The file has no name (`memfd_create`), so that a story of hundreds of writes costs no disk. Each version gets its own modification
//! time: a write within one tick of the clock cannot be noticed, and is not what the stories are about.
//!
//! ```text
//!   engine ──► Storage ──► Mem, or FileSource ──► the file ◄── write, cut, copy, append: another program
//! ```

use super::BrokenPromise;
use foreread::source::{
    Alignment, Defaults, FileSource, Io, Mem, Source, SourceError, WritableSource, writing_of,
};
use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

pub struct Storage {
    bytes: Bytes,
    /// It has a planted bug that the check has to find.
    forgets: bool,
}

enum Bytes {
    Mem(Mem),
    File {
        source: FileSource,
        file: File,
        versions: AtomicU64,
    },
}

impl Storage {
    pub fn new(bytes: &[u8], is_file: bool, forgets: bool) -> Result<Storage, BrokenPromise> {
        let bytes = if is_file {
            file_of(bytes)?
        } else {
            Bytes::Mem(Mem::new(bytes.to_vec()))
        };
        Ok(Storage { bytes, forgets })
    }

    /// Another program puts other bytes in its place: `cp`, which cuts the file off first, and then writes.
    pub fn replace(&self, bytes: &[u8]) -> Result<(), BrokenPromise> {
        match &self.bytes {
            Bytes::Mem(mem) => mem.replace(bytes.to_vec()),
            Bytes::File { file, .. } => {
                file.set_len(0)
                    .and_then(|()| file.write_all_at(bytes, 0))
                    .map_err(|error| error.to_string())?;
            }
        }
        self.later()
    }

    /// Another program writes over all of it, or cuts it off; it does not become longer.
    pub fn rewrite(&self, bytes: &[u8]) -> Result<(), BrokenPromise> {
        match &self.bytes {
            Bytes::Mem(mem) => mem.replace(bytes.to_vec()),
            Bytes::File { file, .. } => {
                let written = file
                    .write_all_at(bytes, 0)
                    .and_then(|()| file.set_len(bytes.len() as u64));
                written.map_err(|error| error.to_string())?;
            }
        }
        self.later()
    }

    /// Another program makes `size` bytes longer.
    pub fn append(&self, more: &[u8], size: u64) -> Result<(), BrokenPromise> {
        match &self.bytes {
            Bytes::Mem(mem) => mem.append(more),
            Bytes::File { file, .. } => file
                .write_all_at(more, size)
                .map_err(|error| error.to_string())?,
        }
        self.later()
    }

    fn later(&self) -> Result<(), BrokenPromise> {
        let Bytes::File { file, versions, .. } = &self.bytes else {
            return Ok(());
        };
        let seconds = 1 + versions.fetch_add(1, Ordering::Relaxed);
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
            .map_err(|error| error.to_string())
    }

    fn source(&self) -> &dyn Source {
        match &self.bytes {
            Bytes::Mem(mem) => mem,
            Bytes::File { source, .. } => source,
        }
    }
}

fn file_of(bytes: &[u8]) -> Result<Bytes, BrokenPromise> {
    let made = rustix::fs::memfd_create("story", rustix::fs::MemfdFlags::CLOEXEC)
        .map_err(|errno| errno.to_string())?;
    let file = File::from(made);
    file.write_all_at(bytes, 0)
        .map_err(|error| error.to_string())?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let source = FileSource::open_by(&path, Io::Threads).map_err(|error| error.to_string())?;
    Ok(Bytes::File {
        source,
        file,
        versions: AtomicU64::new(0),
    })
}

impl Source for Storage {
    fn size(&self) -> u64 {
        self.source().size()
    }

    fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, SourceError> {
        self.source().read_at(bufs, offset)
    }

    fn defaults(&self) -> Defaults {
        self.source().defaults()
    }

    fn describe(&self) -> String {
        self.source().describe()
    }

    fn alignment(&self) -> Alignment {
        Alignment::NONE
    }

    fn check(&self) -> Result<u64, SourceError> {
        self.source().check()
    }

    fn accept(&self) -> u64 {
        self.source().accept()
    }

    fn writing(&self) -> Option<&dyn WritableSource> {
        Some(self)
    }
}

impl WritableSource for Storage {
    fn allow_writes(&self) -> Result<(), SourceError> {
        writing_of(self.source())?.allow_writes()
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), SourceError> {
        // The canary: the last byte of a write that begins with a page and ends in the middle of one is lost.
        let lost =
            self.forgets && offset.is_multiple_of(4096) && bytes.len() > 4096 && bytes[0] >= 0x80;
        writing_of(self.source())?.write_at(&bytes[..bytes.len() - usize::from(lost)], offset)
    }

    fn flush(&self) -> Result<(), SourceError> {
        writing_of(self.source())?.flush()
    }
}
