//! The evaluation of policies: simulates many workloads on many devices, and compares each policy with the best of its
//! opponents (other policies).
//!
//! A *cell* is a workload, a device and a size of the cache. Every policy runs in every cell with several seeds. With the same seed, the
//! device draws the same random numbers for all policies. The best opponent of a cell is chosen by runs with some seeds, and compared with
//! the policy by runs with other seeds. With the same seeds, the comparison would favour the opponent. A policy loses a cell if it is
//! clearly slower than the best opponent of the cell.
//!
//! ```text
//!   cells.rs ──┐
//!   opponents ─┼─► Run (cell, policy, seed) ──measure──► Figures ──┐
//!   seeds ─────┘        any order, any thread, resumable           ├─► verdict.rs: ratio, geometric mean, lost cells
//!                                                    Figures ──────┘
//! ```
//! Example: `sequential` on `object-near` with a cache of 256 MiB takes 12.8 s with `linux-6.18` and 0.34 s with `linux-6.18:max=64M`. In
//! the run with seed 1, `linux-6.18:max=64M` is the fastest opponent, so it is chosen. With seeds 4 and 5, this opponent takes 0.35 s, and
//! `linux-6.18` 36 times as long: its ratio in this cell is 36.
//!
//! | file | holds |
//! |---|---|
//! | `cells.rs` | the 290 cells of `baseline`, cells of the other designs, predictable workloads, the runs of a design |
//! | `workloads.rs` | workloads of this evaluation only, in addition to those of [`foreread_sim::workload`] |
//! | `devices.rs` | devices whose figures change over time, in addition to the presets |
//! | `drawn.rs` | devices drawn at random by a seed, for the validation set |
//! | `opponents.rs` | published settings, two adaptive policies, an imitation |
//! | `measure.rs` | one run, and the measurements during it: bytes held, waits |
//! | `streams.rs` | tests: AMP's experiment, 100 streams by cache size and think time |
//! | `verdict.rs` | cells and totals from runs |
//! | `targets.rs` | the targets of a policy, and its results |
//!
//! This module does not print and uses no file: [`foreread_lab::grid`] executes the runs and stores the results.

pub mod cells;
pub mod devices;
pub mod drawn;
pub mod measure;
pub mod opponents;
#[cfg(test)]
mod streams;
pub mod targets;
pub mod verdict;
pub mod workloads;

pub use cells::{Cell, Design};
pub use measure::{Figures, Key};
pub use targets::Target;
pub use verdict::{Report, Row};

/// Name and version of the JSON of a report.
pub const SCHEMA: &str = "foreread.policies/1";
