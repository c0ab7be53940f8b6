//! `foreread list models`: every device model with its parameters, their sources and the measured error.

use super::catalog::{self, Entry, Fact};
use crate::args::JsonArgs;
use crate::fail::Fail;
use crate::out;
use foreread_report::names;
use foreread_report::number::size;
use foreread_sim::device::array::Overhead;
use foreread_sim::device::disk::{DiskModel, Slope};
use foreread_sim::device::presets::{self, Model, PRESETS, Preset};
use serde_json::{Value, json};

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
        let preset = presets::find(name)
            .map_err(|error| names::refused("model", &error, "foreread list models"))?;
        return out::print(foreread_lab::probe::model_toml(preset));
    }
    let entries: Vec<Entry> = PRESETS.iter().map(entry).collect();
    catalog::print("models", &entries, args.output.json.as_deref(), "")
}

fn entry(preset: &Preset) -> Entry {
    let fit = format!("Fit: {}.", preset.fit_error);
    let limit = preset.throttle.map_or(String::new(), |t| {
        format!("; at most {} requests/s", t.requests_per_s)
    });
    let figures_text = format!("Figures: {}{limit}.", words(preset.model));
    let mut facts = vec![
        Fact::new("kind", kind(preset.model), Some(figures_text)),
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
    let figures = figures(preset.model).into_iter();
    facts.extend(figures.map(|(key, value)| Fact::of_json(key, value)));
    Entry {
        name: preset.name.to_string(),
        summary: preset.summary.to_string(),
        origin: preset.origin.to_string(),
        facts,
        params: &[],
    }
}

fn kind(model: Model) -> &'static str {
    match model {
        Model::Disk(_) => "disk",
        Model::Hdd(_) => "hdd",
        Model::Array(_) => "array",
        Model::Ssd(_) => "ssd",
        Model::Net(_) => "net",
        Model::Lanes(_) => "lanes",
    }
}

/// `value` in a larger unit, to two decimals, without trailing zeros.
fn per(value: u64, unit: f64) -> f64 {
    (value as f64 / unit * 100.0).round() / 100.0
}

fn time(ns: u64) -> String {
    if ns < 1_000_000 {
        format!("{} us", per(ns, 1e3))
    } else {
        format!("{} ms", per(ns, 1e6))
    }
}

/// The cost of a single command, as text.
fn alone(disk: &DiskModel) -> String {
    let of = disk
        .max_transfer_bytes
        .map_or_else(String::new, |most| format!(" of at most {}", size(most)));
    let slope = |(n, s): (usize, &Slope)| {
        let from = if n > 0 {
            format!(" from {} on", size(s.from_bytes))
        } else {
            String::new()
        };
        format!("{} us/KiB{from}", per(s.ps_per_kib, 1e6))
    };
    let slopes: Vec<String> = disk.slopes.iter().enumerate().map(slope).collect();
    format!(
        "{} us per transfer{of}, {}",
        per(disk.command_ns, 1e3),
        slopes.join(", ")
    )
}

/// The parameters of the model, as text.
fn words(model: Model) -> String {
    let (us, ms, mb) = (
        |ns| per(ns, 1e3),
        |ns| per(ns, 1e6),
        |bytes| per(bytes, 1e6),
    );
    match model {
        Model::Disk(disk) => format!("{}; one after the other", alone(&disk)),
        Model::Lanes(lanes) => format!(
            "{} per command and {} us/KiB, {} commands at once; link {} us/KiB",
            time(lanes.latency_ns),
            per(lanes.ps_per_kib, 1e6),
            lanes.lanes,
            per(lanes.link_ps_per_kib, 1e6),
        ),
        Model::Hdd(hdd) => {
            let seek = hdd.seek;
            let linear = format!(
                " up to {} of the disk, {} ms for the whole disk",
                seek.linear_from,
                ms(seek.full_ns)
            );
            let linear = if seek.linear_from < 1.0 {
                linear
            } else {
                String::new()
            };
            let settle = if seek.settle_ns > 0 {
                format!("{} ms + ", ms(seek.settle_ns))
            } else {
                String::new()
            };
            format!(
                "{} us per command; seek {settle}{} ms * sqrt(share of the disk){linear}; {} rpm; {} to {} MB/s; \
                 buffer {} times {}; the nearest of {} queued commands goes first",
                us(hdd.command_ns),
                ms(seek.root_ns),
                hdd.rpm,
                mb(hdd.bytes_per_s.outer),
                mb(hdd.bytes_per_s.inner),
                hdd.buffer.segments,
                size(hdd.buffer.segment_bytes),
                hdd.queue_depth,
            )
        }
        Model::Array(array) => {
            let row = |row: &Overhead| format!("{} us from {}", us(row.ns), row.from_readers);
            let rows: Vec<String> = array.overhead.iter().map(row).collect();
            format!(
                "{} us/KiB; per command, by number of readers: {}",
                per(array.ps_per_kib, 1e6),
                rows.join(", ")
            )
        }
        Model::Ssd(ssd) => format!(
            "{} us per command; {} channels of {} MB/s, {} dies each; page of {} in {} us; link {} MB/s; {} commands at once",
            us(ssd.command_ns),
            ssd.channels,
            mb(ssd.channel_bytes_per_s),
            ssd.dies_per_channel,
            size(ssd.page_bytes),
            us(ssd.read_ns),
            mb(ssd.link_bytes_per_s),
            ssd.queue_depth,
        ),
        Model::Net(net) => format!(
            "first byte after {}{}; {} MB/s per connection, {} MB/s in total, {} connections",
            time(net.rtt_ns),
            net.rtt_p99_ns
                .map_or_else(String::new, |p99| format!(" (p99 {})", time(p99))),
            mb(net.connection_bytes_per_s),
            mb(net.link_bytes_per_s),
            net.connections,
        ),
    }
}

/// The parameters of the model, for the JSON.
fn figures(model: Model) -> Vec<(&'static str, Value)> {
    match model {
        Model::Disk(disk) => {
            let slope =
                |s: &Slope| json!({ "from_bytes": s.from_bytes, "ps_per_kib": s.ps_per_kib });
            vec![
                ("command_ns", json!(disk.command_ns)),
                ("max_transfer_bytes", json!(disk.max_transfer_bytes)),
                ("slopes", disk.slopes.iter().map(slope).collect()),
            ]
        }
        Model::Lanes(lanes) => vec![
            ("lanes", json!(lanes.lanes)),
            ("latency_ns", json!(lanes.latency_ns)),
            ("ps_per_kib", json!(lanes.ps_per_kib)),
            ("link_ps_per_kib", json!(lanes.link_ps_per_kib)),
        ],
        Model::Hdd(hdd) => vec![
            ("rpm", json!(hdd.rpm)),
            ("command_ns", json!(hdd.command_ns)),
            ("settle_ns", json!(hdd.seek.settle_ns)),
            ("seek_root_ns", json!(hdd.seek.root_ns)),
            ("seek_linear_from", json!(hdd.seek.linear_from)),
            ("seek_full_ns", json!(hdd.seek.full_ns)),
            ("outer_bytes_per_s", json!(hdd.bytes_per_s.outer)),
            ("inner_bytes_per_s", json!(hdd.bytes_per_s.inner)),
            ("buffer_segments", json!(hdd.buffer.segments)),
            ("buffer_segment_bytes", json!(hdd.buffer.segment_bytes)),
            ("buffer_hit_ns", json!(hdd.buffer.hit_ns)),
            (
                "interface_bytes_per_s",
                json!(hdd.buffer.interface_bytes_per_s),
            ),
            ("queue_depth", json!(hdd.queue_depth)),
            ("patience_ns", json!(hdd.patience_ns)),
        ],
        Model::Array(array) => vec![
            ("overhead_ns", json!(array.overhead)),
            ("ps_per_kib", json!(array.ps_per_kib)),
        ],
        Model::Ssd(ssd) => vec![
            ("channels", json!(ssd.channels)),
            ("dies_per_channel", json!(ssd.dies_per_channel)),
            ("flash_page_bytes", json!(ssd.page_bytes)),
            ("command_ns", json!(ssd.command_ns)),
            ("read_ns", json!(ssd.read_ns)),
            ("read_p99_ns", json!(ssd.tail.map(|t| t.read_p99_ns))),
            (
                "collisions_per_million",
                json!(ssd.tail.map(|t| t.collisions_per_million)),
            ),
            ("program_ns", json!(ssd.tail.map(|t| t.program_ns))),
            ("erase_ns", json!(ssd.tail.map(|t| t.erase_ns))),
            ("channel_bytes_per_s", json!(ssd.channel_bytes_per_s)),
            ("link_bytes_per_s", json!(ssd.link_bytes_per_s)),
            ("queue_depth", json!(ssd.queue_depth)),
        ],
        Model::Net(net) => vec![
            ("rtt_ns", json!(net.rtt_ns)),
            ("rtt_p99_ns", json!(net.rtt_p99_ns)),
            ("connection_bytes_per_s", json!(net.connection_bytes_per_s)),
            ("link_bytes_per_s", json!(net.link_bytes_per_s)),
            ("server_connections", json!(net.connections)),
        ],
    }
}
