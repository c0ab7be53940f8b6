//! Tests with a bucket whose keys are in a Secret: the keys reach the store, but no argument, log or file that others can read.

use crate::common::{EPHEMERAL, Gateway, KEY, Plugin, SECRET, TestVolume, refused, signal};
use foreread_testing::needs;
use std::fs;
use tonic::Code;

fn volume(gateway: &Gateway, more: &[(&str, &str)]) -> TestVolume {
    let all = [
        ("source", "s3://bucket/data/"),
        ("endpointUrl", gateway.endpoint.as_str()),
        ("region", "us-east-1"),
    ];
    TestVolume::new("volume", &[&all, more].concat())
}

/// Files below a folder that have a text, and whether others may look into it.
fn files_with(plugin: &Plugin, text: &str) -> Vec<String> {
    let (mut found, mut folders) = (Vec::new(), vec![plugin.path("state"), plugin.path("cache")]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else if String::from_utf8_lossy(&fs::read(entry.path()).unwrap_or_default())
                .contains(text)
            {
                found.push(entry.path().display().to_string());
            }
        }
    }
    found
}

#[test]
fn keys_of_a_secret_reach_the_store_and_nothing_else() {
    needs!(let gateway = Gateway::start());
    needs!(let plugin = Plugin::start(&["--disk-cache", "DIR/cache", "--inline"]));
    gateway.put("file", &[7; 100_000]);
    let wrong =
        volume(&gateway, &[]).with_secrets(&[("key_id", KEY), ("access_key", "wrongwrongwrong")]);
    let line = refused(plugin.stage(&wrong), Code::Internal);
    assert!(
        line.contains("403") && !line.contains("wrongwrong"),
        "{line}"
    );
    assert!(plugin.mounts().is_empty());

    let keys = [
        ("AWS_ACCESS_KEY_ID", KEY),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
    ];
    let good = volume(&gateway, &[("diskCache", "true")]).with_secrets(&keys);
    plugin.mount(&good);
    let read = fs::read(plugin.path("pod-1/file")).expect("read");
    assert_eq!(read, [7; 100_000]);
    assert_eq!(plugin.servers(&plugin.text("volume")).len(), 1);
    assert!(
        plugin.servers(SECRET).is_empty(),
        "no process has it as an argument"
    );
    assert!(!plugin.said().contains(SECRET));
    let [file] = &files_with(&plugin, SECRET)[..] else {
        panic!("one file of keys");
    };
    assert!(file.ends_with("/aws"), "{file}");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(file).expect("there").permissions());
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(
        fs::read_dir(plugin.path("cache")).expect("there").count(),
        1,
        "a folder for the volume"
    );
    let environment = fs::read(format!("/proc/{}/environ", plugin.id())).expect("there");
    assert!(!String::from_utf8_lossy(&environment).contains(SECRET));
    plugin.unmount(&good);

    let text = plugin.text("volume");
    crate::common::wait_until("the end of the mount's process", || {
        plugin.servers(&text).is_empty()
    });

    // Its keys were given to the mount: where that has ended they have to come again.
    plugin.mount(&good);
    let server = plugin.server("volume");
    signal(server, "-KILL");
    crate::common::wait_until("the end of the server", || {
        let stats = plugin.stats(&good, "pod-1").expect("there");
        stats.volume_condition.expect("one").abnormal
    });
    let bare = volume(&gateway, &[("diskCache", "true")]);
    let line = refused(plugin.publish(&bare, "pod-1"), Code::FailedPrecondition);
    assert!(line.contains("nodePublishSecretRef"), "{line}");
    plugin.publish(&good, "pod-1").expect("with its keys");
    assert_eq!(
        fs::read(plugin.path("pod-1/file")).expect("read"),
        [7; 100_000]
    );
    plugin.unmount(&good);
}

/// A pod that runs goes on where the keys of its Secret are changed and the old ones are refused.
#[test]
fn a_mount_gets_the_keys_of_a_secret_that_has_changed() {
    needs!(let gateway = Gateway::start());
    needs!(let plugin = Plugin::start(&[]));
    let keys = |key| volume(&gateway, &[]).with_secrets(&[("key_id", key), ("access_key", key)]);
    let (old, new) = (keys("first"), keys("second"));
    gateway.add_key("first", "first");
    gateway.put("a", b"of the first");
    plugin.mount(&old);
    assert_eq!(
        fs::read(plugin.path("pod-1/a")).expect("read"),
        b"of the first"
    );
    gateway.add_key("second", "second");
    gateway.remove_key("first");
    gateway.put("b", b"of the second");
    plugin
        .publish(&new, "pod-1")
        .expect("published again by the kubelet");
    assert_eq!(
        fs::read(plugin.path("pod-1/b")).expect("read"),
        b"of the second"
    );
    assert_eq!(files_with(&plugin, "first"), [""; 0]);
    plugin.unmount(&new);
    let line = refused(plugin.stage(&old), Code::Internal);
    assert!(line.contains("403"), "the old keys are refused: {line}");
}

/// A file of a key is private while the mount is there, and goes with it.
#[test]
fn an_inline_volume_uses_only_its_own_keys() {
    needs!(let gateway = Gateway::start());
    let of_plugin = [
        ("AWS_ACCESS_KEY_ID", KEY),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
    ];
    needs!(let plugin = Plugin::with(
        &["--inline", "--inline-http", "--max-inline", "1"],
        &of_plugin,
    ));
    gateway.put("file", b"bytes");
    let persistent = volume(&gateway, &[]);
    plugin.stage(&persistent).expect("the plugin speaks for it");
    plugin.unstage(&persistent).expect("unstaged");
    let bare = volume(&gateway, &[(EPHEMERAL, "true")]);
    let line = refused(plugin.publish(&bare, "pod-1"), Code::Internal);
    assert!(line.contains("403"), "nothing else speaks for it: {line}");
    assert!(!plugin.path("pod-1").exists());
    let keys = [
        ("key_id", KEY),
        ("access_key", SECRET),
        ("key.json", "{\"type\":\"service_account\",\"canary\":1}"),
    ];
    let good = volume(&gateway, &[(EPHEMERAL, "true")]).with_secrets(&keys);
    for _ in 0..2 {
        plugin
            .publish(&good, "pod-1")
            .expect("published, and published already");
    }
    assert_eq!(fs::read(plugin.path("pod-1/file")).expect("read"), b"bytes");
    let mut second = volume(&gateway, &[(EPHEMERAL, "true")]).with_secrets(&keys);
    second.id = "second".to_string();
    let line = refused(plugin.publish(&second, "pod-2"), Code::ResourceExhausted);
    assert!(line.contains("1 inline volumes"), "{line}");
    plugin.stage(&persistent).expect("one of another kind");
    plugin.unstage(&persistent).expect("unstaged");
    let [file] = &files_with(&plugin, "canary")[..] else {
        panic!("one file of a key");
    };
    let meta = fs::metadata(file).expect("there");
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&meta.permissions()) & 0o777,
        0o600
    );
    plugin.unpublish(&good, "pod-1").expect("unpublished");
    assert!(files_with(&plugin, "canary").is_empty() && !plugin.path("pod-1").exists());
    assert!(plugin.mounts().is_empty());
}
