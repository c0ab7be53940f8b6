//! `foreread list workloads`: every workload with its parameters and the source of its definition.

use super::catalog::{self, Entry};
use crate::args::JsonArgs;
use crate::fail::Fail;
use foreread_sim::workload::Info;

/// Prints the workloads.
pub fn run(args: &JsonArgs) -> Result<(), Fail> {
    let entries: Vec<Entry> = foreread_history::workloads()
        .into_iter()
        .map(entry)
        .collect();
    catalog::print("workloads", &entries, args.json.as_deref(), "")
}

fn entry(info: &Info) -> Entry {
    Entry {
        name: info.name.to_string(),
        summary: info.summary.to_string(),
        origin: info.origin.to_string(),
        facts: Vec::new(),
        params: info.params,
    }
}
