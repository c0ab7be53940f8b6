//! Tests of the notation `NAME:key=value,...`: what is accepted, what is refused and with which words, and that written
//! text parses to the same policy.

use foreread_core::policy::{ALL, PolicyDraft, PolicySpec};

fn values(text: &str) -> Vec<u64> {
    PolicySpec::parse(text)
        .unwrap_or_else(|e| panic!("{text}: {e}"))
        .values
}

fn refused(text: &str) -> String {
    PolicySpec::parse(text)
        .err()
        .unwrap_or_else(|| panic!("{text} was taken"))
        .to_string()
}

/// What is not written has its default; the order is that of the parameters.
#[test]
fn values_stand_in_the_order_of_the_parameters() {
    assert_eq!(values("none"), []);
    assert_eq!(values("linux-6.18"), [128 << 10, 1280 << 10, 0]);
    let folios = values("linux-6.18:folios=on,max=1M");
    assert_eq!(folios, [1 << 20, 1280 << 10, 1]);
    assert_eq!(values("rbd-plain:max=8K,trigger=3"), [3, 0, 8 << 10, 0]);
    assert_eq!(values("rbd-aligned:stripe-count=65536")[6], 65536);
    assert_eq!(values("auto"), values("auto:max-overfetch=2"));
    assert_eq!(values("auto:max-overfetch=1.1"), [1100]);
    assert_eq!(values("auto"), [2000]);
}

/// One line: what, where, and what would do.
#[test]
fn oversized_values_are_refused() {
    for line in REFUSED.lines() {
        let (text, words) = line.split_once(" | ").expect("two cells");
        assert!(refused(text).contains(words), "{text}: {}", refused(text));
    }
}

const REFUSED: &str = "\
nosuch | there is no 'nosuch'
none:max=1K | 'none' has no parameter 'max'
linux-6.18:max | 'max' in 'linux-6.18:max' is not key=value
linux-6.18:max=1,max=2 | 'max=2' in 'linux-6.18:max=1,max=2' sets 'max' a second time
linux-6.18:max=x | linux-6.18: max=x is not a size such as 128K, capacity, capacity-2010b
linux-6.18:max=99999999T | linux-6.18: max=99999999T is too large
linux-6.18:folios=some | folios=some is not one of off, on
rbd-aligned:object=511 | rbd-aligned: object=511 is not between 512 and 1099511627776
rbd-aligned:object=1099511627777 | object=1099511627777 is not between 512 and 1099511627776
rbd-plain:trigger=1K | rbd-plain: trigger=1K is not a whole number
auto:max-overfetch=1. | auto: max-overfetch=1. is not a number such as 1.25
auto:max-overfetch=1.0001 | is not a number such as 1.25
auto:max-overfetch=0.999 | auto: max-overfetch=0.999 is not between 1 and 100
auto:max-overfetch=100.001 | is not between 1 and 100
auto:max-overfetch=99999999999999999999 | is not a number such as 1.25
rbd-aligned:stripe-count=65537 | stripe-count=65537 is not between 1 and 65536
linux-6.18:max=capacity_ | is not a size such as 128K, capacity, capacity-2010b
linux-6.18:max=99G+capacity | max=99G is not between
linux-6.18:max=1M+ | max=1M+ is not a size
linux-6.18:io=capacity | io=capacity is not a size
rbd-plain:max=capacity | is not a size such as 128K";

#[test]
fn defaults_need_no_text() {
    for info in ALL {
        let of = PolicySpec::of(info);
        assert_eq!(of.values, values(info.name), "{}", info.name);
        assert_eq!(of.to_string(), info.name);
    }
    assert_eq!(format!("{:?}", PolicySpec::none()), "none []");
}

#[test]
fn a_default_fills_missing_values() {
    let with = |text: &str, key, value| {
        let draft = PolicyDraft::parse(text).expect("a policy");
        let spec = draft.with_default(key, value).ready(None);
        spec.expect("nothing depends on a capacity").values
    };
    for (text, key, value, expected) in [
        ("rbd-plain", "min", 8192, [8192, 4 << 20]),
        ("rbd-plain:max=64K", "min", 8192, [8192, 64 << 10]),
        // It is written.
        ("rbd-plain:min=16K", "min", 8192, [16 << 10, 4 << 20]),
        // Kept inside its limits.
        ("rbd-plain", "min", 1 << 50, [1 << 40, 4 << 20]),
        ("rbd-plain", "nosuch", 1, [0, 4 << 20]),
    ] {
        assert_eq!(with(text, key, value)[1..3], expected, "{text} {key}");
    }
}

#[test]
fn writes_read_back() {
    for text in [
        "none",
        "linux-6.18:folios=on",
        "rbd-aligned:object=1M,stripe-unit=64K",
        "linux-6.18:max=0",
    ] {
        let spec = PolicySpec::parse(text).expect("a policy");
        assert_eq!(spec.to_string(), text, "as it was written");
        for again in [spec.canonical(), spec.readable()] {
            assert_eq!(values(&again), spec.values, "{again}");
        }
    }
    let canonical = |text: &str| PolicySpec::parse(text).expect("a policy").canonical();
    let readable = |text: &str| PolicySpec::parse(text).expect("a policy").readable();
    let written = [
        canonical("none"),
        canonical("auto:max-overfetch=1.10"),
        canonical("linux-6.18:max=1M"),
        readable("linux-6.18:max=1048576"),
        // No whole number of a unit; a count is no size.
        readable("rbd-plain:trigger=1024,min=8K,max=1000000"),
    ];
    let expected = [
        "none",
        "auto:max-overfetch=1.1",
        "linux-6.18:max=1048576,io=1310720,folios=off",
        "linux-6.18:max=1M,io=1280K,folios=off",
        "rbd-plain:trigger=1024,min=8K,max=1000000,disable-after=0",
    ];
    assert_eq!(written, expected);
}

/// One line that says what is missing, and numbers once it is there.
#[test]
fn a_maximum_by_capacity() {
    assert_eq!(
        refused("linux-6.18:max=capacity"),
        "linux-6.18:max=capacity: max depends on the storage capacity, which is not known here; write max as a size"
    );
    let ready = |text: &str, device: Option<u64>, capacity| {
        let draft = PolicyDraft::parse(text).expect("a policy");
        assert_eq!(draft.wants_capacity(), text.contains("capacity"));
        let draft = device.map_or(draft.clone(), |bytes| draft.with_default("max", bytes));
        let spec = draft.ready(Some(capacity)).expect("a capacity");
        assert_eq!(spec.to_string(), text, "shown as it was written");
        let again = PolicySpec::parse(&spec.canonical()).expect("plain numbers");
        assert_eq!(again.canonical(), spec.canonical());
        spec.values[0]
    };
    const KIB: u64 = 1 << 10;
    let (by, by_2010b) = ("linux-6.18:max=capacity", "linux-6.18:max=capacity-2010b");
    let most = "linux-6.18:max=512K+capacity";
    let most_2010b = "linux-6.18:max=512K+capacity-2010b";
    for (text, device, capacity, max) in [
        (by, None, 505_000, 4 * KIB),
        (by, None, 0, 4 * KIB),
        (by_2010b, None, 0, 128 * KIB),
        (by, None, 512 << 20, 64 * KIB),
        (by_2010b, None, 512 << 20, 128 * KIB),
        // Never more than the device would have: its own setting, what was written, the default.
        (by, Some(8 * KIB), 512 << 20, 8 * KIB),
        (by, Some(1024 * KIB), 8 << 30, 256 * KIB),
        (most, Some(8 * KIB), 8 << 30, 256 * KIB),
        (most_2010b, None, 1 << 40, 512 * KIB),
        ("linux-6.18:max=0+capacity", None, 1 << 40, 0),
        ("linux-6.18:max=64K", Some(8 * KIB), 0, 64 * KIB),
        ("linux-6.18", Some(1), 0, 1),
        ("linux-6.18", Some(1 << 50), 0, 1 << 30),
        ("linux-6.18", None, 0, 128 * KIB),
    ] {
        let got = ready(text, device, capacity);
        assert_eq!(got, max, "{text}, {device:?}, {capacity} bytes");
    }
}
