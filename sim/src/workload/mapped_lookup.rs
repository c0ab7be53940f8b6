//! One program that looks up keys in a tree in a mapped file: each lookup touches the pages near the root, then a random leaf.
//!
//! Databases that map their files read like this (RavenDB, LMDB, sqlite with `mmap_size`). In ravendb discussion 22410 such a
//! database filled the memory after the readahead window of its disk had become 4 MiB. The pages near the root are always needed.
//! For each leaf, the kernel reads a whole readahead window, although the program needs only the leaf; a large window evicts other
//! leaves, or even the root.
//!
//! ```text
//!   hot pages   h1 ──► h2 ──► h3 ──┐       the same for each look-up
//!   inner page  one of `inner` ────┼──►    drawn
//!   leaf        anywhere ◄─────────┘       drawn, of the whole file
//! ```
//!
//! The positions of the hot and inner pages are chosen at random once, because in a tree that has grown, the upper pages may be
//! anywhere in the file. The workload has no read calls.

use super::{Info, MAX_READS, PAGE_BYTES, Request, Workload, check_reads, given, think};
use super::random::distinct;
use super::whole_records;
use crate::rng::Rng;
use foreread_core::policy::Param;
use foreread_core::policy::spec::SpecError;

pub static INFO: Info = Info {
    name: "mapped-lookup",
    summary: "one program, look-ups in a mapped tree: a few hot pages, then a leaf anywhere",
    origin: "ravendb discussion 22410: a database that maps its files, with windows of 4 MiB; the shape of the tree is chosen here",
    least_bytes: 1 << 20,
    cache_bytes: None,
    params: &[
        Param::count("count", "2000", (1, MAX_READS), "look-ups"),
        Param::count("hot", "3", (1, 64), "pages that each look-up touches first"),
        Param::count("inner", "0", (0, 1 << 20), "pages of which each look-up touches one; 0 for none"),
        think("0"),
    ],
    build,
};

fn build(values: &[u64], size: u64, seed: u64) -> Result<Workload, SpecError> {
    let [count, hot, inner, think_us] = given(values);
    whole_records(INFO.name, size, (hot + inner + 1) * PAGE_BYTES)?;
    let pages = size / PAGE_BYTES;
    check_reads(INFO.name, PAGE_BYTES, count.saturating_mul(hot + 2))?;
    let upper: Vec<u64> = distinct(pages, hot + inner, seed).collect();
    let (roots, inners) = upper.split_at(hot as usize);
    let mut rng = Rng::new(seed ^ 1);
    let mut requests = Vec::new();
    for _ in 0..count {
        let first = requests.len();
        requests.extend(roots.iter().map(|page| Request::touch(page * PAGE_BYTES)));
        if !inners.is_empty() {
            let page = inners[rng.below(inner) as usize];
            requests.push(Request::touch(page * PAGE_BYTES));
        }
        requests.push(Request::touch(rng.below(pages) * PAGE_BYTES));
        requests[first].think_ns = think_us * 1000;
    }
    Ok(Workload::single(INFO.name, size, 1, requests))
}

#[cfg(test)]
mod tests {
    use crate::workload::built;

    #[test]
    fn each_look_up_begins_with_the_hot_pages() {
        let workload = built("mapped-lookup:count=500,hot=2,inner=9,think=3", 64 << 20, 1);
        let touches = &workload.jobs[0].requests;
        assert_eq!(touches.len(), 2000);
        let (mut inner, mut leaves) = (Vec::new(), Vec::new());
        for one in touches.chunks(4) {
            assert_eq!((one[0].offset, one[1].offset), (touches[0].offset, touches[1].offset));
            assert_eq!((one[0].think_ns, one[1].think_ns), (3000, 0));
            inner.push(one[2].offset);
            leaves.push(one[3].offset);
        }
        for all in [&mut inner, &mut leaves] {
            all.sort_unstable();
            all.dedup();
        }
        assert_eq!(inner.len(), 9);
        assert!(leaves.len() > 450, "{}", leaves.len());
    }
}
