//! Tests `foreread doctor` on simulated machines, and on loop devices created by the test.
//!
//! A simulated machine is a folder with a `proc`, a `sys`, an `etc` and a `run`.

use crate::common::{BINARY, Got, LoopDisk, Program, folder, needs, run, says, sparse, text};
use foreread_testing::rows;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

const RULES: &str = "etc/udev/rules.d/61-foreread-readahead.rules";
/// What the kernel reads ahead of the disk `sda`.
const SETTING: &str = "sys/block/sda/queue/read_ahead_kb";

struct Machine(tempfile::TempDir);

impl Machine {
    fn new(kernel: &str) -> Machine {
        let machine = Machine(tempfile::tempdir().expect("a scratch directory"));
        machine.write("proc/sys/kernel/osrelease", kernel);
        machine.write("proc/meminfo", "MemTotal: 16777216 kB\n");
        fs::create_dir_all(machine.path("sys/class/bdi")).expect("room");
        machine
    }

    fn root(&self) -> &str {
        text(self.0.path())
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

    /// Writes files of this folder: a row is a path and what is in it.
    fn write_all(&self, folder: &str, table: &str) {
        for [path, text] in rows(table) {
            self.write(&format!("{folder}/{path}"), format!("{text}\n"));
        }
    }

    /// What is set of `sda`, and whether there is a file of rules.
    fn state(&self) -> (String, bool) {
        (self.text(SETTING), self.path(RULES).exists())
    }

    /// Disks: a row is a name, the number, read_ahead_kb, rotational, optimal_io_size, max_sectors_kb.
    fn disks(&self, table: &str) {
        let files =
            "dev queue/read_ahead_kb queue/rotational queue/optimal_io_size queue/max_sectors_kb";
        for row in table.lines() {
            let mut words = row.split_whitespace();
            let folder = format!("sys/block/{}", words.next().expect("a name"));
            for (file, value) in files.split(' ').zip(words) {
                self.write(&format!("{folder}/{file}"), format!("{value}\n"));
            }
            self.write(&format!("{folder}/size"), "2097152\n");
        }
    }

    fn doctor(&self, words: &str) -> Got {
        run(format!("doctor --root {} {words}", self.root()))
    }

    /// What it prints, in which these parts are.
    #[track_caller]
    fn prints(&self, words: &str, parts: &[&str]) -> String {
        let got = self.doctor(words);
        says(got.is_done(), parts);
        got.out
    }

    /// This machine cannot do it; it says this part.
    #[track_caller]
    fn cannot(&self, words: &str, part: &str) {
        says(self.doctor(words).assert_code(3), &[part]);
    }

    /// Of each of these devices its verdict, and what the kernel's rule gives in KiB.
    #[track_caller]
    fn finds(&self, wanted: &[(&str, &str, u64)]) {
        let got = self.doctor("--json -");
        got.is_done();
        let json = got.json();
        for (name, verdict, kib) in wanted {
            let wanted = (verdict.to_string(), Some(*kib));
            assert_eq!(found(&json, name), wanted, "{name}");
        }
    }
}

fn found(json: &serde_json::Value, name: &str) -> (String, Option<u64>) {
    let devices = json["devices"].as_array().expect("a list");
    let mut devices = devices.iter().filter(|device| device["device"] == name);
    let device = devices.next().expect("it is there");
    let rule = device["rule_bytes"].as_u64().map(|bytes| bytes / 1024);
    let standing = device["standing"].as_str().expect("a word");
    (standing.to_string(), rule)
}

fn cloud() -> Machine {
    let machine = Machine::new("6.17.0-1009-azure\n");
    machine.disks(
        "sda 8:0 4096 1 0 2048
         nvme0n1 259:0 65536 0 33554432 256
         sdb 8:16 2560 1 0 1280
         dm-0 253:0 4096 1 0 2048
         md0 9:0 2048 0 1048576 512
         zram0 252:0 128 0 4096 124
         loop9 7:9 128 0 0 1280",
    );
    machine.write_all(
        "sys",
        "block/sda/device/model | Msft Virtual Disk
         block/nvme0n1/device/model | MSFT NVMe Accelerator v1.0
         block/sdb/device/model | ST4000NM0035
         block/dm-0/dm/name | vg-data
         block/dm-0/dm/uuid | LVM-abc
         block/dm-0/slaves/sda/x |
         block/md0/md/level | raid0
         block/loop9/size | 0
         class/bdi/0:44/read_ahead_kb | 128
         class/bdi/0:45/read_ahead_kb | 64
         class/bdi/btrfs-1/read_ahead_kb | 4096",
    );
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
    machine.finds(&[
        ("sda", "suspicious", 4096),
        ("dm-0", "suspicious", 4096),
        ("nvme0n1", "suspicious", 65_536),
        ("sdb", "fine", 2560),
        ("md0", "fine", 2048),
        ("zram0", "fine", 128),
        // What a server of FUSE makes of larger windows is not known.
        ("0:45", "fine", 128),
        ("btrfs-1", "fine", 4096),
    ]);
    let advice = "Set 1 MiB:  foreread doctor --fix sda";
    let parts = [
        "nvme0n1 (64 MiB)",
        "dm-0 (4 MiB)",
        advice,
        "Next: foreread tune",
    ];
    let printed = machine.prints("", &parts);
    says(&printed, &["The root is an overlay"]);
    let words = Vec::from_iter(printed.split_whitespace()).join(" ");
    let line =
        "sda: readahead is 4 MiB (default since Linux 6.17); random page faults read 4 MiB each.";
    assert!(words.starts_with(line) && words.contains("by formula"));
    let is_short = printed.lines().count() <= 12 && !printed.contains("commit");
    // It has no file.
    assert!(is_short && !printed.contains("loop9"), "{printed}");
    let why = machine.prints("--why", &["459779d04ae8", "/fuse"]);
    assert!(!why.contains("0:45"), "{why}");
    assert_eq!(machine.doctor("--exit-code").code, Some(1));
    assert_eq!(machine.doctor("--exit-code sdb").code, Some(0));
}

/// Two paths of a multipath device: what is mounted is said, and its paths are not judged. A volume of ZFS has one page by itself.
#[test]
fn a_path_of_multipath_does_not_hide_what_is_mounted() {
    let machine = Machine::new("6.17.0\n");
    machine.disks(
        "sda 8:0 8192 1 0 4096
         sdb 8:16 8192 1 0 4096
         sdc 8:32 8192 0 4194304 4096
         dm-0 253:0 65536 0 33554432 4096
         zd0 230:0 4 0 16384 512",
    );
    machine.write_all(
        "sys/block/dm-0",
        "dm/name | mpatha
         dm/uuid | mpath-3600
         slaves/sda/x |
         slaves/sdb/x |",
    );
    let mounts = "30 1 253:0 / / rw - ext4 /dev/mapper/mpatha rw\n";
    machine.write("proc/self/mountinfo", mounts);
    machine.finds(&[
        ("dm-0", "suspicious", 65_536),
        ("sdc", "suspicious", 8192),
        ("sda", "fine", 8192),
        ("sdb", "fine", 8192),
        ("zd0", "fine", 4),
    ]);
    let printed = machine.prints("", &[]);
    assert!(printed.starts_with("dm-0: readahead is 64 MiB"));
    machine.prints("--why sda", &["files on it are read through dm-0"]);
}

/// What names each kind of disk when rules of number 61 are read.
#[test]
fn the_rule_goes_by_what_udev_knows_then() {
    let machine = Machine::new("6.17.0\n");
    let md = "2e646fd5-9683-3640-07eb-4b122a858a68";
    let mdadm = "KERNEL==\"md*\", PROGRAM==\"/sbin/mdadm --detail --no-devices --export $devnode\", \
        RESULT==\"*MD_UUID=2e646fd5:96833640*\"";
    // A disk, a file of its sysfs, what is in it, what udev has noted (`, ` is a line's end), and the condition.
    let table = format!(
        r#"sda | | | E:ID_SERIAL=S1 | ENV{{ID_SERIAL}}=="S1"
        md0 | md/uuid | {md} | | ATTR{{md/uuid}}=="{md}"
        md1 | md/level | raid0 | E:MD_LEVEL=raid0 | KERNEL=="md1"
        md2 | | | E:MD_UUID=2e646fd5:96833640 | KERNEL=="md2"
        dm-0 | dm/uuid | LVM-abc | E:DM_NAME=vg-data, E:DM_UUID=LVM-abc | ENV{{DM_UUID}}=="LVM-abc"
        bcache0 | bcache/backing_dev_uuid | aa-bb | | ATTR{{bcache/backing_dev_uuid}}=="aa-bb"
        bcache1 | | | E:CACHED_UUID=cc-dd | ENV{{CACHED_UUID}}=="cc-dd"
        zd0 | | | S:zvol/tank/vm, S:tank/vm | SYMLINK=="zvol/tank/vm"
        rbd0 | | | S:rbd/pool/image, E:ID_PATH=x | SYMLINK=="rbd/pool/image"
        loop9 | loop/backing_file | /var/lib/a b*.img | | ATTR{{loop/backing_file}}=="/var/lib/a b?.img"
        loop8 | | | | KERNEL=="loop8""#
    );
    let table = Vec::from_iter(rows::<5>(&table));
    for (n, [name, file, text, known, _]) in table.iter().enumerate() {
        machine.disks(&format!("{name} 9:{n} 65536 0 33554432 4096"));
        if !file.is_empty() {
            machine.write(&format!("sys/block/{name}/{file}"), format!("{text}\n"));
        }
        if !known.is_empty() {
            let known = known.replace(", ", "\n") + "\n";
            machine.write(&format!("run/udev/data/b9:{n}"), known);
        }
    }
    let is_rule = |name: &str, rule: &str| {
        let condition = format!("ENV{{DEVTYPE}}==\"disk\", {rule}, ATTR{{queue/read_ahead_kb}}");
        machine.prints(&format!("--fix {name} --to 1M --dry-run"), &[&condition]);
    };
    for [name, .., rule] in table {
        is_rule(name, rule);
    }
    // MD_UUID is of a rule of number 63, which asks mdadm; so does this one, where it is there.
    machine.write("sbin/mdadm", "");
    is_rule("md2", mdadm);
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
    let mut watch = Command::new(BINARY);
    watch.args(["watch", "--root", machine.root()]);
    watch.args(["--every", "200ms", "--json"]);
    let mut watch = Program::start(&mut watch);
    let mut sums = [0; 3];
    for n in 0.. {
        let sample: serde_json::Value = serde_json::from_str(&watch.line()).expect("JSON");
        for disk in sample["disks"].as_array().expect("a list") {
            assert_eq!(disk["name"], "sda");
            assert_eq!(disk["doctor"]["advised"]["readahead_bytes"], 1 << 20);
            for (sum, key) in sums.iter_mut().zip(["reads", "read_bytes", "read_ms"]) {
                *sum += disk[key].as_u64().expect("a number");
            }
        }
        if n == 0 {
            stat("sda", 30);
        } else if sums[0] > 0 {
            break;
        }
    }
    drop(watch);
    assert_eq!(sums, [20, 20 * 256 * 512, 60]);
    let once = format!("watch sda --root {} --every 100ms --once", machine.root());
    let parts = ["sda: 0 B in 0 reads", "doctor: 4M is suspicious"];
    says(run(once).is_done(), &parts);
}

#[test]
fn what_is_not_there_is_one_line() {
    // The other is a container whose sysfs has no disks.
    let empty = tempfile::tempdir().expect("a folder");
    let container = Machine::new("6.18.0\n");
    for (command, root, part) in [
        ("doctor", text(empty.path()), "no sysfs"),
        ("watch", text(empty.path()), "no sysfs"),
        ("watch", container.root(), "no disk is visible here"),
    ] {
        let got = run(format!("{command} --root {root}"));
        assert_eq!(got.assert_code(3).lines().count(), 1, "{}", got.err);
        says(&got.err, &[part]);
    }
    let none = cloud().doctor("sdz");
    none.refuses("no such device with readahead: sdz");
}

#[test]
fn hostile_contents_are_passed_over() {
    let machine = Machine::new("\u{1b}[31m9999999999.1\n");
    machine.disks(&format!("sda 8:0 {0} 1 {0} {0}\nsd\"b 8 0 7 0 0", u64::MAX));
    machine.write("sys/block/sda/device/model", "a\"\n\u{1b}[2J\\");
    machine.write("sys/block/sdc/queue/read_ahead_kb", [0xff; 3]);
    machine.write("proc/self/mountinfo", "1 2 3 - \n");
    let rule = "ATTR{queue/read_ahead_kb}=\"\nKERNEL==\"[\", ATTR{queue/read_ahead_kb}=\"9";
    machine.write("etc/udev/rules.d/1.rules", rule);
    let printed = machine.prints(&format!("--metrics {}/out.prom", machine.root()), &[]);
    assert!(!printed.contains('\u{1b}'), "{printed}");
    let metrics = machine.text("out.prom");
    says(
        &metrics,
        &["foreread_doctor_suspicious{device=\"sd\\\"b\"} 1\n"],
    );
}

#[test]
fn a_fix_is_set_kept_and_taken_back() {
    let machine = cloud();
    let before = ("4096\n".to_string(), false);
    machine.write("run/udev/data/b8:0", "E:ID_SERIAL=3600 abc\nE:ID_PATH=x\n");
    machine.prints("--fix sda --dry-run", &["ENV{ID_SERIAL}==\"3600 abc\""]);
    assert_eq!(machine.state(), before);
    machine.prints("--fix sda", &[]);
    let rules = machine.text(RULES);
    says(&rules, &["# foreread-before sda 4096 1024\n"]);
    let end = "ATTR{queue/read_ahead_kb}=\"1024\"\n";
    assert!(rules.ends_with(end), "{rules}");
    assert_eq!(machine.text(SETTING), "1024");
    // As after a kill between the file and the value, and after one between the value and the end of the file.
    machine.write(SETTING, "4096\n");
    machine.prints("--undo", &["is 4096 already"]);
    assert_eq!(machine.state(), before);
    machine.prints("--fix sda", &[]);
    // The kernel has applied its rule again: the value before the first time counts.
    machine.write(SETTING, "4096\n");
    machine.prints("--fix sda", &[]);
    assert_eq!(machine.text(RULES), rules);
    // Another disk: the file has both.
    machine.prints("--fix nvme0n1", &["no serial number"]);
    assert_eq!(machine.text(RULES).matches("foreread-before").count(), 2);
    machine.prints("--undo sda", &[]);
    let has_rule = machine.text(RULES).contains("sda");
    assert_eq!((machine.state().0.as_str(), has_rule), ("4096", false));
    // What another command advises, of the disk that it names.
    machine.prints("--fix sda --to 512K", &["4096 -> 512"]);
    machine.prints("--undo sda", &[]);
    // All disks are set by asking for all.
    let wrong = "--fix --to 1M|--fix|--fix sda --all|--fix sda --to 5000|sda --to 1M";
    for wrong in wrong.split('|') {
        machine.doctor(wrong).is_refused();
    }
    // A value that something else has set stays.
    machine.write("sys/block/nvme0n1/queue/read_ahead_kb", "77\n");
    machine.prints("--undo", &["77 was set by another program"]);
    assert!(!machine.path(RULES).exists());
    machine.doctor("--undo").refuses("nothing to undo");
}

#[test]
fn what_may_not_be_set_is_refused_and_nothing_is_done() {
    let machine = cloud();
    let theirs = "usr/lib/udev/rules.d/60-x.rules";
    let rule = "KERNEL==\"sd*\", ATTR{queue/read_ahead_kb}=\"4096\"\n";
    machine.write(theirs, rule);
    machine
        .doctor("--fix sda")
        .refuses("another file sets its readahead: sda, /usr/lib/udev/rules.d/60-x.rules:1");
    machine.prints("--why sda", &["set by /usr/lib/udev/rules.d/60-x.rules:1"]);
    machine.write(
        theirs,
        "ATTRS{model}==\"x*\", ATTR{queue/read_ahead_kb}=\"512\"\n",
    );
    machine
        .doctor("--fix sda")
        .refuses("another file may set its readahead: sda, /usr/lib/udev/rules.d/60-x.rules:1");
    machine.write(SETTING, "256\n");
    machine.prints("--why sda", &["set manually or by an unknown program"]);
    machine.write(SETTING, "512\n");
    machine.prints("--why sda", &["60-x.rules:1 may set it"]);
    machine.write(SETTING, "4096\n");
    machine.prints("--fix sda --force", &[]);
    machine.prints("--undo", &[]);
    let why = "a udev rule cannot set the readahead of a mount";
    machine.cannot("--fix 0:45", why);
    machine.write("etc/NIXOS", "");
    machine.cannot("--fix sda --force", "services.udev.extraRules");
    fs::remove_file(machine.path("etc/NIXOS")).expect("removed");
    // A folder of rules that cannot be.
    fs::remove_dir_all(machine.path("etc/udev")).expect("removed");
    machine.write("etc/udev", "");
    machine.cannot("--fix sda --force", "cannot write the rules");
    assert_eq!(machine.text(SETTING), "4096");
}

/// A lock on what all may read, a umask of 0, and lines of an administrator in the file.
#[test]
fn other_users_and_their_lines_do_not_matter() {
    let machine = cloud();
    let own = "KERNEL==\"sdz\", ATTR{queue/scheduler}=\"none\"\n";
    machine.write(RULES, own);
    let _locks = [SETTING, "etc/udev/rules.d"].map(|path| {
        let file = fs::File::open(machine.path(path)).expect("it is there");
        file.lock().expect("nothing else has it");
        file
    });
    let root = machine.root();
    let line = format!("umask 0; exec {BINARY} doctor --root {root} --fix sda");
    let done = Command::new("sh").args(["-c", &line]).output();
    Got::from(&done.expect("a shell")).is_done();
    let lock = "run/foreread-doctor.lock";
    let meta = |path: &str| fs::metadata(machine.path(path)).expect("there");
    let modes = [RULES, lock].map(|path| meta(path).permissions().mode() & 0o7777);
    assert_eq!(modes, [0o644, 0o600]);
    says(&machine.text(RULES), &[own, "foreread-before"]);
    machine.prints("--undo", &[]);
    assert_eq!(machine.text(RULES), own);
    // The lock is for a second doctor.
    let file = fs::File::open(machine.path(lock)).expect("it is there");
    file.lock().expect("nothing else has it");
    let second = machine.doctor("--fix sda");
    second.refuses("another 'foreread doctor' is running");
    fs::remove_file(machine.path(lock)).expect("it is there");
    symlink("/etc/passwd", machine.path(lock)).expect("room");
    let refused = machine.doctor("--fix sda");
    assert_ne!(refused.code, Some(0));
    says(&refused.err, &["cannot make the lock"]);
}

/// A loop device over a file of 16 MiB.
fn loop_disk() -> Option<(LoopDisk, tempfile::TempDir)> {
    let dir = folder();
    let image = dir.path().join("image");
    sparse(&image, 16 << 20);
    Some((LoopDisk::over(&image, &[])?, dir))
}

/// The kernel applies its rule at a change of the limits: what it takes then is what the table gives.
#[test]
fn the_table_of_rules_agrees_with_this_kernel() {
    needs!(let (disk, _dir) = loop_disk());
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("a release");
    let numbers = release.split('.');
    let mut numbers = numbers.map_while(|part| part.parse::<u32>().ok());
    if (numbers.next(), numbers.next()) < (Some(6), Some(9)) {
        println!("skipped: needs a kernel that applies its rule at a change, 6.9 or later");
        return;
    }
    for rotates in [0, 1] {
        for request in [64, 128, 512, 1280] {
            needs!(disk.set("rotational", rotates));
            needs!(disk.set("read_ahead_kb", 4) && disk.set("max_sectors_kb", request));
            let got = run(format!("doctor {} --json - --no-measure", disk.name()));
            got.is_done();
            let rule = found(&got.json(), disk.name()).1;
            assert_eq!(rule, Some(disk.kib()), "{rotates} {request}: {}", got.out);
        }
    }
}

/// The real udev applies the rule of a loop device at the event that attaches its file.
#[test]
fn udev_applies_the_rule() {
    needs!(let (disk, dir) = loop_disk());
    needs!(crate::common::has(&["udevadm", "--version"]));
    let got = run(format!("doctor --fix {} --to 1M --dry-run", disk.name()));
    let rule = got.is_done().lines().find(|line| line.contains("ACTION=="));
    let rules = dir.path().join("61-foreread-readahead.rules");
    fs::write(&rules, format!("{}\n", rule.expect("a rule").trim())).expect("room");
    let script = "mount -t tmpfs x /run && mkdir -p /run/udev/rules.d && cp \"$1\" /run/udev/rules.d && \
        exec udevadm test --action=change \"$2\" 2>&1";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh"]).arg(&rules);
    let said = command.arg(Path::new("/sys/block").join(disk.name()));
    let said = Got::from(&said.output().expect("it starts")).out;
    if !said.contains("Reading rules file") {
        println!("skipped: needs a mount namespace");
        return;
    }
    says(&said, &["read_ahead_kb' writing '1024'"]);
}
