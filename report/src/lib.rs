//! The crate that **shows** results: it formats values as numbers, tables and HTML pages.
//!
//! ```text
//!   names                      suggestions for an unknown name
//!   number, width ──► block    a result as sentences, tables, notes: text, or a section of a page
//!                 └─► page     a single HTML file: sections of tables, and the JSON
//! ```
//! The crate does not depend on the crates that measure, prints nothing, and uses neither a clock nor a terminal.

pub mod block;
/// Writes JSON in the form that all commands use.
pub mod json {
    /// Serializes a result as indented JSON, with all digits of every number and a newline at the end.
    ///
    /// # Panics
    /// Panics if the value contains a map whose keys are not strings, which is a bug in its type.
    pub fn pretty(value: &impl serde::Serialize) -> String {
        serde_json::to_string_pretty(value).expect("numbers and texts can always be written") + "\n"
    }
}
mod markup;
pub mod names;
pub mod number;
pub mod page;
pub mod progress;
pub mod tuning;
pub mod width;
