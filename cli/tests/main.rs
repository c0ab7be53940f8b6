//! The tests of the command `foreread` as one binary, because linking is the slow part of a test build.

#[cfg(feature = "serve")]
mod activation;
#[cfg(feature = "object")]
mod cache;
mod common;
mod compare;
mod configuration;
#[cfg(all(feature = "object", feature = "serve", feature = "mount"))]
mod docs;
mod doctor;
#[cfg(feature = "object")]
mod golden;
#[cfg(feature = "mount")]
mod hang;
mod help;
#[cfg(feature = "mount")]
mod mount;
#[cfg(all(feature = "otlp", feature = "serve"))]
mod otlp;
mod outputs;
mod plan;
mod probe;
mod record;
mod record_kernel;
#[cfg(feature = "serve")]
mod recording;
mod refusals;
mod run;
mod run_promises;
mod run_sampled;
#[cfg(all(feature = "object", feature = "serve", feature = "mount"))]
mod secrets;
#[cfg(all(
    feature = "object",
    feature = "otlp",
    feature = "mount",
    feature = "rbd"
))]
mod snapshots;
mod threads;
mod tune;
