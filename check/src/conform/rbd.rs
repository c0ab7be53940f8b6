//! Compares librbd with the policy `rbd-aligned`: both execute the same reads, librbd on a real Ceph cluster.
//!
//! librbd logs and counts its decisions; foreread's state machine returns ours. The extents that librbd logged must be equal to those of
//! the policy, and so must the counters. foreread's predictions do not use what librbd logged or counted. The check reads only images that
//! it has created itself.
//!
//! ```text
//!   Case ──► machine with rbd-aligned ─────────► windows, ra_planned ─┐
//!     └────► a new client of librbd, writeback ─► log, counters ──────┴─► equal?
//! ```

use super::first_difference;
use foreread::source::{Rbd, RbdRead, RbdSettings, SourceError, SourceOpenError};
use foreread_core::event::Event;
use foreread_core::machine::{Config, Machine};
use foreread_core::policy::PolicySpec;
use foreread_core::units::{ByteRange, FileId, Nanos, OpenId, PageSize, ReadId};
use foreread_lab::live::librbd::counters;
use foreread_sim::rng::{Rng, mix};
use foreread_sim::time_queue;
use foreread_testing::CephError;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::time::Duration;

/// The text that librbd writes before the extent of a decision.
const DECISION: &str = "(readahead logical) ";
/// librbd's object size, unless an image is created with another one.
const OBJECT_BYTES: u64 = 4 << 20;
/// How often an incomplete log is read again, and the pause before that.
const LOOKS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// The error if librbd cannot be checked.
#[derive(Debug, thiserror::Error)]
pub enum RbdCheckError {
    /// An image could not be created.
    #[error("{0}")]
    Ceph(#[from] CephError),
    /// librbd is not available, or cannot open the image.
    #[error("{0}")]
    Open(#[from] SourceOpenError),
    #[error("{0}")]
    Read(#[from] SourceError),
    /// Its counters or its log cannot be read.
    #[error("librbd's {0} cannot be read: {1}")]
    Told(&'static str, std::io::Error),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Number of compared decisions of librbd.
    pub decisions: u64,
    /// Number of cases in which the two differ.
    pub divergences: u64,
    pub reads: u64,
    /// Describes the first difference in words.
    pub first: Option<String>,
}

/// The decisions of one side (librbd or our policy), in the order in which they were made, and its counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionLog {
    /// Offset and length of each decision.
    pub extents: Vec<(u64, u64)>,
    /// Requests and bytes, as counted.
    pub counted: (u64, u64),
}

/// Runs one of Ceph's programs with these arguments.
pub type Ceph<'a> = &'a dyn Fn(&str, &[&str]) -> Result<String, CephError>;

/// The test images on a Ceph cluster, created when a case needs them and removed at the end.
pub struct Images<'a> {
    conf: &'a Path,
    ceph: Ceph<'a>,
    made: BTreeMap<[u64; 4], String>,
}

impl<'a> Images<'a> {
    /// Uses the cluster with this configuration file, and its pool `rbd`.
    pub fn new(conf: &'a Path, ceph: Ceph<'a>) -> Images<'a> {
        Images {
            conf,
            ceph,
            made: BTreeMap::new(),
        }
    }

    /// The name of an image with this size and layout.
    fn of(&mut self, case: &Case) -> Result<String, CephError> {
        // If a policy does not depend on objects, librbd's default size.
        let object = Some(case.value("object"))
            .filter(|object| *object > 0)
            .unwrap_or(OBJECT_BYTES);
        let count = case.value("stripe-count").max(1);
        let unit = Some(case.value("stripe-unit"))
            .filter(|unit| *unit > 0)
            .unwrap_or(object);
        let key = [case.size, object, unit, count];
        if !self.made.contains_key(&key) {
            let name = format!(
                "rbd/foreread-conform-{}-{}",
                std::process::id(),
                self.made.len()
            );
            let bytes = |n: u64| format!("{n}B");
            let (size, object, unit, count) = (
                bytes(case.size),
                bytes(object),
                bytes(unit),
                count.to_string(),
            );
            let mut arguments = vec!["create", "--size", &size, "--object-size", &object];
            if unit != object {
                arguments.extend(["--stripe-unit", &unit, "--stripe-count", &count]);
            }
            arguments.push(&name);
            (self.ceph)("rbd", &arguments)?;
            self.made.insert(key, name);
        }
        Ok(format!(
            "rbd:{}?conf={}",
            self.made[&key],
            self.conf.display()
        ))
    }
}

impl Drop for Images<'_> {
    fn drop(&mut self) {
        for name in self.made.values() {
            // If the cluster is gone, so are its images.
            let _ = (self.ceph)("rbd", &["rm", "--no-progress", name]);
        }
    }
}

/// Runs each case with librbd and with our policy, with this many reads in flight.
pub fn check(
    images: &mut Images<'_>,
    cases: &[Case],
    depth: usize,
    step: &mut dyn FnMut(u64),
) -> Result<Verdict, RbdCheckError> {
    let mut verdict = Verdict::default();
    for (done, case) in cases.iter().enumerate() {
        let image = images.of(case)?;
        let (ours, theirs) = (ours(case), theirs(&image, case, depth)?);
        verdict.reads += case.reads.len() as u64;
        verdict.decisions += theirs.extents.len() as u64;
        if let Some(difference) = differ(&ours, &theirs) {
            verdict.divergences += 1;
            let what = format!(
                "{} ({}), depth {depth}: {difference}",
                case.name, case.policy
            );
            verdict.first.get_or_insert(what);
        }
        step(done as u64 + 1);
    }
    Ok(verdict)
}

/// Returns a sentence that describes the first difference.
pub fn differ(ours: &DecisionLog, theirs: &DecisionLog) -> Option<String> {
    let words = |(at, len): &(u64, u64)| format!("{at}~{len}");
    let differs = first_difference(&ours.extents, &theirs.extents, PartialEq::eq, words);
    if let Some((at, [ours, theirs])) = differs {
        return Some(format!(
            "request {}: ours {ours}, librbd's {theirs}",
            at + 1
        ));
    }
    let counted = |(requests, bytes): (u64, u64)| format!("{requests} requests of {bytes} bytes");
    let differs = ours.counted != theirs.counted;
    differs.then(|| {
        format!(
            "counted: ours {}, librbd's {}",
            counted(ours.counted),
            counted(theirs.counted)
        )
    })
}

pub fn ours(case: &Case) -> DecisionLog {
    let page = PageSize::new(512).unwrap_or_else(|| unreachable!("512 is a page size"));
    let mut machine = Machine::new(Config::new(page, 1 << 30).bounded(), case.policy.clone());
    machine.watch();
    machine.handle(Nanos(0), Event::open(OpenId(0), FileId(0), case.size));
    for (nth, &(offset, len)) in case.reads.iter().enumerate() {
        let range = ByteRange::between(offset, offset + len);
        let read = Event::read(ReadId(nth as u64), OpenId(0), range);
        time_queue::tell(&mut machine, read, |_| ());
    }
    let stats = machine.stats();
    let decisions = machine.take_decisions();
    let windows = decisions.iter().flat_map(|decision| &decision.windows);
    let extents = windows
        .map(|window| (window.range.start(), window.range.len()))
        .collect();
    DecisionLog {
        extents,
        counted: (stats.ra_planned_ops, stats.ra_planned_bytes),
    }
}

/// Runs the case with librbd, in a new client. With several reads in flight the client gets a single thread: with its
/// usual two, neighbouring reads are sometimes reordered.
fn theirs(image: &str, case: &Case, depth: usize) -> Result<DecisionLog, RbdCheckError> {
    let dir = tempfile::tempdir().map_err(|error| RbdCheckError::Told("log", error))?;
    let (socket, log) = (dir.path().join("asok"), dir.path().join("log"));
    let settings = RbdSettings::as_configured()
        .with("rbd_cache", true)
        .with("rbd_cache_policy", "writeback")
        .with("rbd_readahead_trigger_requests", case.value("trigger"))
        .with("rbd_readahead_max_bytes", case.value("max"))
        .with(
            "rbd_readahead_disable_after_bytes",
            case.value("disable-after"),
        )
        .with("librados_thread_count", if depth > 1 { 1 } else { 2 })
        .with("admin_socket", socket.display())
        .with("log_file", log.display())
        .with("debug_rbd", 20);
    let opened = Rbd::open_with(image, &settings)?;
    let mut flying: VecDeque<RbdRead> = VecDeque::new();
    for &(offset, len) in &case.reads {
        if flying.len() >= depth.max(1)
            && let Some(oldest) = flying.pop_front()
        {
            oldest.wait()?;
        }
        flying.push_back(opened.begin(offset, usize::try_from(len).unwrap_or(usize::MAX))?);
    }
    for read in flying {
        read.wait()?;
    }
    let counted = counters(&socket).map_err(|error| RbdCheckError::Told("counters", error))?;
    drop(opened);
    let mut extents = Vec::new();
    for _ in 0..LOOKS {
        // Another thread writes the log.
        let text = std::fs::read(&log).map_err(|error| RbdCheckError::Told("log", error))?;
        extents = String::from_utf8_lossy(&text)
            .lines()
            .filter_map(decision)
            .collect();
        if extents.len() as u64 >= counted.0 {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    Ok(DecisionLog { extents, counted })
}

/// The extent of a line of the log that reports a decision.
fn decision(line: &str) -> Option<(u64, u64)> {
    let (_, extent) = line.split_once(DECISION)?;
    let (offset, len) = extent.trim().split_once('~')?;
    Some((offset.parse().ok()?, len.parse().ok()?))
}

// Test reads for librbd and `rbd-aligned`: those of the published tables, and any number of random sequences.
//
// No test read begins beyond the end of the image, because librbd refuses such a read before its readahead code sees it.

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
    /// Returns the value of one of the policy's parameters; 0 if it has none.
    fn value(&self, key: &str) -> u64 {
        self.policy.value(key).unwrap_or(0)
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
    fn a_decision_is_found_in_its_line() {
        let line = "2026-01-01T00:00:00.0+0000 7f 20 librbd::io::ImageRequest: 0x1 readahead: (readahead logical) 40960~8192";
        assert_eq!(decision(line), Some((40960, 8192)));
        assert_eq!(decision("(readahead logical) x~8192"), None);
        assert_eq!(decision("aio_read: offset=0"), None);
    }

    #[test]
    fn each_difference_is_reported() {
        let one = DecisionLog {
            extents: vec![(1, 2)],
            counted: (1, 2),
        };
        assert_eq!(differ(&one, &one), None);
        let other = DecisionLog {
            extents: vec![(1, 2), (3, 4)],
            counted: (2, 6),
        };
        let told = "request 2: ours none, librbd's 3~4";
        assert_eq!(differ(&one, &other).as_deref(), Some(told));
        let miscounted = DecisionLog {
            counted: (1, 3),
            ..one.clone()
        };
        let told = "counted: ours 1 requests of 2 bytes, librbd's 1 requests of 3 bytes";
        assert_eq!(differ(&one, &miscounted).as_deref(), Some(told));
    }

    /// Published totals, so that our side of the check is checked, too.
    #[test]
    fn ours_are_the_published_ones() {
        let cases = published();
        let t1 = cases.iter().find(|case| case.name == "T1").expect("T1");
        let decided = ours(t1);
        let counts = (decided.extents.len(), decided.counted);
        assert_eq!(counts, (11, (11, 20_930_560)));
        assert_eq!(decided.extents[0], (40960, 40960));
    }

    #[test]
    fn every_published_case_that_can_be_asked_is_there() {
        let cases = published();
        // Two have a smallest request.
        assert_eq!(cases.len(), TABLE.matches("\ncase ").count() - 2);
        assert!(cases.iter().all(|case| !case.reads.is_empty()));
        let t7 = cases.iter().find(|case| case.name == "T7").expect("T7");
        let values = (t7.value("stripe-unit"), t7.value("max"), t7.reads.len());
        assert_eq!(values, (64 << 10, 512 << 10, 600));
    }

    #[test]
    fn sequences_differ_and_are_the_same_again() {
        assert_eq!(random(1, 2).reads, random(1, 2).reads);
        assert_ne!(random(1, 2).reads, random(1, 3).reads);
        for nth in 0..100 {
            let case = random(7, nth);
            assert!(case.reads.len() >= 60);
            assert!(case.reads.iter().all(|(offset, _)| *offset < case.size));
        }
    }
}
