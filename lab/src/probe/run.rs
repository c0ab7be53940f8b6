//! Runs a whole probe: measures, fits a model, and advises.

use super::measure::{LASTS, MeasuredPoints, measure};
use super::{Fit, Pattern, Point, Probe, SCHEMA};
use crate::compare::CompareOn;
use crate::glance::Unmeasured;
use crate::station::{About, Live, OnModel, Station, cached, today};
use crate::verdict::disk::DiskLook;
use crate::verdict::{Confidence, Standing, Verdict, to_set};
use foreread_os::failure::Failure;
use foreread_report::number::{self, size};
use foreread_report::progress::Progress;
use foreread_sim::device::custom::{self, FitFile, ModelFile};
use std::path::Path;

/// If the spread reaches this, the report says that the machine was busy.
const BUSY: f64 = 0.20;
/// Part of the best sequential throughput at which the plateau begins.
const PLATEAU: f64 = 0.98;
/// Fewest rounds for which a spread is given.
const SPREAD_ROUNDS: u32 = 3;
/// Requests in flight at once on a fitted model: half of them, the engine's 16, may be readahead.
const AT_ONCE: u32 = 32;

#[derive(Clone, Debug)]
pub struct ProbeOptions {
    /// The file, device or model to probe.
    pub source: CompareOn,
    /// About how long the probe may take.
    pub seconds: f64,
    /// If set, only this many bytes from the start are read.
    pub size_bytes: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct ProbeOutcome {
    /// The report, for people and for JSON.
    pub probe: Probe,
    /// The fitted model, for `--on model:FILE.toml`.
    pub model: ModelFile,
}

/// Runs a probe.
/// Returns an error if the source cannot be opened or read, is too small, or would answer from the page cache.
pub fn probe(asked: &ProbeOptions, progress: &mut dyn Progress) -> Result<ProbeOutcome, Failure> {
    let most = asked.size_bytes.unwrap_or(u64::MAX);
    let on = &asked.source;
    let mut station: Box<dyn Station> = if let Some(path) = on.path() {
        Box::new(Live::open(path, most)?)
    } else if let Some(preset) = on.preset() {
        Box::new(OnModel::new(preset, most))
    } else {
        return Err(cached(&on.shown()));
    };
    let about = station.about()?;
    progress.stage(&format!("probing {}", about.source));
    let MeasuredPoints {
        mut points,
        seconds,
        left_out,
        lasting_mb_s,
    } = measure(&mut *station, asked.seconds, progress)?;
    let host = station.host_ns_per_kib()?;
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
    let date = (!station.is_virtual()).then(today);
    let noise = noise(&points);
    let too_much = asked
        .size_bytes
        .filter(|asked| *asked > about.capacity_bytes);
    let reduced = too_much.map(|_| {
        let there = number::size_b(about.capacity_bytes);
        format!(
            "{} has only {there}: --size is reduced to that",
            about.source
        )
    });
    let mut notes = Vec::from_iter(reduced);
    notes.extend(notes_of(&points, noise, left_out));
    notes.extend(lasting_mb_s.map(|lasts| {
        format!(
            "The storage delivers {best_mb_s:.0} MB/s in a burst and {lasts:.0} MB/s sustained; the model uses the sustained rate"
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
    let verdict = verdict(on.path(), &about, plateau_bytes);
    let probe = Probe {
        schema: SCHEMA.to_string(),
        foreread: env!("CARGO_PKG_VERSION").to_string(),
        source: about.source,
        source_about: about.how,
        date,
        capacity_bytes: about.capacity_bytes,
        span_bytes: station.span(),
        direct: true,
        readahead_bytes: about.readahead_bytes,
        seconds,
        noise,
        notes,
        host_ns_per_kib: host,
        points,
        fit,
        plateau_bytes,
        verdict,
    };
    Ok(ProbeOutcome { probe, model })
}

/// The error for too few points to fit a model to.
fn too_short(seconds: f64) -> Failure {
    let what = format!(
        "too few combinations of request size and queue depth were measured in {seconds:.1} s"
    );
    Failure::input(
        what,
        "",
        "use a larger --time, while the machine is less busy",
    )
}

/// The smallest sequential request that reaches nearly the full throughput of one read at a time.
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

/// The readahead that the storage should have: for a disk what `doctor` advises, otherwise the plateau.
fn verdict(path: Option<&Path>, about: &About, plateau: Option<u64>) -> Verdict {
    let disk = about.disk.as_ref();
    let look = path.map(|path| DiskLook::of(path, disk));
    let mut verdict = match look {
        Some(Ok(Some(look))) => look.verdict(disk),
        Some(Err(Unmeasured::Busy)) => {
            return Verdict {
                device: about.source.clone(),
                has_bytes: about.readahead_bytes,
                why: "The machine was too busy to measure which readahead is right; try again when it is idle".to_string(),
                confidence: Confidence::Low,
                ..Verdict::default()
            };
        }
        _ => {
            let has = about.readahead_bytes;
            let more = plateau.filter(|more| has.is_some_and(|has| has < *more));
            Verdict {
                device: about.source.clone(),
                has_bytes: has,
                should_bytes: plateau,
                standing: match more {
                    Some(_) => Standing::Gain,
                    None => Standing::Fine,
                },
                why: "a larger readahead gains less than 2 % for one sequential reader".to_string(),
                confidence: Confidence::Measured,
                steps: more.map(|more| to_set(disk, more)).into_iter().collect(),
            }
        }
    };
    let enough = verdict
        .should_bytes
        .map(|should| format!("A readahead of {} is enough", size(should)));
    verdict.why = match (enough, verdict.has_bytes) {
        (None, _) => "No sequential read was measured, so no readahead is advised".to_string(),
        (Some(enough), Some(has)) if verdict.standing != Standing::Fine => {
            format!(
                "{enough}; the current value is {}: {}",
                size(has),
                verdict.why
            )
        }
        (Some(enough), Some(has)) => format!(
            "{enough}, and the current value is {}: nothing to set",
            size(has)
        ),
        (Some(enough), None) => format!("{enough}: {}", verdict.why),
    };
    verdict
}

fn best_mb_s(points: &[Point]) -> f64 {
    let rates = points.iter().map(|point| point.throughput_mb_s.median);
    rates.fold(0.0, f64::max)
}

/// The points, limited to the sustained throughput of the storage. Points at depth 1 that are faster are left out, because their
/// sustained time is not known.
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
            "The machine was busy: repeated measurements of the same reads typically vary by {:.0} % (interquartile range); repeat when the \
             machine is idle, or with a larger --time",
            noise * 100.0
        ));
    }
    if left_out > 0 {
        notes.push(format!(
            "{left_out} combinations of request size and queue depth were left out: measuring each even once would have taken too long"
        ));
    }
    if points.iter().any(|p| p.rounds < SPREAD_ROUNDS) {
        notes.push(
            "The time was too short to measure each combination of request size and queue depth three times; use a larger --time"
                .to_string(),
        );
    }
    notes
}

/// Shortens a text to what a model file may hold.
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
