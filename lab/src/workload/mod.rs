//! What is read, in which order, by whom: the reads of a program, without the program.
//!
//! A workload is a list of jobs; a job issues its requests in order, at most `depth` of them outstanding. It is
//! written `NAME:key=value,...`, and becomes a list of reads when the size of the file and a seed are known. The
//! same text, size and seed give the same reads on every machine.
//!
//! Never: writes, bytes, or a look at the clock. Never, too: a read beyond the end of its file.
//!
//! ```text
//!   "interleaved:streams=8" ──parse──► Chosen ──build(size, seed)──► Workload
//!                                                                     └ job: file, open, depth
//!                                                                        └ request, request, ...
//! ```
//!
//! Adding one: write the file, name it in the list at the end of this one.

use foreread_core::policy::Param;
use foreread_core::policy::spec::{Spec, SpecError};

/// The page of a workload whose reads are those of a program above a page cache.
const PAGE_BYTES: u64 = 4096;

/// The most reads a workload may have: they are all made before the first is issued, 24 bytes each, so 800 MB.
pub const MAX_READS: u64 = 1 << 25;

/// One read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// How long the reader waits before it issues this one, counted from when it was served the one before, in
    /// nanoseconds.
    pub think_ns: u64,
}

impl Request {
    /// A read without a pause before it.
    #[must_use]
    pub fn read(offset: u64, len: u64) -> Request {
        Request { offset, len, think_ns: 0 }
    }
}

/// One reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Which file, an index into [`Workload::files`].
    pub file: u32,
    /// Which open description. Jobs that share one share the stream state of a policy.
    pub open: u32,
    /// How many requests may be outstanding, at least 1.
    pub depth: u32,
    /// The reads in the order they are issued.
    pub requests: Vec<Request>,
}

/// A list of reads and what they are read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// As it was written.
    pub name: String,
    /// The size of each file in bytes.
    pub files: Vec<u64>,
    /// The grain that fits its reads, in bytes: the cache page to use unless told otherwise.
    pub page_bytes: u64,
    /// Its readers, who begin at the same time.
    pub jobs: Vec<Job>,
}

impl Workload {
    /// A workload of one job on one file.
    fn single(name: &str, size: u64, depth: u32, requests: Vec<Request>) -> Workload {
        let job = Job { file: 0, open: 0, depth, requests };
        Workload { name: name.to_string(), files: vec![size], page_bytes: PAGE_BYTES, jobs: vec![job] }
    }

    /// How many reads there are.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.jobs.iter().map(|job| job.requests.len() as u64).sum()
    }

    /// How many bytes are read, those that are read twice counted twice.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.jobs.iter().flat_map(|job| &job.requests).map(|r| r.len).sum()
    }

    /// How many bytes lie in pages of `page_bytes` that are read at least once: the divisor of overfetch. The last
    /// page of a file counts as far as the file goes. `page_bytes` is a power of two.
    #[must_use]
    pub fn distinct_bytes(&self, page_bytes: u64) -> u64 {
        (0..self.files.len()).map(|file| self.distinct_bytes_of(file, page_bytes)).sum()
    }

    fn distinct_bytes_of(&self, file: usize, page_bytes: u64) -> u64 {
        let size = self.files[file];
        let jobs = self.jobs.iter().filter(|job| job.file as usize == file);
        let reads = jobs.flat_map(|job| &job.requests).filter(|r| r.len > 0);
        let page_start = |at: u64| at & !(page_bytes - 1);
        let mut ranges: Vec<(u64, u64)> =
            reads.map(|r| (page_start(r.offset), page_start(r.offset + r.len + page_bytes - 1).min(size))).collect();
        ranges.sort_unstable();
        let mut reached = 0;
        let mut total = 0;
        for (start, end) in ranges {
            total += end.saturating_sub(start.max(reached));
            reached = reached.max(end);
        }
        total
    }
}

/// What there is to know of a workload without building it.
pub struct Info {
    /// The name in `NAME:key=value,...`.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// The publication it reproduces, or what it is for.
    pub origin: &'static str,
    /// Smallest file that it can be made for, in bytes.
    pub least_bytes: u64,
    /// Its parameters.
    pub params: &'static [Param],
    /// Makes the reads from the values of `params` in their order, already checked, the size of the file in bytes
    /// and the seed.
    pub build: fn(&[u64], u64, u64) -> Result<Workload, SpecError>,
}

/// A workload and the values of all its parameters.
#[derive(Clone)]
pub struct Chosen {
    /// Which workload.
    pub info: &'static Info,
    /// The values of `info.params`, in their order.
    pub values: Vec<u64>,
    text: String,
}

impl Chosen {
    /// The reads, on a file of `size` bytes.
    ///
    /// # Errors
    /// A file that is too small, or a parameter that does not fit its size.
    pub fn build(&self, size: u64, seed: u64) -> Result<Workload, SpecError> {
        let mut workload = (self.info.build)(&self.values, size, seed)?;
        workload.name.clone_from(&self.text);
        Ok(workload)
    }
}

/// As it was written.
impl std::fmt::Display for Chosen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::fmt::Debug for Chosen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", self.text, self.values)
    }
}

/// Reads `NAME:key=value,...`.
///
/// # Errors
/// Bad notation, a name or key that does not exist, a value that does not fit.
pub fn parse(text: &str) -> Result<Chosen, SpecError> {
    let spec = Spec::parse(text)?;
    let Some(info) = ALL.iter().find(|i| i.name == spec.name) else {
        return Err(SpecError::UnknownName { name: spec.name, known: ALL.iter().map(|i| i.name).collect() });
    };
    Ok(Chosen { info, values: spec.values(info.params)?, text: text.to_string() })
}

/// The error of a file that is too small for a workload: it names the size as if it were one of its parameters.
fn too_small(name: &str, size: u64, why: String) -> SpecError {
    SpecError::Value { name: name.to_string(), key: "size".to_string(), value: size.to_string(), why }
}

/// Refuses records so small that there would be more than [`MAX_READS`] of them.
fn check_reads(name: &str, record: u64, reads: u64) -> Result<(), SpecError> {
    if reads <= MAX_READS {
        return Ok(());
    }
    Err(SpecError::Value {
        name: name.to_string(),
        key: "record".to_string(),
        value: record.to_string(),
        why: format!("makes {reads} reads of this size, more than {MAX_READS}"),
    })
}

/// Names every workload once: the module, the registry and nothing else.
macro_rules! workloads {
    ($($module:ident),* $(,)?) => {
        $(pub mod $module;)*
        /// Every workload, in the order it is listed to people.
        pub static ALL: &[&Info] = &[$(&$module::INFO),*];
    };
}

workloads!(sequential, random, interleaved, boot_ide);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinct_bytes_count_each_page_once() {
        let request = Request::read;
        let reads =
            vec![request(8192, 4096), request(0, 1), request(100, 5000), request(20_000, 0), request(39_999, 1)];
        let mut workload = Workload::single("", 40_000, 1, reads);
        // Pages 0, 1 and 2, and the last 3,136 bytes from 36,864.
        assert_eq!(workload.distinct_bytes(4096), 3 * 4096 + 3136);
        assert_eq!(workload.distinct_bytes(512), 4096 + 5120 + 40_000 - 39_936);
        assert_eq!((workload.reads(), workload.bytes()), (5, 9098));
        workload.files.push(1 << 20);
        workload.jobs.push(Job { file: 1, open: 1, depth: 1, requests: vec![request(20_000, 10)] });
        assert_eq!(workload.distinct_bytes(4096), 3 * 4096 + 3136 + 4096);
        // Reads inside a longer one add nothing.
        workload.jobs[1].requests = vec![request(0, 4096), request(512, 512), request(1024, 512)];
        assert_eq!(workload.distinct_bytes_of(1, 512), 4096);
    }

    #[test]
    fn every_workload_stays_in_its_file_and_is_stable() {
        for info in ALL {
            let chosen = parse(info.name).expect("its own name");
            for size in [1 << 30, (3 << 30) + 777] {
                let workload = chosen.build(size, 1).expect(info.name);
                assert_eq!(workload.name, info.name);
                let mut requests = workload.jobs.iter().flat_map(|j| &j.requests);
                assert!(requests.all(|r| r.len > 0 && r.offset + r.len <= size), "{} at {size}", info.name);
                assert_eq!(workload, chosen.build(size, 1).expect(info.name));
            }
        }
    }

    #[test]
    fn a_workload_bears_the_name_it_was_asked_for_by() {
        let chosen = parse("random:count=3").expect("valid");
        assert_eq!((chosen.to_string().as_str(), chosen.values.as_slice()), ("random:count=3", &[4096, 3][..]));
        assert_eq!(chosen.build(1 << 20, 0).expect("fits").name, "random:count=3");
    }

    #[test]
    fn no_more_reads_than_memory_has_room_for() {
        for name in ["sequential:record=1", "interleaved:record=1,streams=1"] {
            let chosen = parse(name).expect("valid");
            let error = chosen.build(MAX_READS + 1, 1).expect_err("beyond it").to_string();
            assert!(error.ends_with("record=1 makes 33554433 reads of this size, more than 33554432"), "{error}");
        }
        assert_eq!(check_reads("any", 1, MAX_READS), Ok(()));
        assert!(parse(&format!("random:count={}", MAX_READS + 1)).is_err());
    }

    #[test]
    fn errors_say_what_is_known() {
        let Err(SpecError::UnknownName { known, .. }) = parse("sequentail") else { panic!("there is no such name") };
        assert_eq!(known, ["sequential", "random", "interleaved", "boot-ide"]);
        let Err(SpecError::UnknownKey { known, .. }) = parse("sequential:recrod=4K") else { panic!("no such key") };
        assert_eq!(known, ["record", "depth", "think"]);
        assert!(matches!(parse("random:record=0"), Err(SpecError::Value { .. })));
    }
}
