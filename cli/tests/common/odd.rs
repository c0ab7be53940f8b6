//! Arguments that are not meant.

use super::foreread;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Each of them behind each of these words ends well: no panic, no escape, one line or the usage.
pub fn survive_odd_arguments(places: &[&[&str]]) {
    let bytes = OsStr::from_bytes(b"\xff\xfe/\x01");
    let long = OsString::from("x".repeat(100_000));
    let newline = OsStr::new("two\nlines\x1b[31m");
    let odd = [
        OsStr::new(""),
        bytes,
        &long,
        newline,
        OsStr::new("-"),
        OsStr::new("--"),
        OsStr::new("\u{1f600}"),
    ];
    for place in places {
        for odd in odd {
            let args = place.iter().map(OsStr::new).chain([odd]);
            let what = format!(
                "{place:?} {}",
                odd.display()
                    .to_string()
                    .chars()
                    .take(20)
                    .collect::<String>()
            );
            // What an odd argument does where anything may be said is the command's matter; here it must end well.
            let got = foreread(args);
            let code = got
                .code
                .unwrap_or_else(|| panic!("{what}: ended by a signal"));
            assert!(
                code == 2 || code == 0,
                "{what}: exit code {code}: {}",
                got.err
            );
            assert!(!got.err.contains("panicked"), "{what}: {}", got.err);
            assert!(
                !got.err.contains('\u{1b}'),
                "{what}: an escape reached the terminal: {}",
                got.err
            );
            let lines = got.err.lines().count();
            assert!(
                lines <= 1 || got.err.contains("Usage: foreread"),
                "{what}: {lines} lines: {}",
                got.err
            );
            assert!(
                got.err.len() < 3000,
                "{what}: {} bytes of error",
                got.err.len()
            );
        }
    }
}
