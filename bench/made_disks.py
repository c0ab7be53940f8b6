"""Disks and nodes that a measurement makes for itself, as root: ext4 on a loop device, a limit of its rate, a disk that fails, a network
namespace. Each is a context manager, and removes what it made. `Skip` names what this machine lacks.
"""
import contextlib
import os
import shutil
import subprocess
import tempfile
import time

V1, V2 = "/sys/fs/cgroup/blkio", "/sys/fs/cgroup"


class Skip(Exception):
    """A row cannot run here; its text says what it needs."""


def run(*command, check=True):
    return subprocess.run(command, check=check, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.strip()


def need_programs(*names):
    if missing := [name for name in names if not shutil.which(name)]:
        raise Skip(f"needs {', '.join(missing)}")
    if os.geteuid() != 0:
        raise Skip("needs root")


@contextlib.contextmanager
def tmpfs(work, mib):
    need_programs("mount")
    folder = tempfile.mkdtemp(dir=work)
    run("mount", "-t", "tmpfs", "-o", f"size={mib}m", "none", folder)
    try:
        yield folder
    finally:
        run("umount", "-l", folder, check=False)


@contextlib.contextmanager
def ext4(image, work):
    """An ext4 on a loop device on the file; gives the folder and the device."""
    need_programs("mkfs.ext4", "losetup", "mount")
    run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0", image)
    try:
        device = run("losetup", "--find", "--show", image)
    except subprocess.CalledProcessError as error:
        raise Skip("needs a free loop device") from error
    folder = tempfile.mkdtemp(dir=work)
    try:
        run("mount", device, folder)
        yield folder, device
    finally:
        run("umount", "-l", folder, check=False)
        run("losetup", "-d", device, check=False)


@contextlib.contextmanager
def loop_disk(work, mib):
    image = os.path.join(tempfile.mkdtemp(dir=work), "image")
    with open(image, "wb") as file:
        file.truncate(mib << 20)
    with ext4(image, work) as made:
        yield made
    os.unlink(image)


class FailingDisk:
    """An ext4 whose device is an NBD server: `fail()` gives EIO for `rate` of all calls, `go()` ends the server."""

    def __init__(self, work, mib, rate):
        self.mib, self.rate = mib, rate
        self.work = tempfile.mkdtemp(dir=work)
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        need_programs("nbdkit", "nbdfuse", "fusermount3")
        socket, self.trigger = os.path.join(self.work, "socket"), os.path.join(self.work, "fails")
        self.server = subprocess.Popen(
            ["nbdkit", "-f", "-U", socket, "--filter=error", "memory", f"{self.mib}M", f"error-rate={self.rate}", f"error-file={self.trigger}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.stack.callback(self.go)
        image = os.path.join(self.work, "image")
        wait_for(lambda: os.path.exists(socket), "nbdkit")
        with open(image, "wb"):
            pass
        client = subprocess.Popen(["nbdfuse", image, f"nbd+unix:///?socket={socket}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.stack.callback(client.wait)
        self.stack.callback(run, "fusermount3", "-uz", image, check=False)
        wait_for(lambda: os.path.getsize(image) == self.mib << 20, "nbdfuse")
        self.folder, self.device = self.stack.enter_context(ext4(image, self.work))
        return self

    def __exit__(self, *_):
        self.stop_failing()
        self.stack.close()

    def fail(self):
        with open(self.trigger, "wb"):
            pass

    def stop_failing(self):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.trigger)

    def go(self):
        # Asked to end, it would wait for its client.
        self.server.kill()
        self.server.wait()


def wait_for(is_there, what, seconds=20):
    until = time.monotonic() + seconds
    while not is_there():
        if time.monotonic() > until:
            raise Skip(f"needs {what} to work")
        time.sleep(0.05)


class RateLimit:
    """A control group whose processes read and write a device at this rate at most."""

    def __init__(self, device, bytes_per_second):
        with open(f"/sys/block/{os.path.basename(device)}/dev", encoding="ascii") as file:
            self.device = file.read().strip()
        self.rate = bytes_per_second

    def __enter__(self):
        try:
            self.limit()
        except OSError as error:
            raise Skip("needs the controller blkio or io of control groups") from error
        return self

    def limit(self):
        name = f"foreread-bench-{os.getpid()}"
        if os.path.isdir(V1):
            self.folder = os.path.join(V1, name)
            files = {f"blkio.throttle.{way}_bps_device": f"{self.device} {self.rate}" for way in ("read", "write")}
        else:
            self.folder = os.path.join(V2, name)
            self.write(os.path.join(V2, "cgroup.subtree_control"), "+io")
            files = {"io.max": f"{self.device} rbps={self.rate} wbps={self.rate}"}
        os.makedirs(self.folder, exist_ok=True)
        for file, text in files.items():
            self.write(os.path.join(self.folder, file), text)

    @staticmethod
    def write(path, text):
        with open(path, "w", encoding="ascii") as file:
            file.write(text)

    def hold(self, pid):
        self.write(os.path.join(self.folder, "cgroup.procs"), str(pid))

    def __exit__(self, *_):
        for _ in range(50):
            with contextlib.suppress(OSError):
                return os.rmdir(self.folder)
            time.sleep(0.1)


class Node:
    """A network namespace behind a pair of devices; the machine itself is `server` for it."""

    NET = "10.213.77"

    def __init__(self, number):
        self.name = f"foreread-bench-{os.getpid()}-{number}"
        self.device = f"frb{os.getpid() % 100000}-{number}"
        self.server, self.address = f"{self.NET}.{4 * number + 1}", f"{self.NET}.{4 * number + 2}"
        self.before = ["nsenter", f"--net=/run/netns/{self.name}"]

    def __enter__(self):
        need_programs("ip", "nsenter")
        try:
            run("ip", "netns", "add", self.name)
            run("ip", "link", "add", self.device, "type", "veth", "peer", "name", "inside", "netns", self.name)
            run("ip", "addr", "add", f"{self.server}/30", "dev", self.device)
            run("ip", "link", "set", self.device, "up")
            for command in (f"addr add {self.address}/30 dev inside", "link set inside up", "link set lo up", f"route add default via {self.server}"):
                run("ip", "-n", self.name, *command.split())
        except subprocess.CalledProcessError as error:
            self.__exit__()
            raise Skip("needs network namespaces and veth") from error
        return self

    @contextlib.contextmanager
    def only_port(self):
        """Within, a server that takes any free port gets the same one on every node."""
        ports = "/proc/sys/net/ipv4/ip_local_port_range"
        def write(text):
            run(*self.before, "sh", "-c", f"echo {text} > {ports}")

        before = run(*self.before, "cat", ports)
        write("40000 40001")
        yield
        write(before)

    def __exit__(self, *_):
        run("ip", "link", "del", self.device, check=False)
        run("ip", "netns", "del", self.name, check=False)
