//! The HTML page of a comparison.

mod compare;

pub use compare::compare;
pub(crate) use compare::figures;
