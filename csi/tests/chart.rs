//! Tests of the Helm chart: the rendered manifests are valid, and the binary accepts the arguments in them.

use clap::Parser;
use foreread_csi::Arguments;
use std::path::Path;
use std::process::Command;

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
