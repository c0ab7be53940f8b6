//! A plan of whole files: those that are named, and all below folders that are named, by name within each.

use super::files::regular;
use super::pool::LeftOut;
use foreread_plan::{Plan, PlanFile, PlanRange};
use std::fs;
use std::path::{Path, PathBuf};

/// Files of one call at most.
pub const MAX_WHOLE_FILES: usize = 1 << 20;

/// The plan, and what is left out of it. Links to folders below a named one are not followed.
#[must_use]
pub fn whole_files(paths: &[PathBuf]) -> (Plan, Vec<LeftOut>) {
    let (mut plan, mut left_out) = (Plan::default(), Vec::new());
    for path in paths {
        // A link that is named itself is followed.
        match fs::metadata(path) {
            Ok(meta) if meta.is_dir() => folder(path, &mut plan, &mut left_out),
            _ => file(path, &mut plan, &mut left_out),
        }
    }
    (plan, left_out)
}

fn folder(at: &Path, plan: &mut Plan, left_out: &mut Vec<LeftOut>) {
    let mut folders = vec![at.to_path_buf()];
    while let Some(at) = folders.pop() {
        let entries = fs::read_dir(&at).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
        let mut entries = match entries {
            Ok(entries) => entries,
            Err(error) => {
                left_out.push(LeftOut { path: at, why: error.to_string() });
                continue;
            }
        };
        entries.sort_by_key(fs::DirEntry::file_name);
        let is_kind =
            |entry: &fs::DirEntry, is: fn(&fs::FileType) -> bool| entry.file_type().is_ok_and(|kind| is(&kind));
        for entry in entries.iter().filter(|entry| is_kind(entry, fs::FileType::is_file)) {
            file(&entry.path(), plan, left_out);
        }
        folders.extend(entries.iter().rev().filter(|e| is_kind(e, fs::FileType::is_dir)).map(fs::DirEntry::path));
    }
}

fn file(path: &Path, plan: &mut Plan, left_out: &mut Vec<LeftOut>) {
    let full = plan.files.len() >= MAX_WHOLE_FILES;
    let known =
        if full { Err(format!("there are more than {MAX_WHOLE_FILES} files")) } else { regular(fs::metadata(path)) };
    match known {
        Ok(meta) => {
            let number = plan.files.len() as u32;
            plan.files.push(PlanFile::of(path.to_path_buf(), &meta));
            if meta.len() > 0 {
                plan.ranges.push(PlanRange::of(number, &(0..meta.len())));
            }
        }
        Err(why) => left_out.push(LeftOut { path: path.to_path_buf(), why }),
    }
}
