//! What the seeds print, figure by figure: the one place in the project that has published results.
//!
//! The tests that compare with a publication read it from here, too. Never: a figure of ours, or one that was
//! computed from printed ones (a ratio, a mean of runs): the caller computes it.

pub mod seed_000;
pub mod seed_001;
pub mod seed_002;
pub mod seed_003;
pub mod seed_004;
