//! Compares foreread's readahead decisions with the recorded decisions of a real system (the kernel or librbd).
//!
//! Changes to the page cache that do not come from readahead (such as pages that a hint dropped) are taken from the recording; everything
//! else is predicted.

mod cursor;
pub mod linux;
pub mod live;
pub mod pages;
#[cfg(feature = "rbd")]
pub mod rbd;
#[cfg(feature = "rbd")]
pub mod recording;
pub mod world;
