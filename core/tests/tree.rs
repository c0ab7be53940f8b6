//! Shared code of the tidy tests: the files of the tree, their code without comments and tests, the modules that a file
//! imports, and the search for an import cycle.
//!
//! Example: `lab/src/probe/run.rs` has `use super::super::report::{page, table::Row};`. [`imports`] gives
//! `report::page` and `report::table::Row`, so the graph of the rooms of `lab` has an edge from `probe` to `report`. With
//! `use crate::probe::Run` in `lab/src/report/page.rs` it has the edge back, and [`circle`] gives
//!
//! ```text
//! probe -> report: lab/src/probe/run.rs
//! report -> probe: lab/src/report/page.rs
//! ```
//!
//! It relies on the formatter: a block ends in the column in which it starts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Folders that are built or are git's.
const NOT_OURS: [&str; 3] = ["target", "dist", ".git"];

/// A file of the tree.
pub struct File {
    /// Its path from the root of the workspace.
    pub name: String,
    pub text: String,
}

impl File {
    pub fn code(&self) -> String {
        code(&self.text)
    }
}

pub fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().expect("the workspace").to_path_buf()
}

/// The text of one file, by its path from the root.
pub fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Every file at or below a path from the root ("" for all), sorted by name.
pub fn files(below: &str) -> Vec<File> {
    let (mut found, mut paths) = (Vec::new(), vec![root().join(below)]);
    while let Some(path) = paths.pop() {
        let name = path.strip_prefix(root()).expect("below the root");
        let name = name.display().to_string();
        if !path.is_dir() {
            let bytes = fs::read(&path).unwrap_or_else(|e| panic!("{name}: {e}"));
            let text = String::from_utf8_lossy(&bytes).into_owned();
            found.push(File { name, text });
            continue;
        }
        for entry in fs::read_dir(&path).expect("a folder").flatten() {
            if !NOT_OURS.iter().any(|folder| entry.file_name() == *folder) {
                paths.push(entry.path());
            }
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// The Rust files below a path from the root, and the one beside it: `name.rs` is the head of the module whose parts are in `name/`.
pub fn sources(below: &str) -> Vec<File> {
    let head = format!("{below}.rs");
    let head = root().join(&head).is_file().then(|| File {
        text: read(&head),
        name: head,
    });
    let mut all = files(below);
    all.retain(|file| file.name.ends_with(".rs"));
    head.into_iter().chain(all).collect()
}

/// Code without comments and without the items that only tests have. The lines keep their numbers.
pub fn code(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let (mut kept, mut at) = (Vec::new(), 0);
    while at < lines.len() {
        let end = match lines[at].trim_start() {
            "#[cfg(test)]" => item_end(&lines, at),
            _ => at,
        };
        let is_kept = end == at;
        kept.push(if is_kept {
            without_comment(lines[at])
        } else {
            ""
        });
        kept.extend(vec![""; end - at]);
        at = end + 1;
    }
    kept.join("\n")
}

/// The last line of the item that the attribute at `start` belongs to.
fn item_end(lines: &[&str], start: usize) -> usize {
    let indent = &lines[start][..lines[start].len() - lines[start].trim_start().len()];
    let is_before =
        |line: &&&str| line.trim_start().starts_with("#[") || line.trim_start().starts_with("//");
    let head = start + lines[start..].iter().take_while(is_before).count();
    let ends = |line: &&str| line.ends_with([';', '}', ',']);
    let is_one_line = lines.get(head).is_some_and(ends);
    let closes = |line: &str| matches!(line.strip_prefix(indent), Some("}" | "};"));
    let end = (head..lines.len()).find(|&at| is_one_line || closes(lines[at]));
    end.unwrap_or(lines.len() - 1)
}

/// A line up to its comment. `//` in an address such as `s3://bucket` opens none.
fn without_comment(line: &str) -> &str {
    let opens = |at: &usize| !line[..*at].ends_with(':');
    let comment = line.match_indices("//").map(|(at, _)| at).find(opens);
    &line[..comment.unwrap_or(line.len())]
}

/// The modules and items that a file of `folder` (the `src` of a crate) names by `crate::` or `super::`, each as the parts of
/// its path from `folder`.
pub fn imports(file: &File, folder: &str) -> BTreeSet<Vec<String>> {
    let inner = file
        .name
        .strip_prefix(folder)
        .expect("a file of the folder");
    let inner = inner.trim_start_matches('/').trim_end_matches(".rs");
    let mut module: Vec<String> = inner.split('/').map(str::to_string).collect();
    module.pop_if(|last| last == "mod" || last == "lib");
    let mut found = BTreeSet::new();
    for path in paths(&file.code()) {
        let supers = path.iter().take_while(|part| *part == "super").count();
        let from = match supers {
            0 => &[][..],
            _ => &module[..module.len().saturating_sub(supers)],
        };
        found.insert(from.iter().chain(&path[supers.max(1)..]).cloned().collect());
    }
    found
}

/// The paths of a code that begin with `crate` or `super`, groups in braces resolved.
fn paths(code: &str) -> Vec<Vec<String>> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let mut found = Vec::new();
    let starts = ["crate::", "super::"].map(|start| code.match_indices(start));
    for (at, _) in starts.into_iter().flatten() {
        if !code[..at].ends_with(is_part) {
            resolve(&code[at..], &[], &mut found);
        }
    }
    found
}

/// Adds the paths of a text such as `a::{b, c::d}`, each behind `before`.
fn resolve(text: &str, before: &[String], found: &mut Vec<Vec<String>>) {
    let text = text.trim_start();
    if let Some(group) = text.strip_prefix('{') {
        let parts = parts(group).into_iter();
        return parts.for_each(|part| resolve(part, before, found));
    }
    let letters = text.chars();
    let name = letters.take_while(|c| c.is_alphanumeric() || *c == '_');
    let name: String = name.collect();
    let path = before.iter().chain([&name]);
    let path: Vec<String> = path.filter(|part| !part.is_empty()).cloned().collect();
    match text[name.len()..].strip_prefix("::") {
        Some(rest) if !name.is_empty() => resolve(rest, &path, found),
        _ => found.push(path),
    }
}

/// The parts of a group up to its closing brace, at the commas that are in no inner braces.
fn parts(group: &str) -> Vec<&str> {
    let (mut depth, mut start, mut found) = (1, 0, Vec::new());
    for (at, c) in group.char_indices() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if depth == 0 || (depth == 1 && c == ',') {
            found.push(&group[start..at]);
            start = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    found
}

/// Of each module, the modules that it imports, each with a file that does.
pub type Graph = BTreeMap<String, BTreeMap<String, String>>;

/// A circle, if there is one: each of its imports as a line `from -> to: file`.
pub fn circle(graph: &Graph) -> Option<String> {
    let (mut names, mut done) = (graph.keys(), BTreeSet::new());
    names.find_map(|name| visit(graph, name, &mut Vec::new(), &mut done))
}

fn visit(
    graph: &Graph,
    at: &str,
    path: &mut Vec<String>,
    done: &mut BTreeSet<String>,
) -> Option<String> {
    if let Some(start) = path.iter().position(|name| name == at) {
        let closed = path[start..].iter().map(String::as_str).chain([at]);
        let closed = Vec::from_iter(closed);
        let pairs = closed.windows(2).map(|pair| (pair[0], pair[1]));
        let line = |(from, to)| format!("{from} -> {to}: {}", graph[from][to]);
        return Some(Vec::from_iter(pairs.map(line)).join("\n"));
    }
    if !done.insert(at.to_string()) {
        return None;
    }
    path.push(at.to_string());
    let mut next = graph.get(at).into_iter().flat_map(BTreeMap::keys);
    let found = next.find_map(|next| visit(graph, next, path, done));
    path.pop();
    found
}

#[test]
fn code_has_no_comments_and_no_tests() {
    let text = "use a; // b\n#[cfg(test)]\nuse b;\nlet c = \"s3://d\";\n    #[cfg(test)]\n    pub fn e(\n        f: u8,\n    \
                ) {\n        g\n    }\n#[cfg(test)]\n/// H.\n#[allow(x)]\nmod i {\n    j\n}\nfn k() {}";
    let kept = code(text);
    let words = Vec::from_iter(kept.split_whitespace()).join(" ");
    assert_eq!(words, "use a; let c = \"s3://d\"; fn k() {}");
    assert_eq!(kept.lines().count(), text.lines().count());
}

#[test]
fn imports_are_resolved() {
    let text = "use crate::{a::{b, c}, d};\nlet x = crate::e_f::g();\nuse super::{h::I, j};\n\
                super::super::k::l(my_crate::m());";
    let of = |name: &str| {
        let file = File {
            name: name.to_string(),
            text: text.to_string(),
        };
        let paths = imports(&file, "lab/src").into_iter();
        Vec::from_iter(paths.map(|path| path.join("::"))).join(" ")
    };
    let below = "a::b a::c d e_f::g k::l n::h::I n::j";
    assert_eq!(of("lab/src/n/o.rs"), below);
    let head = "a::b a::c d e_f::g h::I j k::l";
    assert_eq!(of("lab/src/n/mod.rs"), head);
}

#[test]
fn a_circle_is_found() {
    let graph = |edges: &[(&str, &[&str])]| -> Graph {
        let to = |names: &[&str], from: &str| {
            let to = |to: &&str| (to.to_string(), format!("{from}.rs"));
            names.iter().map(to).collect()
        };
        let edges = edges.iter();
        edges
            .map(|(from, names)| (from.to_string(), to(names, from)))
            .collect()
    };
    let none = graph(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])]);
    assert_eq!(circle(&none), None);
    let found = circle(&graph(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"])]));
    assert_eq!(found.as_deref(), Some("b -> c: b.rs\nc -> b: c.rs"));
}
