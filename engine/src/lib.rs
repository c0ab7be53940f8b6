//! The room that does.
