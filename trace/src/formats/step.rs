//! Converts an importer to a stream of items: each step of the importer (a line or a record, for example) may add items to a queue.
//!
//! ```text
//!   step ──► queue of items ──► next, next, ... ──► step
//! ```
//!
//! The next step is executed only when the queue is empty, so the queue never holds more items than one step adds.

use super::super::error::{Fault, TraceError};
use super::super::input::Input;
use super::super::{Item, Items};
use std::collections::VecDeque;

/// An importer that reads a trace step by step (one line or one record at a time).
pub trait Step: Send {
    /// Takes the next line or record and appends its items to `out`. Returns false at the end of the input.
    fn step(&mut self, out: &mut VecDeque<Item>) -> Result<bool, TraceError>;
}

struct Steps<S> {
    step: S,
    queue: VecDeque<Item>,
    ended: bool,
}

/// Runs an importer, and returns its items as a stream that ends after the first error.
pub fn items<S: Step + 'static>(step: S) -> Items {
    Box::new(Steps {
        step,
        queue: VecDeque::new(),
        ended: false,
    })
}

impl<S: Step> Iterator for Steps<S> {
    type Item = Result<Item, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(item) = self.queue.pop_front() {
                return Some(Ok(item));
            }
            if self.ended {
                return None;
            }
            match self.step.step(&mut self.queue) {
                Ok(more) => self.ended = !more,
                Err(error) => {
                    self.ended = true;
                    self.queue.clear();
                    return Some(Err(error));
                }
            }
        }
    }
}

/// An importer that works line by line.
pub trait Lines: Send {
    /// Takes a line without its line end. Returns false if the trace ends with this line, whatever follows it.
    fn line(&mut self, line: &[u8], out: &mut VecDeque<Item>) -> Result<bool, Fault>;

    /// Called after the last line.
    fn end(&mut self, _out: &mut VecDeque<Item>) -> Result<(), Fault> {
        Ok(())
    }
}

/// An importer of lines, with its input.
pub struct Text<L> {
    /// The input.
    pub input: Input,
    /// The importer.
    pub lines: L,
}

impl<L: Lines> Step for Text<L> {
    fn step(&mut self, out: &mut VecDeque<Item>) -> Result<bool, TraceError> {
        let more = match self.input.line()? {
            Some(line) => self.lines.line(line, out),
            None => Ok(false),
        };
        let more = match more {
            Ok(false) => self.lines.end(out).map(|()| false),
            other => other,
        };
        more.map_err(|(what, remedy)| self.input.error(what, remedy))
    }
}
