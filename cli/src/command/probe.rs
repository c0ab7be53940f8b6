//! `foreread probe`: hands a source to the lab, prints what it found, writes the model and the JSON.
//!
//! Never: writes to the source; there is nothing to clean up when it is interrupted.

use crate::args::values::{measuring, size};
use crate::fail::Fail;
use crate::out::Outputs;
use crate::progress::Bar;
use crate::source;
use foreread::source::SourceName;
use foreread_lab::compare::CompareOn;
use foreread_lab::probe::{self, ProbeOptions, ProbeOutcome, verify};
use foreread_report::json;
use std::ffi::OsString;
use std::time::Duration;

/// Measure a storage, fit a model to it, advise settings
///
/// Reads only. Latency and throughput are measured by request size and by depth, in short slices of every point, round
/// after round, so that a slow minute hits all alike. The simplest model that fits is chosen, with the error of each
/// point. The advice names the request size for 90 % of the bandwidth, the readahead size beyond which more gains
/// nothing, and has text to paste for the kernel, librbd, FUSE and NFS.
///
/// With --verify nothing is fitted: the workloads of 'foreread compare' run on the source and on the model file, and the
/// exit code is 1 if a pair of policies that differs significantly is ranked otherwise by the model.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread probe /dev/sdb -o sdb.toml
  foreread compare --on model:sdb.toml
  foreread probe disk.img --verify sdb.toml")]
pub struct ProbeArgs {
    /// PATH, file:PATH or model:NAME
    #[arg(value_name = "SOURCE")]
    pub source: SourceName,
    /// Write the model here, for --on model:FILE.toml
    #[arg(
        short,
        long,
        alias = "output",
        value_name = "FILE.toml",
        conflicts_with = "verify"
    )]
    pub out: Option<OsString>,
    /// Time to measure
    #[arg(long, alias = "seconds", value_name = "TIME", default_value = "25s", value_parser = measuring)]
    pub time: Duration,
    /// Read only this many bytes from the start, such as 10G
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub size: Option<u64>,
    /// Measure through the page cache if direct I/O is refused
    #[arg(long)]
    pub buffered: bool,
    /// Check whether this model ranks policies as the source does
    #[arg(long, value_name = "FILE.toml")]
    pub verify: Option<String>,
    /// Only this workload, with --verify [default: four]
    #[arg(
        long,
        value_name = "WORKLOAD",
        requires = "verify",
        hide_short_help = true
    )]
    pub workload: Option<String>,
    /// Runs of each policy, with --verify
    #[arg(long, value_name = "N", requires = "verify", hide_short_help = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub runs: Option<u32>,
    /// Write a page with charts to this file
    ///
    /// One file of HTML that loads nothing and runs no script: throughput and latency by size and by depth with the
    /// model's lines, the plateau, what to set, every value, and the JSON inside.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "verify",
        hide_short_help = true
    )]
    pub html: Option<OsString>,
    /// Write JSON to a file, or to stdout
    ///
    /// Schema foreread.probe/1, or foreread.verify/1 with --verify. With '-' the JSON takes the place of the text.
    #[arg(long, value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<OsString>,
}

/// Measures and prints.
pub fn run(args: &ProbeArgs) -> Result<(), Fail> {
    let on = source::parse(&args.source)?;
    if let Some(model) = &args.verify {
        return check(args, &on, model);
    }
    let files = [
        ("json", args.json.as_deref()),
        ("out", args.out.as_deref()),
        ("html", args.html.as_deref()),
    ];
    let outputs = Outputs::new(&files)?;
    if let Some(path) = outputs
        .file("out")
        .filter(|path| path.extension().is_none_or(|end| end != "toml"))
    {
        return Err(Fail::input(
            "a model file ends in .toml",
            format!("--out {}", path.display()),
            "name it FILE.toml",
        ));
    }
    if !on.can_be_probed() {
        let remedy =
            "name a file, a block device or a model; 'foreread compare --on' takes this one";
        return Err(Fail::input(
            "this kind of source cannot be probed",
            &args.source,
            remedy,
        ));
    }
    let asked = ProbeOptions {
        source: on,
        seconds: args.time.as_secs_f64(),
        size_bytes: args.size,
        buffered: args.buffered,
    };
    let ProbeOutcome { probe, model } = {
        let mut bar = Bar::new();
        probe::probe(&asked, &mut bar)?
    };
    outputs.emit(
        || probe::render(&probe),
        || json::pretty(&probe),
        &[
            ("out", &|| model.to_toml()),
            ("html", &|| probe::page(&probe)),
        ],
    )
}

/// The truth check.
fn check(args: &ProbeArgs, on: &CompareOn, model: &str) -> Result<(), Fail> {
    let outputs = Outputs::new(&[("json", args.json.as_deref())])?;
    let Some(path) = on.path() else {
        let remedy = "name the file or block device that was probed";
        return Err(Fail::input(
            "a model cannot vouch for a model",
            &args.source,
            remedy,
        ));
    };
    let model = model.strip_prefix("model:").unwrap_or(model);
    let verified = {
        let mut bar = Bar::new();
        verify::verify(
            path.to_path_buf(),
            model,
            args.workload.clone(),
            args.runs,
            args.size,
            &mut bar,
        )?
    };
    outputs.emit(|| verified.render(), || json::pretty(&verified), &[])?;
    if verified.agrees {
        return Ok(());
    }
    let wrong = verified.pairs.iter().filter(|p| !p.agrees).count();
    let pairs = verified.pairs.len();
    Err(Fail::check(
        format!("{wrong} of {pairs} pairs are ranked otherwise by {model}"),
        "",
        "probe again when the machine is quiet",
    ))
}
