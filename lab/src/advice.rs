//! The means to read ahead, from the cheapest to the dearest, and the lines that begin each.
//!
//! ```text
//!   setting    a value of the kernel             set once, for all programs
//!   run        foreread run -- CMD               before the command, for one run; reads what it is about to read
//!   hint       posix_fadvise                     a change of the program
//!   policy     serve, mount, library             another path to the bytes
//!   replay     foreread plan, foreread replay    only where a program reads the same each time, which is not for a tool to know
//! ```
//! The advice is the cheapest that is within 5 % of the best. Example: `grep -r` over 2,000 files of 3 ms. No setting helps, as no file is
//! long enough; `run` lists the folders ahead of it. Measured 0.79 s beside 7.41 s.
//!
//! Never: a line that does not exist for the storage.

use crate::replay::LoadedTrace;
use std::collections::BTreeSet;

/// In the order of what they cost the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Means {
    Setting,
    Run,
    Hint,
    Policy,
}

/// Fewer files are no walk.
const WALK_FILES: usize = 32;
/// Part of the files that a walk reads to their ends.
const WALK_WHOLE: f64 = 0.8;
/// Files of a folder, in the mean: `run` lists a folder from its second file on.
const WALK_IN_FOLDER: usize = 4;

/// A program that goes through folders and reads their files to the end, one after the other. `run` knows what it reads next by listing the
/// folders.
#[must_use]
pub fn is_walk(trace: &LoadedTrace) -> bool {
    let files = trace
        .names
        .iter()
        .zip(&trace.files)
        .zip(trace.read_of_files());
    let (mut count, mut whole, mut folders) = (0_usize, 0_usize, BTreeSet::new());
    for ((name, size), read) in files {
        count += 1;
        whole += usize::from(read.bytes >= *size);
        folders.insert(name.rsplit_once('/').map_or("", |(folder, _)| folder));
    }
    count >= WALK_FILES
        && whole as f64 >= WALK_WHOLE * count as f64
        && folders.len() * WALK_IN_FOLDER <= count
}

/// Arguments as a shell wants them.
#[must_use]
pub fn in_shell(words: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@,%".contains(c);
    let quoted = words.into_iter().map(|word| {
        let word = word.as_ref();
        if !word.is_empty() && word.chars().all(plain) {
            word.to_string()
        } else if word.chars().any(char::is_control) {
            // A line of a screen is one line, and a paste is what was run.
            let escaped = word.chars().map(|c| match c {
                '\'' | '\\' => format!("\\{c}"),
                c if c.is_control() => format!("\\u{:04x}", u32::from(c)),
                c => c.to_string(),
            });
            format!("$'{}'", escaped.collect::<String>())
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    });
    quoted.collect::<Vec<String>>().join(" ")
}

/// The lines of a plan: of a trace, and for its command.
#[must_use]
pub fn replay_lines(trace: &str, command: &str) -> String {
    let plan = format!("{}.plan", trace.strip_suffix(".frt").unwrap_or(trace));
    // A name is no option.
    let named = |name: &str| {
        let dir = if name.starts_with('-') { "./" } else { "" };
        in_shell([format!("{dir}{name}")])
    };
    let (trace, plan) = (named(trace), named(&plan));
    format!("foreread plan {trace} --out {plan}\nforeread replay {plan} -- {command}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_split_them() {
        for (words, wanted) in [
            (&["grep", "-r", "a b"][..], "grep -r 'a b'"),
            (&["it's", ""][..], "'it'\\''s' ''"),
            (&["x=1;rm"][..], "'x=1;rm'"),
            (
                &["import os\nos.x('\u{1b}')"][..],
                "$'import os\\u000aos.x(\\'\\u001b\\')'",
            ),
            (&["/a/b.img"][..], "/a/b.img"),
        ] {
            assert_eq!(in_shell(words), wanted);
        }
        assert_eq!(
            replay_lines("a b.frt", "./app"),
            "foreread plan 'a b.frt' --out 'a b.plan'\nforeread replay 'a b.plan' -- ./app"
        );
    }
}
