//! Opens traces with a progress bar, and writes them atomically.
//!
//! An incomplete file never gets the final name, and an existing file is replaced only with --force.

use crate::fail::{Fail, one_line};
use crate::out;
use crate::progress::Bar;
use foreread_os::output::AtomicFile;
use foreread_report::number::count;
use foreread_report::progress::Progress;
use foreread_trace::format::{ExportReport, Output};
use foreread_trace::open::{Watch, open_watched};
use foreread_trace::{Import, Item, Items, TraceError};
use std::collections::BTreeMap;
use std::io::{BufWriter, ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Opens a trace, with a progress bar that advances as records are read.
pub fn open(file: &Path, format: Option<&str>) -> Result<Import, Fail> {
    let watch = Watch::default();
    let mut import = open_watched(file, format, &watch)?;
    let total = std::fs::metadata(file).map_or(0, |meta| meta.len());
    let mut bar = Bar::new();
    let name = one_line(&file.display().to_string());
    bar.stage(&format!("reading {name}, MiB"));
    import.items = Box::new(Moving {
        items: import.items,
        bar,
        watch,
        total,
        taken: 0,
    });
    Ok(import)
}

struct Moving {
    items: Items,
    bar: Bar,
    watch: Watch,
    total: u64,
    taken: u64,
}

impl Iterator for Moving {
    type Item = Result<Item, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.taken.is_multiple_of(1 << 14) {
            self.bar.step(
                self.watch.bytes().min(self.total) >> 20,
                (self.total >> 20).max(1),
            );
        }
        self.taken += 1;
        self.items.next()
    }
}

/// Calls `write` with the file `out`, or with stdout if `out` is '-'.
pub fn written(
    to: &Path,
    write: impl FnOnce(Output) -> Result<ExportReport, TraceError>,
) -> Result<ExportReport, Fail> {
    if to == Path::new("-") {
        if std::io::stdout().is_terminal() {
            return Err(Fail::input(
                "a trace is binary data",
                "-o -",
                "write it to a file or a pipe",
            ));
        }
        let closed = Arc::new(AtomicBool::new(false));
        let stdout = Stdout {
            closed: Arc::clone(&closed),
        };
        let stdout: Box<dyn Write + Send> = Box::new(BufWriter::with_capacity(1 << 18, stdout));
        let done = write(Output::new("stdout", stdout));
        return done.map_err(|error| {
            if closed.load(Ordering::Relaxed) {
                Fail::Closed
            } else {
                error.into()
            }
        });
    }
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::AlreadyExists => out::there_already(to.as_os_str()),
        _ => Fail::input(
            "cannot write",
            format!("{}: {error}", to.display()),
            "name another file with -o",
        ),
    };
    let whole = AtomicFile::create(to, out::force()).map_err(failed)?;
    let file = whole.writer().map_err(failed)?;
    let output = Box::new(BufWriter::with_capacity(1 << 18, file));
    let done = write(Output::new(to, output))?;
    whole.keep().map_err(failed)?;
    Ok(done)
}

/// Notes that the reader closed the pipe, as in `foreread trace export ... | head`.
struct Stdout {
    closed: Arc<AtomicBool>,
}

impl Stdout {
    fn note<T>(&self, done: std::io::Result<T>) -> std::io::Result<T> {
        done.inspect_err(|error| {
            self.closed
                .store(error.kind() == ErrorKind::BrokenPipe, Ordering::Relaxed)
        })
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.note(std::io::stdout().write(bytes))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.note(std::io::stdout().flush())
    }
}

/// Describes the records that were left out, such as `left out: 3 trims`; the text is empty if none were left out.
pub fn passed_over(left_out: BTreeMap<String, u64>) -> String {
    if left_out.is_empty() {
        return String::new();
    }
    let each: Vec<String> = left_out
        .iter()
        .map(|(reason, n)| format!("{} {}", count(*n), one_line(reason)))
        .collect();
    format!("left out: {}\n", each.join(", "))
}
