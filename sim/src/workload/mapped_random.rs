//! One program that touches random pages of a mapped file. For such a program, a large readahead window does the most harm.
//!
//! For each fault in a mapping, the kernel reads a whole window around the page, even if the program needs only that page. User reports of
//! 2025 and 2026 are about such programs on virtual disks whose readahead window had become 4 or 64 MiB (Azure/AKS #5743,
//! actions/runner-images #13938). If `run` is more than 1, the program touches `run` consecutive pages at each position.
//!
//! ```text
//!   |        |--2--|            |--4--|--1--|              |--3--|        each --n-- is `run` pages, touched in order
//! ```
//!
//! **With replacement**: touches are independent, and some touch a page that was touched before. The workload has no read calls.

use super::{Info, MAX_READS, PAGE_BYTES, Request, Workload, check_reads, given, think};
use super::whole_records;
use crate::rng::Rng;
use foreread_core::policy::Param;
use foreread_core::policy::spec::SpecError;

pub static INFO: Info = Info {
    name: "mapped-random",
    summary: "one program, random page faults in a mapped file",
    origin: "Azure/AKS #5743: random readers through mappings with windows of 64 MiB; the counts are chosen here",
    least_bytes: PAGE_BYTES,
    cache_bytes: None,
    params: &[
        Param::count("count", "2000", (1, MAX_READS), "random places, each a page of the file"),
        Param::count("run", "1", (1, 1 << 20), "pages touched in order at each place"),
        think("0"),
    ],
    build,
};

fn build(values: &[u64], size: u64, seed: u64) -> Result<Workload, SpecError> {
    let [count, run, think_us] = given(values);
    whole_records(INFO.name, size, run * PAGE_BYTES)?;
    let places = size / PAGE_BYTES - run + 1;
    check_reads(INFO.name, run * PAGE_BYTES, count.saturating_mul(run))?;
    let mut rng = Rng::new(seed);
    let mut requests = Vec::with_capacity((count * run) as usize);
    for _ in 0..count {
        let first = rng.below(places);
        for page in first..first + run {
            let mut touch = Request::touch(page * PAGE_BYTES);
            touch.think_ns = if page == first { think_us * 1000 } else { 0 };
            requests.push(touch);
        }
    }
    Ok(Workload::single(INFO.name, size, 1, requests))
}

#[cfg(test)]
mod tests {
    use crate::workload::built;

    #[test]
    fn touches_spread_evenly_and_runs_are_in_order() {
        let workload = built("mapped-random:count=4000,run=4,think=5", 1 << 30, 1);
        let touches = &workload.jobs[0].requests;
        assert_eq!((touches.len(), workload.reads()), (16_000, 16_000));
        for run in touches.chunks(4) {
            assert!(run.windows(2).all(|two| two[0].offset + 4096 == two[1].offset));
            assert_eq!(run.iter().map(|t| t.think_ns).sum::<u64>(), 5000);
        }
        let low = touches.iter().filter(|t| t.offset < 1 << 29).count();
        // Half of them, within five standard deviations of 4 * 32.
        assert!((7360..=8640).contains(&low), "{low}");
    }

    #[test]
    fn small_files() {
        let touches = built("mapped-random:run=3", 5 * 4096 + 7, 1);
        let touches = &touches.jobs[0].requests;
        assert!(touches.iter().all(|t| t.offset < 5 * 4096));
    }
}
