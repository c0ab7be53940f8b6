//! A fetch that has been submitted to a queue in pieces, one for each group of pages, and the order in which they land.
//!
//! Example: a fetch of three pieces. Piece 1 arrives first and waits; piece 0 arrives, and both land; piece 2 arrives and
//! ends the fetch. A piece that ends early (the end of the file) ends the fetch at once.

use super::jobs::{Job, Part};
use super::state::GROUP_PAGES;
use crate::budget::Claim;
use foreread_core::units::{ByteRange, Nanos, PageSize};

/// A fetch that has been submitted, in pieces.
pub struct Submitted {
    /// Distinguishes this use of a slot from earlier ones; with the number of the piece it is the tag of a transfer.
    pub serial: u64,
    pub job: Job,
    /// Pieces at the queue.
    pub left: u32,
    /// Pieces that wait for one before them: the number of the piece, and what came.
    pub early: Vec<(u64, Part, u64)>,
    /// Pieces that have landed, and how many bytes they are.
    pub landed: (u64, u64),
    /// The machine has its answer; pieces that still arrive are dropped.
    pub answered: bool,
    /// When it was submitted.
    pub began: Nanos,
    /// Its share of the budget.
    pub claim: Claim,
}

impl Submitted {
    /// Takes the pieces that follow on what has landed. With them: how many bytes have landed then, and whether the last of
    /// them ended early.
    pub fn land_in_order(&mut self) -> (Vec<Part>, u64, bool) {
        let mut parts = Vec::new();
        let mut short = false;
        while let Some(at) = self.early.iter().position(|(piece, ..)| *piece == self.landed.0).filter(|_| !short) {
            let (_, part, read) = self.early.swap_remove(at);
            let wanted = (part.chunk.bytes().len() as u64).min(self.job.range.end() - part.start);
            short = read < wanted;
            self.landed = (self.landed.0 + 1, self.landed.1 + read.min(wanted));
            parts.push(part);
        }
        (parts, self.landed.1, short)
    }
}

/// The groups of pages that a range touches, each with its first and last page (past the end).
pub fn groups(page: PageSize, range: ByteRange) -> impl Iterator<Item = (u64, u64)> {
    let pages = page.cover(range);
    let cut = move |number| (pages.first.max(number * GROUP_PAGES), pages.end.min((number + 1) * GROUP_PAGES));
    (pages.first / GROUP_PAGES..pages.end.div_ceil(GROUP_PAGES)).map(cut)
}
