"""The read patterns of measurements over a slow link, their minimum time, and a run of each: for bench/remote-vs-peers and bench/remote-stores."""
import concurrent.futures
import mmap
import os
import random
import subprocess
import sys
import threading
import time

from s3_gateway import FOREREAD, Mount

ROUNDS, ROUND_TRIP, BANDWIDTH = [int(n) for n in sys.argv[1:]] + [3, 30, 200][len(sys.argv) - 1:]
KIB, MIB = 1 << 10, 1 << 20
FILES, FILE_BYTES = 1000, 100_000


# ---- patterns: each reads, and returns the bytes that it asked for ----

def pread_all(path, ranges):
    fd = os.open(path, os.O_RDONLY)
    try:
        for offset, length in ranges:
            assert len(os.pread(fd, length, offset)) == length, f"{path}: short at {offset}"
    finally:
        os.close(fd)
    return sum(length for _, length in ranges)


def in_threads(path, ranges, threads):
    """The ranges by that many threads on one descriptor, each taking the next one."""
    fd, left, lock = os.open(path, os.O_RDONLY), iter(ranges), threading.Lock()

    def work():
        while True:
            with lock:
                one = next(left, None)
            if one is None:
                return
            assert len(os.pread(fd, one[1], one[0])) == one[1]

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work) for _ in range(threads)]:
            done.result()
    os.close(fd)
    return sum(length for _, length in ranges)


def in_order(total, length, step=None):
    step = step or length
    return [(offset, length) for offset in range(0, total - length + 1, step)]


def cursors(path):
    quarter = 64 * MIB
    parts = [[(start + offset, length) for offset, length in in_order(quarter, 128 * KIB)]
             for start in range(0, 4 * quarter, quarter)]
    return pread_all(path, [one for turn in zip(*parts) for one in turn])


def mapped(path):
    size = 256 * MIB
    with open(path, "rb") as file, mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ) as view:
        def touch(start):
            return sum(view[at] for at in range(start, start + size // 8, 4 * KIB))
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(touch, range(0, size, size // 8)))
    return size


def ended(path):
    """64 MiB of 1 GiB in order, and the program ends: what is fetched beside them was ahead of it."""
    script = "import os, sys\nf = os.open(sys.argv[1], os.O_RDONLY)\nfor at in range(0, 64 << 20, 128 << 10): os.pread(f, 128 << 10, at)"
    subprocess.run([sys.executable, "-c", script, path], check=True)
    return 64 * MIB


def at_a_rate(path):
    """128 MiB at 20 MB/s: a reader that is on time takes 6.71 s."""
    begun, got = time.monotonic(), 0
    fd = os.open(path, os.O_RDONLY)
    while got < 128 * MIB:
        got += len(os.pread(fd, 128 * KIB, got))
        time.sleep(max(0.0, begun + got / 20e6 - time.monotonic()))
    os.close(fd)
    return got


def small_files(folder, names):
    got = 0
    for name in names:
        with open(os.path.join(folder, name), "rb") as file:
            got += len(file.read())
    assert got == FILES * FILE_BYTES, got
    return got


def planned_files(folder, names):
    """As a loader that has drawn its order; giving the list counts."""
    socket = os.path.join(os.path.dirname(os.path.dirname(folder)), "control")
    lines = "".join(os.path.join(folder, name) + "\n" for name in names)
    subprocess.run([FOREREAD, "next", socket], input=lines, text=True, check=True, stdout=subprocess.DEVNULL)
    return small_files(folder, names)


def random_reads(count):
    draw = random.Random(1)
    return [(draw.randrange(0, 1024 * MIB // (64 * KIB)) * 64 * KIB, 64 * KIB) for _ in range(count)]


def shuffled():
    names = [f"f{n:04}" for n in range(FILES)]
    random.Random(2).shuffle(names)
    return names


def changing(path, round_trip_ms, megabytes_per_second):
    """256 MiB in order by 64 KiB; in the middle the link becomes another one."""
    ranges = in_order(256 * MIB, 64 * KIB)
    fd = os.open(path, os.O_RDONLY)
    try:
        for n, (offset, length) in enumerate(ranges):
            if n == len(ranges) // 2:
                LINK[0].change(round_trip_ms, megabytes_per_second)
            assert len(os.pread(fd, length, offset)) == length, f"{path}: short at {offset}"
    finally:
        os.close(fd)
        LINK[0].change(ROUND_TRIP, BANDWIDTH)
    return 256 * MIB


# The gateway, for patterns that change its link.
LINK = []
# name: what is read of the mounted object or folder, and the round trips that come one after the other
OF_ONE = {
    "sequential 1 GiB": (lambda path: pread_all(path, in_order(1024 * MIB, 128 * KIB)), 1),
    "64 KiB in order, 256 MiB": (lambda path: pread_all(path, in_order(256 * MIB, 64 * KIB)), 1),
    "8 threads, 256 MiB": (lambda path: in_threads(path, in_order(256 * MIB, 128 * KIB), 8), 1),
    "8 threads by 1 MiB, 256 MiB": (lambda path: in_threads(path, in_order(256 * MIB, MIB), 8), 1),
    "4 cursors, 256 MiB": (cursors, 1),
    "400 of 500 KiB, 128 MiB": (lambda path: pread_all(path, in_order(128 * MIB, 400 * KIB, 500 * KIB)), 1),
    "64 of 512 KiB, 128 MiB": (lambda path: pread_all(path, in_order(128 * MIB, 64 * KIB, 512 * KIB)), 1),
    "backward 64 KiB, 64 MiB": (lambda path: pread_all(path, in_order(64 * MIB, 64 * KIB)[::-1]), 1),
    "random 64 KiB, depth 1": (lambda path: pread_all(path, random_reads(256)), 256),
    "random 64 KiB, depth 16": (lambda path: in_threads(path, random_reads(1024), 16), 64),
    "8 threads of a mapping, 256 MiB": (mapped, 1),
    "a reader at 20 MB/s, 128 MiB": (at_a_rate, 1),
    "64 MiB of 1 GiB, then the program ends": (ended, 1),
    "256 MiB, a tenth of the rate from the middle on": (lambda path: changing(path, ROUND_TRIP, BANDWIDTH // 10), 1),
    "256 MiB, 300 ms more from the middle on": (lambda path: changing(path, ROUND_TRIP + 300, BANDWIDTH), 1),
}
OF_MANY = {
    "1,000 files, listed": (lambda folder: small_files(folder, sorted(os.listdir(folder))), 1),
    "1,000 files, shuffled": (lambda folder: small_files(folder, shuffled()), FILES),
    "1,000 files, shuffled, the list given": (lambda folder: planned_files(folder, shuffled()), 1),
}


def bound(pattern, asked, trips):
    """No reader is faster: one round trip and all bytes, or `trips` one after the other, each with the bytes of one read."""
    rate = BANDWIDTH * 1e6
    each = FILE_BYTES if pattern in OF_MANY else 64 * KIB
    seconds = max(ROUND_TRIP / 1e3 + asked / rate, trips * (ROUND_TRIP / 1e3 + each / rate) if trips > 1 else 0)
    if "a tenth of the rate" in pattern:
        seconds += 9 * asked / 2 / rate
    if "300 ms more" in pattern:
        seconds += 0.3
    return max(seconds, 128 * MIB / 20e6) if "at 20 MB/s" in pattern else seconds


def peak_memory(pid):
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
        return next((int(line.split()[1]) * KIB for line in status if line.startswith("VmHWM")), 0)


def one_run(gateway, command, pattern, read, of_one):
    with (mount := Mount(command, gateway.work, gateway.env)) as folder:
        below = "b" if "mountpoint_example" in command[1] else ""
        path = os.path.join(folder, below, "big" if of_one else "small")
        before, begun = (gateway.requests(), *gateway.passed()), time.monotonic()
        asked = read(path)
        seconds = time.monotonic() - begun
        at_the_end = gateway.passed()[0]
        # What is in flight still comes; where nothing stops it, all of it within this time.
        time.sleep(1.5 if "ends" in pattern else 0.3)
        after = (gateway.requests(), *gateway.passed())
        requests, fetched, connections = (now - was for now, was in zip(after, before))
        # Connections may be those of the mount itself.
        return {"pattern": pattern, "seconds": seconds, "asked_bytes": asked, "requests": requests, "fetched_bytes": fetched,
                "fetched_after_bytes": after[1] - at_the_end, "new_connections": connections, "peak_memory_bytes": peak_memory(mount.process.pid)}
