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
use serde::ser::{Serialize, SerializeMap, Serializer};
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
    /// Parameters.
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
    json::pretty(&Catalog { kind, entries })
}

/// The whole list. Serialized by hand, because one key is the kind of the list.
struct Catalog<'a> {
    kind: &'a str,
    entries: &'a [Entry],
}

impl Serialize for Catalog<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("schema", &format!("foreread.{}/1", self.kind))?;
        map.serialize_entry(self.kind, self.entries)?;
        map.end()
    }
}

impl Serialize for Entry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", &self.name)?;
        map.serialize_entry("summary", &self.summary)?;
        map.serialize_entry("origin", &self.origin)?;
        for Fact { key, value, .. } in &self.facts {
            map.serialize_entry(key, value)?;
        }
        map.serialize_entry(
            "params",
            &self.params.iter().map(ParamEntry::of).collect::<Vec<_>>(),
        )?;
        map.end()
    }
}

/// A parameter in JSON.
#[derive(serde::Serialize)]
struct ParamEntry {
    key: &'static str,
    /// `bytes`, `count`, `thousandths` (written as a decimal number) or `word`.
    unit: &'static str,
    /// Default, in the notation of a value.
    default: &'static str,
    /// Smallest and largest value; null for a word.
    min: Option<u64>,
    max: Option<u64>,
    /// The accepted words, also for numbers that allow words; null if there are none.
    words: Option<&'static [&'static str]>,
    help: &'static str,
}

impl ParamEntry {
    fn of(param: &Param) -> ParamEntry {
        let (unit, words) = match param.unit {
            Unit::Bytes => ("bytes", None),
            Unit::Capped => ("bytes", Some(Cap::WORDS)),
            Unit::Count => ("count", None),
            Unit::Ratio => ("thousandths", None),
            Unit::Word(words) => ("word", Some(words)),
        };
        let limit = |value| (unit != "word").then_some(value);
        let (min, max) = (limit(param.range.0), limit(param.range.1));
        ParamEntry {
            key: param.key,
            unit,
            default: param.default,
            min,
            max,
            words,
            help: param.help,
        }
    }
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
