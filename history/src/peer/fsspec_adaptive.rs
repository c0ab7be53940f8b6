//! `peer-fsspec-adaptive`: the `adaptive` cache of fsspec, which is gcsfs's prefetcher.
//!
//! From the third read of a run on it reads ahead as many average reads as the run is long: growth is linear, on
//! purpose, in units of what is read. A read anywhere else than in what is still ahead ends the run.
//!
//! ```text
//!      the run so far             position                 end
//!   ├────┼────┼────┼────┼────┤────────┬─────────────────────┤
//!                                     ◄── streak x average ─►  at most 128 MiB, or two reads if those are more
//!       a read back here: reset       a read in here goes on      a read out there: reset
//! ```
//!
//! Source: descriptions of fsspec 2026.9.0 and measurements of it, 2026. Known wrong, as it is: two interleaved
//! streams, pairs out of order, strides and backward reads are never read ahead; small reads make small requests.
//! Reproduced: the run, its growth, its end, and that what is ahead is given up with it. Not reproduced: no more than
//! four requests at once, so that the end of the last window was never asked for (a sequential reader cost the original
//! 1.3 to 1.6 times its bytes, here it is 2); that bytes already read are gone (here they may still be cached).

use super::{SIZES, give_up, read, wanted};
use foreread_core::policy::{Answer, Ask, Info, Param, Policy, Scope, Unit, Wants};

/// The run of one open file.
struct Run {
    max: u64,
    from: u64,
    /// Reads of the run, and their bytes.
    streak: u64,
    bytes: u64,
    /// Where its last read ended, and how far it has been read ahead.
    position: u64,
    end: u64,
}

impl Policy for Run {
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
        if self.streak == 0 || !(self.position..=self.end).contains(&start) {
            give_up(ask, answer, self.position, self.end);
            (self.streak, self.bytes, self.end) = (0, 0, end);
        }
        self.streak += 1;
        self.bytes += end - start;
        (self.position, self.end) = (end, self.end.max(end));
        if self.streak >= self.from {
            let average = self.bytes / self.streak;
            let ahead = (self.streak * average).min(self.max.max(2 * average));
            let to = (end + ahead).min(ask.file_size);
            read(answer, self.end, to);
            self.end = self.end.max(to);
        }
    }
}

pub static INFO: Info = Info {
    name: "peer-fsspec-adaptive",
    summary: "fsspec's adaptive cache (gcsfs's prefetcher): as far ahead as the run is long",
    origin: "an imitation of fsspec 2026.9.0 by its description and measurements, 2026",
    scope: Scope::Open,
    page_bytes: None,
    params: &[
        Param {
            key: "max",
            unit: Unit::Bytes,
            default: "128M",
            range: SIZES,
            help: "most bytes ahead",
        },
        Param {
            key: "from",
            unit: Unit::Count,
            default: "3",
            range: (1, 1 << 20),
            help: "reads before it starts",
        },
    ],
    build: |v| {
        Box::new(Run {
            max: v[0],
            from: v[1],
            streak: 0,
            bytes: 0,
            position: 0,
            end: 0,
        })
    },
};
