"""Eight threads at once: one file, one position, one engine, opening and closing, forks.

The same on a Python with a GIL and on one without (free-threaded), where each of these calls may overlap every other.
"""

import asyncio
import io
import subprocess
import sys
import sysconfig
import threading

import foreread.aio
import foreread.fsspec
import pytest
from foreread.fsspec import ForereadCache

from conftest import SIZE, open_files, pattern, wait_for
from test_process import child

THREADS = 8


@pytest.fixture(autouse=True)
def the_gil_stays_off():
    """Where the interpreter is free-threaded: a module that does not say that it needs no GIL switches it on for all."""
    yield
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        assert sys._is_gil_enabled() is False


def together(work, threads=THREADS):
    """What `work(number)` returns in each of the threads, begun at once; the first exception is raised. None may hang."""
    start, results, failed = threading.Barrier(threads), [None] * threads, []

    def run(number):
        try:
            start.wait(30)
            results[number] = work(number)
        except BaseException as error:
            failed.append(error)

    running = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(200)
        assert not thread.is_alive(), "a thread hangs"
    if failed:
        raise failed[0]
    return results


def test_threads_that_share_a_position_get_each_byte_once(path, data):
    def work(number):
        pieces, buffer = [], bytearray(700)
        while True:
            if number % 2:
                piece = file.read(1000 + number)
            else:
                piece = bytes(buffer[: file.readinto(buffer)])
            if not piece:
                return pieces
            pieces.append(piece)

    with foreread.open(path, buffering=0, cache="2 MiB") as file:
        pieces = [piece for pieces in together(work) for piece in pieces]
        assert file.tell() == SIZE
    # Lengths add up, and whole numbers of the pattern say where each piece is.
    assert sum(map(len, pieces)) == SIZE
    starts = sorted((data.index(piece), len(piece)) for piece in pieces if len(piece) >= 24)
    assert all(a + n <= b for (a, n), (b, _) in zip(starts, starts[1:])), "no byte twice"


def test_steps_of_a_seek_add_up(path):
    with foreread.open(path, buffering=0) as file:
        together(lambda number: [file.seek(number, io.SEEK_CUR) for _ in range(500)])
        assert file.tell() == 500 * sum(range(THREADS))


def test_a_buffered_reader_is_shared(path):
    with foreread.open(path, buffering=1 << 14) as file:
        got = together(lambda _: sum(map(len, iter(lambda: file.read(3000), b""))))
    assert sum(got) == SIZE


def test_threads_call_all_of_one_file(path, data):
    def work(number):
        buffer = bytearray(6000)
        for n in range(60):
            at = (number * 7919 + n * 104_729) % SIZE
            assert file.read_at(at, 5000) == data[at : at + 5000]
            got = file.readinto_at(buffer, at)
            assert buffer[:got] == data[at : at + 6000]
            ranges = [((at + step) % SIZE, 3000) for step in (0, 500_000, 1_000_000)]
            assert file.read_ranges(ranges) == [data[start : start + 3000] for start, _ in ranges]
            got = file.readinto_ranges(buffer, [(at, 100), (0, 100)])
            assert buffer[: sum(got)] == data[at : at + 100] + data[:100]
            file.prefetch([(SIZE - at, 100_000)])
            assert file.size == SIZE and file.stats()["failed_reads"] == 0
            assert file.explain() and any(one["open_files"] for one in foreread.stats())

    with foreread.open(path, cache="1 MiB") as file:
        together(work)


def test_files_of_one_engine_open_and_close(path, data):
    """Of more kinds than engines are kept, so some are given up meanwhile."""

    def work(number):
        for n in range(25):
            cache = f"{3 + (number + n) % 12} MiB"
            with foreread.open(path, cache=cache) as file, foreread.open(path) as other:
                at = n * 100_000
                assert file.read_at(at, 1000) + other.read_at(at, 1000) == data[at : at + 1000] * 2
            kept = ForereadCache(5, pattern, SIZE, cache=cache)
            assert kept._fetch(at, at + 1000) == data[at : at + 1000]
            kept.close()

    before = open_files()
    together(work)
    assert open_files() == before


def test_a_file_is_closed_while_others_read_it(path, data):
    for _ in range(20):
        file = foreread.open(path)

        def work(number):
            if number == 0:
                file.read_at(0, 1)
                return file.close()
            for n in range(1000):
                try:
                    assert file.read_at(n * 1000, 1000) == data[n * 1000 : (n + 1) * 1000]
                except ValueError as error:
                    assert "closed file" in str(error)
                    return None
            return None

        together(work)
        assert file.closed


def test_a_cache_of_fsspec_is_opened_once(data):
    for _ in range(10):
        asked, before = [], open_files()

        def fetch(start, end, asked=asked):
            asked.append(end - start)
            return data[start:end]

        cache = ForereadCache(5, fetch, SIZE, cache="2 MiB")

        def work(number):
            for n in range(20):
                at = (number * 400_000 + n * 30_000) % SIZE
                assert cache._fetch(at, at + 5000) == data[at : at + 5000]

        together(work)
        assert open_files() == before + 1
        cache.close()
        assert open_files() == before
        # What was read ahead may still be under way.
        wait_for(lambda: cache.total_requested_bytes == sum(asked))


def test_the_exception_of_a_fetch_is_raised_in_each_thread():
    class Broken(Exception):
        pass

    def fetch(start, end):
        raise Broken(start)

    cache = ForereadCache(5, fetch, 1 << 20)

    def work(number):
        for n in range(100):
            at = (number * 5 + n % 5) * 4096
            with pytest.raises(Broken):
                cache._fetch(at, at + 10)

    together(work)
    cache.close()


def test_settings_of_two_threads_both_hold(path):
    try:
        for n in range(20):
            set_one = [lambda: foreread.configure(cache=(n + 20) << 20), lambda: foreread.configure(policy=("none", "auto")[n % 2])]
            together(lambda number: set_one[number](), threads=2)
            with foreread.open(path) as file:
                assert f"policy {('none', 'auto')[n % 2]}" in file.explain()
                assert any(one["cache_bytes"] == (n + 20) << 20 and one["open_files"] for one in foreread.stats())
    finally:
        foreread.configure(cache="256 MiB", policy="auto")


def test_event_loops_of_eight_threads_read_one_file(server, data):
    async def main(file, number):
        ranges = [((number * 99_991 + n * 50_021) % SIZE, 2000) for n in range(30)]
        assert await file.read_ranges(ranges) == [data[at : at + n] for at, n in ranges]
        async with foreread.aio.open(server.url) as other:
            assert await other.read_at(SIZE - 10, 100) == data[-10:]

    with foreread.open(server.url, cache="2 MiB") as file:
        shared = foreread.aio.AsyncFile(file)
        together(lambda number: asyncio.run(main(shared, number)))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_threads_fork_while_others_open_and_read(path, data):
    stop = threading.Event()

    def forked():
        assert file.read_at(5000, 1000) == data[5000:6000]
        with foreread.open(path, cache="9 MiB") as new:
            assert new.read_at(1 << 20, 1000) == data[1 << 20 : (1 << 20) + 1000]
        kept = ForereadCache(5, pattern, SIZE)
        assert kept._fetch(0, 1000) == data[:1000]

    def work(number):
        if number < 2:
            try:
                for _ in range(10):
                    child(forked)
            finally:
                stop.set()
        n = 0
        while not stop.is_set():
            at = (number * 7919 + n * 104_729) % (SIZE - 5000)
            assert file.read_at(at, 5000) == data[at : at + 5000]
            with foreread.open(path, cache=f"{3 + n % 12} MiB") as new:
                assert new.read(100) == data[:100] and new.stats()["demand_reads"] == 1
            cache._fetch(at, at + 5000)
            n += 1

    with foreread.open(path, cache="1 MiB") as file:
        cache = ForereadCache(5, pattern, SIZE, cache="1 MiB")
        together(work)
        cache.close()


FORKS = """
import os, sys, threading
import foreread

path, forks, stop = sys.argv[1], 200, threading.Event()

def fork():
    for _ in range(forks):
        if (pid := os.fork()) == 0:
            os._exit(0)
        assert os.waitpid(pid, 0) == (pid, 0)

def read(number, n=0):
    while not stop.is_set():
        assert len(file.read_at((number * 7919 + n * 104_729) % 3_000_000, 5000)) == 5000
        assert file.stats()["failed_reads"] == 0 and file.size > 3_000_000
        n += 1
        if number == 0:
            with foreread.open(path, cache=f"{3 + n % 12} MiB") as new:
                new.read(100)

file = foreread.open(path, cache="1 MiB")
readers = [threading.Thread(target=read, args=(number,)) for number in range(4)]
forkers = [threading.Thread(target=fork) for _ in range(2)]
for thread in readers + forkers:
    thread.start()
for thread in forkers:
    thread.join()
stop.set()
for thread in readers:
    thread.join()
print("all", len(foreread.stats()) > 0)
"""


def test_forks_wait_for_no_thread_that_waits_for_them(path):
    """A fork locks what all engines share and stops all threads: none may keep the interpreter while it waits for such a lock.

    In a program that imports nothing else: functions that others register for forks make the moment too rare to be seen.
    """
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKS, str(path)], timeout=50, capture_output=True, text=True)
    assert done.stdout == "all True\n", done.stderr
