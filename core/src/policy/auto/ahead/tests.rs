//! How far a run is read ahead, for single streams.

use super::*;

/// 100 MB were wasted, far more than may be. A run of 256 KiB is ahead by 256 KiB all the same.
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
    let reach = auto.reach(&mut stream, &source, &others);
    assert_eq!(reach.ahead, run);
}
