//! NBD exports as a source: `nbd://HOST[:PORT][/EXPORT]`, `nbd+unix:///[EXPORT]?socket=PATH`; with TLS `nbds://`, `nbds+unix://`.
//!
//! Several requests are in flight on each connection, and there are several connections if the server allows it. A broken
//! connection is replaced by a new one; after each failed attempt, the delay increases ([`redial`]). The NBD protocol has no
//! version of an export, so foreread can only check that the server still serves the export, and that the size is unchanged. If a
//! server answers ESHUTDOWN, foreread treats the export as changed (a foreread server answers this when its source has changed).
//! The client never writes, never uses plain text if TLS was requested, and checks every reply before its bytes are used.
//!
//! ```text
//!   read_at ──► the connection with the fewest requests ──link::read──► bytes
//!                    │ broken, or none yet                    │ lost: reconnect and read again, up to five tries
//!                    ▼                                        │ ESHUTDOWN
//!               connect: size still the same? ── no ──────────┴──► Changed, until the engine accepts it
//!                                                                  accept: all connections are replaced
//! ```

mod failure;
mod link;
mod socket;
mod stream;
mod terms;
#[cfg(feature = "tls")]
mod tls;
mod uri;

use super::{Defaults, Source, SourceError, SourceName, SourceOpenError};
use crate::log;
use crate::sync::lock;
use failure::{ETIMEDOUT, LinkError};
use link::{NbdLink, Redial};
use std::io::IoSliceMut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use uri::Address;

/// Maximum number of connections, as in nbdcopy. More do not help, because each carries many requests.
const MAX_LINKS: usize = 4;
/// A connection is dropped if an answer is due and the server is silent for this long.
const SILENCE: Duration = Duration::from_secs(30);

/// NBD exports as a source: `nbd://HOST[:PORT][/EXPORT]`, `nbd+unix:///[EXPORT]?socket=PATH`; with TLS `nbds://`, `nbds+unix://`.
pub struct Nbd {
    address: Address,
    name: SourceName,
    links: Vec<Mutex<Option<Arc<NbdLink>>>>,
    /// The size that was accepted last.
    size: AtomicU64,
    redial: Mutex<Redial>,
    silence: Duration,
}

impl Nbd {
    /// Connects to a server.
    ///
    /// # Errors
    /// Returns an error if the address is invalid, no server answers there, or the server has no such export.
    pub fn open(name: impl Into<SourceName>) -> Result<Nbd, SourceOpenError> {
        Nbd::open_within(name, SILENCE)
    }

    /// Connects to a server. A connection is dropped if the server owes a reply and sends nothing for the time `silence` (30 s in
    /// [`Nbd::open`]). While data arrives, a reply may take longer: for each MiB that the server still has to send, `silence` is
    /// added to the time limit.
    ///
    /// # Errors
    /// Returns the errors of [`Nbd::open`].
    pub fn open_within(
        name: impl Into<SourceName>,
        silence: Duration,
    ) -> Result<Nbd, SourceOpenError> {
        let name = name.into();
        let address = uri::parse(&name)?;
        let link =
            NbdLink::connect(&address, silence).map_err(|broken| broken.open_error(&name))?;
        let links = if link.many() { MAX_LINKS } else { 1 };
        let size = AtomicU64::new(link.size());
        let mut all: Vec<Mutex<Option<Arc<NbdLink>>>> =
            (1..links).map(|_| Mutex::default()).collect();
        all.push(Mutex::new(Some(Arc::new(link))));
        Ok(Nbd {
            address,
            name,
            links: all,
            size,
            redial: Mutex::default(),
            silence,
        })
    }

    /// The connection to use: an idle one, else a new one, else the one with the fewest requests. None is used once one has ended with a
    /// change, until the engine accepts the change.
    fn link(&self) -> Result<Arc<NbdLink>, LinkError> {
        let mut load = Vec::new();
        for place in &self.links {
            let place = lock(place);
            if let Some(change) = place.as_ref().and_then(|link| link.change()) {
                return Err(change);
            }
            load.push(place.as_ref().filter(|l| l.is_up()).map(|l| l.requests()));
        }
        let best = (0..load.len()).min_by_key(|&i| match load[i] {
            Some(0) => (0, 0),
            None => (1, 0),
            Some(n) => (2, n),
        });
        let mut place = lock(&self.links[best.unwrap_or(0)]);
        if let Some(link) = place.as_ref().filter(|l| l.is_up()) {
            return Ok(Arc::clone(link));
        }
        // It may have ended meanwhile.
        if let Some(change) = place.as_ref().and_then(|link| link.change()) {
            return Err(change);
        }
        let link = Arc::new(self.connect()?);
        *place = Some(Arc::clone(&link));
        Ok(link)
    }

    /// Opens a new connection, unless it is too early for another try.
    fn connect(&self) -> Result<NbdLink, LinkError> {
        // Held until the result is known: all waiting reads share one try.
        let mut redial = lock(&self.redial);
        if let Some(why) = redial.refuses(Instant::now()) {
            return Err(why);
        }
        match NbdLink::connect(&self.address, self.silence) {
            Ok(link) => {
                tracing::info!("{}: connected to the server", self.name);
                redial.connected();
                Ok(link)
            }
            Err(why) => {
                redial.failed(Instant::now(), &why);
                Err(why)
            }
        }
    }

    fn read_once(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, LinkError> {
        let link = self.link()?;
        let known = self.size.load(Ordering::Relaxed);
        if link.size() == known {
            return link.read(bufs, offset);
        }
        Err(link.down(LinkError::Changed(format!(
            "the export now has {} bytes, but had {known} before",
            link.size()
        ))))
    }

    /// Logs why reads fail or wait, once a minute.
    fn log(&self, broken: &LinkError) {
        let (why, then) = match broken {
            LinkError::Lost(_, why) => (why.clone(), "; reconnecting"),
            LinkError::Refused(_, why) => (why.clone(), ""),
            LinkError::Insecure(no_tls) => (no_tls.to_string(), ""),
            LinkError::Changed(_) => return,
        };
        // The limit is per server: even if its reasons alternate, one line a minute is enough.
        if let Some(times) = log::once_a_minute(&format!("no connection to {}", self.name)) {
            tracing::warn!(times, "{}: {why}{then}", self.name);
        }
    }
}

impl Source for Nbd {
    fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, SourceError> {
        let mut tries = 0;
        loop {
            let broken = match self.read_once(bufs, offset) {
                Ok(read) => return Ok(read),
                Err(broken) => broken,
            };
            tries += 1;
            let pause = match &broken {
                // A silent server has used up the time: a retry would delay the read as long again.
                LinkError::Lost(ETIMEDOUT, _) => None,
                // A connection found broken may have been idle for hours, which is no reason to fail the read.
                LinkError::Lost(..) => lock(&self.redial).pause(Instant::now(), tries),
                LinkError::Refused(..) | LinkError::Insecure(_) | LinkError::Changed(_) => None,
            };
            if tries > 1 || pause.is_none() {
                self.log(&broken);
            }
            match pause {
                Some(pause) => std::thread::sleep(pause),
                None => return Err(broken.read_error(&self.name)),
            }
        }
    }

    fn defaults(&self) -> Defaults {
        Defaults::NBD
    }

    fn describe(&self) -> String {
        self.name.to_string()
    }

    /// Reconnects, because a server may go on serving the old version on its existing connections. If the server cannot be
    /// reached, as while it restarts, the next read connects, and reports another size as a change.
    fn accept(&self) -> u64 {
        for place in &self.links {
            drop(lock(place).take());
        }
        if let Ok(link) = self.link() {
            self.size.store(link.size(), Ordering::Relaxed);
        }
        self.size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alone(text: &str) -> Nbd {
        let name = SourceName::from(text);
        let address = uri::parse(&name).expect("an address");
        Nbd {
            address,
            name,
            links: Vec::new(),
            size: AtomicU64::new(0),
            redial: Mutex::default(),
            silence: SILENCE,
        }
    }

    #[test]
    fn a_server_gets_one_log_line_a_minute() {
        let (one, other) = (alone("nbd://one.invalid/a"), alone("nbd://other.invalid/a"));
        let lost = |why: &str| LinkError::Lost(111, why.to_string());
        let lines = log::captured(|| {
            one.log(&lost("Connection refused"));
            one.log(&LinkError::Refused(5, "the server is ending".to_string()));
            other.log(&lost("Connection refused"));
            one.log(&lost("Connection refused"));
            other.log(&LinkError::Changed("its size".to_string()));
        });
        let expected = ["one", "other"]
            .map(|name| format!("nbd://{name}.invalid/a: Connection refused; reconnecting"));
        assert_eq!(lines, expected);
    }
}
