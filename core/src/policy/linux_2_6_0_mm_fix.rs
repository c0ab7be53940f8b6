//! `linux-2.6.0-mm-fix`: that tree with the patch of seed 003, which reads at least what is asked for, in one piece.
//!
//! As `linux-2.6.0-mm`; when the window has shrunk away after the announcement, the pages of the request count as
//! missed at once, and all of them are read together. The windows know nothing of that read.
//!
//! ```text
//!   look(first) .. look(last-1)    off?   missed(first) .. missed(last-1)    ├── first .. last: one read ──┤
//! ```
//!
//! Source: seed 003 (Bhattacharya, August 2003), spec linux-readahead section 1.3. `request_size=on` is the other way
//! that its author names, in a reading of our own since it was never written: the request turns readahead on again as
//! a whole, so none of its pages is then taken for an evicted one, and a page missed while it is off counts nothing.

use super::{
    Ask, DemandMode, Info, Param, Plan, Policy, Scope, Unit, Wants,
    ondemand::{MAX, PAGE},
    two_windows::{MIN, TwoWindows, announced, start_reading, will_need},
};
use crate::event::Advice;
use alloc::boxed::Box;

/// The windows, and who turns them on again.
struct Fixed {
    windows: TwoWindows,
    request_size: bool,
}

impl Policy for Fixed {
    fn demand_mode(&self) -> DemandMode {
        DemandMode::PageSerial
    }

    fn wants(&self) -> Wants {
        Wants { read: true, ..Wants::default() }
    }

    fn on_read(&mut self, ask: &Ask<'_>, plan: &mut Plan) {
        let pages = announced(ask);
        pages.clone().for_each(|p| self.windows.look(p, ask, plan));
        if pages.is_empty() || !self.windows.is_off() {
            return;
        }
        if self.request_size {
            self.windows.missed_request(&pages);
        } else {
            pages.clone().for_each(|p| self.windows.missed(p));
        }
        start_reading(pages.start, pages.end - pages.start, ask, plan);
    }

    fn on_miss(&mut self, ask: &Ask<'_>, _plan: &mut Plan) {
        if !(self.request_size && self.windows.is_off()) {
            self.windows.missed(ask.at / PAGE);
        }
    }

    fn on_advice(&mut self, ask: &Ask<'_>, advice: Advice, plan: &mut Plan) {
        if advice == Advice::WillNeed {
            will_need(ask, plan);
        }
    }
}

/// See the head of this file.
pub static INFO: Info = Info {
    name: "linux-2.6.0-mm-fix",
    summary: "as linux-2.6.0-mm, but a request is read in one piece when the window has shrunk away",
    origin: "seed 003: AIO read speedup, August 2003",
    scope: Scope::Open,
    page_bytes: Some(PAGE),
    params: &[
        MAX,
        MIN,
        Param {
            key: "request_size",
            unit: Unit::Word(&["off", "on"]),
            default: "off",
            range: (0, 1),
            help: "on: the request as a whole turns readahead on again",
        },
    ],
    build: |v| Box::new(Fixed { windows: TwoWindows::new(v[0], v[1]), request_size: v[2] == 1 }),
};
