//! Any bytes, after the handshake, to a whole NBD server behind a socket.
//! Never: believes the server about itself; the model is in `foreread::testing::fuzz`.

#![no_main]

use foreread::testing::fuzz::conversation;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| conversation(data).expect("what the server owes every client"));
