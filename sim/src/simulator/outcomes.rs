//! Which reads of a simulated run hit, were late or missed, and where, and which readahead was unused: a map of
//! offset by the number of the read, of a size that does not grow with the run.
//!
//! It looks at the machine's actions and changes nothing. Off unless asked for ([`super::run_mapped`]); then it costs a
//! note for each page in the cache. A column is a number of reads that doubles whenever the run has more reads than all
//! columns together: neighbours are then added up. Offsets beyond the rows count in the outermost one. Reads count in the
//! order in which they were served. Example: of 1,000 reads 910 hit in no time and 90 miss for 10 ms each; by time the misses
//! would fill the map, by reads the hits fill 91 % of it, as they should.
//!
//! ```text
//!   Serve  ──► verdict of the read ──► cell of (its number, where its last piece begins)
//!   Submit ──► pages of the cache, with the read ──Serve──► used
//!                                                ──Drop───► unless used: unused ──► cell of (the read before its fetch, where)
//! ```
//! Never: a guess. The totals are the machine's own counters, and a test holds it.

use crate::workload::Workload;
use foreread_core::event::Action;
use foreread_core::machine::{Machine, Verdict};
use foreread_core::units::{ByteRange, PageSize};
use std::collections::BTreeMap;

/// Columns of reads; between half of them and all are in use once there are as many reads.
pub const COLUMNS: usize = 128;
/// Rows of offsets.
pub const ROWS: usize = 48;

/// What happened to some consecutive reads in one stretch of the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// Reads that found every page present.
    pub hits: u64,
    /// Reads that waited for a page in flight and missed none.
    pub late: u64,
    /// Reads that met a page neither present nor in flight.
    pub misses: u64,
    /// Bytes fetched and dropped, or left at the end, before any read wanted them.
    pub unused_bytes: u64,
}

impl Cell {
    fn add(&mut self, other: Cell) {
        self.hits += other.hits;
        self.late += other.late;
        self.misses += other.misses;
        self.unused_bytes += other.unused_bytes;
    }

    pub fn is_empty(&self) -> bool {
        *self == Cell::default()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct OutcomeMap {
    pub reads: u64,
    pub column_reads: u64,
    /// The bytes that the rows cover. Files lie one after the other.
    pub bytes: ByteRange,
    /// [`ROWS`] cells of lowest to highest offset for each column, [`COLUMNS`] at most.
    pub columns: Vec<[Cell; ROWS]>,
}

impl OutcomeMap {
    /// All cells together.
    pub fn total(&self) -> Cell {
        let mut total = Cell::default();
        self.columns
            .iter()
            .flatten()
            .for_each(|cell| total.add(*cell));
        total
    }

    /// The cells of the columns in `parts` spans of reads, added up.
    pub fn spans(&self, parts: usize) -> Vec<Cell> {
        let each = self.columns.len().div_ceil(parts.max(1)).max(1);
        let sum = |columns: &[[Cell; ROWS]]| {
            let mut total = Cell::default();
            columns.iter().flatten().for_each(|cell| total.add(*cell));
            total
        };
        self.columns.chunks(each).map(sum).collect()
    }
}

/// 64 pages of the cache.
struct Group {
    /// Fetched and not dropped.
    here: u64,
    /// Served to a read.
    used: u64,
    /// How many reads had been served when each was fetched.
    at: [u64; 64],
}

pub struct Outcomes {
    page: PageSize,
    /// Where each file begins when they lie one after the other, and how long it is.
    files: Vec<(u64, u64)>,
    bytes: ByteRange,
    span: u64,
    /// Reads that were served.
    served: u64,
    columns: Vec<[Cell; ROWS]>,
    cached: BTreeMap<(u32, u64), Box<Group>>,
}

impl Outcomes {
    pub fn new(workload: &Workload, page: PageSize) -> Outcomes {
        let mut files = Vec::new();
        let mut base = 0_u64;
        for size in &workload.files {
            files.push((base, *size));
            base = base.saturating_add(*size);
        }
        let (mut first, mut end) = (u64::MAX, 0);
        for job in &workload.jobs {
            let base = files.get(job.file as usize).map_or(0, |f| f.0);
            for request in job.requests.iter().filter(|r| r.demands()) {
                let start = base.saturating_add(request.offset);
                (first, end) = (first.min(start), end.max(start.saturating_add(request.len)));
            }
        }
        let bytes = ByteRange::between(first.min(end), end);
        Outcomes {
            page,
            files,
            bytes,
            span: 1,
            served: 0,
            columns: Vec::new(),
            cached: BTreeMap::new(),
        }
    }

    /// An action of the machine, before it is carried out.
    pub fn see(&mut self, action: &Action, machine: &Machine) {
        let served = self.served;
        match *action {
            Action::Submit { file, range, .. } => self.each_group(file.0, range, |group, pages| {
                group.here |= pages;
                group.used &= !pages;
                bits(pages).for_each(|page| group.at[page] = served);
            }),
            Action::Serve {
                lease,
                file,
                range,
                last,
                ..
            } => {
                self.each_group(file.0, range, |group, pages| group.used |= pages);
                let Some(verdict) = machine.verdict(lease).filter(|_| last && !range.is_empty())
                else {
                    return;
                };
                let cell = self.cell(served, file.0, range.start());
                match verdict {
                    Verdict::Hit => cell.hits += 1,
                    Verdict::Late => cell.late += 1,
                    Verdict::Miss => cell.misses += 1,
                }
                self.served += 1;
            }
            Action::Drop {
                file,
                number,
                pages,
                ..
            } => {
                let Some(group) = self.cached.get_mut(&(file.0, number)) else {
                    return;
                };
                let unused = group.here & !group.used & pages;
                group.here &= !pages;
                let (at, gone) = (group.at, group.here == 0);
                if gone {
                    self.cached.remove(&(file.0, number));
                }
                self.unused(file.0, number, unused, &at);
            }
            _ => {}
        }
    }

    /// A page that is mapped was touched: no read, but a use.
    pub fn touched(&mut self, file: u32, at: u64) {
        let page = self.page.page_of(at);
        if let Some(group) = self.cached.get_mut(&(file, page / 64)) {
            group.used |= 1 << (page % 64);
        }
    }

    pub fn finish(mut self) -> OutcomeMap {
        for ((file, number), group) in std::mem::take(&mut self.cached) {
            self.unused(file, number, group.here & !group.used, &group.at);
        }
        OutcomeMap {
            reads: self.served,
            column_reads: self.span,
            bytes: self.bytes,
            columns: self.columns,
        }
    }

    fn each_group(&mut self, file: u32, range: ByteRange, see: impl Fn(&mut Group, u64)) {
        let pages = self.page.cover(range);
        for number in pages.first / 64..pages.end.div_ceil(64) {
            let (low, high) = (
                pages.first.max(number * 64) % 64,
                pages.end.min(number * 64 + 64) - number * 64,
            );
            let mask = (u64::MAX << low) & (u64::MAX >> (64 - high));
            let empty = || {
                Box::new(Group {
                    here: 0,
                    used: 0,
                    at: [0; 64],
                })
            };
            see(
                self.cached.entry((file, number)).or_insert_with(empty),
                mask,
            );
        }
    }

    fn unused(&mut self, file: u32, number: u64, pages: u64, at: &[u64; 64]) {
        let size = self.files.get(file as usize).map_or(0, |f| f.1);
        for page in bits(pages) {
            let start = self.page.start_of(number * 64 + page as u64);
            let bytes = size.saturating_sub(start).min(self.page.bytes());
            self.cell(at[page], file, start).unused_bytes += bytes;
        }
    }

    fn cell(&mut self, at: u64, file: u32, offset: u64) -> &mut Cell {
        while at / self.span >= COLUMNS as u64 {
            self.span *= 2;
            let both = |pair: &[[Cell; ROWS]]| {
                let mut sum = pair[0];
                pair[1..]
                    .iter()
                    .for_each(|other| sum.iter_mut().zip(other).for_each(|(a, b)| a.add(*b)));
                sum
            };
            self.columns = self.columns.chunks(2).map(both).collect();
        }
        let column = (at / self.span) as usize;
        if self.columns.len() <= column {
            self.columns.resize(column + 1, [Cell::default(); ROWS]);
        }
        let base = self.files.get(file as usize).map_or(0, |f| f.0);
        let above = base
            .saturating_add(offset)
            .saturating_sub(self.bytes.start());
        let row = u128::from(above) * ROWS as u128 / u128::from(self.bytes.len().max(1));
        &mut self.columns[column][(row as usize).min(ROWS - 1)]
    }
}

/// The bits that are set, from the lowest.
pub fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = mask.trailing_zeros() as usize;
        mask &= mask.wrapping_sub(1);
        (bit < 64).then_some(bit)
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Setup, run, run_mapped};
    use super::*;
    use crate::device::presets;
    use crate::workload::{self, Request};
    use foreread_core::machine::Config;
    use foreread_core::policy::PolicySpec;

    /// Pages of a mapped file, each once and in no order.
    fn touches(size: u64) -> Workload {
        let pages = size / Workload::PAGE_BYTES;
        let touch = |n| Request::touch(n * 2731 % pages * Workload::PAGE_BYTES);
        Workload::single("touches", size, 1, (0..pages).map(touch).collect())
    }

    /// The totals are the machine's counters, whatever the policy, the page and the room, and looking on changes nothing.
    #[test]
    fn the_map_adds_up_to_the_counters() {
        let cases = [
            ("sequential", "linux-6.18", 4096, 64 << 20),
            ("random", "linux-6.18:max=1M", 4096, 2 << 20),
            ("interleaved", "rbd-plain", 512, 4 << 20),
            ("touches", "linux-6.18", 4096, 16 << 20),
            ("backward", "none", 4096, 1 << 20),
        ];
        for (name, policy, page, cache) in cases {
            let workload = match workload::parse(name) {
                Ok(chosen) => chosen.build(chosen.info.least_bytes.max(32 << 20), 3),
                Err(_) => Ok(touches(32 << 20)),
            };
            let workload = workload.expect("it fits");
            let policy = PolicySpec::parse(policy).expect("a policy");
            let preset = presets::find("rbd").expect("a preset");
            let config = Config::new(PageSize::new(page).expect("a page"), cache).bounded();
            let setup = Setup {
                workload: &workload,
                policy: &policy,
                config,
                host_ns_per_kib: 100,
            };
            let plain = run(&setup, preset.build(1));
            let (seen, map) = run_mapped(&setup, preset.build(1));
            assert_eq!(
                (plain.stats, plain.time_s),
                (seen.stats, seen.time_s),
                "{name}"
            );
            let (total, stats) = (map.total(), seen.stats);
            assert_eq!(
                (total.hits, total.late, total.misses),
                (stats.hits, stats.late_hits, stats.misses),
                "{name}"
            );
            assert_eq!(
                total.unused_bytes,
                stats.unused_bytes + stats.unresolved_bytes,
                "{name}"
            );
            assert!(
                total.hits + total.misses > 0 && map.columns.len() <= COLUMNS,
                "{name}"
            );
            assert_eq!(map.reads, total.hits + total.late + total.misses, "{name}");
            assert!(
                map.columns.len() > COLUMNS / 2,
                "{name}: {} columns",
                map.columns.len()
            );
            // Every column has its share of the reads, however long they took: the last one has the rest.
            for column in &map.columns[..map.columns.len() - 1] {
                let reads: u64 = column.iter().map(|c| c.hits + c.late + c.misses).sum();
                assert_eq!(reads, map.column_reads, "{name}");
            }
            let spans = map.spans(8);
            assert!(
                spans.len() <= 8 && spans.iter().map(|c| c.hits).sum::<u64>() == total.hits,
                "{name}"
            );
        }
    }

    #[test]
    fn many_reads_and_a_far_offset_stay_inside() {
        let workload = workload::parse("sequential")
            .expect("a workload")
            .build(1 << 20, 1)
            .expect("it fits");
        let mut outcomes = Outcomes::new(&workload, PageSize::new(4096).expect("a page"));
        outcomes.cell(0, 0, 0).hits += 1;
        outcomes.cell(COLUMNS as u64 - 1, 0, (1 << 20) - 1).late += 1;
        assert_eq!((outcomes.columns.len(), outcomes.span), (COLUMNS, 1));
        outcomes.cell(COLUMNS as u64, 0, u64::MAX).misses += 1;
        assert_eq!(
            (outcomes.columns.len(), outcomes.span),
            (COLUMNS / 2 + 1, 2)
        );
        outcomes.cell(u64::MAX, 7, 0).misses += 1;
        let map = outcomes.finish();
        assert!(map.columns.len() <= COLUMNS);
        assert_eq!(
            map.total(),
            Cell {
                hits: 1,
                late: 1,
                misses: 2,
                unused_bytes: 0
            }
        );
        assert_eq!(
            map.columns[0][0].hits
                + map.columns[0][ROWS - 1].late
                + map.columns[0][ROWS - 1].misses,
            3
        );
    }
}
