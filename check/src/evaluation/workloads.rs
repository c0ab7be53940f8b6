//! Workloads that exist only in the evaluation, and how many bytes each reads.
//!
//! These workloads are patterns from benchmarks of other projects, or patterns that are difficult for adaptive
//! readahead:
//!
//! ```text
//!   fsspec-*          the seven patterns of the fsspec comparison: 64 KiB or 1 MiB reads on 64 MiB
//!   cursors, overlap  8 cursors in one open file; 8 cursors in overlapping parts (mountpoint-s3's benchmarks)
//!   seeks             sequential runs of 8 MiB, each at another position
//!   miss-hit-miss     every second read is of one of a few hot pages (PostgreSQL's read stream)
//!   limit             100 streams, of which only the first 256 KiB are read (a query with LIMIT)
//!   phases            sequential, random, sequential
//!   half-rate         a reader with 1.3 ms between reads of 128 KiB: half the rate of a 200 MB/s link
//!   antagonist        a random reader next to a scan; only the random reader's latency counts
//!   streams-100       100 concurrent readers, one file each (AMP, FAST 2007)
//! ```
//! All other workloads of the evaluation are those of [`foreread_sim::workload`]. Sources: the projects named in this list. We chose the
//! sizes so that the simulation of a run takes well under a second.

use super::devices;
use foreread_core::policy::SpecError;
use foreread_history::parse_workload;
use foreread_sim::rng::Rng;
use foreread_sim::workload::{Job, Request, Workload};

/// The workloads of this file, and four workloads of [`foreread_sim::workload`], in each of which a policy was slow that was fast in all
/// other workloads.
pub const NAMES: [&str; 20] = [
    "fsspec-seq-64K",
    "fsspec-seq-1M",
    "fsspec-streams",
    "fsspec-pairs",
    "fsspec-strided",
    "fsspec-backward",
    "fsspec-random",
    "cursors",
    "overlap",
    "seeks",
    "miss-hit-miss",
    "limit",
    "phases",
    "half-rate",
    "antagonist",
    "streams-100",
    "list-of-archive",
    "small-files-random",
    "mapped-libraries",
    "new-files",
];

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Bytes of a workload whose size can be chosen.
const SIZE: u64 = 128 * MIB;

pub fn build(name: &str, seed: u64) -> Result<Workload, SpecError> {
    let Some(mut workload) = own(name, seed)? else {
        let chosen = parse_workload(name)?;
        return chosen.build(SIZE.max(chosen.info.least_bytes), seed);
    };
    workload.name = name.to_string();
    Ok(workload)
}

/// Returns whether a device is large enough for a workload.
pub fn fits(name: &str, device: &str) -> bool {
    let (Ok(chosen), Ok(device)) = (parse_workload(name), devices::find(device)) else {
        return true;
    };
    chosen.info.least_bytes <= device.preset.capacity_bytes
}

/// The open description to whose reads the 99th percentile applies; `None`: all of them.
pub(crate) fn antagonist(name: &str) -> Option<u32> {
    (name == "antagonist").then_some(1)
}

fn own(name: &str, seed: u64) -> Result<Option<Workload>, SpecError> {
    let listed = |text: &str, size: u64| parse_workload(text)?.build(size, seed);
    let one = |size: u64, requests: Vec<Request>| Workload::single("", size, 1, requests);
    Ok(Some(match name {
        "fsspec-seq-64K" => listed("sequential:record=64K", 16 * MIB)?,
        "fsspec-seq-1M" => listed("sequential:record=1M", 64 * MIB)?,
        "fsspec-streams" => listed("interleaved:streams=2,record=64K", 16 * MIB)?,
        "fsspec-pairs" => one(64 * MIB, pairs()),
        "fsspec-strided" => listed("strided:record=64K,stride=512K", 64 * MIB)?,
        "fsspec-backward" => one(
            64 * MIB,
            (1..=128)
                .map(|n| Request::read(64 * MIB - n * 64 * KIB, 64 * KIB))
                .collect(),
        ),
        "fsspec-random" => listed("random:record=64K,count=64", 64 * MIB)?,
        "cursors" => listed("interleaved:streams=8,record=128K", SIZE)?,
        "overlap" => one(SIZE, overlap()),
        "seeks" => one(1 << 30, seeks(seed)),
        "miss-hit-miss" => one(1 << 30, miss_hit_miss(seed)),
        "limit" => one(1 << 30, limit()),
        "phases" => one(1 << 30, phases(seed)),
        "half-rate" => listed("sequential:think=1300", 32 * MIB)?,
        "antagonist" => scan_and_random(seed),
        "streams-100" => listed("readers:streams=100", SIZE)?,
        _ => return Ok(None),
    }))
}

/// Sequential reads of `record` bytes.
fn run(start: u64, bytes: u64, record: u64) -> impl Iterator<Item = Request> {
    (0..bytes / record).map(move |n| Request::read(start + n * record, record))
}

/// Two adjacent blocks of 128 KiB, the second one first.
fn pairs() -> Vec<Request> {
    let at = |n: u64| Request::read(n * 128 * KIB, 128 * KIB);
    (0..64)
        .flat_map(|pair| [at(2 * pair + 1), at(2 * pair)])
        .collect()
}

/// 8 cursors of 32 MiB, each beginning 12 MiB after the previous one, which take turns with one read each.
fn overlap() -> Vec<Request> {
    let rounds = 32 * MIB / (128 * KIB);
    (0..rounds * 8)
        .map(|n| Request::read(n % 8 * 12 * MIB + n / 8 * 128 * KIB, 128 * KIB))
        .collect()
}

fn seeks(seed: u64) -> Vec<Request> {
    let mut rng = Rng::new(seed);
    let places: Vec<u64> = (0..16).map(|_| rng.below(127) * 8 * MIB).collect();
    places
        .into_iter()
        .flat_map(|start| run(start, 8 * MIB, 128 * KIB))
        .collect()
}

/// Sequential reads, with a read of one of 16 hot pages after each.
fn miss_hit_miss(seed: u64) -> Vec<Request> {
    let mut rng = Rng::new(seed);
    let base = 512 * MIB;
    run(0, 16 * MIB, 8 * KIB)
        .flat_map(|r| [r, Request::read(base + rng.below(16) * 4096, 4096)])
        .collect()
}

fn limit() -> Vec<Request> {
    (0..100)
        .flat_map(|n| run(n * 10 * MIB, 256 * KIB, 16 * KIB))
        .collect()
}

fn phases(seed: u64) -> Vec<Request> {
    let mut rng = Rng::new(seed);
    let random = (0..1000).map(|_| Request::read(512 * MIB + rng.below(65_536) * 4096, 4096));
    run(0, 32 * MIB, 64 * KIB)
        .chain(random.collect::<Vec<_>>())
        .chain(run(128 * MIB, 32 * MIB, 64 * KIB))
        .collect()
}

/// A scan of one file; while it lasts, random reads of another file through open description 1.
fn scan_and_random(seed: u64) -> Workload {
    let mut rng = Rng::new(seed);
    let random = (0..400)
        .map(|_| Request::read(rng.below(262_144) * 4096, 4096))
        .collect();
    let mut workload = Workload::on_files("", vec![SIZE, 1 << 30]);
    workload
        .jobs
        .push(Job::new(0, 0, run(0, SIZE, 128 * KIB).collect()));
    workload.jobs.push(Job::new(1, 1, random));
    workload
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_of_every_design_can_be_built() {
        for name in NAMES.iter().chain(&super::super::cells::BASELINE_WORKLOADS) {
            let workload = build(name, 3).expect(name);
            assert_eq!(workload.name, *name);
            for job in &workload.jobs {
                let size = workload.files[job.file as usize];
                let mut reads = job.requests.iter();
                let inside = reads.all(|r| r.len > 0 && r.offset + r.len <= size);
                assert!(inside, "{name}");
            }
            assert_eq!(workload, build(name, 3).expect(name));
        }
        assert!(build("sequentail", 1).is_err());
    }

    #[test]
    fn a_stick_is_too_small_for_a_disk_image() {
        assert!(!fits("grep-ide", "usb-cruzer"));
        assert!(fits("grep-ide", "rbd") && fits("cursors", "usb-cruzer"));
    }
}
