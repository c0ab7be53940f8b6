//! The published figures: for each paper, one CSV file with a row for each figure; other files contain the fields that several rows share.
//!
//! ```text
//!   PAPER.csv        table, row, column, published, ours, kind, holds, known, reason
//!   experiments.csv  experiment, workload, policy, device, cache, size, runs      `$1` is the first argument of a row
//!   reasons.csv      reason, text                                  reasons that several rows share
//!
//!   sequential readers on HP EVA | 4 readers, 128K | KB/s | 132351 | kib_s readers 4 128K eva | fit | 0.06
//! ```
//! The column `ours` of PAPER.csv is an expression ([`super::experiment`]) that computes our figure for the row. The column `holds` is the
//! target: how closely our figure must agree ([`super::verdict::Target`]). If the column `known` is `miss`, it is known that our figure
//! disagrees: the row is listed as a miss, but only other misses make the command fail.
//!
//! The CSV files contain none of our results.

use super::verdict::FigureKind;
use serde::Deserialize;
use serde::de::DeserializeOwned;

#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// The name on the command line.
    pub name: &'static str,
    pub citation: &'static str,
    /// The prefix of the ids of its rows.
    pub number: &'static str,
    csv: &'static str,
}

macro_rules! papers {
    ($($number:literal $name:literal $citation:literal,)*) => {
        /// The papers, in the order of their numbers.
        pub const PAPERS: &[Paper] = &[$(Paper {
            name: $name,
            citation: $citation,
            number: $number,
            csv: include_str!(concat!("published/", $name, ".csv")),
        },)*];
    };
}

papers! {
    "000" "wu-2010a" "[Wu 2010a]",
    "001" "wu-2010b" "[Wu 2010b]",
    "002" "wu-2013" "[Wu 2013]",
    "003" "bhattacharya-2003" "[Bhattacharya 2003]",
    "004" "crume-2014" "[Crume 2014]",
    "005" "le-moal-2025" "[Le Moal 2025]",
}

/// A published figure, and the expression that computes ours.
#[derive(Clone, Debug, Deserialize)]
pub struct Figure {
    /// What the table shows; unique within the paper.
    pub table: String,
    pub row: String,
    pub column: String,
    /// The figure with its printed digits. Empty if the paper makes a claim without a figure.
    pub published: String,
    pub ours: String,
    pub kind: FigureKind,
    pub holds: String,
    pub known: String,
    /// The reason for the kind or the miss: a name in `reasons.csv`, or the text itself.
    pub reason: String,
}

/// A run of a workload with a policy on a device. Empty fields have the defaults of `compare`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Experiment {
    pub experiment: String,
    pub workload: String,
    pub policy: String,
    pub device: String,
    pub cache: String,
    pub size: String,
    pub runs: u32,
}

#[derive(Clone, Debug, Deserialize)]
struct Reason {
    reason: String,
    text: String,
}

impl Paper {
    pub fn named(name: &str) -> Option<Paper> {
        PAPERS.iter().copied().find(|paper| paper.name == name)
    }

    pub fn figures(&self) -> Vec<Figure> {
        rows(self.csv)
    }
}

impl Figure {
    /// Returns the published figure as a number.
    pub fn value(&self) -> Option<f64> {
        self.published.parse().ok()
    }

    /// `number/table/row/column`, each in lower case with dashes.
    pub(super) fn id(&self, paper: &Paper) -> String {
        [paper.number, &self.table, &self.row, &self.column]
            .map(slug)
            .join("/")
    }

    pub(super) fn reason(&self) -> Option<String> {
        let reasons: Vec<Reason> = rows(include_str!("published/reasons.csv"));
        let named = reasons.into_iter().find(|r| r.reason == self.reason);
        let text = named.map_or_else(|| self.reason.clone(), |reason| reason.text);
        (!text.is_empty()).then_some(text)
    }
}

pub(super) fn experiment(name: &str, arguments: &[&str]) -> Option<Experiment> {
    let all: Vec<Experiment> = rows(include_str!("published/experiments.csv"));
    let mut found = all.into_iter().find(|e| e.experiment == name)?;
    let Experiment {
        workload,
        policy,
        device,
        cache,
        ..
    } = &mut found;
    for text in [workload, policy, device, cache] {
        for (n, argument) in arguments.iter().enumerate() {
            *text = text.replace(&format!("${}", n + 1), argument);
        }
    }
    Some(found)
}

/// The rows of an embedded file.
fn rows<T: DeserializeOwned>(csv: &str) -> Vec<T> {
    let rows = csv::Reader::from_reader(csv.as_bytes()).into_deserialize();
    rows.collect::<Result<_, _>>()
        .expect("the file is part of this program, and the tests read it")
}

/// Letters and digits in lower case; each run of other characters becomes a dash.
fn slug(text: &str) -> String {
    let words = text
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_ascii_lowercase()
}
