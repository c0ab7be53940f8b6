//! Why readahead was on or off for a stream, in one sentence: the rules that the policy named, how often each decided,
//! and what became of it.
//!
//! Only the rule that a policy named is given as its reason. Where it names none, the sentence says so and gives the pattern, as a
//! pattern; hits that ask no policy are counted by the machine. Never: a rule read off the outcome.

use super::share::Share;
use super::watcher::Reasons;
use crate::report::RowKind;
use foreread_core::policy::Why;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// From this part of the readahead on it is worth saying that it was late or unused.
const WORTH_SAYING: f64 = 0.05;

/// Rules in a sentence; the rest is in [`Because::rules`].
const MAX_RULES: usize = 3;

/// Whether readahead was on, and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Because {
    /// Something was read ahead for it.
    pub on: bool,
    /// Why, in one sentence without a full stop.
    pub words: String,
    /// Answers of the policy by the rule it named; the names are those of [`Why::name`], and `unnamed` for windows
    /// without one.
    pub rules: BTreeMap<String, u64>,
}

/// What is known of the stream besides its counters.
pub(super) struct Context<'a> {
    /// The policy's name without values.
    pub policy: &'a str,
    pub kind: RowKind,
    /// How the stream goes, by its offsets.
    pub shape: &'a str,
    /// Its first read asks for all that the file has.
    pub whole: bool,
}

impl Because {
    /// Of a stream with these counters and answers.
    pub(super) fn of(share: &Share, reasons: &Reasons, context: &Context<'_>) -> Because {
        let mut rules: BTreeMap<String, u64> = reasons
            .by_why
            .iter()
            .map(|(why, n)| (why.name().to_string(), *n))
            .collect();
        if reasons.unnamed > 0 {
            rules.insert("unnamed".to_string(), reasons.unnamed);
        }
        let on = share.ra_bytes > 0;
        let words = if on {
            running(share, reasons, context)
        } else {
            idle(share, reasons, context)
        };
        Because { on, words, rules }
    }
}

fn running(share: &Share, reasons: &Reasons, context: &Context<'_>) -> String {
    let mut parts = Vec::new();
    let on = ranked(reasons.by_why.iter().filter(|(why, _)| why.is_on()));
    match reasons.first_on {
        // It began as it went on.
        Some(first) if on.first().is_some_and(|(why, n)| *why == first && *n > 1) => {
            let mut rules: Vec<String> = on.iter().map(|(why, n)| times(*why, *n)).collect();
            shorten(&mut rules);
            parts.push(format!("by {}", rules.join(", by ")));
        }
        Some(first) => {
            let rest = on
                .iter()
                .map(|(why, n)| (*why, n - u64::from(*why == first)))
                .filter(|(_, n)| *n > 0);
            let mut rest: Vec<String> = rest.map(|(why, n)| times(why, n)).collect();
            shorten(&mut rest);
            parts.push(match rest.is_empty() {
                true => format!("by {}", first.words()),
                false => format!("first by {}, then by {}", first.words(), rest.join(", by ")),
            });
        }
        None if reasons.unnamed == 0 && !reasons.by_why.is_empty() => {
            let (why, n) = ranked(reasons.by_why.iter())[0];
            parts.push(format!(
                "only what large reads and rounding to pages need; by {}",
                times(why, n)
            ));
        }
        None => parts.push(format!(
            "{} names no rule; by its offsets the stream is {}",
            context.policy, context.shape
        )),
    }
    let off = ranked(reasons.by_why.iter().filter(|(why, _)| !why.is_on()));
    if let Some((why, n)) = off.first() {
        parts.push(format!("off {} by {}", counted(*n), why.words()));
    }
    parts.extend(fate(share));
    parts.join("; ")
}

/// A sentence has room for some.
fn shorten(rules: &mut Vec<String>) {
    if rules.len() > MAX_RULES {
        rules.truncate(MAX_RULES - 1);
        rules.push("other rules".to_string());
    }
}

/// What became of what was read ahead.
fn fate(share: &Share) -> Option<String> {
    let part = |n: u64, of: u64| if of == 0 { 0.0 } else { n as f64 / of as f64 };
    let vain = part(share.in_vain_bytes(), share.ra_bytes);
    let late = part(share.late_bytes, share.used_bytes);
    let percent = foreread_report::number::percent;
    match (vain >= WORTH_SAYING, late >= WORTH_SAYING) {
        (true, true) => Some(format!(
            "{} % of it never read, {} % of the rest late",
            percent(vain),
            percent(late)
        )),
        (true, false) => Some(format!("{} % of it never read", percent(vain))),
        (false, true) => Some(format!(
            "{} % of it late: read before it had arrived",
            percent(late)
        )),
        (false, false) => None,
    }
}

fn idle(share: &Share, reasons: &Reasons, context: &Context<'_>) -> String {
    if context.kind == RowKind::NoReadahead {
        return "the policy is none".to_string();
    }
    if share.ra_refused_bytes > 0 && share.ra_refused_bytes >= share.ra_planned_bytes {
        return "planned, but refused because the cache is full; allow a larger cache".to_string();
    }
    let off = ranked(reasons.by_why.iter().filter(|(why, _)| !why.is_on()));
    if let [(why, n), ..] = off[..] {
        let more = off
            .get(1)
            .map_or_else(String::new, |(why, n)| format!(", by {}", times(*why, *n)));
        return format!("by {}{more}", times(why, n));
    }
    if context.whole {
        return "the first read asks for the whole file: nothing is left to read ahead".to_string();
    }
    if share.ra_planned_bytes > 0 {
        return "the planned range was cached already, or is behind the end".to_string();
    }
    if let Some((why, _)) = ranked(reasons.by_why.iter()).first() {
        return format!("a window by {}, but no longer than the read", why.words());
    }
    if share.hits == share.demand_reads {
        return "never asked: all it read was cached, read ahead for others or read before"
            .to_string();
    }
    if share.misses == 0 {
        return "never asked: all it read was cached or in flight for others".to_string();
    }
    format!(
        "{} named no rule; by their offsets the reads are {}",
        context.policy, context.shape
    )
}

/// The rules, most frequent first.
fn ranked<'a>(rules: impl Iterator<Item = (&'a Why, &'a u64)>) -> Vec<(Why, u64)> {
    let mut all: Vec<(Why, u64)> = rules.map(|(why, n)| (*why, *n)).collect();
    all.sort_by_key(|(why, n)| (std::cmp::Reverse(*n), *why));
    all
}

fn times(why: Why, n: u64) -> String {
    if n == 1 {
        why.words().to_string()
    } else {
        format!("{} ({n} times)", why.words())
    }
}

fn counted(n: u64) -> String {
    if n == 1 {
        "once".to_string()
    } else {
        format!("{n} times")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(share: Share, by_why: &[(Why, u64)], context: &Context<'_>) -> String {
        let first_on = by_why.iter().map(|(why, _)| *why).find(|why| why.is_on());
        let reasons = Reasons {
            by_why: by_why.iter().copied().collect(),
            unnamed: 0,
            first_on,
        };
        Because::of(&share, &reasons, context).words
    }

    const LINUX: Context<'static> = Context {
        policy: "linux-6.18",
        kind: RowKind::Policy,
        shape: "sequential",
        whole: false,
    };

    #[test]
    fn a_reason_is_the_policys_own() {
        let ran = Share {
            ra_bytes: 100,
            used_bytes: 100,
            ra_planned_bytes: 100,
            ..Share::default()
        };
        assert_eq!(
            words(ran, &[(Why::FileStart, 1), (Why::NextWindow, 9)], &LINUX),
            "first by a read at the start of the file, then by the mark of its window (9 times)"
        );
        assert_eq!(
            words(ran, &[(Why::NextWindow, 9), (Why::Sequential, 1)], &LINUX),
            "by the mark of its window (9 times), by a read that goes on where the last one ended"
        );
        let wasted = Share {
            used_bytes: 40,
            late_bytes: 20,
            unused_bytes: 50,
            unresolved_bytes: 10,
            ..ran
        };
        let text = words(wasted, &[(Why::Context, 1), (Why::NoHistory, 3)], &LINUX);
        assert_eq!(
            text,
            "by cached pages before the read (context); off 3 times by a read that follows no read and too few cached \
             pages (taken for random); 60 % of it never read, 50 % of the rest late"
        );
        assert!(
            words(ran, &[], &LINUX)
                .starts_with("linux-6.18 names no rule; by its offsets the stream is sequential")
        );
    }

    #[test]
    fn each_way_to_be_off_has_its_words() {
        let none = Context {
            policy: "none",
            kind: RowKind::NoReadahead,
            ..LINUX
        };
        let whole = Context {
            whole: true,
            ..LINUX
        };
        let miss = Share {
            demand_reads: 3,
            misses: 3,
            ..Share::default()
        };
        let all = [
            words(miss, &[], &none),
            words(miss, &[(Why::NoHistory, 3)], &LINUX),
            words(miss, &[(Why::FileStart, 1)], &whole),
            words(
                Share {
                    ra_planned_bytes: 9,
                    ra_refused_bytes: 9,
                    ..miss
                },
                &[(Why::Sequential, 3)],
                &LINUX,
            ),
            words(
                Share {
                    ra_planned_bytes: 9,
                    ..miss
                },
                &[(Why::Sequential, 3)],
                &LINUX,
            ),
            words(miss, &[(Why::Sequential, 3)], &LINUX),
            words(
                Share {
                    hits: 3,
                    misses: 0,
                    ..miss
                },
                &[],
                &LINUX,
            ),
            words(
                Share {
                    hits: 2,
                    late_hits: 1,
                    misses: 0,
                    ..miss
                },
                &[],
                &LINUX,
            ),
            words(miss, &[], &LINUX),
        ];
        let distinct: std::collections::BTreeSet<&String> = all.iter().collect();
        assert_eq!(distinct.len(), all.len(), "{all:#?}");
    }
}
