//! Wraps any source so that its reads fail as a test requires.
//!
//! A rule decides what happens to a read, from the read itself and the number of reads before it. If a read does not fail, its bytes are
//! passed on unchanged. The same rule and seed give the same result for the same sequence of reads.
//!
//! ```text
//!   read ──► rule(nth, offset, len) ──► Pass ──► the source
//!                                  ├──► Fail(errno)
//!                                  ├──► Cut(bytes)   the source, but only the first bytes are reported
//!                                  ├──► Slow(pause)  then the source
//!                                  └──► Panic
//! ```

use foreread::source::{Alignment, Defaults, Source, SourceError, WritableSource, writing_of};
use std::io::IoSliceMut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// One read of the wrapped source.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Number of reads before it.
    pub nth: u64,
    pub offset: u64,
    /// Number of bytes that its buffers hold: whole pages, so possibly beyond the end.
    pub len: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultAction {
    /// The read is passed on.
    Pass,
    /// The read fails with this error number.
    Fail(i32),
    /// The read reports at most this many bytes.
    Cut(usize),
    /// The read takes longer by this time.
    Slow(Duration),
    /// The read panics, as if the source had a bug.
    Panic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Other {
    /// [`Source::accept`]: the previously accepted version stays.
    Accept,
    /// [`WritableSource::flush`].
    Flush,
}

/// Which calls of a method other than a read fail, and how many there were.
struct FailingCalls {
    what: Other,
    nth: u64,
    /// Whether all later calls fail too.
    lasting: bool,
    calls: AtomicU64,
}

type Rule = Box<dyn Fn(Call) -> FaultAction + Send + Sync>;

pub struct Faulty<S> {
    inner: S,
    rule: Rule,
    calls: AtomicU64,
    faults: AtomicU64,
    healed: AtomicBool,
    others: Option<FailingCalls>,
}

const IO_ERROR: i32 = 5;

impl<S: Source> Faulty<S> {
    pub fn new(inner: S, rule: impl Fn(Call) -> FaultAction + Send + Sync + 'static) -> Faulty<S> {
        let (calls, faults) = (AtomicU64::new(0), AtomicU64::new(0));
        Faulty {
            inner,
            rule: Box::new(rule),
            calls,
            faults,
            healed: AtomicBool::new(false),
            others: None,
        }
    }

    fn failing(inner: S, fails: impl Fn(u64) -> bool + Send + Sync + 'static) -> Faulty<S> {
        Faulty::new(inner, move |call| match fails(call.nth) {
            true => FaultAction::Fail(IO_ERROR),
            false => FaultAction::Pass,
        })
    }

    /// Creates a source of which only read number `n` (from 0) fails.
    pub fn nth(inner: S, n: u64) -> Faulty<S> {
        Faulty::failing(inner, move |nth| nth == n)
    }

    /// Creates a source of which read number `n` (from 0) and every later read fail.
    pub fn from_nth(inner: S, n: u64) -> Faulty<S> {
        Faulty::failing(inner, move |nth| nth >= n)
    }

    /// Creates a source of which about `per_mille` of 1000 reads fail. Which reads fail depends on the seed and on their position in the
    /// sequence.
    pub fn share(inner: S, seed: u64, per_mille: u64) -> Faulty<S> {
        Faulty::failing(inner, move |nth| random(seed, nth) % 1000 < per_mille)
    }

    /// Creates a source of which every read is delayed: by this time, plus or minus up to half of it, depending on the seed.
    pub fn slow(inner: S, seed: u64, pause: Duration) -> Faulty<S> {
        let nanos = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX / 2);
        Faulty::new(inner, move |call| {
            let nanos = nanos / 2 + random(seed, call.nth) % nanos.max(1);
            FaultAction::Slow(Duration::from_nanos(nanos))
        })
    }

    /// Creates a source of which no read fails, but call number `n` (from 0) of the method `what` fails, and also every later call if
    /// `lasting` is true.
    pub fn nth_of(inner: S, what: Other, n: u64, lasting: bool) -> Faulty<S> {
        let others = Some(FailingCalls {
            what,
            nth: n,
            lasting,
            calls: AtomicU64::new(0),
        });
        Faulty {
            others,
            ..Faulty::new(inner, |_| FaultAction::Pass)
        }
    }

    /// Whether this call of `what` fails.
    fn fails(&self, what: Other) -> bool {
        let now = self.others.as_ref().is_some_and(|of| {
            let is_due = |nth| nth == of.nth || of.lasting && nth > of.nth;
            of.what == what && is_due(of.calls.fetch_add(1, Ordering::SeqCst))
        });
        let now = now && !self.healed.load(Ordering::SeqCst);
        self.faults.fetch_add(u64::from(now), Ordering::SeqCst);
        now
    }

    /// From now on, passes every call to the wrapped source unchanged.
    pub fn heal(&self) {
        self.healed.store(true, Ordering::SeqCst);
    }

    /// Returns the number of reads so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Returns the number of reads so far that were not passed on unchanged.
    pub fn faults(&self) -> u64 {
        self.faults.load(Ordering::SeqCst)
    }

    /// Returns the wrapped source.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

/// A random number that depends only on seed and position (the finisher of splitmix64).
pub(super) fn random(seed: u64, nth: u64) -> u64 {
    let mut z = seed.wrapping_add(nth.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl<S: Source> Source for Faulty<S> {
    passed_on! {self => self.inner;
        size() -> u64;
        defaults() -> Defaults;
        alignment() -> Alignment;
        check() -> Result<u64, SourceError>;
        allow_appends();
    }

    fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, SourceError> {
        let nth = self.calls.fetch_add(1, Ordering::SeqCst);
        let call = Call {
            nth,
            offset,
            len: bufs.iter().map(|b| b.len() as u64).sum(),
        };
        let verdict = if self.healed.load(Ordering::SeqCst) {
            FaultAction::Pass
        } else {
            (self.rule)(call)
        };
        if !matches!(verdict, FaultAction::Pass) {
            self.faults.fetch_add(1, Ordering::SeqCst);
        }
        match verdict {
            FaultAction::Pass => self.inner.read_at(bufs, offset),
            FaultAction::Fail(errno) => Err(SourceError::Io {
                errno,
                what: format!("read {nth}, at {offset}"),
            }),
            FaultAction::Cut(most) => self.inner.read_at(bufs, offset).map(|read| read.min(most)),
            FaultAction::Slow(pause) => {
                std::thread::sleep(pause);
                self.inner.read_at(bufs, offset)
            }
            FaultAction::Panic => std::panic::panic_any("a bug in a source"),
        }
    }

    fn describe(&self) -> String {
        format!("faulty {}", self.inner.describe())
    }

    fn accept(&self) -> u64 {
        if self.fails(Other::Accept) {
            self.inner.size()
        } else {
            self.inner.accept()
        }
    }

    fn writing(&self) -> Option<&dyn WritableSource> {
        Some(self)
    }
}

impl<S: Source> WritableSource for Faulty<S> {
    passed_on! {self => writing_of(&self.inner)?;
        allow_writes() -> Result<(), SourceError>;
        lock_writes() -> Result<(), SourceError>;
        write_at(bytes: &[u8], offset: u64) -> Result<(), SourceError>;
    }

    fn flush(&self) -> Result<(), SourceError> {
        if self.fails(Other::Flush) {
            return Err(SourceError::Io {
                errno: IO_ERROR,
                what: "flush".to_string(),
            });
        }
        writing_of(&self.inner)?.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreread::source::Mem;

    fn read(source: &impl Source) -> Result<usize, SourceError> {
        source.read_at(&mut [IoSliceMut::new(&mut [0; 10])], 0)
    }

    #[test]
    fn rules() {
        let mem = || Mem::new(vec![1; 100]);
        let once = Faulty::nth(mem(), 1);
        let outcome: Vec<bool> = (0..4).map(|_| read(&once).is_ok()).collect();
        assert_eq!(outcome, [true, false, true, true]);
        let on = Faulty::from_nth(mem(), 1);
        let outcome: Vec<bool> = (0..4).map(|_| read(&on).is_ok()).collect();
        assert_eq!(outcome, [true, false, false, false]);
        on.heal();
        assert_eq!(read(&on), Ok(10));
        let share = Faulty::share(mem(), 5, 200);
        let bad = (0..1000).filter(|_| read(&share).is_err()).count() as u64;
        assert!(
            (150..250).contains(&bad) && bad == share.faults() && share.calls() == 1000,
            "{bad}"
        );
        assert_eq!(read(&Faulty::new(mem(), |_| FaultAction::Cut(3))), Ok(3));
        let error = read(&Faulty::nth(mem(), 0)).expect_err("the first fails");
        assert_eq!(error.to_string(), "read 0, at 0: Input/output error");
    }
}
