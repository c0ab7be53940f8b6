//! `foreread probe`: measures a source, prints how much readahead is sufficient, and writes the fitted device model and the results as
//! JSON. Nothing is written to the source.

use crate::args::JsonArgs;
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

/// Measure storage, fit a model to it, say how much readahead is enough
///
/// Only reads. Latency and throughput are measured for each combination of request size and queue depth, in short time
/// slices over several rounds, so that a slow minute affects all combinations equally. The model has four parameters:
/// the latency of a read, the transfer rate of a single read, how many reads the storage serves at once (lanes), and
/// the total rate of all reads (link). The model's error is printed beside these parameters.
///
/// With --verify no model is fitted: the same reads run on the source and on an existing model, and the ratio of their
/// times is printed.
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
    /// Compare times on this model with times on the source
    #[arg(long, value_name = "FILE.toml")]
    pub verify: Option<String>,
    #[command(flatten)]
    pub output: JsonArgs,
}

pub fn run(args: &ProbeArgs) -> Result<(), Fail> {
    let on = source::parse(&args.source)?;
    if let Some(model) = &args.verify {
        return check(args, &on, model);
    }
    let files = [
        ("json", args.output.json.as_deref()),
        ("out", args.out.as_deref()),
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
            "name a file, a block device or a model; 'foreread compare --on' accepts this kind";
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
    };
    let ProbeOutcome { probe, model } = probe::probe(&asked, &mut Bar::new())?;
    outputs.emit(
        || probe::render(&probe),
        || json::pretty(&probe),
        &[("out", &|| model.to_toml())],
    )
}

/// Runs the same reads on the source and on the model.
fn check(args: &ProbeArgs, on: &CompareOn, model: &str) -> Result<(), Fail> {
    let outputs = Outputs::new(&[("json", args.output.json.as_deref())])?;
    if on.path().is_none() {
        let remedy = "name the file or block device that was probed";
        return Err(Fail::input(
            "a model can only be compared with real storage",
            &args.source,
            remedy,
        ));
    }
    let model = model.strip_prefix("model:").unwrap_or(model);
    let seconds = args.time.as_secs_f64();
    let verified = verify::verify(on, model, seconds, args.size, &mut Bar::new())?;
    outputs.emit(|| verified.render(), || json::pretty(&verified), &[])
}
