//! A story of the engine from a fuzzer's bytes.
//! Never: a target.

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
