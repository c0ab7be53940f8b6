//! The errors of a comparison; each message is one line.

use crate::live;
use foreread_core::policy::SpecError;
use foreread_os::failure::Failure;
use foreread_report::names;
use foreread_sim::device::custom::FindError;

/// The error of a comparison: one line that says what failed, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// A part of the plan, or a result that cannot be right.
    #[error("{0}")]
    Refused(#[from] Failure),
    #[error("{0}")]
    Live(#[from] live::LiveError),
}

impl CompareError {
    /// An unknown workload, or a value or file that does not fit it.
    pub fn workload(error: SpecError) -> CompareError {
        names::refused("workload", &error, "foreread list workloads").into()
    }

    /// A policy that does not fit the target.
    pub fn policy(error: SpecError) -> CompareError {
        names::refused("policy", &error, "foreread list policies").into()
    }
}

impl From<FindError> for CompareError {
    fn from(error: FindError) -> CompareError {
        match error {
            FindError::Name(error) => {
                names::refused("model", &error, "foreread list models").into()
            }
            FindError::File(error) => error.into(),
        }
    }
}

impl From<CompareError> for Failure {
    fn from(error: CompareError) -> Failure {
        match error {
            CompareError::Refused(failure) => failure,
            CompareError::Live(error) => error.into(),
        }
    }
}
