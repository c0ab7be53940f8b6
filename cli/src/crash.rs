//! A panic is a bug in foreread. The user sees one line that reports the bug and says how to report it to the developers; the exit code is
//! 70.
//!
//! A panic of any thread prints this line at once. A panic of the main thread ends the command. After a panic of another thread the command
//! continues, but exits with 70 instead of 0. If the reader of the output closes it early (`foreread ... | head`), this is not treated as a
//! bug, and no line is printed.

use crate::fail::{Fail, one_line};
use foreread::source::redacted_message;
use std::any::Any;
use std::io::Write;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

/// `EX_SOFTWARE` of sysexits.h: an internal error.
pub const EXIT_CODE: u8 = 70;

static HAPPENED: AtomicBool = AtomicBool::new(false);

/// Runs a command and returns its exit code.
pub fn guarded(command: impl FnOnce() -> Result<(), Fail>) -> u8 {
    std::panic::set_hook(Box::new(report));
    match catch_unwind(AssertUnwindSafe(command)) {
        Ok(Ok(())) if HAPPENED.load(Ordering::Relaxed) => EXIT_CODE,
        Ok(done) => done.map_or_else(|fail| fail.report(), |()| 0),
        Err(panic) if is_closed_output(text(&*panic)) => 0,
        Err(_) => EXIT_CODE,
    }
}

fn report(panic: &PanicHookInfo<'_>) {
    let what = text(panic.payload());
    if is_closed_output(what) {
        return;
    }
    HAPPENED.store(true, Ordering::Relaxed);
    let thread = std::thread::current();
    let place = panic
        .location()
        .map_or_else(|| "an unknown place".to_string(), ToString::to_string);
    let line = format!(
        "internal error: {} at {place}, thread {}; this is a bug in foreread {}: please report it with this line, the \
         command, and what RUST_BACKTRACE=1 adds",
        redacted_message(what),
        thread.name().unwrap_or("without a name"),
        env!("CARGO_PKG_VERSION"),
    );
    let mut stderr = std::io::stderr().lock();
    let _ = writeln!(stderr, "foreread: {}", one_line(&line));
    if std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0") {
        let _ = writeln!(stderr, "{}", std::backtrace::Backtrace::force_capture());
    }
}

/// The message of a panic.
fn text(payload: &(dyn Any + Send)) -> &str {
    let owned = payload.downcast_ref::<String>().map(String::as_str);
    owned
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a message")
}

/// `println!` and `eprintln!` panic if their output is closed.
fn is_closed_output(text: &str) -> bool {
    text.starts_with("failed printing to std") && text.contains("Broken pipe")
}

/// For tests: makes a debug build panic on request, in this thread or in another thread.
#[cfg(debug_assertions)]
pub fn on_request() {
    let asked = std::env::var("FOREREAD_PANIC").unwrap_or_default();
    assert!(asked != "main", "cannot read http://user:password@host/x");
    if asked == "thread" {
        let _ = std::thread::Builder::new()
            .name("worker".to_string())
            .spawn(|| panic!("asked to"))
            .map(|t| t.join());
    }
}
