//! Tests with volumes from a folder: all pods share one mount, which outlives the plugin, and is mounted again if its
//! server has ended. A hostile request to the node plugin is refused with one line, and leaves nothing behind.

use crate::common::{EPHEMERAL, Plugin, TestVolume, foreread, map, refused, signal, wait_until};
use foreread_csi::spec::volume_capability::access_mode::Mode;
use foreread_testing::{needs, says};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use tonic::Code;

/// A plugin that may mount below its own folder, with a volume of a folder there.
fn plugin(more: &[&str]) -> Option<(Plugin, TestVolume)> {
    let all = ["--local", "DIR"].iter().chain(more).copied();
    let plugin = Plugin::start(&Vec::from_iter(all))?;
    fs::create_dir(plugin.path("source")).expect("made");
    fs::write(plugin.path("source/file"), bytes()).expect("room");
    let volume = TestVolume::new("volume", &[("source", &plugin.text("source"))]);
    Some((plugin, volume))
}

fn bytes() -> Vec<u8> {
    (0..3_000_000u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect()
}

fn reads(plugin: &Plugin, target: &str) -> bool {
    fs::read(plugin.path(target).join("file")).is_ok_and(|read| read == bytes())
}

#[test]
fn one_mount_for_all_pods_outlives_the_plugin() {
    needs!(let (mut plugin, volume) = plugin(&[]));
    assert_eq!(plugin.probe().expect("ready").ready, Some(true));
    for _ in 0..2 {
        plugin.stage(&volume).expect("staged, and staged already");
        plugin
            .publish(&volume, "pod-1")
            .expect("published, and published already");
    }
    plugin.publish(&volume, "pods/2/mount").expect("published");
    assert!(reads(&plugin, "pod-1") && reads(&plugin, "pods/2/mount"));
    let mounts = plugin.mounts();
    assert_eq!(mounts.len(), 3, "{mounts:?}");
    assert!(
        mounts.iter().all(|mount| mount.number == mounts[0].number),
        "one server: {mounts:?}"
    );
    assert_eq!(plugin.servers(&plugin.text("volume")).len(), 1);
    let written = fs::write(plugin.path("pod-1/new"), "x").expect_err("read-only");
    assert_eq!(written.raw_os_error(), Some(30));

    plugin.kill();
    assert!(
        reads(&plugin, "pod-1"),
        "the mount goes on without the plugin"
    );
    plugin.begin();
    assert!(reads(&plugin, "pod-1"));
    plugin.stage(&volume).expect("staged already");
    plugin.publish(&volume, "pod-3").expect("published");
    assert_eq!(plugin.servers(&plugin.text("volume")).len(), 1);
    let stats = plugin.stats(&volume, "pod-3").expect("there");
    let condition = stats.volume_condition.expect("one");
    assert!(
        !condition.abnormal && stats.usage.len() == 1,
        "{condition:?}"
    );

    for target in ["pod-1", "pods/2/mount", "pod-3"] {
        plugin.unpublish(&volume, target).expect("unpublished");
        assert!(!plugin.path(target).exists(), "its folder is gone");
        plugin
            .unpublish(&volume, target)
            .expect("unpublished already");
        refused(plugin.stats(&volume, target), Code::NotFound);
    }
    for _ in 0..2 {
        plugin
            .unstage(&volume)
            .expect("unstaged, and unstaged already");
    }
    assert!(plugin.mounts().is_empty() && plugin.path("volume").is_dir());
    assert_eq!(
        fs::read_dir(plugin.path("state")).expect("there").count(),
        0
    );
    ended(&plugin);
}

fn ended(plugin: &Plugin) {
    let text = plugin.text("volume");
    wait_until("the end of the mount's process", || {
        plugin.servers(&text).is_empty()
    });
}

/// The next plugin takes the mount that a killed one had begun when that comes, and waits for no process of it.
#[test]
fn a_mount_that_a_killed_plugin_has_begun_is_taken() {
    needs!(let (plugin, volume) = plugin(&[]));
    fs::create_dir(plugin.path("volume")).expect("made");
    let place = plugin.path("volume").canonicalize().expect("there");
    // By its name and its arguments it is the process of a mount that is on its way.
    let program = plugin.path("foreread");
    fs::copy("/bin/sh", &program).expect("copied");
    let mut begun = Command::new(&program)
        .args(["-c", "read line; exit 0", "x"])
        .arg(&place)
        .stdin(Stdio::piped())
        .spawn()
        .expect("started");
    std::thread::scope(|scope| {
        let staged = foreread_os::threads::spawn_scoped(scope, "stage", || plugin.stage(&volume));
        let staged = staged.expect("a thread");
        let waits = || {
            let threads = fs::read_dir(format!("/proc/{}/task", plugin.id())).expect("there");
            let names = threads
                .flatten()
                .filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
            names
                .into_iter()
                .any(|name| name.starts_with("foreread-csi-mo"))
        };
        wait_until("the wait for the other process", waits);
        let mut mount = Command::new(foreread().expect("found"));
        let mount = mount
            .args(["mount", "-d"])
            .arg(plugin.path("source"))
            .arg(&place);
        assert!(
            mount
                .stdout(Stdio::null())
                .status()
                .expect("started")
                .success()
        );
        staged.join().expect("no panic").expect("staged");
    });
    assert!(begun.try_wait().expect("there").is_none(), "it goes on");
    plugin.publish(&volume, "pod-1").expect("published");
    assert!(reads(&plugin, "pod-1"));
    drop(begun.stdin.take());
    begun.wait().expect("ended");
    plugin.unmount(&volume);
    ended(&plugin);
}

#[test]
fn a_mount_whose_server_has_ended_is_seen_and_made_again() {
    needs!(let (plugin, volume) = plugin(&[]));
    plugin.mount(&volume);
    let server = plugin.server("volume");
    signal(server, "-KILL");
    let is_bad = || {
        let stats = plugin.stats(&volume, "pod-1").expect("there");
        stats.volume_condition.expect("one").abnormal
    };
    wait_until("the end of the server", is_bad);
    // The kubelet publishes again from time to time (requiresRepublish).
    plugin.publish(&volume, "pod-1").expect("published again");
    assert!(reads(&plugin, "pod-1") && !is_bad());
    assert_eq!(plugin.mounts().len(), 2);

    let server = plugin.server("volume");
    signal(server, "-KILL");
    wait_until("the end of the server", is_bad);
    plugin.stage(&volume).expect("staged again");
    plugin
        .unpublish(&volume, "pod-1")
        .expect("what is dead is taken away");
    plugin.unstage(&volume).expect("unstaged");
    assert!(plugin.mounts().is_empty());
}

/// The process of a mount ends after its unmount, and would take the next mount of the place with it.
#[test]
fn a_volume_that_is_staged_again_at_once_stays() {
    needs!(let (plugin, volume) = plugin(&[]));
    for _ in 0..20 {
        plugin.mount(&volume);
        assert!(reads(&plugin, "pod-1"));
        plugin.unmount(&volume);
    }
}

/// Its process is stopped, so nothing that asks the mount returns.
#[test]
fn a_mount_that_hangs_holds_up_nothing() {
    needs!(let (plugin, volume) = plugin(&[]));
    plugin.mount(&volume);
    let server = plugin.server("volume");
    signal(server, "-STOP");
    // The signal reaches one thread after the other.
    wait_until("all threads of the server are stopped", || {
        let tasks = fs::read_dir(format!("/proc/{server}/task")).expect("there");
        let mut states = tasks.flatten().map(|task| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit(") ")
                .next()
                .is_some_and(|rest| rest.starts_with('T'))
        });
        states.all(|is_stopped| is_stopped)
    });
    for _ in 0..3 {
        let stats = plugin.stats(&volume, "pod-1").expect("an answer, in time");
        let condition = stats.volume_condition.expect("one");
        assert!(
            condition.abnormal && condition.message.contains("does not answer"),
            "{condition:?}"
        );
    }
    refused(plugin.publish(&volume, "pod-2"), Code::Unavailable);
    refused(plugin.stage(&volume), Code::Unavailable);
    let other = TestVolume::new("other", &[("source", &plugin.text("source"))]);
    plugin.stage(&other).expect("another volume is staged");
    plugin.unstage(&other).expect("and unstaged");
    plugin.unpublish(&volume, "pod-1").expect("a pod can end");
    signal(server, "-CONT");
    wait_until("the server answers", || plugin.stage(&volume).is_ok());
    plugin.unstage(&volume).expect("unstaged");
}

#[test]
fn inline_volumes_are_mounted_on_the_folder_of_the_pod() {
    needs!(let mut plugin = Plugin::start(&["--inline"]));
    fs::create_dir(plugin.path("source")).expect("made");
    let folder = TestVolume::new("csi-1", &[("source", "/etc"), (EPHEMERAL, "true")]);
    let line = refused(plugin.publish(&folder, "pod-1"), Code::InvalidArgument);
    assert!(line.contains("not a source of a volume"), "{line}");
    assert!(!plugin.path("pod-1").exists());
    plugin.kill();
    needs!(let plugin = Plugin::start(&[]));
    let volume = TestVolume::new("csi-1", &[("source", "s3://b/"), (EPHEMERAL, "true")]);
    let line = refused(plugin.publish(&volume, "pod-1"), Code::InvalidArgument);
    assert!(line.contains("inline.enabled"), "{line}");
}

#[test]
fn metrics_and_health_are_served() {
    needs!(let (plugin, volume) = plugin(&["--any-access-mode"]));
    assert!(plugin.page("/healthz").ends_with("\r\n\r\nok\n"));
    plugin.mount(&volume);
    assert!(reads(&plugin, "pod-1"));
    let page = plugin.page("/metrics");
    for part in [
        "foreread_csi_calls_total{method=\"NodeStageVolume\",code=\"Ok\"} 1\n",
        "foreread_csi_call_seconds_total{method=\"NodePublishVolume\"} ",
        "foreread_front_sent_bytes_total{volume=\"vvolume-",
    ] {
        assert!(page.contains(part), "{part} in\n{page}");
    }
    assert!(plugin.page("/").starts_with("HTTP/1.1 404 "));
    plugin.unmount(&volume);
    assert!(!plugin.page("/metrics").contains("volume=\"vvolume-"));
}

#[test]
fn foreign_files_stay() {
    needs!(let (plugin, volume) = plugin(&[]));
    for place in ["volume", "pod-1"] {
        fs::create_dir(plugin.path(place)).expect("made");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "none"])
            .arg(plugin.path(place))
            .status();
        assert!(mounted.expect("mount").success());
    }
    refused(plugin.stage(&volume), Code::FailedPrecondition);
    refused(plugin.publish(&volume, "pod-1"), Code::FailedPrecondition);
    refused(plugin.unpublish(&volume, "pod-1"), Code::FailedPrecondition);
    refused(plugin.unstage(&volume), Code::FailedPrecondition);
    assert_eq!(plugin.mounts().len(), 2);
    fs::create_dir(plugin.path("pod-2")).expect("made");
    fs::write(plugin.path("pod-2/precious"), "x").expect("room");
    refused(plugin.unpublish(&volume, "pod-2"), Code::Internal);
    assert!(Path::new(&plugin.path("pod-2/precious")).exists());
}

#[test]
fn hostile_volumes_are_one_line() {
    needs!(let plugin = Plugin::start(&["--local", "DIR/source", "--max-volumes", "1"]));
    fs::create_dir(plugin.path("source")).expect("made");
    std::os::unix::fs::symlink("/etc", plugin.path("source/link")).expect("made");
    let source = plugin.text("source");
    for attributes in [
        &[][..],
        &[("source", "/etc")],
        &[("source", &plugin.text("source/../state"))],
        &[("source", &plugin.text("source/link"))],
        &[("source", "s3://b/\n--record=/etc/x")],
        &[("source", &source), ("record", "/etc/x")],
        &[("source", &source), ("mountOptions", "record=/etc/x")],
        &[("source", &source), ("cache", "1Ti")],
        &[("source", &source), ("diskCache", "true")],
    ] {
        let volume = TestVolume::new("volume", attributes);
        refused(plugin.stage(&volume), Code::InvalidArgument);
    }
    let volume = TestVolume::new(
        "volume",
        &[("source", &source), ("policy", "no-such-policy")],
    );
    let line = refused(plugin.stage(&volume), Code::Internal);
    says(&line, &["no-such-policy"]);
    assert!(plugin.mounts().is_empty());
    assert_eq!(
        fs::read_dir(plugin.path("state")).expect("there").count(),
        0
    );

    let volume = TestVolume {
        mode: Mode::MultiNodeMultiWriter,
        ..TestVolume::new("volume", &[("source", &source)])
    };
    let line = refused(plugin.stage(&volume), Code::InvalidArgument);
    assert!(line.contains("accessModes: [ReadOnlyMany]"), "{line}");
    let volume = TestVolume::new("volume", &[("source", &source)]);
    refused(plugin.publish(&volume, "pod-1"), Code::FailedPrecondition);
    plugin.stage(&volume).expect("a good one");
    let another = TestVolume::new("another", &[("source", &source)]);
    let line = refused(plugin.stage(&another), Code::ResourceExhausted);
    assert!(line.contains("maxVolumes"), "{line}");
    let changed = TestVolume {
        attributes: map(&[("source", &plugin.text("source/link/../source"))]),
        ..TestVolume::new("volume", &[])
    };
    refused(plugin.stage(&changed), Code::InvalidArgument);
    plugin.unstage(&volume).expect("unstaged");
}

#[test]
fn a_message_that_is_too_large_is_refused() {
    needs!(let plugin = Plugin::start(&[]));
    let large = "x".repeat(3 << 20);
    let volume = TestVolume::new("volume", &[("source", &large)]);
    refused(plugin.stage(&volume), Code::OutOfRange);
    let large = "x".repeat(100 << 10);
    let volume =
        TestVolume::new("volume", &[("source", "s3://b/")]).with_secrets(&[("key.json", &large)]);
    refused(plugin.stage(&volume), Code::InvalidArgument);
    assert_eq!(plugin.probe().expect("it goes on").ready, Some(true));
}
