//! A fetch that has been submitted to a queue in pieces, one for each group of pages, and the order in which they land.
//!
//! Example: a fetch of three pieces. Piece 1 arrives first and waits; piece 0 arrives, and both land; piece 2 arrives and
//! ends the fetch. A piece that ends early (the end of the file) ends the fetch at once.

use super::jobs::{GROUP_PAGES, Job, Part};
use crate::budget::Claim;
use foreread_core::units::{ByteRange, Nanos, PageSize};

/// A fetch that has been submitted, in pieces.
pub struct Submitted {
    /// Distinguishes this use of a slot from earlier ones; with the number of the piece it is the tag of a transfer.
    pub serial: u64,
    pub job: Job,
    /// Pieces at the queue.
    pub left: u32,
    /// Pieces that wait for one before them.
    early: Vec<Piece>,
    landed: Landed,
    /// The machine has its answer; pieces that still arrive are dropped.
    pub answered: bool,
    /// When it was submitted.
    pub began: Nanos,
    /// Its share of the budget.
    pub claim: Claim,
}

/// A piece that has arrived.
pub struct Piece {
    /// Its place in the fetch.
    pub number: u64,
    pub part: Part,
    /// Bytes that were read.
    pub read: u64,
}

/// What has landed of a fetch, from its front.
#[derive(Clone, Copy, Debug, Default)]
struct Landed {
    pieces: u64,
    bytes: u64,
}

/// Pieces that land now.
pub struct Landing {
    pub parts: Vec<Part>,
    /// Bytes of the fetch that have landed then.
    pub bytes: u64,
    /// Nothing more of it lands.
    pub over: bool,
}

impl Submitted {
    pub fn new(serial: u64, job: Job, pieces: u32, began: Nanos, claim: Claim) -> Submitted {
        let (early, landed) = (Vec::new(), Landed::default());
        Submitted {
            serial,
            job,
            left: pieces,
            early,
            landed,
            answered: false,
            began,
            claim,
        }
    }

    /// It has its answer, and what waits to land is not needed.
    pub fn fail(&mut self) {
        self.answered = true;
        self.early.clear();
    }

    /// A piece arrives. Takes those that follow on what has landed.
    pub fn arrive(&mut self, piece: Option<Piece>) -> Landing {
        self.early.extend(piece);
        let (mut parts, mut short) = (Vec::new(), false);
        while let Some(at) = self
            .early
            .iter()
            .position(|piece| piece.number == self.landed.pieces)
            .filter(|_| !short)
        {
            let Piece { part, read, .. } = self.early.swap_remove(at);
            let wanted = (part.chunk.bytes().len() as u64).min(self.job.range.end() - part.start);
            short = read < wanted;
            self.landed = Landed {
                pieces: self.landed.pieces + 1,
                bytes: self.landed.bytes + read.min(wanted),
            };
            parts.push(part);
        }
        let bytes = self.landed.bytes;
        self.answered = short || bytes >= self.job.range.len();
        Landing {
            parts,
            bytes,
            over: self.answered,
        }
    }
}

/// The pages of one group, of those that a range touches: the first, and the one past the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupPages {
    pub first: u64,
    pub end: u64,
}

/// The groups of pages that a range touches.
pub fn groups(page: PageSize, range: ByteRange) -> impl Iterator<Item = GroupPages> {
    let pages = page.cover(range);
    let cut = move |number| GroupPages {
        first: pages.first.max(number * GROUP_PAGES),
        end: pages.end.min((number + 1) * GROUP_PAGES),
    };
    (pages.first / GROUP_PAGES..pages.end.div_ceil(GROUP_PAGES)).map(cut)
}
