//! The room that **measures**: the simulator and its device models, workloads, the comparison, the benches.
//!
//! It drives the machine of `foreread-core` under a virtual clock, and the engine `foreread` on real storage, and
//! puts both into the same rows. Ratios, percentiles and statistics live here and nowhere else. Never: prints.

pub mod bench;
pub mod compare;
pub mod conform;
pub mod device;
pub mod draw;
pub mod explain;
pub mod instant;
pub mod limits;
pub mod live;
pub mod peer;
pub mod probe;
pub mod record;
pub mod replay;
pub mod report;
pub mod reproduce;
pub mod sim;
pub mod stats;
pub mod trace;
pub mod tracefs;
pub mod tune;
pub mod workload;
