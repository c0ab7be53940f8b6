//! Lists all future reads: which bytes they need, in which order, and when each byte is used next.
//!
//! Pages that are always read together are called an *extent*. A *touch* is one use of an extent: a read request or, in a mapping, an
//! access to one of its pages, even if this page is already mapped. A hint is not a touch. Touches are numbered in the order in which
//! readers would reach them if only the transfer of the bytes took time and nothing else did. The number of an extent's next touch
//! therefore shows how soon the extent is needed. The order of the touches of one job is exact. The order of touches of different jobs is
//! an estimate; the oracle also serves a reader that is ahead of this order (`oracle/`).
//!
//! ```text
//!   requests     |----0----|   |-----2-----|         extents: bytes between two boundaries of requests
//!                     |----1----|                    touches: 0a 0b  1b 1c 1d  2d 2e
//!   extents      |-a--|-b--|-c-|-d-|---e---|         next use of b: 0b, then 1b, then never
//! ```
//!
//! Bytes that no job reads are not included.

use crate::workload::model::links;
use crate::workload::{Job, Link, Request, Workload};
use std::collections::BTreeMap;

/// The value used as the next touch of an extent that is never needed again.
pub const NEVER: u32 = u32::MAX;

/// Longest extent in bytes. A fetch is a run of whole extents, so this is its granularity.
const LONGEST_EXTENT: u64 = 256 << 10;

/// Maximum number of touches of a workload (17 bytes of memory each); with this number, the oracle takes about ten seconds to try
/// all its rules.
pub const MAX_TOUCHES: usize = 1 << 20;

/// An extent: pages that are always read together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub file: u32,
    /// First byte; the start of a page.
    pub start: u64,
    /// One past the last byte; the end of a page or of the file.
    pub end: u64,
}

impl Extent {
    pub fn len(&self) -> u64 {
        self.end - self.start
    }
}

/// The assumed order of the reads of several jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// By the time at which they would begin if only their bytes took time.
    Merged,
    /// All reads of one job, then all of the next, because jobs only wait for earlier jobs.
    Jobs,
}

#[derive(Clone)]
pub struct Future {
    /// By file and offset.
    pub extents: Vec<Extent>,
    page_bytes: u64,
    /// The extent of each touch.
    touched: Vec<u32>,
    /// For each touch, the next touch of the same extent.
    after: Vec<u32>,
    done: Vec<bool>,
    /// For each extent, the first touch that is not done.
    next: Vec<u32>,
    /// The first touch of each request, for each job.
    starts: Vec<Vec<u32>>,
    /// Number of pages by the touch that they wait for.
    wanted: Sums,
}

impl Future {
    /// Lists the future reads of the whole workload. An extent has at most `most_pages` pages, and never more than [`LONGEST_EXTENT`];
    /// `cost` is the minimum time of a request. Returns `None` if there are more touches than [`MAX_TOUCHES`].
    pub fn of(
        workload: &Workload,
        page_bytes: u64,
        most_pages: u64,
        order: Order,
        cost: impl Fn(&Request) -> u64,
    ) -> Option<Future> {
        let longest = (LONGEST_EXTENT / page_bytes).clamp(1, most_pages.max(1)) * page_bytes;
        let extents = extents(workload, page_bytes, longest);
        let mut future = Future {
            page_bytes,
            touched: Vec::new(),
            after: Vec::new(),
            done: Vec::new(),
            next: vec![NEVER; extents.len()],
            starts: workload
                .jobs
                .iter()
                .map(|j| vec![0; j.requests.len()])
                .collect(),
            wanted: Sums::default(),
            extents,
        };
        let mut last = vec![NEVER; future.extents.len()];
        for (job, request) in in_order(&workload.jobs, order, cost) {
            future.starts[job][request] = future.touched.len() as u32;
            let Job { file, requests, .. } = &workload.jobs[job];
            if requests[request].demands() {
                future.add_touches(*file, &requests[request], &mut last);
            }
            if future.touched.len() > MAX_TOUCHES {
                return None;
            }
        }
        future.done = vec![false; future.touched.len()];
        future.wanted = Sums::new(future.touched.len());
        for extent in 0..future.extents.len() as u32 {
            future
                .wanted
                .add(future.next[extent as usize], future.pages(extent) as i64);
        }
        Some(future)
    }

    fn add_touches(&mut self, file: u32, request: &Request, last: &mut [u32]) {
        let first = self
            .extents
            .partition_point(|e| (e.file, e.end) <= (file, request.offset));
        let end = request.offset + request.len;
        let inside = |e: &&Extent| e.file == file && e.start < end && request.len > 0;
        let count = self.extents[first..].iter().take_while(inside).count();
        for (extent, last) in last.iter_mut().enumerate().skip(first).take(count) {
            let touch = self.touched.len() as u32;
            match *last {
                NEVER => self.next[extent] = touch,
                before => self.after[before as usize] = touch,
            }
            *last = touch;
            self.touched.push(extent as u32);
            self.after.push(NEVER);
        }
    }

    /// Returns the first touch of a request. The request has further touches, until its end is reached.
    pub fn first_touch(&self, job: u32, request: usize) -> u32 {
        self.starts[job as usize][request]
    }

    pub fn extent_of(&self, touch: u32) -> u32 {
        self.touched[touch as usize]
    }

    pub fn extent(&self, extent: u32) -> Extent {
        self.extents[extent as usize]
    }

    pub fn pages(&self, extent: u32) -> u64 {
        self.extent(extent).len().div_ceil(self.page_bytes)
    }

    /// Returns the number of the next touch that needs this extent, or [`NEVER`].
    pub fn next_use(&self, extent: u32) -> u32 {
        self.next[extent as usize]
    }

    /// Returns how many distinct pages are needed up to and including this touch.
    pub fn pages_until(&self, touch: u32) -> u64 {
        self.wanted.until(touch)
    }

    /// Marks a touch as done, and returns the next touch of its extent.
    pub fn finish(&mut self, touch: u32) -> u32 {
        self.done[touch as usize] = true;
        let extent = self.extent_of(touch);
        let before = self.next[extent as usize];
        let mut next = before;
        while next != NEVER && self.done[next as usize] {
            next = self.after[next as usize];
        }
        if next != before {
            let pages = self.pages(extent) as i64;
            self.wanted.add(before, -pages);
            self.wanted.add(next, pages);
            self.next[extent as usize] = next;
        }
        next
    }
}

/// Every request as (job, index in the job), by the time at which each would begin if its predecessors, in its job and
/// in the jobs before that, took their minimum time.
fn in_order(jobs: &[Job], order: Order, cost: impl Fn(&Request) -> u64) -> Vec<(usize, usize)> {
    let mut keys = Vec::new();
    let (mut starts, mut ends) = (vec![0_u64; jobs.len()], vec![0_u64; jobs.len()]);
    for (number, job) in jobs.iter().enumerate() {
        let begin = begin_ns(job, &starts, &ends);
        starts[number] = begin.saturating_add(job.requests.first().map_or(0, |r| r.think_ns));
        let depth = u64::from(job.depth.max(1));
        let mut at = 0_u64;
        for (i, request) in job.requests.iter().enumerate() {
            at = at.saturating_add(request.think_ns);
            keys.push((begin.saturating_add(at / depth), i, number));
            at = at.saturating_add(if request.demands() { cost(request) } else { 0 });
        }
        ends[number] = begin.saturating_add(at / depth);
    }
    if order == Order::Merged {
        keys.sort_unstable();
    }
    keys.into_iter().map(|(_, i, job)| (job, i)).collect()
}

/// The start time of a job, given the start and end times of the jobs that it waits for.
pub(super) fn begin_ns(job: &Job, starts: &[u64], ends: &[u64]) -> u64 {
    let happened = |link: &Link| {
        if link.end {
            ends[link.job as usize]
        } else {
            starts[link.job as usize]
        }
    };
    links(job)
        .map(|link| happened(&link).saturating_add(link.delay_ns))
        .max()
        .unwrap_or(0)
}

/// The pages of all requests, cut at the beginnings and ends of requests and at multiples of `longest`.
fn extents(workload: &Workload, page_bytes: u64, longest: u64) -> Vec<Extent> {
    let page_start = |at: u64| at & !(page_bytes - 1);
    let mut of_files: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
    for job in &workload.jobs {
        let size = workload.files[job.file as usize];
        let wanted = job
            .requests
            .iter()
            .filter(|r| r.demands() && r.len > 0 && r.offset < size);
        let pages = |r: &Request| {
            (
                page_start(r.offset),
                page_start(r.offset + r.len + page_bytes - 1).min(size),
            )
        };
        of_files
            .entry(job.file)
            .or_default()
            .extend(wanted.map(pages));
    }
    let mut all = Vec::new();
    for (file, mut ranges) in of_files {
        ranges.sort_unstable();
        ranges.dedup();
        cut(file, &ranges, longest, &mut all);
    }
    all
}

/// Cuts the sorted ranges of one file.
fn cut(file: u32, ranges: &[(u64, u64)], longest: u64, all: &mut Vec<Extent>) {
    let mut edges: Vec<u64> = ranges.iter().flat_map(|r| [r.0, r.1]).collect();
    edges.sort_unstable();
    let (mut reached, mut edge) = (0, 0);
    for &(start, end) in ranges {
        let mut at = start.max(reached);
        while at < end {
            let cut = (at / longest + 1) * longest;
            while edges[edge] <= at {
                edge += 1;
            }
            let stop = cut.min(edges[edge]);
            all.push(Extent {
                file,
                start: at,
                end: stop,
            });
            at = stop;
        }
        reached = reached.max(end);
    }
}

/// Prefix sums of a list of numbers that change (Fenwick 1994).
#[derive(Clone, Default)]
struct Sums(Vec<i64>);

impl Sums {
    fn new(len: usize) -> Sums {
        Sums(vec![0; len])
    }

    /// Adds to the number at `at`; does nothing for [`NEVER`].
    fn add(&mut self, at: u32, value: i64) {
        let mut i = at as usize;
        while i < self.0.len() {
            self.0[i] += value;
            i |= i + 1;
        }
    }

    /// The sum up to and including `at`.
    fn until(&self, at: u32) -> u64 {
        let mut i = (at as usize + 1).min(self.0.len());
        let mut sum = 0;
        while i > 0 {
            sum += self.0[i - 1];
            i &= i - 1;
        }
        sum as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(jobs: &[&[(u64, u64)]]) -> Workload {
        let job = |reads: &&[(u64, u64)]| {
            let reads = reads.iter().map(|r| Request::read(r.0, r.1));
            Job::new(0, 0, reads.collect())
        };
        Workload {
            page_bytes: 512,
            jobs: jobs.iter().map(job).collect(),
            ..Workload::on_files("test", vec![10_000])
        }
    }

    fn future(jobs: &[&[(u64, u64)]]) -> Future {
        Future::of(&workload(jobs), 512, 4, Order::Merged, |r| r.len).expect("small")
    }

    #[test]
    fn extents_are_cut_at_every_edge_and_cover_what_is_read() {
        let reads = [(0, 1000), (600, 1000), (9_900, 100), (4096, 4096), (1, 0)];
        let f = future(&[&reads]);
        let starts = f.extents.iter().map(|e| e.start);
        assert!(starts.eq([0, 512, 1024, 4096, 6144, 9728]));
        let ends = f.extents.iter().map(|e| e.end);
        assert!(ends.eq([512, 1024, 2048, 6144, 8192, 10_000]));
        let bytes: u64 = f.extents.iter().map(Extent::len).sum();
        assert_eq!(bytes, workload(&[&reads[..4]]).distinct_bytes(512));
        assert_eq!((f.pages(2), f.pages(5)), (2, 1));
    }

    #[test]
    fn next_uses_are_in_the_order_of_the_requests() {
        let mut f = future(&[&[(0, 512), (512, 512), (0, 1024)]]);
        assert_eq!(
            [0, 1, 2].map(|request| f.first_touch(0, request)),
            [0, 1, 2]
        );
        assert_eq!([0, 1, 2, 3].map(|t| f.extent_of(t)), [0, 1, 0, 1]);
        assert_eq!((f.next_use(0), f.next_use(1)), (0, 1));
        assert_eq!([0, 1, 3].map(|touch| f.pages_until(touch)), [1, 2, 2]);
        assert_eq!(f.finish(0), 2);
        assert_eq!([0, 1, 2].map(|touch| f.pages_until(touch)), [0, 1, 2]);
        // Out of order: the later touch is made first.
        assert_eq!(f.finish(3), 1);
        assert_eq!(f.finish(1), NEVER);
        assert_eq!((f.finish(2), f.pages_until(3)), (NEVER, 0));
    }

    #[test]
    fn jobs_are_merged_by_the_time_they_would_take() {
        // The second job reads twice as much in each request, so its second request comes after two of the first job.
        let f = future(&[
            &[(0, 512), (512, 512), (1024, 512)],
            &[(5120, 1024), (6144, 512)],
        ]);
        let requests = [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2)];
        let touches = requests.map(|(job, request)| f.first_touch(job, request));
        assert_eq!(touches, [0, 1, 2, 3, 4]);
    }

    /// The second job of a chain begins after the first. A touch is of its page, and a hint touches nothing.
    #[test]
    fn a_chain_comes_in_its_order() {
        let mut w = workload(&[&[(0, 512), (512, 512)], &[(1024, 512)], &[(2048, 512)]]);
        w.jobs[1].after = Some(0);
        w.jobs[0].requests[0] = Request::hint(foreread_core::event::Advice::WillNeed, 0, 10_000);
        w.jobs[2].requests.push(Request::touch(700));
        let f = Future::of(&w, 512, 4, Order::Merged, |r| r.len).expect("small");
        let ranges: Vec<(u64, u64)> = f.extents.iter().map(|e| (e.start, e.end)).collect();
        assert_eq!(ranges, [(512, 1024), (1024, 1536), (2048, 2560)]);
        let of = |job, request| f.extents[f.extent_of(f.first_touch(job, request)) as usize].start;
        let requests = [(2, 0), (0, 1), (1, 0), (2, 1)];
        let starts = requests.map(|(job, request)| of(job, request));
        assert_eq!(starts, [2048, 512, 1024, 512]);
        let order = requests.map(|(job, request)| f.first_touch(job, request));
        assert_eq!(order, [0, 1, 2, 3]);
    }
}
