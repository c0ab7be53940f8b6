//! The policies that these tests run, all of this crate, and their golden tables.

use crate::common::World;
use crate::golden_tables::golden;
use foreread_core::policy::Info;
use foreread_history::{OPPONENTS, PUBLISHED};

pub use foreread_history::parse_spec as parse;

const PAGE: u64 = 4096;

/// Policies whose small worlds are walked, with windows that are small too.
pub const SMALL_WORLDS: [&str; 2] = ["linux-2.6.0:max=16K", "linux-2.6.31:max=16K"];

pub fn policies() -> Vec<&'static Info> {
    [PUBLISHED, OPPONENTS].concat()
}

golden! {
    linux_2_6_0: linux, "linux-2.6.0.txt", 60;
    linux_2_6_0_mm: linux, "linux-2.6.0-mm.txt", 20;
    linux_2_6_0_mm_fix: linux, "linux-2.6.0-mm-fix.txt", 40;
    linux_2_6_23: linux, "linux-2.6.23.txt", 80;
    linux_2_6_31: linux, "linux-2.6.31.txt", 80;
    linux_thrashsafe: linux, "linux-thrashsafe.txt", 78;
    linux_3_12: linux, "linux-3.12.txt", 115;
    hints: linux, "hints.txt", 83;
    amp: linux, "amp.txt", 31;
    read_stream: linux, "read-stream.txt", 29;
    peer_mountpoint_s3: linux, "peer-mountpoint-s3.txt", 7;
}

/// Section 1.3, property (d): a request of 16 pages that finds readahead off is 16 reads of one page, each waited for,
/// or one read with the fix. Either way the announcement is made once (e).
#[test]
fn page_by_page_or_whole() {
    for (policy, reads) in [
        ("linux-2.6.0", vec![1; 16]),
        ("linux-2.6.0-mm", vec![1; 16]),
        ("linux-2.6.0-mm-fix", vec![16]),
        ("linux-2.6.0-mm-fix:request_size=on", vec![16]),
    ] {
        let mut world = World::new(policy, PAGE, 1 << 30, 4000 * PAGE);
        world.machine.watch();
        world.read(100 * PAGE, 16 * PAGE);
        assert_eq!(world.pending.len(), 1, "{policy}: one read at a time");
        world.settle();
        let submitted: Vec<u64> = world
            .submitted
            .iter()
            .map(|(range, _)| range.len() / PAGE)
            .collect();
        assert_eq!(submitted, reads, "{policy}");
        assert!(world.machine.take_decisions().len() <= 1, "{policy}");
        world.check_idle();
    }
}
