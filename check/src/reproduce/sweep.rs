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
//!
//! **The marks** (`==>`) in the posting follow one rule: a mark is at the first row whose throughput is at least a certain fraction of the
//! best row's. The fraction for a device is derived from the marks of the other devices.

use super::published::Paper;
use super::verdict::FigureKind;
use super::{ReproduceError, asked, bytes};
use foreread_sim::device::disk::{DiskModel, Form};
use foreread_sim::device::presets::{Model, Preset};

/// The bytes that each run of `dd bs=4k count=102400` reads.
pub const DD_BYTES: f64 = 102_400.0 * 4096.0;
/// A mark is at the first row whose mean of runs has this share of the best row's throughput.
const PLATEAU: f64 = 0.98;
/// The second mark is at a size that the next size does not beat by this factor.
const GAIN: f64 = 1.01;
const PAPER: &str = "wu-2010b";
/// The measurements of this file.
const KINDS: [&str; 7] = [
    "fitted",
    "left_out",
    "mark",
    "model_mark",
    "second_mark",
    "share",
    "least_step",
];

/// The published measurements of a device: for each row, the readahead in bytes that the script sets, and the mean rate
/// of the runs in 10^6 bytes per second.
#[derive(Clone, Debug)]
pub struct Sweep {
    pub device: String,
    pub rows: Vec<(u64, f64)>,
    /// The size at which `==>` points, as printed, in KiB.
    pub mark_kib: f64,
}

/// Returns the sweeps of all devices, taken from the published rows with the expressions `fitted DEVICE SIZE` and `mark DEVICE`.
pub fn all() -> Vec<Sweep> {
    let mut sweeps: Vec<Sweep> = Vec::new();
    let figures = Paper::named(PAPER).map_or_else(Vec::new, |paper| paper.figures());
    for figure in figures {
        let words: Vec<&str> = figure.ours.split_whitespace().collect();
        let Some(value) = figure.value() else {
            continue;
        };
        match words[..] {
            ["fitted", device, size] if figure.kind == FigureKind::Fit => {
                let row = (bytes(size).unwrap_or(0), value);
                match sweeps.iter_mut().find(|sweep| sweep.device == device) {
                    Some(sweep) => sweep.rows.push(row),
                    None => sweeps.push(Sweep {
                        device: device.to_string(),
                        rows: vec![row],
                        mark_kib: 0.0,
                    }),
                }
            }
            ["mark", device] => {
                let sweep = sweeps.iter_mut().find(|sweep| sweep.device == device);
                sweep.into_iter().for_each(|sweep| sweep.mark_kib = value);
            }
            _ => {}
        }
    }
    sweeps
}

/// The value of a measurement in this file. The outer option is `None` if it is another measurement, the inner one if
/// it is undefined.
pub(super) fn value(
    words: &[&str],
    preset: impl Fn(&str) -> Result<&'static Preset, ReproduceError>,
) -> Result<Option<Option<f64>>, ReproduceError> {
    let [what, device, size @ ..] = words else {
        return Ok(None);
    };
    if !KINDS.contains(what) {
        return Ok(None);
    }
    let sweeps = all();
    let Some(at) = sweeps.iter().position(|sweep| sweep.device == *device) else {
        return Ok(None);
    };
    let sweep = &sweeps[at];
    let Model::Disk(disk) = preset(device)?.model else {
        return Err(asked(format!(
            "{device} is not a disk that serves one command at a time"
        )));
    };
    let size = size
        .first()
        .map(|text| bytes(text))
        .transpose()?
        .unwrap_or(0);
    let model = || {
        sweep
            .rows
            .iter()
            .map(move |(size, _)| (*size, fitted(disk, *size)))
    };
    Ok(Some(match *what {
        "fitted" => Some(fitted(disk, size)),
        "left_out" => sweep.left_out_s(disk, size),
        "mark" => part_of_marks(sweeps.iter().filter(|other| other.device != *device))
            .and_then(|part| plateau(&sweep.rows, part)),
        "model_mark" => plateau(&model().collect::<Vec<_>>(), PLATEAU),
        "second_mark" => {
            let flat = sweep.rows.windows(2).find(|w| w[1].1 < GAIN * w[0].1);
            flat.map(|w| printed_kib(w[0].0))
        }
        "share" => {
            let there = sweep
                .rows
                .iter()
                .find(|row| printed_kib(row.0) == size as f64 / 1024.0);
            there.map(|row| row.1 / sweep.best())
        }
        "least_step" => {
            let rows: Vec<f64> = model()
                .filter(|row| printed_kib(row.0) <= sweep.mark_kib)
                .map(|row| row.1)
                .collect();
            rows.windows(2).map(|w| w[1] / w[0]).reduce(f64::min)
        }
        _ => return Ok(None),
    }))
}

fn fitted(disk: DiskModel, size: u64) -> f64 {
    size as f64 / disk.time_ns(size) as f64 * 1e3
}

/// The label that the posting prints for a size in the script: 4 KiB, and for larger sizes half of the size.
fn printed_kib(size: u64) -> f64 {
    let kib = size as f64 / 1024.0;
    if kib > 4.0 { kib / 2.0 } else { kib }
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

    fn best(&self) -> f64 {
        self.rows.iter().map(|row| row.1).fold(0.0, f64::max)
    }
}

/// The first size, as printed, that reaches the share `part` of the best.
fn plateau(rows: &[(u64, f64)], part: f64) -> Option<f64> {
    let best = rows.iter().map(|row| row.1).fold(0.0, f64::max);
    let first = rows.iter().find(|row| row.1 >= part * best);
    first.map(|row| printed_kib(row.0))
}

/// The share of the best at which [`plateau`] finds the marks of all these sweeps: the middle of all such shares.
/// `None` if there is none.
fn part_of_marks<'s>(sweeps: impl Iterator<Item = &'s Sweep>) -> Option<f64> {
    let (mut above, mut upto) = (0.0_f64, 1.0_f64);
    for sweep in sweeps {
        for (size, mb_per_s) in &sweep.rows {
            let part = mb_per_s / sweep.best();
            if printed_kib(*size) < sweep.mark_kib {
                above = above.max(part);
            } else if printed_kib(*size) == sweep.mark_kib {
                upto = upto.min(part);
            }
        }
    }
    (above < upto).then(|| f64::midpoint(above, upto))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The marks of all five devices allow shares of 97.7 to 98.6 %; a sweep with its mark at the second row would
    /// allow none.
    #[test]
    fn the_marks_bound_their_own_rule() {
        let mut sweeps = all();
        assert_eq!(sweeps.len(), 5);
        let part = part_of_marks(sweeps.iter()).expect("a part");
        assert!((0.977..0.986).contains(&part), "{part}");
        sweeps[1].mark_kib = 8.0;
        assert_eq!(part_of_marks(sweeps.iter()), None);
    }
}
