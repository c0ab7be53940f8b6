//! `foreread reproduce`: tables for people, JSON for programs, the exit code.

mod common;
use common::foreread;

#[test]
fn a_table_for_people_and_json_for_programs() {
    let text = foreread(["reproduce", "001"]);
    let out = text.is_done();
    assert!(out.contains("seed 001: marks") && out.contains("checks, ") && !out.contains("missed:"), "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 80));
    let json = foreread(["reproduce", "001", "--json", "-"]);
    let value: serde_json::Value = serde_json::from_str(json.is_done()).expect("JSON");
    assert_eq!(value["schema"], "foreread.reproduce/1");
    assert!(value["tables"].as_array().is_some_and(|tables| tables.len() > 10));
}

#[test]
fn what_is_not_there_is_refused() {
    assert!(foreread(["reproduce", "005"]).is_refused().contains("005"));
    assert!(foreread(["reproduce", "001", "--runs", "0"]).is_refused().contains("--runs"));
    let json = foreread(["reproduce", "001", "--json", "no/such/dir/x.json"]);
    assert!(json.is_refused().contains("its directory does not exist"));
}
