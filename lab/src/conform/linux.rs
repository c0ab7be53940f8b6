//! A recording of a running kernel's readahead (spec linux-readahead, section 5) against `linux-6.18`.
//!
//! Level *pages*: for each operation the pages that were brought in, and which of them bear the mark afterwards.
//! Recordings without large folios decide page by page, so they must agree in every one. Never: goes on after a
//! difference within an episode: from there on the two caches differ.
//!
//! ```text
//!   recording ──op──► machine (a fresh one for each episode) ──► pages added, marks ──┬─► equal? count decisions
//!        └──────────── what the kernel added and marked ─────────────────────────────┘    else a divergence
//! ```

use flate2::bufread::MultiGzDecoder;
use foreread_core::event::{Action, Advice, Event};
use foreread_core::machine::{Config, Machine};
use foreread_core::policy::{PolicySpec, SpecError};
use foreread_core::units::{ByteRange, FileId, Nanos, OpenId, PageSize, ReadId};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

const PAGE: u64 = 4096;
/// A line of a recording lists every page it brought in; the longest seen is 60 kB.
const MAX_LINE: usize = 16 << 20;
/// Descriptors of an episode.
const MAX_FDS: u32 = 4096;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Decisions of the kernel that were compared: entries of `calls`.
    pub decisions: u64,
    /// Episodes cut short by a difference.
    pub divergences: u64,
    /// Operations carried out.
    pub operations: u64,
    /// The first difference in words.
    pub first: Option<String>,
}

/// Why a recording could not be checked: what, where, what to do.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// Reading failed.
    #[error("line {line}: {error}")]
    Io {
        /// Which line.
        line: u64,
        /// What the system said.
        error: std::io::Error,
    },
    /// A line is not what the format says.
    #[error("line {line}: {what}; the file is no recording of version 1, or it is cut short")]
    Format {
        /// Which line.
        line: u64,
        /// What is wrong.
        what: String,
    },
    /// The recording has something this level does not cover.
    #[error("line {line}: {what}")]
    Level {
        /// Which line.
        line: u64,
        /// What.
        what: String,
    },
    /// The policy could not be set up from the header.
    #[error("the header: {0}")]
    Policy(#[from] SpecError),
}

#[derive(Deserialize)]
#[serde(tag = "t", rename_all = "lowercase")]
enum Line {
    Header { v: u32, page_size: u64, ra_pages: u64, io_pages: u64, large_folios: bool, min_order: u32, mmap: bool },
    Episode { ep: u64, file_size: u64, fds: u32 },
    Op(Op),
}

#[derive(Deserialize)]
struct Op {
    i: u64,
    op: String,
    #[serde(default)]
    fd: u32,
    #[serde(default)]
    off: u64,
    #[serde(default)]
    len: u64,
    #[serde(default)]
    advice: String,
    #[serde(default)]
    calls: Vec<serde_json::Value>,
    #[serde(default)]
    added: Vec<(u64, u32)>,
    #[serde(default)]
    marks: Vec<u64>,
    #[serde(default)]
    evicted: Vec<(u64, u32)>,
}

/// Opens a recording: JSON lines, gzipped or not, told apart by their first bytes.
///
/// # Errors
/// The file cannot be opened or read.
pub fn open(path: &Path) -> std::io::Result<Box<dyn BufRead>> {
    let mut file = BufReader::new(File::open(path)?);
    let zipped = file.fill_buf()?.starts_with(&[0x1f, 0x8b]);
    Ok(if zipped { Box::new(BufReader::new(MultiGzDecoder::new(file))) } else { Box::new(file) })
}

/// Checks a recording at the level of pages.
///
/// # Errors
/// The recording cannot be read, is no recording, or holds what this level does not cover.
pub fn check_pages(mut recording: impl BufRead) -> Result<Verdict, CheckError> {
    let mut check = Check::default();
    for number in 1.. {
        let mut text = Vec::new();
        let mut limited = (&mut recording).take(MAX_LINE as u64);
        let got = limited.read_until(b'\n', &mut text).map_err(|error| CheckError::Io { line: number, error })?;
        if got == 0 {
            break;
        }
        let format = |what: String| CheckError::Format { line: number, what };
        if text.last() != Some(&b'\n') && got == MAX_LINE {
            return Err(format(format!("longer than {MAX_LINE} bytes")));
        }
        let line = serde_json::from_slice(&text).map_err(|error| format(error.to_string()))?;
        check.line(number, line)?;
    }
    Ok(check.verdict)
}

#[derive(Default)]
struct Check {
    verdict: Verdict,
    policy: Option<PolicySpec>,
    episode: Option<Episode>,
}

struct Episode {
    number: u64,
    machine: Machine,
    size: u64,
    fds: u32,
    reads: u64,
}

impl Check {
    fn line(&mut self, number: u64, line: Line) -> Result<(), CheckError> {
        let format = |what: &str| CheckError::Format { line: number, what: what.to_string() };
        match line {
            Line::Header { v, page_size, ra_pages, io_pages, large_folios, min_order, mmap } => {
                if v != 1 || page_size != PAGE {
                    return Err(format(&format!("version {v} with pages of {page_size} bytes")));
                }
                if large_folios || min_order > 0 || mmap {
                    let what = "large folios and page faults need the level 'full'".to_string();
                    return Err(CheckError::Level { line: number, what });
                }
                let text = format!("linux-6.18:max={},io={}", ra_pages * PAGE, io_pages * PAGE);
                self.policy = Some(PolicySpec::parse(&text)?);
            }
            Line::Episode { ep, file_size, fds } => {
                let policy = self.policy.clone().ok_or_else(|| format("an episode before the header"))?;
                if fds > MAX_FDS {
                    return Err(format(&format!("{fds} descriptors")));
                }
                self.episode = Some(Episode::new(ep, policy, file_size, fds));
            }
            Line::Op(op) => {
                if self.policy.is_none() {
                    return Err(format("an operation before the header"));
                }
                let Some(episode) = self.episode.as_mut() else { return Ok(()) };
                if op.fd >= episode.fds {
                    return Err(format(&format!("descriptor {} of {}", op.fd, episode.fds)));
                }
                self.verdict.operations += 1;
                self.verdict.decisions += op.calls.len() as u64;
                if let Err(difference) = episode.play(&op) {
                    self.verdict.divergences += 1;
                    let what = format!("line {number}, episode {}, operation {}: {difference}", episode.number, op.i);
                    self.verdict.first.get_or_insert(what);
                    self.episode = None;
                }
            }
        }
        Ok(())
    }
}

impl Episode {
    fn new(number: u64, policy: PolicySpec, size: u64, fds: u32) -> Episode {
        let page = PageSize::new(PAGE).unwrap_or_else(|| unreachable!("4096 is a page size"));
        // Room for the whole file twice over: the kernel evicted nothing that the recording does not name.
        let mut config = Config::new(page, 4 * size + (64 << 20));
        config.max_fetch_bytes = 1 << 30;
        config.max_in_flight = 1 << 16;
        config.max_ahead_in_flight = (1 << 16) - 1;
        let mut machine = Machine::new(config, policy);
        for fd in 0..fds {
            machine.handle(Nanos(0), Event::Open { open: OpenId(fd), file: FileId(0), size });
        }
        Episode { number, machine, size, fds, reads: 0 }
    }

    /// Carries out one operation and compares.
    fn play(&mut self, op: &Op) -> Result<(), String> {
        let added = self.carry_out(op)?;
        let theirs: BTreeSet<u64> = op.added.iter().flat_map(|&(first, order)| first..first + (1 << order)).collect();
        if added != theirs {
            let (more, less): (Vec<_>, Vec<_>) =
                (added.difference(&theirs).collect(), theirs.difference(&added).collect());
            return Err(format!("pages only ours {more:?}, only the kernel's {less:?}"));
        }
        let marked = |page: &u64| self.machine.cache().group(FileId(0), page / 64).marked() >> (page % 64) & 1 != 0;
        let ours: BTreeSet<u64> = added.iter().copied().filter(marked).collect();
        let theirs: BTreeSet<u64> = op.marks.iter().copied().collect();
        if ours != theirs {
            return Err(format!("marks ours {ours:?}, the kernel's {theirs:?}"));
        }
        for &(first, order) in &op.evicted {
            let range = ByteRange::between(first * PAGE, (first + (1 << order)) * PAGE);
            self.send(Event::Invalidate { file: FileId(0), range });
        }
        Ok(())
    }

    /// The pages that an operation brought in.
    fn carry_out(&mut self, op: &Op) -> Result<BTreeSet<u64>, String> {
        let open = OpenId(op.fd);
        let to_end = ByteRange::between(op.off, if op.len == 0 { self.size.max(op.off) } else { op.off + op.len });
        let event = match (op.op.as_str(), op.advice.as_str()) {
            ("pread", _) => {
                self.reads += 1;
                let range = ByteRange::new(op.off, op.len).ok_or("a read beyond any file")?;
                Event::Read { read: ReadId(self.reads), open, range, random: false }
            }
            ("readahead", _) | ("fadvise", "willneed") => {
                Event::Advise { open, advice: Advice::WillNeed, range: to_end }
            }
            ("fadvise", "normal") => Event::Advise { open, advice: Advice::Normal, range: to_end },
            ("fadvise", "sequential") => Event::Advise { open, advice: Advice::Sequential, range: to_end },
            ("fadvise", "random") => Event::Advise { open, advice: Advice::Random, range: to_end },
            // What dropping did is in the recording: it depends on what else held the pages.
            ("fadvise", "dontneed" | "noreuse") => return Ok(BTreeSet::new()),
            (other, advice) => return Err(format!("operation '{other} {advice}' is unknown")),
        };
        Ok(self.send(event))
    }

    /// Sends an event and answers every fetch at once. Returns the pages fetched.
    fn send(&mut self, event: Event) -> BTreeSet<u64> {
        let mut pages = BTreeSet::new();
        self.machine.handle(Nanos(0), event);
        while let Some(action) = self.machine.poll() {
            match action {
                Action::Submit { fetch, range, .. } => {
                    pages.extend(range.start() / PAGE..range.end().div_ceil(PAGE));
                    self.machine.handle(Nanos(0), Event::Done { fetch, bytes: range.len() });
                }
                Action::Serve { lease, .. } => self.machine.handle(Nanos(0), Event::Release { lease }),
                _ => {}
            }
        }
        pages
    }
}
