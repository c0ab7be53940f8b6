//! Probing a model must give back the model: every preset, in virtual time.

use foreread_lab::compare;
use foreread_lab::probe::{Pattern, ProbeOptions, ProbeOutcome, probe};
use foreread_report::progress::Silent;
use foreread_sim::device::custom;
use foreread_sim::device::presets::{self, Model, PRESETS};

fn of(name: &str) -> ProbeOutcome {
    let preset = presets::find(name).expect("a preset");
    let asked = ProbeOptions {
        source: compare::preset(preset),
        seconds: 1.0,
        size_bytes: None,
        buffered: false,
    };
    probe(&asked, &mut Silent).expect("a model can be probed")
}

/// The largest error of a point that may be left. If the model is random a median of nine rounds is left; the dies
/// of a flash drive, of which two reads may want one, become lanes.
fn allowed(name: &str) -> Option<(&'static str, f64)> {
    Some(match name {
        // Its answers come whole, as those of lanes do.
        "rbd" => ("lanes", 0.001),
        "nvme" => ("net", 0.03),
        "object-near" | "object-far" => ("net", 0.12),
        "ssd-sata" => ("lanes", 0.07),
        "eva" | "raid-6disk" => ("array", 0.001),
        // Neither an arm nor a turn is fitted.
        "hdd-7200" | "disk-2003" => return None,
        _ => ("disk", 0.001),
    })
}

#[test]
fn every_preset_gives_back_its_times() {
    // Not tried: presets with a throttle, which no form of a probe has, and s3-region.
    let tried = PRESETS
        .iter()
        .filter(|preset| preset.throttle.is_none() && preset.name != "s3-region");
    for preset in tried {
        let ProbeOutcome { probe, model } = of(preset.name);
        let fit = &probe.fit;
        println!(
            "{}: {} {:.4} {}",
            preset.name, fit.kind, fit.worst_error, fit.figures
        );
        let Some((kind, most)) = allowed(preset.name) else {
            assert!(
                !fit.holds && fit.reason.starts_with("no form holds"),
                "{}: {}",
                preset.name,
                fit.reason
            );
            assert!(
                model.fit_error.starts_with("does not hold"),
                "{}",
                model.fit_error
            );
            continue;
        };
        assert!(fit.holds, "{}: {}", preset.name, fit.reason);
        assert_eq!(fit.kind, kind, "{}", preset.name);
        assert!(
            fit.worst_error <= most,
            "{}: {} off",
            preset.name,
            fit.worst_error
        );
        assert_eq!(fit.tried.iter().filter(|t| t.chosen).count(), 1);
        let text = model.to_toml();
        assert_eq!(
            custom::parse(&text, "x")
                .expect("what was written is read")
                .to_toml(),
            text
        );
        assert_eq!(model.host_ns_per_kib, preset.host_ns_per_kib);
        assert_eq!(
            probe.noise.is_some_and(|n| n > 0.0),
            preset_is_random(preset.model),
            "{}",
            preset.name
        );
    }
}

fn preset_is_random(model: Model) -> bool {
    match model {
        Model::Net(net) => net.rtt_p99_ns.is_some(),
        Model::Ssd(ssd) => ssd.tail.is_some(),
        _ => false,
    }
}

/// The figures themselves, of the form that it is.
#[test]
fn a_disk_gives_back_its_figures() {
    for name in [
        "hdd-theory",
        "x25-m",
        "sandisk-5000",
        "usb-teclast",
        "usb-cruzer",
        "usb-2g",
        "tiny-usb",
    ] {
        let Model::Disk(put_in) = presets::find(name).expect("a preset").model else {
            panic!("{name} is a disk")
        };
        let got = of(name).model.disk.expect("a disk");
        assert!(
            got.command_ns.abs_diff(put_in.command_ns) <= 2,
            "{name}: {}",
            got.command_ns
        );
        // Where a transfer costs nothing its length does not show.
        let limit = put_in.max_transfer_bytes.filter(|_| put_in.command_ns > 0);
        assert_eq!(got.max_transfer_bytes, limit, "{name}");
        let slopes: Vec<(u64, u64)> = got
            .slopes
            .iter()
            .map(|s| (s.from_bytes, s.ps_per_kib))
            .collect();
        assert_eq!(slopes.len(), put_in.slopes.len(), "{name}: {slopes:?}");
        for (got, put_in) in slopes.iter().zip(put_in.slopes) {
            assert_eq!(got.0, put_in.from_bytes, "{name}");
            assert!(
                (got.1 as f64 / put_in.ps_per_kib as f64 - 1.0).abs() < 1e-4,
                "{name}: {slopes:?}"
            );
        }
    }
}

/// The marks of the advice, from the published formula and not from what was measured.
#[test]
fn the_plateau_is_where_the_formula_has_it() {
    for (name, by_hand) in [
        ("x25-m", 4 << 20),
        ("usb-2g", 256 << 10),
        ("usb-teclast", 512 << 10),
        ("hdd-theory", 8 << 20),
    ] {
        let Model::Disk(disk) = presets::find(name).expect("a preset").model else {
            panic!("{name} is a disk")
        };
        let rate = |bytes: u64| bytes as f64 / disk.time_ns(bytes) as f64;
        let sizes: Vec<u64> = (12..=23).map(|shift| 1 << shift).collect();
        let best = sizes.iter().map(|s| rate(*s)).fold(0.0, f64::max);
        let first = |part: f64| sizes.iter().copied().find(|s| rate(*s) >= part * best);
        let advice = of(name).probe.advice;
        assert_eq!(advice.plateau_bytes, first(0.98), "{name}");
        assert_eq!(advice.plateau_bytes, Some(by_hand), "{name}");
        assert_eq!(advice.request_90_bytes, first(0.90), "{name}");
        assert_eq!(
            advice.depth_90,
            Some(1),
            "{name} does one thing after the other"
        );
    }
    let near = of("object-near").probe.advice;
    assert_eq!(
        (near.depth_90, near.depth_90_bytes),
        (Some(32), Some(1 << 20)),
        "one connection is slow"
    );
}

#[test]
fn points_are_there_for_every_size_and_depth() {
    let probe = of("rbd").probe;
    assert_eq!(probe.points.len(), 2 * 12 + 6 * 5);
    let order: Vec<_> = probe
        .points
        .iter()
        .map(|p| (p.pattern != Pattern::Sequential, p.depth, p.request_bytes))
        .collect();
    assert!(order.is_sorted());
    assert!(
        probe
            .points
            .iter()
            .all(|p| p.rounds == 9 && p.error.is_some())
    );
    assert!(probe.date.is_none(), "a model knows no day");
}
