//! Where results go: stdout, or the file that `--json`, `--svg` or `--html` names.
//!
//! A file is looked at before anything is measured for it, and replaced only by a whole result: that is written beside
//! it under another name first. Never: panics because a pipe was closed (`foreread policies | head -1` is good use).

use crate::fail::Fail;
use foreread_lab::report::width;
use std::ffi::{OsStr, OsString};
use std::fs::{OpenOptions, Permissions};
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

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

/// Makes text as wide as the terminal that shows it: what `COLUMNS` says, or the terminal itself. A file gets 100 columns.
pub fn fit_terminal() {
    let told = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let own = || terminal_size::terminal_size_of(std::io::stdout()).map(|(columns, _)| usize::from(columns.0));
    if let Some(columns) = told.or_else(own) {
        width::set(columns);
    }
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
        writable("json", text).map(JsonTo::File)
    }

    /// Writes the result.
    pub fn write(&self, json: &str) -> Result<(), Fail> {
        match self {
            JsonTo::Stdout => print(json),
            JsonTo::File(path) => write("json", path, json),
        }
    }
}

/// The file that JSON goes to, if it goes to one.
pub fn file(json: Option<&JsonTo>) -> Option<&Path> {
    match json {
        Some(JsonTo::File(path)) => Some(path),
        _ => None,
    }
}

/// Refuses one file for two results, given as option and file.
pub fn distinct(files: &[(&str, Option<&Path>)]) -> Result<(), Fail> {
    for (i, (option, path)) in files.iter().enumerate() {
        let same = |(_, other): &&(&str, Option<&Path>)| path.is_some() && other == path;
        if let (Some((other, _)), Some(path)) = (files[..i].iter().find(same), path) {
            let what = format!("--{other} and --{option} {}", path.display());
            return Err(Fail::input("one file named twice", what, "name two"));
        }
    }
    Ok(())
}

/// The file that `--OPTION` names, if it can be written.
pub fn writable(option: &str, text: &OsStr) -> Result<PathBuf, Fail> {
    if text.is_empty() {
        return Err(Fail::input("no file named", format!("--{option} ''"), &format!("write --{option} FILE")));
    }
    let path = PathBuf::from(text);
    if !beside(&path).is_dir() {
        return Err(refused(option, text, "its directory does not exist"));
    }
    if path.is_dir() {
        return Err(refused(option, text, "it is a directory"));
    }
    let looked = if is_replaced(&path) {
        // What cannot be opened for writing is not replaced either, though the directory would allow it.
        let may = if path.exists() { OpenOptions::new().append(true).open(&path).map(drop) } else { Ok(()) };
        may.and_then(|()| tempfile::Builder::new().tempfile_in(beside(&path)).map(drop))
    } else {
        OpenOptions::new().append(true).open(&path).map(drop)
    };
    looked.map(|()| path).map_err(|error| refused(option, text, error))
}

/// Writes the whole result to a file that was found writable: it has the old bytes or the new ones at any time.
pub fn write(option: &str, path: &Path, text: &str) -> Result<(), Fail> {
    let written = if is_replaced(path) { replace(path, text) } else { std::fs::write(path, text) };
    written.map_err(|error| refused(option, path.as_os_str(), error))
}

/// True for a file, there or not. A device or a pipe is written to as it is.
fn is_replaced(path: &Path) -> bool {
    std::fs::metadata(path).map_or(true, |meta| meta.is_file())
}

fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    // A link stays one: what it points to is replaced.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let mut file = tempfile::Builder::new().permissions(mode(&path)).tempfile_in(beside(&path))?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(&path).map(drop).map_err(|error| error.error)
}

/// The mode of the file that is replaced; of a new one, what the umask leaves.
fn mode(path: &Path) -> Permissions {
    std::fs::metadata(path).map_or_else(|_| Permissions::from_mode(0o666), |meta| meta.permissions())
}

fn beside(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The same for an option that may be absent.
pub fn json_to(option: Option<&OsString>) -> Result<Option<JsonTo>, Fail> {
    option.map(|text| JsonTo::new(text)).transpose()
}

fn refused(option: &str, path: &OsStr, why: impl std::fmt::Display) -> Fail {
    Fail::input("cannot write", format!("--{option} {}: {why}", path.display()), "name another file")
}
