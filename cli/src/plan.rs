//! `foreread plan`: has the lab make a plan, writes it, and says what is in it and what is not.

use crate::args::PlanArgs;
use crate::convert::{refused, size_of};
use crate::fail::{Fail, note, one_line};
use crate::out;
use foreread_attach::planning::{Planned, of_headers, of_traces};
use foreread_attach::warm::LeftOut;
use foreread_plan::Plan;
use foreread_plan::layout::Names;
use foreread_plan::runs::Selection;
use foreread_report::number::count;
use serde_json::{Value, json};

/// Files that are named on stderr; JSON has more.
const MAX_NAMED: usize = 10;

/// Makes and writes.
pub fn run(args: &PlanArgs) -> Result<(), Fail> {
    let out = out::writable("out", args.out.as_os_str())?;
    let planned = match args.format {
        Some(format) => {
            let plan = of_headers(format, &args.inputs, &Names::new(args.tensors.clone()));
            Planned {
                plan: plan.map_err(|error| Fail::Input(error.to_string()))?,
                ..Planned::default()
            }
        }
        None => {
            let since_start_ns = args
                .since_start
                .map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
            let selection = Selection {
                at_least: args.at_least,
                max_bytes: args.max,
                since_start_ns,
            };
            of_traces(&args.inputs, args.from.as_deref(), &selection).map_err(refused)?
        }
    };
    name(&planned.left_out);
    if planned.dropped > 0 {
        note(format!(
            "{} reads were left out: a plan has at most 2097152 ranges",
            count(planned.dropped)
        ));
    }
    if planned.plan.ranges.is_empty() {
        let remedy = "record a run that reads files, or lower --at-least";
        return Err(Fail::input(
            "nothing to plan",
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
    if args.json {
        let whole = json!({
            "schema": "foreread.plan/1",
            "plan": out.display().to_string(),
            "runs": planned.plan.runs,
            "files": planned.plan.files.len(),
            "ranges": planned.plan.ranges.len(),
            "bytes": planned.plan.bytes(),
            "dropped": planned.dropped,
            "left_out": left_out_json(&planned.left_out),
        });
        return out::print(format!("{whole:#}\n"));
    }
    out::print(format!(
        "{} has {}\nnext: foreread replay {0} -- CMD\n",
        out.display(),
        in_short(&planned.plan)
    ))
}

/// `12 ranges of 3 files (4.00 MB), of 2 runs`.
pub fn in_short(plan: &Plan) -> String {
    let (ranges, files) = (
        count(plan.ranges.len() as u64),
        count(plan.files.len() as u64),
    );
    let from = if plan.runs > 0 {
        format!("recorded runs: {}", plan.runs)
    } else {
        "of headers".to_string()
    };
    format!(
        "{ranges} ranges of {files} files ({}), {from}",
        size_of(plan.bytes())
    )
}

/// Names on stderr what is left out.
pub fn name(left_out: &[LeftOut]) {
    for LeftOut { path, why } in left_out.iter().take(MAX_NAMED) {
        note(format!("left out: {}: {}", path.display(), one_line(why)));
    }
    if left_out.len() > MAX_NAMED {
        note(format!("left out: {} more", left_out.len() - MAX_NAMED));
    }
}

/// The same for JSON.
pub fn left_out_json(left_out: &[LeftOut]) -> Value {
    left_out
        .iter()
        .map(|one| json!({ "path": one.path.display().to_string(), "why": one.why }))
        .collect()
}

/// What is in a plan, for `trace info`.
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
            "last range needed after {last:.3} s; the runs waited {stall:.3} s for these ranges\n"
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
        let (ranges, bytes) = (count(own_ranges), size_of(own_bytes));
        text.push_str(&format!(
            "of the ranges {ranges} ({bytes}) are the file system's own data: inodes and folders\n"
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
        text.push_str(&format!("  {:>12}  {path}\n", size_of(sizes[*number])));
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
    (text, format!("{json:#}\n"))
}
