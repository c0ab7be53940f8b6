//! Objects of Google Cloud Storage and Azure, and folders of them, against fake-gcs-server and azurite.
//! Each server that is missing is named: `skipped: needs X`.

use crate::common::emulators::{Cloud, Emulator};
use crate::common::{object_settings, read_all, watch};
use foreread::source::object::{Object, ObjectSettings, Prefix};
use foreread::source::tree::{Kind, Tree};
use foreread::source::{Source, SourceError};
use foreread_testing::pattern;
use std::collections::BTreeMap;
use std::path::Path;

const CLOUDS: [Cloud; 2] = [Cloud::Google, Cloud::Azure];

fn settings(emulator: &Emulator) -> ObjectSettings {
    watch();
    object_settings(emulator.variables())
}

/// The keys have what a URL would change.
#[test]
fn objects_of_each_cloud_are_read_back() {
    for emulator in CLOUDS.iter().filter_map(|cloud| Emulator::start(*cloud)) {
        for (key, size) in [
            ("one", 1),
            ("dir/a b+c&d=é#%41", 70_001),
            ("large", (5 << 20) + 3),
        ] {
            emulator.put(key, pattern(0, size as usize, 0));
            let name = emulator.name(key);
            let object = Object::open_with(&name, settings(&emulator));
            let object = object.unwrap_or_else(|error| panic!("{error}"));
            assert_eq!((object.size(), object.check()), (size, Ok(size)), "{name}");
            assert_eq!(
                read_all(&object),
                Ok(pattern(0, size as usize, 0)),
                "{name}"
            );
        }
        let error = Object::open_with(&emulator.name("nothing"), settings(&emulator));
        let error = error.err().expect("there is none");
        assert_eq!(
            error.errno,
            rustix::io::Errno::NOENT.raw_os_error(),
            "{error}"
        );
        let error = Object::open_with(&emulator.name("dir/"), settings(&emulator));
        assert!(
            error
                .err()
                .expect("a prefix")
                .to_string()
                .contains("prefix")
        );
    }
}

/// A generation and an ETag: a read of the version that was replaced is an error, and never the other's bytes.
#[test]
fn a_replaced_object_is_noticed_by_its_version() {
    for emulator in CLOUDS.iter().filter_map(|cloud| Emulator::start(*cloud)) {
        emulator.put("x", pattern(0, 300_000, 0));
        let object = Object::open_with(&emulator.name("x"), settings(&emulator)).expect("opens");
        emulator.put("x", pattern(0, 300_000, 1));
        let read = read_all(&object);
        assert!(matches!(read, Err(SourceError::Changed { .. })), "{read:?}");
        assert_eq!(object.accept(), 300_000);
        assert_eq!(read_all(&object), Ok(pattern(0, 300_000, 1)));
    }
}

#[test]
fn a_prefix_of_each_cloud_is_a_tree() {
    for emulator in CLOUDS.iter().filter_map(|cloud| Emulator::start(*cloud)) {
        let keys = [
            "top/a",
            "top/b c",
            "top/sub/d",
            "top/sub/deep/e",
            "other",
            "top.x",
        ];
        for (size, key) in keys.iter().enumerate() {
            emulator.put(key, pattern(0, size + 1, 0));
        }
        let tree = Prefix::open_with(&emulator.name("top/"), settings(&emulator));
        let tree = tree.unwrap_or_else(|error| panic!("{error}"));
        let list = |folder: &str| {
            let mut names = BTreeMap::new();
            let listed = tree.list(Path::new(folder), &mut |entry| {
                let size = entry.meta.map_or(0, |meta| meta.size);
                names.insert(entry.name.into_string().expect("text"), (entry.kind, size));
                true
            });
            listed.map(|()| names)
        };
        let wanted = [
            ("a", (Kind::File, 1)),
            ("b c", (Kind::File, 2)),
            ("sub", (Kind::Folder, 0)),
        ];
        let wanted = wanted.map(|(name, what)| (name.to_string(), what));
        assert_eq!(list(""), Ok(wanted.into_iter().collect()));
        assert_eq!(list("sub").map(|names| names.len()), Ok(2));
        assert!(list("nothing").is_err());
        assert_eq!(
            tree.look(Path::new("sub")).map(|meta| meta.kind),
            Ok(Kind::Folder)
        );
        for path in ["a", "sub/deep/e"] {
            let meta = tree.look(Path::new(path)).expect("there");
            let mut others = 0;
            let ahead = tree.look_ahead(Path::new(path), &mut |_, _| others += 1);
            assert_eq!(ahead.map(|meta| meta.size), Ok(meta.size));
            let (source, opened) = tree.open_listed(Path::new(path), &meta).expect("opens");
            assert_eq!(read_all(&*source), Ok(pattern(0, meta.size as usize, 0)));
            assert!(tree.is_same(&meta, &opened), "{path}");
            let (source, opened) = tree.open(Path::new(path)).expect("opens");
            assert_eq!(source.size(), opened.size);
            assert!(
                tree.is_same(&meta, &opened),
                "a listing and a reply agree: {path}"
            );
        }
        assert!(tree.look(Path::new("nothing")).is_err());
        let error = Prefix::open_with(&emulator.name("nothing/"), settings(&emulator)).err();
        assert!(
            error
                .expect("none")
                .to_string()
                .contains("no object has a name")
        );
    }
}

/// The first failed request says what to run.
#[test]
fn without_credentials_the_remedy_is_a_login() {
    let Some(emulator) = Emulator::start(Cloud::Azure) else {
        return;
    };
    emulator.put("x", pattern(0, 10, 0));
    let variables = emulator.variables().into_iter();
    let without: Vec<_> = variables
        .filter(|(name, _)| name != "AZURE_STORAGE_KEY")
        .collect();
    let open = |settings| {
        Object::open_with(&emulator.name("x"), settings)
            .err()
            .expect("refused")
    };
    let error = open(ObjectSettings {
        variables: without.clone(),
        ..settings(&emulator)
    });
    assert!(error.remedy.starts_with("az login"), "{error}");
    let error = open(ObjectSettings {
        no_sign_request: true,
        ..settings(&emulator)
    });
    assert!(error.remedy.starts_with("az login"), "{error}");
    let key = "Y2FuYXJ5Y2FuYXJ5Y2FuYXJ5Y2FuYXJ5";
    let wrong = [
        without,
        vec![("AZURE_STORAGE_KEY".to_string(), key.to_string())],
    ]
    .concat();
    let error = open(ObjectSettings {
        variables: wrong,
        ..settings(&emulator)
    });
    assert!(error.why.contains("AZURE_STORAGE_KEY"), "{error}");
    assert!(!error.to_string().contains(key), "{error}");
}
