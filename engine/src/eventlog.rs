//! The event log: a driver's events and the state machine's actions, as text.
//!
//! [`check_log`] passes the events of a log to a new state machine, which must answer with the actions in the log. With the log, a live
//! run can be examined later, and a test can check that the engine decides as the simulator does. The log contains no data bytes and no
//! file names.
//!
//! ```text
//!   foreread-events 1
//!   config page=4096 capacity_pages=65536 max_fetch_bytes=4194304 ...
//!   policy linux-6.18:max=131072
//!   E 0 open 0 0 67108864                     the event and its time in nanoseconds
//!   E 8120 read 1 0 0 4096 0
//!   A submit 0 0 0 16384 demand               the machine's actions, in order, before the next event
//!   E 93518 done 0 16384
//!   A serve 1 0 0 0 4096 last
//! ```

mod check;
mod line;

use foreread_core::event::{Action, Event};
use foreread_core::machine::Config;
use foreread_core::policy::PolicySpec;
use foreread_core::units::Nanos;
use std::io::{self, BufWriter, Write};

pub use check::{LogCheck, ReplayError, check_log, check_log_among};
pub use line::{LineError, TimedEvent, parse_event};
use line::{write_action, write_event};

/// The first line of an event log; it contains the version of the format.
pub const HEADER: &str = "foreread-events 1";

/// Writes an event log. After the first error nothing more is written; the error is kept for the caller.
pub struct EventLog {
    out: BufWriter<Box<dyn Write + Send>>,
    text: String,
    error: Option<io::Error>,
}

impl EventLog {
    /// Starts a log and writes its header.
    #[must_use]
    pub fn new(out: Box<dyn Write + Send>, config: &Config, policy: &PolicySpec) -> EventLog {
        let mut log = EventLog {
            out: BufWriter::with_capacity(64 << 10, out),
            text: String::new(),
            error: None,
        };
        log.text = format!(
            "{HEADER}\n{}\npolicy {}\n",
            line::config_line(config),
            policy.canonical()
        );
        log.put();
        log
    }

    /// Writes one event.
    pub fn event(&mut self, now: Nanos, event: &Event) {
        write_event(&mut self.text, now, event);
        self.put();
    }

    /// Writes one action.
    pub fn action(&mut self, action: &Action) {
        write_action(&mut self.text, action);
        self.put();
    }

    /// Writes all pending lines to the file. Returns the first error that occurred; later calls do not return it again.
    ///
    /// # Errors
    /// Returns an error if the file could not be written.
    pub fn flush(&mut self) -> io::Result<()> {
        match self.error.take() {
            Some(error) => Err(error),
            None => self.out.flush(),
        }
    }

    fn put(&mut self) {
        if self.error.is_none()
            && let Err(error) = self.out.write_all(self.text.as_bytes())
        {
            self.error = Some(error);
        }
        self.text.clear();
    }
}
