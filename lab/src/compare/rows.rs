//! Plans the rows of the table of a comparison. A row has a name, the component that does the readahead (a policy of foreread, the kernel
//! or librbd), and the size of a cache page.
//!
//! Example: on a file with `--policy rbd-plain` there are three rows: `none` and `rbd-plain`, which are policies of
//! foreread, and `kernel`, the page cache. On a model there is a row for the oracle (perfect foresight) instead of `kernel`.

use crate::report::RowKind;
use foreread_core::policy::PolicySpec;
use foreread_core::units::PageSize;

/// The component that does the readahead in a row: a policy of foreread, an imitation of another program, the kernel, librbd, or the
/// oracle.
pub enum ReadBy {
    /// A policy, or an imitation of another program.
    Policy(PolicySpec),
    /// A row that only this kind of target has: the kernel, librbd, the oracle.
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

/// A policy, and the size of the cache pages with which it runs.
#[derive(Clone, Copy)]
pub struct OnPage<'a> {
    pub policy: &'a PolicySpec,
    pub page: PageSize,
}

/// A planned row of a table.
pub struct Row {
    pub policy: String,
    pub read_by: ReadBy,
    pub page: PageSize,
}

impl Row {
    /// Returns the row's policy and the size of its cache pages, if foreread does the readahead in this row; `None` if another component
    /// does it.
    pub fn ours(&self) -> Option<OnPage<'_>> {
        let ReadBy::Policy(policy) = &self.read_by else {
            return None;
        };
        let page = self.page;
        Some(OnPage { policy, page })
    }
}
