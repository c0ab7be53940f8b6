//! A program that first reads random data, for which readahead is wasted, and then reads parts of mapped libraries page by page.
//!
//! The random data are pages of a large mapping. After these random pages, a policy that limits wasted readahead has reached its limit. But
//! the policy should still read ahead in the libraries, because the program touches their parts sequentially.
//!
//! ```text
//!   data        |4|      |1|     |3|  |2|                `waste` pages, drawn
//!   library n   |--1--|        |--2--|     |---3---|     pieces of 64 to 116 KiB, in order, with gaps of the same range
//! ```

use super::{
    Info, Job, MAX_READS, PAGE_BYTES, Request, Workload, check_reads, given, too_small,
};
use crate::rng::Rng;
use foreread_core::policy::Param;
use foreread_core::policy::spec::SpecError;
/// Pages of a piece, and of the gap before it: the minimum, and the maximum number of additional pages.
const PIECE: (u64, u64) = (16, 14);

pub static INFO: Info = Info {
    name: "mapped-libraries",
    summary: "random page faults in data, then pieces of mapped libraries in order",
    origin: "the start of a program that maps its data; the figures are chosen here",
    least_bytes: 1 << 20,
    cache_bytes: None,
    params: &[
        Param::count(
            "waste",
            "500",
            (0, MAX_READS),
            "random pages of the data, touched first",
        ),
        Param::count(
            "libraries",
            "20",
            (1, 4096),
            "libraries, which have half of all bytes",
        ),
    ],
    build,
};

fn build(values: &[u64], size: u64, seed: u64) -> Result<Workload, SpecError> {
    let [waste, libraries] = given(values);
    let (data, library) = (size / 2, size / 2 / libraries / PAGE_BYTES);
    if library < 2 * (PIECE.0 + PIECE.1) {
        let why = format!("leaves only {library} pages for each library");
        return Err(too_small(INFO.name, size, why));
    }
    check_reads(
        INFO.name,
        PAGE_BYTES,
        waste.saturating_add(library * libraries),
    )?;
    let mut rng = Rng::new(seed);
    let mut sizes = vec![data];
    sizes.resize(1 + libraries as usize, library * PAGE_BYTES);
    let (mut workload, mut last) = (Workload::on_files(INFO.name, sizes), None);
    let touch = |page: u64| Request::touch(page * PAGE_BYTES);
    let random = (0..waste).map(|_| touch(rng.below(data / PAGE_BYTES)));
    let job = Job::new(0, 0, random.collect());
    if waste > 0 {
        workload.then(&mut last, job);
    }
    for n in 1..=libraries as u32 {
        let (mut at, mut touches) = (0, Vec::new());
        let mut draw = || PIECE.0 + rng.below(PIECE.1);
        while at < library {
            let end = (at + draw()).min(library);
            touches.extend((at..end).map(touch));
            at = end + draw();
        }
        let job = Job {
            executable: true,
            ..Job::new(n, n, touches)
        };
        workload.then(&mut last, job);
    }
    Ok(workload)
}

#[cfg(test)]
mod tests {
    use crate::workload::built;

    #[test]
    fn pieces_are_in_order_with_gaps() {
        let workload = built("mapped-libraries", 64 << 20, 1);
        assert_eq!((workload.files.len(), workload.jobs.len()), (21, 21));
        assert_eq!(workload.jobs[0].requests.len(), 500);
        for job in &workload.jobs[1..] {
            let pairs = job.requests.windows(2);
            let mut steps = pairs.map(|w| (w[1].offset - w[0].offset) / 4096);
            assert!(steps.all(|step| step == 1 || (17..=30).contains(&step)));
        }
    }
}
