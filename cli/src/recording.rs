//! `--record TRACE` of `serve` and `mount`: writes a trace of all reads; recording starts before any client can connect.
//!
//! The trace file gets its final name only when it is complete. An existing file is replaced only with `--force`.

use crate::fail::{Fail, note, one_line};
use crate::out;
use foreread::front::observe::Observer;
use foreread_observe::recorder::Recorder;
use foreread_os::ends;
use foreread_os::output::AtomicFile;
use foreread_report::number::{count, plural};
use foreread_trace::format::Output;
use std::io::{BufWriter, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// A trace that is being recorded.
pub struct Recording {
    recorder: Arc<Recorder>,
    file: AtomicFile,
    path: PathBuf,
}

/// Starts a recording, if one was requested. `front` is the command that records (`serve` or `mount`).
pub fn start(path: Option<&Path>, front: &str) -> Result<Option<Recording>, Fail> {
    let Some(path) = path else { return Ok(None) };
    let file = AtomicFile::create(path, out::force()).map_err(|error| refused(path, &error))?;
    let to = file.writer().map_err(|error| refused(path, &error))?;
    let output = Output::new(path, Box::new(BufWriter::with_capacity(1 << 18, to)));
    let broken = |error: &dyn std::fmt::Display| note(format!("recording stopped: {error}"));
    let recorder = Recorder::start(front, Instant::now(), output, move |error| broken(error));
    let recorder = Arc::new(recorder?);
    Ok(Some(Recording {
        recorder,
        file,
        path: path.to_path_buf(),
    }))
}

/// Returns the observer that records all requests.
pub fn observer(recording: Option<&Recording>) -> Option<Arc<dyn Observer>> {
    recording.map(|recording| Arc::clone(&recording.recorder) as Arc<dyn Observer>)
}

/// Ends the recording, renames the trace file to its final name and prints a summary.
pub fn end(recording: Option<Recording>) -> Result<(), Fail> {
    let Some(Recording {
        recorder,
        file,
        path,
    }) = recording
    else {
        return Ok(());
    };
    ends::waits_for("the recording");
    let recorded = recorder.finish()?;
    file.keep().map_err(|error| refused(&path, &error))?;
    ends::waits_for("requests to the source");
    let mut line = format!("{}: {}", path.display(), plural(recorded.records, "record"));
    for (reason, n) in recorded.left_out {
        line.push_str(&format!(", left out {} {}", count(n), one_line(reason)));
    }
    note(line);
    Ok(())
}

fn refused(path: &Path, error: &std::io::Error) -> Fail {
    match error.kind() {
        ErrorKind::AlreadyExists => out::there_already(path.as_os_str()),
        _ => Fail::input(
            "cannot write",
            format!("{}: {error}", path.display()),
            "name another file with --record",
        ),
    }
}
