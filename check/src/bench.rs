//! Benchmarks of foreread itself: `rates.rs` measures simulated and cached reads per second, and `policies.rs` compares policies with their
//! opponents as described in [`crate::evaluation`].

pub mod policies;
pub mod rates;
