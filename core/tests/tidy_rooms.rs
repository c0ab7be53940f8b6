//! The rooms of a crate import each other one way: no circle among the folders and files below `src`.
//!
//! An import is a path `crate::ROOM` in code outside tests, or each name of `crate::{ROOM, ...}`. Example: with
//! `crate::report` in `probe/run.rs` and `crate::probe` in `report/page.rs` the test fails with
//! `probe -> report -> probe` and the file of each import.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Crates whose rooms are checked.
const CRATES: [&str; 2] = ["lab", "sim"];

/// Of each room, the rooms that it imports, each with a file that does.
type Rooms = BTreeMap<String, BTreeMap<String, String>>;

fn rooms(source: &Path) -> Rooms {
    let mut rooms = Rooms::new();
    for entry in fs::read_dir(source).expect("the source of a crate").flatten() {
        let path = entry.path();
        let room = path.file_stem().expect("a name").to_string_lossy().into_owned();
        if room != "lib" {
            let imports = rooms.entry(room).or_default();
            files(&path, &mut |name, text| imported(text).for_each(|to| _ = imports.insert(to, name.to_string())));
        }
    }
    let known: Vec<String> = rooms.keys().cloned().collect();
    for (room, imports) in &mut rooms {
        imports.retain(|to, _| to != room && known.contains(to));
    }
    rooms
}

/// Calls `see` with the name and the code of every file at or below a path.
fn files(path: &Path, see: &mut dyn FnMut(&str, &str)) {
    if path.is_dir() {
        fs::read_dir(path).into_iter().flatten().flatten().for_each(|entry| files(&entry.path(), see));
    } else if path.extension().is_some_and(|e| e == "rs") {
        let text = fs::read_to_string(path).expect("readable");
        let code = text.split("#[cfg(test)]").next().unwrap_or(&text);
        let code: Vec<&str> = code.lines().map(|line| line.split("//").next().unwrap_or(line)).collect();
        see(&path.display().to_string(), &code.join("\n"));
    }
}

/// The first names of the paths that begin with `crate::`.
fn imported(code: &str) -> impl Iterator<Item = String> {
    code.split("crate::").skip(1).flat_map(|path| {
        let group = path.strip_prefix('{').map(|group| &group[..closing(group)]);
        let name = |text: &str| text.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        group.map_or_else(|| vec![name(path)], |group| top_level(group).into_iter().map(name).collect())
    })
}

/// Where the brace closes that was opened before the text.
fn closing(text: &str) -> usize {
    let mut depth = 1;
    let closes = |c: char| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        depth == 0
    };
    text.find(closes).unwrap_or(text.len())
}

/// The parts of a list between the commas that are in no inner braces.
fn top_level(list: &str) -> Vec<&str> {
    let mut depth = 0;
    list.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    })
    .collect()
}

/// A circle that `room` is on the way to, each import as a line.
fn circle(rooms: &Rooms, path: &mut Vec<String>, room: &str) -> Option<String> {
    if let Some(start) = path.iter().position(|earlier| earlier == room) {
        let line = |pair: &[String]| format!("{} -> {}: {}", pair[0], pair[1], rooms[&pair[0]][&pair[1]]);
        let closed: Vec<String> = path[start..].iter().cloned().chain([room.to_string()]).collect();
        return Some(closed.windows(2).map(line).collect::<Vec<_>>().join("\n"));
    }
    path.push(room.to_string());
    let found = rooms[room].keys().find_map(|to| circle(rooms, path, to));
    path.pop();
    found
}

#[test]
fn rooms_import_each_other_one_way() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    for name in CRATES {
        let rooms = rooms(&root.join(name).join("src"));
        let imports: usize = rooms.values().map(BTreeMap::len).sum();
        assert!(rooms.len() > 5 && imports > 8, "{name}: the rule must meet rooms and imports");
        for room in rooms.keys() {
            let found = circle(&rooms, &mut Vec::new(), room);
            assert!(found.is_none(), "{name} has a circle of imports:\n{}", found.unwrap_or_default());
        }
    }
}

/// The reading of paths, on a made-up tree.
#[test]
fn a_circle_is_found_through_a_group() {
    let code = "use crate::{a::{b, c}, d};\nlet x = crate::e_f::g();";
    assert_eq!(imported(code).collect::<Vec<_>>(), ["a", "d", "e_f"]);
    let room = |names: &[&str]| names.iter().map(|n| ((*n).to_string(), format!("{n}.rs"))).collect();
    let mut rooms = Rooms::from([("a".to_string(), room(&["b"])), ("b".to_string(), room(&["c"]))]);
    rooms.insert("c".to_string(), room(&[]));
    assert_eq!(circle(&rooms, &mut Vec::new(), "a"), None);
    rooms.insert("c".to_string(), room(&["b"]));
    assert_eq!(circle(&rooms, &mut Vec::new(), "a").as_deref(), Some("b -> c: c.rs\nc -> b: b.rs"));
}
