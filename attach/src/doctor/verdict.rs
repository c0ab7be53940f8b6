//! The result of `doctor`: its JSON, schema `foreread.doctor/1`. Undefined values are null; sizes are in bytes.

use super::look::StorageKind;
use foreread_lab::verdict::disk::{SizeCosts, StorageCosts};
use foreread_lab::verdict::{Standing, Verdict};
use serde::Serialize;

pub const SCHEMA: &str = "foreread.doctor/1";

#[derive(Clone, Debug, Serialize)]
pub struct DoctorReport {
    pub schema: &'static str,
    pub foreread: &'static str,
    pub kernel: Option<String>,
    pub standing: Standing,
    pub devices: Vec<DeviceVerdict>,
    pub pressure: PressureFacts,
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct DeviceVerdict {
    /// What the device has and should have; `why` is what is wrong, if anything.
    #[serde(flatten)]
    pub verdict: Verdict,
    pub kind: StorageKind,
    /// A description: `a virtio disk`.
    pub about: String,
    /// Why the value is what it is, as a sentence.
    pub reason: String,
    /// Where the value comes from, in a few words.
    pub origin: String,
    /// The value by the kernel's rule, and the rule.
    pub rule_bytes: Option<u64>,
    pub rule: Option<String>,
    pub rule_source: Option<&'static str>,
    /// The line that sets the value, or may set it (`origin` says which): `FILE:LINE`.
    pub set_by: Option<String>,
    pub is_virtual: bool,
    pub rotates: Option<bool>,
    pub optimal_bytes: Option<u64>,
    pub max_request_bytes: Option<u64>,
    pub size_bytes: Option<u64>,
    pub scheduler: Option<String>,
    pub model: Option<String>,
    pub mounts: Vec<String>,
    pub is_swap: bool,
    /// True if the machine was too busy to measure the device. No value is advised then.
    pub is_busy: bool,
    pub costs: StorageCosts,
    pub now: Option<SizeCosts>,
    /// With the advised setting, if there is one.
    pub advised: Option<SizeCosts>,
}

impl DeviceVerdict {
    /// The verdict if the machine is too busy to measure the device: no value is advised. A value that is suspicious whatever the device
    /// costs stays so.
    pub fn busy(mut self) -> DeviceVerdict {
        (self.is_busy, self.advised) = (true, None);
        self.verdict.should_bytes = None;
        self.verdict.steps.clear();
        if self.verdict.standing == Standing::Gain {
            self.verdict.standing = Standing::Fine;
            self.verdict.why.clear();
        }
        self
    }
}

/// Signs of memory pressure, which too much readahead makes worse: counters since boot.
#[derive(Clone, Debug, Serialize)]
pub struct PressureFacts {
    pub major_faults: Option<u64>,
    pub refaulted_pages: Option<u64>,
    /// Major faults / reads of all disks since the machine started. Several faults may wait for the same read.
    pub faults_of_reads: Option<f64>,
    /// Percentage of the last minute with memory stalls.
    pub stalled_percent: Option<f64>,
    pub memory_bytes: u64,
    pub words: String,
}
