//! A probe from its beginning to its end: measure, fit, ask the model, advise.
//!
//! Never: prints, or writes a file.

use super::measure::{MeasuredPoints, ROUNDS, Station, measure};
use super::virt::OnModel;
use super::{Fit, Point, Probe, SCHEMA, Spread, advice, fit, live};
use crate::compare::CompareOn;
use foreread_os::failure::Failure;
use foreread_os::host::Host;
use foreread_os::host::devices::Device;
use foreread_report::{number, progress::Progress};
use foreread_sim::device::custom::{self, FitFile, ModelFile, PointFile};
use foreread_sim::device::presets::Preset;

/// From this spread on the report says that the machine was busy.
const BUSY: f64 = 0.20;
/// A throughput that lasts is taken for less than the fastest point where it is below this part of it.
const LASTS: f64 = 0.8;
/// Rounds that a spread needs.
const SPREAD_ROUNDS: u32 = 3;
/// Commands at once that the owner of a fitted model has: half of them, the engine's 16, may be readahead.
const AT_ONCE: u32 = 32;

#[derive(Clone, Debug)]
pub struct ProbeOptions {
    /// Where.
    pub source: CompareOn,
    /// How long it may take, about.
    pub seconds: f64,
    /// Only this many bytes from the start on.
    pub size_bytes: Option<u64>,
    /// Reads may go through the page cache where direct I/O is refused.
    pub buffered: bool,
}

#[derive(Clone, Debug)]
pub struct ProbeOutcome {
    /// For people and for JSON.
    pub probe: Probe,
    /// For `--on model:FILE.toml`.
    pub model: ModelFile,
}

/// Probes.
///
/// # Errors
/// The source cannot be opened or read, is too small, or would answer from the page cache.
pub fn probe(asked: &ProbeOptions, progress: &mut dyn Progress) -> Result<ProbeOutcome, Failure> {
    let most = asked.size_bytes.unwrap_or(u64::MAX);
    let on = &asked.source;
    let mut station: Box<dyn Station> = if let Some(path) = on.path() {
        Box::new(live::Live::open(path, most)?)
    } else if let Some(preset) = on.preset().filter(|_| on.is_simulated()) {
        Box::new(OnModel::new(preset, most))
    } else {
        return Err(cached(&on.shown()));
    };
    let mut about = station.about(asked.buffered)?;
    if let Some(asked) = asked
        .size_bytes
        .filter(|asked| *asked > about.capacity_bytes)
    {
        let [asked, there] = [asked, about.capacity_bytes].map(number::size_b);
        about.notes.push(format!(
            "{} holds {there}: --size {asked} is cut to that",
            about.source
        ));
    }
    progress.stage(&format!("probing {}", about.source));
    let measured = measure(&mut *station, asked.seconds, progress)?;
    let host = station.host_ns_per_kib()?;
    found(&*station, about, measured, host)
}

/// What is known before anything is measured.
pub(super) struct About {
    pub source: String,
    pub how: String,
    pub capacity_bytes: u64,
    pub direct: bool,
    pub readahead_bytes: Option<u64>,
    pub disk: Option<Device>,
    pub notes: Vec<String>,
}

/// The page cache would be measured.
pub(super) fn cached(place: &str) -> Failure {
    let why =
        "direct I/O (O_DIRECT) is refused here, so the page cache would answer and not the storage";
    let remedy = "probe the block device, or a file on another file system, or add --buffered to measure reads through \
                  the cache";
    Failure::input(place, why, remedy)
}

/// No model fits so few points.
fn too_short(seconds: f64) -> Failure {
    let what = format!("too few points were measured in {seconds:.1} s");
    Failure::input(
        what,
        "",
        "use a larger --time, while the machine is less busy",
    )
}

fn found(
    station: &dyn Station,
    about: About,
    measured: MeasuredPoints,
    host: Spread,
) -> Result<ProbeOutcome, Failure> {
    let MeasuredPoints {
        mut points,
        in_parts,
        seconds,
        left_out,
        lasting_mb_s,
    } = measured;
    let is_model = station.is_virtual();
    let lasting_mb_s = lasting_mb_s.filter(|lasting| *lasting < best_mb_s(&points) * LASTS);
    let mut lasting = match lasting_mb_s {
        Some(most) => lasting(&points, most),
        None => points.clone(),
    };
    let (shape, mut fit) = fit::fit(&lasting, in_parts).ok_or_else(|| too_short(seconds))?;
    let date = (!is_model).then(live::today);
    let noise = noise(&points);
    let budget = lasting_mb_s.map(|lasts| {
        format!(
            "It delivers {:.0} MB/s for a moment and {lasts:.0} MB/s for longer; the model has the latter",
            best_mb_s(&points)
        )
    });
    let notes = [
        about.notes,
        notes(&points, noise, left_out),
        budget.into_iter().collect(),
    ]
    .concat();
    let origin = match &date {
        Some(date) => format!(
            "foreread probe of {} ({}) on {date}",
            about.source, about.how
        ),
        None => format!("foreread probe of {} in virtual time", about.source),
    };
    let blank = ModelFile {
        schema: custom::SCHEMA.to_string(),
        summary: clip(&format!("measured: {}", fit.figures)),
        origin: clip(&origin),
        date: date.clone(),
        calibrated: true,
        capacity_bytes: about.capacity_bytes,
        commands_at_once: AT_ONCE,
        host_ns_per_kib: host.median.round().max(0.0) as u64,
        host_origin: "measured: hits of the engine's cache, 128 KiB at a time".to_string(),
        ..ModelFile::default()
    };
    let mut model = fit::model_file(&shape, blank);
    fit::predict(model.preset("probe"), station.span(), &mut points);
    fit::predict(model.preset("probe"), station.span(), &mut lasting);
    judge(&mut fit, &lasting);
    complete(&mut model, &fit, &about.source, &points);
    let context = advice::Context {
        capacity_bytes: about.capacity_bytes,
        readahead_bytes: about.readahead_bytes,
        noise,
        disk: about.disk.as_ref(),
        is_model,
        source: &about.source,
        memory_bytes: Host::here().memory_bytes(),
    };
    let advice = advice::advise(&points, &context);
    let probe = Probe {
        schema: SCHEMA.to_string(),
        foreread: env!("CARGO_PKG_VERSION").to_string(),
        source: about.source,
        source_about: about.how,
        date,
        capacity_bytes: about.capacity_bytes,
        span_bytes: station.span(),
        direct: about.direct,
        readahead_bytes: about.readahead_bytes,
        seconds,
        noise,
        notes,
        host_ns_per_kib: host,
        points,
        fit,
        advice,
    };
    Ok(ProbeOutcome { probe, model })
}

fn best_mb_s(points: &[Point]) -> f64 {
    let rates = points.iter().map(|point| point.throughput_mb_s.median);
    rates.fold(0.0, f64::max)
}

/// What the points are where a storage delivers no more than this for longer. One at a time a read is as long as it is: points above are left
/// out, as the rest of their time is not known.
fn lasting(points: &[Point], most_mb_s: f64) -> Vec<Point> {
    let mut lasting = points.to_vec();
    lasting.retain(|point| point.depth > 1 || point.throughput_mb_s.median <= most_mb_s);
    for point in &mut lasting {
        let spread = &mut point.throughput_mb_s;
        for rate in [&mut spread.median, &mut spread.low, &mut spread.high] {
            *rate = rate.min(most_mb_s);
        }
    }
    lasting
}

fn notes(points: &[Point], noise: Option<f64>, left_out: usize) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(noise) = noise.filter(|n| *n > BUSY) {
        notes.push(format!(
            "The machine was busy: half of the rounds of a typical point differ by {:.0} %; repeat when it is idle, or \
             with a larger --time",
            noise * 100.0
        ));
    }
    if left_out > 0 {
        notes.push(format!(
            "{left_out} points were left out: a single slice of each would have taken too long"
        ));
    }
    if points.iter().any(|p| p.rounds < SPREAD_ROUNDS.min(ROUNDS)) {
        notes.push(
            "The time was too short for three rounds of each point; use a larger --time"
                .to_string(),
        );
    }
    notes
}

/// The errors of the device itself, in place of its formula's.
fn judge(fit: &mut Fit, points: &[Point]) {
    let mut errors: Vec<f64> = points
        .iter()
        .filter_map(|p| p.error)
        .map(f64::abs)
        .collect();
    errors.sort_by(f64::total_cmp);
    if let (Some(worst), Some(median)) = (errors.last(), errors.get(errors.len() / 2)) {
        (fit.worst_error, fit.median_error) = (*worst, *median);
    }
}

/// What is known only when the model has been asked.
fn complete(model: &mut ModelFile, fit: &Fit, source: &str, points: &[Point]) {
    let Fit {
        holds,
        worst_error,
        median_error,
        ..
    } = *fit;
    let word = if holds { "" } else { "does not hold: " };
    model.fit_error = format!(
        "{word}throughput of {} points at most {:.1} % off the measured median, {:.1} % in the median",
        points.len(),
        worst_error * 100.0,
        median_error * 100.0
    );
    model.fit = Some(FitFile {
        source: clip(source),
        holds,
        worst_error,
        median_error,
    });
    let round = |v: f64| (v * 1000.0).round() / 1000.0;
    let point = |p: &Point| PointFile {
        pattern: p.pattern,
        request_bytes: p.request_bytes,
        depth: p.depth,
        mb_per_s: [
            p.throughput_mb_s.median,
            p.throughput_mb_s.low,
            p.throughput_mb_s.high,
        ]
        .map(round),
        latency_us: round(p.latency_us.median),
        error: p.error.map(round),
    };
    model.points = points.iter().map(point).collect();
}

/// A text that a model file may hold.
fn clip(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(400).collect()
}

fn noise(points: &[Point]) -> Option<f64> {
    let enough = points.iter().filter(|p| p.rounds >= SPREAD_ROUNDS);
    let mut spreads: Vec<f64> = enough
        .filter_map(|p| p.throughput_mb_s.relative())
        .collect();
    spreads.sort_by(f64::total_cmp);
    spreads.get(spreads.len() / 2).copied()
}

/// A preset as the text of a model file.
#[must_use]
pub fn model_toml(preset: &Preset) -> String {
    ModelFile::of_preset(preset).to_toml()
}
