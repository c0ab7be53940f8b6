//! Page faults in mapped files, while programs on a text console are started and used.
//!
//! Like `mmap-desktop`, but for the text console of the same posting. There are fewer files, and programs use so few consecutive pages that
//! even a small read-around reads mostly unused pages. The files and the pages that programs touch were **fitted** to the MB published for
//! two sizes of read-around; everything else about them is invented (`population.rs`):
//!
//! | read-around | published | here, mean of 20 seeds, `linux-2.6.31` |
//! |---|---|---|
//! | 128 KiB | 30 of 56 MB = 53 % | 29.5 of 55.5 MB = 53 % |
//! | 512 KiB | | 29.5 of 58.9 MB = 50 % |
//! | 1 MiB | 30 of 59 MB = 51 % | 29.5 of 59.4 MB = 50 % |
//!
//! The workload has no read calls. Kernels of that time had no fault-around, and the simulator maps one page for each fault.

use super::population::{build, bytes, gap, long_gap, long_share, processes, stretch};
use foreread_sim::workload::Info;

pub static INFO: Info = Info {
    name: "mmap-console",
    summary: "page faults of a console's programs; fitted to how much of read-around is used, otherwise invented",
    origin: "Wu Fengguang 2010, the posting of readers: 53 and 51 % used at 128 KiB and 1 MiB on the console",
    least_bytes: 64 << 20,
    cache_bytes: None,
    // The last four are fitted.
    params: &[
        bytes("57M"),
        processes("3"),
        stretch("9"),
        gap("96"),
        long_gap("80"),
        long_share("1"),
    ],
    build: |values, size, seed| build(&INFO, values, size, seed),
};

#[cfg(test)]
mod tests {
    use crate::parse_workload as parse;

    #[test]
    fn fewer_files_and_processes_than_a_desktop() {
        let build = |text: &str| parse(text).expect("valid").build(1 << 30, 1).expect("fits");
        let (console, desktop) = (build("mmap-console"), build("mmap-desktop"));
        assert_eq!(console.files.iter().sum::<u64>(), 57 << 20);
        assert_eq!(console.distinct_bytes(4096), console.reads() * 4096);
        assert!(console.touches() && console.files.len() < desktop.files.len());
        assert_eq!(console.jobs.iter().filter(|j| j.after.is_none()).count(), 3);
    }
}
