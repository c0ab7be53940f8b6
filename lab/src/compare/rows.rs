//! The rows of a table to be: what reads ahead in each, and the cache page that it runs with.
//!
//! Example: on a file with `--policy rbd-plain` there are three, `none` and `rbd-plain` by policies of foreread and
//! `kernel` by the page cache; on a model the oracle takes the place of the kernel.

use crate::report::RowKind;
use foreread_core::policy::PolicySpec;
use foreread_core::units::PageSize;

/// What reads ahead in a row.
pub enum ReadBy {
    /// A policy, or an imitation of another program.
    Policy(PolicySpec),
    /// What only this kind of target has: the kernel, librbd, the oracle.
    Own(RowKind),
}

impl ReadBy {
    pub fn kind(&self) -> RowKind {
        match self {
            ReadBy::Policy(spec) => RowKind::of(spec),
            ReadBy::Own(kind) => *kind,
        }
    }
}

/// A policy and the cache page that it runs with.
#[derive(Clone, Copy)]
pub struct OnPage<'a> {
    pub policy: &'a PolicySpec,
    pub page: PageSize,
}

/// A row of a table to be.
pub struct Row {
    pub policy: String,
    pub read_by: ReadBy,
    pub page: PageSize,
}

impl Row {
    /// Its policy, where it has one.
    pub fn ours(&self) -> Option<OnPage<'_>> {
        let ReadBy::Policy(policy) = &self.read_by else {
            return None;
        };
        let page = self.page;
        Some(OnPage { policy, page })
    }
}
