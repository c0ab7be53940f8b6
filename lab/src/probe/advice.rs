//! What the points say about readahead, by stated rules. The words to paste are `settings.rs`'s.
//!
//! - The **plateau** is the smallest sequential request, one at a time, whose throughput is at least 98 % of the best such
//!   ([Wu 2010b]'s mark): a readahead of that size gets what there is to get, a larger one nothing.
//! - **90 %** of it is what most of the gain costs least.
//! - The **depth** is the fewest reads at once that get 90 % of the best throughput of all points, at the size where
//!   fewest are needed.
//!
//! Never: a rule that reads the fitted model. What is advised was measured.

use super::{Advice, Pattern, Point, settings};
use crate::setting::{MIN_TURNING_US, SettingLimits, SizeCosts, StorageCosts, fault_in_words};
use foreread_core::policy::capacity::Cap;
use foreread_report::number::size;

/// Part of the best that is the plateau.
const PLATEAU: f64 = 0.98;
/// Part of the best that is most of it.
const NEAR_BEST: f64 = 0.90;
/// A size whose quartiles reach the plateau is on it as well, where the measurement is this noisy or more.
const NOISY: f64 = 0.05;

/// What the settings need to know beside the points.
pub(super) struct Context<'a> {
    pub capacity_bytes: u64,
    pub readahead_bytes: Option<u64>,
    pub noise: Option<f64>,
    pub disk: Option<&'a foreread_os::host::devices::Device>,
    pub is_model: bool,
    /// The source, as `--on` takes it.
    pub source: &'a str,
    /// Memory of the machine.
    pub memory_bytes: u64,
}

impl Context<'_> {
    fn rotates(&self) -> bool {
        self.disk.is_some_and(|device| device.rotates == Some(true))
    }

    fn limits(&self) -> SettingLimits {
        SettingLimits {
            request_bytes: self.disk.and_then(|device| device.max_request),
            memory_bytes: self.memory_bytes,
            faults_of_reads: None,
        }
    }
}

/// What a read costs by these points; nothing without a small read, or without any.
#[must_use]
pub fn costs(points: &[Point], rotates: bool) -> Option<StorageCosts> {
    let alone = points.iter().filter(|point| point.depth == 1);
    let at_random = |point: &&Point| (point.pattern != Pattern::Random, point.request_bytes);
    let small = alone.min_by_key(at_random)?;
    let rates = points.iter().map(|point| point.throughput_mb_s.median);
    let latency_us = small.latency_us.median;
    Some(StorageCosts {
        latency_us,
        mb_per_s: rates.max_by(f64::total_cmp)?,
        is_measured: true,
        turns: rotates && latency_us >= MIN_TURNING_US,
    })
}

/// What the present setting is to faults of mappings, where it is too large for them.
pub(super) struct Excess {
    pub now: SizeCosts,
    pub best: SizeCosts,
}

fn excess(costs: &StorageCosts, context: &Context<'_>) -> Option<Excess> {
    let now = context.readahead_bytes?;
    let best = costs.best(&context.limits());
    costs.is_too_large(now, &best).then(|| Excess {
        now: costs.at(now),
        best,
    })
}

/// The advice for these points.
pub(super) fn advise(points: &[Point], context: &Context<'_>) -> Advice {
    let in_order = |p: &&Point| p.pattern == Pattern::Sequential && p.depth == 1;
    let line: Vec<&Point> = points.iter().filter(in_order).collect();
    let rate = |p: &Point| p.throughput_mb_s.median;
    let best = line.iter().map(|p| rate(p)).max_by(f64::total_cmp);
    let first = |part: f64| {
        let enough = best? * part;
        line.iter()
            .find(|p| rate(p) >= enough)
            .map(|p| p.request_bytes)
    };
    let (plateau, request_90) = (first(PLATEAU), first(NEAR_BEST));
    let best_deep = points.iter().map(rate).max_by(f64::total_cmp);
    let deep = best_deep.and_then(|best| {
        let fit = points.iter().filter(|p| rate(p) >= best * NEAR_BEST);
        fit.min_by_key(|p| (p.depth, p.request_bytes))
            .map(|p| (p.depth, p.request_bytes))
    });
    let mut advice = Advice {
        best_mb_s: best,
        request_90_bytes: request_90,
        plateau_bytes: plateau,
        best_deep_mb_s: best_deep,
        depth_90: deep.map(|(depth, _)| depth),
        depth_90_bytes: deep.map(|(_, bytes)| bytes),
        capacity_cap_bytes: Cap::Later.bytes(context.capacity_bytes),
        findings: Vec::new(),
        settings: Vec::new(),
    };
    advice.findings = findings(&advice, &line, context);
    let costs = costs(points, context.rotates());
    let excess = costs.as_ref().and_then(|costs| excess(costs, context));
    advice.findings.extend(excess.as_ref().map(|excess| {
        format!(
            "{}, and reads in order gain nothing by it",
            fault_in_words(&excess.now, &excess.best)
        )
    }));
    // The value of the disk, as `doctor` has it.
    let of_disk = costs.map(|costs| costs.best(&context.limits()).readahead_bytes);
    let wanted = of_disk.filter(|_| context.disk.is_some()).or(plateau);
    advice.settings = settings::for_paste(&advice, wanted, excess.as_ref(), context);
    advice
}

fn findings(advice: &Advice, line: &[&Point], context: &Context<'_>) -> Vec<String> {
    let mut said = Vec::new();
    let mb = |v: f64| foreread_report::number::three(v);
    if let (Some(best), Some(plateau), Some(most)) = (
        advice.best_mb_s,
        advice.plateau_bytes,
        advice.request_90_bytes,
    ) {
        said.push(format!(
            "A readahead of {} is enough: it gets 98 % of the best throughput ({} MB/s, one sequential read at a time); {} \
             gets 90 %",
            size(plateau),
            mb(best),
            size(most)
        ));
        if line.last().is_some_and(|p| p.request_bytes == plateau) && line.len() > 1 {
            said.push(format!(
                "Throughput still rose at {}, the largest size measured",
                size(plateau)
            ));
        }
        if let Some(finding) = context
            .readahead_bytes
            .and_then(|now| present(now, advice, line))
        {
            said.push(finding);
        }
        if context.noise.is_some_and(|noise| noise > NOISY) {
            said.push(
                "The machine was busy, so the 98 % is not exact: neighbouring sizes may be as good"
                    .to_string(),
            );
        }
    }
    if let (Some(depth), Some(bytes), Some(best)) = (
        advice.depth_90,
        advice.depth_90_bytes,
        advice.best_deep_mb_s,
    ) {
        said.push(match depth {
            1 => {
                format!("One read at a time of {} gets 90 % of the most that the storage gives: several at once gain little", size(bytes))
            }
            _ => format!("{depth} reads of {} at once get 90 % of the most that the storage gives, {} MB/s", size(bytes), mb(best)),
        });
    }
    if let (Some(cap), Some(plateau)) = (advice.capacity_cap_bytes, advice.plateau_bytes) {
        let beside = if cap < plateau {
            "below what was measured: the formula would hold this device back"
        } else {
            "at or above what was measured: the formula costs nothing here"
        };
        said.push(format!(
            "The formula of 2010 caps a device of this capacity at {}, {beside}",
            size(cap)
        ));
    }
    said
}

fn present(now: u64, advice: &Advice, line: &[&Point]) -> Option<String> {
    let at = line.iter().rev().find(|p| p.request_bytes <= now)?;
    let part = at.throughput_mb_s.median / advice.best_mb_s?;
    let gain = if part >= PLATEAU || now >= advice.plateau_bytes? {
        "there is nothing to gain by a larger one".to_string()
    } else {
        format!(
            "up to {:.0} % more with {}",
            (1.0 / part - 1.0) * 100.0,
            size(advice.plateau_bytes?)
        )
    };
    Some(format!("The present readahead, {}: {gain}", size(now)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Spread;

    fn point(pattern: Pattern, bytes: u64, depth: u32, rate: f64) -> Point {
        let spread = Spread {
            median: rate,
            low: rate,
            high: rate,
        };
        Point {
            pattern,
            request_bytes: bytes,
            depth,
            rounds: 9,
            reads: 100,
            throughput_mb_s: spread,
            latency_us: spread,
            latency_p99_us: None,
            model_mb_s: None,
            error: None,
        }
    }

    fn line(rates: &[f64]) -> Vec<Point> {
        rates
            .iter()
            .enumerate()
            .map(|(n, r)| point(Pattern::Sequential, 4096 << n, 1, *r))
            .collect()
    }

    const CONTEXT: Context<'static> = Context {
        capacity_bytes: 32 << 30,
        readahead_bytes: Some(8192),
        noise: Some(0.0),
        disk: None,
        is_model: false,
        source: "file:/srv/big",
        memory_bytes: 16 << 30,
    };

    #[test]
    fn the_marks_are_the_first_sizes_that_reach_their_part() {
        let mut points = line(&[50.0, 89.9, 90.0, 97.9, 98.0, 99.0, 100.0]);
        points.push(point(Pattern::Random, 4096, 8, 1000.0));
        points.push(point(Pattern::Random, 65536, 4, 901.0));
        points.push(point(Pattern::Random, 4096, 4, 899.0));
        let advice = advise(&points, &CONTEXT);
        assert_eq!(
            (advice.request_90_bytes, advice.plateau_bytes),
            (Some(16384), Some(65536))
        );
        assert_eq!(
            (advice.depth_90, advice.depth_90_bytes),
            (Some(4), Some(65536))
        );
        assert_eq!(advice.capacity_cap_bytes, Some(1 << 20));
        let said = advice.findings.join("\n");
        assert!(
            said.contains("The present readahead, 8K: up to 11 % more with 64K"),
            "{said}"
        );
        assert!(!said.contains("still rose"), "{said}");
    }

    #[test]
    fn where_more_gains_nothing_it_says_so() {
        let context = Context {
            readahead_bytes: Some(128 << 10),
            ..CONTEXT
        };
        let advice = advise(&line(&[99.0, 100.0, 99.5]), &context);
        let said = advice.findings.join("\n");
        assert!(
            said.contains("The present readahead, 128K: there is nothing to gain"),
            "{said}"
        );
        assert!(
            said.contains("One read at a time of 4K gets 90 % of the most"),
            "{said}"
        );
        assert!(
            advise(&line(&[1.0, 2.0]), &CONTEXT)
                .findings
                .join("\n")
                .contains("still rose at 8K")
        );
        assert_eq!(advise(&[], &CONTEXT).plateau_bytes, None);
        assert!(advise(&[], &CONTEXT).findings.is_empty());
    }
}
