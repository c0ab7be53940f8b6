//! Finds the line of a configuration file that sets the readahead of a device. Lines are searched for words, not evaluated.
//!
//! ```text
//!   KERNEL=="sd[a-c]", ATTR{queue/read_ahead_kb}="4096"    sda: set by FILE:LINE, 4096 KiB      sdd, vda: another disk's
//!   blockdev --setra 8192 /dev/$d                          every disk: FILE:LINE may set it, to 4096 KiB
//! ```
//! A line is certain to set the readahead of a device if it has the name of the device and a value. A line that names only other disks is
//! left out. Conditions, variables, and other lines of the same file are ignored: such a line may set the readahead of every disk.
//!
//! If there are several lines, the result is the line whose value the device has now, otherwise the last line that is certain, or the last.

use super::fix::{RULES_FILE, condition};
use super::look::DeviceFacts;
use foreread_os::host::Host;
use foreread_os::host::settings::SettingFile;
use std::fmt;
use std::path::{Path, PathBuf};

/// Words that set readahead, and how many of their units are one KiB: blockdev and hdparm count sectors of 512 bytes.
const MARKS: [(&str, u64); 5] = [
    ("read_ahead_kb", 1),
    ("read_ahead_sect", 2),
    ("--setra", 2),
    ("--setfra", 2),
    // Of `hdparm`.
    (" -a", 2),
];
/// What names of devices follow.
const PREFIXES: [&str; 4] = ["/dev/", "block/", "bdi/", "KERNEL==\""];
/// Names after `/dev/` that are not disks.
const NO_DISKS: [&str; 4] = ["null", "std", "tty", "console"];
/// A pattern with more `*` is not compared, because the comparison may take long.
const MAX_STARS: usize = 3;

/// A line that sets the readahead of a device, or may set it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    pub path: PathBuf,
    pub line: usize,
    pub kib: Option<u64>,
    /// Whether the line has the device's name and the value.
    pub is_certain: bool,
}

impl Pin {
    pub fn gives(&self, bytes: u64) -> bool {
        self.kib.and_then(|kib| kib.checked_mul(1024)) == Some(bytes)
    }

    pub fn is_foreign(&self) -> bool {
        self.path != Path::new(RULES_FILE)
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.path.display(), self.line)
    }
}

pub struct Settings {
    lines: Vec<SettingLine>,
    /// Links to device nodes, and the nodes.
    links: Vec<(String, String)>,
}

struct SettingLine {
    path: PathBuf,
    number: usize,
    text: String,
    kib: Option<u64>,
}

impl Settings {
    pub fn read(host: &Host) -> Settings {
        let files = host.readahead_settings();
        let lines: Vec<SettingLine> = files.iter().flat_map(setting_lines).collect();
        let links = match lines.is_empty() {
            true => Vec::new(),
            false => host.node_links(),
        };
        Settings { lines, links }
    }

    /// Returns the line that sets the readahead of a device, or `None` if no line sets it.
    pub fn pin(&self, host: &Host, facts: &DeviceFacts) -> Option<Pin> {
        if self.lines.is_empty() {
            return None;
        }
        let names = self.names(host, facts);
        let pins = self.lines.iter().filter_map(|line| {
            let is_named = names.are_in(line)?;
            Some(Pin {
                path: line.path.clone(),
                line: line.number,
                kib: line.kib,
                is_certain: is_named && line.kib.is_some(),
            })
        });
        let pins: Vec<Pin> = pins.collect();
        let has_it = |pin: &&Pin| facts.device.read_ahead.is_some_and(|now| pin.gives(now));
        let is_certain = |pin: &&Pin| pin.is_certain;
        let last = |is: &dyn Fn(&&Pin) -> bool| pins.iter().rev().find(is).cloned();
        last(&has_it)
            .or_else(|| last(&is_certain))
            .or_else(|| last(&|_| true))
    }

    fn names(&self, host: &Host, facts: &DeviceFacts) -> DeviceNames {
        let device = &facts.device;
        let numbers = device.number.iter().chain(&device.partitions);
        let records = numbers.filter_map(|number| host.udev_record(*number));
        let mut links: Vec<String> = records.flat_map(|record| record.links).collect();
        let mut nodes = vec![device.name.clone()];
        if device.is_disk {
            nodes.extend(host.partitions(&device.name));
        }
        let is_its = |(_, node): &&(String, String)| nodes.contains(node);
        links.extend(
            self.links
                .iter()
                .filter(is_its)
                .map(|(link, _)| link.clone()),
        );
        if let Some(name) = &device.mapped_name {
            links.extend([format!("mapper/{name}"), volume(name)]);
        }
        nodes.extend(device.number.map(|number| number.to_string()));
        DeviceNames {
            nodes,
            links,
            condition: condition(host, device),
            is_disk: device.is_disk,
        }
    }
}

/// `vg/data` of `vg-data`. LVM doubles a hyphen in a name.
fn volume(mapped: &str) -> String {
    let plain = mapped.replace("--", "\u{0}").replacen('-', "/", 1);
    plain.replace('\u{0}', "-")
}

/// The lines of a file that set readahead. A line that ends with a backslash continues on the next line.
fn setting_lines(file: &SettingFile) -> Vec<SettingLine> {
    let mut found = Vec::new();
    let mut lines = file.text.lines().zip(1..).filter(|(line, _)| {
        let is_comment = line.trim_start().starts_with(['#', ';']);
        !is_comment
    });
    while let Some((line, number)) = lines.next() {
        let mut text = line.to_string();
        while text.ends_with('\\') {
            text.pop();
            text.push_str(lines.next().unwrap_or_default().0);
        }
        let text = text.split(" #").next().unwrap_or_default().to_string();
        found.extend(value(&text).map(|kib| SettingLine {
            path: file.path.clone(),
            number,
            kib,
            text,
        }));
    }
    found
}

/// `None` if the line does not set readahead; otherwise the value in KiB, if the line has it.
fn value(line: &str) -> Option<Option<u64>> {
    // The key of the disk plug-in of tuned: `readahead=>4096`, `readahead = 8192 s`.
    if let Some(text) = line
        .trim_start()
        .strip_prefix("readahead")
        .map(str::trim_start)
        && text.starts_with('=')
    {
        let per_kib = if text.ends_with(" s") { 2 } else { 1 };
        return Some(number(text).map(|number| number / per_kib));
    }
    let (mark, per_kib, after) = MARKS.into_iter().find_map(|(mark, per_kib)| {
        let (_, after) = line.rsplit_once(mark)?;
        Some((mark, per_kib, after))
    })?;
    let kib = number(after).map(|number| number / per_kib);
    let is_set = match mark {
        " -a" => line.contains("hdparm") && (kib.is_some() || after.starts_with([' ', '$'])),
        _ => !["}==", "}!="].iter().any(|sign| after.starts_with(sign)),
    };
    let echoed = || {
        let mut words = ["echo ", "printf "].iter();
        words.find_map(|word| number(line.split_once(word)?.1))
    };
    is_set.then(|| kib.or_else(echoed))
}

/// The number at the start of a text, after signs.
fn number(text: &str) -> Option<u64> {
    let text = text.trim_start_matches(|letter: char| "}\"'=:>- \t".contains(letter));
    let end = text.find(|letter: char| !letter.is_ascii_digit());
    let (digits, rest) = text.split_at(end.unwrap_or(text.len()));
    let is_whole =
        !rest.starts_with(|letter: char| letter.is_alphanumeric() || "_$/".contains(letter));
    digits.parse().ok().filter(|_| is_whole)
}

/// The names of a device in configuration files.
struct DeviceNames {
    /// `sda`, `sda1`, `8:0`; for a mount, its number.
    nodes: Vec<String>,
    /// `disk/by-id/ata-X`
    links: Vec<String>,
    /// The condition of foreread's own rule.
    condition: Option<String>,
    is_disk: bool,
}

impl DeviceNames {
    /// Whether the line has one of these names; `None` if it sets only other devices.
    fn are_in(&self, line: &SettingLine) -> Option<bool> {
        let text = &line.text;
        if self
            .condition
            .as_ref()
            .is_some_and(|own| text.contains(own))
        {
            return Some(true);
        }
        let (mut is_named, mut names_others, mut is_open) = (false, false, false);
        for name in PREFIXES.iter().flat_map(|prefix| names_after(text, prefix)) {
            match self.is_ours(name) {
                Some(true) => is_named = true,
                Some(false) => names_others = true,
                None => is_open = true,
            }
        }
        // A rule for the kernel's name of another device, whatever else it has.
        is_open &= !text.contains("KERNEL==\"");
        let is_of_mounts = text.contains("\"bdi\"") || text.contains("/bdi/");
        let is_ours = line.path != Path::new(RULES_FILE)
            && is_of_mounts != self.is_disk
            && (is_open || !names_others);
        (is_named || is_ours).then_some(is_named)
    }

    /// Whether a pattern matches one of these names; `None` if that is not known.
    fn is_ours(&self, pattern: &str) -> Option<bool> {
        let is_open = pattern.contains(['$', '%', '`', '{', '('])
            || pattern.matches('*').count() > MAX_STARS
            || pattern.contains('/') && self.links.is_empty();
        let mut names = self.nodes.iter().chain(&self.links);
        (!is_open).then(|| names.any(|name| is_match(pattern.as_bytes(), name.as_bytes())))
    }
}

/// The names of devices, or patterns, that follow a prefix.
fn names_after<'a>(text: &'a str, prefix: &str) -> impl Iterator<Item = &'a str> {
    let (is_node, is_rule) = (prefix == "/dev/", prefix.ends_with('"'));
    let is_end = move |letter: char| {
        letter.is_whitespace() || "\"';)>".contains(letter) || letter == '/' && !is_node
    };
    let words = text.match_indices(prefix).flat_map(move |(at, _)| {
        let word = text[at + prefix.len()..].split(is_end).next();
        word.unwrap_or_default()
            .split('|')
            .take(if is_rule { usize::MAX } else { 1 })
    });
    let words = words.collect::<Vec<&str>>().into_iter();
    words.filter(|name| {
        let is_disk = !NO_DISKS.iter().any(|other| name.starts_with(other));
        is_disk && !name.is_empty() && !name.starts_with("read_ahead_kb")
    })
}

/// Whether a shell pattern (`*`, `?`, `[a-z]`, `[!a]`) matches a text.
fn is_match(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([b'*', rest @ ..], _) => (0..=text.len()).any(|at| is_match(rest, &text[at..])),
        ([b'?', pattern @ ..], [_, text @ ..]) => is_match(pattern, text),
        ([b'[', set @ ..], [letter, text @ ..]) => {
            let end = set.iter().position(|sign| *sign == b']');
            let (set, rest) = set.split_at(end.unwrap_or(set.len()));
            let inner = set.strip_prefix(b"!").or(set.strip_prefix(b"^"));
            let plain = inner.unwrap_or(set);
            let in_range =
                |range: &[u8]| range[1] == b'-' && (range[0]..=range[2]).contains(letter);
            let is_in = plain.contains(letter) || plain.windows(3).any(in_range);
            is_in != inner.is_some() && is_match(rest.strip_prefix(b"]").unwrap_or(rest), text)
        }
        ([sign, pattern @ ..], [letter, text @ ..]) => sign == letter && is_match(pattern, text),
        ([], text) => text.is_empty(),
        (_, []) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::look;
    use super::*;

    /// sda (8:0, with the partition sda1 and links), sdb, the volume vg-data (dm-0) and a mount 0:44; a row is a device, what is found (KiB
    /// or `?`, with `may` if it is not certain, `-` for nothing), and a line.
    const LINES: &str = r#"
        sda 4096 | ACTION=="add|change", KERNEL=="sda", RUN+="/sbin/blockdev --setra 8192 /dev/%k"
        sda 4096 | KERNEL=="sd*", ACTION=="add", RUN+="/bin/sh -c 'echo 4096 > /sys/block/%k/queue/read_ahead_kb'"
        sda 4096 | KERNEL=="sda1", RUN+="/sbin/blockdev --setra 8192 $devnode"
        sda 4096 | ACTION=="add", RUN+="/sbin/hdparm -a 8192 /dev/disk/by-id/ata-Samsung_1"
        sda 4096 | KERNEL=="nvme*|sd[a-c]", ATTR{bdi/read_ahead_kb} = "4096"
        sda 4096 | KERNEL=="sda", TEST=="queue/rotational", ATTR{queue/read_ahead_kb}:="4096"
        sda 4096 | SUBSYSTEM=="bdi", KERNEL=="8:0", ATTR{read_ahead_kb}="4096"
        sda 4096 | ENV{ID_SERIAL}=="S1", ATTR{queue/read_ahead_kb}="4096"
        sda ? may | KERNEL=="sda", PROGRAM=="/bin/x", ATTR{queue/read_ahead_kb}="%c"
        sda 4096 may | SUBSYSTEM=="block", ENV{DEVTYPE}=="disk", ATTR{queue/read_ahead_kb}="4096"
        sda 512 may | ATTR{queue/rotational}=="1", ATTRS{model}=="Virtual*", ATTR{bdi/read_ahead_kb}="512"
        sda - | KERNEL=="sdb", RUN+="/sbin/blockdev --setra 8192 /dev/%k"
        sda - | KERNEL=="sd[!a]", ATTR{queue/read_ahead_kb}="512"
        sda - | KERNEL=="sd[b-z]|sda[5-7]|nvme?n1", ATTR{queue/read_ahead_kb}="512"
        sda - | SUBSYSTEM=="bdi", ACTION=="add", ATTR{read_ahead_kb}="15380"
        sda - | #KERNEL=="sda", ATTR{queue/read_ahead_kb}="4096"
        sda - | KERNEL=="sda", ATTR{queue/read_ahead_kb}=="4096"
        sda - | w /sys/block/sda/queue/nr_requests - - - - 64 # read_ahead_kb
        sda 4096 | w! /sys/block/sd*/queue/read_ahead_kb - - - - 4096
        sda 4096 | w /sys/class/bdi/8:0/read_ahead_kb - - - - "4096"
        sda - | w /sys/block/sd[b-z]/queue/read_ahead_kb - - - - 4096
        sda 4096 | class/block/sda/queue/read_ahead_kb = 4096
        sda - | block/sdb/queue/read_ahead_kb = 4096
        sda 4096 may | read_ahead_sect = 8192
        sda 4096 | @reboot root blockdev --setra 8192 /dev/sda
        sda 4096 | */5 * * * * echo 4096 > /sys/block/sda/queue/read_ahead_kb
        sda 4096 | ExecStart=/sbin/blockdev --setra 8192 /dev/sdb /dev/sda
        sda 4096 may | ExecStart=/sbin/blockdev --setra 8192 /dev/%i
        sda ? may | ExecStart=/sbin/blockdev --setra $RA /dev/${DISK}
        sda 4096 may | for d in sda sdb; do echo 4096 > /sys/block/$d/queue/read_ahead_kb; done
        sda 4096 | for d in /dev/sd[a-d]; do echo 4096 > /sys/block/$(basename $d)/queue/read_ahead_kb; done
        sda 4096 may | for d in /dev/sd{a,b}; do blockdev --setra "8192" $d >/dev/null; done
        sda ? may | for f in /sys/block/sd*/queue/read_ahead_kb; do echo $RA > "$f"; done
        sda 4096 | ls /dev/sd? | xargs -n1 blockdev --setra 8192
        sda 4096 | cd /sys/block/sda/queue && echo 4096 > read_ahead_kb
        sda 4096 | hdparm -a8192 /dev/sda 2>&1 | logger
        sda - | hdparm -A1 -B 254 /dev/sda # not readahead
        sda - | blockdev --getra /dev/sda
        sda - | blockdev --setra 8192 /dev/disk/by-id/ata-ST4000_S5
        sdb 4096 may | blockdev --setra 8192 /dev/disk/by-id/ata-ST4000_S5
        sda 4096 may | readahead=>4096
        sda 4096 may | readahead = 8192 s
        sda ? may | readahead=${f:x}
        sda - | ;readahead=9
        dm-0 4096 | blockdev --setra 8192 /dev/vg/data
        dm-0 4096 | blockdev --setra 8192 /dev/mapper/vg-data
        dm-0 - | blockdev --setra 8192 /dev/mapper/vg-root
        0:44 15360 may | SUBSYSTEM=="bdi", ACTION=="add", ATTR{read_ahead_kb}="15360"
        0:44 ? may | SUBSYSTEM=="bdi", ACTION=="add", PROGRAM="/usr/libexec/nfsrahead %k", ATTR{read_ahead_kb}="%c"
        0:44 - | SUBSYSTEM=="block", ATTR{queue/read_ahead_kb}="64""#;

    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new() -> Machine {
            let machine = Machine(tempfile::tempdir().expect("a folder for temporary files"));
            let table = "sys/block/sda/dev|8:0\nsys/block/sdb/dev|8:16\nsys/block/dm-0/dev|253:0\n\
                sys/block/sda/sda1/partition|1\nsys/block/sda/sda1/dev|8:1\nsys/block/dm-0/dm/name|vg-data\n\
                sys/class/bdi/0:44/read_ahead_kb|15360\nrun/udev/data/b8:0|E:ID_SERIAL=S1\n\
                proc/self/mountinfo|21 20 0:44 / /nfs rw - nfs4 host:/x rw\nrun/udev/data/b8:1|S:disk/by-id/ata-Samsung_1";
            let disks = ["sda", "sdb", "dm-0"]
                .map(|name| format!("sys/block/{name}/queue/read_ahead_kb|4096"));
            for row in table.lines().chain(disks.iter().map(String::as_str)) {
                let (path, text) = row.split_once('|').expect("a row");
                machine.write(path, &format!("{text}\n"));
            }
            machine
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, text).expect("written");
        }

        fn pin(&self, name: &str) -> Option<Pin> {
            let host = Host::below(self.0.path());
            let all = look::look(&host);
            let facts = all.iter().find(|facts| facts.device.name == name);
            Settings::read(&host).pin(&host, facts.expect("it is there"))
        }
    }

    #[test]
    fn a_line_sets_the_disks_that_it_names() {
        let machine = Machine::new();
        let mut wrong = Vec::new();
        for row in LINES.lines().skip(1) {
            let (what, line) = row.trim().split_once(" | ").expect("a line");
            let (name, wanted) = what.split_once(' ').expect("a value");
            machine.write("etc/rc.local", &format!("{line}\n"));
            let found = machine.pin(name).map_or("-".to_string(), |pin| {
                assert_eq!(pin.to_string(), "/etc/rc.local:1");
                let kib = pin.kib.map_or("?".to_string(), |kib| kib.to_string());
                format!("{kib}{}", if pin.is_certain { "" } else { " may" })
            });
            if found != wanted {
                wrong.push(format!("{found} instead of {row}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// The line whose value the device has, otherwise the last that is certain; foreread's own file has a rule for each disk.
    #[test]
    fn one_line_of_several_files_is_named() {
        let machine = Machine::new();
        let found = |name| machine.pin(name).map(|pin| pin.to_string());
        machine.write(
            "etc/udev/rules.d/60-a.rules",
            "# ours\nKERNEL==\"sda\", \\\n# all\n  ATTR{queue/read_ahead_kb}=\"64\"\nKERNEL==\"sda\", ATTR{queue/read_ahead_kb}=\"32\"\n",
        );
        machine.write("etc/rc.local", "echo 8 > $f/read_ahead_kb\n");
        assert_eq!(
            found("sda").as_deref(),
            Some("/etc/udev/rules.d/60-a.rules:5")
        );
        assert_eq!(found("sdb").as_deref(), Some("/etc/rc.local:1"));
        machine.write("sys/block/sda/queue/read_ahead_kb", "64\n");
        assert_eq!(
            found("sda").as_deref(),
            Some("/etc/udev/rules.d/60-a.rules:2")
        );
        machine.write("etc/rc.local", "\n");
        assert_eq!(found("sdb"), None);
        let own = "ENV{ID_SERIAL}==\"S1\", ATTR{queue/read_ahead_kb}=\"64\"\n";
        machine.write("etc/udev/rules.d/61-foreread-readahead.rules", own);
        let pin = machine.pin("sda").expect("a line");
        assert!(pin.is_certain && !pin.is_foreign(), "{pin:?}");
        assert_eq!(found("sdb"), None);
    }

    #[test]
    fn hostile_lines_end() {
        let machine = Machine::new();
        let stars = "*a".repeat(2000);
        let line = |text: &str| format!("read_ahead_kb /dev/{text}\n--setra /dev/{text}\\");
        for text in [&stars, "[", "[a-", "[!", "{", "\u{e9}?[\u{e9}-", "*[*"] {
            machine.write("etc/rc.local", &line(text));
            machine.pin("sda");
        }
    }
}
