//! Log lines of the engine through `tracing`, rate limited.
//!
//! If a source fails, usually every read fails and would write a log line. So the same log line is written only once a minute, with the
//! number of times that it occurred. No line contains a secret, because `SourceName` writes the name of a source without its secrets.
//!
//! ```text
//!   error ──text──► reported less than a minute ago? ── no ──► tracing::warn!(times = 1 + suppressed)
//!                                                  └── yes ──► suppressed, counted
//! ```

use crate::sync::lock;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The same line is reported at most once in this time.
const REPEAT: Duration = Duration::from_secs(60);
/// Number of remembered lines; a new line replaces the oldest.
const MAX_LINES: usize = 64;

#[derive(Default)]
pub(crate) struct Recent(Vec<Message>);

struct Message {
    text: String,
    reported: Instant,
    left_out: u64,
}

impl Recent {
    /// How often this line has occurred since it was last reported, including now. Returns `None` if the line is to be suppressed.
    fn times(&mut self, text: &str, now: Instant) -> Option<u64> {
        if let Some(line) = self.0.iter_mut().find(|line| line.text == text) {
            line.left_out += 1;
            if now.saturating_duration_since(line.reported) < REPEAT {
                return None;
            }
            line.reported = now;
            return Some(std::mem::take(&mut line.left_out));
        }
        if self.0.len() == MAX_LINES {
            let oldest = (0..MAX_LINES).min_by_key(|&at| self.0[at].reported);
            self.0.swap_remove(oldest.unwrap_or(0));
        }
        self.0.push(Message {
            text: text.to_string(),
            reported: now,
            left_out: 0,
        });
        Some(1)
    }
}

/// For a line that may occur on every read: returns how often it has occurred if it is to be reported now, otherwise `None`.
pub(crate) fn once_a_minute(text: &str) -> Option<u64> {
    hold().times(text, Instant::now())
}

/// Locks the recently reported lines; also used by a thread that is about to fork.
pub(crate) fn hold() -> MutexGuard<'static, Recent> {
    static RECENT: Mutex<Recent> = Mutex::new(Recent(Vec::new()));
    lock(&RECENT)
}

/// The lines of level WARN and above that this thread reports during `work`.
#[cfg(test)]
pub(crate) fn captured(work: impl FnOnce()) -> Vec<String> {
    use std::sync::Arc;
    use tracing::field::{Field, Visit};
    use tracing::{Event, Level, Metadata, Subscriber, span};

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>);

    impl Visit for Lines {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            if field.name() == "message" {
                lock(&self.0).push(format!("{value:?}"));
            }
        }
    }

    impl Subscriber for Lines {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() <= Level::WARN
        }

        fn event(&self, event: &Event<'_>) {
            event.record(&mut self.clone());
        }

        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }

        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

        fn enter(&self, _: &span::Id) {}

        fn exit(&self, _: &span::Id) {}
    }

    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), work);
    std::mem::take(&mut *lock(&lines.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_line_comes_once_a_minute_with_its_number() {
        let (mut recent, start) = (Recent::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(recent.times("a", at(0)), Some(1));
        assert_eq!([1, 2, 59].map(|s| recent.times("a", at(s))), [None; 3]);
        assert_eq!(recent.times("b", at(59)), Some(1));
        assert_eq!(recent.times("a", at(60)), Some(4), "three were left out");
        assert_eq!(recent.times("a", at(61)), None);
        for n in 0..MAX_LINES {
            assert_eq!(recent.times(&n.to_string(), at(62)), Some(1));
        }
        assert_eq!(
            (recent.0.len(), recent.times("a", at(63))),
            (MAX_LINES, Some(1)),
            "the oldest made room"
        );
    }
}
