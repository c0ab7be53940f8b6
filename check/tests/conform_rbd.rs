//! Compares `rbd-aligned` with librbd itself on a cluster of one machine: the published tables and some random sequences.
use foreread_check::conform::rbd::{Case, published, random};
use foreread_check::conform::rbd::{Images, check};
use foreread_lab::compare::{self, ComparePlan};
use foreread_lab::report::Report;
use foreread_report::progress::Silent;
use foreread_testing::{CephCluster, CephError};

fn cluster() -> Option<CephCluster> {
    match CephCluster::up() {
        Ok(cluster) => Some(cluster),
        Err(missing @ CephError::Missing(_)) => {
            println!("skipped: needs a Ceph cluster: {missing}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn librbd_and_ours_decide_the_same_and_stand_in_one_table() {
    let Some(cluster) = cluster() else { return };
    let conf = cluster.conf();
    let ceph = |program: &str, arguments: &[&str]| cluster.run(program, arguments);
    {
        let mut images = Images::new(&conf, &ceph);
        let tables = check(&mut images, &published(), 1, &mut |_| ()).expect("asked");
        assert_eq!((tables.divergences, tables.first), (0, None));
        assert!(tables.decisions > 400, "{}", tables.decisions);
        let sequences: Vec<Case> = (0..12).map(|nth| random(3, nth)).collect();
        for depth in [1, 4] {
            let found = check(&mut images, &sequences, depth, &mut |_| ()).expect("asked");
            assert_eq!((found.divergences, found.first), (0, None), "depth {depth}");
            assert!(found.decisions > 50, "{}", found.decisions);
        }
        // A check that cannot fail is none: without alignment the seventh request of T1 is another.
        let mut cases = published().into_iter();
        let mut t1 = cases.find(|case| case.name == "T1").expect("T1");
        t1.policy = foreread_history::parse_spec("rbd-plain").expect("a policy");
        let wrong = check(&mut images, &[t1], 1, &mut |_| ()).expect("asked");
        assert_eq!(wrong.divergences, 1);
        let told = wrong.first.expect("told");
        let request = "request 7: ours 2621440~2621440, librbd's 2621440~1572864";
        assert!(told.ends_with(request), "{told}");
    }
    compared(&cluster);
}

/// A table on an image has librbd's rows, with its own counts.
fn compared(cluster: &CephCluster) {
    let created = cluster.run("rbd", &["create", "--size", "32M", "rbd/compared"]);
    created.expect("created");
    let image = format!("rbd:rbd/compared?conf={}", cluster.conf().display());
    let plan = ComparePlan {
        workload: Some("sequential:record=4096".to_string()),
        on: Some(compare::source(image.as_str().into())),
        policies: vec![foreread_history::parse("rbd-aligned").expect("a policy")],
        runs: Some(1),
        size_bytes: Some(8 << 20),
        ..ComparePlan::default()
    };
    let tables = compare::run(&plan, &mut Silent).expect("compared");
    let report = Report::of(&tables[0]);
    let rows = report.rows.iter();
    let planned = rows.map(|row| (row.policy.as_str(), row.ra_planned_ops));
    let planned = Vec::from_iter(planned);
    let [none, ours, shipped, writeback, crume] = planned[..] else {
        panic!("{planned:?}")
    };
    assert_eq!((none, shipped), (("none", Some(0)), ("librbd", Some(0))));
    // The same settings decide the same.
    assert_eq!(crume, ("librbd-crume", ours.1));
    assert_eq!(writeback.0, "librbd-writeback");
    assert!(writeback.1 > ours.1, "{planned:?}");
}
