//! Checks imports that the compiler does not check: there is no import cycle among the modules of a crate, and none
//! among the files of some modules.
//!
//! A room, in this file, is a folder or file directly below the `src` of a crate. Example: `use crate::queue::Reaper`
//! in `reads.rs` is an import of `queue` by `reads`. If `queue.rs` imports `reads`, the test fails and prints both
//! imports with their files. `lib.rs` and the driver's `driver.rs` are exceptions: they may import every file, and no
//! file of the driver imports from `driver.rs`.

use crate::tree::{self, Graph};
use std::collections::{BTreeMap, BTreeSet};

/// Crates whose rooms are checked.
const CRATES: [&str; 11] = [
    "core", "trace", "sim", "lab", "check", "cli", "csi", "engine", "observe", "report", "testing",
];
/// Rooms whose files are checked. The file beside a folder composes it, and may be imported by each of them.
const ROOMS: &[&str] = &[
    "attach/src/run",
    "attach/src/warm",
    "check/src/command",
    "check/src/conform",
    "check/src/conform/live",
    "cli/src/command",
    "engine/src/source",
    "engine/src/source/disk_cache",
    "engine/src/source/nbd",
    "engine/src/source/object",
    "engine/src/source/rbd",
    "engine/src/source/tree",
    "engine/src/front",
    "engine/src/front/fuse",
    "engine/src/front/nbd",
    "lab/src/probe",
    "lab/src/replay",
    "lab/src/report",
    "observe/src/record",
    "observe/src/sample",
    "observe/src/tracefs",
];
/// A file of tests that imports what is above it.
const ABOVE: &str = "trace/src/own/tests.rs"; // reads by `open` what it wrote

/// The rooms of a folder of modules, with what each imports from the others. Names that are no room are in the second result.
fn graph(folder: &str, source: &str) -> (Graph, BTreeSet<String>) {
    let within = format!("{folder}/");
    let mut files = tree::sources(folder);
    files.retain(|file| file.name.starts_with(&within));
    let room_of = |name: &str| {
        let room = name[folder.len() + 1..].split('/').next().expect("a name");
        room.trim_end_matches(".rs").to_string()
    };
    let rooms = files.iter().map(|file| room_of(&file.name));
    let mut graph: Graph = rooms.map(|room| (room, BTreeMap::new())).collect();
    graph.remove("lib");
    let above = folder[source.len()..].split('/').skip(1);
    let above: Vec<String> = above.map(str::to_string).collect();
    let mut no_rooms = BTreeSet::new();
    for file in files.iter().filter(|file| file.name != ABOVE) {
        let room = room_of(&file.name);
        for path in tree::imports(file, source) {
            let Some([to, ..]) = path.strip_prefix(above.as_slice()) else {
                continue;
            };
            let is_room = graph.contains_key(to);
            match graph.get_mut(&room).filter(|_| *to != room) {
                Some(imports) if is_room => {
                    imports.insert(to.clone(), file.name.clone());
                }
                Some(_) => {
                    no_rooms.insert(format!("{}: {}", file.name, path.join("::")));
                }
                None => {}
            }
        }
    }
    (graph, no_rooms)
}

/// Returns the number of imports among the rooms of a folder, and the names that are no room.
fn check(folder: &str, source: &str) -> (usize, BTreeSet<String>) {
    let (graph, no_rooms) = graph(folder, source);
    assert!(graph.len() > 1, "{folder}: the rule must reach files");
    if let Some(circle) = tree::circle(&graph) {
        panic!("{folder} has a circle of imports:\n{circle}");
    }
    (graph.values().map(BTreeMap::len).sum(), no_rooms)
}

#[test]
fn no_circle_of_imports() {
    let (imports, no_files) = check("engine/src/driver", "engine/src");
    assert!(imports > 25, "the rule must reach imports: {imports}");
    let composes = "driver.rs composes, name the file instead of it";
    assert!(no_files.is_empty(), "{composes}: {no_files:?}");
    let of_room = |room: &&str| check(room, &room[..room.find("/src").expect("a crate") + 4]).0;
    let imports: usize = ROOMS.iter().map(of_room).sum();
    assert!(imports > 40, "the rule must reach imports: {imports}");
    for name in CRATES {
        let source = format!("{name}/src");
        let (imports, _) = check(&source, &source);
        assert!(imports > 3, "{name}: the rule must reach imports");
    }
}
