//! The advisor: reads in, jobs out, without a page cache.

use foreread_core::policy::PolicySpec;
use foreread_core::units::{FileId, Nanos};
use foreread_pagecache::advisor::{Advisor, Job, Outcome};
use foreread_pagecache::whole_pages;
use std::collections::VecDeque;

const MS: u64 = 1_000_000;
const FILE: FileId = FileId(0);

/// A storage whose answers take 1 ms, and a program that reads from it.
struct World {
    advisor: Advisor,
    now: u64,
    flying: VecDeque<(u64, Job)>,
    ahead: u64,
}

impl World {
    fn new(size: u64) -> World {
        let policy = PolicySpec::parse("auto").expect("a policy");
        let mut advisor = Advisor::new(policy, 1 << 30);
        advisor.open(Nanos(0), FILE, size);
        World {
            advisor,
            now: 0,
            flying: VecDeque::new(),
            ahead: 0,
        }
    }

    fn take_jobs(&mut self) {
        while let Some(job) = self.advisor.next_job() {
            // The kernel reads no part of one; only a file ends inside its last.
            let pages = whole_pages(&job.range);
            assert_eq!(job.range.start, pages.start, "a page of the machine");
            if !job.is_demand {
                self.ahead += job.range.end - job.range.start;
            }
            self.flying.push_back((self.now + MS, job));
        }
    }

    /// The program reads, and waits where its bytes have not come.
    fn read(&mut self, file: FileId, at: u64, len: u64) {
        self.advisor.read(Nanos(self.now), file, at..at + len);
        self.take_jobs();
        while let Some((due, job)) = self.flying.pop_front() {
            let is_waited_for = job.is_demand;
            self.now = self.now.max(due);
            self.advisor.done(Nanos(self.now), &job, Outcome::Arrived);
            self.take_jobs();
            if is_waited_for {
                break;
            }
        }
    }
}

#[test]
fn a_file_read_in_order_is_read_ahead_and_hardly_waits() {
    let mut world = World::new(64 << 20);
    for n in 0..400 {
        world.read(FILE, n * (128 << 10), 128 << 10);
    }
    let stats = world.advisor.stats();
    assert!(
        stats.misses < 10 && stats.used_bytes > 40 << 20,
        "{stats:?}"
    );
}

#[test]
fn reads_at_random_cost_few_bytes_more() {
    let mut world = World::new(1 << 30);
    let mut at: u64 = 1;
    for _ in 0..2000 {
        at = at
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        world.read(FILE, (at >> 34) % (1 << 18) * 4096, 4096);
    }
    assert!(world.ahead <= 2000 * 4096 / 20, "{}", world.ahead);
}

/// The next files of a folder: read ahead before the program opens them.
#[test]
fn the_next_files_of_a_folder_are_read_ahead() {
    let mut world = World::new(12 << 10);
    let advisor = &mut world.advisor;
    (1..200).for_each(|n| advisor.list(Nanos(0), FileId(n), 12 << 10, Some(FileId(n - 1))));
    world.read(FILE, 0, 12 << 10);
    for n in 1..200 {
        world.advisor.open(Nanos(world.now), FileId(n), 12 << 10);
        world.read(FileId(n), 0, 12 << 10);
    }
    let stats = world.advisor.stats();
    assert!(
        stats.misses < 20 && stats.used_bytes > 180 * (12 << 10),
        "{stats:?}"
    );
}

/// Bytes that were cached all the time show no latency, and a job that fails is not asked for again without end.
#[test]
fn what_is_at_hand_or_fails_is_answered() {
    let mut world = World::new(1 << 20);
    world.advisor.read(Nanos(0), FILE, 0..4096);
    let mut jobs = 0;
    while let Some(job) = world.advisor.next_job() {
        jobs += 1;
        assert!(jobs < 100);
        let outcome = match job.is_demand {
            true => Outcome::AtHand,
            false => Outcome::Failed,
        };
        world.advisor.done(Nanos(5), &job, outcome);
    }
    world.advisor.read(Nanos(10), FILE, 0..4096);
    let job = world.advisor.next_job();
    assert_eq!(job, None, "the first page is known to be there");
    let stats = world.advisor.stats();
    assert_eq!((stats.demand_reads, stats.failed_reads), (2, 0));
}
