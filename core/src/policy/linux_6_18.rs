//! `linux-6.18`: file readahead of the current kernel.
//!
//! A read of an absent page starts a window (`sync`), and a read of the page with the readahead mark starts the next window (`async`).
//! The policy keeps one window for each open file description; a stream that has lost its state is recognised by the pages that it left
//! in the cache (rule `context`). `linux_6_18_reader` makes the decisions. This file applies the decisions page by page, as on a file
//! system without large folios; `linux_6_18_large` applies them with large folios.
//!
//! ```text
//!   folios=off   Pages   one KernelReader; its windows are read page by page, its marks are the cache's
//!   folios=on    Large   one KernelReader for each open description ─┐
//!                        one index of folios for the file  ────┴─► placement ─► windows; its marks are the index's
//! ```
//!
//! This policy maps no pages. The driver does fault-around (it maps the cached pages near a fault), which affects this policy only by
//! lowering its count of misses.
//!
//! Source: docs/spec/linux-readahead.md 4, checked against a running 6.18 kernel.

use super::{
    Answer, Ask, Info, Outcome, Param, Policy, Scope, Wants,
    folios::Folio,
    linux_6_18_large::Large,
    linux_6_18_reader::{KernelReader, touch_of},
    linux_6_18_todo::Todo,
    ondemand::{MAX, PAGE, SIZES, clip, fetch, hinted, wanted},
};
use crate::event::{Advice, Mapping};
use alloc::boxed::Box;

/// One open description without folios.
struct Pages(KernelReader);

impl Pages {
    fn carry_out(&mut self, todo: Todo, ask: &Ask<'_>, answer: &mut Answer) {
        answer.why = self.0.why.take();
        match todo {
            Todo::Nothing => {}
            Todo::Keep => answer.keep_mark = true,
            Todo::Place { at, window } => {
                self.0.placed(0);
                // Clipping shortens the window but not the lookahead: the mark moves towards the front, and disappears
                // if it would be before it.
                let (nr, lookahead) = (clip(ask, at, window.size), window.async_size);
                let mark = (1..=nr).contains(&lookahead).then(|| at + nr - lookahead);
                fetch(ask, at, nr, mark, answer);
            }
            Todo::Fetch { .. } | Todo::Force { .. } => {
                todo.pieces(0)
                    .for_each(|(i, nr)| fetch(ask, i, nr, None, answer));
            }
        }
    }
}

impl Policy for Pages {
    fn wants(&self) -> Wants {
        Wants {
            read_end: true,
            outcome: true,
            around: true,
            ..Wants::default()
        }
    }

    fn on_miss(&mut self, ask: &Ask<'_>, answer: &mut Answer) {
        let pages = wanted(ask);
        let todo = self.0.sync(&ask, pages.first, pages.len());
        self.carry_out(todo, ask, answer);
    }

    fn on_mark(&mut self, ask: &Ask<'_>, answer: &mut Answer) {
        let pages = wanted(ask);
        let folio = Folio {
            first: pages.first,
            order: 0,
            marked: true,
        };
        let todo = self.0.follow(&ask, folio, pages.first, pages.len());
        self.carry_out(todo, ask, answer);
    }

    fn on_read_end(&mut self, end: u64) {
        self.0.prev_pos = Some(end);
    }

    fn on_fault(&mut self, ask: &Ask<'_>, map: &Mapping, answer: &mut Answer) {
        let todo = self.0.fault(&ask, &touch_of(ask, map));
        self.carry_out(todo, ask, answer);
    }

    fn on_fault_hit(&mut self, ask: &Ask<'_>, map: &Mapping, marked: bool, answer: &mut Answer) {
        if !marked {
            // Mapped without asking the policy (4.10, row 1).
            return;
        }
        let touch = touch_of(ask, map);
        let folio = Folio {
            first: touch.page,
            order: 0,
            marked,
        };
        let todo = self.0.fault_hit(&ask, &touch, Some(folio));
        self.carry_out(todo, ask, answer);
    }

    fn on_mapped(&mut self, pages: u64) {
        self.0.mapped(pages);
    }

    fn on_advice(&mut self, ask: &Ask<'_>, advice: Advice, answer: &mut Answer) {
        let todo = self.0.hint(advice, hinted(ask));
        self.carry_out(todo, ask, answer);
    }

    fn on_outcome(&mut self, outcome: &Outcome) {
        if let Outcome::Failed { demand: true, .. } = outcome {
            self.0.read_error();
        }
    }
}

/// `linux-6.18`: file readahead of the current kernel.
pub static INFO: Info = Info {
    name: "linux-6.18",
    summary: "the current kernel's on-demand and context readahead, with large folios or page by page",
    origin: "Linux 6.18 mm/readahead, as specified from its tracepoints",
    scope: Scope::Open,
    page_bytes: Some(PAGE),
    params: &[
        MAX,
        Param::bytes(
            "io",
            "1280K",
            SIZES,
            "max_sectors_kb: a request above max may get a window up to this size",
        ),
        Param::word(
            "folios",
            &["off", "on"],
            "off",
            "place windows in large folios, as ext4 and xfs do",
        ),
    ],
    build: |v| {
        let reader = KernelReader::new(v[0] / PAGE, v[1] / PAGE);
        if v[2] == 0 {
            return Box::new(Pages(reader));
        }
        Box::new(Large::new(reader))
    },
};
