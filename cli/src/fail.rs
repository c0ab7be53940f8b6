//! How a command ends badly: one line on stderr and an exit code.
//!
//! Never: a second line, a control character from an argument, or a backtrace.

use foreread::source::redacted_message;
use foreread_pagecache::program::NotBegun;
use std::io::Write;

/// Longest error line, in characters. An argument may be a megabyte long; its first part is enough.
const LONGEST: usize = 500;

/// Why a command ended badly.
#[derive(Debug)]
pub enum Fail {
    /// Bad usage or bad input, in the form `what: where; remedy`. Exit code 2.
    Input(String),
    /// A check was made and failed. Exit code 1.
    Check(String),
    /// This machine, or this user, cannot do it. Exit code 3.
    Cannot(String),
    /// Bad usage, and stderr has been told. Exit code 2.
    Said,
    /// A command that was asked for does not run, in the form `what: where; remedy`, and the code that a shell has for it.
    NotRun(String, u8),
    /// A command that we ran ended with this code, and has said why itself.
    Passed(u8),
    /// The reader of the output closed it. Exit code 0, no message.
    Closed,
}

impl From<NotBegun> for Fail {
    fn from(error: NotBegun) -> Fail {
        Fail::NotRun(error.to_string(), error.code())
    }
}

impl Fail {
    /// Bad input: what is wrong, where, and what to do about it.
    pub fn input(what: &str, place: impl std::fmt::Display, remedy: &str) -> Fail {
        Fail::Input(format!("{what}: {place}; {remedy}"))
    }

    /// Says it on stderr. Returns the exit code.
    pub fn report(&self) -> u8 {
        let (text, code) = match self {
            Fail::Input(text) => (text, 2),
            Fail::Check(text) => (text, 1),
            Fail::Cannot(text) => (text, 3),
            Fail::NotRun(text, code) => (text, *code),
            Fail::Said => return 2,
            Fail::Passed(code) => return *code,
            Fail::Closed => return 0,
        };
        // If stderr is closed too, the exit code is all that is left.
        let _ = writeln!(
            std::io::stderr(),
            "foreread: {}",
            one_line(&redacted_message(text))
        );
        code
    }
}

/// Says on stderr what the user should know. A stderr that is closed ends nothing.
#[cfg_attr(
    not(any(feature = "mount", feature = "serve")),
    allow(dead_code, reason = "servers alone say something")
)]
pub fn note(text: impl std::fmt::Display) {
    say(format!("foreread: {text}"));
}

/// The same without the command's name.
pub fn say(text: impl std::fmt::Display) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_line() {
        assert_eq!(one_line("a\nb\x1b[31m\n"), "a\\nb\\u{1b}[31m");
        assert_eq!(one_line(&"x".repeat(1 << 20)).len(), LONGEST + 4);
    }
}
