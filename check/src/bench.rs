//! Benchmarks of foreread itself: `sim.rs` measures simulated reads per second, `hit.rs` measures cached reads per
//! second, and `policies.rs` compares policies with their opponents as described in [`crate::evaluation`].

pub mod hit;
pub mod policies;
pub mod sim;
