//! Compares the results of engine operations with plain vectors of bytes.
//!
//! A read must return either an error with a valid reason, or all existing bytes of the requested range, from one version that
//! its reader may see. No check uses what the engine reports about itself.
//!
//! ```text
//!   versions: [bytes 0][bytes 1]...        other programs add a version; Write and Append change the last
//!   a reader has the version of its latest error; it must never see an older version again
//! ```

use super::BrokenPromise;
use crate::http_server::lock;
use crate::{FaultAction, Faulty, pattern};
use foreread::source::{
    Defaults, FileSource, Io, Mem, Source, SourceError, WritableSource, writing_of,
};
use foreread::{Advice, Options, ReadError, Reader, WriteError};
use foreread_history::{parse, policies};
use std::collections::VecDeque;
use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// Maximum size of the source in a story.
const MAX_BYTES: u64 = 96 << 10;
/// Maximum number of open readers.
const MAX_READERS: u64 = 3;
/// Maximum number of operations in a story.
const MAX_OPS: usize = 64;
/// Maximum number of rewrites in place.
const MAX_REWRITES: u32 = 1;
const EIO: i32 = 5;

/// An operation of a program, or an event of its storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Read {
        reader: usize,
        offset: u64,
        len: usize,
    },
    /// A reader gives a hint.
    Advise {
        reader: usize,
        advice: Advice,
        offset: u64,
        len: u64,
    },
    /// A reader writes bytes with this value.
    Write {
        reader: usize,
        offset: u64,
        len: usize,
        byte: u8,
    },
    /// Another program copies another version of this size over the source.
    Replace { size: u64 },
    /// Another program overwrites the whole source in place.
    Rewrite,
    /// Another program truncates the source.
    Truncate { size: u64 },
    /// Another program appends to the source.
    Append { len: usize },
    /// The next read of the storage has this result.
    Fault { verdict: FaultAction },
    /// A reader is closed, and another is opened.
    Reopen { reader: usize },
}

/// A story: the settings of an engine, and a sequence of operations on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Story {
    pub policy: usize,
    /// Bytes of a cache page, unless the policy sets them.
    pub page_bytes: u64,
    pub pages: u64,
    pub threads: u32,
    /// Whether the source is a file that only one thread reads and writes; otherwise it is in memory.
    pub file: bool,
    /// Whether the readers may write.
    pub writes: bool,
    /// Initial size of the source in bytes.
    pub size: u64,
    pub ops: Vec<Op>,
}

impl Story {
    /// Builds a story (a sequence of operations) from numbers: `next(n)` returns a number below `n`, or `None` if there are no
    /// more.
    pub fn build(mut next: impl FnMut(u64) -> Option<u64>) -> Story {
        let mut settings = |below| next(below).unwrap_or(0);
        let mut story = Story {
            policy: settings(policies().len() as u64) as usize,
            page_bytes: 512 << settings(4),
            pages: 8 << settings(5),
            threads: settings(3) as u32,
            file: settings(8) == 1,
            writes: settings(4) != 1,
            size: settings(MAX_BYTES),
            ops: Vec::new(),
        };
        let mut rewrites = 0;
        while story.ops.len() < MAX_OPS
            && let Some(op) = op(&mut next)
        {
            rewrites += u32::from(op == Op::Rewrite);
            // A file has 40 ms to grow before a new modification time alone counts as a change.
            if op != Op::Rewrite || rewrites <= MAX_REWRITES {
                story.ops.push(op);
            }
        }
        story
    }

    pub fn drawn(seed: u64) -> Story {
        let mut state = seed;
        let mut left = 400;
        Story::build(|below| {
            left -= 1;
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (left > 0).then(|| (state >> 33) % below)
        })
    }
}

fn op(next: &mut impl FnMut(u64) -> Option<u64>) -> Option<Op> {
    // Offsets and lengths, some aligned and some not.
    let place = |next: &mut dyn FnMut(u64) -> Option<u64>| {
        let at = next(MAX_BYTES + 5000)?;
        Some(if next(2)? == 0 { at } else { at & !4095 })
    };
    Some(match next(16)? {
        0..7 => {
            let (reader, offset) = (next(MAX_READERS)? as usize, place(next)?);
            let most = if offset.is_multiple_of(2) {
                3000
            } else {
                40_000
            };
            let len = next(most)? as usize;
            Op::Read {
                reader,
                offset,
                len,
            }
        }
        7 => {
            use Advice::{DontNeed, Normal, Random, Sequential, WillNeed};
            let advice = [Normal, Sequential, Random, WillNeed, DontNeed][next(5)? as usize];
            Op::Advise {
                reader: next(MAX_READERS)? as usize,
                advice,
                offset: place(next)?,
                len: next(50_000)?,
            }
        }
        8..11 => {
            let (reader, offset) = (next(MAX_READERS)? as usize, place(next)?);
            Op::Write {
                reader,
                offset,
                len: next(9000)? as usize,
                byte: next(256)? as u8,
            }
        }
        11 => match next(24)? {
            0 => Op::Rewrite,
            1..5 => Op::Truncate {
                size: next(MAX_BYTES)?,
            },
            _ => Op::Replace {
                size: next(MAX_BYTES)?,
            },
        },
        12 => Op::Append {
            len: next(9000)? as usize,
        },
        13 | 14 => {
            let verdict = match next(4)? {
                0 => FaultAction::Fail(EIO),
                1 => FaultAction::Cut(next(5000)? as usize),
                2 => FaultAction::Slow(Duration::from_micros(next(300)?)),
                _ => FaultAction::Cut(0),
            };
            Op::Fault { verdict }
        }
        _ => Op::Reopen {
            reader: next(MAX_READERS)? as usize,
        },
    })
}

/// The expected state of the story.
struct World {
    storage: Arc<Storage>,
    next_faults: Arc<Mutex<VecDeque<FaultAction>>>,
    fired: Arc<AtomicU64>,
    readers: Vec<(Reader, usize)>,
    versions: Vec<Vec<u8>>,
    errors: u64,
    file: bool,
    writes: bool,
}

/// Runs a story (a sequence of operations) on an engine. `planted` gives the storage a deliberate bug, to make sure that the check finds
/// it.
///
/// # Errors
pub fn engine(story: &Story, planted: bool) -> Result<(), BrokenPromise> {
    let mut world = World::new(story, planted)?;
    for (n, op) in story.ops.iter().enumerate() {
        world
            .step(op)
            .map_err(|why| format!("operation {n}, {op:?}: {why}"))?;
    }
    lock(&world.next_faults).clear();
    let end = MAX_BYTES as usize * 8;
    for reader in (0..world.readers.len()).chain(0..world.readers.len()) {
        world
            .read(reader, 0, end)
            .map_err(|why| format!("at the end, reader {reader}: {why}"))?;
    }
    let meter = world.readers[0].0.engine().meter();
    drop(world);
    match meter.held_bytes() {
        0 => Ok(()),
        held => Err(format!("{held} bytes are still held after the last reader")),
    }
}

fn promise(is_kept: bool, why: impl FnOnce() -> BrokenPromise) -> Result<(), BrokenPromise> {
    if is_kept { Ok(()) } else { Err(why()) }
}

impl World {
    fn new(story: &Story, forgets: bool) -> Result<World, BrokenPromise> {
        let bytes = pattern(0, story.size as usize, 0);
        let storage = Arc::new(Storage::new(&bytes, story.file, forgets)?);
        let next_faults: Arc<Mutex<VecDeque<FaultAction>>> = Arc::default();
        let fired = Arc::new(AtomicU64::new(0));
        let (queue, count) = (Arc::clone(&next_faults), Arc::clone(&fired));
        let faulty = Faulty::new(Arc::clone(&storage), move |_| {
            let verdict = lock(&queue).pop_front().unwrap_or(FaultAction::Pass);
            count.fetch_add(u64::from(verdict != FaultAction::Pass), Ordering::SeqCst);
            verdict
        });
        let known = policies();
        let policy = known[story.policy % known.len()];
        let draft = parse(policy.name).map_err(|error| error.to_string())?;
        let page = policy.page_bytes.unwrap_or(story.page_bytes);
        let options = Options::default()
            .policy(draft)
            .page_bytes(page)
            .cache_bytes(story.pages * page);
        let threads = if story.file { 0 } else { story.threads };
        let options = Options {
            io: Io::Threads,
            ..options.threads(threads)
        };
        let reader = Reader::open(Arc::new(faulty), options).map_err(|e| e.to_string())?;
        if story.writes {
            reader.allow_writes().map_err(|e| e.to_string())?;
        }
        let mut readers = Vec::new();
        for _ in 1..MAX_READERS {
            readers.push((reader.try_clone().map_err(|e| e.to_string())?, 0));
        }
        readers.push((reader, 0));
        let (file, writes) = (story.file, story.writes);
        Ok(World {
            storage,
            next_faults,
            fired,
            readers,
            versions: vec![bytes],
            errors: 0,
            file,
            writes,
        })
    }

    fn step(&mut self, op: &Op) -> Result<(), BrokenPromise> {
        match *op {
            Op::Read {
                reader,
                offset,
                len,
            } => self.read(reader, offset, len)?,
            Op::Advise {
                reader,
                advice,
                offset,
                len,
            } => {
                self.readers[reader]
                    .0
                    .advise(advice, offset..offset + len)
                    .map_err(|e| e.to_string())?;
            }
            Op::Write {
                reader,
                offset,
                len,
                byte,
            } if self.writes => self.write(reader, offset, len, byte)?,
            Op::Write { .. } => {}
            Op::Replace { size } => {
                let bytes = self.another(size);
                self.storage.replace(&bytes)?;
            }
            Op::Rewrite => {
                let size = self.versions.last().map_or(0, Vec::len) as u64;
                let bytes = self.another(size);
                self.storage.rewrite(&bytes)?;
            }
            Op::Truncate { size } => {
                let mut bytes = self.versions.last().cloned().unwrap_or_default();
                if (size as usize) < bytes.len() {
                    bytes.truncate(size as usize);
                    self.versions.push(bytes.clone());
                    self.storage.rewrite(&bytes)?;
                }
            }
            Op::Append { len: 0 } => {}
            Op::Append { len } => {
                let mut bytes = self.versions.last().cloned().unwrap_or_default();
                let (size, more) = (bytes.len() as u64, pattern(bytes.len() as u64, len, 999));
                bytes.extend_from_slice(&more);
                if self.file && self.writes {
                    // Growth of a file that is written by its readers also counts as a change.
                    self.versions.push(bytes);
                } else if let Some(last) = self.versions.last_mut() {
                    *last = bytes;
                }
                self.storage.append(&more, size)?;
            }
            Op::Fault { verdict } => lock(&self.next_faults).push_back(verdict),
            Op::Reopen { reader } => {
                let other = self.readers[(reader + 1) % self.readers.len()]
                    .0
                    .try_clone()
                    .map_err(|e| e.to_string())?;
                // A new reader starts with what the engine knows now; that cannot be less than what any reader knows.
                let known = self.readers.iter().map(|r| r.1).min().unwrap_or(0);
                self.readers[reader] = (other, known);
            }
        }
        Ok(())
    }

    /// Adds another version. It is added to the model first, because no reader may see a version that the model does not have.
    fn another(&mut self, size: u64) -> Vec<u8> {
        let bytes = pattern(0, size as usize, self.versions.len() as u16);
        self.versions.push(bytes.clone());
        bytes
    }

    fn read(&mut self, reader: usize, offset: u64, len: usize) -> Result<(), BrokenPromise> {
        let mut buf = vec![0xee; len];
        let known = self.readers[reader].1;
        match self.readers[reader].0.read_at(&mut buf, offset) {
            Ok(got) => {
                let right = |bytes: &Vec<u8>| {
                    let start = bytes
                        .len()
                        .min(usize::try_from(offset).unwrap_or(usize::MAX));
                    let want = &bytes[start..bytes.len().min(start + len)];
                    buf[..got] == *want
                };
                // The oldest version that matches: a read of nothing, or of bytes that both versions have, proves nothing about
                // newer ones.
                let fits = (known..self.versions.len()).find(|&v| right(&self.versions[v]));
                self.readers[reader].1 = fits.ok_or_else(|| {
                    let newest = self.versions.len() - 1;
                    let start = usize::try_from(offset).unwrap_or(usize::MAX);
                    let other = |bytes: &Vec<u8>| {
                        let want = bytes.get(start..).unwrap_or_default();
                        (0..got).find(|&i| want.get(i) != buf.get(i)).map(|i| i + start)
                    };
                    let wrong: Vec<_> = self.versions[known..].iter().map(other).collect();
                    format!(
                        "{got} bytes from {offset} on match no version from {known} to {newest}: first wrong at {wrong:?}"
                    )
                })?;
                Ok(())
            }
            Err(ReadError::Changed { .. }) => self.told(reader),
            Err(ReadError::Io { errno: EIO, .. } | ReadError::Short { .. }) => {
                self.errors += 1;
                let (errors, fired) = (self.errors, self.fired.load(Ordering::SeqCst));
                promise(errors <= fired, || {
                    format!("{errors} errors for {fired} faults")
                })
            }
            Err(error) => Err(format!("an unexplained error: {error}")),
        }
    }

    fn write(
        &mut self,
        reader: usize,
        offset: u64,
        len: usize,
        byte: u8,
    ) -> Result<(), BrokenPromise> {
        let bytes = vec![byte; len];
        match self.readers[reader].0.write_at(&bytes, offset) {
            Ok(()) => {
                let last = self.versions.len() - 1;
                let place = self.versions[last].get_mut(offset as usize..offset as usize + len);
                match place {
                    Some(place) => place.copy_from_slice(&bytes),
                    None if len == 0 => {}
                    None => return Err("a write beyond the end succeeded".to_string()),
                }
                Ok(())
            }
            Err(WriteError::Changed { .. }) => promise(self.versions.len() > 1, || {
                "a change is reported, but nothing has changed".to_string()
            }),
            Err(WriteError::Beyond { size, .. }) => {
                let known = self.versions.iter().any(|v| v.len() as u64 >= size);
                promise(known, || format!("it never had the reported size {size}"))
            }
            // Between the check of the version and the write, a worker may have seen a new, smaller version.
            Err(WriteError::Io { errno: EIO, .. }) if self.versions.len() > 1 => Ok(()),
            Err(error) => Err(format!("an unexplained error: {error}")),
        }
    }

    /// The reader got a change error: there must be a change that it did not know of.
    fn told(&mut self, reader: usize) -> Result<(), BrokenPromise> {
        let known = self.readers[reader].1;
        promise(known + 1 < self.versions.len(), || {
            format!("a change is reported after version {known}, which is the latest")
        })?;
        // It knows at least one more version; it may be any of the later ones.
        self.readers[reader].1 = known + 1;
        Ok(())
    }
}

// The storage of engine stories: bytes in memory, or a file that other programs also write.
//
// The file has no name (`memfd_create`), so that a story of hundreds of writes uses no disk. Each version gets its own modification
// time: a write within one tick of the clock cannot be noticed, and is not the subject of the stories.
//
// ```text
//   engine ──► Storage ──► Mem, or FileSource ──► the file ◄── write, cut, copy, append: another program
// ```

pub struct Storage {
    bytes: Bytes,
    /// Whether it has a planted bug that the check must find.
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

    /// Acts as another program that replaces the bytes like `cp`: it truncates the file first, and then writes.
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

    /// Acts as another program that overwrites or truncates the file; the file does not grow.
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

    /// Acts as another program that appends to the file, so that it then has `size` bytes.
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
    passed_on! {self => self.source();
        size() -> u64;
        read_at(bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, SourceError>;
        defaults() -> Defaults;
        describe() -> String;
        check() -> Result<u64, SourceError>;
        accept() -> u64;
    }

    fn writing(&self) -> Option<&dyn WritableSource> {
        Some(self)
    }
}

impl WritableSource for Storage {
    passed_on! {self => writing_of(self.source())?;
        allow_writes() -> Result<(), SourceError>;
        flush() -> Result<(), SourceError>;
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), SourceError> {
        // The planted bug: if a write starts at a page boundary and ends within a page, its last byte is lost.
        let lost =
            self.forgets && offset.is_multiple_of(4096) && bytes.len() > 4096 && bytes[0] >= 0x80;
        writing_of(self.source())?.write_at(&bytes[..bytes.len() - usize::from(lost)], offset)
    }
}
