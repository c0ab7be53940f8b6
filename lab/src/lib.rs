//! The room that measures.
