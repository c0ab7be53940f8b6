//! placeholder
use super::{Info, Policy, Scope};
use alloc::boxed::Box;
struct P;
impl Policy for P {}
/// placeholder
pub static INFO: Info = Info { name: "linux-6.18", summary: "", origin: "", scope: Scope::Open, page_bytes: None, params: &[], build: |_| Box::new(P) };
