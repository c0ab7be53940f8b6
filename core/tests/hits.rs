//! Tests of hits that a driver serves without asking the machine: which pages allow this, and that such a read counts
//! like any other.

use crate::common::{FILE, OPEN, World, test_policy};
use crate::golden::policies;
use foreread_core::event::Event;
use foreread_core::machine::Config;
use foreread_core::policy::{Answer, Ask, Info, Policy, PolicySpec};
use foreread_core::units::{ByteRange, OpenId, PageRange, PageSize, ReadId};

const PAGE: u64 = 4096;

fn world(policy: &str, pages: u64) -> World {
    World::new(policy, PAGE, pages * PAGE, 4096 * PAGE)
}

fn settled(world: &World, first: u64, end: u64) -> Option<u64> {
    let settled = world.machine.settled(OPEN, PageRange::between(first, end));
    settled.map(|settled| settled.pages)
}

#[test]
fn a_page_is_settled_when_it_was_read_and_bears_no_mark() {
    // A read of page 0 reads 16 pages, with the mark behind the first four.
    let mut world = world("linux-6.18:max=64K", 4096);
    world.read(0, PAGE);
    assert_eq!(settled(&world, 0, 1), None, "in flight");
    world.settle();
    assert_eq!(settled(&world, 0, 1), Some(1));
    assert_eq!(settled(&world, 0, 2), None, "page 1 has not been read");
    assert_eq!(settled(&world, 0, 0), None, "no page");
    world.read(60 * PAGE, 8 * PAGE);
    world.settle();
    assert_eq!(settled(&world, 60, 64), Some(0xf << 60 | 1));
    assert_eq!(settled(&world, 60, 68), None, "two groups");
    let other = world.machine.settled(OpenId(9), PageRange::between(0, 1));
    assert_eq!(other, None, "no such open description");
    world.invalidate(0, PAGE);
    assert_eq!(settled(&world, 60, 64), Some(0xf << 60));
    assert_eq!(settled(&world, 0, 1), None);
}

/// Wants to hear of every read of one page.
struct Keeper;

impl Policy for Keeper {
    fn on_miss(&mut self, _ask: &Ask<'_>, answer: &mut Answer) {
        answer.read(0, 2 * PAGE, Some(PAGE));
    }

    fn on_mark(&mut self, _ask: &Ask<'_>, answer: &mut Answer) {
        answer.keep_mark = true;
    }
}

static KEEPER: Info = test_policy("keeper", "keeps its mark", |_| Box::new(Keeper));

/// A policy that keeps a mark on a page is asked whenever the page is read.
#[test]
fn a_marked_page_is_not_settled() {
    let config = Config::new(PageSize::new(PAGE).expect("a page"), 4096 * PAGE);
    let mut world = World::of(PolicySpec::of(&KEEPER), config, 4096 * PAGE);
    for _ in 0..3 {
        world.read(0, 2 * PAGE);
        world.settle();
    }
    let group = world.machine.cache().group(FILE, 0);
    assert_eq!((group.used(), group.marked()), (3, 2));
    let both = (settled(&world, 0, 1), settled(&world, 1, 2));
    assert_eq!(both, (Some(1), None));
}

#[test]
fn a_policy_that_wants_each_read_is_asked() {
    for info in policies() {
        let mut world = world(info.name, 4096);
        for _ in 0..2 {
            world.read(0, PAGE);
            world.settle();
        }
        let is_asked = ["rbd-", "amp", "read-stream"];
        let is_asked = is_asked.iter().any(|name| info.name.starts_with(name));
        let settles = settled(&world, 0, 1).is_some();
        assert!(!(is_asked && settles), "{}", info.name);
        let is_not_asked = ["auto", "linux-6.18", "none"].contains(&info.name);
        assert!(settles || !is_not_asked, "{}", info.name);
    }
}

/// One machine is asked about every read, the other only about those that are not settled. Both do and count the same.
#[test]
fn a_hit_that_is_reported_is_a_read() {
    for info in policies() {
        let (mut asked, mut told) = (world(info.name, 256), world(info.name, 256));
        let (mut seed, mut reported) = (7u64, 0);
        for n in 0..3000_u64 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            // A stream, and reads in a set that is a little larger than the cache.
            let set = 1000 + (seed >> 33) % 280;
            let start = if seed >> 62 == 0 { n } else { set } * PAGE + 100;
            let len = (seed >> 50) % (2 * PAGE) + 1;
            let range = ByteRange::new(start, len).expect("a range");
            asked.read(start, len);
            asked.settle();
            let page = told.machine.config().page;
            if told.machine.settled(OPEN, page.cover(range)).is_some() {
                reported += 1;
                let read = ReadId(told.next_read);
                told.next_read += 1;
                told.send(Event::Hit {
                    read,
                    open: OPEN,
                    range,
                });
                // The release of the other.
                told.now += 1;
            } else {
                told.read(start, len);
            }
            told.settle();
        }
        let name = info.name;
        assert_eq!(asked.submitted, told.submitted, "{name}");
        assert_eq!(asked.machine.stats(), told.machine.stats(), "{name}");
        let of_open = [&asked, &told].map(|world| world.machine.open_stats(OPEN));
        assert_eq!(of_open[0], of_open[1], "{name}");
        assert_eq!(asked.held, told.held, "{name}: the order of eviction");
        let is_settled = settled(&told, 1000, 1001).is_some();
        assert!(reported > 300 || !is_settled, "{name}: {reported}");
        told.check_idle();
    }
}

/// A report comes late: what it was of may be gone, or be another page by now. A log may claim anything.
#[test]
fn a_report_changes_no_page() {
    let mut world = world("linux-6.18:max=64K", 4096);
    world.read(0, PAGE);
    world.settle();
    let found = |world: &World| {
        let used = world.machine.cache().group(FILE, 0).used();
        (used, world.submitted.len(), world.machine.stats().hits)
    };
    let (used, submitted, _) = found(&world);
    let hit = |world: &mut World, open, start, len| {
        let range = ByteRange::new(start, len).expect("a range");
        world.send(Event::Hit {
            read: ReadId(99),
            open,
            range,
        });
    };
    hit(&mut world, OPEN, PAGE, PAGE);
    hit(&mut world, OPEN, 4000 * PAGE, PAGE);
    assert_eq!(found(&world), (used, submitted, 2));
    // No reader, no bytes, and more than a group.
    hit(&mut world, OpenId(5), 0, PAGE);
    hit(&mut world, OPEN, 0, 0);
    hit(&mut world, OPEN, 0, 1 << 61);
    assert_eq!(found(&world), (used, submitted, 2));
    world.check_idle();
}
