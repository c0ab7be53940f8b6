//! The settings that a comparison takes from the machine on which it runs: the administrator's settings, and the folder
//! for event logs.
//!
//! The caller reads these settings and passes them in the plan, so that the results depend only on the plan.

use super::targets::Target;
use super::{CompareError, ComparePlan};
use crate::live::LiveError;
use foreread::Readahead;
use foreread_core::policy::PolicyDraft;

#[derive(Clone, Debug, Default)]
pub struct Site {
    /// The policy that is used if none is named: it gets a row besides the usual ones.
    pub policy: Option<PolicyDraft>,
    /// Values for policies that leave `max` or `min` open. Not used on a model, where each policy has its published
    /// values.
    pub readahead: Vec<Readahead>,
    /// Where these settings come from, a sentence each, for the notes of every table.
    pub notes: Vec<String>,
}

/// Creates the folder of event logs, if a run will write one.
pub(super) fn make_log_folder(
    plan: &ComparePlan,
    targets: &[Box<dyn Target>],
) -> Result<(), CompareError> {
    let live = targets.iter().any(|target| !target.describe().is_simulated);
    let Some(folder) = plan.event_logs.as_ref().filter(|_| live) else {
        return Ok(());
    };
    let failed = LiveError::io(format!(
        "creating the folder for event logs {}",
        folder.display()
    ));
    std::fs::create_dir_all(folder)
        .map_err(failed)
        .map_err(CompareError::from)
}
