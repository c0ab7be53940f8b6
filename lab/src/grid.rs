//! A grid of measurements (cells): the keys of the cells, the file of the finished cells, and the function that
//! measures the missing cells on several threads.
//!
//! ```text
//!   axes ──► cells, without those in the file ──threads──► each cell as a line of JSON, appended to the file
//! ```
//! The result of a cell depends only on its key, so cells can run in any order, in another process, or on another
//! machine. Example: a sweep of 72 cells is stopped after 50; the same command with the same file measures the other
//! 22.
//!
//! | the file has | then |
//! |---|---|
//! | a cell of the grid | its result is used |
//! | another cell | it stays in the file |
//! | a last line that was cut off | that line is removed |
//! | a line that is not a cell of this schema | the file is refused and unchanged |

use crate::compare::{self, CompareError, ComparePlan};
use crate::report::{Report, Row};
use foreread_os::failure::Failure;
use foreread_os::threads::for_each_on;
use foreread_report::progress::{Progress, Silent};
use rustix::fs::{FlockOperation, OFlags, flock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Name and version of the format of a line in the file of cells.
pub const SCHEMA: &str = "foreread.cell/1";
/// The largest cell file that is read: a cell of a sweep has 1.5 kB, a cell of the evaluation 500 bytes.
const MAX_BYTES: u64 = 1 << 30;

/// The parameters of a cell (one measurement of the grid). Two cells with the same key have the same result.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CellKey {
    /// Version of foreread that measured the cell.
    pub foreread: String,
    /// The trace or workload, as the user named it.
    pub trace: String,
    /// Bytes of the trace's file; 0 for a workload.
    pub trace_bytes: u64,
    pub policy: String,
    pub device: String,
    /// Size of the cache in bytes; null means the default.
    pub cache_bytes: Option<u64>,
    pub runs: u32,
    /// Seed of the first run.
    pub seed: u64,
}

/// A measured cell: one line of the file of cells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellResult<R> {
    pub schema: String,
    pub key: CellKey,
    pub result: R,
}

impl<R: Serialize> CellResult<R> {
    pub fn new(key: CellKey, result: R) -> CellResult<R> {
        let schema = SCHEMA.to_string();
        CellResult {
            schema,
            key,
            result,
        }
    }

    /// Returns one line of JSON that ends with a newline.
    pub fn line(&self) -> String {
        serde_json::to_string(self).expect("a struct of numbers and strings") + "\n"
    }
}

/// The results of a cell: the values that `compare` reports for one policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComparedCell {
    /// Size of the cache and of a cache page, in bytes.
    pub cache_bytes: u64,
    pub page_bytes: u64,
    /// As in `foreread.compare/1`.
    pub bound_s: Option<f64>,
    /// The row of `foreread.compare/1`. Comparisons with another row are null.
    pub row: Row,
}

impl ComparedCell {
    /// Measures a cell: executes the plan with one policy.
    pub fn measure(plan: &ComparePlan) -> Result<ComparedCell, CompareError> {
        let mut tables = compare::run(plan, &mut Silent)?;
        let report = Report::of(&tables.swap_remove(0));
        let row = report.rows.into_iter().next();
        Ok(ComparedCell {
            cache_bytes: report.cache_bytes,
            page_bytes: report.page_bytes,
            bound_s: report.bound_s,
            row: row.expect("the report has a row for the policy"),
        })
    }
}

/// The error for a file of cells that cannot be used.
pub fn unusable(path: &Path, what: impl Display) -> Failure {
    let place = format!("cannot use the cells of {}", path.display());
    Failure::input(place, "", "name another file with --resume").because(what)
}

/// The file of finished cells. Only one process at a time can open the file, and it only appends lines.
pub struct CellFile<R> {
    path: PathBuf,
    file: File,
    known: HashMap<CellKey, R>,
}

impl<R: Serialize + DeserializeOwned> CellFile<R> {
    /// Opens the file of finished cells, or creates it.
    /// Returns an error in the cases that the table of the module's documentation lists. A link, a pipe, and a file that another process
    /// has open are refused.
    pub fn open(path: &Path) -> Result<CellFile<R>, Failure> {
        let refused = |why: &str| unusable(path, why);
        let io = |error: std::io::Error| refused(&error.to_string());
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        let mut file = options
            .custom_flags(flags.bits() as i32)
            .open(path)
            .map_err(io)?;
        if !file.metadata().map_err(io)?.is_file() {
            return Err(refused("it is not a regular file"));
        }
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| refused("another process writes to it"))?;
        let size = file.metadata().map_err(io)?.len();
        if size > MAX_BYTES {
            let what = format!("it has {size} bytes, more than the limit of {MAX_BYTES}");
            return Err(refused(&what));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io)?;
        let end = bytes.iter().rposition(|byte| *byte == b'\n');
        let whole = end.map_or(0, |at| at + 1);
        // A cell and its line end are written in one call: a file without a whole line was written by another
        // program.
        if whole == 0 && !bytes.is_empty() {
            return Err(refused("it does not contain cells of a sweep"));
        }
        let mut known = HashMap::new();
        for (n, line) in bytes[..whole].split_inclusive(|b| *b == b'\n').enumerate() {
            let cell = serde_json::from_slice::<CellResult<R>>(line).ok();
            let Some(cell) = cell.filter(|cell| cell.schema == SCHEMA) else {
                return Err(refused(&format!("line {} is not a cell", n + 1)));
            };
            known.insert(cell.key, cell.result);
        }
        if whole < bytes.len() {
            file.set_len(whole as u64).map_err(io)?;
        }
        Ok(CellFile {
            path: path.to_path_buf(),
            file,
            known,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn get(&self, key: &CellKey) -> Option<&R> {
        self.known.get(key)
    }

    fn append(&mut self, cell: &CellResult<R>) -> Result<(), Failure> {
        let written = self.file.write_all(cell.line().as_bytes());
        written.map_err(|error| Failure {
            remedy: "free some space, then run the same command".to_string(),
            ..unusable(&self.path, error)
        })
    }
}

/// Returns the number of threads that measure cells: the given number, or one for each processor.
pub fn threads(asked: Option<u32>) -> usize {
    let processors = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    asked.map_or_else(processors, |asked| asked as usize)
}

/// Measures the cells that are not in the file, and returns the results of all cells in the order of `keys`. Once `stop` is not 0 (it is
/// the number of a signal), cells that are being measured are finished and no other cells are started; cells that were not measured have no
/// result. Returns the first error that occurred in a cell. The cells that were measured before the error are in the file.
pub fn run<R, E>(
    keys: &[CellKey],
    mut file: Option<&mut CellFile<R>>,
    threads: usize,
    measure: &(dyn Fn(usize) -> Result<R, E> + Sync),
    stop: &AtomicUsize,
    progress: &mut (dyn Progress + Send),
) -> Result<Vec<Option<R>>, E>
where
    R: Clone + Send + Serialize + DeserializeOwned,
    E: From<Failure> + Send,
{
    let known = |key: &CellKey| file.as_ref()?.get(key).cloned();
    let mut results: Vec<Option<R>> = keys.iter().map(known).collect();
    let missing: Vec<usize> = (0..keys.len()).filter(|n| results[*n].is_none()).collect();
    let (mut done, all) = ((keys.len() - missing.len()) as u64, keys.len() as u64);
    progress.stage("cells");
    progress.step(done, all);
    if stop.load(Ordering::Relaxed) != 0 {
        return Ok(results);
    }
    let mut failed = None;
    let mut each = |n: &usize, result: R| {
        let cell = CellResult::new(keys[*n].clone(), result);
        if let Some(file) = file.as_mut().filter(|_| failed.is_none()) {
            failed = file.append(&cell).err();
        }
        results[*n] = Some(cell.result);
        done += 1;
        progress.step(done, all);
        match failed.is_some() || stop.load(Ordering::Relaxed) != 0 {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    for_each_on(&missing, threads, &|n| measure(*n), &mut each)?;
    failed.map_or(Ok(results), |error| Err(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(policy: &str, seed: u64) -> CellKey {
        CellKey {
            foreread: "1".to_string(),
            trace: "random".to_string(),
            trace_bytes: 0,
            policy: policy.to_string(),
            device: "nvme".to_string(),
            cache_bytes: Some(1 << 20),
            runs: 1,
            seed,
        }
    }

    fn said(path: &Path) -> String {
        let error = CellFile::<Option<f64>>::open(path).err();
        error.map(|error| error.to_string()).unwrap_or_default()
    }

    /// 4 cells, the first of which the file has.
    #[test]
    fn what_is_in_the_file_is_not_measured_and_a_cut_line_is_removed() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let path = dir.path().join("cells.jsonl");
        let keys = [key("none", 1), key("none", 2), key("auto", 1), key("x", 1)];
        let value = |n: usize| Some(n as f64 + 0.5).filter(|_| n != 1);
        let run = |keys: &[CellKey], threads, stop| {
            let mut file = CellFile::open(&path).expect("of cells");
            assert!(said(&path).contains("another process writes to it"));
            let measured = std::sync::Mutex::new(Vec::new());
            let measure = |n| {
                measured.lock().expect("no panic").push(n);
                Ok::<_, Failure>(value(n))
            };
            let stop = AtomicUsize::new(stop);
            let results = run(keys, Some(&mut file), threads, &measure, &stop, &mut Silent);
            let mut measured = measured.into_inner().expect("no panic");
            measured.sort_unstable();
            (results.expect("measured"), measured)
        };
        assert_eq!(run(&keys[..2], 1, 15), (vec![None, None], vec![]));
        assert_eq!(run(&keys[..1], 1, 0).1, [0]);
        let whole = std::fs::read(&path).expect("readable");
        std::fs::write(&path, [&whole[..], b"{\"schema\":\"fo"].concat()).expect("written");
        let all: Vec<_> = (0..4).map(|n| Some(value(n))).collect();
        assert_eq!(run(&keys, 3, 0), (all.clone(), vec![1, 2, 3]));
        assert_eq!(run(&keys, 2, 0), (all, vec![]));
        let lines = std::fs::read_to_string(&path).expect("readable");
        assert_eq!(lines.lines().count(), 4, "{lines}");
    }

    #[test]
    fn an_error_ends_the_run() {
        let keys: Vec<CellKey> = (0..9).map(|seed| key("none", seed)).collect();
        let measure = |n: usize| match n {
            2 => Err(unusable(Path::new("x"), "odd")),
            n => Ok(n as u64),
        };
        let go = AtomicUsize::new(0);
        let error = run(&keys, None, 2, &measure, &go, &mut Silent).expect_err("the third");
        assert!(
            error
                .to_string()
                .starts_with("cannot use the cells of x: odd;")
        );
    }

    #[test]
    fn a_foreign_file_is_refused_and_unchanged() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let path = dir.path().join("cells.jsonl");
        let cell = CellResult::new(key("none", 1), Some(0.5)).line();
        let version_9 = cell.replace("foreread.cell/1", "foreread.cell/9");
        let second = format!("{cell}{{\"key\":1}}\n{cell}");
        for (text, why) in [
            (
                "policy,seed\nnone,1\n",
                "line 1 is not a cell; name another",
            ),
            ("\0\u{1}", "it does not contain cells of a sweep"),
            ("{}\n", "line 1 is"),
            (&version_9, "line 1 is"),
            (&second, "line 2 is"),
        ] {
            std::fs::write(&path, text).expect("written");
            assert!(said(&path).contains(why), "{text}: {}", said(&path));
            assert_eq!(std::fs::read_to_string(&path).expect("readable"), text);
        }
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        assert!(!said(&link).is_empty() && said(Path::new("/dev/null")).contains("regular"));
    }
}
