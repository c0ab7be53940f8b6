//! Mappings of files, from `/proc/PID/maps`: `7f00deadb000-7f00deadc000 r--p 00001000 07:00 12 /mnt/a b`.

use super::DeviceNumber;
use std::ops::Range;

pub struct FileMapping<'a> {
    pub addresses: Range<u64>,
    pub is_readable: bool,
    pub offset: u64,
    /// The kernel's number: stat(2) returns another one for btrfs.
    pub device: DeviceNumber,
    pub inode: u64,
    pub path: &'a str,
}

/// The mappings of files in this text. Other lines are skipped.
pub fn mapped_files(maps: &str) -> impl Iterator<Item = FileMapping<'_>> {
    maps.lines().filter_map(parse)
}

fn parse(line: &str) -> Option<FileMapping<'_>> {
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let is_readable = words.next()?.starts_with('r');
    let offset = hex(words.next()?)?;
    let (major, minor) = words.next()?.split_once(':')?;
    let device = DeviceNumber {
        major: hex(major)?.try_into().ok()?,
        minor: hex(minor)?.try_into().ok()?,
    };
    Some(FileMapping {
        addresses: hex(start)?..hex(end)?,
        is_readable,
        offset,
        device,
        inode: words.next()?.parse().ok().filter(|inode| *inode > 0)?,
        path: &line[line.find('/')?..],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_of_files_are_taken() {
        let maps = "00400000-0048a000 r-xp 00000000 fd:03 960637 /bin/bash\n\
                    7f00deadb000-7f00deadc000 ---p 00001000 07:00 12 /mnt/a b\nnonsense\n\
                    7f0060000000-7f0070000000 rw-p 00000000 00:00 0 [heap]\n7f00-7f01 r--p 0 zz:00 0\n";
        let found: Vec<FileMapping<'_>> = mapped_files(maps).collect();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].path, found[1].path), ("/bin/bash", "/mnt/a b"));
        assert_eq!(found[0].addresses, 0x40_0000..0x48_a000);
        assert_eq!((found[1].inode, found[1].offset), (12, 4096));
        assert_eq!(found[0].device.to_string(), "253:3");
        assert!(found[0].is_readable && !found[1].is_readable);
    }
}
