//! Which thread a line belongs to when strace writes to the terminal, and not to a file by `-o`.
//!
//! ```text
//!   1700000000.1 clone(child_stack=NULL, flags=SIGCHLDstrace: Process 12 attached     the number of the new thread
//!    <unfinished ...>                                                                 the rest of the line before
//!   [pid    12] 1700000000.2 read(3</a>, ""..., 7) = 7 <0.000010>                     numbers while there are several
//!   [pid    11] 1700000000.3 <... clone resumed>) = 12 <0.000450>                     11 is what had no number so far
//!   [pid    12] 1700000000.4 +++ exited with 0 +++
//!   1700000000.5 read(3</a>, ""..., 5) = 5 <0.000010>                                 11 again
//! ```
//! strace numbers its lines only while it follows more than one thread. Once a thread was announced, a number that no line
//! has announced is the thread without a number; a line without one belongs to the only thread that is left. Never: a file
//! written by `-o`, where each line has its number.

use super::super::scan;
use std::collections::BTreeSet;

/// The thread of lines without a number.
const FIRST: u32 = 0;

/// The threads of a trace that was written to the terminal.
#[derive(Default)]
pub struct Numbers {
    /// A line without a number was seen.
    unnumbered: bool,
    /// A thread was announced, so lines without a number and lines with one go together.
    several: bool,
    /// The number of the first thread, once there was a line with it.
    first: Option<u32>,
    first_gone: bool,
    /// Threads that were announced and have not ended.
    attached: BTreeSet<u32>,
}

impl Numbers {
    /// The thread of a line whose number is `pid`, 0 where it has none.
    pub fn thread(&mut self, pid: u32) -> u32 {
        if pid == FIRST {
            self.unnumbered = true;
            return match self.attached.first() {
                Some(left) if self.first_gone && self.attached.len() == 1 => *left,
                _ => FIRST,
            };
        }
        if !(self.unnumbered && self.several) || self.attached.contains(&pid) {
            return pid;
        }
        if *self.first.get_or_insert(pid) == pid {
            FIRST
        } else {
            pid
        }
    }

    /// Whether a thread was announced and has not ended.
    pub fn knows(&self, thread: u32) -> bool {
        self.attached.contains(&thread)
    }

    /// A thread has ended; `thread` is what [`Numbers::thread`] called it.
    pub fn gone(&mut self, thread: u32) {
        if thread == FIRST {
            self.first_gone = true;
        } else {
            self.attached.remove(&thread);
        }
    }

    /// The text before the announcement of a thread, where the line ends with one.
    pub fn announced<'a>(&mut self, line: &'a [u8]) -> Option<&'a [u8]> {
        let (before, number) = announcement(line)?;
        self.several = true;
        self.attached.insert(number);
        Some(before)
    }
}

/// `...strace: Process 12 attached`, or without `strace: ` before version 4.21.
pub fn announcement(line: &[u8]) -> Option<(&[u8], u32)> {
    let text = line.trim_ascii_end().strip_suffix(b" attached")?;
    let digits = text.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let (text, digits) = text.split_at(text.len() - digits);
    let number = scan::small(digits)?;
    let before = text.strip_suffix(b"Process ")?;
    Some((before.strip_suffix(b"strace: ").unwrap_or(before), number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements() {
        assert_eq!(
            announcement(b"strace: Process 12 attached"),
            Some((&b""[..], 12))
        );
        assert_eq!(announcement(b"Process 12 attached\n"), Some((&b""[..], 12)));
        let cut = b"1.0 read(3<pipe:[1]>, strace: Process 7 attached";
        assert_eq!(announcement(cut), Some((&b"1.0 read(3<pipe:[1]>, "[..], 7)));
        for other in [
            &b"strace: Process x attached"[..],
            b"12 attached",
            b"Process 12 detached",
            b"",
        ] {
            assert_eq!(announcement(other), None);
        }
    }

    #[test]
    fn a_number_that_was_not_announced_is_the_first_thread() {
        let mut numbers = Numbers::default();
        assert_eq!(numbers.thread(0), 0);
        numbers.announced(b"strace: Process 12 attached");
        assert_eq!(
            (numbers.thread(12), numbers.thread(11), numbers.thread(0)),
            (12, 0, 0)
        );
        // The first one ends before the other: lines without a number are the other's.
        numbers.gone(0);
        assert_eq!(numbers.thread(0), 12);
        // Where each line has its number nothing is the first.
        let mut numbers = Numbers::default();
        assert_eq!((numbers.thread(5), numbers.thread(6)), (5, 6));
    }
}
