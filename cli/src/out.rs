//! Where results go: stdout, or the file that `--json` names.
//!
//! Never: panics because a pipe was closed (`foreread policies | head -1` is good use).

use crate::fail::Fail;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::PathBuf;

/// Prints a whole result.
pub fn print(text: impl AsRef<[u8]>) -> Result<(), Fail> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_ref()).and_then(|()| stdout.flush()).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Fail::Closed,
        _ => Fail::input("cannot write", format!("stdout: {error}"), "free some space or write elsewhere"),
    })
}

/// True when stdout shows bold letters and the user has not asked for none (`NO_COLOR`, see no-color.org).
pub fn may_style() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// Where JSON was asked to go.
#[derive(Debug, PartialEq, Eq)]
pub enum JsonTo {
    /// To stdout, in place of the text for people.
    Stdout,
    /// To this file, beside the text for people.
    File(PathBuf),
}

impl JsonTo {
    /// Reads `FILE|-` and looks whether the file can be written, before anything is measured for it.
    pub fn new(text: &OsStr) -> Result<JsonTo, Fail> {
        if text == "-" {
            return Ok(JsonTo::Stdout);
        }
        if text.is_empty() {
            return Err(Fail::input("no file named", "--json ''", "write --json FILE, or --json - for stdout"));
        }
        let path = PathBuf::from(text);
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
        if parent.is_some_and(|p| !p.is_dir()) {
            return Err(refused(text, "its directory does not exist"));
        }
        if path.is_dir() {
            return Err(refused(text, "it is a directory"));
        }
        if path.is_file() {
            OpenOptions::new().append(true).open(&path).map_err(|error| refused(text, error))?;
        }
        Ok(JsonTo::File(path))
    }

    /// Writes the result.
    pub fn write(&self, json: &str) -> Result<(), Fail> {
        match self {
            JsonTo::Stdout => print(json),
            JsonTo::File(path) => File::create(path)
                .and_then(|mut file| file.write_all(json.as_bytes()))
                .map_err(|error| refused(path.as_os_str(), error)),
        }
    }
}

/// The same for an option that may be absent.
pub fn json_to(option: Option<&OsString>) -> Result<Option<JsonTo>, Fail> {
    option.map(|text| JsonTo::new(text)).transpose()
}

fn refused(path: &OsStr, why: impl std::fmt::Display) -> Fail {
    Fail::input("cannot write", format!("--json {}: {why}", path.display()), "name another file, or - for stdout")
}
