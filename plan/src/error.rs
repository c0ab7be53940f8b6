//! Why a plan cannot be read, made or written: one line that says what, where and what to do.

use std::path::{Path, PathBuf};

/// `WHAT: FILE, line N; REMEDY`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {}{}; {remedy}", path.display(), line.map_or(String::new(), |line| format!(", line {line}")))]
pub struct PlanError {
    pub what: String,
    pub path: PathBuf,
    /// The line, counted from 1.
    pub line: Option<u64>,
    pub remedy: String,
}

impl PlanError {
    pub fn new(path: &Path, what: impl Into<String>, remedy: impl Into<String>) -> PlanError {
        PlanError {
            what: what.into(),
            path: path.to_path_buf(),
            line: None,
            remedy: remedy.into(),
        }
    }

    pub fn io(path: &Path, what: &str, error: &std::io::Error) -> PlanError {
        PlanError::new(
            path,
            format!("{what}: {error}"),
            "check the path and its permissions",
        )
    }
}
