//! Computes a time that no run can beat, whatever it fetches and when it fetches it (a lower bound). The bound serves as a consistency
//! check for the simulator.
//!
//! ```text
//!   bound = max( device: the minimum time in which the model reads the distinct pages
//!                readers: thinking and copying of the slowest chain of jobs,
//!                path: the minimum time until a read has its bytes, plus the later thinking and copying )
//! ```
//!
//! The device must deliver each page at least once, in the best case with a single command for all pages. Even if everything is cached, a
//! reader needs its think time and the time to copy data. A hint (such as WILLNEED) costs no time. A fault in a mapping may map a whole
//! block of 16 pages (64 KiB), so the bound counts only the first touch of each such block. A run ends with its last read, so think time
//! after a job's last read is included only if another job follows. If a run takes less time than this bound, the simulator, the oracle or
//! the device model has a bug.
//!
//! The bound does not estimate how fast a run can really be. If latencies are random, the bound for the device uses the shortest possible
//! latency. The bound for the path uses the shortest latency that this run can get for a page.

use super::future::begin_ns;
use super::path;
use crate::device::presets::Preset;
use crate::simulator::copy_ns;
use crate::workload::{Job, Request, RequestKind, Workload};
use foreread_core::machine::Config;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum bytes mapped by a fault.
const AROUND_BYTES: u64 = 64 << 10;

/// The parts of the lower bound for the time of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// Minimum time of the device.
    pub device_ns: u64,
    /// Minimum time of the slowest reader.
    pub readers_ns: u64,
    /// Minimum wait of a reader plus its remaining thinking and copying; see `path.rs`.
    pub path_ns: u64,
}

impl Bound {
    /// Returns the bound for a workload on a device model, with a cache whose pages have at least `page_bytes` bytes.
    pub fn of(workload: &Workload, preset: &Preset, page_bytes: u64) -> Bound {
        Bound {
            device_ns: preset.least_ns(workload.distinct_bytes(page_bytes)),
            readers_ns: readers_ns(workload, preset.host_ns_per_kib, page_bytes),
            path_ns: 0,
        }
    }

    /// Returns the bound for a run with these limits, on a device whose random numbers depend on `seed`. This bound includes the
    /// cost of gaps between pages and of dividing reads into commands, and the path of each reader.
    pub fn of_run(workload: &Workload, preset: &Preset, config: &Config, seed: u64) -> Bound {
        let mut bound = Bound::of(workload, preset, config.page.bytes());
        bound.device_ns = bound
            .device_ns
            .saturating_add(path::commands_ns(workload, preset, config));
        bound.path_ns = path::path_ns(workload, preset, config, seed);
        bound
    }

    /// Returns the lower bound, which is the largest of the parts.
    pub fn ns(&self) -> u64 {
        self.device_ns.max(self.readers_ns).max(self.path_ns)
    }
}

/// The minimum time of the slowest chain of jobs, up to the last read of each.
fn readers_ns(workload: &Workload, host_ns_per_kib: u64, page_bytes: u64) -> u64 {
    let shared = shared_opens(&workload.jobs);
    let mut touched = BTreeSet::new();
    let (mut starts, mut ends) = (
        Vec::with_capacity(workload.jobs.len()),
        Vec::with_capacity(workload.jobs.len()),
    );
    let mut latest = 0;
    for job in &workload.jobs {
        let size = workload.files[job.file as usize];
        let clipped =
            |start: u64, len: u64| start.saturating_add(len).min(size).saturating_sub(start);
        // The bytes that each request gets. The first touch of a page is known only if no other reader can have touched
        // it before.
        let mut bytes = |r: &Request| match r.kind {
            RequestKind::Read => Some(clipped(r.offset, r.len)),
            RequestKind::Touch if shared.contains(&job.open) => None,
            RequestKind::Touch => {
                let page = r.offset / page_bytes;
                touched
                    .insert((job.open, r.offset / AROUND_BYTES.max(page_bytes)))
                    .then(|| clipped(page * page_bytes, page_bytes))
            }
            RequestKind::Hint(_) => None,
        };
        let got: Vec<Option<u64>> = job.requests.iter().map(&mut bytes).collect();
        let begin = begin_ns(job, &starts, &ends);
        if job.timed {
            // Each request comes at its time, whether or not others still wait, so each is bounded separately.
            let served = begin.max(timed_ns(job, &got, host_ns_per_kib));
            latest = latest.max(served);
            starts.push(begin);
            ends.push(served);
            continue;
        }
        if let Some(last) = got.iter().rposition(Option::is_some) {
            latest = latest.max(begin.saturating_add(job_ns(job, &got[..=last], host_ns_per_kib)));
        }
        starts.push(begin.saturating_add(job.requests.first().map_or(0, |r| r.think_ns)));
        ends.push(begin.saturating_add(job_ns(job, &got, host_ns_per_kib)));
    }
    latest
}

/// The minimum time of a job for its first requests: all its thinking and copying, divided among its outstanding
/// requests. With more than one outstanding, it is random which of them thinks before a request, so each request that
/// is not issued at once is charged the minimum. Touches are charged together: on larger pages several of them are one
/// fault, with one rounding.
fn job_ns(job: &Job, got: &[Option<u64>], host_ns_per_kib: u64) -> u64 {
    let requests = || job.requests.iter().zip(got);
    let sum = |all: &mut dyn Iterator<Item = u64>| all.fold(0, u64::saturating_add);
    let of_reads = requests()
        .filter(|(r, _)| r.kind == RequestKind::Read)
        .map(|(_, bytes)| bytes.unwrap_or(0));
    let reads = sum(&mut of_reads.map(|bytes| copy_ns(bytes, host_ns_per_kib)));
    let touches = sum(&mut requests()
        .filter(|(r, _)| r.kind == RequestKind::Touch)
        .map(|(_, bytes)| bytes.unwrap_or(0)));
    let depth = u64::from(job.depth.max(1));
    let mut thinks = requests()
        .map(|(r, _)| r.think_ns)
        .filter(|&think| think > 0);
    let think = if depth == 1 {
        sum(&mut thinks)
    } else {
        let least = job
            .requests
            .iter()
            .map(|r| r.think_ns)
            .filter(|&think| think > 0)
            .min()
            .unwrap_or(0);
        least.saturating_mul(thinks.count() as u64)
    };
    reads
        .saturating_add(touches.saturating_mul(host_ns_per_kib) / 1024)
        .saturating_add(think)
        / depth
}

/// The earliest time at which the last certain request of a timed job can be served. A touch may be of a page that
/// another request has mapped, because requests overtake each other.
fn timed_ns(job: &Job, got: &[Option<u64>], host_ns_per_kib: u64) -> u64 {
    let reads = job
        .requests
        .iter()
        .zip(got)
        .filter(|(r, _)| r.kind == RequestKind::Read);
    let served = reads.map(|(r, bytes)| {
        r.think_ns
            .saturating_add(copy_ns(bytes.unwrap_or(0), host_ns_per_kib))
    });
    served.max().unwrap_or(0)
}

/// Open descriptions of jobs that may run concurrently, because they are not all in one chain. For these it is unknown
/// which reader touches a page first.
fn shared_opens(jobs: &[Job]) -> BTreeSet<u32> {
    // A line is a chain without branches: if several jobs follow the same job, the first of them continues its line.
    let mut lines: Vec<u32> = Vec::with_capacity(jobs.len());
    let mut followed = vec![false; jobs.len()];
    let mut line_of_open = BTreeMap::new();
    let mut shared = BTreeSet::new();
    for (number, job) in jobs.iter().enumerate() {
        let goes_on = job
            .after
            .filter(|&before| !std::mem::replace(&mut followed[before as usize], true));
        let line = goes_on.map_or(number as u32, |before| lines[before as usize]);
        lines.push(line);
        if *line_of_open.entry(job.open).or_insert(line) != line {
            shared.insert(job.open);
        }
    }
    shared
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::presets;
    use crate::workload::Request;

    fn workload(depth: u32, thinks: &[u64]) -> Workload {
        let request = |(i, think_ns): (u64, &u64)| Request::read(i * 1024, 1024).think(*think_ns);
        let requests = (0..).zip(thinks).map(request).collect();
        Workload {
            page_bytes: 512,
            ..Workload::single("test", 1 << 20, depth, requests)
        }
    }

    #[test]
    fn readers_think_and_copy() {
        // 400 ns for each KiB.
        let preset = presets::find("x25-m").expect("a preset");
        let of = |w: &Workload| Bound::of(w, preset, 512);
        assert_eq!(of(&workload(1, &[0, 1000, 5000])).readers_ns, 7200);
        // Two requests outstanding: half of three copies and of three times the shortest pause.
        let two = of(&workload(2, &[300, 1000, 5000]));
        assert_eq!(two.readers_ns, (1200 + 900) / 2);
        let mut two = workload(1, &[1000]);
        two.jobs.push(workload(1, &[0, 7000]).jobs.remove(0));
        assert_eq!(of(&two).readers_ns, 7800);
        assert_eq!(of(&workload(1, &[])), Bound::default());
    }

    #[test]
    fn the_device_gives_each_byte_once() {
        let preset = presets::find("hdd-theory").expect("a preset");
        let mut w = workload(1, &[0, 0, 0]);
        let once = Bound::of(&w, preset, 512);
        // 8 ms and 3 KiB at 102,400 KiB/s, rounded up.
        assert_eq!((once.device_ns, once.ns()), (8_029_297, 8_029_297));
        w.jobs.push(w.jobs[0].clone());
        assert_eq!(Bound::of(&w, preset, 512).device_ns, once.device_ns);
    }

    /// Computed by hand, with 400 ns for each KiB: a touch of a page of 512 bytes takes 200 ns, and only the first
    /// touch in each block of 64 KiB counts.
    #[test]
    fn touches_are_charged_where_they_surely_are_the_first() {
        const FAR: u64 = 64 << 10;
        let preset = presets::find("x25-m").expect("a preset");
        let job = |open: u32, after: Option<u32>, at: &[u64]| {
            Job::new(0, open, at.iter().map(|&at| Request::touch(at)).collect()).after(after)
        };
        let of = |jobs: Vec<Job>, page| {
            let none = workload(1, &[]);
            Bound::of(&Workload { jobs, ..none }, preset, page).readers_ns
        };
        assert_eq!(of(vec![job(0, None, &[0, 511, FAR, 512, 0])], 512), 400);
        assert_eq!(of(vec![job(0, None, &[0, 511, 512, 0])], 1024), 400);
        // One mapping along a chain, one mapping for each job of a chain, and one mapping shared by two readers.
        for (open, after, ns) in [(0, Some(0), 400), (1, Some(0), 600), (0, None, 0)] {
            let jobs = vec![job(0, None, &[0]), job(open, after, &[0, FAR])];
            assert_eq!(of(jobs, 512), ns, "{open} {after:?}");
        }
        // A branch of a chain is also another reader.
        let branches = [0, FAR].map(|at| job(0, Some(0), &[at]));
        let branched = [vec![job(1, None, &[0])], branches.to_vec()].concat();
        assert_eq!(of(branched, 512), 200);
        // The last page of the file is not a whole page.
        let last = Workload {
            files: vec![600],
            jobs: vec![job(0, None, &[599])],
            ..workload(1, &[])
        };
        assert_eq!(Bound::of(&last, preset, 512).readers_ns, 34, "88 bytes");
    }

    /// Pauses before requests that are issued at once do not count, and pauses after the last read do not count.
    #[test]
    fn pauses_count_up_to_the_last_read() {
        let preset = presets::find("rbd").expect("a preset that charges no copies");
        let of = |w: &Workload| Bound::of(w, preset, 512).readers_ns;
        assert_eq!(of(&workload(2, &[0, 300, 5000])), 300);
        let mut hinted = workload(1, &[100, 300]);
        hinted.jobs[0].requests[1].kind = RequestKind::Hint(foreread_core::event::Advice::Random);
        assert_eq!(of(&hinted), 100);
        hinted.jobs.push(Job {
            after: Some(0),
            ..workload(1, &[7]).jobs.remove(0)
        });
        assert_eq!(of(&hinted), 407);
    }
}
