//! Fuzzes the importers of traces: reads any bytes in the format that FOREREAD_FORMAT names, with its keys (default "foreread"). With
//! "foreread-sealed" the bytes are the items of a block with a valid checksum. The target does not check what the items mean.

#![no_main]

use foreread_trace::fuzz::{by_name, one, sealed};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static NAME: LazyLock<String> =
    LazyLock::new(|| std::env::var("FOREREAD_FORMAT").unwrap_or_else(|_| "foreread".to_string()));

fuzz_target!(|data: &[u8]| {
    let forged;
    let (name, data) = match (NAME.as_str(), data.split_first()) {
        ("foreread-sealed", Some((items, plain))) => {
            forged = sealed(plain, u32::from(*items));
            ("foreread", forged.as_slice())
        }
        ("foreread-sealed", None) => return,
        (name, _) => (name, data),
    };
    let (format, pairs) = by_name(name).expect("FOREREAD_FORMAT names a format");
    one(format, pairs, data).expect("what every importer owes");
});
