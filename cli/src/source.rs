//! Parses `--on SOURCE`: a path, `file:PATH`, `model:NAME` or `model:FILE.toml`, or another source of the engine (`nbd://...`).

use crate::fail::Fail;
use foreread::source::SourceName;
use foreread_lab::compare::{self, CompareOn};

/// Parses the name of a source, and checks that the source exists.
pub fn parse(name: &SourceName) -> Result<CompareOn, Fail> {
    let path = name.path();
    if name.scheme().is_empty()
        && path.extension().is_some_and(|end| end == "frt")
        && path.is_file()
    {
        let remedy = format!(
            "name the trace first, and the storage after --on: foreread compare {name} --on model:NAME"
        );
        return Err(Fail::input(
            "a trace is not a storage device",
            format!("--on {name}"),
            remedy,
        ));
    }
    Ok(compare::parse(name)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreread_sim::device::presets;

    fn error(text: &str) -> String {
        crate::fail::input_line(parse(&text.into()))
    }

    #[test]
    fn every_notation() {
        let file = tempfile::NamedTempFile::new().expect("a scratch file");
        std::fs::write(file.path(), b"x").expect("written");
        let path = file.path().to_str().expect("UTF-8");
        let is_it = |on: Result<CompareOn, Fail>| on.is_ok_and(|on| on.path() == Some(file.path()));
        assert!(is_it(parse(&path.into())) && is_it(parse(&(&format!("file:{path}")).into())));
        let on = parse(&"model:rbd".into()).expect("a model");
        assert!(on.is_simulated() && on.preset().is_some_and(|preset| preset.name == "rbd"));
        let on = parse(&"NBD://host/x".into()).expect("a source");
        assert!(on.shown() == "nbd://host/x" && on.path().is_none() && on.preset().is_none());
    }

    #[test]
    fn the_file_of_a_model_needs_its_prefix() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).expect("written");
            path.to_str().expect("UTF-8").to_string()
        };
        let text = presets::text("rbd").expect("a preset");
        let path = write("model.toml", text);
        let line = error(&path);
        assert!(
            line.starts_with("this looks like the file of a device model"),
            "{line}"
        );
        assert!(line.contains(&format!("write model:{path}")), "{line}");
        let is_taken = |name: &str| parse(&name.into()).is_ok();
        assert!(is_taken(&format!("model:{path}")) && is_taken(&format!("file:{path}")));
        assert!(is_taken(&write("Cargo.toml", "[package]\n")) && is_taken(&write("model", text)));
    }

    #[test]
    fn what_cannot_be_measured_is_said_at_once() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let trace = dir.path().join("x.frt");
        std::fs::write(&trace, b"x").expect("written");
        let trace = trace.to_string_lossy().into_owned();
        let line = error(&trace);
        assert!(
            line.starts_with("a trace is not a storage device")
                && line.contains(&format!("foreread compare {trace} --on "))
        );
        assert!(parse(&format!("file:{trace}").as_str().into()).is_ok());
        assert!(error("/dev/null").starts_with("neither a file"));
        assert!(error("file:").starts_with("no source given"));
        assert!(error("file:nbd:x").starts_with("no such file"));
    }
}
