//! `foreread bench`: foreread measures itself. The numbers are the lab's.

use crate::args::{BenchArgs, BenchWhat};
use crate::bench_policies;
use crate::fail::Fail;
use crate::out::{self, json_to};
use foreread_lab::report::number::{or_dash, three};

/// Names and numbers, in the order they are printed in. What is not defined is null.
type Figures = Vec<(String, Option<f64>)>;

/// Measures and prints: `name: number` lines, or JSON.
pub fn run(args: &BenchArgs) -> Result<(), Fail> {
    let (args, measure): (_, fn() -> Result<Figures, Fail>) = match &args.what {
        BenchWhat::Sim(args) => (args, sim),
        BenchWhat::Hit(args) => (args, hit),
        BenchWhat::Import(args) => (args, import),
        BenchWhat::Policies(args) => return bench_policies::run(args),
    };
    let json = json_to(args.json.as_ref())?;
    let figures = measure()?;
    match json {
        Some(to) => to.write(&to_json(&figures)),
        None => out::print(in_words(&figures)),
    }
}

fn named(figures: &[(&str, Option<f64>)]) -> Figures {
    figures
        .iter()
        .map(|(name, n)| ((*name).to_string(), *n))
        .collect()
}

fn import() -> Result<Figures, Fail> {
    foreread_lab::import_bench::import().map_err(|error| Fail::Input(error.to_string()))
}

fn sim() -> Result<Figures, Fail> {
    let figures = foreread_lab::bench::sim().map_err(|error| Fail::Input(error.to_string()))?;
    Ok(named(&[
        ("hit_reads_per_s", Some(figures.hit_reads_per_s)),
        ("timed_reads_per_s", Some(figures.timed_reads_per_s)),
        ("auto_hit_reads_per_s", Some(figures.auto_hit_reads_per_s)),
        (
            "auto_timed_reads_per_s",
            Some(figures.auto_timed_reads_per_s),
        ),
        ("bytes_per_page_dense", Some(figures.bytes_per_page_dense)),
        ("bytes_per_page_sparse", Some(figures.bytes_per_page_sparse)),
    ]))
}

fn hit() -> Result<Figures, Fail> {
    let figures = foreread_lab::bench::hit().map_err(|error| Fail::Input(error.to_string()))?;
    Ok(named(&[
        ("ours_reads_per_s", Some(figures.ours_reads_per_s)),
        ("pread_reads_per_s", Some(figures.pread_reads_per_s)),
        ("ratio", Some(figures.ratio)),
    ]))
}

fn to_json(figures: &Figures) -> String {
    let field =
        |(name, value): &(String, Option<f64>)| format!("\"{name}\":{}", serde_json::json!(value));
    format!(
        "{{{}}}\n",
        figures.iter().map(field).collect::<Vec<_>>().join(",")
    )
}

fn in_words(figures: &Figures) -> String {
    figures
        .iter()
        .map(|(name, value)| format!("{name}: {}\n", or_dash(*value, three)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_for_people_and_for_programs() {
        let figures = vec![
            ("ours_reads_per_s".to_string(), Some(1_234_567.0)),
            ("ratio".to_string(), None),
        ];
        assert_eq!(in_words(&figures), "ours_reads_per_s: 1.23M\nratio: -\n");
        assert_eq!(
            to_json(&figures),
            "{\"ours_reads_per_s\":1234567.0,\"ratio\":null}\n"
        );
    }
}
