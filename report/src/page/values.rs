//! Shows all values of a JSON document as HTML tables, with all their digits.
//!
//! The values of an object are listed one below the other, and so are the strings of a list. A list of objects becomes a table with one
//! column for each object (if there are few objects with many keys) or with one row for each object. No value is left out, rounded or
//! renamed.

use super::Grid;
use serde_json::Value;

/// An element with at least this many keys becomes a column, not a row: on a phone, columns can be scrolled, rows
/// cannot.
const MANY_KEYS: usize = 12;
/// With more elements than this, each becomes a row: a table cannot have thousands of columns.
const MAX_COLUMNS: usize = 100;

/// Converts a JSON `value` to HTML tables whose titles begin with `name`.
pub fn tables(name: &str, value: &Value) -> Vec<Grid> {
    let mut grids = Vec::new();
    collect(name, value, &mut grids);
    grids
}

fn collect(name: &str, value: &Value, grids: &mut Vec<Grid>) {
    let Value::Object(map) = value else {
        if let Value::Array(items) = value {
            if items.iter().any(Value::is_object) {
                list(name, items, grids);
            } else if !items.is_empty() {
                grids.push(
                    Grid::new(name, ["key", "value"]).with([vec![name.to_string(), text(value)]]),
                );
            }
        }
        return;
    };
    let (flat, deep): (Vec<_>, Vec<_>) =
        leaves("", map).into_iter().partition(|(_, v)| !is_table(v));
    if !flat.is_empty() {
        let rows = flat.into_iter().map(|(key, value)| vec![key, text(value)]);
        grids.push(Grid::new(name, ["key", "value"]).with(rows));
    }
    for (key, value) in deep {
        collect(
            &if name.is_empty() {
                key
            } else {
                format!("{name}.{key}")
            },
            value,
            grids,
        );
    }
}

/// A list of objects. Lists of objects inside them become separate tables.
fn list(name: &str, items: &[Value], grids: &mut Vec<Grid>) {
    let empty = serde_json::Map::new();
    let rows: Vec<Vec<(String, &Value)>> = items
        .iter()
        .map(|i| leaves("", i.as_object().unwrap_or(&empty)))
        .collect();
    let mut keys: Vec<&str> = Vec::new();
    for (key, value) in rows.iter().flatten() {
        if !is_table(value) && !keys.contains(&key.as_str()) {
            keys.push(key);
        }
    }
    let cell = |row: &[(String, &Value)], key: &str| {
        row.iter()
            .find(|(k, _)| k == key)
            .map_or_else(String::new, |(_, value)| text(value))
    };
    let grid = if keys.len() >= MANY_KEYS && items.len() <= MAX_COLUMNS {
        let heads =
            std::iter::once("key".to_string()).chain((1..=items.len()).map(|i| i.to_string()));
        let line = |key: &&str| {
            let cells = rows.iter().map(|row| cell(row, key));
            std::iter::once((*key).to_string())
                .chain(cells)
                .collect::<Vec<_>>()
        };
        Grid::new(name, heads).with(keys.iter().map(line))
    } else {
        let line =
            |row: &Vec<(String, &Value)>| keys.iter().map(|key| cell(row, key)).collect::<Vec<_>>();
        Grid::new(name, keys.iter().copied()).with(rows.iter().map(line))
    };
    if !keys.is_empty() {
        grids.push(grid);
    }
    for (i, row) in rows.iter().enumerate() {
        for (key, value) in row.iter().filter(|(_, value)| is_table(value)) {
            collect(&format!("{name}[{i}].{key}"), value, grids);
        }
    }
}

fn is_table(value: &Value) -> bool {
    value
        .as_array()
        .is_some_and(|items| items.iter().any(Value::is_object))
}

/// The values of an object, with nested objects flattened: `time_s.mean`.
fn leaves<'a>(above: &str, map: &'a serde_json::Map<String, Value>) -> Vec<(String, &'a Value)> {
    let mut all = Vec::new();
    for (key, value) in map {
        let key = if above.is_empty() {
            key.clone()
        } else {
            format!("{above}.{key}")
        };
        match value {
            Value::Object(inner) => all.extend(leaves(&key, inner)),
            // Sentences get one line each.
            Value::Array(items) if !items.is_empty() && items.iter().all(Value::is_string) => {
                all.extend(
                    items
                        .iter()
                        .enumerate()
                        .map(|(i, item)| (format!("{key}[{i}]"), item)),
                );
            }
            _ => all.push((key, value)),
        }
    }
    all
}

/// A value as JSON writes it. A string has no quotes; the elements of a list are separated by commas, those of a list
/// of lists by semicolons.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) if items.iter().any(Value::is_array) => items
            .iter()
            .map(|pair| text_of(pair, ": "))
            .collect::<Vec<_>>()
            .join("; "),
        Value::Array(_) => text_of(value, ", "),
        other => other.to_string(),
    }
}

fn text_of(value: &Value, joint: &str) -> String {
    let items = value.as_array().map_or(&[][..], Vec::as_slice);
    items.iter().map(text).collect::<Vec<_>>().join(joint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Few elements with many keys are columns, many elements are rows.
    #[test]
    fn hundreds_of_elements_are_rows() {
        let element: serde_json::Map<String, Value> =
            (0..12).map(|i| (format!("k{i}"), json!(i))).collect();
        let size = |count: usize| {
            let grids = tables("", &json!({ "cells": vec![element.clone(); count] }));
            (grids[0].heads.len(), grids[0].rows.len())
        };
        assert_eq!((size(2), size(101)), ((3, 12), (12, 101)));
    }

    #[test]
    fn every_value_has_its_place() {
        let wide: serde_json::Map<String, Value> =
            (0..12).map(|i| (format!("k{i}"), json!(i))).collect();
        let value = json!({
            "a": 1.5, "b": {"c": null, "d": [1, 2]}, "e": [[1, 2.5], [3, 4]],
            "rows": [{"x": "one", "y": 0.1}, {"y": 2, "z": [{"deep": true}]}], "wide": [wide], "none": [], "words": ["p, q", "r"],
        });
        let grids = tables("", &value);
        let find = |name: &str| {
            grids
                .iter()
                .find(|g| g.caption == name)
                .unwrap_or_else(|| panic!("{name}: {grids:?}"))
        };
        let cells: Vec<[&str; 2]> = find("")
            .rows
            .iter()
            .map(|r| [r[0].as_str(), r[1].as_str()])
            .collect();
        assert_eq!(
            cells,
            [
                ["a", "1.5"],
                ["b.c", "null"],
                ["b.d", "1, 2"],
                ["e", "1: 2.5; 3: 4"],
                ["none", ""],
                ["words[0]", "p, q"],
                ["words[1]", "r"]
            ]
        );
        assert_eq!(find("rows").heads, ["x", "y"]);
        assert_eq!(find("rows").rows, [["one", "0.1"], ["", "2"]]);
        assert_eq!(find("rows[1].z").rows, [["true"]]);
        assert_eq!((find("wide").heads.len(), find("wide").rows.len()), (2, 12));
        assert_eq!(tables("t", &json!([{"a": 1}]))[0].rows, [["1"]]);
    }
}
