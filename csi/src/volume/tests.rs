//! Valid volumes, and volumes that are refused with one line.

use super::*;
use crate::spec::volume_capability::{AccessMode, BlockVolume, MountVolume};
use clap::Parser;

fn arguments(more: &[&str]) -> Arguments {
    let begin = ["foreread-csi", "--node-id", "n"];
    Arguments::parse_from(begin.iter().chain(more))
}

fn attributes(all: &[(&str, &str)]) -> HashMap<String, String> {
    let all = all.iter();
    all.map(|(name, value)| (name.to_string(), value.to_string()))
        .collect()
}

fn capability(mode: Mode, flags: &[&str]) -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(AccessMode { mode: mode.into() }),
        access_type: Some(AccessType::Mount(MountVolume {
            mount_flags: flags.iter().map(|flag| flag.to_string()).collect(),
            ..MountVolume::default()
        })),
    }
}

fn of(all: &[(&str, &str)], flags: &[&str], is_inline: bool) -> Result<VolumeSpec, Status> {
    let capability = capability(Mode::MultiNodeReaderOnly, flags);
    let request = VolumeRequest {
        id: "a volume/1",
        attributes: &attributes(all),
        capability: Some(&capability),
        is_inline,
    };
    let arguments = arguments(&["--disk-cache", "/cache", "--local", "/usr"]);
    VolumeSpec::checked(&request, &SecretKeys::default(), &arguments)
}

/// The snapshot of the command's help names the option of each attribute.
#[test]
fn every_setting_is_an_option_of_mount() {
    let help = include_str!("../../../cli/tests/snapshots/mount.txt");
    for (attribute, _) in SETTINGS {
        let option = format!("--{}", option_of(attribute));
        assert!(help.contains(&option), "{attribute}: no {option}");
    }
}

#[test]
fn attributes_and_mount_options_become_options_of_the_command() {
    let volume = of(
        &[
            ("source", "s3://models/7b/"),
            ("cache", "512Mi"),
            ("diskCache", "true"),
            ("diskCacheSize", "50Gi"),
            ("policy", "auto:max-overfetch=2"),
            ("allowHttp", "true"),
            ("requesterPays", "false"),
            ("csi.storage.k8s.io/pod.name", "p"),
            ("mountOptions", "attr_ttl=5s,no-sign-request"),
        ],
        &["ro", "allow-other", "region eu-central-1", "--hint=random"],
        false,
    )
    .expect("good");
    let folder = format!("/cache/{}", file_name("a volume/1", false));
    assert!(folder.starts_with("/cache/vavolume1-"), "{folder}");
    let disk_cache = format!("--disk-cache={folder},size=53687091200,free=10%");
    let expected = [
        "--allow-other",
        "--policy=auto:max-overfetch=2",
        "--hint=random",
        "--attr-ttl=5s",
        "--region=eu-central-1",
        "--no-sign-request",
        "--cache=536870912",
        &disk_cache,
    ];
    assert_eq!(volume.options, expected);
    assert_eq!(volume.source, "s3://models/7b/");
    assert_eq!(volume.disk_cache.as_deref(), Some(Path::new(&folder)));
    assert_eq!(volume.variables.len(), allow_http().count());
    assert!(volume.withheld.is_empty());
    for (prefix, source) in [
        ("", "s3://b/"),
        ("/x/y", "s3://b/x/y/"),
        ("x/", "s3://b/x/"),
    ] {
        let all = [("bucketName", "b"), ("prefix", prefix)];
        assert_eq!(of(&all, &[], false).expect("good").source, source);
    }
    assert_eq!(
        of(&[("source", "/usr/share")], &[], false)
            .expect("good")
            .source,
        "/usr/share"
    );
}

#[test]
fn an_inline_volume_has_no_credentials_of_the_machine() {
    let volume = of(&[("source", "s3://b/")], &[], true).expect("good");
    assert!(volume.options.contains(&"--no-sign-request".to_string()));
    for name in [
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "HUGGING_FACE_HUB_TOKEN",
        "HF_HOME",
        "AWS_ALLOW_HTTP",
    ] {
        assert!(volume.withheld.contains(&name), "{name}");
    }
    let checked = |source, keys: &SecretKeys, flags: &[&str]| {
        let attributes = attributes(&[("source", source)]);
        let request = VolumeRequest {
            id: "x",
            attributes: &attributes,
            capability: None,
            is_inline: true,
        };
        VolumeSpec::checked(&request, keys, &arguments(flags)).expect("good")
    };
    let by_http = ["--inline", "--inline-http"];
    let volume = checked("s3://b/", &SecretKeys::default(), &by_http);
    assert!(!volume.withheld.contains(&"AWS_ALLOW_HTTP"));
    let keys = [("key_id", "k"), ("access_key", "s")];
    let keys = SecretKeys::checked(&attributes(&keys)).expect("good");
    let sources = ["s3://b/", "gs://b/"].map(|source| {
        let volume = checked(source, &keys, &[]);
        volume.options.contains(&"--no-sign-request".to_string())
    });
    assert_eq!(sources, [false, true], "keys of S3 speak for S3 alone");
}

#[test]
fn an_inline_volumes_cache_is_limited_to_the_default() {
    let asks = |size, is_inline| of(&[("source", "s3://b/"), ("cache", size)], &[], is_inline);
    assert!(asks("256Mi", true).is_ok() && asks("512Mi", false).is_ok());
    let error = asks("512Mi", true).expect_err("too much");
    assert!(error.message().contains("cache is 512Mi"), "{error}");
}

#[test]
fn hostile_and_invalid_volumes_are_one_line_errors() {
    let good = ("source", "s3://b/");
    let refused = |all: &[(&str, &str)], flags: &[&str], part: &str| {
        let refused = of(all, flags, false).expect_err(part);
        let line = refused.message();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{line}");
        assert!(line.contains(part), "{part} in {line}");
        assert!(!line.contains('\n') && !line.contains("HUSH"), "{line}");
    };
    let long = "x".repeat(MAX_TEXT + 1);
    refused(&[("source", &long)], &[], "too long");
    refused(&[("source", "s3://b/\n--x")], &[], "control characters");
    refused(&[good, ("x\ny", "1")], &[], "no volumeAttribute");
    // Attributes, mount options, and a part of the error. `ok` is the source of a good volume.
    let table = "\
         |  | no source
        source= |  | no source
        ok bucketName=b |  | several sources
        bucketName=a/b |  | several sources
        source=/etc |  | not a source of a volume
        source=/usr/../etc |  | not a source of a volume
        source=usr |  | not a source of a volume
        source=--help |  | not a source of a volume
        source=file:///usr |  | not a source of a volume
        source=nbd://h/e |  | not a source of a volume
        source=https://a/b?sig=HUSH |  | signature
        source=https://u:HUSH@a/b |  | signature
        source=HTTPS://u:HUSH@a/b |  | signature
        source=S3://K:HUSH@b |  | signature
        source=s3://HUSH@b/ |  | signature
        source=az://c/?sig=HUSH |  | signature
        source=AZ://c/?SIG=HUSH |  | signature
        source=hf://u:HUSH@u/r |  | signature
        source=https://h/https%3A%2F%2Fu%3AHUSH%40i |  | signature
        source=NBD://u:HUSH@h |  | not a source of a volume
        source=u:HUSH@h/x |  | not a source of a volume
        bucketName=K:HUSH@b |  | signature
        ok endpointUrl=http://u:HUSH@h |  | credentials
        ok endpointUrl=https://h/?HUSH |  | a query
        ok endpointUrl=HTTPS://h/#HUSH |  | a query
        ok policy=https://u:HUSH@h |  | credentials
        ok | region=s3://K:HUSH@b | credentials
        ok https://u:HUSH@h=1 |  | no volumeAttribute
        ok | s3://K:HUSH@b | no mount option
        ok cache=much |  | is not a size
        ok cache=2Ti |  | allows
        ok cache=1 |  | allows
        ok diskCache=yes |  | neither true nor false
        ok diskCacheSize=1Gi |  | needs a disk cache
        ok diskCache=true diskCacheSize=9Ti |  | allows
        ok | rw | no mount option
        ok | record=/etc/x | no mount option
        ok | control=/x | no mount option
        ok | env=/x | no mount option
        ok | disk-cache=/etc | no mount option
        ok region=a | region=b | both
        ok mountOptions=plan=/x |  | no mount option";
    for [attributes, flags, part] in foreread_testing::rows(table) {
        let all = attributes.split_whitespace().map(|text| match text {
            "ok" => good,
            text => text.split_once('=').expect("a pair"),
        });
        let flags = Vec::from_iter(flags.split_whitespace());
        refused(&Vec::from_iter(all), &flags, part);
    }
    for all in [
        &[("source", "/usr")][..],
        &[("source", "http://h/f")],
        &[good, ("allowHttp", "true")],
        &[good, ("endpointUrl", "http://169.254.169.254")],
        &[good, ("diskCache", "true")],
    ] {
        assert!(of(all, &[], true).is_err(), "{all:?} inline");
    }
}

#[test]
fn access_modes_that_write_are_refused() {
    let strict = arguments(&[]);
    let checked = |mode, is_inline, arguments: &Arguments| {
        checked_capability(Some(&capability(mode, &[])), is_inline, arguments)
    };
    for mode in [Mode::SingleNodeReaderOnly, Mode::MultiNodeReaderOnly] {
        assert!(checked(mode, false, &strict).is_ok());
    }
    for mode in [
        Mode::Unknown,
        Mode::SingleNodeWriter,
        Mode::SingleNodeMultiWriter,
        Mode::MultiNodeSingleWriter,
        Mode::MultiNodeMultiWriter,
    ] {
        let refused = checked(mode, false, &strict).expect_err("refused");
        assert!(
            refused
                .message()
                .contains("write accessModes: [ReadOnlyMany]")
        );
        assert!(checked(mode, true, &strict).is_ok(), "inline");
        let any = checked(mode, false, &arguments(&["--any-access-mode"]));
        assert_eq!(any.is_ok(), mode != Mode::Unknown);
    }
    let block = VolumeCapability {
        access_type: Some(AccessType::Block(BlockVolume {})),
        ..capability(Mode::MultiNodeReaderOnly, &[])
    };
    assert!(checked_capability(Some(&block), false, &strict).is_err());
    assert!(checked_capability(None, false, &strict).is_err());
}

#[test]
fn names_of_files_are_names() {
    for id in ["../../etc", "", "a/b", "é", &"x".repeat(MAX_ID)] {
        let name = file_name(id, true);
        assert!(
            name.len() < 100 && !name.contains('/') && !name.contains('.'),
            "{name}"
        );
    }
    assert_ne!(file_name("a/b", false), file_name("ab", false));
    assert!(!file_name("s3://K:HUSH@b/", false).contains("HUSH"));
    assert_eq!(file_name("models", false), "vmodels-bb021c3315a8cc0b");
    assert!(checked_id("").is_err() && checked_id("a\nb").is_err() && checked_id("x").is_ok());
}
