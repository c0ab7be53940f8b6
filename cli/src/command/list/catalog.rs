//! Prints the entries of `list policies`, `list models` and `list workloads`, as text or as JSON.
//!
//! The JSON has the schema `foreread.policies/1`, `foreread.models/1` or `foreread.workloads/1`: `{"schema":..,"KIND":[{"name",
//! "summary","origin",...,"params":[{"key","unit","default","min","max","words","help"}]}]}`. The entries come from the registries of
//! policies, device models and workloads, so no list can miss an entry.

use crate::fail::Fail;
use crate::out::Outputs;
use foreread_core::policy::capacity::Cap;
use foreread_core::policy::spec::decimal;
use foreread_core::policy::{Param, Unit};
use foreread_core::units::MAX_OFFSET;
use foreread_report::block::{self, Block, Table};
use foreread_report::json;
use foreread_report::number::exact_size as size;
use foreread_report::width;
use serde::Serialize;
use serde_json::{Value, json};
use std::ffi::OsStr;

/// Maximum width of a text line.
const WIDTH: usize = 90;

/// One entry of a list: a policy, model or workload.
pub struct Entry {
    /// The name in `NAME:key=value,...`.
    pub name: String,
    /// One-line description.
    pub summary: String,
    /// Source of the entry.
    pub origin: String,
    pub facts: Vec<Fact>,
    pub params: &'static [Param],
}

pub struct Fact {
    /// Key and value in JSON.
    key: &'static str,
    value: Value,
    /// The sentence in the text; `None` if the text leaves it out.
    words: Option<String>,
}

impl Fact {
    pub fn new(key: &'static str, value: impl Serialize, words: Option<String>) -> Fact {
        let value = json!(value);
        Fact { key, value, words }
    }

    pub fn of_json(key: &'static str, value: impl Serialize) -> Fact {
        Fact::new(key, value, None)
    }
}

/// Prints the entries of the list `kind` (such as "policies"); as text, the list ends with a remark, which the JSON does not contain.
pub fn print(kind: &str, entries: &[Entry], json: Option<&OsStr>, below: &str) -> Result<(), Fail> {
    let text = || format!("{}{below}", to_text(entries));
    let outputs = Outputs::new(&[("json", json)])?;
    outputs.emit(text, || to_json(kind, entries), &[])
}

fn to_json(kind: &str, entries: &[Entry]) -> String {
    let entry = |entry: &Entry| {
        let mut one = json!({
            "name": entry.name,
            "summary": entry.summary,
            "origin": entry.origin,
            "params": entry.params.iter().map(of_param).collect::<Vec<_>>(),
        });
        for Fact { key, value, .. } in &entry.facts {
            one[*key] = value.clone();
        }
        one
    };
    let mut whole = json!({ "schema": format!("foreread.{kind}/1") });
    whole[kind] = entries.iter().map(entry).collect();
    json::pretty(&whole)
}

/// A parameter in JSON. The unit is `bytes`, `count`, `thousandths` (written as a decimal number) or `word`. The default is in the notation
/// of a value; a word has no smallest and largest value. `words` are also those of numbers that allow words.
fn of_param(param: &Param) -> Value {
    let (unit, words) = match param.unit {
        Unit::Bytes => ("bytes", None),
        Unit::Capped => ("bytes", Some(Cap::WORDS)),
        Unit::Count => ("count", None),
        Unit::Ratio => ("thousandths", None),
        Unit::Word(words) => ("word", Some(words)),
    };
    let limit = |value| (unit != "word").then_some(value);
    json!({
        "key": param.key,
        "unit": unit,
        "default": param.default,
        "min": limit(param.range.0),
        "max": limit(param.range.1),
        "words": words,
        "help": param.help,
    })
}

fn to_text(entries: &[Entry]) -> String {
    let mut blocks = Vec::new();
    for (n, entry) in entries.iter().enumerate() {
        blocks.extend((n > 0).then_some(Block::Gap));
        let from = (!entry.origin.is_empty()).then(|| format!("Origin: {}.", entry.origin));
        let facts = entry.facts.iter().filter_map(|fact| fact.words.clone());
        let sentences = [entry.summary.clone()].into_iter().chain(from).chain(facts);
        let sentences = sentences.filter(|s| !s.is_empty()).map(Block::Text);
        let param = |p: &Param| [format!("{}={}", p.key, p.default), range(p), p.help.into()];
        let params = Table::of_cells(entry.params.iter().map(param))
            .left()
            .wide();
        blocks.extend([
            Block::line(&entry.name),
            Block::Indented(2, sentences.collect()),
            Block::Indented(4, vec![Block::Table(params)]),
        ]);
    }
    block::text(blocks, width::columns().min(WIDTH), false)
}

fn range(param: &Param) -> String {
    let (low, high) = param.range;
    match param.unit {
        Unit::Bytes if high == MAX_OFFSET => format!("bytes, {} or more", size(low)),
        Unit::Bytes => format!("bytes, {} to {}", size(low), size(high)),
        Unit::Capped => format!("bytes, {} to {}, {}", size(low), size(high), Cap::WORDS[0]),
        Unit::Count => format!("count, {low} to {high}"),
        Unit::Ratio => format!("ratio, {} to {}", decimal(low), decimal(high)),
        Unit::Word(words) => words.join(" | "),
    }
}
