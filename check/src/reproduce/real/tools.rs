//! The programs that the papers measured with: found, run with a limit in their own arguments, their output read.
//!
//! Never: a shell, or a program that is not bounded in size or time by its arguments.

use super::RealError;
use super::guard::Guard;
use foreread_lab::live::Scratch;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Where programs of the administrator are, which are not in every PATH.
const MORE: [&str; 2] = ["/usr/sbin", "/sbin"];
/// Longest part of an output in an error.
const MAX_CHARS: usize = 200;
/// How often it is looked whether sysbench has its file, and how long between.
const LOOKS: u32 = 200;
const LOOK_MS: u64 = 10;

/// A program.
#[derive(Clone, Debug)]
pub struct Tool {
    path: PathBuf,
}

/// The program of this name, if there is one.
#[must_use]
pub fn find(name: &str) -> Option<Tool> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain(MORE.map(PathBuf::from));
    dirs.map(|dir| dir.join(name))
        .find(|path| path.is_file())
        .map(|path| Tool { path })
}

/// The programs that a call needs.
#[derive(Debug, Default)]
pub struct Tools {
    found: Vec<(&'static str, Tool)>,
}

impl Tools {
    /// Finds them, each once.
    ///
    /// # Errors
    /// One is not there; the error names all that are not.
    pub fn find(wanted: &[&'static str]) -> Result<Tools, RealError> {
        let (mut tools, mut missing) = (Tools::default(), Vec::new());
        for name in wanted {
            match find(name) {
                _ if missing.contains(name) || tools.get(name).is_ok() => {}
                Some(tool) => tools.found.push((name, tool)),
                None => missing.push(*name),
            }
        }
        if missing.is_empty() {
            Ok(tools)
        } else {
            Err(lacking(&missing.join(", ")))
        }
    }

    /// One of them.
    ///
    /// # Errors
    /// It was not asked for.
    pub fn get(&self, name: &str) -> Result<&Tool, RealError> {
        self.found
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, tool)| tool)
            .ok_or_else(|| lacking(name))
    }
}

fn lacking(what: &str) -> RealError {
    RealError::Needs(format!(
        "--real: {what} not found; it needs {}",
        super::needs()
    ))
}

impl Tool {
    /// Its path, for another program that is to start it.
    #[must_use]
    pub fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Runs it to its end out of reach of Ctrl-C, what it prints going to `output`.
    ///
    /// # Errors
    /// It does not start, or fails.
    pub fn run_to(&self, args: &[&str], output: Stdio) -> Result<(), RealError> {
        let mut command = self.command(args);
        let child = command
            .stdout(output)
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn();
        // The command holds the way to `output`, and a reader of it waits for its end.
        drop(command);
        let ended = child.and_then(std::process::Child::wait_with_output);
        self.said(&ended.map_err(|error| self.failed(error.to_string()))?)
            .map(|_| ())
    }

    /// Runs it to its end and gives back what it said on both of its outputs.
    ///
    /// # Errors
    /// It does not start, or fails.
    pub fn run(&self, args: &[&str]) -> Result<String, RealError> {
        let output = self
            .command(args)
            .output()
            .map_err(|error| self.failed(error.to_string()))?;
        self.said(&output)
    }

    /// The program with these arguments, its messages in English and no input.
    #[must_use]
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(args).env("LC_ALL", "C").stdin(Stdio::null());
        command
    }

    fn said(&self, output: &Output) -> Result<String, RealError> {
        let text = [&output.stdout, &output.stderr]
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            .concat();
        if output.status.success() {
            Ok(text)
        } else {
            Err(self.failed(text))
        }
    }

    /// The error of a call that failed.
    #[must_use]
    pub fn failed(&self, why: String) -> RealError {
        let why: String = why
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .chars()
            .take(MAX_CHARS)
            .collect();
        RealError::Tool {
            what: self.path.display().to_string(),
            why,
        }
    }

    /// The error of an output that has no figure where there should be one.
    #[must_use]
    pub fn odd(&self, said: &str) -> RealError {
        self.failed(format!("unexpected output: {said}"))
    }
}

/// Seconds that `dd` says it took: "... copied, 1.234 s, 109 MB/s".
#[must_use]
pub fn dd_seconds(said: &str) -> Option<f64> {
    let part = said.split("copied, ").nth(1)?;
    part.split_whitespace()
        .next()?
        .parse()
        .ok()
        .filter(|s: &f64| *s > 0.0)
}

/// This many random reads of the scratch file, for this many seconds at most. The link that gives it the name sysbench
/// wants is in a new directory, which a guard removes as soon as sysbench has opened it.
///
/// # Errors
/// It does not start, or fails.
pub fn sysbench(
    tools: &Tools,
    scratch: &Scratch,
    events: u64,
    how: [u64; 3],
) -> Result<String, RealError> {
    let [bytes, record, seconds] = how;
    let tool = tools.get("sysbench")?;
    let io = |error: std::io::Error| tool.failed(error.to_string());
    let dir = std::env::temp_dir().join(format!("foreread-{}-sysbench", std::process::id()));
    let link = dir.join("test_file.0");
    // Told before anything is made. `rm -d` removes the link and an empty directory, and nothing else.
    let guard = Guard::start(
        tools.get("xargs")?,
        &["-0", "-r", &tools.get("rm")?.name(), "-d", "-f", "--"],
    )?;
    guard.tell(format!("{}\0{}", link.display(), dir.display()).as_bytes())?;
    std::fs::create_dir(&dir).map_err(io)?;
    std::os::unix::fs::symlink(scratch.shared_path(), &link).map_err(io)?;
    let args = [
        "fileio".to_string(),
        format!("--time={seconds}"),
        format!("--events={events}"),
        "--threads=1".to_string(),
        "--file-num=1".to_string(),
        format!("--file-total-size={bytes}"),
        format!("--file-block-size={record}"),
        "--file-test-mode=rndrd".to_string(),
        "--file-fsync-freq=0".to_string(),
        "--file-fsync-end=off".to_string(),
        "run".to_string(),
    ];
    let mut command = tool.command(&args.each_ref().map(String::as_str));
    let child = command
        .current_dir(&dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(io)?;
    let open = PathBuf::from(format!("/proc/{}/fd", child.id()));
    for _ in 0..LOOKS {
        if !open.is_dir() || holds_deleted(&open) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(LOOK_MS));
    }
    let removed = guard.act();
    let output = child.wait_with_output().map_err(io)?;
    removed.and_then(|()| tool.said(&output))
}

/// Whether one of the descriptors is a file without a name: the scratch file.
fn holds_deleted(open: &Path) -> bool {
    let links = std::fs::read_dir(open).into_iter().flatten().flatten();
    links
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .any(|to| to.to_string_lossy().ends_with("(deleted)"))
}

/// "read, MiB/s: 123.45".
#[must_use]
pub fn sysbench_mib_per_s(said: &str) -> Option<f64> {
    said.split("read, MiB/s:")
        .nth(1)?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

/// Random reads of a device for this many seconds; engine, depth, direct.
///
/// # Errors
/// It does not start, or fails.
pub fn fio(
    tool: &Tool,
    path: &str,
    record: u64,
    seconds: u64,
    how: [&str; 3],
) -> Result<String, RealError> {
    let [engine, depth, direct] = how;
    let args = [
        "--name=seed".to_string(),
        format!("--filename={path}"),
        "--readonly".to_string(),
        "--rw=randread".to_string(),
        format!("--bs={record}"),
        format!("--ioengine={engine}"),
        format!("--iodepth={depth}"),
        format!("--direct={direct}"),
        format!("--runtime={seconds}"),
        "--output-format=json".to_string(),
    ];
    tool.run(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Bytes a second of the reads, from fio's JSON.
#[must_use]
pub fn fio_bytes_per_s(said: &str) -> Option<f64> {
    let json = &said[said.find('{')?..=said.rfind('}')?];
    let value: serde_json::Value = serde_json::from_str(json).ok()?;
    value["jobs"][0]["read"]["bw_bytes"].as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_in_what_the_programs_say() {
        let dd = "32768+0 records in\n32768+0 records out\n134217728 bytes (134 MB, 128 MiB) copied, 0.5 s, 268 MB/s\n";
        assert_eq!(dd_seconds(dd), Some(0.5));
        assert_eq!(
            (dd_seconds("dd: error"), dd_seconds("copied, 0 s")),
            (None, None)
        );
        assert_eq!(
            sysbench_mib_per_s("Throughput:\n    read, MiB/s:     1234.50\n    written"),
            Some(1234.5)
        );
        assert_eq!(sysbench_mib_per_s("nothing"), None);
        let fio = "fio: a note {not json}\n";
        assert_eq!(fio_bytes_per_s(fio), None);
        assert_eq!(
            fio_bytes_per_s("note\n{\"jobs\":[{\"read\":{\"bw_bytes\":1048576}}]}\n"),
            Some(1_048_576.0)
        );
        assert_eq!(fio_bytes_per_s(""), None);
    }

    #[test]
    fn a_failure_is_one_short_line() {
        let Some(tool) = find("dd") else {
            println!("skipped: needs dd");
            return;
        };
        let error = tool
            .run(&["if=/dev/null/nothing"])
            .expect_err("no such file")
            .to_string();
        assert!(
            error.lines().count() == 1 && error.len() < 400 && error.contains("dd"),
            "{error}"
        );
        assert!(find("a program that does not exist").is_none());
    }
}
