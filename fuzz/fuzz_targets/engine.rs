//! Fuzzes the engine with reads, hints, writes, new versions of the source and injected source failures, and compares
//! what is read with plain vectors of bytes. The target compares only results, and never looks inside the engine.

#![no_main]

mod story;

use foreread_testing::fuzz::engine;
use libfuzzer_sys::fuzz_target;
use story::Told;

fuzz_target!(|told: Told| engine(&told.0, false).expect("what the engine owes every reader"));
