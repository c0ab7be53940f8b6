"""The kinds of storage of bench/advice-tried: each can be made cold, and lists the means of readahead that exist for it.

A disk is ext4 on a loop device of bench/behind-a-link. A bucket is served by versitygw over a link with a delay, and mounted by rclone:
it has no device, and opening a file drops its cached pages. An export is nbdkit with a delay, for programs that speak NBD.
"""
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from s3_gateway import Mount, free_port

FOREREAD = os.path.abspath(os.environ.get("FOREREAD", pathlib.Path(__file__).resolve().parent.parent / "target/release/foreread"))


def run(*command, **more):
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True, **more).stdout.strip()


class Disk:
    """ext4 on a loop device of bench/behind-a-link, which is mounted here."""

    others = [("run", ""), ("setting", "2048")]

    def __init__(self, name, folder):
        self.name, self.folder = name, pathlib.Path(folder)
        self.loop = run("findmnt", "-no", "SOURCE", folder)
        self.setting = pathlib.Path(f"/sys/block/{os.path.basename(self.loop)}/queue/read_ahead_kb")
        self.today = self.setting.read_text()

    def cold(self):
        run("umount", self.folder)
        run("mount", "-o", "noatime", self.loop, self.folder)
        self.setting.write_text(self.today)

    def set_kib(self, kib):
        self.setting.write_text(str(kib))

    @contextlib.contextmanager
    def by_foreread(self, policy, said):
        """A folder that shows the same through foreread."""
        with tempfile.TemporaryDirectory() as folder, mounted(self.folder, folder, policy, said, os.environ):
            yield pathlib.Path(folder)


@contextlib.contextmanager
def mounted(source, folder, policy, said, env):
    child = subprocess.Popen([FOREREAD, "mount", source, folder, "--policy", policy], stdout=said, stderr=said, env=env)
    try:
        while not os.path.ismount(folder) and child.poll() is None:
            time.sleep(0.02)
        yield
    finally:
        subprocess.run(["fusermount3", "-u", folder], check=False)
        child.wait()


class Bucket:
    """A bucket of versitygw behind a link, mounted by rclone, until `close`."""

    # A setting of 2048 takes 14 times as long in order: rclone jumps between the parts of a window.
    others = [("run", ""), ("policy", "auto")]

    def __init__(self, name, gateway):
        self.name, self.gateway, self.mount = name, gateway, None
        self.cold()

    @property
    def folder(self):
        return pathlib.Path(self.mount.dir)

    def close(self):
        if self.mount:
            self.mount.__exit__()
        self.mount = None

    def cold(self):
        self.close()
        self.mount = Mount(["rclone", "mount", "s3:bucket"], self.gateway.work, self.gateway.env)
        self.mount.__enter__()

    def set_kib(self, kib):
        number = run("mountpoint", "-d", self.folder)
        pathlib.Path(f"/sys/class/bdi/{number}/read_ahead_kb").write_text(str(kib))

    @contextlib.contextmanager
    def by_foreread(self, policy, said):
        with tempfile.TemporaryDirectory() as folder, mounted("s3://bucket", folder, policy, said, self.gateway.env):
            yield pathlib.Path(folder)


class Export:
    """An image of `mib` MiB by nbdkit, each read of which waits so long, until the end of `with`."""

    def __init__(self, ms, mib):
        self.name, self.ms, self.mib = f"NBD {ms} ms", ms, mib

    def __enter__(self):
        self.work = pathlib.Path(tempfile.mkdtemp(dir="/dev/shm"))
        (self.work / "image").write_bytes(os.urandom(self.mib << 20))
        # TCP: fio knows no other, and nbdcopy makes several connections.
        self.uri = f"nbd://127.0.0.1:{free_port()}"
        self.server = subprocess.Popen(
            ["nbdkit", "-f", "-r", "-i", "127.0.0.1", "-p", self.uri.rpartition(":")[2], "--filter=delay", "--filter=rate", "-t", "64", "file",
             self.work / "image", f"rdelay={self.ms}ms", "rate=1600M", f"burstiness={os.environ.get('BURST', '0.02')}"])
        until(lambda: answers(self.uri), self.server)
        return self

    def __exit__(self, *_):
        self.server.terminate()
        self.server.wait()
        shutil.rmtree(self.work)

    @contextlib.contextmanager
    def by_foreread(self, policy, said):
        """The address of the same through `foreread serve`."""
        uri = f"nbd://127.0.0.1:{free_port()}"
        child = subprocess.Popen([FOREREAD, "serve", self.uri, "--tcp", uri[6:], *(["--policy", policy] if policy else [])], stdout=said, stderr=said)
        try:
            until(lambda: answers(uri), child)
            yield uri
        finally:
            child.terminate()
            child.wait()

    def compared(self, workload):
        """What `foreread compare` says of this workload here: whether it advises a line for it, its policy, and the time with it / without."""
        out = self.work / "compared.json"
        text = run(FOREREAD, "--force", "compare", workload, "--on", self.uri, "--size", f"{self.mib}M", "--policy", "none,auto", "--runs", "3", "--json", out)
        report = json.loads(out.read_text())
        report = report[0] if isinstance(report, list) else report
        rows = {row["policy"]: row for row in report["rows"]}
        lines = [line.split() for line in text.splitlines() if line.strip().startswith("foreread serve")]
        if not lines:
            return "", 1.0
        line = lines[0]
        policy = line[line.index("--policy") + 1] if "--policy" in line else "auto"
        return policy, rows[policy]["time_s"]["mean"] / rows["none"]["time_s"]["mean"]


def until(is_there, process):
    while not is_there():
        if process.poll() is not None:
            raise SystemExit(f"advice-tried: {process.args[0]} ended")
        time.sleep(0.05)


def answers(uri):
    return subprocess.run(["nbdinfo", "--size", uri], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
