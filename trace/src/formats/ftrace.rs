//! The text of ftrace (`trace`, `trace_pipe`) and of `perf script`, with the same tracepoints that `foreread record` reads in binary form.
//!
//! ```text
//!   comm-pid [cpu] flags secs.usec: sys_read(fd: 3, buf: 0x7f.., count: 0x1000)      ftrace
//!   comm pid [cpu] secs.usec: syscalls:sys_enter_read: fd: 0x00000003, ...           perf
//!   ... filemap:mm_filemap_get_pages: dev=254:0 ino=4fa7d ofs=0-98303
//! ```
//! A process name may contain any characters, so a line is parsed from its `[cpu]` on. Files are named by device and inode, because the
//! text has no paths. Pages are added to the page cache by the kernel, not by the program, so records of added pages get the readahead
//! flag. The units are fixed: `ofs` is in bytes. Inode numbers are hexadecimal, and so are arguments that start with 0x.

use super::super::error::{Fault, TraceError};
use super::super::format::{Fit, Format, Pairs};
use super::super::input::Input;
use super::super::order::{MAX_DISORDER, Sorter};
use super::super::{Header, Import, Item, Lacks, LeftOut, Level};
use super::scan;
use super::step::{self, Lines};
use crate::follow::call::{ENTRIES, Event, FileKey, What};
use crate::follow::{DEFAULT_PAGE_BYTES, Follow, LearnedFiles};
use std::collections::VecDeque;

pub static FORMAT: Format = Format {
    name: "ftrace",
    summary: "text of ftrace, or of perf script: system calls and filemap tracepoints; us, bytes",
    keys: &[("page", "page size of the machine in bytes (4096)")],
    detect,
    import,
    export: None,
};

const DAMAGED: &str = "cut the trace before this line, or record it again";
const CUT: Fault = ("an incomplete line of ftrace", DAMAGED);
const LOST: &str = "events that were lost before they were read";
/// 1 GiB.
const MAX_PAGE_BYTES: u64 = 1 << 30;
const OTHER: &str = "events of other kinds";

fn detect(head: &[u8]) -> Fit {
    let mut lines = scan::whole_lines(head).filter(|line| !is_comment(line) && !is_loss(line));
    match lines.next().map(|line| parse(line, DEFAULT_PAGE_BYTES)) {
        Some(Some((_, Some(_)))) => Fit::Sure,
        // If the first event is of another kind, the head of the file identifies the format.
        Some(Some((_, None))) if head.starts_with(b"# tracer: ") => Fit::Sure,
        _ => Fit::No,
    }
}

fn is_comment(line: &[u8]) -> bool {
    line.trim_ascii().is_empty() || line.starts_with(b"#")
}

/// `CPU:1 [LOST 72 EVENTS]`
fn is_loss(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    line.starts_with(b"CPU:") && line.ends_with(b"EVENTS]")
}

/// The page size of the machine, which the trace does not contain; folio sizes are given in pages.
fn page(inputs: &[Input], pairs: &Pairs) -> Result<u64, TraceError> {
    let (Some(input), Some(text)) = (inputs.first(), pairs.get("page")) else {
        return Ok(DEFAULT_PAGE_BYTES);
    };
    let page = scan::number(text.as_bytes())
        .filter(|page| page.is_power_of_two() && *page <= MAX_PAGE_BYTES);
    page.ok_or_else(|| {
        let what = format!("'page={text}' is not the size of a page");
        let remedy = "run `getconf PAGESIZE` on the traced machine";
        TraceError::whole(input.path(), what, remedy)
    })
}

fn import(inputs: Vec<Input>, pairs: Pairs) -> Result<Import, TraceError> {
    let page_bytes = page(&inputs, &pairs)?;
    let notes = [
        "files are named by inode and device, because the text has no file names",
        "a readv or preadv has the length that it returned, not the requested length",
    ];
    let units = ["us", "bytes"];
    let header = Header::of(FORMAT.name, units, Lacks::default(), Level::Program, &notes);
    step::import(inputs, header, |left_out| {
        let follow = Follow::new(
            page_bytes,
            LearnedFiles::new(),
            Box::new(FileKey::nameless),
            left_out.clone(),
        );
        Ftrace {
            page_bytes,
            sorter: Sorter::new(MAX_DISORDER),
            follow,
            left_out,
        }
    })
}

struct Ftrace {
    page_bytes: u64,
    sorter: Sorter<Event>,
    follow: Follow,
    left_out: LeftOut,
}

impl Lines for Ftrace {
    fn line(&mut self, line: &[u8], out: &mut VecDeque<Item>) -> Result<bool, Fault> {
        if is_comment(line) {
            return Ok(true);
        }
        if is_loss(line) {
            // The line has no time: the gap is at this line. The kernel omits the number if it does not fit.
            let number = line
                .trim_ascii()
                .rsplit(|b| *b == b' ')
                .nth(1)
                .and_then(scan::number);
            self.left_out.count_many(LOST, number.unwrap_or(1));
            self.end(out)?;
            self.follow.event(
                &Event {
                    at_ns: 0,
                    thread: 0,
                    what: What::Lost,
                },
                out,
            )?;
            return Ok(true);
        }
        let (head, what) = parse(line, self.page_bytes).ok_or(CUT)?;
        let Some(what) = what else {
            self.left_out.count(OTHER);
            return Ok(true);
        };
        let event = Event {
            at_ns: head.at_ns,
            thread: head.thread,
            what,
        };
        if let Some(event) = self.sorter.push(event.at_ns, event)? {
            self.follow.event(&event, out)?;
        }
        Ok(true)
    }

    fn end(&mut self, out: &mut VecDeque<Item>) -> Result<(), Fault> {
        while let Some(event) = self.sorter.pop() {
            self.follow.event(&event, out)?;
        }
        self.follow.end(out);
        Ok(())
    }
}

struct Head {
    thread: u32,
    at_ns: u64,
}

/// A line: thread, time and event; `None` for an irrelevant event.
fn parse(line: &[u8], page_bytes: u64) -> Option<(Head, Option<What>)> {
    let line = line.trim_ascii();
    let at = (0..line.len()).find(|&at| cpu_at(line, at).is_some())?;
    let (task, mut rest) = (line[..at].trim_ascii_end(), &line[at + cpu_at(line, at)?..]);
    // `(-----)` is an unknown thread group.
    let task = task.strip_suffix(b")").map_or(task, |task| {
        &task[..task.iter().rposition(|b| *b == b'(').unwrap_or(0)]
    });
    let digits = task
        .trim_ascii_end()
        .rsplit(|b| matches!(b, b' ' | b'-' | b'/'))
        .next()?;
    let thread = scan::small(digits)?;
    let mut time = scan::word(&mut rest);
    if !time.ends_with(b":") {
        time = scan::word(&mut rest);
    }
    let head = Head {
        thread,
        at_ns: scan::decimal_ns(time.strip_suffix(b":")?, scan::SECOND_NS)?,
    };
    let event = rest.trim_ascii();
    if event.is_empty() {
        return None;
    }
    Some((head, what(event, page_bytes)?))
}

/// The length of `[012]` at `at`.
fn cpu_at(line: &[u8], at: usize) -> Option<usize> {
    let inner = line[at..].strip_prefix(b"[")?;
    let end = inner.iter().position(|b| *b == b']')?;
    let before = at > 0 && line[at - 1].is_ascii_whitespace();
    (before && inner[..end].len() >= 3 && inner[..end].iter().all(u8::is_ascii_digit))
        .then_some(end + 2)
}

/// The event: inner `None` if it is irrelevant, outer `None` if it is truncated.
fn what(event: &[u8], page_bytes: u64) -> Option<Option<What>> {
    if let Some(call) = event.strip_prefix(b"sys_") {
        if let Some(paren) = call.iter().position(|b| *b == b'(') {
            let arguments = call[paren + 1..].strip_suffix(b")")?;
            return entered(&call[..paren], arguments);
        }
        if let Some(arrow) = call.windows(4).position(|part| part == b" -> ") {
            return left(&call[..arrow], &call[arrow + 4..]);
        }
        if !call.contains(&b':') {
            return None;
        }
    }
    let event = event.strip_prefix(b"syscalls:").unwrap_or(event);
    let colon = event.windows(2).position(|part| part == b": ")?;
    let (name, fields) = (&event[..colon], event[colon + 2..].trim_ascii());
    if let Some(call) = name.strip_prefix(b"sys_enter_") {
        return entered(call, fields);
    }
    if let Some(call) = name.strip_prefix(b"sys_exit_") {
        return left(call, fields);
    }
    let name = name.rsplit(|b| *b == b':').next().unwrap_or(name);
    known(name, fields, page_bytes)
}

/// `fd: 3, buf: 0x7f.., count: 0x1000`
fn entered(call: &[u8], arguments: &[u8]) -> Option<Option<What>> {
    let Some(entry) = ENTRIES.iter().find(|entry| entry.name.as_bytes() == call) else {
        return Some(None);
    };
    let mut values = [0; 6];
    let parts = arguments
        .split(|b| *b == b',')
        .filter(|part| !part.trim_ascii().is_empty());
    for (value, part) in values.iter_mut().zip(parts) {
        let colon = part.iter().position(|b| *b == b':')?;
        // Newer kernels print the string that a pointer refers to.
        *value = number(scan::word(&mut &part[colon + 1..]))?;
    }
    Some(Some(What::Enter(entry.call, values)))
}

fn left(call: &[u8], value: &[u8]) -> Option<Option<What>> {
    let Some(entry) = ENTRIES.iter().find(|entry| entry.name.as_bytes() == call) else {
        return Some(None);
    };
    Some(Some(What::Exit(
        entry.call,
        number(value.trim_ascii())? as i64,
    )))
}

/// A number in decimal, or in hexadecimal after 0x; a minus sign means two's complement.
fn number(text: &[u8]) -> Option<u64> {
    if let Some(digits) = text.strip_prefix(b"0x") {
        return hex(digits);
    }
    match text.strip_prefix(b"-") {
        Some(digits) => scan::number(digits).map(u64::wrapping_neg),
        None => scan::number(text),
    }
}

fn hex(text: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok()
}

/// The value after `key`, separated by `=` or a space.
fn field<'a>(fields: &'a [u8], key: &str) -> Option<&'a [u8]> {
    let mut rest = fields;
    loop {
        let word = scan::word(&mut rest);
        if word.is_empty() {
            return None;
        }
        if word == key.as_bytes() {
            return Some(scan::word(&mut rest));
        }
        if let Some(value) = word
            .strip_prefix(key.as_bytes())
            .and_then(|value| value.strip_prefix(b"="))
        {
            return Some(value);
        }
    }
}

fn place(fields: &[u8]) -> Option<FileKey> {
    let dev = field(fields, "dev")?;
    let colon = dev.iter().position(|b| *b == b':')?;
    let (major, minor) = (
        scan::number(&dev[..colon])?,
        scan::number(&dev[colon + 1..])?,
    );
    let ino = field(fields, "ino")?;
    let ino = hex(ino.strip_prefix(b"0x").unwrap_or(ino))?;
    Some(FileKey {
        dev: u32::try_from(major.checked_mul(1 << 20)?.checked_add(minor)?).ok()?,
        ino,
    })
}

/// The pages of `ofs=4096-12287`.
fn pages(fields: &[u8], page_bytes: u64) -> Option<(u64, u64)> {
    let range = field(fields, "ofs")?;
    let dash = range.iter().position(|b| *b == b'-')?;
    let (first, last) = (
        scan::number(&range[..dash])?,
        scan::number(&range[dash + 1..])?,
    );
    (first <= last).then_some((first / page_bytes, last / page_bytes))
}

fn known(name: &[u8], fields: &[u8], page_bytes: u64) -> Option<Option<What>> {
    let of = |key: &str| field(fields, key);
    let thread = |key: &str| scan::small(of(key)?);
    Some(Some(match name {
        b"mm_filemap_get_pages" => {
            let (first, last) = pages(fields, page_bytes)?;
            What::Pages(place(fields)?, first, last)
        }
        b"mm_filemap_map_pages" => {
            let (first, last) = pages(fields, page_bytes)?;
            What::Mapped(place(fields)?, first, last)
        }
        b"mm_filemap_fault" => What::Fault(place(fields)?, scan::number(of("ofs")?)? / page_bytes),
        b"mm_filemap_add_to_page_cache" => {
            let order = of("order").map_or(Some(0), scan::number)?;
            let pages = 1_u64
                .checked_shl(u32::try_from(order).ok()?)
                .filter(|_| order < 20)?;
            What::Ahead(
                place(fields)?,
                scan::number(of("ofs")?)? / page_bytes,
                pages,
            )
        }
        // If the kernel has a name for an address, it prints the name.
        b"page_fault_user" | b"page_fault_kernel" => {
            return Some(number(of("address")?).map(What::Address));
        }
        b"iomap_dio_rw_begin" if fields.windows(5).any(|part| part == b"WRITE") => {
            return Some(None);
        }
        b"iomap_dio_rw_begin" => What::Direct(
            place(fields)?,
            number(of("offset")?)?,
            number(of("length")?)?,
            number(of("size")?)?,
        ),
        b"task_newtask" => What::Born(thread("pid")?, hex(of("clone_flags")?)?),
        b"sched_process_exit" => What::Gone,
        b"sched_process_exec" => What::Exec(thread("old_pid")?),
        _ => return Some(None),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_both_tools() {
        let of = |line: &str| {
            parse(line.as_bytes(), 4096).map(|(head, what)| (head.thread, head.at_ns, what))
        };
        let mut entries = ENTRIES.iter();
        let read = entries.find(|entry| entry.name == "read");
        let args = [3, 0x7ff0, 0x1000, 0, 0, 0];
        let enter = What::Enter(read.expect("there").call, args);
        let left = What::Exit(read.expect("there").call, -2);
        let at = 24_756_942_056_000;
        for (line, what) in [
            (
                "   my [0] sh-1-5880    [000] ..... 24756.942056: sys_read(fd: 3, buf: 0x7ff0, count: 0x1000)",
                &enter,
            ),
            (
                "my sh  5880 [000] 24756.942056: syscalls:sys_enter_read: fd: 0x00000003, buf: 0x7ff0, count: 0x00001000",
                &enter,
            ),
            (
                "sh-5880  ( 5880) [001] ..... 24756.942056: sys_read -> 0xfffffffffffffffe",
                &left,
            ),
            (
                "sh 5880/5880 [001] 24756.942056: syscalls:sys_exit_read: 0xfffffffffffffffe",
                &left,
            ),
        ] {
            assert_eq!(of(line), Some((5880, at, Some(*what))), "{line}");
        }
        let (dev, ino) = (254 << 20, 0x4fa7d);
        let file = FileKey { dev, ino };
        let read = Some(What::Pages(file, 1, 23));
        let pages =
            "sh-1 [000] ..... 1.0: mm_filemap_get_pages: dev=254:0 ino=4fa7d ofs=4096-98303";
        let added = "sh-1 [000] ..... 1.0: mm_filemap_add_to_page_cache: dev 254:0 ino 4fa7d pfn=0x1 ofs=8192 order=2";
        let other = "sh-1 [000] ..... 1.0: sched_wakeup: comm=x pid=1";
        let whats = [pages, added, other].map(|line| of(line).expect("an event"));
        let expected = [read, Some(What::Ahead(file, 2, 4)), None];
        assert_eq!(whats, expected.map(|what| (1, 1_000_000_000, what)));
        for cut in 0..pages.len() - 1 {
            assert!(
                of(&pages[..cut]).is_none_or(|(.., what)| what != read),
                "{cut}"
            );
        }
    }
}
