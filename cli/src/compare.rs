//! `foreread compare`: passes a checked plan to the lab, prints the advice, the tables and the JSON.
//!
//! Each table is printed as soon as it is complete, between two measurements, its advice first. With several tables the
//! advice for all of them follows at the end. Never: prints in a measurement.

use crate::args::CompareArgs;
use crate::compare_error::refused;
use crate::config;
use crate::fail::Fail;
use crate::out::{self, JsonTo, json_to};
use crate::policy_list;
use crate::progress::Bar;
use crate::reads::{self, RequestedReads};
use crate::source;
use crate::vary::{self, Files};
use foreread_lab::compare::{self, CompareOn, ComparePlan};
use foreread_lab::report::{
    MappedRun, Report, Table, advise, by_source, page, render, table, to_json,
};
use foreread_report::{number, width};
use std::sync::Arc;

/// Measures and prints.
pub fn run(args: &CompareArgs) -> Result<(), Fail> {
    let plan = check(args)?;
    let json = json_to(args.json.as_ref())?;
    if let Some(text) = &args.vary {
        let files = Files {
            json,
            svg: args.svg.as_deref(),
            html: args.html.as_deref(),
        };
        return vary::run(text, &plan, &files, args.details);
    }
    let html = args
        .html
        .as_deref()
        .map(|path| out::writable("html", path))
        .transpose()?;
    out::distinct(&[
        ("json", out::file(json.as_ref())),
        ("html", html.as_deref()),
    ])?;
    let style = table::Style {
        bold: out::may_style(),
        details: args.details,
    };
    let mut printed = Ok(());
    // Each table is printed when it is complete: the first one is not kept back for the last.
    let print = |bar: &mut Bar, table: &Table| {
        if json != Some(JsonTo::Stdout) && printed.is_ok() {
            let report = Report::of(table).priced(args.price.as_deref());
            printed = bar.aside(|| out::print(in_words(&report, style)));
        }
    };
    let tables = compare::run_each(&plan, &mut Bar::new(), print).map_err(refused)?;
    printed?;
    let reports: Vec<Report> = tables
        .iter()
        .map(|t| Report::of(t).priced(args.price.as_deref()))
        .collect();
    show(&reports, json.as_ref())?;
    let Some(path) = html else { return Ok(()) };
    let maps: Vec<&[MappedRun]> = tables.iter().map(|t| t.maps.as_slice()).collect();
    out::write("html", &path, &page::compare(&reports, &maps))
}

/// What was asked for, checked as far as it can be without measuring. What is left open is the lab's to choose.
fn check(args: &CompareArgs) -> Result<ComparePlan, Fail> {
    let on = args
        .on
        .as_ref()
        .map(source::parse)
        .transpose()?
        .map(CompareOn::from);
    let (policies, oracle) = policy_list::parse(args.policy.as_deref())?;
    let (workload, replay) = match reads::parse(args.workload.as_deref())? {
        RequestedReads::Usual => (None, None),
        RequestedReads::Workload(name) => (Some(name), None),
        RequestedReads::Trace(path) => (None, Some(Arc::new(reads::replay(&path, args)?))),
    };
    if replay.is_none() {
        reads::no_trace(args)?;
    }
    Ok(ComparePlan {
        workload,
        replay,
        on,
        policies,
        alone: false,
        oracle,
        runs: args.runs,
        cache_bytes: args.cache,
        page: args.page,
        seed: args.seed,
        size_bytes: args.size,
        event_logs: args.event_log.clone(),
        replaces_logs: out::force(),
        appending: args.appending,
        maps: args.html.is_some(),
        site: config::load()?.site(args.policy.is_some()),
    })
}

fn show(reports: &[Report], json: Option<&JsonTo>) -> Result<(), Fail> {
    if json != Some(&JsonTo::Stdout) && reports.len() > 1 {
        out::print(advice(reports))?;
    }
    json.map_or(Ok(()), |to| to.write(&to_json(reports)))
}

/// One table, its advice first.
fn in_words(report: &Report, style: table::Style) -> String {
    let advice = number::wrap(&advise(std::slice::from_ref(report)), width::columns()).join("\n");
    format!("{advice}\n\n{}\n", render(report, style))
}

/// What follows from all tables, for each source.
fn advice(reports: &[Report]) -> String {
    let mut text = String::new();
    for of_source in by_source(reports) {
        text.push_str(
            &number::wrap(&format!("For all: {}", advise(of_source)), width::columns()).join("\n"),
        );
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreread_core::stats::Stats;
    use foreread_lab::report::{PolicyRuns, RowKind};
    use foreread_sim::simulator::RunResult;
    use foreread_sim::stats::latency_histogram;

    fn report(workload: &str, source: &str) -> Report {
        let run = |time_s| RunResult {
            time_s,
            stats: Stats::of(|stats| {
                stats.demand_reads = 1;
                stats.demand_bytes = 1;
                stats.source_bytes = 1;
            }),
            latency: latency_histogram(),
            distinct_bytes: 1,
            kernel: false,
            late_p99_ns: None,
        };
        let policy = |name: &str, kind, times: [f64; 2]| PolicyRuns {
            policy: name.to_string(),
            kind,
            runs: times.map(run).into(),
        };
        Report::of(&Table {
            workload: workload.to_string(),
            source: source.to_string(),
            runs: 2,
            policies: vec![
                policy("none", RowKind::NoReadahead, [2.0, 2.0]),
                policy("rbd-plain", RowKind::Policy, [1.0, 1.0]),
            ],
            ..Table::default()
        })
    }

    #[test]
    fn each_table_has_its_advice_first_and_the_advice_for_each_source_is_last() {
        let reports = [
            report("boot-ide", "file:x"),
            report("random", "file:x"),
            report("random", "model:rbd"),
        ];
        let tables: String = reports
            .iter()
            .map(|report| in_words(report, table::Style::default()))
            .collect();
        let text = tables + &advice(&reports);
        let places: Vec<usize> = [
            "Use rbd-plain on file:x: it makes boot-ide",
            "boot-ide on file:x: 2 runs",
            "random on file:x: 2 runs",
            "random on model:rbd: 2 runs",
            "For all: Use rbd-plain on file:x",
        ]
        .map(|part| {
            text.find(part)
                .unwrap_or_else(|| panic!("{part} is missing:\n{text}"))
        })
        .into();
        assert!(places.is_sorted(), "{places:?}");
        assert_eq!(text.matches("For all: ").count(), 2);
        assert!(text.ends_with('\n') && !text.contains('\u{1b}'));
        assert!(
            in_words(
                &reports[0],
                table::Style {
                    bold: true,
                    ..table::Style::default()
                }
            )
            .contains('\u{1b}')
        );
    }
}
