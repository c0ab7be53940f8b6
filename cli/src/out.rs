//! Where results go: stdout, or the file that `--json`, `--svg` or `--html` names.
//!
//! A file is looked at before anything is measured for it, and replaced only with `--force`, and only by a whole result
//! ([`foreread_os::output`]). Never: panics because a pipe was closed (`foreread list policies | head -1` is good use).

use crate::args::global;
use crate::fail::Fail;
use foreread_os::output;
use foreread_report::width;
use std::ffi::OsStr;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Prints a whole result.
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

/// True when stdout shows bold letters and the user has not asked for none (`NO_COLOR`, see no-color.org).
pub fn may_style() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// Makes text as wide as the terminal that shows it: what `COLUMNS` says, or the terminal itself. A file gets 100 columns.
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

/// Where the result of a command goes: its text to stdout, its JSON to a file or instead of the text, and further files.
///
/// Every file is looked at when this is made, before anything is measured for it.
#[derive(Debug)]
pub struct Outputs {
    /// In place of the text for people.
    json_to_stdout: bool,
    files: Vec<(&'static str, PathBuf)>,
}

impl Outputs {
    /// The options that name files, in the order in which a message names two of them. '-' of `json` is stdout.
    pub fn new(options: &[(&'static str, Option<&OsStr>)]) -> Result<Outputs, Fail> {
        let mut outputs = Outputs {
            json_to_stdout: false,
            files: Vec::new(),
        };
        for (option, text) in options {
            match text {
                Some(text) if *option == "json" && *text == "-" => outputs.json_to_stdout = true,
                Some(text) => outputs.and(option, writable(option, text)?)?,
                None => {}
            }
        }
        Ok(outputs)
    }

    /// Takes a file that is written elsewhere into account, too. Refuses one file for two results.
    pub fn and(&mut self, option: &'static str, path: PathBuf) -> Result<(), Fail> {
        if let Some((other, _)) = self.files.iter().find(|(_, taken)| *taken == path) {
            let what = format!("--{other} and --{option} {}", path.display());
            return Err(Fail::input("one file named twice", what, "name two"));
        }
        self.files.push((option, path));
        Ok(())
    }

    /// The file of an option, where it was given.
    pub fn file(&self, option: &str) -> Option<&Path> {
        let found = self.files.iter().find(|(name, _)| *name == option);
        found.map(|(_, path)| path.as_path())
    }

    /// Whether stdout is for people.
    pub fn has_text(&self) -> bool {
        !self.json_to_stdout
    }

    /// Puts a result where it was asked for: into files first, since stdout may be closed before its end (`... | head -1`). `files` makes the
    /// content of each further option.
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

/// Whether files may be replaced: `--force`.
pub fn force() -> bool {
    global().force
}

/// The file that `--OPTION` names, if it can be made, or replaced with `--force`.
pub fn writable(option: &str, text: &OsStr) -> Result<PathBuf, Fail> {
    let path = named(option, text)?;
    output::check(&path, force())
        .map(|()| path)
        .map_err(|error| not_made(option, text, &error))
}

/// The file that `--OPTION` names, to go on with it, or to make it.
pub fn resumable(option: &str, text: &OsStr) -> Result<PathBuf, Fail> {
    let path = named(option, text)?;
    if path.exists() {
        Ok(path)
    } else {
        writable(option, text)
    }
}

fn named(option: &str, text: &OsStr) -> Result<PathBuf, Fail> {
    if text.is_empty() {
        return Err(Fail::input(
            "no file is named",
            format!("--{option} ''"),
            &format!("write --{option} FILE"),
        ));
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

/// Writes the whole result to a file that was found writable: it has the old bytes or the new ones at any time.
pub fn write(option: &str, path: &Path, text: &str) -> Result<(), Fail> {
    output::write(path, text.as_bytes(), force())
        .map_err(|error| not_made(option, path.as_os_str(), &error))
}

fn not_made(option: &str, path: &OsStr, error: &std::io::Error) -> Fail {
    if error.kind() == ErrorKind::AlreadyExists {
        return there_already(path);
    }
    refused(option, path, error)
}

/// The message for an output that is there.
pub fn there_already(path: &OsStr) -> Fail {
    Fail::input(
        "it is there already",
        path.display(),
        "name another, or add --force",
    )
}

fn beside(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

fn refused(option: &str, path: &OsStr, why: impl std::fmt::Display) -> Fail {
    Fail::input(
        "cannot write",
        format!("--{option} {}: {why}", path.display()),
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
                line.starts_with(&format!("one file named twice: {both} ")),
                "{line}"
            );
        }
    }
}
