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
    let files: Vec<_> = tree::sources(folder)
        .into_iter()
        .filter(|file| file.name.starts_with(&within))
        .collect();
    let room_of = |name: &str| {
        let room = name[folder.len() + 1..].split('/').next().expect("a name");
        room.trim_end_matches(".rs").to_string()
    };
    let mut graph: Graph = files
        .iter()
        .map(|file| (room_of(&file.name), BTreeMap::new()))
        .collect();
    graph.remove("lib");
    let above: Vec<String> = folder[source.len()..]
        .split('/')
        .skip(1)
        .map(str::to_string)
        .collect();
    let mut no_rooms = BTreeSet::new();
    for file in files.iter().filter(|file| file.name != ABOVE) {
        let room = room_of(&file.name);
        for path in tree::imports(file, source) {
            let Some(to) = path
                .strip_prefix(above.as_slice())
                .and_then(|inner| inner.first())
            else {
                continue;
            };
            if !graph.contains_key(&room) || *to == room {
                continue;
            }
            if graph.contains_key(to) {
                graph
                    .get_mut(&room)
                    .expect("a room")
                    .insert(to.clone(), file.name.clone());
            } else {
                no_rooms.insert(format!("{}: {}", file.name, path.join("::")));
            }
        }
    }
    (graph, no_rooms)
}

fn edges(graph: &Graph) -> usize {
    graph.values().map(BTreeMap::len).sum()
}

#[test]
fn no_circle_among_the_files_of_the_driver() {
    let (graph, no_files) = graph("engine/src/driver", "engine/src");
    assert!(
        graph.len() > 10 && edges(&graph) > 25,
        "the rule must reach files: {graph:?}"
    );
    assert!(
        no_files.is_empty(),
        "driver.rs composes, name the file instead of it: {no_files:?}"
    );
    let found = tree::circle(&graph);
    assert!(
        found.is_none(),
        "the driver has a circle of imports:\n{}",
        found.unwrap_or_default()
    );
}

#[test]
fn no_circle_among_the_files_of_a_room() {
    let mut imports = 0;
    for room in ROOMS {
        let end = room.find("/src").expect("a crate") + "/src".len();
        let (graph, _) = graph(room, &room[..end]);
        assert!(graph.len() > 1, "{room}: the rule must reach files");
        imports += edges(&graph);
        let found = tree::circle(&graph);
        assert!(
            found.is_none(),
            "{room} has a circle of imports:\n{}",
            found.unwrap_or_default()
        );
    }
    assert!(imports > 40, "the rule must reach imports: {imports}");
}

#[test]
fn no_circle_among_the_rooms_of_a_crate() {
    for name in CRATES {
        let (graph, _) = graph(&format!("{name}/src"), &format!("{name}/src"));
        assert!(
            graph.len() > 3 && edges(&graph) > 3,
            "{name}: the rule must reach rooms and imports"
        );
        let found = tree::circle(&graph);
        assert!(
            found.is_none(),
            "{name} has a circle of imports:\n{}",
            found.unwrap_or_default()
        );
    }
}
