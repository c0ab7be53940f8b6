//! When a job begins: the starts and ends of other jobs that it waits for.
//!
//! The job scheduler (`scheduler.rs`) says when a job started and ended, and begins the jobs that this file returns.
//!
//! ```text
//!   job ──started(now)──► links to its start ─┐ all of a job's links have happened:
//!       ──ended(now)────► links to its end ───┴──► it may begin, at the latest of (when it happened + delay)
//! ```

use super::Job;

/// Something that a job waits for, besides the one that it follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// An earlier job, an index into [`super::Workload::jobs`].
    pub job: u32,
    /// It waits for the end of that job, when its last request has been served; otherwise for its start, when its first
    /// request is issued.
    pub end: bool,
    /// How long after that the job begins at the earliest, in nanoseconds.
    pub delay_ns: u64,
}

/// A job that waits for another one.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    job: u32,
    end: bool,
    delay_ns: u64,
}

/// Which jobs wait for which, and for how much more.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    /// Of each job, what has not happened yet.
    left: Vec<u32>,
    /// Of each job, when it may begin by what has.
    from_ns: Vec<u64>,
    /// Of each job, the jobs that wait for it.
    waiters: Vec<Vec<Waiter>>,
}

impl Waits {
    /// Of these jobs, none of which has begun.
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

    /// Jobs that wait for nothing, in their order.
    pub fn free(&self) -> Vec<u32> {
        (0..self.left.len() as u32)
            .filter(|&job| self.left[job as usize] == 0)
            .collect()
    }

    /// The first request of a job is issued, or, if it has none, it begins. Returns the jobs that may begin by that,
    /// each with the time from which on.
    pub fn started(&mut self, job: u32, now: u64) -> Vec<(u32, u64)> {
        self.happened(job, false, now)
    }

    /// The last request of a job has been served. Returns the jobs that may begin by that, each with the time from
    /// which on.
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

/// All that a job waits for: the end of the one that it follows, and its links.
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
            Job {
                after: Some(0),
                ..job(&[link(0, true, u64::MAX)])
            },
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
