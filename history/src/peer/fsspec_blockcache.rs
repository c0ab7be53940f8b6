//! `peer-fsspec-blockcache`: the `blockcache` of fsspec, whole blocks, of which the latest 32 are kept.
//!
//! A read fetches every block that it touches and that is not kept; nothing is read before it is missed.
//!
//! ```text
//!   │    block    │    block    │    block    │
//!              ├─ read ─┤                        both blocks whole, then the least recently used of 33 leaves
//! ```
//!
//! Source: descriptions of fsspec 2026.9.0 and measurements of it, 2026. Known wrong, as it is: small random reads
//! fetch a block each, and the first read of each block waits for it.
//! Reproduced: what is fetched, what is kept. Not reproduced: the original waits for whole blocks.

use super::{BLOCK, give_up, read, round_out, wanted};
use foreread_core::policy::{Answer, Ask, Info, Param, Policy, Scope, Unit, Wants};

/// The blocks of one open file.
struct Blocks {
    block: u64,
    most: usize,
    /// Starts of the blocks that are kept, the least recently used first.
    kept: Vec<u64>,
}

impl Policy for Blocks {
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
        let (from, to) = round_out(start, end, self.block);
        for at in (from..to).step_by(self.block as usize) {
            let before = self.kept.len();
            self.kept.retain(|b| *b != at);
            if self.kept.len() == before {
                read(answer, at, (at + self.block).min(ask.file_size));
            }
            self.kept.push(at);
            if self.kept.len() > self.most {
                let old = self.kept.remove(0);
                give_up(ask, answer, old, old + self.block);
            }
        }
    }
}

pub static INFO: Info = Info {
    name: "peer-fsspec-blockcache",
    summary: "fsspec's blockcache: whole blocks, the least recently used leaves",
    origin: "an imitation of fsspec 2026.9.0 by its description and measurements, 2026",
    scope: Scope::Open,
    page_bytes: None,
    params: &[
        Param {
            range: (64 << 10, 1 << 40),
            ..BLOCK
        },
        Param {
            key: "blocks",
            unit: Unit::Count,
            default: "32",
            range: (1, 1024),
            help: "blocks that are kept",
        },
    ],
    build: |v| {
        Box::new(Blocks {
            block: v[0],
            most: v[1] as usize,
            kept: Vec::new(),
        })
    },
};
