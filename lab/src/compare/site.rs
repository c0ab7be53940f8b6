//! What the machine of a comparison brings with it: the settings of its administrator, and the folder of event logs.
//!
//! The settings are read by the caller; here they are only carried, so that a plan says all that its tables depend on.

use super::targets::Target;
use super::{CompareError, ComparePlan};
use crate::live::LiveError;
use foreread::Readahead;
use foreread_core::policy::PolicyDraft;

#[derive(Clone, Debug, Default)]
pub struct Site {
    /// The policy that is used where none is named: a row beside the usual ones.
    pub policy: Option<PolicyDraft>,
    /// What policies take that leave `max` or `min` open; not on a model, where each has its published values.
    pub readahead: Vec<Readahead>,
    /// Where these come from, a sentence each, for the notes of every table.
    pub notes: Vec<String>,
}

/// Makes the folder of event logs, where a run will write one.
pub(super) fn make_log_folder(
    plan: &ComparePlan,
    targets: &[Box<dyn Target>],
) -> Result<(), CompareError> {
    let live = targets.iter().any(|target| !target.describe().is_simulated);
    let Some(folder) = plan.event_logs.as_ref().filter(|_| live) else {
        return Ok(());
    };
    let failed = LiveError::io(format!(
        "making the folder of event logs {}",
        folder.display()
    ));
    std::fs::create_dir_all(folder)
        .map_err(failed)
        .map_err(CompareError::from)
}
