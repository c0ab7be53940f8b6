//! The log on stderr: one line for each client, reconnection, and error of a source.
//!
//! The engine reports events through the crate `tracing`; this module is the subscriber that prints them. `--log LEVEL`
//! or `FOREREAD_LOG` sets the level, `warn` by default. If stderr is systemd's journal, a line begins with its level in
//! journald's notation (sd-daemon(3)) and has no time, because journald adds one. Only foreread's own events and the
//! first event of each kind from OpenTelemetry's SDK are shown: other libraries log URLs and headers, which may contain
//! secrets.
//!
//! ```text
//!   2026-11-22T13:31:02.123456Z WARN connection lost source=nbd://host/disk why=the server closed the connection     a terminal, a file
//!   <4>connection lost source=nbd://host/disk why=the server closed the connection                                   the journal
//! ```

use crate::fail::{Fail, one_line};
use clap::ValueEnum;
use foreread::source::redacted_message;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, PoisonError};
use tracing::callsite::Identifier;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, layer};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

/// The environment variable that contains the log level if `--log` is not given.
pub const VARIABLE: &str = "FOREREAD_LOG";

/// Prefix of the names of OpenTelemetry's crates.
const TELEMETRY: &str = "opentelemetry";

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Nothing
    Off,
    /// Permanent failures
    Error,
    /// Errors that were handled
    Warn,
    /// Errors, and the clients that connect
    Info,
    /// All of these, and every opened file
    Debug,
    /// Everything
    Trace,
}

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> LevelFilter {
        match level {
            LogLevel::Off => LevelFilter::OFF,
            LogLevel::Error => LevelFilter::ERROR,
            LogLevel::Warn => LevelFilter::WARN,
            LogLevel::Info => LevelFilter::INFO,
            LogLevel::Debug => LevelFilter::DEBUG,
            LogLevel::Trace => LevelFilter::TRACE,
        }
    }
}

/// Starts the log on stderr.
/// Returns an error if the environment variable `FOREREAD_LOG` contains something other than a log level.
pub fn start(asked: Option<LogLevel>, has_telemetry: bool) -> Result<(), Fail> {
    let level = match asked {
        Some(level) => level,
        None => from_variable()?.unwrap_or(LogLevel::Warn),
    };
    let level = LevelFilter::from(level);
    let lines = || {
        let format = Lines {
            journal: is_journal(),
        };
        let lines = layer().event_format(format).with_writer(|| Stderr);
        let targets = Targets::new()
            .with_target("foreread", level)
            .with_target(TELEMETRY, level.min(LevelFilter::WARN));
        tracing_subscriber::registry().with(lines.with_filter(targets))
    };
    let registry = lines();
    #[cfg(feature = "otlp")]
    let registry = {
        if has_telemetry {
            // The SDK reports invalid variables during its setup.
            tracing::subscriber::with_default(lines(), crate::otlp::start)?;
        }
        registry.with(crate::otlp::layer())
    };
    #[cfg(not(feature = "otlp"))]
    let _ = has_telemetry;
    // It fails only if there is already a subscriber, which this process does not have.
    let _ = registry.try_init();
    Ok(())
}

fn from_variable() -> Result<Option<LogLevel>, Fail> {
    let Some(text) = std::env::var_os(VARIABLE).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    LogLevel::from_str(&text.to_string_lossy(), true)
        .map(Some)
        .map_err(|_| {
            let names: Vec<_> = LogLevel::value_variants()
                .iter()
                .filter_map(ValueEnum::to_possible_value)
                .collect();
            let names: Vec<&str> = names
                .iter()
                .map(clap::builder::PossibleValue::get_name)
                .collect();
            Fail::input(
                "not a log level",
                format!("{VARIABLE}={}", text.display()),
                &format!("write {}", names.join(", ")),
            )
        })
}

/// Whether stderr is the journal: systemd passes its device and inode (systemd.exec(5), JOURNAL_STREAM).
fn is_journal() -> bool {
    let Some(told) = std::env::var_os("JOURNAL_STREAM") else {
        return false;
    };
    std::fs::metadata(foreread_os::open::descriptor_path(std::io::stderr()))
        .is_ok_and(|own| *told == *format!("{}:{}", own.dev(), own.ino()))
}

/// A writer that ignores errors, so that a closed stderr ends no server.
struct Stderr;

impl std::io::Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let _ = std::io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The format of an event.
struct Lines {
    journal: bool,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut to: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if event.metadata().target().starts_with(TELEMETRY) && !is_first(event) {
            return Ok(());
        }
        let mut text = String::new();
        context.format_fields(Writer::new(&mut text), event)?;
        let level = event.metadata().level();
        if self.journal {
            write!(to, "<{}>", priority(*level))?;
        } else {
            SystemTime.format_time(&mut to)?;
            write!(to, " {level:>5} ")?;
        }
        // Values may come from clients and servers: they are reduced to one line, without passwords in URLs.
        writeln!(to, "{}", one_line(&redacted_message(&text)))
    }
}

/// Whether this call site reports for the first time: the SDK repeats its error for an unreachable receiver at each try.
fn is_first(event: &Event<'_>) -> bool {
    static SEEN: Mutex<Vec<Identifier>> = Mutex::new(Vec::new());
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let place = event.metadata().callsite();
    let is_first = !seen.contains(&place);
    if is_first {
        seen.push(place);
    }
    is_first
}

/// The level as a number of syslog(3).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}
