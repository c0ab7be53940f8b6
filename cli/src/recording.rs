//! `--record TRACE` of the commands that serve: a trace of what passes, begun before any client can connect.
//!
//! The file gets its name when it is whole. Never: takes the place of a file without `--force`.

use crate::fail::{Fail, note, one_line};
use crate::out;
use foreread::front::observe::Observer;
use foreread_observe::recorder::Recorder;
use foreread_os::ends;
use foreread_os::output::AtomicFile;
use foreread_report::number::count;
use foreread_trace::format::Output;
use std::io::{BufWriter, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// A trace that is being written.
pub struct Recording {
    recorder: Arc<Recorder>,
    file: AtomicFile,
    path: PathBuf,
}

/// Begins one, where it is asked for. `front` is the command that records.
pub fn start(path: Option<&Path>, front: &str) -> Result<Option<Recording>, Fail> {
    let Some(path) = path else { return Ok(None) };
    let file = AtomicFile::create(path, out::force()).map_err(|error| refused(path, &error))?;
    let to = file.writer().map_err(|error| refused(path, &error))?;
    let output = Output {
        path: path.to_path_buf(),
        to: Box::new(BufWriter::with_capacity(1 << 18, to)),
    };
    let broken = |error: &dyn std::fmt::Display| note(format!("nothing more is recorded: {error}"));
    let recorder = Recorder::start(front, Instant::now(), output, move |error| broken(error));
    let recorder = Arc::new(recorder?);
    Ok(Some(Recording {
        recorder,
        file,
        path: path.to_path_buf(),
    }))
}

/// The observer that receives each request.
pub fn observer(recording: Option<&Recording>) -> Option<Arc<dyn Observer>> {
    recording.map(|recording| Arc::clone(&recording.recorder) as Arc<dyn Observer>)
}

/// Ends it, gives the file its name and says what is in it.
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
    let plural = if recorded.records == 1 {
        "record"
    } else {
        "records"
    };
    let mut line = format!("{}: {} {plural}", path.display(), count(recorded.records));
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
            "name another file after --record",
        ),
    }
}
