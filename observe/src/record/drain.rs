//! Takes the raw events of all CPUs while the command runs, and returns them in time order.
//!
//! ```text
//!   cpu0: ring ──half full──► file ┐
//!   cpu1: ring ──half full──► file ┴─ after the end ──► decoded, merged by time
//! ```
//! Events are decoded only after the command has ended, because on a small machine decoding would take CPU time from the command. The files
//! for the events have no names, so a run that is killed leaves no files behind.
//!
//! A second tracefs instance records what the io_uring workers of all programs read: the kernel itself starts these threads, so tracing the
//! command does not cover them. Of these events, foreread keeps only the events of workers that a traced thread has started.

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

/// Bytes that are written to an event file, or read from it, at once.
const BUFFER_BYTES: usize = 256 << 10;

/// Most programs whose paths are kept.
const MAX_RAN: usize = 1 << 16;

/// The events of every CPU, as the kernel wrote them.
pub struct Spill {
    rings: Vec<File>,
    files: Vec<BufWriter<File>>,
    /// How many of them belong to the program; the others belong to workers.
    of_program: usize,
    pub bytes: u64,
    page: Vec<u8>,
}

impl Spill {
    /// Prepares to read the ring buffers `rings` and `of_workers` (the buffers for io_uring workers) into unnamed files in `folder`.
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

    /// Waits until a ring buffer is filled to the instance's `buffer_percent`, the descriptor `enough` is readable, or `wait_ms`
    /// milliseconds have passed. Returns whether `enough` is readable.
    pub fn wait(&self, enough: &OwnedFd, wait_ms: u32) -> bool {
        let wait = Duration::from_millis(wait_ms.into());
        let rings = self.rings.iter().map(AsFd::as_fd);
        let all: Vec<BorrowedFd<'_>> = rings.chain([enough.as_fd()]).collect();
        readable(&all, wait).last() == Some(&true)
    }

    /// Returns whether any ring buffer is full enough to be read.
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

    pub fn close(&mut self) -> std::io::Result<()> {
        self.rings.clear();
        self.files.iter_mut().try_for_each(BufWriter::flush)
    }

    /// Returns the events in time order. Each call of this function starts again with the first event.
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

struct Cpu {
    pages: BufReader<File>,
    page: Vec<u8>,
    events: Vec<Event>,
    latest_ns: u64,
    ended: bool,
}

impl Cpu {
    fn new(pages: BufReader<File>) -> Cpu {
        Cpu {
            pages,
            page: empty_page(),
            events: Vec::new(),
            latest_ns: 0,
            ended: false,
        }
    }

    /// Makes the next event available, if there is one.
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
                // The lost events follow the latest one that is available.
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

/// Merges the events of all CPUs into one sequence in time order.
pub struct Merge {
    cpus: Vec<Cpu>,
    of_program: usize,
    /// Threads that the kernel has started for the program.
    workers: HashSet<u32>,
    /// Number of gaps in which events of workers, of any program, were lost.
    pub lost_of_workers: u64,
    /// Programs that have been started so far.
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
