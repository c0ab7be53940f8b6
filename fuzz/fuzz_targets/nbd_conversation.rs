//! Any bytes, after the handshake, to a whole NBD server behind a socket.
//! Never: believes the server about itself; the model is in `foreread_testing::fuzz`.

#![no_main]

use foreread_testing::fuzz::conversation;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| conversation(data).expect("what the server owes every client"));
