//! Parses `WORKLOAD|TRACE` of `compare`: the name of a workload, or a trace file.
//!
//! ```text
//!   trace:FILE                             a trace
//!   NAME[:key=value,...], NAME is known    a workload, even if there is a file of this name
//!   anything else                          a trace if the file exists, otherwise an error with a suggestion
//! ```
//! Only files and block devices are opened, because opening a FIFO could block forever.

use crate::fail::{Fail, one_line};
use crate::traces;
use foreread::source::SourceName;
use foreread_history::workloads;
use foreread_lab::replay::{self, LoadedTrace, Mode, Replay};
use foreread_report::names;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Options of a replay: which part of a trace is replayed, and how.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ReplayArgs {
    /// How a replay is timed [default: the best mode that the trace allows]
    ///
    /// Times of different modes cannot be compared.
    #[arg(long, value_name = "MODE", hide_short_help = true)]
    pub mode: Option<Mode>,
    /// Multiply the recorded pauses of a trace by this factor, such as 0.5
    ///
    /// Mode asap adds no pauses unless this option is given; then it adds the recorded gaps between the starts of reads,
    /// times the factor. For a trace whose think time is unknown, the factors 0, 0.5, 1 and 2 show how much it matters
    /// ('foreread compare TRACE --vary think=0,0.5,1,2').
    #[arg(long, value_name = "FACTOR", hide_short_help = true)]
    pub think: Option<f64>,
    /// Replay only the first N records of a trace
    #[arg(long, value_name = "N", hide_short_help = true, value_parser = clap::value_parser!(u64).range(1..))]
    pub records: Option<u64>,
    /// Replay only the files of a trace whose names contain TEXT
    #[arg(long, value_name = "TEXT", hide_short_help = true)]
    pub only: Option<String>,
    /// The format of the trace, NAME[:key=value,...] [default: detected by content]
    #[arg(long, value_name = "FORMAT", hide_short_help = true)]
    pub format: Option<String>,
}

/// The reads that an argument selects: a workload, or a trace that has not been opened yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestedReads {
    /// The default workloads.
    Usual,
    /// `NAME:key=value,...`, which the lab parses.
    Workload(String),
    Trace(PathBuf),
}

const REMEDY: &str =
    "name the file of a trace, or a workload ('foreread list workloads' lists them)";

/// Decides whether an argument is a workload or a trace.
pub fn parse(text: Option<&OsStr>) -> Result<RequestedReads, Fail> {
    let Some(text) = text else {
        return Ok(RequestedReads::Usual);
    };
    if let Some(path) = text.as_bytes().strip_prefix(b"trace:") {
        return file(Path::new(OsStr::from_bytes(path)), text).map(RequestedReads::Trace);
    }
    let name = text.to_string_lossy();
    let known: Vec<&str> = workloads().iter().map(|info| info.name).collect();
    if known.contains(&name.split(':').next().unwrap_or_default()) {
        return Ok(RequestedReads::Workload(name.into_owned()));
    }
    let path = Path::new(text);
    if path.exists() || name.contains(['/', '.']) {
        return file(path, text).map(RequestedReads::Trace);
    }
    let mut unknown = names::unknown("workload", &name, &known, "foreread list workloads");
    unknown.remedy += ", and there is no trace file of this name";
    Err(unknown.into())
}

/// Checks that a path can be read.
fn file(path: &Path, text: &OsStr) -> Result<PathBuf, Fail> {
    let what = match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "no such trace".to_string(),
        Err(error) => error.to_string(),
        Ok(meta) if meta.is_dir() => "a directory is not a trace".to_string(),
        Ok(meta) if !meta.is_file() => "not a regular file".to_string(),
        Ok(_) => return Ok(path.to_path_buf()),
    };
    Err(Fail::input(&what, text.display(), REMEDY))
}

impl ReplayArgs {
    /// Returns an error if any of these options is given; called for workloads, because the options work only with a trace.
    pub fn none_is_set(&self) -> Result<(), Fail> {
        let given = [
            ("--mode", self.mode.is_some()),
            ("--think", self.think.is_some()),
            ("--records", self.records.is_some()),
            ("--only", self.only.is_some()),
            ("--format", self.format.is_some()),
        ];
        match given.iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(Fail::input("this option needs a trace", option, REMEDY)),
            None => Ok(()),
        }
    }
}

/// Reads the trace and prepares the replay of the part that the options select.
pub fn ready(path: &Path, args: &ReplayArgs) -> Result<Replay, Fail> {
    ready_of(path, args, None)
}

/// Like [`ready`], but replays only the reads of files with these names.
pub fn ready_of(
    path: &Path,
    args: &ReplayArgs,
    files: Option<Arc<BTreeSet<String>>>,
) -> Result<Replay, Fail> {
    let import = traces::open(path, args.format.as_deref())?;
    let part = replay::Part {
        limit: args.records,
        only: args.only.clone(),
        files,
    };
    let mut loaded: LoadedTrace = replay::load(&path.display().to_string(), import, &part)?;
    // Errors use the path. Tables and advice repeat the name often, so they use only the file name.
    loaded.name = called(path);
    Ok(Replay::of(&Arc::new(loaded), args.mode, args.think)?)
}

/// The name of a trace in results.
fn called(path: &Path) -> String {
    one_line(
        &path
            .file_name()
            .unwrap_or(path.as_os_str())
            .to_string_lossy(),
    )
}

/// The command line of this process without the options `dropped` and their values, and without secrets in the name of the source.
pub fn again(on: Option<&SourceName>, dropped: &[&str]) -> Vec<String> {
    let given = std::env::args_os().skip(1);
    let given = given.map(|word| word.to_string_lossy().into_owned());
    without(given, on, dropped)
}

fn without(
    given: impl Iterator<Item = String>,
    on: Option<&SourceName>,
    dropped: &[&str],
) -> Vec<String> {
    let mut words = vec!["foreread".to_string()];
    let mut is_value = false;
    for word in given {
        // The value of --json may be missing.
        if std::mem::take(&mut is_value) && !word.starts_with("--") {
            continue;
        }
        let (option, value) = match word.split_once('=') {
            Some((option, value)) if option.starts_with("--") => (option, Some(value)),
            _ => (word.as_str(), None),
        };
        match (option, on) {
            _ if dropped.contains(&option) => is_value = value.is_none(),
            ("--on", Some(on)) => {
                words.extend(["--on".to_string(), on.to_string()]);
                is_value = value.is_none();
            }
            _ => words.push(word),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreread_lab::verdict::in_shell;
    use std::ffi::OsString;

    #[test]
    fn the_next_command_measures_the_same_and_has_no_secret() {
        let name = "https://user:secret@host/object?token=secret";
        for (given, on, dropped, next) in [
            (
                "compare random --on model:rbd --runs 1 --memory 1M --time=3s --policy auto"
                    .to_string(),
                "model:rbd",
                ["--runs", "--time"],
                "foreread compare random --on model:rbd --memory 1M --policy auto",
            ),
            (
                "explain a/b.frt --json --only x --on model:rbd --json - --policy none".to_string(),
                "model:rbd",
                ["--policy", "--json"],
                "foreread explain a/b.frt --only x --on model:rbd",
            ),
            (
                format!("compare random --on {name}"),
                name,
                ["--runs", "--time"],
                "",
            ),
            (
                format!("compare random --on={name}"),
                name,
                ["--runs", "--time"],
                "",
            ),
        ] {
            let on = SourceName::from(on.to_string());
            let got = in_shell(without(
                given.split(' ').map(String::from),
                Some(&on),
                &dropped,
            ));
            assert!(
                !got.contains("secret") && (next.is_empty() || got == next),
                "{got}"
            );
        }
    }

    fn error(text: &OsString) -> String {
        crate::fail::input_line(parse(Some(text)))
    }

    #[test]
    fn names_come_before_files_and_files_before_errors() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let path = dir.path().join("random");
        std::fs::write(&path, b"x").expect("written");
        let marked = |path: &Path| {
            [OsStr::new("trace:"), path.as_os_str()]
                .into_iter()
                .collect::<OsString>()
        };
        assert!(matches!(parse(Some(path.as_os_str())), Ok(RequestedReads::Trace(p)) if p == path));
        assert!(matches!(parse(Some(&marked(&path))), Ok(RequestedReads::Trace(p)) if p == path));
        let is = |text: &str| parse(Some(OsStr::new(text))).ok();
        assert_eq!(
            is("random:count=3"),
            Some(RequestedReads::Workload("random:count=3".to_string()))
        );
        assert_eq!(parse(None).ok(), Some(RequestedReads::Usual));
        assert!(error(&marked(Path::new("random"))).starts_with("no such trace: trace:random;"));
        assert!(error(&dir.path().into()).starts_with("a directory is not a trace"));
        assert!(error(&"/dev/null".into()).starts_with("not a regular file"));
    }
}
