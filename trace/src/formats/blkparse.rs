//! The text of blkparse, in its default format.
//!
//! ```text
//!   maj,min cpu  seq  seconds.ns  pid  ACTION RWBS  sector + sectors [process]
//!     8,16   5     2 0.000001850 18615  Q   RA 1444645666 + 256 [java]
//!     8,16   5     9 0.000901850     0  C   RA 1444645666 + 256 [0]          errno, not a process
//!     8,16   5     1 0.000000000 18615  A   RA 1444645666 + 256 <- (8,17) 1444645632
//!     8,16   5     3 0.000002000 18615  P   N [java]                         no sector
//! ```
//!
//! Empty lines and lines that start with `#` are comments; published traces contain such lines. The first line that is not a comment and
//! does not start with a device number ends the trace, because blkparse's summary begins there. A line that begins with a device number
//! must be complete. Process names are ignored, because they may contain anything.

use super::super::error::{Fault, TraceError};
use super::super::format::{Fit, Format, Pairs};
use super::super::input::Input;
use super::super::order::{MAX_DISORDER, Sorter};
use super::super::{Import, Item, LeftOut};
use super::block::{self, Action, BlockKind, Device, Event, Requests, rwbs};
use super::scan::{self, SECOND_NS, SECTOR};
use super::step::{self, Lines, Text};
use std::collections::VecDeque;

pub static FORMAT: Format = Format {
    name: "blkparse",
    summary: "text of blkparse (default format); ns, 512 B sectors",
    keys: block::KEYS,
    detect,
    import,
    export: None,
};

const DAMAGED: &str =
    "the trace is damaged or not blkparse's default format; cut it before this line";
const CUT: Fault = ("an incomplete line of blkparse", DAMAGED);

/// The lines of the head that are certainly complete, without comments.
fn whole_lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    scan::whole_lines(head).filter(|line| !is_comment(line))
}

fn is_comment(line: &[u8]) -> bool {
    matches!(line.trim_ascii().first(), None | Some(b'#'))
}

fn detect(head: &[u8]) -> Fit {
    match whole_lines(head).next().map(parse) {
        Some(Ok(Some(_))) => Fit::Sure,
        _ => Fit::No,
    }
}

fn import(mut input: Input, pairs: Pairs) -> Result<Import, TraceError> {
    let first: Vec<Action> = whole_lines(input.head()?)
        .map_while(|l| parse(l).ok()?)
        .map(|e| e.action)
        .collect();
    let wanted = block::wanted(&pairs, FORMAT.name, input.path(), &first)?;
    let left_out = LeftOut::default();
    let requests = Requests::new(wanted, left_out.clone());
    let lines = Blkparse {
        sorter: Sorter::new(MAX_DISORDER),
        requests,
    };
    let items = step::items(Text { input, lines });
    let header = block::header(FORMAT.name, wanted);
    Ok(Import::new(header, items, left_out))
}

struct Blkparse {
    sorter: Sorter<Event>,
    requests: Requests,
}

impl Lines for Blkparse {
    fn line(&mut self, line: &[u8], out: &mut VecDeque<Item>) -> Result<bool, Fault> {
        if is_comment(line) {
            return Ok(true);
        }
        let Some(event) = parse(line)? else {
            return Ok(false);
        };
        if event.action != Action::Other
            && let Some(event) = self.sorter.push(event.at_ns, event)?
        {
            self.requests.event(&event, out)?;
        }
        Ok(true)
    }

    fn end(&mut self, out: &mut VecDeque<Item>) -> Result<(), Fault> {
        while let Some(event) = self.sorter.pop() {
            self.requests.event(&event, out)?;
        }
        self.requests.end(out);
        Ok(())
    }
}

/// Major and minor, `8,16`.
fn device(text: &[u8]) -> Option<Device> {
    let comma = text.iter().position(|b| *b == b',')?;
    let part = |text| scan::small(text);
    Some((part(&text[..comma])?, part(&text[comma + 1..])?))
}

/// A line; `None` if it does not belong to the trace.
fn parse(line: &[u8]) -> Result<Option<Event>, Fault> {
    let mut rest = line;
    let Some(device) = device(scan::word(&mut rest)) else {
        return Ok(None);
    };
    let mut next = || scan::word(&mut rest);
    let (cpu, sequence, time, pid, action, flags) =
        (next(), next(), next(), next(), next(), next());
    scan::number(cpu).and(scan::number(sequence)).ok_or(CUT)?;
    let at_ns = scan::decimal_ns(time, SECOND_NS)
        .ok_or(("a time that is not a number of seconds", DAMAGED))?;
    let pid = scan::small(pid).ok_or(CUT)?;
    if action.is_empty() || flags.is_empty() {
        return Err(CUT);
    }
    let (kind, ahead) = rwbs(flags);
    let action = match action {
        b"Q" => Action::Queue,
        b"D" => Action::Issue,
        b"C" => Action::Complete { failed: false },
        b"R" => Action::Requeue,
        b"A" => Action::Remap { from: (0, 0) },
        _ => Action::Other,
    };
    let event = Event {
        at_ns,
        device,
        action,
        kind,
        ahead,
        sector: 0,
        bytes: 0,
        pid,
    };
    if action == Action::Other {
        Ok(Some(event))
    } else {
        extent(event, rest.trim_ascii())?.checked().map(Some)
    }
}

/// Parses the sectors of a request; `rest` is the text after the action.
fn extent(mut event: Event, rest: &[u8]) -> Result<Event, Fault> {
    let remap = matches!(event.action, Action::Remap { .. });
    if !remap && rest.last() != Some(&b']') {
        return Err(CUT);
    }
    let mut tail = rest;
    let Some(sector) = scan::number(scan::word(&mut tail)) else {
        // A flush has no sectors: the process or the errno follows at once.
        event.kind = BlockKind::Nothing;
        return if rest.starts_with(b"[") {
            Ok(event)
        } else {
            Err(CUT)
        };
    };
    event.sector = sector;
    match scan::word(&mut tail) {
        b"+" => {}
        // The bytes of a command are in parentheses.
        [b'(', ..] => {
            return Ok(Event {
                kind: BlockKind::Command,
                sector: 0,
                ..event
            });
        }
        [b'[', ..] => {
            return Ok(Event {
                kind: BlockKind::Nothing,
                ..event
            });
        }
        _ => return Err(CUT),
    }
    let sectors = scan::number(scan::word(&mut tail)).ok_or(CUT)?;
    event.bytes = sectors
        .checked_mul(SECTOR)
        .ok_or(("more sectors than 2^63 bytes", DAMAGED))?;
    match event.action {
        Action::Remap { .. } => {
            let arrow = scan::word(&mut tail);
            let from = scan::word(&mut tail)
                .strip_prefix(b"(")
                .and_then(|text| text.strip_suffix(b")"));
            scan::number(scan::word(&mut tail))
                .filter(|_| arrow == b"<-")
                .ok_or(CUT)?;
            event.action = Action::Remap {
                from: from.and_then(device).ok_or(CUT)?,
            };
        }
        Action::Complete { .. } => {
            let errno = tail.iter().rposition(|b| *b == b'[').ok_or(CUT)?;
            event.action = Action::Complete {
                failed: &tail[errno..] != b"[0]",
            };
        }
        _ => {}
    }
    Ok(event)
}
