//! Parses the lines of strace: thread, time, call, arguments, return value and duration.
//!
//! ```text
//!   [pid ][since 1970] name(argument, "quoted, (anything)"..., 3</a/file>, {a=1}) = RETURN</a/file> ERRNO (text) <took>
//!   [pid ][since 1970] name(argument,  <unfinished ...>
//!   [pid ][since 1970] <... name resumed>argument) = RETURN <took>
//! ```
//!
//! The contents of quoted buffers are skipped, and no memory is allocated for a line.

use crate::formats::scan::{self, SECOND_NS};

/// Maximum number of arguments of a call that are parsed.
pub const MAX_ARGUMENTS: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix<'a> {
    /// The thread; 0 if the line has none.
    pub pid: u32,
    /// Nanoseconds since 1970.
    pub at: Option<u64>,
    pub rest: &'a [u8],
}

/// A time before 1973 is not a time since 1970 but one that another option of strace writes.
const OLDEST_NS: u64 = 100_000_000 * SECOND_NS;

/// Splits a line into its prefix (the thread and the time) and the rest. Returns `None` if the prefix has another format.
pub fn prefix(line: &[u8]) -> Option<Prefix<'_>> {
    let (mut rest, mut pid, mut at) = (line.trim_ascii_start(), 0, None);
    let mut tail = rest;
    if let Some(number) = scan::number(scan::word(&mut tail)) {
        (pid, rest) = (u32::try_from(number).ok()?, tail.trim_ascii_start());
    }
    if rest.first().is_some_and(u8::is_ascii_digit) {
        let mut tail = rest;
        let ns = scan::decimal_ns(scan::word(&mut tail), SECOND_NS)?;
        at = Some(ns).filter(|ns| *ns >= OLDEST_NS);
        at?;
        rest = tail.trim_ascii_start();
    }
    Some(Prefix { pid, at, rest })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes() {
        let at = Some(1_700_000_000_123_456_000);
        for (line, pid, at) in [
            (&b"1234  1700000000.123456 read(3"[..], 1234, at),
            (b"1700000000.123456 read(3", 0, at),
            (b"77 read(3", 77, None),
            (b"read(3", 0, None),
        ] {
            let rest = b"read(3";
            let want = Some(Prefix { pid, at, rest });
            assert_eq!(prefix(line), want, "{}", line.escape_ascii());
        }
        // Times of the options -tt and -r.
        for line in [
            &b"12 10:11:12.123456 read(3"[..],
            b"10:11:12.123456 read(3",
            b"     0.000123 read(3",
        ] {
            assert_eq!(prefix(line), None, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn arguments_hold_anything() {
        let text = br#"3</a, (b)>, "x\"), 9) = 7 <9.0>\\"..., {a=[1, 2], b="}"}, 4096) = 5</c> <0.000012>"#;
        let arguments = Arguments::of(text).expect("whole");
        let file = Some((3, Some(&b"/a, (b)"[..])));
        assert_eq!(descriptor(arguments.get(0)), file);
        assert_eq!(arguments.get(2), b"{a=[1, 2], b=\"}\"}");
        assert_eq!(arguments.number(3), Some(4096));
        assert_eq!([4, 99].map(|n| arguments.get(n)), [b""; 2]);
        let outcome = arguments.outcome().expect("whole");
        assert_eq!((outcome.value, outcome.took_ns), (Some(5), Some(12_000)));
        assert_eq!(outcome.descriptor(), Some((5, Some(&b"/c"[..]))));
        let plain = super::outcome(b"= 3 <0.1>").expect("whole");
        assert_eq!(plain.descriptor(), Some((3, None)));
        for end in 0..text.len() - 20 {
            let cut = Arguments::of(&text[..end]).and_then(|arguments| arguments.outcome());
            assert_eq!(cut, None, "{end}");
        }
        assert!(Arguments::of(b"3</a>(deleted), 5) = 0").is_some_and(|a| a.number(1) == Some(5)));
    }

    #[test]
    fn outcomes() {
        for (text, expected) in [
            (
                " = -1 ENOENT (No such file) <0.1>",
                (Some(-1), Some(100_000_000)),
            ),
            ("= 0x7f53e3337000 <0.000013>", (Some(0), Some(13_000))),
            ("   = ?", (None, None)),
            (" = ? ERESTARTSYS (To be restarted)", (None, None)),
        ] {
            let outcome = outcome(text.as_bytes()).expect(text);
            assert_eq!((outcome.value, outcome.took_ns), expected, "{text}");
        }
        for text in ["", " =", " = x", " = -"] {
            assert!(outcome(text.as_bytes()).is_none(), "{text}");
        }
        for (text, number, name) in [
            (
                "0</dev/pts/0<char 136:0>>",
                0,
                Some("/dev/pts/0<char 136:0>"),
            ),
            (
                "3<TCP:[1.1.1.1:5->2.2.2.2:80]>",
                3,
                Some("TCP:[1.1.1.1:5->2.2.2.2:80]"),
            ),
            ("7", 7, None),
        ] {
            let expected = Some((number, name.map(str::as_bytes)));
            assert_eq!(descriptor(text.as_bytes()), expected, "{text}");
        }
        for text in ["AT_FDCWD</>", "3</a"] {
            assert_eq!(descriptor(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn vectors_brackets_and_escapes() {
        let vector = br#"[{iov_base="iov_len=9\""..., iov_len=10}, {iov_base="", iov_len=20}]"#;
        assert_eq!(vector_bytes(vector), Some(30));
        assert_eq!(vector_bytes(b"[]"), Some(0));
        for text in ["[...]", "0x7f00", "[{iov_base=\"\", iov_len=10}, ...]"] {
            assert_eq!(vector_bytes(text.as_bytes()), None, "{text}");
        }
        assert_eq!(bracketed(b"[40] => [60]"), Some(40));
        assert_eq!(bracketed(b"NULL"), None);
        let mut name = Vec::new();
        unescape(br#"a\n\"\74\x3e\303\244\\"#, &mut name);
        assert_eq!(name, b"a\n\"<>\xc3\xa4\\");
    }
}
