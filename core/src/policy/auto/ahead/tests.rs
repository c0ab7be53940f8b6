//! How far a run is read ahead, for single streams.

use super::*;

/// Even after 100 MB were wasted, far more than is allowed, a run of 256 KiB is read ahead by 256 KiB.
#[test]
fn a_run_is_read_ahead_whatever_was_wasted() {
    let mut auto = Auto::new(2000);
    let source = SourceView {
        latency_ns: 1_000_000,
        room: 32 << 20,
        unused_bytes: 100 << 20,
        ahead_slots: 16,
        ..SourceView::default()
    };
    let others = Others {
        active: Readers {
            link: 1,
            room: 1,
            held: 0,
        },
        unread: 0,
        held: 0,
        are_disturbed: false,
    };
    let run = 256 << 10;
    let mut stream = Stream::new(RunKind::Start, None, run, run, 4096);
    let reach = auto.reach(&mut stream, (&source, Nanos(1)), &others);
    assert_eq!(reach.ahead, run);
}

/// A single reader of 1 MB/s is slow after eight spans. It is no longer slow once more than four streams are active.
#[test]
fn one_of_many_streams_is_not_slow() {
    let store = SourceView {
        latency_ns: 30_000_000,
        single_rate: 1,
        ..SourceView::default()
    };
    let mut stream = Stream::new(RunKind::Start, None, 0, 0, 4096);
    stream.distance = 24_000_000;
    for n in 1..=9 {
        stream.run = n * 60_000;
        enough(&mut stream, 1, (&store, Nanos(n * 60_000_000)), false);
    }
    assert!(stream.pace.is_slow());
    let many = enough(&mut stream, FEW + 1, (&store, Nanos(600_000_000)), false);
    assert_eq!((many, stream.pace.is_slow()), (u64::MAX, false));
}
