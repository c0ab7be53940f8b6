//! Fuzzes the requests to the NBD server: two bytes are settings (bit 1 of the first inserts the magic numbers), then each 28 bytes are a
//! request. The checks are in `foreread_testing::fuzz`.

#![no_main]

use foreread_testing::fuzz::requests;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| requests(data).expect("what the server owes every client"));
