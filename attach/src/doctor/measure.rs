//! Measures a disk for a moment, where that is allowed and disturbs nothing.
//!
//! As root, on this machine alone. A disk in heavy use is left alone: its readers come first, and the figures would be wrong.

use super::look::{DeviceFacts, StorageKind};
use foreread_lab::probe::glance;
use foreread_lab::setting::{MIN_TURNING_US, StorageCosts};
use foreread_os::host::Host;
use std::path::Path;
use std::time::Duration;

/// How long a disk's use is looked at, and how busy it may be then.
const LOOK: Duration = Duration::from_millis(100);
const MAX_BUSY_MS: u64 = 50;
const MAX_IN_FLIGHT: u64 = 2;

/// What was measured, or why not.
#[derive(Clone, Debug, PartialEq)]
pub enum Measurement {
    Costs(StorageCosts),
    /// It is in heavy use.
    Busy,
    /// Why it could not be read.
    Failed(String),
    /// Its kind, its size or this user does not allow it.
    Not,
}

/// Measures one.
#[must_use]
pub fn measure(host: &Host, facts: &DeviceFacts) -> Measurement {
    let is_for_it = matches!(
        facts.kind,
        StorageKind::Disk | StorageKind::Loop | StorageKind::Mapped | StorageKind::Md
    );
    if !is_for_it || !facts.has_bytes() || !rustix::process::geteuid().is_root() {
        return Measurement::Not;
    }
    let counters = || host.disk_counters(&facts.device.name);
    let before = counters();
    std::thread::sleep(LOOK);
    if let (Some(before), Some(now)) = (before, counters()) {
        let busy_ms = now.busy_ms.saturating_sub(before.busy_ms);
        if busy_ms > MAX_BUSY_MS || now.in_flight > MAX_IN_FLIGHT {
            return Measurement::Busy;
        }
    }
    // sysfs has '!' for the '/' of a node.
    let node = Path::new("/dev").join(facts.device.name.replace('!', "/"));
    match glance(&node) {
        Ok(Some(glance)) => {
            let claims = facts.device.rotates == Some(true) && facts.is_virtual.is_none();
            Measurement::Costs(StorageCosts {
                latency_us: glance.latency_us,
                mb_per_s: glance.mb_per_s,
                is_measured: true,
                turns: claims && glance.latency_us >= MIN_TURNING_US,
            })
        }
        Ok(None) => Measurement::Not,
        Err(failure) => Measurement::Failed(failure.to_string()),
    }
}
