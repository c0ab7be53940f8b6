//! What the machine of a comparison brings with it: the settings of its administrator.
//!
//! The settings are read by the caller; here they are only carried, so that a plan says all that its tables depend on.

use foreread::Readahead;
use foreread_core::policy::PolicyDraft;

/// What an administrator has set for a machine.
#[derive(Clone, Debug, Default)]
pub struct Site {
    /// The policy that is used where none is named: a row beside the usual ones.
    pub policy: Option<PolicyDraft>,
    /// What policies take that leave `max` or `min` open; not on a model, where each has its published values.
    pub readahead: Vec<Readahead>,
    /// Where these come from, a sentence each, for the notes of every table.
    pub notes: Vec<String>,
}
