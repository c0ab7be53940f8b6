//! A sweep: every trace with every policy on every device model with every cache, one cell each, over the cores.
//!
//! ```text
//!   traces x devices x policies x caches ──► cells ──► threads, each takes the next ──► done(cell, row), in any order
//!                                                           └─ reads(cell): its trace, loaded by the first that needs it
//! ```
//! A cell is a comparison with one row, so it is what `compare` shows for that policy, and it depends on no other cell: cells
//! may run in another process, in another order, or on another machine. Never: keeps a result; the caller does.

use crate::compare::{self, CompareError, CompareOn, ComparePlan};
use crate::replay::Replay;
use crate::report::{Report, Row};
use foreread_core::policy::PolicyDraft;
use foreread_os::threads::for_each_on;
use foreread_report::progress::Silent;
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Version of [`CellResult`] as JSON.
pub const SCHEMA: &str = "foreread.sweep/1";

#[derive(Clone, Debug)]
pub enum SweepReads {
    /// `NAME:key=value,...`.
    Workload(String),
    /// A trace that is loaded; cells share it.
    Trace(Arc<Replay>),
}

/// What makes a cell what it is. Two cells with the same key have the same result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellKey {
    /// Version of foreread that measures.
    pub foreread: String,
    /// The trace or workload, as it was named.
    pub trace: String,
    /// Bytes of the trace's file; 0 of a workload.
    pub trace_bytes: u64,
    pub policy: String,
    /// The device model.
    pub device: String,
    /// Size of the cache in bytes; null is the usual one.
    pub cache_bytes: Option<u64>,
    /// Runs, and the seed of the first.
    pub runs: u32,
    /// Seed of the first run.
    pub seed: u64,
}

impl CellKey {
    /// A name for the cell's file: the FNV-1a hash of the fields, each followed by a line end, in 16 hexadecimal digits.
    #[must_use]
    pub fn name(&self) -> String {
        let cache = self
            .cache_bytes
            .map_or_else(|| "-".to_string(), |bytes| bytes.to_string());
        let CellKey {
            foreread,
            trace,
            trace_bytes,
            policy,
            device,
            runs,
            seed,
            ..
        } = self;
        let text = format!(
            "{foreread}\n{trace}\n{trace_bytes}\n{policy}\n{device}\n{cache}\n{runs}\n{seed}\n"
        );
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        format!("{hash:016x}")
    }
}

/// A cell that is to be measured.
#[derive(Clone, Debug)]
pub struct Cell {
    pub key: CellKey,
    /// The number of what is read, among the caller's traces and workloads.
    pub input: usize,
    pub policy: PolicyDraft,
    /// On what.
    pub on: CompareOn,
}

/// A cell that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellResult {
    /// [`SCHEMA`].
    pub schema: String,
    pub key: CellKey,
    /// Size of the cache in bytes, and of a page.
    pub cache_bytes: u64,
    /// Size of a cache page in bytes.
    pub page_bytes: u64,
    /// As in `foreread.compare/1`.
    pub bound_s: Option<f64>,
    /// The row of `foreread.compare/1`. What compares with another row is null.
    pub row: Row,
}

/// Measures one cell.
///
/// # Errors
/// As [`compare::run`].
pub fn measure(cell: &Cell, reads: SweepReads) -> Result<CellResult, CompareError> {
    let (workload, replay) = match reads {
        SweepReads::Workload(name) => (Some(name), None),
        SweepReads::Trace(replay) => (None, Some(replay)),
    };
    let plan = ComparePlan {
        workload,
        replay,
        on: Some(cell.on.clone()),
        policies: vec![cell.policy.clone()],
        alone: true,
        runs: Some(cell.key.runs),
        cache_bytes: cell.key.cache_bytes,
        seed: cell.key.seed,
        ..ComparePlan::default()
    };
    let tables = compare::run(&plan, &mut Silent)?;
    let report = Report::of(&tables[0]);
    let row = report
        .rows
        .into_iter()
        .next()
        .expect("the row of the one policy");
    let Report {
        cache_bytes,
        page_bytes,
        bound_s,
        ..
    } = report;
    Ok(CellResult {
        schema: SCHEMA.to_string(),
        key: cell.key.clone(),
        cache_bytes,
        page_bytes,
        bound_s,
        row,
    })
}

/// Measures cells in `threads` threads, and gives each to `done`, one at a time, as soon as it is there. `reads` gives what a cell
/// reads, when it begins and in its thread, so that a trace is loaded while cells of another are measured. An error, of a cell, of
/// `reads` or of `done`, ends it when the cells that run have ended; they are not given to `done`.
///
/// # Errors
/// The first one.
pub fn run<E: From<CompareError> + Send>(
    cells: &[Cell],
    threads: usize,
    reads: impl Fn(&Cell) -> Result<SweepReads, E> + Sync,
    mut done: impl FnMut(CellResult) -> Result<(), E> + Send,
) -> Result<(), E> {
    let mut failed = None;
    let measure = |cell: &Cell| measure(cell, reads(cell)?).map_err(E::from);
    let measured = for_each_on(cells, threads, &measure, &mut |_, result| {
        if failed.is_none() {
            failed = done(result).err();
        }
        if failed.is_some() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    failed.map_or(measured, Err)
}
