//! `linux-2.6.0-mm`: the experimental tree of August 2003, which announces a whole request before it reads it.
//!
//! As `linux-2.6.0`, but all pages of the request are looked at first; then they are read page by page.
//!
//! ```text
//!   look(first) look(first+1) .. look(last-1)   then   page, wait, page, wait, ..
//!   ├── windows that these start ──┤                   while it is off: all of them alone
//! ```
//!
//! Source: spec linux-readahead sections 1.1 to 1.3, seed 003 (the state that its patch mends). Known wrong, as it was:
//! the request is known as a whole, and yet, once the window has shrunk away, it goes out one page at a time.

use super::{
    Ask, DemandMode, Info, Plan, Policy, Scope, Wants,
    ondemand::{MAX, PAGE},
    two_windows::{MIN, TwoWindows, announced, will_need},
};
use crate::event::Advice;
use alloc::boxed::Box;

/// The windows, told of all pages of a request before it is read.
struct Announced(TwoWindows);

impl Policy for Announced {
    fn demand_mode(&self) -> DemandMode {
        DemandMode::PageSerial
    }

    fn wants(&self) -> Wants {
        Wants { read: true, ..Wants::default() }
    }

    fn on_read(&mut self, ask: &Ask<'_>, plan: &mut Plan) {
        announced(ask).for_each(|p| self.0.look(p, ask, plan));
    }

    fn on_miss(&mut self, ask: &Ask<'_>, _plan: &mut Plan) {
        self.0.missed(ask.at / PAGE);
    }

    fn on_advice(&mut self, ask: &Ask<'_>, advice: Advice, plan: &mut Plan) {
        if advice == Advice::WillNeed {
            will_need(ask, plan);
        }
    }
}

/// See the head of this file.
pub static INFO: Info = Info {
    name: "linux-2.6.0-mm",
    summary: "as linux-2.6.0, with the whole request announced first and still read page by page",
    origin: "Linux 2.6.0-test2-mm4, August 2003 (what seed 003 found)",
    scope: Scope::Open,
    page_bytes: Some(PAGE),
    params: &[MAX, MIN],
    build: |v| Box::new(Announced(TwoWindows::new(v[0], v[1]))),
};
