//! The output of `perf trace`: the system calls of a program.
//!
//! ```text
//!      5.639 ( 0.018 ms): cat/742 openat(dfd: CWD, filename: 0x4babe0b1, flags: RDONLY|CLOEXEC)   = 4
//!      5.793 ( 0.016 ms): cat/742 read(fd: 4</etc/passwd>, buf: 0x7ffe9b3add88, count: 832)       = 832
//!     17.116 (         ): cat/742 read(fd: 4</etc/passwd>, buf: 0x7ffe9b3add88, count: 832)       ...
//!     17.116 ( 3.238 ms): cat/742  ... [continued]: read())                                       = 832
//! ```
//! Each line is converted to strace's notation and handled as in [`super::strace`]. The output of perf shows the names of arguments and
//! omits arguments that are zero, so missing arguments are filled in by name ([`CALLS`]). Times are milliseconds since the first event; a
//! continued call has the time of its start. The name of a file is shown only if perf has looked it up; foreread treats each open without a
//! name as a separate file. The data to which a pointer argument refers is never shown.
//!
//! Record with `perf trace -o FILE -- COMMAND`. Source: perf-trace(1), and the output of perf 6.1.

use super::super::error::{Fault, TraceError};
use super::super::format::{Fit, Format, Pairs};
use super::super::input::Input;
use super::super::{Header, Import, Item, Lacks, LeftOut, Level};
use super::scan::{self, MS_NS, decimal_ns};
use super::step::{self, Lines};
use super::strace::{Stamp, Strace, StraceEntry};
use std::collections::VecDeque;

pub static FORMAT: Format = Format {
    name: "perf-trace",
    summary: "text of perf trace; ms with three decimals, bytes",
    keys: &[],
    detect,
    import,
    export: None,
};

const REMEDY: &str =
    "record with perf trace -o FILE, so that nothing else is in it, or cut it before this line";
const CUT: Fault = ("an incomplete line of perf trace", REMEDY);
const POINTER: &str = "reads from a position that perf does not show (behind a pointer)";

/// How an argument is converted to strace's notation.
#[derive(Clone, Copy)]
enum ArgumentKind {
    /// A number; 0 if it is not shown.
    Number,
    /// A descriptor, with its name if there is one; 0 if it is not shown.
    Descriptor,
    /// A descriptor, or none if it is not shown.
    MaybeDescriptor,
    /// An ignored argument.
    Any,
    /// A path, in quotes if it is shown.
    Path,
    /// Flags, with the prefix that strace writes before each.
    Flags(&'static str),
    /// A pointer to a position, or null.
    Position,
    /// A number for which strace writes a name.
    Advice,
}

use ArgumentKind::{Advice, Any, Descriptor, Flags, MaybeDescriptor, Number, Path, Position};

/// perf's name of an argument, and its kind.
type Argument = (&'static str, ArgumentKind);
const FD: Argument = ("fd", Descriptor);
const BUF: Argument = ("buf", Any);
const COUNT: Argument = ("count", Number);
const POS: Argument = ("pos", Number);
const POS_L: Argument = ("pos_l", Number);
const VEC: Argument = ("vec", Any);
const VLEN: Argument = ("vlen", Any);
const LEN: Argument = ("len", Number);
const OPEN_FLAGS: Argument = ("flags", Flags("O_"));
const FILENAME: Argument = ("filename", Path);
const OLD_FD: Argument = ("oldfd", Descriptor);
const NEW_FD: Argument = ("newfd", Descriptor);
const OFF_IN: Argument = ("off_in", Position);
const OFF_OUT: Argument = ("off_out", Position);

/// The relevant calls, by strace's name, with their arguments in strace's order.
const CALLS: &[(&str, &[Argument])] = &[
    ("read", &[FD, BUF, COUNT]),
    ("write", &[FD, BUF, COUNT]),
    ("pread64", &[FD, BUF, COUNT, POS]),
    ("pwrite64", &[FD, BUF, COUNT, POS]),
    ("readv", &[FD, VEC, VLEN]),
    ("writev", &[FD, VEC, VLEN]),
    ("preadv", &[FD, VEC, VLEN, POS_L]),
    ("pwritev", &[FD, VEC, VLEN, POS_L]),
    ("preadv2", &[FD, VEC, VLEN, POS_L]),
    ("pwritev2", &[FD, VEC, VLEN, POS_L]),
    ("open", &[FILENAME, OPEN_FLAGS]),
    ("openat", &[("dfd", Any), FILENAME, OPEN_FLAGS]),
    ("openat2", &[("dfd", Any), FILENAME]),
    ("creat", &[("pathname", Path)]),
    ("close", &[FD]),
    ("close_range", RANGE),
    ("lseek", &[FD]),
    ("mmap", MAP),
    ("dup", &[("fildes", Descriptor)]),
    ("dup2", &[OLD_FD, NEW_FD]),
    ("dup3", &[OLD_FD, NEW_FD, OPEN_FLAGS]),
    ("fcntl", &[FD, ("cmd", Flags("F_")), ("arg", Flags("FD_"))]),
    ("clone", &[("clone_flags", Flags("CLONE_"))]),
    ("clone3", &[]),
    ("fork", &[]),
    ("vfork", &[]),
    ("unshare", &[("unshare_flags", Flags("CLONE_"))]),
    ("execve", &[]),
    ("execveat", &[]),
    ("sendfile", SEND),
    ("copy_file_range", COPY),
    ("splice", COPY),
    (
        "fadvise64",
        &[FD, ("offset", Number), LEN, ("advice", Advice)],
    ),
    ("readahead", &[FD, ("offset", Number), COUNT]),
    ("io_uring_enter", &[]),
    ("io_submit", &[]),
];

const RANGE: &[Argument] = &[
    ("fd", Number),
    ("max_fd", Number),
    ("flags", Flags("CLOSE_RANGE_")),
];
const MAP: &[Argument] = &[
    ("addr", Any),
    ("len", Any),
    ("prot", Any),
    ("flags", Any),
    ("fd", MaybeDescriptor),
];
const SEND: &[Argument] = &[
    ("out_fd", Descriptor),
    ("in_fd", Descriptor),
    ("offset", Position),
    COUNT,
];
const COPY: &[Argument] = &[
    ("fd_in", Descriptor),
    OFF_IN,
    ("fd_out", Descriptor),
    OFF_OUT,
    LEN,
];

/// The values of `posix_fadvise`, as Linux counts them.
const ADVICE: [&str; 6] = [
    "NORMAL",
    "RANDOM",
    "SEQUENTIAL",
    "WILLNEED",
    "DONTNEED",
    "NOREUSE",
];

struct CallLine<'a> {
    /// `None` if perf wrote `?`.
    at_ns: Option<u64>,
    took_ns: Option<u64>,
    thread: u32,
    name: &'a [u8],
    /// The arguments; `None` if the call started in an earlier line.
    arguments: Option<&'a [u8]>,
    /// The return value; `None` if the call continues in a later line.
    returned: Option<&'a [u8]>,
}

/// Returns `None` if the line is not from perf trace.
fn parse(line: &[u8]) -> Option<CallLine<'_>> {
    let mut rest = line.trim_ascii();
    let time = scan::word(&mut rest);
    let at_ns = if time == b"?" {
        None
    } else {
        Some(decimal_ns(time, MS_NS)?)
    };
    let inner = rest.trim_ascii_start().strip_prefix(b"(")?;
    let close = inner.windows(2).position(|part| part == b"):")?;
    let took = inner[..close].trim_ascii();
    let took_ns = match took.strip_suffix(b"ms") {
        Some(ms) => Some(decimal_ns(ms.trim_ascii(), MS_NS)?),
        None if took.is_empty() => None,
        None => return None,
    };
    // The name of a program may contain spaces and slashes; its thread is the number before the call.
    let (thread, call) = thread_and_call(inner[close + 2..].trim_ascii())?;
    let line = |name, arguments, returned| CallLine {
        at_ns,
        took_ns,
        thread,
        name,
        arguments,
        returned,
    };
    if let Some(continued) = call.strip_prefix(b"... [continued]: ") {
        let open = continued.iter().position(|b| *b == b'(')?;
        let outcome = continued[open..].strip_prefix(b"())")?.trim_ascii();
        let returned = outcome.strip_prefix(b"=")?.trim_ascii();
        return Some(line(&continued[..open], None, Some(returned)));
    }
    let open = call.iter().position(|b| *b == b'(')?;
    let (name, text) = (&call[..open], &call[open + 1..]);
    if let Some(begun) = text.strip_suffix(b"...") {
        let arguments = begun.trim_ascii_end().strip_suffix(b")")?;
        return Some(line(name, Some(arguments), None));
    }
    // Finds the last parenthesis before ` = `, because a path may contain both.
    let equals = (0..text.len())
        .rev()
        .find(|&at| text[at] == b'=' && text[..at].trim_ascii_end().ends_with(b")"))?;
    let arguments = text[..equals].trim_ascii_end().strip_suffix(b")")?;
    let returned = text[equals + 1..].trim_ascii();
    Some(line(name, Some(arguments), Some(returned)))
}

/// `a b/c/742 read(...`: the thread, and what follows it.
fn thread_and_call(text: &[u8]) -> Option<(u32, &[u8])> {
    for at in (0..text.len()).filter(|&at| text[at] == b'/') {
        let digits = text[at + 1..]
            .iter()
            .take_while(|b| b.is_ascii_digit())
            .count();
        let call = text[at + 1 + digits..].strip_prefix(b" ");
        if let (Some(thread), Some(call)) = (scan::number(&text[at + 1..at + 1 + digits]), call) {
            let call = call.trim_ascii_start();
            let name = call
                .iter()
                .take_while(|b| b.is_ascii_alphanumeric() || **b == b'_')
                .count();
            if call.starts_with(b"... [continued]: ") || (name > 0 && call.get(name) == Some(&b'('))
            {
                return Some((u32::try_from(thread).ok()?, call));
            }
        }
    }
    None
}

fn detect(head: &[u8]) -> Fit {
    let mut lines = scan::whole_lines(head).filter(|line| !line.trim_ascii().is_empty());
    Fit::sure_if(lines.next().is_some_and(|line| parse(line).is_some()))
}

fn import(inputs: Vec<Input>, pairs: Pairs) -> Result<Import, TraceError> {
    let notes = [
        "page faults of mappings are not in it",
        "a file has a name only if perf looked it up; each open without a name counts as a separate file",
        "a readv or preadv has the length that it returned, not the requested length",
        "a thread created by clone3 is assumed to share the descriptors of its parent, as threads of a program do",
    ];
    let units = ["ms (to the us)", "bytes"];
    let header = Header::of(FORMAT.name, units, Lacks::default(), Level::Program, &notes);
    step::import(inputs, &pairs, header, |left_out| {
        let mut calls = Strace::new(Some(Stamp::Epoch(0)), left_out.clone());
        calls.opens_unnamed = true;
        PerfTrace {
            calls,
            latest_ns: 0,
            text: Vec::new(),
            left_out,
        }
    })
}

struct PerfTrace {
    calls: Strace,
    latest_ns: u64,
    /// A line in strace's notation.
    text: Vec<u8>,
    left_out: LeftOut,
}

impl Lines for PerfTrace {
    fn line(&mut self, line: &[u8], out: &mut VecDeque<Item>) -> Result<bool, Fault> {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") || line.starts_with(b"LOST ") {
            return Ok(true);
        }
        let line = parse(line).ok_or(CUT)?;
        // A continued call has the time of its start, although its line comes after later calls.
        self.latest_ns = self.latest_ns.max(line.at_ns.unwrap_or(0));
        let at_ns = self.latest_ns;
        let name = if line.name == b"sendfile64" {
            b"sendfile"
        } else {
            line.name
        };
        if matches!(name, b"exit" | b"exit_group") {
            return self
                .calls
                .entry(line.thread, at_ns, StraceEntry::Gone, out)
                .map(|()| true);
        }
        let Some((_, arguments)) = CALLS.iter().find(|(call, _)| call.as_bytes() == name) else {
            return Ok(true);
        };
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        let known = line
            .arguments
            .is_none_or(|shown| write_arguments(name, arguments, shown, &mut text));
        if !known {
            self.left_out.count(POINTER);
            self.text = text;
            return Ok(true);
        }
        let entry = match line.returned {
            None => StraceEntry::Begun(name, &text),
            Some(returned) => {
                write_outcome(returned, line.took_ns, &mut text);
                if line.arguments.is_some() {
                    StraceEntry::Call(name, &text)
                } else {
                    StraceEntry::Resumed(name, &text)
                }
            }
        };
        let done = self.calls.entry(line.thread, at_ns, entry, out);
        self.text = text;
        done.map(|()| true)
    }

    fn end(&mut self, out: &mut VecDeque<Item>) -> Result<(), Fault> {
        self.calls.end(out)
    }
}

/// `) = 832 <0.000016>`. A child's return has no value.
fn write_outcome(returned: &[u8], took_ns: Option<u64>, text: &mut Vec<u8>) {
    text.extend_from_slice(b") = ");
    let value = if returned.is_empty() { b"?" } else { returned };
    // `742 (cat)` is the number of a process with its name.
    let end = value
        .windows(2)
        .position(|part| part == b" (")
        .filter(|_| !value.starts_with(b"-"));
    text.extend_from_slice(&value[..end.unwrap_or(value.len())]);
    if let Some(took) = took_ns {
        let took = format!(" <{}.{:09}>", took / 1_000_000_000, took % 1_000_000_000);
        text.extend_from_slice(took.as_bytes());
    }
}

/// The value of `name: value` among the arguments.
fn shown<'a>(arguments: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut at = 0;
    loop {
        let rest = &arguments[at..];
        if let Some(value) = rest
            .strip_prefix(name.as_bytes())
            .and_then(|rest| rest.strip_prefix(b": "))
        {
            return Some(&value[..value_end(value)]);
        }
        let colon = rest.windows(2).position(|part| part == b": ")? + 2;
        at += colon + value_end(&rest[colon..]);
        at += arguments.get(at..)?.strip_prefix(b", ").map(|_| 2)?;
    }
}

/// The end of a value: the comma before the next argument. File names are in angle brackets or quotes.
fn value_end(value: &[u8]) -> usize {
    let skip = match value.first() {
        Some(b'"') => value
            .iter()
            .skip(1)
            .position(|b| *b == b'"')
            .map_or(0, |at| at + 1),
        Some(b'0'..=b'9') => {
            let digits = value.iter().take_while(|b| b.is_ascii_digit()).count();
            let named = value.get(digits) == Some(&b'<');
            if named {
                value
                    .windows(3)
                    .position(|part| part == b">, ")
                    .unwrap_or(value.len() - 1)
            } else {
                0
            }
        }
        _ => 0,
    };
    value[skip..]
        .windows(2)
        .position(|part| part == b", ")
        .map_or(value.len(), |at| skip + at)
}

/// Writes the arguments in strace's order and notation; returns false if a position is behind a pointer.
fn write_arguments(
    name: &[u8],
    arguments: &[Argument],
    shown_text: &[u8],
    text: &mut Vec<u8>,
) -> bool {
    if name == b"clone3" {
        // perf shows the address of its flags.
        text.extend_from_slice(b"CLONE_FILES");
        return true;
    }
    for (number, (argument, kind)) in arguments.iter().enumerate() {
        if number > 0 {
            text.extend_from_slice(b", ");
        }
        let value = shown(shown_text, argument);
        match (kind, value) {
            (Position, Some(_)) => return false,
            (Position, None) => text.extend_from_slice(b"NULL"),
            (Any, _) => text.extend_from_slice(b"0"),
            (Path, Some(path)) if !path.starts_with(b"0x") => write_path(path, text),
            (Path, _) => text.extend_from_slice(b"0x0"),
            (Number, Some(value)) => write_number(value, text),
            (Descriptor | MaybeDescriptor, Some(value)) => text.extend_from_slice(value),
            (MaybeDescriptor, None) => text.extend_from_slice(b"-1"),
            (Advice, value) => {
                let value = value.unwrap_or(b"0");
                let known = scan::number(value).and_then(|n| ADVICE.get(usize::try_from(n).ok()?));
                text.extend_from_slice(b"POSIX_FADV_");
                text.extend_from_slice(known.map_or(value, |name| name.as_bytes()));
            }
            (Flags(before), value) => {
                for (number, flag) in value.unwrap_or_default().split(|b| *b == b'|').enumerate() {
                    text.extend_from_slice(if number > 0 { b"|" } else { b"" });
                    text.extend_from_slice(before.as_bytes());
                    text.extend_from_slice(flag);
                }
            }
            (Number | Descriptor, None) => text.push(b'0'),
        }
    }
    true
}

/// Numbers may be hexadecimal; strace's are decimal.
fn write_number(value: &[u8], text: &mut Vec<u8>) {
    let digits = value
        .strip_prefix(b"0x")
        .and_then(|hex| std::str::from_utf8(hex).ok());
    match digits.and_then(|hex| u64::from_str_radix(hex, 16).ok()) {
        Some(number) => text.extend_from_slice(number.to_string().as_bytes()),
        None => text.extend_from_slice(value),
    }
}

fn write_path(path: &[u8], text: &mut Vec<u8>) {
    let inner = path
        .strip_prefix(b"\"")
        .and_then(|path| path.strip_suffix(b"\""))
        .unwrap_or(path);
    text.push(b'"');
    for byte in inner {
        if matches!(byte, b'"' | b'\\') {
            text.push(b'\\');
        }
        text.push(*byte);
    }
    text.push(b'"');
}
