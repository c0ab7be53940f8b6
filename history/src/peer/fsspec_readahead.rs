//! `peer-fsspec-readahead`: the `readahead` cache of fsspec, the usual one of its remote files.
//!
//! A single buffer. A read that does not lie in it replaces it with what is asked for and a block more; a read that
//! begins in it and reaches beyond its end goes on from there. Nothing is read before it is missed.
//!
//! ```text
//!   ├── read ──┼──────────── block ────────────┤   the buffer; the next read outside gives all of it up
//! ```
//!
//! Source: descriptions of fsspec 2026.9.0 and measurements of it, 2026. Known wrong, as it is: two interleaved
//! streams, or random reads, give up a block at each read.
//! Reproduced: what is fetched, what is given up. Not reproduced: the original waits for the whole fetch before it
//! serves the reader, and with it everything that is given up has been waited for; what a read that crosses the
//! buffer's end does is described nowhere, and is read here as going on.

use super::{BLOCK, give_up, read, wanted};
use foreread_core::policy::{Answer, Ask, Info, Policy, Scope, Wants};

/// The buffer of one open file.
struct OneBuffer {
    block: u64,
    start: u64,
    end: u64,
}

impl Policy for OneBuffer {
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
        if self.start <= start && end <= self.end {
            return;
        }
        let begins_inside = (self.start..self.end).contains(&start);
        let from = if begins_inside { self.end } else { start };
        give_up(
            ask,
            answer,
            self.start,
            if begins_inside { start } else { self.end },
        );
        (self.start, self.end) = (start, (end + self.block).min(ask.file_size));
        read(answer, from, self.end);
    }
}

pub static INFO: Info = Info {
    name: "peer-fsspec-readahead",
    summary: "fsspec's readahead cache: one buffer, a block beyond what was missed",
    origin: "an imitation of fsspec 2026.9.0 by its description and measurements, 2026",
    scope: Scope::Open,
    page_bytes: None,
    params: &[BLOCK],
    build: |v| {
        Box::new(OneBuffer {
            block: v[0],
            start: 0,
            end: 0,
        })
    },
};
