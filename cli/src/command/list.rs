//! `foreread list`: lists the names that other commands accept, each with its parameters, their defaults, units and ranges, and its origin:
//! every policy, every device model with its measured error, and every workload.

mod catalog;

use crate::args::JsonArgs;
use crate::fail::Fail;
use crate::out;
use catalog::{Entry, Fact};
use clap::Subcommand;
use foreread_core::policy::{self, Scope};
use foreread_report::names;
use foreread_report::number::{exact_size as size, wrap};
use foreread_sim::device::presets::{self, PRESETS, Preset};
use foreread_sim::workload;

/// The text below the policies.
const BY_CAPACITY: &str = "max=capacity lowers max to the value that suits the capacity of the storage; \
    max=512K+capacity also limits it to 512K. The value is 8K from a capacity of 8M on, 16K from 32M, and so on, and \
    1M from 128G (Wu Fengguang, 2010). max=capacity-2010b uses the later posting: 8K from 1M on, 1M from 16G.";

/// List policies, models or workloads: parameters, defaults, units
///
/// Other commands accept an entry as NAME or NAME:key=value,key=value. Sizes take K, M, G, T.
#[derive(Debug, clap::Args)]
#[command(disable_help_subcommand = true)]
pub struct ListArgs {
    /// What to list.
    #[command(subcommand)]
    pub command: ListCommand,
}

/// The lists.
#[derive(Debug, Subcommand)]
pub enum ListCommand {
    /// List the policies: parameters, defaults, units, origin
    #[command(after_help = "\
Example:
  foreread compare --policy linux-6.18:max=1M,rbd-plain:trigger=3,max=1M")]
    Policies(JsonArgs),
    Models(ModelsArgs),
    /// List the workloads: parameters, defaults, units, origin
    #[command(after_help = "\
Example:
  foreread compare random:record=16K --on model:nvme")]
    Workloads(JsonArgs),
}

/// List the device models: parameters, sources, accuracy
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread compare --on model:rbd
  foreread list models --toml rbd > mine.toml
  foreread compare --on model:mine.toml")]
pub struct ModelsArgs {
    #[command(flatten)]
    pub output: JsonArgs,
    /// Print one model as a model file, as a starting point
    #[arg(long, value_name = "NAME", conflicts_with = "json")]
    pub toml: Option<String>,
}

pub fn run(args: &ListArgs) -> Result<(), Fail> {
    match &args.command {
        ListCommand::Policies(asked) => {
            let entries = foreread_history::policies();
            let entries: Vec<Entry> = entries.iter().map(|info| of_policy(info)).collect();
            let below = format!("\n{}\n", wrap(BY_CAPACITY, 90).join("\n"));
            catalog::print("policies", &entries, asked.json.as_deref(), &below)
        }
        ListCommand::Models(asked) => models(asked),
        ListCommand::Workloads(asked) => {
            let entries = foreread_history::workloads();
            let entries: Vec<Entry> = entries.into_iter().map(of_workload).collect();
            catalog::print("workloads", &entries, asked.json.as_deref(), "")
        }
    }
}

fn of_policy(info: &policy::Info) -> Entry {
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

fn of_workload(info: &workload::Info) -> Entry {
    Entry {
        name: info.name.to_string(),
        summary: info.summary.to_string(),
        origin: info.origin.to_string(),
        facts: Vec::new(),
        params: info.params,
    }
}

/// Prints the list, or one model as a model file.
fn models(args: &ModelsArgs) -> Result<(), Fail> {
    if let Some(name) = &args.toml {
        let text = presets::text(name)
            .map_err(|error| names::refused("model", &error, "foreread list models"))?;
        return out::print(text);
    }
    let entries: Vec<Entry> = PRESETS.iter().map(of_model).collect();
    catalog::print("models", &entries, args.output.json.as_deref(), "")
}

fn of_model(preset: &Preset) -> Entry {
    let fit = format!("Fit: {}.", preset.fit_error);
    let text = presets::text(preset.name).expect("the name of a preset");
    let figures_text = format!("Figures: {}.", figures(text));
    let model = serde_json::to_value(preset.model);
    let model = model.expect("a struct of numbers can always be written");
    let model = model.as_object().and_then(|model| model.iter().next());
    let (kind, values) = model.expect("an enum with a value is an object with one key");
    let mut facts = vec![
        Fact::new("kind", kind, Some(figures_text)),
        Fact::of_json("calibrated", preset.calibrated),
        Fact::new("fit_error", preset.fit_error, Some(fit)),
        Fact::of_json("capacity_bytes", preset.capacity_bytes),
        Fact::of_json("connections", preset.connections),
        Fact::of_json("max_fetch_bytes", preset.max_fetch_bytes),
        Fact::of_json("host_ns_per_kib", preset.host_ns_per_kib),
        Fact::of_json("host_origin", preset.host_origin),
    ];
    let throttle = preset.throttle.iter();
    facts.extend(throttle.map(|t| Fact::of_json("requests_per_s", t.requests_per_s)));
    facts.push(Fact::of_json("figures", values));
    Entry {
        name: preset.name.to_string(),
        summary: preset.summary.to_string(),
        origin: preset.origin.to_string(),
        facts,
        params: &[],
    }
}

/// The figures of a model file as text: `net: rtt_ns 690000, link_bytes_per_s 62500000; throttle: ...`.
fn figures(text: &str) -> String {
    let mut tables: Vec<String> = Vec::new();
    for line in text.lines() {
        if line.starts_with('[') {
            tables.push(format!("{}:", line.trim_matches(['[', ']'])));
        } else if let (Some(table), Some((key, value))) =
            (tables.last_mut(), line.split_once(" = "))
        {
            let comma = if table.ends_with(':') { "" } else { "," };
            table.push_str(&format!("{comma} {key} {value}"));
        }
    }
    tables.join("; ")
}
