//! The help of a command fits one screen.

use super::foreread;

/// The commands that a help text lists, under `Commands:`.
pub fn listed(help: &str) -> Vec<String> {
    let lines = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty());
    lines
        .filter(|line| !line.starts_with("   "))
        .filter_map(|l| l.split_whitespace().next())
        .map(str::to_string)
        .collect()
}

#[allow(dead_code, reason = "each test binary uses its own part")]
/// The commands of the first page: below its headings, and behind `Also:`.
pub fn commands() -> Vec<String> {
    let page = foreread(["-h"]);
    let mut names = Vec::new();
    for line in page.is_done().lines() {
        if let Some(also) = line.strip_prefix("Also: ") {
            let also = also.split(';').next().unwrap_or_default().split(", ");
            names.extend(also.filter(|name| *name != "help").map(str::to_string));
        } else if let Some(row) = line.strip_prefix("  ") {
            names.extend(row.split_whitespace().next().map(str::to_string));
        }
    }
    names
}

/// Checks the `-h` of a command and of every command below it.
pub fn fits(path: &[&str]) {
    let got = foreread(path.iter().copied().chain(["-h"]));
    let text = got.is_done();
    assert!(
        text.lines().count() <= 24,
        "{path:?}: {} lines:\n{text}",
        text.lines().count()
    );
    let widest = text.lines().map(|l| l.chars().count()).max().unwrap_or(0);
    assert!(widest <= 80, "{path:?}: {widest} columns:\n{text}");
    assert!(text.contains("Usage: foreread"), "{path:?}:\n{text}");
    for command in listed(text) {
        fits(&[path, &[command.as_str()]].concat());
    }
}
