//! `reproduce` on every seed in a short form: the roles and how many there are, the schema of the JSON, and that a
//! wrong constant in a model makes a check fail.
//!
//! Never: a published figure; these stand in the library's `reproduce::published`.

use foreread_lab::device::disk::{DiskModel, Slope};
use foreread_lab::device::presets::{self, Model, Preset};
use foreread_lab::report::Silent;
use foreread_lab::reproduce::{Options, Reproduction, Role, SCHEMA, run, text};

fn reproduced(seed: &str, instead: Vec<&'static Preset>) -> Reproduction {
    let options = Options { seeds: vec![seed.to_string()], most_runs: Some(2), instead };
    run(&options, &mut Silent).expect("the tables")
}

/// Checks, fits, inputs and shown rows of a seed; all checks are met, and the text fits.
#[track_caller]
fn assert_roles(seed: &str, expected: [usize; 4]) -> Reproduction {
    let done = reproduced(seed, Vec::new());
    let missed: Vec<String> = done.missed().map(|(t, r)| format!("{}: {} {}", t.table, r.label, r.column)).collect();
    assert!(missed.is_empty(), "{missed:?}");
    let counts = [Role::Check, Role::Fit, Role::Input, Role::Shown].map(|role| done.count(role));
    assert_eq!(counts, expected, "{seed}: checks, fits, inputs, shown");
    assert!(done.tables.iter().all(|t| t.seed == seed && !t.rows.is_empty()));
    let shown = |r: &&foreread_lab::reproduce::Row| r.role == Role::Shown;
    assert!(done.rows().filter(shown).all(|r| r.reason.is_some()), "a row without a target says why");
    for line in text::render(&done).lines() {
        assert!(line.chars().count() <= text::WIDTH, "{} columns: {line}", line.chars().count());
    }
    done
}

#[test]
fn seed_000() {
    let done = assert_roles("000", [77, 31, 11, 43]);
    // What was fitted is not checked: the hit ratios are shown, their order is checked on other populations.
    let fitted_and_checked =
        done.tables.iter().any(|t| t.rows.iter().any(|r| r.role == Role::Check && r.column.ends_with("fitted")));
    assert!(!fitted_and_checked);
}

#[test]
fn seed_001() {
    let done = assert_roles("001", [113, 99, 4, 18]);
    let marks = done.tables.iter().find(|t| t.table.starts_with("marks")).expect("its table");
    assert_eq!(marks.rows.iter().filter(|r| r.role == Role::Check).count(), 5);
    // The exceptions are named: one row in each column of labels cannot be told from the others, and one is out.
    let exceptions = done.rows().filter(|r| r.reason.as_deref().is_some_and(|why| why.starts_with("exception")));
    assert_eq!(exceptions.count(), 6);
}

#[test]
fn seed_002() {
    assert_roles("002", [9, 1, 0, 18]);
}

#[test]
fn seed_003() {
    assert_roles("003", [3, 3, 0, 9]);
}

/// Two fitted times never make a checked order.
#[test]
fn seed_004() {
    let done = assert_roles("004", [19, 7, 8, 30]);
    let fitted: Vec<(&str, &str)> = done
        .tables
        .iter()
        .flat_map(|t| t.rows.iter().filter(|r| r.role == Role::Fit).map(|r| (t.table.as_str(), r.label.as_str())))
        .collect();
    for row in done.rows().filter(|r| r.column == "of times") {
        let (workload, pair) = row.label.split_once(": ").expect("workload: slower / faster");
        let of_pair = pair.split(" / ").filter(|strategy| fitted.contains(&(workload, strategy))).count();
        assert!(of_pair < 2, "{} is between two fitted times", row.label);
    }
}

#[test]
fn the_json_has_the_promised_shape() {
    let done = reproduced("001", Vec::new());
    let json: serde_json::Value = serde_json::from_str(&done.to_json()).expect("JSON");
    assert_eq!(json["schema"], SCHEMA);
    let mut rows = 0;
    for table in json["tables"].as_array().expect("tables") {
        assert!(table["seed"] == "001" && table["table"].is_string());
        for row in table["rows"].as_array().expect("rows") {
            let keys: Vec<&str> = row.as_object().expect("an object").keys().map(String::as_str).collect();
            let mut promised = ["label", "column", "published", "ours", "error", "role", "ok", "reason"];
            promised.sort_unstable();
            assert_eq!(keys, promised);
            assert!(row["ok"].is_boolean() && row["label"].is_string() && row["column"].is_string());
            for key in ["published", "ours", "error"] {
                assert!(row[key].is_number() || row[key].is_null(), "{key}: {row}");
            }
            assert!(["input", "fit", "check", "shown"].contains(&row["role"].as_str().expect("a role")));
            rows += 1;
        }
    }
    assert_eq!(rows, done.rows().count());
    let back: Reproduction = serde_json::from_str(&done.to_json()).expect("reads what it wrote");
    assert_eq!((back.count(Role::Check), back.tables.len()), (done.count(Role::Check), done.tables.len()));
}

/// A disk of 9 ms instead of 8 in the theory of seed 000: its digits are not the printed ones.
#[test]
fn a_wrong_constant_fails_a_check() {
    static SLOPES: [Slope; 1] = [Slope { from_bytes: 0, ps_per_kib: 9_765_625 }];
    static SLOW: std::sync::OnceLock<Preset> = std::sync::OnceLock::new();
    let slow = SLOW.get_or_init(|| {
        let disk = DiskModel { command_ns: 9_000_000, max_transfer_bytes: u64::MAX, slopes: &SLOPES };
        Preset { model: Model::Disk(disk), ..*presets::find("hdd-theory").expect("a preset") }
    });
    let done = reproduced("000", vec![slow]);
    let missed: Vec<&str> = done.missed().map(|(t, _)| t.table.as_str()).collect();
    assert!(missed.len() >= 44 && missed[0].starts_with("theory"), "{missed:?}");
    assert!(text::missed_line(&done, missed.len()).contains("checks not met"));
}

#[test]
fn a_seed_that_is_not_there_is_refused() {
    let options = Options { seeds: vec!["005".to_string()], ..Options::default() };
    let error = run(&options, &mut Silent).expect_err("no such seed").to_string();
    assert_eq!(error, "no such seed: 005; take one of 000, 001, 002, 003, 004");
}
