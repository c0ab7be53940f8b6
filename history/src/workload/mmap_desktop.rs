//! Page faults in mapped files, while programs on a desktop are started and used.
//!
//! The posting that proposed a readahead of 512 KiB measured its cost as the "readahead hit ratio" of a desktop under X. The readahead hit
//! ratio is the number of touched pages divided by the number of all pages that were read at faults, including the faulting pages. The
//! machine of that measurement no longer exists, so the files and the pages that programs touch are invented (`population.rs`). The files
//! and the touched pages were **fitted** to the MB published for three sizes of read-around:
//!
//! | read-around | published | here, mean of 20 seeds, `linux-2.6.31` |
//! |---|---|---|
//! | 128 KiB | 143 of 230 MB = 62 % | 137 of 232 MB = 59 % |
//! | 512 KiB | 138 of 248 MB = 55 % | 137 of 250 MB = 55 % |
//! | 1 MiB | 130 of 253 MB = 51 % | 137 of 255 MB = 54 % |
//!
//! In this workload, programs touch the same pages at all sizes of read-around, because the programs do not need fewer pages if more were
//! read. The number of touched pages is the mean of the three published values. The posting says that these data are less stable than those
//! of the text console (`mmap-console`), for which the MB of used pages are the same at both published sizes.
//!
//! The workload has no read calls. Kernels of that time had no fault-around, and the simulator maps one page for each fault.

use super::population::{build, bytes, gap, long_gap, long_share, processes, stretch};
use foreread_sim::workload::Info;

pub static INFO: Info = Info {
    name: "mmap-desktop",
    summary: "page faults of a desktop's programs; fitted to how much of read-around is used, otherwise invented",
    origin: "Wu Fengguang 2010, the posting of readers: 62, 55 and 51 % used at 128 KiB, 512 KiB and 1 MiB under X",
    least_bytes: 256 << 20,
    cache_bytes: None,
    // The last four are fitted.
    params: &[
        bytes("245M"),
        processes("8"),
        stretch("11"),
        gap("70"),
        long_gap("69"),
        long_share("4"),
    ],
    build: |values, size, seed| build(&INFO, values, size, seed),
};

#[cfg(test)]
mod tests {
    use crate::parse_workload as parse;
    use foreread_sim::workload::RequestKind;

    #[test]
    fn every_page_is_touched_at_most_once() {
        let workload = parse("mmap-desktop")
            .expect("valid")
            .build(1 << 30, 1)
            .expect("fits");
        assert_eq!(workload.files.iter().sum::<u64>(), 245 << 20);
        let requests = || workload.jobs.iter().flat_map(|j| &j.requests);
        assert!(
            requests().all(|r| r.kind == RequestKind::Touch && r.len == 1 && r.offset % 4096 == 0)
        );
        assert_eq!(workload.distinct_bytes(4096), workload.reads() * 4096);
        let share = workload.distinct_bytes(4096) as f64 / (245 << 20) as f64;
        assert!((0.3..0.6).contains(&share), "{share}");
        assert_eq!(
            workload.jobs.iter().filter(|j| j.after.is_none()).count(),
            8
        );
        assert!(
            workload.jobs.iter().any(|j| j.executable)
                && workload.jobs.iter().any(|j| !j.executable)
        );
        let stays = workload
            .jobs
            .windows(2)
            .filter(|w| w[0].file == w[1].file)
            .count();
        assert!(
            stays < workload.jobs.len() / 5,
            "{stays} of {} stay in their file",
            workload.jobs.len()
        );
        let error = parse("mmap-desktop")
            .expect("valid")
            .build(1 << 20, 1)
            .expect_err("too small")
            .to_string();
        assert_eq!(
            error,
            "mmap-desktop: size=1048576 is less than bytes=256901120"
        );
    }
}
