//! Runs a binary of this workspace without a terminal and with a plain environment, and looks at what it printed.
//!
//! Example: `Binary(env!("CARGO_BIN_EXE_foreread")).run("list policies").is_done()` is the text on stdout; the test fails if the exit code
//! is not 0 or something is on stderr.

use crate::says;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// How a command ended.
pub struct Got {
    /// The exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// Stdout, lossy.
    pub out: String,
    /// Stderr, lossy.
    pub err: String,
}

#[derive(Clone, Copy)]
pub struct Binary(pub &'static str);

impl Binary {
    /// Runs it with these arguments, without the settings of this machine's user.
    pub fn with<A: AsRef<OsStr>>(self, args: impl IntoIterator<Item = A>) -> Got {
        // A recorded command reads no files of a locale, which are not always cached.
        let plain = [
            ("XDG_CONFIG_HOME", "/dev/null"),
            ("FOREREAD_POLICY", ""),
            ("LC_ALL", "C"),
        ];
        let plain = plain.map(|(name, value)| (name, OsStr::new(value)));
        self.at(Path::new("."), &plain, args)
    }

    /// The same, with the words of a line.
    pub fn run(self, words: impl AsRef<str>) -> Got {
        self.with(words.as_ref().split_whitespace())
    }

    /// The same, begun in this folder with these variables.
    pub fn at<A: AsRef<OsStr>>(
        self,
        dir: &Path,
        variables: &[(&str, &OsStr)],
        args: impl IntoIterator<Item = A>,
    ) -> Got {
        let mut command = Command::new(self.0);
        let command = command.current_dir(dir).args(args).env_remove("COLUMNS");
        let command = command.envs(variables.iter().copied());
        Got::from(&command.output().expect("the binary starts"))
    }

    /// The commands of the first page: below its headings, and behind `Also:`.
    pub fn commands(self) -> Vec<String> {
        let page = self.with(["-h"]);
        let mut names = Vec::new();
        for line in page.is_done().lines() {
            if let Some(also) = line.strip_prefix("Also: ") {
                let also = also.split(';').next().unwrap_or_default().split(", ");
                names.extend(also.filter(|name| *name != "help").map(str::to_string));
            } else if let Some(row) = line.strip_prefix("  ") {
                names.extend(row.split_whitespace().next().map(str::to_string));
            }
        }
        names
    }

    /// The `-h` of a command and of every command below it fits one screen.
    pub fn fits(self, path: &[&str]) {
        let got = self.with(path.iter().copied().chain(["-h"]));
        let text = got.is_done();
        let (lines, widths) = (text.lines(), text.lines().map(|l| l.chars().count()));
        let (lines, widest) = (lines.count(), widths.max().unwrap_or(0));
        let is_small = lines <= 24 && widest <= 80 && text.contains("Usage: foreread");
        assert!(is_small, "{path:?}: {lines} lines of {widest}:\n{text}");
        for command in listed(text) {
            self.fits(&[path, &[command.as_str()]].concat());
        }
    }

    /// Odd arguments after each of these command lines, between `|`, end well: no panic, no escape, one line or the usage.
    pub fn survives_odd_arguments(self, places: &str) {
        let (bytes, long) = (b"\xff\xfe/\x01", OsString::from("x".repeat(100_000)));
        let newline = OsStr::new("two\nlines\x1b[31m");
        let odd = [OsStr::from_bytes(bytes), &long, newline];
        let plain = ["", "-", "--", "\u{1f600}"].map(OsStr::new);
        for place in places.split('|') {
            for odd in odd.into_iter().chain(plain) {
                // What an odd argument does where anything may be said is the command's matter; here it must end well.
                let got = self.with(place.split_whitespace().map(OsStr::new).chain([odd]));
                let begin: String = odd.display().to_string().chars().take(20).collect();
                let what = format!("{place} {begin}: {:?}: {}", got.code, got.err);
                assert!(matches!(got.code, Some(0 | 2)), "{what}");
                assert!(!got.err.contains("panicked"), "{what}");
                assert!(!got.err.contains('\u{1b}'), "an escape: {what}");
                let is_usage = got.err.contains("Usage: foreread");
                assert!(got.err.lines().count() <= 1 || is_usage, "{what}");
                assert!(got.err.len() < 3000, "{what}");
            }
        }
    }

    /// Runs each command line, in which `OUT` is an output and `IN` is `source`; the outputs are in `folder`. A file or link
    /// that exists is not replaced without being asked.
    pub fn follows_no_link(self, options: &[&str], folder: &Path, source: &Path) {
        let path = |name: &str| folder.join(name);
        for (number, option) in options.iter().enumerate() {
            // A model file has to be called so.
            let out = path(&format!("out{number}.toml"));
            let line = option.replace("OUT", text(&out));
            let line = line.replace("IN", text(source));
            fs::write(path("kept"), "kept").expect("room");
            for is_link in [true, false] {
                let made = match is_link {
                    true => symlink(path("kept"), &out),
                    false => fs::write(&out, "kept"),
                };
                made.expect("made");
                self.run(&line).refuses("it exists already");
                assert_eq!(fs::read(&out).expect("there"), b"kept", "{option:?}");
                fs::remove_file(&out).expect("removed");
            }
            assert_eq!(fs::read(path("kept")).expect("there"), b"kept", "{option}");
        }
    }
}

impl From<&std::process::Output> for Got {
    fn from(output: &std::process::Output) -> Got {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        let code = output.status.code();
        Got { code, out, err }
    }
}

impl Got {
    /// One line on stderr that starts with the command's name, nothing on stdout, exit code 2.
    #[track_caller]
    pub fn is_refused(&self) -> &str {
        assert_eq!(self.code, Some(2), "{}{}", self.out, self.err);
        assert!(self.out.is_empty(), "stdout: {}", self.out);
        assert_eq!(self.err.lines().count(), 1, "not one line: {}", self.err);
        assert!(self.err.starts_with("foreread: "), "{}", self.err);
        self.err.trim_end()
    }

    /// The same, and the line has this part.
    #[track_caller]
    pub fn refuses(&self, part: &str) {
        says(self.is_refused(), &[part]);
    }

    /// This exit code. What it said on stderr.
    #[track_caller]
    pub fn assert_code(&self, code: i32) -> &str {
        assert_eq!(self.code, Some(code), "{}{}", self.out, self.err);
        &self.err
    }
    /// Exit code 0 and nothing on stderr.
    #[track_caller]
    pub fn is_done(&self) -> &str {
        let ended = (self.code, self.err.as_str());
        assert_eq!(ended, (Some(0), ""), "{}", self.out);
        &self.out
    }

    /// Stdout as JSON, whatever the exit code is.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        let json = serde_json::from_str(&self.out);
        json.unwrap_or_else(|error| panic!("{error}: {}{}", self.out, self.err))
    }
}

pub fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// The commands that a help text lists, under `Commands:`.
pub fn listed(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:");
    let lines = lines.skip(1).take_while(|line| !line.is_empty());
    let names = lines.filter(|line| !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.map(str::to_string).collect()
}
