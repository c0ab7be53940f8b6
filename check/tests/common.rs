//! Runs `foreread-check` as the command's tests run `foreread`.

#[path = "../../cli/tests/common/got.rs"]
#[allow(dead_code, reason = "the command's tests use all of it")]
mod got;
#[path = "../../cli/tests/common/help.rs"]
pub mod help;
#[path = "../../cli/tests/common/html.rs"]
pub mod html;
#[path = "../../cli/tests/common/odd.rs"]
pub mod odd;
#[path = "../../cli/tests/common/outputs.rs"]
pub mod outputs;

pub use got::foreread;

const BINARY: &str = env!("CARGO_BIN_EXE_foreread-check");
