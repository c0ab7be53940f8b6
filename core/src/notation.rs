//! The notation `NAME:key=value,...` for policies, workloads, device models and trace formats, and the list
//! `key=value,...` without a name.
//!
//! This file splits the text and checks its form; the caller checks names, keys and values. Spaces around names, keys and values are
//! dropped. Empty parts between commas are ignored.
//!
//! ```text
//!   "linux-6.18:max=1M, folios=on"  ──►  name "linux-6.18", pairs [("max", "1M"), ("folios", "on")]
//!   "none"                          ──►  name "none", no pairs
//!   "none:max", "none:max=1,max=2"  ──►  NotationError
//! ```

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// A name and its `key=value` pairs; only the form of the text is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The text before the colon.
    pub name: String,
    /// Keys and values in the given order, without duplicate keys.
    pub pairs: Vec<(String, String)>,
}

impl Spec {
    /// Splits `NAME:key=value,...` into the name and the pairs.
    ///
    /// # Errors
    /// Returns an error if a part after the colon is not `key=value`, or repeats a key.
    pub fn parse(text: &str) -> Result<Spec, NotationError> {
        let (name, list) = text.split_once(':').unwrap_or((text, ""));
        Ok(Spec {
            name: name.trim().to_string(),
            pairs: split(list, text)?,
        })
    }

    /// The value of a key, or `None` if the text does not set it.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.pairs
            .iter()
            .find(|(k, _)| k == key)
            .map(|(_, value)| value.as_str())
    }
}

/// Splits `key=value,...`, a list without a name.
///
/// # Errors
/// Returns an error if a part is not `key=value`, or repeats a key.
pub fn pairs(text: &str) -> Result<Vec<(String, String)>, NotationError> {
    split(text, text)
}

/// The pairs of `list`, which is a part of `text`.
fn split(list: &str, text: &str) -> Result<Vec<(String, String)>, NotationError> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    for part in list.split(',').filter(|part| !part.trim().is_empty()) {
        let error = |repeated| NotationError {
            text: text.to_string(),
            part: part.trim().to_string(),
            repeated,
        };
        let (key, value) = part.split_once('=').ok_or_else(|| error(false))?;
        let (key, value) = (key.trim(), value.trim());
        if key.is_empty() {
            return Err(error(false));
        }
        if pairs.iter().any(|(k, _)| k == key) {
            return Err(error(true));
        }
        pairs.push((key.to_string(), value.to_string()));
    }
    Ok(pairs)
}

/// The reason why a text does not have the form `NAME:key=value,...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotationError {
    /// The whole text.
    pub text: String,
    /// The part that is wrong.
    pub part: String,
    /// True if an earlier part sets the same key; otherwise the part is not `key=value`.
    pub repeated: bool,
}

impl fmt::Display for NotationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NotationError {
            text,
            part,
            repeated,
        } = self;
        match part.split_once('=').filter(|_| *repeated) {
            Some((key, _)) => write!(
                f,
                "'{part}' in '{text}' sets '{}' a second time",
                key.trim()
            ),
            None => write!(f, "'{part}' in '{text}' is not key=value"),
        }
    }
}

impl core::error::Error for NotationError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (String, Vec<(String, String)>) {
        let spec = Spec::parse(text).unwrap_or_else(|error| panic!("{error}"));
        (spec.name, spec.pairs)
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_string(), value.to_string())
    }

    #[test]
    fn names_and_pairs_are_split() {
        let name = || "name".to_string();
        assert_eq!(
            parsed(" name : a=1, b = 2K ,, "),
            (name(), [pair("a", "1"), pair("b", "2K")].to_vec())
        );
        assert_eq!(parsed("name"), (name(), Vec::new()));
        assert_eq!(
            parsed("name:a=x=y:z"),
            (name(), [pair("a", "x=y:z")].to_vec()),
            "a value may hold = and :"
        );
        let spec = Spec::parse("name:a=,b=2").expect("the notation");
        assert_eq!(
            (spec.get("a"), spec.get("b"), spec.get("c")),
            (Some(""), Some("2"), None)
        );
        assert_eq!(
            pairs("a=1, b = 2:3,"),
            Ok([pair("a", "1"), pair("b", "2:3")].to_vec()),
            "a list has no name"
        );
        assert_eq!(
            pairs("a=1,b").expect_err("no pair").to_string(),
            "'b' in 'a=1,b' is not key=value"
        );
    }

    #[test]
    fn a_part_without_a_value_is_named() {
        for (text, words) in [
            ("name:a", "'a' in 'name:a' is not key=value"),
            ("name:=1", "'=1' in 'name:=1' is not key=value"),
            ("name:a=1,b", "'b' in 'name:a=1,b' is not key=value"),
            (
                "name:a=1,a=2",
                "'a=2' in 'name:a=1,a=2' sets 'a' a second time",
            ),
            (
                "name:a=1, a = 1",
                "'a = 1' in 'name:a=1, a = 1' sets 'a' a second time",
            ),
        ] {
            assert_eq!(Spec::parse(text).expect_err(text).to_string(), words);
        }
    }
}
