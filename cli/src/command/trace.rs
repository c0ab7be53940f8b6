//! `foreread trace`: imports, exports and describes traces, and lists the formats.

mod convert;

use crate::args::JsonArgs;
use crate::fail::Fail;
use crate::out::Outputs;
use crate::traces;
use clap::Subcommand;
use foreread_lab::report::trace_info;
use foreread_report::block::{self, Block, Table};
use foreread_report::{json, width};
use foreread_trace::catalog::ALL;
use foreread_trace::format::Format;
use foreread_trace::info;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Import, export and describe traces, list their formats
#[derive(Debug, clap::Args)]
#[command(disable_help_subcommand = true)]
pub struct TraceArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: TraceCommand,
}

/// Commands for traces.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    Import(convert::ImportArgs),
    Export(convert::ExportArgs),
    Info(InfoArgs),
    /// List the trace formats: read or write support, units, keys
    Formats(JsonArgs),
}

/// Describe a trace: sizes, streams, latency, missing fields
///
/// Prints counts, sizes, streams, span and latency. The memory used is bounded.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread trace info disk.frt
  foreread trace info disk.csv.gz --json - | jq .streams")]
pub struct InfoArgs {
    /// A trace in any known format
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// NAME[:key=value,...]; see 'foreread trace formats'
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
    #[command(flatten)]
    pub output: JsonArgs,
}

/// Maximum width of a text line.
const WIDTH: usize = 90;

pub fn run(args: &TraceArgs) -> Result<(), Fail> {
    match &args.command {
        TraceCommand::Import(asked) => convert::import(asked),
        TraceCommand::Export(asked) => convert::export(asked),
        TraceCommand::Info(asked) => info(asked),
        TraceCommand::Formats(asked) => {
            let outputs = Outputs::new(&[("json", asked.json.as_deref())])?;
            outputs.emit(in_words, to_json, &[])
        }
    }
}

fn info(args: &InfoArgs) -> Result<(), Fail> {
    let outputs = Outputs::new(&[("json", args.output.json.as_deref())])?;
    if args.format.is_none() && foreread_plan::text::is_one(&args.file) {
        let plan = foreread_plan::text::open(&args.file)?;
        let (text, in_json) = super::plan::info(&plan);
        return outputs.emit(|| text, || in_json, &[]);
    }
    let info = info::of(traces::open(&args.file, args.format.as_deref())?)?;
    outputs.emit(|| trace_info::render(&info), || info.to_json(), &[])
}

/// Schema `foreread.formats/1`: `{"schema":..,"formats":[{"name","summary","write","keys":[{"key","help"}]}]}`.
fn to_json() -> String {
    let key = |(key, help): &(&str, &str)| json!({ "key": key, "help": help });
    let row = |format: &&Format| -> Value {
        json!({
            "name": format.name,
            "summary": format.summary,
            "write": format.export.is_some(),
            "keys": format.keys.iter().map(key).collect::<Vec<_>>(),
        })
    };
    let formats: Vec<Value> = ALL.iter().map(row).collect();
    json::pretty(&json!({ "schema": "foreread.formats/1", "formats": formats }))
}

fn in_words() -> String {
    let mut blocks = Vec::new();
    for format in ALL {
        let can = match format.export {
            Some(_) => "read and written",
            None => "read",
        };
        let key = |(key, help): &(&str, &str)| [key, help].map(|text| (*text).to_string());
        let keys = Table::of_cells(format.keys.iter().map(key)).left().wide();
        blocks.extend([
            Block::line(format!("{} ({can})", format.name)),
            Block::Indented(2, vec![Block::Text(format.summary.to_string())]),
            Block::Indented(4, vec![Block::Table(keys)]),
        ]);
    }
    block::text(blocks, width::columns().min(WIDTH), false)
}
