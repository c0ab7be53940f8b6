//! Tests that waiting readahead is sent in the order in which readers will need it.

use crate::common::{World, test_policy};
use foreread_core::event::Class;
use foreread_core::machine::Config;
use foreread_core::policy::{Answer, Ask, Info, Policy, PolicySpec, Urgency, Wants};
use foreread_core::units::PageSize;

const PAGE: u64 = 4096;

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

struct Planner;

impl Policy for Planner {
    fn wants(&self) -> Wants {
        Wants {
            read: true,
            ..Wants::default()
        }
    }

    fn on_read(&mut self, ask: &Ask<'_>, answer: &mut Answer) {
        let windows = PLANS
            .iter()
            .find(|(page, _)| *page * PAGE == ask.request.start())
            .map_or(&[][..], |(_, w)| w);
        for (first, pages, of) in windows {
            answer.urgency = of.map(|(stream, away)| Urgency {
                stream,
                away: away * PAGE,
            });
            answer.read(first * PAGE, pages * PAGE, None);
        }
    }
}

static PLANNER: Info = test_policy("planner", "plans what the test says", |_| Box::new(Planner));

/// Pages 10 to 13 are 8 to 11 pages from their reader; 10 is in flight. Those of stream 2 pass the others, which are more than twice as far.
/// Page 200 does not, since twice 5 is less than 11 but not than 10: it passes one. Page 250 is of the same stream as 13, and 300 has no urgency, so that
/// 400 passes nothing.
#[test]
fn urgent_windows_go_first() {
    let mut config = Config::new(PageSize::new(PAGE).expect("4096"), 1 << 30);
    (
        config.max_fetch_bytes,
        config.max_ahead_in_flight,
        config.max_short_ahead_in_flight,
    ) = (PAGE, 1, 1);
    let mut world = World::of(PolicySpec::of(&PLANNER), config, 1000 * PAGE);
    world.read(0, PAGE);
    world.read(100 * PAGE, PAGE);
    world.settle();
    let ahead = world
        .submitted
        .iter()
        .filter(|(_, class)| *class == Class::Ahead);
    let pages: Vec<u64> = ahead.map(|(range, _)| range.start() / PAGE).collect();
    assert_eq!(pages, [10, 101, 102, 11, 12, 200, 13, 250, 300, 400]);
    world.check_idle();
}
