//! `foreread doctor`: runs the checks of the attach crate on this machine's readahead, and prints the results.

use crate::args::JsonArgs;
use crate::args::values::size;
use crate::fail::Fail;
use crate::out::{self, Outputs, force, may_style};
use foreread_attach::doctor::fix::{FixOutcome, RULES_FILE};
use foreread_attach::doctor::verdict::DoctorReport;
use foreread_attach::doctor::{self, DoctorOptions, fix, render};
use foreread_lab::verdict::Standing;
use foreread_os::host::Host;
use foreread_os::host::memory::page_bytes;
use foreread_report::block::Block;
use foreread_report::number::exact_size;
use foreread_report::{block, json, width};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Find out what is wrong with this machine's readahead
///
/// Shows read_ahead_kb of every disk and mount, and where the value comes from: the kernel's rule, or the line of
/// a udev rule, profile or unit that sets it. Rates the value by the cost of a page fault in a mapping, the speed of sequential
/// readers, and the memory that sixteen sequential readers need. Since Linux 6.17, virtual disks that claim to be
/// rotational, or that report a wrong optimal I/O size, get a readahead of up to 64 MiB. Inspecting needs no root.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread doctor
  foreread doctor --fix sdb")]
pub struct DoctorArgs {
    /// Disks, such as sdb, or files on them [default: all]
    #[arg(value_name = "DEVICE")]
    pub devices: Vec<String>,
    /// Set the recommended value, now and by a udev rule
    ///
    /// Sets it for the named devices, or with --all for all suspicious disks. Writes
    /// /etc/udev/rules.d/61-foreread-readahead.rules, then the values. If another file
    /// sets the value of a device, or may set it, that device is changed only with --force. If the machine is too busy to measure
    /// a device, nothing is set, except with --to. Needs root.
    #[arg(long, group = "change", conflicts_with_all = REPORT)]
    pub fix: bool,
    /// With --fix: set all suspicious disks
    #[arg(long, requires = "fix", conflicts_with = "devices")]
    pub all: bool,
    /// With --fix: set this value instead
    ///
    /// From 4K to 1G; applies to the named devices.
    #[arg(long, value_name = "SIZE", requires = "fix", value_parser = readahead)]
    pub to: Option<u64>,
    /// Restore the values from before --fix
    #[arg(long, group = "change", conflicts_with_all = REPORT)]
    pub undo: bool,
    /// With --fix or --undo: print what would be done
    #[arg(long, requires = "change")]
    pub dry_run: bool,
    /// Show what sets each value, and what it costs
    #[arg(long)]
    pub why: bool,
    /// Read nothing from the disks
    ///
    /// By default up to four disks are measured, each with 449 MiB of direct reads in at most three seconds. The reads
    /// use the device node, or a large file on the disk that this user may read. Reads that other programs disturb are
    /// repeated; if too many are disturbed, no value is recommended. Values that could not be measured are typical ones for the disk's class, and are marked "by formula".
    #[arg(long)]
    pub no_measure: bool,
    /// Exit with 1 if a device is suspicious
    #[arg(long)]
    pub exit_code: bool,
    /// Write gauges for Prometheus' node exporter to a file
    #[arg(long, value_name = "FILE.prom")]
    pub metrics: Option<OsString>,
    /// Use the proc, sys, etc, run and usr below this folder
    ///
    /// For example the root of the host, if it is mounted in a container.
    #[arg(long, value_name = "DIR", default_value = "/", hide_short_help = true)]
    pub root: PathBuf,
    #[command(flatten)]
    pub output: JsonArgs,
}

/// The options of the report, which --fix and --undo do not make.
const REPORT: [&str; 4] = ["json", "metrics", "exit_code", "why"];

/// The time for which `doctor` counts the page faults and reads of all programs on this machine.
pub const COUNTED_FOR: Duration = Duration::from_millis(300);

pub fn run(args: &DoctorArgs) -> Result<(), Fail> {
    let files = [
        ("json", args.output.json.as_deref()),
        ("metrics", args.metrics.as_deref()),
    ];
    let outputs = Outputs::new(&files)?;
    let host = Host::below(&args.root);
    let options = DoctorOptions {
        devices: args.devices.clone(),
        // If another root is given, its device nodes are not used, because they would be those of this machine.
        may_measure: !args.no_measure && args.root == Path::new("/") && args.to.is_none(),
        to: args.to,
        counted_for: if args.root == Path::new("/") {
            COUNTED_FOR
        } else {
            Duration::ZERO
        },
    };
    if args.to.is_some() && args.devices.is_empty() {
        let remedy = "name a device, such as 'foreread doctor --fix sdb --to 1M'";
        return Err(Fail::input("--to needs a device", "--to", remedy));
    }
    if args.fix && args.devices.is_empty() && !args.all {
        let remedy = "name a device, such as 'foreread doctor --fix sdb', or use --all";
        return Err(Fail::input("--fix needs a device", "--fix", remedy));
    }
    if args.fix {
        return done(
            doctor::set(&host, &options, force(), args.dry_run)?,
            args.dry_run,
        );
    }
    if args.undo {
        return done(fix::undo(&host, &args.devices, args.dry_run)?, args.dry_run);
    }
    let report = doctor::examine(&host, &options)?;
    let blocks = if args.why {
        render::reasons
    } else {
        render::blocks
    };
    let text = || block::text(blocks(&report), width::columns(), may_style());
    let metrics = || render::metrics(&report);
    outputs.emit(text, || json::pretty(&report), &[("metrics", &metrics)])?;
    if args.exit_code {
        verdict(&report)
    } else {
        Ok(())
    }
}

fn done(outcome: FixOutcome, is_dry: bool) -> Result<(), Fail> {
    let mut blocks: Vec<Block> = outcome.lines.into_iter().map(Block::Text).collect();
    if let Some(text) = outcome.text.filter(|_| is_dry) {
        blocks.push(Block::line(format!("{RULES_FILE} would be:")));
        blocks.push(Block::Indented(
            2,
            vec![Block::Lines(text.lines().map(str::to_string).collect())],
        ));
    }
    out::print(block::text(blocks, width::columns(), may_style()))
}

fn verdict(report: &DoctorReport) -> Result<(), Fail> {
    let bad = report
        .devices
        .iter()
        .filter(|device| device.verdict.standing == Standing::Suspicious);
    let names: Vec<&str> = bad.map(|device| device.verdict.device.as_str()).collect();
    if names.is_empty() {
        return Ok(());
    }
    let remedy = "'foreread doctor' gives the reason";
    Err(Fail::check(
        "suspicious readahead",
        names.join(", "),
        remedy,
    ))
}

/// A value of `read_ahead_kb`, in bytes.
fn readahead(text: &str) -> Result<u64, String> {
    let bytes = size(text)?;
    // The kernel stores the value in pages; less than one page means no readahead.
    let page = page_bytes();
    if (page..=1 << 30).contains(&bytes) && bytes.is_multiple_of(page) {
        Ok(bytes)
    } else {
        let page = exact_size(page);
        Err(format!("write {page} to 1G, a multiple of {page}"))
    }
}
