//! What to set, as text to paste: for the kernel, librbd, FUSE, NFS and foreread itself.
//!
//! A disk has the kernel's value; a mount without a disk those of FUSE and NFS as well; a model may be of anything, and has all.
//!
//! Never: runs any of it, or advises what the measurement does not support: where the present setting gets all there is,
//! the kernel's part says so and has nothing to paste.

use super::Advice;
use super::advice::{Context, Excess};
use crate::advice::in_shell;
use crate::setting::{Setting, to_set};
use foreread::source::default_readahead_bytes;
use foreread_os::host::devices::mount_setting;
use foreread_report::number::exact_size as size;
use std::path::Path;

/// Most that librbd should read ahead in one go beyond its objects' usual 4 MiB.
const RBD_MAX_BYTES: u64 = 4 << 20;

/// The present setting of a source.
pub(super) fn present(path: &Path) -> Option<u64> {
    default_readahead_bytes(path)
}

/// Everything there is to paste. `wanted` is what readers in order need of the kernel; `excess` is what the present value is too
/// large by.
pub(super) fn for_paste(
    advice: &Advice,
    wanted: Option<u64>,
    excess: Option<&Excess>,
    context: &Context<'_>,
) -> Vec<Setting> {
    let Some(plateau) = advice.plateau_bytes else {
        return Vec::new();
    };
    let kib = (plateau / 1024).max(4);
    let is_mount = context.disk.is_some_and(|device| device.name.is_none());
    let mut all = vec![kernel(wanted.unwrap_or(plateau), plateau, excess, context)];
    if context.is_model {
        all.push(librbd(plateau));
    }
    if context.is_model || is_mount {
        all.push(fuse(kib, context));
        all.push(nfs(kib, context));
    }
    all.push(foreread(plateau, context));
    all
}

fn setting(place: &str, text: String, why: &str) -> Setting {
    Setting {
        place: place.to_string(),
        text,
        why: why.to_string(),
    }
}

fn kernel(wanted: u64, plateau: u64, excess: Option<&Excess>, context: &Context<'_>) -> Setting {
    let wanted = excess.map_or(wanted.max(4096), |excess| excess.best.readahead_bytes);
    if excess.is_none() && context.readahead_bytes.is_some_and(|now| now >= wanted) {
        let why = "Nothing to change: the present read_ahead_kb gives a sequential reader what there is to get.";
        return setting("the kernel", String::new(), why);
    }
    let setting = to_set(context.disk, wanted);
    if wanted >= plateau {
        return setting;
    }
    let why = format!(
        "{} Less than the {} that one read at a time needs: the kernel reads a window while the one before it is used, and a page fault of a \
         mapping reads a whole one.",
        setting.why,
        size(plateau)
    );
    Setting { why, ..setting }
}

fn librbd(plateau: u64) -> Setting {
    let bytes = plateau.min(RBD_MAX_BYTES);
    let text = format!(
        "[client]\nrbd_cache = true\nrbd_cache_policy = writeback\nrbd_readahead_max_bytes = {bytes}\n\
         rbd_readahead_trigger_requests = 10\nrbd_readahead_disable_after_bytes = 0"
    );
    let why = format!(
        "If it is a Ceph image read through librbd (not krbd): the plateau of this model is {}. librbd reads ahead with the \
         cache policy writeback or writethrough only; its default, writearound, never does. disable_after_bytes = 0 keeps \
         it on after the first 50 MiB, and trigger 10 is its default.",
        size(plateau)
    );
    setting("Ceph RBD through librbd: ceph.conf", text, &why)
}

/// The setting of a mount: of this source where it is one without a disk.
fn of_mount(context: &Context<'_>, mount: &str) -> String {
    match context.disk {
        Some(device) if device.name.is_none() => device.setting(),
        _ => mount_setting(&format!("$(mountpoint -d {mount})")),
    }
}

fn fuse(kib: u64, context: &Context<'_>) -> Setting {
    let setting_path = of_mount(context, "/MOUNT");
    setting(
        "FUSE",
        format!(
            "mount -o max_readahead={} ...\necho {kib} > {setting_path}",
            kib * 1024
        ),
        "If the source is, or will be, served by a FUSE file system: the server's max_readahead (libfuse option, bytes) is \
         the upper limit of the mount's read_ahead_kb; the kernel's default is 128 KiB for any storage.",
    )
}

fn nfs(kib: u64, context: &Context<'_>) -> Setting {
    let setting_path = of_mount(context, "/MOUNT");
    setting(
        "NFS",
        format!(
            "echo {kib} > {setting_path}\n# at every mount, /etc/nfs.conf:\n[nfsrahead]\ndefault={kib}"
        ),
        "If it is, or will be, mounted by NFS: its read_ahead_kb is 128 since Linux 5.4, whatever rsize is; \
         nfsrahead (nfs-utils) sets it by a udev rule. Probe through the mount: the network is part of it.",
    )
}

fn foreread(plateau: u64, context: &Context<'_>) -> Setting {
    let on = in_shell([context
        .source
        .strip_prefix("file:")
        .unwrap_or(context.source)]);
    setting(
        "foreread",
        format!(
            "foreread compare --policy auto,linux-6.18:max={} --on {on}",
            size(plateau)
        ),
        "Run this before you set anything: it shows what this window gains for several readers and for random reads, and what auto, \
         which needs no setting, does.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreread_os::host::DeviceNumber;
    use foreread_os::host::devices::Device;

    fn context(disk: Option<&Device>, now: Option<u64>) -> Context<'_> {
        Context {
            capacity_bytes: 1 << 30,
            readahead_bytes: now,
            noise: None,
            disk,
            is_model: false,
            source: "file:/srv/big",
            memory_bytes: 16 << 30,
        }
    }

    fn advice(plateau: u64) -> Advice {
        Advice {
            plateau_bytes: Some(plateau),
            ..Advice::default()
        }
    }

    fn of(plateau: u64, context: &Context<'_>) -> Vec<Setting> {
        for_paste(&advice(plateau), Some(plateau), None, context)
    }

    #[test]
    fn what_is_pasted_names_the_disk_and_the_size() {
        let disk = Device {
            name: Some("sdb".to_string()),
            number: DeviceNumber {
                major: 8,
                minor: 16,
            },
            ..Device::default()
        };
        let all = of(2 << 20, &context(Some(&disk), Some(128 << 10)));
        let text: Vec<&str> = all.iter().map(|s| s.text.as_str()).collect();
        let compare = "foreread compare --policy auto,linux-6.18:max=2M --on /srv/big";
        assert_eq!(text, ["foreread doctor --fix sdb --to 2M", compare]);
    }

    #[test]
    fn a_model_may_be_of_anything() {
        let model = Context {
            is_model: true,
            ..context(None, None)
        };
        let all = of(2 << 20, &model);
        let text: Vec<&str> = all.iter().map(|s| s.text.as_str()).collect();
        assert!(
            text[1].contains("rbd_cache_policy = writeback")
                && text[1].contains("max_bytes = 2097152")
        );
        assert!(
            text[2].contains("max_readahead=2097152")
                && text[3].contains("[nfsrahead]\ndefault=2048")
        );
        assert!(all[1].why.contains("writearound"));
    }

    #[test]
    fn nothing_to_gain_is_nothing_to_paste() {
        let all = of(128 << 10, &context(None, Some(128 << 10)));
        assert_eq!(
            (all[0].place.as_str(), all[0].text.as_str()),
            ("the kernel", "")
        );
        assert!(for_paste(&Advice::default(), None, None, &context(None, None)).is_empty());
    }

    #[test]
    fn a_mount_without_a_disk_is_set_by_its_bdi() {
        let mount = Device {
            number: DeviceNumber {
                major: 0,
                minor: 44,
            },
            ..Device::default()
        };
        let all = of(1 << 20, &context(Some(&mount), Some(128 << 10)));
        assert!(all.iter().all(|s| !s.text.contains("/sys/block")));
        assert!(
            all.iter()
                .filter(|s| s.text.contains("/sys/class/bdi/0:44/read_ahead_kb"))
                .count()
                == 3
        );
    }
}
