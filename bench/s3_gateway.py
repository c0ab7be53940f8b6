"""An S3 server behind a link with a given round-trip time and bandwidth, for the measurements in this folder.

versitygw serves a folder of SCRATCH (default: /var/tmp); engine/examples/slow_link.rs runs in front of it. `env` makes
foreread, rclone and s3fs go through the link; `direct` bypasses it, to fill buckets. `requests()` counts the requests that reached
the server, from its access log.
"""
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.environ.get("EXAMPLES", os.path.join(HERE, "..", "target", "release", "examples"))
FOREREAD = os.environ.get("FOREREAD", os.path.join(HERE, "..", "target", "release", "foreread"))
KEY, SECRET = "benchkey", "benchsecret"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def need(*lacks):
    """Ends the program with what is missing: pairs of a name and whether it is there."""
    missing = [name for name, there in lacks if not there]
    missing += [] if os.path.exists(os.path.join(EXAMPLES, "slow_link")) else [os.path.join(EXAMPLES, "slow_link")]
    missing += [] if shutil.which("versitygw") else ["versitygw"]
    if missing:
        sys.exit(f"needs {', '.join(missing)}: see the head of {sys.argv[0]}")


class Gateway:
    """The server and its link, until the `with` ends."""

    def __init__(self, round_trip_ms, megabytes_per_second):
        self.round_trip, self.bandwidth = round_trip_ms, megabytes_per_second

    def __enter__(self):
        self.work = tempfile.mkdtemp(dir=os.environ.get("SCRATCH", "/var/tmp"))
        self.log = os.path.join(self.work, "requests")
        port = free_port()
        self.direct = dict(
            os.environ, AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET, AWS_REGION="us-east-1",
            AWS_ALLOW_HTTP="true", NO_PROXY="127.0.0.1", RCLONE_CONFIG_S3_TYPE="s3", RCLONE_CONFIG_S3_PROVIDER="Other",
            RCLONE_CONFIG_S3_ACCESS_KEY_ID=KEY, RCLONE_CONFIG_S3_SECRET_ACCESS_KEY=SECRET,
            RCLONE_CONFIG_S3_REGION="us-east-1", RCLONE_CONFIG_S3_ENDPOINT=f"http://127.0.0.1:{port}")
        self.direct.pop("AWS_CA_BUNDLE", None)
        os.mkdir(os.path.join(self.work, "data"))
        self.started = []
        self.serve(f"127.0.0.1:{port}", self.log)
        time.sleep(1.5)
        self.link = link = subprocess.Popen(
            [os.path.join(EXAMPLES, "slow_link"), f"127.0.0.1:{port}", str(self.round_trip), str(self.bandwidth)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.started.append(link)
        self.address = link.stdout.readline().strip()
        url = f"http://{self.address}"
        self.env = dict(self.direct, AWS_ENDPOINT_URL=url, RCLONE_CONFIG_S3_ENDPOINT=url)
        return self

    def __exit__(self, *_):
        for process in self.started:
            process.terminate()
        shutil.rmtree(self.work, ignore_errors=True)

    def serve(self, address, log):
        """Starts a server of the same buckets, with an access log."""
        self.started.append(subprocess.Popen(
            ["versitygw", "--port", address, "--keep-alive", "--quiet", "--access-log", log, "posix", os.path.join(self.work, "data")],
            env=dict(self.direct, ROOT_ACCESS_KEY=KEY, ROOT_SECRET_KEY=SECRET),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def fill(self, folder, key):
        """Copies a folder or a file to s3://bucket/KEY, past the link."""
        rclone = ["rclone", "--s3-upload-cutoff", "4G", "--transfers", "16"]
        for command in (["mkdir", "s3:bucket"], ["copy" if os.path.isdir(folder) else "copyto", folder, f"s3:bucket/{key}"]):
            subprocess.run([*rclone, *command], env=self.direct, check=True, stderr=subprocess.DEVNULL)

    def change(self, round_trip_ms, megabytes_per_second):
        """Another link from now on."""
        self.link.stdin.write(f"{round_trip_ms} {megabytes_per_second}\n")
        self.link.stdin.flush()
        self.link.stdout.readline()

    def passed(self):
        """Bytes of answers that went over the link, and connections that were made through it."""
        self.link.stdin.write("\n")
        self.link.stdin.flush()
        return tuple(int(number) for number in self.link.stdout.readline().split()[:2])

    def requests(self):
        """How many requests the server has answered."""
        with open(self.log, "rb") as log:
            return sum(1 for _ in log)

    def data_requests(self, prefix=""):
        """How many of them asked for bytes of objects whose keys begin so."""
        start = f" s3_GetObject {prefix}".encode()
        with open(self.log, "rb") as log:
            return sum(start in line for line in log)


class Mount:
    """A mount by COMMAND, whose third word (behind an interpreter the fourth) is followed by the folder; `with` gives the folder.

    `before` is a command that runs it, `log` a file for what it prints.
    """

    def __init__(self, command, work, env, before=(), log=None):
        self.dir = tempfile.mkdtemp(dir=work)
        at = 4 if "mountpoint_example" in command[1] else 3
        self.log = log or f"{self.dir}.log"
        with open(self.log, "ab") as out:
            self.process = subprocess.Popen([*before, *command[:at], self.dir, *command[at:]], env=env, stdout=out, stderr=out)

    def __enter__(self):
        until = time.monotonic() + 20
        while not os.path.ismount(self.dir):
            if time.monotonic() > until or self.process.poll() is not None:
                self.__exit__()
                raise AssertionError(f"not mounted: {''.join(self.lines()[-1:]).strip()}")
            time.sleep(0.05)
        return self.dir

    def lines(self):
        """What it has printed."""
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return log.readlines()

    def __exit__(self, *_):
        command = ["fusermount3", "-u"] if shutil.which("fusermount3") else ["umount"]
        # The kernel may still be busy with the last file that was closed.
        for _ in range(50):
            if subprocess.run([*command, self.dir], stderr=subprocess.DEVNULL, check=False).returncode == 0:
                break
            time.sleep(0.1)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
