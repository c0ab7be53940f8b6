//! The crate that **shows** results: it turns values into numbers, tables, charts and pages for people.
//!
//! ```text
//!   names                      suggestions for an unknown name
//!   number, width ──► block    a result as sentences, tables, notes, figures: text, or a section of a page
//!                 ├─► table    text for the terminal
//!                 ├─► figure   charts as SVG, drawn by the crate plotters
//!                 └─► page     a single HTML file: sections of figures and tables, and the JSON
//! ```
//! It depends on no crate that measures, prints nothing, and uses neither a clock nor a terminal.

pub mod block;
pub mod figure;
pub mod json;
mod markup;
pub mod names;
pub mod number;
pub mod page;
pub mod progress;
mod table;
pub mod tuning;
pub mod width;
