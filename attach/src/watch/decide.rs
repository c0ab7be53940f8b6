//! When `read_ahead_kb` is changed: what was found in one recording after the other, and nothing else.
//!
//! ```text
//!   old 128      found: 2048   2048   2048    nothing   nothing
//!   decision:           once   SET    keep    once      BACK to 128
//! ```
//! - A change needs the same answer in two recordings one after the other. One with too few reads has no answer, and the count
//!   begins anew.
//! - All gains are over the **old** value, the one before the first change, and at least `min_gain`.
//! - A value that was set stays while it gains half of `min_gain`, and while no other would save `min_gain` of its time: a gain that
//!   is near the limit sets the value once, and does not set it back and again.
//! - Where memory is short no larger value is set: the comparison has memory for all.
//! - A value that `doctor` finds suspicious gives way to the advised one where reads are page faults or memory is short, if the
//!   reads of the recording lose nothing by it; later no larger one is set.
//! - A value that something else has set is not touched again.
//!
//! No clock, no device, no file.

/// The part of `min_gain` that keeps a value. Chosen: between the two limits is more than one recording differs from the next.
const KEPT_GAIN: f64 = 0.5;

/// What a recording shows about the values that may be set, in KiB.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The value to set, if one gains over the old one, and how long reads wait with it / with the old one.
    pub best: Option<(u64, f64)>,
    /// Each value that was compared, and the mean time that a read waits with it, in seconds.
    pub times: Vec<(u64, f64)>,
    pub harm: Option<Harm>,
}

/// What readahead does beside the reads that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Harm {
    /// Files were read again soon after they had been dropped.
    pub is_memory_short: bool,
    /// The value to have instead of one that is too large, in KiB.
    pub advised: Option<u64>,
}

impl Answer {
    fn time(&self, value: u64) -> Option<f64> {
        let mut times = self.times.iter();
        times.find(|(one, _)| *one == value).map(|(_, time)| *time)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// The value that is set is the one to have.
    Keep,
    /// This one would be better; the next recording has to say so too.
    Once(u64),
    /// Set this one: two recordings say so.
    Set(u64),
    /// The recording says nothing.
    NoAnswer,
    /// Something else has set a value, which stays.
    Foreign,
}

#[derive(Clone, Debug)]
pub struct Decider {
    old: u64,
    now: u64,
    min_gain: f64,
    /// What the latest recording asked for.
    once: Option<u64>,
    foreign: bool,
    /// What is to replace a value that harms.
    advised: Option<u64>,
    /// No larger value is set.
    most: u64,
}

impl Decider {
    /// Begins at the value that is set.
    #[must_use]
    pub fn new(old: u64, min_gain: f64) -> Decider {
        Decider {
            old,
            now: old,
            min_gain,
            once: None,
            foreign: false,
            advised: None,
            most: u64::MAX,
        }
    }

    /// Looks at the value that is really set.
    pub fn look(&mut self, set: u64) {
        self.foreign |= set != self.now;
    }

    pub fn set(&mut self, value: u64) {
        if self.advised == Some(value) {
            self.most = value;
        }
        (self.now, self.once) = (value, None);
    }

    /// Takes the answer of a recording.
    pub fn decide(&mut self, answer: Option<&Answer>) -> Decision {
        if self.foreign {
            return Decision::Foreign;
        }
        let Some(answer) = answer else {
            self.once = None;
            return Decision::NoAnswer;
        };
        let wanted = self.harmless(answer);
        if wanted == self.now {
            self.once = None;
            return Decision::Keep;
        }
        if self.once.replace(wanted) == Some(wanted) {
            Decision::Set(wanted)
        } else {
            Decision::Once(wanted)
        }
    }

    /// What is wanted, but nothing that harms.
    fn harmless(&mut self, answer: &Answer) -> u64 {
        self.advised = None;
        let mut wanted = self.wanted(answer).min(self.most);
        let Some(harm) = answer.harm else {
            return wanted;
        };
        if harm.is_memory_short {
            wanted = wanted.min(self.now);
        }
        let loses = |advised| {
            let [advised, now] = [answer.time(advised)?, answer.time(self.now)?];
            Some(advised > now * (1.0 + KEPT_GAIN * self.min_gain))
        };
        match harm.advised.filter(|advised| *advised < wanted) {
            Some(advised) if loses(advised) == Some(false) => {
                self.advised = Some(advised);
                advised
            }
            _ => wanted,
        }
    }

    fn wanted(&self, answer: &Answer) -> u64 {
        let worth = 1.0 - self.min_gain;
        let time = |value: u64| answer.time(value);
        let best = answer
            .best
            .filter(|(_, ratio)| *ratio <= worth)
            .map(|(best, _)| best);
        let still_good = |now: f64| {
            let gains =
                time(self.old).is_some_and(|old| now <= old * (1.0 - KEPT_GAIN * self.min_gain));
            gains && !best.and_then(time).is_some_and(|best| best <= now * worth)
        };
        if self.now != self.old && time(self.now).is_some_and(still_good) {
            return self.now;
        }
        best.unwrap_or(self.old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(times: &[(u64, f64)]) -> Answer {
        let old = times[0].1;
        let best = times
            .iter()
            .copied()
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(value, time)| (value, time / old));
        Answer {
            best: best.filter(|(_, ratio)| *ratio < 0.9),
            times: times.to_vec(),
            harm: None,
        }
    }

    /// The decisions of recordings in turn, from 128; what is to be set is set.
    fn run(min_gain: f64, answers: &[Option<Answer>]) -> Vec<Decision> {
        let mut decider = Decider::new(128, min_gain);
        let decide = |answer: &Option<Answer>| {
            decider.look(decider.now);
            let decision = decider.decide(answer.as_ref());
            if let Decision::Set(value) = decision {
                decider.set(value);
            }
            decision
        };
        answers.iter().map(decide).collect()
    }

    #[test]
    fn the_same_answer_twice_changes_and_its_end_changes_back() {
        let wide = Some(answer(&[(128, 4.0), (512, 2.5), (2048, 1.0)]));
        let none = Some(answer(&[(128, 4.0), (512, 3.9), (2048, 4.1)]));
        let all = [
            wide.clone(),
            wide.clone(),
            wide.clone(),
            none.clone(),
            none.clone(),
            none,
        ];
        use Decision::{Keep, Once, Set};
        assert_eq!(
            run(0.1, &all),
            [Once(2048), Set(2048), Keep, Once(128), Set(128), Keep]
        );
    }

    #[test]
    fn two_answers_that_differ_or_are_not_one_after_the_other_change_nothing() {
        let wide = Some(answer(&[(128, 4.0), (512, 2.5), (2048, 1.0)]));
        let narrow = Some(answer(&[(128, 4.0), (512, 1.0), (2048, 1.5)]));
        use Decision::{Keep, NoAnswer, Once, Set};
        assert_eq!(
            run(0.1, &[wide.clone(), narrow.clone(), wide.clone()]),
            [Once(2048), Once(512), Once(2048)]
        );
        assert_eq!(
            run(0.1, &[wide.clone(), None, wide.clone()]),
            [Once(2048), NoAnswer, Once(2048)]
        );
        let none = Some(answer(&[(128, 4.0), (2048, 3.9)]));
        assert_eq!(
            run(0.1, &[wide.clone(), none, wide.clone()]),
            [Once(2048), Keep, Once(2048)]
        );
        // What is set may be replaced by what is much better, by two answers as well.
        let decisions = run(
            0.1,
            &[wide.clone(), wide, narrow.clone(), narrow.clone(), narrow],
        );
        assert_eq!(
            decisions,
            [Once(2048), Set(2048), Once(512), Set(512), Keep]
        );
    }

    #[test]
    fn a_gain_below_the_limit_is_none_and_what_is_set_stays_while_it_is_nearly_the_best() {
        let small = Some(answer(&[(128, 4.0), (512, 3.5)]));
        assert_eq!(
            run(0.1, &[small.clone(), small.clone()]),
            [Decision::Once(512), Decision::Set(512)]
        );
        assert_eq!(
            run(0.2, &[small.clone(), small]),
            [Decision::Keep, Decision::Keep]
        );
        let wide = Some(answer(&[(128, 4.0), (512, 1.05), (2048, 1.0)]));
        let near = Some(answer(&[(128, 4.0), (512, 0.95), (2048, 1.0)]));
        use Decision::{Keep, Once, Set};
        assert_eq!(
            run(0.1, &[wide.clone(), wide, near.clone(), near]),
            [Once(2048), Set(2048), Keep, Keep]
        );
    }

    /// A gain of 10 % and less in turn, then less than half of it.
    #[test]
    fn a_gain_that_wavers_about_the_limit_sets_the_value_once() {
        let of = |time| Some(answer(&[(128, 4.0), (512, time)]));
        let (above, below, gone) = (of(3.55), of(3.65), of(3.85));
        assert!(
            above.as_ref().is_some_and(|a| a.best.is_some())
                && below.as_ref().is_some_and(|a| a.best.is_none())
        );
        use Decision::{Keep, Once, Set};
        let waver = [above.clone(), below.clone(), above.clone(), above.clone()];
        assert_eq!(run(0.1, &waver), [Once(512), Keep, Once(512), Set(512)]);
        let set = [
            above.clone(),
            above.clone(),
            below.clone(),
            below.clone(),
            above,
            below,
        ];
        assert_eq!(
            run(0.1, &set),
            [Once(512), Set(512), Keep, Keep, Keep, Keep]
        );
        let over = [set[0].clone(), set[1].clone(), gone.clone(), gone];
        assert_eq!(run(0.1, &over), [Once(512), Set(512), Once(128), Set(128)]);
    }

    #[test]
    fn what_something_else_has_set_stays() {
        let wide = answer(&[(128, 4.0), (2048, 1.0)]);
        let mut decider = Decider::new(128, 0.1);
        assert_eq!(decider.decide(Some(&wide)), Decision::Once(2048));
        decider.look(4096);
        assert_eq!(decider.decide(Some(&wide)), Decision::Foreign);
        decider.look(128);
        assert_eq!(
            decider.decide(Some(&wide)),
            Decision::Foreign,
            "also afterwards"
        );
    }

    const SHORT: Harm = Harm {
        is_memory_short: true,
        advised: None,
    };
    const TOO_LARGE: Harm = Harm {
        is_memory_short: false,
        advised: Some(128),
    };

    /// From a value of 8 MiB that `doctor` finds suspicious.
    fn from_large(answers: &[Answer]) -> Vec<Decision> {
        let mut decider = Decider::new(8192, 0.1);
        let decide = |answer: &Answer| {
            let decision = decider.decide(Some(answer));
            if let Decision::Set(value) = decision {
                decider.set(value);
            }
            decision
        };
        answers.iter().map(decide).collect()
    }

    #[test]
    fn a_suspicious_value_gives_way_where_it_harms_and_does_not_come_back() {
        let as_good = answer(&[(8192, 1.0), (128, 1.02)]);
        let harmed = Answer {
            harm: Some(TOO_LARGE),
            ..as_good.clone()
        };
        use Decision::{Keep, Once, Set};
        let all = [
            harmed.clone(),
            harmed.clone(),
            as_good.clone(),
            as_good.clone(),
        ];
        assert_eq!(from_large(&all), [Once(128), Set(128), Keep, Keep]);
        assert_eq!(from_large(&[as_good.clone(), as_good]), [Keep, Keep]);
        let needed = Answer {
            harm: Some(TOO_LARGE),
            ..answer(&[(8192, 1.0), (128, 1.2)])
        };
        assert_eq!(from_large(&[needed.clone(), needed]), [Keep, Keep]);
    }

    #[test]
    fn where_memory_is_short_no_larger_value_is_set() {
        let short = |times| {
            Some(Answer {
                harm: Some(SHORT),
                ..answer(times)
            })
        };
        let wide = [(128, 4.0), (512, 2.5), (2048, 1.0)];
        let narrow = [(128, 4.0), (32, 2.0)];
        use Decision::{Keep, Once, Set};
        assert_eq!(run(0.1, &[short(&wide), short(&wide)]), [Keep, Keep]);
        assert_eq!(
            run(0.1, &[short(&narrow), short(&narrow)]),
            [Once(32), Set(32)]
        );
    }
}
