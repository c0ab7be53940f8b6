//! The room that **shows**: numbers, tables, charts and pages for people, made of values that it is given.
//!
//! ```text
//!   names                      what may have been meant by a name that is unknown
//!   number, width ──► block    a result as sentences, tables, notes, figures: text, or a section of a page
//!                 ├─► table    text for the terminal
//!                 ├─► figure   charts as SVG, drawn by the crate plotters
//!                 └─► page     one file of HTML: sections of figures and tables, and the JSON
//! ```
//! It knows no room that measures, and neither prints nor looks at a clock or a terminal.

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
