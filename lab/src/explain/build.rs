//! From the observations of a run to its report: streams into files, files into one whole, and the check that the
//! parts are the whole.
//!
//! Never: drops a read. Reads that make no stream are gathered, one entry for each open description.

use super::pattern::{Pattern, Tally, at_once};
use super::reason::{Because, Context};
use super::recorded::RecordedReadahead;
use super::share::Share;
use super::streams::{MIN_READS, Shape, StreamSummary};
use super::watcher::{Reasons, Watcher};
use super::{AutoState, ExplainReport, File, SCHEMA, Stream};
use crate::compare::ComparePlan;
use crate::compare::watched::WatchedRun;
use crate::report::RowKind;
use foreread_core::policy::PolicySpec;
use foreread_os::failure::Failure;
use std::collections::BTreeMap;

/// A stream, or what is left of an open description without its streams.
struct Part {
    open: u32,
    shape: &'static str,
    step: Option<i64>,
    from: u64,
    end: u64,
    share: Share,
    reasons: Reasons,
}

/// The whole of it but for the other policies.
pub(super) fn explained(
    plan: &ComparePlan,
    (looked, mut seen): (WatchedRun, Watcher),
) -> Result<ExplainReport, Failure> {
    seen.finish();
    let names = |file: usize| match &plan.replay {
        Some(replay) => replay.loaded.names.get(file).cloned().unwrap_or_default(),
        None => format!("file {file}"),
    };
    let trace = match &plan.replay {
        Some(replay) => replay.workload.name.clone(),
        None => plan.workload.clone().unwrap_or_default(),
    };
    let mut total = Share::default();
    seen.files.iter().for_each(|share| total.add(share));
    if let Some((counter, [ours, machine])) = total.differs_from(&looked.result.stats) {
        // No figure of it is to be trusted.
        let why = format!("the files have {ours} {counter} in all, the machine counted {machine}");
        let place = format!("{} on {trace}", looked.policy);
        return Err(Failure::check("broken explanation", place, "please report it").because(why));
    }
    let mut files = files(&seen, &looked.policy, names);
    files.sort_by_key(|f| {
        std::cmp::Reverse((
            f.share.stall_ns,
            f.share.in_vain_bytes(),
            f.share.demand_bytes,
        ))
    });
    Ok(ExplainReport {
        schema: SCHEMA.to_string(),
        foreread: env!("CARGO_PKG_VERSION").to_string(),
        trace,
        source: looked.source,
        source_about: looked.source_about,
        policy: looked.policy.to_string(),
        cache_bytes: looked.cache_bytes,
        page_bytes: looked.page.bytes(),
        seed: plan.seed,
        mode: plan
            .replay
            .as_ref()
            .map(|replay| replay.mode.json_name().to_string()),
        time_s: looked.result.time_s,
        notes: looked.notes,
        total,
        auto: seen.tuning.map(AutoState::from),
        files,
        recorded: plan
            .replay
            .as_ref()
            .and_then(|replay| RecordedReadahead::of(replay)),
        others: Vec::new(),
        other_runs: 0,
        oracle_beaten: None,
        verdict: String::new(),
        next: None,
    })
}

fn files(seen: &Watcher, policy: &PolicySpec, names: impl Fn(usize) -> String) -> Vec<File> {
    let mut by_file: Vec<Vec<u32>> = vec![Vec::new(); seen.files.len()];
    for stream in 0..seen.streams.len() as u32 {
        by_file[seen.streams.get(seen.streams.whole(stream)).file as usize].push(stream);
    }
    let sizes = seen.sizes();
    by_file
        .into_iter()
        .enumerate()
        .map(|(n, streams)| file(seen, policy, n, names(n), sizes[n], &streams))
        .collect()
}

fn file(
    seen: &Watcher,
    policy: &PolicySpec,
    number: usize,
    name: String,
    size: u64,
    streams: &[u32],
) -> File {
    let (parts, tally) = parts(seen, size, streams);
    let opens: BTreeMap<u32, u64> = {
        let mut order: Vec<(u64, u32)> = Vec::new();
        for stream in streams {
            let open = seen.streams.get(*stream).open;
            if order.iter().all(|(_, o)| *o != open) {
                order.push((order.len() as u64, open));
            }
        }
        order.into_iter().map(|(n, open)| (open, n)).collect()
    };
    let mut in_streams = Share::default();
    let told = |part: Part| {
        let whole = part.from == 0 && part.end >= size && part.share.demand_reads <= 1;
        let context = Context {
            policy: policy.info.name,
            kind: RowKind::of(policy),
            shape: part.shape,
            whole,
        };
        Stream {
            open: opens[&part.open],
            shape: part.shape.to_string(),
            step_bytes: part.step,
            from: part.from,
            end: part.end,
            share: part.share,
            because: Because::of(&part.share, &part.reasons, &context),
        }
    };
    parts.iter().for_each(|part| in_streams.add(&part.share));
    let mut all: Vec<Stream> = parts.into_iter().map(told).collect();
    all.sort_by_key(|s| {
        std::cmp::Reverse((
            s.share.stall_ns,
            s.share.in_vain_bytes(),
            s.share.demand_bytes,
        ))
    });
    let share = seen.files[number];
    File {
        name,
        size_bytes: size,
        opens: opens.len() as u64,
        hints: seen.hints[number],
        faults: seen.faults[number],
        pattern: Pattern::of(&tally),
        share,
        by_hints: share.less_readahead_of(&in_streams),
        streams: all,
    }
}

/// The streams of a file, and its reads by kind.
fn parts(seen: &Watcher, size: u64, streams: &[u32]) -> (Vec<Part>, Tally) {
    let mut shares: BTreeMap<u32, (Share, Reasons)> = BTreeMap::new();
    for stream in streams {
        let (share, reasons) = shares.entry(seen.streams.whole(*stream)).or_default();
        share.add(&seen.of_streams[*stream as usize]);
        reasons.add(&seen.reasons[*stream as usize]);
    }
    let (mut parts, mut tally) = (Vec::new(), Tally::default());
    let mut alone: BTreeMap<u32, Part> = BTreeMap::new();
    let mut beside: BTreeMap<u32, Vec<&StreamSummary>> = BTreeMap::new();
    let mut most_strided = 0;
    for (number, (share, reasons)) in shares {
        let stream = seen.streams.get(number);
        let (shape, step) = shape_of(stream, size);
        match shape {
            "strided" => tally.strided += share.demand_reads,
            "backward" => tally.backward += share.demand_reads,
            "random" => tally.random += share.demand_reads,
            _ => tally.sequential += share.demand_reads,
        }
        if shape == "strided" && share.demand_reads > most_strided {
            (most_strided, tally.step) = (share.demand_reads, step.unwrap_or(0));
        }
        if shape == "sequential" {
            beside.entry(stream.open).or_default().push(stream);
        }
        let part = Part {
            open: stream.open,
            shape,
            step,
            from: stream.from,
            end: stream.end,
            share,
            reasons,
        };
        match alone.get_mut(&stream.open).filter(|_| shape == "random") {
            Some(all) => {
                (all.from, all.end) = (all.from.min(part.from), all.end.max(part.end));
                all.share.add(&part.share);
                all.reasons.add(&part.reasons);
            }
            None if shape == "random" => _ = alone.insert(stream.open, part),
            None => parts.push(part),
        }
    }
    tally.interleaved = beside
        .values()
        .map(|streams| at_once(streams))
        .max()
        .unwrap_or(0);
    parts.extend(alone.into_values());
    (parts, tally)
}

fn shape_of(stream: &StreamSummary, size: u64) -> (&'static str, Option<i64>) {
    if stream.reads < MIN_READS {
        let whole = stream.from == 0 && stream.end >= size && stream.shape != Shape::Backward;
        return (if whole { "whole" } else { "random" }, None);
    }
    match stream.shape {
        Shape::Single => ("random", None),
        Shape::Sequential => ("sequential", None),
        Shape::Backward => ("backward", None),
        Shape::Strided(step) => ("strided", Some(step)),
    }
}
