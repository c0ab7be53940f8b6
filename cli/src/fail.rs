//! How a command ends badly: one line on stderr and an exit code.
//!
//! Never: a second line, a control character from an argument, or a backtrace.

use foreread::source::redacted_message;
use foreread_os::failure::{Failure, FailureKind};
use std::fmt::Display;
use std::io::Write;

/// Longest error line, in characters. An argument may be a megabyte long; its first part is enough.
const LONGEST: usize = 500;

/// Why a command ended badly.
#[derive(Debug)]
pub enum Fail {
    /// One line says why; its kind makes the exit code.
    Failure(Failure),
    /// Bad usage, and stderr has been told. Exit code 2.
    Said,
    /// A command that we ran ended with this code, and has said why itself.
    Passed(u8),
    /// The reader of the output closed it. Exit code 0, no message.
    Closed,
}

/// The exit code of each kind.
fn exit_code(kind: FailureKind) -> u8 {
    match kind {
        FailureKind::Check => 1,
        FailureKind::Input => 2,
        FailureKind::Cannot => 3,
        // As a shell has them.
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
    /// Bad usage or bad input: what is wrong, where, and what to do about it.
    pub fn input(what: impl Into<String>, place: impl Display, remedy: impl Into<String>) -> Fail {
        Failure::input(what, place, remedy).into()
    }

    /// What the system refuses; the error says all.
    pub fn of(error: std::io::Error) -> Fail {
        Failure::of(FailureKind::Input, error).into()
    }

    /// A check was made and failed.
    pub fn check(what: impl Into<String>, place: impl Display, remedy: impl Into<String>) -> Fail {
        Failure::check(what, place, remedy).into()
    }

    /// This machine, or this user, cannot do it.
    pub fn cannot(what: impl Into<String>, place: impl Display, remedy: impl Into<String>) -> Fail {
        Failure::cannot(what, place, remedy).into()
    }

    /// The line, for what says it later.
    #[cfg(feature = "object")]
    pub fn line(&self) -> String {
        match self {
            Fail::Failure(failure) => one_line(&redacted_message(&failure.to_string())),
            Fail::Said | Fail::Passed(_) | Fail::Closed => String::new(),
        }
    }

    /// Says it on stderr. Returns the exit code.
    pub fn report(&self) -> u8 {
        let failure = match self {
            Fail::Failure(failure) => failure,
            Fail::Said => return 2,
            Fail::Passed(code) => return *code,
            Fail::Closed => return 0,
        };
        // If stderr is closed too, the exit code is all that is left.
        let _ = writeln!(
            std::io::stderr(),
            "foreread: {}",
            one_line(&redacted_message(&failure.to_string()))
        );
        exit_code(failure.kind)
    }
}

/// Says on stderr what the user should know. A stderr that is closed ends nothing.
pub fn note(text: impl Display) {
    say(format!("foreread: {text}"));
}

/// The same without the command's name.
pub fn say(text: impl Display) {
    let _ = writeln!(
        std::io::stderr(),
        "{}",
        one_line(&redacted_message(&text.to_string()))
    );
}

/// `text` with control characters written out (a terminal must not obey an argument), and not too long.
pub fn one_line(text: &str) -> String {
    let mut line = String::new();
    for (n, letter) in text.trim().chars().enumerate() {
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

/// The line of bad input.
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
