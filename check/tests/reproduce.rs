//! `reproduce` on every paper in a short form: the kinds of rows and how many there are, the schema of the JSON, that each
//! published run counts once, and that a wrong constant in a model makes a check fail.
//!
//! Never: a published figure; these are in the library's `reproduce::published`.

mod posts;

use foreread_check::reproduce::published::wu_2010b::SWEEPS;
use foreread_check::reproduce::{
    FigureKind, Options, Paper, Reproduction, Role, SCHEMA, run, text,
};
use foreread_report::progress::Silent;
use foreread_sim::device::disk::{DiskModel, Slope};
use foreread_sim::device::presets::{self, Model, Preset};
use std::collections::HashSet;

fn reproduced(paper: Paper, instead: Vec<&'static Preset>) -> Reproduction {
    let options = Options {
        papers: vec![paper],
        most_runs: Some(2),
        instead,
    };
    run(&options, &mut Silent).expect("the tables")
}

/// Rows of each kind of a paper, in the order of [`FigureKind::ALL`]; all checks are met but for this many misses on record; the
/// text fits.
#[track_caller]
fn assert_kinds(paper: Paper, expected: [usize; 7], known: usize) -> Reproduction {
    let done = reproduced(paper, Vec::new());
    let new: Vec<String> = done
        .new_misses()
        .map(|(_, r)| format!("{} {:?} {:?}", r.id, r.published, r.ours))
        .collect();
    assert!(new.is_empty(), "{new:#?}");
    let counts = FigureKind::ALL.map(|kind| done.count_kind(kind));
    assert_eq!(counts, expected, "{paper:?}: {:?}", FigureKind::ALL);
    let missed: Vec<&str> = done.missed().map(|(_, r)| r.id.as_str()).collect();
    assert_eq!(missed.len(), known, "{missed:#?}");
    assert!(
        done.tables
            .iter()
            .all(|t| t.seed == paper.number() && !t.rows.is_empty())
    );
    let ids: HashSet<&str> = done.rows().map(|r| r.id.as_str()).collect();
    assert_eq!(ids.len(), done.rows().count(), "ids are unlike each other");
    for row in done.rows() {
        assert!(
            row.kind != FigureKind::Shown || row.reason.is_some(),
            "{}: a row without a verdict says why",
            row.id
        );
        assert!(
            !row.known_miss || row.reason.is_some(),
            "{}: a miss on record says why",
            row.id
        );
        assert_eq!(row.role, row.kind.role());
    }
    posts::assert_page(paper.number(), &done);
    for line in text::render(&done).lines() {
        assert!(
            line.chars().count() <= text::WIDTH,
            "{} columns: {line}",
            line.chars().count()
        );
    }
    done
}

#[test]
fn wu_2010a() {
    let done = assert_kinds(Paper::Wu2010a, [0, 0, 45, 44, 35, 15, 87], 1);
    // What was fitted is not checked: the hit ratios are fits, their order is checked on other populations.
    let fitted_and_checked = done
        .rows()
        .any(|r| r.kind.is_check() && r.column.ends_with("fitted"));
    assert!(!fitted_and_checked);
}

#[test]
fn wu_2010b() {
    let done = assert_kinds(Paper::Wu2010b, [0, 135, 142, 3, 52, 5, 186], 2);
    let marks = done
        .tables
        .iter()
        .find(|t| t.table.starts_with("marks"))
        .expect("its table");
    assert_eq!(
        marks
            .rows
            .iter()
            .filter(|r| r.kind == FigureKind::LeftOut)
            .count(),
        5
    );
    // Each run once: its seconds are predicted, its printed rate follows; means and other labels have no verdict.
    let runs: usize = SWEEPS
        .iter()
        .flat_map(|s| s.runs)
        .map(|run| run.seconds.len())
        .sum();
    let of = |kind, column: &str| {
        done.rows()
            .filter(|r| r.kind == kind && r.column == column)
            .count()
    };
    assert_eq!(
        (
            of(FigureKind::LeftOut, "s, left out"),
            of(FigureKind::Formula, "MB/s, printed")
        ),
        (runs, runs)
    );
    assert!(
        done.rows()
            .all(|r| r.column != "MB/s, left out" || r.kind == FigureKind::Shown)
    );
    let fits: usize = SWEEPS.iter().map(|s| s.runs.len()).sum();
    assert_eq!(of(FigureKind::Fit, "MB/s, fitted"), fits);
}

#[test]
fn wu_2013() {
    assert_kinds(Paper::Wu2013, [8, 9, 3, 16, 3, 2, 38], 13);
}

#[test]
fn bhattacharya_2003() {
    assert_kinds(Paper::Bhattacharya2003, [0, 1, 7, 4, 3, 1, 19], 1);
}

#[test]
fn le_moal_2025() {
    assert_kinds(Paper::LeMoal2025, [4, 0, 0, 2, 0, 0, 0], 4);
}

/// Two fitted times never make a checked order.
#[test]
fn crume_2014() {
    let done = assert_kinds(Paper::Crume2014, [0, 25, 8, 25, 15, 17, 16], 0);
    let fitted: Vec<(&str, &str)> = done
        .tables
        .iter()
        .flat_map(|t| t.rows.iter().map(move |r| (t.table.as_str(), r)))
        .filter(|(_, r)| r.kind == FigureKind::Fit && r.column == "time, s")
        .map(|(table, r)| (table, r.label.as_str()))
        .collect();
    for row in done.rows().filter(|r| r.column == "of times") {
        let (workload, pair) = row
            .label
            .split_once(": ")
            .expect("workload: slower / faster");
        let of_pair = pair
            .split(" / ")
            .filter(|strategy| fitted.contains(&(workload, strategy)))
            .count();
        assert!(of_pair < 2, "{} is between two fitted times", row.label);
    }
}

#[test]
fn the_json_has_the_promised_shape() {
    let done = reproduced(Paper::Wu2010b, Vec::new());
    let json: serde_json::Value = serde_json::from_str(&done.to_json()).expect("JSON");
    assert_eq!(json["schema"], SCHEMA);
    let mut rows = 0;
    for table in json["tables"].as_array().expect("tables") {
        assert!(table["seed"] == "001" && table["table"].is_string());
        for row in table["rows"].as_array().expect("rows") {
            let keys: Vec<&str> = row
                .as_object()
                .expect("an object")
                .keys()
                .map(String::as_str)
                .collect();
            let mut promised = vec![
                "label",
                "column",
                "published",
                "ours",
                "error",
                "role",
                "ok",
                "reason",
            ];
            promised.extend(["id", "kind", "known_miss"]);
            promised.sort_unstable();
            assert_eq!(keys, promised);
            let kind = row["kind"].as_str().expect("a kind");
            assert!(FigureKind::ALL.iter().any(|k| k.name() == kind), "{kind}");
            assert!(
                row["ok"].is_boolean() && row["label"].is_string() && row["column"].is_string()
            );
            for key in ["published", "ours", "error"] {
                assert!(row[key].is_number() || row[key].is_null(), "{key}: {row}");
            }
            assert!(
                ["input", "fit", "check", "shown"].contains(&row["role"].as_str().expect("a role"))
            );
            rows += 1;
        }
    }
    assert_eq!(rows, done.rows().count());
    let score = json["score"].as_array().expect("a score");
    let counted: u64 = score
        .iter()
        .map(|s| s["rows"].as_u64().expect("a number"))
        .sum();
    assert_eq!(counted, rows as u64, "every row is of one kind");
    let back: Reproduction = serde_json::from_str(&done.to_json()).expect("reads what it wrote");
    assert_eq!(
        (back.count(Role::Check), back.tables.len()),
        (done.count(Role::Check), done.tables.len())
    );
}

/// A disk of 9 ms instead of 8 in the theory of [Wu 2010a]: its digits are not the printed ones.
#[test]
fn a_wrong_constant_fails_a_check() {
    static SLOPES: [Slope; 1] = [Slope {
        from_bytes: 0,
        ps_per_kib: 9_765_625,
    }];
    static SLOW: std::sync::OnceLock<Preset> = std::sync::OnceLock::new();
    let slow = SLOW.get_or_init(|| {
        let disk = DiskModel {
            command_ns: 9_000_000,
            max_transfer_bytes: None,
            slopes: &SLOPES,
        };
        Preset {
            model: Model::Disk(disk),
            ..*presets::find("hdd-theory").expect("a preset")
        }
    });
    let done = reproduced(Paper::Wu2010a, vec![slow]);
    let missed: Vec<&str> = done.missed().map(|(t, _)| t.table.as_str()).collect();
    assert!(
        missed.len() >= 44 && missed[0].starts_with("theory"),
        "{missed:?}"
    );
    assert!(text::missed_line(&done, missed.len()).contains("checks not met"));
}
