//! `foreread list policies`: every policy with its parameters, their defaults, units and ranges, and its origin.

use super::catalog::{self, Entry, Fact};
use crate::args::JsonArgs;
use crate::fail::Fail;
use foreread_core::policy::{Info, Scope};
use foreread_history::policies;
use foreread_report::number::{exact_size as size, wrap};

/// The text below the list.
const BY_CAPACITY: &str = "max=capacity lowers max to the value that suits the capacity of the storage; \
    max=512K+capacity also limits it to 512K. The value is 8K from a capacity of 8M on, 16K from 32M, and so on, and \
    1M from 128G (Wu Fengguang, 2010). max=capacity-2010b uses the later posting: 8K from 1M on, 1M from 16G.";

/// Prints the policies.
pub fn run(args: &JsonArgs) -> Result<(), Fail> {
    let entries: Vec<Entry> = policies().iter().map(|info| entry(info)).collect();
    let below = format!("\n{}\n", wrap(BY_CAPACITY, 90).join("\n"));
    catalog::print("policies", &entries, args.json.as_deref(), &below)
}

fn entry(info: &Info) -> Entry {
    let (scope, whose) = match info.scope {
        Scope::Open => ("open", "Keeps one state for each open file description."),
        Scope::File => (
            "file",
            "Keeps one state for all readers of a file together.",
        ),
        Scope::Source => ("source", "Keeps one state for all files of the source."),
    };
    let page = info
        .page_bytes
        .map(|bytes| format!("Needs cache pages of {}.", size(bytes)));
    // A policy without parameters has no state to mention.
    let whose = (!info.params.is_empty()).then(|| whose.to_string());
    Entry {
        name: info.name.to_string(),
        summary: info.summary.to_string(),
        origin: info.origin.to_string(),
        facts: vec![
            Fact::new("scope", scope, whose),
            Fact::new("page_bytes", info.page_bytes, page),
        ],
        params: info.params,
    }
}
