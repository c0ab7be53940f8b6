//! The result of `doctor` as a text file for the Prometheus node exporter.

use super::verdict::{DeviceVerdict, DoctorReport};
use foreread_lab::verdict::Standing;

type Value = fn(&DeviceVerdict) -> Option<u64>;

const GAUGES: [(&str, &str, Value); 4] = [
    (
        "foreread_doctor_readahead_bytes",
        "read_ahead_kb of the device.",
        |device| device.verdict.has_bytes,
    ),
    (
        "foreread_doctor_rule_bytes",
        "Readahead that the kernel's rule gives the device.",
        |device| device.rule_bytes,
    ),
    (
        "foreread_doctor_advised_bytes",
        "Readahead that foreread doctor advises, if the current value is not fine.",
        |device| Some(device.advised?.readahead_bytes),
    ),
    (
        "foreread_doctor_suspicious",
        "1 if the current value is suspicious.",
        |device| Some(u64::from(device.verdict.standing == Standing::Suspicious)),
    ),
];

/// Returns the text of the metrics file for the Prometheus node exporter.
#[must_use]
pub fn text(report: &DoctorReport) -> String {
    let mut text = String::new();
    for (name, help, value) in GAUGES {
        text += &format!("# HELP {name} {help}\n# TYPE {name} gauge\n");
        for device in &report.devices {
            if let Some(value) = value(device) {
                text += &format!(
                    "{name}{{device=\"{}\"}} {value}\n",
                    label(&device.verdict.device)
                );
            }
        }
    }
    text
}

fn label(name: &str) -> String {
    name.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
