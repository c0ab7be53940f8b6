//! The errors of a comparison; each message is one line.

use crate::live;
use foreread_core::policy::SpecError;
use foreread_os::failure::{Failure, FailureKind};
use foreread_report::{names, number::amount};
use foreread_sim::device::custom::FindError;

/// The error of a comparison: one line that says what failed, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// An unknown workload, or a value or file that does not fit it.
    #[error("{0}")]
    Workload(SpecError),
    #[error("{0}")]
    Model(SpecError),
    #[error("{0}")]
    ModelFile(Failure),
    /// A policy that does not fit the target.
    #[error("{0}")]
    Policy(SpecError),
    /// The cache page does not fit the policy or the storage.
    #[error("{policy} cannot have a cache page of {page} bytes")]
    Page { policy: String, page: u64 },
    /// A cache that cannot be simulated, or is not possible on this machine.
    #[error("memory of {asked} for the cache: {why}; name a size from {least} to {most}")]
    Cache {
        asked: String,
        why: String,
        least: String,
        most: String,
    },
    /// The oracle was requested on a target that cannot have one.
    #[error(
        "the oracle needs a model, because the behaviour of {0} is not known beforehand; add --on model:NAME"
    )]
    Oracle(String),
    /// A run was faster than is possible: the simulator or the model is broken, and none of its figures can be
    /// trusted.
    #[error(
        "broken model: {policy} read {workload} on {place} in {got_ns} ns, but the lower bound is {bound_ns} ns; please report it"
    )]
    Impossible {
        policy: String,
        workload: String,
        place: String,
        got_ns: u64,
        bound_ns: u64,
    },
    /// The log of a live run does not match the run: no explanation from it can be trusted.
    #[error("broken event log: {0}; please report it")]
    Log(String),
    /// A trace that is larger than the file.
    #[error(
        "{what}, and {place} has {}; select one file of the trace with --only NAME, or use --on model:NAME",
        amount(*size)
    )]
    TooLarge {
        what: crate::replay::LayoutError,
        place: String,
        size: u64,
    },
    #[error("{0}")]
    Live(#[from] live::LiveError),
}

impl From<FindError> for CompareError {
    fn from(error: FindError) -> CompareError {
        match error {
            FindError::Name(error) => CompareError::Model(error),
            FindError::File(error) => CompareError::ModelFile(error),
        }
    }
}

impl From<CompareError> for Failure {
    fn from(error: CompareError) -> Failure {
        match error {
            CompareError::Workload(error) => {
                names::refused("workload", &error, "foreread list workloads")
            }
            CompareError::Model(error) => names::refused("model", &error, "foreread list models"),
            CompareError::Policy(error) => {
                names::refused("policy", &error, "foreread list policies")
            }
            CompareError::ModelFile(error) => error,
            CompareError::Live(error) => error.into(),
            error @ (CompareError::Impossible { .. } | CompareError::Log(_)) => {
                Failure::of(FailureKind::Check, error)
            }
            error => Failure::of(FailureKind::Input, error),
        }
    }
}
