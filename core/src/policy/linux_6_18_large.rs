//! `linux-6.18:folios=on`: the current kernel's readahead on a file system with large folios.
//!
//! The policy keeps its own index of the folios that are large or have a readahead mark. If one page of a folio is no longer cached, the
//! policy treats the whole folio as evicted. A readahead mark applies to the whole folio. The cache marks only the folio's first page;
//! when that page is read, the state machine asks the policy what to read next. Folios have the sizes that the kernel chooses for a file
//! system with blocks of one page. The driver, not this policy, does fault-around.
//!
//! ```text
//!   KernelReader (of an open description) ─► window ─► placement ─► folios ─┬─► index of the file
//!                    ▲ probes, marks: cached pages, index   ◄─────────┴─► one range to read, its mark
//! ```
//!
//! Source: docs/spec/linux-readahead.md 4.

use super::{
    Answer, Ask, Outcome, Policy, Wants,
    folios::{Folio, Placement, Raw, Shape, Sight},
    folios_index::Folios,
    linux_6_18_reader::{KernelReader, touch_of},
    linux_6_18_todo::Todo,
    ondemand::{PAGE, fetch, hinted, wanted},
};
use crate::event::{Advice, Mapping};
use crate::units::OpenId;
use alloc::collections::BTreeMap;

/// Folios of a file on a kernel with huge pages, with blocks of one page (4.1).
const SHAPE: Shape = Shape {
    large: true,
    min_order: 0,
    max_order: 9,
};

/// At this size the index is swept of folios that are gone, and again at twice the remaining size.
const SWEEP_AT: usize = 1024;

/// The readahead state of one file with large folios, and of all open file descriptions of the file.
pub struct Large {
    fresh: KernelReader,
    readers: BTreeMap<OpenId, KernelReader>,
    turn: OpenId,
    folios: Folios,
    sweep_at: usize,
}

impl Large {
    /// Creates the state of a file that is not open and has no cached pages. Each new open file description starts with the state
    /// `fresh`.
    #[must_use]
    pub fn new(fresh: KernelReader) -> Large {
        Large {
            fresh,
            readers: BTreeMap::new(),
            turn: OpenId(0),
            folios: Folios::default(),
            sweep_at: SWEEP_AT,
        }
    }

    /// The folio that holds `page`, if all of it is still cached.
    fn folio_at(&mut self, ask: &Ask<'_>, page: u64) -> Option<Folio> {
        let folio = self.folios.at(page)?;
        if !is_whole(ask, &folio) {
            self.folios.remove(folio.first, folio.end());
            return None;
        }
        Some(folio)
    }

    /// Like [`Self::folio_at`], but only if the folio has the mark.
    fn marked_at(&mut self, ask: &Ask<'_>, page: u64) -> Option<Folio> {
        self.folio_at(ask, page).filter(|folio| folio.marked)
    }

    /// Asks the current reader a question about page `at`, and carries out the answer.
    fn decide(
        &mut self,
        (ask, at): (&Ask<'_>, u64),
        answer: &mut Answer,
        question: impl FnOnce(&mut KernelReader, &&Ask<'_>) -> Todo,
    ) {
        // The history begins in the previous folio, which must be present. A search for a hole begins in a folio that
        // was found.
        self.folio_at(ask, at.saturating_sub(1));
        let fresh = &self.fresh;
        let reader = self
            .readers
            .entry(self.turn)
            .or_insert_with(|| fresh.clone());
        let end = ask.file_size.div_ceil(PAGE);
        let mut placed = Placement::default();
        let todo = question(reader, &ask);
        if let Todo::Place { at, window } = todo {
            placed = SHAPE.place(&ask, end, at, window);
            reader.placed(placed.order);
            fetch_placed(&placed, answer);
        }
        answer.why = reader.why.take();
        answer.keep_mark = todo == Todo::Keep;
        for (i, nr) in todo.pieces(SHAPE.min_order) {
            SHAPE.fetch(&ask, end, Raw::new(i, nr, 0), &mut placed);
            fetch(ask, i, nr, None, answer);
        }
        self.remember(ask, &placed);
    }

    /// Keeps the large or marked folios that are about to be cached, and removes older ones in their place.
    fn remember(&mut self, ask: &Ask<'_>, placed: &Placement) {
        if self.folios.len() >= self.sweep_at {
            self.folios.retain(|folio| is_whole(ask, folio));
            self.sweep_at = SWEEP_AT.max(2 * self.folios.len());
        }
        for folio in &placed.folios {
            self.folios.remove(folio.first, folio.end());
            if folio.marked || folio.order > 0 {
                self.folios.insert(*folio);
            }
        }
    }

    /// A read reaches the mark of the folio that holds `page`, if there is one.
    fn meet(&mut self, ask: &Ask<'_>, page: u64, answer: &mut Answer) {
        let Some(folio) = self.marked_at(ask, page) else {
            return;
        };
        let first = folio.first;
        let req = ask.request.end().div_ceil(PAGE).saturating_sub(first);
        self.decide((ask, first), answer, |reader, sight| {
            reader.follow(sight, folio, first, req)
        });
        self.use_up(folio, answer);
    }

    fn use_up(&mut self, folio: Folio, answer: &Answer) {
        if !answer.keep_mark {
            self.folios.clear_mark(folio.first);
        }
    }
}

fn is_whole(ask: &Ask<'_>, folio: &Folio) -> bool {
    ask.hole(folio.first, folio.pages()).is_none()
}

/// Plans one range for each window, whatever its folios; the machine leaves out cached pages.
fn fetch_placed(placed: &Placement, answer: &mut Answer) {
    let (Some(first), Some(last)) = (placed.folios.first(), placed.folios.last()) else {
        return;
    };
    let mark = placed
        .folios
        .iter()
        .find(|folio| folio.marked)
        .map(|folio| folio.first * PAGE);
    answer.read(first.first * PAGE, (last.end() - first.first) * PAGE, mark);
}

impl Policy for Large {
    fn wants(&self) -> Wants {
        Wants {
            read: true,
            read_end: true,
            outcome: true,
            shared: true,
            around: true,
            meter: false,
        }
    }

    fn on_turn(&mut self, open: OpenId) {
        self.turn = open;
    }

    fn on_close(&mut self, open: OpenId) {
        self.readers.remove(&open);
    }

    /// The cache's mark is on the first page of a folio; a read that begins after that page finds the mark here.
    fn on_read(&mut self, ask: &Ask<'_>, answer: &mut Answer) {
        let page = ask.at / PAGE;
        if !ask.request.is_empty() && self.folios.at(page).is_some_and(|folio| folio.first < page) {
            self.meet(ask, page, answer);
        }
    }

    fn on_miss(&mut self, ask: &Ask<'_>, answer: &mut Answer) {
        let pages = wanted(ask);
        self.decide((ask, pages.first), answer, |reader, sight| {
            reader.sync(sight, pages.first, pages.len())
        });
    }

    fn on_mark(&mut self, ask: &Ask<'_>, answer: &mut Answer) {
        self.meet(ask, ask.at / PAGE, answer);
    }

    fn on_read_end(&mut self, end: u64) {
        let fresh = &self.fresh;
        self.readers
            .entry(self.turn)
            .or_insert_with(|| fresh.clone())
            .prev_pos = Some(end);
    }

    fn on_fault(&mut self, ask: &Ask<'_>, map: &Mapping, answer: &mut Answer) {
        let touch = touch_of(ask, map);
        self.decide((ask, touch.page), answer, |reader, sight| {
            reader.fault(sight, &touch)
        });
    }

    fn on_fault_hit(&mut self, ask: &Ask<'_>, map: &Mapping, _marked: bool, answer: &mut Answer) {
        let touch = touch_of(ask, map);
        let folio = self.marked_at(ask, touch.page);
        if folio.is_none() {
            // Mapped without asking the policy (4.10, row 1).
            return;
        }
        self.decide((ask, touch.page), answer, |reader, sight| {
            reader.fault_hit(sight, &touch, folio)
        });
        folio
            .into_iter()
            .for_each(|folio| self.use_up(folio, answer));
    }

    fn marked_runs(&self, first: u64) -> u16 {
        let is_marked = |n: &u64| self.folios.at(first + n).is_some_and(|folio| folio.marked);
        (0..16).filter(is_marked).fold(0, |mask, n| mask | 1 << n)
    }

    fn on_mapped(&mut self, pages: u64) {
        if let Some(reader) = self.readers.get_mut(&self.turn) {
            reader.mapped(pages);
        }
    }

    fn on_advice(&mut self, ask: &Ask<'_>, advice: Advice, answer: &mut Answer) {
        // A hint is not about a particular page.
        self.decide((ask, 0), answer, |reader, _| {
            reader.hint(advice, hinted(ask))
        });
    }

    fn on_outcome(&mut self, outcome: &Outcome) {
        if let (Outcome::Failed { demand: true, .. }, Some(reader)) =
            (outcome, self.readers.get_mut(&self.turn))
        {
            reader.read_error();
        }
    }
}
