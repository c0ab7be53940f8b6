//! Drains raw events of all CPUs while the command runs, and returns them in time order.
//!
//! ```text
//!   cpu0: ring ──half full──► file ┐
//!   cpu1: ring ──half full──► file ┴─ after the end ──► decoded, merged by time
//! ```
//! While the command runs nothing is decoded: on a small machine that would be taken from the command. Never: a file
//! with a name; a killed run leaves no file.
//!
//! A second instance has what workers of io_uring read, of all programs: the kernel begins them by itself, and follows none. Of those only
//! the events count whose thread a followed one has begun.

use super::event::Decoder;
use crate::tracefs::ring::{Page, empty_page, read_pages};
use foreread_os::poll::readable;
use foreread_trace::follow::call::{CLONE_UNTRACED, Event, What};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// Bytes that are written to a file of events, or read from it, at once.
const BUFFER_BYTES: usize = 256 << 10;

/// Programs whose paths are kept, at most.
const MAX_RAN: usize = 1 << 16;

/// The events of every CPU, as the kernel wrote them.
pub struct Spill {
    rings: Vec<File>,
    files: Vec<BufWriter<File>>,
    /// How many of them are of the program; the others are of workers.
    of_program: usize,
    pub bytes: u64,
    page: Vec<u8>,
}

impl Spill {
    /// Takes from `rings`, and those `of_workers`, into files without names in `folder`.
    pub fn new(
        mut rings: Vec<File>,
        of_workers: Vec<File>,
        folder: &Path,
    ) -> std::io::Result<Spill> {
        let of_program = rings.len();
        rings.extend(of_workers);
        let file = |_| {
            Ok(BufWriter::with_capacity(
                BUFFER_BYTES,
                tempfile::tempfile_in(folder)?,
            ))
        };
        let files = rings.iter().map(file).collect::<std::io::Result<_>>()?;
        Ok(Spill {
            rings,
            files,
            of_program,
            bytes: 0,
            page: empty_page(),
        })
    }

    /// Waits until a ring is as full as the instance's `buffer_percent` says, or `wait_ms` have passed; gives whether
    /// `enough` can be read.
    pub fn wait(&self, enough: &OwnedFd, wait_ms: u32) -> bool {
        let wait = Duration::from_millis(wait_ms.into());
        let rings = self.rings.iter().map(AsFd::as_fd);
        let all: Vec<BorrowedFd<'_>> = rings.chain([enough.as_fd()]).collect();
        readable(&all, wait).last() == Some(&true)
    }

    /// Whether any ring waits to be read.
    pub fn is_ready(&self) -> bool {
        readable(&self.rings, Duration::ZERO).contains(&true)
    }

    pub fn take(&mut self) -> std::io::Result<()> {
        for (ring, file) in self.rings.iter().zip(&mut self.files) {
            read_pages(ring, &mut self.page, |page, _| {
                self.bytes += page.len() as u64;
                file.write_all(page)
            })?;
        }
        Ok(())
    }

    /// Nothing more will be taken.
    pub fn close(&mut self) -> std::io::Result<()> {
        self.rings.clear();
        self.files.iter_mut().try_for_each(BufWriter::flush)
    }

    /// The events from the first on, by time. Each call begins anew.
    pub fn events(&self) -> std::io::Result<Merge> {
        let mut cpus = Vec::new();
        for file in &self.files {
            let mut file = file.get_ref().try_clone()?;
            file.seek(SeekFrom::Start(0))?;
            cpus.push(Cpu::new(BufReader::with_capacity(BUFFER_BYTES, file)));
        }
        Ok(Merge {
            cpus,
            of_program: self.of_program,
            workers: HashSet::new(),
            lost_of_workers: 0,
            ran: HashSet::new(),
        })
    }
}

struct Cpu<R> {
    pages: R,
    page: Vec<u8>,
    /// Those of the page, backwards.
    events: Vec<Event>,
    latest_ns: u64,
    ended: bool,
}

impl<R: Read> Cpu<R> {
    fn new(pages: R) -> Cpu<R> {
        Cpu {
            pages,
            page: empty_page(),
            events: Vec::new(),
            latest_ns: 0,
            ended: false,
        }
    }

    /// Sees to it that the next event is there, if there is one.
    fn fill(&mut self, decoder: &Decoder, ran: &mut HashSet<OsString>) -> std::io::Result<()> {
        while self.events.is_empty() && !self.ended {
            match self.pages.read_exact(&mut self.page) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    self.ended = true;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
            let Some(page) = Page::new(&self.page) else {
                continue;
            };
            if page.lost {
                // What was lost follows the latest that is there.
                self.events.push(Event {
                    at_ns: self.latest_ns,
                    thread: 0,
                    what: What::Lost,
                });
            }
            for (at_ns, bytes) in page {
                self.events.extend(decoder.event(at_ns, bytes));
                if let Some(path) = decoder.ran(bytes)
                    && ran.len() < MAX_RAN
                {
                    ran.insert(OsStr::from_bytes(path).to_os_string());
                }
            }
            self.latest_ns = self
                .events
                .last()
                .map_or(self.latest_ns, |event| event.at_ns);
            self.events.reverse();
        }
        Ok(())
    }
}

/// The events of all CPUs, by time.
pub struct Merge {
    cpus: Vec<Cpu<BufReader<File>>>,
    of_program: usize,
    /// Threads that the kernel has begun for the program.
    workers: HashSet<u32>,
    /// Places where events of workers were lost, of any program.
    pub lost_of_workers: u64,
    /// The programs that were begun, so far.
    pub ran: HashSet<OsString>,
}

impl Merge {
    pub fn next(&mut self, decoder: &Decoder) -> std::io::Result<Option<Event>> {
        while let Some((event, is_of_worker)) = self.next_of_all(decoder)? {
            match event.what {
                What::Lost if is_of_worker => self.lost_of_workers += 1,
                _ if is_of_worker && !self.workers.contains(&event.thread) => {}
                What::Born(child, flags) if flags & CLONE_UNTRACED != 0 => {
                    self.workers.insert(child);
                    return Ok(Some(event));
                }
                _ => return Ok(Some(event)),
            }
        }
        Ok(None)
    }

    fn next_of_all(&mut self, decoder: &Decoder) -> std::io::Result<Option<(Event, bool)>> {
        let mut first: Option<(u64, usize)> = None;
        for (number, cpu) in self.cpus.iter_mut().enumerate() {
            cpu.fill(decoder, &mut self.ran)?;
            if let Some(event) = cpu.events.last()
                && first.is_none_or(|(at, _)| event.at_ns < at)
            {
                first = Some((event.at_ns, number));
            }
        }
        Ok(first.and_then(|(_, number)| {
            let event = self.cpus[number].events.pop()?;
            Some((event, number >= self.of_program))
        }))
    }
}
