//! The cache on disk in front of a store: what a second run asks the store for, what makes way, and how commands are cut.

use foreread_core::policy::PolicySpec;
use foreread_core::units::PageSize;
use foreread_sim::device::disk_cache::{DiskCache, DiskCacheCounts};
use foreread_sim::device::presets::{self, Preset};
use foreread_sim::device::{Arrival, Command, Device};
use foreread_sim::simulator::{RunResult, Setup, Watch, run, run_watched};
use foreread_sim::workload::{Job, Request, Workload};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn preset(name: &str) -> &'static Preset {
    presets::find(name).expect("a preset")
}

/// A run by a new process, with the reads of (offset, length), over `object-near` and this disk.
struct Reads<'a> {
    cache: &'a DiskCache,
    disk: &'a str,
    policy: &'a str,
    reads: Vec<(u64, u64)>,
}

impl Reads<'_> {
    fn with<T>(&self, go: impl FnOnce(&Setup<'_>, Box<dyn Device>) -> T) -> T {
        let requests = self.reads.iter();
        let requests = requests.map(|(offset, len)| Request::read(*offset, *len));
        let workload = Workload {
            name: "test".to_string(),
            files: vec![4 << 30],
            listed: false,
            page_bytes: 4096,
            jobs: vec![Job::new(0, 0, requests.collect())],
        };
        let store = preset("object-near");
        let policy = PolicySpec::parse(self.policy).expect("a policy");
        let setup = Setup {
            workload: &workload,
            policy: &policy,
            config: store.config(PageSize::new(4096).expect("a page"), 64 * MIB),
            host_ns_per_kib: 0,
        };
        let device = self.cache.over(store.build(1), preset(self.disk), 1);
        go(&setup, device)
    }

    fn run(&self) -> (RunResult, DiskCacheCounts) {
        (self.with(run), self.cache.counts())
    }
}

fn in_order(from: u64, to: u64, record: u64) -> Vec<(u64, u64)> {
    (from..to)
        .step_by(record as usize)
        .map(|at| (at, record))
        .collect()
}

/// All that a device says of one command that it is given at `at`, and when it ends.
fn answer(device: &mut dyn Device, at: u64, command: Command) -> (Vec<Arrival>, u64) {
    let (mut out, mut end) = (Vec::new(), at);
    device.submit(at, command);
    while let Some(at) = device.next_time() {
        let known = out.len();
        device.advance(at, &mut out);
        if out.len() > known {
            end = at;
        }
    }
    (out, end)
}

#[test]
fn a_second_run_in_order_asks_the_store_for_nothing() {
    for policy in ["none", "linux-6.18", "auto"] {
        let cache = DiskCache::new(1 << 30);
        let reads = Reads {
            cache: &cache,
            disk: "nvme",
            policy,
            reads: in_order(0, 96 * MIB, 128 * KIB),
        };
        let (first, cold) = reads.run();
        let (second, warm) = reads.run();
        assert!(cold.store_bytes >= 96 * MIB, "{policy}: {cold:?}");
        assert_eq!(cold.disk_bytes, 0, "{policy}");
        assert_eq!(cold.written_bytes, cold.store_bytes, "{policy}: {cold:?}");
        assert_eq!(
            (warm.store_reads, warm.written_bytes, warm.dropped_bytes),
            (0, 0, 0),
            "{policy}"
        );
        assert!(warm.disk_bytes >= 96 * MIB, "{policy}: {warm:?}");
        assert!(
            second.time_s * 3.0 < first.time_s,
            "{policy}: {} after {}",
            second.time_s,
            first.time_s
        );
    }
}

#[test]
fn the_first_run_is_as_fast_as_without_a_cache() {
    let cache = DiskCache::new(1 << 30);
    let reads = Reads {
        cache: &cache,
        disk: "nvme",
        policy: "linux-6.18",
        reads: in_order(0, 32 * MIB, 128 * KIB),
    };
    let plain = reads.with(|setup, _| run(setup, preset("object-near").build(1)));
    assert_eq!(reads.run().0.time_s, plain.time_s);
}

#[test]
fn runs_repeat() {
    let both = || {
        let cache = DiskCache::new(24 * MIB);
        let reads = Reads {
            cache: &cache,
            disk: "nvme",
            policy: "auto",
            reads: in_order(0, 48 * MIB, 64 * KIB),
        };
        [reads.run(), reads.run()].map(|(result, counts)| (result.time_s, result.stats, counts))
    };
    assert_eq!(both(), both());
}

/// 2 MiB of 4 are there: two pieces are read, and one request asks for the rest, which is written in two pieces.
#[test]
fn a_command_that_is_half_on_disk_is_cut() {
    let cache = DiskCache::new(64 * MIB);
    let mut device = cache.over(preset("rbd").build(1), preset("nvme"), 1);
    answer(&mut *device, 0, Command::new(7, 0, 0, 2 * MIB));
    assert_eq!(cache.counts().written_bytes, 2 * MIB);
    let mut device = cache.over(preset("rbd").build(1), preset("nvme"), 1);
    let (arrivals, end) = answer(&mut *device, 0, Command::new(9, 0, 0, 4 * MIB));
    assert_eq!(
        cache.counts(),
        DiskCacheCounts {
            store_reads: 1,
            store_bytes: 2 * MIB,
            disk_bytes: 2 * MIB,
            written_bytes: 2 * MIB,
            held_bytes: 4 * (MIB + 4096),
            ..DiskCacheCounts::default()
        }
    );
    assert!(arrivals.windows(2).all(|two| two[0].bytes < two[1].bytes));
    let last = arrivals.last().expect("an answer");
    assert_eq!((last.id, last.bytes, last.done), (9, 4 * MIB, true));
    assert_eq!(arrivals.iter().filter(|arrival| arrival.done).count(), 1);
    let mut store = preset("rbd").build(1);
    let (_, whole) = answer(&mut *store, 0, Command::new(9, 0, 0, 4 * MIB));
    let (_, half) = answer(
        &mut *preset("rbd").build(1),
        0,
        Command::new(9, 0, 2 * MIB, 2 * MIB),
    );
    assert!(half < end && end < whole, "{half} < {end} < {whole}");
    let mut begun = Vec::new();
    device.take_at_hand(&mut begun);
    assert_eq!(begun, [9], "it began on the disk");
    let (_, _) = answer(&mut *device, end, Command::new(10, 0, 8 * MIB, MIB));
    begun.clear();
    device.take_at_hand(&mut begun);
    assert!(begun.is_empty(), "it did not begin on the disk");
}

/// What is short between two holes is asked of the store with them.
#[test]
fn a_short_piece_between_two_holes_is_fetched_again() {
    for (there, store_reads) in [(128 * KIB, 1), (256 * KIB, 2)] {
        let cache = DiskCache::new(64 * MIB);
        let over = || cache.over(preset("rbd").build(1), preset("nvme"), 1);
        answer(&mut *over(), 0, Command::new(1, 0, 256 * KIB, there));
        answer(&mut *over(), 0, Command::new(2, 0, 0, MIB));
        assert_eq!(cache.counts().store_reads, store_reads, "{there} bytes");
    }
}

/// A scan of more than the cache, in its order, finds nothing of itself, as with LRU; what was read twice before stays.
#[test]
fn a_scan_pushes_out_what_was_read_once() {
    let cache = DiskCache::new(64 * MIB);
    let read = |from: u64, to: u64| {
        let reads = Reads {
            cache: &cache,
            disk: "nvme",
            policy: "none",
            reads: in_order(from * MIB, to * MIB, MIB),
        };
        reads.run().1
    };
    read(0, 16);
    assert_eq!(read(0, 16).store_reads, 0, "they are used again now");
    let scan = read(100, 300);
    assert_eq!(scan.disk_bytes, 0);
    assert!(
        scan.evicted_bytes > 0 && scan.held_bytes <= 64 * MIB,
        "{scan:?}"
    );
    assert_eq!(read(0, 16).store_reads, 0, "the scan left them");
    let again = read(100, 240);
    assert_eq!(again.disk_bytes, 0, "what it left is of its end: {again:?}");
    assert_eq!(read(0, 16).store_reads, 0);
    assert!(
        read(200, 240).disk_bytes > 20 * MIB,
        "the end of the last scan"
    );
}

/// A cache in which no piece fits keeps nothing, and answers.
#[test]
fn a_piece_larger_than_the_cache_is_not_kept() {
    let cache = DiskCache::new(MIB);
    let mut device = cache.over(preset("rbd").build(1), preset("nvme"), 1);
    answer(&mut *device, 0, Command::new(1, 0, 0, 2 * MIB));
    let counts = cache.counts();
    assert_eq!((counts.written_bytes, counts.dropped_bytes), (0, 2 * MIB));
    answer(&mut *device, 1 << 40, Command::new(2, 0, 0, 64 * KIB));
    assert_eq!(cache.counts().written_bytes, 64 * KIB);
}

/// A USB stick under a store of 1,250 MB/s: what it cannot write in time is left out, and the reader does not wait.
#[test]
fn a_disk_that_does_not_keep_up_keeps_less() {
    let cache = DiskCache::new(4 << 30);
    let reads = Reads {
        cache: &cache,
        disk: "usb-2g",
        policy: "linux-6.18:max=64M",
        reads: in_order(0, 1 << 30, MIB),
    };
    let plain = reads.with(|setup, _| run(setup, preset("object-near").build(1)));
    let (first, counts) = reads.run();
    assert!(counts.dropped_bytes > 100 * MIB, "{counts:?}");
    assert_eq!(
        counts.dropped_bytes + counts.written_bytes,
        counts.store_bytes
    );
    assert_eq!(first.time_s, plain.time_s);
}

/// A USB stick gives 30 MB/s and the store many times that: it is read until that is known, and then of sixteen ranges one.
#[test]
fn a_disk_slower_than_the_store_is_passed_over() {
    let cache = DiskCache::new(4 << 30);
    let reads = |disk| Reads {
        cache: &cache,
        disk,
        policy: "linux-6.18:max=16M",
        reads: in_order(0, 256 * MIB, MIB),
    };
    assert_eq!(reads("nvme").run().1.dropped_bytes, 0);
    let (slow, counts) = reads("usb-2g").run();
    assert!(
        counts.store_bytes > 180 * MIB && counts.disk_bytes > 8 * MIB,
        "{counts:?}"
    );
    assert_eq!(counts.written_bytes, 0, "it is there");
    let (fast, counts) = reads("nvme").run();
    assert_eq!(counts.store_reads, 0);
    assert!(fast.time_s < slow.time_s);
}

/// The meter of `auto` leaves out what is no sample of the store.
#[test]
fn what_comes_from_the_disk_is_marked() {
    #[derive(Default)]
    struct AtHand(usize);
    impl Watch for AtHand {
        fn event(&mut self, event: &foreread_core::event::Event) {
            self.0 += usize::from(matches!(event, foreread_core::event::Event::AtHand { .. }));
        }
        fn notes(&mut self, _: Vec<foreread_core::machine::Note>) {}
    }
    let cache = DiskCache::new(1 << 30);
    let reads = Reads {
        cache: &cache,
        disk: "nvme",
        policy: "auto",
        reads: in_order(0, 8 * MIB, 128 * KIB),
    };
    let marked = || {
        reads.with(|setup, device| {
            let mut watch = AtHand::default();
            let result = run_watched(setup, device, &mut watch);
            (watch.0 as u64, result.stats.source_reads)
        })
    };
    assert_eq!(marked().0, 0);
    let (marked, fetches) = marked();
    assert_eq!(marked, fetches);
}
