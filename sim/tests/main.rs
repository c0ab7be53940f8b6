//! The tests of foreread-sim's public interface as one binary, because linking is the slow part of a test build.

use foreread_core::machine::Config;
use foreread_core::policy::PolicySpec;
use foreread_core::units::PageSize;
use foreread_sim::device::Device;
use foreread_sim::simulator::{RunResult, Setup, run};
use foreread_sim::workload::{Job, Workload};

mod cited;
mod cliffs;
mod device_disks;
mod devices;
mod files;
mod network;
mod simulator;

fn config(cache: u64) -> Config {
    Config::new(PageSize::new(4096).expect("a page size"), cache)
}

fn workload(files: &[u64], jobs: Vec<Job>) -> Workload {
    let files = Workload::on_files("test", files.to_vec());
    Workload { jobs, ..files }
}

fn simulate(
    workload: &Workload,
    policy: &str,
    config: Config,
    host_ns_per_kib: u64,
    device: Box<dyn Device>,
) -> RunResult {
    let policy = PolicySpec::parse(policy).expect("a policy");
    let setup = Setup::new(workload, &policy, config, host_ns_per_kib);
    run(&setup, device)
}
