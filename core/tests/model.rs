//! Compares the machine with a reference that has no cache at all, under random operations and completion orders.
//!
//! The reference knows which bytes are held and how old they are. At every step it checks each served piece, each drop,
//! and the counters. proptest shrinks a failure to the shortest sequence of operations.

use crate::common::{FILE, World, test_policy};
use foreread_core::event::{Advice, Event, Mapping};
use foreread_core::machine::Config;
use foreread_core::policy::{Answer, Ask, Info, Policy, PolicySpec, Wants};
use foreread_core::units::{ByteRange, OpenId, PageSize, ReadId};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Read { open: u32, start: u64, len: u64 },
    Fault { page: u64, advice: u8 },
    Finish(usize),
    Short(usize, u64),
    Fail(usize),
    Progress(usize, u64),
    Release(usize),
    Abandon(u64),
    Invalidate { start: u64, len: u64 },
    Replace(u64),
    Grow(u64),
    Advise { advice: u8, start: u64, len: u64 },
    Prefetch { start: u64, len: u64 },
    Pressure(u64),
    Reopen,
}

const SPACE: u64 = 96 * 4096;

fn op() -> impl Strategy<Value = Op> {
    let at = 0..SPACE + 9000;
    let len = prop_oneof![0..5000u64, Just(4096), Just(65536), Just(200_000)];
    prop_oneof![
        6 => (0..3u32, at.clone(), len.clone()).prop_map(|(open, start, len)| Op::Read { open, start, len }),
        4 => (0..3u32, 0..24u64).prop_map(|(open, n)| Op::Read { open, start: n * 4096, len: 4096 }),
        1 => (0..100u64, any::<u8>()).prop_map(|(page, advice)| Op::Fault { page, advice }),
        8 => any::<usize>().prop_map(Op::Finish),
        1 => (any::<usize>(), any::<u64>()).prop_map(|(i, n)| Op::Short(i, n)),
        1 => any::<usize>().prop_map(Op::Fail),
        3 => (any::<usize>(), any::<u64>()).prop_map(|(i, n)| Op::Progress(i, n)),
        5 => any::<usize>().prop_map(Op::Release),
        1 => any::<u64>().prop_map(Op::Abandon),
        1 => (at.clone(), len.clone()).prop_map(|(start, len)| Op::Invalidate { start, len }),
        1 => (1..SPACE).prop_map(Op::Replace),
        1 => (1..SPACE).prop_map(Op::Grow),
        1 => (at.clone(), len.clone()).prop_map(|(start, len)| Op::Prefetch { start, len }),
        1 => (any::<u8>(), at, len).prop_map(|(advice, start, len)| Op::Advise { advice, start, len }),
        1 => (4..80u64).prop_map(Op::Pressure),
        1 => Just(Op::Reopen),
    ]
}

fn advice_of(n: u8) -> Advice {
    [
        Advice::Normal,
        Advice::Sequential,
        Advice::Random,
        Advice::WillNeed,
        Advice::DontNeed,
    ][usize::from(n) % 5]
}

/// A policy that gives up, at every question, the pages around the one it is asked about, also those it just planned,
/// those that others wait for, and those that the current read has already passed.
struct Fickle;

impl Fickle {
    fn change_its_mind(ask: &Ask<'_>, answer: &mut Answer) {
        let before = range(ask.at.saturating_sub(20_000), 30_000);
        answer.drop.push(before);
        answer.read(ask.at.saturating_sub(9000), 50_000, Some(ask.at + 20_000));
        answer.drop.push(range(ask.at + 12_000, 5000));
    }
}

impl Policy for Fickle {
    fn wants(&self) -> Wants {
        Wants::READ
    }

    fn on_read(&mut self, ask: &Ask<'_>, answer: &mut Answer) {
        Fickle::change_its_mind(ask, answer);
    }

    fn on_miss(&mut self, ask: &Ask<'_>, answer: &mut Answer) {
        Fickle::change_its_mind(ask, answer);
    }

    fn on_mark(&mut self, ask: &Ask<'_>, answer: &mut Answer) {
        Fickle::change_its_mind(ask, answer);
    }

    fn on_fault(&mut self, ask: &Ask<'_>, _map: &Mapping, answer: &mut Answer) {
        Fickle::change_its_mind(ask, answer);
    }

    fn on_advice(&mut self, ask: &Ask<'_>, _advice: Advice, answer: &mut Answer) {
        Fickle::change_its_mind(ask, answer);
    }
}

static FICKLE: Info = test_policy("fickle", "gives up what it reads", |_| Box::new(Fickle));

fn range(start: u64, len: u64) -> ByteRange {
    ByteRange::new(start, len).expect("a small range")
}

/// The `i`th fetch in progress, counted around.
fn fetch_at(world: &World, i: usize) -> Option<foreread_core::units::FetchId> {
    let count = world.pending.len();
    (count > 0).then(|| *world.pending.keys().nth(i % count).expect("in range"))
}

fn play(world: &mut World, op: &Op) {
    match *op {
        Op::Read { open, start, len } => {
            world.read_on(OpenId(open), start, len);
        }
        Op::Fault { page, advice } => {
            let read = ReadId(world.next_read);
            world.next_read += 1;
            let map = Mapping {
                range: range(0, SPACE),
                executable: advice > 200,
                advice: advice_of(advice % 3),
            };
            world.send(Event::Fault {
                read,
                open: OpenId(0),
                at: page * 4096,
                map,
            });
        }
        Op::Finish(i) => fetch_at(world, i).into_iter().for_each(|f| world.finish(f)),
        Op::Fail(i) => fetch_at(world, i).into_iter().for_each(|f| world.fail(f)),
        Op::Short(i, n) => fetch_at(world, i).into_iter().for_each(|f| {
            let len = world.pending[&f].range.len();
            world.finish_with(f, n % len);
        }),
        Op::Progress(i, n) => fetch_at(world, i).into_iter().for_each(|f| {
            let len = world.pending[&f].range.len();
            world.progress(f, n % (len + 1));
        }),
        Op::Release(i) if !world.leases.is_empty() => world.release(i % world.leases.len()),
        Op::Release(_) => {}
        Op::Abandon(n) => {
            let read = ReadId(n % (world.next_read + 1));
            let holds = world.leases.iter().any(|l| l.0 == read);
            if !holds && read.0 < world.next_read {
                world.send(Event::Abandon { read });
                world.abandoned.insert(read);
            }
        }
        Op::Invalidate { start, len } => world.invalidate(start, len),
        Op::Replace(size) => world.replace(size),
        Op::Grow(size) => {
            if size > world.size {
                // The last page, if it was cut off by the end, is a different one from now on.
                if !world.size.is_multiple_of(world.page) {
                    world.written.insert(world.size / world.page, world.now + 1);
                }
                world.size = size;
                world.send(Event::Grown { file: FILE, size });
            }
        }
        Op::Advise { advice, start, len } => {
            world.send(Event::Advise {
                open: OpenId(1),
                advice: advice_of(advice),
                range: range(start, len),
            });
        }
        Op::Prefetch { start, len } => {
            world.prefetch(OpenId(1), start, len);
        }
        Op::Pressure(pages) => world.send(Event::Pressure { pages }),
        Op::Reopen => {
            world.open(OpenId(1));
            world.open(OpenId(2));
        }
    }
}

fn story(policy: &str, page: u64, ops: &[Op], apart: bool) {
    let policy = PolicySpec::parse(policy).expect("a policy");
    story_of(policy, page, ops, apart);
}

fn story_of(policy: PolicySpec, page: u64, ops: &[Op], apart: bool) {
    let mut config = Config::new(PageSize::new(page).expect("a page size"), 64 * 4096);
    config.max_in_flight = 5;
    config.max_fetch_bytes = 16 * 4096;
    config.max_piggyback_bytes = 3 * 4096;
    config.keep_windows_apart = apart;
    let mut world = World::of(policy, config, SPACE - 1234);
    world.release_at_once = false;
    world.open(OpenId(1));
    world.open(OpenId(2));
    for op in ops {
        play(&mut world, op);
        world.check_books();
    }
    world.settle();
    world.check_idle();
    for read in (0..world.next_read).map(ReadId) {
        let is_over = world.ended.contains_key(&read) || world.abandoned.contains(&read);
        assert!(is_over, "{read:?} never ended");
    }
}

/// Stories for each policy: PROPTEST_CASES, or enough for every change.
fn cases() -> u32 {
    let cases = std::env::var("PROPTEST_CASES").ok();
    cases.and_then(|n| n.parse().ok()).unwrap_or(4000)
}

/// Readers that hold on to what they are served, in a cache of a few pages: the limit holds at every moment.
fn crowded(policy: &str, pages: u64, ops: &[Op]) {
    let mut config = Config::new(PageSize::new(4096).expect("a page size"), pages * 4096);
    config.max_in_flight = 4;
    let mut world = World::with(policy, config, SPACE);
    world.release_at_once = false;
    let is_kept = |op: &&Op| !matches!(op, Op::Pressure(_) | Op::Replace(_));
    for op in ops.iter().filter(is_kept) {
        play(&mut world, op);
        world.check();
    }
    world.settle();
    world.check_idle();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]

    #[test]
    fn linux(ops in prop::collection::vec(op(), 1..60), apart: bool) {
        story("linux-6.18:max=32K", 4096, &ops, apart);
    }

    #[test]
    fn auto(ops in prop::collection::vec(op(), 1..60), apart: bool) {
        story("auto", 4096, &ops, apart);
    }

    #[test]
    fn rbd(ops in prop::collection::vec(op(), 1..60), apart: bool) {
        story("rbd-plain:trigger=2,max=64K", 512, &ops, apart);
    }

    #[test]
    fn fickle(ops in prop::collection::vec(op(), 1..60), apart: bool) {
        story_of(PolicySpec::of(&FICKLE), 4096, &ops, apart);
    }

    #[test]
    fn the_cache_is_never_over_its_limit(ops in prop::collection::vec(op(), 1..80), pages in 4u64..20) {
        crowded("linux-6.18:max=1M", pages, &ops);
        crowded("rbd-plain:trigger=1", pages, &ops);
        crowded("auto", pages, &ops);
    }

    #[test]
    fn none(ops in prop::collection::vec(op(), 1..60), apart: bool) {
        story("none", 4096, &ops, apart);
    }
}

/// Stories that once failed, kept as they were shrunk.
#[test]
fn regressions() {
    let read = |start, len| Op::Read {
        open: 0,
        start,
        len,
    };
    // A read that found no room left what its policy had planned without a fetch.
    let story_one = [
        read(0, 0),
        read(45056, 4096),
        Op::Fault { page: 0, advice: 0 },
        Op::Pressure(20),
        read(49152, 4096),
        read(53248, 4096),
        Op::Replace(1),
    ];
    story("rbd-plain:trigger=2,max=64K", 512, &story_one, false);
}
