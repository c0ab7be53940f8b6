//! The import graph that the compiler does not hold: no circle among the files of the driver.
//!
//! Example: `use super::queue::Reaper` in `reads.rs` is an edge from `reads` to `queue`. `queue.rs` imports `super::reads`,
//! so the test prints `reads -> queue -> reads` and fails. `mod.rs` composes: every file is below it, none imports it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_path_buf()
}

/// Code without comments and without the tests at its end.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    let text = text.split("#[cfg(test)]\npub mod tests {").next().unwrap_or(text);
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
}

/// The first names after `prefix`: one, or those of a list in braces.
fn names_after(code: &str, prefix: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let first = |text: &str| text.trim_start().chars().take_while(|&c| is_part(c)).collect::<String>();
    for (at, _) in code.match_indices(prefix) {
        if code[..at].chars().next_back().is_some_and(|c| is_part(c) || c == ':') {
            continue;
        }
        let rest = &code[at + prefix.len()..];
        match rest.strip_prefix('{').and_then(|list| list.split("};").next()) {
            Some(list) => found.extend(list.split(',').map(first)),
            None => _ = found.insert(first(rest)),
        }
    }
    found.retain(|name| !name.is_empty());
    found
}

type Graph = BTreeMap<String, BTreeSet<String>>;

/// Which file of the folder imports which.
fn imports(folder: &Path) -> Graph {
    let mut texts = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(stem) = name.strip_suffix(".rs").filter(|stem| *stem != "mod") {
            texts.insert(stem.to_string(), code(&fs::read_to_string(entry.path()).expect("readable")));
        }
    }
    let files: BTreeSet<String> = texts.keys().cloned().collect();
    let module = folder.file_name().expect("a name").to_string_lossy().into_owned();
    let edges = |(name, text): (String, String)| {
        let prefixes = ["super::".to_string(), format!("crate::{module}::")];
        let used: BTreeSet<String> = prefixes.iter().flat_map(|prefix| names_after(&text, prefix)).collect();
        let of_mod: Vec<&String> = used.difference(&files).collect();
        assert!(of_mod.is_empty(), "{name}.rs imports {of_mod:?} from mod.rs, which composes: name the file instead");
        (name, used)
    };
    texts.into_iter().map(edges).collect()
}

/// A circle, if there is one: the names in its order, the first again at its end.
fn circle(graph: &Graph) -> Option<Vec<String>> {
    fn visit(graph: &Graph, at: &str, path: &mut Vec<String>, done: &mut BTreeSet<String>) -> Option<Vec<String>> {
        if let Some(start) = path.iter().position(|name| name == at) {
            return Some(path[start..].iter().map(String::as_str).chain([at]).map(str::to_string).collect());
        }
        if !done.insert(at.to_string()) {
            return None;
        }
        path.push(at.to_string());
        let found = graph.get(at).into_iter().flatten().find_map(|next| visit(graph, next, path, done));
        path.pop();
        found
    }
    let mut done = BTreeSet::new();
    graph.keys().find_map(|name| visit(graph, name, &mut Vec::new(), &mut done))
}

#[test]
fn no_circle_among_the_files_of_the_driver() {
    let graph = imports(&root().join("engine/src/driver"));
    let edges: usize = graph.values().map(BTreeSet::len).sum();
    assert!(graph.len() > 15 && edges > 30, "the rule must meet files: {graph:?}");
    if let Some(circle) = circle(&graph) {
        panic!("engine/src/driver: {}", circle.join(" -> "));
    }
}

#[test]
fn a_circle_is_found() {
    let graph = |edges: &[(&str, &[&str])]| -> Graph {
        let names = |names: &&[&str]| names.iter().map(|name| (*name).to_string()).collect();
        edges.iter().map(|(name, to)| ((*name).to_string(), names(to))).collect()
    };
    assert_eq!(circle(&graph(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])])), None);
    let found = circle(&graph(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"])]));
    assert_eq!(found, Some(["b", "c", "b"].map(str::to_string).to_vec()));
    let of = |code: &str| names_after(code, "super::").into_iter().collect::<Vec<_>>();
    assert_eq!(of("use super::queue::{Reaper, Batch};\nlet x = super::jobs::Job;"), ["jobs", "queue"]);
    assert_eq!(of("use super::{lock::Guard, reads};\nsuper::super::x"), ["lock", "reads", "super"]);
}
