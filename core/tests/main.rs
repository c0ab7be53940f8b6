//! The tests of foreread-core's public interface, as one binary: linking is the slow part of a test build.

mod common;
mod extremes;
mod figures;
mod files;
mod golden;
mod golden_tables;
mod hits;
mod listed;
mod model;
mod patterns;
mod rules;
mod specs;
mod tidy;
mod tidy_docs;
mod tidy_figures;
mod tidy_graph;
mod tidy_links;
mod tidy_names;
mod tidy_references;
mod tidy_words;
mod tree;
mod urgency;
mod worlds;
