//! Compares our decisions with the recorded decisions of a real system.
//!
//! Pages that the real system dropped because of a hint are taken from the recording; all other changes to the cache are predicted.

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
