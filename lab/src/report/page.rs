//! The pages of a comparison and of a series.

mod compare;
mod map;
mod vary;

pub use compare::compare;
pub use vary::series;
