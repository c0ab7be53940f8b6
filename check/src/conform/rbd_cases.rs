//! Test reads for librbd and `rbd-aligned`: those of the published tables, and any number of random sequences.
//!
//! No test read begins beyond the end of the image, because librbd refuses such a read before its readahead code sees it.

use foreread_core::policy::PolicySpec;
use foreread_sim::rng::{Rng, mix};

/// The worked examples of docs/spec/rbd-readahead.md 9, from the golden table.
const TABLE: &str = include_str!("../../../core/tests/golden/rbd-aligned.txt");
/// Image sizes for random sequences, in bytes. There are few, so that images can be created once and reused.
const SIZES: [u64; 3] = [1 << 20, (37 << 20) + 512, 64 << 20];
/// Image layouts: object, stripe unit (0: an object) and stripe count.
const LAYOUTS: [[u64; 3]; 3] = [[4 << 20, 0, 1], [1 << 20, 0, 1], [4 << 20, 64 << 10, 4]];

/// A test case: the settings of librbd and of the policy, and the reads.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: String,
    /// `rbd-aligned` with all its values.
    pub policy: PolicySpec,
    /// Size of the image in bytes.
    pub size: u64,
    /// Offset and length of each read, in order.
    pub reads: Vec<(u64, u64)>,
}

impl Case {
    /// Returns the value of one of the policy's parameters.
    pub fn value(&self, key: &str) -> u64 {
        let values = self.policy.info.params.iter().zip(&self.policy.values);
        values
            .into_iter()
            .find(|(param, _)| param.key == key)
            .map_or(0, |(_, value)| *value)
    }
}

/// Returns the published cases for which librbd can be configured: those without a smallest request size (`min`), which librbd cannot set.
pub fn published() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in TABLE.lines().map(str::trim) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let Some(head) = line.strip_prefix("case ") {
            let parts: Vec<&str> = head.split('|').map(str::trim).collect();
            if let [name, policy, size] = parts[..]
                && let (Ok(policy), Ok(size)) = (PolicySpec::parse(policy), size.parse())
            {
                cases.push(Case {
                    name: name.to_string(),
                    policy,
                    size,
                    reads: Vec::new(),
                });
            }
        } else if let (["reads", offset, len, rest @ ..], Some(case)) =
            (&words[..], cases.last_mut())
        {
            let number = |word: &str| word.trim_start_matches('x').parse::<u64>().unwrap_or(0);
            let (offset, len) = (number(offset), number(len));
            let times = rest.first().map_or(1, |word| number(word));
            case.reads
                .extend((0..times).map(|i| (offset + i * len, len)));
        }
    }
    cases.retain(|case| case.value("min") == 0);
    cases
}

/// Returns the `nth` random sequence of reads that a seed generates.
pub fn random(seed: u64, nth: u64) -> Case {
    let mut rng = Rng::new(mix(seed) ^ nth);
    let size = SIZES[rng.below(SIZES.len() as u64) as usize];
    let [object, unit, count] = LAYOUTS[rng.below(LAYOUTS.len() as u64) as usize];
    let max = match rng.below(4) {
        0 => 512 << 10,
        1 => 4 << 20,
        2 => 1 << (12 + rng.below(11)),
        _ => 1 + rng.below(6 << 20),
    };
    let after = if rng.below(3) == 0 {
        1 + rng.below(8 << 20)
    } else {
        0
    };
    let text = format!(
        "rbd-aligned:trigger={},max={max},disable-after={after},object={object},stripe-unit={unit},stripe-count={count}",
        if rng.below(2) == 0 { 10 } else { rng.below(13) }
    );
    let policy = PolicySpec::parse(&text).unwrap_or_else(|error| unreachable!("{text}: {error}"));
    Case {
        name: format!("sequence {nth} of seed {seed}"),
        policy,
        size,
        reads: sequence(&mut rng, size),
    }
}

/// Runs, gaps, steps back, repetitions, empty reads, and reads beyond the end.
fn sequence(rng: &mut Rng, size: u64) -> Vec<(u64, u64)> {
    let wanted = 60 + rng.below(300);
    let (mut reads, mut at) = (Vec::new(), 0);
    while (reads.len() as u64) < wanted {
        let len = [
            512,
            4096,
            65536,
            1 + rng.below(131_072),
            1 << (9 + rng.below(12)),
        ][rng.below(5) as usize];
        match rng.below(8) {
            0 => at = 0,
            1 => at = rng.below(size),
            2 => at += 1 + rng.below(8192),
            3 => at = at.saturating_sub(1 + rng.below(8192)),
            _ => {}
        }
        for _ in 0..1 + rng.below(60) {
            let len = if rng.below(40) == 0 { 0 } else { len };
            if at >= size {
                at = rng.below(size);
            }
            reads.push((at, len));
            at += len;
        }
    }
    reads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_case_that_can_be_asked_is_there() {
        let cases = published();
        assert_eq!(
            cases.len(),
            TABLE.matches("\ncase ").count() - 2,
            "two have a smallest request"
        );
        assert!(cases.iter().all(|case| !case.reads.is_empty()));
        let t7 = cases.iter().find(|case| case.name == "T7").expect("T7");
        assert_eq!(
            (t7.value("stripe-unit"), t7.value("max"), t7.reads.len()),
            (64 << 10, 512 << 10, 600)
        );
    }

    #[test]
    fn sequences_differ_and_are_the_same_again() {
        assert_eq!(random(1, 2).reads, random(1, 2).reads);
        assert_ne!(random(1, 2).reads, random(1, 3).reads);
        for nth in 0..100 {
            let case = random(7, nth);
            assert!(
                case.reads.len() >= 60 && case.reads.iter().all(|(offset, _)| *offset < case.size)
            );
        }
    }
}
