//! `foreread check bench sim`: measures decisions of the core per second, simulated reads per second, and the memory
//! that the core needs for each cached page. `foreread check bench hit`: measures how many cached reads per second the engine does, and
//! how many `pread` does from the page cache.
//!
//! The rates depend on the machine and on its load, so no test checks them. The published rates are in `docs/benchmarks/sim.csv` and
//! `local.csv`.

use foreread::source::FileSource;
use foreread::{Options, Reader};
use foreread_core::event::{Action, Event};
use foreread_core::machine::{Config, Machine};
use foreread_core::policy::{PolicySpec, SpecError};
use foreread_core::units::{ByteRange, FileId, Nanos, OpenId, PageSize, ReadId};
use foreread_lab::live::{LiveError, Scratch};
use foreread_sim::device::presets;
use foreread_sim::rng::Rng;
use foreread_sim::simulator::{self, Setup};
use foreread_sim::time_queue::tell;
use foreread_sim::workload::{Request, Workload};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Instant;

const PAGE: u64 = 4096;
/// What is resident while hits are counted.
const RESIDENT: u64 = 1 << 30;
/// Number of measurement rounds; each reported figure is the median of the rounds.
const ROUNDS: usize = 7;

/// The name and the value of a figure.
pub type Figure = (String, f64);

/// Measures the core and the simulator, with `linux-6.18` and with `auto`. The measured figures are:
///
/// - hits per second: how many 4 KiB reads of cached pages, in random order, the core can decide;
/// - timed reads per second: reads that the simulator executes with a clock and a device, in eight passes, of which the
///   first begins with an empty cache;
/// - bytes of state per cached page if 1 GiB is cached, and if only every 64th page is cached.
///
/// Returns an error if a built-in policy or device is missing, which is a bug in foreread.
pub fn sim() -> Result<Vec<Figure>, SpecError> {
    let mut figures = Vec::new();
    for (name, policy) in [("", "linux-6.18"), ("auto_", "auto")] {
        let policy = PolicySpec::parse(policy)?;
        let (mut machine, dense) = resident(&policy, 1);
        let hits = (0..ROUNDS).map(|_| hit_rate(&mut machine)).collect();
        let timed: Result<Vec<f64>, _> = (0..3).map(|_| timed_rate(&policy)).collect();
        figures.extend([
            (format!("{name}hit_reads_per_s"), median(hits)),
            (format!("{name}timed_reads_per_s"), median(timed?)),
        ]);
        if name.is_empty() {
            let (_, sparse) = resident(&policy, 64);
            figures.extend([
                ("bytes_per_page_dense".to_string(), dense),
                ("bytes_per_page_sparse".to_string(), sparse),
            ]);
        }
    }
    Ok(figures)
}

/// A machine that holds 1 GiB, one page of each `stride`, and its bytes of state a page.
fn resident(policy: &PolicySpec, stride: u64) -> (Machine, f64) {
    let page = PageSize::new(PAGE).unwrap_or_else(|| unreachable!("4096 is a page size"));
    let mut machine = Machine::new(Config::new(page, RESIDENT), policy.clone());
    let size = RESIDENT * stride;
    let (open, file) = (OpenId(0), FileId(0));
    machine.handle(Nanos(0), Event::open(open, file, size));
    let pages = RESIDENT / PAGE;
    // Dense: in long reads, as they come. Sparse: alone, so that nothing is read ahead.
    let (count, len) = if stride == 1 {
        (pages / 32, 32 * PAGE)
    } else {
        (pages, PAGE)
    };
    let step = len * stride;
    for i in 0..count {
        let range = ByteRange::between(i * step, i * step + len);
        let read = Event::Read {
            read: ReadId(i),
            open,
            range,
            random: stride > 1,
        };
        tell(&mut machine, read, |_| ());
    }
    let held = machine.cache().pages();
    let bytes = machine.cache().state_bytes() as f64 / held as f64;
    (machine, bytes)
}

fn hit_rate(machine: &mut Machine) -> f64 {
    let offsets = random_offsets(1 << 20, RESIDENT);
    let began = Instant::now();
    for (i, &offset) in offsets.iter().enumerate() {
        let range = ByteRange::between(offset, offset + PAGE);
        machine.handle(Nanos(0), Event::read(ReadId(i as u64), OpenId(0), range));
        while let Some(action) = machine.poll() {
            if let Action::Serve { lease, .. } = action {
                machine.handle(Nanos(0), Event::Release { lease });
            }
        }
    }
    offsets.len() as f64 / began.elapsed().as_secs_f64()
}

fn timed_rate(policy: &PolicySpec) -> Result<f64, SpecError> {
    let page = PageSize::new(PAGE).unwrap_or_else(|| unreachable!("4096 is a page size"));
    let pages = RESIDENT / PAGE;
    let requests = (0..8 * pages).map(|i| Request::read(i % pages * PAGE, PAGE));
    let workload = Workload::single("eight passes", RESIDENT, 1, requests.collect());
    let preset = presets::find("nvme")?;
    let config = Config::new(page, RESIDENT);
    let setup = Setup::new(&workload, policy, config, preset.host_ns_per_kib);
    let began = Instant::now();
    let result = simulator::run(&setup, preset.build(1));
    Ok(result.stats.demand_reads as f64 / began.elapsed().as_secs_f64())
}

fn random_offsets(count: usize, bytes: u64) -> Vec<u64> {
    let mut rng = Rng::new(1);
    (0..count).map(|_| rng.below(bytes / PAGE) * PAGE).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The file that both sides read.
const HIT_BYTES: u64 = 128 << 20;

/// Measures how many 4 KiB reads of cached pages per second the engine does, and how many `pread` does with the same
/// pages. One thread reads the pages in random order, with the engine and with `pread` alternately. Returns the medians
/// of the rounds.
pub fn hit() -> Result<Vec<Figure>, LiveError> {
    let bytes = HIT_BYTES;
    let scratch = Scratch::make(bytes, &mut |_| ())?;
    let path = scratch.path();
    let options = Options {
        cache_bytes: 2 * bytes,
        ..Options::default()
    };
    let reader = Reader::open(Arc::new(FileSource::open(&path)?), options)?;
    let file = File::open(&path).map_err(LiveError::io("opening the scratch file"))?;
    let mut buffer = vec![0_u8; 1 << 20];
    for at in (0..bytes).step_by(buffer.len()) {
        reader.read_at(&mut buffer, at)?;
        file.read_at(&mut buffer, at)
            .map_err(LiveError::io("reading the scratch file"))?;
    }
    let offsets = random_offsets(400_000, bytes);
    let mut page = [0_u8; PAGE as usize];
    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let began = Instant::now();
        for &offset in &offsets {
            reader.read_at(&mut page, offset)?;
        }
        let our = offsets.len() as f64 / began.elapsed().as_secs_f64();
        let began = Instant::now();
        for &offset in &offsets {
            file.read_at(&mut page, offset)
                .map_err(LiveError::io("reading the scratch file"))?;
        }
        let their = offsets.len() as f64 / began.elapsed().as_secs_f64();
        ours.push(our);
        theirs.push(their);
        ratios.push(our / their);
    }
    let figures = [
        ("ours_reads_per_s", ours),
        ("pread_reads_per_s", theirs),
        ("ratio", ratios),
    ];
    let median_of = |(name, rounds): (&str, Vec<f64>)| (name.to_string(), median(rounds));
    Ok(figures.map(median_of).into())
}
