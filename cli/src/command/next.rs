//! `foreread next`: sends a list of files to a mount, which reads them ahead in that order.
//!
//! Prints how many are files of the mount. Never: waits for what is read ahead.

use crate::fail::{Fail, note};
use crate::out::Outputs;
use foreread::front::fuse::send;
use foreread_os::open::stream;
use serde_json::json;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, stdin};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Give a mount the files that are read next, in their order
///
/// The mount reads them ahead, whole, as far as its policy's distance and half of its cache go; 'auto' does, other policies take no
/// notice. Names begin at the mount's folder, or are whole paths in it, one a line. A name that is no file there is counted and left
/// out. It returns when the mount knows the order, before anything is read.
///
/// A mount keeps 65,536 files that are planned and not opened yet; a longer list goes out in parts.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread mount s3://bucket/train mnt --control /run/user/1000/train
  ls mnt | shuf --random-source=seed | foreread next /run/user/1000/train
  find mnt -name '*.npy' -print0 | foreread next -0 /run/user/1000/train")]
pub struct NextArgs {
    /// The socket of 'foreread mount --control'
    #[arg(value_name = "SOCKET")]
    pub socket: PathBuf,
    /// The list; standard input without it
    #[arg(value_name = "LIST")]
    pub list: Option<PathBuf>,
    /// Names end with a 0 byte, as those of 'find -print0'
    #[arg(short = '0', long)]
    pub null: bool,
    /// Write JSON to a file, or to stdout
    #[arg(long, value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<OsString>,
}

/// Bytes of a name, as PATH_MAX of Linux.
const MAX_NAME: u64 = 4096;

/// Sends the list, and prints the mount's answer.
pub fn run(args: &NextArgs) -> Result<(), Fail> {
    let outputs = Outputs::new(&[("json", args.json.as_deref())])?;
    let place = args.list.as_ref().map_or_else(
        || "standard input".to_string(),
        |list| list.display().to_string(),
    );
    let bad = |error: std::io::Error| {
        Fail::input(
            "cannot read the list",
            format!("{place}: {error}"),
            "name a list of files",
        )
    };
    let mut from: Box<dyn BufRead> = match &args.list {
        Some(list) => Box::new(BufReader::new(stream(list).map_err(bad)?)),
        None => Box::new(stdin().lock()),
    };
    let end = if args.null { 0 } else { b'\n' };
    let mut wrong = None;
    let mut names = std::iter::from_fn(|| match name(&mut from, end) {
        Ok(name) => name.map(Ok),
        Err(error) => {
            wrong = Some(std::io::Error::new(error.kind(), error.to_string()));
            Some(Err(error))
        }
    });
    let answer = send(&args.socket, &mut names);
    if let Some(error) = wrong {
        return Err(bad(error));
    }
    let answer = answer.map_err(|error| {
        let remedy = "name the socket of a running 'foreread mount --control'";
        Fail::input(
            "the mount did not take the list",
            format!("{}: {error}", args.socket.display()),
            remedy,
        )
    })?;
    let counts: Vec<u64> = answer
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|word| word.parse().ok())
        .collect();
    let (files, unknown) = (
        counts.first().copied().unwrap_or(0),
        counts.get(1).copied().unwrap_or(0),
    );
    if unknown > 0 && outputs.has_text() {
        note(format!(
            "{unknown} names are no files of the mount, and were left out"
        ));
    }
    let schema = "foreread.next/1";
    let in_json = json!({ "schema": schema, "files": files, "unknown": unknown });
    outputs.emit(
        || format!("{files} files are read ahead in this order\n"),
        || format!("{in_json}\n"),
        &[],
    )
}

/// The next name of the list; nothing at its end. Empty ones are passed over.
fn name(from: &mut dyn BufRead, end: u8) -> std::io::Result<Option<OsString>> {
    loop {
        let mut name = Vec::new();
        let got = from.take(MAX_NAME + 1).read_until(end, &mut name)?;
        if name.last() == Some(&end) {
            name.pop();
        }
        if name.len() as u64 > MAX_NAME || end != 0 && name.contains(&0) {
            return Err(std::io::Error::other(format!(
                "a name is longer than {MAX_NAME} bytes or has a 0 byte; see -0"
            )));
        }
        if got == 0 {
            return Ok(None);
        }
        if !name.is_empty() {
            return Ok(Some(OsString::from_vec(name)));
        }
    }
}
