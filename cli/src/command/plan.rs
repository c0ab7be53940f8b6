//! `foreread plan`: makes a readahead plan, writes it to a file, and reports what the plan contains and what was left
//! out.

use crate::args::JsonArgs;
use crate::args::values::size;
use crate::fail::{Fail, note, one_line};
use crate::out::{self, Outputs};
use foreread::source::{SourceName, is_remote};
use foreread_attach::planning::{PlanReport, of_headers, of_traces};
use foreread_attach::warm::LeftOut;
use foreread_lab::verdict::in_shell;
use foreread_plan::layout::Format;
use foreread_plan::layout::Names;
use foreread_plan::runs::Selection;
use foreread_plan::{Plan, PlanFile};
use foreread_report::json;
use foreread_report::number::{amount, count, plural};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Make a readahead plan from recorded runs or file headers
///
/// A plan is a text file that lists which ranges of which files a program needs, in which order and how soon. 'foreread
/// replay' reads the ranges into the page cache while the program runs; 'serve --plan' and 'mount --plan' read them
/// into foreread's own cache.
///
/// A plan from several runs contains the ranges that at least two thirds of the runs read (change this with
/// --at-least). With --format no recording is needed, because the headers of model files say where their
/// tensors are. A file that has changed since the recording is left out and reported.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread record -o a.frt -- ./app; foreread plan a.frt -o app.plan
  foreread plan --format safetensors model/*.safetensors -o model.plan")]
pub struct PlanArgs {
    /// Traces, one for each run; with --format, files or sources
    ///
    /// A source is written as for --on of 'foreread compare', for example hf://USER/REPO/model.safetensors. Only its
    /// header is read.
    #[arg(value_name = "INPUT", required = true)]
    pub inputs: Vec<PathBuf>,
    /// Where to write the plan
    #[arg(short, long, value_name = "PLAN")]
    pub out: PathBuf,
    /// Keep ranges read in this share of the runs or more, such as 1/2
    #[arg(long, value_name = "N/M", default_value = "2/3", value_parser = share, conflicts_with = "format")]
    pub at_least: (u32, u32),
    /// Maximum size of all ranges; keeps those with the longest waits
    ///
    /// Ranges are ranked by wait time per byte, then by the time at which they were read.
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with = "format")]
    pub max: Option<u64>,
    /// Make the plan from file headers: safetensors or gguf
    #[arg(long, value_name = "NAME", value_parser = format)]
    pub format: Option<Format>,
    /// With --format: only parts with matching names, e.g. 'layers.0.*'
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "format")]
    pub tensors: Vec<String>,
    /// The format of the traces, if it cannot be detected
    #[arg(
        long,
        value_name = "FORMAT",
        hide_short_help = true,
        conflicts_with = "format"
    )]
    pub from: Option<String>,
    #[command(flatten)]
    pub output: JsonArgs,
}

fn format(text: &str) -> Result<Format, String> {
    let known = foreread_plan::layout::FORMATS
        .iter()
        .find(|(name, _)| *name == text);
    known
        .map(|(_, format)| *format)
        .ok_or_else(|| "one of safetensors, gguf".to_string())
}

/// Maximum number of files listed on stderr; the JSON lists all.
const MAX_NAMED: usize = 10;

pub fn run(args: &PlanArgs) -> Result<(), Fail> {
    let out = out::writable("out", args.out.as_os_str())?;
    let mut outputs = Outputs::new(&[("json", args.output.json.as_deref())])?;
    outputs.and("out", out.clone())?;
    let planned = match args.format {
        Some(format) => {
            let plan = of_headers(format, &args.inputs, &Names::new(args.tensors.clone()));
            PlanReport {
                plan: plan?,
                ..PlanReport::default()
            }
        }
        None => {
            let selection = Selection {
                at_least: args.at_least,
                max_bytes: args.max,
            };
            of_traces(&args.inputs, args.from.as_deref(), &selection)?
        }
    };
    name(&planned.left_out);
    for LeftOut { path, why } in &planned.incomplete {
        note(format!(
            "the plan is incomplete: {}: {}",
            path.display(),
            one_line(why)
        ));
    }
    if planned.dropped > 0 {
        note(format!(
            "{} reads were left out: a plan has at most 2097152 ranges",
            count(planned.dropped)
        ));
    }
    if planned.plan.ranges.is_empty() {
        let remedy = "record a run that reads files, or lower --at-least";
        return Err(Fail::input(
            "there is nothing to plan",
            args.inputs[0].display(),
            remedy,
        ));
    }
    let mut text = Vec::new();
    let written =
        foreread_plan::text::write(&planned.plan, &mut text).map(|()| String::from_utf8(text));
    let Ok(Ok(text)) = written else {
        return Err(Fail::input(
            "cannot write",
            out.display(),
            "name another file",
        ));
    };
    out::write("out", &out, &text)?;
    let in_json = || {
        json::pretty(&json!({
            "schema": "foreread.plan/1",
            "plan": out.display().to_string(),
            "runs": planned.plan.runs,
            "files": planned.plan.files.len(),
            "ranges": planned.plan.ranges.len(),
            "bytes": planned.plan.bytes(),
            "dropped": planned.dropped,
            "left_out": left_out_json(&planned.left_out),
        }))
    };
    let text = || {
        let (next, short) = (next(&planned.plan, &out), in_short(&planned.plan));
        format!("{} has {short}\nnext: {next}\n", out.display())
    };
    outputs.emit(text, in_json, &[])
}

/// The command that uses the plan. Objects are not in the page cache, so they need a mount, which reads them into its own cache.
pub fn next(plan: &Plan, path: &Path) -> String {
    match objects(plan) {
        None => format!(
            "foreread replay {} -- CMD",
            in_shell([path.to_string_lossy()])
        ),
        Some(source) => format!(
            "foreread mount {} DIR --plan {}",
            in_shell([&source]),
            in_shell([path.to_string_lossy()])
        ),
    }
}

/// Number of path components in the name of a bucket: `s3:` and `bucket`.
const BUCKET_PARTS: usize = 2;

/// Returns the source to mount for a replay of a plan of objects: their common folder or, if they are in several buckets, the
/// bucket of the first object. For names within a mount, whose source the plan does not have, the word SOURCE. Returns `None` if the
/// plan contains files.
pub fn objects(plan: &Plan) -> Option<String> {
    let is_object = |file: &PlanFile| is_remote(&SourceName::from(file.path.as_path()));
    let (first, others) = plan.files.split_first()?;
    if plan
        .files
        .iter()
        .all(|file| !is_object(file) && file.path.is_relative())
    {
        return Some("SOURCE".to_string());
    }
    if !plan.files.iter().all(is_object) {
        return None;
    }
    let mut common = first.path.as_path();
    while !others.iter().all(|file| file.path.starts_with(common)) {
        common = common.parent()?;
    }
    if common.components().count() < BUCKET_PARTS {
        common = first.path.parent()?;
    }
    let slash = if others.is_empty() { "" } else { "/" };
    Some(format!("{}{slash}", common.display()))
}

/// Formats the size of a plan as text, such as `12 ranges of 3 files (4.00 MB), recorded runs: 2`.
pub fn in_short(plan: &Plan) -> String {
    let (ranges, files) = (
        plural(plan.ranges.len() as u64, "range"),
        plural(plan.files.len() as u64, "file"),
    );
    let from = if plan.runs > 0 {
        format!("recorded runs: {}", plan.runs)
    } else {
        "from headers".to_string()
    };
    format!("{ranges} of {files} ({}), {from}", amount(plan.bytes()))
}

/// Prints on stderr which files were left out of the plan.
pub fn name(left_out: &[LeftOut]) {
    for LeftOut { path, why } in left_out.iter().take(MAX_NAMED) {
        note(format!("left out: {}: {}", path.display(), one_line(why)));
    }
    if left_out.len() > MAX_NAMED {
        note(format!("left out: {} more", left_out.len() - MAX_NAMED));
    }
}

/// Returns the files that were left out of the plan, with the reasons, as JSON.
pub fn left_out_json(left_out: &[LeftOut]) -> Value {
    left_out
        .iter()
        .map(|one| json!({ "path": one.path.display().to_string(), "why": one.why }))
        .collect()
}

/// Describes the contents of a plan for `trace info`.
pub fn info(plan: &Plan) -> (String, String) {
    let times: Vec<u64> = plan.ranges.iter().filter_map(|range| range.at_ns).collect();
    let last_ns = times.iter().max().copied();
    let stall_ns: u64 = plan
        .ranges
        .iter()
        .fold(0, |sum, range| sum.saturating_add(range.stall_ns));
    let mut text = format!("plan: {}\n", in_short(plan));
    plan.made_from
        .iter()
        .for_each(|from| text.push_str(&format!("made from: {}\n", one_line(from))));
    if let Some(last_ns) = last_ns {
        let (last, stall) = (last_ns as f64 / 1e9, stall_ns as f64 / 1e9);
        text.push_str(&format!(
            "the last range is needed {last:.3} s after the start; the recorded runs waited {stall:.3} s in all for the ranges of this plan\n"
        ));
    }
    let of_device = plan
        .ranges
        .iter()
        .filter(|range| plan.files[range.file as usize].is_device());
    let (own_ranges, own_bytes) = of_device.fold((0_u64, 0_u64), |(n, sum), range| {
        (n + 1, sum.saturating_add(range.len))
    });
    if own_ranges > 0 {
        let (ranges, bytes) = (count(own_ranges), amount(own_bytes));
        text.push_str(&format!(
            "{ranges} of the ranges ({bytes}) are metadata of the file system: inodes and folders\n"
        ));
    }
    let mut sizes = vec![0_u64; plan.files.len()];
    plan.ranges
        .iter()
        .for_each(|range| sizes[range.file as usize] += range.len);
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|number| std::cmp::Reverse(sizes[*number]));
    for number in order.iter().take(MAX_NAMED) {
        let path = one_line(&plan.files[*number].path.display().to_string());
        text.push_str(&format!("  {:>12}  {path}\n", amount(sizes[*number])));
    }
    if order.len() > MAX_NAMED {
        text.push_str(&format!("  and {} files more\n", order.len() - MAX_NAMED));
    }
    let json = json!({
        "schema": "foreread.plan-info/1",
        "made_from": plan.made_from,
        "runs": plan.runs,
        "files": plan.files.len(),
        "ranges": plan.ranges.len(),
        "bytes": plan.bytes(),
        "metadata_bytes": own_bytes,
        "last_needed_ns": last_ns,
        "stall_ns": (plan.runs > 0).then_some(stall_ns),
    });
    (text, json::pretty(&json))
}

/// A share such as `2/3`.
fn share(text: &str) -> Result<(u32, u32), String> {
    let parts = text
        .split_once('/')
        .and_then(|(n, m)| Some((n.parse().ok()?, m.parse().ok()?)));
    parts
        .filter(|(n, m)| *m > 0 && n <= m)
        .ok_or_else(|| "write a share such as 2/3".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_of_a_plan_of_objects() {
        for (names, mount) in [
            (&["s3://b/d/a"][..], Some("s3://b/d/a")),
            (&["s3://b/d/a", "s3://b/d/c"], Some("s3://b/d/")),
            (&["s3://b/d/a", "s3://b/e/c"], Some("s3://b/")),
            (&["s3://b/d/a", "s3://z/e/c"], Some("s3://b/d/")),
            (&["s3://b/d/a", "hf://u/r/c"], Some("s3://b/d/")),
            (&["s3://b/d/a", "/tmp/c"], None),
            (&["pkg/a", "b"], Some("SOURCE")),
            (&["pkg/a", "/tmp/c"], None),
            (&[], None),
        ] {
            let file = |name: &&str| PlanFile::sized(*name, 1);
            let plan = Plan {
                files: names.iter().map(file).collect(),
                ..Plan::default()
            };
            assert_eq!(objects(&plan).as_deref(), mount, "{names:?}");
        }
    }
}
