//! `foreread list models`: every device model with its parameters, their sources and the measured error.

use super::catalog::{self, Entry, Fact};
use crate::args::JsonArgs;
use crate::fail::Fail;
use crate::out;
use foreread_report::names;
use foreread_sim::device::presets::{self, PRESETS, Preset};

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

/// Prints the list, or one model as a model file.
pub fn run(args: &ModelsArgs) -> Result<(), Fail> {
    if let Some(name) = &args.toml {
        let text = presets::text(name)
            .map_err(|error| names::refused("model", &error, "foreread list models"))?;
        return out::print(text);
    }
    let entries: Vec<Entry> = PRESETS.iter().map(entry).collect();
    catalog::print("models", &entries, args.output.json.as_deref(), "")
}

fn entry(preset: &Preset) -> Entry {
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
