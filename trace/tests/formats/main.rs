//! Every format read and written: its items beside an independent count, its damage, its limits.

mod block;
mod fio;
mod golden;
mod mutants;
mod own;
mod parquet;
#[path = "../../src/test_rng.rs"]
mod rng;
mod speed;
mod strace;
mod tables;
mod tools_fio;
mod traces;
