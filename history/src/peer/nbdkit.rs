//! `peer-nbdkit`: the readahead filter of nbdkit over its cache filter, as in Debian's 1.32.5.
//!
//! Every read is followed by a window of readahead, right behind it. The window doubles when the read is beyond the
//! start of the latest one, and goes back to its minimum when it does not. That is the wrong way round: a sequential
//! reader begins exactly at that start, and stays at the minimum; one that skips ahead is rewarded each time.
//!
//! ```text
//!      read        window               next read: here, 32 KiB again;  here, or anywhere beyond: twice as much
//!   ├──────────┤├────────────┤                     ▲                                 ▲
//!              ▲                                   │                                 │
//!         last_readahead ──────────────────────────┘
//! ```
//!
//! Source: descriptions and measurements of Debian 12's package, 2026; that the test is against the start of a
//! window, and not its end, follows from the measured bytes of ascending random reads. Reproduced: the test, the
//! window from 32 KiB to 4 MiB, one state for all connections, whole blocks of 64 KiB (the cache filter's).
//! Not reproduced: the cache filter does not keep what a demand read brought, and reads bytes that are in flight a
//! second time (a sequential reader cost the original 1.9 times its bytes); a reader there waits for whole blocks.

use super::{SIZES, read, round_out, wanted};
use foreread_core::policy::{Answer, Ask, Info, Param, Policy, Scope, Unit, Wants};

/// One for all connections.
struct Filter {
    min: u64,
    max: u64,
    block: u64,
    window: u64,
    last_readahead: u64,
}

impl Policy for Filter {
    fn wants(&self) -> Wants {
        Wants {
            read: true,
            ..Wants::default()
        }
    }

    fn on_read(&mut self, ask: &Ask<'_>, answer: &mut Answer) {
        let Some((start, end)) = wanted(ask) else {
            return;
        };
        self.window = if self.last_readahead < start {
            (2 * self.window).min(self.max)
        } else {
            self.min
        };
        let (from, to) = round_out(start, end, self.block);
        read(answer, from, to);
        if end < ask.file_size {
            let (from, to) = round_out(end, end + self.window, self.block);
            read(answer, from, to);
            self.last_readahead = end;
        }
    }
}

pub static INFO: Info = Info {
    name: "peer-nbdkit",
    summary: "nbdkit's readahead filter over its cache filter: a window that grows when the reader skips",
    origin: "an imitation of nbdkit 1.32.5 by its description and measurements of Debian 12's package, 2026",
    scope: Scope::File,
    page_bytes: None,
    params: &[
        Param {
            key: "min",
            unit: Unit::Bytes,
            default: "32K",
            range: SIZES,
            help: "window of a sequential reader",
        },
        Param {
            key: "max",
            unit: Unit::Bytes,
            default: "4M",
            range: SIZES,
            help: "largest window",
        },
        Param {
            key: "block",
            unit: Unit::Bytes,
            default: "64K",
            range: SIZES,
            help: "block of the cache filter",
        },
    ],
    build: |v| {
        Box::new(Filter {
            min: v[0],
            max: v[1],
            block: v[2],
            window: v[0],
            last_readahead: 0,
        })
    },
};
