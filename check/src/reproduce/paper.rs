//! The publications: what each is called on the command line, in text and in JSON.
//!
//! | command | text | JSON key `seed` | what |
//! |---|---|---|---|
//! | `wu-2010a` | [Wu 2010a] | 000 | Wu Fengguang: maximum readahead 512 KiB, minimum 32 KiB |
//! | `wu-2010b` | [Wu 2010b] | 001 | Wu Fengguang: limit the readahead of small devices |
//! | `wu-2013` | [Wu 2013] | 002 | Wu Fengguang: more conservative context readahead |
//! | `bhattacharya-2003` | [Bhattacharya 2003] | 003 | Suparna Bhattacharya: readahead and asynchronous reads |
//! | `crume-2014` | [Crume 2014] | 004 | Adam Crume: RBD readahead strategies |
//! | `le-moal-2025` | [Le Moal 2025] | 005 | Damien Le Moal: the default of disks that rotate |
//!
//! The numbers are in the JSON and in the ids of rows, which keep their form.

/// One of the five posts, or the commit of 2025 that changed the default which two of them are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paper {
    /// "Use 512kb max readahead size, and 32kb min readahead size".
    Wu2010a,
    /// "readahead: limit readahead size for small devices".
    Wu2010b,
    /// "readahead: make context readahead more conservative".
    Wu2013,
    /// "Readahead issues and AIO read speedup".
    Bhattacharya2003,
    /// RBD readahead strategies, ceph-devel.
    Crume2014,
    /// "block: Improve read ahead size for rotational devices", Linux 6.17.
    LeMoal2025,
}

impl Paper {
    /// All of them, in the order of their numbers.
    pub const ALL: [Paper; 6] = [
        Paper::Wu2010a,
        Paper::Wu2010b,
        Paper::Wu2013,
        Paper::Bhattacharya2003,
        Paper::Crume2014,
        Paper::LeMoal2025,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Paper::Wu2010a => "wu-2010a",
            Paper::Wu2010b => "wu-2010b",
            Paper::Wu2013 => "wu-2013",
            Paper::Bhattacharya2003 => "bhattacharya-2003",
            Paper::Crume2014 => "crume-2014",
            Paper::LeMoal2025 => "le-moal-2025",
        }
    }

    /// Its number in JSON and in the ids of rows.
    #[must_use]
    pub fn number(self) -> &'static str {
        match self {
            Paper::Wu2010a => "000",
            Paper::Wu2010b => "001",
            Paper::Wu2013 => "002",
            Paper::Bhattacharya2003 => "003",
            Paper::Crume2014 => "004",
            Paper::LeMoal2025 => "005",
        }
    }

    /// How text cites it.
    #[must_use]
    pub fn citation(self) -> &'static str {
        match self {
            Paper::Wu2010a => "[Wu 2010a]",
            Paper::Wu2010b => "[Wu 2010b]",
            Paper::Wu2013 => "[Wu 2013]",
            Paper::Bhattacharya2003 => "[Bhattacharya 2003]",
            Paper::Crume2014 => "[Crume 2014]",
            Paper::LeMoal2025 => "[Le Moal 2025]",
        }
    }

    /// The one of this name or number.
    #[must_use]
    pub fn parse(text: &str) -> Option<Paper> {
        Paper::ALL
            .into_iter()
            .find(|paper| paper.name() == text || paper.number() == text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paper_has_a_name_a_number_and_a_citation() {
        for paper in Paper::ALL {
            assert_eq!(
                (Paper::parse(paper.name()), Paper::parse(paper.number())),
                (Some(paper), Some(paper))
            );
            let cited = paper
                .citation()
                .trim_matches(['[', ']'])
                .replace(' ', "-")
                .to_lowercase();
            assert_eq!(cited, paper.name());
        }
        assert_eq!((Paper::parse("all"), Paper::parse("006")), (None, None));
    }
}
