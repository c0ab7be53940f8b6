//! Takes the events of all CPUs out of the kernel while the command runs, as they are, and gives them back by time.
//!
//! ```text
//!   cpu0: ring ──half full──► file ┐
//!   cpu1: ring ──half full──► file ┴─ after the end ──► decoded, merged by time
//! ```
//! While the command runs nothing is decoded: on a small machine that would be taken from the command. Never: a file
//! with a name; what is left of a killed run is nothing.

use super::event::Decoder;
use crate::tracefs::ring::{Page, empty_page};
use foreread_trace::follow::event::{Event, What};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes that are written to a file of events, or read from it, at once.
const BUFFER_BYTES: usize = 256 << 10;

/// Programs whose paths are kept, at most.
const MAX_RAN: usize = 1 << 16;

/// The events of every CPU, as the kernel wrote them.
pub struct Spill {
    rings: Vec<File>,
    files: Vec<BufWriter<File>>,
    /// Bytes taken.
    pub bytes: u64,
    page: Vec<u8>,
}

impl Spill {
    /// Takes from `rings` into files without names in `folder`.
    ///
    /// # Errors
    /// A file cannot be made there.
    pub fn new(rings: Vec<File>, folder: &Path) -> std::io::Result<Spill> {
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
            bytes: 0,
            page: empty_page(),
        })
    }

    /// Waits until a ring is as full as the instance's `buffer_percent` says, or `wait_ms` have passed; gives whether
    /// `enough` can be read.
    pub fn wait(&self, enough: &OwnedFd, wait_ms: u32) -> bool {
        let mut all: Vec<PollFd<'_>> = self
            .rings
            .iter()
            .map(|ring| PollFd::new(ring, PollFlags::IN))
            .collect();
        all.push(PollFd::new(enough, PollFlags::IN));
        let time = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(wait_ms) * 1_000_000,
        };
        // A signal ends the wait early, which is as good.
        let _ = poll(&mut all, Some(&time));
        all.last()
            .is_some_and(|enough| !enough.revents().is_empty())
    }

    /// Whether any ring waits to be read.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let mut all: Vec<PollFd<'_>> = self
            .rings
            .iter()
            .map(|ring| PollFd::new(ring, PollFlags::IN))
            .collect();
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut all, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Takes all that is there.
    ///
    /// # Errors
    /// There is no room for it, or the kernel refuses.
    pub fn take(&mut self) -> std::io::Result<()> {
        for (mut ring, file) in self.rings.iter().zip(&mut self.files) {
            loop {
                match ring.read(&mut self.page) {
                    Ok(0) => break,
                    Ok(len) => {
                        self.page[len..].fill(0);
                        file.write_all(&self.page)?;
                        self.bytes += self.page.len() as u64;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Nothing more will be taken.
    ///
    /// # Errors
    /// There is no room for what was taken.
    pub fn close(&mut self) -> std::io::Result<()> {
        self.rings.clear();
        self.files.iter_mut().try_for_each(BufWriter::flush)
    }

    /// The events from the first on, by time. Each call begins anew.
    ///
    /// # Errors
    /// The files cannot be read.
    pub fn events(&self) -> std::io::Result<Merge> {
        let mut cpus = Vec::new();
        for file in &self.files {
            let mut file = file.get_ref().try_clone()?;
            file.seek(SeekFrom::Start(0))?;
            cpus.push(Cpu::new(BufReader::with_capacity(BUFFER_BYTES, file)));
        }
        Ok(Merge {
            cpus,
            ran: HashSet::new(),
        })
    }
}

/// The events of one CPU.
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
    /// The programs that were begun, so far.
    pub ran: HashSet<OsString>,
}

impl Merge {
    /// The next event.
    ///
    /// # Errors
    /// The files cannot be read.
    pub fn next(&mut self, decoder: &Decoder) -> std::io::Result<Option<Event>> {
        let mut first: Option<(u64, usize)> = None;
        for (number, cpu) in self.cpus.iter_mut().enumerate() {
            cpu.fill(decoder, &mut self.ran)?;
            if let Some(event) = cpu.events.last()
                && first.is_none_or(|(at, _)| event.at_ns < at)
            {
                first = Some((event.at_ns, number));
            }
        }
        Ok(first.and_then(|(_, number)| self.cpus[number].events.pop()))
    }
}
