//! The request sizes that a server accepts (`NBD_INFO_BLOCK_SIZE`).
//!
//! ```text
//!   minimum 64K, maximum 1M          read 100K..1200K
//!   requests                     64K..1088K │ 1088K..1216K       each into a buffer beside, of which 100K..1200K is copied
//! ```
//! A read that keeps to the sizes anyway goes straight into its buffers. A server that names no sizes takes any request of up to
//! 32 MiB, as the protocol has it.

use std::io::IoSliceMut;
use std::ops::Range;

/// Maximum read of one request for servers that name no maximum.
const MAX_REQUEST: u64 = 32 << 20;
/// Largest minimum that the protocol allows.
const MAX_MINIMUM: u64 = 64 << 10;
/// Bytes of a buffer beside the reader's, unless a block is larger.
const BESIDE_BYTES: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// Requests begin and end at its multiples, but for the end of the export. A power of two.
    minimum: u64,
    /// Bytes of a request at most, a multiple of the minimum.
    maximum: u64,
}

impl Blocks {
    /// Any request of up to 32 MiB.
    pub const ANY: Blocks = Blocks {
        minimum: 1,
        maximum: MAX_REQUEST,
    };

    /// The sizes named by a server; `None` if they violate the protocol.
    pub fn of(minimum: u32, maximum: u32) -> Option<Blocks> {
        let minimum = u64::from(minimum);
        let maximum = u64::from(maximum).min(MAX_REQUEST) / minimum.max(1) * minimum;
        let is_legal = minimum.is_power_of_two() && minimum <= MAX_MINIMUM && maximum > 0;
        is_legal.then_some(Blocks { minimum, maximum })
    }

    /// The requests for `wanted` of an export of `size` bytes, and whether they have the very bytes that are wanted.
    pub fn requests(
        self,
        wanted: Range<u64>,
        size: u64,
    ) -> (impl Iterator<Item = Range<u64>>, bool) {
        let start = wanted.start / self.minimum * self.minimum;
        let end = wanted
            .end
            .next_multiple_of(self.minimum)
            .min(size)
            .max(start);
        let fits = (start, end) == (wanted.start, wanted.end);
        let step = if fits {
            self.maximum
        } else {
            self.maximum.min(BESIDE_BYTES.max(self.minimum))
        };
        let step = usize::try_from(step).unwrap_or(usize::MAX);
        (
            (start..end)
                .step_by(step)
                .map(move |at| at..end.min(at + step as u64)),
            fits,
        )
    }
}

/// Copies what `bytes`, read from `offset`, have of the bytes from `wanted` on into `bufs`.
pub fn copy(bytes: &[u8], offset: u64, bufs: &mut [IoSliceMut<'_>], wanted: u64) {
    let mut at = wanted;
    for buf in bufs {
        let (start, end) = (
            at.max(offset),
            (at + buf.len() as u64).min(offset + bytes.len() as u64),
        );
        if start < end {
            let len = (end - start) as usize;
            let (from, to) = ((start - offset) as usize, (start - at) as usize);
            buf[to..to + len].copy_from_slice(&bytes[from..from + len]);
        }
        at += buf.len() as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const K: u64 = 1 << 10;

    /// Their beginnings and ends, and whether they fit.
    fn requests(blocks: Blocks, wanted: Range<u64>, size: u64) -> (Vec<(u64, u64)>, bool) {
        let (requests, fits) = blocks.requests(wanted, size);
        (
            requests
                .map(|request| (request.start, request.end))
                .collect(),
            fits,
        )
    }

    #[test]
    fn requests_keep_to_the_sizes() {
        let blocks = Blocks::of(64 << 10, 1 << 20).expect("legal");
        assert_eq!(
            requests(blocks, 100 * K..1200 * K, 4 << 20),
            (vec![(64 * K, 1088 * K), (1088 * K, 1216 * K)], false)
        );
        assert_eq!(
            requests(blocks, 64 * K..128 * K, 4 << 20),
            (vec![(64 * K, 128 * K)], true)
        );
        // The export ends within a block.
        assert_eq!(
            requests(blocks, 64 * K..70 * K, 70 * K),
            (vec![(64 * K, 70 * K)], true)
        );
        assert_eq!(
            requests(blocks, 69 * K..70 * K, 70 * K),
            (vec![(64 * K, 70 * K)], false)
        );
        // A maximum that is no multiple of the minimum is rounded down.
        let blocks = Blocks::of(512, 1300).expect("legal");
        assert_eq!(
            requests(blocks, 0..2048, 4096),
            (vec![(0, 1024), (1024, 2048)], true)
        );
        assert_eq!(requests(Blocks::ANY, 3..5, 4096), (vec![(3, 5)], true));
    }

    #[test]
    fn sizes_against_the_protocol_are_refused() {
        for (minimum, maximum) in [
            (0, 1 << 20),
            (3, 1 << 20),
            (128 << 10, 1 << 20),
            (4096, 0),
            (4096, 4095),
        ] {
            assert_eq!(Blocks::of(minimum, maximum), None, "{minimum}, {maximum}");
        }
        assert_eq!(Blocks::of(1, u32::MAX), Some(Blocks::ANY));
    }

    #[test]
    fn what_is_wanted_is_copied() {
        let bytes: Vec<u8> = (0..100).collect();
        let (mut one, mut two) = ([0; 5], [0; 10]);
        let mut bufs = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
        copy(&bytes[..10], 1000, &mut bufs, 1003);
        copy(&bytes[10..20], 1010, &mut bufs, 1003);
        assert_eq!(
            (one, two),
            ([3, 4, 5, 6, 7], [8, 9, 10, 11, 12, 13, 14, 15, 16, 17])
        );
    }
}
