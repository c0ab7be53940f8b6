//! A probe from its beginning to its end: measure, fit, advise.

use super::measure::{MeasuredPoints, measure};
use super::station::{About, Station, cached};
use super::virt::OnModel;
use super::{Fit, Pattern, Point, Probe, SCHEMA, Spread, live};
use crate::compare::CompareOn;
use crate::setting::{MIN_TURNING_US, Setting, SettingLimits, StorageCosts, to_set};
use foreread_os::failure::Failure;
use foreread_os::host::Host;
use foreread_os::host::devices::Device;
use foreread_report::number::{self, percent, size};
use foreread_report::progress::Progress;
use foreread_sim::device::custom::{self, FitFile, ModelFile};
use foreread_sim::device::presets::Preset;

/// From this spread on the report says that the machine was busy.
const BUSY: f64 = 0.20;
/// A throughput that lasts is taken for less than the fastest point where it is below this part of it.
const LASTS: f64 = 0.8;
/// Part of the best sequential throughput that a plateau has.
const PLATEAU: f64 = 0.98;
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
        seconds,
        left_out,
        lasting_mb_s,
    } = measured;
    let best_mb_s = best_mb_s(&points);
    let lasting_mb_s = lasting_mb_s.filter(|lasting| *lasting < best_mb_s * LASTS);
    let lasting = match lasting_mb_s {
        Some(most) => lasting(&points, most),
        None => points.clone(),
    };
    let fit = Fit::of(&lasting).ok_or_else(|| too_short(seconds))?;
    for point in &mut points {
        point.model_mb_s = fit.mb_per_s(point.request_bytes, point.depth);
        point.error = fit.error(point);
    }
    let date = (!station.is_virtual()).then(live::today);
    let noise = noise(&points);
    let mut notes = about.notes;
    notes.extend(notes_of(&points, noise, left_out));
    notes.extend(lasting_mb_s.map(|lasts| {
        format!(
            "It delivers {best_mb_s:.0} MB/s for a moment and {lasts:.0} MB/s for longer; the model has the latter"
        )
    }));
    let day = date
        .as_ref()
        .map_or_else(String::new, |date| format!(" on {date}"));
    let source = clip(&about.source);
    let model = ModelFile {
        schema: custom::SCHEMA.to_string(),
        summary: clip(&format!("measured: {}", fit.figures)),
        origin: clip(&format!(
            "foreread probe of {} ({}){day}",
            about.source, about.how
        )),
        date: date.clone(),
        calibrated: true,
        fit_error: fit.error_in_words(),
        capacity_bytes: about.capacity_bytes,
        commands_at_once: AT_ONCE,
        host_ns_per_kib: host.median.round().max(0.0) as u64,
        host_origin: "measured: hits of the engine's cache, 128 KiB at a time".to_string(),
        lanes: Some(fit.model()),
        fit: Some(FitFile {
            source,
            worst_error: fit.worst_error,
            median_error: fit.median_error,
        }),
        ..ModelFile::default()
    };
    let plateau_bytes = plateau(&points);
    let (advice, setting) = advise(
        &points,
        plateau_bytes,
        about.disk.as_ref(),
        about.readahead_bytes,
    );
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
        plateau_bytes,
        advice,
        setting,
    };
    Ok(ProbeOutcome { probe, model })
}

/// The smallest sequential request that gets nearly all that one read at a time can.
fn plateau(points: &[Point]) -> Option<u64> {
    let alone = points
        .iter()
        .filter(|p| p.pattern == Pattern::Sequential && p.depth == 1);
    let rate = |point: &&Point| point.throughput_mb_s.median;
    let best = alone
        .clone()
        .map(|point| rate(&point))
        .max_by(f64::total_cmp)?;
    let enough = alone.filter(|point| rate(point) >= best * PLATEAU);
    enough.map(|point| point.request_bytes).min()
}

/// What a read costs by these points; nothing without any.
#[must_use]
pub fn costs(points: &[Point], rotates: bool) -> Option<StorageCosts> {
    let alone = points.iter().filter(|point| point.depth == 1);
    let at_random = |point: &&Point| (point.pattern != Pattern::Random, point.request_bytes);
    let latency_us = alone.min_by_key(at_random)?.latency_us.median;
    Some(StorageCosts {
        latency_us,
        mb_per_s: best_mb_s(points),
        is_measured: true,
        turns: rotates && latency_us >= MIN_TURNING_US,
    })
}

/// The value of a disk is the one that `doctor` has; of anything else the plateau.
fn advise(
    points: &[Point],
    plateau: Option<u64>,
    disk: Option<&Device>,
    now: Option<u64>,
) -> (String, Option<Setting>) {
    let limits = SettingLimits {
        request_bytes: disk.and_then(|device| device.max_request),
        memory_bytes: Host::here().memory_bytes(),
        faults_of_reads: None,
    };
    let rotates = disk.is_some_and(|device| device.rotates == Some(true));
    let costs = costs(points, rotates).filter(|_| disk.is_some());
    let best = costs.map(|costs| costs.best(&limits));
    let Some(wanted) = best.map(|best| best.readahead_bytes).or(plateau) else {
        return (
            "No sequential read was measured, so no readahead is advised".to_string(),
            None,
        );
    };
    let enough = format!("A readahead of {} is enough", size(wanted));
    let Some(now) = now else {
        let more = "a larger one gains less than 2 % for one reader in order";
        return (format!("{enough}: {more}"), None);
    };
    let too_large = costs
        .zip(best)
        .filter(|(costs, best)| costs.is_too_large(now, best));
    match too_large {
        None if now >= wanted => (
            format!("{enough}, and it has {}: nothing to set", size(now)),
            None,
        ),
        None => (
            format!("{enough}; it has {}", size(now)),
            Some(to_set(disk, wanted)),
        ),
        Some((costs, best)) => {
            let slower = percent(costs.at(now).fault_ms / best.fault_ms - 1.0);
            let why = format!(
                "a page fault of a mapping takes {slower} % longer with the {} it has",
                size(now)
            );
            (format!("{enough}; {why}"), Some(to_set(disk, wanted)))
        }
    }
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

fn notes_of(points: &[Point], noise: Option<f64>, left_out: usize) -> Vec<String> {
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
    if points.iter().any(|p| p.rounds < SPREAD_ROUNDS) {
        notes.push(
            "The time was too short for three rounds of each point; use a larger --time"
                .to_string(),
        );
    }
    notes
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
