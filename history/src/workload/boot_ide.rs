//! The reads of a virtual machine that boots from an IDE disk: 57,516 reads, 407 MB, nearly all of a single sector.
//!
//! This workload replaces the trace `boot-ide` of Adam Crume's posting on RBD readahead (ceph-devel, 2014), which was not
//! published. The posting gives counts, and these reads were generated to match the counts; they are not a recording.
//!
//! ```text
//!   boot loader   kernel and initrd                 the system
//!   ├──63──┤ gap  ├──run──┤ ├───run───┤ ...         ├stream┤ ├grp┤ ├g┤ ├─grp─┤ ├stream┤ ├g┤ ...
//!   from sector 0   20 runs of single sectors         44 streams of 16 to 64 KiB a read,
//!                                                     6,015 others of 4 to 128 KiB in groups of 1 to 10
//!   └────────── 50,002 reads, 25.6 MB ────────┘     └────────── 7,514 reads, 381.4 MB ──────────┘
//! ```
//!
//! **Stated in the posting, matched exactly**: 57,516 reads; 407 MB, which we take as 794,922 sectors; "50,000 sequential, single-sector
//! reads". (Here they are 50,002, so that all other reads can be whole pages of 4 KiB.)
//!
//! **Fitted**: the lengths of runs and streams ([`RUNS`], [`STREAMS`]) and the size of a read in a stream. With the chosen values, the
//! posting's readahead variant `plain` makes 281 requests with 201 MB in total (published: 281 requests, 203 MB). When we chose these
//! values, we knew the published times. We also tested streams with reads of 128 KiB: they matched the counts less well, and the boot took
//! 0.4 s longer.
//!
//! **Predicted**: mean of 20 seeds on a file of 1 GiB, with a cache that never evicts; the published values are in
//! brackets (`compare boot-ide --on model:rbd --size 1G --memory 2G --policy none,rbd-plain,rbd-aligned,rbd-eager`).
//! Requests and MB of `plain` are the fitted values:
//!
//! | detector | requests | MB | seconds on `model:rbd` |
//! |---|---|---|---|
//! | plain | 281 (281) | 201 (203) | 12.2 (11.42 ± 0.25) |
//! | aligned | 281 (276) | 203 (201) | 12.2 (11.46 ± 0.13) |
//! | eager | 104 (111) | 304 (303) | 12.7 (12.48 ± 0.61) |
//!
//! Without readahead the boot takes 46.20 s (published: 46.22 s), but the device model `rbd` was fitted to this and one other
//! published time.
//!
//! **Assumed**, because the posting says nothing about it: the order of all reads, and the groups and sizes of reads outside streams. No
//! byte is read twice, and positions are evenly spread over the file. The queue depth is assumed to be 1: the posting only says that IDE
//! and virtio differ in how many requests may be pending. The seed determines the order and positions of reads; their numbers and lengths
//! are fixed. In a larger file the same reads are farther apart, so later reads use less of the data that was read ahead beyond a stream.
//! Therefore `plain` takes 12.4 s at the file size that `compare` uses, and 12.9 s from 8 GiB on.
//!
//! Consecutive reads inside a run, stream or group have no gap between them; between two runs, streams or groups there is always a
//! gap.

use super::volume::{Extent, groups, spread};
use foreread_core::policy::spec::SpecError;
use foreread_sim::rng::Rng;
use foreread_sim::workload::{Info, Request, Workload, check_size};

pub static INFO: Info = Info {
    name: "boot-ide",
    summary: "boot of a virtual machine from IDE: 57,516 reads, 407 MB, mostly runs of single sectors; needs 1 GiB",
    origin: "Adam Crume, ceph-devel 2014: generated to match the published counts, not a recording",
    least_bytes: MIN_BYTES,
    cache_bytes: None,
    params: &[],
    build,
};

const SECTOR_BYTES: u64 = 512;

/// Sectors of 4 KiB, the unit in which a guest's file system places and reads everything but the boot loader.
const BLOCK: u64 = 8;

/// The smallest file, in bytes: room for 407 MB and as many bytes in gaps.
const MIN_BYTES: u64 = 1 << 30;

/// The boot sector and the boot loader after it: the sectors before the first partition on an old layout (63 sectors
/// per track).
const LOADER_SECTORS: u64 = 63;

/// Where the first partition begins: 1 MiB, the usual place since 2010.
const FIRST_SECTOR: u64 = 2048;

/// Runs of single-sector reads, in sectors; with the loader 50,002 in total. Fitted (see above): evenly spaced on a log
/// scale from 210 KB to 3.7 MB.
const RUNS: [u64; 20] = [
    420, 490, 570, 660, 770, 900, 1040, 1210, 1410, 1640, 1900, 2210, 2560, 2980, 3460, 4020, 4660,
    5420, 6300, 7319,
];

/// Sequential streams that are long enough for a detector that waits for ten reads; the numbers are reads. Fitted:
/// evenly spaced on a log scale from 12 to 74.
const STREAMS: [usize; 44] = [
    12, 13, 13, 14, 14, 15, 16, 16, 17, 18, 19, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 32,
    33, 34, 36, 37, 39, 41, 42, 44, 46, 48, 50, 52, 54, 57, 59, 61, 64, 67, 70, 72,
];

/// Blocks of the first reads of a stream; the last value applies to all later reads. This is the guest's own ramp-up.
/// Fitted.
const STREAM_BLOCKS: [u64; 3] = [4, 8, 16];

/// Number of reads that are not in a stream, and their blocks in total.
const OTHER_READS: usize = 6015;
const OTHER_BLOCKS: u64 = 70_011;

/// Sizes in blocks of reads that are not in a stream; each size occurs as often as it is listed. IDE reads at most 256
/// sectors at once.
const OTHER_SIZES: [u64; 20] = [
    1, 1, 1, 1, 1, 1, 2, 4, 4, 8, 8, 8, 16, 16, 16, 16, 32, 32, 32, 32,
];

fn build(_values: &[u64], size: u64, seed: u64) -> Result<Workload, SpecError> {
    check_size(INFO.name, size, MIN_BYTES)?;
    let mut rng = Rng::new(seed);
    let mut extents: Vec<Extent> = RUNS.iter().map(|&n| vec![1; n as usize]).collect();
    rng.shuffle(&mut extents);
    let mut system: Vec<Extent> = STREAMS.iter().map(|&n| stream(n)).collect();
    let others = groups(&OTHER_SIZES, OTHER_READS, OTHER_BLOCKS, &mut rng).into_iter();
    system.extend(others.map(|group| group.iter().map(|blocks| blocks * BLOCK).collect()));
    rng.shuffle(&mut system);
    extents.append(&mut system);

    let starts = place(&extents, size / SECTOR_BYTES, &mut rng);
    let loader = vec![1; LOADER_SECTORS as usize];
    let mut requests = Vec::new();
    for (extent, start) in std::iter::once((&loader, 0)).chain(extents.iter().zip(starts)) {
        let mut at = start;
        for &sectors in extent {
            requests.push(Request::read(at * SECTOR_BYTES, sectors * SECTOR_BYTES));
            at += sectors;
        }
    }
    Ok(Workload {
        page_bytes: SECTOR_BYTES,
        ..Workload::single(INFO.name, size, 1, requests)
    })
}

fn stream(reads: usize) -> Extent {
    (0..reads)
        .map(|i| STREAM_BLOCKS[i.min(STREAM_BLOCKS.len() - 1)] * BLOCK)
        .collect()
}

/// The first sector of each extent: in random order one after the other, at least a block apart.
fn place(extents: &[Extent], sectors: u64, rng: &mut Rng) -> Vec<u64> {
    let needs = extents
        .iter()
        .map(|e| e.iter().sum::<u64>().div_ceil(BLOCK) + 1);
    let starts = spread(
        &needs.collect::<Vec<_>>(),
        (sectors - FIRST_SECTOR) / BLOCK,
        rng,
    );
    starts
        .into_iter()
        .map(|start| FIRST_SECTOR + start * BLOCK)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_workload as parse;

    fn reads(size: u64, seed: u64) -> Vec<Request> {
        let chosen = parse("boot-ide").expect("valid");
        let mut workload = chosen.build(size, seed).expect("fits");
        assert_eq!((workload.page_bytes, workload.jobs[0].depth), (512, 1));
        let distinct = workload.distinct_bytes(512);
        assert_eq!(distinct, workload.bytes(), "a byte is read twice");
        workload.jobs.remove(0).requests
    }

    /// The seed moves reads, and a larger file spreads them.
    #[test]
    fn counts_are_those_published() {
        let mut first = Vec::new();
        for (size, seed) in [
            (MIN_BYTES, 1),
            (MIN_BYTES, 2),
            (MIN_BYTES + 511, 3),
            (16 << 30, 4),
        ] {
            let reads = reads(size, seed);
            let bytes: u64 = reads.iter().map(|r| r.len).sum();
            let single = reads.iter().filter(|r| r.len == SECTOR_BYTES).count();
            let counts = (reads.len(), bytes, single);
            assert_eq!(counts, (57_516, 794_922 * SECTOR_BYTES, 50_002));
            assert!(reads.iter().all(|r| {
                let unit = if r.len == SECTOR_BYTES {
                    SECTOR_BYTES
                } else {
                    4096
                };
                (r.offset | r.len) % unit == 0 && r.len <= 256 * SECTOR_BYTES
            }));
            assert_ne!(reads, first);
            let last = reads.iter().map(|r| r.offset + r.len).max();
            assert!(last > Some(size / 10 * 9));
            first = reads;
        }
        let too_small = parse("boot-ide").expect("valid").build(MIN_BYTES - 1, 1);
        let error = too_small.expect_err("too small").to_string();
        assert!(error.ends_with("less than the 1073741824 bytes that it needs"));
    }

    /// What a detector sees: where sequences end, and how many reads follow each other.
    #[test]
    fn sequences_are_those_of_the_tables() {
        let reads = reads(MIN_BYTES, 5);
        let sequences = || reads.chunk_by(|a, b| a.offset + a.len == b.offset);
        let mut singles: Vec<u64> = sequences()
            .filter(|s| s[0].len == SECTOR_BYTES)
            .map(|s| s.len() as u64)
            .collect();
        assert_eq!(singles.remove(0), LOADER_SECTORS, "the loader comes first");
        singles.sort_unstable();
        assert_eq!(singles, RUNS);
        let system = sequences().filter(|s| s[0].len > SECTOR_BYTES);
        let mut long: Vec<usize> = system.map(<[Request]>::len).filter(|&n| n > 10).collect();
        long.sort_unstable();
        assert_eq!(long, STREAMS);
    }

    /// The order of the runs, the order on the disk and the sizes within groups are random.
    #[test]
    fn nothing_is_in_the_order_of_the_tables() {
        let (one, two) = (reads(MIN_BYTES, 1), reads(MIN_BYTES, 2));
        let sequences = one.chunk_by(|a, b| a.offset + a.len == b.offset);
        let starts: Vec<u64> = sequences.clone().map(|s| s[0].offset).collect();
        let back = starts.windows(2).filter(|w| w[1] < w[0]).count();
        let half = starts.len() * 2 / 5..starts.len() * 3 / 5;
        assert!(half.contains(&back), "{back} go back, not {half:?}");
        let runs = sequences.skip(1).take(RUNS.len());
        assert!(!runs.map(<[Request]>::len).is_sorted());
        let groups = |reads: &[Request]| {
            let all = reads
                .chunk_by(|a, b| a.offset + a.len == b.offset)
                .filter(|s| s.len() <= 10);
            let mut all: Vec<Vec<u64>> = all.map(|s| s.iter().map(|r| r.len).collect()).collect();
            all.sort_unstable();
            all
        };
        assert_ne!(groups(&one), groups(&two));
    }
}
