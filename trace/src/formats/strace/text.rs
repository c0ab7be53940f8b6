//! Parses the lines of strace: thread, time, call, arguments, return value and duration.
//!
//! ```text
//!   [pid ][time] name(argument, "quoted, (anything)"..., 3</a/file>, {a=1}) = RETURN</a/file> ERRNO (text) <took>
//!   [pid ][time] name(argument,  <unfinished ...>
//!   [pid ][time] <... name resumed>argument) = RETURN <took>
//! ```
//!
//! The contents of quoted buffers are skipped, and no memory is allocated for a line.

use crate::error::Fault;
use crate::formats::scan;
use crate::formats::scan::SECOND_NS as NS;
use std::collections::BTreeSet;

/// Maximum number of arguments of a call that are parsed.
pub const MAX_ARGUMENTS: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix<'a> {
    /// The thread; 0 if the line has none.
    pub pid: u32,
    pub at: Option<Stamp>,
    pub rest: &'a [u8],
}

/// Splits a line into its prefix (the thread, the time, and what strace's options `-Y`, `-r`, `-n` and `-i` add) and
/// the rest. Returns `None` if the prefix has another format.
pub fn prefix(line: &[u8]) -> Option<Prefix<'_>> {
    let (mut rest, mut pid) = (line.trim_ascii_start(), 0);
    if let Some(inner) = rest.strip_prefix(b"[pid") {
        let end = inner.iter().position(|b| *b == b']')?;
        pid = number_and_name(inner[..end].trim_ascii())?;
        rest = &inner[end + 1..];
    } else if rest.first().is_some_and(u8::is_ascii_digit) {
        let end = rest
            .iter()
            .position(|b| !b.is_ascii_digit())
            .unwrap_or(rest.len());
        let named = if rest.get(end) == Some(&b'<') {
            end + rest[end..].iter().position(|b| *b == b'>')? + 1
        } else {
            end
        };
        if rest.get(named).is_none_or(u8::is_ascii_whitespace) {
            (pid, rest) = (number_and_name(&rest[..named])?, &rest[named..]);
        }
    }
    rest = rest.trim_ascii_start();
    let mut at = None;
    if rest.first().is_some_and(u8::is_ascii_digit) {
        let mut tail = rest;
        at = Some(Stamp::of(scan::word(&mut tail))?);
        rest = tail.trim_ascii_start();
    }
    for (open, close) in [(&b"(+"[..], b')'), (b"[", b']'), (b"[", b']')] {
        if let Some(inner) = rest.strip_prefix(open) {
            let end = inner.iter().position(|b| *b == close)?;
            rest = inner[end + 1..].trim_ascii_start();
        }
    }
    Some(Prefix { pid, at, rest })
}

/// `1234`, or `1234<name>` with `-Y`.
fn number_and_name(text: &[u8]) -> Option<u32> {
    let end = text.iter().position(|b| *b == b'<').unwrap_or(text.len());
    scan::number(&text[..end])?.try_into().ok()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StraceEntry<'a> {
    /// A call, and the text after its opening parenthesis.
    Call(&'a [u8], &'a [u8]),
    /// The first part of a call.
    Begun(&'a [u8], &'a [u8]),
    /// The rest of a call that was unfinished.
    Resumed(&'a [u8], &'a [u8]),
    /// The thread has ended.
    Gone,
    /// Signals and other lines.
    Other,
}

/// Parses a line without its prefix; returns `None` if the line is not from strace.
pub fn entry(rest: &[u8]) -> Option<StraceEntry<'_>> {
    if let Some(resumed) = rest.strip_prefix(b"<... ") {
        let end = resumed.iter().position(|b| *b == b'>')?;
        let name = resumed[..end].strip_suffix(b" resumed")?;
        return Some(StraceEntry::Resumed(name, &resumed[end + 1..]));
    }
    if rest.starts_with(b"+++ exited") || rest.starts_with(b"+++ killed") {
        return Some(StraceEntry::Gone);
    }
    if rest.starts_with(b"+++ ") || rest.starts_with(b"--- ") {
        return Some(StraceEntry::Other);
    }
    let paren = rest
        .iter()
        .position(|b| !(b.is_ascii_alphanumeric() || *b == b'_'))?;
    if paren == 0 || rest[paren] != b'(' {
        return None;
    }
    let (name, text) = (&rest[..paren], &rest[paren + 1..]);
    Some(match text.strip_suffix(b"<unfinished ...>") {
        Some(begun) => StraceEntry::Begun(name, begun.trim_ascii_end()),
        None => StraceEntry::Call(name, text),
    })
}

/// The arguments of a call, each as text, and the text after the closing parenthesis.
pub struct Arguments<'a> {
    list: [&'a [u8]; MAX_ARGUMENTS],
    tail: &'a [u8],
}

impl<'a> Arguments<'a> {
    /// Splits a call's text into its arguments; returns `None` if the parenthesis is not closed.
    pub fn of(text: &'a [u8]) -> Option<Arguments<'a>> {
        let mut list = [&text[..0]; MAX_ARGUMENTS];
        let (mut at, mut begins, mut count, mut depth) = (0, 0, 0, 0_u32);
        while let Some(byte) = text.get(at) {
            match byte {
                b'"' => at = quote_end(text, at)?,
                b'<' => at = name_end(text, at)?,
                b'(' | b'[' | b'{' => depth += 1,
                b')' | b']' | b'}' if depth > 0 => depth -= 1,
                b',' | b')' if depth == 0 => {
                    if let Some(argument) = list.get_mut(count) {
                        *argument = text[begins..at].trim_ascii();
                    }
                    (count, begins) = (count + 1, at + 1);
                    if *byte == b')' {
                        return Some(Arguments {
                            list,
                            tail: &text[at + 1..],
                        });
                    }
                }
                _ => {}
            }
            at += 1;
        }
        None
    }

    /// Returns the argument with this number; the result is empty if the call has fewer arguments.
    pub fn get(&self, number: usize) -> &'a [u8] {
        self.list.get(number).copied().unwrap_or_default()
    }

    pub fn number(&self, number: usize) -> Option<u64> {
        scan::number(self.get(number))
    }

    /// Returns whether any argument contains `word`, inside or outside quotes.
    pub fn mention(&self, word: &[u8]) -> bool {
        self.list
            .iter()
            .any(|argument| argument.windows(word.len()).any(|part| part == word))
    }

    pub fn outcome(&self) -> Option<Outcome<'a>> {
        outcome(self.tail)
    }
}

/// The end of the quoted string that starts at `at`.
fn quote_end(text: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at += 1;
        match text.get(at)? {
            b'\\' => at += 1,
            b'"' => return Some(at),
            _ => {}
        }
    }
}

/// The end of the name after a descriptor that starts at `at`: with `-yy` it contains angle brackets and arrows.
fn name_end(text: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at += 1;
        if *text.get(at)? == b'>'
            && matches!(
                text.get(at + 1),
                None | Some(b',' | b')' | b'(' | b' ' | b']' | b'}')
            )
        {
            return Some(at);
        }
    }
}

/// Parses a descriptor, with the file name that strace's option `-y` adds.
pub fn descriptor(text: &[u8]) -> Option<(i32, Option<&[u8]>)> {
    let open = text.iter().position(|b| *b == b'<');
    let number = scan::number(&text[..open.unwrap_or(text.len())])?;
    let name = match open {
        Some(open) => Some(&text[open + 1..name_end(text, open)?]),
        None => None,
    };
    Some((i32::try_from(number).ok()?, name))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome<'a> {
    /// Return value; `None` if the call did not return.
    pub value: Option<i64>,
    /// The returned descriptor, as written.
    pub text: &'a [u8],
    /// Duration (`-T`).
    pub took_ns: Option<u64>,
}

impl<'a> Outcome<'a> {
    /// Parses the descriptor that a call returned, with its file name. `3 <0.1>` has no file name, because 0.1 is the duration of the
    /// call.
    pub fn descriptor(&self) -> Option<(i32, Option<&'a [u8]>)> {
        let digits = self.text.iter().take_while(|b| b.is_ascii_digit()).count();
        if self.text.get(digits) == Some(&b'<') {
            descriptor(self.text)
        } else {
            descriptor(&self.text[..digits])
        }
    }
}

/// Parses ` = 3</a> <0.000012>`; returns `None` if the line is truncated.
fn outcome(tail: &[u8]) -> Option<Outcome<'_>> {
    let text = tail.trim_ascii().strip_prefix(b"= ")?.trim_ascii_start();
    let took_ns = text.strip_suffix(b">").and_then(|inner| {
        let open = inner.iter().rposition(|b| *b == b'<')?;
        scan::decimal_ns(&inner[open + 1..], scan::SECOND_NS)
    });
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let end = digits
        .iter()
        .position(|b| !b.is_ascii_digit())
        .unwrap_or(digits.len());
    let value = match digits.first()? {
        b'?' => None,
        // An address: it only matters that there is one.
        b'0' if digits.get(1) == Some(&b'x') => Some(0),
        _ => {
            let value = i64::try_from(scan::number(&digits[..end])?).ok()?;
            Some(if digits.len() < text.len() {
                -value
            } else {
                value
            })
        }
    };
    Some(Outcome {
        value,
        text,
        took_ns,
    })
}

/// Returns the total size of a vector of buffers in bytes, or `None` if strace did not show the whole vector.
pub fn vector_bytes(text: &[u8]) -> Option<u64> {
    let (mut at, mut sum) = (0, 0_u64);
    const KEY: &[u8] = b"iov_len=";
    while let Some(byte) = text.get(at) {
        if *byte == b'"' {
            at = quote_end(text, at)?;
            // A truncated buffer: "abc"...
            at += if text[at + 1..].starts_with(b"...") {
                3
            } else {
                0
            };
        } else if text[at..].starts_with(b"...") {
            return None;
        } else if text[at..].starts_with(KEY) {
            at += KEY.len();
            let digits = text[at..].iter().take_while(|b| b.is_ascii_digit()).count();
            sum = sum.checked_add(scan::number(&text[at..at + digits])?)?;
            at += digits - 1;
        }
        at += 1;
    }
    text.starts_with(b"[").then_some(sum)
}

/// Returns the first number in brackets: for `[4096] => [8192]`, 4096.
pub fn bracketed(text: &[u8]) -> Option<u64> {
    let inner = text.strip_prefix(b"[")?;
    scan::number(&inner[..inner.iter().position(|b| *b == b']')?])
}

/// Decodes strace's escape sequences in `text`, and appends the result to `to`.
pub fn unescape(text: &[u8], to: &mut Vec<u8>) {
    to.clear();
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'\\' {
            to.push(*first);
            continue;
        }
        let [letter, tail @ ..] = rest else { return };
        rest = tail;
        match letter {
            b'n' => to.push(b'\n'),
            b't' => to.push(b'\t'),
            b'r' => to.push(b'\r'),
            b'v' => to.push(11),
            b'f' => to.push(12),
            b'0'..=b'7' => {
                let more = rest
                    .iter()
                    .take(2)
                    .take_while(|b| matches!(b, b'0'..=b'7'))
                    .count();
                let digits = std::iter::once(letter).chain(&rest[..more]);
                let value = digits.fold(0_u32, |value, digit| value * 8 + u32::from(digit - b'0'));
                to.push(value as u8);
                rest = &rest[more..];
            }
            b'x' if rest.len() >= 2 => {
                let hex = |b: u8| char::from(b).to_digit(16).unwrap_or(0) as u8;
                to.push(hex(rest[0]) << 4 | hex(rest[1]));
                rest = &rest[2..];
            }
            other => to.push(*other),
        }
    }
}

// The time of a strace line, in nanoseconds since the first line.
//
// | option | a line begins with | which is |
// |---|---|---|
// | `-ttt` | `1700000000.123456` | since 1970 |
// | `-tt`, `-t` | `13:05:59.123456`, `13:05:59` | the time of day; if it falls by more than half a day, midnight has passed |
// | `-r` | `0.000123` | since the previous line of any thread |
// | none | | unknown |
//
// With `-t` many calls have the same time. If a line has another time next to that of `-r`, the other is used, because
// it is absolute.

/// A time before 1973 is not a time since 1970 but the time since the previous line.
const OLDEST_NS: u64 = 100_000_000 * NS;
const DAY_NS: u64 = 86_400 * NS;

const BACKWARDS: Fault = (
    "time goes backwards",
    "the clock was set; cut the trace before this line",
);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// Nanoseconds since 1970.
    Epoch(u64),
    /// Nanoseconds since midnight.
    Day(u64),
    /// Nanoseconds since the previous line.
    Since(u64),
}

impl Stamp {
    /// Parses a word as a time, or returns `None` if it is not a time.
    pub fn of(word: &[u8]) -> Option<Stamp> {
        let mut parts = word.splitn(3, |b| *b == b':');
        let (first, minutes, seconds) = (parts.next()?, parts.next(), parts.next());
        let Some((minutes, seconds)) = minutes.zip(seconds) else {
            return match scan::decimal_ns(word, NS)? {
                ns if ns >= OLDEST_NS => Some(Stamp::Epoch(ns)),
                ns => Some(Stamp::Since(ns)),
            };
        };
        let (hours, minutes, ns) = (
            scan::number(first)?,
            scan::number(minutes)?,
            scan::decimal_ns(seconds, NS)?,
        );
        // A leap second is second 60.
        let is_time = hours < 24 && minutes < 60 && ns < 61 * NS;
        is_time.then_some(Stamp::Day((hours * 3600 + minutes * 60) * NS + ns))
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// The first time, whose kind all others must have.
    first: Stamp,
    /// Time of the previous line, relative to the first.
    now_ns: u64,
}

impl Clock {
    pub fn new(first: Stamp) -> Clock {
        Clock { first, now_ns: 0 }
    }

    /// Returns the time of the next line, relative to the first line, or `None` if its format differs from that of the first line.
    pub fn at(&mut self, stamp: Stamp, is_first: bool) -> Result<Option<u64>, Fault> {
        let at_ns = match (self.first, stamp) {
            (Stamp::Epoch(first), Stamp::Epoch(at)) => at.checked_sub(first),
            (Stamp::Day(first), Stamp::Day(at)) => {
                let (before, now) = (
                    first + self.now_ns,
                    at + (first + self.now_ns) / DAY_NS * DAY_NS,
                );
                let passed = if now + DAY_NS / 2 < before { DAY_NS } else { 0 };
                (now + passed).checked_sub(first)
            }
            (Stamp::Since(_), Stamp::Since(passed)) if !is_first => {
                Some(self.now_ns.saturating_add(passed))
            }
            (Stamp::Since(_), Stamp::Since(_)) => Some(0),
            _ => return Ok(None),
        };
        self.now_ns = at_ns.filter(|at| *at >= self.now_ns).ok_or(BACKWARDS)?;
        Ok(Some(self.now_ns))
    }
}

// Determines the thread of a line if strace writes to the terminal instead of a file (`-o`).
//
// ```text
//   1700000000.1 clone(child_stack=NULL, flags=SIGCHLDstrace: Process 12 attached     the number of the new thread
//    <unfinished ...>                                                                 the rest of the line before
//   [pid    12] 1700000000.2 read(3</a>, ""..., 7) = 7 <0.000010>                     numbers while there are several
//   [pid    11] 1700000000.3 <... clone resumed>) = 12 <0.000450>                     11 is what had no number so far
//   [pid    12] 1700000000.4 +++ exited with 0 +++
//   1700000000.5 read(3</a>, ""..., 5) = 5 <0.000010>                                 11 again
// ```
// strace numbers its lines only while it traces more than one thread. Once a thread was announced ("attached"), a
// number that was never announced belongs to the first thread, whose lines had no number; a line without a number
// belongs to the only thread that is left. Files written by `-o` do not need this, because each line has its number.

/// The thread of lines without a number.
const FIRST: u32 = 0;

/// Assigns threads to the lines of a trace that strace wrote to the terminal.
#[derive(Default)]
pub struct Numbers {
    /// Whether a line without a number was seen.
    unnumbered: bool,
    /// Whether a thread was announced; from then on lines with and without a number may belong together.
    several: bool,
    /// The number of the first thread, once a line has shown it.
    first: Option<u32>,
    first_gone: bool,
    /// Threads that were announced and have not ended.
    attached: BTreeSet<u32>,
}

impl Numbers {
    /// Returns the number of the thread whose line has the process id `pid`; `pid` is 0 if the line has no id.
    pub fn thread(&mut self, pid: u32) -> u32 {
        if pid == FIRST {
            self.unnumbered = true;
            return match self.attached.first() {
                Some(left) if self.first_gone && self.attached.len() == 1 => *left,
                _ => FIRST,
            };
        }
        if !(self.unnumbered && self.several) || self.attached.contains(&pid) {
            return pid;
        }
        if *self.first.get_or_insert(pid) == pid {
            FIRST
        } else {
            pid
        }
    }

    /// Returns whether strace has announced this thread and the thread has not ended.
    pub fn knows(&self, thread: u32) -> bool {
        self.attached.contains(&thread)
    }

    /// Records that a thread has ended; `thread` is a result of [`Numbers::thread`].
    pub fn gone(&mut self, thread: u32) {
        if thread == FIRST {
            self.first_gone = true;
        } else {
            self.attached.remove(&thread);
        }
    }

    /// If the line ends with strace's announcement of a new thread, returns the text before the announcement.
    pub fn announced<'a>(&mut self, line: &'a [u8]) -> Option<&'a [u8]> {
        let (before, number) = announcement(line)?;
        self.several = true;
        self.attached.insert(number);
        Some(before)
    }
}

/// Finds an announcement of a new thread, `...strace: Process 12 attached` (before version 4.21 without `strace: `).
pub fn announcement(line: &[u8]) -> Option<(&[u8], u32)> {
    let text = line.trim_ascii_end().strip_suffix(b" attached")?;
    let digits = text.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let (text, digits) = text.split_at(text.len() - digits);
    let number = scan::small(digits)?;
    let before = text.strip_suffix(b"Process ")?;
    Some((before.strip_suffix(b"strace: ").unwrap_or(before), number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes() {
        let at = Some(Stamp::Epoch(1_700_000_000_123_456_000));
        let day = Some(Stamp::Day(36_672_123_456_000));
        let since = Some(Stamp::Since(123_000));
        for (line, pid, at) in [
            (&b"1234  1700000000.123456 read(3"[..], 1234, at),
            (b"[pid  1234] 1700000000.123456 read(3", 1234, at),
            (b"1700000000.123456 read(3", 0, at),
            (b"77 read(3", 77, None),
            (b"read(3", 0, None),
            (b"12 10:11:12.123456 read(3", 12, day),
            (b"10:11:12.123456 read(3", 0, day),
            (b"12 10:11:12.123456 (+     0.000123) read(3", 12, day),
            (b"     0.000123 read(3", 0, since),
            (b"1234      0.000123 read(3", 1234, since),
            (b"1234<a b> 1700000000.123456 read(3", 1234, at),
            (b"[pid 1234<dd>] 1700000000.123456 read(3", 1234, at),
            (
                b"1234 1700000000.123456 [00007f0123456789] read(3",
                1234,
                at,
            ),
            (
                b"1234 1700000000.123456 [   0] [00007f0123456789] read(3",
                1234,
                at,
            ),
        ] {
            assert_eq!(
                prefix(line),
                Some(Prefix {
                    pid,
                    at,
                    rest: b"read(3"
                }),
                "{}",
                line.escape_ascii()
            );
        }
        for line in [
            &b"12 10:11:71.123456 read(3"[..],
            b"[pid x] read(3",
            b"12<dd 1700000000.123456 read(3",
        ] {
            assert_eq!(prefix(line), None, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn arguments_hold_anything() {
        let text = br#"3</a, (b)>, "x\"), 9) = 7 <9.0>\\"..., {a=[1, 2], b="}"}, 4096) = 5</c> <0.000012>"#;
        let arguments = Arguments::of(text).expect("whole");
        assert_eq!(
            descriptor(arguments.get(0)),
            Some((3, Some(&b"/a, (b)"[..])))
        );
        assert_eq!(
            (arguments.get(2), arguments.number(3)),
            (&b"{a=[1, 2], b=\"}\"}"[..], Some(4096))
        );
        assert_eq!((arguments.get(4), arguments.get(99)), (&b""[..], &b""[..]));
        let outcome = arguments.outcome().expect("whole");
        assert_eq!((outcome.value, outcome.took_ns), (Some(5), Some(12_000)));
        assert_eq!(outcome.descriptor(), Some((5, Some(&b"/c"[..]))));
        assert_eq!(
            super::outcome(b"= 3 <0.1>").and_then(|o| o.descriptor()),
            Some((3, None))
        );
        for end in 0..text.len() - 20 {
            let cut = Arguments::of(&text[..end]).and_then(|arguments| arguments.outcome());
            assert_eq!(cut, None, "{end}");
        }
        assert!(Arguments::of(b"3</a>(deleted), 5) = 0").is_some_and(|a| a.number(1) == Some(5)));
    }

    #[test]
    fn outcomes() {
        let of = |text: &'static [u8]| outcome(text).map(|o| (o.value, o.took_ns));
        assert_eq!(
            of(b" = -1 ENOENT (No such file) <0.1>"),
            Some((Some(-1), Some(100_000_000)))
        );
        assert_eq!(
            of(b"= 0x7f53e3337000 <0.000013>"),
            Some((Some(0), Some(13_000)))
        );
        assert_eq!(
            (of(b"   = ?"), of(b" = ? ERESTARTSYS (To be restarted)")),
            (Some((None, None)), Some((None, None)))
        );
        assert_eq!(
            (of(b""), of(b" ="), of(b" = x"), of(b" = -")),
            (None, None, None, None)
        );
        assert_eq!(
            descriptor(b"0</dev/pts/0<char 136:0>>"),
            Some((0, Some(&b"/dev/pts/0<char 136:0>"[..])))
        );
        assert_eq!(
            descriptor(b"3<TCP:[1.1.1.1:5->2.2.2.2:80]>"),
            Some((3, Some(&b"TCP:[1.1.1.1:5->2.2.2.2:80]"[..])))
        );
        assert_eq!(
            (
                descriptor(b"7"),
                descriptor(b"AT_FDCWD</>"),
                descriptor(b"3</a")
            ),
            (Some((7, None)), None, None)
        );
    }

    #[test]
    fn vectors_brackets_and_escapes() {
        let vector = br#"[{iov_base="iov_len=9\""..., iov_len=10}, {iov_base="", iov_len=20}]"#;
        assert_eq!(vector_bytes(vector), Some(30));
        assert_eq!(
            (
                vector_bytes(b"[...]"),
                vector_bytes(b"0x7f00"),
                vector_bytes(b"[]")
            ),
            (None, None, Some(0))
        );
        assert_eq!(vector_bytes(b"[{iov_base=\"\", iov_len=10}, ...]"), None);
        assert_eq!(
            (bracketed(b"[40] => [60]"), bracketed(b"NULL")),
            (Some(40), None)
        );
        let mut name = Vec::new();
        unescape(br#"a\n\"\74\x3e\303\244\\"#, &mut name);
        assert_eq!(name, b"a\n\"<>\xc3\xa4\\");
    }

    #[test]
    fn times_of_every_kind() {
        let stamps = |words: &[&str]| -> Vec<Option<u64>> {
            let stamps: Vec<Stamp> = words
                .iter()
                .map(|word| Stamp::of(word.as_bytes()).expect("a time"))
                .collect();
            let mut clock = Clock::new(stamps[0]);
            stamps
                .iter()
                .enumerate()
                .map(|(i, stamp)| clock.at(*stamp, i == 0).ok().flatten())
                .collect()
        };
        assert_eq!(
            stamps(&["1700000000.5", "1700000001.25"]),
            [Some(0), Some(750_000_000)]
        );
        assert_eq!(
            stamps(&["10:00:00", "10:00:01", "10:00:01"]),
            [Some(0), Some(NS), Some(NS)]
        );
        let midnight = ["23:59:59.5", "00:00:00.25", "13:00:00", "00:00:01"];
        let one = 13 * 3600 * NS + NS / 2;
        assert_eq!(
            stamps(&midnight),
            [
                Some(0),
                Some(NS / 4 * 3),
                Some(one),
                Some(one + 11 * 3600 * NS + NS)
            ]
        );
        // The first time counts from the start of strace.
        assert_eq!(
            stamps(&["0.5", "0.25", "0.000001"]),
            [Some(0), Some(NS / 4), Some(NS / 4 + 1000)]
        );
        assert_eq!(
            stamps(&["10:00:01", "10:00:00"]),
            [Some(0), None],
            "backwards"
        );
        assert_eq!(
            stamps(&["10:00:01", "0.5"]),
            [Some(0), None],
            "another kind"
        );
        for word in [
            "x", "24:00:00", "10:60:00", "10:00:61", "10:00", "1:2:3:4", ":",
        ] {
            assert_eq!(Stamp::of(word.as_bytes()), None, "{word}");
        }
    }

    #[test]
    fn announcements() {
        assert_eq!(
            announcement(b"strace: Process 12 attached"),
            Some((&b""[..], 12))
        );
        assert_eq!(announcement(b"Process 12 attached\n"), Some((&b""[..], 12)));
        let cut = b"1.0 read(3<pipe:[1]>, strace: Process 7 attached";
        assert_eq!(announcement(cut), Some((&b"1.0 read(3<pipe:[1]>, "[..], 7)));
        for other in [
            &b"strace: Process x attached"[..],
            b"12 attached",
            b"Process 12 detached",
            b"",
        ] {
            assert_eq!(announcement(other), None);
        }
    }

    #[test]
    fn a_number_that_was_not_announced_is_the_first_thread() {
        let mut numbers = Numbers::default();
        assert_eq!(numbers.thread(0), 0);
        numbers.announced(b"strace: Process 12 attached");
        assert_eq!(
            (numbers.thread(12), numbers.thread(11), numbers.thread(0)),
            (12, 0, 0)
        );
        // The first thread ends before the other: lines without a number now belong to the other.
        numbers.gone(0);
        assert_eq!(numbers.thread(0), 12);
        // If each line has its number, no thread is unnumbered.
        let mut numbers = Numbers::default();
        assert_eq!((numbers.thread(5), numbers.thread(6)), (5, 6));
    }
}
