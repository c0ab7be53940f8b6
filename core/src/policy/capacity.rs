//! The maximum readahead for a device of a given capacity: two forms of a formula that were proposed for Linux in 2010. This file is not
//! a policy.
//!
//! Small devices tend to be slow, so the window is proportional to the square root of the capacity, rounded to powers
//! of two. The Linux patch limited the device's readahead setting to this value, once, when the disk was added.
//!
//! ```text
//!   capacity    < 8M   8M   32M   128M   512M   2G    8G    32G   128G        the first posting
//!   capacity    <1M   1M   4M    16M    64M    256M  1G    4G    16G         the later one
//!   window       4K   8K   16K   32K    64K    128K  256K  512K  1M          then every factor of 4 doubles it
//! ```
//!
//! Source: [Wu 2010b], docs/spec/linux-readahead.md 2.6. The original formula has a known fault: it also limits devices that are small
//! but fast. For a capacity below the smallest unit the result is the smallest window; the Linux patch got the same result, but by taking
//! the logarithm of zero. The code uses only integer arithmetic.

use super::ondemand::PAGE;

/// The kernel counts capacities in sectors.
const SECTOR: u64 = 512;

/// The two published forms of the formula for the maximum readahead of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cap {
    /// The first posting, January 2010: units of 2 MiB; a capacity of zero is a small one.
    First,
    /// The later posting: units of 256 KiB; a capacity of zero is an unknown one and limits nothing.
    Later,
}

impl Cap {
    /// The names of the two forms of the formula, in the order of the variants.
    pub const WORDS: &'static [&'static str] = &["capacity", "capacity-2010b"];

    /// The form of the formula that has this name.
    #[must_use]
    pub fn named(word: &str) -> Option<Cap> {
        let at = Cap::WORDS.iter().position(|w| *w == word)?;
        Some([Cap::First, Cap::Later][at])
    }

    /// The maximum window in bytes for a device of `capacity` bytes; `None` if there is no limit.
    #[must_use]
    pub fn bytes(self, capacity: u64) -> Option<u64> {
        let sectors = capacity / SECTOR;
        let units = match self {
            Cap::First => sectors >> 12,
            Cap::Later if sectors == 0 => return None,
            Cap::Later => sectors >> 9,
        };
        let pages = 1 << (units.checked_ilog2().unwrap_or(0) / 2);
        Some(pages * PAGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    /// Both published tables; each row is tested up to the last byte before the next row.
    #[test]
    fn published_tables() {
        let first = [
            2 * MIB,
            8 * MIB,
            32 * MIB,
            128 * MIB,
            512 * MIB,
            2 * GIB,
            8 * GIB,
            32 * GIB,
            128 * GIB,
        ];
        let later = [
            MIB,
            4 * MIB,
            16 * MIB,
            64 * MIB,
            256 * MIB,
            GIB,
            4 * GIB,
            16 * GIB,
        ];
        for (form, smallest, table) in [
            (Cap::First, 4 * KIB, &first[..]),
            (Cap::Later, 8 * KIB, &later[..]),
        ] {
            for (row, &capacity) in table.iter().enumerate() {
                let window = Some(smallest << row);
                assert_eq!(form.bytes(capacity), window, "{capacity}");
                let next = 4 * capacity;
                assert_eq!(form.bytes(next - 1), window, "just below {next}");
            }
        }
    }

    /// The device that led to the patch, capacities below one unit, zero, and the largest capacity.
    #[test]
    fn edges() {
        for capacity in [505_000, 505 * KIB, 2 * MIB - 1, SECTOR, SECTOR - 1, 0] {
            assert_eq!(Cap::First.bytes(capacity), Some(4 * KIB), "{capacity}");
        }
        for capacity in [505_000, 256 * KIB - 1, SECTOR, MIB - SECTOR] {
            assert_eq!(Cap::Later.bytes(capacity), Some(4 * KIB), "{capacity}");
        }
        assert_eq!(
            (Cap::Later.bytes(0), Cap::Later.bytes(SECTOR - 1)),
            (None, None)
        );
        assert_eq!(Cap::First.bytes(u64::MAX), Some(PAGE << 21));
        assert_eq!(Cap::Later.bytes(u64::MAX), Some(PAGE << 22));
    }

    #[test]
    fn words() {
        assert_eq!(
            Cap::WORDS
                .iter()
                .map(|w| Cap::named(w))
                .collect::<alloc::vec::Vec<_>>(),
            [Some(Cap::First), Some(Cap::Later)]
        );
        assert_eq!(Cap::named("Capacity"), None);
    }
}
