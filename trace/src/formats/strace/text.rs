//! The lines of strace, taken apart: thread, time, which call, its arguments, what it returned and how long it took.
//!
//! ```text
//!   [pid ][time] name(argument, "quoted, (anything)"..., 3</a/file>, {a=1}) = RETURN</a/file> ERRNO (text) <took>
//!   [pid ][time] name(argument,  <unfinished ...>
//!   [pid ][time] <... name resumed>argument) = RETURN <took>
//! ```
//!
//! Never: looks into a quoted buffer, or allocates for a line.

use super::super::scan;
use super::clock::Stamp;

/// Arguments of a call that are looked at.
pub const MAX_ARGUMENTS: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix<'a> {
    /// The thread; 0 where it is not written.
    pub pid: u32,
    pub at: Option<Stamp>,
    pub rest: &'a [u8],
}

/// Takes the thread and the time off a line, and what `-Y`, `-r` beside a time, `-n` and `-i` write there. Nothing where they are in
/// another form.
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
    /// A call and what follows its parenthesis.
    Call(&'a [u8], &'a [u8]),
    /// A call that is shown up to here, for now.
    Begun(&'a [u8], &'a [u8]),
    /// The rest of a call.
    Resumed(&'a [u8], &'a [u8]),
    /// The thread is gone.
    Gone,
    /// Signals and the like.
    Other,
}

/// What a line is about; nothing where it is none of strace.
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

/// The arguments of a call, as they are written, and the text behind its parenthesis.
pub struct Arguments<'a> {
    list: [&'a [u8]; MAX_ARGUMENTS],
    tail: &'a [u8],
}

impl<'a> Arguments<'a> {
    /// Parts the arguments; nothing where the parenthesis is not closed.
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

    /// An argument; empty where there is none.
    pub fn get(&self, number: usize) -> &'a [u8] {
        self.list.get(number).copied().unwrap_or_default()
    }

    pub fn number(&self, number: usize) -> Option<u64> {
        scan::number(self.get(number))
    }

    /// Whether any of them holds `word`, outside of quotes or within.
    pub fn mention(&self, word: &[u8]) -> bool {
        self.list
            .iter()
            .any(|argument| argument.windows(word.len()).any(|part| part == word))
    }

    pub fn outcome(&self) -> Option<Outcome<'a>> {
        outcome(self.tail)
    }
}

/// Where the quote that begins at `at` ends.
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

/// Where the name behind a descriptor that begins at `at` ends: `-yy` has angle brackets and arrows within.
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

/// A descriptor with the name that `-y` gives it.
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
    /// Its value; nothing where it did not return.
    pub value: Option<i64>,
    /// The descriptor that it returned, as it is written.
    pub text: &'a [u8],
    /// How long it took (`-T`).
    pub took_ns: Option<u64>,
}

impl<'a> Outcome<'a> {
    /// The descriptor that was returned, with its name: `3 <0.1>` has none, that is how long it took.
    pub fn descriptor(&self) -> Option<(i32, Option<&'a [u8]>)> {
        let digits = self.text.iter().take_while(|b| b.is_ascii_digit()).count();
        if self.text.get(digits) == Some(&b'<') {
            descriptor(self.text)
        } else {
            descriptor(&self.text[..digits])
        }
    }
}

/// ` = 3</a> <0.000012>`; nothing where the line is cut.
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
        // An address: that it is there is all that counts.
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

/// The bytes of a vector of buffers; nothing where strace did not show all of it.
pub fn vector_bytes(text: &[u8]) -> Option<u64> {
    let (mut at, mut sum) = (0, 0_u64);
    const KEY: &[u8] = b"iov_len=";
    while let Some(byte) = text.get(at) {
        if *byte == b'"' {
            at = quote_end(text, at)?;
            // A buffer that is cut off: "abc"...
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

/// The first number in brackets: `[4096] => [8192]` is 4096.
pub fn bracketed(text: &[u8]) -> Option<u64> {
    let inner = text.strip_prefix(b"[")?;
    scan::number(&inner[..inner.iter().position(|b| *b == b']')?])
}

/// Takes the escapes out of what strace wrote, into `to`.
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
}
