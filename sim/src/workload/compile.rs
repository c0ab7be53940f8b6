//! A program is compiled: a new process compiles each source file (unit), one after the other. The compiler's code and libraries
//! are read by page faults, headers and sources by read calls. The pages that are read for one unit are needed again for the next unit, if
//! they are still cached.
//!
//! actions/runner-images #13938 reports builds on machines with little memory. The readahead window of their disk had become 4 MiB, and
//! each page fault in the compiler's code or in a library evicted pages that the next unit needed.
//!
//! ```text
//!   unit n   code     ..##...####.....##...     executable: a quarter of it, the same stretches each time, in order
//!            library  .#......#..........#.     runs of 4 pages at `touches` places, drawn anew
//!            headers  |h7| |h2| |h31| ...       `headers` of 1,000 files, each read whole; the first of them most often
//!            source   |-n-|                     read whole, once
//! ```
//!
//! Each process maps and opens all files again, so the readahead windows of the files start small again. The sizes of files are
//! those of the workload `tree`. All other figures are invented and round; nothing is fitted to measurements. The workload has no writes
//! and no pauses, and only one process runs at a time.

use super::tree::{sizes, whole};
use super::{Info, Job, PAGE_BYTES, Request, Workload, given, too_small};
use crate::rng::Rng;
use foreread_core::policy::Param;
use foreread_core::policy::spec::SpecError;

const HEADERS: u64 = 1000;
/// Median and 0.99 quantile of headers and sources, in bytes.
const TEXT_BYTES: (u64, u64) = (8 << 10, 128 << 10);
/// Bytes of a read of headers and sources.
const RECORD: u64 = 32 << 10;
/// Pages of a touched stretch of code, mean pages of the gap after it, and pages of a run in the library.
const STRETCH: u64 = 8;
const GAP: u64 = 24;
const RUN: u64 = 4;

pub static INFO: Info = Info {
    name: "compile",
    summary: "units of a program, each compiled by a new process: faults in code and a library, small files read whole",
    origin: "actions/runner-images #13938: builds with little memory and windows of 4 MiB; the shape is invented",
    least_bytes: 256 << 20,
    cache_bytes: None,
    params: &[
        Param::count("units", "100", (1, 10_000), "units that are compiled"),
        Param::bytes("code", "32M", (1 << 20, 16 << 30), "bytes of the compiler's code"),
        Param::bytes("library", "128M", (1 << 20, 1 << 40), "bytes of the library that is mapped"),
        Param::count("touches", "50", (0, 100_000), "places of the library that a unit touches, of 4 pages each"),
        Param::count("headers", "30", (0, 1000), "header files that a unit reads"),
    ],
    build,
};

/// The numbers of the mapped files.
const CODE: u32 = 0;
const LIBRARY: u32 = 1;

fn build(values: &[u64], size: u64, seed: u64) -> Result<Workload, SpecError> {
    let [units, code, library, touches, headers] = given(values);
    let [code, library] = [code, library].map(|bytes| bytes / PAGE_BYTES * PAGE_BYTES);
    let mut rng = Rng::new(seed);
    let room = size.saturating_sub(code).saturating_sub(library);
    let texts = sizes(&mut rng, HEADERS + units, TEXT_BYTES, room);
    if (texts.len() as u64) < HEADERS + units {
        let why = format!("is too small for code, library and {} files", HEADERS + units);
        return Err(too_small(INFO.name, size, why));
    }
    let mut workload = Workload::on_files(INFO.name, [vec![code, library], texts].concat());
    let hot = stretches(&mut rng, code / PAGE_BYTES);
    let runs = library / PAGE_BYTES - RUN + 1;
    let (mut last, mut open, mut reads) = (None, 0, 0);
    let mut go = |job: Job, workload: &mut Workload| {
        reads += job.requests.len() as u64;
        workload.then(&mut last, Job { open, ..job });
        open += 1;
        super::check_reads(INFO.name, RECORD, reads)
    };
    for unit in 0..units {
        let mut code = Job::new(CODE, 0, hot.clone());
        code.executable = true;
        go(code, &mut workload)?;
        let places: Vec<u64> = (0..touches).map(|_| rng.below(runs)).collect();
        let touched = places.into_iter().flat_map(run).collect();
        go(Job::new(LIBRARY, 0, touched), &mut workload)?;
        let drawn = (0..headers).map(|_| (rng.unit().powi(2) * HEADERS as f64) as u64);
        for text in drawn.chain([HEADERS + unit]).collect::<Vec<_>>() {
            let file = 2 + text as u32;
            let job = whole(file, workload.files[file as usize], RECORD);
            go(job, &mut workload)?;
        }
    }
    Ok(workload)
}

fn run(first: u64) -> impl Iterator<Item = Request> {
    (first..first + RUN).map(|page| Request::touch(page * PAGE_BYTES))
}

/// The touched pages of the code, in order: stretches with gaps of random length between them.
fn stretches(rng: &mut Rng, pages: u64) -> Vec<Request> {
    let mut touched = Vec::new();
    let mut at = rng.below(2 * GAP);
    while at + STRETCH <= pages {
        touched.extend((at..at + STRETCH).map(|page| Request::touch(page * PAGE_BYTES)));
        at += STRETCH + rng.below(2 * GAP + 1);
    }
    touched
}

#[cfg(test)]
mod tests {
    use crate::workload::RequestKind;
    use crate::workload::built;

    #[test]
    fn a_unit_is_code_library_headers_and_its_source() {
        let workload = built("compile:units=20,headers=5,touches=7", 256 << 20, 1);
        assert_eq!(workload.jobs.len(), 20 * 8);
        assert_eq!(workload.files.len(), 2 + 1000 + 20);
        let units: Vec<_> = workload.jobs.chunks(8).collect();
        for (n, unit) in units.iter().enumerate() {
            assert_eq!((unit[0].file, unit[1].file, unit[7].file), (0, 1, 1002 + n as u32));
            assert!(unit[0].executable && !unit[1].executable);
            assert_eq!(unit[0].requests, units[0][0].requests);
            assert_eq!(unit[1].requests.len(), 28);
            assert!(unit[2..].iter().all(|job| job.requests[0].kind == RequestKind::Read));
            assert_eq!(unit[7].requests.iter().map(|r| r.len).sum::<u64>(), workload.files[1002 + n]);
        }
        // A quarter of the code.
        let share = units[0][0].requests.len() as f64 * 4096.0 / (32 << 20) as f64;
        assert!((0.22..0.28).contains(&share), "{share}");
        let first = workload.jobs.iter().filter(|j| (2..252).contains(&j.file)).count();
        assert!((40..=65).contains(&first), "{first} of 100 headers are of the first quarter");
    }
}
