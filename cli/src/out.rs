//! Destinations of results: stdout, or the file of `--json` or `--html`.
//!
//! Whether a file can be written is checked before the measurement starts. An existing file is replaced only with `--force`, and only by a
//! complete result ([`foreread_os::output`]). A closed pipe is not an error (`foreread list policies | head -1`).

use crate::args::global;
use crate::fail::Fail;
use foreread_os::output;
use foreread_report::width;
use std::ffi::OsStr;
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Prints a complete result to stdout.
pub fn print(text: impl AsRef<[u8]>) -> Result<(), Fail> {
    let mut stdout = std::io::stdout().lock();
    stdout
        .write_all(text.as_ref())
        .and_then(|()| stdout.flush())
        .map_err(|error| match error.kind() {
            ErrorKind::BrokenPipe => Fail::Closed,
            _ => Fail::input(
                "cannot write",
                format!("stdout: {error}"),
                "free some space or write elsewhere",
            ),
        })
}

/// Returns whether stdout is a terminal and `NO_COLOR` is not set (no-color.org).
pub fn may_style() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// Sets the text width to `COLUMNS`, or to the terminal's width, or to 100 columns for a file.
pub fn fit_terminal() {
    let told = std::env::var("COLUMNS")
        .ok()
        .and_then(|columns| columns.parse().ok());
    let own = || {
        terminal_size::terminal_size_of(std::io::stdout())
            .map(|(columns, _)| usize::from(columns.0))
    };
    if let Some(columns) = told.or_else(own) {
        width::set(columns);
    }
}

/// The destinations of a command's result: text to stdout, JSON to a file or instead of the text, and further files.
///
/// Every file is checked when this value is created, before the measurement starts.
#[derive(Debug)]
pub struct Outputs {
    /// JSON instead of the text.
    json_to_stdout: bool,
    files: Vec<(&'static str, PathBuf)>,
}

impl Outputs {
    /// Creates the destinations from the options that name files, in the order in which messages list the options. If `json` is '-', the
    /// JSON goes to stdout.
    pub fn new(options: &[(&'static str, Option<&OsStr>)]) -> Result<Outputs, Fail> {
        let mut outputs = Outputs {
            json_to_stdout: false,
            files: Vec::new(),
        };
        for (option, text) in options {
            match text {
                Some(text) if *option == "json" && *text == "-" => outputs.json_to_stdout = true,
                // The word may be the next argument: a disk, a workload, a folder.
                Some(text) if *option == "json" && is_word(text) => {
                    let remedy = format!("write --json ./{0}, or put --json last", text.display());
                    let what = "an argument may be mistaken for a file";
                    return Err(Fail::input(
                        what,
                        format!("--json {}", text.display()),
                        remedy,
                    ));
                }
                Some(text) => outputs.and(option, writable(option, text)?)?,
                None => {}
            }
        }
        Ok(outputs)
    }

    /// Adds a file that other code will write, to check its name. Returns an error if another result goes to the same file.
    pub fn and(&mut self, option: &'static str, path: PathBuf) -> Result<(), Fail> {
        if let Some((other, _)) = self.files.iter().find(|(_, taken)| *taken == path) {
            let what = format!("--{other} and --{option} {}", path.display());
            return Err(Fail::input("the same file given twice", what, "name two"));
        }
        self.files.push((option, path));
        Ok(())
    }

    pub fn file(&self, option: &str) -> Option<&Path> {
        let found = self.files.iter().find(|(name, _)| *name == option);
        found.map(|(_, path)| path.as_path())
    }

    /// Returns whether the result is printed to stdout as text.
    pub fn has_text(&self) -> bool {
        !self.json_to_stdout
    }

    /// Writes a result to its destinations, files first, because stdout may be closed early (`... | head -1`). `files` has, for each
    /// further option, a function that creates the content of the option's file.
    pub fn emit(
        &self,
        text: impl FnOnce() -> String,
        json: impl FnOnce() -> String,
        files: &[(&str, &dyn Fn() -> String)],
    ) -> Result<(), Fail> {
        for (option, content) in files {
            if let Some(path) = self.file(option) {
                write(option, path, &content())?;
            }
        }
        if self.json_to_stdout {
            return print(json());
        }
        if let Some(path) = self.file("json") {
            write("json", path, &json())?;
        }
        print(text())
    }
}

/// Returns whether existing files may be replaced, because `--force` was given.
pub fn force() -> bool {
    global().force
}

/// Checks that the file of `--OPTION` can be created, or replaced with `--force`.
pub fn writable(option: &str, text: &OsStr) -> Result<PathBuf, Fail> {
    let path = named(option, text)?;
    output::check(&path, force())
        .map(|()| path)
        .map_err(|error| not_made(option, text, &error))
}

/// Checks that the file of `--OPTION` can be created or, if it exists, appended to.
pub fn resumable(option: &str, text: &OsStr) -> Result<PathBuf, Fail> {
    let path = named(option, text)?;
    if path.exists() {
        Ok(path)
    } else {
        writable(option, text)
    }
}

/// Whether a name has neither a dot nor a slash.
fn is_word(text: &OsStr) -> bool {
    !text.is_empty() && !text.as_bytes().iter().any(|byte| b"./".contains(byte))
}

fn named(option: &str, text: &OsStr) -> Result<PathBuf, Fail> {
    if text.is_empty() {
        return Err(Fail::input(
            "no file is named",
            format!("--{option} ''"),
            &format!("write --{option} FILE"),
        ));
    }
    if text == "-" {
        let what = format!("--{option} -");
        let remedy = "name a file, or /dev/stdout";
        return Err(Fail::input("'-' is for --json only", what, remedy));
    }
    let path = PathBuf::from(text);
    if !beside(&path).is_dir() {
        return Err(refused(option, text, "its directory does not exist"));
    }
    if path.is_dir() {
        return Err(refused(option, text, "it is a directory"));
    }
    Ok(path)
}

/// Writes the complete result to a file that was checked before. The file is replaced atomically, so it never contains only a part of the
/// result.
pub fn write(option: &str, path: &Path, text: &str) -> Result<(), Fail> {
    output::write(path, text.as_bytes(), force())
        .map_err(|error| not_made(option, path.as_os_str(), &error))
}

fn not_made(option: &str, path: &OsStr, error: &std::io::Error) -> Fail {
    match (error.kind(), option) {
        // The word after --json is its file, though it may be meant as the command's own argument.
        (ErrorKind::AlreadyExists, "json") => Fail::input(
            "it exists already",
            path.display(),
            "name another file, or add --force; '--json -' writes to stdout",
        ),
        (ErrorKind::AlreadyExists, _) => there_already(path),
        _ => refused(option, path, error),
    }
}

/// Creates the error for an output file that exists already.
pub fn there_already(path: &OsStr) -> Fail {
    Fail::input(
        "it exists already",
        path.display(),
        "name another file, or add --force",
    )
}

fn beside(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

fn refused(option: &str, path: &OsStr, why: impl std::fmt::Display) -> Fail {
    let option = match option {
        "" => String::new(),
        _ => format!("--{option} "),
    };
    Fail::input(
        "cannot write",
        format!("{option}{}: {why}", path.display()),
        "name another file",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fail::input_line;

    #[test]
    fn a_file_named_twice_is_refused_with_both_options() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("file").into_os_string();
        for (options, both) in [
            (["out", "json"], "--out and --json"),
            (["json", "html"], "--json and --html"),
        ] {
            let line = input_line(Outputs::new(
                &options.map(|option| (option, Some(file.as_os_str()))),
            ));
            assert!(
                line.starts_with(&format!("the same file given twice: {both} ")),
                "{line}"
            );
        }
    }
}
