//! Streams: chains of reads, each of which begins exactly where the one before it ended.
//!
//! ```text
//!   ends that were reached lately, by file and open ──► a read that begins at one continues its chain,
//!                                                       any other begins a chain; from 2 reads on that is a stream
//! ```
//! Never: more than [`MAX_CHAINS`] chains; the one that was longest not continued is forgotten, and counted.

use super::spread::{Spread, Summary};
use crate::Record;
use std::collections::{HashMap, VecDeque};

/// Chains that may be continued.
pub const MAX_CHAINS: usize = 1 << 16;

type Key = (u32, u32, u64);

#[derive(Clone, Copy, Debug, Default)]
struct Chain {
    reads: u64,
    bytes: u64,
    /// Which touch this was, to tell old entries of the queue.
    touch: u64,
}

/// Follows chains.
#[derive(Debug, Default)]
pub struct Streams {
    chains: HashMap<Key, Chain>,
    order: VecDeque<(Key, u64)>,
    touches: u64,
    /// Reads that continued a chain, and their bytes.
    pub continued: (u64, u64),
    /// Streams that have ended: how many bytes each had.
    ended: Spread,
    /// The most reads of one stream.
    pub longest_reads: u64,
    /// Chains that were forgotten.
    pub forgotten: u64,
}

impl Streams {
    /// The next read of at least one byte; whether it continues a chain.
    pub fn read(&mut self, record: &Record) -> bool {
        let bytes = record.returned.unwrap_or(record.len);
        let key = |at| (record.file, record.open, at);
        let before = self.chains.remove(&key(record.offset));
        let mut chain = before.unwrap_or_default();
        if before.is_some() {
            self.continued = (self.continued.0 + 1, self.continued.1 + bytes);
        }
        self.touches += 1;
        chain = Chain {
            reads: chain.reads + 1,
            bytes: chain.bytes.saturating_add(bytes),
            touch: self.touches,
        };
        let end = key(record.offset.saturating_add(bytes));
        // Two chains that meet go on as one.
        if let Some(other) = self.chains.insert(end, chain) {
            self.close(other);
        }
        self.order.push_back((end, self.touches));
        self.bound();
        before.is_some()
    }

    fn bound(&mut self) {
        let alive = |chains: &HashMap<Key, Chain>, entry: &(Key, u64)| {
            chains
                .get(&entry.0)
                .is_some_and(|chain| chain.touch == entry.1)
        };
        while self.chains.len() > MAX_CHAINS {
            let Some(oldest) = self.order.pop_front() else {
                return;
            };
            if alive(&self.chains, &oldest)
                && let Some(chain) = self.chains.remove(&oldest.0)
            {
                self.forgotten += 1;
                self.close(chain);
            }
        }
        if self.order.len() > 2 * MAX_CHAINS {
            let chains = &self.chains;
            self.order.retain(|entry| alive(chains, entry));
        }
    }

    fn close(&mut self, chain: Chain) {
        if chain.reads >= 2 {
            self.ended.add(chain.bytes);
            self.longest_reads = self.longest_reads.max(chain.reads);
        }
    }

    /// Bytes of the streams, once the trace has ended.
    pub fn end(&mut self) -> Option<Summary> {
        let left: Vec<Chain> = self.chains.drain().map(|(_, chain)| chain).collect();
        left.into_iter().for_each(|chain| self.close(chain));
        self.ended.summary()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interleaved_readers_are_distinguished_and_memory_is_bounded() {
        let mut streams = Streams::default();
        for i in 0..100_u64 {
            for reader in 0..3_u32 {
                let record = Record {
                    open: reader,
                    ..Record::read(0, i * 10, 10)
                };
                assert_eq!(streams.read(&record), i > 0);
            }
            // Random reads: none continues another.
            assert!(!streams.read(&Record::read(1, i * 1000, 10)));
        }
        assert_eq!(streams.continued, (297, 2970));
        // A short read goes on where it stopped.
        streams.read(&Record {
            returned: Some(4),
            ..Record::read(2, 0, 10)
        });
        assert!(streams.read(&Record::read(2, 4, 10)));
        for i in 0..3 * MAX_CHAINS as u64 {
            streams.read(&Record::read(3, i * 1000, 10));
            assert!(streams.chains.len() <= MAX_CHAINS && streams.order.len() <= 2 * MAX_CHAINS);
        }
        assert_eq!(streams.forgotten, 2 * MAX_CHAINS as u64 + 104);
        let bytes = streams.end().expect("streams");
        assert_eq!(
            (bytes.number, bytes.min, bytes.max, streams.longest_reads),
            (4, 14, 1000, 100)
        );
    }

    /// One chain that never moves must not keep the queue from being cleared.
    #[test]
    fn an_idle_chain_costs_nothing() {
        let mut streams = Streams::default();
        streams.read(&Record::read(0, 1 << 40, 10));
        for i in 0..5 * MAX_CHAINS as u64 {
            streams.read(&Record::read(0, i * 10, 10));
            assert!(streams.order.len() <= 2 * MAX_CHAINS);
        }
        assert!(streams.read(&Record::read(0, (1 << 40) + 10, 10)));
    }
}
