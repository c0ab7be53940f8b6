//! Parquet: what is written is read again as it was, damage is one line, nothing is unpacked beyond its limit.
//!
//! `cargo test -p foreread-trace --features parquet --test formats parquet::`; without the feature, that it says so.

use foreread_trace::Header;

#[cfg(not(feature = "parquet"))]
#[test]
fn without_the_feature_it_is_known_and_refused_with_a_remedy() {
    let found =
        foreread_trace::catalog::detect(b"PAR1", std::path::Path::new("t")).expect("its magic");
    assert_eq!(found.name, "parquet");
    let want = |path: &str| {
        format!("Parquet is not built into this foreread: {path}; build it with --features parquet")
    };
    assert_eq!(super::traces::refusal("parquet", "PAR1"), want("t"));
    assert_eq!(
        super::traces::write("parquet", &Header::default(), &[]).expect_err("refused"),
        want("out")
    );
}

#[cfg(feature = "parquet")]
mod with {
    use super::super::traces::{Read, fixture, read_files, write};
    use super::Header;
    use foreread_core::event::Advice;
    use foreread_trace::{After, FileInfo, Flags, Item, Lacks, Level, Op, Record};
    use std::path::PathBuf;

    fn items() -> Vec<Item> {
        let file = |name: &str, size| {
            Item::File(FileInfo {
                name: name.to_string(),
                size,
            })
        };
        let after = |record, end, delay_ns| After {
            record,
            end,
            delay_ns,
        };
        let record = Record::read(0, i64::MAX as u64, 0);
        vec![
            file("a", Some(i64::MAX as u64)),
            Item::Record(Record {
                start_ns: Some(7),
                end_ns: Some(9),
                open: u32::MAX,
                thread: 5,
                ..record.clone()
            }),
            file("a", None),
            file("\u{fc}", None),
            Item::Record(Record {
                file: 2,
                op: Op::Write,
                returned: Some(0),
                ..Record::read(1, 0, 8 << 30)
            }),
            Item::Record(Record {
                op: Op::Fault,
                flags: Flags::EXECUTABLE.with(Flags::AHEAD),
                ..record.clone()
            }),
            Item::Record(Record {
                op: Op::Hint(Advice::DontNeed),
                ..record.clone()
            }),
            Item::Record(Record {
                file: 1,
                after: vec![after(0, true, 5), after(1, false, u64::MAX)],
                ..record
            }),
        ]
    }

    fn header() -> Header {
        Header {
            format: "msr".to_string(),
            time_unit: "100 ns since 1601".to_string(),
            offset_unit: "bytes".to_string(),
            lacks: Lacks {
                opens: true,
                lens: true,
                ..Lacks::default()
            },
            level: Level::BelowCache,
            notes: vec!["one".to_string(), "two".to_string()],
        }
    }

    fn written(items: &[Item]) -> Vec<u8> {
        write("parquet", &header(), items).expect("written").0
    }

    fn read(bytes: &[u8]) -> Read {
        let folder = tempfile::tempdir().expect("a folder");
        let path: PathBuf = folder.path().join("t.parquet");
        std::fs::write(&path, bytes).expect("written");
        read_files("parquet", &[path])
    }

    #[test]
    fn it_comes_back_as_it_was() {
        let mut sorted = items();
        // A file comes before its first record.
        sorted.remove(2);
        let last = sorted.len() - 1;
        sorted.insert(
            last,
            Item::File(FileInfo {
                name: "a".to_string(),
                size: None,
            }),
        );
        for item in &mut sorted {
            if let Item::Record(record) = item {
                record.file = [0, 2, 1][record.file as usize];
            }
        }
        let back = read(&written(&items())).clean();
        assert_eq!((back.items, back.header), (sorted, header()));
    }

    /// Written by pyarrow 26: other types, rows out of order, a column that is none of ours.
    #[test]
    fn a_table_of_others_is_read_by_the_names_of_its_columns() {
        let read = read_files("parquet", &[fixture("parquet/pyarrow.parquet")]).clean();
        let got = read
            .records()
            .into_iter()
            .map(|r| (r.file, r.start_ns, r.offset, r.len))
            .collect::<Vec<_>>();
        assert_eq!(
            got,
            [
                (1, Some(0), 4096, 2),
                (0, Some(2), 0, 1),
                (0, None, 1 << 40, u64::from(u32::MAX))
            ]
        );
        let lacks = Lacks {
            ends: true,
            opens: true,
            threads: true,
            ops: true,
            ..Lacks::default()
        };
        assert_eq!(
            (read.header.lacks, read.header.format.as_str()),
            (lacks, "parquet")
        );
    }

    /// More rows than a group has, so that groups and batches meet their borders.
    #[test]
    fn groups_and_batches_are_whole() {
        let mut items = vec![Item::File(FileInfo::default())];
        let record = |i: u64| Record {
            start_ns: (!i.is_multiple_of(3)).then_some(i),
            ..Record::read(0, i, i % 7)
        };
        items.extend((0..(1 << 17) + 4097).map(|i| Item::Record(record(i))));
        assert_eq!(read(&written(&items)).clean().items, items);
        assert_eq!(read(&written(&[])).clean().items, []);
    }

    #[test]
    fn damage_is_one_line_wherever_it_is() {
        let whole = written(&items());
        let error = read(&whole[..whole.len() - 1]).error.expect("cut");
        assert!(
            error.starts_with("no whole Parquet file: ")
                && error.ends_with("its list of contents is at its end")
        );
        for at in 0..whole.len() {
            for flip in [1, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] ^= flip;
                let _ = read(&bytes).error.is_some_and(|error| {
                    assert!(!error.contains('\n'), "byte {at}: {error}");
                    true
                });
            }
        }
    }

    /// A file whose list of contents has these elements in its schema, each with this many children, and nothing else.
    fn nested(children: impl ExactSizeIterator<Item = u8>) -> Vec<u8> {
        let mut footer = vec![0x15, 2, 0x19, 0xfc];
        let mut len = children.len();
        while len > 0x7f {
            footer.push((len & 0x7f) as u8 | 0x80);
            len >>= 7;
        }
        footer.push(len as u8);
        children.for_each(|n| footer.extend([0x35, 0, 0x18, 1, b'g', 0x15, 2 * n, 0]));
        footer.extend([0x16, 0, 0x19, 0x0c, 0]);
        let len = u32::try_from(footer.len()).expect("small").to_le_bytes();
        [b"PAR1", footer.as_slice(), &len, b"PAR1"].concat()
    }

    /// The library follows a schema by recursion: a thousand levels end in a line, and not in the end of the process.
    #[test]
    fn a_deep_schema_is_refused() {
        for levels in [33, 1000, 200_000] {
            let error = read(&nested((0..levels).map(|n| u8::from(n + 1 < levels))))
                .error
                .expect("refused");
            let want = if levels > 4096 {
                "a schema of more than 4096 columns"
            } else {
                "a schema that is nested more than 32"
            };
            assert!(error.starts_with(want), "{levels}: {error}");
        }
        let error = read(&nested((0..32).map(|n| u8::from(n < 31))))
            .error
            .expect("it has no columns of ours");
        assert!(!error.contains("nested"), "{error}");
    }

    /// What is no plain file is copied into one: bytes in memory, and a trace that is compressed.
    #[test]
    fn bytes_and_compressed_files_are_read_like_a_file() {
        let whole = written(&items());
        let by_path = read(&whole).clean();
        let packed = zstd::encode_all(whole.as_slice(), 1).expect("memory");
        for got in [
            super::super::traces::read_bytes("parquet", whole).clean(),
            read(&packed).clean(),
        ] {
            assert_eq!(
                (got.items, got.header),
                (by_path.items.clone(), by_path.header.clone())
            );
        }
    }
}
