//! The setting of a disk by a short look at it: the value that `doctor` names, said where policies were compared on one of its files.
//!
//! Example: `compare sequential --on /mnt/big` on a disk of 3 ms and 200 MB/s, whose `read_ahead_kb` is 128: with 2 MiB the kernel reads in order
//! as fast as `auto`, for all programs.

use super::settings::device_of;
use crate::advice::NextStep;
use crate::probe::glance;
use crate::report::{Decision, Report, decide};
use crate::setting::{MIN_TURNING_US, SettingLimits, StorageCosts, to_set};
use foreread_os::host::Host;
use foreread_report::number::{size, three};
use std::path::Path;

/// A gain that is worth a line, as `doctor` has it.
const MIN_GAIN: f64 = 1.25;

/// What to set for the disk of a file on which a policy of foreread gains. Looks at it for 2 s at most. Nothing where the present value is as good,
/// or the file is on no disk.
#[must_use]
pub fn disk_setting(path: &Path, reports: &[Report]) -> Option<NextStep> {
    if !matches!(decide(reports), Decision::Take(_)) {
        return None;
    }
    let device = device_of(Some(path)).filter(|device| device.name.is_some())?;
    let now = device.read_ahead?;
    let seen = glance(path).ok().flatten()?;
    let costs = StorageCosts {
        latency_us: seen.latency_us,
        mb_per_s: seen.mb_per_s,
        is_measured: true,
        turns: device.rotates == Some(true) && seen.latency_us >= MIN_TURNING_US,
    };
    let limits = SettingLimits {
        request_bytes: device.max_request,
        memory_bytes: Host::here().memory_bytes(),
        faults_of_reads: None,
    };
    let best = costs.best(&limits);
    let times = best.in_order_mb_per_s[0] / costs.at(now).in_order_mb_per_s[0];
    (best.readahead_bytes > now && times >= MIN_GAIN).then(|| {
        let why = format!(
            "the kernel's own readahead for all programs that read this disk in order, {} instead of {}: about {} times as fast ({}):",
            size(best.readahead_bytes),
            size(now),
            three(times),
            costs.in_words()
        );
        NextStep::new(&why, to_set(Some(&device), best.readahead_bytes).text)
    })
}
