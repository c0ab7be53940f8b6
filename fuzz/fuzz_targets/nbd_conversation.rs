//! Fuzzes a complete NBD server: sends any bytes to its socket after the handshake. The checks are in `foreread_testing::fuzz`.

#![no_main]

use foreread_testing::fuzz::conversation;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| conversation(data).expect("what the server owes every client"));
