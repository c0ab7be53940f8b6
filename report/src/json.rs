//! JSON as every command writes it: indented, with every digit, and a newline at its end.

use serde::Serialize;

/// A result as JSON.
///
/// # Panics
/// A map whose keys are no texts: a bug of the type.
#[must_use]
pub fn pretty(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).expect("numbers and texts can always be written") + "\n"
}
