//! Computes the minimum time that one reader needs in any run: the wait for the bytes up to some read, plus the time to think and copy
//! afterwards.
//!
//! ```text
//!   first read               read i                                    last read
//!      ├── the device gives what is read up to here ──┤── thinks, copies ──┤      the largest sum over i
//! ```
//!
//! The bound for a reader also uses two facts that are true for every schedule. First, a device with one head or one queue either passes
//! over each gap or begins a new command after it. Second, a fetch that contains page `p` begins at most [`Config::max_fetch_bytes`] before
//! the end of `p`. The first byte of `p` therefore arrives no earlier than the shortest random first-byte time of all possible start
//! positions. (A second fetch from the same position begins only after the first fetch has delivered its data.)
//!
//! The time does not include a wait for another job, or for requests that a job keeps outstanding at the same time.

use crate::device::presets::{Model, Preset};
use crate::rng;
use crate::simulator::copy_ns;
use crate::workload::{Job, Request, RequestKind, Workload};
use foreread_core::machine::Config;
use std::collections::{BTreeMap, VecDeque};

/// Start positions that are examined in one file; after that only the shortest possible draw counts.
const MAX_STARTS: u64 = 1 << 15;
/// Size limit of the bitmap of a file's pages, in words; a path in a larger file is not followed.
const MAX_WORDS: usize = 1 << 20;

/// The pages of each file that are read, as sorted ranges that are not adjacent.
type Ranges = BTreeMap<u32, Vec<(u64, u64)>>;

/// The device's minimum time beyond `least_ns`, for gaps and for commands that exceed the longest fetch.
pub(super) fn commands_ns(workload: &Workload, preset: &Preset, config: &Config) -> u64 {
    let page = config.page.bytes();
    let ranges = ranges(workload, page);
    let bytes: u64 = ranges.values().flatten().map(|r| r.1 - r.0).sum();
    let gaps = || {
        ranges
            .values()
            .flat_map(|r| r.windows(2))
            .map(|pair| pair[1].0 - pair[0].1)
    };
    // A gap costs the time of its bytes, or another command, whichever is less.
    let serial = |command_ns: u64, ps_per_kib: u64| {
        let pass_ns = |gap: u64| (u128::from(gap) * u128::from(ps_per_kib) / 1_024_000) as u64;
        let gaps: u64 = gaps().map(|gap| pass_ns(gap).min(command_ns)).sum();
        // A fetch is within one file, and has a maximum length.
        let files = command_ns * (ranges.len() as u64).saturating_sub(1);
        (gaps + files).max(command_ns * bytes.div_ceil(config.max_fetch_bytes).saturating_sub(1))
    };
    match preset.model {
        // If a long command consists of several transfers, a cut may cost nothing.
        Model::Disk(m) if m.max_transfer_bytes.is_none() => serial(
            m.command_ns,
            m.slopes.iter().map(|s| s.ps_per_kib).min().unwrap_or(0),
        ),
        Model::Array(m) => serial(
            m.overhead.iter().map(|row| row.ns).min().unwrap_or(0),
            m.ps_per_kib,
        ),
        // The drive reads on by itself, so a further command may cost no more than a hit in its buffer.
        Model::Hdd(m) => {
            let pass_ns = |gap: u64| {
                (u128::from(gap) * 1_000_000_000 / u128::from(m.bytes_per_s.outer)) as u64
            };
            gaps().map(|gap| pass_ns(gap).min(m.command_ns)).sum()
        }
        _ => 0,
    }
}

fn ranges(workload: &Workload, page: u64) -> Ranges {
    let mut of_file = Ranges::new();
    for job in &workload.jobs {
        let size = workload.files[job.file as usize];
        let read = job.requests.iter().filter_map(|r| pages(r, page, size));
        of_file.entry(job.file).or_default().extend(read);
    }
    for ranges in of_file.values_mut() {
        ranges.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for &(start, end) in &*ranges {
            match joined.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => joined.push((start, end)),
            }
        }
        *ranges = joined;
    }
    of_file.retain(|_, ranges| !ranges.is_empty());
    of_file
}

/// The pages of a request that exist in the file, in bytes.
fn pages(r: &Request, page: u64, size: u64) -> Option<(u64, u64)> {
    let (start, end) = (
        r.offset / page * page,
        (r.offset + r.len.max(1))
            .div_ceil(page)
            .saturating_mul(page)
            .min(size),
    );
    (r.demands() && (r.len > 0 || r.kind == RequestKind::Touch) && start < end)
        .then_some((start, end))
}

/// The longest such path among the jobs that are not timed and keep one request outstanding.
pub(super) fn path_ns(workload: &Workload, preset: &Preset, config: &Config, seed: u64) -> u64 {
    let firsts: BTreeMap<u32, FirstBytes> = draws(workload, preset, config, seed);
    let jobs = workload
        .jobs
        .iter()
        .filter(|job| job.depth <= 1 && !job.timed);
    jobs.map(|job| of_job(workload, job, preset, config, &firsts))
        .max()
        .unwrap_or(0)
}

fn of_job(
    workload: &Workload,
    job: &Job,
    preset: &Preset,
    config: &Config,
    firsts: &BTreeMap<u32, FirstBytes>,
) -> u64 {
    let (page, size) = (config.page.bytes(), workload.files[job.file as usize]);
    let bits = (size / page / 64) as usize + 1;
    if bits > MAX_WORDS {
        return 0;
    }
    let reads: Vec<&Request> = job.requests.iter().collect();
    // The remaining time from each request to the last read. A touch may be of a mapped page, which costs nothing.
    let Some(last) = reads
        .iter()
        .rposition(|r| r.kind == RequestKind::Read && r.len > 0)
    else {
        return 0;
    };
    let own = |r: &Request| {
        let bytes = r
            .offset
            .saturating_add(r.len)
            .min(size)
            .saturating_sub(r.offset);
        if r.kind == RequestKind::Read {
            copy_ns(bytes, preset.host_ns_per_kib)
        } else {
            0
        }
    };
    let (mut left, mut tails) = (0_u64, vec![0; last + 1]);
    for (i, r) in reads[..=last].iter().enumerate().rev() {
        tails[i] = left;
        left = left.saturating_add(own(r)).saturating_add(r.think_ns);
    }
    let first = firsts.get(&job.file);
    let mut seen = vec![0_u64; bits];
    let (mut bytes, mut longest) = (0, 0);
    for (r, tail) in reads[..=last].iter().zip(&tails) {
        let Some((start, end)) = pages(r, page, size) else {
            continue;
        };
        for at in (start..end).step_by(page as usize) {
            let (word, bit) = ((at / page / 64) as usize, 1 << (at / page % 64));
            bytes += if seen[word] & bit == 0 {
                (at + page).min(end) - at
            } else {
                0
            };
            seen[word] |= bit;
        }
        let arrives = first
            .and_then(|first| first.at(start / page))
            .unwrap_or(0)
            .saturating_add(own(r));
        longest = longest.max(preset.least_ns(bytes).max(arrives).saturating_add(*tail));
    }
    longest
}

/// For each page of a file, the earliest time at which its first byte can arrive.
struct FirstBytes(Vec<u64>);

impl FirstBytes {
    fn at(&self, page: u64) -> Option<u64> {
        self.0.get(usize::try_from(page).ok()?).copied()
    }
}

fn draws(
    workload: &Workload,
    preset: &Preset,
    config: &Config,
    seed: u64,
) -> BTreeMap<u32, FirstBytes> {
    let Model::Net(model) = preset.model else {
        return BTreeMap::new();
    };
    let Some(p99_ns) = model.rtt_p99_ns else {
        return BTreeMap::new();
    };
    let page = config.page.bytes();
    let window = (config.max_fetch_bytes / page).max(1);
    let of_file = |(file, ranges): (u32, Vec<(u64, u64)>)| {
        let pages = ranges
            .last()
            .map_or(0, |r| r.1.div_ceil(page))
            .min(MAX_STARTS);
        // The minimum of the draws in a sliding window: candidates in rising order.
        let mut candidates: VecDeque<(u64, u64)> = VecDeque::new();
        let firsts = (0..pages).map(|p| {
            let drawn = rng::keyed(seed, file, p * page, 0)
                .lognormal(model.rtt_ns as f64, p99_ns as f64)
                .round() as u64;
            while candidates.back().is_some_and(|(_, ns)| *ns >= drawn) {
                candidates.pop_back();
            }
            candidates.push_back((p, drawn));
            while candidates.front().is_some_and(|(at, _)| at + window <= p) {
                candidates.pop_front();
            }
            candidates.front().map_or(0, |(_, ns)| *ns)
        });
        (file, FirstBytes(firsts.collect()))
    };
    ranges(workload, page).into_iter().map(of_file).collect()
}
