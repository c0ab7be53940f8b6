//! `foreread explain`: hands a trace and a policy to the lab, prints what readahead did and why, and the JSON.
//!
//! Never: prints a result while something is still being measured.

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
use foreread_lab::explain::{self, ExplainOptions, USUAL_OTHERS, View};
use foreread_report::json;
use std::ffi::OsString;
use std::sync::Arc;

/// Show file by file what readahead did in a trace, and why
///
/// The trace is replayed on a model of a storage, or with --on on a file, a disk or another source. Every read, decision
/// and page of readahead is counted for its file and stream: what was read ahead, used, late, never read, and why readahead was
/// on or off. A reason is the rule that the policy itself named; patterns are recognised by offsets alone, and are called patterns.
/// Below, the same reads with other policies, in paired runs as 'foreread compare' makes them.
///
/// The files' figures add up to the row that 'foreread compare TRACE --on SOURCE --policy POLICY --runs 1' shows. What is
/// explained is the replay, with an empty cache at its start, not the recorded system. Its own readahead
/// is reported if the trace has it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foreread explain app.strace --on model:nvme --file '*.so'
  foreread explain app.frt --only data.db --on /srv/data.db
  foreread explain app.frt --policy rbd-plain --against none,linux-6.18:max=2M")]
pub struct ExplainArgs {
    /// A trace in any known format, or a workload by its name
    #[arg(value_name = "TRACE|WORKLOAD")]
    pub trace: OsString,
    /// PATH, model:NAME, model-live:NAME, or nbd://, s3://...
    ///
    /// What 'foreread compare --on' takes. A file or block device is only read, past the page cache; the files of a trace
    /// are laid out in it one after the other, so it has to be as large as all of them, or --only selects one. Such a
    /// run is explained from its event log, which is kept in an unnamed temporary file until the end. 'foreread list models'
    /// lists the models; 'foreread probe PATH -o FILE.toml' makes one of a storage.
    #[arg(long, value_name = "SOURCE", default_value = "model:rbd")]
    pub on: SourceName,
    /// Policy to explain [default: auto]
    ///
    /// Without it FOREREAD_POLICY, then what a configuration file sets ('foreread serve --help'), then auto.
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<String>,
    /// Policies to compare it with: a,b:k=v [default: five]
    #[arg(long, value_name = "LIST", conflicts_with = "alone")]
    pub against: Option<String>,
    /// Compare with no other policies
    #[arg(long)]
    pub alone: bool,
    /// Show only files whose names contain this; * is any text
    ///
    /// All files are replayed and count in the sums. To replay only some, use --only.
    #[arg(long, value_name = "PATTERN")]
    pub file: Option<String>,
    /// Rows of the table of files
    ///
    /// The file with the longest stall comes first.
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
    /// Memory for what is cached, such as 512M
    #[arg(long, alias = "cache", value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,
    /// Runs of each of the other policies
    #[arg(long, value_name = "N", hide_short_help = true, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: Option<u32>,
    #[command(flatten)]
    pub replay: ReplayArgs,
    /// Seed of the run
    #[arg(long, value_name = "N", default_value_t = 1, hide_short_help = true)]
    pub seed: u64,
    /// Print intervals, and how differences were tested
    ///
    /// In the table of the other policies: the 95 % interval of each ratio, and a line with the test and its correction.
    #[arg(long)]
    pub details: bool,
    /// Write a page with charts to this file
    ///
    /// One file of HTML that loads nothing and runs no script: what the reads of each file found, each
    /// stream with its reason, other policies, every value, and
    /// the JSON inside.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub html: Option<OsString>,
    /// Write JSON to a file, or to stdout
    ///
    /// Schema foreread.explain/1, with every file and stream whatever --file and --limit show. With '-' the JSON takes the
    /// place of the text.
    #[arg(long, value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<OsString>,
}

/// Replays, explains and prints.
pub fn run(args: &ExplainArgs) -> Result<(), Fail> {
    let asked = check(args)?;
    let outputs = Outputs::new(&[
        ("json", args.json.as_deref()),
        ("html", args.html.as_deref()),
    ])?;
    let explained = {
        let mut bar = Bar::new();
        explain::explain(&asked, &mut bar)?
    };
    let view = View {
        file: args.file.clone(),
        rows: args.limit as usize,
        details: args.details,
    };
    if let Some(pattern) = view
        .file
        .as_ref()
        .filter(|_| !explained.files.iter().any(|f| view.shows(&f.name)))
    {
        let remedy =
            "a part of a name, with * for any text ('foreread trace info TRACE' lists files)";
        return Err(Fail::input(
            "no file of the trace has such a name",
            format!("--file '{pattern}'"),
            remedy,
        ));
    }
    outputs.emit(
        || explain::render(&explained, &view),
        || json::pretty(&explained),
        &[("html", &|| explain::page(&explained, &view))],
    )
}

fn check(args: &ExplainArgs) -> Result<ExplainOptions, Fail> {
    let on = source::parse(&args.on)?;
    let config = config::load()?;
    let policy = one(&config.policy(args.policy.as_deref()).value)?;
    let against = match (&args.against, args.alone) {
        (_, true) => Vec::new(),
        (None, false) => usual(),
        (Some(list), false) => policy_list::parse(Some(list))?.0,
    };
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
        runs: args.runs,
        cache_bytes: args.memory,
        seed: args.seed,
        site: config.site(args.policy.is_some()),
        ..ComparePlan::default()
    };
    Ok(ExplainOptions {
        plan,
        policy,
        against,
    })
}

/// The one policy that is named.
fn one(text: &str) -> Result<PolicyDraft, Fail> {
    let (policies, _) = policy_list::parse(Some(text))?;
    // Rows that the list adds come before those that the user named.
    let named: Vec<PolicyDraft> = policies
        .into_iter()
        .filter(|p| p.info.name != "none" || text == "none")
        .collect();
    match <[PolicyDraft; 1]>::try_from(named) {
        Ok([policy]) => Ok(policy),
        Err(_) => {
            let remedy = "name one policy; others go to --against";
            Err(Fail::input(
                "one policy is explained at a time",
                format!("--policy '{text}'"),
                remedy,
            ))
        }
    }
}

fn usual() -> Vec<PolicyDraft> {
    USUAL_OTHERS
        .iter()
        .filter_map(|name| PolicyDraft::parse(name).ok())
        .collect()
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
        for text in ["none,rbd-plain", "linux-6.18,rbd-plain", "oracle"] {
            assert!(
                text == "none,rbd-plain"
                    || input_line(one(text)).contains("one policy is explained at a time")
            );
        }
        assert!(input_line(one("linux-6")).contains("nearest: linux-6.18"));
        assert_eq!(usual().len(), USUAL_OTHERS.len());
    }
}
