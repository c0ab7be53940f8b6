//! One test for each rule of the machine that random sequences and small environments do not cover by themselves.

use crate::common::{FILE, OPEN, World, test_policy};
use foreread_core::event::{Action, Advice, Class, Error, Event};
use foreread_core::machine::{Config, Machine};
use foreread_core::policy::{Answer, Ask, Info, Policy, PolicySpec, Urgency, Wants};
use foreread_core::units::{ByteRange, FileId, MAX_OFFSET, Nanos, OpenId, PageSize, ReadId};

const PAGE: u64 = 4096;

fn config(pages: u64) -> Config {
    Config::new(PageSize::new(PAGE).expect("4096"), pages * PAGE)
}

/// Pages, as bytes.
fn pages(from: u64, to: u64) -> ByteRange {
    ByteRange::between(from * PAGE, to * PAGE)
}

/// Reads these pages one after the other, each when the one before has arrived.
fn read_each(world: &mut World, pages: impl IntoIterator<Item = u64>) {
    for page in pages {
        world.read(page * PAGE, PAGE);
        world.settle();
    }
}

fn only(world: &World) -> foreread_core::units::FetchId {
    assert_eq!(world.pending.len(), 1, "{:?}", world.pending);
    *world.pending.keys().next().expect("one")
}

/// A read that joined another read's fetch fetches for itself before it fails.
#[test]
fn a_joined_fetch_fails_its_owner_only() {
    let mut world = World::with("none", config(64), 100 * PAGE);
    let first = world.read(0, 4 * PAGE);
    let second = world.read(PAGE, PAGE);
    world.fail(only(&world));
    assert_eq!(world.ended.get(&first), Some(&Err(Error::Io(5))));
    let own = world.ended.get(&second);
    assert_eq!(own, None, "the second has its own fetch now");
    assert_eq!(world.pending[&only(&world)].range, pages(1, 2));
    world.settle();
    assert_eq!(world.ended[&second], Ok(()));
}

/// A fetch that also carried readahead fails no read: the demanded part is fetched alone first.
#[test]
fn a_fetch_with_readahead_fails_no_read() {
    let mut world = World::with("linux-6.18", config(256), 100 * PAGE);
    let read = world.read(0, PAGE);
    let fetch = only(&world);
    let pending = &world.pending[&fetch];
    let sent = (pending.range.len(), pending.class);
    assert_eq!(sent, (4 * PAGE, Class::Demand));
    world.fail(fetch);
    assert_eq!(world.ended.get(&read), None);
    assert_eq!(world.pending[&only(&world)].range, pages(0, 1));
    world.fail(only(&world));
    assert_eq!(world.ended[&read], Err(Error::Io(5)), "now it was its own");
}

/// More readahead than may ride goes by itself, behind the demand.
#[test]
fn a_large_readahead_is_a_separate_fetch() {
    let ride = |bytes| {
        let mut config = config(256);
        config.max_piggyback_bytes = bytes;
        let mut world = World::with("linux-6.18", config, 100 * PAGE);
        world.read(0, PAGE);
        world.submitted
    };
    assert_eq!(ride(3 * PAGE), [(pages(0, 4), Class::Demand)]);
    let apart = [(pages(0, 1), Class::Demand), (pages(1, 4), Class::Ahead)];
    assert_eq!(ride(2 * PAGE), apart);
}

#[test]
fn windows_stay_apart_when_asked_to() {
    let fetches = |apart| {
        let mut config = config(256);
        config.keep_windows_apart = apart;
        // Off: three windows of one page each for a read of three.
        let mut world = World::with("linux-6.18:max=0", config, 100 * PAGE);
        world.read(10 * PAGE, 3 * PAGE);
        world.submitted.len()
    };
    assert_eq!((fetches(false), fetches(true)), (1, 3));
}

/// Readahead takes half the cache in flight, and is cut there.
#[test]
fn readahead_in_flight_takes_half_the_cache() {
    let mut world = World::with("rbd-plain:trigger=1", config(64), 1 << 30);
    for i in 0..8 {
        world.read(i * 4 * PAGE, 4 * PAGE);
    }
    let ahead = world.submitted.iter().filter(|s| s.1 == Class::Ahead);
    let ahead: u64 = ahead.map(|s| s.0.len()).sum();
    assert!(ahead > 0 && ahead <= 32 * PAGE, "{ahead}");
    assert!(world.machine.stats().ra_refused_bytes > 0);
    world.settle();
    world.check_idle();
}

/// What is refused is a part of what was planned, also where a read is served in pieces and each plans for all of it.
#[test]
fn no_more_is_refused_than_was_planned() {
    for policy in ["linux-6.18", "rbd-plain:trigger=1"] {
        let mut world = World::with(policy, config(8), 1 << 20);
        for i in 0..8 {
            world.read(i * 64 * PAGE + 7, 64 * PAGE);
            world.settle();
        }
        let stats = world.machine.stats();
        let (planned, refused) = (stats.ra_planned_bytes, stats.ra_refused_bytes);
        let is_part = refused > 0 && refused <= planned;
        assert!(is_part, "{policy}: {refused} of {planned}");
    }
}

/// Readahead never takes the last slot.
#[test]
fn a_slot_is_left_for_demand() {
    let mut config = config(1024);
    (config.max_in_flight, config.max_ahead_in_flight) = (2, 9);
    config.max_piggyback_bytes = 0;
    let mut world = World::with("linux-6.18", config, 1 << 30);
    world.read(0, PAGE);
    world.read(500 * PAGE, PAGE);
    let classes = |world: &World| Vec::from_iter(world.pending.values().map(|p| p.class));
    let both = classes(&world);
    assert!(both.contains(&Class::Demand) && both.len() == 2, "{both:?}");
    // The ahead part of the first read waits for a slot; a demand read goes before it.
    let first = *world.pending.keys().next().expect("two");
    world.finish(first);
    assert_ne!(classes(&world), [Class::Ahead; 2]);
    world.settle();
    world.check_idle();
}

/// A mark raises its question once.
#[test]
fn a_mark_is_met_once() {
    let mut world = World::with("linux-6.18", config(4096), 1000 * PAGE);
    world.machine.watch();
    read_each(&mut world, [0, 1, 1, 1]);
    let decisions = world.machine.take_decisions().len();
    assert_eq!(decisions, 2, "the miss at 0 and the mark at 1");
}

/// One detector a file: closing one of its readers leaves it to the others.
#[test]
fn a_shared_stream_outlives_one_of_its_readers() {
    let mut world = World::with("rbd-plain:trigger=4", config(4096), 1 << 30);
    world.open(OpenId(1));
    world.read(0, PAGE);
    world.read_on(OpenId(1), PAGE, PAGE);
    world.send(Event::Close { open: OpenId(1) });
    world.read(2 * PAGE, PAGE);
    world.read(3 * PAGE, PAGE);
    let planned = world.machine.stats().ra_planned_ops;
    assert_eq!(planned, 1, "four reads in a row, two readers");
}

/// A read that its reader calls random neither goes on with a stream nor ends one.
#[test]
fn a_read_called_random_is_not_seen_by_a_detector() {
    let planned = |random_at: u64| {
        let mut world = World::with("rbd-plain:trigger=3", config(4096), 1 << 30);
        for at in [0, 1, random_at, 2] {
            let read = ReadId(world.next_read);
            world.next_read += 1;
            let range = ByteRange::new(at * PAGE, PAGE).expect("a range");
            world.send(Event::Read {
                read,
                open: OPEN,
                range,
                random: at == random_at,
            });
            world.settle();
        }
        world.machine.stats().ra_planned_ops
    };
    assert_eq!(planned(500), 1, "somewhere else");
    let why = "not the third in a row, which comes after it";
    assert_eq!(planned(3), 1, "{why}");
}

#[test]
fn pages_evicted_unused_and_then_demanded_are_thrash() {
    let mut world = World::with("linux-6.18:max=64K", config(16), 1000 * PAGE);
    read_each(&mut world, [0, 1]);
    read_each(&mut world, (0..24).map(|n| 500 + 7 * n));
    let unused = world.machine.stats().unused_bytes;
    assert!(unused > 0 && world.machine.stats().thrash_bytes == 0);
    read_each(&mut world, 2..8);
    let thrash = world.machine.stats().thrash_bytes;
    assert!(thrash > 0 && thrash <= unused, "{thrash} of {unused}");
}

/// A policy that is asked at every read, and has nothing to remember.
struct OnRead(fn(&Ask<'_>, &mut Answer));

impl Policy for OnRead {
    fn wants(&self) -> Wants {
        Wants::READ
    }

    fn on_read(&mut self, ask: &Ask<'_>, answer: &mut Answer) {
        (self.0)(ask, answer);
    }
}

/// A policy of another program: asks to be woken, and to keep a range.
struct Sleeper {
    woken: bool,
}

impl Policy for Sleeper {
    fn wants(&self) -> Wants {
        Wants::READ
    }

    fn on_read(&mut self, ask: &Ask<'_>, answer: &mut Answer) {
        answer.wake_at = Some(Nanos(ask.now.0 + 100));
        answer.refresh.push(ByteRange::between(0, PAGE));
        if self.woken {
            answer.read(ask.request.end(), PAGE, None);
        }
    }

    fn on_timer(&mut self, _now: Nanos) {
        self.woken = true;
    }
}

static SLEEPER: Info = test_policy("sleeper", "reads ahead once it was woken", |_| {
    Box::new(Sleeper { woken: false })
});

#[test]
fn a_policy_is_woken_at_its_time_and_not_before() {
    let mut world = World::of(PolicySpec::of(&SLEEPER), config(64), 1000 * PAGE);
    world.read(0, PAGE);
    world.send(Event::Timer);
    world.read(PAGE, PAGE);
    assert_eq!(world.machine.stats().ra_planned_ops, 0, "too early");
    world.now += 200;
    world.send(Event::Timer);
    world.read(10 * PAGE, PAGE);
    assert_eq!(world.machine.stats().ra_planned_ops, 1);
    assert!(world.wakes.len() >= 3);
    world.send(Event::Close { open: OPEN });
    world.now += 1000;
    world.send(Event::Timer);
    world.settle();
}

/// Looks at the cache through its four questions, with pages 10 to 12 in it.
fn look(ask: &Ask<'_>, answer: &mut Answer) {
    let probe = ask.probe;
    assert_eq!(probe.page_bytes(), PAGE);
    if ask.request.start() == 0 {
        let here = [9, 10, 12, 13].map(|page| probe.is_cached(page * PAGE + 5));
        assert_eq!(here, [false, true, true, false]);
        assert_eq!(probe.next_hole(10 * PAGE, 8 * PAGE), Some(13 * PAGE));
        assert_eq!(probe.next_hole(10 * PAGE, 3 * PAGE), None);
        let history = [8, 2].map(|most| probe.history(13 * PAGE, most * PAGE));
        assert_eq!(history, [3 * PAGE, 2 * PAGE]);
        answer.read(20 * PAGE, PAGE, None);
    }
}

static PROBER: Info = test_policy("prober", "looks at the cache", |_| Box::new(OnRead(look)));

#[test]
fn a_policy_sees_the_current_cache() {
    let mut world = World::of(PolicySpec::of(&PROBER), config(64), 1000 * PAGE);
    world.read(10 * PAGE, 3 * PAGE);
    world.settle();
    world.read(0, PAGE);
    assert_eq!(world.machine.stats().ra_planned_ops, 1, "it was asked");
}

#[test]
fn a_refreshed_range_leaves_last() {
    let stays = |spec: PolicySpec| {
        // 64 groups of cache: whole groups leave, the coldest first.
        let mut world = World::of(spec, config(64 * 64), 1 << 30);
        for group in 0..100 {
            world.read(group * 64 * PAGE, 64 * PAGE);
            world.settle();
        }
        world.machine.cache().is_cached(FILE, 0)
    };
    assert!(stays(PolicySpec::of(&SLEEPER)), "refreshed at every read");
    assert!(!stays(PolicySpec::parse("none").expect("a policy")));
}

/// As many reads as may be in progress, all of them hits that are not yet released: one more is refused.
#[test]
fn one_read_too_many_is_refused() {
    use foreread_core::machine::MAX_READS;
    let mut world = World::with("linux-6.18", config(1 << 20), 1 << 30);
    world.read(0, PAGE);
    world.settle();
    world.release_at_once = false;
    for _ in 0..MAX_READS {
        world.read(0, PAGE);
    }
    assert_eq!(world.machine.reads_in_progress(), MAX_READS);
    let refused = world.read(0, PAGE);
    assert_eq!(world.ended[&refused], Err(Error::Limit));
    while !world.leases.is_empty() {
        world.release(world.leases.len() - 1);
    }
    world.check_idle();
}

/// Pages that a policy drops leave at once, present or in flight. Reads that wait for them fetch anew.
fn forget(ask: &Ask<'_>, answer: &mut Answer) {
    answer.drop.push(ByteRange::between(0, 8 * PAGE));
    answer.read(ask.request.start(), 4 * PAGE, None);
}

static FORGETFUL: Info = test_policy("forgetful", "gives up the first eight pages", |_| {
    Box::new(OnRead(forget))
});

#[test]
fn what_a_policy_gives_up_leaves_at_once() {
    let mut world = World::of(PolicySpec::of(&FORGETFUL), config(64), 100 * PAGE);
    let first = world.read(0, PAGE);
    let second = world.read(20 * PAGE, PAGE);
    assert_eq!(world.ended.len(), 0);
    let ranges = world.submitted.iter().map(|(range, _)| *range);
    let expected = [pages(0, 4), pages(0, 1), pages(20, 24)];
    let why = "the first read had to fetch its page anew, alone";
    assert_eq!(Vec::from_iter(ranges), expected, "{why}");
    world.settle();
    assert_eq!([world.ended[&first], world.ended[&second]], [Ok(()); 2]);
    let is_cached = |world: &World, page| world.machine.cache().is_cached(FILE, page);
    assert!(!is_cached(&world, 1) && is_cached(&world, 21));
    world.read(40 * PAGE, PAGE);
    assert!(!is_cached(&world, 0), "here, and given up");
    world.settle();
    world.check();
    world.check_idle();
}

/// A policy that plans eight pages at each read, and is asked again at each miss.
struct Twice(fn(&Ask<'_>, &mut Answer));

impl Policy for Twice {
    fn wants(&self) -> Wants {
        Wants {
            meter: true,
            ..Wants::READ
        }
    }

    fn on_read(&mut self, _ask: &Ask<'_>, answer: &mut Answer) {
        answer.read(10 * PAGE, 8 * PAGE, None);
    }

    fn on_miss(&mut self, ask: &Ask<'_>, answer: &mut Answer) {
        (self.0)(ask, answer);
    }
}

static SECOND_THOUGHTS: Info = test_policy(
    "second-thoughts",
    "plans eight pages and gives up one of them",
    |_| {
        Box::new(Twice(|_, answer| {
            answer.drop.push(ByteRange::between(12 * PAGE, 13 * PAGE))
        }))
    },
);

static DOUBLER: Info = test_policy(
    "doubler",
    "plans eight pages, and as many as those that are unread",
    |_| {
        Box::new(Twice(|ask, answer| {
            answer.read(40 * PAGE, ask.source.unread_bytes, None)
        }))
    },
);

/// A page that was planned in the same event is in flight, too: it goes with the fetch that was to bring it. A policy that is asked twice in
/// one event sees what its first answer has planned: a bound on waste counts it.
#[test]
fn recent_plans_are_in_flight_and_unread() {
    for (policy, cached, absent, doomed) in [
        (&SECOND_THOUGHTS, [0, 0], 12, 1),
        (&DOUBLER, [17, 47], 48, 0),
    ] {
        let mut world = World::of(PolicySpec::of(policy), config(64), 100 * PAGE);
        world.read(0, PAGE);
        world.settle();
        let is_cached = |page: u64| world.machine.cache().is_cached(FILE, page);
        assert!(cached.into_iter().all(is_cached) && !is_cached(absent));
        assert_eq!(world.machine.stats().doomed_fetches, doomed);
        world.check_idle();
    }
}

/// A hint without a length reaches to the end of the file, whatever the policy.
#[test]
fn an_empty_hint_is_the_rest_of_the_file() {
    let mut world = World::with("rbd-plain", config(64), 10 * PAGE + 5);
    world.read(0, 11 * PAGE);
    world.settle();
    let hint = |start| Event::Advise {
        open: OPEN,
        advice: Advice::DontNeed,
        range: ByteRange::between(start, start),
    };
    // From beyond the end on there is nothing; the page that is only touched stays, the cut one at the end goes.
    for (start, held) in [(20 * PAGE, 11), (3 * PAGE + 1, 4), (0, 0)] {
        world.send(hint(start));
        assert_eq!(world.held.len(), held, "from {start}");
    }
}

/// Pages that the last decision of a read planned.
fn planned(world: &mut World, open: OpenId, page: u64, pages: u64) -> u64 {
    world.read_on(open, page * PAGE, pages * PAGE);
    world.settle();
    let decisions = world.machine.take_decisions();
    let last = decisions.last().map(|last| last.windows[0].range.len());
    last.unwrap_or(0) / PAGE
}

/// With folios one state serves all readers of the file, and still each reader has its own window: an error that one had
/// to see makes only that reader's window smaller, and a number that is used again begins anew.
#[test]
fn readers_of_a_shared_state_stay_apart() {
    for policy in ["linux-6.18", "linux-6.18:folios=on"] {
        let mut world = World::with(policy, config(1 << 12), 4000 * PAGE);
        world.machine.watch();
        let (first, second) = (OpenId(7), OpenId(8));
        for open in [first, second] {
            world.open(open);
        }
        let failed = world.read_on(first, 1000 * PAGE, PAGE);
        world.fail(only(&world));
        assert_eq!(world.ended[&failed], Err(Error::Io(5)), "{policy}");
        for (open, page, pages, wanted) in [
            (first, 2000, 5, 5),
            (second, 3000, 5, 5),
            (first, 2005, 5, 8),
            (second, 3005, 5, 16),
            (second, 500, 1, 1),
        ] {
            let planned = planned(&mut world, open, page, pages);
            assert_eq!(planned, wanted, "{policy}: {open:?} at {page}");
        }
        world.send(Event::Close { open: second });
        world.open(second);
        let nothing = planned(&mut world, second, 501, 1);
        assert_eq!(nothing, 1, "{policy}: it has read nothing yet");
        assert_eq!(planned(&mut world, second, 502, 1), 4, "{policy}");
        world.check_idle();
    }
}

/// A long file through a small cache: folios whose pages have left are forgotten, and the stream goes on.
#[test]
fn folios_of_a_file_larger_than_the_cache() {
    let mut world = World::with("linux-6.18:folios=on", config(256), 40_000 * PAGE);
    read_each(&mut world, 0..40_000);
    let stats = world.machine.stats();
    assert!(stats.misses < 5, "{stats:?}");
    world.check_idle();
}

/// Forgetting those that are gone leaves the others: a second stream that paused meanwhile reaches its mark.
#[test]
fn folios_that_are_there_are_kept() {
    let mut world = World::with("linux-6.18:folios=on", config(1 << 17), 90_000 * PAGE);
    let paused = OpenId(5);
    world.open(paused);
    let mut go = |open: OpenId, pages: std::ops::Range<u64>| {
        for page in pages {
            world.read_on(open, page * PAGE, PAGE);
            world.settle();
        }
        world.machine.stats().misses
    };
    let before = go(paused, 80_000..80_011);
    let between = go(OPEN, 0..70_000);
    assert_eq!((before, go(paused, 80_011..80_100)), (2, between));
}

/// What a caller says it will read is read ahead under every policy, also under one that never does, and within the
/// same limits; the policy's own windows are where they were.
#[test]
fn a_caller_that_knows_needs_no_policy() {
    for policy in ["none", "rbd-plain", "linux-6.18"] {
        let mut world = World::with(policy, config(64), 1000 * PAGE);
        world.prefetch(OPEN, 10 * PAGE, 4 * PAGE);
        assert_eq!(world.submitted, [(pages(10, 14), Class::Ahead)], "{policy}");
        world.prefetch(OPEN, 12 * PAGE, 0);
        assert_eq!(world.submitted.len(), 1, "nothing is wanted");
        world.settle();
        let read = world.read(11 * PAGE, PAGE);
        assert_eq!(world.ended.get(&read), Some(&Ok(())), "{policy}: a hit");
        world.prefetch(OPEN, 100 * PAGE, 800 * PAGE);
        assert!(world.held.len() <= 64, "never more than there is room for");
        world.settle();
    }
}

/// A prefetch of exabytes is cut to a few times the cache, as a hint is: planned whole, it would never end.
#[test]
fn a_prefetch_without_end_is_cut() {
    let mut world = World::with("none", config(64), 1 << 62);
    world.prefetch(OPEN, 0, 1 << 62);
    assert_eq!(world.machine.stats().ra_planned_bytes, 4 * 64 * PAGE);
    assert!(world.machine.stats().ra_bytes <= 64 * PAGE);
}

// ---- waiting readahead is sent in the order in which readers will need it ----

/// First page, pages, and the stream with the pages from its reader.
type Planned = (u64, u64, Option<(u32, u64)>);

/// What is planned at a read of page 0, and at one of page 100.
const PLANS: [(u64, &[Planned]); 2] = [
    (0, &[(10, 4, Some((1, 8)))]),
    (
        100,
        &[
            (250, 1, Some((1, 3))),
            (200, 1, Some((3, 5))),
            (101, 2, Some((2, 0))),
            (300, 1, None),
            (400, 1, Some((4, 0))),
        ],
    ),
];

fn plan(ask: &Ask<'_>, answer: &mut Answer) {
    let is_it = |plan: &&(u64, &[Planned])| plan.0 * PAGE == ask.request.start();
    let windows = PLANS.iter().find(is_it).map(|plan| plan.1);
    for (first, pages, of) in windows.unwrap_or_default() {
        answer.urgency = of.map(|(stream, away)| Urgency {
            stream,
            away: away * PAGE,
        });
        answer.read(first * PAGE, pages * PAGE, None);
    }
}

static PLANNER: Info = test_policy("planner", "plans by test", |_| Box::new(OnRead(plan)));

/// Pages 10 to 13 are 8 to 11 pages from their reader; 10 is in flight. Those of stream 2 pass the others, which are more than twice as far.
/// Page 200 does not, since twice 5 is less than 11 but not than 10: it passes one. Page 250 is of the same stream as 13, and 300 has no urgency, so that
/// 400 passes nothing.
#[test]
fn urgent_windows_go_first() {
    let mut config = config(1 << 18);
    (config.max_ahead_in_flight, config.max_short_ahead_in_flight) = (1, 1);
    config.max_fetch_bytes = PAGE;
    let mut world = World::of(PolicySpec::of(&PLANNER), config, 1000 * PAGE);
    world.read(0, PAGE);
    world.read(100 * PAGE, PAGE);
    world.settle();
    let ahead = world.submitted.iter();
    let ahead = ahead.filter(|(_, class)| *class == Class::Ahead);
    let pages: Vec<u64> = ahead.map(|(range, _)| range.start() / PAGE).collect();
    assert_eq!(pages, [10, 101, 102, 11, 12, 200, 13, 250, 300, 400]);
    world.check_idle();
}

// ---- numbers at the ends of their ranges ----

/// Of a number at the end of its range, as in a hostile event log: no event may end the process.
const FAR: u64 = 5_000_000_000_000_000_000;

fn far_read(number: u64, start: u64, len: u64) -> Event {
    Event::read(
        ReadId(number),
        OpenId(0),
        ByteRange::between(start, start + len),
    )
}

/// Feeds the events to `auto`; each fetch arrives whole at the end of time.
fn feed(events: &[Event]) {
    let config = Config::new(PageSize::new(4096).expect("a page size"), 1 << 20);
    let mut machine = Machine::new(config, PolicySpec::parse("auto").expect("a policy"));
    let (open, file) = (OpenId(0), FileId(0));
    let size = MAX_OFFSET;
    machine.handle(Nanos(0), Event::open(open, file, size));
    for event in events {
        machine.handle(Nanos(0), *event);
        let mut fetches = Vec::new();
        while let Some(action) = machine.poll() {
            if let Action::Submit { fetch, range, .. } = action {
                fetches.push((fetch, range.len()));
            }
        }
        for (fetch, bytes) in fetches.into_iter().take(64) {
            machine.handle(Nanos(FAR), Event::Done { fetch, bytes });
        }
    }
}

#[test]
fn long_reads_and_slow_answers() {
    feed(&[far_read(0, 0, MAX_OFFSET)]);
    feed(&[far_read(0, 0, 1 << 48), far_read(1, 1 << 50, 1 << 48)]);
    let slow = Event::Answered { ns: FAR };
    let half = 128 << 10;
    feed(&[slow, far_read(0, 0, half), far_read(1, half, half)]);
    let page = |number, start| far_read(number, start, 4096);
    feed(&[slow, page(0, 0), page(1, 1 << 20), page(2, 5 << 20)]);
    feed(&[
        far_read(0, 0, 4096),
        far_read(1, u64::from(u32::MAX) << 16, 64 << 10),
        far_read(2, MAX_OFFSET - 4096, 4096),
        far_read(3, 0, MAX_OFFSET),
        far_read(4, 1 << 30, 4096),
    ]);
}
