//! Like `engine`, but the storage has a deliberate bug. This target must fail soon; otherwise the other targets would miss such a bug, too.

#![no_main]

mod story;

use foreread_testing::fuzz::engine;
use libfuzzer_sys::fuzz_target;
use story::Told;

fuzz_target!(|told: Told| engine(&told.0, true).expect("the canary sings"));
