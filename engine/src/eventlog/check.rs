//! Replays the events of a log on a new state machine and compares its actions one by one.
//!
//! The content of the log is not trusted. Lines have a maximum length and numbers have limits, so that a short log cannot take much
//! memory (at most 1 GiB). Any fault in the log is reported as an error with its line number.
//!
//! ```text
//!   E line ──► machine ──► answers waiting to be matched:  submit, serve, ...
//!   A line ─────────────────────────────────────────────►  equal?  no: the first difference
//!   E line, or the end:  is an answer left over?  yes: a difference
//! ```

use super::HEADER;
use super::line::{self, LineError, TimedEvent, parse_action, parse_event, write_action};
use foreread_core::event::{Action, Event};
use foreread_core::machine::{Config, Machine, Note};
use foreread_core::policy::{ALL, Info, PolicyDraft};
use std::collections::VecDeque;
use std::io::{self, BufRead, Read};

/// Longest allowed line of a log, in bytes; lines that foreread writes have less than 200.
const MAX_LINE_BYTES: u64 = 4096;
/// Largest number of a file or an open description: the machine has an entry for each number up to it.
const MAX_ID: u32 = 1 << 20;
/// Largest cache, in pages: 1 TiB of 4 KiB pages. One event can put half of it in flight, and the machine needs about 100 bytes for
/// each 64 pages. Together with the other limits this bounds its memory to 1 GiB.
const MAX_PAGES: u64 = 1 << 28;
/// Maximum number of fetches in flight with a full cache: each takes about 200 bytes.
const MAX_FETCHES: u64 = 1 << 20;

/// A summary of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCheck {
    /// Number of events fed to the machine.
    pub events: u64,
    /// Number of actions that matched the log.
    pub actions: u64,
}

/// Why a log failed the check.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The file could not be read.
    #[error("line {line}: the log cannot be read: {error}")]
    Io {
        /// Its line number.
        line: u64,
        /// The cause.
        error: io::Error,
    },
    /// The file is not an event log, has another version, or contains an invalid line.
    #[error("line {line}: {why}")]
    Invalid {
        /// Its line number.
        line: u64,
        /// What is wrong.
        why: String,
    },
    /// The machine answered differently from the log.
    #[error("line {line}: the log has '{logged}', the machine answers '{ours}'")]
    Differs {
        /// Its line number.
        line: u64,
        /// The action in the log; `nothing` if the machine has more actions than the log.
        logged: String,
        /// The machine's action; `nothing` if the log has more.
        ours: String,
    },
}

/// Checks an event log that was written with one of the policies of the crate `foreread-core`.
///
/// # Errors
/// Returns an error for the first line that is malformed, or whose actions differ from those of the state machine.
pub fn check_log(log: impl BufRead) -> Result<LogCheck, ReplayError> {
    check_log_among(log, &[ALL], None)
}

/// An observer, called with every event and the machine's notes on it, oldest first.
type Look<'a> = &'a mut dyn FnMut(&Event, Vec<Note>);

/// Like [`check_log`], but for a log of a policy in one of these lists, so that a program can add policies. Passes each step to an
/// observer, so that a program can explain the decisions of a live run from its log.
///
/// # Errors
/// See [`check_log`].
pub fn check_log_among(
    log: impl BufRead,
    policies: &[&[&'static Info]],
    mut look: Option<Look<'_>>,
) -> Result<LogCheck, ReplayError> {
    let mut lines = Lines {
        log,
        number: 0,
        text: Vec::new(),
    };
    let mut machine = header(&mut lines, policies)?;
    if look.is_some() {
        machine.observe();
    }
    let mut done = LogCheck::default();
    let mut answers: VecDeque<Action> = VecDeque::new();
    while let Some(text) = lines.next()? {
        let text = text.trim_end();
        let number = lines.number;
        let bad = |error: LineError| invalid(number, error.to_string());
        if text.starts_with('A') {
            let logged = parse_action(text).map_err(bad)?;
            let ours = answers.pop_front();
            if ours != Some(logged) {
                return Err(differs(number, Some(logged), ours));
            }
            done.actions += 1;
            continue;
        }
        let TimedEvent { at, event } = parse_event(text).map_err(bad)?;
        if let Some(ours) = answers.pop_front() {
            return Err(differs(number, None, Some(ours)));
        }
        within_limits(&event, number)?;
        machine.handle(at, event);
        if let Some(look) = &mut look {
            look(&event, machine.take_notes());
        }
        answers.extend(std::iter::from_fn(|| machine.poll()));
        done.events += 1;
    }
    match answers.pop_front() {
        Some(ours) => Err(differs(lines.number + 1, None, Some(ours))),
        None => Ok(done),
    }
}

fn invalid(line: u64, why: String) -> ReplayError {
    ReplayError::Invalid { line, why }
}

fn above(line: u64, what: &str, limit: u64) -> ReplayError {
    invalid(line, format!("{what} is above the limit {limit}"))
}

fn differs(line: u64, logged: Option<Action>, ours: Option<Action>) -> ReplayError {
    let text = |action: Option<Action>| {
        let mut text = String::new();
        action.iter().for_each(|a| write_action(&mut text, a));
        if text.is_empty() {
            "nothing".to_string()
        } else {
            text.trim_end().to_string()
        }
    };
    ReplayError::Differs {
        line,
        logged: text(logged),
        ours: text(ours),
    }
}

fn header(
    lines: &mut Lines<impl BufRead>,
    policies: &[&[&'static Info]],
) -> Result<Machine, ReplayError> {
    let wrong = |line, why: String| {
        let form = format!("a log begins with '{HEADER}', its limits and its policy");
        invalid(line, format!("{why}; {form}"))
    };
    let first = lines.next()?.unwrap_or_default();
    if first.trim_end() != HEADER {
        return Err(wrong(
            1,
            "this is not an event log, or its version is not supported".to_string(),
        ));
    }
    let limits = lines.next()?.unwrap_or_default();
    let config = line::parse_config(&limits).map_err(|e| wrong(2, e.to_string()))?;
    let Config {
        capacity_pages,
        max_in_flight,
        max_fetch_bytes,
        page,
        ..
    } = config;
    if capacity_pages > MAX_PAGES {
        return Err(above(2, "capacity_pages", MAX_PAGES));
    }
    if capacity_pages / (max_fetch_bytes / page.bytes()).max(1) > MAX_FETCHES {
        let what = "capacity_pages divided by the pages of max_fetch_bytes";
        return Err(above(2, what, MAX_FETCHES));
    }
    if max_in_flight > MAX_ID {
        return Err(above(2, "max_in_flight", u64::from(MAX_ID)));
    }
    let policy = lines.next()?.unwrap_or_default();
    let Some(policy) = policy.trim_end().strip_prefix("policy ") else {
        return Err(wrong(3, "the policy is missing".to_string()));
    };
    let policy = PolicyDraft::parse_among(policy, policies).and_then(|draft| draft.ready(None));
    let policy = policy.map_err(|e| wrong(3, e.to_string()))?;
    Ok(Machine::new(config, policy))
}

/// Limits numbers for which the machine keeps entries, because a large number would make it keep very many.
fn within_limits(event: &Event, line: u64) -> Result<(), ReplayError> {
    let over = |what| Err(above(line, what, u64::from(MAX_ID)));
    match *event {
        Event::Open { open, .. } if open.0 > MAX_ID => over("the id of the open file description"),
        Event::Open { file, .. } | Event::List { file, .. } if file.0 > MAX_ID => {
            over("the id of the file")
        }
        _ => Ok(()),
    }
}

struct Lines<R> {
    log: R,
    /// The number of the line read last.
    number: u64,
    text: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    fn next(&mut self) -> Result<Option<String>, ReplayError> {
        self.text.clear();
        self.number += 1;
        let number = self.number;
        let io = |error| ReplayError::Io {
            line: number,
            error,
        };
        let bad = |text: &[u8], want| {
            let text = String::from_utf8_lossy(text).escape_debug().to_string();
            Err(invalid(number, line::bad(&text, want).to_string()))
        };
        let read = (&mut self.log)
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut self.text)
            .map_err(io)?;
        if read == 0 {
            self.number -= 1;
            return Ok(None);
        }
        if self.text.last() != Some(&b'\n') {
            let what = if read as u64 == MAX_LINE_BYTES {
                "a line shorter than 4096 bytes"
            } else {
                "a whole line"
            };
            return bad(&self.text[..read.min(40)], what);
        }
        match std::str::from_utf8(&self.text) {
            Ok(text) => Ok(Some(text.to_string())),
            Err(_) => bad(&self.text, "text"),
        }
    }
}
