//! Reports what this process waits for while it ends, if that takes longer than 2 s.
//!
//! ```text
//!   waits_for("requests of the mount") ── 2 s ──► "still waiting for requests of the mount (2 s)" ── 4 s, 8 s, ... ──► again
//!   waits_for("the recording")         the next step: from the start
//!   is_over()                          no more reports
//! ```
//! Before a step of its shutdown that may wait for storage, the kernel or another process, a command registers with this module what the
//! step waits for. If the thread that reports cannot be started, nothing is reported.

use crate::threads;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Time from the start of a step to the first line, and minimum time between two lines.
const FIRST_LINE: Duration = Duration::from_secs(2);

struct EndState {
    step: Option<String>,
    /// The number of the current step.
    number: u64,
    has_thread: bool,
}

struct End {
    state: Mutex<EndState>,
    changed: Condvar,
}

static END: End = End::new();
static SAY: OnceLock<fn(&str)> = OnceLock::new();

/// Sets the function that prints the lines about the shutdown. Only the first call of this function has an effect.
pub fn say_by(say: fn(&str)) {
    let _ = SAY.set(say);
}

pub fn waits_for(what: &str) {
    END.begin(what, FIRST_LINE, |line| {
        if let Some(say) = SAY.get() {
            say(line);
        }
    });
}

pub fn is_over() {
    let mut state = END.lock();
    (state.step, state.number) = (None, state.number + 1);
    END.changed.notify_all();
}

impl End {
    const fn new() -> End {
        End {
            state: Mutex::new(EndState {
                step: None,
                number: 0,
                has_thread: false,
            }),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, EndState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&'static self, what: &str, first: Duration, say: fn(&str)) {
        let mut state = self.lock();
        (state.step, state.number) = (Some(what.to_string()), state.number + 1);
        self.changed.notify_all();
        if !state.has_thread {
            let watch = move || self.watch(first, say);
            state.has_thread = threads::spawn("foreread-end", watch).is_ok();
        }
    }

    /// Reports each slow step until the process ends.
    fn watch(&self, first: Duration, say: fn(&str)) {
        let mut state = self.lock();
        let (mut number, mut waited) = (state.number, Duration::ZERO);
        loop {
            if state.step.is_none() {
                let woken = self.changed.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            if state.number != number {
                (number, waited) = (state.number, Duration::ZERO);
            }
            // 2 s, then 2 s more, 4 s, 8 s.
            let time = first.max(waited);
            let wait = self.changed.wait_timeout(state, time);
            let (after, result) = wait.unwrap_or_else(PoisonError::into_inner);
            state = after;
            let step = state.step.clone().filter(|_| state.number == number);
            if let (true, Some(what)) = (result.timed_out(), step) {
                waited += time;
                drop(state);
                let seconds = waited.as_secs();
                say(&format!("still waiting for {what} ({seconds} s)"));
                state = self.lock();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};

    /// A step that takes longer is reported with its name, and the timing restarts with each step.
    #[test]
    fn a_slow_step_is_reported() {
        static OWN: End = End::new();
        static LINES: Mutex<Option<Sender<String>>> = Mutex::new(None);
        let (lines, said) = channel();
        *LINES.lock().expect("no panic") = Some(lines);
        let say = |line: &str| {
            let lines = LINES.lock().expect("no panic");
            let _ = lines.as_ref().expect("set").send(line.to_string());
        };
        for step in ["requests", "the recording"] {
            OWN.begin(step, Duration::from_millis(1), say);
            let line = said.recv_timeout(Duration::from_secs(60)).expect("said");
            // The previous step may be reported once more.
            let line = match line.contains(step) {
                true => line,
                false => said.iter().find(|line| line.contains(step)).expect("said"),
            };
            assert_eq!(line, format!("still waiting for {step} (0 s)"));
        }
    }
}
