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

/// A file, its text, what it sets.
type Row = (&'static str, &'static str, SetValue);

fn check(rows: &[Row], name: &str) {
    let wrong: Vec<String> = rows
        .iter()
        .filter_map(|(path, text, wanted)| {
            let (_root, host) = machine(path, text);
            let found = value(&host, name);
            (found != *wanted).then(|| format!("{path}: {text}\n{found:?} instead of {wanted:?}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

const OURS: SetValue = Some(Some(4096));
/// It is set, to a value that is not known.
const TO_SOMETHING: SetValue = Some(None);

const RULES_OF_UDEV: &[Row] = &[
    (
        RULE,
        r#"ACTION=="add|change", KERNEL=="sda", RUN+="/sbin/blockdev --setra 8192 /dev/%k""#,
        OURS,
    ),
    (
        RULE,
        r#"KERNEL=="sd*", ACTION=="add", RUN+="/bin/sh -c 'echo 4096 > /sys/block/%k/queue/read_ahead_kb'""#,
        OURS,
    ),
    (
        RULE,
        r#"KERNEL=="sda", RUN{program}+="/bin/sh -c 'echo 4096 > /sys$devpath/queue/read_ahead_kb'""#,
        OURS,
    ),
    (
        RULE,
        r#"KERNEL=="sda", RUN+="/usr/bin/env bash -c 'echo 4096 | tee /sys/block/$name/queue/read_ahead_kb'""#,
        OURS,
    ),
    (
        RULE,
        r#"KERNEL=="sda1", RUN+="/sbin/blockdev --setra 8192 $devnode""#,
        OURS,
    ),
    (
        RULE,
        "KERNEL==\"sda\", RUN+=\"/opt/ra.sh %k 4096\"\n---- opt/ra.sh\n#!/bin/sh\necho $2 > /sys/block/$1/queue/read_ahead_kb\n",
        OURS,
    ),
    (
        RULE,
        r#"KERNEL=="sda", RUN+="/sbin/hdparm -a 8192 /dev/disk/by-id/ata-Samsung_1""#,
        OURS,
    ),
    (
        RULE,
        r#"KERNEL=="sd[a-z]", ATTR{bdi/read_ahead_kb}="4096""#,
        OURS,
    ),
    (
        RULE,
        r#"SUBSYSTEM=="block", ENV{DEVTYPE}=="disk", ATTR{queue/read_ahead_kb}="4096""#,
        OURS,
    ),
    (
        RULE,
        r#"SUBSYSTEM=="block", ATTR{removable}=="0", ATTRS{vendor}=="ATA", ATTRS{model}=="Samsung*", ATTR{queue/read_ahead_kb}="4096""#,
        OURS,
    ),
    (
        RULE,
        "# for all\nSUBSYSTEM==\"block\", \\\n# a comment between\n  KERNEL==\"nvme*|sd[a-c]\", \\\n  ATTR{queue/read_ahead_kb} = \"4096\"\n",
        OURS,
    ),
    (
        RULE,
        "KERNEL==\"sda\", ENV{RA}=\"4096\"\nENV{RA}==\"?*\", ATTR{queue/read_ahead_kb}=\"$env{RA}\"\n",
        OURS,
    ),
    (
        RULE,
        "KERNEL==\"sd*\", GOTO=\"set\"\nGOTO=\"end\"\nLABEL=\"set\"\nATTR{queue/read_ahead_kb}=\"4096\"\nLABEL=\"end\"\n",
        OURS,
    ),
    (
        RULE,
        r#"SUBSYSTEM=="bdi", KERNEL=="8:0", ATTR{read_ahead_kb}="4096""#,
        OURS,
    ),
    (
        RULE,
        r#"ENV{ID_MODEL}=="Samsung*", PROGRAM=="/bin/x", ATTR{queue/read_ahead_kb}="4096""#,
        OURS,
    ),
    (
        RULE,
        r#"SYMLINK=="disk/by-id/ata-*", ATTR{queue/read_ahead_kb}="4096""#,
        OURS,
    ),
    (
        RULE,
        r#"KERNEL=="sda", TEST=="queue/rotational", ATTR{queue/read_ahead_kb}:="4096""#,
        OURS,
    ),
    (
        RULE,
        "KERNEL==\"sda\", ATTR{queue/read_ahead_kb}=\"64\"\n---- run/udev/rules.d/61-b.rules\nKERNEL==\"sda\", ATTR{queue/read_ahead_kb}=\"32\"\n",
        Some(Some(32)),
    ),
    (
        RULE,
        r#"KERNEL=="sda", PROGRAM=="/bin/x", ATTR{queue/read_ahead_kb}="%c""#,
        TO_SOMETHING,
    ),
    // Of other disks, or of nothing.
    (
        RULE,
        "KERNEL!=\"nvme*\", GOTO=\"end\"\nATTR{queue/read_ahead_kb}=\"32\"\nLABEL=\"end\"\n",
        None,
    ),
    (
        RULE,
        r#"ACTION!="add|change", GOTO="end", ATTR{queue/read_ahead_kb}="32""#,
        None,
    ),
    (
        RULE,
        r#"ACTION=="remove", KERNEL=="sda", ATTR{queue/read_ahead_kb}="32""#,
        None,
    ),
    (
        RULE,
        r#"SUBSYSTEM=="block", ATTRS{model}=="Virtual disk*", ATTR{bdi/read_ahead_kb}="512""#,
        None,
    ),
    (
        RULE,
        r#"SUBSYSTEM=="block", ATTRS{idVendor}=="0bda", ATTR{queue/read_ahead_kb}="512""#,
        None,
    ),
    (
        RULE,
        r#"ENV{ID_BUS}=="usb", ATTR{queue/read_ahead_kb}="512""#,
        None,
    ),
    (
        RULE,
        r#"ENV{DM_UUID}=="mpath-?*", ATTR{queue/read_ahead_kb}="512""#,
        None,
    ),
    (
        RULE,
        r#"ATTR{queue/rotational}=="1", ATTR{queue/read_ahead_kb}="512""#,
        None,
    ),
    (
        RULE,
        r#"KERNEL=="sd[!a]", ATTR{queue/read_ahead_kb}="512""#,
        None,
    ),
    (
        RULE,
        r#"KERNEL=="sda1", ATTR{queue/read_ahead_kb}="512""#,
        None,
    ),
    (
        RULE,
        r#"KERNEL=="sdb", RUN+="/sbin/blockdev --setra 8192 /dev/%k""#,
        None,
    ),
    (
        RULE,
        r#"KERNEL=="sda", RUN+="/bin/echo 4096 > /sys/block/sda/queue/read_ahead_kb""#,
        None,
    ),
    (
        RULE,
        "KERNEL==\"sda\", RUN+=\"/sbin/blockdev --setra 8192 /dev/%k\"\nKERNEL==\"sda\", RUN=\"\"\n",
        None,
    ),
    (
        RULE,
        "SUBSYSTEM==\"bdi\",\nACTION==\"add\",\nATTR{read_ahead_kb}=\"15380\"\n",
        None,
    ),
    (
        RULE,
        r#"SUBSYSTEM=="bdi", ACTION=="add", ATTR{read_ahead_kb}="15380""#,
        None,
    ),
    (
        RULE,
        "#KERNEL==\"sda\", ATTR{queue/read_ahead_kb}=\"4096\"\n",
        None,
    ),
    (
        RULE,
        r#"KERNEL=="sda", ATTR{queue/read_ahead_kb}=="4096""#,
        None,
    ),
    (RULE, "KERNEL==\"sda, ATTR{queue/read_ahead_kb}=", None),
];

const RULES_BY_SYSFS: &[Row] = &[
    (
        RULE,
        r#"ENV{ID_MODEL}=="Samsung_SSD*", ATTR{queue/read_ahead_kb}="4096""#,
        OURS,
    ),
    (
        RULE,
        r#"SUBSYSTEMS=="scsi", ATTR{queue/read_ahead_kb}="4096""#,
        OURS,
    ),
    (
        RULE,
        r#"SUBSYSTEMS=="usb", ATTR{queue/read_ahead_kb}="4096""#,
        None,
    ),
    (
        RULE,
        r#"ENV{ID_SERIAL}=="other", ATTR{queue/read_ahead_kb}="4096""#,
        None,
    ),
    (
        LOCAL,
        "blockdev --setra 8192 /dev/disk/by-id/ata-Samsung_SSD_870_S5",
        OURS,
    ),
    (
        LOCAL,
        "blockdev --setra 8192 /dev/disk/by-id/ata-ST4000_S5",
        None,
    ),
];

const RULES_OF_A_VOLUME: &[Row] = &[
    (
        RULE,
        r#"ENV{DM_NAME}=="vg-data", ATTR{queue/read_ahead_kb}="4096""#,
        OURS,
    ),
    (
        RULE,
        r#"ATTR{dm/uuid}=="LVM-*", ATTR{queue/read_ahead_kb}="4096""#,
        OURS,
    ),
    (
        RULE,
        r#"ATTR{dm/uuid}=="mpath-*", ATTR{queue/read_ahead_kb}="4096""#,
        None,
    ),
];

const RULES_OF_A_MOUNT: &[Row] = &[
    (
        RULE,
        r#"SUBSYSTEM=="bdi", ACTION=="add", ATTR{read_ahead_kb}="15360""#,
        Some(Some(15_360)),
    ),
    (
        RULE,
        r#"SUBSYSTEM=="bdi", ACTION=="add", PROGRAM="/usr/libexec/nfsrahead %k", ATTR{read_ahead_kb}="%c""#,
        TO_SOMETHING,
    ),
    (
        RULE,
        r#"SUBSYSTEM=="block", ATTR{queue/read_ahead_kb}="64""#,
        None,
    ),
];

#[test]
fn rules_of_udev() {
    check(RULES_OF_UDEV, "sda");
    // A disk that udev has kept nothing of.
    check(RULES_BY_SYSFS, "sdb");
    check(RULES_OF_A_VOLUME, "dm-0");
    check(RULES_OF_A_MOUNT, "0:44");
}

const TMP: &str = "usr/lib/tmpfiles.d/ra.conf";
const SYSFS: &str = "etc/sysfs.d/ra.conf";
const HDPARM: &str = "etc/hdparm.conf";
const CRON: &str = "etc/cron.d/ra";

const TABLES: &[Row] = &[
    (
        TMP,
        "w /sys/block/sda/queue/read_ahead_kb - - - - 4096\n",
        OURS,
    ),
    (
        TMP,
        "w!+ /sys/block/sd*/queue/read_ahead_kb - - - - 4096\n",
        OURS,
    ),
    (
        TMP,
        "w /sys/class/bdi/8:0/read_ahead_kb - - - - \"4096\"\n",
        OURS,
    ),
    (
        TMP,
        "# w /sys/block/sda/queue/read_ahead_kb - - - - 4096\n",
        None,
    ),
    (
        TMP,
        "w /sys/block/sd[b-z]/queue/read_ahead_kb - - - - 4096\n",
        None,
    ),
    (
        TMP,
        "w /sys/block/sda/queue/nr_requests - - - - 64 # read_ahead_kb\n",
        None,
    ),
    (
        TMP,
        "w /sys/block/sda/queue/read_ahead_kb - - - - 4096\n---- etc/tmpfiles.d/ra.conf\n# no read_ahead_kb\n",
        None,
    ),
    (SYSFS, "block/sda/queue/read_ahead_kb = 4096\n", OURS),
    (SYSFS, "class/block/sda/queue/read_ahead_kb=4096\n", OURS),
    (
        "etc/sysfs.conf",
        "devices/virtual/bdi/8:0/read_ahead_kb = 4096\n",
        OURS,
    ),
    (SYSFS, "mode block/sda/queue/read_ahead_kb = 0644\n", None),
    (
        SYSFS,
        "block/sdb/queue/read_ahead_kb = 4096\n# block/sda/queue/read_ahead_kb = 1\n",
        None,
    ),
    (
        HDPARM,
        "read_ahead_sect = 8\n/dev/disk/by-id/ata-Samsung_1 {\n  read_ahead_sect = 8192\n}\n",
        OURS,
    ),
    (HDPARM, "/dev/sdb {\n  read_ahead_sect = 8192\n}\n", None),
    (
        CRON,
        "PATH=/sbin\n@reboot root blockdev --setra 8192 /dev/sda\n",
        OURS,
    ),
    (
        "var/spool/cron/root",
        "*/5 * * * * echo 4096 > /sys/block/sda/queue/read_ahead_kb\n",
        OURS,
    ),
    (
        CRON,
        "# @reboot root blockdev --setra 8192 /dev/sda\n",
        None,
    ),
];

#[test]
fn tables() {
    check(TABLES, "sda");
}

const PACKAGE: &str = "usr/lib/systemd/system/ra.service";

const UNITS: &[Row] = &[
    (
        PACKAGE,
        "[Service]\nExecStart=/sbin/blockdev --setra 8192 /dev/sda\n",
        OURS,
    ),
    (
        UNIT,
        "[Service]\nExecStart=-/bin/sh -c 'for d in /sys/block/sd?; do echo 4096 > $d/queue/read_ahead_kb; done'\n",
        OURS,
    ),
    (
        UNIT,
        "ExecStart=/bin/bash -c \"echo 4096 > /sys/block/sda/queue/read_ahead_kb\"\n",
        OURS,
    ),
    (
        UNIT,
        "ExecStart=/sbin/blockdev \\\n  --setra 8192 \\\n# a comment\n  /dev/sdb /dev/sda\n",
        OURS,
    ),
    (
        UNIT,
        "Environment=\"RA=8192\" DISK=sda\nExecStart=/sbin/blockdev --setra $RA /dev/${DISK}\n",
        OURS,
    ),
    (
        UNIT,
        "ExecStart=/opt/ra --fast\n---- opt/ra\n#!/bin/bash\nset_ra() { echo $2 > /sys/block/$1/queue/read_ahead_kb; }\nset_ra sda 4096\n",
        OURS,
    ),
    (
        UNIT,
        "ExecStart=/bin/true ; /sbin/blockdev --setra 8192 /dev/sda\n",
        OURS,
    ),
    (
        "etc/systemd/system/x.service.d/ra.conf",
        "[Service]\nExecStartPost=/sbin/blockdev --setra 8192 /dev/sda\n",
        OURS,
    ),
    (
        "etc/systemd/system/ra@.service",
        "ExecStart=/sbin/blockdev --setra 8192 /dev/%i\n---- etc/systemd/system/x.target.wants/ra@sda.service\n",
        OURS,
    ),
    (
        "etc/systemd/system/ra@.service",
        "ExecStart=/sbin/blockdev --setra 8192 /dev/%i\n---- etc/systemd/system/x.target.wants/ra@sdb.service\n",
        None,
    ),
    (
        PACKAGE,
        "ExecStart=/sbin/blockdev --setra 8192 /dev/sda\n---- etc/systemd/system/ra.service\n",
        None,
    ),
    (
        UNIT,
        "ExecStart=/sbin/blockdev --setra 8192 /dev/sda\nExecStart=\nExecStart=/bin/true\n",
        None,
    ),
    (
        UNIT,
        "ExecStart=/bin/echo 4096 > /sys/block/sda/queue/read_ahead_kb\n",
        None,
    ),
    (
        UNIT,
        "Description=not --setra 512 /dev/sda\nExecStart=/sbin/blockdev --setra 8192 /dev/sdb\n",
        None,
    ),
    (
        UNIT,
        "# ExecStart=/sbin/blockdev --setra 8192 /dev/sda\n",
        None,
    ),
];

#[test]
fn units() {
    check(UNITS, "sda");
    let volume = "ExecStart=/sbin/blockdev --setra 8192 /dev/vg/data\n";
    check(
        &[
            (UNIT, volume, OURS),
            (
                UNIT,
                "ExecStart=/sbin/blockdev --setra 8192 /dev/mapper/vg-data\n",
                OURS,
            ),
        ],
        "dm-0",
    );
}

const PROFILES: &[Row] = &[
    (
        TUNED,
        "[main]\nsummary=x\n[sysfs]\n/sys/block/sd*/queue/read_ahead_kb=4096\n",
        OURS,
    ),
    (
        TUNED,
        "[variables]\nra=4096\n[disk]\nreadahead=${ra}\n",
        OURS,
    ),
    (TUNED, "[disk]\nreadahead=>4096\n", OURS),
    (TUNED, "[disk]\nreadahead = 8192 s\n", OURS),
    (
        TUNED,
        "[d]\ntype=disk\ndevices=sd*,!sdb\nreadahead=4096\n[disk]\nreadahead=1\n",
        OURS,
    ),
    (
        TUNED,
        "[main]\ninclude=base\n---- usr/lib/tuned/base/tuned.conf\n[disk]\nreadahead=4096\n",
        OURS,
    ),
    (
        TUNED,
        "[main]\ninclude=base\n[disk]\nreadahead=4096\n---- usr/lib/tuned/base/tuned.conf\n[disk]\nreadahead=1\n",
        OURS,
    ),
    (
        TUNED,
        "[script]\nscript=${i:PROFILE_DIR}/s.sh\n---- etc/tuned/my/s.sh\n#!/bin/sh\nblockdev --setra 8192 /dev/sda\n",
        OURS,
    ),
    (TUNED, "[disk]\nreadahead=${f:x}\n", TO_SOMETHING),
    (
        TUNED,
        "[disk_nvme]\ntype=disk\ndevices=nvme*\nreadahead=8\n",
        None,
    ),
    (TUNED, "[disk]\ndevices=!sda\nreadahead=8\n", None),
    (TUNED, "[disk]\nenabled=false\nreadahead=8\n", None),
    (TUNED, "[disk]\n# readahead=8\n;readahead=9\n", None),
    (
        TUNED,
        "[sysfs]\n/sys/block/sdb/queue/read_ahead_kb=8\n",
        None,
    ),
    (
        TUNED,
        "[main]\n---- etc/tuned/other/tuned.conf\n[disk]\nreadahead=8\n",
        None,
    ),
];

#[test]
fn profiles_of_tuned() {
    check(PROFILES, "sda");
}

const SCRIPTS: &[Row] = &[
    (
        "etc/rc.d/rc.local",
        "#!/bin/sh\n/sbin/blockdev --setra 8192 /dev/sda\n",
        OURS,
    ),
    (LOCAL, "/sbin/blockdev --setra 8192 /dev/sd?\n", OURS),
    (
        LOCAL,
        "for d in sda sdb; do\n  echo 4096 > /sys/block/$d/queue/read_ahead_kb\ndone\n",
        OURS,
    ),
    (
        LOCAL,
        "RA=8192\nDISKS=\"sda sdb\"\nfor d in $DISKS; do blockdev --setra \"$RA\" /dev/${d}; done\n",
        OURS,
    ),
    (
        LOCAL,
        "DISKS=(sdb sda)\nfor d in \"${DISKS[@]}\"; do blockdev --setra 8192 /dev/$d; done\n",
        OURS,
    ),
    (
        LOCAL,
        "for d in /dev/sd[a-d]; do echo 4096 > /sys/block/$(basename $d)/queue/read_ahead_kb; done\n",
        OURS,
    ),
    (
        LOCAL,
        "for d in /dev/sd{a,b}; do echo 4096 > /sys/block/${d##*/}/queue/read_ahead_kb; done\n",
        OURS,
    ),
    (
        LOCAL,
        "for f in /sys/block/sd*/queue/read_ahead_kb; do echo 4096 > \"$f\"; done\n",
        OURS,
    ),
    (
        LOCAL,
        "find /sys/block/ -name read_ahead_kb | while read f; do echo 4096 > $f; done\n",
        OURS,
    ),
    (
        LOCAL,
        "ls /dev/sd? | xargs -n1 blockdev --setra 8192\n",
        OURS,
    ),
    (
        LOCAL,
        "for d in $(lsblk -dno NAME | grep ^sd); do blockdev --setra 8192 /dev/$d; done\n",
        OURS,
    ),
    (
        LOCAL,
        "cd /sys/block/sda/queue && echo 4096 > read_ahead_kb\n",
        OURS,
    ),
    (
        LOCAL,
        "echo 4096 | sudo tee /sys/block/sda/queue/read_ahead_kb >/dev/null\n",
        OURS,
    ),
    (
        LOCAL,
        "[ -b /dev/sda ] || exit 0\nif true; then\n  hdparm -a8192 /dev/sda 2>&1 | logger\nfi\nexit 0\n",
        OURS,
    ),
    (
        LOCAL,
        "blockdev --setra 8192 /dev/disk/by-uuid/aa-bb # the root\n",
        OURS,
    ),
    (LOCAL, "blockdev --setra \\\n 8192 \\\n /dev/sda\n", OURS),
    (
        LOCAL,
        "case $1 in\n  start) blockdev --setra 8192 /dev/sda ;;\nesac\n",
        OURS,
    ),
    (
        LOCAL,
        "if a; then RA=1; else RA=2; fi\nblockdev --setra $RA /dev/sda\n",
        TO_SOMETHING,
    ),
    (LOCAL, "# blockdev --setra 8192 /dev/sda\n", None),
    (LOCAL, "exit 0\nblockdev --setra 8192 /dev/sda\n", None),
    (
        LOCAL,
        "blockdev --setra 8192 /dev/sdb; blockdev --getra /dev/sda\n",
        None,
    ),
    (
        LOCAL,
        "cat <<EOF > /etc/motd\nblockdev --setra 8192 /dev/sda\nEOF\n",
        None,
    ),
    (LOCAL, "echo 'blockdev --setra 8192 /dev/sda'\n", None),
    (
        LOCAL,
        "for d in $(ls /sys/block | grep nvme); do echo 8 > /sys/block/$d/queue/read_ahead_kb; done\n",
        None,
    ),
    (LOCAL, "hdparm -A1 -B 254 /dev/sda # not readahead\n", None),
    (LOCAL, "cat /sys/block/sda/queue/read_ahead_kb\n", None),
    (
        LOCAL,
        "set_ra() { blockdev --setra $2 /dev/$1; }\nset_ra sdb 8192\n",
        None,
    ),
];

#[test]
fn scripts() {
    check(SCRIPTS, "sda");
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
