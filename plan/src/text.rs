//! A plan as text, one line for each file and range. Version 1:
//!
//! ```text
//!   foreread-plan 1
//!   from: boot.frt
//!   runs: 1
//!   files: 2
//!   ranges: 2
//!   f 1048576 1732480000000000000 /usr/lib/a.so      size, changed (- unknown), path
//!   f 8192 - conf/b%0Aconf                           bytes outside of printable ASCII, and %, as %XX
//!   r 0 0 65536 1000000 - - 1 800000                 file, offset, length, at, after, gap, runs, stall (- none)
//!   r 1 0 8192 21800000 0 20000000 1 0               needed 20 ms after range 0 had arrived
//!   end
//! ```
//! Sizes are in bytes, times in nanoseconds. The field `at` is the time since the start of the program. Unknown keys before the first `f`
//! line are ignored. A text with another version, without `end`, or with another number of files or ranges than it states, is refused with
//! an error.

use crate::runs::Account;
use crate::{MAX_END, MAX_FILES, MAX_PATH_BYTES, MAX_RANGES, Plan, PlanFile, PlanRange};
use foreread_os::failure::Failure;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// The first word of a plan file.
pub const MAGIC: &str = "foreread-plan";
/// The only supported version of the format.
pub const VERSION: u32 = 1;
/// Maximum bytes of a line: a path with every byte escaped.
const MAX_LINE_BYTES: usize = 3 * MAX_PATH_BYTES + 64;
const MAX_HEAD_LINES: usize = 1000;
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

pub fn write(plan: &Plan, to: &mut dyn Write) -> std::io::Result<()> {
    let escaped = |bytes: &[u8]| percent_encode(bytes, ESCAPED).to_string();
    writeln!(to, "{MAGIC} {VERSION}")?;
    for from in &plan.made_from {
        writeln!(to, "from: {}", escaped(from.as_bytes()))?;
    }
    writeln!(
        to,
        "runs: {}\nfiles: {}\nranges: {}",
        plan.runs,
        plan.files.len(),
        plan.ranges.len()
    )?;
    for file in &plan.files {
        let changed = optional(file.mtime_ns);
        writeln!(
            to,
            "f {} {changed} {}",
            file.size,
            escaped(file.path.as_os_str().as_bytes())
        )?;
    }
    for r in &plan.ranges {
        let (at, after, gap) = (optional(r.at_ns), optional(r.after), optional(r.gap_ns));
        writeln!(
            to,
            "r {} {} {} {at} {after} {gap} {} {}",
            r.file, r.offset, r.len, r.runs, r.stall_ns
        )?;
    }
    writeln!(to, "end")
}

fn optional<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_string(), |value| value.to_string())
}

/// Returns whether a file that begins with these bytes is a plan, of any version.
pub fn looks_like_one(head: &[u8]) -> bool {
    head.starts_with(MAGIC.as_bytes()) && head.get(MAGIC.len()) == Some(&b' ')
}

/// Returns whether the file at `path` begins like a plan of any version; the result is false if the file cannot be read.
pub fn is_one(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = foreread_os::open::regular(path)
        .and_then(|file| file.take(MAGIC.len() as u64 + 1).read_to_end(&mut head));
    read.is_ok() && looks_like_one(&head)
}

pub fn open(path: &Path) -> Result<Plan, Failure> {
    let file = foreread_os::open::stream(path).map_err(|error| unreadable(path, error))?;
    read(&mut BufReader::new(file), path)
}

/// Reads a plan from `from`; error messages name `path`.
pub fn read(from: &mut dyn BufRead, path: &Path) -> Result<Plan, Failure> {
    let mut lines = Lines {
        from,
        path,
        number: 0,
    };
    let (mut plan, mut account) = (Plan::default(), Account::default());
    let (files, ranges) = lines.head(&mut plan, &mut account)?;
    // No memory is reserved for a hostile count; the announced items must exist.
    for _ in 0..files {
        let line = lines.next()?;
        let file =
            file(&line).ok_or_else(|| lines.bad("this line does not describe a file of a plan"))?;
        account
            .take::<PlanFile>(file.path.capacity())
            .map_err(|full| lines.bad(&full.to_string()))?;
        plan.files.push(file);
    }
    for number in 0..ranges {
        let line = lines.next()?;
        let range = range(&line)
            .ok_or_else(|| lines.bad("this line does not describe a range of a plan"))?;
        let Some(file) = plan.files.get(range.file as usize) else {
            return Err(lines.bad("the range refers to a file that is not in the plan"));
        };
        let end = range.offset.checked_add(range.len);
        if range.len == 0 || end.is_none_or(|end| end > file.size) {
            return Err(lines.bad("the range is empty or outside its file"));
        }
        if range.after.is_some_and(|after| after as usize >= number) {
            return Err(lines.bad("the range depends on a later one"));
        }
        account
            .take::<PlanRange>(0)
            .map_err(|full| lines.bad(&full.to_string()))?;
        plan.ranges.push(range);
    }
    if lines.next()? != "end" {
        return Err(lines.bad("the plan has more lines than its header announces"));
    }
    Ok(plan)
}

fn unreadable(path: &Path, error: std::io::Error) -> Failure {
    let what = format!("cannot read the plan: {error}");
    Failure::input(what, path.display(), "check the path and its permissions")
}

struct Lines<'a> {
    from: &'a mut dyn BufRead,
    path: &'a Path,
    number: u64,
}

impl Lines<'_> {
    fn bad(&self, what: &str) -> Failure {
        let place = format!("{}, line {}", self.path.display(), self.number);
        Failure::input(what, place, "make the plan again with 'foreread plan'")
    }

    fn next(&mut self) -> Result<String, Failure> {
        let mut line = Vec::new();
        let read = (&mut self.from)
            .take(MAX_LINE_BYTES as u64 + 1)
            .read_until(b'\n', &mut line);
        read.map_err(|error| unreadable(self.path, error))?;
        self.number += 1;
        if line.pop() != Some(b'\n') {
            let what = if line.len() >= MAX_LINE_BYTES {
                "a line is too long for a plan"
            } else {
                "the plan is truncated"
            };
            return Err(self.bad(what));
        }
        String::from_utf8(line).map_err(|_| self.bad("a line is not UTF-8"))
    }

    /// Reads the head, and returns the number of files and ranges.
    fn head(&mut self, plan: &mut Plan, account: &mut Account) -> Result<(usize, usize), Failure> {
        let first = self.next()?;
        let version = first.strip_prefix(MAGIC);
        let Some(version) = version.and_then(|rest| rest.strip_prefix(' ')) else {
            let remedy = "'foreread plan' makes a plan from recordings";
            let place = self.path.display();
            return Err(Failure::input("this is not a plan", place, remedy));
        };
        if version != VERSION.to_string() {
            let version: String = version
                .chars()
                .filter(char::is_ascii_graphic)
                .take(20)
                .collect();
            let what =
                format!("this plan has version {version}, and this build reads version {VERSION}");
            let remedy = "make the plan again with this build's 'foreread plan'";
            return Err(Failure::input(what, self.path.display(), remedy));
        }
        let mut files = None;
        for _ in 0..MAX_HEAD_LINES {
            let line = self.next()?;
            let Some((key, value)) = line.split_once(": ") else {
                return Err(self.bad("the header has a line without a key"));
            };
            let number = || value.parse::<usize>();
            match key {
                "from" => {
                    let from = percent_decode_str(value).decode_utf8_lossy().into_owned();
                    account
                        .take::<String>(from.capacity())
                        .map_err(|full| self.bad(&full.to_string()))?;
                    plan.made_from.push(from);
                }
                "runs" => {
                    plan.runs = value
                        .parse()
                        .map_err(|_| self.bad("runs is not a number"))?
                }
                "files" => files = Some(number().ok().filter(|n| *n <= MAX_FILES)),
                "ranges" => {
                    let ranges = number().ok().filter(|n| *n <= MAX_RANGES);
                    let (Some(Some(files)), Some(ranges)) = (files, ranges) else {
                        let what = "the plan has no count of files and ranges, or too many";
                        return Err(self.bad(what));
                    };
                    return Ok((files, ranges));
                }
                _ => {}
            }
        }
        Err(self.bad("the end of the header is missing"))
    }
}

fn file(line: &str) -> Option<PlanFile> {
    let mut words = line.strip_prefix("f ")?.splitn(3, ' ');
    let size = words.next()?.parse().ok().filter(|size| *size <= MAX_END)?;
    let mtime_ns = maybe(words.next()?)?;
    let mut path: Vec<u8> = percent_decode_str(words.next()?).collect();
    path.shrink_to_fit();
    let is_path = !path.is_empty() && path.len() <= MAX_PATH_BYTES && !path.contains(&0);
    is_path.then(|| PlanFile {
        path: OsString::from_vec(path).into(),
        size,
        mtime_ns,
    })
}

fn range(line: &str) -> Option<PlanRange> {
    let mut words = line.strip_prefix("r ")?.split(' ');
    let range = PlanRange {
        file: words.next()?.parse().ok()?,
        offset: words.next()?.parse().ok()?,
        len: words.next()?.parse().ok()?,
        at_ns: maybe(words.next()?)?,
        after: maybe(words.next()?)?,
        gap_ns: maybe(words.next()?)?,
        runs: words.next()?.parse().ok()?,
        stall_ns: words.next()?.parse().ok()?,
    };
    words.next().is_none().then_some(range)
}

/// A number, or `-` for none.
fn maybe<T: std::str::FromStr>(word: &str) -> Option<Option<T>> {
    if word == "-" {
        Some(None)
    } else {
        word.parse().ok().map(Some)
    }
}
