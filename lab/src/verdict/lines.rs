//! The command lines that foreread recommends to the user.

use super::{Means, Step};
use foreread_os::host::devices::{Device, mount_setting};
use foreread_report::number::exact_size as size;

/// Returns the step that sets the readahead of a device: a line to paste, and a note. For a disk, the line calls `foreread doctor`, which
/// sets the value now and at every boot. For a mount without a disk, the line writes to /sys.
pub fn to_set(device: Option<&Device>, bytes: u64) -> Step {
    let number = device.map(|device| device.number.to_string());
    let is_disk = device.is_none_or(|device| device.name.is_some());
    let name = device
        .and_then(|device| device.name.clone())
        .or(number.filter(|_| !is_disk));
    set_readahead(name.as_deref().unwrap_or("DEVICE"), is_disk, bytes)
}

/// Like [`to_set`], but the caller passes the name of the device.
pub fn set_readahead(name: &str, is_disk: bool, bytes: u64) -> Step {
    let (text, why) = match is_disk {
        false => (
            format!("echo {} > {}", bytes / 1024, mount_setting(name)),
            "Run as root. Lasts until the file system is unmounted; files already open keep the old value.",
        ),
        true => (
            format!("foreread doctor --fix {name} --to {}", size(bytes)),
            "Run as root. Sets the value now and at every boot, by a udev rule; --undo restores the old one. Files already open keep the old value until they are reopened.",
        ),
    };
    Step::new(Means::Setting, why, text)
}

/// For a FUSE file system that drops its cached pages, returns the command that mounts the same bucket or server with foreread. `kind` is
/// the file system type in /proc/self/mountinfo.
pub fn mount_behind(kind: &str, flag: &str) -> String {
    let is_of = |word: &str| kind.contains(word);
    let source = match kind {
        _ if is_of("nbdfuse") => "nbd://HOST/EXPORT",
        _ if is_of("gcsfuse") => "gs://BUCKET",
        _ if is_of("blobfuse") => "az://CONTAINER",
        _ => "s3://BUCKET",
    };
    match cfg!(feature = "fuse") {
        true => format!("foreread mount {source} DIR{flag}"),
        false => format!("foreread serve {source} --unix foreread.sock{flag}"),
    }
}

/// Quotes arguments for a shell.
pub fn in_shell(words: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@,%".contains(c);
    let quoted = words.into_iter().map(|word| {
        let word = word.as_ref();
        if !word.is_empty() && word.chars().all(plain) {
            word.to_string()
        } else if word.chars().any(char::is_control) {
            // A line must stay one line on the screen, and pasting it must run the same command.
            let escaped = word.chars().map(|c| match c {
                '\'' | '\\' => format!("\\{c}"),
                c if c.is_control() => format!("\\u{:04x}", u32::from(c)),
                c => c.to_string(),
            });
            format!("$'{}'", escaped.collect::<String>())
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    });
    quoted.collect::<Vec<String>>().join(" ")
}

/// Returns the command lines that make a plan from a trace, and replay the plan while a command runs.
pub fn replay_lines(trace: &str, command: &str) -> String {
    let plan = format!("{}.plan", trace.strip_suffix(".frt").unwrap_or(trace));
    // The shell would take a name with a leading `-` for an option.
    let named = |name: &str| {
        let dir = if name.starts_with('-') { "./" } else { "" };
        in_shell([format!("{dir}{name}")])
    };
    let (trace, plan) = (named(trace), named(&plan));
    format!("foreread plan {trace} --out {plan}\nforeread replay {plan} -- {command}")
}

/// Like [`replay_lines`], but the first line records the trace.
pub fn record_lines(command: &str) -> String {
    let trace = "run.frt";
    format!(
        "foreread record -o {trace} -- {command}\n{}",
        replay_lines(trace, command)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreread_os::host::DeviceNumber;

    #[test]
    fn a_disk_is_set_by_doctor_and_a_mount_by_its_number() {
        let disk = Device {
            name: Some("sdb".to_string()),
            ..Device::default()
        };
        let text = |device| to_set(device, 2 << 20).text;
        assert_eq!(text(Some(&disk)), "foreread doctor --fix sdb --to 2M");
        assert_eq!(text(None), "foreread doctor --fix DEVICE --to 2M");
        let number = DeviceNumber {
            major: 0,
            minor: 44,
        };
        let mount = Device {
            number,
            ..Device::default()
        };
        let line = "echo 2048 > /sys/class/bdi/0:44/read_ahead_kb";
        assert_eq!(text(Some(&mount)), line);
    }

    #[test]
    fn words_are_quoted_where_a_shell_would_split_them() {
        for (words, wanted) in [
            (&["grep", "-r", "a b"][..], "grep -r 'a b'"),
            (&["it's", ""][..], "'it'\\''s' ''"),
            (&["x=1;rm"][..], "'x=1;rm'"),
            (
                &["import os\nos.x('\u{1b}')"][..],
                "$'import os\\u000aos.x(\\'\\u001b\\')'",
            ),
            (&["/a/b.img"][..], "/a/b.img"),
        ] {
            assert_eq!(in_shell(words), wanted);
        }
        assert_eq!(
            record_lines("./app"),
            "foreread record -o run.frt -- ./app\nforeread plan run.frt --out run.plan\nforeread replay run.plan -- ./app"
        );
        assert_eq!(
            replay_lines("a b.frt", "./app"),
            "foreread plan 'a b.frt' --out 'a b.plan'\nforeread replay 'a b.plan' -- ./app"
        );
    }
}
