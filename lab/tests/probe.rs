//! Tests that a probe of a model in virtual time returns the parameters of the model, and a model file.

use foreread_lab::compare::{self, CompareOn};
use foreread_lab::probe::{Pattern, ProbeOptions, ProbeOutcome, probe, verify};
use foreread_report::progress::Silent;
use foreread_sim::device::custom;
use foreread_sim::device::lanes::LanesModel;
use foreread_sim::device::presets::{self, Model};
use foreread_testing::says;

fn probed(source: CompareOn) -> ProbeOutcome {
    let asked = ProbeOptions {
        source,
        seconds: 1.0,
        size_bytes: None,
    };
    probe(&asked, &mut Silent).expect("a model can be probed")
}

fn of(name: &str) -> ProbeOutcome {
    probed(compare::preset(presets::find(name).expect("a preset")))
}

/// 0.2 ms and 2 us a KiB, 12 at once over 1,024 MB/s.
#[test]
fn figures_that_were_put_in_come_out() {
    let put_in = LanesModel {
        latency_ns: 200_000,
        ps_per_kib: 2_000_000,
        lanes: 12,
        link_ps_per_kib: 1_000_000,
    };
    let mut file = of("rbd").model;
    file.lanes = Some(put_in);
    let ProbeOutcome { probe, model } = probed(compare::preset(file.preset("lanes.toml")));
    assert!(probe.fit.worst_error < 0.05, "{:?}", probe.fit);
    let got = model.lanes.expect("lanes");
    assert_eq!(got.lanes, 12);
    for (got, put_in) in [
        (got.latency_ns, put_in.latency_ns),
        (got.ps_per_kib, put_in.ps_per_kib),
        (got.link_ps_per_kib, put_in.link_ps_per_kib),
    ] {
        let error = (got as f64 / put_in as f64 - 1.0).abs();
        assert!(error < 0.02, "{got} {put_in}");
    }
    let text = model.to_toml();
    let again = custom::parse(&text, "x").expect("what was written is read");
    assert_eq!(again.to_toml(), text);
}

/// Presets whose formula is the model's, and one that has an arm and turns: there the error says so.
#[test]
fn the_error_says_how_far_the_model_is_off() {
    for name in ["rbd", "hdd-theory"] {
        let fit = of(name).probe.fit;
        assert!(fit.worst_error < 0.001, "{name}: {fit:?}");
    }
    let ProbeOutcome { probe, model } = of("hdd-7200");
    assert!(probe.fit.median_error > 0.25, "{:?}", probe.fit);
    says(&model.fit_error, &["Low confidence"]);
}

/// The plateau of the published formula, and not of what was measured.
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
        let plateau = sizes.into_iter().find(|s| rate(*s) >= 0.98 * best);
        assert_eq!(plateau, Some(by_hand), "{name}");
        let probe = of(name).probe;
        assert_eq!(probe.plateau_bytes, plateau, "{name}");
        assert!(probe.verdict.why.starts_with("A readahead of ") && probe.verdict.steps.is_empty());
    }
}

#[test]
fn points_are_there_for_every_size_and_depth() {
    let probe = of("rbd").probe;
    assert_eq!(probe.points.len(), 2 * 12 + 6 * 5);
    let order = |p: &foreread_lab::probe::Point| {
        (p.pattern != Pattern::Sequential, p.depth, p.request_bytes)
    };
    assert!(probe.points.is_sorted_by_key(order));
    assert!(probe.points.iter().all(|p| p.rounds == 9));
    assert!(probe.date.is_none(), "a model knows no day");
}

/// The reads on both sides are the same, also where a size was asked for: a model beside itself takes its own time.
#[test]
fn a_model_beside_itself_has_a_ratio_of_one() {
    let on = compare::model("nvme").expect("a model");
    let size = Some(16 << 20);
    let report = verify::verify(&on, "nvme", 1.0, size, &mut Silent).expect("both are read");
    assert_eq!(report.rows.len(), 6);
    for row in &report.rows {
        assert!((row.ratio - 1.0).abs() < 1e-9, "{row:?}");
    }
    let line = "model:nvme compared with model:nvme: simulated / measured is 1.00 to 1.00.";
    says(&report.render(), &[line]);
}
