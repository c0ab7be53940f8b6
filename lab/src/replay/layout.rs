//! Lays out the files of a trace in one file, because a target is one file or device, but a trace may have thousands of files.
//!
//! ```text
//!   trace   |--a--|  |---b---|  |c|
//!   file    |--a--|..|---b---|..|c|......        each from a multiple of 1 MiB on, in the order of the trace
//! ```

use foreread_sim::workload::Workload;

/// Files begin at multiples of this many bytes: no aligned readahead window crosses from one file into the next.
const GRAIN: u64 = 1 << 20;

/// The error if the target file is too small for the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the trace needs {needs} bytes for its {files} file{}", if *files == 1 { "" } else { "s" })]
pub struct LayoutError {
    /// Bytes of all files of the trace.
    pub needs: u64,
    /// Number of files.
    pub files: usize,
}

/// Converts a workload so that it reads one file of `size` bytes: the files of the workload are placed one after the
/// other in this file. A workload with a single file is not changed.
///
/// # Errors
/// Returns an error if the workload's files do not fit into `size` bytes.
pub fn laid_out(workload: &Workload, size: u64) -> Result<Workload, LayoutError> {
    let (bases, end) = bases(&workload.files);
    if end > size {
        return Err(LayoutError {
            needs: end,
            files: workload.files.len(),
        });
    }
    let mut one = workload.clone();
    for job in &mut one.jobs {
        let base = bases[job.file as usize];
        job.file = 0;
        job.requests
            .iter_mut()
            .for_each(|request| request.offset += base);
    }
    one.files = vec![size];
    Ok(one)
}

/// For files of these sizes, returns the offset at which each file begins, and the offset at which the last file ends.
#[must_use]
pub fn bases(files: &[u64]) -> (Vec<u64>, u64) {
    let mut end = 0_u64;
    let place = |file: &u64| {
        let base = end.div_ceil(GRAIN).saturating_mul(GRAIN);
        end = base.saturating_add(*file);
        base
    };
    (files.iter().map(place).collect(), end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreread_sim::workload::{Job, Request};

    #[test]
    fn files_lie_one_after_the_other() {
        let job = |file, open| Job::new(file, open, vec![Request::read(5, 10)]);
        let jobs = vec![job(1, 0), job(0, 1), job(2, 2)];
        let files = vec![GRAIN, GRAIN + 1, 15];
        let workload = Workload {
            name: "t".to_string(),
            files,
            listed: false,
            page_bytes: 4096,
            jobs,
        };
        let size = 3 * GRAIN + 15;
        let one = laid_out(&workload, size).expect("just large enough");
        let at: Vec<(u32, u32, u64)> = one
            .jobs
            .iter()
            .map(|j| (j.file, j.open, j.requests[0].offset))
            .collect();
        assert_eq!(
            (at, one.files),
            (
                vec![(0, 0, GRAIN + 5), (0, 1, 5), (0, 2, 3 * GRAIN + 5)],
                vec![size]
            )
        );
        let error = laid_out(&workload, size - 1).expect_err("too small");
        assert_eq!(
            error.to_string(),
            "the trace needs 3145743 bytes for its 3 files"
        );
        let one = LayoutError { needs: 1, files: 1 };
        assert_eq!(one.to_string(), "the trace needs 1 bytes for its 1 file");
    }
}
