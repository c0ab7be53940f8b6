//! Tests `foreread doctor` on simulated machines, on loop devices created by the test, and when it is killed while it
//! sets values.
//!
//! A simulated machine is a folder with a `proc`, a `sys`, an `etc` and a `run`. Its `sys` contains a link to the loop
//! device, so the value is set in the kernel, and the rules file belongs to the test.

use crate::common::foreread;
use assert_cmd::cargo::cargo_bin;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const RULES: &str = "etc/udev/rules.d/61-foreread-readahead.rules";

struct Machine(tempfile::TempDir);

impl Machine {
    fn new(kernel: &str) -> Machine {
        let machine = Machine(tempfile::tempdir().expect("a scratch directory"));
        machine.write("proc/sys/kernel/osrelease", kernel);
        machine.write("proc/meminfo", "MemTotal: 16777216 kB\n");
        fs::create_dir_all(machine.path("sys/class/bdi")).expect("room");
        machine
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("room");
        fs::write(path, text).expect("room");
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_default()
    }

    /// A disk: name, number, read_ahead_kb, rotational, optimal_io_size, max_sectors_kb.
    fn disk(&self, name: &str, number: &str, [kib, rotates, optimal, request]: [u64; 4]) {
        let file = |file: &str, text: String| self.write(&format!("sys/block/{name}/{file}"), text);
        file("dev", format!("{number}\n"));
        file("size", "2097152\n".to_string());
        file("queue/read_ahead_kb", format!("{kib}\n"));
        file("queue/rotational", format!("{rotates}\n"));
        file("queue/optimal_io_size", format!("{optimal}\n"));
        file("queue/max_sectors_kb", format!("{request}\n"));
    }

    fn model(&self, name: &str, model: &str) {
        self.write(&format!("sys/block/{name}/device/model"), model);
    }

    fn doctor(&self, words: &[&str]) -> crate::common::Got {
        let root = self.0.path().to_str().expect("UTF-8");
        foreread([&["doctor", "--root", root], words].concat())
    }

    fn json(&self) -> serde_json::Value {
        let got = self.doctor(&["--json", "-"]);
        serde_json::from_str(got.is_done()).expect("JSON")
    }
}

/// Of a device: its verdict, and what the kernel's rule gives in KiB.
fn found(json: &serde_json::Value, name: &str) -> (String, Option<u64>) {
    let devices = json["devices"].as_array().expect("a list");
    let device = devices
        .iter()
        .find(|device| device["device"] == name)
        .expect("it is there");
    let rule = device["rule_bytes"].as_u64().map(|bytes| bytes / 1024);
    (
        device["standing"].as_str().expect("a word").to_string(),
        rule,
    )
}

fn cloud() -> Machine {
    let machine = Machine::new("6.17.0-1009-azure\n");
    machine.disk("sda", "8:0", [4096, 1, 0, 2048]);
    machine.model("sda", "Msft Virtual Disk");
    machine.disk("nvme0n1", "259:0", [65_536, 0, 32 << 20, 256]);
    machine.model("nvme0n1", "MSFT NVMe Accelerator v1.0");
    machine.disk("sdb", "8:16", [2560, 1, 0, 1280]);
    machine.model("sdb", "ST4000NM0035");
    machine.disk("dm-0", "253:0", [4096, 1, 0, 2048]);
    machine.write("sys/block/dm-0/dm/name", "vg-data\n");
    machine.write("sys/block/dm-0/dm/uuid", "LVM-abc\n");
    machine.write("sys/block/dm-0/slaves/sda/x", "");
    machine.disk("md0", "9:0", [2048, 0, 1 << 20, 512]);
    machine.write("sys/block/md0/md/level", "raid0\n");
    machine.disk("zram0", "252:0", [128, 0, 4096, 124]);
    machine.disk("loop9", "7:9", [128, 0, 0, 1280]);
    machine.write("sys/block/loop9/size", "0\n");
    machine.write("sys/class/bdi/0:44/read_ahead_kb", "128\n");
    machine.write("sys/class/bdi/0:45/read_ahead_kb", "64\n");
    machine.write("sys/class/bdi/btrfs-1/read_ahead_kb", "4096\n");
    let mounts = "20 1 0:30 / / rw - overlay overlay rw,upperdir=/up\n\
        21 20 0:44 / /nfs rw - nfs4 host:/x rw,rsize=1048576\n\
        22 20 0:45 / /fuse rw - fuse.s3fs s3fs rw\n\
        23 20 0:46 / /b rw - btrfs /dev/sdb rw\n\
        24 20 8:0 / /data rw - ext4 /dev/sda rw\n";
    machine.write("proc/self/mountinfo", mounts);
    machine
}

#[test]
fn a_machine_of_a_cloud_is_explained_and_judged() {
    let machine = cloud();
    let json = machine.json();
    let word = |word: &str, kib| (word.to_string(), Some(kib));
    for (name, wanted) in [
        ("sda", word("suspicious", 4096)),
        ("dm-0", word("suspicious", 4096)),
        ("nvme0n1", word("suspicious", 65_536)),
        ("sdb", word("fine", 2560)),
        ("md0", word("fine", 2048)),
        ("zram0", word("fine", 128)),
        // What a server of FUSE makes of larger windows is not known.
        ("0:45", word("fine", 128)),
        ("btrfs-1", word("fine", 4096)),
    ] {
        assert_eq!(found(&json, name), wanted, "{name}: {json:#}");
    }
    let got = machine.doctor(&[]);
    let text = got.is_done();
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line =
        "sda: readahead is 4 MiB (default since Linux 6.17); random page faults read 4 MiB each.";
    assert!(words.starts_with(line), "{text}");
    assert!(
        text.contains("nvme0n1 (64 MiB)") && text.contains("dm-0 (4 MiB)"),
        "{text}"
    );
    assert!(
        text.contains("Set 1 MiB:  foreread doctor --fix sda"),
        "{text}"
    );
    assert!(
        words.contains("by formula") && text.contains("Next: foreread tune"),
        "{text}"
    );
    assert!(
        text.lines().count() <= 12 && !text.contains("commit"),
        "{text}"
    );
    let why = machine.doctor(&["--why"]);
    assert!(why.is_done().contains("459779d04ae8"), "{}", why.out);
    assert!(
        why.out.contains("/fuse") && !why.out.contains("0:45"),
        "{}",
        why.out
    );
    assert!(text.contains("The root is an overlay"), "{text}");
    assert!(!text.contains("loop9"), "it has no file: {text}");
    let got = machine.doctor(&["--exit-code"]);
    assert_eq!(got.code, Some(1), "{}", got.err);
    assert_eq!(machine.doctor(&["--exit-code", "sdb"]).code, Some(0));
}

/// Two paths of a multipath device: what is mounted is said, and its paths are not judged. A volume of ZFS has one page by itself.
#[test]
fn a_path_of_multipath_does_not_hide_what_is_mounted() {
    let machine = Machine::new("6.17.0\n");
    machine.disk("sda", "8:0", [8192, 1, 0, 4096]);
    machine.disk("sdb", "8:16", [8192, 1, 0, 4096]);
    machine.disk("sdc", "8:32", [8192, 0, 4 << 20, 4096]);
    machine.disk("dm-0", "253:0", [65_536, 0, 32 << 20, 4096]);
    machine.write("sys/block/dm-0/dm/name", "mpatha\n");
    machine.write("sys/block/dm-0/dm/uuid", "mpath-3600\n");
    machine.write("sys/block/dm-0/slaves/sda/x", "");
    machine.write("sys/block/dm-0/slaves/sdb/x", "");
    machine.disk("zd0", "230:0", [4, 0, 16_384, 512]);
    machine.write(
        "proc/self/mountinfo",
        "30 1 253:0 / / rw - ext4 /dev/mapper/mpatha rw\n",
    );
    let json = machine.json();
    assert_eq!(found(&json, "dm-0").0, "suspicious");
    assert_eq!(found(&json, "sdc").0, "suspicious");
    for name in ["sda", "sdb"] {
        assert_eq!(found(&json, name).0, "fine", "{name}: {json:#}");
    }
    assert_eq!(found(&json, "zd0"), ("fine".to_string(), Some(4)));
    let text = machine.doctor(&[]);
    assert!(
        text.is_done().starts_with("dm-0: readahead is 64 MiB"),
        "{}",
        text.out
    );
    let path = machine.doctor(&["--why", "sda"]);
    assert!(
        path.is_done().contains("files on it are read through dm-0"),
        "{}",
        path.out
    );
}

/// What names each kind of disk when rules of number 61 are read.
#[test]
fn the_rule_goes_by_what_udev_knows_then() {
    let machine = Machine::new("6.17.0\n");
    let names = [
        "sda", "md0", "md1", "md2", "dm-0", "bcache0", "bcache1", "zd0", "rbd0", "loop9", "loop8",
    ];
    for (n, name) in names.into_iter().enumerate() {
        machine.disk(name, &format!("9:{n}"), [65_536, 0, 32 << 20, 4096]);
    }
    machine.write(
        "sys/block/md0/md/uuid",
        "2e646fd5-9683-3640-07eb-4b122a858a68\n",
    );
    machine.write("sys/block/md1/md/level", "raid0\n");
    machine.write("sys/block/dm-0/dm/uuid", "LVM-abc\n");
    machine.write("sys/block/bcache0/bcache/backing_dev_uuid", "aa-bb\n");
    machine.write("sys/block/loop9/loop/backing_file", "/var/lib/a b*.img\n");
    for (n, text) in [
        (0, "E:ID_SERIAL=S1\n"),
        (2, "E:MD_LEVEL=raid0\n"),
        (3, "E:MD_UUID=2e646fd5:96833640\n"),
        (4, "E:DM_NAME=vg-data\nE:DM_UUID=LVM-abc\n"),
        (6, "E:CACHED_UUID=cc-dd\n"),
        (7, "S:zvol/tank/vm\nS:tank/vm\n"),
        (8, "S:rbd/pool/image\nE:ID_PATH=x\n"),
    ] {
        machine.write(&format!("run/udev/data/b9:{n}"), text);
    }
    let rule = |name: &str| {
        let got = machine.doctor(&["--fix", name, "--to", "1M", "--dry-run"]);
        let mut lines = got.is_done().lines();
        let line = lines
            .find(|line| line.contains("ACTION=="))
            .expect("a rule");
        let condition = line
            .split("ENV{DEVTYPE}==\"disk\", ")
            .nth(1)
            .expect("a condition");
        let end = condition
            .find(", ATTR{queue/read_ahead_kb}")
            .expect("a value");
        condition[..end].to_string()
    };
    let by_name = |name: &str| format!("KERNEL==\"{name}\"");
    assert_eq!(rule("sda"), "ENV{ID_SERIAL}==\"S1\"");
    assert_eq!(
        rule("md0"),
        "ATTR{md/uuid}==\"2e646fd5-9683-3640-07eb-4b122a858a68\""
    );
    assert_eq!(rule("md1"), by_name("md1"));
    // MD_UUID is of a rule of number 63, which asks mdadm; so does this one, where it is there.
    assert_eq!(rule("md2"), by_name("md2"));
    machine.write("sbin/mdadm", "");
    let program =
        "KERNEL==\"md*\", PROGRAM==\"/sbin/mdadm --detail --no-devices --export $devnode\"";
    assert_eq!(
        rule("md2"),
        format!("{program}, RESULT==\"*MD_UUID=2e646fd5:96833640*\"")
    );
    assert_eq!(rule("dm-0"), "ENV{DM_UUID}==\"LVM-abc\"");
    assert_eq!(rule("bcache0"), "ATTR{bcache/backing_dev_uuid}==\"aa-bb\"");
    assert_eq!(rule("bcache1"), "ENV{CACHED_UUID}==\"cc-dd\"");
    assert_eq!(rule("zd0"), "SYMLINK==\"zvol/tank/vm\"");
    assert_eq!(rule("rbd0"), "SYMLINK==\"rbd/pool/image\"");
    assert_eq!(
        rule("loop9"),
        "ATTR{loop/backing_file}==\"/var/lib/a b?.img\""
    );
    assert_eq!(rule("loop8"), by_name("loop8"));
}

/// The counters of two disks, of which one is read between two looks; the value that is advised is that of `doctor`.
#[test]
fn watch_shows_what_disks_read_and_what_doctor_says() {
    let machine = cloud();
    let stat = |disk: &str, reads: u64| {
        let text = format!("{reads} 0 {} {} 0 0 0 0 0 9\n", reads * 256, reads * 3);
        let path = format!("sys/block/{disk}/stat");
        machine.write(&format!("{path}.new"), text);
        // Half a file would be no counters.
        fs::rename(machine.path(&format!("{path}.new")), machine.path(&path)).expect("there");
    };
    machine.write("proc/vmstat", "workingset_refault_file 5\n");
    stat("sda", 10);
    stat("sdb", 10);
    let root = machine.0.path().to_str().expect("UTF-8");
    let mut watch = Command::new(cargo_bin("foreread"));
    watch.args(["watch", "--root", root, "--every", "200ms", "--json"]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().expect("it starts");
    let lines = BufReader::new(watch.stdout.take().expect("a pipe")).lines();
    let mut sums = [0; 3];
    for (n, line) in lines.enumerate() {
        let sample: serde_json::Value = serde_json::from_str(&line.expect("UTF-8")).expect("JSON");
        for disk in sample["disks"].as_array().expect("a list") {
            assert_eq!(disk["name"], "sda");
            assert_eq!(disk["doctor"]["advised"]["readahead_bytes"], 1 << 20);
            let number = |key: &str| disk[key].as_u64().expect("a number");
            sums[0] += number("reads");
            sums[1] += number("read_bytes");
            sums[2] += number("read_ms");
        }
        if n == 0 {
            stat("sda", 30);
        } else if sums[0] > 0 {
            break;
        }
    }
    watch.kill().expect("it runs");
    watch.wait().expect("it ends");
    assert_eq!(sums, [20, 20 * 256 * 512, 60]);
    let text = foreread(["watch", "sda", "--root", root, "--every", "100ms", "--once"]);
    let text = text.is_done();
    assert!(text.starts_with("sda: 0 B in 0 reads"), "{text}");
    assert!(text.contains("doctor: 4M is suspicious"), "{text}");
}

#[test]
fn what_is_not_there_is_one_line() {
    let empty = tempfile::tempdir().expect("a scratch directory");
    let root = empty.path().to_str().expect("UTF-8");
    for command in ["doctor", "watch"] {
        let got = foreread([command, "--root", root]);
        assert_eq!(got.code, Some(3), "{}", got.err);
        assert_eq!(got.err.lines().count(), 1);
        assert!(got.err.contains("no sysfs"), "{}", got.err);
    }
    // A container whose sysfs has no disks.
    let container = Machine::new("6.18.0\n");
    let got = foreread([
        "watch",
        "--root",
        container.0.path().to_str().expect("UTF-8"),
    ]);
    assert_eq!(got.code, Some(3), "{}", got.err);
    assert!(got.err.contains("no disk is visible here"), "{}", got.err);
    let line = cloud().doctor(&["sdz"]);
    assert!(
        line.is_refused()
            .contains("no such device with readahead: sdz")
    );
}

#[test]
fn hostile_contents_are_passed_over() {
    let machine = Machine::new("\u{1b}[31m9999999999.1\n");
    machine.disk("sda", "8:0", [u64::MAX, 1, u64::MAX, u64::MAX]);
    machine.model("sda", "a\"\n\u{1b}[2J\\");
    machine.disk("sd\"b", "8", [0, 7, 0, 0]);
    machine.write("sys/block/sdc/queue/read_ahead_kb", [0xff; 3]);
    machine.write("proc/self/mountinfo", "1 2 3 - \n");
    machine.write(
        "etc/udev/rules.d/1.rules",
        "ATTR{queue/read_ahead_kb}=\"\nKERNEL==\"[\", ATTR{queue/read_ahead_kb}=\"9",
    );
    let metrics = machine.path("out.prom");
    let got = machine.doctor(&["--metrics", metrics.to_str().expect("UTF-8")]);
    assert!(!got.is_done().contains('\u{1b}'), "{}", got.out);
    let metrics = fs::read_to_string(metrics).expect("written");
    assert!(
        metrics.contains("foreread_doctor_suspicious{device=\"sd\\\"b\"} 1\n"),
        "{metrics}"
    );
}

#[test]
fn a_fix_is_set_kept_and_taken_back() {
    let machine = cloud();
    machine.write("run/udev/data/b8:0", "E:ID_SERIAL=3600 abc\nE:ID_PATH=x\n");
    let setting = "sys/block/sda/queue/read_ahead_kb";
    let dry = machine.doctor(&["--fix", "sda", "--dry-run"]);
    assert!(
        dry.is_done().contains("ENV{ID_SERIAL}==\"3600 abc\""),
        "{}",
        dry.out
    );
    assert_eq!(
        (machine.text(setting).as_str(), machine.path(RULES).exists()),
        ("4096\n", false)
    );
    machine.doctor(&["--fix", "sda"]).is_done();
    let rules = machine.text(RULES);
    assert!(
        rules.contains("# foreread-before sda 4096 1024\n"),
        "{rules}"
    );
    assert!(
        rules.ends_with("ATTR{queue/read_ahead_kb}=\"1024\"\n"),
        "{rules}"
    );
    assert_eq!(machine.text(setting), "1024");
    // As after a kill between the file and the value, and after one between the value and the end of the file.
    machine.write(setting, "4096\n");
    let got = machine.doctor(&["--undo"]);
    assert!(got.is_done().contains("is 4096 already"), "{}", got.out);
    assert_eq!(
        (machine.text(setting).as_str(), machine.path(RULES).exists()),
        ("4096\n", false)
    );
    machine.doctor(&["--fix", "sda"]).is_done();
    // The kernel has applied its rule again: the value before the first time counts.
    machine.write(setting, "4096\n");
    machine.doctor(&["--fix", "sda"]).is_done();
    assert_eq!(machine.text(RULES), rules);
    // Another disk: the file has both.
    let got = machine.doctor(&["--fix", "nvme0n1"]);
    assert!(got.is_done().contains("no serial number"), "{}", got.out);
    assert_eq!(machine.text(RULES).matches("foreread-before").count(), 2);
    machine.doctor(&["--undo", "sda"]).is_done();
    assert_eq!(
        (
            machine.text(setting).as_str(),
            machine.text(RULES).contains("sda")
        ),
        ("4096", false)
    );
    // What another command advises, of the disk that it names.
    let got = machine.doctor(&["--fix", "sda", "--to", "512K"]);
    assert!(got.is_done().contains("4096 -> 512"), "{}", got.out);
    machine.doctor(&["--undo", "sda"]).is_done();
    for wrong in [
        &["--fix", "--to", "1M"][..],
        // All disks are set by asking for all.
        &["--fix"],
        &["--fix", "sda", "--all"],
        &["--fix", "sda", "--to", "5000"],
        &["sda", "--to", "1M"],
    ] {
        machine.doctor(wrong).is_refused();
    }
    // A value that something else has set stays.
    machine.write("sys/block/nvme0n1/queue/read_ahead_kb", "77\n");
    let got = machine.doctor(&["--undo"]);
    assert!(
        got.is_done().contains("77 was set by another program"),
        "{}",
        got.out
    );
    assert!(!machine.path(RULES).exists());
    assert!(
        machine
            .doctor(&["--undo"])
            .is_refused()
            .contains("nothing to undo")
    );
}

#[test]
fn what_may_not_be_set_is_refused_and_nothing_is_done() {
    let machine = cloud();
    let setting = "sys/block/sda/queue/read_ahead_kb";
    machine.write(
        "usr/lib/udev/rules.d/60-x.rules",
        "KERNEL==\"sd*\", ATTR{queue/read_ahead_kb}=\"4096\"\n",
    );
    let line = machine.doctor(&["--fix", "sda"]);
    assert!(
        line.is_refused()
            .contains("/usr/lib/udev/rules.d/60-x.rules")
    );
    machine.doctor(&["--fix", "sda", "--force"]).is_done();
    machine.doctor(&["--undo"]).is_done();
    let line = machine.doctor(&["--fix", "0:45"]);
    assert!(
        line.code == Some(3)
            && line
                .err
                .contains("a udev rule cannot set the readahead of a mount"),
        "{}",
        line.err
    );
    machine.write("etc/NIXOS", "");
    let line = machine.doctor(&["--fix", "sda", "--force"]);
    assert!(
        line.code == Some(3) && line.err.contains("services.udev.extraRules"),
        "{}",
        line.err
    );
    fs::remove_file(machine.path("etc/NIXOS")).expect("removed");
    // A folder of rules that cannot be.
    fs::remove_dir_all(machine.path("etc/udev")).expect("removed");
    machine.write("etc/udev", "");
    let line = machine.doctor(&["--fix", "sda", "--force"]);
    assert!(
        line.code == Some(3) && line.err.contains("cannot write the rules"),
        "{}",
        line.err
    );
    assert_eq!(machine.text(setting), "4096");
}

/// A loop device of the test's own.
struct LoopDisk {
    node: String,
    _dir: tempfile::TempDir,
}

impl LoopDisk {
    fn new() -> Option<LoopDisk> {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory");
        let image = dir.path().join("image");
        let file = fs::File::create(&image).expect("room");
        file.set_len(16 << 20).expect("room");
        let made = Command::new("losetup")
            .args(["-f", "--show"])
            .arg(&image)
            .output();
        let Some(made) = made.ok().filter(|made| made.status.success()) else {
            println!("skipped: needs root and a loop device");
            return None;
        };
        let node = String::from_utf8_lossy(&made.stdout).trim().to_string();
        Some(LoopDisk { node, _dir: dir })
    }

    fn name(&self) -> &str {
        self.node.trim_start_matches("/dev/")
    }

    fn queue(&self, file: &str) -> PathBuf {
        Path::new("/sys/block")
            .join(self.name())
            .join("queue")
            .join(file)
    }

    fn kib(&self) -> u64 {
        let text = fs::read_to_string(self.queue("read_ahead_kb")).expect("a setting");
        text.trim().parse().expect("a number")
    }

    fn set(&self, file: &str, value: u64) -> bool {
        fs::write(self.queue(file), value.to_string()).is_ok()
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.node]).status();
    }
}

/// The kernel applies its rule at a change of the limits: what it takes then is what the table gives.
#[test]
fn the_table_of_rules_agrees_with_this_kernel() {
    let Some(disk) = LoopDisk::new() else { return };
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("a release");
    let mut numbers = release
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    if (numbers.next(), numbers.next()) < (Some(6), Some(9)) {
        println!("skipped: needs a kernel that applies its rule at a change, 6.9 or later");
        return;
    }
    for rotates in [0, 1] {
        for request in [64, 128, 512, 1280] {
            if !disk.set("rotational", rotates)
                || !disk.set("read_ahead_kb", 4)
                || !disk.set("max_sectors_kb", request)
            {
                println!("skipped: needs a sysfs that may be written");
                return;
            }
            let got = foreread(["doctor", disk.name(), "--json", "-", "--no-measure"]);
            let json = serde_json::from_str(got.is_done()).expect("JSON");
            assert_eq!(
                found(&json, disk.name()).1,
                Some(disk.kib()),
                "{rotates} {request}: {json:#}"
            );
        }
    }
}

/// A lock on what all may read, a umask of 0, and lines of an administrator in the file.
#[test]
fn other_users_and_their_lines_do_not_matter() {
    use std::os::unix::fs::PermissionsExt;
    let machine = cloud();
    let own = "KERNEL==\"sdz\", ATTR{queue/scheduler}=\"none\"\n";
    machine.write(RULES, own);
    let setting = machine.path("sys/block/sda/queue/read_ahead_kb");
    let folder = machine.path("etc/udev/rules.d");
    let _locks = [&setting, &folder].map(|path| {
        let file = fs::File::open(path).expect("it is there");
        file.lock().expect("nothing else has it");
        file
    });
    let root = machine.0.path().to_str().expect("UTF-8");
    let foreread = cargo_bin("foreread");
    let line = format!(
        "umask 0; exec {} doctor --root {root} --fix sda",
        foreread.display()
    );
    let done = Command::new("sh").args(["-c", &line]).output();
    let done = done.expect("a shell");
    assert!(done.status.success(), "{done:?}");
    let mode = |path: &str| {
        let meta = fs::metadata(machine.path(path)).expect("it is there");
        meta.permissions().mode() & 0o7777
    };
    let lock = "run/foreread-doctor.lock";
    assert_eq!((mode(RULES), mode(lock)), (0o644, 0o600));
    assert!(machine.text(RULES).contains(own) && machine.text(RULES).contains("foreread-before"));
    machine.doctor(&["--undo"]).is_done();
    assert_eq!(machine.text(RULES), own);
    // The lock is for a second doctor.
    let file = fs::File::open(machine.path(lock)).expect("it is there");
    file.lock().expect("nothing else has it");
    let refused = machine.doctor(&["--fix", "sda"]);
    assert!(
        refused
            .is_refused()
            .contains("another 'foreread doctor' is running")
    );
    fs::remove_file(machine.path(lock)).expect("it is there");
    std::os::unix::fs::symlink("/etc/passwd", machine.path(lock)).expect("room");
    let refused = machine.doctor(&["--fix", "sda"]);
    assert!(
        refused.code != Some(0) && refused.err.contains("cannot make the lock"),
        "{}",
        refused.err
    );
}

/// The real udev applies the rule of a loop device at the event that attaches its file.
#[test]
fn udev_applies_the_rule() {
    let Some(disk) = LoopDisk::new() else { return };
    if Command::new("udevadm").arg("--version").output().is_err() {
        println!("skipped: needs udevadm");
        return;
    }
    let got = foreread(["doctor", "--fix", disk.name(), "--to", "1M", "--dry-run"]);
    let mut lines = got.is_done().lines();
    let rule = lines
        .find(|line| line.contains("ACTION=="))
        .expect("a rule");
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory");
    let rules = dir.path().join("61-foreread-readahead.rules");
    fs::write(&rules, format!("{}\n", rule.trim())).expect("room");
    let script = "mount -t tmpfs x /run && mkdir -p /run/udev/rules.d && cp \"$1\" /run/udev/rules.d && \
        exec udevadm test --action=change \"$2\" 2>&1";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh"]).arg(&rules);
    let said = command
        .arg(Path::new("/sys/block").join(disk.name()))
        .output();
    let said = String::from_utf8_lossy(&said.expect("it starts").stdout).into_owned();
    if !said.contains("Reading rules file") {
        println!("skipped: needs a mount namespace");
        return;
    }
    assert!(
        said.contains("read_ahead_kb' writing '1024'"),
        "{rule}: {said}"
    );
}

/// SIGKILL at many moments of --fix: the file and the value are the old or the new ones, and --undo puts both back.
#[test]
fn killed_at_any_moment_it_can_be_undone() {
    let Some(disk) = LoopDisk::new() else { return };
    let machine = Machine::new("6.18.0\n");
    fs::create_dir_all(machine.path("sys/block")).expect("room");
    let link = machine.path("sys/block").join(disk.name());
    std::os::unix::fs::symlink(Path::new("/sys/block").join(disk.name()), link).expect("room");
    let root = machine.0.path().to_str().expect("UTF-8");
    let words = ["doctor", "--root", root, "--fix", disk.name()];
    let fix = || {
        let mut command = Command::new(cargo_bin("foreread"));
        command
            .args(words)
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts")
    };
    if !disk.set("read_ahead_kb", 8192) {
        println!("skipped: needs a sysfs that may be written");
        return;
    }
    let began = Instant::now();
    assert!(fix().wait().expect("it ends").success());
    let whole = began.elapsed();
    assert_eq!(disk.kib(), 1024);
    machine.doctor(&["--undo"]).is_done();
    const MOMENTS: u32 = 60;
    let mut states = [0; 3];
    for n in 0..MOMENTS {
        let mut child = fix();
        // Later moments a little beyond its end: some runs are whole.
        std::thread::sleep(
            whole * n / MOMENTS * 5 / 4 + Duration::from_micros(u64::from(n % 7) * 30),
        );
        child.kill().expect("it is ours");
        child.wait().expect("it ends");
        let (rules, kib) = (machine.text(RULES), disk.kib());
        let state = match (rules.is_empty(), kib) {
            (true, 8192) => 0,
            (false, 8192) => 1,
            (false, 1024) => 2,
            other => panic!("neither the old nor the new state: {other:?}"),
        };
        states[state] += 1;
        if state > 0 {
            assert!(
                rules.ends_with("ATTR{queue/read_ahead_kb}=\"1024\"\n"),
                "half a file: {rules}"
            );
            machine.doctor(&["--undo"]).is_done();
            assert_eq!((disk.kib(), machine.path(RULES).exists()), (8192, false));
        }
    }
    println!("before the file, between, after: {states:?}");
}
