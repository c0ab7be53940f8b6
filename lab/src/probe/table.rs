//! A probe for the terminal, at most 80 columns wide.
//!
//! ```text
//!   one at a time       in order, MB/s            at random, MB/s
//!                       median  quartiles  model  median  quartiles  model
//! ```
//!
//! Never: asks whether there is a terminal.

use super::{Pattern, Point, Probe, Setting};
use foreread_report::block::{self, Block, Table};
use foreread_report::number::{or_dash, size, three};
use foreread_report::width;

/// Widest line, in characters.
const MAX_WIDTH: usize = 80;

/// The probe as text; ends with a newline.
#[must_use]
pub fn render(probe: &Probe) -> String {
    let mut blocks = vec![Block::Screen(title(probe)), Block::Gap];
    let findings = probe.advice.findings.iter();
    blocks.extend(findings.map(|finding| Block::Screen(format!("- {finding}."))));
    blocks.extend(pastes(probe));
    let one = "One read at a time, MB/s (quartiles) and the model's error:";
    blocks.extend([Block::Gap, Block::line(one)]);
    blocks.push(shallow(probe));
    if probe.points.iter().any(|p| p.depth > 1) {
        let several = "Several at once, MB/s and the model's error:";
        blocks.extend([Block::Gap, Block::line(several)]);
        blocks.push(deep(probe));
    }
    blocks.push(Block::Gap);
    blocks.extend(model(probe));
    blocks.extend(probe.notes.iter().cloned().map(Block::Note));
    block::text(blocks, width::columns().min(MAX_WIDTH), false)
}

/// What to set, to be pasted as it is.
pub(super) fn pastes(probe: &Probe) -> impl Iterator<Item = Block> {
    let paste = |s: &Setting| Block::Paste {
        place: s.place.clone(),
        text: s.text.clone(),
        why: s.why.clone(),
    };
    probe.advice.settings.iter().map(paste)
}

fn title(probe: &Probe) -> String {
    let day = probe
        .date
        .as_ref()
        .map_or_else(String::new, |d| format!(", {d}"));
    let span = if probe.span_bytes < probe.capacity_bytes {
        format!(", the first {}", size(probe.span_bytes))
    } else {
        String::new()
    };
    let noise = or_dash(probe.noise, |n| format!("{:.0} %", n * 100.0));
    format!(
        "{} ({}{span}{day}): {} points in {} s, typical spread {noise}",
        probe.source,
        probe.source_about,
        probe.points.len(),
        three(probe.seconds)
    )
}

fn error(point: Option<&&Point>) -> String {
    or_dash(point.and_then(|p| p.error), |e| {
        format!("{:+.0}%", e * 100.0)
    })
}

fn shallow(probe: &Probe) -> Block {
    let head = [
        "size",
        "in order",
        "",
        "model",
        "at random",
        "",
        "model",
        "p50 us",
        "p99",
    ];
    let mut rows = vec![head.map(str::to_string).to_vec()];
    let one: Vec<&Point> = probe.points.iter().filter(|p| p.depth == 1).collect();
    let mut sizes: Vec<u64> = one.iter().map(|p| p.request_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    for bytes in sizes {
        let of = |pattern| {
            one.iter()
                .find(|p| p.request_bytes == bytes && p.pattern == pattern)
        };
        let mut row = vec![size(bytes)];
        for pattern in [Pattern::Sequential, Pattern::Random] {
            let point = of(pattern);
            row.push(or_dash(point, |p| three(p.throughput_mb_s.median)));
            row.push(or_dash(point, |p| {
                format!(
                    "{}-{}",
                    three(p.throughput_mb_s.low),
                    three(p.throughput_mb_s.high)
                )
            }));
            row.push(error(point));
        }
        let random = of(Pattern::Random);
        row.push(or_dash(random, |p| three(p.latency_us.median)));
        row.push(or_dash(random.and_then(|p| p.latency_p99_us), three));
        rows.push(row);
    }
    Block::Table(Table::of_cells(rows).wide())
}

fn deep(probe: &Probe) -> Block {
    let mut columns: Vec<(Pattern, u64)> = probe
        .points
        .iter()
        .filter(|p| p.depth > 1)
        .map(|p| (p.pattern, p.request_bytes))
        .collect();
    columns.sort_unstable_by_key(|c| (c.0 != Pattern::Random, c.1));
    columns.dedup();
    let mut depths: Vec<u32> = probe.points.iter().map(|p| p.depth).collect();
    depths.sort_unstable();
    depths.dedup();
    let word = |c: &(Pattern, u64)| {
        format!(
            "{}{}",
            size(c.1),
            if c.0 == Pattern::Random {
                ""
            } else {
                " in order"
            }
        )
    };
    let head = columns.iter().flat_map(|c| [word(c), String::new()]);
    let mut rows = vec![
        std::iter::once("depth".to_string())
            .chain(head)
            .collect::<Vec<_>>(),
    ];
    for depth in depths {
        let mut row = vec![depth.to_string()];
        for (pattern, bytes) in &columns {
            let same =
                |p: &&Point| p.depth == depth && p.pattern == *pattern && p.request_bytes == *bytes;
            let point = probe.points.iter().find(same);
            row.push(or_dash(point, |p| three(p.throughput_mb_s.median)));
            row.push(error(point.as_ref()));
        }
        rows.push(row);
    }
    Block::Table(Table::of_cells(rows).wide())
}

/// The model, how far it is off, and what one that misses too many points is worth.
pub(super) fn model(probe: &Probe) -> Vec<Block> {
    let fit = &probe.fit;
    let holds = if fit.holds { "" } else { " (low confidence)" };
    let percent = |part: f64| format!("{:.1} %", part * 100.0);
    let mut text = vec![
        format!("Model{holds}: {}: {}.", fit.kind, fit.figures),
        format!(
            "Model error: {} in the median, {} at worst; {}. A cache hit costs the host {} ns for each KiB.",
            percent(fit.median_error),
            percent(fit.worst_error),
            fit.reason,
            three(probe.host_ns_per_kib.median)
        ),
    ];
    if !fit.holds {
        text.push(format!(
            "Low confidence: the storage behaved irregularly (typical error {:.0} %). Repeat when it is idle.",
            fit.median_error * 100.0
        ));
    }
    text.into_iter().map(Block::Text).collect()
}
