//! The tests of the command `foreread`, as one binary: linking is the slow part of a test build.

#[cfg(feature = "nbd")]
mod activation;
mod check;
mod common;
mod configuration;
mod explain;
#[cfg(feature = "fuse")]
mod hang;
mod help;
mod html;
mod lists;
mod metadata;
#[cfg(feature = "fuse")]
mod mount;
mod outputs;
mod plan;
mod probe;
mod record;
mod record_kernel;
#[cfg(feature = "nbd")]
mod recording;
mod refusals;
mod replay;
mod replay_log;
mod run;
#[cfg(all(feature = "object", feature = "nbd"))]
mod secrets;
mod sweep;
mod threads;
mod trace;
mod tune;
mod vary;
mod watch;
