//! Links of the documents lead somewhere: to a file of the tree, and with `#` to one of its headings. The scripts of `bench` that
//! a document names are there, and each script of `bench` is named.
//!
//! Read are all Markdown files and the comments of all Rust files. Example: a link to `guide.md#mount-it` in a page of `docs` needs that
//! page with a heading "Mount it". In Rust only links to Markdown files count; rustdoc checks those to items. What is between
//! backticks or in a drawing is no link.

use crate::tree::{self, File};
use std::collections::BTreeSet;

/// Text without its code: what is between backticks, and what is in drawings.
fn prose(text: &str) -> String {
    let mut kept = String::new();
    for (number, part) in text.split("```").enumerate() {
        if number % 2 == 0 {
            part.split('`').step_by(2).for_each(|part| kept += part);
        }
    }
    kept
}

/// The targets of `[text](target)` that are in this tree.
fn links(text: &str) -> Vec<String> {
    let targets = text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'));
    targets
        .map(|(target, _)| {
            target
                .split_whitespace()
                .next()
                .unwrap_or_default()
                .to_string()
        })
        .filter(|target| {
            !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:")
        })
        .collect()
}

/// What a link to a heading is: small letters, hyphens for spaces, without other signs.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().replace('`', "");
    let kept = heading
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.flat_map(char::to_lowercase)
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

fn anchors(page: &str) -> BTreeSet<String> {
    let mut is_drawn = false;
    let mut found = BTreeSet::new();
    for line in page.lines() {
        is_drawn ^= line.starts_with("```");
        if line.starts_with('#') && !is_drawn {
            // A link in a heading counts with its text alone.
            let parts: String = line
                .split("](")
                .enumerate()
                .map(|(at, part)| {
                    if at == 0 {
                        part
                    } else {
                        part.split_once(')').map_or("", |(_, rest)| rest)
                    }
                })
                .collect();
            let name = anchor(&parts.replace('[', ""));
            let is_new = found.insert(name.clone());
            if !is_new {
                found.insert(format!("{name}-1"));
            }
        }
    }
    found
}

/// Why a link of a file leads nowhere, or `None`.
fn fault(file: &str, link: &str) -> Option<&'static str> {
    let (path, heading) = link
        .split_once('#')
        .map_or((link, None), |(path, heading)| (path, Some(heading)));
    let folder = tree::root().join(file);
    let target = if path.is_empty() {
        folder
    } else {
        folder.parent().expect("a folder").join(path)
    };
    if !target.exists() {
        return Some("no such file");
    }
    let heading = heading.filter(|_| target.extension().is_some_and(|ending| ending == "md"))?;
    let page = std::fs::read_to_string(&target).unwrap_or_default();
    (!anchors(&page).contains(heading)).then_some("no such heading")
}

/// The comments of a Rust file, or all of a Markdown file.
fn text(file: &File) -> Option<String> {
    if file.name.ends_with(".md") {
        return Some(prose(&file.text));
    }
    let comments = file.text.lines().filter_map(|line| {
        let line = line.trim_start();
        line.strip_prefix("//!")
            .or_else(|| line.strip_prefix("///"))
    });
    file.name
        .ends_with(".rs")
        .then(|| prose(&comments.collect::<Vec<_>>().join("\n")))
}

#[test]
fn links_lead_somewhere() {
    let (mut faults, mut checked) = (Vec::new(), 0);
    for file in tree::texts() {
        let Some(text) = text(&file) else { continue };
        for link in links(&text) {
            let is_page = link
                .split('#')
                .next()
                .is_some_and(|path| path.ends_with(".md"));
            if file.name.ends_with(".rs") && !is_page {
                continue;
            }
            checked += 1;
            if let Some(fault) = fault(&file.name, &link) {
                faults.push(format!("{}: {link}: {fault}", file.name));
            }
        }
    }
    assert!(
        faults.is_empty(),
        "{} links:\n{}",
        faults.len(),
        faults.join("\n")
    );
    assert!(checked > 300, "{checked} links: the rule must reach them");
}

/// The scripts `bench/NAME` that a text names.
fn scripts(text: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices("bench/") {
        let name = &text[at + "bench/".len()..];
        let name = &name[..name.find(|c| !is_part(c)).unwrap_or(name.len())];
        let is_ours =
            !text[..at].ends_with(|c| is_part(c) || c == '/') || text[..at].ends_with("../");
        if is_ours && !name.is_empty() {
            found.insert(name.trim_end_matches('.'));
        }
    }
    found
}

#[test]
fn scripts_of_bench_are_named_and_are_there() {
    let files = tree::texts();
    let is_doc = |file: &&File| {
        file.name != "CHANGELOG.md" && (file.name.ends_with(".md") || file.name.ends_with(".csv"))
    };
    let mut named = BTreeSet::new();
    for file in files.iter().filter(is_doc) {
        for script in scripts(&file.text) {
            let path = format!("bench/{script}");
            assert!(
                tree::root().join(&path).exists(),
                "{} names {path}, which is gone",
                file.name
            );
            named.insert(script);
        }
    }
    let folder = tree::root().join("bench");
    let all: Vec<String> = std::fs::read_dir(folder)
        .expect("a folder")
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| !name.starts_with(['.', '_']))
        .collect();
    // What a script imports or builds is named by the script.
    let is_used = |name: &str| {
        let stem = name.split('.').next().unwrap_or_default();
        files.iter().any(|file| {
            file.name.starts_with("bench/")
                && file.name != format!("bench/{name}")
                && !file.name.starts_with(&format!("bench/{name}/"))
                && file.text.contains(stem)
        })
    };
    let is_known = |name: &&String| {
        let is_part = name.contains('.') || tree::root().join("bench").join(name).is_dir();
        named.contains(name.as_str()) || is_part && is_used(name)
    };
    let unnamed: Vec<&String> = all.iter().filter(|name| !is_known(name)).collect();
    assert!(
        unnamed.is_empty(),
        "no document names these scripts of bench: {unnamed:?}"
    );
    assert!(
        all.len() > 30,
        "{} scripts: the rule must reach them",
        all.len()
    );
}

#[test]
fn links_and_headings_are_found() {
    let text = prose(
        "[a](b.md#c) `[d](e.md)` [f](https://g) [h](#i)\n```\n[j](k.md)\n```\n[l](m.md \"n\")",
    );
    assert_eq!(links(&text), ["b.md#c", "#i", "m.md"]);
    let page =
        "# A, `b`\n```\n# no heading\n```\n## `linux-6.18` beside: (c)\n## A, b\n## [d](e.md) f\n";
    let found: Vec<String> = anchors(page).into_iter().collect();
    assert_eq!(found, ["a-b", "a-b-1", "d-f", "linux-618-beside-c"]);
    assert!(
        fault("docs/guide.md", "no-such.md").is_some()
            && fault("docs/guide.md", "../README.md#no-such").is_some()
    );
    assert_eq!(fault("docs/guide.md", "../README.md#foreread"), None);
    let text = "`bench/a-b 3`, x/bench/c, foreread bench/d. ../bench/e.py";
    assert_eq!(
        scripts(text).into_iter().collect::<Vec<_>>(),
        ["a-b", "d", "e.py"]
    );
}
