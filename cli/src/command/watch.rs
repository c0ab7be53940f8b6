//! `foreread watch`: prints at each interval what was read from each disk, and the verdict of `doctor`.

use crate::args::values::time;
use crate::command::doctor::COUNTED_FOR;
use crate::fail::{Fail, one_line};
use crate::out;
use foreread_attach::doctor::{DoctorOptions, render};
use foreread_attach::watch::{DiskSample, WatchSample, Watcher};
use foreread_os::host::Host;
use foreread_report::number::{amount, count, three};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Show what disks read, and how long the reads wait
///
/// At each interval, prints for every disk that was read: the number of reads, how long each took, which programs read,
/// and the verdict of 'foreread doctor'. Also prints how many bytes of files were read again soon after they had been
/// dropped from the page cache, which is a sign that memory is short. Changes and records nothing. Only root sees the
/// names of other users' programs.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread watch
  foreread watch sdb --every 1m --json")]
pub struct WatchArgs {
    /// Disks, such as sdb, or files on them [default: all]
    #[arg(value_name = "DEVICE")]
    pub devices: Vec<String>,
    /// Interval between reports
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    pub every: Duration,
    /// Report once, after one interval, and exit
    #[arg(long)]
    pub once: bool,
    /// Print one line of JSON per interval
    ///
    /// Schema foreread.watch/1.
    #[arg(long)]
    pub json: bool,
    /// Use the proc, sys, etc, run and usr below this folder
    #[arg(long, value_name = "DIR", default_value = "/", hide_short_help = true)]
    pub root: PathBuf,
}

pub fn run(args: &WatchArgs) -> Result<(), Fail> {
    let is_here = args.root == Path::new("/");
    let options = DoctorOptions {
        devices: args.devices.clone(),
        may_measure: is_here,
        to: None,
        counted_for: if is_here { COUNTED_FOR } else { Duration::ZERO },
    };
    let mut watcher = Watcher::new(Host::below(&args.root), options)?;
    loop {
        std::thread::sleep(args.every);
        let sample = watcher.sample()?;
        let text = if args.json {
            in_json(&sample)
        } else {
            in_words(&sample)
        };
        match out::print(text) {
            Err(Fail::Closed) => return Ok(()),
            printed => printed?,
        }
        if args.once {
            return Ok(());
        }
    }
}

fn in_words(sample: &WatchSample) -> String {
    let mut lines: Vec<String> = sample
        .disks
        .iter()
        .map(|disk| of_disk(disk, sample.seconds))
        .collect();
    if lines.is_empty() {
        lines.push(format!("no disk was read in {:.0} s", sample.seconds));
    }
    if let Some(bytes) = sample.refault_bytes.filter(|bytes| *bytes > 0) {
        lines.push(format!(
            "{} of files were read again soon after they were dropped",
            amount(bytes)
        ));
    }
    lines.iter().map(|line| one_line(line) + "\n").collect()
}

fn of_disk(disk: &DiskSample, seconds: f64) -> String {
    let mut text = format!(
        "{}: {} in {} reads in {seconds:.1} s",
        disk.name,
        amount(disk.read_bytes),
        count(disk.reads)
    );
    if disk.reads > 0 {
        let each = disk.read_ms as f64 / disk.reads as f64;
        text += &format!(", {} ms each", three(each));
    }
    let programs: Vec<String> = disk
        .programs
        .iter()
        .map(|program| format!("{} ({})", program.name, program.pid))
        .collect();
    if !programs.is_empty() {
        text += &format!(", by {}", programs.join(", "));
    }
    format!("{text}; doctor: {}", render::line(&disk.doctor))
}

fn in_json(sample: &WatchSample) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let mut whole = serde_json::to_value(sample).unwrap_or_default();
    whole["schema"] = json!("foreread.watch/1");
    whole["unix_s"] = json!(now.unwrap_or_default().as_secs_f64());
    format!("{whole}\n")
}
