//! Files and repositories of a Hugging Face Hub, against the hub of `foreread-testing`, which the client huggingface_hub accepts.

use crate::common::{named, watch};
use foreread_testing::{HubServer, pattern};
use std::path::Path;
use std::process::Command;

const TOKEN: &str = "hf_right";

fn hub() -> HubServer {
    watch();
    HubServer::start().expect("two ports")
}

/// An interpreter that has the client; says so if there is none.
fn python() -> Option<std::path::PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let named = std::env::var_os("FOREREAD_PYTHON").map(Into::into);
    let python = named.unwrap_or_else(|| root.join("target/python/bin/python"));
    let imports = Command::new(&python)
        .args(["-c", "import huggingface_hub"])
        .output();
    let there = imports.is_ok_and(|out| out.status.success());
    if !there {
        println!("skipped: needs huggingface_hub for Python (./setup makes target/python)");
    }
    there.then_some(python)
}

/// The hub of these tests speaks as the real one does: its own client finds everything, and each refusal has its error.
#[test]
fn the_client_of_the_hub_accepts_the_hub_of_the_tests() {
    let Some(python) = python() else { return };
    let hub = hub();
    hub.put("u/model", "dir/large.bin", named(100_001));
    for n in 0..5 {
        hub.put("u/model", &format!("file-{n}"), named(10 + n));
    }
    hub.put_small("u/model", "config.json", b"{}".to_vec());
    hub.set_page(4);
    hub.put("datasets/u/data", "table.parquet", named(1000));
    hub.branch("datasets/u/data", "refs/pr/1");
    hub.put_small("spaces/u/space", "app.py", pattern(0, 100, 0));
    hub.put("u/closed", "a", named(3));
    hub.put("u/gated", "a", named(3));
    hub.renamed("u/renamed", "u/model");
    hub.make_private("u/closed");
    hub.make_gated("u/gated");
    hub.set_token(TOKEN);
    let folder = tempfile::tempdir().expect("a folder");
    let out = Command::new(python)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hub_client.py"))
        .arg(folder.path())
        .arg(hub.main("u/model"))
        .env("HF_ENDPOINT", hub.endpoint())
        .env("HF_HOME", folder.path())
        .env("HF_HUB_DISABLE_XET", "1")
        .env("HF_HUB_DISABLE_TELEMETRY", "1")
        .env("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        .env_remove("HF_TOKEN")
        .output()
        .expect("started");
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{text}");
}
