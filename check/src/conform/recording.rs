//! Parses a recording of a running kernel's readahead, line by line (format: docs/spec/linux-readahead.md 5).
//!
//! Before a line is used, its syntax, its numbers and its agreement with the header are checked. The checked numbers
//! are so small that later calculations cannot overflow. Only one line is in memory at a time.
//!
//! ```text
//!   header ── episode ── op ── op ── ... ── episode ── op ── ...
//!              └ an empty cache, fresh descriptors     └ what was done │ answers (may be absent) │ evicted
//! ```

use serde::{Deserialize, Serialize};
use std::io::{BufRead, Read};

/// The size of a kernel page, in bytes.
pub const PAGE: u64 = 4096;
/// Maximum length of a line. A line lists every page that the operation brought in; the longest seen is 60 kB.
const MAX_LINE: usize = 16 << 20;
/// Maximum number of descriptors of an episode.
const MAX_FDS: u32 = 4096;
/// Maximum of `ra_pages` and `io_pages`: 1 GiB, the maximum of the policy.
const MAX_WINDOW: u64 = 1 << 18;
/// Maximum file size; recorded files have 128 MiB.
const MAX_FILE: u64 = 16 << 30;
/// Maximum folio order: a huge page.
const MAX_ORDER: u32 = 9;
/// Number of pages that a page table maps; a huge page consists of the same number of pages.
pub const TABLE: u64 = 512;
/// Maximum number of extents of a file; recorded files have up to three.
const MAX_EXTENTS: usize = 4096;
/// Maximum end of offset plus length, as in the kernel.
const MAX_OFFSET: u64 = 1 << 62;

/// The error if a recording cannot be checked: it says what failed, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// Reading failed.
    #[error("line {line}: {error}; the file is truncated or damaged")]
    Io { line: u64, error: std::io::Error },
    /// A line does not match the format.
    #[error("line {line}: {what}; the file is not a recording of version 1, or it is truncated")]
    Format { line: u64, what: String },
    /// The recording contains something that this level does not cover.
    #[error("line {line}: {what}; use the level 'full'")]
    Level { line: u64, what: String },
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Header {
    v: u32,
    page_size: u64,
    /// The device's readahead, in pages.
    pub ra_pages: u64,
    /// The device's largest command, in pages.
    pub io_pages: u64,
    /// The file system creates large folios.
    pub large_folios: bool,
    /// The largest order of folios.
    pub max_order: u32,
    /// The smallest order of folios.
    pub min_order: u32,
    /// The recording contains page faults.
    pub mmap: bool,
}

/// The start of an episode: a file without cached pages, and descriptors that have read nothing.
#[derive(Clone, Debug, Deserialize)]
pub struct Episode {
    pub ep: u64,
    pub file_size: u64,
    /// Number of open descriptions; they are numbered from 0.
    pub fds: u32,
    /// Pages at which an extent of the file begins, except the first extent. Older recordings do not have this field.
    #[serde(default)]
    pub extents: Vec<u64>,
}

/// One operation on a file, and what the kernel did during the operation.
#[derive(Clone, Debug, Deserialize)]
pub struct Op {
    /// The position of the operation in the episode.
    pub i: u64,
    pub op: String,
    #[serde(default)]
    pub fd: u32,
    #[serde(default)]
    pub off: u64,
    #[serde(default)]
    pub len: u64,
    #[serde(default)]
    pub(super) advice: Advice,
    /// First mapped page, counted in the file.
    #[serde(default)]
    pub pgoff: u64,
    /// Number of mapped pages.
    #[serde(default)]
    pub npages: u64,
    /// Where the mapping begins: the number of its first page within its page table. Older recordings do not have this
    /// field.
    pub va: Option<u64>,
    #[serde(default)]
    pub(super) prot: String,
    /// The touched page, counted in the mapping.
    #[serde(default)]
    pub page: u64,
    /// The kernel's decisions.
    pub calls: Option<Vec<Call>>,
    /// Folios that the kernel inserted, in order.
    pub added: Option<Vec<(u64, u32)>>,
    /// The first pages of the folios that had the mark afterwards.
    pub marks: Option<Vec<u64>>,
    /// Folios that left the cache; an input.
    #[serde(default)]
    pub evicted: Vec<(u64, u32)>,
    /// The state of the descriptor afterwards.
    pub state: Option<StreamState>,
    /// The kernel was short of memory in this episode up to this operation (docs/spec/linux-readahead.md 4.10, end).
    #[serde(default)]
    pub pressure: bool,
}

/// A word for files, and a number for mappings.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Advice {
    Number(u32),
    Word(String),
}

impl Default for Advice {
    fn default() -> Advice {
        Advice::Number(0)
    }
}

/// One call of the kernel's readahead code during an operation, in [`Op::calls`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "t", rename_all = "lowercase")]
pub enum Call {
    /// A page was absent.
    Sync {
        index: u64,
        req: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        pre: Option<Pre>,
    },
    /// A mark was reached.
    Async {
        index: u64,
        req: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        pre: Option<Pre>,
    },
    Window {
        start: u64,
        order: u32,
        size: u64,
        async_size: u64,
    },
    /// A page-by-page read.
    Raw { index: u64, nr: u64, lookahead: u64 },
}

impl Call {
    /// The same call without the state before it.
    pub fn without_pre(self) -> Call {
        match self {
            Call::Sync { index, req, .. } => Call::Sync {
                index,
                req,
                pre: None,
            },
            Call::Async { index, req, .. } => Call::Async {
                index,
                req,
                pre: None,
            },
            other => other,
        }
    }
}

/// The state of a descriptor before a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pre {
    pub order: u32,
    pub size: u64,
    pub async_size: u64,
    pub ra_pages: u64,
    pub mmap_miss: u64,
    pub prev_pos: i64,
}

/// The state of a descriptor after an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamState {
    pub start: u64,
    pub size: u64,
    pub async_size: u64,
    pub prev_pos: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// A read of `len` bytes from `off`.
    Read,
    /// A hint that changes the state of the descriptor.
    Hint(foreread_core::event::Advice),
    /// A hint that reads: WILLNEED, `readahead(2)`.
    WillNeed,
    /// A hint without a decision; the folios that left the cache are in `evicted`.
    Other,
    /// A new mapping that replaces the descriptor's previous one.
    Map {
        advice: foreread_core::event::Advice,
        /// The mapping asks for huge pages.
        huge: bool,
        executable: bool,
    },
    /// A touch of a page of the mapping.
    Touch,
}

#[derive(Deserialize)]
#[serde(tag = "t", rename_all = "lowercase")]
enum RecordingLine {
    Header(Header),
    Episode(Episode),
    Op(Box<Op>),
}

/// One parsed line of a recording, already checked against the lines before it.
pub enum Item {
    /// The first line.
    Header(Header),
    Episode(Episode),
    /// An operation, and its action.
    Op(Box<Op>, Act),
}

pub struct Lines<R> {
    input: R,
    number: u64,
    header: Option<Header>,
    /// Number of descriptors of the current episode, if there is one.
    fds: Option<u32>,
}

impl<R: BufRead> Lines<R> {
    /// Creates a reader of a recording.
    pub fn new(input: R) -> Lines<R> {
        Lines {
            input,
            number: 0,
            header: None,
            fds: None,
        }
    }

    /// Returns the number of the last line that was read; the first line is 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Creates an error about the last line that was read.
    pub fn wrong(&self, what: impl Into<String>) -> CheckError {
        CheckError::Format {
            line: self.number,
            what: what.into(),
        }
    }

    /// Reads the next line, or returns `None` at the end. Returns an error if the line cannot be read, is not valid in a recording, or
    /// disagrees with the header.
    pub fn read(&mut self) -> Result<Option<Item>, CheckError> {
        self.number += 1;
        let mut text = Vec::new();
        let mut limited = (&mut self.input).take(MAX_LINE as u64);
        let got = limited
            .read_until(b'\n', &mut text)
            .map_err(|error| CheckError::Io {
                line: self.number,
                error,
            })?;
        if got == 0 {
            return if self.header.is_some() {
                Ok(None)
            } else {
                Err(self.wrong("the header is missing"))
            };
        }
        if text.last() != Some(&b'\n') && got == MAX_LINE {
            return Err(self.wrong(format!("the line is longer than {MAX_LINE} bytes")));
        }
        let line = serde_json::from_slice(&text).map_err(|error| self.wrong(error.to_string()))?;
        let item = match line {
            RecordingLine::Header(header) => self.header(header).map(|()| Item::Header(header)),
            RecordingLine::Episode(episode) => {
                self.episode(&episode).map(|()| Item::Episode(episode))
            }
            RecordingLine::Op(op) => self.act(&op).map(|act| Item::Op(op, act)),
        };
        item.map(Some).map_err(|what| self.wrong(what))
    }

    fn header(&mut self, header: Header) -> Result<(), String> {
        let Header {
            v,
            page_size,
            ra_pages,
            io_pages,
            max_order,
            min_order,
            ..
        } = header;
        if self.header.is_some() {
            return Err("a second header".to_string());
        }
        if v != 1 || page_size != PAGE {
            return Err(format!(
                "version {v} with pages of {page_size} bytes is not supported"
            ));
        }
        if ra_pages > MAX_WINDOW || io_pages > MAX_WINDOW {
            return Err(format!(
                "ra_pages {ra_pages}, io_pages {io_pages}: the maximum is {MAX_WINDOW}"
            ));
        }
        if max_order > MAX_ORDER || min_order > max_order {
            return Err(format!(
                "folios of order {min_order} to {max_order} are not within 0 to {MAX_ORDER}"
            ));
        }
        self.header = Some(header);
        Ok(())
    }

    fn episode(&mut self, episode: &Episode) -> Result<(), String> {
        let Episode {
            file_size,
            fds,
            ref extents,
            ..
        } = *episode;
        if self.header.is_none() {
            return Err("an episode before the header".to_string());
        }
        if fds > MAX_FDS {
            return Err(format!("{fds} descriptors, but the maximum is {MAX_FDS}"));
        }
        if file_size > MAX_FILE {
            return Err(format!(
                "a file of {file_size} bytes, but the maximum is {MAX_FILE}"
            ));
        }
        if extents.len() > MAX_EXTENTS {
            return Err(format!(
                "{} extents, but the maximum is {MAX_EXTENTS}",
                extents.len()
            ));
        }
        self.fds = Some(fds);
        Ok(())
    }

    /// Checks an operation and returns its action.
    fn act(&self, op: &Op) -> Result<Act, String> {
        let header = self.header.ok_or("an operation before the header")?;
        let fds = self.fds.ok_or("an operation before an episode")?;
        if op.fd >= fds {
            return Err(format!("descriptor {} of {fds}", op.fd));
        }
        if op
            .off
            .checked_add(op.len)
            .is_none_or(|end| end >= MAX_OFFSET)
        {
            return Err(format!(
                "{} bytes from {} are beyond the maximum file size",
                op.len, op.off
            ));
        }
        if op
            .pgoff
            .checked_add(op.npages)
            .is_none_or(|end| end > MAX_FILE / PAGE)
        {
            return Err(format!(
                "a mapping of {} pages from page {} is beyond the maximum file size",
                op.npages, op.pgoff
            ));
        }
        if op.va.is_some_and(|va| va >= TABLE) {
            return Err(format!(
                "va {}: not below {TABLE}",
                op.va.unwrap_or_default()
            ));
        }
        op.added
            .iter()
            .flatten()
            .chain(&op.evicted)
            .try_for_each(|&(first, order)| {
                let most = if header.large_folios {
                    header.max_order
                } else {
                    header.min_order
                };
                if !(header.min_order..=most).contains(&order) {
                    return Err(format!(
                        "a folio of order {order}, but the header allows orders {} to {most}",
                        header.min_order
                    ));
                }
                let fits = first < MAX_FILE / PAGE && first % (1 << order) == 0;
                if fits {
                    Ok(())
                } else {
                    Err(format!("a folio of order {order} at page {first}, which is not a multiple of its size, or is beyond the maximum file size"))
                }
            })?;
        act_of(op, &header)
    }
}

fn act_of(op: &Op, header: &Header) -> Result<Act, String> {
    use foreread_core::event::Advice as Told;
    let unknown = || {
        Err(format!(
            "operation '{}' with advice {:?} is unknown",
            op.op, op.advice
        ))
    };
    if !header.mmap && matches!(op.op.as_str(), "mmap" | "touch") {
        return Err(format!(
            "operation '{}', but the header says that the recording has no page faults",
            op.op
        ));
    }
    Ok(match (op.op.as_str(), &op.advice) {
        ("pread", _) => Act::Read,
        ("readahead", _) => Act::WillNeed,
        ("touch", _) => Act::Touch,
        ("fadvise", Advice::Word(word)) => match word.as_str() {
            "normal" => Act::Hint(Told::Normal),
            "sequential" => Act::Hint(Told::Sequential),
            "random" => Act::Hint(Told::Random),
            "willneed" => Act::WillNeed,
            "dontneed" | "noreuse" => Act::Other,
            _ => return unknown(),
        },
        ("mmap", Advice::Number(number)) => {
            let (advice, huge) = match number {
                0 => (Told::Normal, false),
                1 => (Told::Random, false),
                2 => (Told::Sequential, false),
                14 => (Told::Normal, true),
                _ => return unknown(),
            };
            Act::Map {
                advice,
                huge,
                executable: op.prot.contains('x'),
            }
        }
        _ => return unknown(),
    })
}
