//! Tests with hostile requests to the node plugin: each is refused with one line, and leaves nothing behind.

use crate::common::{Plugin, TestVolume, map, refused};
use foreread_csi::spec::volume_capability::access_mode::Mode;
use std::fs;
use tonic::Code;

#[test]
fn hostile_volumes_are_one_line() {
    let Some(plugin) = Plugin::start(&["--local", "DIR/source", "--max-volumes", "1"]) else {
        return;
    };
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
    assert!(
        line.contains("no-such-policy"),
        "the command's own line: {line}"
    );
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
    let Some(plugin) = Plugin::start(&[]) else {
        return;
    };
    let large = "x".repeat(3 << 20);
    let volume = TestVolume::new("volume", &[("source", &large)]);
    refused(plugin.stage(&volume), Code::OutOfRange);
    let large = "x".repeat(100 << 10);
    let volume =
        TestVolume::new("volume", &[("source", "s3://b/")]).with_secrets(&[("key.json", &large)]);
    refused(plugin.stage(&volume), Code::InvalidArgument);
    assert_eq!(plugin.probe().expect("it goes on").ready, Some(true));
}
