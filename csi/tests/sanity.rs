//! Runs csi-sanity, Kubernetes' tests for plugins, against the real plugin with real mounts.

use crate::common::Plugin;
use std::fs;
use std::process::Command;

/// A volume of foreread has no capacity, so that two requests of one name never conflict, and the test that asks for a conflict is left out.
const LEFT_OUT: &str = "already existing name and different capacity";

#[test]
fn csi_sanity_passes() {
    if Command::new("csi-sanity")
        .arg("--version")
        .output()
        .is_err()
    {
        println!("skipped: needs csi-sanity (./setup builds it)");
        return;
    }
    // Its volumes are written by a single node: there is no option for another mode.
    let Some(plugin) = Plugin::start(&["--local", "DIR", "--controller", "--any-access-mode"])
    else {
        return;
    };
    fs::create_dir(plugin.path("source")).expect("made");
    fs::write(plugin.path("source/file"), "bytes").expect("room");
    let parameters = plugin.path("parameters.yaml");
    fs::write(&parameters, format!("source: {}\n", plugin.text("source"))).expect("room");
    let mut command = Command::new("csi-sanity");
    command.arg(format!("--csi.endpoint=unix://{}", plugin.text("csi.sock")));
    command.arg(format!(
        "--csi.testvolumeparameters={}",
        parameters.display()
    ));
    command.arg(format!("--csi.mountdir={}", plugin.text("mounts")));
    command.arg(format!("--csi.stagingdir={}", plugin.text("staged")));
    command.args(["--ginkgo.no-color", "--ginkgo.skip", LEFT_OUT]);
    let out = command.output().expect("run");
    let text = String::from_utf8_lossy(&out.stdout);
    let last = text.lines().rev().find(|line| line.contains(" Passed | "));
    assert!(out.status.success(), "{text}");
    let last = last.expect("a line of counts");
    println!("{last}");
    let passed = last
        .split(" Passed")
        .next()
        .and_then(|begin| begin.rsplit(' ').next());
    let passed: u32 = passed
        .and_then(|number| number.parse().ok())
        .expect("a number");
    assert!(last.contains(" 0 Failed") && passed >= 30, "{last}");
    assert!(plugin.mounts().is_empty(), "it leaves nothing mounted");
}
