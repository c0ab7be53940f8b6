//! Reads `--on SOURCE`: a path, `file:PATH`, `model:NAME` or `model:FILE.toml`, `model-live:NAME`, or what the engine
//! opens (`nbd://...`).
//!
//! Looks at a file before anything is measured, so that a wrong one costs a second and one line. Never: opens
//! what is neither a file nor a block device (a FIFO would block).

use crate::fail::Fail;
use foreread::source::SourceName;
use foreread_lab::compare::CompareError;
use foreread_lab::compare::CompareOn;
use foreread_os::open::look;
use foreread_sim::device::custom;
use foreread_sim::device::presets::Preset;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

const REMEDY: &str = "name a file, a block device, model:NAME ('foreread models' lists them), or a source of another \
     kind ('foreread compare --help')";

/// Where to measure.
#[derive(Clone, Debug)]
pub enum On {
    /// A file or block device that can be read.
    File(PathBuf),
    /// A device model.
    Model(&'static Preset),
    /// The same, really sleeping.
    ModelLive(&'static Preset),
    /// Any other source of the engine. It has not been looked at: opening it says what is wrong.
    Source(SourceName),
}

/// As the lab calls it.
impl From<On> for CompareOn {
    fn from(on: On) -> CompareOn {
        match on {
            On::File(path) => CompareOn::File(path),
            On::Model(preset) => CompareOn::Model(preset.name.to_string()),
            On::ModelLive(preset) => CompareOn::ModelLive(preset),
            On::Source(name) => CompareOn::Source(name),
        }
    }
}

/// Reads a source and looks whether it is there.
pub fn parse(name: &SourceName) -> Result<On, Fail> {
    let bytes = name.unredacted().as_bytes();
    let model =
        |name: &[u8]| custom::find(&String::from_utf8_lossy(name)).map_err(CompareError::from);
    if let Some(name) = bytes.strip_prefix(b"model:") {
        return Ok(On::Model(model(name)?));
    }
    if let Some(name) = bytes.strip_prefix(b"model-live:") {
        return Ok(On::ModelLive(model(name)?));
    }
    if foreread::source::is_remote(name) {
        return Ok(On::Source(name.clone()));
    }
    let path = name.path();
    if path.as_os_str().is_empty() {
        return Err(Fail::input(
            "no source named",
            format!("--on '{name}'"),
            REMEDY,
        ));
    }
    look_at(path)
        .map(|()| On::File(path.to_path_buf()))
        .map_err(|what| match name.scheme() {
            "" | "file" => Fail::input(&what, place(name), REMEDY),
            kind if what.starts_with("no such file") => Fail::input(
                &format!("unknown kind of source '{kind}'"),
                place(name),
                REMEDY,
            ),
            _ => Fail::input(&what, place(name), REMEDY),
        })
}

fn place(name: &SourceName) -> String {
    format!("--on {name}")
}

/// What is wrong with the file, if anything is.
fn look_at(path: &Path) -> Result<(), String> {
    let looked = look(path).map_err(|error| said(&error))?;
    let meta = looked.meta();
    let kind = meta.file_type();
    if kind.is_dir() {
        return Err("a directory has no bytes to read".to_string());
    }
    if !kind.is_file() && !kind.is_block_device() {
        return Err("neither a file nor a block device".to_string());
    }
    if kind.is_file() && meta.len() == 0 {
        return Err("the file is empty, there is nothing to measure".to_string());
    }
    looked.for_reading().map(drop).map_err(|error| said(&error))
}

/// The system's words without its number.
fn said(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "no such file".to_string(),
        std::io::ErrorKind::PermissionDenied => "no permission to read it".to_string(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        crate::fail::input_line(parse(&text.into()))
    }

    #[test]
    fn every_notation() {
        let file = tempfile::NamedTempFile::new().expect("a scratch file");
        std::fs::write(file.path(), b"x").expect("written");
        let path = file.path().to_str().expect("UTF-8");
        let is_it = |on: Result<On, Fail>| matches!(on, Ok(On::File(p)) if p == file.path());
        assert!(is_it(parse(&path.into())) && is_it(parse(&(&format!("file:{path}")).into())));
        assert!(
            matches!(parse(&"model:rbd".into()), Ok(On::Model(preset)) if preset.name == "rbd")
        );
        assert!(
            matches!(parse(&"model-live:rbd".into()), Ok(On::ModelLive(preset)) if preset.name == "rbd")
        );
        assert!(
            matches!(parse(&"NBD://host/x".into()), Ok(On::Source(name)) if name.unredacted() == "nbd://host/x")
        );
    }

    #[test]
    fn what_cannot_be_measured_is_said_at_once() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let empty = dir.path().join("empty");
        std::fs::write(&empty, b"").expect("written");
        assert!(error(&empty.to_string_lossy()).starts_with("the file is empty"));
        assert!(error(&dir.path().to_string_lossy()).starts_with("a directory"));
        assert!(error(&dir.path().join("gone").to_string_lossy()).starts_with("no such file"));
        assert!(error("/dev/null").starts_with("neither a file"));
        assert!(error("model:rdb").starts_with("unknown model: 'rdb'; nearest: rbd"));
        assert!(error("gopher://x/key").starts_with("unknown kind of source 'gopher'"));
        assert!(
            error("").starts_with("no source named")
                && error("file:").starts_with("no source named")
        );
        assert!(error("file:nbd:x").starts_with("no such file"));
    }
}
