//! What the publications print, figure by figure: the one place in the project that has published results.
//!
//! The tests that compare with a publication read it from here, too. Never: a figure of ours, or one that was
//! computed from printed ones (a ratio, a mean of runs): the caller computes it.

pub mod bhattacharya_2003;
pub mod crume_2014;
pub mod le_moal_2025;
pub mod wu_2010a;
pub mod wu_2010b;
pub mod wu_2013;
