//! Progress on stderr: a bar where stderr is a terminal, nothing where it is not.
//!
//! Never: writes to stdout, and never draws by itself; it moves only when it is updated, which happens
//! between runs and not in them.

use foreread_lab::report::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;

/// A bar that is gone when it is dropped.
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar on stderr, or a hidden one.
    pub fn new() -> Bar {
        let target =
            if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let style = ProgressStyle::with_template("{msg} [{bar:24}] {pos}/{len} {elapsed}");
        let bar = ProgressBar::with_draw_target(None, target);
        Bar(bar.with_style(style.expect("the template is well formed").progress_chars("=> ")))
    }
}

impl Bar {
    /// Takes the bar away while something else is written.
    pub fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        self.0.suspend(write)
    }
}

impl Progress for Bar {
    fn stage(&mut self, text: &str) {
        self.0.unset_length();
        self.0.set_position(0);
        self.0.set_message(text.to_string());
    }

    fn step(&mut self, done: u64, total: u64) {
        self.0.set_length(total);
        self.0.set_position(done);
        self.0.tick();
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
