//! Tests of the systemd units: they have the rights that SECURITY.md states, and a mount works with these rights.

use crate::common::process::can_mount;
use crate::common::server::Server;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// A file of the repository.
fn text(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::fs::read_to_string(root.join(path)).expect(path)
}

/// The values of a key.
fn values(unit: &str, key: &str) -> Vec<String> {
    let lines = unit.lines();
    let values = lines.filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    values.map(str::to_string).collect()
}

#[test]
fn units_have_the_documented_rights() {
    let told = text("SECURITY.md");
    let serve = text("contrib/systemd/foreread-serve@.service");
    assert_eq!(values(&serve, "User"), ["foreread"]);
    assert_eq!(values(&serve, "NoNewPrivileges"), ["yes"]);
    let mount = text("contrib/systemd/foreread-mount@.service");
    assert!(values(&mount, "User").is_empty());
    assert_eq!(values(&mount, "NoNewPrivileges"), ["yes"]);
    let [rights] = &values(&mount, "CapabilityBoundingSet")[..] else {
        panic!("one line");
    };
    let rights: Vec<String> = rights
        .split(' ')
        .map(|right| format!("`{right}`"))
        .collect();
    assert!(told.contains(&rights.join(" and ")), "{rights:?}");
    assert_eq!(rights.len(), 2);
    // With these the mount would be in a private mount namespace.
    let private = ["Protect", "Private", "ReadOnlyPaths", "TemporaryFileSystem"];
    let found = mount
        .lines()
        .find(|line| private.iter().any(|key| line.starts_with(key)));
    assert_eq!(found, None);
}

#[test]
fn a_mount_needs_no_more_rights_than_its_unit_has() {
    if !can_mount() {
        return;
    }
    if Command::new("setpriv").arg("--version").output().is_err() {
        println!("skipped: needs setpriv");
        return;
    }
    let rights = values(
        &text("contrib/systemd/foreread-mount@.service"),
        "CapabilityBoundingSet",
    );
    let rights: Vec<String> = rights[0]
        .split(' ')
        .map(|right| format!("+{}", right.trim_start_matches("CAP_").to_ascii_lowercase()))
        .collect();
    let folder = tempfile::tempdir().expect("a folder");
    let (source, dir) = (folder.path().join("source"), folder.path().join("m"));
    for path in [&source, &dir] {
        std::fs::create_dir(path).expect("made");
    }
    // Of a user who lets no other look.
    let file = source.join("file");
    std::fs::write(&file, "bytes").expect("room");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("set");
    for path in [&file, &source] {
        std::os::unix::fs::chown(path, Some(1000), Some(1000)).expect("root may");
    }
    let mut command = Command::new("setpriv");
    command.arg(format!("--bounding-set=-all,{}", rights.join(",")));
    command.args(["--inh-caps=-all", "--no-new-privs"]);
    command.arg(env!("CARGO_BIN_EXE_foreread")).arg("mount");
    command
        .arg(&source)
        .arg(&dir)
        .args(["--allow-other", "--cache", "16M"]);
    let server = Server::start(&mut command);
    assert_eq!(server.line, dir.display().to_string());
    assert_eq!(std::fs::read(dir.join("file")).expect("read"), b"bytes");
    server.ended_by("-TERM");
    assert!(!dir.join("file").exists());
}
