//! Executes the steps of a test sequence (episode): reads and posix_fadvise in this process; accesses to mappings and readahead(2) in a
//! small Python process.
//!
//! Touching a mapping of a file needs `unsafe`, which `foreread-check` does not use. Python is available on nearly every system, and its
//! ctypes can map a file at a chosen address and read one byte. An episode is executed either by this process or by the Python process, so
//! the two need not share file descriptors. Without Python, patterns that need mappings or readahead(2) are left out, and the report lists
//! them.
//!
//! ```text
//!   Step ─┬─► Native: pread, posix_fadvise
//!         └─► Helper: "touch 0 93\n" ──stdin──► python3 ──stdout──► "0\n"     ends when its stdin does
//! ```

use super::LiveError;
use super::story::{LONGEST, Step};
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const PROGRAM: &str = include_str!("helper.py");
/// Plays in this process.
pub(super) struct Native {
    files: Vec<File>,
    buffer: Vec<u8>,
}

impl Native {
    pub fn new() -> Native {
        Native {
            files: Vec::new(),
            buffer: vec![0; LONGEST as usize],
        }
    }

    /// Begins a test sequence (episode): closes the descriptors of the previous sequence, and uses these new descriptors.
    pub fn begin(&mut self, files: Vec<File>) {
        self.files = files;
    }

    /// Executes a step. Returns the result of pread(2) if the step is a read, otherwise 0.
    pub fn play(&mut self, step: &Step) -> Result<u64, LiveError> {
        let file = &self.files[step.fd() as usize];
        match *step {
            Step::Pread { off, len, .. } => {
                let whole = &mut self.buffer[..len as usize];
                file.read_at(whole, off)
                    .map(|got| got as u64)
                    .map_err(|e| LiveError::io("cannot read a test file", e))
            }
            Step::Fadvise {
                advice, off, len, ..
            } => advise(file, advice, off, len)
                .map(|()| 0)
                .map_err(|e| LiveError::io("posix_fadvise", e)),
            Step::Readahead { .. } | Step::Mmap { .. } | Step::Touch { .. } => Err(
                LiveError::Cannot(format!("{step:?} needs python3; install it")),
            ),
        }
    }
}

/// Calls posix_fadvise(2) with the hint as named in the recording; `len` 0 reaches to the end.
pub(super) fn advise(
    file: &File,
    advice: &str,
    off: u64,
    len: u64,
) -> Result<(), rustix::io::Errno> {
    let advice = match advice {
        "normal" => Advice::Normal,
        "random" => Advice::Random,
        "sequential" => Advice::Sequential,
        "willneed" => Advice::WillNeed,
        "noreuse" => Advice::NoReuse,
        "dontneed" => Advice::DontNeed,
        _ => return Err(rustix::io::Errno::INVAL),
    };
    fadvise(file, off, NonZeroU64::new(len), advice)
}

/// Plays in a Python process.
pub(super) struct Helper {
    process: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Helper {
    /// Starts the Python process, or returns `None` if there is no Python with ctypes.
    pub fn start() -> Result<Option<Helper>, LiveError> {
        for python in ["/usr/bin/python3", "python3"] {
            let mut command = Command::new(python);
            // Isolated mode: no code of the user runs in it.
            command
                .args(["-I", "-S", "-c", PROGRAM])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null());
            // Ctrl-C is for this process; the helper ends when we end.
            command.process_group(0);
            let mut process = match command.spawn() {
                Ok(process) => process,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(LiveError::io(format!("cannot run {python}"), error)),
            };
            let (Some(to), Some(from)) = (process.stdin.take(), process.stdout.take()) else {
                continue;
            };
            let mut helper = Helper {
                process,
                to: Some(to),
                from: BufReader::new(from),
            };
            if helper.ask("ready") == Ok(0) {
                return Ok(Some(helper));
            }
        }
        Ok(None)
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Begins a test sequence (episode): replaces the descriptors with new descriptors of a file, and removes all mappings.
    pub fn begin(&mut self, path: &str, fds: u32) -> Result<(), LiveError> {
        self.tell(&format!("open {fds} {path}")).map(|_| ())
    }

    pub fn play(&mut self, step: &Step) -> Result<u64, LiveError> {
        let line = match *step {
            Step::Pread { fd, off, len } => format!("pread {fd} {off} {len}"),
            Step::Fadvise {
                fd,
                advice,
                off,
                len,
            } => format!("fadvise {fd} {advice} {off} {len}"),
            Step::Readahead { fd, off, len } => format!("readahead {fd} {off} {len}"),
            Step::Mmap {
                fd,
                pgoff,
                npages,
                va,
                prot,
                advice,
            } => {
                format!("mmap {fd} {pgoff} {npages} {va} {prot} {advice}")
            }
            Step::Touch { fd, page } => format!("touch {fd} {page}"),
        };
        self.tell(&line)
    }

    /// Returns the page numbers at which the extents of this file begin, without the first extent.
    pub fn extents(&mut self, path: &str) -> Result<Vec<u64>, LiveError> {
        let line = format!("extents {path}");
        let said = self.say(&line).map_err(|said| failed(&line, &said))?;
        let pages = said.split(',').filter(|page| *page != "-");
        pages
            .map(|page| page.parse().map_err(|_| failed(&line, &said)))
            .collect()
    }

    fn tell(&mut self, line: &str) -> Result<u64, LiveError> {
        self.ask(line).map_err(|said| failed(line, &said))
    }

    fn ask(&mut self, line: &str) -> Result<u64, String> {
        let said = self.say(line)?;
        said.parse().map_err(|_| said)
    }

    fn say(&mut self, line: &str) -> Result<String, String> {
        let to = self.to.as_mut().ok_or("it has ended")?;
        to.write_all(format!("{line}\n").as_bytes())
            .and_then(|()| to.flush())
            .map_err(|e| e.to_string())?;
        let mut said = String::new();
        self.from.read_line(&mut said).map_err(|e| e.to_string())?;
        let said = said.trim();
        if said.is_empty() {
            Err("it has ended".to_string())
        } else {
            Ok(said.to_string())
        }
    }
}

fn failed(asked: &str, said: &str) -> LiveError {
    LiveError::Cannot(format!(
        "python3 could not execute '{asked}': {said}; see dmesg"
    ))
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.to = None;
        let _ = self.process.wait();
    }
}
