//! Errors of commands: one line on stderr and an exit code.
//!
//! Control characters in arguments are escaped in this line, and no backtrace is printed.

use foreread::source::redacted_message;
use foreread_os::failure::{Failure, FailureKind, without_numbers};
use std::fmt::Display;
use std::io::Write;

/// Maximum length of an error line, in characters. An argument may be a megabyte long; its first part is enough.
const LONGEST: usize = 500;

/// Why a command failed.
#[derive(Debug)]
pub enum Fail {
    /// An error line; its kind determines the exit code.
    Failure(Failure),
    /// Bad usage that was already reported on stderr. Exit code 2.
    Said,
    /// A child command ended with this code and has reported why.
    Passed(u8),
    /// The reader of the output closed it. Exit code 0, no message.
    Closed,
}

/// The kinds of errors, each with its exit code.
fn exit_code(kind: FailureKind) -> u8 {
    match kind {
        FailureKind::Check => 1,
        FailureKind::Input => 2,
        FailureKind::Cannot => 3,
        // Exit codes as in a shell.
        FailureKind::CommandNotRun => 126,
        FailureKind::NoCommand => 127,
    }
}

impl<E: Into<Failure>> From<E> for Fail {
    fn from(error: E) -> Fail {
        Fail::Failure(error.into())
    }
}

impl Fail {
    /// Creates the error for bad usage or bad input: what is wrong, where, and what to do about it.
    pub fn input(what: impl Into<String>, place: impl Display, remedy: impl Into<String>) -> Fail {
        Failure::input(what, place, remedy).into()
    }

    /// Converts an error of the operating system, whose text needs no further explanation, to the error of a command.
    pub fn of(error: std::io::Error) -> Fail {
        Failure::of(FailureKind::Input, error).into()
    }

    /// A check failed.
    pub fn check(what: impl Into<String>, place: impl Display, remedy: impl Into<String>) -> Fail {
        Failure::check(what, place, remedy).into()
    }

    /// Creates the error for the case that this machine or this user cannot do what the command needs.
    pub fn cannot(what: impl Into<String>, place: impl Display, remedy: impl Into<String>) -> Fail {
        Failure::cannot(what, place, remedy).into()
    }

    /// Returns the error as one line, for callers that print it later.
    #[cfg(feature = "object")]
    pub fn line(&self) -> String {
        match self {
            Fail::Failure(failure) => one_line(&redacted_message(&failure.to_string())),
            Fail::Said | Fail::Passed(_) | Fail::Closed => String::new(),
        }
    }

    /// Prints the error on stderr. Returns the exit code.
    pub fn report(&self) -> u8 {
        let failure = match self {
            Fail::Failure(failure) => failure,
            Fail::Said => return 2,
            Fail::Passed(code) => return *code,
            Fail::Closed => return 0,
        };
        // If stderr is closed, only the exit code remains.
        let _ = writeln!(
            std::io::stderr(),
            "foreread: {}",
            one_line(&redacted_message(&failure.to_string()))
        );
        exit_code(failure.kind)
    }
}

/// Prints a note for the user on stderr. If stderr is closed, this function does nothing.
pub fn note(text: impl Display) {
    say(format!("foreread: {text}"));
}

/// Like [`note`], but without the command's name at the start of the line.
pub fn say(text: impl Display) {
    let _ = writeln!(
        std::io::stderr(),
        "{}",
        one_line(&redacted_message(&text.to_string()))
    );
}

/// Shortens `text`, removes error numbers, and escapes control characters, so that text from arguments cannot control the terminal.
pub fn one_line(text: &str) -> String {
    let mut line = String::new();
    for (n, letter) in without_numbers(text.trim()).chars().enumerate() {
        if n == LONGEST {
            line.push_str(" ...");
            break;
        }
        if letter.is_control() {
            line.extend(letter.escape_default());
        } else {
            line.push(letter);
        }
    }
    line
}

/// Formats the error line for bad input.
#[cfg(test)]
pub fn input_line<T: std::fmt::Debug>(result: Result<T, Fail>) -> String {
    match result {
        Err(Fail::Failure(failure)) if failure.kind == FailureKind::Input => failure.to_string(),
        other => panic!("not refused as bad input: {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_line() {
        assert_eq!(one_line("a\nb\x1b[31m\n"), "a\\nb\\u{1b}[31m");
        assert_eq!(one_line(&"x".repeat(1 << 20)).len(), LONGEST + 4);
    }
}
