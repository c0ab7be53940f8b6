//! The lab's tests as one binary, because linking is the slow part of a test build.

mod common;
mod compare;
mod explain;
mod limits;
mod memory;
mod probe;
mod replay;
mod replay_live;
mod tune;
mod vary;
mod vm_traces;
