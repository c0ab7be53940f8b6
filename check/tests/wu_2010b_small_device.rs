//! [Wu 2010b] (Wu Fengguang, 2010): blkid on Linus Torvalds's USB device of 505 kB and 15 kB/s.

use crate::papers::{mean, table};
use foreread_check::reproduce::published::wu_2010b::{BLKID, TINY};
use foreread_core::event::Event;
use foreread_core::machine::{Config, Machine};
use foreread_core::units::{ByteRange, FileId, Nanos, OpenId, PageSize, ReadId};
use foreread_sim::zero_latency;

const UNCAPPED: &str = "linux-2.6.31:max=128K";
/// The cap of the seed: one page below 2 MiB.
const CAPPED: &str = "linux-2.6.31:max=4K";

/// Source bytes and seconds of a policy.
fn cost(advice: &str, policy: &str) -> (u64, f64) {
    let table = table(
        &format!("blkid:advice={advice}"),
        "tiny-usb",
        &[policy],
        1,
        None,
    );
    let source = mean(&table, policy, |run| run.stats.source_bytes as f64) as u64;
    (source, mean(&table, policy, |run| run.time_s))
}

/// 17 KiB are wanted, which lie in five pages.
#[test]
fn the_cap_and_the_hint_save_seconds() {
    let (uncapped, capped) = (cost("normal", UNCAPPED), cost("normal", CAPPED));
    let hinted = cost("random", UNCAPPED);
    println!("no cap {uncapped:?}, cap {capped:?}, hint {hinted:?}");
    assert_eq!(
        (uncapped.0, capped.0, hinted.0),
        (28 * 4096, 6 * 4096, 5 * 4096)
    );
    assert_eq!(
        cost("normal", "none"),
        hinted,
        "nothing is read that is not asked for"
    );
    // 15 kB/s and nothing else: bytes are seconds.
    for (bytes, seconds) in [uncapped, capped, hinted] {
        assert!(
            (bytes as f64 / TINY.1 / seconds - 1.0).abs() < 0.001,
            "{bytes} in {seconds} s"
        );
    }
}

/// The posting: 4 pages at the start of the file, then 8, contiguous; 48 kB. The second read ends in the page behind
/// the first 4, which bears the mark of the 8, so by the rules of that kernel a third window follows.
#[test]
fn the_windows_are_those_published_and_one_more() {
    let page = PageSize::new(4096).expect("a page size");
    let mut machine = Machine::new(
        Config::new(page, 1 << 20),
        foreread_history::parse_spec(UNCAPPED).expect("a policy"),
    );
    machine.watch();
    machine.handle(
        Nanos(0),
        Event::Open {
            open: OpenId(0),
            file: FileId(0),
            size: TINY.0,
        },
    );
    for (n, (offset, len, _)) in BLKID.into_iter().enumerate() {
        let range = ByteRange::between(offset, offset + len);
        let read = Event::Read {
            read: ReadId(n as u64),
            open: OpenId(0),
            range,
            random: false,
        };
        zero_latency::tell(&mut machine, read, |_| ());
    }
    let pages = |range: ByteRange| (range.start() / 4096, range.len() / 4096);
    let windows: Vec<(u64, u64)> = machine
        .take_decisions()
        .into_iter()
        .flat_map(|d| d.windows)
        .map(|w| pages(w.range))
        .collect();
    let [(.., first), (.., second)] = BLKID;
    assert_eq!(windows, [(0, first), (first, second), (first + second, 16)]);
}
