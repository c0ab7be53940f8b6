//! The same as `engine`, with a bug planted in the storage: this one has to be found, soon, or the others mean nothing.
//! Never: passes for long.

#![no_main]

mod story;

use foreread_testing::fuzz::engine;
use libfuzzer_sys::fuzz_target;
use story::Told;

fuzz_target!(|told: Told| engine(&told.0, true).expect("the canary sings"));
