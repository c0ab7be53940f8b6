//! Every format read and written: its items beside an independent count, its damage, its limits.

mod block;
#[path = "../../src/test_bytes.rs"]
mod bytes;
mod fio;
mod golden;
mod mutants;
mod strace;
mod tables;
mod traces;
