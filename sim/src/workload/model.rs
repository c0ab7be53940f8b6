//! The parts of a workload: requests in jobs, and jobs on files.
//!
//! A job is a sequence of requests through one open file description. A process that reads several files one after the
//! other is a chain of jobs: each job begins when the previous one has ended. Several chains of jobs represent several processes. An open
//! file description is opened when its first job begins, and closed when its last job ends. So a process that reads thousands of files in
//! turn has only one of them open at a time, unless a later job uses the same open description again.
//!
//! ```text
//!   process 1   job ──after──► job ──after──► job       one open description for each job, or one for all
//!   process 2   job ──after──► job
//!                 └ request, request, ...               read, touch of a mapped page, hint
//! ```
//!
//! A workload has no writes, no data, and no clock. No request goes beyond the end of its file.

use super::PAGE_BYTES;
use foreread_core::event::{Advice, Mapping};
use foreread_core::units::ByteRange;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Reads these bytes with a read call.
    Read,
    /// Touches one byte through the job's mapping: a page fault, unless the page is already mapped.
    Touch,
    /// Reads nothing: states which part of the file is needed, and how.
    Hint(Advice),
}

/// One action of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub offset: u64,
    /// Number of bytes; 1 for a touch.
    pub len: u64,
    /// How long the reader waits before it issues this request, counted from the end of the previous one, in
    /// nanoseconds. In a job that is [`Job::timed`], counted from the start of the run.
    pub think_ns: u64,
    pub kind: RequestKind,
}

impl Request {
    /// Creates a read without a pause before it.
    pub fn read(offset: u64, len: u64) -> Request {
        Request {
            offset,
            len,
            think_ns: 0,
            kind: RequestKind::Read,
        }
    }

    /// Creates the read of record `n` of a file of `size` bytes; the last record may be shorter.
    pub fn record(n: u64, record: u64, size: u64) -> Request {
        Request::read(n * record, record.min(size - n * record))
    }

    /// The same request after a pause.
    pub fn think(self, think_ns: u64) -> Request {
        Request { think_ns, ..self }
    }

    /// Creates a touch of the byte at `offset`, without a pause before it.
    pub fn touch(offset: u64) -> Request {
        let kind = RequestKind::Touch;
        Request {
            kind,
            ..Request::read(offset, 1)
        }
    }

    /// Creates a hint about `len` bytes from `offset` on.
    pub fn hint(advice: Advice, offset: u64, len: u64) -> Request {
        let kind = RequestKind::Hint(advice);
        Request {
            kind,
            ..Request::read(offset, len)
        }
    }

    /// Returns true if the job waits for bytes, which it does for every request except a hint.
    pub fn demands(&self) -> bool {
        !matches!(self.kind, RequestKind::Hint(_))
    }
}

/// A job: one reader, or a part of its reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The file, an index into [`Workload::files`].
    pub file: u32,
    /// The open description. Jobs that share one also share the stream state of a policy, and their mapped pages.
    pub open: u32,
    /// How many requests may be outstanding, at least 1.
    pub depth: u32,
    /// The number of requests that are issued together: a served request waits until this many have been served. With
    /// 1, each is issued at once. It has no effect in a job that is `timed`. At most `depth`.
    pub batch: u32,
    /// The earlier job, an index into [`Workload::jobs`], that must end before this one begins; `None`: this job begins
    /// at once.
    pub after: Option<u32>,
    /// What else must happen before it begins.
    pub links: Vec<Link>,
    /// Its requests are issued at fixed times, whether or not others still wait: [`Request::think_ns`] is counted from
    /// the start of the run, and never decreases. At most `depth` requests are outstanding. An additional request is
    /// issued as soon as possible, and its wait counts from its time.
    pub timed: bool,
    /// The mapping for its touches is executable. It always covers the whole file, and has no advice of its own.
    pub executable: bool,
    pub requests: Vec<Request>,
}

impl Job {
    /// Creates a job that begins at once and has at most one request outstanding.
    pub fn new(file: u32, open: u32, requests: Vec<Request>) -> Job {
        Job {
            file,
            open,
            depth: 1,
            batch: 1,
            after: None,
            links: Vec::new(),
            timed: false,
            executable: false,
            requests,
        }
    }

    /// The same job with at most this many requests outstanding.
    pub fn depth(self, depth: u32) -> Job {
        Job { depth, ..self }
    }

    /// The same job, which begins when this earlier one has ended.
    pub fn after(self, earlier: impl Into<Option<u32>>) -> Job {
        let after = earlier.into();
        Job { after, ..self }
    }

    /// Returns how many requests must be served before the job continues, if `next` requests have been issued: the requests of a
    /// batch, or the remaining requests if there are fewer.
    pub fn together(&self, next: usize) -> usize {
        self.requests
            .len()
            .saturating_sub(next)
            .clamp(1, self.batch.clamp(1, self.depth.max(1)) as usize)
    }

    /// Returns the mapping through which the job touches its file, which has `size` bytes.
    pub fn mapping(&self, size: u64) -> Mapping {
        Mapping {
            range: ByteRange::between(0, size),
            executable: self.executable,
            advice: Advice::Normal,
        }
    }
}

/// A list of requests and the files that they read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    pub name: String,
    /// The size of each file in bytes.
    pub files: Vec<u64>,
    /// The files are in the order of a listing, and the source has the listing before the first file is opened.
    pub listed: bool,
    /// The default cache page size for this workload, in bytes, which fits its reads.
    pub page_bytes: u64,
    pub jobs: Vec<Job>,
}

impl Workload {
    /// The page size of workloads that model a program which reads through the kernel's page cache.
    pub const PAGE_BYTES: u64 = PAGE_BYTES;

    /// Creates a workload of these jobs on these files.
    pub fn of(name: &str, files: Vec<u64>, jobs: Vec<Job>) -> Workload {
        Workload {
            name: name.to_string(),
            files,
            listed: false,
            page_bytes: PAGE_BYTES,
            jobs,
        }
    }

    /// Creates a workload of one job on one file.
    pub fn single(name: &str, size: u64, depth: u32, requests: Vec<Request>) -> Workload {
        let job = Job::new(0, 0, requests).depth(depth);
        Workload::of(name, vec![size], vec![job])
    }

    /// Creates a workload on these files, without jobs yet.
    pub fn on_files(name: &str, files: Vec<u64>) -> Workload {
        Workload::of(name, files, Vec::new())
    }

    /// Adds a job to the process whose latest job is `last`, so that it begins when that job ends.
    pub fn then(&mut self, last: &mut Option<u32>, job: Job) {
        let number = self.jobs.len() as u32;
        self.jobs.push(job.after(last.replace(number)));
    }

    /// Returns the number of requests that need bytes: reads and touches.
    pub fn reads(&self) -> u64 {
        self.jobs
            .iter()
            .map(|job| job.requests.iter().filter(|r| r.demands()).count() as u64)
            .sum()
    }

    /// Returns the number of bytes that all reads and touches request; bytes that are requested twice are counted twice.
    pub fn bytes(&self) -> u64 {
        self.jobs
            .iter()
            .flat_map(|job| &job.requests)
            .filter(|r| r.demands())
            .map(|r| r.len)
            .sum()
    }

    pub fn touches(&self) -> bool {
        self.jobs
            .iter()
            .flat_map(|job| &job.requests)
            .any(|r| r.kind == RequestKind::Touch)
    }

    /// Returns the number of bytes in those pages of `page_bytes` bytes that are read or touched at least once; read amplification
    /// is relative to this number. The last page of a file is counted only up to the end of the file. `page_bytes` must be a power
    /// of two.
    pub fn distinct_bytes(&self, page_bytes: u64) -> u64 {
        let page_start = |at: u64| at & !(page_bytes - 1);
        let mut of_file: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
        for job in &self.jobs {
            let size = self.files[job.file as usize];
            let ranges = of_file.entry(job.file).or_default();
            for r in job.requests.iter().filter(|r| r.demands() && r.len > 0) {
                let (start, end) = (
                    page_start(r.offset),
                    page_start(r.offset + r.len + page_bytes - 1).min(size),
                );
                match ranges.last_mut() {
                    // Most reads continue where the last one ended, which extends the last range.
                    Some(last) if last.0 <= start && start <= last.1 => last.1 = last.1.max(end),
                    _ => ranges.push((start, end)),
                }
            }
        }
        of_file.into_values().map(union_len).sum()
    }
}

/// The number of bytes that are in at least one of the ranges.
fn union_len(mut ranges: Vec<(u64, u64)>) -> u64 {
    ranges.sort_unstable();
    let (mut reached, mut total) = (0, 0);
    for (start, end) in ranges {
        total += end.saturating_sub(start.max(reached));
        reached = reached.max(end);
    }
    total
}

// The beginning of a job: the starts and ends of other jobs that it waits for.
//
// The job scheduler (`scheduler.rs`) reports when a job started or ended, and begins the jobs that this file returns.
//
// ```text
//   job ──started(now)──► links to its start ─┐ all of a job's links have happened:
//       ──ended(now)────► links to its end ───┴──► it may begin, at the latest of (when it happened + delay)
// ```

/// An event that a job waits for, in addition to the end of the job that it follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// An earlier job, an index into [`super::Workload::jobs`].
    pub job: u32,
    /// If set, it waits for the end of that job, when its last request has been served. Otherwise it waits for its
    /// start, when its first request is issued.
    pub end: bool,
    /// The minimum time from that event to the start of the job, in nanoseconds.
    pub delay_ns: u64,
}

/// A job that waits for another one.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    job: u32,
    end: bool,
    delay_ns: u64,
}

/// The dependencies between jobs: which jobs wait for which other jobs, and for how many more events each job waits.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    /// For each job, the number of events that have not happened yet.
    left: Vec<u32>,
    /// For each job, the earliest start time that follows from the events so far.
    from_ns: Vec<u64>,
    /// For each job, the jobs that wait for it.
    waiters: Vec<Vec<Waiter>>,
}

impl Waits {
    /// Creates the dependencies of the given jobs, none of which has begun.
    pub fn of(jobs: &[Job]) -> Waits {
        let mut waits = Waits {
            left: vec![0; jobs.len()],
            from_ns: vec![0; jobs.len()],
            waiters: vec![Vec::new(); jobs.len()],
        };
        for (number, job) in jobs.iter().enumerate() {
            for Link {
                job: of,
                end,
                delay_ns,
            } in links(job)
            {
                waits.left[number] += 1;
                waits.waiters[of as usize].push(Waiter {
                    job: number as u32,
                    end,
                    delay_ns,
                });
            }
        }
        waits
    }

    /// Returns the jobs that wait for no event, in their order.
    pub fn free(&self) -> Vec<u32> {
        (0..self.left.len() as u32)
            .filter(|&job| self.left[job as usize] == 0)
            .collect()
    }

    /// Must be called when the first request of a job is issued, or when a job without requests begins. Returns the jobs that were
    /// waiting for this event and may now begin, each with its earliest start time.
    pub fn started(&mut self, job: u32, now: u64) -> Vec<(u32, u64)> {
        self.happened(job, false, now)
    }

    /// Must be called when the last request of a job has been served. Returns the jobs that were waiting for this event and may now
    /// begin, each with its earliest start time.
    pub fn ended(&mut self, job: u32, now: u64) -> Vec<(u32, u64)> {
        self.happened(job, true, now)
    }

    fn happened(&mut self, job: u32, end: bool, now: u64) -> Vec<(u32, u64)> {
        let mut ready = Vec::new();
        for waiter in self.waiters[job as usize].iter().filter(|w| w.end == end) {
            let (left, from) = (
                &mut self.left[waiter.job as usize],
                &mut self.from_ns[waiter.job as usize],
            );
            *left -= 1;
            *from = (*from).max(now.saturating_add(waiter.delay_ns));
            if *left == 0 {
                ready.push((waiter.job, *from));
            }
        }
        ready
    }
}

/// Returns all events that a job waits for: the end of the job that it follows, and the events in its links.
pub fn links(job: &Job) -> impl Iterator<Item = Link> {
    let follows = job.after.map(|job| Link {
        job,
        end: true,
        delay_ns: 0,
    });
    follows.into_iter().chain(job.links.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinct_bytes_count_each_page_once() {
        let read = Request::read;
        let reads = [(8192, 4096), (0, 1), (100, 5000), (20_000, 0), (39_999, 1)];
        let reads = reads.map(|(at, len)| read(at, len)).to_vec();
        let mut workload = Workload::single("", 40_000, 1, reads);
        // Pages 0, 1 and 2, and the last 3,136 bytes from 36,864.
        assert_eq!(workload.distinct_bytes(4096), 3 * 4096 + 3136);
        assert_eq!(workload.distinct_bytes(512), 4096 + 5120 + 40_000 - 39_936);
        assert_eq!((workload.reads(), workload.bytes()), (5, 9098));
        workload.files.push(1 << 20);
        workload.jobs.push(Job::new(1, 1, vec![read(20_000, 10)]));
        assert_eq!(workload.distinct_bytes(4096), 3 * 4096 + 3136 + 4096);
        // Reads inside a longer read add nothing; the same bytes of another file do.
        workload.jobs[0].requests = vec![read(0, 4096)];
        workload.jobs[1].requests = vec![read(0, 4096), read(512, 512), read(1024, 512)];
        assert_eq!(workload.distinct_bytes(512), 2 * 4096);
        // Another reader of the same pages adds nothing either.
        workload.jobs.push(Job::new(1, 2, vec![read(0, 4097)]));
        assert_eq!(workload.distinct_bytes(512), 2 * 4096 + 512);
    }

    /// A touch demands its page; a hint demands nothing.
    #[test]
    fn touches_count_and_hints_do_not() {
        let hint = Request::hint(Advice::WillNeed, 0, 40_000);
        let mut workload = Workload::single("", 40_000, 1, vec![hint, Request::read(0, 100)]);
        assert_eq!((workload.reads(), workload.bytes()), (1, 100));
        assert_eq!(workload.distinct_bytes(4096), 4096);
        assert!(!workload.touches());
        let touches = [39_999, 36_864, 4096].map(Request::touch);
        workload.jobs[0].requests.extend(touches);
        assert_eq!((workload.reads(), workload.bytes()), (4, 103));
        assert_eq!(workload.distinct_bytes(4096), 4096 + 4096 + 3136);
        assert!(workload.touches());
    }

    #[test]
    fn jobs_of_a_process_follow_each_other() {
        let mut workload = Workload::on_files("", vec![10, 10]);
        let mut last = [None, None];
        for (process, file) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
            workload.then(&mut last[process], Job::new(file, 0, Vec::new()));
        }
        let after: Vec<Option<u32>> = workload.jobs.iter().map(|j| j.after).collect();
        assert_eq!(after, [None, None, Some(0), Some(1)]);
    }

    #[test]
    fn the_latest_of_all_sums_counts() {
        let job = |links: &[Link]| Job {
            links: links.to_vec(),
            ..Job::new(0, 0, Vec::new())
        };
        let link = |job, end, delay_ns| Link { job, end, delay_ns };
        let jobs = [
            job(&[]),
            job(&[]),
            job(&[link(0, false, 100), link(1, true, 5)]),
            job(&[link(0, true, u64::MAX)]).after(0),
        ];
        let mut waits = Waits::of(&jobs);
        assert_eq!(waits.free(), [0, 1]);
        assert_eq!(waits.started(0, 10), []);
        assert_eq!(waits.started(1, 10), []);
        assert_eq!(waits.ended(1, 50), [(2, 110)]);
        assert_eq!(waits.ended(0, 60), [(3, u64::MAX)]);
        let mut waits = Waits::of(&jobs);
        assert_eq!(waits.ended(1, 200), []);
        assert_eq!(waits.started(0, 10), [(2, 205)]);
    }
}
