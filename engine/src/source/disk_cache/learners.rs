//! The engines of this process that read through a cache on disk and measure a server: asked now and then by the thread of the cache, and when
//! it is flushed. No reader writes what they learned.
//!
//! ```text
//!   engine ──its first source──► Learner ◄──asked once a minute── thread of the cache ──► servers/<hash>
//!      └─ends──► its figures, to that thread                        (while it writes)
//! ```

use foreread_core::storage::{Measurements, RunEnds, SourceFigures};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How often an engine is asked.
const ASKED_EACH: Duration = Duration::from_secs(60);

/// An engine and the one server that it reads from.
pub struct Learner {
    server: Arc<str>,
    measured: Box<dyn Fn() -> Measurements + Send + Sync>,
    /// A child of a fork does not ask: its parent's threads may have held the locks.
    process: u32,
    state: Mutex<LearnerState>,
}

#[derive(Default)]
struct LearnerState {
    /// What was kept last.
    kept: Measurements,
    /// It reads from another server as well: its figures are those of neither.
    is_mixed: bool,
}

impl Learner {
    /// `measured` is called without a lock of a cache.
    pub fn new(
        server: Arc<str>,
        measured: impl Fn() -> Measurements + Send + Sync + 'static,
    ) -> Learner {
        Learner {
            server,
            measured: Box::new(measured),
            process: std::process::id(),
            state: Mutex::default(),
        }
    }

    /// A source of this server is opened.
    pub fn reads_from(&self, server: &str) {
        if *self.server != *server {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.is_mixed = true;
        }
    }

    /// What it has measured since it was asked last.
    pub fn news(&self) -> Option<(Arc<str>, Measurements)> {
        if self.process != std::process::id() {
            return None;
        }
        let now = (self.measured)();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_mixed || now.figures.latency_ns == 0 || now == state.kept {
            return None;
        }
        let news = since(&now, &state.kept);
        state.kept = now;
        Some((Arc::clone(&self.server), news))
    }
}

/// What is new since `before`: figures that have changed, and runs that were not counted yet. Counts that were halved meanwhile are all new.
fn since(now: &Measurements, before: &Measurements) -> Measurements {
    let is_new = now.figures != before.figures;
    let new_runs = |runs: &RunEnds| {
        let of_it = |known: &&RunEnds| (known.kind, known.octave) == (runs.kind, runs.octave);
        let known = before.runs.iter().find(of_it);
        let known =
            known.filter(|known| known.reached <= runs.reached && known.ended <= runs.ended);
        let (reached, ended) = known.map_or((0, 0), |known| (known.reached, known.ended));
        RunEnds {
            reached: runs.reached - reached,
            ended: runs.ended - ended,
            ..*runs
        }
    };
    let runs = now.runs.iter().map(new_runs);
    Measurements {
        figures: if is_new {
            now.figures
        } else {
            SourceFigures::default()
        },
        runs: runs.filter(|runs| runs.reached > 0).collect(),
    }
}

/// Those of a cache.
#[derive(Default)]
pub struct Learners(Mutex<LearnerList>);

#[derive(Default)]
struct LearnerList {
    all: Vec<Weak<Learner>>,
    asked: Option<Instant>,
}

impl Learners {
    pub fn add(&self, learner: &Arc<Learner>) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.all.retain(|learner| learner.strong_count() > 0);
        list.all.push(Arc::downgrade(learner));
        list.asked.get_or_insert_with(Instant::now);
    }

    /// What all have measured since they were asked last.
    pub fn ask(&self) -> Vec<(Arc<str>, Measurements)> {
        let all = {
            let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            list.asked = Some(Instant::now());
            list.all.clone()
        };
        let learners = all.iter().filter_map(Weak::upgrade);
        learners.filter_map(|learner| learner.news()).collect()
    }

    /// The same, if that was a minute ago.
    pub fn ask_now_and_then(&self) -> Vec<(Arc<str>, Measurements)> {
        let asked = self.0.lock().unwrap_or_else(PoisonError::into_inner).asked;
        if asked.is_some_and(|asked| asked.elapsed() >= ASKED_EACH) {
            self.ask()
        } else {
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreread_core::storage::RunKind;

    fn runs(octave: u8, reached: u32, ended: u32) -> RunEnds {
        RunEnds {
            kind: RunKind::Start,
            octave,
            reached,
            ended,
        }
    }

    #[test]
    fn a_run_and_a_figure_are_news_once() {
        let figures = SourceFigures {
            latency_ns: 7,
            ..SourceFigures::default()
        };
        let of = |runs: &[RunEnds]| Measurements {
            figures,
            runs: runs.to_vec(),
        };
        let before = of(&[runs(3, 10, 4), runs(4, 6, 6), runs(5, 200, 9)]);
        assert_eq!(since(&before, &Measurements::default()), before);
        let now = of(&[
            runs(3, 12, 5),
            runs(4, 6, 6),
            runs(5, 128, 5),
            runs(6, 1, 0),
        ]);
        let news = since(&now, &before);
        assert_eq!(news.figures, SourceFigures::default());
        assert_eq!(news.runs, [runs(3, 2, 1), runs(5, 128, 5), runs(6, 1, 0)]);
    }
}
