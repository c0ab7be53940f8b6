//! An error for the user: its kind, what failed, where, why, what to do about it, and the underlying error.
//!
//! ```text
//!   bad model file: disk.toml, line 3: "fast" is not a number; write one from 0 to 1000
//!   ── what ─────   ── place ───────   ── why ──────────────   ── remedy ────────────
//! ```
//! The crate that detects an error sets its kind; the command converts the error to a line and an exit code in one place. Parts that are
//! empty are left out of the message.

use std::error::Error;
use std::fmt::{self, Display};
use std::sync::Arc;

/// What an error means to the user of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// The request or the input is invalid.
    Input,
    /// A check failed, or a result cannot be trusted.
    Check,
    /// This machine, this user or this build cannot do it.
    Cannot,
    NoCommand,
    /// The user's command exists but does not start.
    CommandNotRun,
}

/// Removes the system's error numbers from a text: "No such file or directory (os error 2)". The description is enough.
pub fn without_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let first = parts.next().unwrap_or_default().to_string();
    parts.fold(first, |before, part| match part.split_once(')') {
        Some((_, after)) => before + after,
        None => before + part,
    })
}

#[derive(Clone, Debug)]
pub struct Failure {
    pub kind: FailureKind,
    /// What is wrong, in a few words or in a sentence.
    pub what: String,
    pub place: String,
    pub why: String,
    pub remedy: String,
    pub source: Option<Arc<dyn Error + Send + Sync>>,
}

impl Failure {
    pub fn new(
        kind: FailureKind,
        what: impl Into<String>,
        place: impl Display,
        remedy: impl Into<String>,
    ) -> Failure {
        Failure {
            kind,
            what: what.into(),
            place: place.to_string(),
            why: String::new(),
            remedy: remedy.into(),
            source: None,
        }
    }

    pub fn input(
        what: impl Into<String>,
        place: impl Display,
        remedy: impl Into<String>,
    ) -> Failure {
        Failure::new(FailureKind::Input, what, place, remedy)
    }

    pub fn check(
        what: impl Into<String>,
        place: impl Display,
        remedy: impl Into<String>,
    ) -> Failure {
        Failure::new(FailureKind::Check, what, place, remedy)
    }

    pub fn cannot(
        what: impl Into<String>,
        place: impl Display,
        remedy: impl Into<String>,
    ) -> Failure {
        Failure::new(FailureKind::Cannot, what, place, remedy)
    }

    /// Creates an error from another error, whose text is used as the whole message.
    pub fn of(kind: FailureKind, error: impl Error + Send + Sync + 'static) -> Failure {
        let line = Failure::new(kind, error.to_string(), "", "");
        Failure {
            source: Some(Arc::new(error)),
            ..line
        }
    }

    /// Returns true if the user's command was not started.
    pub fn is_of_command(&self) -> bool {
        matches!(
            self.kind,
            FailureKind::NoCommand | FailureKind::CommandNotRun
        )
    }

    /// Puts `word` and a colon in front of the description of what failed.
    pub fn within(self, word: &str) -> Failure {
        let what = format!("{word}: {}", self.what);
        Failure { what, ..self }
    }

    pub fn because(self, why: impl Display) -> Failure {
        let why = why.to_string();
        Failure { why, ..self }
    }

    /// Adds the reason to the error, and keeps the underlying error.
    pub fn caused_by(self, error: impl Error + Send + Sync + 'static) -> Failure {
        Failure {
            why: error.to_string(),
            source: Some(Arc::new(error)),
            ..self
        }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        let parts = [(": ", &self.place), (": ", &self.why), ("; ", &self.remedy)];
        parts
            .iter()
            .filter(|(_, part)| !part.is_empty())
            .try_for_each(|(before, part)| write!(f, "{before}{part}"))
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source
            .as_ref()
            .map(|source| &**source as &(dyn Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_parts_that_there_are() {
        let whole = Failure::input("bad model file", "disk.toml", "check the path");
        let line = "bad model file: disk.toml; check the path";
        assert_eq!(whole.to_string(), line);
        let error = std::io::Error::other("it is a folder");
        let caused = whole.caused_by(error);
        let line = "bad model file: disk.toml: it is a folder; check the path";
        assert_eq!(caused.to_string(), line);
        let source = caused.source().expect("the error behind it");
        assert_eq!(source.to_string(), "it is a folder");
        let sentence = Failure::of(FailureKind::Check, caused.clone());
        assert_eq!(sentence.to_string(), caused.to_string());
    }
}
