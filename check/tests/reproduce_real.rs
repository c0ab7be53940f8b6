//! `reproduce --real` in a form of a few seconds: every experiment runs, and nothing is left of it.
//!
//! Never: a figure of this machine that is judged.

use foreread_check::reproduce::real::{Extent, RealError, run};
use foreread_check::reproduce::{Role, published::wu_2010b::SWEEPS};
use foreread_report::progress::Silent;
use std::collections::BTreeMap;
use std::path::Path;

/// What each loop device has attached, and how far it is read ahead.
fn devices() -> BTreeMap<String, (String, String)> {
    let said = |path: &Path| {
        std::fs::read_to_string(path)
            .unwrap_or_default()
            .trim()
            .to_string()
    };
    let all = std::fs::read_dir("/sys/block")
        .into_iter()
        .flatten()
        .flatten();
    let loops = all.filter(|entry| entry.file_name().to_string_lossy().starts_with("loop"));
    loops
        .map(|entry| {
            let path = entry.path();
            let state = (
                said(&path.join("loop/backing_file")),
                said(&path.join("queue/read_ahead_kb")),
            );
            (entry.file_name().to_string_lossy().into_owned(), state)
        })
        .collect()
}

#[test]
fn every_experiment_runs_and_leaves_nothing() {
    let before = devices();
    let done = match run(
        &[],
        &Extent {
            bytes: 8 << 20,
            seconds: 1,
        },
        &mut Silent,
    ) {
        Ok(done) => done,
        Err(RealError::Needs(why)) => {
            println!("skipped: needs {why}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let seeds: Vec<&str> = done.tables.iter().map(|t| t.seed.as_str()).collect();
    assert_eq!(seeds, ["001", "002", "003"]);
    assert_eq!(done.tables[0].rows.len(), SWEEPS[0].runs.len());
    for row in done.rows() {
        assert!(
            row.role == Role::Shown && row.error.is_none() && row.reason.is_some(),
            "{row:?}"
        );
        assert!(
            row.ours.is_some_and(|rate| rate > 0.0) || row.label == "broken",
            "{row:?}"
        );
    }
    for (name, state) in devices() {
        // Devices may come into being by being looked for; one of another program is not checked.
        let known = before.get(&name);
        assert!(
            !state.0.contains("(deleted)") || known.is_some_and(|b| b.0 == state.0),
            "{name} has {}",
            state.0
        );
        let ours = SWEEPS[0]
            .runs
            .iter()
            .any(|run| run.script_kib.to_string() == state.1);
        assert!(
            !ours || known.is_none_or(|b| b.1 == state.1),
            "{name}: {known:?}, now {state:?}"
        );
    }
}
