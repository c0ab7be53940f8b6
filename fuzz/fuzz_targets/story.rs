//! Makes a story (a sequence of engine operations) from a fuzzer's bytes. This file is not a target.

use arbitrary::{Arbitrary, Result, Unstructured};
use foreread_testing::fuzz::Story;

/// See [`Story`].
#[derive(Debug)]
pub struct Told(pub Story);

impl<'a> Arbitrary<'a> for Told {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Told> {
        let next = |below: u64| if u.is_empty() { None } else { u.int_in_range(0..=below - 1).ok() };
        Ok(Told(Story::build(next)))
    }
}
