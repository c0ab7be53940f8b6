//! Notes that explain what happened during a simulation or a live run: every answer of the policy, and what became of every page that was
//! read ahead.
//!
//! Notes are off by default ([`Machine::observe`]). If notes are on, each of the events below adds a note, which is kept until the caller
//! takes it. The code that updates a counter also adds the note, so the sums of the notes equal the counters in [`crate::stats::Stats`].
//! Notes never influence a decision.
//!
//! ```text
//!   Answer ──► Planned ──► Submitted ──► Touched (used; late while in flight)
//!                                   └──► Left    (unused, or used before) ──► Thrashed, if demanded later
//! ```

use super::{Machine, Question};
use crate::policy::{Pattern, Tuning, Why, Window};
use crate::stats::Stats;
use crate::units::{ByteRange, FileId, OpenId, PageRange, ReadId};
use alloc::vec::Vec;

/// The worst state that a read has found so far among its pages: cached, in flight, or absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Every page was present.
    Hit,
    /// A page was in flight, and no page was missing.
    Late,
    /// A page was neither present nor in flight.
    Miss,
}

impl Verdict {
    /// Counts a read of `bytes` bytes that ended with this verdict, and waited for `stall_ns`.
    pub fn count(self, stats: &mut Stats, bytes: u64, stall_ns: u64) {
        stats.demand_reads += 1;
        stats.demand_bytes += bytes;
        stats.stall_ns += stall_ns;
        match self {
            Verdict::Hit => stats.hits += 1,
            Verdict::Late => stats.late_hits += 1,
            Verdict::Miss => stats.misses += 1,
        }
    }
}

/// The bytes of a read that were hits, late or missed, and the time that the read waited. The three numbers of bytes add up to the length
/// of the read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LookedUp {
    /// Bytes of pages that were present.
    pub hit_bytes: u64,
    /// Bytes of pages in flight.
    pub late_bytes: u64,
    /// Bytes of pages that were neither present nor in flight.
    pub missed_bytes: u64,
    /// Time from the start of the read to its last piece; 0 for a hit.
    pub stall_ns: u64,
}

/// A note about one event of readahead, such as an answer of the policy or the first use of a page that was read ahead. Bit `n` of a mask
/// is page `64 * number + n` of the file, as in
/// [`crate::event::Action::Drop`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant's comment names its fields")]
pub enum Note {
    /// A policy answered with windows, or with the rule that explains why there are none. `read` raised the question;
    /// it is `None` for a hint. Includes the settings that an adaptive policy has chosen.
    Answer {
        open: OpenId,
        read: Option<ReadId>,
        question: Question,
        at: u64,
        why: Option<Why>,
        windows: Vec<Window>,
        tuning: Option<Tuning>,
    },
    /// This many bytes of the latest answer's windows are outside the read that caused them. `refused` of them found no
    /// room.
    Window {
        open: OpenId,
        bytes: u64,
        refused: u64,
    },
    /// Pages of the latest answer go in flight as readahead.
    Planned { file: FileId, pages: PageRange },
    /// A fetch is submitted, whether demand or readahead.
    Submitted { file: FileId, range: ByteRange },
    /// A read demands readahead for the first time; `late` of it is still in flight.
    Touched {
        file: FileId,
        number: u64,
        first: u64,
        late: u64,
    },
    /// Pages leave; `unused` of them are readahead that no read has demanded.
    Left {
        file: FileId,
        number: u64,
        pages: u64,
        unused: u64,
    },
    /// Readahead in flight is lost, because it failed or its bytes are no longer needed; the demanded part of it is
    /// `used`.
    Lost {
        file: FileId,
        number: u64,
        pages: u64,
        used: u64,
        submitted: bool,
    },
    /// A read demands unused pages that had left.
    Thrashed {
        file: FileId,
        number: u64,
        pages: u64,
    },
    /// A read that requested `bytes` has received all of them.
    Served {
        read: ReadId,
        open: OpenId,
        bytes: u64,
        verdict: Verdict,
        stall_ns: u64,
    },
}

impl Machine {
    /// Starts to keep a [`Note`] of everything that happens to readahead; the notes are kept until [`Machine::take_notes`] takes it.
    pub fn observe(&mut self) {
        self.notes.get_or_insert_default();
    }

    /// The notes since the last call, oldest first; empty unless [`Machine::observe`] is on.
    pub fn take_notes(&mut self) -> Vec<Note> {
        self.notes.as_mut().map(core::mem::take).unwrap_or_default()
    }

    /// Keeps a note if notes are on.
    pub(super) fn tell_watcher(&mut self, note: impl FnOnce() -> Note) {
        if let Some(notes) = self.notes.as_mut() {
            notes.push(note());
        }
    }

    /// Counts an answer by its pattern, and keeps it if decisions are watched or notes are on.
    pub(super) fn note(&mut self, open: OpenId, read: Option<ReadId>, question: Question, at: u64) {
        if let Some(pattern) = question.pattern(self.answer.why, !self.answer.windows.is_empty()) {
            self.count(Some(open), |stats| stats.decisions.count(pattern));
        }
        let is_noted =
            self.notes.is_some() && (self.answer.why.is_some() || !self.answer.windows.is_empty());
        let tuning = if is_noted { self.tuning() } else { None };
        let (windows, why) = (&self.answer.windows, self.answer.why);
        if let Some(decisions) = self.decisions.as_mut().filter(|_| !windows.is_empty()) {
            decisions.push(super::Decision {
                open,
                question,
                at,
                windows: windows.clone(),
            });
        }
        if let Some(notes) = self.notes.as_mut().filter(|_| is_noted) {
            notes.push(Note::Answer {
                open,
                read,
                question,
                at,
                why,
                windows: windows.clone(),
                tuning,
            });
        }
    }
}

impl Question {
    /// The pattern of an answer to this question. An answer without windows has a pattern only if its rule considers the read random.
    /// Answers without windows by other rules, such as at the end of the file, have no pattern. If the answer has windows and no rule,
    /// the question determines the pattern.
    #[must_use]
    pub fn pattern(self, why: Option<Why>, has_windows: bool) -> Option<Pattern> {
        match why {
            Some(why) => {
                Pattern::of(why).filter(|pattern| has_windows || *pattern == Pattern::Random)
            }
            None if !has_windows => None,
            None => Some(match self {
                Question::Read | Question::Page | Question::Miss => Pattern::Initial,
                Question::Mark => Pattern::Subsequent,
                Question::Fault | Question::FaultHit => Pattern::Around,
                Question::Advice => Pattern::Hint,
            }),
        }
    }
}
