//! What `doctor` found: its JSON, schema `foreread.doctor/1`. Undefined is null; sizes are bytes.

use super::look::StorageKind;
use foreread_lab::verdict::disk::{SizeCosts, StorageCosts};
use foreread_lab::verdict::{Standing, Verdict};
use serde::Serialize;

pub const SCHEMA: &str = "foreread.doctor/1";

#[derive(Clone, Debug, Serialize)]
pub struct DoctorReport {
    pub schema: &'static str,
    pub foreread: &'static str,
    /// The release of the kernel.
    pub kernel: Option<String>,
    /// The worst of the devices.
    pub standing: Standing,
    pub devices: Vec<DeviceVerdict>,
    pub pressure: PressureFacts,
    /// What a reader must know, a sentence each.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct DeviceVerdict {
    /// What it has and should have; `why` is what is wrong, where something is.
    #[serde(flatten)]
    pub verdict: Verdict,
    pub kind: StorageKind,
    /// In words: `a virtio disk`.
    pub about: String,
    /// Why it is so, a sentence.
    pub reason: String,
    /// Where the value is from, in a few words.
    pub origin: String,
    /// What the kernel's rule gives, and the rule.
    pub rule_bytes: Option<u64>,
    pub rule: Option<String>,
    pub rule_source: Option<&'static str>,
    /// The file that sets the value, where one does.
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
    pub costs: StorageCosts,
    /// At the present setting.
    pub now: Option<SizeCosts>,
    /// At the setting that is advised, where one is.
    pub advised: Option<SizeCosts>,
}

/// Whether it hurts now: counters since the machine started.
#[derive(Clone, Debug, Serialize)]
pub struct PressureFacts {
    pub major_faults: Option<u64>,
    pub refaulted_pages: Option<u64>,
    /// Major faults / reads of all disks since the start of the machine. More than one fault may wait for a read.
    pub faults_of_reads: Option<f64>,
    /// Per cent of the latest minute with stalls for memory.
    pub stalled_percent: Option<f64>,
    pub memory_bytes: u64,
    /// In words.
    pub words: String,
}
