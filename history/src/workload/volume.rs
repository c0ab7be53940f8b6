//! Generates the reads of a guest system on a volume from published counts. `virtual_machines.rs` and `boot_ide.rs` share this
//! code.
//!
//! This file is not a workload itself. A [`Shape`] gives the number of reads and blocks, which reads are consecutive in streams that
//! readahead detects, and how many reads may be outstanding.
//!
//! ```text
//!   reads, in order    ├─stream─┤ ├grp┤ ├g┤ ├─grp─┤ | ├g┤ ├──stream──┤ ├grp┤ | ...
//!                      └──────────── zone ────────┘   └───── zone ─────┘
//!   on the volume      the zones scattered over the file; the extents of a zone in another order, with gaps
//! ```
//!
//! **Zones** model directories: blocks that are read together are close together, but not in the order of the reads. Therefore some of the
//! bytes that readahead reads beyond the end of a stream are needed a little later.
//!
//! **Batches** model dependencies between reads. Even a replay at full speed issues a read only after the reads on which it depended in the
//! recording, so fewer reads are outstanding than the queue depth allows. In this workload, reads are submitted in batches, and the next
//! batch begins when the previous batch has arrived completely. In a stream, a batch has `depth` reads, because a guest that reads ahead
//! itself sends several reads at once. Some of the groups outside streams also have such batches; all other batches have one read. If
//! readahead makes reads faster, the next batch begins sooner, as in a replay.
//!
//! No byte is read twice, and every read consists of whole blocks. The reads of an extent (such as a stream) have no gaps between them;
//! two extents always have a gap between them.

use foreread_core::policy::spec::SpecError;
use foreread_sim::rng::Rng;
use foreread_sim::workload::{Job, Request, Workload, check_size};

/// The unit in which a guest's file system places and reads blocks.
const BLOCK_BYTES: u64 = 4096;

/// The longest read: 256 sectors, the maximum of IDE and of a guest's readahead at that time.
const MAX_BLOCKS: u64 = 32;

/// Blocks of a zone that are read: 8 MiB. Chosen with knowledge of the published times, and the same for all three
/// workloads.
const ZONE_BLOCKS: u64 = 2048;

/// Numbers of consecutive reads outside streams without a gap: never enough to be taken for a stream.
const GROUPS: [usize; 10] = [1, 1, 1, 2, 2, 3, 4, 6, 8, 10];
/// The longest of these groups; a longer run is a stream.
const LONGEST_GROUP: usize = 10;

pub struct Shape {
    pub name: &'static str,
    /// The smallest file.
    pub least_bytes: u64,
    /// Number of reads, and the blocks of all of them.
    pub reads: usize,
    /// See `reads`.
    pub blocks: u64,
    /// Streams of more than ten consecutive reads: long enough for a detector that waits for ten. Each row has the number of streams and the
    /// reads of the shortest and of the longest; the others are evenly spaced between them.
    pub streams: &'static [(u64, u64, u64)],
    /// Blocks of a read in a stream: one value for each stream in turn.
    pub stream_blocks: &'static [u64],
    /// Sizes in blocks of reads outside streams; each occurs as often as it is listed. Their total may be a little less
    /// than the blocks left for them, but never more.
    pub other_blocks: &'static [u64],
    pub zone_percent: u64,
    /// Maximum number of outstanding reads.
    pub depth: u32,
    /// The percentage of groups outside streams that are submitted in batches of `depth` reads. Streams always are;
    /// other groups never are.
    pub together_percent: u64,
}

/// An extent: consecutive reads without gaps, each given by its number of blocks.
pub type Extent = Vec<u64>;

impl Shape {
    /// Generates the reads, on a file of `size` bytes.
    pub fn build(&self, size: u64, seed: u64) -> Result<Workload, SpecError> {
        check_size(self.name, size, self.least_bytes)?;
        let mut rng = Rng::new(seed);
        let mut extents = self.long();
        let reads = self.reads - extents.iter().map(Vec::len).sum::<usize>();
        let blocks = self.blocks - extents.iter().flatten().sum::<u64>();
        extents.extend(groups(self.other_blocks, reads, blocks, &mut rng));
        rng.shuffle(&mut extents);
        let starts = place(&extents, self.zone_percent, size / BLOCK_BYTES, &mut rng);
        let mut requests = Vec::with_capacity(self.reads);
        let mut batches = Vec::new();
        for (extent, start) in extents.iter().zip(starts) {
            let mut at = start;
            for &blocks in extent {
                requests.push(Request::read(at * BLOCK_BYTES, blocks * BLOCK_BYTES));
                at += blocks;
            }
            let together = extent.len() > LONGEST_GROUP || rng.below(100) < self.together_percent;
            let most = if together { self.depth as usize } else { 1 };
            batches.extend(
                (0..extent.len())
                    .step_by(most)
                    .map(|done| most.min(extent.len() - done)),
            );
        }
        Ok(self.chain(size, &requests, &batches))
    }

    /// The requests as a chain of jobs: each batch is a job that begins when the previous one has ended. Without
    /// batches there is one job.
    fn chain(&self, size: u64, requests: &[Request], batches: &[usize]) -> Workload {
        if batches.iter().all(|n| *n == 1) {
            return Workload::single(self.name, size, 1, requests.to_vec());
        }
        let mut workload = Workload::on_files(self.name, vec![size]);
        let (mut last, mut rest) = (None, requests);
        for &n in batches {
            let (batch, behind) = rest.split_at(n);
            workload.then(&mut last, Job::new(0, 0, batch.to_vec()).depth(n as u32));
            rest = behind;
        }
        workload
    }

    fn long(&self) -> Vec<Extent> {
        let lengths = self.streams.iter().flat_map(|(count, shortest, longest)| {
            (0..*count).map(move |i| shortest + (longest - shortest) * i / (count - 1).max(1))
        });
        lengths
            .zip(self.stream_blocks.iter().cycle())
            .map(|(n, &blocks)| vec![blocks; n as usize])
            .collect()
    }
}

/// Returns the reads outside streams, in groups of adjacent reads. The sizes come from `table` in random order, and the numbers of reads in
/// a group from `GROUPS`, in turn.
pub fn groups(table: &[u64], reads: usize, blocks: u64, rng: &mut Rng) -> Vec<Extent> {
    let mut sizes: Vec<u64> = table.iter().copied().cycle().take(reads).collect();
    // The table nearly gives the total; some of the reads get one more block to reach it.
    let rest = blocks - sizes.iter().sum::<u64>();
    let room = sizes.iter_mut().filter(|blocks| **blocks < MAX_BLOCKS);
    room.take(rest as usize).for_each(|blocks| *blocks += 1);
    rng.shuffle(&mut sizes);
    let mut extents = Vec::new();
    let mut rest = sizes.as_slice();
    for len in GROUPS.into_iter().cycle() {
        let (group, behind) = rest.split_at(len.min(rest.len()));
        extents.push(group.to_vec());
        rest = behind;
        if rest.is_empty() {
            break;
        }
    }
    extents
}

fn place(extents: &[Extent], zone_percent: u64, blocks: u64, rng: &mut Rng) -> Vec<u64> {
    // One block more than is read, so that no two extents are adjacent.
    let needs: Vec<u64> = extents.iter().map(|e| e.iter().sum::<u64>() + 1).collect();
    let zones = zones(&needs);
    let spans: Vec<u64> = zones
        .iter()
        .map(|zone| zone.iter().sum::<u64>() * 100 / zone_percent)
        .collect();
    let zone_starts = spread(&spans, blocks, rng);
    let mut starts = Vec::with_capacity(extents.len());
    for ((zone, &span), zone_start) in zones.iter().zip(&spans).zip(zone_starts) {
        starts.extend(
            spread(zone, span, rng)
                .into_iter()
                .map(|start| zone_start + start),
        );
    }
    starts
}

/// Divides extents, in reading order, into zones; each zone ends with the extent that fills it.
fn zones(needs: &[u64]) -> Vec<&[u64]> {
    let mut filled = 0;
    let ends_zone = |need: &u64| {
        filled += need;
        let full = filled >= ZONE_BLOCKS;
        filled = if full { 0 } else { filled };
        full
    };
    needs.split_inclusive(ends_zone).collect()
}

/// Returns the start of each part; `needs` has the lengths of the parts, and `span` is the length of the range in which they are
/// placed. The parts follow each other in random order, and the free blocks are distributed between them at random.
pub fn spread(needs: &[u64], span: u64, rng: &mut Rng) -> Vec<u64> {
    let free = span - needs.iter().sum::<u64>();
    let mut gaps: Vec<u64> = needs.iter().map(|_| rng.below(free + 1)).collect();
    gaps.sort_unstable();
    let mut order: Vec<usize> = (0..needs.len()).collect();
    rng.shuffle(&mut order);
    let mut starts = vec![0; needs.len()];
    let mut used = 0;
    for (part, gap) in order.into_iter().zip(gaps) {
        starts[part] = used + gap;
        used += needs[part];
    }
    starts
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        name: "small",
        least_bytes: 64 << 20,
        reads: 200,
        blocks: 1000,
        streams: &[(3, 11, 15), (1, 20, 20)],
        stream_blocks: &[4, 8],
        other_blocks: &[1, 2, 8],
        zone_percent: 70,
        depth: 4,
        together_percent: 50,
    };

    fn reads(seed: u64) -> Vec<Request> {
        let workload = SHAPE.build(SHAPE.least_bytes, seed).expect("fits");
        let jobs = workload.jobs.into_iter();
        jobs.flat_map(|job| job.requests).collect()
    }

    fn sequences(reads: &[Request]) -> Vec<&[Request]> {
        let ends = |a: &Request, b: &Request| a.offset + a.len == b.offset;
        reads.chunk_by(ends).collect()
    }

    #[test]
    fn counts_are_met() {
        let workload = SHAPE.build(SHAPE.least_bytes, 1).expect("fits");
        let counts = (workload.reads(), workload.bytes());
        assert_eq!(counts, (200, 1000 * BLOCK_BYTES));
        let distinct = workload.distinct_bytes(BLOCK_BYTES);
        assert_eq!(distinct, workload.bytes(), "a byte is read twice");
        // The longest has the table's largest and one.
        assert!(
            reads(1)
                .iter()
                .all(|r| { (r.offset | r.len) % BLOCK_BYTES == 0 && r.len <= 9 * BLOCK_BYTES })
        );
        assert_eq!(reads(1), reads(1));
        let too_small = SHAPE.build((64 << 20) - 1, 1).expect_err("too small");
        let expected = "small: size=67108863 is less than the 67108864 bytes that it needs";
        assert_eq!(too_small.to_string(), expected);
    }

    #[test]
    fn streams_and_groups_are_those_of_the_tables() {
        let reads = reads(2);
        let of_length = |keep: fn(usize) -> bool| {
            let mut found = sequences(&reads);
            found.retain(|s| keep(s.len()));
            let found = found.iter().map(|s| (s.len(), s[0].len / BLOCK_BYTES));
            let mut found: Vec<(usize, u64)> = found.collect();
            found.sort_unstable();
            found
        };
        assert_eq!(of_length(|n| n > 10), [(11, 4), (13, 8), (15, 4), (20, 8)]);
        // 200 - 59 reads in groups: three times the 38 reads of the table, and 27 more, of which the last group has 7
        // instead of 8.
        let mut expected = [GROUPS.repeat(3), vec![1, 1, 1, 2, 2, 3, 4, 6, 7]].concat();
        expected.sort_unstable();
        let groups = of_length(|n| n <= 10);
        assert!(groups.iter().map(|g| g.0).eq(expected));
    }

    /// The order of the extents and the sizes within groups are random.
    #[test]
    fn nothing_is_in_the_order_of_the_tables() {
        let lengths =
            |reads: &[Request]| sequences(reads).iter().map(|s| s.len()).collect::<Vec<_>>();
        let (one, two) = (reads(1), reads(2));
        let streams = [11, 13, 15, 20];
        assert_ne!(lengths(&one)[..4], streams, "the streams come first");
        assert_ne!(lengths(&one), lengths(&two));
        let sizes_of_tens = |reads: &[Request]| {
            let tens = sequences(reads).into_iter().filter(|s| s.len() == 10);
            let mut sizes: Vec<Vec<u64>> =
                tens.map(|s| s.iter().map(|r| r.len).collect()).collect();
            sizes.sort_unstable();
            sizes
        };
        assert_ne!(sizes_of_tens(&one), sizes_of_tens(&two));
    }

    /// Streams are in batches of the depth, and so are about half of the groups; the rest is one read after the other.
    /// Each batch begins after the previous one.
    #[test]
    fn batches_follow_each_other() {
        let workload = SHAPE.build(SHAPE.least_bytes, 1).expect("fits");
        for (n, job) in workload.jobs.iter().enumerate() {
            assert_eq!(job.after, (n as u32).checked_sub(1));
            assert_eq!(
                (job.requests.len(), job.open, job.file),
                (job.depth as usize, 0, 0)
            );
            assert!(job.depth <= 4 && sequences(&job.requests).len() == 1);
        }
        let fours = |of: &Workload| of.jobs.iter().filter(|j| j.depth == 4).count();
        // 2 + 3 + 3 + 5 of the streams of 11, 13, 15 and 20 reads.
        assert!((14..28).contains(&fours(&workload)), "{}", fours(&workload));
        let build = |depth, together_percent| {
            let shape = Shape {
                depth,
                together_percent,
                ..SHAPE
            };
            shape.build(SHAPE.least_bytes, 1).expect("fits")
        };
        assert_eq!(fours(&build(4, 0)), 13, "only the streams");
        let alone = build(1, 50);
        let shape = (alone.jobs.len(), alone.jobs[0].depth, alone.reads());
        assert_eq!(shape, (1, 1, 200));
    }

    /// Blocks that are read one after the other are within a zone, and the zones are spread over the file.
    #[test]
    fn zones_keep_together_what_is_read_together() {
        let needs = [1000, 1048, 2048, 5000, 1, 2];
        let expected = [&[1000, 1048][..], &[2048], &[5000], &[1, 2]];
        assert_eq!(zones(&needs), expected);
        let extents: Vec<Extent> = vec![vec![32; 4]; 400];
        let blocks = 1 << 20;
        let starts = place(&extents, 70, blocks, &mut Rng::new(1));
        // 16 extents of 128 + 1 blocks fill a zone, of 16 * 129 / 0.7 = 2948 blocks.
        for zone in starts.chunks(16) {
            assert!(!zone.is_sorted());
            let (low, high) = (zone.iter().min(), zone.iter().max());
            let span = high.expect("some") - low.expect("some");
            assert!(span + 129 <= 2948, "{low:?} to {high:?}");
        }
        let mut sorted = starts.clone();
        sorted.sort_unstable();
        assert!(sorted[0] < blocks / 8 && sorted[399] > blocks / 8 * 7);
        let mut pairs = sorted.windows(2);
        assert!(pairs.all(|w| w[0] + 128 < w[1]), "two extents touch");
    }

    #[test]
    fn parts_fill_a_span_without_touching() {
        let starts = spread(&[3, 5, 2], 10, &mut Rng::new(4));
        let mut placed: Vec<(u64, u64)> = starts.into_iter().zip([3, 5, 2]).collect();
        placed.sort_unstable();
        assert_eq!(placed[0].0, 0);
        let mut pairs = placed.windows(2);
        assert!(pairs.all(|w| w[0].0 + w[0].1 == w[1].0), "{placed:?}");
    }
}
