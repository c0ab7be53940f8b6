"""The cache type and the protocol below fsspec."""

import contextlib
import functools
import gc
import http.server
import os
import pickle
import signal
import string
import subprocess
import sys
import threading
import time

import foreread.fsspec
import fsspec
import pytest
from fsspec.caching import caches
from foreread.fsspec import ForereadCache
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.tests import abstract

from conftest import SIZE, wait_for

LETTERS = string.ascii_letters.encode()


def letters(start, end):
    return LETTERS[start:end]


def test_the_cache_is_registered():
    assert caches["foreread"] is ForereadCache


@pytest.mark.parametrize("block", [1, 4, 52, 1000])
def test_ranges_are_those_of_the_file(block):
    cache = ForereadCache(block, letters, len(LETTERS))
    for start in [None, 0, 1, 25, 51, 52, 60]:
        for end in [None, 0, 1, 26, 51, 52, 60]:
            assert cache._fetch(start, end) == LETTERS[start:end]
    assert cache.total_requested_bytes == len(LETTERS), "fetched once"
    assert (cache.miss_count, cache.hit_count > 10) == (1, True)


def test_an_empty_file_is_not_fetched():
    assert ForereadCache(5, None, 0)._fetch(0, 0) == b""


def test_a_cache_is_pickled_without_its_engine():
    cache = ForereadCache(5, letters, len(LETTERS), policy="none")
    cache._fetch(0, 5)
    again = pickle.loads(pickle.dumps(cache))
    assert (again.blocksize, again.size, again._fetch(0, 10)) == (5, len(LETTERS), LETTERS[:10])
    assert "policy none" in again.explain()


class _WithoutRanges(http.server.SimpleHTTPRequestHandler):
    """Python's own server: it knows no ranges."""

    def log_message(self, *_):
        pass


def test_a_small_file_is_read_from_a_server_without_ranges(tmp_path):
    content = bytes(range(256)) * 8192
    (tmp_path / "data").write_bytes(content)
    handler = functools.partial(_WithoutRanges, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/data"
        with fsspec.open(url, cache_type="foreread", block_size=4 << 20) as file:
            file.seek(1 << 20)
            assert file.read(1000) == content[1 << 20 : (1 << 20) + 1000]
            file.seek(0)
            assert file.read() == content
        # A larger one cannot be read in parts but for its beginning; the error is fsspec's.
        with fsspec.open(url, cache_type="foreread", block_size=1 << 20) as file, pytest.raises(Exception, match="range"):
            file.seek(1 << 20)
            file.read(1000)
        server.shutdown()


def test_a_refused_whole_file_is_an_error():
    calls = []

    def refuses(start, end):
        calls.append((start, end))
        raise ValueError("no ranges")

    with pytest.raises(Exception, match="no ranges"):
        ForereadCache(1000, refuses, len(LETTERS))._fetch(3, 5)
    assert (0, len(LETTERS)) in calls


def test_wrong_options_are_errors():
    for wrong in [{"policy": "no-such"}, {"cache": "9 Q"}, {"concurrency": 0}]:
        with pytest.raises(ValueError):
            ForereadCache(5, letters, len(LETTERS), **wrong)._fetch(0, 5)


class Broken(Exception):
    pass


@pytest.mark.parametrize(
    ("kind", "arguments"), [(Broken, ("x",)), (PermissionError, (13, "no")), (OSError, ("without a number",)), (SystemExit, (3,))]
)
def test_the_exception_of_a_fetch_is_raised(kind, arguments):
    error = kind(*arguments)

    def fetch(start, end):
        raise error

    cache = ForereadCache(5, fetch, 1 << 20)
    with pytest.raises(kind) as raised:
        cache._fetch(0, 100)
    assert raised.value is error


@pytest.mark.parametrize("answer", [b"", b"short", b"x" * 100_000, None, 5, "text"])
def test_a_wrong_answer_is_an_error(answer):
    cache = ForereadCache(5, lambda start, end: answer, 50_000)
    with pytest.raises((OSError, TypeError)):
        cache._fetch(0, 100)


def test_a_failed_fetch_is_tried_again():
    failed = []

    def fetch(start, end):
        if not failed:
            failed.append(start)
            raise Broken
        return letters(start, end)

    cache = ForereadCache(5, fetch, len(LETTERS))
    with pytest.raises(Broken):
        cache._fetch(0, 5)
    assert cache._fetch(0, 5) == b"abcde"


def test_any_bytes_will_do():
    for kind in (bytearray, memoryview):
        assert ForereadCache(5, lambda start, end: kind(letters(start, end)), 52)._fetch(3, 9) == LETTERS[3:9]


def test_fetches_overlap_reads_and_each_other():
    running, most, lock = set(), [], threading.Lock()

    def fetch(start, end):
        with lock:
            running.add(start)
            most.append(len(running))
        time.sleep(0.02)
        with lock:
            running.discard(start)
        return bytes(end - start)

    cache = ForereadCache(5 << 20, fetch, 64 << 20, cache="33 MiB")
    for n in range(512):
        cache._fetch(n << 16, (n + 1) << 16)
    assert max(most) > 3, "several at once"
    assert len(most) < 512 / 3, "512 reads, each a request without readahead"
    assert "readahead is on" in cache.explain()


@pytest.mark.parametrize("read", [64 << 20, 1 << 18], ids=["all at once", "in order"])
def test_much_is_fetched_in_large_parts(read):
    """64 MiB in 64 fetches of 1 MiB took longer by their number than by their bytes."""
    fetched, lock = [], threading.Lock()

    def fetch(start, end):
        with lock:
            fetched.append(end - start)
        time.sleep(0.03)
        return bytes(end - start)

    cache = ForereadCache(5 << 20, fetch, 64 << 20, cache=(128 << 20) + read)
    for at in range(0, 64 << 20, read):
        assert len(cache._fetch(at, at + read)) == read
    assert sum(fetched) == 64 << 20 and max(fetched) > 2 << 20, fetched
    assert len(fetched) < 40, fetched


def test_a_failed_read_counts_for_its_file():
    def fetch(start, end):
        raise Broken

    cache, other = ForereadCache(5, fetch, 1 << 20), ForereadCache(5, letters, len(LETTERS))
    for _ in range(2):
        with pytest.raises(Broken):
            cache._fetch(0, 100)
    other._fetch(0, 5)
    assert [one.stats()["failed_reads"] for one in (cache, other)] == [2, 0]
    assert "100 % failed" in cache.explain(), cache.explain()


class Serial:
    """A filesystem with one connection, and a file of it."""

    class fs:
        async_impl, protocol, busy = False, ("serial", "other"), False

    path = "data/x"

    def __init__(self, fs):
        self.fs = fs

    def fetch(self, start, end):
        assert not self.fs.busy
        self.fs.busy = True
        time.sleep(0.001)
        self.fs.busy = False
        return bytes(end - start)


def test_a_serial_filesystem_is_called_once_at_a_time():
    fs = Serial.fs()
    caches = [ForereadCache(5, Serial(fs).fetch, 8 << 20) for _ in range(2)]
    jobs = [(cache, n) for n in range(16) for cache in caches]
    threads = [threading.Thread(target=c._fetch, args=(n << 18, (n + 1) << 18)) for c, n in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [cache.stats()["failed_reads"] for cache in caches] == [0, 0]
    assert [cache.stats()["demand_reads"] for cache in caches] == [16, 16]
    assert "data/x" in caches[0].explain()
    assert any(one["kind"] == "python serial 1" for one in foreread.stats())


def test_ctrl_c_ends_a_fetch():
    go = threading.Event()
    cache = ForereadCache(5, lambda start, end: go.wait(20) and bytes(end - start), 1 << 20)

    def press():
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        threading.Thread(target=press).start()
        cache._fetch(0, 100)
    assert time.monotonic() - begun < 5, "the answer would come after 20 seconds"
    go.set()


@pytest.mark.parametrize("fails", [False, True])
def test_a_file_that_is_forgotten_is_freed(fails):
    """Also one whose fetch has failed: the exception has frames that have the file, and readers get the exception."""

    class Owner:
        def fetch(self, start, end):
            if fails:
                raise Broken
            return bytes(end - start)

        def __del__(self):
            freed.append(1)

    freed = []
    owner = Owner()
    owner.cache = ForereadCache(5, owner.fetch, 1 << 20)
    with contextlib.suppress(Broken):
        owner.cache._fetch(0, 5)
    del owner
    wait_for(lambda: gc.collect() is not None and freed)


def test_http(server, data):
    pytest.importorskip("aiohttp", reason="needs aiohttp")
    with fsspec.open(server.url, cache_type="foreread") as file:
        assert file.cache.name == "foreread"
        assert file.read(1000) == data[:1000]
        file.seek(-5, 2)
        assert file.read() == data[-5:]
        assert file.size == SIZE
    with fsspec.open("foreread::" + server.url, foreread={"policy": "none"}) as file:
        assert file.read() == data
        assert "policy none" in file.cache.explain()


def test_http_in_parallel(server, data):
    pytest.importorskip("aiohttp", reason="needs aiohttp")
    server.delay = 0.05
    with fsspec.open(server.url, cache_type="foreread", cache_options={"cache": "17 MiB"}) as file:
        got = b"".join(iter(lambda: file.read(1 << 15), b""))
        assert got == data
        assert len(server.requests) < 97 / 2, "97 reads, each a request without readahead"


def test_a_filesystem_is_wrapped():
    memory = fsspec.filesystem("memory")
    memory.pipe("/wrapped/a", b"12345")
    try:
        with fsspec.open("foreread::memory://wrapped/a") as file:
            assert file.read() == b"12345"
        fs = fsspec.filesystem("foreread", target_protocol="memory")
        assert fs.ls("/wrapped", detail=False) == ["/wrapped/a"]
        assert fs.cat("/wrapped/a") == b"12345" and fs.info("/wrapped/a")["size"] == 5
        with pytest.raises(FileNotFoundError):
            fs.open("/wrapped/b")
    finally:
        memory.rm("/wrapped", recursive=True)
    with pytest.raises(ValueError):
        fsspec.filesystem("foreread")


def test_an_option_that_is_unknown_is_an_error():
    """Without its value, which may be a secret; and with what to write."""
    url = "foreread::memory://wrapped/a"
    for options in [{"foreread": {"cach": "1 GiB"}}, {"key": "mine", "secret": "hidden"}, {"s3": {"key": "mine"}}]:
        with pytest.raises(TypeError) as raised:
            fsspec.open(url, **options)
        name = next(iter(options if "foreread" not in options else options["foreread"]))
        text = str(raised.value)
        assert f"no option {name!r}" in text and "cache, policy and concurrency" in text, text
        assert '{"memory": {"key": ...}' in text and "mine" not in text and "hidden" not in text, text
    fsspec.filesystem("foreread", target_protocol="memory", use_listings_cache=False, skip_instance_cache=True)


def test_the_protocol_needs_no_import():
    code = """if True:
        import fsspec, sys
        fsspec.filesystem("memory").pipe("/a", b"12345")
        assert "foreread" not in sys.modules
        print(fsspec.open("foreread::memory://a").open().read())
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "b'12345'\n", done.stderr


class Fixtures(abstract.AbstractFixtures):
    """fsspec's own suite for filesystems, on memory below foreread."""

    @pytest.fixture
    def fs(self):
        fs = foreread.fsspec.ForereadFileSystem(fs=MemoryFileSystem())
        fs.fs.store.clear()
        fs.fs.pseudo_dirs[:] = [""]
        return fs

    @pytest.fixture
    def fs_join(self):
        return lambda *parts: "/".join(parts)

    @pytest.fixture
    def fs_path(self):
        return ""


class TestGet(abstract.AbstractGetTests, Fixtures):
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):
    pass


class TestCopy(abstract.AbstractCopyTests, Fixtures):
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):
    pass
