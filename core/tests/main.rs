//! The tests of foreread-core's public interface as one binary, because linking is the slow part of a test build.

mod common;
mod files;
mod golden;
mod golden_tables;
mod hits;
mod model;
mod patterns;
mod rules;
mod specs;
mod tidy;
mod tidy_graph;
mod tree;
mod worlds;
