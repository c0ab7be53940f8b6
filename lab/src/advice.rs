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
//! [`after_compare`] says which line follows from a comparison. Never: a line that does not exist for the storage.

use crate::replay::LoadedTrace;
use crate::report::{Decision, Report, by_source, decide, in_walk};
use foreread_core::policy::DEFAULT;
use foreread_os::threads::Task;
use foreread_report::block::Block;
use foreread_report::number::TIE;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

/// In the order of what they cost the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Means {
    Setting,
    Run,
    Hint,
    Policy,
}

/// Fewer files are no walk.
const WALK_FILES: usize = 32;
/// Part of the files that a walk reads to their ends, and in the order of their folders.
const WALK_WHOLE: f64 = 0.8;
/// Entries of a folder that a walk passes over at most: other kinds of files, and those that it was told to.
const WALK_NEAR: usize = 8;
/// Folders that are listed, and entries of each.
const MAX_LISTED: usize = 256;
const MAX_ENTRIES: usize = 1 << 16;
/// Files of a folder, in the mean: `run` lists a folder from its second file on.
const WALK_IN_FOLDER: usize = 4;

/// Whether 'foreread run' can help the program of a trace: it reads ahead into the page cache. What a workload of ours reads is not known to
/// pass it by.
#[must_use]
pub fn can_run(trace: Option<&LoadedTrace>) -> bool {
    trace.is_none_or(LoadedTrace::is_through_page_cache)
}

/// A program that goes through folders and reads their files to the end, one after the other, in the order in which their folders list them.
/// `run` knows what it reads next by listing the folders. A compiler reads whole headers of one folder too, and in another order: there
/// `run` gained nothing, and cost a tenth.
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
        && follows_folders(trace)
}

/// Whether most files come after the one that their folder lists before them, or few places behind it. Folders that are not on this machine say
/// nothing.
fn follows_folders(trace: &LoadedTrace) -> bool {
    let mut listed: BTreeMap<&str, BTreeMap<OsString, usize>> = BTreeMap::new();
    let (mut asked, mut followed) = (0_usize, 0_usize);
    let names: Vec<(&str, &str)> = trace
        .files_in_order()
        .into_iter()
        .filter_map(|file| trace.names[file].rsplit_once('/'))
        .collect();
    for pair in names.windows(2) {
        let [(before, one), (folder, next)] = [pair[0], pair[1]];
        let is_new = !listed.contains_key(folder);
        if before != folder || is_new && listed.len() >= MAX_LISTED {
            continue;
        }
        if is_new {
            let Some(found) = places(folder) else { break };
            listed.insert(folder, found);
        }
        let places = &listed[folder];
        let place = |name: &str| places.get(OsStr::new(name));
        if let Some((one, next)) = place(one).zip(place(next)) {
            asked += 1;
            followed += usize::from((one + 1..=one + WALK_NEAR).contains(next));
        }
    }
    followed as f64 >= WALK_WHOLE * asked as f64
}

/// A folder that takes longer is on a storage that does not answer: a trace may name a mount whose server is gone.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where each entry of a folder is in its list: none of a folder that is not here. Nothing where it does not answer.
fn places(folder: &str) -> Option<BTreeMap<OsString, usize>> {
    let folder = PathBuf::from(folder);
    if !folder.is_absolute() {
        return Some(BTreeMap::new());
    }
    let listed = Task::start("foreread-list", move || {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name());
        names.zip(0..MAX_ENTRIES).collect()
    });
    listed.ok()?.within(PATIENCE)
}

/// What to do after a measurement: why, and the line to paste.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextStep {
    pub why: String,
    pub line: String,
}

impl NextStep {
    pub(crate) fn new(why: &str, line: String) -> NextStep {
        NextStep {
            why: why.to_string(),
            line,
        }
    }

    /// Below a result, after an empty line.
    #[must_use]
    pub fn blocks(&self) -> [Block; 3] {
        [
            Block::Gap,
            Block::Screen(format!("Next:{TIE}{}", self.why)),
            Block::line(format!("    {}", self.line)),
        ]
    }

    /// On a page: no place, the line, and why.
    #[must_use]
    pub fn copy(&self) -> [String; 3] {
        let mut letters = self.why.chars();
        let first = letters.next().into_iter().flat_map(char::to_uppercase);
        let why = first.chain(letters).collect();
        [String::new(), self.line.clone(), why]
    }

    fn of_walk(trace: &str) -> NextStep {
        NextStep::new(
            &format!("{}:", in_walk(trace)),
            "foreread run -- CMD".to_string(),
        )
    }

    fn of_program(line: impl Into<String>) -> NextStep {
        NextStep::new("what a program of yours needs:", line.into())
    }
}

/// After a comparison. `again`: the same comparison with this many runs. Nothing where no command of foreread would gain.
#[must_use]
pub fn after_compare(reports: &[Report], again: impl Fn(u32) -> String) -> Option<NextStep> {
    let first = reports
        .first()
        .filter(|_| reports.iter().all(Report::is_whole))?;
    if by_source(reports).len() > 1 {
        return Some(NextStep::of_program("foreread tune -- CMD"));
    }
    if let Some(walk) = reports.iter().find(|report| report.is_walk) {
        return Some(NextStep::of_walk(&walk.workload));
    }
    let decision = decide(reports);
    if let Decision::MoreRuns(runs) = decision {
        let why = "more runs show what these leave open:";
        return Some(NextStep::new(why, again(runs)));
    }
    for_storage(&first.source, decision)
}

/// The line for this kind of storage. Nothing for an export from which nothing gains: its
/// clients speak NBD already.
fn for_storage(name: &str, decision: Decision<'_>) -> Option<NextStep> {
    let source = in_shell([name]);
    let policy = match decision {
        Decision::Take(policy) => policy,
        Decision::MoreRuns(_) | Decision::Nothing => "none",
    };
    let flag = match policy {
        DEFAULT => String::new(),
        policy => format!(" --policy {}", in_shell([policy])),
    };
    let served = |why: &str| {
        let line = format!("foreread serve {source} --unix foreread.sock{flag}");
        NextStep::new(why, line)
    };
    let kind = name.split_once(':').map_or("file", |(kind, _)| kind);
    let is_export = matches!(kind, "nbd" | "nbd+unix" | "nbds" | "nbds+unix");
    if is_export && policy == "none" {
        return None;
    }
    Some(match kind {
        "file" => NextStep::of_program("foreread tune -- CMD"),
        "model" | "model-live" => {
            let model = source.replacen("model-live:", "model:", 1);
            NextStep::of_program(format!("foreread tune --on {model} -- CMD"))
        }
        _ if is_export || kind == "rbd" => {
            served("serve it so to virtual machines and other clients of NBD:")
        }
        _ if cfg!(feature = "fuse") => {
            let line = format!("foreread mount {source} DIR{flag}");
            NextStep::new("mount it so for programs:", line)
        }
        _ => served("serve it so to clients of NBD:"),
    })
}

/// The line for files of which a file system of FUSE drops what is cached: a mount of what is behind it, by the kind of the file system as
/// mountinfo has it.
#[must_use]
pub fn mount_behind(kind: &str, flag: &str) -> String {
    let is_of = |word: &str| kind.contains(word);
    let source = match kind {
        _ if is_of("nbdfuse") => "nbd://HOST/EXPORT",
        _ if is_of("gcsfuse") => "gs://BUCKET",
        _ if is_of("blobfuse") => "az://CONTAINER",
        _ => "s3://BUCKET",
    };
    match cfg!(feature = "fuse") {
        true => format!("foreread mount {source} DIR{flag}"),
        false => format!("foreread serve {source} --unix foreread.sock{flag}"),
    }
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

/// The same from the recording on, for a command of which there is no trace yet.
#[must_use]
pub fn record_lines(command: &str) -> String {
    let trace = "run.frt";
    format!(
        "foreread record -o {trace} -- {command}\n{}",
        replay_lines(trace, command)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Table;
    use crate::report::samples::{runs, table};

    fn measured(source: &str, auto: f64) -> Table {
        let rows = [("none", 1.0), ("linux-6.18:max=4M", 0.5), ("auto", auto)];
        let rows = rows.map(|(name, time)| runs(name, &[time; 3], 0, 0, 4_096_000));
        table("w", source, rows.to_vec())
    }

    #[test]
    fn only_lines_that_exist_for_the_storage() {
        let of = |tables: &[Table]| {
            let reports: Vec<Report> = tables.iter().map(Report::of).collect();
            let again = |runs| format!("foreread compare --runs {runs}");
            after_compare(&reports, again).expect("there is one").line
        };
        let mount = |flag: &str| match cfg!(feature = "fuse") {
            true => format!("foreread mount s3://b/k DIR{flag}"),
            false => format!("foreread serve s3://b/k --unix foreread.sock{flag}"),
        };
        for (source, auto, line) in [
            ("file:/a b", 0.5, "foreread tune -- CMD"),
            ("model:rbd", 0.5, "foreread tune --on model:rbd -- CMD"),
            ("model-live:rbd", 0.5, "foreread tune --on model:rbd -- CMD"),
            (
                "nbd://h/x y",
                0.5,
                "foreread serve 'nbd://h/x y' --unix foreread.sock",
            ),
            (
                "rbd:p/i",
                0.6,
                "foreread serve rbd:p/i --unix foreread.sock --policy linux-6.18:max=4M",
            ),
            ("s3://b/k", 0.5, &mount("")),
            ("s3://b/k", 0.6, &mount(" --policy linux-6.18:max=4M")),
        ] {
            assert_eq!(of(&[measured(source, auto)]), line);
        }
        let mut walk = Report::of(&measured("file:x", 1.0));
        walk.is_walk = true;
        let step = after_compare(&[walk], |_| String::new()).expect("there is one");
        assert_eq!(step.line, "foreread run -- CMD");
        // Nothing gains, and clients of NBD need no other server for that.
        let mut same = measured("nbd://h/x", 1.0);
        same.policies.retain(|row| !row.policy.starts_with("linux"));
        let step = after_compare(&[Report::of(&same)], |_| String::new());
        assert_eq!(step, None);
        let two = [measured("file:x", 0.5), measured("model:rbd", 0.5)];
        assert_eq!(of(&two), "foreread tune -- CMD");
        let mut once = measured("s3://b/k", 0.5);
        once.policies.iter_mut().for_each(|p| p.runs.truncate(1));
        once.runs = 1;
        assert_eq!(of(&[once]), "foreread compare --runs 5");
    }

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
            record_lines("./app"),
            "foreread record -o run.frt -- ./app\nforeread plan run.frt --out run.plan\nforeread replay run.plan -- ./app"
        );
        assert_eq!(
            replay_lines("a b.frt", "./app"),
            "foreread plan 'a b.frt' --out 'a b.plan'\nforeread replay 'a b.plan' -- ./app"
        );
    }
}
