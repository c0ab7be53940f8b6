//! `linux-6.18:folios=on`: the current kernel's readahead where the file system makes large folios.
//!
//! The index shadows the cache: it holds the folios that are large or marked, and one of which a page is cached no
//! more is gone. A mark counts for its whole folio; the cache's mark, on the folio's first page, only raises the
//! question. Never: a folio of another size than the kernel's with blocks of one page; fault-around, which belongs to
//! the mapping.
//!
//! ```text
//!   KernelReader (of an open description) ─► window ─► placement ─► folios ─┬─► index of the file
//!                    ▲ probes, marks: what is cached, index ◄─────────┴─► one range to read, its mark
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

/// Folios of a file with huge pages built in, and blocks of one page (4.1).
const SHAPE: Shape = Shape {
    large: true,
    min_order: 0,
    max_order: 9,
};

/// The index is swept of folios that are gone when it has grown to this, and again at twice what was left.
const SWEEP_AT: usize = 1024;

/// With folios: one file and all its open descriptions.
pub struct Large {
    fresh: KernelReader,
    readers: BTreeMap<OpenId, KernelReader>,
    turn: OpenId,
    folios: Folios,
    sweep_at: usize,
}

impl Large {
    /// The file is not open and nothing of it is cached. `fresh` is the state of a new open description.
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

    /// The same, if it bears the mark.
    fn marked_at(&mut self, ask: &Ask<'_>, page: u64) -> Option<Folio> {
        self.folio_at(ask, page).filter(|folio| folio.marked)
    }

    /// Puts a question about page `at` to the reader whose turn it is, and carries out the answer.
    fn decide(
        &mut self,
        (ask, at): (&Ask<'_>, u64),
        answer: &mut Answer,
        question: impl FnOnce(&mut KernelReader, &&Ask<'_>) -> Todo,
    ) {
        // The history begins in the folio before; that has to be there. A search for a hole begins in a folio that was met.
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
            SHAPE.fetch(
                &ask,
                end,
                Raw {
                    index: i,
                    nr,
                    lookahead: 0,
                },
                &mut placed,
            );
            fetch(ask, i, nr, None, answer);
        }
        self.remember(ask, &placed);
    }

    /// Keeps what is large or marked of what is going to be cached; what was there before is gone.
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

/// One range for each window, whatever its folios; what of it is cached the machine leaves out.
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

    /// The cache's mark is on the first page of a folio; a read that begins behind that page finds it here.
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
            // Mapped without a question (4.10, row 1).
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
        // A hint is about no page in particular.
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
