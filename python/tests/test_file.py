"""Files as io.RawIOBase, their errors, and ranges."""

import csv
import errno
import io
import json
import os
import pickle
import socket
import subprocess
import sys
import threading
import zipfile

import foreread
import numpy
import pytest

from conftest import SIZE, free_port, open_files, wait_for


@pytest.mark.parametrize(("buffering", "kind"), [(0, foreread.File), (-1, foreread.BufferedFile), (1000, foreread.BufferedFile)])
def test_a_file_reads_as_open_does(path, data, buffering, kind):
    with foreread.open(path, "rb", buffering) as ours, io.open(path, "rb", buffering) as theirs:
        assert type(ours) is kind and isinstance(ours, type(theirs).__base__)
        assert (ours.readable(), ours.seekable(), ours.writable(), ours.mode) == (True, True, False, "rb")
        assert ours.size == SIZE
        for step in [
            lambda f: f.read(10),
            lambda f: f.tell(),
            lambda f: f.read(0),
            lambda f: f.readline(),
            lambda f: (next(f), next(iter(f))),
            lambda f: f.tell(),
            lambda f: f.readlines(5000),
            lambda f: f.seek(-100, io.SEEK_END),
            lambda f: f.read(1000),
            lambda f: f.read(1000),
            lambda f: f.seek(5),
            lambda f: f.seek(7, io.SEEK_CUR),
            lambda f: f.read(None),
            lambda f: f.seek(SIZE + 1000),
            lambda f: f.read(10),
            lambda f: f.read(),
            lambda f: f.seek(1 << 20),
            lambda f: f.read(-1),
        ]:
            assert step(ours) == step(theirs)
    assert ours.closed


def test_all_that_is_left_is_read(path, data):
    with foreread.open(path, buffering=0) as file:
        assert (file.seek(1 << 20), file.readall(), file.readall()) == (1 << 20, data[1 << 20 :], b"")


def test_buffers_are_filled_in_place(path, data):
    with foreread.open(path) as file:
        array = numpy.zeros(1000, dtype="<u8")
        file.seek(800)
        assert file.readinto(array) == 8000
        assert (array == numpy.arange(100, 1100)).all()
        taken = bytearray(100)
        assert file.readinto(memoryview(taken)[20:30]) == 10
        assert taken == bytes(20) + data[8800:8810] + bytes(70)
        assert file.readinto(bytearray()) == 0
        at_the_end = bytearray(b"x" * 10)
        assert file.readinto_at(at_the_end, SIZE - 4) == 4
        assert at_the_end == data[-4:] + b"x" * 6
        assert file.tell() == 8810, "an offset moves no position"


def test_what_cannot_be_filled_is_refused(path):
    with foreread.open(path) as file:
        for buffer in [b"constant", memoryview(b"constant"), "text", 5, numpy.zeros(8)[::2]]:
            with pytest.raises((TypeError, BufferError, ValueError)):
                file.readinto(buffer)
        held = bytearray(10)
        file.readinto(held)
        held.extend(b"it is released")


def test_the_standard_readers_take_it(path, data):
    with io.BufferedReader(foreread.open(path, buffering=0), 1 << 16) as file:
        assert file.peek(1)[:1] == data[:1]
        assert file.read(100_000) == data[:100_000]
    with foreread.open(os.fsencode(path)) as file:
        assert file.readline() == data[: data.index(b"\n") + 1]


@pytest.fixture
def words(tmp_path):
    path = tmp_path / "words.csv"
    path.write_bytes("n,name\r\n".encode() + "".join(f"{n},näme {n}\n" for n in range(20_000)).encode())
    return path


@pytest.mark.parametrize(
    "given",
    [
        {"mode": "r"},
        {"mode": "rt", "encoding": "utf-8", "newline": ""},
        {"mode": "tr", "encoding": "ascii", "errors": "replace", "buffering": 100},
        {"mode": "r", "encoding": "latin-1", "newline": "\n", "buffering": 1},
    ],
)
def test_text_reads_as_open_does(words, given):
    with foreread.open(words, **given) as ours, io.open(words, **given) as theirs:
        assert type(ours) is io.TextIOWrapper and isinstance(ours.buffer, foreread.BufferedFile)
        for what in ["mode", "encoding", "errors", "newlines", "closed", "line_buffering"]:
            assert getattr(ours, what) == getattr(theirs, what)
        assert ours.name == str(words)
        for step in [
            lambda f: f.readline(),
            lambda f: f.tell(),
            lambda f: f.read(5),
            lambda f: [next(f) for _ in range(1000)],
            lambda f: f.seek(8) and f.readlines(100),
            lambda f: f.read(),
            lambda f: f.seek(0) or list(f),
            lambda f: f.newlines,
        ]:
            assert step(ours) == step(theirs)
    assert ours.closed and ours.buffer.closed
    with pytest.raises(ValueError):
        ours.readline()


def test_modes_are_those_of_open(path):
    for mode in ["w", "wb", "a", "x", "r+", "rb+", "w+b"]:
        with pytest.raises(io.UnsupportedOperation, match="foreread only reads"):
            foreread.open(path, mode)
    for mode in ["", "b", "rr", "rbt", "rw", "U", "q"]:
        with pytest.raises(ValueError, match="invalid mode"):
            foreread.open(path, mode)
    for wrong in [{"mode": "r", "buffering": 0}, {"encoding": "utf-8"}, {"errors": "strict"}, {"newline": ""}, {"buffering": -2}]:
        with pytest.raises(ValueError):
            foreread.open(path, **wrong)
    for wrong in [{"mode": 5}, {"buffering": "0"}]:
        with pytest.raises(TypeError):
            foreread.open(path, **wrong)
    with pytest.raises(LookupError):
        foreread.open(path, "r", encoding="no-such")
    assert open_files() == 0, "what was opened for a text that cannot be is closed"


def test_the_standard_library_reads_it(words, tmp_path):
    made = {"rows": [{"n": n, "name": f"näme {n}"} for n in range(3000)]}
    (tmp_path / "made.json").write_text(json.dumps(made))
    (tmp_path / "made.pickle").write_bytes(pickle.dumps(made))
    numpy.save(tmp_path / "made.npy", numpy.arange(100_000))
    with zipfile.ZipFile(tmp_path / "made.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.write(tmp_path / "made.json", "made.json")
    with foreread.open(tmp_path / "made.json") as file:
        assert json.load(file) == made
    with foreread.open(tmp_path / "made.pickle") as file:
        assert pickle.load(file) == made
    with foreread.open(tmp_path / "made.npy") as file:
        assert (numpy.load(file) == numpy.arange(100_000)).all()
    with foreread.open(tmp_path / "made.zip") as file, zipfile.ZipFile(file) as packed:
        assert json.loads(packed.read("made.json")) == made
    with foreread.open(words, "r", newline="") as ours, io.open(words, newline="") as theirs:
        assert list(csv.reader(ours)) == list(csv.reader(theirs))


def test_lines_are_read_through_the_buffer(path, data):
    with foreread.open(path, policy="none") as file:
        assert b"".join(file) == data
        assert file.stats()["demand_reads"] <= SIZE / (32 << 10) + 2, "a read for each buffer, not for each line"
        assert file.read_at(3, 4) == data[3:7] and file.tell() == SIZE


def test_ranges_come_in_the_order_of_the_list(path, data):
    ranges = [(n * 7_654_321 % SIZE, n * 331 % 70_000) for n in range(200)]
    ranges += [(SIZE - 5, 10), (SIZE, 10), (SIZE + 10, 10), (0, 0), (0, SIZE), (0, 1 << 40)]
    with foreread.open(path, policy="none") as file:
        assert file.read_ranges(ranges) == [data[offset : offset + length] for offset, length in ranges]
        assert file.read_ranges([]) == []
        assert file.read_at(3, 4) == data[3:7]
        assert file.tell() == 0


def test_ranges_are_fetched_at_once(server, data):
    with foreread.open(server.url, policy="none") as file:
        begun = len(server.requests)
        server.go.clear()
        # Behind the first bytes, which came when the file was opened.
        ranges = [(200_000 + n * 280_000, 1000) for n in range(10)]
        got = []
        thread = threading.Thread(target=lambda: got.extend(file.read_ranges(ranges)))
        thread.start()
        try:
            wait_for(lambda: len(server.requests) - begun == 10)
            assert got == [], "ten requests before the first answer"
        finally:
            server.go.set()
            thread.join()
        assert got == [data[offset : offset + 1000] for offset, _ in ranges]
        assert len(server.requests) - begun == 10


def test_what_was_prefetched_is_a_hit(server, data):
    with foreread.open(server.url, policy="none") as file:
        file.prefetch([(1 << 20, 100_000)])
        wait_for(lambda: file.stats()["ra_bytes"] > 0 and len(server.requests) > 1)
        assert file.read_at(1 << 20, 100_000) == data[1 << 20 : (1 << 20) + 100_000]
        stats = file.stats()
        assert stats["misses"] == 0 and stats["hits"] + stats["late_hits"] == 1, stats


def test_counters_and_words(path):
    with foreread.open(path, cache="8 MiB", policy="linux-6.18:max=256K") as file:
        for _ in range(30):
            file.read(1 << 16)
        stats, text = file.stats(), file.explain()
        assert stats["demand_reads"] == 30 and stats["demand_bytes"] == 30 << 16
        assert stats["hits"] + stats["late_hits"] + stats["misses"] == 30
        assert stats["ra_bytes"] > 0 and stats["used_bytes"] <= stats["ra_bytes"]
        assert "linux-6.18:max=256K" in text and "readahead is on" in text, text
        assert text.splitlines()[0] == f"{path}: policy linux-6.18:max=256K", text
        assert "30 reads of 2.0 MB in all" in text and "0 % failed" not in text, text
        (engine,) = [one for one in foreread.stats() if one["cache_bytes"] == 8 << 20]
        assert engine["kind"] == "file" and engine["open_files"] == 1
        assert engine["source_bytes"] >= 30 << 16
    assert all(one["open_files"] == 0 for one in foreread.stats())


def test_what_is_not_known_is_not_explained(path):
    """No rate of 0, no reads of 0.0 MB, no readahead of which nothing was."""
    with foreread.open(path, cache="9 MiB", buffering=0, policy="none") as file:
        file.read_at(2 << 20, 100), file.read_at(1 << 20, 200)
        text = file.explain()
    assert "2 reads of 300 bytes in all" in text, text
    assert "rate 0" not in text and "0 MB/s" not in text and "read ahead 0" not in text, text


def test_the_package_names_its_parts():
    names = dir(foreread)
    assert {"aio", "lab", "plan", "open", "read_files"} <= set(names)
    assert not {"os", "atexit"} & set(names)
    assert set(foreread.__all__) <= set(names) and foreread.plan.parquet


def test_files_of_a_kind_share_an_engine(path):
    with foreread.open(path, cache="24 MiB") as one, foreread.open(path, cache=24 << 20) as two:
        one.read(1), two.read(1)
        (engine,) = [engine for engine in foreread.stats() if engine["cache_bytes"] == 24 << 20]
        assert engine["open_files"] == 2 and engine["demand_reads"] == 2



def test_a_closed_file_holds_no_memory_of_another(path):
    code = """
import sys, foreread
with foreread.open(sys.argv[1], cache="100 TiB") as file:
    assert file.read(4)
with foreread.open(sys.argv[1], cache="33 MiB", policy="none") as file:
    assert file.read(4)
"""
    subprocess.run([sys.executable, "-c", code, path], check=True)


READS_ALL = """
import multiprocessing, sys, foreread
def read(url):
    with foreread.open(url) as file:
        return len(file.read_at(0, file.size))
url, folder, forked = sys.argv[1:]
foreread.configure(disk_cache=folder + ",free=0", disk_cache_size="1 GiB")
if forked == "yes":
    child = multiprocessing.get_context("fork").Process(target=read, args=(url,))
    child.start(), child.join()
else:
    print(read(url))
"""


@pytest.mark.parametrize("forked", ["no", "yes"])
def test_bytes_stay_on_disk_for_the_next_process(server, data, tmp_path, forked):
    folder = tmp_path / "cache"
    subprocess.run([sys.executable, "-c", READS_ALL, server.url, folder, forked], check=True)
    asked = len(server.requests)
    done = subprocess.run([sys.executable, "-c", READS_ALL, server.url, folder, "no"], check=True, capture_output=True, text=True)
    assert done.stdout == f"{SIZE}\n"
    assert len(server.requests) == asked + 1, "the version alone is asked for"


def test_a_disk_cache_that_is_none_is_refused(path, tmp_path):
    file = tmp_path / "file"
    file.write_text("no folder")
    with pytest.raises(NotADirectoryError):
        foreread.configure(disk_cache=file / "cache")
    for wrong in [{"disk_cache": "/c,size=many"}, {"disk_cache_size": "1 GiB"}]:
        with pytest.raises((ValueError, OSError)):
            foreread.configure(**wrong)
    with foreread.open(path) as same:
        assert same.read(1), "a refused setting changes nothing"


def test_configure_is_for_files_opened_later(path):
    with foreread.open(path) as before:
        foreread.configure(cache="40 MiB", policy="none")
        try:
            with foreread.open(path) as after:
                assert "policy none" in after.explain() and "policy auto" in before.explain()
            for wrong in [{"policy": "no-such"}, {"cache": "many"}, {"cache": -1}]:
                with pytest.raises(ValueError):
                    foreread.configure(**wrong)
            with foreread.open(path) as same:
                assert "policy none" in same.explain(), "a refused setting changes nothing"
        finally:
            foreread.configure(cache="256 MiB", policy="auto")


@pytest.mark.parametrize(
    ("name", "kind", "number"),
    [
        ("/no/such/file", FileNotFoundError, errno.ENOENT),
        ("http://127.0.0.1:1/x", ConnectionRefusedError, errno.ECONNREFUSED),
        ("s3://", OSError, errno.EINVAL),
        ("nbd://127.0.0.1:1/x", OSError, None),
    ],
)
def test_what_is_not_there_is_an_os_error(name, kind, number):
    with pytest.raises(kind) as raised:
        foreread.open(name)
    assert raised.value.filename == name and raised.value.errno == (number or raised.value.errno) > 0


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(OSError) as raised:
        foreread.open(tmp_path)
    assert raised.value.errno in (errno.EISDIR, errno.EINVAL)


def test_wrong_arguments_are_value_errors(path):
    for wrong in [{"policy": "no-such"}, {"policy": "linux-6.18:max=0.5"}, {"cache": "9 Q"}, {"cache": 0}, {"cache": -5}, {"cache": "1000 KiB"}]:
        with pytest.raises(ValueError):
            foreread.open(path, **wrong)
    for wrong in ["", "a\0b"]:
        with pytest.raises(ValueError):
            foreread.open(wrong)
    with pytest.raises(TypeError):
        foreread.open(path, cache=1.5)
    with foreread.open(path) as file:
        for call in [
            lambda: file.seek(-1),
            lambda: file.seek(0, 7),
            lambda: file.read_at(-1, 5),
            lambda: file.read_at(0, -5),
            lambda: file.read_ranges([(0, -5)]),
            lambda: file.prefetch([(-1, 5)]),
            lambda: file.readinto_at(bytearray(5), -1),
        ]:
            with pytest.raises(ValueError):
                call()
        for call in [lambda: file.read_ranges([1]), lambda: file.read_at("a", 5), lambda: pickle.dumps(file)]:
            with pytest.raises(TypeError):
                call()
        for call in [lambda: file.write(b"x"), lambda: file.truncate(0), lambda: file.fileno()]:
            with pytest.raises(io.UnsupportedOperation):
                call()
        # No memory for it, and the process goes on.
        with pytest.raises((MemoryError, OSError)):
            foreread._native.Handle.by_function(lambda a, b: b"", 1 << 62, "x", "x", (1, 1 << 20), (None, None)).read_at(0, 1 << 61)


def test_a_closed_file_says_so(path):
    file = foreread.open(path)
    file.close()
    file.close()
    for call in [
        lambda: file.read(1),
        lambda: file.read(),
        lambda: file.raw.readall(),
        lambda: file.readinto(bytearray(1)),
        lambda: file.read_at(0, 1),
        lambda: file.read_ranges([(0, 1)]),
        lambda: file.prefetch([(0, 1)]),
        lambda: file.seek(0),
        lambda: file.tell(),
        lambda: file.stats(),
        lambda: file.size,
        lambda: file.readable(),
        lambda: file.__enter__(),
    ]:
        with pytest.raises(ValueError):
            call()
    assert file.name == str(path) and "closed" in repr(file)


def test_a_secret_is_not_shown():
    with pytest.raises(OSError) as raised:
        foreread.open("http://user:canary@127.0.0.1:1/x?token=canary")
    assert "canary" not in str(raised.value) + repr(raised.value)


def test_a_file_that_changes_is_an_error(path, data):
    with foreread.open(path) as file:
        file.read_at(0, 100)
        path.write_bytes(b"other" * 1000)
        os.utime(path, ns=(1, 1))
        with pytest.raises(OSError) as raised:
            file.read_at(1 << 20, 100)
        assert raised.value.errno == errno.ESTALE


def test_threads_read_one_file(path, data):
    wrong = []

    def work(file, seed):
        for n in range(200):
            offset = (seed * 7919 + n * 104_729) % SIZE
            if file.read_at(offset, 5000) != data[offset : offset + 5000]:
                wrong.append(offset)

    with foreread.open(path, cache="1 MiB") as file:
        threads = [threading.Thread(target=work, args=(file, seed)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert file.stats()["demand_reads"] == 1600


def test_no_panic_crosses():
    panic = getattr(foreread._native, "panic", None)
    if panic is None:
        pytest.skip("needs a debug build")
    with pytest.raises(OSError, match="please report") as raised:
        panic()
    assert raised.value.errno == errno.EIO


def test_closed_is_not_to_be_set(path):
    with foreread.open(path, buffering=0) as file, foreread.open(path, "r", encoding="latin-1") as text:
        for one in [file, text.buffer, open(path, "rb", buffering=0)]:
            with pytest.raises(AttributeError, match="not writable|no setter"):
                one.closed = True
        assert not file.closed and not text.closed and text.read(3)


def test_the_buffer_of_a_text_knows_that_its_file_is_closed(path):
    for opened in [foreread.open, open]:
        text = opened(path, "r", encoding="latin-1")
        text.buffer.raw.close()
        assert text.buffer.closed and text.closed, opened
        with pytest.raises(ValueError, match="closed file"):
            text.read(1)
        text.close()


def test_an_emulator_takes_another_port_where_one_is_taken(emulator):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = [taken.getsockname()[1]]
        assert emulator("s3", ports=lambda: ports.pop(0) if ports else free_port()) != taken.getsockname()[1]
    assert not ports
