//! Fuzzes the handshake of the NBD server with any bytes from a client. The checks are in `foreread_testing::fuzz`.

#![no_main]

use foreread_testing::fuzz::handshake;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| handshake(data).expect("what the server owes every client"));
