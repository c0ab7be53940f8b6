//! Benchmarks of foreread itself: `sim.rs` has simulated reads per second, `policies.rs` policies compared with their opponents in the cells of
//! [`crate::evaluation`].

pub mod policies;
pub mod sim;
