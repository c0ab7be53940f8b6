//! Compares foreread's readahead decisions with the recorded decisions of a real system (the kernel or librbd).
//!
//! Changes to the page cache that do not come from readahead (such as pages that a hint dropped) are taken from the recording; everything
//! else is predicted.

mod cursor;
pub mod linux;
pub mod live;
pub mod pages;
#[cfg(feature = "rbd")]
pub mod rbd;
#[cfg(feature = "rbd")]
pub mod recording;
pub mod world;

/// The first place where two lists differ, and what each has there.
fn first_difference<T>(
    ours: &[T],
    theirs: &[T],
    is_same: impl Fn(&T, &T) -> bool,
    words: impl Fn(&T) -> String,
) -> Option<(usize, [String; 2])> {
    let same = |at: usize| match (ours.get(at), theirs.get(at)) {
        (Some(ours), Some(theirs)) => is_same(ours, theirs),
        _ => false,
    };
    let at = (0..ours.len().max(theirs.len())).find(|&at| !same(at))?;
    let words = |list: &[T]| list.get(at).map_or("none".to_string(), &words);
    Some((at, [words(ours), words(theirs)]))
}
