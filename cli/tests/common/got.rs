//! Runs the binary of the tests that this is part of.

use std::ffi::OsStr;
use std::path::Path;

pub struct Got {
    /// The exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// Stdout, lossy.
    pub out: String,
    /// Stderr, lossy.
    pub err: String,
}

/// Runs `foreread` with these arguments, without the settings of this machine's user.
pub fn foreread<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Got {
    foreread_in(
        &[
            ("XDG_CONFIG_HOME", OsStr::new("/dev/null")),
            ("FOREREAD_POLICY", OsStr::new("")),
            // A recorded command reads no files of a locale, which are not always cached.
            ("LC_ALL", OsStr::new("C")),
        ],
        args,
    )
}

pub fn foreread_in<A: AsRef<OsStr>>(
    variables: &[(&str, &OsStr)],
    args: impl IntoIterator<Item = A>,
) -> Got {
    foreread_at(Path::new("."), variables, args)
}

/// The same, begun in this folder.
pub fn foreread_at<A: AsRef<OsStr>>(
    dir: &Path,
    variables: &[(&str, &OsStr)],
    args: impl IntoIterator<Item = A>,
) -> Got {
    let mut command = assert_cmd::Command::new(super::BINARY);
    let command = command
        .current_dir(dir)
        .args(args)
        .env_remove("COLUMNS")
        .envs(variables.iter().copied());
    let output = command.output().expect("the binary starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Got {
        code: output.status.code(),
        out: text(&output.stdout),
        err: text(&output.stderr),
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

    /// Exit code 0 and nothing on stderr.
    #[track_caller]
    pub fn is_done(&self) -> &str {
        assert_eq!(
            (self.code, self.err.as_str()),
            (Some(0), ""),
            "{}",
            self.out
        );
        &self.out
    }
}
