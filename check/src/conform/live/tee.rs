//! Sends a recording to all checks that compare it, and optionally to a file.

use super::{LiveError, RETRY};
use crate::conform::linux::{self, Level, Verdict};
use crate::conform::recording::CheckError;
use flate2::{Compression, write::GzEncoder};
use foreread_os::threads::spawn_scoped;
use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind, PipeWriter, Write};
use std::path::Path;
use std::thread::{Scope, ScopedJoinHandle};

/// A check that runs while the recording is made.
pub(super) type Check<'scope> = ScopedJoinHandle<'scope, Result<Verdict, CheckError>>;

/// Writes one text to several readers.
pub(super) struct Tee {
    pipes: Vec<BufWriter<PipeWriter>>,
    file: Option<GzEncoder<BufWriter<File>>>,
}

impl Tee {
    #[allow(clippy::type_complexity, reason = "a name would say less")]
    pub fn new<'scope>(
        scope: &'scope Scope<'scope, '_>,
        levels: &[Level],
        keep: Option<&Path>,
    ) -> Result<(Tee, Vec<(Level, Check<'scope>)>), LiveError> {
        let (mut pipes, mut checks) = (Vec::new(), Vec::new());
        for &level in levels {
            let (reader, writer) = std::io::pipe().map_err(|e| LiveError::io("pipe", e))?;
            pipes.push(BufWriter::with_capacity(1 << 16, writer));
            let reader = BufReader::with_capacity(1 << 16, reader);
            let check = spawn_scoped(scope, "foreread-check", move || {
                linux::check(reader, level, None)
            });
            checks.push((level, check.map_err(|e| LiveError::io("checking", e))?));
        }
        let made = |path: &Path| {
            let what = format!("cannot write the recording {}", path.display());
            let remedy = "choose another folder, or remove the existing recording";
            foreread_os::output::growing(path, false).map_err(|error| LiveError::Io {
                what,
                error,
                remedy,
            })
        };
        let file = keep.map(made).transpose()?;
        let file = file.map(|file| GzEncoder::new(BufWriter::new(file), Compression::fast()));
        Ok((Tee { pipes, file }, checks))
    }

    /// Sends the remaining text to all readers of the recording, and closes the file and the pipes to the readers.
    pub fn end(self) -> Result<(), LiveError> {
        let failed = |error| LiveError::Io {
            what: "the recording cannot be written".into(),
            error,
            remedy: RETRY,
        };
        for mut pipe in self.pipes {
            closed(pipe.flush()).map_err(failed)?;
        }
        let Some(file) = self.file else { return Ok(()) };
        file.finish()
            .and_then(|mut file| file.flush())
            .map_err(failed)
    }
}

impl Write for Tee {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        for pipe in &mut self.pipes {
            closed(pipe.write_all(text))?;
        }
        if let Some(file) = &mut self.file {
            file.write_all(text)?;
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A check that has stopped reports the reason itself.
fn closed(wrote: std::io::Result<()>) -> std::io::Result<()> {
    wrote.or_else(|error| {
        if error.kind() == ErrorKind::BrokenPipe {
            Ok(())
        } else {
            Err(error)
        }
    })
}
