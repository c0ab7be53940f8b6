//! Runs csi-sanity, Kubernetes' tests for plugins, against the real plugin with real mounts; and renders the Helm chart: its
//! manifests are valid, and the binary accepts the arguments in them.

use crate::common::Plugin;
use clap::Parser;
use foreread_csi::Arguments;
use foreread_testing::needs;
use std::fs;
use std::path::Path;
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
    needs!(let plugin = Plugin::start(&["--local", "DIR", "--controller", "--any-access-mode"])
    );
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

#[test]
fn the_chart_renders_what_kubernetes_and_the_plugin_take() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace");
    let mut command = Command::new(root.join("contrib/helm/check"));
    let out = command.arg("--manifests").output().expect("run");
    let text = String::from_utf8_lossy(&out.stdout);
    if out.status.code() == Some(3) {
        println!("skipped: {}", text.trim());
        return;
    }
    assert!(out.status.success(), "{text}");
    let mut containers = 0;
    for block in text.split("command: [foreread-csi]\n").skip(1) {
        let lines = block.lines().skip_while(|line| line.trim() == "args:");
        let words = lines.map_while(|line| line.trim().strip_prefix("- --"));
        let words = words.map(|word| format!("--{}", word.replace("$(NODE_NAME)", "node-1")));
        let words = Vec::from_iter(words);
        assert!(words.len() > 5, "{words:?}");
        let program = ["foreread-csi".to_string()].into_iter();
        let parsed = Arguments::try_parse_from(program.chain(words));
        parsed.unwrap_or_else(|error| panic!("{error}"));
        containers += 1;
    }
    assert_eq!(containers, 2, "the node's and the controller's");
}
