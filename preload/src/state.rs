//! What the library knows of the process: which descriptor is which file, where it reads, and what is in flight.
//!
//! ```text
//!   read(3, ..) ──► before: descriptor 3 ──► file ──► Advisor::read ──► ahead: readahead(2), noted as in flight
//!                   the call itself
//!              ──► after: how long did it take? ──► demand: AtHand or Arrived
//!                          in flight: is its last byte there? (RWF_NOWAIT) ──► arrived
//! ```
//! There is one lock, which is only tried: a call that finds it taken goes through without us. So a signal handler, a thread, and an allocator
//! that is called from here never wait. No thread is begun, as a process with a second thread may not do all that one with a single thread may.
//!
//! Never: an error, a word, or a changed errno in the program.

use foreread_core::event::Advice;
use foreread_core::policy::PolicySpec;
use foreread_core::units::{FileId, Nanos};
use foreread_pagecache::advisor::{Advisor, Job, Outcome};
use foreread_pagecache::{device, memory, readahead, resident};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Descriptors that are followed.
const MAX_DESCRIPTORS: RawFd = 4096;
/// Files that we hold open.
const MAX_FILES: usize = 128;
/// Our descriptors are above the numbers that programs expect.
const FIRST_OURS: RawFd = 700;
/// Reads of fewer bytes are looked at together.
const GATHERED_BYTES: u64 = 64 << 10;
/// A read that took no longer found its bytes in the cache, beside the time to copy them.
const AT_HAND_NS: u64 = 60_000;
/// Bytes that are copied in a nanosecond, at least.
const COPIED_PER_NS: u64 = 2;
/// Requests in flight that are asked for after each read.
const POLLED: usize = 4;

/// What a descriptor is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slot {
    Unknown,
    /// No file of a page cache.
    Other,
    File {
        file: u32,
        gathered: u64,
    },
}

struct File {
    /// Device and inode.
    key: (u64, u64),
    size: u64,
    /// Our own open description.
    own: Option<OwnedFd>,
    dev: u64,
}

struct Storage {
    advisor: Advisor,
    piece: u64,
}

/// See the head of this file.
pub struct State {
    policy: PolicySpec,
    slots: Vec<Slot>,
    files: Vec<File>,
    storages: BTreeMap<u64, Storage>,
    flying: VecDeque<(u64, Job)>,
    demand: Vec<(u64, Job)>,
}

fn now() -> Nanos {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel, or its page in our memory, writes to `time` alone.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Device, inode and size of a regular file that can be read ahead.
fn stat(descriptor: RawFd) -> Option<(u64, u64, u64)> {
    // SAFETY: all bytes zero are a stat, and the kernel writes to it alone.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let done = unsafe { libc::fstat(descriptor, &raw mut stat) };
    let is_file = done == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFREG;
    is_file.then_some((stat.st_dev, stat.st_ino, u64::try_from(stat.st_size).unwrap_or(0)))
}

impl State {
    /// Of a process that has read nothing.
    pub fn new(policy: PolicySpec) -> State {
        State {
            policy,
            slots: Vec::new(),
            files: Vec::new(),
            storages: BTreeMap::new(),
            flying: VecDeque::new(),
            demand: Vec::new(),
        }
    }

    /// The descriptor is another file from now on, or none.
    pub fn forget(&mut self, descriptor: RawFd) {
        if let Some(slot) = usize::try_from(descriptor).ok().and_then(|at| self.slots.get_mut(at)) {
            *slot = Slot::Unknown;
        }
        for file in &mut self.files {
            if file.own.as_ref().is_some_and(|own| own.as_raw_fd() == descriptor) {
                // The program has closed what is ours. It is closed already.
                file.own.take().map(std::os::fd::IntoRawFd::into_raw_fd);
            }
        }
    }

    /// What a descriptor is; one that was not seen before is looked at. None: it is not followed.
    fn slot(&mut self, descriptor: RawFd) -> Option<&mut Slot> {
        let at = usize::try_from(descriptor).ok().filter(|_| descriptor < MAX_DESCRIPTORS)?;
        if self.slots.len() <= at {
            self.slots.resize(at + 1, Slot::Unknown);
        }
        if self.slots[at] == Slot::Unknown {
            self.slots[at] = self.learn(descriptor);
        }
        self.slots.get_mut(at)
    }

    /// The program has said how it reads a file.
    pub fn advised(&mut self, descriptor: RawFd, advice: i32) {
        let hint = match advice {
            libc::POSIX_FADV_RANDOM => Advice::Random,
            libc::POSIX_FADV_NORMAL => Advice::Normal,
            libc::POSIX_FADV_SEQUENTIAL => Advice::Sequential,
            // WILLNEED is readahead already, and DONTNEED says nothing of what is read next.
            _ => return,
        };
        let Some(Slot::File { file, .. }) = self.slot(descriptor) else { return };
        let file = *file;
        let dev = self.files[file as usize].dev;
        if let Some(storage) = self.storages.get_mut(&dev) {
            storage.advisor.advise(now(), FileId(file), hint);
        }
    }

    /// A read of `len` bytes begins, at `offset` or at the position. Gives when, where the end of it is of interest.
    pub fn begin(&mut self, descriptor: RawFd, offset: Option<u64>, len: u64) -> Option<Nanos> {
        let Slot::File { file, gathered } = self.slot(descriptor)? else { return None };
        let number = *file;
        let range = match offset {
            Some(offset) => offset..offset.saturating_add(len),
            None => {
                // Many short reads in order are looked at as one.
                *gathered += len;
                if *gathered < GATHERED_BYTES && *gathered > len {
                    return None;
                }
                *gathered = 1;
                // SAFETY: it changes nothing.
                let position = unsafe { libc::lseek(descriptor, 0, libc::SEEK_CUR) };
                let position = u64::try_from(position).ok()?;
                position..position.saturating_add(len.max(GATHERED_BYTES))
            }
        };
        self.read(descriptor, number, range)
    }

    /// What a descriptor is that was not seen before.
    fn learn(&mut self, descriptor: RawFd) -> Slot {
        let Some((dev, ino, size)) = stat(descriptor).filter(|(_, _, size)| *size > 0) else { return Slot::Other };
        let known = self.files.iter().position(|file| file.key == (dev, ino) && file.own.is_some());
        if let Some(file) = known {
            return Slot::File { file: file as u32, gathered: 0 };
        }
        let held = self.files.iter().filter(|file| file.own.is_some()).count();
        let id = FileId(self.files.len() as u32);
        if held >= MAX_FILES
            && let Some(oldest) = self.files.iter_mut().find(|file| file.own.is_some())
        {
            oldest.own = None;
        }
        let Some(own) = own(descriptor).filter(|_| Advisor::takes(id)) else { return Slot::Other };
        let policy = &self.policy;
        let storage = self.storages.entry(dev).or_insert_with(|| {
            let advisor = Advisor::new(policy.clone(), memory::half(memory::room()));
            Storage { advisor, piece: device::piece_bytes(&own) }
        });
        storage.advisor.open(now(), id, size);
        self.files.push(File { key: (dev, ino), size, own: Some(own), dev });
        Slot::File { file: id.0, gathered: 0 }
    }

    fn read(&mut self, descriptor: RawFd, number: u32, range: Range<u64>) -> Option<Nanos> {
        let file = self.files.get_mut(number as usize)?;
        let range = range.start..range.end.min(file.size);
        if range.is_empty() || file.own.is_none() {
            return None;
        }
        let storage = self.storages.get_mut(&file.dev)?;
        let began = now();
        storage.advisor.read(began, FileId(number), range);
        let mut is_checked = false;
        let dev = file.dev;
        while let Some(job) = self.storages.get_mut(&dev).and_then(|storage| storage.advisor.next_job()) {
            if job.is_demand {
                self.demand.push((dev, job));
                continue;
            }
            // The number may be another file's by now, of which we have not heard: then what was decided is wrong.
            is_checked = is_checked
                || stat(descriptor).is_some_and(|(dev, ino, _)| self.files[number as usize].key == (dev, ino));
            if !is_checked {
                self.forget(descriptor);
                self.end(dev, &job, Outcome::Failed);
                continue;
            }
            self.ahead(dev, job);
        }
        Some(began)
    }

    fn end(&mut self, dev: u64, job: &Job, outcome: Outcome) {
        if let Some(storage) = self.storages.get_mut(&dev) {
            storage.advisor.done(now(), job, outcome);
        }
    }

    /// Begins to read ahead.
    fn ahead(&mut self, dev: u64, job: Job) {
        let piece = self.storages.get(&dev).map_or(device::DEFAULT_PIECE_BYTES, |storage| storage.piece);
        let own = self.files.get(job.file.0 as usize).and_then(|file| file.own.as_ref());
        let Some(own) = own else { return self.end(dev, &job, Outcome::Failed) };
        let absent = resident::absent(own, job.range.clone()).unwrap_or_default();
        if absent.is_empty() && is_there(own.as_raw_fd(), job.range.end - 1) {
            return self.end(dev, &job, Outcome::AtHand);
        }
        let has_begun = absent.into_iter().all(|part| readahead::start(own, part, piece).is_ok());
        if has_begun { self.flying.push_back((dev, job)) } else { self.end(dev, &job, Outcome::Failed) }
    }

    /// A read that began then has ended with `got` bytes.
    pub fn ended(&mut self, began: Nanos, got: u64) {
        let took = now().since(began);
        let is_quick = took < AT_HAND_NS + got / COPIED_PER_NS;
        for (dev, job) in std::mem::take(&mut self.demand) {
            self.end(dev, &job, if is_quick { Outcome::AtHand } else { Outcome::Arrived });
        }
        for _ in 0..POLLED {
            let Some((dev, job)) = self.flying.pop_front() else { break };
            let own = self.files.get(job.file.0 as usize).and_then(|file| file.own.as_ref());
            match own.map(|own| is_there(own.as_raw_fd(), job.range.end - 1)) {
                Some(true) => self.end(dev, &job, Outcome::Arrived),
                Some(false) => {
                    self.flying.push_front((dev, job));
                    break;
                }
                None => self.end(dev, &job, Outcome::Failed),
            }
        }
        // The slots that are free now may have work.
        let devices: Vec<u64> = self.storages.keys().copied().collect();
        for dev in devices {
            while let Some(job) = self.storages.get_mut(&dev).and_then(|storage| storage.advisor.next_job()) {
                if job.is_demand { self.end(dev, &job, Outcome::AtHand) } else { self.ahead(dev, job) }
            }
        }
    }
}

/// An open description of our own: the program's keeps its position and its readahead.
fn own(descriptor: RawFd) -> Option<OwnedFd> {
    let link = std::ffi::CString::new(format!("/proc/self/fd/{descriptor}")).ok()?;
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: the path ends in a zero. The call itself, not the function: that is ours.
    let opened = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, link.as_ptr(), flags) } as RawFd;
    if opened < 0 {
        return None;
    }
    // SAFETY: both descriptors are ours: the one just opened, and its copy at a high number.
    unsafe {
        let high = libc::fcntl(opened, libc::F_DUPFD_CLOEXEC, FIRST_OURS);
        libc::syscall(libc::SYS_close, opened);
        if high < 0 {
            return None;
        }
        // The call itself, as above.
        libc::syscall(libc::SYS_fadvise64, high, 0, 0, libc::POSIX_FADV_RANDOM);
        Some(OwnedFd::from_raw_fd(high))
    }
}

/// Whether a byte can be had without waiting.
fn is_there(descriptor: RawFd, at: u64) -> bool {
    let mut byte = 0_u8;
    let part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: the kernel writes one byte to `byte`. The call itself, not the function: that is ours.
    let got = unsafe {
        libc::syscall(libc::SYS_preadv2, descriptor, &raw const part, 1, at as libc::c_long, 0, libc::RWF_NOWAIT)
    };
    got == 1
}
