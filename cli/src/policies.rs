//! `foreread policies`: every policy with its parameters, their defaults, units and ranges, and its origin.

use crate::catalog::{self, Entry};
use crate::fail::Fail;
use foreread_core::policy::{ALL, Info, Scope};
use foreread_lab::report::number::size;
use serde_json::json;

/// Prints them.
pub fn run(as_json: bool) -> Result<(), Fail> {
    let entries: Vec<Entry> = ALL.iter().map(|info| entry(info)).collect();
    catalog::print("policies", &entries, as_json)
}

fn entry(info: &Info) -> Entry {
    let (scope, whose) = match info.scope {
        Scope::Open => ("open", "State: one for each open description."),
        Scope::File => ("file", "State: one for all readers of the file together."),
    };
    let page = info.page_bytes.map(|bytes| format!("Needs cache pages of {}.", size(bytes)));
    // What has no parameters keeps no state worth a word.
    let whose = (!info.params.is_empty()).then(|| whose.to_string());
    Entry {
        name: info.name.to_string(),
        summary: info.summary.to_string(),
        origin: info.origin.to_string(),
        facts: vec![("scope", json!(scope), whose), ("page_bytes", json!(info.page_bytes), page)],
        params: info.params,
    }
}
