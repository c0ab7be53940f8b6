//! One public name, one meaning: no two public types of `foreread` and `foreread-core` have the same name.
//!
//! Example: two types "Settings", of the NBD server and of the mount, would need a look at the import at each place of use. They
//! are `NbdSettings` and `FuseSettings`. A type that is re-exported under a second path is
//! one type.

use crate::tidy::SOURCES;
use crate::tree;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Public names with two meanings that stay, each with its reason.
const TWO_MEANINGS: [(&str, &str); 0] = [];

/// A file of a crate: where it is in the tree of modules, and its code.
struct Module {
    path: Vec<String>,
    is_public: bool,
    code: String,
}

/// The modules of a crate, from `lib.rs` on.
fn modules(src: &Path, path: &[String], file: &Path, is_public: bool, found: &mut Vec<Module>) {
    let text = tree::code(&std::fs::read_to_string(file).expect("readable"));
    let lines: Vec<String> = text.lines().map(str::to_string).collect();
    for line in lines {
        let (public, line) = match line.strip_prefix("pub ") {
            Some(rest) => (true, rest.to_string()),
            None => (false, line),
        };
        let Some(name) = line
            .strip_prefix("mod ")
            .and_then(|rest| rest.strip_suffix(';'))
        else {
            continue;
        };
        let inner: Vec<String> = path.iter().cloned().chain([name.to_string()]).collect();
        let folder = inner
            .iter()
            .fold(src.to_path_buf(), |folder, name| folder.join(name));
        let candidates = [folder.with_extension("rs")];
        let file = candidates
            .iter()
            .find(|file| file.exists())
            .expect("the file of a module");
        modules(src, &inner, file, is_public && public, found);
    }
    found.push(Module {
        path: path.to_vec(),
        is_public,
        code: text,
    });
}

/// Types that a file defines.
fn types(code: &str) -> Vec<String> {
    let kinds = [
        "pub struct ",
        "pub enum ",
        "pub trait ",
        "pub type ",
        "pub union ",
    ];
    let name = |line: &str| {
        let rest = kinds.iter().find_map(|kind| line.strip_prefix(kind))?;
        Some(rest.chars().take_while(|c| c.is_alphanumeric()).collect())
    };
    code.lines().filter_map(name).collect()
}

/// What `pub use` makes public: the last module of the path, and the name in it.
fn reexports(code: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("pub use ") {
        let statement = code[at + 8..].split(';').next().unwrap_or_default();
        let (path, names) = match statement.split_once("::{") {
            Some((path, names)) => (path, names.trim_end_matches('}')),
            None => statement.rsplit_once("::").unwrap_or(("", statement)),
        };
        let module = path.rsplit("::").next().unwrap_or_default();
        for name in names
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
        {
            let (module, name) = name.rsplit_once("::").unwrap_or((module, name));
            found.push((
                module.rsplit("::").next().unwrap_or_default().to_string(),
                name.to_string(),
            ));
        }
    }
    found
}

/// The public types of both crates: name, and the files that define it.
fn public_types() -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, src) in [("foreread_core", "core/src"), ("foreread", "engine/src")] {
        let (src, mut all) = (tree::root().join(src), Vec::new());
        modules(&src, &[], &src.join("lib.rs"), true, &mut all);
        let reexported: BTreeSet<(String, String)> = all
            .iter()
            .flat_map(|module| reexports(&module.code))
            .collect();
        for module in &all {
            let last = module.path.last().cloned().unwrap_or_default();
            for of in types(&module.code) {
                if module.is_public || reexported.contains(&(last.clone(), of.clone())) {
                    found
                        .entry(of)
                        .or_default()
                        .insert(format!("{name}::{}", module.path.join("::")));
                }
            }
        }
    }
    found
}

#[test]
fn a_public_type_name_has_one_meaning() {
    let all = public_types();
    assert!(
        all.len() > 100,
        "the rule must reach types: {:?}",
        all.keys()
    );
    let allowed = |name: &str| TWO_MEANINGS.iter().any(|(of, _)| *of == name);
    let doubles: Vec<_> = all
        .iter()
        .filter(|(name, at)| at.len() > 1 && !allowed(name))
        .collect();
    assert!(
        doubles.is_empty(),
        "a public name with two meanings, rename one: {doubles:?}"
    );
    for (name, _) in TWO_MEANINGS {
        assert!(
            all.get(name).is_some_and(|at| at.len() > 1),
            "{name} has one meaning now: take it off the list"
        );
    }
}

/// Participles that do not end in -ed.
const PARTICIPLES: [&str; 18] = [
    "Begun", "Chosen", "Done", "Found", "Given", "Gone", "Held", "Kept", "Known", "Lent", "Made",
    "Met", "Seen", "Sent", "Taken", "Told", "Woken", "Written",
];
/// Names that stay: the client of a connection is gone; a need is a noun.
const NO_PARTICIPLES: [&str; 2] = ["Disconnected", "Need"];

/// The types of a folder with the files that define them.
fn types_by_name(folder: &str) -> BTreeMap<String, Vec<String>> {
    let kinds = ["struct ", "enum ", "trait ", "type "];
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in tree::sources(folder) {
        for line in file.code().lines().filter(|line| !line.starts_with(' ')) {
            let line = line.split_once(") ").map_or(line, |(_, rest)| rest);
            let line = line.strip_prefix("pub ").unwrap_or(line);
            if let Some(rest) = kinds.iter().find_map(|kind| line.strip_prefix(kind)) {
                let name = rest.chars().take_while(|c| c.is_alphanumeric()).collect();
                found.entry(name).or_default().push(file.name.clone());
            }
        }
    }
    found
}

/// The types of each crate.
fn types_of_crates() -> Vec<BTreeMap<String, Vec<String>>> {
    let all: Vec<_> = SOURCES.iter().map(|folder| types_by_name(folder)).collect();
    let number: usize = all.iter().map(BTreeMap::len).sum();
    assert!(number > 800, "the rule must reach types: {number}");
    all
}

/// `State` was 18 types.
#[test]
fn a_type_name_is_used_at_most_twice_in_a_crate() {
    for mut types in types_of_crates() {
        types.retain(|_, files| files.len() > 2);
        assert!(types.is_empty(), "rename one: {types:?}");
    }
}

#[test]
fn a_type_name_is_no_bare_participle() {
    let is_bare = |name: &str| {
        let words = name.chars().filter(|c| c.is_uppercase()).count();
        words == 1
            && (name.ends_with("ed") || PARTICIPLES.contains(&name))
            && !NO_PARTICIPLES.contains(&name)
    };
    for mut types in types_of_crates() {
        types.retain(|name, _| is_bare(name));
        assert!(types.is_empty(), "a noun says what it is: {types:?}");
    }
}

/// Tuples of more than two fields where a type is.
fn long_tuples(code: &str) -> Vec<&str> {
    let mut open: Vec<(usize, usize)> = Vec::new();
    let mut found = Vec::new();
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' | '<' | '{' => open.push((at, 1)),
            ',' => open
                .last_mut()
                .into_iter()
                .for_each(|(_, fields)| *fields += 1),
            '>' if code[..at].ends_with(['-', '=']) => {}
            ')' | ']' | '>' | '}' => {
                let Some((start, fields)) = open.pop() else {
                    continue;
                };
                let last = code[..at].trim_end().ends_with(',');
                let before = code[..start].trim_end_matches(' ');
                let is_type = before.ends_with([':', '<', '[', '&']) || before.ends_with("->");
                if c == ')' && fields - usize::from(last) > 2 && is_type {
                    found.push(&code[start..=at]);
                }
            }
            _ => {}
        }
    }
    found
}

#[test]
fn a_tuple_of_a_function_or_a_field_has_two_fields_at_most() {
    let (mut checked, mut all) = (0, Vec::new());
    for folder in SOURCES {
        for file in tree::sources(folder) {
            let code = file.code();
            let heads = code.match_indices("fn ").map(|(at, _)| {
                let head = &code[at..];
                &head[..head.find(" {").or(head.find(";\n")).unwrap_or(head.len())]
            });
            let fields = code.match_indices("struct ").map(|(at, _)| {
                let body = &code[at..];
                &body[..body.find(";\n").min(body.find("\n}")).unwrap_or(body.len())]
            });
            for part in heads.chain(fields) {
                checked += 1;
                let long = long_tuples(part).into_iter();
                all.extend(long.map(|tuple| format!("{}: {tuple}", file.name)));
            }
        }
    }
    assert!(checked > 3000, "the rule must reach functions: {checked}");
    assert!(all.is_empty(), "a struct instead of {all:#?}");
}

#[test]
fn public_names_are_found() {
    assert_eq!(
        types("pub struct A;\n    pub struct B;\npub(crate) enum C {}\npub trait D<T> {"),
        ["A", "D"]
    );
    let names = reexports(
        "pub use file::FileSource;\npub use crate::system::{Request, is_due};\npub use x::{y::Z};",
    );
    let names: Vec<(&str, &str)> = names
        .iter()
        .map(|(module, name)| (module.as_str(), name.as_str()))
        .collect();
    assert_eq!(
        names,
        [
            ("file", "FileSource"),
            ("system", "Request"),
            ("system", "is_due"),
            ("y", "Z")
        ]
    );
}

#[test]
fn long_tuples_are_found() {
    let code = "fn a(&self, (x, y, z): (u8, Vec<u8>, u8), b: &[(u8, u8)]) -> Vec<(A, B<C, D>, E)>";
    assert_eq!(long_tuples(code), ["(u8, Vec<u8>, u8)", "(A, B<C, D>, E)"]);
    assert!(long_tuples("fn a(b: impl Fn(u8, u8, u8) -> (u8, u8), c: u8)").is_empty());
}
