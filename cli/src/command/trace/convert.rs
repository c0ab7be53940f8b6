//! `foreread trace import` and `foreread trace export`: convert a trace from one format to another.
//!
//! Both commands report how many records of the trace they could not convert.

use crate::fail::{Fail, one_line};
use crate::out;
use crate::traces::{open, passed_over, written};
use foreread_report::number::amount;
use foreread_trace::catalog;
use foreread_trace::format::Fit;
use foreread_trace::input::Input;
use foreread_trace::own;
use std::path::{Path, PathBuf};

/// Convert a trace of any known format to foreread's format
///
/// The format is recognised by content; if that is ambiguous, name it with --format. Times are converted to
/// nanoseconds, and sizes to bytes. The header notes fields that the format lacks, and skipped records are counted.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread trace import disk.csv.gz
  foreread trace import a.csv --format csv:columns=file+op+offset+len+time_us")]
pub struct ImportArgs {
    /// The trace
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The output file, or '-' for stdout [default: FILE.frt]
    #[arg(short, long, value_name = "OUT")]
    pub out: Option<PathBuf>,
    /// NAME[:key=value,...]; see 'foreread trace formats'
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
}

/// Write a trace in another format
///
/// Records that the format cannot express are left out and counted.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread trace export disk.frt --to csv -o disk.csv
  foreread trace export disk.frt --to fio -o - | head")]
pub struct ExportArgs {
    /// A trace in any known format
    #[arg(value_name = "TRACE")]
    pub file: PathBuf,
    /// The output file, or '-' for stdout
    #[arg(short, long, value_name = "OUT")]
    pub out: PathBuf,
    /// The new format, NAME[:key=value,...]; see 'foreread trace formats'
    #[arg(long, alias = "format", value_name = "FORMAT")]
    pub to: String,
    /// The format of TRACE, NAME[:key=value,...] [default: detected by content]
    #[arg(long, value_name = "FORMAT")]
    pub from: Option<String>,
}

/// Converts a trace to foreread's format.
pub fn import(args: &ImportArgs) -> Result<(), Fail> {
    let out = match &args.out {
        Some(out) => out.clone(),
        None => default_out(&args.file)?,
    };
    if args.out.is_none() && is_ours(&args.file)? {
        let remedy = "use it unchanged, or name another file with -o";
        return Err(Fail::input(
            "already a foreread trace",
            args.file.display(),
            remedy,
        ));
    }
    let trace = open(&args.file, args.format.as_deref())?;
    let (header, left_out) = (trace.header.clone(), trace.left_out.clone());
    let done = written(&out, |output| {
        own::write(&header, trace.items, &left_out, output)
    })?;
    if out == Path::new("-") {
        return Ok(());
    }
    let bytes = std::fs::metadata(&out).map_or(0, |meta| meta.len());
    let mut text = format!(
        "{}: {}, {}",
        out.display(),
        records(done.records),
        amount(bytes)
    );
    text.push_str(&format!(", from {}\n", one_line(&header.format)));
    text.push_str(&passed_over(left_out.in_all()));
    header
        .notes
        .iter()
        .for_each(|note| text.push_str(&format!("note: {}\n", one_line(note))));
    out::print(text)
}

/// Converts a trace to any format that foreread can write.
pub fn export(args: &ExportArgs) -> Result<(), Fail> {
    let format = catalog::to_write(&args.to, &args.out)?;
    let Some(export) = format.export else {
        let written: Vec<&str> = catalog::ALL
            .iter()
            .filter(|f| f.export.is_some())
            .map(|f| f.name)
            .collect();
        return Err(Fail::input(
            "this format cannot be written",
            format.name,
            &format!("one of {}", written.join(", ")),
        ));
    };
    let trace = open(&args.file, args.from.as_deref())?;
    let left_out = trace.left_out.clone();
    let done = written(&args.out, |output| {
        export(&trace.header, trace.items, output)
    })?;
    if args.out == Path::new("-") {
        return Ok(());
    }
    let mut all = left_out.in_all();
    done.left_out
        .iter()
        .for_each(|(reason, n)| *all.entry((*reason).to_string()).or_default() += n);
    let text = format!(
        "{}: {}, as {}\n",
        args.out.display(),
        records(done.records),
        format.name
    );
    out::print(text + &passed_over(all))
}

/// Whether a file starts with the magic of foreread's format. A pipe is not checked, because it can be read only once.
fn is_ours(path: &Path) -> Result<bool, Fail> {
    if !std::fs::metadata(path).is_ok_and(|meta| meta.is_file()) {
        return Ok(false);
    }
    let mut input = Input::open(path)?;
    Ok((own::FORMAT.detect)(input.head()?) == Fit::Sure)
}

/// The path next to the file with the suffix `.frt`: `disk.csv.gz` becomes `disk.csv.frt`.
fn default_out(file: &Path) -> Result<PathBuf, Fail> {
    let mut out = file.to_path_buf();
    if out.extension().is_some_and(|e| e == "gz" || e == "zst") {
        out.set_extension("");
    }
    let Some(name) = out.file_name() else {
        return Err(Fail::input(
            "no file is named",
            out.display(),
            "name a trace",
        ));
    };
    let mut name = name.to_os_string();
    name.push(".frt");
    Ok(out.with_file_name(name))
}

fn records(n: u64) -> String {
    if n == 1 {
        "1 record".to_string()
    } else {
        format!("{n} records")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_output_is_beside_the_trace() {
        let name = |file: &str| {
            let out = default_out(Path::new(file)).expect("a name");
            out.display().to_string()
        };
        assert_eq!(name("a/disk.csv.gz"), "a/disk.csv.frt");
        assert_eq!(name("t.csv"), "t.csv.frt");
        assert!(default_out(Path::new("/")).is_err());
    }
}
