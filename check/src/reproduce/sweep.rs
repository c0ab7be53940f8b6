//! Reproduces the measurements of [Wu 2010b], in which `dd` reads a device several times, each time with another readahead size. Compares
//! the model of the device with all rows of the table. Also fits the same kind of model to all rows but one, and compares its prediction
//! with the omitted row.
//!
//! ```text
//!   rows ── all ──► the preset (fitted once, for good) ──► rows of the kind fit
//!        └─ all but one ──► the same form, fitted here ──► the runs of that one: left-out
//! ```
//! **Two columns of labels.** The posting labels its rows with the readahead sizes 4, 8, 16 KiB ..., but its script, and [Wu 2010a] for the
//! same runs, have 4, 16, 32 KiB. A device model that executes one command at a time fits the rows only with the sizes of the script
//! (`check/tests/reproduce.rs`), so these sizes are used.

use super::published::Paper;
use super::{asked, bytes};
use foreread_os::failure::Failure;
use foreread_sim::device::disk::{DiskModel, Form};
use foreread_sim::device::presets::{Model, Preset};

/// The bytes that each run of `dd bs=4k count=102400` reads.
pub const DD_BYTES: f64 = 102_400.0 * 4096.0;
const PAPER: &str = "wu-2010b";
/// The measurements of this file.
const KINDS: [&str; 2] = ["fitted", "left_out"];

/// The published measurements of a device: for each row, the readahead in bytes that the script sets, and the mean rate
/// of the runs in 10^6 bytes per second.
#[derive(Clone, Debug)]
pub struct Sweep {
    pub device: String,
    pub rows: Vec<(u64, f64)>,
}

/// Returns the sweeps of all devices, taken from the published rows with the expression `fitted DEVICE SIZE`.
pub fn all() -> Vec<Sweep> {
    let mut sweeps: Vec<Sweep> = Vec::new();
    let figures = Paper::named(PAPER).map_or_else(Vec::new, |paper| paper.figures());
    for figure in figures {
        let words: Vec<&str> = figure.ours.split_whitespace().collect();
        let (["fitted", device, size], Some(value)) = (&words[..], figure.value()) else {
            continue;
        };
        let row = (bytes(size).unwrap_or(0), value);
        match sweeps.iter_mut().find(|sweep| sweep.device == *device) {
            Some(sweep) => sweep.rows.push(row),
            None => sweeps.push(Sweep {
                device: (*device).to_string(),
                rows: vec![row],
            }),
        }
    }
    sweeps
}

/// The value of a measurement in this file. The outer option is `None` if it is another measurement, the inner one if
/// it is undefined.
pub(super) fn value(
    words: &[&str],
    preset: impl Fn(&str) -> Result<&'static Preset, Failure>,
) -> Result<Option<Option<f64>>, Failure> {
    let [what, device, size] = words else {
        return Ok(None);
    };
    if !KINDS.contains(what) {
        return Ok(None);
    }
    let sweeps = all();
    let Some(sweep) = sweeps.iter().find(|sweep| sweep.device == *device) else {
        return Ok(None);
    };
    let Model::Disk(disk) = preset(device)?.model else {
        return Err(asked(format!(
            "{device} is not a disk that serves one command at a time"
        )));
    };
    let size = bytes(size)?;
    Ok(Some(match *what {
        "fitted" => Some(fitted(disk, size)),
        _ => sweep.left_out_s(disk, size),
    }))
}

fn fitted(disk: DiskModel, size: u64) -> f64 {
    size as f64 / disk.time_ns(size) as f64 * 1e3
}

impl Sweep {
    /// Seconds of `dd` at a size, predicted by a model of the disk's form that is fitted to the rows of the other
    /// sizes.
    fn left_out_s(&self, disk: DiskModel, size: u64) -> Option<f64> {
        let form = Form {
            max_transfer_bytes: disk.max_transfer_bytes,
            knees: disk.slopes.iter().skip(1).map(|s| s.from_bytes).collect(),
        };
        let others = self.rows.iter().filter(|row| row.0 != size);
        let times = others.map(|&(bytes, mb_per_s)| (bytes, bytes as f64 / mb_per_s * 1e3));
        Some(form.fit(times)?(size) / size as f64 * DD_BYTES / 1e9)
    }
}
