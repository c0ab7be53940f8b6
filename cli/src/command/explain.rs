//! `foreread explain`: replays a trace under one policy, and prints a table of the files and how often each rule of the
//! policy decided, or JSON.

use crate::args::values::size;
use crate::config;
use crate::fail::Fail;
use crate::out::Outputs;
use crate::policy_list;
use crate::progress::Bar;
use crate::reads::{self, ReplayArgs};
use crate::source;
use foreread::source::SourceName;
use foreread_core::policy::PolicyDraft;
use foreread_lab::compare::ComparePlan;
use foreread_lab::explain;
use foreread_lab::verdict::in_shell;
use foreread_report::json;
use std::ffi::OsString;
use std::sync::Arc;

/// Show file by file what readahead did in a trace, and why
///
/// The trace is replayed on a storage model, or with --on on a file, a disk or another source. For each file it counts
/// the reads that hit, were late or missed, the bytes read ahead, and the bytes read ahead but never used. The rules
/// are the reasons that the policy itself gave, with the number of decisions made by each.
///
/// The totals over all files match the row that 'foreread compare TRACE --on SOURCE --policy POLICY --runs 1' shows.
/// The replay starts with an empty cache, so its hits and times differ from those of the recorded run.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread explain app.strace --on model:nvme
  foreread explain app.frt --only data.db --on /srv/data.db
  foreread explain app.frt --policy linux-6.18:max=2M")]
pub struct ExplainArgs {
    /// A trace in any known format, or a workload by its name
    #[arg(value_name = "TRACE|WORKLOAD")]
    pub trace: OsString,
    /// Storage: PATH, model:NAME, or nbd://, s3://...
    ///
    /// Takes the same values as --on of 'foreread compare'. A file or block device is only read, bypassing the page
    /// cache. The files of the trace are mapped one after the other onto the file or device, which must be as large as
    /// all of them together; otherwise select one file with --only. A run on a file or device is explained from its
    /// event log, which is kept in an unnamed temporary file until the end. 'foreread list models' lists the models;
    /// 'foreread probe PATH -o FILE.toml' makes a model of your storage.
    #[arg(long, value_name = "SOURCE", default_value = "model:rbd")]
    pub on: SourceName,
    /// Policy to explain [default: auto]
    ///
    /// If not given, foreread uses FOREREAD_POLICY, then the policy that a configuration file sets (see 'foreread serve
    /// --help'), then auto.
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<String>,
    /// Memory for cached data, such as 512M
    #[arg(long, alias = "cache", value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,
    #[command(flatten)]
    pub replay: ReplayArgs,
    /// Seed of the run
    #[arg(long, value_name = "N", default_value_t = 1, hide_short_help = true)]
    pub seed: u64,
    /// Write JSON to a file, or to stdout
    ///
    /// Schema foreread.explain/1. The JSON contains every file; the text has the 12 with the longest stalls. With '-',
    /// the JSON replaces the text. Write a name without a
    /// dot as ./NAME.
    #[arg(long, value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<OsString>,
}

pub fn run(args: &ExplainArgs) -> Result<(), Fail> {
    let (plan, policy) = check(args)?;
    let outputs = Outputs::new(&[("json", args.json.as_deref())])?;
    let explained = explain::explain(&plan, policy, next(args), &mut Bar::new())?;
    outputs.emit(
        || explain::render(&explained),
        || json::pretty(&explained),
        &[],
    )
}

/// The `compare` of the same reads: the arguments of this command without those that `compare` has no use for.
fn next(args: &ExplainArgs) -> String {
    let mut words = reads::again(Some(&args.on), &["--policy", "--json"]);
    if let Some(command) = words.iter_mut().find(|word| *word == "explain") {
        *command = "compare".to_string();
    }
    if !words.iter().any(|word| word == "--on") {
        words.extend(["--on".to_string(), args.on.to_string()]);
    }
    in_shell(words)
}

fn check(args: &ExplainArgs) -> Result<(ComparePlan, PolicyDraft), Fail> {
    let on = source::parse(&args.on)?;
    let config = config::load()?;
    let policy = one(&config.policy(args.policy.as_deref()).value)?;
    let (workload, replay) = match reads::parse(Some(&args.trace))? {
        reads::RequestedReads::Trace(path) => {
            (None, Some(Arc::new(reads::ready(&path, &args.replay)?)))
        }
        reads::RequestedReads::Workload(name) => {
            args.replay.none_is_set()?;
            (Some(name), None)
        }
        reads::RequestedReads::Usual => (None, None),
    };
    let plan = ComparePlan {
        workload,
        replay,
        on: Some(on),
        cache_bytes: args.memory,
        seed: args.seed,
        site: config.site(args.policy.is_some()),
        ..ComparePlan::default()
    };
    Ok((plan, policy))
}

/// Parses the policy; exactly one is allowed.
fn one(text: &str) -> Result<PolicyDraft, Fail> {
    let (policies, _) = policy_list::parse(Some(text))?;
    // Ignores rows that the list adds in front of the policy that the user named.
    let named: Vec<PolicyDraft> = policies
        .into_iter()
        .filter(|p| p.info.name != "none" || text == "none")
        .collect();
    match <[PolicyDraft; 1]>::try_from(named) {
        Ok([policy]) => Ok(policy),
        Err(_) => {
            let remedy = "name one policy; 'foreread compare' measures several";
            Err(Fail::input(
                "one policy is explained at a time",
                format!("--policy '{text}'"),
                remedy,
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fail::input_line;

    #[test]
    fn one_policy_is_one() {
        assert_eq!(
            one("linux-6.18:max=1M").expect("one").to_string(),
            "linux-6.18:max=1M"
        );
        assert_eq!(one("none").expect("one").to_string(), "none");
        assert!(input_line(one("oracle")).contains("one policy is explained at a time"));
    }
}
