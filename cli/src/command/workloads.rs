//! `foreread workloads`: every workload with its parameters and where it comes from.

use crate::args::ListArgs;
use crate::catalog::{self, Entry};
use crate::fail::Fail;
use foreread_sim::workload::Info;

/// Prints them.
pub fn run(args: &ListArgs) -> Result<(), Fail> {
    let entries: Vec<Entry> = foreread_history::workloads()
        .into_iter()
        .map(entry)
        .collect();
    catalog::print("workloads", &entries, args.json)
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
