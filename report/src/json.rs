//! Writes JSON in the form that all commands use: indented, with all digits of every number, and with a newline at the end.

use serde::Serialize;

/// Serializes a result as indented JSON.
///
/// # Panics
/// Panics if the value contains a map whose keys are not strings, which is a bug in its type.
#[must_use]
pub fn pretty(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).expect("numbers and texts can always be written") + "\n"
}
