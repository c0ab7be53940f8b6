//! Finished runs in a file, so that a bench can go on after it was stopped.
//!
//! ```text
//!   {"schema":"foreread.policies-runs/1","foreread":"0.1.0","build":"...","design":"fractional","trace":null}
//!   {"key":{"cell":{"workload":"random","device":"nvme","cache":16777216},"policy":"none","seed":4},"figures":{"time_s":0.7,...}}
//!   ...one line a run, as they end
//! ```
//! The file is only appended to. A process that continues it with another build of foreread writes a header of its build first,
//! and the runs after a header are of that build.
//!
//! | the file has | then |
//! |---|---|
//! | another version, design or trace | it is refused |
//! | runs of this build | they are used |
//! | runs of another build | those of judged policies are measured again; of each opponent the run with the fewest requests is repeated, and the file is refused unless every figure is the same |
//! | a last line that was cut off | that line is removed |
//!
//! Example: `auto` is changed and built again. Of 2,900 runs in the file the 2,700 of the opponents are used after 8 of them
//! were repeated, and `auto` runs 220 times.

use super::BenchError;
use crate::evaluation::{Design, Figures, Key, schedule};
use rustix::fs::{FlockOperation, OFlags, flock};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Name and version of the lines above.
const SCHEMA: &str = "foreread.policies-runs/1";
/// The largest file that is read: 500 bytes a run are 500,000 runs, and the full design has fewer.
const MAX_BYTES: u64 = 256 << 20;
const REMEDY: &str = "name another file with --resume";

/// What the runs of a file have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunsHeader {
    schema: String,
    foreread: String,
    build: String,
    design: String,
    trace: Option<String>,
}

impl RunsHeader {
    pub fn new(design: Design, trace: Option<String>, build: String) -> RunsHeader {
        let foreread = env!("CARGO_PKG_VERSION").to_string();
        RunsHeader {
            schema: SCHEMA.to_string(),
            foreread,
            build,
            design: design.name().to_string(),
            trace,
        }
    }

    fn difference(&self, other: &RunsHeader) -> Option<String> {
        let trace = |header: &RunsHeader| {
            header
                .trace
                .clone()
                .map_or("no trace".to_string(), |t| format!("the trace {t}"))
        };
        if other.foreread != self.foreread {
            return Some(format!(
                "its runs are of foreread {}, this is {}",
                other.foreread, self.foreread
            ));
        }
        if other.design != self.design {
            return Some(format!(
                "its runs are of the design {}, not of {}",
                other.design, self.design
            ));
        }
        (other.trace != self.trace)
            .then(|| format!("its runs are of {}, not of {}", trace(other), trace(self)))
    }
}

/// A line that is no header.
#[derive(Serialize, Deserialize)]
struct RunLine {
    key: Key,
    figures: Option<Figures>,
}

/// A file that this process alone appends to.
pub struct RunsFile {
    path: PathBuf,
    file: File,
    header: RunsHeader,
    /// Whether the last header is that of this build.
    headed: bool,
    /// What was read, and whether it is of this build.
    known: BTreeMap<Key, (Option<Figures>, bool)>,
}

impl RunsFile {
    /// Opens a file, or makes it.
    pub fn open(path: &Path, header: RunsHeader) -> Result<RunsFile, BenchError> {
        let refused = |why: &str| refused(path, why, REMEDY);
        let io = |error: std::io::Error| refused(&error.to_string());
        // A link is not followed, and a pipe not waited for.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mut options = OpenOptions::new();
        options
            .read(true)
            .append(true)
            .create(true)
            .custom_flags(flags.bits() as i32);
        let mut file = options.open(path).map_err(io)?;
        if !file.metadata().map_err(io)?.is_file() {
            return Err(refused("it is not a regular file"));
        }
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| refused("another process writes to it"))?;
        let size = file.metadata().map_err(io)?.len();
        if size > MAX_BYTES {
            return Err(refused(&format!(
                "it has {size} bytes, more than the {MAX_BYTES} that are read"
            )));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io)?;
        let whole = bytes
            .iter()
            .rposition(|b| *b == b'\n')
            .map_or(0, |at| at + 1);
        // The header is written with the first run in one call: a file without a whole line is of another program.
        if whole == 0 && !bytes.is_empty() {
            return Err(refused("it is not a file of runs"));
        }
        let text = std::str::from_utf8(&bytes[..whole])
            .map_err(|_| refused("it is not a file of runs"))?;
        let mut of_file = RunsFile {
            path: path.to_path_buf(),
            file,
            header,
            headed: false,
            known: BTreeMap::new(),
        };
        of_file.take(text)?;
        if whole < bytes.len() {
            of_file.file.set_len(whole as u64).map_err(io)?;
        }
        Ok(of_file)
    }

    /// Reads the lines.
    fn take(&mut self, text: &str) -> Result<(), BenchError> {
        let mut same_build = None;
        for (number, line) in text.lines().enumerate() {
            if let Ok(RunLine { key, figures }) = serde_json::from_str(line)
                && let Some(same) = same_build
            {
                self.known.insert(key, (figures, same));
                continue;
            }
            let header = serde_json::from_str(line)
                .ok()
                .filter(|header: &RunsHeader| header.schema == SCHEMA);
            let Some(header) = header else {
                let what = match number {
                    0 => "it is not a file of runs".to_string(),
                    _ => format!("line {} is no run", number + 1),
                };
                return Err(refused(&self.path, &what, REMEDY));
            };
            if let Some(difference) = self.header.difference(&header) {
                return Err(refused(&self.path, &difference, REMEDY));
            }
            self.headed = header == self.header;
            same_build = Some(self.headed);
        }
        Ok(())
    }

    /// The runs of `keys` that need not be measured. `measure` repeats one of each opponent of another build.
    pub fn usable(
        &self,
        keys: &[Key],
        judged: &[String],
        measure: schedule::Measure<'_>,
    ) -> Result<BTreeMap<Key, Option<Figures>>, BenchError> {
        let mut usable = BTreeMap::new();
        let mut shortest: BTreeMap<&str, (u64, &Key, &Figures)> = BTreeMap::new();
        for key in keys {
            let Some((figures, same)) = self.known.get(key) else {
                continue;
            };
            if !same && judged.contains(&key.policy) {
                continue;
            }
            usable.insert(key.clone(), figures.clone());
            if let (false, Some(figures)) = (same, figures) {
                let found = (figures.requests, key, figures);
                let least = shortest.entry(&key.policy).or_insert(found);
                if figures.requests < least.0 {
                    *least = found;
                }
            }
        }
        for (_, key, figures) in shortest.into_values() {
            let again = measure(key).map_err(BenchError::Policy)?;
            if again.as_ref() != Some(figures) {
                let now = again.map_or("not at all".to_string(), |f| format!("{} s", f.time_s));
                let cell = super::cell_name(&key.cell);
                let before = figures.time_s;
                let what = format!(
                    "its runs are of another build: {} in {cell} took {before} s, now {now}",
                    key.policy
                );
                return Err(refused(&self.path, &what, REMEDY));
            }
        }
        Ok(usable)
    }

    /// Adds a run.
    pub fn append(&mut self, key: &Key, figures: Option<&Figures>) -> Result<(), BenchError> {
        let line = |value: serde_json::Result<String>| {
            value.expect("structs of numbers and strings") + "\n"
        };
        let mut text = String::new();
        if !std::mem::replace(&mut self.headed, true) {
            text.push_str(&line(serde_json::to_string(&self.header)));
        }
        text.push_str(&line(serde_json::to_string(&RunLine {
            key: key.clone(),
            figures: figures.cloned(),
        })));
        self.file.write_all(text.as_bytes()).map_err(|error| {
            refused(
                &self.path,
                &error.to_string(),
                "free some space, then run the same command",
            )
        })
    }
}

fn refused(path: &Path, what: &str, remedy: &str) -> BenchError {
    BenchError::Runs(format!(
        "cannot use the runs of {}: {what}; {remedy}",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluation::Cell;

    fn key(policy: &str, seed: u64) -> Key {
        let cell = Cell {
            workload: "random".into(),
            device: "nvme".into(),
            cache: 1 << 20,
        };
        Key {
            cell,
            policy: policy.into(),
            seed,
        }
    }

    /// A third has no finite decimal fraction, and is written with 15 digits.
    fn figures(requests: u64) -> Figures {
        Figures {
            time_s: 0.333_333_333_333_333,
            stall_s: 1.2e-7,
            overfetch: Some(1.000_000_000_000_01),
            requests,
            unused_bytes: 3,
            p99_us: None,
            held_byte_s: 123_456_789.012_345,
            t95_round_trips: Some(2.5),
            flaps: 1,
            demand_bytes: 5,
            used_bytes: 2,
        }
    }

    fn header(build: &str) -> RunsHeader {
        RunsHeader::new(Design::Fractional, None, build.to_string())
    }

    fn said(result: Result<RunsFile, BenchError>) -> String {
        result
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    }

    fn never(_: &Key) -> Result<Option<Figures>, foreread_core::policy::SpecError> {
        panic!("no run is repeated")
    }

    #[test]
    fn runs_come_back_as_they_were_and_a_cut_line_is_removed() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let path = dir.path().join("runs.jsonl");
        let mut file = RunsFile::open(&path, header("a")).expect("new");
        file.append(&key("none", 1), Some(&figures(9)))
            .expect("written");
        file.append(&key("oracle", 4), None).expect("written");
        assert!(said(RunsFile::open(&path, header("a"))).contains("another process writes to it"));
        drop(file);
        let whole = std::fs::read(&path).expect("readable");
        std::fs::write(&path, [&whole[..], b"{\"key\":{\"ce"].concat()).expect("written");
        let file = RunsFile::open(&path, header("a")).expect("its own");
        assert_eq!(std::fs::read(&path).expect("readable"), whole);
        let keys = [key("none", 1), key("none", 2), key("oracle", 4)];
        let runs = file
            .usable(&keys, &["auto".to_string()], &never)
            .expect("usable");
        let expected = [(key("none", 1), Some(figures(9))), (key("oracle", 4), None)];
        assert_eq!(runs, BTreeMap::from(expected));
    }

    #[test]
    fn a_file_of_something_else_is_refused() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let path = dir.path().join("runs.jsonl");
        RunsFile::open(&path, header("a"))
            .expect("new")
            .append(&key("none", 1), None)
            .expect("written");
        let other = |change: &dyn Fn(&mut RunsHeader)| {
            let mut header = header("a");
            change(&mut header);
            said(RunsFile::open(&path, header))
        };
        let design = other(&|h| h.design = "baseline".to_string());
        assert!(
            design.contains("its runs are of the design fractional, not of baseline; name another"),
            "{design}"
        );
        let trace = other(&|h| h.trace = Some("x 1".to_string()));
        assert!(
            trace.contains("its runs are of no trace, not of the trace x 1"),
            "{trace}"
        );
        assert!(other(&|h| h.foreread = "9".to_string()).contains("this is 9"));
        let text = std::fs::read_to_string(&path).expect("readable");
        std::fs::write(&path, text + "{\"key\":1}\n").expect("written");
        assert!(said(RunsFile::open(&path, header("a"))).contains("line 3 is no run"));
        let text = std::fs::read_to_string(&path).expect("readable");
        let version_9 = text.replace("policies-runs/1", "policies-runs/9");
        for odd in ["policy,seed\nnone,1\n", "\0\u{1}", "{}\n", &version_9] {
            std::fs::write(&path, odd).expect("written");
            assert!(
                said(RunsFile::open(&path, header("a"))).contains("it is not a file of runs"),
                "{odd}"
            );
            assert_eq!(
                std::fs::read_to_string(&path).expect("readable"),
                odd,
                "it is left as it was"
            );
        }
    }

    /// Of the opponent the run of 7 requests is repeated, `auto` is measured again.
    #[test]
    fn runs_of_another_build_are_checked() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let path = dir.path().join("runs.jsonl");
        let mut file = RunsFile::open(&path, header("a")).expect("new");
        file.append(&key("none", 1), Some(&figures(9)))
            .expect("written");
        file.append(&key("none", 4), Some(&figures(7)))
            .expect("written");
        file.append(&key("auto", 4), Some(&figures(7)))
            .expect("written");
        drop(file);
        let keys = [key("none", 1), key("none", 4), key("auto", 4)];
        let judged = ["auto".to_string()];
        let mut file = RunsFile::open(&path, header("b")).expect("another build");
        let same = |key: &Key| {
            assert_eq!(*key, self::key("none", 4));
            Ok(Some(figures(7)))
        };
        let runs = file.usable(&keys, &judged, &same).expect("usable");
        assert_eq!(runs.keys().cloned().collect::<Vec<_>>(), keys[..2]);
        let other = |_: &Key| {
            Ok(Some(Figures {
                unused_bytes: 4,
                ..figures(7)
            }))
        };
        let why = file
            .usable(&keys, &judged, &other)
            .expect_err("another figure")
            .to_string();
        assert!(
            why.contains(
                "another build: none in random on nvme, cache 1M took 0.333333333333333 s"
            ),
            "{why}"
        );
        file.append(&key("auto", 4), Some(&figures(8)))
            .expect("written");
        drop(file);
        let file = RunsFile::open(&path, header("b")).expect("both builds");
        let runs = file.usable(&keys, &judged, &same).expect("usable");
        assert_eq!(runs.get(&keys[2]), Some(&Some(figures(8))));
    }
}
