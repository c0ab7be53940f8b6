//! The output of strace: the system calls of a program.
//!
//! ```text
//!   line ──► text: thread, time, call ──► whole call ──► calls: which description, which bytes ──► record
//!                  unfinished: it waits for its rest, and keeps its place                           in order of start
//! ```
//!
//! strace does not show the offset of a `read`; `follow/fds.rs` tracks the position of each open file description, so
//! offsets are known only if the trace contains the `openat` call. Times since 1970 (`-ttt`) are supported, and so are traces without times.
//! Record with `strace -f -ttt -T -y -o FILE`. Tracing with strace slows the program down by a factor of 2 to 10, and does not show page
//! faults of mappings. Unknown positions are never guessed, and buffer contents are ignored.

mod calls;
mod text;

use super::super::error::{Fault, TraceError, TracePosition};
use super::super::follow::fds::Tables;
use super::super::format::{Fit, Format, Pairs};
use super::super::input::Input;
use super::super::order::HeldRecords;
use super::super::{Header, Import, Item, Lacks, LeftOut, Level, Record};
use super::scan::{self, Names};
use super::step::{self, Lines, Text};
use calls::{Call, Name};
use std::collections::{HashMap, VecDeque};
use text::{Arguments, StraceEntry};

pub static FORMAT: Format = Format {
    name: "strace",
    summary: "text of strace -f -ttt -T -y; us, bytes",
    keys: &[],
    detect,
    import,
    export: None,
};

/// Maximum size of all unfinished calls together, in bytes.
pub const MAX_UNFINISHED_BYTES: usize = 16 << 20;

const DAMAGED: &str =
    "record with strace -o FILE, so that nothing else is in it, or cut it before this line";
const CUT: Fault = ("an incomplete line of strace", DAMAGED);
const BACKWARDS: Fault = (
    "time goes backwards",
    "the clock was set; cut the trace before this line",
);
const TIMES: Fault = (
    "the line has no time, or its time has another format than that of the first line",
    "record with strace -f -ttt -T -y -o FILE",
);

/// Whether a line is empty, or a message of strace itself.
fn is_of_strace(line: &[u8]) -> bool {
    line.is_empty() || line.starts_with(b"strace: ")
}

/// The first lines with a call, a signal or an exit.
fn entries(head: &[u8]) -> impl Iterator<Item = (text::Prefix<'_>, StraceEntry<'_>)> {
    let lines = scan::whole_lines(head).map(<[u8]>::trim_ascii_end);
    lines.filter(|line| !is_of_strace(line)).map_while(|line| {
        let prefix = text::prefix(line)?;
        Some((prefix, text::entry(prefix.rest)?))
    })
}

fn detect(head: &[u8]) -> Fit {
    let fits = |(_, entry)| match entry {
        StraceEntry::Call(_, text) => Arguments::of(text)
            .and_then(|arguments| arguments.outcome())
            .is_some(),
        _ => true,
    };
    Fit::sure_if(entries(head).next().is_some_and(fits))
}

fn import(mut input: Input, _: Pairs) -> Result<Import, TraceError> {
    let path = input.path().to_path_buf();
    let head = input.head()?;
    let Some((first, _)) = entries(head).next() else {
        return Err(TraceError::new(
            &path,
            TracePosition::Line(1),
            "no strace call at the start of the file",
            TIMES.1,
        ));
    };
    let timed = first.at.is_some();
    let took = |(_, entry)| match entry {
        StraceEntry::Call(_, text) | StraceEntry::Resumed(_, text) => Arguments::of(text)
            .and_then(|a| a.outcome())
            .is_some_and(|o| o.took_ns.is_some()),
        _ => false,
    };
    let lacks = Lacks {
        starts: !timed,
        ends: !timed || !entries(head).any(took),
        threads: first.pid == 0,
        ..Lacks::default()
    };
    let notes = [
        "page faults of mappings are invisible to strace",
        "strace slows a program down: the times between calls are too long",
        "if strace truncated a vector of buffers, the length is the number of bytes returned",
    ];
    let units = [if timed { "us" } else { "none" }, "bytes"];
    let header = Header::of(FORMAT.name, units, lacks, Level::Program, &notes);
    let left_out = LeftOut::default();
    let lines = Strace::new(first.at, left_out.clone());
    let items = step::items(Text { input, lines });
    Ok(Import::new(header, items, left_out))
}

/// A call whose end has not been read yet.
struct UnfinishedCall {
    call: Call,
    text: Vec<u8>,
    at_ns: u64,
    /// Its position among the records, if it can become one.
    ticket: Option<u64>,
    /// A thread that this call created was seen before the call returned.
    begun: bool,
}

struct Whole<'a> {
    call: Call,
    thread: u32,
    arguments: Arguments<'a>,
    outcome: text::Outcome<'a>,
    start_ns: Option<u64>,
    end_ns: Option<u64>,
    ticket: Option<u64>,
}

/// Calls before they become records.
struct Strace {
    /// The first time, if lines have one.
    first_ns: Option<u64>,
    /// The time of the latest line, from the first on.
    now_ns: u64,
    tables: Tables,
    names: Names,
    /// What each name refers to.
    files: Vec<Name>,
    next_file: u32,
    unfinished: HashMap<u32, UnfinishedCall>,
    unfinished_bytes: usize,
    /// Records in the order of their calls; `None` if the call is still unfinished.
    held: HeldRecords<Option<Record>>,
    left_out: LeftOut,
    /// Items of the line.
    out: VecDeque<Item>,
}

impl Lines for Strace {
    fn line(&mut self, line: &[u8], out: &mut VecDeque<Item>) -> Result<bool, Fault> {
        let line = line.trim_ascii_end();
        if is_of_strace(line) {
            return Ok(true);
        }
        let prefix = text::prefix(line).ok_or(TIMES)?;
        match (self.first_ns, prefix.at) {
            (Some(first), Some(at)) => {
                let at = at.checked_sub(first).filter(|at| *at >= self.now_ns);
                self.now_ns = at.ok_or(BACKWARDS)?;
            }
            (None, None) => {}
            _ => return Err(TIMES),
        }
        let entry = text::entry(prefix.rest).ok_or(CUT)?;
        let done = self.entry(prefix.pid, entry);
        out.append(&mut self.out);
        done.map(|()| true)
    }

    fn end(&mut self, out: &mut VecDeque<Item>) -> Result<(), Fault> {
        self.leave(true);
        out.append(&mut self.out);
        Ok(())
    }
}

impl Strace {
    /// Creates the converter. Times are counted from `first_ns`; without it there are none.
    fn new(first_ns: Option<u64>, left_out: LeftOut) -> Strace {
        Strace {
            first_ns,
            now_ns: 0,
            tables: Tables::default(),
            names: Names::default(),
            files: Vec::new(),
            next_file: 0,
            unfinished: HashMap::new(),
            unfinished_bytes: 0,
            held: HeldRecords::default(),
            left_out,
            out: VecDeque::new(),
        }
    }

    /// Processes an entry of a thread; the time counts from the first entry.
    fn entry(&mut self, thread: u32, entry: StraceEntry<'_>) -> Result<(), Fault> {
        if !self.tables.knows(thread) && entry != StraceEntry::Gone {
            self.first_seen(thread)?;
        }
        match entry {
            StraceEntry::Call(name, text) => self.whole(thread, name, text)?,
            StraceEntry::Begun(name, text) => self.begun(thread, name, text)?,
            StraceEntry::Resumed(name, text) => self.resumed(thread, name, text)?,
            StraceEntry::Gone => {
                self.abandon(thread);
                self.tables.exit(thread);
            }
            StraceEntry::Other => {}
        }
        self.leave(false);
        Ok(())
    }

    fn leave(&mut self, all: bool) {
        while let Some((record, _)) = self.held.next(all) {
            match record {
                Some(record) => self.out.push_back(Item::Record(record)),
                None => self.left_out.count("calls that did not return"),
            }
        }
    }

    /// A thread may appear before the call that created it returns: then its parent is a thread whose call is unfinished.
    fn first_seen(&mut self, thread: u32) -> Result<(), Fault> {
        let beginning = |u: &&mut UnfinishedCall| u.call == Call::Clone && !u.begun;
        let mut parents = self
            .unfinished
            .iter_mut()
            .map(|(pid, u)| (*pid, u))
            .filter(|(_, u)| beginning(u));
        let (parent, others) = (parents.next(), parents.next());
        match (parent, others) {
            (Some((parent, unfinished)), None) => {
                unfinished.begun = true;
                let share = calls::shares(&unfinished.text);
                self.tables.fork(parent, thread, share)
            }
            (Some(_), Some(_)) => {
                self.left_out
                    .count("threads whose parent is not certain (their descriptors are not known)");
                self.tables.begin(thread)
            }
            _ => self.tables.begin(thread),
        }
    }

    /// Drops the unfinished call of a thread that will not return from it.
    fn abandon(&mut self, thread: u32) {
        if let Some(before) = self.unfinished.remove(&thread) {
            self.unfinished_bytes -= before.text.len();
            if let Some(ticket) = before.ticket
                && self.held.cancel(ticket).is_some()
            {
                self.left_out.count("calls that did not return");
            }
        }
    }

    fn begun(&mut self, thread: u32, name: &[u8], text: &[u8]) -> Result<(), Fault> {
        self.abandon(thread);
        let Some(call) = Call::of(name) else {
            return Ok(());
        };
        if self.unfinished_bytes + text.len() > MAX_UNFINISHED_BYTES {
            return Err((
                "more than 16 MiB of unfinished calls in total",
                "record with strace -s 0",
            ));
        }
        // Another open may get the number meanwhile: close takes effect when it starts.
        if call == Call::Close
            && let Some((descriptor, _)) = text::descriptor(text.strip_suffix(b")").unwrap_or(text))
        {
            self.tables.close(thread, descriptor);
            return Ok(());
        }
        self.unfinished_bytes += text.len();
        let ticket = call.is_data().then(|| self.held.open(None));
        self.unfinished.insert(
            thread,
            UnfinishedCall {
                call,
                text: text.to_vec(),
                at_ns: self.now_ns,
                ticket,
                begun: false,
            },
        );
        Ok(())
    }

    fn resumed(&mut self, thread: u32, name: &[u8], rest: &[u8]) -> Result<(), Fault> {
        let Some(call) = Call::of(name) else {
            return Ok(());
        };
        let Some(mut before) = self.unfinished.remove(&thread) else {
            // A thread that executes another program returns with the number of its process.
            if call == Call::Exec && rest.trim_ascii_start().starts_with(b") = 0") {
                return self.tables.exec(thread);
            }
            return Ok(());
        };
        self.unfinished_bytes -= before.text.len();
        if before.call != call {
            return Err(("the resumed call is not the one that was started", DAMAGED));
        }
        if call == Call::Clone && before.begun {
            return Ok(());
        }
        before.text.extend_from_slice(rest);
        let began = (before.at_ns, before.ticket);
        let ended = Some(self.now_ns);
        self.returned(thread, call, &before.text, began, ended)
    }

    fn whole(&mut self, thread: u32, name: &[u8], text: &[u8]) -> Result<(), Fault> {
        self.abandon(thread);
        match Call::of(name) {
            Some(call) => self.returned(thread, call, text, (self.now_ns, None), None),
            None => Ok(()),
        }
    }

    /// A call has returned, at `end_ns` unless it states its duration.
    fn returned(
        &mut self,
        thread: u32,
        call: Call,
        text: &[u8],
        (start_ns, ticket): (u64, Option<u64>),
        end_ns: Option<u64>,
    ) -> Result<(), Fault> {
        let arguments = Arguments::of(text).ok_or(CUT)?;
        let outcome = arguments.outcome().ok_or(CUT)?;
        let took = outcome.took_ns.map(|took| start_ns.saturating_add(took));
        let timed = self.first_ns.is_some();
        let whole = Whole {
            call,
            thread,
            arguments,
            outcome,
            start_ns: timed.then_some(start_ns),
            end_ns: took.or(end_ns).filter(|_| timed),
            ticket,
        };
        self.done(&whole)
    }
}
