//! Any bytes as what an NBD client sends first.
//! Never: believes the server about itself; the model is in `foreread::testing::fuzz`.

#![no_main]

use foreread::testing::fuzz::handshake;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| handshake(data).expect("what the server owes every client"));
