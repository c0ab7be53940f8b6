//! Tests with numbers at the ends of their ranges, as in a hostile event log: no event may end the process.

use foreread_core::event::{Action, Event};
use foreread_core::machine::{Config, Machine};
use foreread_core::policy::PolicySpec;
use foreread_core::units::{ByteRange, FileId, MAX_OFFSET, Nanos, OpenId, PageSize, ReadId};

const FAR: u64 = 5_000_000_000_000_000_000;

fn read(number: u64, start: u64, len: u64) -> Event {
    Event::Read {
        read: ReadId(number),
        open: OpenId(0),
        range: ByteRange::between(start, start + len),
        random: false,
    }
}

/// Feeds the events to `auto`; each fetch arrives whole at the end of time.
fn feed(events: &[Event]) {
    let config = Config::new(PageSize::new(4096).expect("a page size"), 1 << 20);
    let mut machine = Machine::new(config, PolicySpec::parse("auto").expect("a policy"));
    let (open, file) = (OpenId(0), FileId(0));
    let size = MAX_OFFSET;
    machine.handle(Nanos(0), Event::Open { open, file, size });
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
    feed(&[read(0, 0, MAX_OFFSET)]);
    feed(&[read(0, 0, 1 << 48), read(1, 1 << 50, 1 << 48)]);
    let slow = Event::Answered { ns: FAR };
    feed(&[slow, read(0, 0, 128 << 10), read(1, 128 << 10, 128 << 10)]);
    feed(&[
        slow,
        read(0, 0, 4096),
        read(1, 1 << 20, 4096),
        read(2, 5 << 20, 4096),
    ]);
    feed(&[
        read(0, 0, 4096),
        read(1, u64::from(u32::MAX) << 16, 64 << 10),
        read(2, MAX_OFFSET - 4096, 4096),
        read(3, 0, MAX_OFFSET),
        read(4, 1 << 30, 4096),
    ]);
}
