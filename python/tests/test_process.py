"""Signals, forks, the interpreter's lock, and the end of a program."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import foreread
import pytest

from conftest import SIZE, wait_for


# Seconds within which a read that would wait for 20 seconds ends: far above the 0.1 s that are promised, since a busy
# machine may stop a thread for long.
SOON = 5


def interrupted(call):
    """Seconds from Ctrl-C to its exception in `call`."""
    sent = []

    def press():
        time.sleep(0.3)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    with pytest.raises(KeyboardInterrupt):
        thread.start()
        call()
    seconds = time.monotonic() - sent[0]
    thread.join()
    return seconds


def test_ctrl_c_ends_a_read(server, data):
    at = 1 << 19  # Behind the first bytes, which came when the file was opened.
    with foreread.open(server.url, policy="none") as file:
        server.go.clear()
        file.seek(at)
        assert interrupted(lambda: file.read(10)) < SOON
        assert interrupted(lambda: file.readinto(bytearray(1 << 20))) < SOON
        assert interrupted(lambda: file.read_ranges([(at, 10), (1 << 20, 10)])) < SOON
        assert file.tell() == at
        server.go.set()
        assert file.read(10) == data[at : at + 10], "the file is as before"


def test_ctrl_c_ends_an_open(server):
    server.go.clear()
    assert interrupted(lambda: foreread.open(server.url)) < SOON


def test_other_threads_run_while_a_read_waits(server):
    with foreread.open(server.url, policy="none") as file:
        server.go.clear()
        for read in [lambda: file.read_at(1 << 19, 10), lambda: in_a_thread(lambda: file.read_at(1 << 20, 10))]:
            counted = []

            def count():
                counted.extend(range(100_000))
                server.go.set()

            thread = threading.Thread(target=count)
            thread.start()
            read()
            thread.join()
            server.go.clear()
            assert counted, "the read ends when the other thread has run"


def in_a_thread(call):
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def test_close_while_reads_wait(server, data):
    file = foreread.open(server.url, policy="none")
    server.go.clear()
    got = []
    threads = [threading.Thread(target=lambda n=n: got.append((n, file.read_at(n, 100)))) for n in (0, 1 << 20, 2 << 20)]
    asked = len(server.requests)
    for thread in threads:
        thread.start()
    wait_for(lambda: len(server.requests) == asked + 2 and got)  # The first bytes came when it was opened.
    begun = time.monotonic()
    file.close()
    assert time.monotonic() - begun < SOON
    with pytest.raises(ValueError):
        file.read_at(0, 1)
    server.go.set()
    for thread in threads:
        thread.join()
    assert sorted(got) == [(n, data[n : n + 100]) for n in (0, 1 << 20, 2 << 20)]


def child(work):
    """Runs in a forked child; its exit status has to be 0 within 100 seconds: on a busy machine it takes 5."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    end = time.monotonic() + 100
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            assert status == 0, f"the child ended with {status}"
            return
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    pytest.fail("the child hangs")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_has_an_engine_of_its_own(path, server, data):
    with foreread.open(path) as file, foreread.open(server.url) as remote:
        assert file.read(100) + remote.read(100) == data[:100] * 2

        def work():
            assert all(one["open_files"] == 0 for one in foreread.stats())
            assert file.read(100) == data[100:200], "the position is the parent's"
            assert remote.read_at(1 << 20, 100) == data[1 << 20 : (1 << 20) + 100]
            with foreread.open(path) as new:
                assert new.read() == data
            file.close()
            # A child of the child.
            child(lambda: remote.read_at(0, 10) == data[:10] or 1 / 0)

        child(work)
        assert file.read(100) == data[100:200]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forks_while_threads_read(path, data):
    """Whatever another thread has locked at that moment, the child reads."""
    with foreread.open(path, cache="1 MiB") as file:
        stop = threading.Event()

        def work(seed):
            n = 0
            while not stop.is_set():
                offset = (seed * 7919 + n * 104_729) % SIZE
                assert file.read_at(offset, 5000) == data[offset : offset + 5000]
                n += 1

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        try:
            for n in range(20):
                child(lambda: file.read_at(n * 1000, 1000) == data[n * 1000 : (n + 1) * 1000] or 1 / 0)
        finally:
            stop.set()
            for thread in threads:
                thread.join()


FILE = None


def of_worker(offset):
    return FILE.read_at(offset, 1000)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_workers_of_a_pool_read_what_was_opened_before(path, data):
    """As the workers of a DataLoader do."""
    global FILE
    with foreread.open(path) as FILE:
        FILE.read(10)
        with multiprocessing.get_context("fork").Pool(3) as pool:
            offsets = [n * 40_000 for n in range(60)]
            got = pool.map_async(of_worker, offsets).get(timeout=30)
        assert got == [data[offset : offset + 1000] for offset in offsets]


@pytest.mark.parametrize("end", ["pass", "sys.exit(0)", "1 / 0", "os.kill(os.getpid(), 2)"])
def test_a_program_may_end_at_any_time(path, server, end):
    """With files open, fetches in flight and threads in a read, by function and by name."""
    code = f"""
        import os, sys, threading, time
        import foreread, foreread.fsspec
        slow = lambda start, end: time.sleep(0.05) or bytes(end - start)
        cache = foreread.fsspec.ForereadCache(1 << 20, slow, 1 << 30)
        for n in range(20):
            cache._fetch(n << 16, (n + 1) << 16)
        file = foreread.open({str(path)!r})
        remote = foreread.open({server.url!r})
        file.read(100_000), remote.read(100_000)
        threading.Thread(target=lambda: [cache._fetch(n << 20, (n + 1) << 20) for n in range(500)], daemon=True).start()
        time.sleep(0.1)
        {end}
    """
    environment = {**os.environ, "RUST_BACKTRACE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], timeout=30, capture_output=True, text=True, env=environment
    )
    assert done.returncode in (0, 1, -2, 130), done
    assert "panicked" not in done.stderr and "Fatal" not in done.stderr, done.stderr
