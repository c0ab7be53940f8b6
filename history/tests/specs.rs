//! Tests of the notation `NAME:key=value,...` for the policies of this crate: values, errors, and which names are listed.

use foreread_core::policy::{PolicySpec, SpecError};
use foreread_history::{OPPONENTS, PUBLISHED, parse, parse_spec, policies};

fn values(text: &str) -> Vec<u64> {
    parse_spec(text)
        .unwrap_or_else(|e| panic!("{text}: {e}"))
        .values
}

fn refused(text: &str) -> String {
    parse_spec(text)
        .err()
        .unwrap_or_else(|| panic!("{text} was taken"))
        .to_string()
}

/// What is not written has its default; the order is that of the parameters.
#[test]
fn values_stand_in_the_order_of_the_parameters() {
    assert_eq!(values("linux-3.12"), [128 << 10, 1]);
    assert_eq!(values("linux-3.12:context=original"), [128 << 10, 3]);
    assert_eq!(values("linux-3.12:context=off,max=1M"), [1 << 20, 0]);
}

/// One line: what, where, and what would do.
#[test]
fn oversized_values_are_refused() {
    for (text, words) in [
        ("linux-3.12:context=some", "not one of off, conservative, "),
        (
            "linux-2.6.0:min=4095",
            " is not between 4096 and 1073741824",
        ),
        ("linux-2.6.0:min=1073741825", " is not between 4096 and 1"),
    ] {
        assert!(refused(text).contains(words), "{text}: {}", refused(text));
    }
}

#[test]
fn defaults_need_no_text() {
    for info in crate::golden::policies() {
        let of = PolicySpec::of(info);
        assert_eq!(of.values, values(info.name), "{}", info.name);
        assert_eq!(of.to_string(), info.name);
    }
}

/// Policies of the evaluation are understood by name and listed nowhere, not even in the error of an unknown name.
#[test]
fn opponents_are_understood_and_not_listed() {
    assert_eq!(values("amp"), [64 << 20]);
    assert_eq!(values("read-stream:combine=64K"), [2 << 20, 64 << 10]);
    for info in OPPONENTS {
        let mut listed = policies().into_iter();
        assert!(
            listed.all(|listed| listed.name != info.name),
            "{}",
            info.name
        );
    }
    assert!(refused("amp:min=1K").contains("'amp' has no parameter 'min'"));
    assert!(refused("amp:max=2G").contains("amp: max=2G is not between"));
    let error = parse_spec("apm").expect_err("unknown");
    let SpecError::UnknownName { known, .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!(known.len(), policies().len());
}

/// The lists of commands, in their order.
#[test]
fn the_published_are_before_the_kernel_of_today() {
    let names: Vec<&str> = policies().iter().map(|info| info.name).collect();
    assert_eq!(names[..3], ["auto", "none", PUBLISHED[0].name]);
    let newest = ["linux-3.12", "linux-6.18"];
    assert_eq!(names[1 + PUBLISHED.len()..][..2], newest);
    assert_eq!(names.last(), Some(&"rbd-eager"));
    let workloads = foreread_history::workloads();
    let named = |from: usize| Vec::from_iter(workloads[from..].iter().map(|info| info.name));
    assert_eq!(named(11)[..3], ["thrash", "blkid", "tree"]);
    let last = ["boot-ide", "boot-virtio", "grep-ide", "grep-virtio"];
    assert_eq!(named(22), last);
    assert!(parse("linux-2.6.0").is_ok() && parse("linux-2.6.1").is_err());
}
