//! The rows of a table to be: what reads ahead in each, and the cache page that it runs with.
//!
//! Example: on a file with `--policy rbd-plain` there are three, `none` and `rbd-plain` by policies of foreread and
//! `kernel` by the page cache; on a model the oracle takes the place of the kernel.

#[cfg(feature = "rbd")]
use crate::live;
use crate::report::RowKind;
use foreread_core::policy::PolicySpec;
use foreread_core::units::PageSize;

/// What reads ahead in a row.
pub(super) enum ReadBy {
    /// A policy, or an imitation of another program.
    Policy(PolicySpec),
    Kernel,
    /// librbd, with its cache and readahead.
    #[cfg(feature = "rbd")]
    Librbd(&'static live::librbd::Peer),
    /// The search that knows all reads beforehand.
    Oracle,
}

impl ReadBy {
    pub(super) fn kind(&self) -> RowKind {
        match self {
            ReadBy::Policy(spec) => RowKind::of(spec),
            ReadBy::Kernel => RowKind::Kernel,
            #[cfg(feature = "rbd")]
            ReadBy::Librbd(_) => RowKind::Librbd,
            ReadBy::Oracle => RowKind::Oracle,
        }
    }
}

/// A policy and the cache page that it runs with.
#[derive(Clone, Copy)]
pub(super) struct OnPage<'a> {
    pub policy: &'a PolicySpec,
    pub page: PageSize,
}

/// A row of a table to be.
pub(super) struct Row {
    pub policy: String,
    pub read_by: ReadBy,
    pub page: PageSize,
}
