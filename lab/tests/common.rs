//! Makes a program's trace from items, and comparisons.

use foreread_core::policy::PolicyDraft;
use foreread_lab::compare::{self, ComparePlan};
use foreread_lab::replay::{LoadedTrace, Part, Replay, load};
use foreread_lab::report::{PolicyRuns, Table};
use foreread_report::progress::Silent;
use foreread_trace::{Header, Import, Item, LeftOut, Level};
use std::sync::Arc;

/// Of a program's calls.
pub fn of_program() -> Header {
    Header {
        level: Level::Program,
        ..Header::default()
    }
}

pub fn loaded(name: &str, header: Header, items: Vec<Item>) -> Arc<LoadedTrace> {
    let import = Import {
        header,
        items: Box::new(items.into_iter().map(Ok)),
        left_out: LeftOut::default(),
    };
    Arc::new(load(name, import, &Part::default()).expect("readable"))
}

/// Its replay, in the best mode that it allows.
pub fn replay_of(name: &str, items: Vec<Item>) -> Arc<Replay> {
    let loaded = loaded(name, of_program(), items);
    Arc::new(Replay::of(&loaded, None, None).expect("a mode fits"))
}

pub fn draft(policy: &str) -> PolicyDraft {
    foreread_history::parse(policy).unwrap_or_else(|error| panic!("{policy}: {error}"))
}

/// One run of each policy on a model, with the first seed.
pub fn plan_on(model: &str, policies: &[&str]) -> ComparePlan {
    ComparePlan {
        on: Some(compare::model(model).expect("a model")),
        policies: policies.iter().map(|policy| draft(policy)).collect(),
        runs: Some(1),
        seed: 1,
        ..ComparePlan::default()
    }
}

pub fn table_of(plan: &ComparePlan) -> Table {
    let tables = compare::run(plan, &mut Silent);
    tables
        .unwrap_or_else(|error| panic!("{:?}: {error}", plan.workload))
        .remove(0)
}

pub fn row<'a>(table: &'a Table, policy: &str) -> &'a PolicyRuns {
    let mut rows = table.policies.iter();
    rows.find(|row| row.policy == policy).expect("a row")
}
