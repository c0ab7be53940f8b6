//! Random stories: a policy, a file, a few open descriptions, and what is done with them.
//!
//! A story is a mix of readers that go on (in order, in strides, backwards), jumps, re-reads, faults, hints and pages
//! that are dropped. Everything follows from one seed. Never: a step whose meaning depends on an earlier one, so that
//! any part of a story is a story.

use super::pages::P;
use foreread_core::event::Advice;

/// Deterministic random numbers (xorshift64*; Vigna, 2016).
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11
    }

    /// A number in `[0, n)`.
    pub fn below(&mut self, n: i64) -> i64 {
        (self.next() % n.max(1) as u64) as i64
    }

    pub fn one_in(&mut self, n: i64) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as i64) as usize]
    }
}

/// One thing that is done.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    Read {
        open: u32,
        start: i64,
        len: i64,
    },
    Fault {
        open: u32,
        page: i64,
        advice: Advice,
    },
    Advise {
        open: u32,
        advice: Advice,
        start: i64,
        len: i64,
    },
    Drop {
        start: i64,
        len: i64,
    },
}

/// Everything that a comparison needs.
#[derive(Clone, Debug)]
pub struct Story {
    pub policy: &'static str,
    pub context: &'static str,
    pub max: i64,
    pub min: i64,
    pub size: i64,
    /// Open descriptions that are read through.
    opens: i64,
    pub ops: Vec<Op>,
}

/// Open descriptions that a story may have.
pub const OPENS: u32 = 3;

/// Policies and the values of `context`.
pub const POLICIES: [(&str, &str); 10] = [
    ("linux-2.6.0", ""),
    ("linux-2.6.0-mm", ""),
    ("linux-2.6.0-mm-fix", ""),
    ("linux-2.6.23", ""),
    ("linux-2.6.31", ""),
    ("linux-thrashsafe", ""),
    ("linux-3.12", "off"),
    ("linux-3.12", "conservative"),
    ("linux-3.12", "slow-ramp"),
    ("linux-3.12", "original"),
];

/// What a story has more of than others.
#[derive(Clone, Copy)]
enum Kind {
    Reads,
    Faults,
    Hints,
}

/// A reader that goes on by the same step.
struct Reader {
    open: u32,
    at: i64,
    step: i64,
    len: i64,
}

impl Story {
    pub fn new(seed: u64) -> Story {
        let mut dice = Dice::new(seed);
        let (policy, context) = POLICIES[(seed % POLICIES.len() as u64) as usize];
        let max = dice.pick(&[0, 1, 2, 3, 4, 8, 12, 32, 32, 32, 64, 100, 128, 128, 256]);
        let min = dice.pick(&[1, 1, 4, 4, 8, 8, 16, 40]);
        let pages = dice.pick(&[0, 1, 2, 5, 37, 200, 200, 1000, 1000, 5000, 5000, 1 << 40]);
        let size = pages * P + dice.pick(&[0, 0, 1, 123, 4095]);
        let opens = dice.pick(&[1, 1, i64::from(OPENS)]);
        let mut story = Story {
            policy,
            context,
            max,
            min,
            size,
            opens,
            ops: Vec::new(),
        };
        let mut readers: Vec<Reader> = (0..1 + dice.below(4))
            .map(|_| story.reader(&mut dice))
            .collect();
        let wild = dice.pick(&[2, 3, 6, 12, 40]);
        let kind = dice.pick(&[
            Kind::Reads,
            Kind::Reads,
            Kind::Reads,
            Kind::Faults,
            Kind::Faults,
            Kind::Hints,
        ]);
        for _ in 0..20 + dice.below(60) {
            let op = if dice.one_in(wild) {
                story.jump(&mut dice, kind)
            } else {
                story.go_on(&mut dice, &mut readers)
            };
            story.ops.push(op);
        }
        if dice.one_in(50) {
            story.storm(&mut dice);
        }
        story
    }

    /// Faults all over the file, enough to end reading around them, and some on pages that are there.
    fn storm(&mut self, dice: &mut Dice) {
        for i in 0..250 {
            let (page, advice) = (dice.below(self.size / P + 1), Advice::Normal);
            let back = 1 + dice.below(4) as usize;
            let again = self.ops.len().checked_sub(back).map(|at| self.ops[at]);
            let op = again
                .filter(|_| i > 90 && dice.one_in(3))
                .unwrap_or(Op::Fault {
                    open: 0,
                    page,
                    advice,
                });
            self.ops.push(op);
        }
    }

    fn reader(&self, dice: &mut Dice) -> Reader {
        let len = self.length(dice);
        let step = match dice.below(8) {
            0 => -len,
            1 => len + P * dice.below(6),
            2 => P * (dice.below(80) - 40),
            _ => len,
        };
        let at = if dice.one_in(2) { 0 } else { self.place(dice) };
        Reader {
            open: dice.below(self.opens) as u32,
            at,
            step,
            len,
        }
    }

    /// Somewhere in the file, now and then at its end or past it; at its front most of the time when it is huge.
    fn place(&self, dice: &mut Dice) -> i64 {
        let page = match dice.below(8) {
            0 => (self.size / P - dice.below(40)).max(0),
            1 => self.size / P + dice.below(4),
            2..=5 => dice.below((self.size / P + 1).min(300)),
            _ => dice.below(self.size / P + 1),
        };
        page * P + if dice.one_in(4) { dice.below(P) } else { 0 }
    }

    /// Bytes of a read: mostly whole pages, now and then odd, none, or more than any window.
    fn length(&self, dice: &mut Dice) -> i64 {
        match dice.below(16) {
            0 => dice.below(2 * P),
            1 => dice.below(20 * P),
            2 => P * (1 + dice.below(3 * self.max + 40)),
            3 => P * dice.pick(&[self.max, self.max + 1, 2 * self.max]),
            4 => 600 * P,
            5 => 0,
            6..=8 => P * dice.pick(&[2, 3, 4, 8, 16, 16]),
            9 => 1 + dice.below(600),
            _ => P,
        }
    }

    fn go_on(&self, dice: &mut Dice, readers: &mut [Reader]) -> Op {
        let which = dice.below(readers.len() as i64) as usize;
        if dice.one_in(25) {
            readers[which] = self.reader(dice);
        }
        let reader = &mut readers[which];
        let start = reader.at.max(0);
        // Reads go past the end of a file only so far.
        reader.at = if start > self.size + 40 * P {
            0
        } else {
            start + reader.step
        };
        Op::Read {
            open: reader.open,
            start,
            len: reader.len,
        }
    }

    fn jump(&self, dice: &mut Dice, kind: Kind) -> Op {
        let open = dice.below(self.opens) as u32;
        let start = self.place(dice);
        let deed = match kind {
            Kind::Reads => dice.below(14),
            Kind::Faults => dice.below(24),
            Kind::Hints => dice.pick(&[0, 0, 0, 1, 4, 20, 20]),
        };
        match deed {
            0 => {
                let advice = [
                    Advice::Normal,
                    Advice::Sequential,
                    Advice::Random,
                    Advice::WillNeed,
                ];
                let most = 40_000 * P;
                // To the end of a huge file is more than the cache can take.
                let len = if dice.one_in(4) && self.size - start < most {
                    0
                } else {
                    self.length(dice).max(1)
                };
                Op::Advise {
                    open,
                    advice: dice.pick(&advice),
                    start,
                    len,
                }
            }
            1 | 2 => Op::Drop {
                start,
                len: self.length(dice),
            },
            3 => self.again(dice, open, start),
            4..=13 => Op::Read {
                open,
                start,
                len: self.length(dice),
            },
            // Faults near each other, so that marks and neighbours are met.
            _ => {
                let page = if dice.one_in(3) {
                    start / P
                } else {
                    self.ops.last().map_or(0, page_of) + dice.below(24)
                };
                let advice = [
                    Advice::Normal,
                    Advice::Normal,
                    Advice::Sequential,
                    Advice::Random,
                ];
                Op::Fault {
                    open,
                    page,
                    advice: dice.pick(&advice),
                }
            }
        }
    }

    /// One of the last reads once more.
    fn again(&self, dice: &mut Dice, open: u32, start: i64) -> Op {
        let back = 1 + dice.below(5) as usize;
        let earlier = self.ops.len().checked_sub(back).map(|i| self.ops[i]);
        earlier.unwrap_or(Op::Read {
            open,
            start,
            len: P,
        })
    }

    /// `NAME:key=value,...`.
    pub fn spec(&self) -> String {
        let mut text = format!("{}:max={}", self.policy, self.max * P);
        if self.policy.starts_with("linux-2.6.0") || self.policy == "linux-thrashsafe" {
            text += &format!(",min={}", self.min * P);
        }
        if !self.context.is_empty() {
            text += &format!(",context={}", self.context);
        }
        text
    }
}

/// The page where an operation begins.
fn page_of(op: &Op) -> i64 {
    match *op {
        Op::Read { start, .. } | Op::Advise { start, .. } | Op::Drop { start, .. } => start / P,
        Op::Fault { page, .. } => page,
    }
}
