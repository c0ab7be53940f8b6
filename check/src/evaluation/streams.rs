//! AMP's experiment: 100 concurrent sequential readers, by cache size and think time.
//!
//! With 100 streams, a cache can hold only a few hundred KiB of each stream. If the readahead windows are too long, they evict pages that
//! other streams have not read yet; if they are too short, the disk seeks for every small request. AMP was designed for this case, so
//! `auto` must reach at least 0.95 of AMP's throughput.
//!
//! ```text
//!   caches of 16, 64 and 256 MiB    pauses of 0, 20 and 200 ms between reads of 32 KiB
//!   164, 655, 2621 KiB per stream   demand: all that the disk delivers, 164 MB/s, 16 MB/s
//! ```
//! Example: a cache of 16 MiB cannot hold 100 windows of 4 MiB, so most windows are refused, or evicted before they are read.
//!
//! The disk is the model `hdd-7200`; the publication used five SCSI disks. Each of the 100 readers reads a file of 4 MiB. AMP's readahead
//! window (its "degree") grows by the size of one read whenever the last page of a prefetched window is read and none of the window was
//! evicted. With the two smaller caches, a file of 4 MiB is long enough for the window to reach its final size. Source: Gill and Bathen,
//! "AMP: Adaptive Multi-stream Prefetching in a Shared Cache", FAST 2007, for the 100 concurrent streams; the sizes are our choice.

use super::measure::{Figures, Key, is_within_credit, simulate};
use super::verdict::JUDGED;
use super::{Cell, devices, opponents};
use foreread_history::parse_workload;
use foreread_sim::workload::{Job, Request, Workload};

const DEVICE: &str = "hdd-7200";
/// The reference policy, and the minimum share of its throughput.
const MEASURE: &str = "amp";
const TARGET: f64 = 0.95;

const STREAMS: u64 = 100;
const FILE_BYTES: u64 = 4 << 20;

/// A cache size in bytes, and the pause between two reads of a reader in microseconds.
type Place = (u64, u64);

fn simulated(workload: &Workload, device: &str, cache: u64, policy: &str) -> Figures {
    let cell = Cell::new("", device, cache);
    let device = devices::find(device).expect("a device");
    let chosen = opponents::build(policy, device.preset.capacity_bytes).expect("a policy");
    let policy = policy.to_string();
    let key = Key {
        cell,
        policy,
        seed: 1,
    };
    simulate(workload, &device, &key, &chosen)
}

/// A policy's figures, and its throughput divided by that of [`MEASURE`].
fn beside_amp((cache, think): Place, policy: &str) -> (Figures, f64) {
    let text = format!("readers:streams={STREAMS},record=32K,bytes={FILE_BYTES},think={think}");
    let workload = parse_workload(&text).and_then(|chosen| chosen.build(STREAMS * FILE_BYTES, 1));
    let workload = workload.expect("a workload");
    let own = simulated(&workload, DEVICE, cache, policy);
    let share = simulated(&workload, DEVICE, cache, MEASURE).time_s / own.time_s;
    (own, share)
}

/// A small cache, and a cache that holds more than the disk's queue: in both, `auto` beats AMP within its credit.
#[test]
fn auto_reaches_amp_with_100_streams() {
    for place in [(16 << 20, 20_000), (64 << 20, 20_000), (256 << 20, 200_000)] {
        let (figures, share) = beside_amp(place, JUDGED);
        assert!(share >= TARGET, "{place:?}: {share:.2} of {MEASURE}");
        assert!(is_within_credit(JUDGED, &figures, place.0), "{place:?}");
    }
    let (_, none) = beside_amp((64 << 20, 0), "none");
    assert!(none < 0.7, "none reaches {none} of it");
}

/// Readers whose windows fill a cache of 64 MiB (16 files with 64 readers each, or 256 files with one): at most a tenth
/// of the readahead is unused.
#[test]
fn many_readers_leave_little_unused() {
    let (bytes, record) = (1 << 20, 64 << 10);
    for (files, readers) in [(16_u32, 64_u32), (256, 1)] {
        let size = u64::from(readers) * bytes;
        let mut workload = parse_workload(&format!("readers:streams={files},bytes={size}"))
            .and_then(|chosen| chosen.build(u64::from(files) * size, 1))
            .expect("valid");
        let job = |n: u32| {
            let start = u64::from(n % readers) * bytes;
            let reads = (0..bytes / record).map(|k| Request::read(start + k * record, record));
            Job::new(n / readers, n, reads.collect())
        };
        workload.jobs = (0..files * readers).map(job).collect();
        for device in ["hdd-7200", "object-near", "nvme"] {
            let figures = simulated(&workload, device, 64 << 20, JUDGED);
            let all = (figures.unused_bytes + figures.used_bytes).max(1);
            let share = figures.unused_bytes as f64 / all as f64;
            assert!(share <= 0.1, "{files} files on {device}: {share:.2} unused");
        }
    }
}
