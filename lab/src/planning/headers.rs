//! The plan of files whose format says where their parts are: header first, then the parts that are asked for, in file order.

use foreread_plan::layout::{self, Format, LayoutError, Names};
use foreread_plan::{MAX_FILES, MAX_RANGES, Plan, PlanFile, PlanRange};
use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Why a header gives no plan: one line that says what, where and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{error}: {}; {}", path.display(), remedy(error))]
pub struct HeaderError {
    path: PathBuf,
    #[source]
    error: LayoutError,
}

fn remedy(error: &LayoutError) -> &'static str {
    match error {
        LayoutError::Io(_) => "check the path and its permissions",
        LayoutError::NoSuchName(_) => "check --tensors (or --columns); '*' is for any characters",
        LayoutError::NotBuilt(_) => "or record a run of the program and plan that",
        _ => "check --format and the file",
    }
}

/// The plan of these files; of zarr, of these folders.
///
/// # Errors
/// A header cannot be read, or has no such parts.
pub fn of_headers(format: Format, paths: &[PathBuf], names: &Names) -> Result<Plan, HeaderError> {
    let mut plan = Plan::default();
    for path in paths {
        let bad = |error: LayoutError| HeaderError { path: path.clone(), error };
        plan.made_from.push(path.display().to_string());
        if format == Format::Zarr {
            for file in layout::zarr(path, names).map_err(bad)? {
                add(&mut plan, &file.path, std::slice::from_ref(&(0..file.size))).map_err(bad)?;
            }
            continue;
        }
        let file = File::open(path).map_err(|error| bad(error.into()))?;
        if !file.metadata().is_ok_and(|meta| meta.is_file()) {
            return Err(bad(LayoutError::Damaged("it is no regular file".to_string())));
        }
        let parts = layout::parts(format, &file, names).map_err(bad)?;
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for part in parts {
            match ranges.last_mut() {
                Some(last) if last.end == part.range.start => last.end = part.range.end,
                _ => ranges.push(part.range),
            }
        }
        add(&mut plan, path, &ranges).map_err(bad)?;
    }
    Ok(plan)
}

fn add(plan: &mut Plan, path: &Path, ranges: &[Range<u64>]) -> Result<(), LayoutError> {
    let path = std::path::absolute(path)?;
    let meta = fs::metadata(&path)?;
    if plan.files.len() >= MAX_FILES || plan.ranges.len() + ranges.len() > MAX_RANGES {
        return Err(LayoutError::Damaged("more files or parts than a plan may have".to_string()));
    }
    let number = plan.files.len() as u32;
    plan.files.push(PlanFile::of(path, &meta));
    plan.ranges.extend(ranges.iter().filter(|range| !range.is_empty()).map(|range| PlanRange::of(number, range)));
    Ok(())
}
