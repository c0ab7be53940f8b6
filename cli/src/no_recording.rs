//! Replaces `recording.rs` in a build without the feature `lab`: `--record` is refused with an error.

use crate::fail::Fail;
use foreread::front::observe::Observer;
use std::path::Path;
use std::sync::Arc;

pub enum Recording {}

pub fn start(path: Option<&Path>, _front: &str) -> Result<Option<Recording>, Fail> {
    match path {
        None => Ok(None),
        Some(_) => Err(Fail::cannot(
            "this build cannot record",
            "",
            "build it with --features lab",
        )),
    }
}

pub fn observer(_recording: Option<&Recording>) -> Option<Arc<dyn Observer>> {
    None
}

pub fn end(_recording: Option<Recording>) -> Result<(), Fail> {
    Ok(())
}
