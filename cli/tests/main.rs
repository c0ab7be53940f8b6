//! The tests of the command `foreread` as one binary, because linking is the slow part of a test build.

mod activation;
mod cache;
mod common;
mod compare;
mod configuration;
mod docs;
mod doctor;
mod golden;
mod hang;
mod help;
mod mount;
mod otlp;
mod outputs;
mod plan;
mod probe;
mod record;
mod recording;
mod refusals;
mod run;
mod run_sampled;
mod secrets;
mod snapshots;
mod threads;
mod tune;
