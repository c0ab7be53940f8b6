//! `docs/posts.md` beside the rows: each id that the page names is a row, and each row with a verdict is named.
//!
//! ```text
//!   | 001 | quote of at most eight words | `001/TABLE/LABEL/COLUMN`, or a reason |      `*`: any text within one part
//! ```

use foreread_check::reproduce::Reproduction;

const PAGE: &str = include_str!("../../../docs/posts.md");
/// Longest quote, in words.
const MAX_WORDS: usize = 8;
/// Parts of an id.
const PARTS: usize = 4;

/// The cells of the page's lines on a post: quote, and rows or reason.
fn lines(seed: &str) -> Vec<(&'static str, &'static str)> {
    let cells = PAGE.lines().filter_map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        (cells.first() == Some(&seed)).then_some(cells)
    });
    cells
        .map(|cells| (cells[1], *cells.get(2).expect("three cells")))
        .collect()
}

/// The ids in a cell: what is in backticks and begins with the post.
fn ids<'a>(seed: &'a str, cell: &'a str) -> impl Iterator<Item = &'a str> {
    cell.split('`').skip(1).step_by(2).filter(move |id| {
        id.strip_prefix(seed)
            .is_some_and(|rest| rest.starts_with('/'))
    })
}

/// Whether the pattern names the id: part by part, `*` for any text.
fn names(pattern: &str, id: &str) -> bool {
    let (patterns, parts) = (pattern.split('/'), id.split('/'));
    patterns.clone().count() == parts.clone().count()
        && patterns.zip(parts).all(|(p, part)| is_like(p, part))
}

fn is_like(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => {
            let Some(text) = text.strip_prefix(start) else {
                return false;
            };
            (0..=text.len())
                .filter(|&at| text.is_char_boundary(at))
                .any(|at| is_like(rest, &text[at..]))
        }
    }
}

/// Holds the page against the rows of a post.
#[track_caller]
pub fn assert_page(seed: &str, done: &Reproduction) {
    let lines = lines(seed);
    // A commit has a table of two lines.
    let fewest = if seed == "005" { 2 } else { 15 };
    assert!(lines.len() >= fewest, "{seed}: {} lines", lines.len());
    let mut patterns = Vec::new();
    for (quote, cell) in lines {
        assert!(
            quote.split_whitespace().count() <= MAX_WORDS,
            "{quote}: more than {MAX_WORDS} words"
        );
        assert!(!cell.is_empty(), "{quote}: neither a row nor a reason");
        patterns.extend(ids(seed, cell));
    }
    for pattern in &patterns {
        assert_eq!(pattern.split('/').count(), PARTS, "{pattern}");
        assert!(
            done.rows().any(|row| names(pattern, &row.id)),
            "{pattern}: no such row"
        );
    }
    let unnamed = |row: &&foreread_check::reproduce::Row| {
        !patterns.iter().any(|pattern| names(pattern, &row.id))
    };
    let unnamed: Vec<&str> = done
        .rows()
        .filter(|row| row.kind.is_check())
        .filter(unnamed)
        .map(|row| row.id.as_str())
        .collect();
    assert!(
        unnamed.is_empty(),
        "docs/posts.md does not name {unnamed:#?}"
    );
}

#[test]
fn a_star_stays_within_its_part() {
    assert!(
        names("001/t/4k-run-*/*", "001/t/4k-run-1/mb-s-printed")
            && names("001/*-runs/a*c/d", "001/x-runs/abc/d")
    );
    assert!(
        !names("001/t/*", "001/t/a/b")
            && !names("001/t/4k*", "001/t/16k")
            && !names("001/t/a", "001/t/b")
    );
    assert!(!names("001/t/1-reader-*/x", "001/t/11-reader-1/x"));
}
