//! Workloads of publications that did not publish their traces; foreread generates these workloads so that they match the published
//! figures.
//!
//! `volume` is shared code, not a workload.

mod volume;

mod blkid;
mod boot_ide;
mod virtual_machines;

use foreread_core::policy::SpecError;
use foreread_sim::workload::{self, Info, WorkloadChoice};

/// Reads of programs from small devices [Wu 2010b].
static PROGRAMS: &[&Info] = &[&blkid::INFO];

/// Reads of virtual machines, from a volume [Crume 2014].
static VOLUMES: &[&Info] = &[
    &boot_ide::INFO,
    &virtual_machines::BOOT_VIRTIO,
    &virtual_machines::GREP_IDE,
    &virtual_machines::GREP_VIRTIO,
];

/// Returns every workload, in the order of `foreread list workloads`: programs come before trees of files, and volumes come last.
pub fn workloads() -> Vec<&'static Info> {
    let list = crate::insert(workload::ALL, PROGRAMS, |info| info.name == "tree");
    crate::insert(&list, VOLUMES, |_| false)
}

/// Parses a workload that is written as `NAME:key=value,...`.
pub fn parse_workload(text: &str) -> Result<WorkloadChoice, SpecError> {
    workload::parse_among(text, &workloads())
}
