//! `foreread models`: every device model with its figures, where they come from and how far they are off.

use crate::catalog::{self, Entry};
use crate::fail::Fail;
use foreread_lab::device::disk::Slope;
use foreread_lab::device::presets::{Model, PRESETS, Preset};
use serde_json::{Value, json};

/// Prints them.
pub fn run(as_json: bool) -> Result<(), Fail> {
    let entries: Vec<Entry> = PRESETS.iter().map(entry).collect();
    catalog::print("models", &entries, as_json)
}

fn entry(preset: &Preset) -> Entry {
    let fit = format!("Fit: {}.", preset.fit_error);
    let mut facts = vec![
        ("calibrated", json!(preset.calibrated), None),
        ("fit_error", json!(preset.fit_error), Some(fit)),
        ("capacity_bytes", json!(preset.capacity_bytes), None),
        ("connections", json!(preset.connections), None),
        ("host_ns_per_kib", json!(preset.host_ns_per_kib), None),
        ("host_origin", json!(preset.host_origin), None),
    ];
    facts.extend(figures(preset.model).into_iter().map(|(key, value)| (key, value, None)));
    Entry {
        name: preset.name.to_string(),
        summary: preset.summary.to_string(),
        origin: preset.origin.to_string(),
        facts,
        params: &[],
    }
}

/// The figures of the model, for the JSON.
fn figures(model: Model) -> Vec<(&'static str, Value)> {
    match model {
        Model::Disk(disk) => {
            let slope = |s: &Slope| json!({ "from_bytes": s.from_bytes, "ps_per_kib": s.ps_per_kib });
            // The largest number there is stands for no limit.
            let most = Some(disk.max_transfer_bytes).filter(|bytes| *bytes < u64::MAX);
            vec![
                ("kind", json!("disk")),
                ("command_ns", json!(disk.command_ns)),
                ("max_transfer_bytes", json!(most)),
                ("slopes", disk.slopes.iter().map(slope).collect()),
            ]
        }
        Model::Hdd(hdd) => vec![
            ("kind", json!("hdd")),
            ("rpm", json!(hdd.rpm)),
            ("command_ns", json!(hdd.command_ns)),
            ("settle_ns", json!(hdd.seek.settle_ns)),
            ("seek_root_ns", json!(hdd.seek.root_ns)),
            ("outer_bytes_per_s", json!(hdd.bytes_per_s.0)),
            ("inner_bytes_per_s", json!(hdd.bytes_per_s.1)),
            ("buffer_segments", json!(hdd.buffer.segments)),
            ("buffer_segment_bytes", json!(hdd.buffer.segment_bytes)),
            ("queue_depth", json!(hdd.queue_depth)),
        ],
        Model::Array(array) => vec![
            ("kind", json!("array")),
            (
                "overhead_ns",
                array.overhead_ns.iter().map(|(from, ns)| json!({ "from_readers": from, "ns": ns })).collect(),
            ),
            ("ps_per_kib", json!(array.ps_per_kib)),
        ],
        Model::Ssd(ssd) => vec![
            ("kind", json!("ssd")),
            ("channels", json!(ssd.channels)),
            ("dies_per_channel", json!(ssd.dies_per_channel)),
            ("flash_page_bytes", json!(ssd.page_bytes)),
            ("command_ns", json!(ssd.command_ns)),
            ("read_ns", json!(ssd.read_ns)),
            ("read_p99_ns", json!(ssd.tail.map(|t| t.read_p99_ns))),
            ("channel_bytes_per_s", json!(ssd.channel_bytes_per_s)),
            ("link_bytes_per_s", json!(ssd.link_bytes_per_s)),
            ("queue_depth", json!(ssd.queue_depth)),
        ],
        Model::Net(net) => vec![
            ("kind", json!("net")),
            ("rtt_ns", json!(net.rtt_ns)),
            ("rtt_p99_ns", json!(net.rtt_p99_ns)),
            ("connection_bytes_per_s", json!(net.connection_bytes_per_s)),
            ("link_bytes_per_s", json!(net.link_bytes_per_s)),
            ("server_connections", json!(net.connections)),
        ],
    }
}
