//! The lines of the event log: writes an event or an action as a line of text, and parses such lines.
//!
//! The parser is strict: a missing field, an extra field, or a value out of range is an error.

#[cfg(test)]
mod tests;

use foreread_core::event::{Action, Advice, Class, Error, Event, Mapping};
use foreread_core::machine::Config;
use foreread_core::units::{
    ByteRange, FetchId, FileId, GroupSlot, LeaseId, Nanos, OpenId, PageSize, ReadId,
};
use std::fmt::Write;
use std::str::SplitAsciiWhitespace;

/// What is wrong with a line of the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// The line ends too early.
    #[error("a field is missing: {0}")]
    Missing(&'static str),
    /// A field has an invalid value.
    #[error("'{text}' is not {want}")]
    Field {
        /// The value in the line.
        text: String,
        /// What was expected.
        want: &'static str,
    },
    /// The line has more fields than expected.
    #[error("too many fields, from '{0}' on")]
    Extra(String),
}

/// A set of names and their values; writing and parsing use the same table.
trait Word: Copy + PartialEq + 'static {
    const ALL: &'static [(Self, &'static str)];
    const WANT: &'static str;
    fn word(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(v, _)| *v == self)
            .map_or("?", |(_, w)| w)
    }
}

impl Word for Advice {
    const ALL: &'static [(Advice, &'static str)] = &[
        (Advice::Normal, "normal"),
        (Advice::Sequential, "sequential"),
        (Advice::Random, "random"),
        (Advice::WillNeed, "willneed"),
        (Advice::DontNeed, "dontneed"),
    ];
    const WANT: &'static str = "a hint";
}

impl Word for Class {
    const ALL: &'static [(Class, &'static str)] =
        &[(Class::Demand, "demand"), (Class::Ahead, "ahead")];
    const WANT: &'static str = "demand or ahead";
}

fn error_text(error: Error) -> String {
    match error {
        Error::Io(errno) => format!("io:{errno}"),
        Error::Short => "short".to_string(),
        Error::Changed => "changed".to_string(),
        Error::Limit => "limit".to_string(),
    }
}

/// Appends the line of an event to `out`. (Writing to a `String` cannot fail.)
pub fn write_event(out: &mut String, now: Nanos, event: &Event) {
    let _ = write!(out, "E {} ", now.0);
    let _ = match *event {
        Event::Open { open, file, size } => writeln!(out, "open {} {} {size}", open.0, file.0),
        Event::Close { open } => writeln!(out, "close {}", open.0),
        Event::Forget { file } => writeln!(out, "forget {}", file.0),
        Event::List {
            file,
            size,
            after,
            planned,
        } => {
            let after = after.map_or("-".to_string(), |after| after.0.to_string());
            writeln!(out, "list {} {size} {after} {}", file.0, u8::from(planned))
        }
        Event::Read {
            read,
            open,
            range,
            random,
        } => {
            writeln!(
                out,
                "read {} {} {} {} {}",
                read.0,
                open.0,
                range.start(),
                range.len(),
                u8::from(random)
            )
        }
        Event::Hit { read, open, range } => {
            writeln!(
                out,
                "hit {} {} {} {}",
                read.0,
                open.0,
                range.start(),
                range.len()
            )
        }
        Event::Fault {
            read,
            open,
            at,
            map,
        } => write_fault(out, read, open, at, map),
        Event::Accessed { open, at, code } => {
            writeln!(out, "accessed {} {at} {}", open.0, u8::from(code))
        }
        Event::Unmapped {
            file,
            number,
            pages,
        } => writeln!(out, "unmapped {} {number} {pages}", file.0),
        Event::Advise {
            open,
            advice,
            range,
        } => {
            writeln!(
                out,
                "advise {} {} {} {}",
                open.0,
                advice.word(),
                range.start(),
                range.len()
            )
        }
        Event::Prefetch { open, range } => {
            writeln!(out, "want {} {} {}", open.0, range.start(), range.len())
        }
        Event::Invalidate { file, range } => {
            writeln!(
                out,
                "invalidate {} {} {}",
                file.0,
                range.start(),
                range.len()
            )
        }
        Event::Changed { file, size } => writeln!(out, "changed {} {size}", file.0),
        Event::Grown { file, size } => writeln!(out, "grown {} {size}", file.0),
        Event::Progress { fetch, bytes } => writeln!(out, "progress {} {bytes}", fetch.0),
        Event::Answered { ns } => writeln!(out, "answered {ns}"),
        Event::AtHand { fetch } => writeln!(out, "athand {}", fetch.0),
        Event::Done { fetch, bytes } => writeln!(out, "done {} {bytes}", fetch.0),
        Event::Failed { fetch, error } => writeln!(out, "failed {} {}", fetch.0, error_text(error)),
        Event::Abandon { read } => writeln!(out, "abandon {}", read.0),
        Event::Release { lease } => writeln!(out, "release {}", lease.0),
        Event::Pressure { pages } => writeln!(out, "pressure {pages}"),
        Event::Timer => writeln!(out, "timer"),
    };
}

fn write_fault(
    out: &mut String,
    read: ReadId,
    open: OpenId,
    at: u64,
    map: Mapping,
) -> std::fmt::Result {
    let (start, len, exec) = (map.range.start(), map.range.len(), u8::from(map.executable));
    let advice = map.advice.word();
    writeln!(
        out,
        "fault {} {} {at} {start} {len} {exec} {advice}",
        read.0, open.0
    )
}

/// Appends the line of an action to `out`.
pub fn write_action(out: &mut String, action: &Action) {
    let _ = match *action {
        Action::Submit {
            fetch,
            file,
            range,
            class,
        } => {
            writeln!(
                out,
                "A submit {} {} {} {} {}",
                fetch.0,
                file.0,
                range.start(),
                range.len(),
                class.word()
            )
        }
        Action::Cancel { fetch } => writeln!(out, "A cancel {}", fetch.0),
        Action::Serve {
            read,
            lease,
            file,
            range,
            last,
        } => {
            let (start, len, end) = (
                range.start(),
                range.len(),
                if last { "last" } else { "more" },
            );
            writeln!(
                out,
                "A serve {} {} {} {start} {len} {end}",
                read.0, lease.0, file.0
            )
        }
        Action::Fail { read, error } => writeln!(out, "A fail {} {}", read.0, error_text(error)),
        Action::Drop {
            slot,
            file,
            number,
            pages,
        } => {
            writeln!(out, "A drop {} {} {number} {pages:#x}", slot.0, file.0)
        }
        Action::WakeAt { at } => writeln!(out, "A wake {}", at.0),
    };
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

/// The fields of a line, in order.
struct Fields<'a>(SplitAsciiWhitespace<'a>);

impl<'a> Fields<'a> {
    fn text(&mut self, what: &'static str) -> Result<&'a str, LineError> {
        self.0.next().ok_or(LineError::Missing(what))
    }

    fn number<T: TryFrom<u64>>(&mut self, what: &'static str) -> Result<T, LineError> {
        number(self.text(what)?, what)
    }

    fn fault(&mut self) -> Result<Event, LineError> {
        let (read, open, at) = (self.read()?, self.open()?, self.number("an offset")?);
        let map = Mapping {
            range: self.range()?,
            executable: self.flag("0 or 1")?,
            advice: self.word()?,
        };
        Ok(Event::Fault {
            read,
            open,
            at,
            map,
        })
    }

    fn answered(&mut self) -> Result<Event, LineError> {
        let ns = self.number("a time")?;
        Ok(Event::Answered { ns })
    }

    fn flag(&mut self, what: &'static str) -> Result<bool, LineError> {
        match self.text(what)? {
            "0" => Ok(false),
            "1" => Ok(true),
            text => Err(bad(text, what)),
        }
    }

    fn word<W: Word>(&mut self) -> Result<W, LineError> {
        let text = self.text(W::WANT)?;
        W::ALL
            .iter()
            .find(|(_, w)| *w == text)
            .map(|(v, _)| *v)
            .ok_or_else(|| bad(text, W::WANT))
    }

    fn range(&mut self) -> Result<ByteRange, LineError> {
        let (start, len) = (self.number("a first byte")?, self.number("a length")?);
        ByteRange::new(start, len).ok_or_else(|| {
            bad(
                &format!("{start} {len}"),
                "a range that ends at or below the largest offset",
            )
        })
    }

    fn error(&mut self) -> Result<Error, LineError> {
        match self.text("an error")? {
            "short" => Ok(Error::Short),
            "changed" => Ok(Error::Changed),
            "limit" => Ok(Error::Limit),
            text => {
                let errno = text.strip_prefix("io:").and_then(|n| n.parse().ok());
                errno.map(Error::Io).ok_or_else(|| bad(text, "an error"))
            }
        }
    }

    fn mask(&mut self) -> Result<u64, LineError> {
        let text = self.text("a mask")?;
        let hex = text.strip_prefix("0x").filter(|h| !h.starts_with('+'));
        hex.and_then(|h| u64::from_str_radix(h, 16).ok())
            .ok_or_else(|| bad(text, "a mask"))
    }

    fn end<T>(mut self, value: T) -> Result<T, LineError> {
        self.0
            .next()
            .map_or(Ok(value), |text| Err(LineError::Extra(text.to_string())))
    }
}

fn bad(text: &str, want: &'static str) -> LineError {
    LineError::Field {
        text: text.to_string(),
        want,
    }
}

fn number<T: TryFrom<u64>>(text: &str, what: &'static str) -> Result<T, LineError> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    let value = digits.then(|| text.parse::<u64>().ok()).flatten();
    value
        .and_then(|n| T::try_from(n).ok())
        .ok_or_else(|| bad(text, what))
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
    let mut f = Fields(line.split_ascii_whitespace());
    match f.text("E")? {
        "E" => {}
        text => return Err(bad(text, "E")),
    }
    let at = Nanos(f.number("a time")?);
    let event = match f.text("an event")? {
        "open" => Event::Open {
            open: f.open()?,
            file: f.file()?,
            size: f.number("a size")?,
        },
        "close" => Event::Close { open: f.open()? },
        "forget" => Event::Forget { file: f.file()? },
        "list" => {
            let (file, size, after) = (f.file()?, f.number("a size")?, f.file_or_none()?);
            Event::List {
                file,
                size,
                after,
                planned: f.flag("0 or 1")?,
            }
        }
        "read" => Event::Read {
            read: f.read()?,
            open: f.open()?,
            range: f.range()?,
            random: f.flag("0 or 1")?,
        },
        "hit" => Event::Hit {
            read: f.read()?,
            open: f.open()?,
            range: f.range()?,
        },
        "fault" => f.fault()?,
        "accessed" => Event::Accessed {
            open: f.open()?,
            at: f.number("an offset")?,
            code: f.flag("0 or 1")?,
        },
        "unmapped" => Event::Unmapped {
            file: f.file()?,
            number: f.number("the number of a group")?,
            pages: f.number("pages")?,
        },
        "advise" => Event::Advise {
            open: f.open()?,
            advice: f.word()?,
            range: f.range()?,
        },
        "want" => Event::Prefetch {
            open: f.open()?,
            range: f.range()?,
        },
        "invalidate" => Event::Invalidate {
            file: f.file()?,
            range: f.range()?,
        },
        "changed" => Event::Changed {
            file: f.file()?,
            size: f.number("a size")?,
        },
        "grown" => Event::Grown {
            file: f.file()?,
            size: f.number("a size")?,
        },
        "progress" => Event::Progress {
            fetch: f.fetch()?,
            bytes: f.number("a number of bytes")?,
        },
        "answered" => f.answered()?,
        "athand" => Event::AtHand { fetch: f.fetch()? },
        "done" => Event::Done {
            fetch: f.fetch()?,
            bytes: f.number("a number of bytes")?,
        },
        "failed" => Event::Failed {
            fetch: f.fetch()?,
            error: f.error()?,
        },
        "abandon" => Event::Abandon { read: f.read()? },
        "release" => Event::Release {
            lease: LeaseId(f.number("a lease")?),
        },
        "pressure" => Event::Pressure {
            pages: f.number("a number of pages")?,
        },
        "timer" => Event::Timer,
        text => return Err(bad(text, "an event")),
    };
    f.end(TimedEvent { at, event })
}

/// Parses an action's line.
///
/// # Errors
/// Returns an error if the line is not exactly one action.
pub fn parse_action(line: &str) -> Result<Action, LineError> {
    let mut f = Fields(line.split_ascii_whitespace());
    match f.text("A")? {
        "A" => {}
        text => return Err(bad(text, "A")),
    }
    let action = match f.text("an action")? {
        "submit" => Action::Submit {
            fetch: f.fetch()?,
            file: f.file()?,
            range: f.range()?,
            class: f.word()?,
        },
        "cancel" => Action::Cancel { fetch: f.fetch()? },
        "serve" => {
            let (read, lease, file) = (f.read()?, LeaseId(f.number("a lease")?), f.file()?);
            let range = f.range()?;
            let last = match f.text("last or more")? {
                "last" => true,
                "more" => false,
                text => return Err(bad(text, "last or more")),
            };
            Action::Serve {
                read,
                lease,
                file,
                range,
                last,
            }
        }
        "fail" => Action::Fail {
            read: f.read()?,
            error: f.error()?,
        },
        "drop" => {
            let (slot, file) = (GroupSlot(f.number("a slot")?), f.file()?);
            Action::Drop {
                slot,
                file,
                number: f.number("a group")?,
                pages: f.mask()?,
            }
        }
        "wake" => Action::WakeAt {
            at: Nanos(f.number("a time")?),
        },
        text => return Err(bad(text, "an action")),
    };
    f.end(action)
}

impl Fields<'_> {
    fn open(&mut self) -> Result<OpenId, LineError> {
        Ok(OpenId(self.number("an open description")?))
    }

    fn file(&mut self) -> Result<FileId, LineError> {
        Ok(FileId(self.number("a file")?))
    }

    fn file_or_none(&mut self) -> Result<Option<FileId>, LineError> {
        match self.text("a file or -")? {
            "-" => Ok(None),
            text => Ok(Some(FileId(number(text, "a file or -")?))),
        }
    }

    fn read(&mut self) -> Result<ReadId, LineError> {
        Ok(ReadId(self.number("a read")?))
    }

    fn fetch(&mut self) -> Result<FetchId, LineError> {
        Ok(FetchId(self.number("a fetch")?))
    }
}

/// Parses the line of limits. The keys have a fixed order, the one in which they are written.
pub(super) fn parse_config(line: &str) -> Result<Config, LineError> {
    let mut f = Fields(line.split_ascii_whitespace());
    match f.text("config")? {
        "config" => {}
        text => return Err(bad(text, "config")),
    }
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
    // Logs of older builds end here; those builds had one limit for requests of any length.
    config.max_short_ahead_in_flight = match value("max_short_ahead_in_flight") {
        Err(LineError::Missing(_)) => config.max_ahead_in_flight,
        short => u32::try_from(short?).unwrap_or(u32::MAX),
    };
    f.end(config)
}
