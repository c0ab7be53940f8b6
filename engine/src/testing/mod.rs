//! Sources that say who they are, fail, and lie: for everyone's tests, ours and those of other sources.
//!
//! Never: used by the engine itself.
//!
//! ```text
//!   pattern   bytes that name their own offset and version, so that one misplaced byte is noticed
//!   faulty    any source, wrapped: fails the Nth read, fails by chance, ends early, is slow, panics
//! ```

mod faulty;
mod pattern;

pub use faulty::{Call, Faulty, Verdict};
pub use pattern::{Wrong, check, fill, name_of, pattern};
