//! Our decisions beside the recorded ones of a real system.
//!
//! Never: adjusts anything to the recording. What the recording did to the cache from outside (pages dropped by a
//! hint) is an input; everything else is predicted.

mod cursor;
pub mod linux;
pub mod live;
pub mod pages;
#[cfg(feature = "rbd")]
pub mod rbd;
#[cfg(feature = "rbd")]
pub mod rbd_cases;
pub mod recording;
pub mod world;
pub mod worlds;
