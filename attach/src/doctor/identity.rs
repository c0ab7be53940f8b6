//! Finds a permanent identity of a disk for a udev rule; udev must know this identity when it processes the rule files whose names begin
//! with 61.
//!
//! ```text
//!   disk          ENV{ID_SERIAL}, ID_WWN, ID_PATH         60-persistent-storage.rules, at `add`
//!   mapped        ENV{DM_UUID}                            10-dm.rules, at the `change` that ends each activation
//!   MD array      ATTR{md/uuid}, on newer kernels         at the `change` that ends its assembly; MD_UUID is set by 63-md-raid-arrays.rules: too late
//!                 RESULT of mdadm --detail --export       by the same program
//!   bcache        ATTR{bcache/backing_dev_uuid}           else ENV{CACHED_UUID}, which the kernel's `change` event has
//!   loop          ATTR{loop/backing_file}                 at the `change` that attaches the file
//!   zvol, RBD     SYMLINK                                 60-zvol.rules, 50-rbd.rules, at `add`
//! ```
//! Sources: udev(7), and the udev rules of systemd, lvm2, mdadm, bcache-tools, OpenZFS and Ceph.

use foreread_os::host::Host;
use foreread_os::host::backing::BackingDevice;
use foreread_os::host::settings::UdevRecord;

/// Properties that rules before 61 set, in order of preference.
const PROPERTIES: [&str; 5] = ["ID_SERIAL", "ID_WWN", "DM_UUID", "CACHED_UUID", "ID_PATH"];
/// Attributes that the kernel has in every event.
const ATTRIBUTES: [&str; 3] = ["loop/backing_file", "md/uuid", "bcache/backing_dev_uuid"];
/// Links that rules before 61 create.
const LINKS: [&str; 2] = ["zvol/", "rbd/"];

/// Returns the condition of a udev rule that matches only this disk, or `None` if the disk has no permanent identity except its name.
#[must_use]
pub fn condition(host: &Host, device: &BackingDevice) -> Option<String> {
    let own = host.sys_device(&format!("block/{}", device.name));
    let record = device.number.and_then(|number| host.udev_record(number));
    let UdevRecord { properties, links } = record.unwrap_or_default();
    let attribute = ATTRIBUTES.iter().find_map(|key| {
        let value = own.as_ref()?.attribute(key)?;
        (!value.is_empty()).then(|| format!("ATTR{{{key}}}==\"{}\"", pattern(&value)))
    });
    let of_md = || {
        let uuid = properties.get("MD_UUID")?;
        let mdadm = ["/sbin/mdadm", "/usr/sbin/mdadm", "/usr/bin/mdadm"]
            .into_iter()
            .find(|path| host.path(path).exists())?;
        Some(format!(
            "KERNEL==\"md*\", PROGRAM==\"{mdadm} --detail --no-devices --export $devnode\", RESULT==\"*MD_UUID={}*\"",
            pattern(uuid)
        ))
    };
    let link = || {
        let is_its = |link: &&String| LINKS.iter().any(|begin| link.starts_with(begin));
        let link = links.iter().find(is_its)?;
        Some(format!("SYMLINK==\"{}\"", pattern(link)))
    };
    let property = || {
        let key = PROPERTIES
            .iter()
            .find(|key| properties.contains_key(**key))?;
        Some(format!("ENV{{{key}}}==\"{}\"", pattern(&properties[*key])))
    };
    attribute.or_else(of_md).or_else(link).or_else(property)
}

/// Converts a text to a udev pattern that matches it: each special character becomes `?`.
#[must_use]
pub fn pattern(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.:/+ ,@!=#".contains(letter);
    text.chars()
        .map(|letter| if is_plain(letter) { letter } else { '?' })
        .collect()
}
