//! Any bytes as requests: two of settings (bit 1 of the first puts the magic numbers in), then 28 for each request.
//! Never: believes the server about itself; the model is in `foreread_testing::fuzz`.

#![no_main]

use foreread_testing::fuzz::requests;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| requests(data).expect("what the server owes every client"));
