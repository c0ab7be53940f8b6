//! Benchmarks of foreread itself: `sim.rs` has simulated reads per second, `hit.rs` cached reads, `policies.rs` policies compared with their opponents in the cells of
//! [`crate::evaluation`].

pub mod hit;
pub mod policies;
pub mod sim;
