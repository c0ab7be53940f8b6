//! Writes the SONAME into the shared library: `libforeread.so.0.1` for version 0.1.4.
//!
//! Before 1.0 each minor version may change the ABI, so the minor version is part of the name. From 1.0 on, only the
//! major version is part of the name. `capi/install` and `cargo cinstall` install the library under this name.

use std::env::var;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let part = |name: &str| var(format!("CARGO_PKG_VERSION_{name}")).unwrap_or_default();
    let abi = match part("MAJOR").as_str() {
        "0" => format!("0.{}", part("MINOR")),
        major => major.to_string(),
    };
    if var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libforeread.so.{abi}");
    }
}
