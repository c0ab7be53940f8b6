//! `foreread check` runs another program, `foreread-check`, which it finds as cargo and git find their subcommands: in the folder of this
//! program, then on the PATH. `foreread-check` replaces this process (exec).
//!
//! ```text
//!   foreread check reproduce all ──► foreread-check reproduce all
//! ```
//! Only `foreread-check` knows which checks exist.

use crate::args::global;
use crate::fail::{Fail, note};
use clap::ValueEnum;
use foreread_os::failure::{Failure, FailureKind};
use foreread_pagecache::program;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Run a check: reproduce, conform, bench, store, replay-log
///
/// The checks are in another program, foreread-check, which receives all arguments.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct CheckArgs {
    /// The arguments of the check; -h lists them
    #[arg(
        value_name = "ARGUMENTS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub arguments: Vec<OsString>,
}

const PROGRAM: &str = "foreread-check";

/// Executes `foreread-check`; returns only on failure.
pub fn run(args: &CheckArgs) -> Result<(), Fail> {
    let beside = beside(program::file());
    let file = beside
        .as_deref()
        .map_or(OsStr::new(PROGRAM), Path::as_os_str);
    warn_of_another_version(file);
    let error = program::command(file).args(words(args)).exec();
    Err(match error.kind() {
        ErrorKind::NotFound => {
            let what = format!(
                "'check' needs the program {PROGRAM}, which is neither beside foreread nor on the PATH"
            );
            let remedy = "install it (cargo install --path check, in foreread's source)";
            Fail::cannot(what, "", remedy)
        }
        _ => {
            let kind = FailureKind::Cannot;
            let refused = program::not_begun(file, &error);
            Failure { kind, ..refused }.into()
        }
    })
}

/// Warns if the two programs have different versions: results hold for the version of foreread-check.
fn warn_of_another_version(file: &OsStr) {
    let mut asked = program::command(file);
    let asked = asked
        .arg("--version")
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    // A program that does not start reports that when it is executed.
    let Ok(answer) = asked.output() else { return };
    let answer = String::from_utf8_lossy(&answer.stdout);
    let own = env!("CARGO_PKG_VERSION");
    if let Some(theirs) = answer.trim().strip_prefix(&format!("{PROGRAM} "))
        && theirs != own
    {
        note(format!(
            "{} has version {theirs} and this foreread has version {own}: the results are those of {theirs}; install both from the same source",
            file.display()
        ));
    }
}

/// The path of a file with that name next to this program, if it exists.
fn beside(own: &Path) -> Option<PathBuf> {
    let file = own.canonicalize().ok()?.with_file_name(PROGRAM);
    file.is_file().then_some(file)
}

/// The arguments for foreread-check: the command, its arguments, and the global options.
fn words(args: &CheckArgs) -> Vec<OsString> {
    let global = global();
    let log = global.log.and_then(|level| level.to_possible_value());
    let log = log.map(|level| OsString::from(format!("--log={}", level.get_name())));
    let force = global.force.then(|| OsString::from("--force"));
    let options = log.into_iter().chain(force);
    // They go after the name of the check, which is the first argument.
    let mut words = args.arguments.clone();
    let at = words.len().min(1);
    words.splice(at..at, options);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_that_name_beside_this_one_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let (own, link) = (folder.path().join("foreread"), folder.path().join("link"));
        std::fs::write(&own, "").expect("written");
        std::os::unix::fs::symlink(&own, &link).expect("linked");
        assert_eq!(beside(&own), None);
        std::fs::write(folder.path().join(PROGRAM), "").expect("written");
        let found = beside(&link).expect("through the link, too");
        assert_eq!(
            found,
            own.canonicalize().expect("there").with_file_name(PROGRAM)
        );
    }
}
