//! Parses the value of `--policy`: `a,b:key=value,key=value,...|all`.
//!
//! Commas separate both policies and parameters: a part without `:` that contains `=` is a parameter of the policy
//! before it. The policies keep the order in which they are listed. If `none` is missing, it is added as the first policy, because the
//! other policies are compared with it.

use crate::fail::Fail;
use foreread_core::policy::{PolicyDraft, PolicySpec};
use foreread_history::{parse as parse_policy, policies};
use foreread_lab::compare::OracleRow;
use foreread_report::names;
use foreread_sim::limits::ORACLE;

const LIST: &str = "foreread list policies";

/// Parses the list of policies. Returns the policies in the order of the list, and which tables get a row for the oracle. If there is no
/// argument, no policies are returned, and the default policies are compared.
pub fn parse(text: Option<&str>) -> Result<(Vec<PolicyDraft>, OracleRow), Fail> {
    let (texts, mut oracle) = match text {
        None => return Ok((Vec::new(), OracleRow::Usual)),
        Some("all") => (
            policies()
                .iter()
                .map(|info| info.name.to_string())
                .collect(),
            OracleRow::OnModels,
        ),
        Some(text) => (split(text)?, OracleRow::Usual),
    };
    let mut policies = Vec::new();
    for text in &texts {
        if text == "kernel" {
            let remedy = "remove it: for a file, the row 'kernel' is added automatically";
            return Err(Fail::input(
                "not a policy of foreread",
                "'kernel' in --policy",
                remedy,
            ));
        }
        if text == "all" {
            let place = format!("'{text}' in --policy");
            return Err(Fail::input(
                "a group of policies must be the only entry of the list",
                place,
                "remove the others",
            ));
        }
        if texts.iter().filter(|t| *t == text).count() > 1 {
            return Err(Fail::input(
                "named twice",
                format!("'{text}' in --policy"),
                "remove one of them",
            ));
        }
        if text == ORACLE {
            oracle = OracleRow::Asked;
            continue;
        }
        policies.push(parse_policy(text).map_err(|error| names::refused("policy", &error, LIST))?);
    }
    if policies.iter().all(|p| p.info.name != "none") {
        policies.insert(0, PolicySpec::none().into());
    }
    Ok((policies, oracle))
}

/// Splits the list into `NAME` and `NAME:key=value,...`.
fn split(text: &str) -> Result<Vec<String>, Fail> {
    let mut policies: Vec<String> = Vec::new();
    for part in text.split(',').map(str::trim) {
        if part.is_empty() {
            return Err(Fail::input(
                "no policy given",
                format!("--policy '{text}'"),
                &format!("'{LIST}' lists them"),
            ));
        }
        if part.contains(':') || !part.contains('=') {
            policies.push(part.to_string());
            continue;
        }
        match policies.last_mut().filter(|before| before.contains(':')) {
            Some(before) => before.extend([",", part]),
            None => {
                let place = format!("'{part}' in --policy '{text}'");
                return Err(Fail::input(
                    "parameter without a policy",
                    place,
                    "write NAME:key=value,key=value",
                ));
            }
        }
    }
    Ok(policies)
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreread_history::OPPONENTS;

    fn texts(list: &str) -> Vec<String> {
        parse(Some(list))
            .expect(list)
            .0
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    fn error(list: &str) -> String {
        crate::fail::input_line(parse(Some(list)))
    }

    #[test]
    fn commas_belong_to_the_list_or_to_the_policy_before() {
        assert_eq!(texts("none,linux-6.18"), ["none", "linux-6.18"]);
        assert_eq!(
            texts("linux-6.18:max=1M,rbd-plain:trigger=3,max=1M,none"),
            ["linux-6.18:max=1M", "rbd-plain:trigger=3,max=1M", "none"]
        );
        assert_eq!(texts(" none , rbd-plain "), ["none", "rbd-plain"]);
    }

    #[test]
    fn none_is_added_in_front_if_it_is_missing() {
        assert_eq!(texts("rbd-plain"), ["none", "rbd-plain"]);
        assert_eq!(texts("rbd-plain,none"), ["rbd-plain", "none"]);
        assert!(parse(None).expect("the usual").0.is_empty());
        assert_eq!(texts("all").len(), policies().len());
    }

    /// Opponents are in no list, and are accepted by name.
    #[test]
    fn opponents_are_taken_by_name() {
        let opponents: Vec<&str> = OPPONENTS.iter().map(|info| info.name).collect();
        assert_eq!(
            texts(&format!("none,{}", opponents.join(",")))[1..],
            opponents
        );
    }

    #[test]
    fn the_oracle_is_not_a_policy() {
        let (policies, oracle) = parse(Some("rbd-plain,oracle")).expect("a list");
        assert_eq!((policies.len(), oracle), (2, OracleRow::Asked));
        assert_eq!(parse(Some("all")).expect("all").1, OracleRow::OnModels);
        assert_eq!(parse(Some("none")).expect("one").1, OracleRow::Usual);
        assert!(error("oracle,oracle").contains("named twice"));
    }

    #[test]
    fn errors_have_a_remedy() {
        for (list, part) in [
            ("", "no policy given"),
            ("none,,rbd-plain", "no policy given"),
            ("max=1M", "parameter without a policy"),
            ("none,max=1M", "parameter without a policy"),
            ("none:max=1", "which has none"),
            ("rbd-plain:trigger=x", "is not a whole number"),
            ("rbd-plain:max=1,max=2", "bad policy"),
            ("rbd-plain:max=99999999999999999999", "is too large"),
            ("rbd-plain:trigger", "bad policy"),
            ("none,none", "named twice"),
            ("none,kernel", "is added automatically"),
            (
                "none,all",
                "a group of policies must be the only entry of the list: 'all'",
            ),
            (
                "linux-6.18:max=capacty",
                "is not a size such as 128K, capacity, capacity-2010b",
            ),
        ] {
            assert!(error(list).contains(part), "{list}: {}", error(list));
        }
    }
}
