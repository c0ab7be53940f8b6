//! The HTML pages of a comparison, and of a series of comparisons (`--vary`).

mod compare;
mod vary;

pub use compare::compare;
pub(crate) use compare::figures;
pub use vary::series;
