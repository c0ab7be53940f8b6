//! `foreread explain`: hands a trace and a policy to the lab, prints what readahead did and why, and the JSON.
//!
//! Never: prints a result while something is still being measured.

use crate::args::ExplainArgs;
use crate::compare_error::refused;
use crate::config;
use crate::fail::Fail;
use crate::out::{self, JsonTo, json_to};
use crate::policy_list;
use crate::progress::Bar;
use crate::reads::{self, Part};
use crate::source;
use foreread_core::policy::PolicyDraft;
use foreread_lab::compare::{CompareOn, ComparePlan};
use foreread_lab::explain::{self, ExplainError, ExplainOptions, USUAL_OTHERS, View};
use std::sync::Arc;

/// Replays, explains and prints.
pub fn run(args: &ExplainArgs) -> Result<(), Fail> {
    let asked = check(args)?;
    let json = json_to(args.json.as_ref())?;
    let explained = {
        let mut bar = Bar::new();
        explain::explain(&asked, &mut bar).map_err(broken)?
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
    if json != Some(JsonTo::Stdout) {
        out::print(explain::render(&explained, &view))?;
    }
    let Some(to) = json else { return Ok(()) };
    let text = serde_json::to_string_pretty(&explained)
        .expect("a struct of numbers and strings can always be written");
    to.write(&(text + "\n"))
}

fn check(args: &ExplainArgs) -> Result<ExplainOptions, Fail> {
    let on = CompareOn::from(source::parse(&args.on)?);
    let config = config::load()?;
    let policy = one(&config.policy(args.policy.as_deref()).value)?;
    let against = match (&args.against, args.alone) {
        (_, true) => Vec::new(),
        (None, false) => usual(),
        (Some(list), false) => policy_list::parse(Some(list))?.0,
    };
    let part = Part::from(&args.replay);
    let (workload, replay) = match reads::parse(Some(&args.trace))? {
        reads::RequestedReads::Trace(path) => (None, Some(Arc::new(reads::ready(&path, &part)?))),
        reads::RequestedReads::Workload(name) => {
            part.none_is_set("--records")?;
            (Some(name), None)
        }
        reads::RequestedReads::Usual => (None, None),
    };
    let plan = ComparePlan {
        workload,
        replay,
        on: Some(on),
        runs: args.runs,
        cache_bytes: args.cache,
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

fn broken(error: ExplainError) -> Fail {
    match error {
        ExplainError::Compare(error) => refused(error),
        error @ ExplainError::Sums { .. } => Fail::Check(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error<T: std::fmt::Debug>(result: Result<T, Fail>) -> String {
        match result {
            Err(Fail::Input(text)) => text,
            other => panic!("{other:?}"),
        }
    }

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
                    || error(one(text)).contains("one policy is explained at a time")
            );
        }
        assert!(error(one("linux-6")).contains("nearest: linux-6.18"));
        assert_eq!(usual().len(), USUAL_OTHERS.len());
    }
}
