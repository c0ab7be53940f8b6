//! Tests the counts of decisions by pattern: a sequence of reads for each pattern, and that the counts add up for every policy.

use crate::common::{OPEN, World};
use crate::golden::policies;
use foreread_core::event::{Advice, Event, Mapping};
use foreread_core::machine::Config;
use foreread_core::policy::Pattern;
use foreread_core::stats::Decisions;
use foreread_core::units::{ByteRange, PageSize, ReadId};

const PAGE: u64 = 4096;

fn config(pages: u64) -> Config {
    Config::new(PageSize::new(PAGE).expect("4096"), pages * PAGE)
}

/// Reads of pages, `(first, pages)`.
pub fn read_pages(world: &mut World, reads: impl IntoIterator<Item = (u64, u64)>) {
    for (first, pages) in reads {
        world.read(first * PAGE, pages * PAGE);
        world.settle();
    }
}

/// What the policy decided on a file of 40,000 pages, and its answers with windows.
pub fn decided(policy: &str, go: impl FnOnce(&mut World)) -> (Decisions, usize) {
    let mut world = World::with(policy, config(4096), 40_000 * PAGE);
    world.machine.watch();
    go(&mut world);
    world.settle();
    (
        world.machine.stats().decisions,
        world.machine.take_decisions().len(),
    )
}

pub fn by_pattern(decisions: &Decisions) -> [u64; 7] {
    Pattern::ALL.map(|pattern| decisions.of(pattern))
}

fn advise(world: &mut World, advice: Advice, first: u64, end: u64) {
    let (open, range) = (OPEN, ByteRange::between(first * PAGE, end * PAGE));
    world.send(Event::Advise {
        open,
        advice,
        range,
    });
}

fn fault(world: &mut World, page: u64) {
    let range = ByteRange::between(0, 40_000 * PAGE);
    let map = Mapping {
        range,
        advice: Advice::Normal,
        executable: false,
    };
    world.next_read += 1;
    world.send(Event::Fault {
        read: ReadId(900_000 + page),
        open: OPEN,
        at: page * PAGE,
        map,
    });
    world.settle();
}

/// The decisions of the policy on reads of pages.
pub fn story(policy: &str, reads: Vec<(u64, u64)>) -> Decisions {
    decided(policy, |world| read_pages(world, reads)).0
}

/// One page after the other.
pub fn ones(pages: std::ops::Range<u64>) -> Vec<(u64, u64)> {
    pages.map(|page| (page, 1)).collect()
}

/// Each pattern by a story whose decisions are the worked examples of docs/spec/linux-readahead.md 2.8, 1.5 and 4.12.
#[test]
fn decisions_are_counted_by_pattern() {
    // Ten reads in order start it; the read out of order is random.
    let reads = [ones(0..10), ones(900..901)].concat();
    let started = story("rbd-plain:max=64K", reads);
    assert_eq!(by_pattern(&started), [1, 0, 0, 0, 0, 0, 1]);
    let (hinted, _) = decided("linux-6.18", |world| {
        advise(world, Advice::WillNeed, 200, 203);
        world.prefetch(OPEN, 900 * PAGE, PAGE);
        world.settle();
        read_pages(world, [(203, 1)]);
        fault(world, 3000);
    });
    assert_eq!(by_pattern(&hinted), [0, 0, 1, 1, 2, 0, 0]);
}

/// Every answer with windows is a decision of exactly one pattern; without windows only a random read is one.
#[test]
fn decisions_add_up_for_every_policy() {
    for info in policies() {
        let (decisions, answers) = decided(info.name, |world| {
            read_pages(world, (0..300).map(|n| (n, 1)));
            read_pages(world, (0..50).map(|n| (9000 + n * 7919 % 9000, 3)));
            read_pages(world, (0..60).flat_map(|n| [(2000 + n, 1), (4000 + n, 1)]));
            read_pages(world, [(20_000, 500), (20_500, 500)]);
            fault(world, 30_000);
            advise(world, Advice::WillNeed, 35_000, 35_100);
            advise(world, Advice::Random, 0, 0);
            read_pages(world, [(36_000, 4), (37_000, 4)]);
        });
        let random = decisions.of(Pattern::Random);
        let sum: u64 = by_pattern(&decisions).iter().sum();
        assert_eq!(decisions.all(), sum, "{}", info.name);
        let (answers, name) = (answers as u64, info.name);
        let adds_up = sum >= answers && sum - random <= answers;
        assert!(adds_up, "{name}: {decisions:?}, {answers} answers");
        assert_eq!(sum == 0, name == "none", "{name}: {decisions:?}");
    }
}
