//! Any bytes as what an NBD client sends first.
//! Never: believes the server about itself; the model is in `foreread_testing::fuzz`.

#![no_main]

use foreread_testing::fuzz::handshake;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| handshake(data).expect("what the server owes every client"));
