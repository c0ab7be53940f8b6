//! Plain English is counted: the words of `tidy-words.txt` may not become more.
//!
//! Every source, script and text of the tree is read ([`ENDINGS`], and scripts without an ending), without quoted lines (`>`
//! in Markdown) and without the list itself. Example: a comment with one word of the list twice counts twice. Lower ALLOWED
//! when the printed count is lower.

use crate::tree::{self, File};
use std::collections::BTreeMap;

/// Endings of files with texts of ours.
const ENDINGS: [&str; 9] = [
    ".rs", ".md", ".py", ".sh", ".toml", ".c", ".h", ".html", ".css",
];

/// Whether a file is read: by its ending, or as a script (no ending, `#!` in front).
fn has_texts(file: &File) -> bool {
    let is_script = !file
        .name
        .rsplit('/')
        .next()
        .unwrap_or_default()
        .contains('.')
        && file.text.starts_with("#!");
    ENDINGS.iter().any(|ending| file.name.ends_with(ending)) || is_script
}

/// How often `words` occur in `line` as whole words.
fn occurrences(line: &str, words: &str) -> usize {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let at = |start: usize| {
        let (before, after) = (
            line[..start].chars().next_back(),
            line[start + words.len()..].chars().next(),
        );
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    };
    line.match_indices(words)
        .filter(|(start, _)| at(*start))
        .count()
}

/// The limit and the words of the list.
fn list() -> (usize, Vec<String>) {
    let text = include_str!("tidy-words.txt");
    let lines = || {
        text.lines()
            .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
    };
    let allowed = lines()
        .find_map(|line| line.strip_prefix("ALLOWED "))
        .expect("a limit");
    let words = lines()
        .filter(|line| !line.starts_with("ALLOWED"))
        .map(|line| line.trim().to_lowercase());
    (allowed.trim().parse().expect("a number"), words.collect())
}

#[test]
fn words_that_are_going_do_not_come_back() {
    let (allowed, words) = list();
    let (mut counts, mut by_file) = (BTreeMap::new(), BTreeMap::new());
    for file in tree::texts()
        .iter()
        .filter(|file| has_texts(file) && !file.name.ends_with("/tidy_words.rs"))
    {
        let text = file.text.to_lowercase();
        for line in text.lines().filter(|line| !line.starts_with('>')) {
            for word in &words {
                let n = occurrences(line, word);
                *counts.entry(word.as_str()).or_insert(0) += n;
                *by_file.entry(file.name.clone()).or_insert(0) += n;
            }
        }
    }
    let total: usize = counts.values().sum();
    let mut worst: Vec<(String, usize)> = by_file.into_iter().filter(|(_, n)| *n > 0).collect();
    worst.sort_by_key(|(name, n)| (std::cmp::Reverse(*n), name.clone()));
    worst.truncate(20);
    println!("{total} of at most {allowed}: {counts:?}; most in {worst:?}");
    assert!(
        total <= allowed,
        "{total} words of tidy-words.txt, {allowed} are allowed: {counts:?}; most in {worst:?}"
    );
}

#[test]
fn whole_words_are_counted() {
    assert_eq!(
        occurrences("whoever waits is told, and is told again", "is told"),
        2
    );
    assert_eq!(occurrences("the who-list, whole, who_is", "who"), 0);
}
