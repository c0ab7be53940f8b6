//! The level *pages* of `conform linux`: executes a test sequence (episode) on the engine's state machine, with a cache that is empty at
//! the start and never evicts.
//!
//! This level does not compare a policy's decisions, but only their results: the fetched pages and the readahead marks in the cache.
//!
//! ```text
//!   op ──► event ──► machine ──► Submit (answered at once): pages added     marks: the machine's cache
//! ```

use super::recording::{Act, Op, PAGE};
use foreread_core::event::{Advice, Event};
use foreread_core::machine::{Config, Machine};
use foreread_core::policy::PolicySpec;
use foreread_core::units::{ByteRange, FileId, Nanos, OpenId, PageSize, ReadId};
use foreread_sim::time_queue;
use std::collections::BTreeSet;

pub struct PageMachine {
    machine: Machine,
    size: u64,
    reads: u64,
}

impl PageMachine {
    /// Creates the state of a file of `size` bytes with `fds` new descriptors and no cached pages.
    pub fn new(policy: PolicySpec, size: u64, fds: u32) -> PageMachine {
        let page = PageSize::new(PAGE).unwrap_or_else(|| unreachable!("4096 is a page size"));
        // Room for twice the file, because the kernel evicted nothing that the recording does not list.
        let mut config = Config::new(page, 4 * size + (64 << 20));
        config.max_fetch_bytes = 1 << 30;
        config.max_in_flight = 1 << 16;
        config.max_ahead_in_flight = (1 << 16) - 1;
        let mut machine = Machine::new(config, policy);
        for fd in 0..fds {
            machine.handle(Nanos(0), Event::open(OpenId(fd), FileId(0), size));
        }
        PageMachine {
            machine,
            size,
            reads: 0,
        }
    }

    /// Executes one operation. Returns the pages that the operation fetched, and those of them that have the readahead
    /// mark.
    pub fn play(&mut self, op: &Op, act: Act) -> (BTreeSet<u64>, BTreeSet<u64>) {
        let open = OpenId(op.fd);
        let end = if op.len == 0 {
            self.size.max(op.off)
        } else {
            op.off + op.len
        };
        let range = ByteRange::between(op.off, end);
        let event = match act {
            Act::Read => {
                self.reads += 1;
                let range = ByteRange::between(op.off, op.off + op.len);
                Event::read(ReadId(self.reads), open, range)
            }
            Act::WillNeed => Event::Advise {
                open,
                advice: Advice::WillNeed,
                range,
            },
            Act::Hint(advice) => Event::Advise {
                open,
                advice,
                range,
            },
            // The effect of dropping is in the recording, because it depends on what else held the pages.
            Act::Other | Act::Map { .. } | Act::Touch => return Default::default(),
        };
        let added = self.send(event);
        let marked = |page: &u64| {
            self.machine.cache().group(FileId(0), page / 64).marked() >> (page % 64) & 1 != 0
        };
        let marks = added.iter().copied().filter(marked).collect();
        (added, marks)
    }

    /// Removes from the cache the pages of those folios that the kernel has evicted.
    pub fn evict(&mut self, evicted: &[(u64, u32)]) {
        for &(first, order) in evicted {
            let range = ByteRange::between(first * PAGE, (first + (1 << order)) * PAGE);
            self.send(Event::Invalidate {
                file: FileId(0),
                range,
            });
        }
    }

    /// Sends an event and answers every fetch at once. Returns the pages fetched.
    fn send(&mut self, event: Event) -> BTreeSet<u64> {
        let mut pages = BTreeSet::new();
        time_queue::tell(&mut self.machine, event, |range| {
            pages.extend(range.start() / PAGE..range.end().div_ceil(PAGE));
        });
        pages
    }
}
