//! Tests of Ceph images as a source, on a real cluster of one machine. Without Ceph's packages the tests are skipped and named.
//!
//! The cluster ends with the tests (`CephCluster` ensures that).

use crate::common::{
    Rng, by, in_threads, quiet, read_and_check, read_right, read_source as read, refused, right,
    wait_until, watch,
};
use foreread::source::{Defaults, Rbd, RbdSettings, Source, SourceError};
use foreread::{Options, ReadError, Reader};
use foreread_testing::{self as testing, CephCluster, CephError, needs, rows, says};
use std::io::IoSliceMut;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

const MIB: u64 = 1 << 20;
const ETIMEDOUT: i32 = 110;

/// The cluster, for one test at a time: some of them stop its daemons. It is never dropped; its guard takes it down.
fn cluster() -> Option<MutexGuard<'static, CephCluster>> {
    static CLUSTER: OnceLock<Option<Mutex<CephCluster>>> = OnceLock::new();
    watch();
    let made = CLUSTER.get_or_init(|| match CephCluster::up() {
        Ok(cluster) => Some(Mutex::new(cluster)),
        Err(missing @ CephError::Missing(_)) => {
            println!("skipped: needs a Ceph cluster: {missing}");
            None
        }
        Err(error) => panic!("{error}"),
    });
    if made.is_none() {
        println!("skipped: needs a Ceph cluster (packages ceph-mon ceph-mgr ceph-osd ceph-common)");
    }
    let cluster = made.as_ref()?.lock();
    let cluster = cluster.unwrap_or_else(PoisonError::into_inner);
    if !cluster.is_up() {
        // A test that failed had ended a daemon.
        cluster.again().expect("up again");
    }
    Some(cluster)
}

/// An image of self-naming bytes.
fn import(cluster: &CephCluster, name: &str, size: u64) {
    let file = cluster.dir().join(format!("{name}.bytes"));
    std::fs::write(&file, testing::pattern(0, size as usize, 0)).expect("room");
    let words = format!("--no-progress import {} rbd/{name}", file.display());
    rbd(cluster, &words);
    std::fs::remove_file(&file).expect("removed");
}

/// Opens an image, and a reader of it by this policy.
fn read_by(cluster: &CephCluster, name: &str, options: Options) -> (Arc<Rbd>, Reader) {
    read_with(cluster, name, &RbdSettings::default(), options)
}

fn read_with(
    cluster: &CephCluster,
    name: &str,
    settings: &RbdSettings,
    options: Options,
) -> (Arc<Rbd>, Reader) {
    let source = Arc::new(Rbd::open_with(&uri(cluster, name), settings).expect("open"));
    let reader = Reader::open(Arc::clone(&source) as Arc<dyn Source>, options);
    (source, reader.expect("open"))
}

/// Runs the command `rbd`.
fn rbd(cluster: &CephCluster, words: &str) {
    let done = cluster.run("rbd", &Vec::from_iter(words.split(' ')));
    done.expect(words);
}

fn uri(cluster: &CephCluster, name: &str) -> String {
    format!("rbd:rbd/{name}?conf={}", cluster.conf().display())
}

/// A signal to the storage daemon.
fn signal(cluster: &CephCluster, name: &str) {
    let pid = cluster.pid("osd.0").expect("it runs").to_string();
    let killed = Command::new("kill").args([name, &pid]).status();
    assert!(killed.expect("kill").success());
}

#[test]
fn the_bytes_are_right_at_every_offset() {
    needs!(let cluster = cluster());
    let size = 9 * MIB + 777;
    import(&cluster, "bytes", size);
    let options = by("rbd-aligned", 32 * MIB).page_bytes(512);
    let (source, reader) = read_by(&cluster, "bytes", options);
    assert_eq!((source.size(), source.check()), (size, Ok(size)));
    says(&source.describe(), &[", librbd 1."]);
    assert_eq!(source.defaults(), Defaults::RBD);
    let mut rng = Rng(1);
    for _ in 0..60 {
        let (offset, len) = (rng.below(size + MIB), rng.below(5 * MIB) as usize);
        read_right(&source, offset, len, 0);
    }
    // Over the border of two objects, into buffers of odd lengths.
    let (mut a, mut b, mut c) = (vec![0; 1], vec![0; 4097], vec![0; 300]);
    let offset = 4 * MIB - 4000;
    let mut bufs = [&mut a, &mut b, &mut c].map(|buf| IoSliceMut::new(buf));
    assert_eq!(source.read_at(&mut bufs, offset), Ok(4398));
    right(&[a, b, c].concat(), offset, 0);
    for offset in [size, size + 1, u64::MAX] {
        assert_eq!(read(&source, offset, 10), Ok(Vec::new()), "past the end");
    }
    // Through the engine, with readahead, from several threads.
    in_threads(8, |seed| {
        let reader = reader.try_clone().expect("open");
        let (mut rng, mut buf) = (Rng(seed), vec![0; 70_000]);
        let mut offset = rng.below(size);
        for _ in 0..200 {
            let len = rng.below(buf.len() as u64) as usize;
            if rng.below(8) == 0 {
                offset = rng.below(size);
            }
            offset += read_and_check(&reader, &mut buf[..len], offset, 0) as u64;
        }
    });
    assert!(quiet(&reader).pages > 0);
}

/// The log of librados has a stderr that is a pipe written to without blocking, for every process that has the pipe open.
#[test]
fn stderr_is_as_it_was_when_an_image_is_open() {
    needs!(let cluster = cluster());
    let is_non_blocking = || {
        let flags = rustix::fs::fcntl_getfl(std::io::stderr()).expect("open");
        flags.contains(rustix::fs::OFlags::NONBLOCK)
    };
    let before = is_non_blocking();
    import(&cluster, "quiet", 1 << 20);
    let source = Rbd::open(uri(&cluster, "quiet")).expect("opened");
    // Another test may connect just now.
    wait_until("the flags are given back", || before || !is_non_blocking());
    read_right(&source, 0, 4096, 0);
}

#[test]
fn a_namespace_is_part_of_the_name() {
    needs!(let cluster = cluster());
    rbd(&cluster, "namespace create rbd/spaced");
    rbd(&cluster, "create --size 3M rbd/spaced/inner");
    let inner = Rbd::open(&uri(&cluster, "spaced/inner")).expect("open");
    assert_eq!(inner.size(), 3 * MIB);
    assert!(Rbd::open(&uri(&cluster, "inner")).is_err());
}

#[test]
fn a_larger_image_is_the_same_version_and_a_smaller_one_is_not() {
    needs!(let cluster = cluster());
    import(&cluster, "sizes", 6 * MIB);
    rbd(&cluster, "snap create --no-progress rbd/sizes@first");
    let resize = |size: &str| {
        let fixed = "resize --no-progress --allow-shrink --size";
        rbd(&cluster, &format!("{fixed} {size} rbd/sizes"));
    };
    let quiet = RbdSettings {
        look_every: None,
        ..RbdSettings::default()
    };
    let head = Rbd::open_with(&uri(&cluster, "sizes"), &quiet).expect("open");
    let snap = Rbd::open_with(&uri(&cluster, "sizes@first"), &quiet).expect("open");
    resize("7M");
    assert_eq!(head.size(), 6 * MIB, "not checked yet");
    assert_eq!(head.check(), Ok(7 * MIB));
    let new = read(&head, 6 * MIB - 10, 20).expect("bytes");
    assert_eq!(new[10..], [0; 10], "what is new is zero");
    resize("5M");
    let error = head.check().expect_err("it is smaller");
    assert!(matches!(error, SourceError::Changed { .. }), "{error}");
    let words = [": it has 5242880 bytes, but had 7340032"];
    says(&error.to_string(), &words);
    assert_eq!(read(&head, 0, 10), Err(error), "until it is accepted");
    assert_eq!((head.accept(), head.check()), (5 * MIB, Ok(5 * MIB)));
    read_right(&head, 0, 5 * MIB as usize, 0);
    // The snapshot does not mind.
    assert_eq!((snap.size(), snap.check()), (6 * MIB, Ok(6 * MIB)));
    read_right(&snap, 0, 6 * MIB as usize, 0);
    rbd(&cluster, "snap rm --no-progress rbd/sizes@first");
    let gone = snap.check().expect_err("gone").to_string();
    says(&gone, &["the image or the snapshot no longer exists"]);
}

#[test]
fn another_image_of_the_name_is_noticed_and_reported_once() {
    needs!(let cluster = cluster());
    import(&cluster, "twice", 4 * MIB);
    let settings = RbdSettings {
        look_every: Some(Duration::from_millis(20)),
        ..RbdSettings::default()
    };
    let options = by("rbd-aligned", MIB);
    let (source, reader) = read_with(&cluster, "twice", &settings, options);
    let mut buf = vec![0; 4096];
    read_and_check(&reader, &mut buf, 0, 0);
    rbd(&cluster, "mv rbd/twice rbd/away");
    import(&cluster, "twice", 4 * MIB);
    let is_noticed = || matches!(read(&source, 0, 1), Err(SourceError::Changed { .. }));
    wait_until("the other image is not noticed", is_noticed);
    let told = reader.read_at(&mut buf, MIB).expect_err("told");
    assert!(matches!(told, ReadError::Changed { .. }), "{told}");
    read_and_check(&reader, &mut buf, MIB, 0);
}

#[test]
fn missing_inputs_are_one_line_errors() {
    needs!(let cluster = cluster());
    let conf = cluster.conf().display().to_string();
    let table = format!(
        "rbd:rbd/nothing?conf={conf} | there is no image or snapshot with this name
         rbd:nothing/x?conf={conf} | there is no pool with this name
         rbd:rbd/x?conf=no/such.conf | the configuration no/such.conf cannot be read"
    );
    for [name, why] in rows(&table) {
        let error = refused(Rbd::open(name), name).to_string();
        assert!(error.starts_with(&format!("{name}: {why}")), "{error}");
        assert_eq!(error.lines().count(), 1);
    }
}

#[test]
fn opening_an_absent_cluster_times_out() {
    needs!(let cluster = cluster());
    let path = cluster.dir().join("dead.conf");
    let text = std::fs::read_to_string(cluster.conf()).expect("a file");
    let at = text.find("mon host = ").expect("a monitor");
    let line = text[at..].lines().next().expect("a line");
    let nowhere = "mon host = [v2:127.0.0.1:1,v1:127.0.0.1:2]";
    std::fs::write(&path, text.replace(line, nowhere)).expect("room");
    let settings = RbdSettings::default()
        .with("client_mount_timeout", 1)
        .with("rados_mon_op_timeout", 1);
    let name = format!("rbd:rbd/x?conf={}", path.display());
    let error = refused(Rbd::open_with(&name, &settings), "no cluster").to_string();
    let conf = path.display();
    let remedy = "check that its monitors run and can be reached (ceph -s)";
    let why = format!("{name}: no answer from the cluster of {conf} within 1 s; {remedy}");
    assert_eq!(error, why);
    std::fs::remove_file(&path).expect("removed");
}

#[test]
fn a_cluster_that_dies_fails_the_reads_and_hangs_none() {
    needs!(let cluster = cluster());
    import(&cluster, "dies", 8 * MIB);
    // librados asks for a new map once a request is older than its own limit: that has to be below the deadline.
    let settings = RbdSettings::default()
        .with("objecter_tick_interval", "0.2")
        .with("objecter_timeout", "0.5");
    let settings = settings.with("rados_osd_op_timeout", 2);
    let options = by("rbd-aligned", 16 * MIB).page_bytes(512);
    let (source, reader) = read_with(&cluster, "dies", &settings, options);
    let mut buf = vec![0; 4096];
    (0..100).for_each(|i| assert_eq!(read_and_check(&reader, &mut buf, i * 4096, 0), 4096));
    signal(&cluster, "-KILL");
    in_threads(4, |i| {
        let reader = reader.try_clone().expect("open");
        let read = reader.read_at(&mut [0; 4096], 6 * MIB + i * 4096);
        let error = read.expect_err("no answer").to_string();
        says(&error, &["Connection timed out"]);
    });
    let late = read(&source, 0, 10).map_err(|error| error.errno());
    assert_eq!(late, Err(ETIMEDOUT));
    cluster.again().expect("up again");
    wait_until("reads go on", || read(&source, 7 * MIB, 10).is_ok());
    read_and_check(&reader, &mut buf, 6 * MIB, 0);
}

#[test]
fn closing_waits_for_reads_whose_caller_went_away() {
    needs!(let cluster = cluster());
    import(&cluster, "closing", 8 * MIB);
    // It waits less than librbd does: the read ends when no caller waits any more.
    let settings = RbdSettings {
        patience: Duration::from_millis(50),
        look_every: None,
        ..RbdSettings::default()
    };
    let source = Rbd::open_with(&uri(&cluster, "closing"), &settings).expect("open");
    signal(&cluster, "-STOP");
    for i in 0..20 {
        let late = read(&source, i * 300_000, 300_000);
        assert_eq!(late.map_err(|error| error.errno()), Err(ETIMEDOUT));
    }
    let closing = std::thread::spawn(move || drop(source));
    std::thread::sleep(Duration::from_millis(100));
    let waits = !closing.is_finished();
    signal(&cluster, "-CONT");
    assert!(waits, "it was closed under 20 reads");
    closing.join().expect("closed");
    assert!(Path::new(&cluster.conf()).exists());
}

#[test]
fn an_engine_that_goes_away_closes_the_image_when_its_readahead_has_ended() {
    needs!(let cluster = cluster());
    import(&cluster, "dropped", 16 * MIB);
    let options = by("rbd-eager", 32 * MIB).page_bytes(512);
    let (source, reader) = read_by(&cluster, "dropped", options);
    let mut buf = vec![0; 4096];
    (0..9).for_each(|i| assert_eq!(read_and_check(&reader, &mut buf, i * 4096, 0), 4096));
    signal(&cluster, "-STOP");
    let last = std::thread::spawn(move || {
        let mut buf = vec![0; 4096];
        read_and_check(&reader, &mut buf, 9 * 4096, 0);
        let stats = reader.stats();
        let is_ahead = reader.engine().gauges().open_fetches > 0 || stats.ra_bytes > 0;
        assert!(is_ahead, "{stats:?}");
        drop(reader);
    });
    std::thread::sleep(Duration::from_millis(50));
    signal(&cluster, "-CONT");
    last.join().expect("read and dropped");
    let is_closed = || Arc::strong_count(&source) == 1;
    wait_until("the engine still holds the image", is_closed);
}
