//! Computes figures that do not depend on time: a policy's decisions on storage without latency, its parameters, and
//! its readahead limit for the capacity of the storage.
//!
//! ```text
//!   neighbours, in pages   N   far   N+1   far   N+2        [Wu 2013]: "start RA on the 3rd read"
//! ```

use super::{asked, bytes};
use foreread_core::event::Event;
use foreread_core::machine::{Config, Machine};
use foreread_core::policy::capacity::Cap;
use foreread_core::units::{ByteRange, FileId, Nanos, OpenId, PageSize, ReadId};
use foreread_os::failure::Failure;
use foreread_sim::time_queue;

const PAGE: u64 = 4096;
const FILE_BYTES: u64 = 4 << 30;
const CACHE_BYTES: u64 = 64 << 20;
/// Pages of the neighbours and of the reads between them.
const NEAR: u64 = 700;
const FAR: u64 = 100_000;
/// The bytes that the reader of `buffer_kib` reads sequentially.
const STREAM_BYTES: u64 = 16 << 20;

/// The value of a measurement in this file. `None` if it is another measurement.
pub(super) fn value(words: &[&str]) -> Result<Option<f64>, Failure> {
    let value = match words {
        ["window", number, policy, reads] => {
            let number: usize = number.parse().map_err(asked)?;
            let pages = windows(policy, reads)?
                .into_iter()
                .nth(number.saturating_sub(1));
            pages.ok_or_else(|| asked(format!("{policy} has no window {number}")))? as f64
        }
        ["start_read", policy] => start(policy)?.0,
        ["start_pages", policy] => start(policy)?.1,
        ["buffer_kib", policy] => buffer_kib(policy)?,
        ["default", policy, key] => default(policy, key)?,
        ["cap_kib", form, capacity] => {
            let form =
                Cap::named(form).ok_or_else(|| asked(format!("there is no limit '{form}'")))?;
            form.bytes(bytes(capacity)?)
                .map_or(0.0, |cap| cap as f64 / 1024.0)
        }
        ["sector_reads", workload] => sector_reads(workload)?,
        _ => return Ok(None),
    };
    Ok(Some(value))
}

/// A machine with one open file.
fn machine(policy: &str, cache_bytes: u64) -> Result<Machine, Failure> {
    let spec = foreread_history::parse_spec(policy).map_err(asked)?;
    let page = PageSize::new(PAGE).expect("a power of two");
    let mut machine = Machine::new(Config::new(page, cache_bytes), spec);
    machine.watch();
    let open = Event::open(OpenId(0), FileId(0), FILE_BYTES);
    machine.handle(Nanos(0), open);
    Ok(machine)
}

/// Reads, and returns the number of pages of each window that the policy plans.
fn read(machine: &mut Machine, number: u64, start: u64, len: u64) -> Vec<u64> {
    let read = Event::read(
        ReadId(number),
        OpenId(0),
        ByteRange::between(start, start + len),
    );
    time_queue::tell(machine, read, |_| ());
    let windows = machine.take_decisions().into_iter().flat_map(|d| d.windows);
    windows.map(|window| window.range.len() / PAGE).collect()
}

/// The number of pages of each window; `reads` are `offset+bytes,...`.
fn windows(policy: &str, reads: &str) -> Result<Vec<u64>, Failure> {
    let mut machine = machine(policy, CACHE_BYTES)?;
    let mut windows = Vec::new();
    for (n, text) in reads.split(',').enumerate() {
        let (start, len) = text.split_once('+').ok_or_else(|| asked(text))?;
        windows.extend(read(&mut machine, n as u64, bytes(start)?, bytes(len)?));
    }
    Ok(windows)
}

/// The number of the first neighbour whose read makes the policy read beyond it, and the number of pages of that
/// window.
fn start(policy: &str) -> Result<(f64, f64), Failure> {
    let mut machine = machine(policy, CACHE_BYTES)?;
    for n in 0..8 {
        let near = read(&mut machine, 2 * n, (NEAR + n) * PAGE, PAGE);
        if let Some(longest) = near.into_iter().max().filter(|pages| *pages > 1) {
            return Ok(((n + 1) as f64, longest as f64));
        }
        read(&mut machine, 2 * n + 1, FAR * (n + 1) * PAGE, PAGE);
    }
    Err(asked(format!("{policy} never reads ahead")))
}

/// The maximum readahead that a sequential reader has not read yet.
fn buffer_kib(policy: &str) -> Result<f64, Failure> {
    let mut machine = machine(policy, 4 * STREAM_BYTES)?;
    let mut most = 0;
    for n in 0..STREAM_BYTES / PAGE {
        read(&mut machine, n, n * PAGE, PAGE);
        most = most.max(machine.stats().unresolved_bytes);
    }
    Ok(most as f64 / 1024.0)
}

/// The default of a parameter; in bytes if it is a size.
fn default(policy: &str, key: &str) -> Result<f64, Failure> {
    let mut known = foreread_history::policies().into_iter();
    let info = known.find(|info| info.name == policy);
    let param = info.and_then(|info| info.params.iter().find(|param| param.key == key));
    let param = param.ok_or_else(|| asked(format!("{policy} has no {key}")))?;
    bytes(param.default).map(|value| value as f64)
}

fn sector_reads(workload: &str) -> Result<f64, Failure> {
    let workload = foreread_history::parse_workload(workload).map_err(asked)?;
    let built = workload
        .build(workload.info.least_bytes, 1)
        .map_err(asked)?;
    let requests = built.jobs.iter().flat_map(|job| &job.requests);
    Ok(requests.filter(|request| request.len == 512).count() as f64)
}
