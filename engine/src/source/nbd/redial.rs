//! Reconnection delays for a server that does not answer.
//!
//! ```text
//!   connected ──► lost, or refused ──► tried again after 100 ms, 200 ms, ... 2 s; until then reads fail with the last reason
//!       ▲                                   │ connected
//!       └───────────────────────────────────┘
//! ```
//!
//! Never: sleeps, or connects.

use super::failure::LinkError;
use std::time::{Duration, Instant};

/// The first pause after a connection that could not be made, and the longest: each is twice the one before.
const MIN_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// Maximum wait of a read for the next try: if the server has been down for a while, reads fail at once.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// Tries of one read: 0, 100, 200, 400 and 800 ms after each other, the time in which a server is started anew.
const MAX_TRIES: u32 = 5;

#[derive(Default)]
pub struct Redial {
    failures: u32,
    next: Option<(Instant, LinkError)>,
}

impl Redial {
    /// The error while no connection attempt is due.
    pub fn refuses(&self, now: Instant) -> Option<LinkError> {
        self.next
            .as_ref()
            .filter(|(next, _)| now < *next)
            .map(|(_, why)| why.clone())
    }

    pub fn connected(&mut self) {
        (self.failures, self.next) = (0, None);
    }

    /// No connection could be made.
    pub fn failed(&mut self, now: Instant, why: &LinkError) {
        let pause = MIN_PAUSE
            .saturating_mul(1 << self.failures.min(16))
            .min(MAX_PAUSE);
        self.failures += 1;
        self.next = Some((now + pause, why.clone()));
    }

    /// How long a read waits that has failed `tries` times before it tries again; nothing where it gives up.
    pub fn pause(&self, now: Instant, tries: u32) -> Option<Duration> {
        let own = if tries <= 1 {
            Duration::ZERO
        } else {
            MIN_PAUSE.saturating_mul(1 << (tries - 2).min(16))
        };
        let closed = self.next.as_ref().map_or(Duration::ZERO, |(next, _)| {
            next.saturating_duration_since(now)
        });
        (tries < MAX_TRIES && closed <= MAX_WAIT).then(|| own.max(closed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost() -> LinkError {
        LinkError::Lost(111, "Connection refused".to_string())
    }

    #[test]
    fn pauses_are_doubled_up_to_the_longest() {
        let (start, mut redial) = (Instant::now(), Redial::default());
        assert!(redial.refuses(start).is_none());
        for pause in [100, 200, 400, 800, 1600, 2000, 2000] {
            redial.failed(start, &lost());
            assert!(
                redial
                    .refuses(start + Duration::from_millis(pause - 1))
                    .is_some(),
                "{pause}"
            );
            assert!(
                redial
                    .refuses(start + Duration::from_millis(pause))
                    .is_none(),
                "{pause}"
            );
        }
        assert_eq!(
            redial.pause(start, 1),
            None,
            "dead for a while: reads fail at once"
        );
        redial.connected();
        assert!(redial.refuses(start).is_none());
        redial.failed(start, &lost());
        assert_eq!(
            redial.pause(start, 1),
            Some(Duration::from_millis(100)),
            "from the start again"
        );
    }

    #[test]
    fn a_read_tries_five_times() {
        let (now, redial) = (Instant::now(), Redial::default());
        let pauses: Vec<Option<u128>> = (1..6)
            .map(|tries| redial.pause(now, tries).map(|p| p.as_millis()))
            .collect();
        assert_eq!(pauses, [Some(0), Some(100), Some(200), Some(400), None]);
    }
}
