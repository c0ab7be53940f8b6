//! Tests of files and repositories of a Hugging Face Hub, with the simulated hub of `foreread-testing`, which also
//! works with the client huggingface_hub.

use crate::common::{
    changed, in_threads, named, passed, read_right, read_source as read, refused, short_settings,
    watch,
};
use foreread::source::object::{Object, ObjectSettings, Prefix};
use foreread::source::tree::{Kind, Tree};
use foreread::source::{Mem, Source, SourceError, SourceOpenError};
use foreread_testing::{HubMirror, HubRoute, HubServer, ServedRequest, needs, pattern, rows, says};
use std::path::Path;
use std::process::Command;
use std::sync::Barrier;

const MIB: u64 = 1 << 20;
const TOKEN: &str = "hf_right";

fn hub() -> HubServer {
    watch();
    HubServer::start().expect("two ports")
}

fn settings(hub: &HubServer, token: Option<&str>) -> ObjectSettings {
    let mut variables = hub.variables();
    variables.extend(token.map(|token| ("HF_TOKEN".to_string(), token.to_string())));
    short_settings(variables)
}

fn open(hub: &HubServer, name: &str) -> Result<Object, SourceOpenError> {
    Object::open_with(name, settings(hub, None))
}

fn opened(hub: &HubServer, name: &str) -> Object {
    open(hub, name).unwrap_or_else(|error| panic!("{error}"))
}

/// No request of the content server had a header that names the user.
fn no_credentials(hub: &HubServer) {
    let seen = hub.content_seen();
    assert!(!seen.is_empty(), "the content server was asked");
    for request in seen {
        let known = ["accept", "accept-encoding", "host", "range", "user-agent"];
        assert!(!request.target.contains(TOKEN));
        for (name, value) in &request.headers {
            let is_plain = known.contains(&name.as_str()) && !value.contains(TOKEN);
            assert!(is_plain, "{name}: {value}");
        }
    }
}

fn is_signed(seen: &ServedRequest) -> bool {
    seen.header("authorization").is_some()
}

/// An interpreter that has the client; says so if there is none.
fn python() -> Option<std::path::PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let named = std::env::var_os("FOREREAD_PYTHON").map(Into::into);
    let python = named.unwrap_or_else(|| root.join("target/python/bin/python"));
    let mut imports = Command::new(&python);
    let imports = imports.args(["-c", "import huggingface_hub"]).output();
    let there = imports.is_ok_and(|out| out.status.success());
    if !there {
        println!("skipped: needs huggingface_hub for Python (./setup makes target/python)");
    }
    there.then_some(python)
}

/// The hub of these tests speaks as the real one does: its own client finds everything, and each refusal has its error.
#[test]
fn the_client_of_the_hub_accepts_the_hub_of_the_tests() {
    needs!(let python = python());
    let hub = hub();
    hub.put("u/model", "dir/large.bin", named(100_001));
    for n in 0..5 {
        hub.put("u/model", &format!("file-{n}"), named(10 + n));
    }
    hub.put_small("u/model", "config.json", b"{}".to_vec());
    hub.set_page(4);
    hub.put("datasets/u/data", "table.parquet", named(1000));
    hub.branch("datasets/u/data", "refs/pr/1");
    hub.put_small("spaces/u/space", "app.py", pattern(0, 100, 0));
    hub.put("u/closed", "a", named(3));
    hub.put("u/gated", "a", named(3));
    hub.renamed("u/renamed", "u/model");
    hub.make_private("u/closed");
    hub.make_gated("u/gated");
    hub.set_token(TOKEN);
    let folder = tempfile::tempdir().expect("a folder");
    let mut client = Command::new(python);
    client.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hub_client.py"));
    client.arg(folder.path()).arg(hub.main("u/model"));
    client.env("HF_ENDPOINT", hub.endpoint());
    client.env("HF_HOME", folder.path()).env_remove("HF_TOKEN");
    let off = ["XET", "TELEMETRY", "PROGRESS_BARS"];
    client.envs(off.map(|what| (format!("HF_HUB_DISABLE_{what}"), "1")));
    passed(&client.output().expect("started"));
}

#[test]
fn files_of_each_kind_of_repository_are_read_back() {
    let hub = hub();
    hub.set_token(TOKEN);
    for (repository, name) in [
        ("u/r", "hf://u/r"),
        ("datasets/u/r", "hf://datasets/u/r@main"),
        ("spaces/u/r", "hf://spaces/u/r@refs%2Fpr%2F1"),
    ] {
        let odd = "dir/a b+c&d=é#%41";
        for (path, size) in [
            ("none", 0),
            ("one", 1),
            (odd, 70_001),
            ("large", 5 * MIB + 3),
        ] {
            hub.put(repository, path, named(size));
            let bytes = pattern(0, size as usize, 0);
            hub.put_small(repository, &format!("small/{path}"), bytes);
            hub.make_private(repository);
            hub.branch(repository, "refs/pr/1");
            for path in [path, &format!("small/{path}")] {
                let name = format!("{name}/{path}");
                let object = Object::open_with(&name, settings(&hub, Some(TOKEN)));
                let object = object.unwrap_or_else(|error| panic!("{error}"));
                assert_eq!((object.size(), object.check()), (size, Ok(size)));
                says(&object.describe(), &[", by ETag"]);
                read_right(&object, 0, size as usize + 10, 0);
                read_right(&object, size / 2, 100_000, 0);
                assert_eq!(object.asked().retries, 0);
            }
        }
    }
    no_credentials(&hub);
    let bearer = format!("Bearer {TOKEN}");
    for seen in hub.hub_seen() {
        assert_eq!(seen.header("authorization"), Some(&bearer[..]));
    }
}

/// An address has expired, and eight readers notice it at once: one of them asks the hub.
#[test]
fn readers_share_one_renewal() {
    let hub = hub();
    hub.put("u/r", "a", named(MIB));
    let object = opened(&hub, "hf://u/r/a");
    for round in 1..10 {
        hub.expire();
        let (before, barrier) = (hub.hub_seen().len(), Barrier::new(8));
        in_threads(8, |reader| {
            barrier.wait();
            read_right(&object, reader * 100_000, 10_000, 0);
        });
        assert_eq!(hub.hub_seen().len() - before, 1, "round {round}");
    }
    assert_eq!(object.asked().retries, 0);
}

/// What was opened stays what it was, whatever is put into its branch later.
#[test]
fn a_file_is_read_at_the_commit_at_which_it_was_opened() {
    let hub = hub();
    hub.put("u/r", "a", named(MIB));
    hub.put_small("u/r", "b", pattern(0, 10_000, 0));
    let old = ["a", "b"].map(|path| opened(&hub, &format!("hf://u/r/{path}")));
    let commit = hub.main("u/r");
    hub.put("u/r", "a", Mem::new(pattern(0, 2 << 20, 1)));
    hub.put_small("u/r", "b", pattern(0, 20_000, 1));
    hub.expire();
    for object in &old {
        read_right(object, 5000, 300_000, 0);
        assert_eq!(object.check(), Ok(object.size()));
        object.accept();
        read_right(object, 0, 300_000, 0);
    }
    let old = opened(&hub, &format!("hf://u/r@{commit}/b"));
    read_right(&old, 0, 300_000, 0);
    for path in ["a", "b"] {
        read_right(&opened(&hub, &format!("hf://u/r/{path}")), 0, 300_000, 1);
    }
}

/// Of objects and of trees.
#[test]
fn open_errors_have_a_reason_and_a_remedy() {
    let hub = hub();
    hub.set_token(TOKEN);
    for path in ["u/r", "u/closed", "u/gated"] {
        hub.put(path, "a", named(10));
    }
    hub.make_private("u/closed");
    hub.make_gated("u/gated");
    for [kind, name, token, why, remedy, errno] in rows(OPEN_ERRORS) {
        let settings = settings(&hub, Some(token).filter(|token| *token != "-"));
        let error = match kind {
            "tree" => refused(Prefix::open_with(name, settings), name),
            _ => refused(Object::open_with(name, settings), name),
        };
        let line = error.to_string();
        assert!(line.starts_with(&format!("{name}: ")), "{line}");
        says(&error.why, &[why]);
        says(&error.remedy, &[remedy]);
        let bad = ["can ", "canary", "\n"];
        assert!(!bad.iter().any(|bad| line.contains(bad)), "{line}");
        let is_right = errno.is_empty() || error.errno.to_string() == errno;
        assert!(is_right, "{line}: {}", error.errno);
    }
    let blank = Object::open_with("hf://u/r/a", settings(&hub, Some("hf can")));
    let blank = refused(blank, "a blank").to_string();
    let words = ["the token in HF_TOKEN contains a blank", "hf auth login"];
    says(&blank, &words);
    assert!(!blank.contains("hf can"), "{blank}");
}

/// What is opened, by which token, why that fails, what helps, and the errno.
const OPEN_ERRORS: &str = "\
object | hf://u/none/a | - | 401 RepoNotFound | check USER/REPO; a private repository needs a token | 13
object | hf://u/none/a | hf_right | 404 RepoNotFound | check USER/REPO; a private repository needs a token | 2
object | hf://u/closed/a | - | 401 RepoNotFound | check USER/REPO; a private repository needs a token | 13
object | hf://u/r/b | - | 404 EntryNotFound | check the path | 2
object | hf://u/r@v9/a | - | 404 RevisionNotFound | check the revision | 2
object | hf://u/gated/a | - | 401 GatedRepo | then log in (hf auth login) or set HF_TOKEN | 13
object | hf://u/gated/a | hf_right | 403 GatedRepo (credentials: HF_TOKEN) | request access on the repository | 13
object | hf://u/r/a | hf_canary | 401 (credentials: HF_TOKEN) | log in again (hf auth login) | 13
object | hf://u/r/ | - | it is a prefix | | 21
object | hf://u/r | - | it is a prefix | | 21
object | hf://u/r//a | - | an empty part | write hf:// | 22
object | hf://u | - | the repository is missing | write hf:// | 22
tree | hf://u/none | - | 401 RepoNotFound | check USER/REPO |
tree | hf://u/r@v9 | - | 404 RevisionNotFound | check the revision |
tree | hf://u/r/x/ | - | no object has this prefix | HfFileSystem().ls: hf://u/r/ |
tree | hf://u/r/a/b/ | - | no object has this prefix | HfFileSystem().ls: hf://u/r/ |
tree | hf://u/r/../ | - | the prefix has | |";

/// The token follows a redirect of the hub to itself, and no other.
#[test]
fn redirects_carry_the_token_only_to_the_hub() {
    let (hub, other) = (hub(), hub());
    for hub in [&hub, &other] {
        hub.put("u/new", "a", named(MIB));
        hub.renamed("u/old", "u/new");
    }
    hub.set_token(TOKEN);
    let open = |name: &str| Object::open_with(name, settings(&hub, Some(TOKEN)));
    read_right(&open("hf://u/old/a").expect("opened"), 300_000, 1000, 0);
    let seen = hub.hub_seen();
    assert!(seen.iter().all(is_signed));
    // A mirror: asked without the token, also where it redirects to itself.
    let mirror = format!("{}/u/old/resolve/main/a", other.endpoint());
    hub.redirect(HubRoute::Resolve, &mirror, 1);
    read_right(&open("hf://u/new/a").expect("opened"), 0, 1000, 0);
    let seen = other.hub_seen();
    assert_eq!(seen.len(), 2);
    assert!(!seen.iter().any(is_signed));
    no_credentials(&other);
    for location in ["/u/new/resolve/main/a", "ftp://h/", "http://u:p@h/", "//"] {
        hub.redirect(HubRoute::Resolve, location, 20);
        says(&refused(open("hf://u/new/a"), location).why, &["redirects"]);
        while open("hf://u/new/a").is_err() {}
    }
}

/// The hub asks for fewer requests, or fails: asked again after a pause. So is a content server that refuses what was just signed, but once.
#[test]
fn a_busy_hub_gets_retries() {
    let hub = hub();
    hub.put("u/r", "a", named(MIB));
    let object = opened(&hub, "hf://u/r/a");
    for (status, retry_after) in [(429, None), (429, Some(0)), (503, None), (500, None)] {
        hub.expire();
        hub.refuse(HubRoute::Resolve, status, "", retry_after, 2);
        let before = object.asked().retries;
        read_right(&object, 200_000, 1000, 0);
        assert_eq!(object.asked().retries - before, 2, "{status}");
    }
    hub.expire();
    hub.refuse(HubRoute::Resolve, 429, "", Some(3600), 1);
    let error = read(&object, 0, 1000).expect_err("an hour is too long");
    says(&error.to_string(), &["429, retry after 3600 s"]);
    hub.refuse(HubRoute::Content, 403, "", None, 2);
    let (before, asked) = (hub.signatures(), object.asked().requests);
    let error = read(&object, 0, 1000).expect_err("refused");
    says(&error.to_string(), &["403 AddressRefused"]);
    let more = (hub.signatures() - before, object.asked().requests - asked);
    assert_eq!(more, (1, 1));
    read_right(&object, 0, 1000, 0);
}

/// A content network that refuses every address: the hub is asked at most once for each read, however many wait for one file, and the error
/// says whose refusal it is.
#[test]
fn a_content_network_that_refuses_all_costs_one_question_a_read() {
    let hub = hub();
    hub.set_token(TOKEN);
    hub.put("u/r", "a", named(MIB));
    let object = Object::open_with("hf://u/r/a", settings(&hub, Some(TOKEN))).expect("opened");
    for round in 0..20 {
        hub.refuse(HubRoute::Content, 403, "", None, u64::MAX);
        let (before, barrier) = (hub.signatures(), Barrier::new(8));
        in_threads(8, |reader| {
            barrier.wait();
            let error = read(&object, reader * 100_000, 10_000).expect_err("refused");
            says(&error.to_string(), &["403 AddressRefused"]);
        });
        let asked = hub.signatures() - before;
        assert!((1..=8).contains(&asked), "{round}: {asked} for 8 reads");
        hub.answer_right();
        read_right(&object, 0, 300_000, 0);
    }
    assert_eq!(object.asked().retries, 0);
}

fn tree(hub: &HubServer, name: &str, token: Option<&str>) -> Result<Prefix, SourceOpenError> {
    Prefix::open_with(name, settings(hub, token))
}

/// Names with `/` behind those of folders, and the sizes of files.
fn names(tree: &Prefix, folder: &str) -> Vec<(String, u64)> {
    let names = tree.names(Path::new(folder));
    let names = names.unwrap_or_else(|error| panic!("{folder}: {error}"));
    let shown = names.entries().map(|entry| {
        let end = if entry.kind == Kind::Folder { "/" } else { "" };
        let name = entry.name.to_str().expect("text").to_string() + end;
        (name, entry.meta.expect("with its version").size)
    });
    shown.collect()
}

/// A whole repository, or a folder of it, at one commit: pages of names, files that are opened by what a listing said, nothing that came later.
#[test]
fn a_repository_is_a_tree_at_one_commit() {
    let hub = hub();
    hub.set_token(TOKEN);
    hub.put_small("datasets/u/r", "b.json", pattern(0, 1000, 0));
    for n in 0..9 {
        hub.put("datasets/u/r", &format!("dir/{n} é+&#%"), named(MIB + n));
    }
    hub.put("datasets/u/r", "dir/sub/deep/a", named(5));
    hub.make_private("datasets/u/r");
    hub.set_page(4);
    let whole = tree(&hub, "hf://datasets/u/r", Some(TOKEN)).expect("opened");
    let folder = tree(&hub, "hf://datasets/u/r@main/dir/", Some(TOKEN)).expect("opened");
    hub.put("datasets/u/r", "dir/later", named(5));
    let other = Mem::new(pattern(0, 2 << 20, 1));
    hub.put("datasets/u/r", "dir/0 é+&#%", other);
    let root = [("b.json".to_string(), 1000), ("dir/".to_string(), 0)];
    assert_eq!(names(&whole, ""), root);
    let mut all: Vec<_> = (0..9).map(|n| (format!("{n} é+&#%"), MIB + n)).collect();
    all.push(("sub/".to_string(), 0));
    assert_eq!(names(&whole, "dir"), all);
    assert_eq!(names(&folder, ""), all);
    assert_eq!(names(&folder, "sub/deep"), [("a".to_string(), 5)]);
    let [first, last] = ["dir/0 é+&#%", "8 é+&#%"];
    for (tree, path) in [(&whole, first), (&whole, "b.json"), (&folder, last)] {
        let path = Path::new(path);
        let meta = tree.look(path).expect("there");
        let (listed, same) = tree.open_listed(path, &meta).expect("opened");
        assert_eq!(same, meta);
        read_right(&listed, 0, 2 << 20, 0);
        let (opened, now) = tree.open(path).expect("opened");
        assert!(tree.is_same(&meta, &now) && tree.names_exactly(&meta));
        read_right(&opened, 500, 100_000, 0);
    }
    let kind = whole.look(Path::new("dir/sub")).map(|meta| meta.kind);
    assert_eq!(kind, Ok(Kind::Folder));
    let is_gone = |gone: SourceError| {
        assert!(matches!(gone, SourceError::Io { errno: 2, .. }), "{gone:?}");
    };
    for path in ["dir/later", "x", "b.json/x"] {
        is_gone(whole.look(Path::new(path)).expect_err(path));
    }
    let listed = whole.names(Path::new("none"));
    is_gone(listed.expect_err("no folder"));
    no_credentials(&hub);
    let seen = hub.hub_seen();
    assert!(seen.iter().all(is_signed));
    // All but the two that ask for the commit.
    let of_main = seen.iter().filter(|seen| seen.target.contains("/main"));
    assert_eq!(of_main.count(), 2);
}

/// Mirrors of the hub that send large files themselves: from a listing, by name at a branch and at a commit, each version is that of the API.
#[test]
fn files_of_a_mirror_are_those_of_the_hub() {
    for mirror in [
        HubMirror::Linked,
        HubMirror::OwnTag,
        HubMirror::NoTag,
        HubMirror::NoCommit,
        HubMirror::Plain,
        HubMirror::SameOrigin,
    ] {
        let hub = hub();
        hub.set_token(TOKEN);
        hub.put("u/r", "dir/a é", named(MIB));
        hub.put_small("u/r", "dir/b", pattern(0, 1000, 0));
        hub.make_private("u/r");
        hub.mirror(mirror);
        let commit = hub.main("u/r");
        let tree = tree(&hub, "hf://u/r", Some(TOKEN)).expect("opened");
        for (path, size) in [("dir/a é", MIB), ("dir/b", 1000)] {
            let what = format!("{mirror:?}: {path}");
            let path = Path::new(path);
            let meta = tree.look(path).expect("there");
            let (listed, _) = tree.open_listed(path, &meta).expect("opened");
            read_right(&listed, 0, 2 << 20, 0);
            read_right(&listed, size / 2, 1000, 0);
            let (opened, now) = tree.open(path).expect("opened");
            assert!(tree.is_same(&meta, &now), "{what}: {meta:?} {now:?}");
            read_right(&opened, 0, 2 << 20, 0);
            for revision in ["main", &commit, commit.to_ascii_uppercase().as_str()] {
                let name = format!("hf://u/r@{revision}/{}", path.display());
                let object = Object::open_with(&name, settings(&hub, Some(TOKEN)));
                let object = object.unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!((object.size(), object.check()), (size, Ok(size)), "{what}");
                read_right(&object, 0, 2 << 20, 0);
            }
        }
        // The mirror has other bytes of that name now, at the commit that it was asked for.
        if mirror != HubMirror::SameOrigin {
            let path = Path::new("dir/b");
            let meta = tree.look(path).expect("there");
            let (listed, _) = tree.open_listed(path, &meta).expect("opened");
            hub.swap("u/r", "dir/b", pattern(0, 999, 1));
            changed(read(&listed, 0, 1000), "another size");
        }
    }
}

#[test]
fn a_listing_that_fails_says_why_and_the_next_is_right() {
    let hub = hub();
    hub.set_token(TOKEN);
    hub.put("u/r", "a/b", named(10));
    hub.put("u/gated", "a", named(10));
    hub.make_gated("u/gated");
    // Its names are for everyone, its files are not.
    let gated = tree(&hub, "hf://u/gated", None).expect("opened");
    assert_eq!(names(&gated, ""), [("a".to_string(), 10)]);
    let error = refused(gated.open(Path::new("a")), "a");
    says(&error.to_string(), &["401 GatedRepo"]);
    // The API fails, or is none.
    hub.refuse(HubRoute::Api, 429, "", None, 2);
    let whole = tree(&hub, "hf://u/r", None).expect("asked again");
    hub.redirect(HubRoute::Api, "https://", 1);
    let fails = |words: &str| {
        let error = whole.names(Path::new("a")).expect_err(words);
        says(&error.to_string(), &[words]);
    };
    fails("redirects");
    hub.refuse(HubRoute::Api, 200, "", None, 1);
    fails("in place of a listing");
    assert_eq!(names(&whole, "a"), [("b".to_string(), 10)]);
}
