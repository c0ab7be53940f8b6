//! What the tests of published figures share: a table from a model, and figures out of it.

use foreread_lab::compare::{self, ComparePlan};
use foreread_lab::report::{PolicyRuns, Table};
use foreread_report::progress::Silent;

/// Runs the workload on a model.
pub fn table(
    workload: &str,
    model: &str,
    policies: &[&str],
    runs: u32,
    cache_bytes: Option<u64>,
) -> Table {
    let plan = ComparePlan {
        workload: Some(workload.to_string()),
        on: Some(compare::model(model).expect("a model")),
        policies: policies
            .iter()
            .map(|p| foreread_history::parse(p).expect("a policy"))
            .collect(),
        runs: Some(runs),
        seed: 1,
        cache_bytes,
        ..ComparePlan::default()
    };
    compare::run(&plan, &mut Silent).expect("a table").remove(0)
}

/// The runs of a policy.
pub fn row<'a>(table: &'a Table, policy: &str) -> &'a PolicyRuns {
    table
        .policies
        .iter()
        .find(|p| p.policy == policy)
        .expect("a row")
}

/// Mean over the runs of a policy.
#[allow(dead_code, reason = "not every test file needs it")]
pub fn mean(
    table: &Table,
    policy: &str,
    value: impl Fn(&foreread_sim::simulator::RunResult) -> f64,
) -> f64 {
    let runs = &row(table, policy).runs;
    runs.iter().map(value).sum::<f64>() / runs.len() as f64
}

/// Demanded MiB in a second.
#[allow(dead_code, reason = "not every test file needs it")]
pub fn mib_per_s(table: &Table, policy: &str) -> f64 {
    mean(table, policy, |run| {
        run.stats.demand_bytes as f64 / (1 << 20) as f64 / run.time_s
    })
}
