//! Which colour a thing has, the same in each figure, on each page, by day and by night.
//!
//! ```text
//!   policy           colour                                  outcome of a read   colour
//!   none             0 grey                                  hit, used           3 green
//!   auto             1 blue                                  late                2 orange
//!   linux-*          2 orange                                miss                5 teal
//!   rbd-*            3 green                                 unused readahead    4 magenta, hatched
//!   kernel           4 magenta
//!   oracle           5 teal
//!   any other        3, 4 or 5, by its name alone
//! ```
//! Policies of one colour, such as `linux-6.18` and `linux-6.18:max=4M`, differ by dashes and markers, in their order in the figure.
//! Never: a colour by the place of a row.

use super::svg::{COLOURS, Look};

pub const HIT: usize = 3;
pub const LATE: usize = 2;
pub const MISS: usize = 5;
pub const UNUSED: usize = 4;
/// What was published or measured elsewhere, and ours beside it.
pub const OTHERS: usize = 0;
pub const OURS: usize = 1;
/// Reads in order, and at random.
pub const SEQUENTIAL: usize = 1;
pub const RANDOM: usize = 2;

/// Policies that have no colour by the table share these.
const SHARED: std::ops::Range<usize> = 3..COLOURS;

/// The colour of a policy with or without its values: `linux-6.18:max=4M`.
#[must_use]
pub fn of_policy(policy: &str) -> usize {
    let name = policy.split([':', ' ']).next().unwrap_or_default();
    match name.split('-').next().unwrap_or_default() {
        "none" => 0,
        "auto" => 1,
        "linux" => 2,
        "rbd" => 3,
        "kernel" => 4,
        "oracle" => 5,
        // FNV-1a: the same in each build.
        _ => {
            let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
            let hash = name.bytes().fold(0x811c_9dc5, step);
            SHARED.start + hash as usize % SHARED.len()
        }
    }
}

/// The looks of lines of these colours, in the order in which they are drawn. The second of a colour has other dashes and another marker.
#[must_use]
pub fn of_lines(colours: &[usize]) -> Vec<Look> {
    let look = |(n, colour): (usize, &usize)| {
        let before = colours[..n].iter().filter(|other| *other == colour).count();
        Look {
            colour: *colour,
            dash: before,
            marker: colour + 2 * before + before / 3,
            over: colours.len() - n - 1,
        }
    };
    colours.iter().enumerate().map(look).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is beside it, and with whatever values.
    #[test]
    fn a_policy_has_one_colour() {
        let names = [
            "none",
            "auto:max-overfetch=2",
            "linux-6.18:max=4M",
            "rbd-plain",
            "kernel",
            "oracle (a limit, not a choice)",
        ];
        assert_eq!(names.map(of_policy), [0, 1, 2, 3, 4, 5]);
        assert_eq!(of_policy("auto"), of_policy("auto:max-overfetch=2"));
        assert_eq!(of_policy("linux-2.6.0"), of_policy("linux-6.18"));
        for other in ["fsspec-readahead", "s3fs", "mountpoint", "", "\u{1b}<"] {
            assert!(SHARED.contains(&of_policy(other)), "{other}");
            assert_eq!(of_policy(other), of_policy(&format!("{other}:size=1M")));
        }
    }

    #[test]
    fn lines_of_one_colour_differ_by_dashes_and_markers() {
        let looks = of_lines(&[0, 2, 2, 2, 2, 5]);
        for (n, a) in looks.iter().enumerate() {
            for b in &looks[n + 1..] {
                let differ = (a.dash % 4, a.marker % COLOURS) != (b.dash % 4, b.marker % COLOURS);
                assert!(a.colour != b.colour || differ, "{a:?} {b:?}");
            }
        }
        assert_eq!((looks[1].dash, looks[1].marker, looks[1].over), (0, 2, 4));
    }
}
