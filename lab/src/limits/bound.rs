//! A time that no run can be below, whatever it fetches and whenever: a plumb line for the simulator.
//!
//! ```text
//!   bound = max( device: the least time in which the model gives the distinct bytes that are read
//!                readers: the thinking and copying of the job that has most of it )
//! ```
//!
//! The device has to give each byte at least once, as one command at its fastest; a reader has to think and copy
//! whatever is cached. A run beneath the larger of the two means that the simulator, the oracle or the model is broken.
//!
//! Never: an estimate. Where the model draws its round trips, none is counted, for a lucky one may be as short as it
//! likes.

use crate::device::presets::Preset;
use crate::sim::copy_ns;
use crate::workload::{Job, Workload};

/// A lower bound of the time of a run, in its two parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// What the device takes at least.
    pub device_ns: u64,
    /// What the slowest reader takes at least.
    pub readers_ns: u64,
}

impl Bound {
    /// The bound of a workload on a model.
    #[must_use]
    pub fn of(workload: &Workload, preset: &Preset) -> Bound {
        let jobs = workload.jobs.iter().map(|job| job_ns(job, workload, preset.host_ns_per_kib));
        Bound { device_ns: preset.least_ns(workload.distinct_bytes(1)), readers_ns: jobs.max().unwrap_or(0) }
    }

    /// The larger of its parts.
    #[must_use]
    pub fn ns(&self) -> u64 {
        self.device_ns.max(self.readers_ns)
    }
}

/// What a job takes at least: all that it thinks and copies, shared between the requests that it keeps going. With more
/// than one going, which of them thinks before a request is chance, so each is charged the least.
fn job_ns(job: &Job, workload: &Workload, host_ns_per_kib: u64) -> u64 {
    let size = workload.files[job.file as usize];
    let bytes = |offset: u64, len: u64| offset.saturating_add(len).min(size).saturating_sub(offset);
    let copies = job.requests.iter().map(|r| copy_ns(bytes(r.offset, r.len), host_ns_per_kib));
    let depth = u64::from(job.depth.max(1));
    let think = if depth == 1 {
        job.requests.iter().map(|r| r.think_ns).fold(0, u64::saturating_add)
    } else {
        let least = job.requests.iter().map(|r| r.think_ns).min().unwrap_or(0);
        least.saturating_mul(job.requests.len() as u64)
    };
    copies.fold(think, u64::saturating_add) / depth
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::presets;
    use crate::workload::Request;

    fn workload(depth: u32, thinks: &[u64]) -> Workload {
        let request =
            |(i, think_ns): (usize, &u64)| Request { think_ns: *think_ns, ..Request::read(i as u64 * 1024, 1024) };
        let requests = thinks.iter().enumerate().map(request).collect();
        let job = Job { depth, ..Job::new(0, 0, requests) };
        Workload { name: "test".to_string(), files: vec![1 << 20], page_bytes: 512, jobs: vec![job] }
    }

    #[test]
    fn readers_think_and_copy() {
        // 400 ns for each KiB.
        let preset = presets::find("x25-m").expect("a preset");
        assert_eq!(Bound::of(&workload(1, &[0, 1000, 5000]), preset).readers_ns, 7200);
        // Two at once: half of three copies and of three times the least pause.
        assert_eq!(Bound::of(&workload(2, &[300, 1000, 5000]), preset).readers_ns, (1200 + 900) / 2);
        let mut two = workload(1, &[1000]);
        two.jobs.push(workload(1, &[0, 7000]).jobs.remove(0));
        assert_eq!(Bound::of(&two, preset).readers_ns, 7800);
        assert_eq!(Bound::of(&workload(1, &[]), preset), Bound::default());
    }

    #[test]
    fn the_device_gives_each_byte_once() {
        let preset = presets::find("hdd-theory").expect("a preset");
        let mut w = workload(1, &[0, 0, 0]);
        let once = Bound::of(&w, preset);
        // 8 ms and 3 KiB at 102,400 KiB/s, rounded up.
        assert_eq!((once.device_ns, once.ns()), (8_029_297, 8_029_297));
        w.jobs.push(w.jobs[0].clone());
        assert_eq!(Bound::of(&w, preset).device_ns, once.device_ns);
    }
}
