//! Our decisions beside those that a real system took and somebody recorded.
//!
//! Never: adjusts anything to the recording. What the recording did to the cache from outside (pages dropped by a
//! hint) is an input; everything else is predicted.

pub mod linux;
pub mod live;
pub mod pages;
#[cfg(feature = "rbd")]
pub mod rbd;
#[cfg(feature = "rbd")]
pub mod rbd_cases;
pub mod recording;
pub mod world;
