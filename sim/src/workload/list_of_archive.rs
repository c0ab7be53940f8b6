//! One reader that lists an archive: it reads a header, skips the data that the header describes, and reads the next
//! header.
//!
//! Reads always go forward, and no two reads are adjacent. A policy that expects each read to begin where the last one ended
//! detects no stream in these reads, so each header costs a round trip.
//!
//! ```text
//!   |h|   |h|     |h||h|        |h|    ...      4 KiB each, 0 to 12.5 KiB between them, drawn
//! ```
//!
//! `tar -t` reads like this, and so do programs that go through the directory of an archive.

use super::{Info, Request, Workload, check_reads, given, record, whole_records};
use crate::rng::Rng;
use foreread_core::policy::spec::SpecError;
/// Distance from one header to the next, in eighths of a record.
const STEPS: [u64; 6] = [8, 9, 14, 14, 22, 33];

pub static INFO: Info = Info {
    name: "list-of-archive",
    summary: "one reader, short forward reads with gaps between them: listing an archive",
    origin: "listing a tar file; the steps are those of a recording, rounded",
    least_bytes: 1 << 20,
    cache_bytes: None,
    params: &[record("4K")],
    build,
};

fn build(values: &[u64], size: u64, seed: u64) -> Result<Workload, SpecError> {
    let [record] = given(values);
    let records = whole_records(INFO.name, size, record)?;
    check_reads(INFO.name, record, records)?;
    let mut rng = Rng::new(seed);
    let (mut at, mut requests) = (0, Vec::new());
    while at + record <= size {
        requests.push(Request::read(at, record));
        at += (record * STEPS[rng.below(STEPS.len() as u64) as usize] / 8).max(1);
    }
    Ok(Workload::single(INFO.name, size, 1, requests))
}

#[cfg(test)]
mod tests {
    use crate::workload::built;

    #[test]
    fn headers_come_in_order_and_do_not_overlap() {
        let workload = built("list-of-archive", 22 << 20, 1);
        let reads = &workload.jobs[0].requests;
        let steps = reads.windows(2).map(|w| w[1].offset - w[0].offset);
        let steps: Vec<u64> = steps.collect();
        assert!(steps.iter().all(|step| (4096..=16896).contains(step)));
        let touching = steps.iter().filter(|step| **step == 4096).count();
        let part = steps.len() / 10..steps.len() / 4;
        assert!(part.contains(&touching), "{touching} of {part:?}");
    }
}
