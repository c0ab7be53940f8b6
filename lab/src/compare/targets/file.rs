//! A file or a block device, read with direct I/O so that the page cache is bypassed. In addition to the rows for
//! policies, its table has a row for the kernel's page cache.

use super::{CompareOn, Description, OnPage, Row, Run, Target, TargetName, engine};
use crate::compare::{CompareError, SCRATCH_RUNS, SCRATCH_SPAN_BYTES};
use crate::live::{self, LiveError, Pace, Scratch};
use crate::report::RowKind;
use foreread::source::{self, Defaults, SourceName};
use foreread_os::failure::Failure;
use foreread_os::open::look;
use foreread_sim::device::custom;
use foreread_sim::simulator::RunResult;
use std::io::{Error, ErrorKind};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const REMEDY: &str = "name a file, a block device, model:NAME ('foreread list models' lists them), or a source of another \
     kind ('foreread compare --help' names them)";

const NO_PERMISSION: &str = "no permission to read it";

pub fn file(path: impl Into<PathBuf>) -> CompareOn {
    Arc::new(FileName(path.into()))
}

/// Checks the file. Only a file or a block device is opened: opening a FIFO would block. A model file is refused, since measuring its
/// few bytes says nothing about the device that it describes; with `file:` it is accepted.
pub(super) fn parse(name: &SourceName) -> Result<CompareOn, Failure> {
    let path = name.path();
    if path.as_os_str().is_empty() {
        return Err(Failure::input(
            "no source given",
            format!("'{name}'"),
            REMEDY,
        ));
    }
    match look_at(path) {
        Ok(()) if name.scheme().is_empty() && custom::is_model_file(path) => {
            let what = "this looks like the file of a device model";
            let remedy =
                format!("write model:{name} for the model, or file:{name} to read the file");
            Err(Failure::input(what, name, remedy))
        }
        Ok(()) => Ok(file(path)),
        Err(what) => {
            let what = match name.scheme() {
                "" | "file" => what,
                kind if what.starts_with("no such file") => {
                    format!("unknown kind of source '{kind}'")
                }
                _ => what,
            };
            let remedy = match what == NO_PERMISSION {
                true => "run as root, or as a user that may read it",
                false => REMEDY,
            };
            Err(Failure::input(what, name, remedy))
        }
    }
}

/// What is wrong with the file, if anything.
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

/// The system's error text without the error number.
fn said(error: &Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "no such file".to_string(),
        ErrorKind::PermissionDenied => NO_PERMISSION.to_string(),
        _ => error.to_string(),
    }
}

#[derive(Debug)]
struct FileName(PathBuf);

impl TargetName for FileName {
    fn shown(&self) -> String {
        self.0.display().to_string()
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.0)
    }

    fn open(&self) -> Result<Box<dyn Target>, CompareError> {
        let mut file = OnFile::open(self.0.clone(), &self.shown(), "")?;
        file.about.pace = file.pace();
        Ok(Box::new(file))
    }
}

struct OnFile {
    path: PathBuf,
    about: Description,
    /// The scratch file; it is deleted when its last descriptor is closed.
    _scratch: Option<Scratch>,
}

pub(super) fn open_scratch(scratch: Scratch) -> Result<impl Target, LiveError> {
    let folder = format!("in {}, ", scratch.dir().display());
    let mut file = OnFile::open(scratch.path(), "scratch", &folder)?;
    file.about.runs = SCRATCH_RUNS;
    file.about.span_bytes = SCRATCH_SPAN_BYTES;
    file.about.pace = file.pace();
    file._scratch = Some(scratch);
    Ok(file)
}

impl OnFile {
    /// A network disk may be as slow as a store.
    fn pace(&self) -> Option<Pace> {
        Pace::of(&*live::file(&self.path).ok()?)
    }

    fn open(path: PathBuf, name: &str, folder: &str) -> Result<OnFile, LiveError> {
        let source = live::file(&path)?;
        let readahead_bytes = source::default_readahead_bytes(&path);
        let kernel = readahead_bytes.map_or("read_ahead_kb unknown".to_string(), |bytes| {
            format!("read_ahead_kb {}", bytes / 1024)
        });
        let unknown =
            "The device's read_ahead_kb could not be read; linux-* rows use their default";
        let notes = readahead_bytes.is_none().then(|| unknown.to_string());
        // `file:PATH, direct, io_uring`: the name says the path.
        let describe = source.describe();
        let start = format!("file:{}, ", path.display());
        let how = describe.strip_prefix(&start).unwrap_or(&describe);
        let about = Description {
            notes: Vec::from_iter(notes),
            smallest_page: u64::from(source.alignment().offset).max(512),
            is_wide: false,
            readahead_bytes,
            has_folios: path
                .metadata()
                .is_ok_and(|meta| meta.file_type().is_block_device()),
            notes_defaults: false,
            own: vec![("kernel", RowKind::Kernel, 4096)],
            ..Description::new(
                format!("file:{name}"),
                format!("{folder}{how}, {kernel}"),
                source.size(),
                Defaults::FILE,
            )
        };
        Ok(OnFile {
            path,
            about,
            _scratch: None,
        })
    }
}

impl Target for OnFile {
    fn describe(&self) -> &Description {
        &self.about
    }

    fn run(&self, policy: OnPage<'_>, run: &Run<'_>) -> Result<RunResult, CompareError> {
        engine(live::file(&self.path)?, policy, run)
    }

    fn run_own(&self, _row: &Row, run: &Run<'_>) -> Result<Option<RunResult>, CompareError> {
        Ok(Some(live::kernel(&self.path, run.workload, run.cut)?))
    }
}
