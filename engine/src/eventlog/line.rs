//! The lines of the event log: writes an event or an action as a line of text, and parses such lines.
//!
//! One table ([`lines!`]) has the word of each variant and the order of its fields; writing and parsing both use it. The parser is strict:
//! a missing field, an extra field, or a value out of range is an error.

use foreread_core::event::{Action, Advice, Class, Error, Event, Mapping};
use foreread_core::machine::Config;
use foreread_core::units::{
    ByteRange, FetchId, FileId, GroupSlot, LeaseId, Nanos, OpenId, PageSize, ReadId,
};
use std::fmt::Write;
use std::str::SplitAsciiWhitespace;

/// What is wrong with a line of the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LineError(String);

/// A set of values, each with its word.
trait Word: Copy + PartialEq + 'static {
    const ALL: &'static [(Self, &'static str)];
    const WANT: &'static str;
}

macro_rules! words {
    ($($of:ty, $want:literal: $($value:expr => $word:literal),*;)*) => {$(
        impl Word for $of {
            const ALL: &'static [($of, &'static str)] = &[$(($value, $word)),*];
            const WANT: &'static str = $want;
        }
    )*};
}

/// The last field of `serve`.
#[derive(Clone, Copy, PartialEq)]
struct IsLast(bool);

words! {
    bool, "0 or 1": false => "0", true => "1";
    IsLast, "last or more": IsLast(false) => "more", IsLast(true) => "last";
    Class, "demand or ahead": Class::Demand => "demand", Class::Ahead => "ahead";
    Advice, "a hint": Advice::Normal => "normal", Advice::Sequential => "sequential", Advice::Random => "random",
        Advice::WillNeed => "willneed", Advice::DontNeed => "dontneed";
}

/// A part of a line. (Writing to a `String` cannot fail.)
trait Field: Sized {
    fn write(&self, out: &mut String);
    fn parse(fields: &mut Fields<'_>) -> Result<Self, LineError>;
}

impl<W: Word> Field for W {
    fn write(&self, out: &mut String) {
        let word = W::ALL.iter().find(|(value, _)| value == self);
        let _ = write!(out, " {}", word.map_or("?", |(_, word)| word));
    }

    fn parse(fields: &mut Fields<'_>) -> Result<W, LineError> {
        let text = fields.text(W::WANT)?;
        let found = W::ALL.iter().find(|(_, word)| *word == text);
        found
            .map(|(value, _)| *value)
            .ok_or_else(|| bad(text, W::WANT))
    }
}

macro_rules! ids {
    ($($id:ident $what:literal),*) => {$(
        impl Field for $id {
            fn write(&self, out: &mut String) {
                let _ = write!(out, " {}", self.0);
            }

            fn parse(fields: &mut Fields<'_>) -> Result<$id, LineError> {
                number(fields.text($what)?, $what).map($id)
            }
        }
    )*};
}

ids!(OpenId "an open description", FileId "a file", ReadId "a read", FetchId "a fetch", LeaseId "a lease", GroupSlot "a slot", Nanos "a time");

impl Field for u64 {
    fn write(&self, out: &mut String) {
        let _ = write!(out, " {self}");
    }

    fn parse(fields: &mut Fields<'_>) -> Result<u64, LineError> {
        number(fields.text("a number")?, "a number")
    }
}

impl Field for Option<FileId> {
    fn write(&self, out: &mut String) {
        match self {
            Some(file) => file.write(out),
            None => out.push_str(" -"),
        }
    }

    fn parse(fields: &mut Fields<'_>) -> Result<Option<FileId>, LineError> {
        match fields.text("a file or -")? {
            "-" => Ok(None),
            text => number(text, "a file or -").map(|file| Some(FileId(file))),
        }
    }
}

impl Field for ByteRange {
    fn write(&self, out: &mut String) {
        let _ = write!(out, " {} {}", self.start(), self.len());
    }

    fn parse(fields: &mut Fields<'_>) -> Result<ByteRange, LineError> {
        let (start, len) = (u64::parse(fields)?, u64::parse(fields)?);
        let want = "a range that ends at or below the largest offset";
        ByteRange::new(start, len).ok_or_else(|| bad(&format!("{start} {len}"), want))
    }
}

impl Field for Mapping {
    fn write(&self, out: &mut String) {
        self.range.write(out);
        self.executable.write(out);
        self.advice.write(out);
    }

    fn parse(fields: &mut Fields<'_>) -> Result<Mapping, LineError> {
        Ok(Mapping {
            range: Field::parse(fields)?,
            executable: Field::parse(fields)?,
            advice: Field::parse(fields)?,
        })
    }
}

impl Field for Error {
    fn write(&self, out: &mut String) {
        let _ = match self {
            Error::Io(errno) => write!(out, " io:{errno}"),
            Error::Short => write!(out, " short"),
            Error::Changed => write!(out, " changed"),
            Error::Limit => write!(out, " limit"),
        };
    }

    fn parse(fields: &mut Fields<'_>) -> Result<Error, LineError> {
        match fields.text("an error")? {
            "short" => Ok(Error::Short),
            "changed" => Ok(Error::Changed),
            "limit" => Ok(Error::Limit),
            text => {
                let errno = text.strip_prefix("io:").and_then(|n| n.parse().ok());
                errno.map(Error::Io).ok_or_else(|| bad(text, "an error"))
            }
        }
    }
}

/// Pages of a group, as a hexadecimal number.
struct Mask(u64);

impl Field for Mask {
    fn write(&self, out: &mut String) {
        let _ = write!(out, " {:#x}", self.0);
    }

    fn parse(fields: &mut Fields<'_>) -> Result<Mask, LineError> {
        let text = fields.text("a mask")?;
        let hex = text.strip_prefix("0x").filter(|h| !h.starts_with('+'));
        let mask = hex.and_then(|h| u64::from_str_radix(h, 16).ok());
        mask.map(Mask).ok_or_else(|| bad(text, "a mask"))
    }
}

/// The word of each variant, and its fields in the order of the line; a field may be written as another type.
macro_rules! lines {
    ($of:ident, $want:literal, $write:ident, $parse:ident: $($variant:ident $word:literal ($($field:ident $(as $as:ident)?),*);)*) => {
        fn $write(out: &mut String, value: &$of) {
            match value {
                $($of::$variant { $($field),* } => {
                    out.push_str($word);
                    $(lines!(@write out, $field $($as)?);)*
                })*
            }
            out.push('\n');
        }

        fn $parse(fields: &mut Fields<'_>) -> Result<$of, LineError> {
            match fields.text($want)? {
                $($word => Ok($of::$variant { $($field: lines!(@parse fields $($as)?)),* }),)*
                text => Err(bad(text, $want)),
            }
        }
    };
    (@write $out:ident, $field:ident) => { $field.write($out) };
    (@write $out:ident, $field:ident $as:ident) => { $as(*$field).write($out) };
    (@parse $fields:ident) => { Field::parse($fields)? };
    (@parse $fields:ident $as:ident) => { $as::parse($fields)?.0 };
}

lines! { Event, "an event", put_event, take_event:
    Open "open" (open, file, size);
    Close "close" (open);
    Forget "forget" (file);
    List "list" (file, size, after, planned);
    Read "read" (read, open, range, random);
    Hit "hit" (read, open, range);
    Fault "fault" (read, open, at, map);
    Accessed "accessed" (open, at, code);
    Unmapped "unmapped" (file, number, pages);
    Advise "advise" (open, advice, range);
    Prefetch "want" (open, range);
    Invalidate "invalidate" (file, range);
    Changed "changed" (file, size);
    Grown "grown" (file, size);
    Progress "progress" (fetch, bytes);
    Answered "answered" (ns);
    AtHand "athand" (fetch);
    Done "done" (fetch, bytes);
    Failed "failed" (fetch, error);
    Abandon "abandon" (read);
    Release "release" (lease);
    Pressure "pressure" (pages);
    Timer "timer" ();
}

lines! { Action, "an action", put_action, take_action:
    Submit "submit" (fetch, file, range, class);
    Cancel "cancel" (fetch);
    Serve "serve" (read, lease, file, range, last as IsLast);
    Fail "fail" (read, error);
    Drop "drop" (slot, file, number, pages as Mask);
    WakeAt "wake" (at);
}

/// Appends the line of an event to `out`.
pub(super) fn write_event(out: &mut String, now: Nanos, event: &Event) {
    let _ = write!(out, "E {} ", now.0);
    put_event(out, event);
}

/// Appends the line of an action to `out`.
pub(super) fn write_action(out: &mut String, action: &Action) {
    out.push_str("A ");
    put_action(out, action);
}

/// An event and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedEvent {
    /// When the machine received it.
    pub at: Nanos,
    /// The event.
    pub event: Event,
}

/// Parses an event's line.
///
/// # Errors
/// Returns an error if the line is not exactly one event.
pub fn parse_event(line: &str) -> Result<TimedEvent, LineError> {
    let mut fields = Fields::after("E", line)?;
    let (at, event) = (Nanos::parse(&mut fields)?, take_event(&mut fields)?);
    fields.end(TimedEvent { at, event })
}

/// Parses an action's line.
pub(super) fn parse_action(line: &str) -> Result<Action, LineError> {
    let mut fields = Fields::after("A", line)?;
    let action = take_action(&mut fields)?;
    fields.end(action)
}

/// The fields of a line, in order.
struct Fields<'a>(SplitAsciiWhitespace<'a>);

impl<'a> Fields<'a> {
    fn after(kind: &'static str, line: &'a str) -> Result<Fields<'a>, LineError> {
        let mut fields = Fields(line.split_ascii_whitespace());
        match fields.text(kind)? {
            text if text == kind => Ok(fields),
            text => Err(bad(text, kind)),
        }
    }

    fn text(&mut self, what: &'static str) -> Result<&'a str, LineError> {
        let missing = || LineError(format!("a field is missing: {what}"));
        self.0.next().ok_or_else(missing)
    }

    fn end<T>(mut self, value: T) -> Result<T, LineError> {
        match self.0.next() {
            Some(text) => Err(LineError(format!("too many fields, from '{text}' on"))),
            None => Ok(value),
        }
    }
}

/// The error of a field that has an invalid value.
pub(super) fn bad(text: &str, want: &str) -> LineError {
    LineError(format!("'{text}' is not {want}"))
}

fn number<T: TryFrom<u64>>(text: &str, what: &'static str) -> Result<T, LineError> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    let value = digits.then(|| text.parse::<u64>().ok()).flatten();
    value
        .and_then(|n| T::try_from(n).ok())
        .ok_or_else(|| bad(text, what))
}

pub(super) fn config_line(config: &Config) -> String {
    let Config {
        page,
        capacity_pages,
        max_fetch_bytes,
        max_in_flight,
        max_ahead_in_flight,
        max_short_ahead_in_flight,
        max_piggyback_bytes,
        keep_windows_apart,
        // Not written by an engine.
        in_order: _,
    } = *config;
    format!(
        "config page={} capacity_pages={capacity_pages} max_fetch_bytes={max_fetch_bytes} \
         max_in_flight={max_in_flight} max_ahead_in_flight={max_ahead_in_flight} max_piggyback_bytes={max_piggyback_bytes} \
         keep_windows_apart={} max_short_ahead_in_flight={max_short_ahead_in_flight}",
        page.bytes(),
        u8::from(keep_windows_apart),
    )
}

/// Parses the line of limits. The keys have a fixed order, the one in which they are written.
pub(super) fn parse_config(line: &str) -> Result<Config, LineError> {
    let mut f = Fields::after("config", line)?;
    let mut value = |key: &'static str| -> Result<u64, LineError> {
        let text = f.text(key)?;
        let value = text
            .strip_prefix(key)
            .and_then(|t| t.strip_prefix('='))
            .ok_or_else(|| bad(text, key))?;
        number(value, key)
    };
    let page = value("page")?;
    let page = PageSize::new(page).ok_or_else(|| bad(&page.to_string(), "a page size"))?;
    let mut config = Config::new(page, 0);
    config.capacity_pages = value("capacity_pages")?;
    config.max_fetch_bytes = value("max_fetch_bytes")?;
    config.max_in_flight = u32::try_from(value("max_in_flight")?).unwrap_or(u32::MAX);
    config.max_ahead_in_flight = u32::try_from(value("max_ahead_in_flight")?).unwrap_or(u32::MAX);
    config.max_piggyback_bytes = value("max_piggyback_bytes")?;
    config.keep_windows_apart = value("keep_windows_apart")? != 0;
    config.max_short_ahead_in_flight =
        u32::try_from(value("max_short_ahead_in_flight")?).unwrap_or(u32::MAX);
    f.end(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each variant, with its largest numbers, is written as it was read; a line with a field more or less is refused.
    #[test]
    fn every_line_there_and_back() {
        let events = "open 4294967295 0 4611686018427387904;close 4294967295;forget 0;list 0 4611686018427387904 - 0;\
            list 0 0 4294967295 1;read 18446744073709551615 4294967295 1 4611686018427387903 1;read 1 2 1 1 0;hit 1 2 1 1;\
            accessed 4294967295 7 1;unmapped 0 3 18446744073709551615;want 2 1 1;invalidate 0 1 1;changed 0 0;\
            grown 0 18446744073709551615;advise 2 normal 1 1;advise 2 sequential 1 1;advise 2 random 1 1;advise 2 willneed 1 1;\
            advise 2 dontneed 1 1;fault 1 2 5 1 1 0 normal;fault 1 2 5 1 1 1 random;progress 30064771072 1;\
            answered 18446744073709551615;athand 7;done 7 18446744073709551615;failed 7 io:-2147483648;failed 7 io:5;\
            failed 7 short;failed 7 changed;failed 7 limit;abandon 1;release 9;pressure 12;timer";
        for line in events
            .split(';')
            .map(|event| format!("E 18446744073709551615 {event}\n"))
        {
            let parsed = parse_event(&line).expect(&line);
            let mut written = String::new();
            write_event(&mut written, parsed.at, &parsed.event);
            assert_eq!(written, line);
            assert!(parse_event(&format!("{} more", line.trim_end())).is_err());
            assert!(parse_event(line.trim_end().rsplit_once(' ').expect("fields").0).is_err());
        }
        let actions = "cancel 18446744073709551615;drop 4 4294967295 1125899906842624 0xffffffffffffffff;\
            wake 18446744073709551615;submit 1 2 0 0 demand;submit 1 2 0 0 ahead;serve 3 4294967295 1 0 0 last;\
            serve 3 4294967295 1 0 0 more;fail 3 io:5;fail 3 short;fail 3 changed;fail 3 limit";
        for line in actions.split(';').map(|action| format!("A {action}\n")) {
            let mut written = String::new();
            write_action(&mut written, &parse_action(&line).expect(&line));
            assert_eq!(written, line);
            assert!(parse_action(&format!("{} more", line.trim_end())).is_err());
        }
    }

    #[test]
    fn odd_lines_are_errors() {
        for line in [
            "",
            "E",
            "E x timer",
            "E +1 timer",
            "E 1 tea",
            "E 1 read 1 1 4611686018427387904 1 0",
            "A timer",
        ] {
            assert!(parse_event(line).is_err(), "{line}");
        }
        for line in [
            "A drop 1 1 1 12",
            "A drop 1 1 1 0x+1",
            "A serve 1 1 1 0 1 maybe",
            "A cancel -1",
            "E 1 timer",
        ] {
            assert!(parse_action(line).is_err(), "{line}");
        }
        let config = Config::new(PageSize::new(512).expect("a page"), 1 << 30);
        assert_eq!(parse_config(&config_line(&config)), Ok(config));
        assert!(parse_config("config page=4096").is_err());
        assert!(parse_config(&config_line(&config).replace("page=512", "page=513")).is_err());
    }
}
