//! What the texts cite exists: pages of `docs/spec`, their sections, and what the scripts install.
//!
//! A citation is a page and, behind it, numbers of its headings: `docs/spec/linux-readahead.md 2.7` needs a heading that
//! begins `### 2.7 `. Several numbers go with commas, "and" and "to". A citation may go on in the next line of a comment.

use crate::tree::{self, File, read};
use std::collections::BTreeSet;

const MAX_DECISION_LINES: usize = 60;

/// Every text of the tree but this file, whose examples cite what does not exist.
fn texts() -> impl Iterator<Item = File> {
    tree::texts()
        .into_iter()
        .filter(|file| !file.name.ends_with("/tidy_docs.rs"))
}

/// Words of a text, without the signs that open a line of a comment.
fn words(text: &str) -> Vec<&str> {
    text.split_whitespace()
        .filter(|word| !["//!", "///", "//", "#", "*"].contains(word))
        .collect()
}

/// Page and section of each citation; the page alone where no number follows it.
fn citations(text: &str) -> Vec<(String, Option<String>)> {
    let (words, mut found) = (words(text), Vec::new());
    for (i, word) in words.iter().enumerate() {
        let Some((_, rest)) = word.split_once("docs/spec/") else {
            continue;
        };
        let Some((page, behind)) = rest.split_once(".md") else {
            continue;
        };
        found.push((page.to_string(), None));
        if !behind.is_empty() {
            continue;
        }
        for next in &words[i + 1..] {
            let number = next.trim_matches(|c: char| !c.is_ascii_digit());
            let is_number =
                !number.is_empty() && number.chars().all(|c| c.is_ascii_digit() || c == '.');
            match next.trim_end_matches([',', ';']) {
                "and" | "to" => {}
                _ if is_number && next.starts_with(|c: char| c.is_ascii_digit()) => {
                    found.push((page.to_string(), Some(number.to_string())));
                    if !next.ends_with(',') && next.len() > number.len() {
                        break; // a full stop, a bracket, a semicolon: the list ends
                    }
                }
                _ => break,
            }
        }
    }
    found
}

/// Numbers of the headings of a page: "## 4. State" and "### 4.12 Examples".
fn sections(page: &str) -> BTreeSet<String> {
    let heads = page
        .lines()
        .filter(|line| line.starts_with("## ") || line.starts_with("### "));
    let numbers = heads.filter_map(|line| line.trim_start_matches('#').split_whitespace().next());
    numbers
        .map(|number| number.trim_end_matches('.').to_string())
        .collect()
}

#[test]
fn every_cited_section_exists() {
    let mut checked = 0;
    for File { name, text } in texts() {
        for (page, section) in citations(&text) {
            let path = format!("docs/spec/{page}.md");
            assert!(
                tree::root().join(&path).is_file(),
                "{name} cites {path}, which does not exist"
            );
            let Some(section) = section else { continue };
            assert!(
                sections(&read(&path)).contains(&section),
                "{name} cites section {section} of docs/spec/{page}.md"
            );
            checked += 1;
        }
    }
    assert!(
        checked > 60,
        "{checked} citations: the rule must reach them"
    );
}

#[test]
fn specifications_are_cited_by_path() {
    for File { name, text } in texts() {
        let words = words(&text).join(" ");
        for page in ["linux-readahead", "rbd-readahead", "section", "sections"] {
            assert!(
                !words.contains(&format!("spec {page}")),
                "{name}: cite docs/spec/PAGE.md N, not \"spec {page}\""
            );
        }
        assert!(
            !words.contains("../shared"),
            "{name}: cites what no clone has"
        );
    }
}

/// Rows of the index: `- [0012](0012-a.md) Title (0020, 0022)`, the number of a record and those that it replaces.
fn index() -> Vec<(String, Vec<u32>)> {
    let index = read("docs/decisions/README.md");
    let rows = index.lines().filter_map(|line| line.strip_prefix("- ["));
    rows.map(|row| {
        let (number, rest) = row.split_once("](").expect("a link");
        let (file, title) = rest.split_once(')').expect("a link");
        assert!(file.starts_with(number), "{row}: another file");
        let replaced = title
            .rsplit_once(" (")
            .and_then(|(_, numbers)| numbers.strip_suffix(')'));
        let numbers = replaced.unwrap_or_default().split(", ");
        let numbers = numbers
            .chain([number])
            .filter_map(|number| number.parse().ok());
        (file.to_string(), numbers.collect())
    })
    .collect()
}

#[test]
fn every_decision_is_in_the_index_once() {
    let rows = index();
    let listed: Vec<String> = rows
        .iter()
        .map(|(file, _)| format!("docs/decisions/{file}"))
        .collect();
    let mut files = Vec::new();
    for file in tree::files("docs/decisions") {
        if !file.name.ends_with("/README.md") {
            assert_eq!(
                listed.iter().filter(|name| **name == file.name).count(),
                1,
                "docs/decisions/README.md lists {} once",
                file.name
            );
            files.push(file.name);
        }
    }
    assert_eq!(
        listed.len(),
        files.len(),
        "docs/decisions/README.md lists a file that is not there"
    );
    let mut numbers: Vec<u32> = rows.into_iter().flat_map(|(_, numbers)| numbers).collect();
    let all = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(
        numbers.len(),
        all,
        "docs/decisions/README.md has a number twice"
    );
}

/// Context, decision, consequences, on a page; what a record replaces is in the index too.
#[test]
fn decisions_have_one_form() {
    for (file, numbers) in index() {
        let text = read(&format!("docs/decisions/{file}"));
        let heads: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("## "))
            .collect();
        assert_eq!(
            heads,
            ["## Context", "## Decision", "## Consequences"],
            "{file}"
        );
        assert!(
            text.lines().count() <= MAX_DECISION_LINES,
            "{file}: longer than a page"
        );
        let intro: String = text.split("## ").next().expect("text").replace('\n', " ");
        let replaced = intro
            .split_once("Replaces ")
            .map_or("", |(_, numbers)| numbers);
        let replaced = replaced
            .trim()
            .trim_end_matches('.')
            .split(", ")
            .filter_map(|number| number.parse::<u32>().ok());
        assert_eq!(
            replaced.count() + 1,
            numbers.len(),
            "{file}: replaces what the index says"
        );
    }
}

/// "decision 152", "docs/decisions/0106" and links to a page: the number is that of a record, or of one that a record replaces.
#[test]
fn every_cited_decision_exists() {
    let known: BTreeSet<u32> = index()
        .into_iter()
        .flat_map(|(_, numbers)| numbers)
        .collect();
    let mut checked = 0;
    for File { name, text } in texts() {
        for number in decisions(&text) {
            assert!(
                known.contains(&number),
                "{name} cites decision {number}, which is gone"
            );
            checked += 1;
        }
        for path in text
            .split("decisions/")
            .skip(1)
            .filter(|path| path.starts_with('0'))
        {
            let Some((page, _)) = path.split_once(".md") else {
                continue;
            };
            let is_page = page.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
            let page = format!("docs/decisions/{page}.md");
            assert!(
                !is_page || tree::root().join(&page).is_file(),
                "{name} links to {page}, which is gone"
            );
        }
    }
    assert!(
        checked > 100,
        "{checked} citations: the rule must reach them"
    );
}

/// The numbers of the decisions that a text cites. No decision has a number from 1000 on.
fn decisions(text: &str) -> Vec<u32> {
    let words = words(text);
    let number = |word: &str| {
        let digits: String = word.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok().filter(|number| *number < 1000)
    };
    let after_word = words
        .windows(2)
        .filter(|pair| pair[0].trim_matches(['[', '(']) == "decision");
    let paths = words.iter().flat_map(|word| {
        word.split("decisions/")
            .skip(1)
            .chain(word.split("](").skip(1))
    });
    let in_paths = paths.filter(|path| path.starts_with("0"));
    after_word
        .filter_map(|pair| number(pair[1]))
        .chain(in_paths.filter_map(number))
        .collect()
}

/// README is what a newcomer sees first: short, within 120 columns, and with the install line before anything is explained.
#[test]
fn the_readme_is_one_screen_and_a_half() {
    let text = read("README.md");
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines.len() <= 130,
        "README.md has {} lines, 130 are allowed",
        lines.len()
    );
    for (i, line) in lines.iter().enumerate() {
        assert!(
            line.chars().count() <= 120,
            "README.md:{}: {} columns, 120 are allowed",
            i + 1,
            line.chars().count()
        );
    }
    let first = lines[..40].join("\n");
    for word in ["readahead", "cargo install --path cli", "oracle"] {
        assert!(
            first.contains(word),
            "the first screen of README.md lacks {word:?}"
        );
    }
}

#[test]
fn tools_are_installed_at_a_version() {
    for name in ["setup", "test", "test-long", ".ci/run"] {
        let text = read(name);
        assert!(
            !text.contains("@latest"),
            "{name}: installs what changes under it; name a version"
        );
    }
}

#[test]
fn cited_decisions_are_found() {
    let text = "//! as by decision\n//! 152; (docs/decisions/0106), [0109](0109-a.md), [x](decisions/0007-b.md), decision 1028";
    assert_eq!(decisions(text), [152, 106, 109, 7]);
}

#[test]
fn citations_are_found_over_lines() {
    let text = "//! Source: docs/spec/a.md 2.3,\n//! 2.4 and 3; more. docs/spec/b.md 4.2 to 4.10. 7 more, docs/spec/c.md";
    let found = citations(text);
    let numbers: Vec<String> = found
        .iter()
        .map(|(p, s)| format!("{p} {}", s.as_deref().unwrap_or("-")))
        .collect();
    assert_eq!(
        numbers,
        [
            "a -", "a 2.3", "a 2.4", "a 3", "b -", "b 4.2", "b 4.10", "c -"
        ]
    );
}
