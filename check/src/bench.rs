//! foreread measures itself.
//!
//! | file | holds |
//! |---|---|
//! | `speed.rs` | simulated and cached reads a second |
//! | `import.rs` | trace records a second |
//! | `policies.rs` | policies beside their opponents in the cells of [`crate::evaluation`] |

pub mod import;
pub mod policies;
pub mod speed;
