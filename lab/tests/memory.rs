//! Compares predicted and real bytes that are read through mappings with little memory: the simulator with
//! `linux-6.18`, and the running kernel in a control group on a loop device. Times are not compared.
//!
//! ```text
//!   workload ──► simulator, cache of the group's size ──► bytes ─┐
//!        └─────► plan ──► player.py in the group ──► /sys/block/loopN/stat
//! ```
//! Needs root, loop devices, mkfs.ext4, python3 and a memory controller; if one is missing, the test reports it.

use foreread_core::policy::PolicySpec;
use foreread_core::units::PageSize;
use foreread_history::parse_workload;
use foreread_sim::device::presets;
use foreread_sim::simulator::{self, RunResult};
use foreread_sim::workload::{RequestKind, Workload};
use foreread_testing::machine::{self, LoopDisk, MemoryGroup, SmallDisk};
use foreread_testing::needs;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const PLAYER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/memory/player.py");

/// What the player's group needs beside the page cache: page tables, inodes, the index of pages (2.0 to 2.6 MB were measured).
const OWN_BYTES: u64 = 2 << 20;

#[track_caller]
fn run(words: &[&str]) {
    assert!(machine::runs(words).is_some(), "{words:?}");
}

/// ext4 on a loop device over a file in memory, with the files of a workload.
struct Disk {
    folder: TempDir,
    // Given back in this order.
    device: LoopDisk,
    _memory: SmallDisk,
    mounted: bool,
}

impl Disk {
    /// Nothing if this machine cannot.
    fn new(files: &[u64]) -> Option<Disk> {
        if !machine::has(&["mkfs.ext4", "-V"]) || !machine::has(&["python3", "-V"]) {
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let bytes: u64 = files.iter().map(|size| size + 4096).sum();
        let mib = (bytes >> 20) + (bytes >> 25) + 96;
        let memory = SmallDisk::of((mib as u32 + 16) << 10)?;
        let image = memory.sparse(mib << 20);
        let make = "mkfs.ext4 -q -E lazy_itable_init=0 -J size=4".split(' ');
        run(&Vec::from_iter(make.chain(image.to_str())));
        let mut disk = Disk {
            folder,
            device: LoopDisk::over(&image, &[])?,
            _memory: memory,
            mounted: false,
        };
        fs::create_dir(disk.path("mount")).expect("a folder");
        disk.mount("rw");
        let block = vec![b'f'; 1 << 20];
        for (n, size) in files.iter().enumerate() {
            let mut file = File::create(disk.path("mount").join(n.to_string())).expect("a file");
            let mut left = *size as usize;
            while left > 0 {
                let part = left.min(block.len());
                file.write_all(&block[..part]).expect("room");
                left -= part;
            }
        }
        disk.unmount();
        Some(disk)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn shown(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Nothing of it is cached after this.
    fn mount(&mut self, how: &str) {
        let options = if how == "ro" { "ro,noload" } else { "noatime" };
        let place = self.shown("mount");
        run(&["mount", "-o", options, &self.device.node, &place]);
        self.mounted = true;
    }

    fn unmount(&mut self) {
        run(&["umount", &self.shown("mount")]);
        self.mounted = false;
    }

    fn sys(&self, name: &str) -> String {
        let path = format!("/sys/block/{}/{name}", self.device.name());
        fs::read_to_string(path).expect("read").trim().to_string()
    }

    fn read_bytes(&self) -> u64 {
        let text = self.sys("stat");
        let sectors = text.split_whitespace().nth(2).expect("a third number");
        sectors.parse::<u64>().expect("a number") * 512
    }

    /// Bytes that the device gave while the plan was played, cold.
    fn play(&mut self, plan: &Path, memory: Option<u64>) -> u64 {
        self.mount("ro");
        let group = memory.map(|bytes| MemoryGroup::new(bytes + OWN_BYTES).expect("a group"));
        let procs = group.as_ref().map_or("-".to_string(), |group| {
            group.processes().display().to_string()
        });
        let before = self.read_bytes();
        let plan = plan.display().to_string();
        run(&["python3", PLAYER, &self.shown("mount"), &plan, &procs]);
        let bytes = self.read_bytes() - before;
        drop(group);
        self.unmount();
        bytes
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.mounted {
            machine::runs(&["umount", &self.shown("mount")]);
        }
    }
}

/// The requests of a workload of one chain of jobs, for the player.
fn write_plan(workload: &Workload, path: &Path) {
    let mut bytes = Vec::new();
    let mut put = |words: [u64; 5]| words.iter().for_each(|w| bytes.extend(w.to_le_bytes()));
    for job in &workload.jobs {
        let (open, file) = (u64::from(job.open), u64::from(job.file));
        put([u64::from(job.executable), open, file, 0, 0]);
        for request in &job.requests {
            let what = 3 + u64::from(request.kind == RequestKind::Touch);
            put([what, open, file, request.offset, request.len]);
        }
        put([2, open, file, 0, 0]);
    }
    fs::write(path, bytes).expect("written");
}

/// The run of Linux 6.18 at a window of `kib` KiB, on a device that answers in order.
fn simulated(workload: &Workload, kib: u64, io_kib: u64, memory: Option<u64>) -> RunResult {
    let policy = format!("linux-6.18:max={kib}K,io={io_kib}K,folios=on");
    let page = PageSize::new(4096).expect("a page");
    let device = presets::find("ssd-sata").expect("a preset");
    let policy = PolicySpec::parse(&policy).expect("a policy");
    let config = device.config(page, memory.unwrap_or(1 << 40));
    let setup = simulator::Setup::new(workload, &policy, config, device.host_ns_per_kib);
    simulator::run(&setup, device.build(1))
}

fn built(name: &str, size: u64, seed: u64) -> Workload {
    let workload = parse_workload(name).expect(name);
    workload.build(size, seed).expect(name)
}

/// One workload on one disk.
struct Compared {
    workload: Workload,
    disk: Disk,
    plan: PathBuf,
}

impl Compared {
    /// Nothing if this machine cannot.
    fn new(name: &str, size: u64, seed: u64) -> Option<Compared> {
        let workload = built(name, size, seed);
        let has_groups = MemoryGroup::new(1 << 30).is_some();
        let disk = Disk::new(&workload.files).filter(|_| has_groups)?;
        let plan = disk.path("plan");
        write_plan(&workload, &plan);
        Some(Compared {
            workload,
            disk,
            plan,
        })
    }

    fn predicted(&self, kib: u64, memory: Option<u64>) -> RunResult {
        let io = self.disk.sys("queue/max_sectors_kb");
        let io = io.parse().expect("a number");
        simulated(&self.workload, kib, io, memory)
    }

    /// Predicted and live bytes at a window of `kib` KiB, and what the simulation refaulted.
    fn at(&mut self, kib: u64, memory: Option<u64>) -> (u64, u64, u64) {
        assert!(self.disk.device.set("read_ahead_kb", kib));
        let predicted = self.predicted(self.disk.device.kib(), memory);
        let live = self.disk.play(&self.plan, memory);
        (
            predicted.stats.source_bytes,
            live,
            predicted.refault_bytes.unwrap_or(0),
        )
    }
}

/// 2,000 touches of a cold mapping of 2 GiB, measured on Linux 6.18 (ext4 on a loop device, other places than these): MB by window.
#[test]
fn a_cold_mapping_reads_what_was_measured() {
    let measured = [
        (128, 245.0, 245.0),
        (512, 785.0, 806.0),
        (1024, 1226.0, 1248.0),
        (4096, 1968.0, 2003.0),
        (8192, 2109.0, 2114.0),
    ];
    for name in ["mapped-random", "mapped-lookup", "mapped-random:run=4"] {
        for (kib, least, most) in measured {
            let runs = [1, 2, 3].map(|seed| {
                let workload = built(name, 2 << 30, seed);
                simulated(&workload, kib, 1280, None).stats.source_bytes
            });
            let mb = runs.iter().sum::<u64>() as f64 / 3e6;
            let is_right = (least * 0.97..most * 1.03).contains(&mb);
            assert!(is_right, "{name} at {kib} KiB: {mb:.0} MB");
        }
    }
}

/// In memory of an eighth of the file a larger window reads in proportion, nearly all of it again.
#[test]
fn large_windows_thrash_in_little_memory() {
    let workload = built("mapped-random:count=1000", 512 << 20, 1);
    let [small, large] = [128, 4096].map(|kib| simulated(&workload, kib, 1280, Some(64 << 20)));
    let ratio = large.stats.source_bytes as f64 / small.stats.source_bytes as f64;
    assert!((24.0..32.0).contains(&ratio), "{ratio}");
    let again = |run: &RunResult| run.refault_bytes.expect("simulated");
    assert!(again(&large) > 3 * (512 << 20) && again(&small) < 64 << 20);
    assert!(large.time_s > 8.0 * small.time_s);
    // With room for the whole file nothing is read twice.
    let roomy = simulated(&workload, 4096, 1280, None);
    assert_eq!((again(&roomy), roomy.stats.evicted_pages), (0, 0));
}

/// The hot pages of a tree stay, whatever the leaves bring in: each look-up reads at most a window.
#[test]
fn hot_pages_stay() {
    let workload = built("mapped-lookup:count=1000", 512 << 20, 1);
    let run = simulated(&workload, 1024, 1280, Some(64 << 20));
    let windows = run.stats.source_bytes as f64 / f64::from(1 << 20);
    assert!((800.0..1003.0).contains(&windows), "{windows}");
}

/// Bytes predicted and read by the kernel that runs here, with room and without.
#[test]
fn the_running_kernel_reads_as_many_bytes() {
    for name in ["random:count=600", "lookup:count=600,inner=500"] {
        let name = &format!("mapped-{name}");
        needs!(let mut compared = Compared::new(name, 192 << 20, 1));
        for memory in [None, Some(64 << 20)] {
            for kib in [128, 1024, 4096] {
                let (predicted, live, _) = compared.at(kib, memory);
                let is_right = (0.9..1.1).contains(&(predicted as f64 / live as f64));
                let what = format!("{name}, {memory:?}, {kib} KiB");
                assert!(is_right, "{what}: {predicted} predicted, {live} read");
            }
        }
    }
}

/// The table of `bench/memory-vs-kernel`: predicted and live MB by window.
#[test]
#[ignore = "takes minutes; bench/memory-vs-kernel runs it"]
fn the_table() {
    let given = |name: &str, usual: &str| std::env::var(name).unwrap_or(usual.to_string());
    let list = |name: &str, usual: &str| -> Vec<u64> {
        let (text, number) = (given(name, usual), |n: &str| n.parse().expect(name));
        text.split_whitespace().map(number).collect()
    };
    let windows = list("WINDOWS", "128 512 1024 4096 8192 65536");
    let memories = list("MEMORY", "0 128");
    let size = list("SIZE", "1024")[0] << 20;
    let seed = list("SEED", "1")[0];
    let usual = "mapped-random mapped-lookup mapped-random:run=4 compile";
    for name in given("WORKLOADS", usual).split(' ') {
        needs!(let mut compared = Compared::new(name, size, seed));
        for &memory in &memories {
            for &kib in &windows {
                let (predicted, live, refaulted) =
                    compared.at(kib, (memory > 0).then_some(memory << 20));
                let mb = |bytes: u64| bytes as f64 / 1e6;
                println!(
                    "{name} | {memory} MiB | {kib} KiB | predicted {:.1} | live {:.1} | ratio {:.3} | refaulted {:.1}",
                    mb(predicted),
                    mb(live),
                    predicted as f64 / live as f64,
                    mb(refaulted)
                );
            }
        }
    }
}
