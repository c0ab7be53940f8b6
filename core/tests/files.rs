//! Tests of files in a listing: they are known without an open description, `auto` reads them ahead, and they are forgotten.

use crate::common::{FILE, OPEN, World};
use foreread_core::event::{Class, Event};
use foreread_core::machine::Config;
use foreread_core::units::{FileId, OpenId, PageSize};

const PAGE: u64 = 4096;
const SIZE: u64 = 3 * PAGE + 100;

fn open(world: &mut World, open: OpenId, file: FileId, size: u64) {
    world.send(Event::open(open, file, size));
}

/// A file of 12 KiB that is open, and a listing of nine more behind it.
fn world(planned: bool) -> World {
    let page = PageSize::new(PAGE).expect("a page size");
    let mut world = World::with("auto", Config::new(page, 1 << 30), SIZE);
    for file in 1..10 {
        world.send(Event::List {
            file: FileId(file),
            size: SIZE,
            after: Some(FileId(file - 1)),
            planned,
        });
    }
    world
}

/// Files that fetches in flight are of.
fn in_flight(world: &World) -> Vec<u32> {
    let pending = world.pending.values();
    pending.map(|pending| pending.file.0).collect()
}

#[test]
fn a_listed_file_is_read_before_it_is_opened() {
    let mut world = world(true);
    world.read(0, SIZE);
    assert_eq!(in_flight(&world)[0], 0, "demand goes first");
    let mut ahead = Vec::from_iter(world.pending.values());
    ahead.retain(|pending| pending.file == FileId(1));
    let whole = (1, SIZE, Class::Ahead);
    let first = (ahead.len(), ahead[0].range.end(), ahead[0].class);
    assert_eq!(first, whole, "in one fetch");
    world.settle();
    let fetches = world.machine.stats().source_reads;
    open(&mut world, OpenId(7), FileId(1), SIZE);
    let read = world.read_on(OpenId(7), 0, SIZE);
    assert_eq!(world.ended[&read], Ok(()), "every page was there");
    assert!(!in_flight(&world).contains(&1));
    assert_eq!(world.served[&read], SIZE);
    assert!(world.machine.stats().hits == 1 && fetches >= 2);
    world.settle();
    world.check_idle();
}

/// The order alone is no reason: the second file that is opened in it is.
#[test]
fn a_listing_is_followed_by_a_reader_that_follows_it() {
    let mut world = world(false);
    world.read(0, SIZE);
    assert_eq!(in_flight(&world), [0]);
    world.settle();
    open(&mut world, OpenId(1), FileId(1), SIZE);
    world.read_on(OpenId(1), 0, SIZE);
    assert!(in_flight(&world).len() > 2, "{:?}", in_flight(&world));
    world.settle();
    world.check_idle();
}

/// Pages present and pages in flight go with a listed file, and its number has no order afterwards.
#[test]
fn a_listed_file_can_be_forgotten() {
    let mut world = world(true);
    world.read(0, SIZE);
    let mut pending = world.pending.iter();
    let ahead = pending.find(|(_, pending)| pending.file == FileId(1));
    let fetch = *ahead.expect("read ahead").0;
    world.send(Event::Forget { file: FileId(1) });
    assert!(world.cancelled.contains(&fetch));
    world.settle();
    world.send(Event::Forget { file: FileId(2) });
    let mut held = world.held.keys();
    assert!(held.all(|(file, _)| ![1, 2].contains(&file.0)));
    assert_eq!(world.machine.stats().unused_bytes, SIZE);
    // The number is another file's, and nothing is behind the first one any more.
    open(&mut world, OpenId(1), FileId(1), SIZE);
    world.send(Event::Close { open: OPEN });
    open(&mut world, OPEN, FILE, SIZE);
    world.invalidate(0, SIZE);
    world.read(0, SIZE);
    assert_eq!(in_flight(&world), [0]);
    world.settle();
    world.check_idle();
}

/// Of short requests more may be ahead than of long ones, as long as they have few bytes together.
#[test]
fn the_number_of_requests_ahead_follows_from_their_length() {
    for (len, ahead) in [(PAGE, 7), (512 << 10, 6), (1 << 20, 3), (2 << 20, 2)] {
        let page = PageSize::new(PAGE).expect("a page size");
        let (max_ahead_in_flight, max_short_ahead_in_flight, max_fetch_bytes) = (2, 7, 4 << 20);
        let config = Config {
            max_ahead_in_flight,
            max_short_ahead_in_flight,
            max_fetch_bytes,
            ..Config::new(page, 1 << 30)
        };
        let mut world = World::with("none", config, 1 << 30);
        (0..20).for_each(|n| world.prefetch(OPEN, n << 22, len));
        assert_eq!(world.pending.len(), ahead, "of {len} bytes each");
        world.settle();
        world.check_idle();
    }
}

/// The driver is asked to end what is in flight ahead of the last description that has read; those that have read nothing do not count.
#[test]
fn closing_the_last_reader_cancels_readahead() {
    const LONG: u64 = 64 << 20;
    for other_reads in [false, true] {
        let config = Config::new(PageSize::new(PAGE).expect("a page size"), 1 << 30);
        let mut world = World::with("linux-6.18:max=1M", config, LONG);
        let other = OpenId(1);
        world.open(other);
        if other_reads {
            world.read_on(other, LONG / 2, 1);
            world.settle();
        }
        // The first read brings four pages, the second reaches their mark.
        world.read(0, PAGE);
        world.settle();
        world.read(PAGE, PAGE);
        let ahead: Vec<_> = world.pending.keys().copied().collect();
        assert!(!ahead.is_empty());
        world.send(Event::Close { open: OPEN });
        let cancelled: Vec<_> = world.cancelled.iter().copied().collect();
        if other_reads {
            assert_eq!(cancelled, []);
            world.settle();
            continue;
        }
        assert_eq!(cancelled, ahead);
        // One ends early, the others bring what they have all the same; a read that joins the first fetches for itself.
        let start = world.pending[&ahead[0]].range.start();
        let read = world.read_on(other, start, 1);
        world.fail(ahead[0]);
        world.settle();
        assert_eq!(world.ended[&read], Ok(()));
        assert_eq!(world.machine.stats().failed_fetches, 0);
        world.check_idle();
    }
}

/// Without a size there is nothing to read, and a file is not its own neighbour.
#[test]
fn odd_listings_do_no_harm() {
    let mut world = world(true);
    for (file, after) in [(1, 1), (u32::MAX, 0), (3, 999), (0, 9)] {
        world.send(Event::List {
            file: FileId(file),
            size: 9,
            after: Some(FileId(after)),
            planned: true,
        });
    }
    world.read(0, PAGE);
    world.settle();
    world.check_idle();
    assert_eq!(world.machine.stats().failed_reads, 0);
    // Each file once, though the order is a circle.
    assert!(world.held.len() as u64 <= 10 * 4);
}
