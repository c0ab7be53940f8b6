//! Benchmarks of foreread itself.
//!
//! | file | holds |
//! |---|---|
//! | `speed.rs` | simulated reads and cached reads per second |
//! | `import.rs` | trace records per second |
//! | `policies.rs` | policies compared with their opponents in the cells of [`crate::evaluation`] |

pub mod import;
pub mod policies;
pub mod speed;
