//! What a comparison could not do, as a line for the user. Never: measures.

use crate::fail::Fail;
use crate::names;
use foreread_lab::compare::CompareError;

/// The message for a plan that cannot be carried out.
pub fn refused(error: CompareError) -> Fail {
    match error {
        CompareError::Workload(error) => names::refused("workload", &error, "foreread workloads"),
        CompareError::Model(error) => names::refused("model", &error, "foreread models"),
        CompareError::Policy(error) => names::refused("policy", &error, "foreread policies"),
        error @ (CompareError::Impossible { .. } | CompareError::Log(_)) => {
            Fail::Check(error.to_string())
        }
        error => Fail::Input(error.to_string()),
    }
}
