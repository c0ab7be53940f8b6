//! Files as people write them, on one machine: sda (8:0, of ATA, with the partition sda1), the volume vg-data (dm-0) and a mount 0:44.

use super::super::look;
use super::*;

const RULE: &str = "etc/udev/rules.d/60-ra.rules";
const UNIT: &str = "etc/systemd/system/ra.service";
const TUNED: &str = "etc/tuned/my/tuned.conf";
const LOCAL: &str = "etc/rc.local";

/// A machine with one file, or with several that `---- PATH` begins.
fn machine(path: &str, text: &str) -> (tempfile::TempDir, Host) {
    let root = tempfile::tempdir().expect("a folder for temporary files");
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, text).expect("written");
    };
    for (name, number) in [("sda", "8:0"), ("sdb", "8:16"), ("dm-0", "253:0")] {
        write(&format!("sys/block/{name}/dev"), number);
        write(&format!("sys/block/{name}/queue/read_ahead_kb"), "4096\n");
        write(&format!("sys/block/{name}/queue/rotational"), "0\n");
        write(&format!("sys/block/{name}/device/vendor"), "ATA     \n");
        write(
            &format!("sys/block/{name}/device/model"),
            "Samsung SSD 870\n",
        );
    }
    write("sys/block/sda/sda1/partition", "1\n");
    write("sys/block/sda/sda1/dev", "8:1\n");
    write("sys/block/dm-0/dm/name", "vg-data\n");
    write("sys/block/dm-0/dm/uuid", "LVM-abc\n");
    write("sys/class/bdi/0:44/read_ahead_kb", "15360\n");
    write(
        "proc/self/mountinfo",
        "21 20 0:44 / /nfs rw - nfs4 host:/x rw\n",
    );
    write(
        "run/udev/data/b8:0",
        "S:disk/by-id/ata-Samsung_1\nE:ID_BUS=ata\nE:ID_MODEL=Samsung_SSD_870\n",
    );
    write("run/udev/data/b8:1", "S:disk/by-uuid/aa-bb\n");
    write("etc/tuned/active_profile", "my\n");
    let mut rest = text;
    let mut path = path;
    while let Some((part, behind)) = rest.split_once("---- ") {
        write(path, part);
        (path, rest) = behind.split_once('\n').expect("a path");
    }
    write(path, rest);
    let host = Host::below(root.path());
    (root, host)
}

fn value(host: &Host, name: &str) -> SetValue {
    let facts = look::look(host);
    let device = facts.iter().find(|facts| facts.device.name == name);
    let pin = Settings::read(host).pin(host, device.expect("it is there"));
    pin.map(|pin| pin.kib)
}

/// Files as people write them: after `== DEVICE VALUE: PATH` a file below that path, and perhaps others, each after `---- PATH`. VALUE is what
/// they set the device to in KiB, `?` if that is not known, `-` for nothing. sdb is a disk of which udev keeps no facts.
const FILES: &str = include_str!("files.txt");

#[test]
fn files_set_what_they_say() {
    let mut wrong = Vec::new();
    let cases = format!("\n{FILES}");
    for case in cases.split("\n== ").skip(1) {
        let (head, text) = case.split_once('\n').expect("a text");
        let (what, path) = head.split_once(": ").expect("a path");
        let (name, wanted) = what.split_once(' ').expect("a value");
        let (_root, host) = machine(path, &format!("{text}\n"));
        let found = match value(&host, name) {
            Some(Some(kib)) => kib.to_string(),
            Some(None) => "?".to_string(),
            None => "-".to_string(),
        };
        if found != wanted {
            wrong.push(format!("{found} instead of {case}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// What has no end, or calls itself, costs a bounded time.
#[test]
fn hostile_files_end() {
    let nested = "$(".repeat(20_000) + &"{a,b}".repeat(5_000);
    let loops = "for a in {1..999}; do f() { f; f; }; f; done\n";
    for text in [
        nested.as_str(),
        loops,
        "\"",
        "'",
        "\\",
        "<<",
        "${",
        "f() {",
        "}",
        "=(",
        "for",
        "case x",
    ] {
        let text = format!("# read_ahead_kb\n{text}\n");
        for path in [
            LOCAL,
            RULE,
            UNIT,
            TUNED,
            "etc/hdparm.conf",
            "usr/lib/tmpfiles.d/x.conf",
        ] {
            let (_root, host) = machine(path, &text);
            value(&host, "sda");
        }
    }
}
