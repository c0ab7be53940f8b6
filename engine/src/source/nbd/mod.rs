//! NBD exports as a source: `nbd://HOST[:PORT][/EXPORT]`, `nbd+unix:///[EXPORT]?socket=PATH`.
//!
//! Several requests are on their way on each connection, and there are several connections where the server allows it.
//! A connection that breaks is made anew for the next read. The version of an export is its size: that is all the
//! protocol tells. Never: writes, TLS (refused by name), or a reply that is believed without a look.
//!
//! ```text
//!   read_at ──► the connection with the fewest requests ──link::read──► bytes
//!                    │ broken, or none yet                    │ fails: connect anew, once, and read again
//!                    ▼                                        ▼
//!               connect: size still the same? ── no ──► Changed, until the engine accepts it
//! ```

mod link;
mod uri;

use super::{Source, SourceError, SourceName, SourceOpenError};
use link::{Broken, Link};
use std::io::IoSliceMut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use uri::Address;

/// Most connections: what nbdcopy uses. More gain nothing where each carries many requests.
const MAX_LINKS: usize = 4;
/// A server that says nothing for so long while it owes an answer is given up.
const SILENCE: Duration = Duration::from_secs(30);

/// See the head of this file.
pub struct Nbd {
    address: Address,
    name: SourceName,
    links: Vec<Mutex<Option<Arc<Link>>>>,
    /// The size that was accepted last.
    size: AtomicU64,
    silence: Duration,
}

impl Nbd {
    /// Connects.
    ///
    /// # Errors
    /// The address is none, nobody answers there, or the server has no such export.
    pub fn open(name: impl Into<SourceName>) -> Result<Nbd, SourceOpenError> {
        Nbd::open_within(name, SILENCE)
    }

    /// Connects to a server that is given up when it owes an answer and says nothing for `silence` (of [`Nbd::open`]: 30 s).
    /// An answer may take longer than that as long as it goes on coming.
    ///
    /// # Errors
    /// As [`Nbd::open`].
    pub fn open_within(name: impl Into<SourceName>, silence: Duration) -> Result<Nbd, SourceOpenError> {
        let name = name.into();
        let address = uri::parse(&name)?;
        let link = Link::connect(&address, silence).map_err(|broken| broken.open_error(&name))?;
        let links = if link.many() { MAX_LINKS } else { 1 };
        let size = AtomicU64::new(link.size());
        let mut all: Vec<Mutex<Option<Arc<Link>>>> = (1..links).map(|_| Mutex::default()).collect();
        all.push(Mutex::new(Some(Arc::new(link))));
        Ok(Nbd { address, name, links: all, size, silence })
    }

    /// The link to use: one that is there and idle, then a new one, then the one with the fewest requests.
    fn link(&self) -> Result<Arc<Link>, Broken> {
        let place = |i: usize| self.links[i].lock().unwrap_or_else(PoisonError::into_inner);
        let busy = |i: usize| place(i).as_ref().filter(|l| l.is_up()).map(|l| l.requests());
        let load: Vec<Option<u32>> = (0..self.links.len()).map(busy).collect();
        let best = (0..load.len()).min_by_key(|&i| match load[i] {
            Some(0) => (0, 0),
            None => (1, 0),
            Some(n) => (2, n),
        });
        let mut place = place(best.unwrap_or(0));
        if let Some(link) = place.as_ref().filter(|l| l.is_up()) {
            return Ok(Arc::clone(link));
        }
        let link = Arc::new(Link::connect(&self.address, self.silence)?);
        *place = Some(Arc::clone(&link));
        Ok(link)
    }

    fn read_once(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, Broken> {
        let link = self.link()?;
        let known = self.size.load(Ordering::Relaxed);
        if link.size() != known {
            let what = format!("{}: the export has {} bytes, and had {known}", self.name, link.size());
            return Err(Broken::Changed(what));
        }
        link.read(bufs, offset)
    }
}

impl Source for Nbd {
    fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, SourceError> {
        let done = match self.read_once(bufs, offset) {
            // A connection that broke may have been idle for hours: that is no reason to fail.
            Err(Broken::Lost(..)) => self.read_once(bufs, offset),
            done => done,
        };
        done.map_err(|broken| broken.read_error(&self.name))
    }

    fn describe(&self) -> String {
        self.name.to_string()
    }

    fn accept(&self) -> u64 {
        // The newest connection knows best; where there is none the next one tells.
        let size = self.link().map_or_else(|_| self.size(), |link| link.size());
        self.size.store(size, Ordering::Relaxed);
        size
    }
}
