//! `foreread compare`: hands a checked plan to the lab, prints the tables, the advice and the JSON.
//!
//! Never: prints a result while something is still being measured.

use crate::args::CompareArgs;
use crate::fail::Fail;
use crate::names;
use crate::out::{self, JsonTo, json_to};
use crate::policy_list;
use crate::progress::Bar;
use crate::source::{self, On};
use foreread_core::policy::PolicySpec;
use foreread_core::units::PageSize;
use foreread_lab::report::{Progress, Report, Table, advise, by_source, number, render, table, to_json};
use foreread_lab::workload::{self, Chosen};

/// What was asked for, checked as far as it can be without measuring. `None` is the lab's to choose.
#[derive(Debug)]
struct Asked {
    workload: Option<Chosen>,
    on: Option<On>,
    policies: Vec<PolicySpec>,
    runs: Option<u32>,
    cache_bytes: Option<u64>,
    page: Option<PageSize>,
    seed: u64,
    size_bytes: Option<u64>,
}

/// Measures and prints.
pub fn run(args: &CompareArgs) -> Result<(), Fail> {
    let asked = check(args)?;
    let json = json_to(args.json.as_ref())?;
    let tables = {
        let mut bar = Bar::new();
        measure(&asked, &mut bar)?
    };
    show(&tables, json.as_ref())
}

fn check(args: &CompareArgs) -> Result<Asked, Fail> {
    Ok(Asked {
        workload: args.workload.as_deref().map(workload_of).transpose()?,
        on: args.on.as_deref().map(source::parse).transpose()?,
        policies: policy_list::parse(args.policy.as_deref())?,
        runs: args.runs,
        cache_bytes: args.cache,
        page: args.page,
        seed: args.seed,
        size_bytes: args.size,
    })
}

fn workload_of(text: &str) -> Result<Chosen, Fail> {
    workload::parse(text).map_err(|error| names::refused("workload", &error, "foreread workloads"))
}

/// The one place that calls the lab.
fn measure(asked: &Asked, progress: &mut dyn Progress) -> Result<Vec<Table>, Fail> {
    let Asked { workload, on, policies, runs, cache_bytes, page, seed, size_bytes } = asked;
    let on = match on {
        None => "scratch and models".to_string(),
        Some(On::File(path)) => path.display().to_string(),
        Some(On::Model(preset)) => format!("model:{}", preset.name),
    };
    progress.stage("nothing");
    Err(Fail::Input(format!(
        "not built yet: compare {workload:?} on {on} with {policies:?}, {runs:?} runs, cache {cache_bytes:?}, page \
         {page:?}, seed {seed}, size {size_bytes:?}; wait for the lab"
    )))
}

fn show(tables: &[Table], json: Option<&JsonTo>) -> Result<(), Fail> {
    let reports: Vec<Report> = tables.iter().map(Report::of).collect();
    if json != Some(&JsonTo::Stdout) {
        out::print(in_words(&reports, table::Style { bold: out::may_style() }))?;
    }
    json.map_or(Ok(()), |to| to.write(&to_json(&reports)))
}

/// Every table, then the advice for each source.
fn in_words(reports: &[Report], style: table::Style) -> String {
    let mut text = String::new();
    for report in reports {
        text.push_str(&render(report, style));
        text.push('\n');
    }
    for of_source in by_source(reports) {
        text.push_str(&number::wrap(&format!("Advice: {}", advise(of_source)), table::WIDTH).join("\n"));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreread_core::stats::Stats;
    use foreread_lab::report::{PolicyRuns, RunResult};
    use foreread_lab::stats::latency_histogram;

    fn report(workload: &str, source: &str) -> Report {
        let run = |time_s| RunResult {
            time_s,
            stats: Stats { demand_reads: 1, demand_bytes: 1, source_bytes: 1, ..Stats::default() },
            latency: latency_histogram(),
            distinct_bytes: 1,
            kernel: false,
        };
        let policy = |name: &str, times: [f64; 2]| PolicyRuns { policy: name.to_string(), runs: times.map(run).into() };
        Report::of(&Table {
            workload: workload.to_string(),
            source: source.to_string(),
            runs: 2,
            policies: vec![policy("none", [2.0, 2.0]), policy("rbd-plain", [1.0, 1.0])],
            ..Table::default()
        })
    }

    #[test]
    fn tables_first_then_the_advice_for_each_source() {
        let reports = [report("boot-ide", "file:x"), report("random", "file:x"), report("random", "model:rbd")];
        let text = in_words(&reports, table::Style::default());
        let places: Vec<usize> =
            ["boot-ide on file:x", "random on file:x", "random on model:rbd", "Advice: Use rbd-plain on file:x"]
                .map(|part| text.find(part).unwrap_or_else(|| panic!("{part} is missing:\n{text}")))
                .into();
        assert!(places.is_sorted(), "{places:?}");
        assert_eq!(text.matches("Advice: ").count(), 2);
        assert!(text.ends_with('\n') && !text.contains('\u{1b}'));
        assert!(in_words(&reports, table::Style { bold: true }).contains('\u{1b}'));
    }
}
