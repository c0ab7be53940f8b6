//! Progress on stderr: on a terminal a bar with the latest value, otherwise a line every few seconds for long work.
//!
//! The bar has no timer: it is drawn only when it is updated, which happens between measured runs, never during a run.

use foreread_report::progress::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// A progress bar that disappears when it is dropped.
pub struct Bar {
    bar: ProgressBar,
    /// Whether this stage has advanced at least once.
    begun: bool,
    stage: String,
    /// When the last line was printed, counted from the start of the bar.
    said: Duration,
}

/// Interval between lines. Shorter work prints none.
const SAID_EACH: Duration = Duration::from_secs(5);

impl Default for Bar {
    fn default() -> Bar {
        Bar::new()
    }
}

impl Bar {
    /// Creates a progress bar; it is shown only if stderr is a terminal.
    pub fn new() -> Bar {
        Bar::styled("{msg} [{bar:24}] {pos}/{len} {elapsed}")
    }

    /// Like [`Bar::new`], but the bar also shows the remaining time; for work whose steps take about the same time.
    pub fn with_time_left() -> Bar {
        Bar::styled("{msg} [{bar:24}] {pos}/{len} {elapsed}, {eta} left")
    }

    /// Like [`Bar::with_time_left`], but counts bytes, and shows their rate.
    pub fn of_bytes() -> Bar {
        Bar::styled(
            "{msg} [{bar:24}] {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec}, {eta} left",
        )
    }

    fn styled(template: &str) -> Bar {
        let target = if std::io::stderr().is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let style = ProgressStyle::with_template(template);
        let bar = ProgressBar::with_draw_target(None, target);
        Bar {
            bar: bar.with_style(
                style
                    .expect("the template is well formed")
                    .progress_chars("=> "),
            ),
            begun: false,
            stage: String::new(),
            said: Duration::ZERO,
        }
    }

    /// Hides the bar while other output is written.
    pub fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        self.bar.suspend(write)
    }
}

impl Progress for Bar {
    fn stage(&mut self, text: &str) {
        self.bar.unset_length();
        self.bar.set_position(0);
        self.bar.set_message(text.to_string());
        self.stage = text.to_string();
        self.begun = false;
    }

    fn step(&mut self, done: u64, total: u64) {
        self.bar.set_length(total);
        self.bar.set_position(done);
        // Steps done before this run do not count towards the speed.
        if !std::mem::replace(&mut self.begun, true) {
            self.bar.reset_eta();
        }
        self.bar.tick();
    }

    fn found(&mut self, text: &str) {
        if !self.bar.is_hidden() {
            // On a terminal the bar shows the latest value.
            self.bar.set_message(format!("{}: {text}", self.stage));
            return;
        }
        let now = self.bar.elapsed();
        if now - self.said >= SAID_EACH {
            self.said = now;
            self.aside(|| eprintln!("foreread: {}: {text}", self.stage));
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
